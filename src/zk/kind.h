/* A kind of lock, as ZooKeeper's: which nodes it makes, and who of those in line holds it. */
#ifndef HFI_ZK_KIND_H
#define HFI_ZK_KIND_H

#include "engine/engine.h"
#include "zk/names.h"

/* What one look at the line says. */
struct hfi_zk_look {
    bool wrong;  /* what is there is no line of this kind */
    bool found;  /* we are in it */
    bool robbed; /* we are, with a borrowed number, and who lent it is not any more */
    bool held;   /* it is ours; or, of somebody who is not in line: it would be */
    /* Else: whom to watch, and whether its end alone makes it ours. */
    struct hfi_zk_text watch;
    bool only;
};

/* The lowest numbers of a line: of mutexes, of writers, of readers and writers (front.c). */
struct hfi_zk_front {
    struct hfi_zk_first {
        bool there;
        int32_t number;
    } lock, writer, either;
};
struct hfi_zk_front hfi_zk_front_of(struct hfi_zk_children line);

/* Nobody of those is before it. One who borrows a number is not before its lender. */
static inline bool hfi_zk_is_first(const struct hfi_zk_first *first,
                                   const struct hfi_zk_node *node) {
    return !first->there || !hfi_zk_before(first->number, node->number);
}

struct hfi_zk_call;

struct hfi_zk_kind {
    enum hfi_zk_label label; /* of its nodes */
    bool
        by_event; /* that the last one before us is gone makes it ours: the line need not be listed */
    /* Where the line is, behind the lock's path. NULL: right beneath it. */
    const char *beneath;
    /* An owner that holds a lock of this kind gets the number of its node. NULL: there is none. */
    const struct hfi_kind *borrows_from;
    /* What to do when it is held. NULL: that is all. */
    void (*granted)(struct hfi_zk_call *c);
    /* Looks at the line. `me` is our node; NULL: we are not in it, and would come last. */
    struct hfi_zk_look (*look)(struct hfi_zk_children line, const struct hfi_zk_node *me);
    /* Whether this node, which is in the line, holds the lock on the kind's side. */
    bool (*holds)(const struct hfi_zk_front *front, const struct hfi_zk_node *node);
    hf_found found; /* what inspect calls it */
};

static inline const struct hfi_zk_kind *hfi_zk_kind_of(const struct hfi_kind *kind) {
    return kind->engine_private;
}

extern const struct hfi_kind hfi_zk_plain, hfi_zk_nonreentrant, hfi_zk_spin, hfi_zk_fenced,
    hfi_zk_fair, hfi_zk_fair_nonreentrant, hfi_zk_read, hfi_zk_write;

#endif
