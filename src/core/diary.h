/*
 * Diaries: how long it took to get what has a name, and how long it was held; for some names, and as
 * long as the client lives.
 *
 * A handle has a slot for the diary of its name, which is found when something is first acquired by it.
 * Who has a reference (slots, operations, holds) writes without a lock. There are `limit` diaries at most,
 * and a client that uses more names has none for the others: but one that nobody has a reference to, and
 * nobody has had for a while, makes room for a name that is in use.
 */
#ifndef HFI_CORE_DIARY_H
#define HFI_CORE_DIARY_H

#include "base/list.h"
#include "base/mem.h"
#include "base/table.h"
#include "engine/engine.h"

#include <pthread.h>
#include <stdatomic.h>

#define HFI_DIARY_NAME_MAX 1024 /* longer names have none: they are of no use as a label */

struct hfi_times {
    atomic_ullong count, sum_us, max_us, buckets[32];
};

/* To both; the second may be NULL. */
void hfi_times_add(struct hfi_times *times, struct hfi_times *also, int64_t us);
void hfi_times_read(const struct hfi_times *times, hf_times *ret);

/* What is in one. */
struct hfi_entries {
    struct hfi_times wait, hold, hand_over;
};

struct hfi_diary {
    struct hfi_keyed keyed; /* guarded by the mutex of all, like the next */
    struct hfi_link link;   /* in `by_use` */
    atomic_uint users;      /* references; from none to one it goes under the mutex only */
    _Atomic int64_t used_ms;
    uint64_t begun; /* another number for each that was ever made */
    /* NULL: nothing is in it. There may be many who wait, and never come to write anything. */
    struct hfi_entries *_Atomic entries;
    char name[];
};

/* Those of a client. A handle may outlive the core, so they are kept beside it. */
struct hfi_diaries {
    const struct hfi_mem *mem;
    size_t limit;    /* how many there may be; 0: none are kept */
    int64_t rest_ms; /* how long one must not have been used to make room for another */

    pthread_mutex_t mtx; /* guards below */
    struct hfi_table by_name;
    struct hfi_link by_use; /* who was looked at last is the last */
    uint64_t made;
};

/* A place for the diary of one name. All zero: it was not looked for yet. */
struct hfi_diary_slot {
    struct hfi_diary *_Atomic diary; /* referenced; NULL: none */
    atomic_bool looked;              /* set behind it, so whoever sees this sees that */
};

void hfi_diaries_init(struct hfi_diaries *diaries, const struct hfi_mem *mem);
void hfi_diaries_clear(struct hfi_diaries *diaries); /* when nobody has a reference any more */

/* The slot's diary, which is looked for if it was not yet; with a reference for the caller. NULL: there is
 * none, for lack of room or of memory. Any thread. */
struct hfi_diary *hfi_diary_take(struct hfi_diaries *diaries, struct hfi_diary_slot *slot,
                                 const char *name, size_t name_len);
void hfi_diary_slot_clear(struct hfi_diary_slot *slot);
/* Where to write in it; NULL: there is no memory for it, or no diary. Any thread that has a reference. */
struct hfi_entries *hfi_diary_make_entries(struct hfi_diaries *diaries, struct hfi_diary *diary);

static inline struct hfi_entries *hfi_diary_entries(struct hfi_diaries *diaries,
                                                    struct hfi_diary *diary) {
    if (diary == NULL)
        return NULL;
    struct hfi_entries *entries = atomic_load_explicit(&diary->entries, memory_order_acquire);
    return entries != NULL ? entries : hfi_diary_make_entries(diaries, diary);
}

static inline void hfi_diary_ref(struct hfi_diary *diary) {
    if (diary != NULL)
        atomic_fetch_add_explicit(&diary->users, 1, memory_order_relaxed);
}

/* What was written until now is seen by whoever makes room. NULL is fine. */
static inline void hfi_diary_unref(struct hfi_diary *diary) {
    if (diary != NULL)
        atomic_fetch_sub_explicit(&diary->users, 1, memory_order_release);
}

/* Visits those in which there is something, those used of late first. Under the mutex, so `visit` calls
 * nobody back. */
void hfi_diaries_tell(struct hfi_diaries *diaries,
                      void (*visit)(void *arg, const struct hfi_named_times *times), void *arg);

#endif
