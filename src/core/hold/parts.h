/*
 * A joint lock, as the core knows it. It is made of other locks (its parts), and its hold has a
 * stake in each of them.
 *
 * Its hold is a hold like any other, in the core of its first part. But no server knows of it. It
 * is valid as long as the holds of all its parts are; its deadline is computed from theirs. Each
 * acquire of it leaves a share with the hold: a stake in each part, and a function to give them
 * back. A part's hold writes its deadline to its stakes whenever that changes, and sets `lost` in
 * them when it ends. So a reader of a stake needs nothing of the other core, which may have been
 * closed.
 */
#ifndef HFI_CORE_HOLD_PARTS_H
#define HFI_CORE_HOLD_PARTS_H

#include "base/list.h"
#include "base/mem.h"
#include "core/observe/name_stats.h"
#include "engine/engine.h"

struct hfi_cohort;
struct hfi_core;
struct hfi_hold;

struct hfi_part {
    struct hfi_core *core; /* its memory is retained */
    const struct hfi_kind *kind;
    struct hfi_backoff spin;
    const char *name;
    size_t name_len;
};

/* Immutable once in use; any thread. */
struct hfi_parts {
    atomic_int refs; /* handles, operations, shares */
    const struct hfi_mem *mem;
    struct hfi_cohort *cohort;            /* of a cohort (src/joint); else NULL */
    void (*end)(struct hfi_parts *parts); /* the last reference goes; or NULL */
    size_t len;
    unsigned char order[HF_MULTI_MAX];      /* in which they are waited for: indices */
    struct hfi_name_stats_ref *stats_table; /* of each part: a joint lock has none of its own */
    struct hfi_part of[]; /* in the order given; name statistics and names are behind it */
};

/* Copies them; the caller fills in the order. NULL: out of memory. */
struct hfi_parts *hfi_parts_new(const struct hfi_mem *mem, const struct hfi_part *parts,
                                size_t len);
void hfi_parts_ref(struct hfi_parts *parts);
void hfi_parts_unref(struct hfi_parts *parts); /* NULL is fine */

/* ---- Stakes ---- */

struct hfi_stake {
    atomic_int refs; /* its share, operations, and the part's hold while linked */
    const struct hfi_mem *mem;
    struct hfi_task *watcher; /* referenced: the watchdog of the joint lock's core */
    struct hfi_link link;     /* in the part's hold; guarded by its shard, as is `generation` */
    uint64_t generation;      /* of the part's hold, when it was lost */
    _Atomic int64_t deadline_ms, warn_at_ms;
    const char *_Atomic lost; /* why the part's hold has ended; NULL: it has not */
};

/* NULL: out of memory. `whole` is the joint lock's core. */
struct hfi_stake *hfi_stake_new(const struct hfi_part *part, struct hfi_core *whole);
void hfi_stake_ref(struct hfi_stake *stake);
void hfi_stake_unref(struct hfi_stake *stake); /* NULL is fine */

/* With the shard of the part's hold locked. */
void hfi_stake_put_locked(struct hfi_stake *stake, struct hfi_hold *hold);
/* True: it was linked there, and now the operation has to release the count that it stands for. */
bool hfi_stake_take_locked(struct hfi_stake *stake);
/* The last loss was of this stake's possession, and has not been reported. */
bool hfi_stake_is_lost_locked(const struct hfi_stake *stake, const struct hfi_hold *hold);
/* The part's hold has other times; it has ended; or its core ends. */
void hfi_stakes_set_times_locked(struct hfi_hold *hold);
void hfi_stakes_lose_locked(struct hfi_hold *hold, const char *why);
void hfi_stakes_drop_locked(struct hfi_hold *hold);
/* Its whole count belongs to stakes. */
bool hfi_stakes_are_all_locked(const struct hfi_hold *hold);

/* ---- Shares ---- */

struct hfi_share {
    struct hfi_link link; /* in the joint lock's hold */
    size_t len;
    struct hfi_stake *const *stakes;
    /* Gives all of it back in the background; needs no memory. No mutex is held. */
    void (*give_back)(struct hfi_share *share);
    /* The joint lock's client is closed: what is left expires. */
    void (*let_run_out)(struct hfi_share *share);
};

/* With the shard of the joint lock locked. */
/* Why a part is not held any more; NULL: all are. */
const char *hfi_shares_why_lost(const struct hfi_hold *hold);
/* Until when all parts are held, and when to warn; HFI_NEVER: it has no shares. */
int64_t hfi_shares_deadline_ms(const struct hfi_hold *hold);
int64_t hfi_shares_warn_at_ms(const struct hfi_hold *hold);
/* It was acquired once more. */
void hfi_share_put_locked(struct hfi_share *share, struct hfi_hold *hold);
/* The last one; NULL: none. */
struct hfi_share *hfi_share_take_locked(struct hfi_hold *hold);

/* The hold is over without a release. No mutex is held. */
void hfi_shares_give_back(struct hfi_hold *hold);
/* The same when its core ends. */
void hfi_shares_let_run_out(struct hfi_hold *hold);

/* Some part's hold has ended, or will end sooner than before: checks all joint holds. On the
 * keeper's thread. */
#define HFI_WATCHDOG_PARTS 0x02u
void hfi_parts_check(struct hfi_core *core);

#endif
