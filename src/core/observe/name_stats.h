/*
 * Statistics by name: how long acquires of a name took, and how long it was held; for some names,
 * as long as the client lives.
 *
 * A handle has a slot for the statistics of its name, filled at its first acquire. Threads write
 * through a reference (of slots, operations, holds) without a lock. There are at most `limit`
 * entries; a client that uses more names has none for the others. But an entry without references,
 * unused for a while, makes room for a name that is in use.
 */
#ifndef HFI_CORE_OBSERVE_NAME_STATS_H
#define HFI_CORE_OBSERVE_NAME_STATS_H

#include "base/list.h"
#include "base/mem.h"
#include "base/table.h"
#include "engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>

struct hfi_named_times;

#define HFI_NAME_STATS_NAME_MAX 1024 /* longer names have none: they are useless as a label */

struct hfi_times {
    atomic_ullong count, sum_us, max_us, buckets[32];
};

/* To both; the second may be NULL. */
void hfi_times_add(struct hfi_times *times, struct hfi_times *also, int64_t us);
void hfi_times_read(const struct hfi_times *times, hf_histogram *ret);

/* The histograms of one name. */
struct hfi_entries {
    struct hfi_times wait, hold, hand_over;
};

struct hfi_name_stats {
    struct hfi_keyed keyed; /* guarded by the table's mutex, like the next */
    struct hfi_link link;   /* in `by_use` */
    atomic_uint users;      /* references; goes from 0 to 1 only under the mutex */
    _Atomic int64_t used_ms;
    uint64_t begun; /* a new number for each entry ever made */
    /* NULL: empty. Many operations may wait, and never write anything. */
    struct hfi_entries *_Atomic entries;
    char name[];
};

/* All entries of a client. A handle may outlive the core, so they are kept beside it. */
struct hfi_name_stats_table {
    const struct hfi_mem *mem;
    size_t limit;    /* how many there may be; 0: none */
    int64_t rest_ms; /* how long an entry must have been unused to make room for another */

    pthread_mutex_t mtx; /* guards below */
    struct hfi_table by_name;
    struct hfi_link by_use; /* most recently checked last */
    uint64_t made;
};

/* A slot for the statistics of one name. All zero: not looked up yet. */
struct hfi_name_stats_ref {
    struct hfi_name_stats *_Atomic name_stats; /* referenced; NULL: none */
    /* Set after `name_stats`: a thread that sees this flag sees that pointer. */
    atomic_bool looked_up;
};

void hfi_name_stats_table_init(struct hfi_name_stats_table *stats_table, const struct hfi_mem *mem);
/* When there are no references any more. */
void hfi_name_stats_table_clear(struct hfi_name_stats_table *stats_table);

/* The slot's entry, looked up if necessary; with a reference for the caller. NULL: none, for lack
 * of room or memory. Any thread. */
struct hfi_name_stats *hfi_name_stats_take(struct hfi_name_stats_table *stats_table,
                                           struct hfi_name_stats_ref *slot, const char *name,
                                           size_t name_len);
void hfi_name_stats_ref_clear(struct hfi_name_stats_ref *slot);
/* Where to write; NULL: no memory, or no entry. Any thread with a reference. */
struct hfi_entries *hfi_name_stats_make_entries(struct hfi_name_stats_table *stats_table,
                                                struct hfi_name_stats *name_stats);

static inline struct hfi_entries *hfi_name_stats_entries(struct hfi_name_stats_table *stats_table,
                                                         struct hfi_name_stats *name_stats) {
    if (name_stats == NULL)
        return NULL;
    struct hfi_entries *entries = atomic_load_explicit(&name_stats->entries, memory_order_acquire);
    return entries != NULL ? entries : hfi_name_stats_make_entries(stats_table, name_stats);
}

static inline void hfi_name_stats_addref(struct hfi_name_stats *name_stats) {
    if (name_stats != NULL)
        atomic_fetch_add_explicit(&name_stats->users, 1, memory_order_relaxed);
}

/* Release order: the thread that makes room sees all earlier writes. NULL is fine. */
static inline void hfi_name_stats_unref(struct hfi_name_stats *name_stats) {
    if (name_stats != NULL)
        atomic_fetch_sub_explicit(&name_stats->users, 1, memory_order_release);
}

/* Visits the entries that are not empty, most recently used first. Under the mutex, so `visit` must
 * not call back. */
void hfi_name_stats_table_report(struct hfi_name_stats_table *stats_table,
                                 void (*visit)(void *arg, const struct hfi_named_times *times),
                                 void *arg);

#endif
