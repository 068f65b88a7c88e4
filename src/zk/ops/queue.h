/* The queue recipe, by which every kind of lock is acquired, and the operations on a queued
 * node. */
#ifndef HFI_ZK_OPS_QUEUE_H
#define HFI_ZK_OPS_QUEUE_H

#include "zk/ops/call.h"

extern const struct hfi_call_ops hfi_zk_lock_ops;

/* ---- queue.c ---- */

void hfi_zk_acquire(struct hfi_call *call);

static inline bool hfi_zk_tries_once(const struct hfi_call *call) {
    return call->deadline_ms <= call->start_ms;
}

/* Joins the queue; the kind's `granted` runs when our node is at the head. */
void hfi_zk_enqueue(struct hfi_zk_call *c);
/* Our node is gone: joins again at the tail. */
void hfi_zk_queue_restart(struct hfi_zk_call *c);
/* Lists the queue again, to see whether our node still holds the lock. */
void hfi_zk_queue_check(struct hfi_zk_call *c);

/* ---- mutex.c ---- */

/* The lowest sequence number holds the lock. */
struct hfi_zk_queue_state hfi_zk_read_lock_queue(struct hfi_zk_children queue,
                                                 const struct hfi_zk_node *me);

/* ---- reenter.c ---- */

/* The owner holds the lock already. The count is kept here; the server is asked only if little of
 * the proved time is left. `there`: c->held is the entry. */
void hfi_zk_acquire_again(struct hfi_zk_call *c, bool there);
/* A `multi` that checks the node c->queue.node, and its result: HF_OK with the server's error code,
 * of which only NO_NODE means that the node is gone; HF_EPROTO. */
void hfi_zk_write_check(struct hfi_zk_call *c, struct hfi_zk_out *out);
int hfi_zk_read_check(struct hfi_zk_call *c, int32_t *ret_refusal);

/* ---- parents.c ---- */

/* Fails the call: the url's chroot does not exist, and this client never creates it. */
void hfi_zk_chroot_missing(struct hfi_zk_call *c);

/* Creates the node at the lock's path + `beneath` (a constant string), and all nodes above it.
 * NULL: only those above the lock's path. */
void hfi_zk_make_parents(struct hfi_zk_call *c, const char *beneath,
                         void (*then)(struct hfi_zk_call *c));

/* ---- recover_create.c ---- */

/* Whether a node with our uuid is in the queue; *ret is that node. */
bool hfi_zk_queue_find(struct hfi_zk_children queue, const unsigned char uuid[HFI_ZK_UUID_LEN],
                       struct hfi_zk_node *ret);
/* Finds out whether a create whose reply was lost has made a node: c->queue.made says so, then
 * `then` runs. */
void hfi_zk_queue_recover(struct hfi_zk_call *c, void (*then)(struct hfi_zk_call *c));

/* ---- release.c ---- */

void hfi_zk_release(struct hfi_call *call);
void hfi_zk_extend(struct hfi_call *call);
void hfi_zk_settle(struct hfi_call *call);
/* Deletes the node that this call may have in the queue; then c->left runs. */
void hfi_zk_queue_leave(struct hfi_zk_call *c);

/* ---- queries.c ---- */

void hfi_zk_break(struct hfi_call *call);
void hfi_zk_ask(struct hfi_call *call);

/* ---- renew.c ---- */

void hfi_zk_renew(struct hfi_engine *engine, struct hfi_renewal *renewal);
void hfi_zk_renewals_stop(struct hfi_zk *zk);

#endif
