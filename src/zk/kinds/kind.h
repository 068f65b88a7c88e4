/* A kind of lock in ZooKeeper: which nodes it makes, and which node of the queue holds it. */
#ifndef HFI_ZK_KINDS_KIND_H
#define HFI_ZK_KINDS_KIND_H

#include "engine/engine.h"
#include "zk/wire/names.h"

/* The outcome of reading the queue once. */
struct hfi_zk_queue_state {
    bool wrong;       /* the nodes are not a queue of this kind */
    bool found;       /* our node is in it */
    bool lender_gone; /* our node is in it with a borrowed number, and the lender's node is gone */
    bool held;        /* we hold the lock; without a node: we would */
    /* Else: the node to watch, and whether its deletion alone makes the lock ours. */
    struct hfi_zk_text watch;
    bool only;
};

/* The lowest numbers of a queue: of mutexes, of writers, of readers and writers (queue_head.c). */
struct hfi_zk_queue_head {
    struct hfi_zk_first {
        bool there;
        int32_t number;
    } lock, writer, either;
};
struct hfi_zk_queue_head hfi_zk_queue_head_of(struct hfi_zk_children queue);

/* No such node is before it. The borrower of a number is not before its lender. */
static inline bool hfi_zk_is_first(const struct hfi_zk_first *first,
                                   const struct hfi_zk_node *node) {
    return !first->there || !hfi_zk_before(first->number, node->number);
}

struct hfi_zk_call;

struct hfi_zk_kind {
    enum hfi_zk_label label; /* of its nodes */
    /* Deletion of the last node before ours makes it ours: no need to list the queue. */
    bool by_event;
    /* The queue's path, relative to the lock's. NULL: right beneath it. */
    const char *beneath;
    /* If the owner holds a lock of this kind, our node borrows its number. NULL: no such kind. */
    const struct hfi_kind *borrows_from;
    /* Runs when the lock is held. NULL: the acquire is done. */
    void (*granted)(struct hfi_zk_call *c);
    /* Evaluates the queue. `me` is our node; NULL: we have none, and would come last. */
    struct hfi_zk_queue_state (*read_queue)(struct hfi_zk_children queue,
                                            const struct hfi_zk_node *me);
    /* Whether this node of the queue holds the lock on the kind's side. */
    bool (*holds)(const struct hfi_zk_queue_head *queue_head, const struct hfi_zk_node *node);
    hf_found found; /* the kind that inspect reports */
};

static inline const struct hfi_zk_kind *hfi_zk_kind_of(const struct hfi_kind *kind) {
    return kind->engine_private;
}

extern const struct hfi_kind hfi_zk_plain, hfi_zk_nonreentrant, hfi_zk_spin, hfi_zk_fenced,
    hfi_zk_fair, hfi_zk_fair_nonreentrant, hfi_zk_read, hfi_zk_write;

#endif
