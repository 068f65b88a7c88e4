/*
 * Diaries (diary.h): finding one, making room for one, telling what is in them.
 *
 * Found and made under one mutex, by whoever acquires something by a handle for the first time; told on
 * the keeper's thread, or on that of who wants the client's metrics. Counters are atomic, since all who have a reference
 * write at once.
 *
 * Invariants: one without a reference gets one under the mutex only, so what is found unused there can be
 * freed. One that is looked at for room and is in use goes to the end of the line, so room is found in a few
 * steps, however many there are; if not, the next who looks goes on from there.
 */
#include "core/diary.h"

#include "base/clock.h"

#include <string.h>

/* Whoever reads metrics has seen it by then, and takes what comes later for something new. */
#define REST_MS (5 * 60 * 1000)
#define LOOKS_MAX 8

/* ---- Times ---- */

void hfi_times_read(const struct hfi_times *times, hf_times *ret) {
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

/* Several may come here at once: one of them leaves it there. */
struct hfi_entries *hfi_diary_make_entries(struct hfi_diaries *diaries, struct hfi_diary *diary) {
    struct hfi_entries *made = hfi_zalloc(diaries->mem, sizeof *made), *there = NULL;
    if (made == NULL || atomic_compare_exchange_strong(&diary->entries, &there, made))
        return made;
    hfi_free(diaries->mem, made);
    return there;
}

static const struct hfi_entries *entries_of(const struct hfi_diary *diary) {
    return atomic_load_explicit(&diary->entries, memory_order_acquire);
}

/* ---- Making room ---- */

static void drop_locked(struct hfi_diaries *diaries, struct hfi_diary *diary) {
    hfi_table_remove(diaries->mem, &diaries->by_name, &diary->keyed);
    hfi_list_remove(&diary->link);
    hfi_free(diaries->mem, atomic_load(&diary->entries));
    hfi_free(diaries->mem, diary);
}

static void move_back_locked(struct hfi_diaries *diaries, struct hfi_diary *diary) {
    hfi_list_remove(&diary->link);
    hfi_list_push_back(&diaries->by_use, &diary->link);
}

static bool may_go_locked(const struct hfi_diaries *diaries, const struct hfi_diary *diary,
                          int64_t now_ms) {
    if (atomic_load_explicit(&diary->users, memory_order_acquire) > 0)
        return false;
    int64_t used_ms = atomic_load_explicit(&diary->used_ms, memory_order_relaxed);
    return entries_of(diary) == NULL || now_ms - used_ms >= diaries->rest_ms;
}

static bool make_room_locked(struct hfi_diaries *diaries, int64_t now_ms) {
    if (diaries->by_name.len < diaries->limit)
        return true;
    for (int looks = 0; looks < LOOKS_MAX && !hfi_list_empty(&diaries->by_use); looks++) {
        struct hfi_diary *first = HFI_CONTAINER(diaries->by_use.next, struct hfi_diary, link);
        if (may_go_locked(diaries, first, now_ms)) {
            drop_locked(diaries, first);
            return true;
        }
        move_back_locked(diaries, first);
    }
    return false;
}

/* ---- Finding ---- */

static struct hfi_diary *find_locked(struct hfi_diaries *diaries, const char *name,
                                     size_t name_len) {
    struct hfi_keyed *keyed = hfi_table_find(&diaries->by_name, name, name_len);
    return keyed != NULL ? HFI_CONTAINER(keyed, struct hfi_diary, keyed) : NULL;
}

static struct hfi_diary *make_locked(struct hfi_diaries *diaries, const char *name, size_t name_len,
                                     int64_t now_ms) {
    struct hfi_diary *diary = NULL;
    if (make_room_locked(diaries, now_ms))
        diary = hfi_zalloc(diaries->mem, sizeof *diary + name_len);
    if (diary == NULL)
        return NULL;
    memcpy(diary->name, name, name_len);
    diary->begun = ++diaries->made;
    hfi_table_add(diaries->mem, &diaries->by_name, &diary->keyed, diary->name, name_len);
    hfi_list_push_back(&diaries->by_use, &diary->link);
    return diary;
}

/* With a reference. NULL: there is no room for it. */
static struct hfi_diary *get(struct hfi_diaries *diaries, const char *name, size_t name_len) {
    if (diaries->limit == 0 || name_len > HFI_DIARY_NAME_MAX)
        return NULL;
    int64_t now_ms = hfi_now_ms();
    pthread_mutex_lock(&diaries->mtx);
    struct hfi_diary *diary = find_locked(diaries, name, name_len);
    if (diary != NULL)
        move_back_locked(diaries, diary);
    else
        diary = make_locked(diaries, name, name_len, now_ms);
    hfi_diary_ref(diary);
    pthread_mutex_unlock(&diaries->mtx);
    return diary;
}

/* Several threads may come here at once, and find the same: one of them leaves it in the slot. */
static struct hfi_diary *look(struct hfi_diaries *diaries, struct hfi_diary_slot *slot,
                              const char *name, size_t name_len) {
    struct hfi_diary *diary = get(diaries, name, name_len), *none = NULL;
    hfi_diary_ref(diary);
    if (diary != NULL && !atomic_compare_exchange_strong(&slot->diary, &none, diary))
        hfi_diary_unref(diary);
    atomic_store_explicit(&slot->looked, true, memory_order_release);
    return diary;
}

struct hfi_diary *hfi_diary_take(struct hfi_diaries *diaries, struct hfi_diary_slot *slot,
                                 const char *name, size_t name_len) {
    if (!atomic_load_explicit(&slot->looked, memory_order_acquire))
        return look(diaries, slot, name, name_len);
    struct hfi_diary *diary = atomic_load_explicit(&slot->diary, memory_order_relaxed);
    hfi_diary_ref(diary);
    return diary;
}

void hfi_diary_slot_clear(struct hfi_diary_slot *slot) {
    struct hfi_diary *diary = atomic_exchange(&slot->diary, NULL);
    if (diary == NULL)
        return;
    atomic_store_explicit(&diary->used_ms, hfi_now_ms(), memory_order_relaxed);
    hfi_diary_unref(diary);
}

/* ---- Telling ---- */

void hfi_diaries_tell(struct hfi_diaries *diaries,
                      void (*visit)(void *arg, const struct hfi_named_times *times), void *arg) {
    pthread_mutex_lock(&diaries->mtx);
    for (struct hfi_link *link = diaries->by_use.prev; link != &diaries->by_use;
         link = link->prev) {
        const struct hfi_diary *diary = HFI_CONTAINER(link, struct hfi_diary, link);
        struct hfi_named_times times = {
            .name = diary->name, .name_len = diary->keyed.key_len, .begun = diary->begun};
        const struct hfi_entries *entries = entries_of(diary);
        if (entries == NULL)
            continue;
        hfi_times_read(&entries->wait, &times.wait);
        hfi_times_read(&entries->hold, &times.hold);
        hfi_times_read(&entries->hand_over, &times.hand_over);
        visit(arg, &times);
    }
    pthread_mutex_unlock(&diaries->mtx);
}

/* ---- Life ---- */

void hfi_diaries_init(struct hfi_diaries *diaries, const struct hfi_mem *mem) {
    diaries->mem = mem;
    diaries->rest_ms = REST_MS;
    pthread_mutex_init(&diaries->mtx, NULL);
    hfi_list_init(&diaries->by_use);
}

void hfi_diaries_clear(struct hfi_diaries *diaries) {
    while (!hfi_list_empty(&diaries->by_use))
        drop_locked(diaries, HFI_CONTAINER(diaries->by_use.next, struct hfi_diary, link));
    pthread_mutex_destroy(&diaries->mtx);
}
