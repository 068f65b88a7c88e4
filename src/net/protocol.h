/* What a connection speaks: how bytes become messages, the greeting, and the keep-alive. A
 * protocol is a const table, named by its target.
 *
 * The connection does not know what a message is. It expects one reply per request, in the order
 * of the requests. */
#ifndef HFI_NET_PROTOCOL_H
#define HFI_NET_PROTOCOL_H

#include "base/mem.h"

#include <holdfast/holdfast.h>

struct hfi_conn;

struct hfi_protocol {
    /* ---- Reading, on the driver's thread ---- */

    /* A reader serves one life of a connection. NULL: out of memory. */
    void *(*reader_new)(const struct hfi_mem *mem);
    void (*reader_free)(void *reader);
    /* Takes bytes as they came. HF_ENOMEM. */
    int (*feed)(void *reader, const char *bytes, size_t len, hf_error *error);
    /* The next whole message, now owned by the caller; NULL: incomplete. HF_EPROTO, HF_ENOMEM:
     * unreadable. The reader bounds how much the server can make us buffer. */
    int (*next)(void *reader, void **ret_message, hf_error *error);
    void (*message_free)(void *message); /* on any thread */
    /* Is this message a push? Called only on a connection with a push function. NULL: every
     * message there is one, also the answer to a ping. */
    bool (*is_push)(const void *message);

    /* ---- The greeting, on the keeper's thread: a state machine of its own ---- */

    /* Sends the first commands (hfi_conn_send_greeting) and makes the state. HF_ENOMEM. */
    int (*greet)(struct hfi_conn *conn, void **ret_greeting, hf_error *error);
    /* Takes the next answer; may send more. *ret_done: the connection is ready. Anything but
     * HF_OK ends it. */
    int (*greeted)(void *greeting, const void *message, bool *ret_done, hf_error *error);
    /* The server closed the connection during the greeting. True: its last answer tells why, and
     * `error` is set. */
    bool (*explain_end)(const void *greeting, hf_error *error);
    void (*greeting_free)(void *greeting);

    /* ---- Texts and keep-alive ---- */

    const char *ping; /* a request without meaning */
    size_t ping_len;
    /* A ping that also asks for something, on connections where it is answered like any other
     * request. `queried` takes the answer, on the driver's thread, and when it was asked for. NULL:
     * `ping` is sent instead. */
    const char *query;
    size_t query_len;
    void (*queried)(struct hfi_conn *conn, const void *message, int64_t sent_ms);
    /* Error texts for a server that answers a plain-text greeting with TLS, or closes silently.
     * NULL: none. */
    const char *speaks_tls, *may_want_tls;
};

/* For a greeting: appends to what is about to be sent. False: out of memory. */
bool hfi_conn_send_greeting(struct hfi_conn *conn, const char *bytes, size_t len);

#endif
