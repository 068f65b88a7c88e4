/* What a connection speaks: how bytes become messages, what is said first, and how to ask whether
 * the other side is still there. A protocol is a const table; its target names it.
 *
 * The connection knows nothing of what a message is. It expects that requests are answered in the
 * order in which they were sent, with one message each. */
#ifndef HFI_NET_PROTOCOL_H
#define HFI_NET_PROTOCOL_H

#include "base/mem.h"

#include <holdfast/holdfast.h>

struct hfi_conn;

struct hfi_protocol {
    /* ---- Reading, on the thread of whoever is in the seat ---- */

    /* A reader serves one life of a connection. NULL: out of memory. */
    void *(*reader_new)(const struct hfi_mem *mem);
    void (*reader_free)(void *reader);
    /* Takes bytes as they came. HF_ENOMEM. */
    int (*feed)(void *reader, const char *bytes, size_t len, hf_error *error);
    /* The next whole message, which is now the caller's; NULL: more has to come. HF_EPROTO,
     * HF_ENOMEM: what came cannot be read. It is for the reader to bound what the other side can
     * make us hold. */
    int (*next)(void *reader, void **ret_message, hf_error *error);
    void (*message_free)(void *message); /* on any thread */
    /* Did nobody ask for this message? Only on a connection with a push function. NULL: on these
     * nobody asks for anything, so every message is such a one, the answer to a ping too. */
    bool (*is_push)(const void *message);

    /* ---- The greeting, on the keeper's thread: a state machine of its own ---- */

    /* Says the first words (hfi_conn_say) and makes the state. HF_ENOMEM. */
    int (*greet)(struct hfi_conn *conn, void **ret_greeting, hf_error *error);
    /* The next answer; it may say more. *ret_done: the connection is ready. Anything but HF_OK ends
     * it. */
    int (*greeted)(void *greeting, const void *message, bool *ret_done, hf_error *error);
    /* The other side has ended the connection before that. If its last words tell why: true, and
     * the words. */
    bool (*explain_end)(const void *greeting, hf_error *error);
    void (*greeting_free)(void *greeting);

    /* ---- Words ---- */

    const char *ping; /* a request that asks nothing */
    size_t ping_len;
    /* What to say to somebody whose server answers a greeting in clear with TLS, or with silence
     * and an end. NULL: nothing. */
    const char *speaks_tls, *may_want_tls;
};

/* For a greeting: appends to what is about to be sent. False: out of memory. */
bool hfi_conn_say(struct hfi_conn *conn, const char *bytes, size_t len);

#endif
