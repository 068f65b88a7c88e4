/* RESP, the protocol of Redis and Valkey, in its second version. A message is a redisReply. */
#ifndef HFI_NET_RESP_H
#define HFI_NET_RESP_H

#include "engine/engine.h"
#include "net/protocol.h"

#include <stdatomic.h>

extern const struct hfi_protocol hfi_resp;
extern const struct hfi_protocol hfi_resp_sentinel; /* the same, with other words of advice */

/* Whom we expect to meet; anybody else is refused, if it says what it is. */
enum hfi_resp_peer {
    HFI_PEER_SERVER,  /* any but a sentinel */
    HFI_PEER_PRIMARY, /* one that says of itself that it is no replica */
    HFI_PEER_SENTINEL
};

/* How a connection introduces itself: the `login` of its target. */
struct hfi_resp_login {
    _Atomic enum hfi_resp_peer peer;
    const char *user, *password; /* NULL: none */
    int db;
    const char *client_name;  /* CLIENT SETNAME */
    struct hfi_server server; /* told by the last greeting; on the keeper's thread */
    atomic_bool memory_known; /* whether the server may evict, or that it does not say */
};

/* ---- resp_numbers.c ---- */

/* A message of integers alone that begins here, and its length in bytes. NULL: it is another, or not
 * all of it is here, or there is no memory; then hiredis knows what to say. */
void *hfi_resp_numbers(const char *bytes, size_t len, size_t *ret_used);
/* Frees any message, whoever made it. */
void hfi_resp_free(void *message);

/* ---- For resp.c and resp_greet.c; `arg` is the greeting ---- */

int hfi_resp_greet(struct hfi_conn *conn, void **ret_greeting, hf_error *error);
int hfi_resp_greeted(void *arg, const void *message, bool *ret_done, hf_error *error);
bool hfi_resp_explain_end(const void *greeting, hf_error *error);
void hfi_resp_greeting_free(void *arg);

#endif
