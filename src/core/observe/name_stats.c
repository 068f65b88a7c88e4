/*
 * Statistics by name (name_stats.h): finding them, making room, reporting them.
 *
 * Found and made under one mutex, on the thread that first acquires through a handle. Reported on
 * the keeper's thread, or on the thread that reads the client's metrics. Counters are atomic, since
 * all threads with a reference write at once.
 *
 * Invariants: an entry without references gets one only under the mutex, so an unused entry found
 * there can be freed. An entry that is checked for room and is in use moves to the end of the list.
 * So room is found in a few steps, however many entries there are; if not, the next search
 * continues from there.
 */
#include "core/observe/name_stats.h"

#include "base/clock.h"
#include "fleet/report.h"

#include <string.h>

/* A metrics reader has seen the entry by then, and treats later values as a new series. */
#define REST_MS (5 * 60 * 1000)
#define EVICT_TRIES_MAX 8

/* ---- Times ---- */

void hfi_times_read(const struct hfi_times *times, hf_histogram *ret) {
    ret->count = atomic_load_explicit(&times->count, memory_order_relaxed);
    ret->sum_us = atomic_load_explicit(&times->sum_us, memory_order_relaxed);
    ret->max_us = atomic_load_explicit(&times->max_us, memory_order_relaxed);
    for (size_t i = 0; i < sizeof ret->buckets / sizeof ret->buckets[0]; i++)
        ret->buckets[i] = atomic_load_explicit(&times->buckets[i], memory_order_relaxed);
}

