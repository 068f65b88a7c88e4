/* One server and our connections to it: two for commands of synchronous callers, one for the
 * keeper (renewals, settlement, asynchronous operations), one for pub/sub, and one for
 * hf_dispatch() if that is used. None is opened before somebody needs it. */
#ifndef HFI_REDIS_ROUTE_NODE_H
#define HFI_REDIS_ROUTE_NODE_H

#include "engine/engine.h"
#include "net/conn.h"
#include "net/url.h"

struct hfi_node;

struct hfi_node_config {
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    struct hfi_exec *dispatch; /* NULL: without manual dispatch */
    const struct hfi_url *url; /* copied from */
    const char *client_name;   /* copied */
    int64_t cmd_timeout_ms, ping_ms;
    atomic_ullong *commands, *reconnects;
    hfi_push_fn push;           /* messages of the pub/sub connection */
    hfi_state_fn pubsub_state;  /* it came up, or was lost */
    hfi_state_fn control_state; /* the same for the keeper's connection */
    void *arg;                  /* of all three */
};

int hfi_node_new(const struct hfi_node_config *config, struct hfi_node **ret, hf_error *error);
/* Closes the connections: requests in flight complete with HF_ECLOSED. On the keeper's thread,
 * or when it has ended, and when nobody can be in hfi_node_pick() on another. Idempotent. */
void hfi_node_stop(struct hfi_node *node);
void hfi_node_free(struct hfi_node *node); /* NULL and half-built nodes are fine */
void hfi_node_close_fds(struct hfi_node *node);

/* The connection for a call of this lane. NULL: stopped, or (dispatch only) out of memory. */
struct hfi_conn *hfi_node_pick(struct hfi_node *node, enum hfi_lane lane);
struct hfi_conn *hfi_node_pubsub(struct hfi_node *node);
/* As struct hfi_engine_ops has it. */
bool hfi_node_identity(const struct hfi_node *node, struct hfi_server *ret);

/* Whether connections lead to a server that is not where it was: its place was removed, or another
 * one is there now. These are closed, and the next go to what is there. *ret_control: the keeper's
 * is among them. Never for a server that is not found by a path of ours (local:). Any thread. */
bool hfi_node_was_replaced(struct hfi_node *node, bool *ret_control);

const char *hfi_node_name(const struct hfi_node *node);
int64_t hfi_node_last_answer_ms(const struct hfi_node *node); /* 0: it never said anything */

#endif
