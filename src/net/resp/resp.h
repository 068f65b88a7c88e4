/* RESP2, the protocol of Redis and Valkey. A message is a struct hfi_reply (net/resp/wire). */
#ifndef HFI_NET_RESP_RESP_H
#define HFI_NET_RESP_RESP_H

#include "engine/observe.h"
#include "net/protocol.h"
#include "net/resp/wire/reply.h"

#include <stdatomic.h>

extern const struct hfi_protocol hfi_resp;
extern const struct hfi_protocol hfi_resp_sentinel; /* the same, with other hints in errors */

/* The expected peer; one that identifies itself as another is refused. */
enum hfi_resp_peer {
    HFI_PEER_SERVER,  /* any but a sentinel */
    HFI_PEER_PRIMARY, /* its ROLE must be master */
    HFI_PEER_SENTINEL
};

/* How a connection introduces itself: the `login` of its target. */
struct hfi_resp_login {
    _Atomic enum hfi_resp_peer peer;
    const char *user, *password; /* NULL: none */
    int db;
    const char *client_name; /* CLIENT SETNAME */
    /* From the last greeting; on the keeper's thread, like the next two. */
    struct hfi_server server;
    int64_t learnt_ms;          /* when `server` was learnt */
    int64_t took_over_ms;       /* when it was first found in another's place; 0: it was not */
    atomic_bool memory_known;   /* INFO memory was answered or refused */
    atomic_bool no_client_info; /* CLIENT INFO was refused */
};

/* ---- For resp.c and resp_greet.c; `arg` is the greeting ---- */

int hfi_resp_greet(struct hfi_conn *conn, void **ret_greeting, hf_error *error);
int hfi_resp_greeted(void *arg, const void *message, bool *ret_done, hf_error *error);
void hfi_resp_queried(struct hfi_conn *conn, const void *message, int64_t sent_ms);
bool hfi_resp_explain_end(const void *greeting, hf_error *error);
void hfi_resp_greeting_free(void *arg);

#endif