static inline void add(struct hfi_times *times, unsigned long long value, unsigned bucket) {
    atomic_fetch_add_explicit(&times->count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&times->sum_us, value, memory_order_relaxed);
    atomic_fetch_add_explicit(&times->buckets[bucket], 1, memory_order_relaxed);
    unsigned long long max = atomic_load_explicit(&times->max_us, memory_order_relaxed);
    while (value > max &&
           !atomic_compare_exchange_weak_explicit(&times->max_us, &max, value, memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
}

void hfi_times_add(struct hfi_times *times, struct hfi_times *also, int64_t us) {
    unsigned long long value = us > 0 ? (unsigned long long)us : 0;
    unsigned bucket = value == 0 ? 0 : 64u - (unsigned)__builtin_clzll(value);
    bucket = bucket < 32 ? bucket : 31;
    add(times, value, bucket);
    if (also != NULL)
        add(also, value, bucket);
}

/* Several threads may come here at once: one of them installs its own. */
struct hfi_entries *hfi_name_stats_make_entries(struct hfi_name_stats_table *stats_table,
                                                struct hfi_name_stats *name_stats) {
    struct hfi_entries *made = hfi_zalloc(stats_table->mem, sizeof *made), *there = NULL;
    if (made == NULL || atomic_compare_exchange_strong(&name_stats->entries, &there, made))
        return made;
    hfi_free(stats_table->mem, made);
    return there;
}

static const struct hfi_entries *entries_of(const struct hfi_name_stats *name_stats) {
    return atomic_load_explicit(&name_stats->entries, memory_order_acquire);
}

/* ---- Making room ---- */

static void drop_locked(struct hfi_name_stats_table *stats_table,
                        struct hfi_name_stats *name_stats) {
    hfi_table_remove(stats_table->mem, &stats_table->by_name, &name_stats->keyed);
    hfi_list_remove(&name_stats->link);
    hfi_free(stats_table->mem, atomic_load(&name_stats->entries));
    hfi_free(stats_table->mem, name_stats);
}

static void move_back_locked(struct hfi_name_stats_table *stats_table,
                             struct hfi_name_stats *name_stats) {
    hfi_list_remove(&name_stats->link);
    hfi_list_push_back(&stats_table->by_use, &name_stats->link);
}

static bool may_go_locked(const struct hfi_name_stats_table *stats_table,
                          const struct hfi_name_stats *name_stats, int64_t now_ms) {
    if (atomic_load_explicit(&name_stats->users, memory_order_acquire) > 0)
        return false;
    int64_t used_ms = atomic_load_explicit(&name_stats->used_ms, memory_order_relaxed);
    return entries_of(name_stats) == NULL || now_ms - used_ms >= stats_table->rest_ms;
}

static bool make_room_locked(struct hfi_name_stats_table *stats_table, int64_t now_ms) {
    if (stats_table->by_name.len < stats_table->limit)
        return true;
    for (int tries = 0; tries < EVICT_TRIES_MAX && !hfi_list_empty(&stats_table->by_use); tries++) {
        struct hfi_name_stats *first =
            HFI_CONTAINER(stats_table->by_use.next, struct hfi_name_stats, link);
        if (may_go_locked(stats_table, first, now_ms)) {
            drop_locked(stats_table, first);
            return true;
        }
        move_back_locked(stats_table, first);
    }
    return false;
}

/* ---- Finding ---- */

static struct hfi_name_stats *find_locked(struct hfi_name_stats_table *stats_table,
                                          const char *name, size_t name_len) {
    struct hfi_keyed *keyed = hfi_table_find(&stats_table->by_name, name, name_len);
    return keyed != NULL ? HFI_CONTAINER(keyed, struct hfi_name_stats, keyed) : NULL;
}

static struct hfi_name_stats *make_locked(struct hfi_name_stats_table *stats_table,
                                          const char *name, size_t name_len, int64_t now_ms) {
    struct hfi_name_stats *name_stats = NULL;
    if (make_room_locked(stats_table, now_ms))
        name_stats = hfi_zalloc(stats_table->mem, sizeof *name_stats + name_len);
    if (name_stats == NULL)
        return NULL;
    memcpy(name_stats->name, name, name_len);
    name_stats->begun = ++stats_table->made;
    hfi_table_add(stats_table->mem, &stats_table->by_name, &name_stats->keyed, name_stats->name,
                  name_len);
    hfi_list_push_back(&stats_table->by_use, &name_stats->link);
    return name_stats;
}

/* With a reference. NULL: no room for it. */
static struct hfi_name_stats *get(struct hfi_name_stats_table *stats_table, const char *name,
                                  size_t name_len) {
    if (stats_table->limit == 0 || name_len > HFI_NAME_STATS_NAME_MAX)
        return NULL;
    int64_t now_ms = hfi_now_ms();
    pthread_mutex_lock(&stats_table->mtx);
    struct hfi_name_stats *name_stats = find_locked(stats_table, name, name_len);
    if (name_stats != NULL)
        move_back_locked(stats_table, name_stats);
    else
        name_stats = make_locked(stats_table, name, name_len, now_ms);
    hfi_name_stats_addref(name_stats);
    pthread_mutex_unlock(&stats_table->mtx);
    return name_stats;
}

/* Several threads may come here at once, and find the same entry: one of them stores it in the
 * slot. */
static struct hfi_name_stats *look_up(struct hfi_name_stats_table *stats_table,
                                      struct hfi_name_stats_ref *slot, const char *name,
                                      size_t name_len) {
    struct hfi_name_stats *name_stats = get(stats_table, name, name_len), *none = NULL;
    hfi_name_stats_addref(name_stats);
    if (name_stats != NULL && !atomic_compare_exchange_strong(&slot->name_stats, &none, name_stats))
        hfi_name_stats_unref(name_stats);
    atomic_store_explicit(&slot->looked_up, true, memory_order_release);
    return name_stats;
}

struct hfi_name_stats *hfi_name_stats_take(struct hfi_name_stats_table *stats_table,
                                           struct hfi_name_stats_ref *slot, const char *name,
                                           size_t name_len) {
    if (!atomic_load_explicit(&slot->looked_up, memory_order_acquire))
        return look_up(stats_table, slot, name, name_len);
    struct hfi_name_stats *name_stats =
        atomic_load_explicit(&slot->name_stats, memory_order_relaxed);
    hfi_name_stats_addref(name_stats);
    return name_stats;
}

void hfi_name_stats_ref_clear(struct hfi_name_stats_ref *slot) {
    struct hfi_name_stats *name_stats = atomic_exchange(&slot->name_stats, NULL);
    if (name_stats == NULL)
        return;
    atomic_store_explicit(&name_stats->used_ms, hfi_now_ms(), memory_order_relaxed);
    hfi_name_stats_unref(name_stats);
}

/* ---- Reporting ---- */

void hfi_name_stats_table_report(struct hfi_name_stats_table *stats_table,
                                 void (*visit)(void *arg, const struct hfi_named_times *times),
                                 void *arg) {
    pthread_mutex_lock(&stats_table->mtx);
    for (struct hfi_link *link = stats_table->by_use.prev; link != &stats_table->by_use;
         link = link->prev) {
        const struct hfi_name_stats *name_stats = HFI_CONTAINER(link, struct hfi_name_stats, link);
        struct hfi_named_times times = {.name = name_stats->name,
                                        .name_len = name_stats->keyed.key_len,
                                        .begun = name_stats->begun};
        const struct hfi_entries *entries = entries_of(name_stats);
        if (entries == NULL)
            continue;
        hfi_times_read(&entries->wait, &times.wait);
        hfi_times_read(&entries->hold, &times.hold);
        hfi_times_read(&entries->hand_over, &times.hand_over);
        visit(arg, &times);
    }
    pthread_mutex_unlock(&stats_table->mtx);
}

/* ---- Lifetime ---- */

void hfi_name_stats_table_init(struct hfi_name_stats_table *stats_table,
                               const struct hfi_mem *mem) {
    stats_table->mem = mem;
    stats_table->rest_ms = REST_MS;
    pthread_mutex_init(&stats_table->mtx, NULL);
    hfi_list_init(&stats_table->by_use);
}

void hfi_name_stats_table_clear(struct hfi_name_stats_table *stats_table) {
    while (!hfi_list_empty(&stats_table->by_use))
        drop_locked(stats_table,
                    HFI_CONTAINER(stats_table->by_use.next, struct hfi_name_stats, link));
    pthread_mutex_destroy(&stats_table->mtx);
}
