/*
 * Diaries (core/diary.h), without a client: one per name, no more than there may be, and room is made only by who is not
 * needed any more.
 */
#include "core/diary.h"

#include "support/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct hfi_mem plain_mem;

static void begin(struct hfi_diaries *diaries, size_t limit, int64_t rest_ms) {
    *diaries = (struct hfi_diaries){0};
    hfi_diaries_init(diaries, &plain_mem);
    diaries->limit = limit;
    diaries->rest_ms = rest_ms;
}

/* As an operation that has acquired something does; the slot keeps its reference. */
static uint64_t write_down(struct hfi_diaries *diaries, struct hfi_diary_slot *slot,
                           const char *name) {
    struct hfi_diary *diary = hfi_diary_take(diaries, slot, name, strlen(name));
    if (diary == NULL)
        return 0;
    struct hfi_entries *entries = hfi_diary_entries(diaries, diary);
    uint64_t begun = entries != NULL ? diary->begun : 0;
    if (entries != NULL)
        hfi_times_add(&entries->wait, NULL, 100);
    hfi_diary_unref(diary);
    return begun;
}

static uint64_t write_once(struct hfi_diaries *diaries, const char *name) {
    struct hfi_diary_slot slot = {.looked = false};
    uint64_t begun = write_down(diaries, &slot, name);
    hfi_diary_slot_clear(&slot);
    return begun;
}

struct found {
    const char *name;
    uint64_t count, begun;
    size_t all;
};

static void note(void *arg, const struct hfi_named_times *times) {
    struct found *found = arg;
    found->all++;
    if (found->name == NULL || strlen(found->name) != times->name_len ||
        memcmp(found->name, times->name, times->name_len) != 0)
        return;
    found->count += times->wait.count;
    found->begun = times->begun;
}

static struct found look_for(struct hfi_diaries *diaries, const char *name) {
    struct found found = {.name = name};
    hfi_diaries_tell(diaries, note, &found);
    return found;
}

static void handles_on_one_name_share_a_diary(void **state) {
    (void)state;
    struct hfi_diaries diaries;
    struct hfi_diary_slot one = {.looked = false}, other = {.looked = false};
    begin(&diaries, 8, 0);
    uint64_t begun = write_down(&diaries, &one, "a");
    assert_int_equal(write_down(&diaries, &other, "a"), begun);
    assert_int_equal(write_down(&diaries, &one, "a"), begun);
    assert_int_equal(look_for(&diaries, "a").count, 3);
    assert_int_equal(look_for(&diaries, "a").all, 1);
    hfi_diary_slot_clear(&one);
    hfi_diary_slot_clear(&other);
    assert_int_equal(write_once(&diaries, "a"), begun); /* it outlives its handles */
    hfi_diaries_clear(&diaries);
}

static void what_is_in_use_makes_no_room(void **state) {
    (void)state;
    struct hfi_diaries diaries;
    struct hfi_diary_slot slots[4] = {{.looked = false}}, late = {.looked = false};
    static const char *const names[] = {"a", "b", "c", "d"};
    begin(&diaries, 4, 0);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(write_down(&diaries, &slots[i], names[i]), 0);
    assert_int_equal(write_down(&diaries, &late, "late"), 0);
    struct hfi_diary *held = hfi_diary_take(&diaries, &slots[2], "c", 1); /* by a hold */
    hfi_diary_slot_clear(&slots[2]);
    assert_int_equal(write_once(&diaries, "late"), 0);
    hfi_times_add(&hfi_diary_entries(&diaries, held)->hold, NULL, 1);
    hfi_diary_unref(held);
    assert_int_not_equal(write_once(&diaries, "late"), 0);
    assert_int_equal(look_for(&diaries, "c").count, 0);
    assert_int_equal(look_for(&diaries, "late").count, 1);
    assert_int_equal(look_for(&diaries, NULL).all, 4);
    assert_int_equal(write_down(&diaries, &late, "late"), 0); /* a handle looks once */
    for (int i = 0; i < 4; i++)
        hfi_diary_slot_clear(&slots[i]);
    hfi_diaries_clear(&diaries);
}

static void who_was_used_last_stays(void **state) {
    (void)state;
    struct hfi_diaries diaries;
    begin(&diaries, 2, 0);
    uint64_t first = write_once(&diaries, "a");
    write_once(&diaries, "b");
    assert_int_equal(write_once(&diaries, "a"), first);
    write_once(&diaries, "c");
    assert_int_equal(look_for(&diaries, "a").count, 2);
    assert_int_equal(look_for(&diaries, "b").count, 0);
    uint64_t again = write_once(&diaries, "b"); /* in place of a, and told to be new */
    assert_true(again > first);
    assert_true(write_once(&diaries, "a") > again);
    assert_int_equal(look_for(&diaries, "a").count, 1);
    hfi_diaries_clear(&diaries);
}

/* Who reads metrics would have to keep a series for each name that there ever was. */
static void what_was_used_of_late_makes_no_room(void **state) {
    (void)state;
    struct hfi_diaries diaries;
    struct hfi_diary_slot empty = {.looked = false};
    begin(&diaries, 2, 3600000);
    write_once(&diaries, "a");
    hfi_diary_unref(hfi_diary_take(&diaries, &empty, "tried", 5)); /* in vain: nothing is in it */
    hfi_diary_slot_clear(&empty);
    assert_int_not_equal(write_once(&diaries, "b"), 0);
    for (int i = 0; i < 1000; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        assert_int_equal(write_once(&diaries, name), 0);
    }
    assert_int_equal(look_for(&diaries, "a").count, 1);
    assert_int_equal(look_for(&diaries, "b").count, 1);
    hfi_diaries_clear(&diaries);
}

static void some_names_have_none(void **state) {
    (void)state;
    struct hfi_diaries diaries;
    struct hfi_diary_slot slot = {.looked = false};
    char *name = malloc(HFI_DIARY_NAME_MAX + 2);
    assert_non_null(name);
    memset(name, 'x', HFI_DIARY_NAME_MAX + 1);
    name[HFI_DIARY_NAME_MAX + 1] = '\0';
    begin(&diaries, 0, 0);
    assert_int_equal(write_once(&diaries, "a"), 0);
    diaries.limit = 1;
    assert_int_equal(write_once(&diaries, name), 0);
    assert_int_not_equal(write_once(&diaries, name + 1), 0);
    hfi_diary_slot_clear(&slot); /* one in which nothing ever was */
    hfi_diaries_clear(&diaries);
    free(name);
}

static void without_memory_there_is_none(void **state) {
    (void)state;
    struct hfi_diaries diaries;
    struct memory memory = {0};
    const struct hfi_mem mem = {.hook = memory_allocator(&memory)};
    begin(&diaries, 4, 0);
    diaries.mem = &mem;
    for (int at = 1; at <= 2; at++) { /* the diary, and what is to be in it */
        memory.calls = 0;
        memory.fail_at = at;
        assert_int_equal(write_once(&diaries, "a"), 0);
        assert_int_equal(look_for(&diaries, "a").all, 0);
    }
    assert_int_not_equal(write_once(&diaries, "a"), 0);
    hfi_diaries_clear(&diaries);
    assert_int_equal(memory.live, 0);
}

/* ---- Many at once ---- */

enum { THREADS = 8, ROUNDS = 2000, NAMES = 6 };

struct crowd {
    struct hfi_diaries diaries;
    struct hfi_diary_slot shared;
    atomic_int go;
};

static void *come_and_go(void *arg) {
    struct crowd *crowd = arg;
    while (atomic_load(&crowd->go) == 0)
        continue;
    for (int i = 0; i < ROUNDS; i++) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i % NAMES);
        write_once(&crowd->diaries, name);
        assert_int_not_equal(write_down(&crowd->diaries, &crowd->shared, "shared"), 0);
    }
    return NULL;
}

static void threads_come_and_go(void **state) {
    (void)state;
    struct crowd crowd = {.go = 0};
    pthread_t threads[THREADS];
    begin(&crowd.diaries, 4, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &crowd), 0);
    assert_int_not_equal(write_down(&crowd.diaries, &crowd.shared, "shared"), 0);
    atomic_store(&crowd.go, 1);
    for (int i = 0; i < 100; i++)
        assert_true(look_for(&crowd.diaries, NULL).all <= 4);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(look_for(&crowd.diaries, "shared").count, THREADS * ROUNDS + 1);
    hfi_diary_slot_clear(&crowd.shared);
    hfi_diaries_clear(&crowd.diaries);
}

/* ---- A handle that many threads use for the first time ---- */

enum { FIRST_ROUNDS = 300 };

struct first {
    struct hfi_diaries diaries;
    struct hfi_diary_slot slots[FIRST_ROUNDS];
    pthread_barrier_t barrier;
};

static void *use_first(void *arg) {
    struct first *first = arg;
    for (int i = 0; i < FIRST_ROUNDS; i++) {
        pthread_barrier_wait(&first->barrier);
        assert_int_not_equal(write_down(&first->diaries, &first->slots[i], "shared"), 0);
    }
    return NULL;
}

static void nobody_is_missed_who_comes_first(void **state) {
    (void)state;
    struct first *first = calloc(1, sizeof *first);
    pthread_t threads[THREADS];
    assert_non_null(first);
    begin(&first->diaries, 4, 0);
    assert_int_equal(pthread_barrier_init(&first->barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_first, first), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(look_for(&first->diaries, "shared").count, THREADS * FIRST_ROUNDS);
    for (int i = 0; i < FIRST_ROUNDS; i++)
        hfi_diary_slot_clear(&first->slots[i]);
    pthread_barrier_destroy(&first->barrier);
    hfi_diaries_clear(&first->diaries);
    free(first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_on_one_name_share_a_diary),
        cmocka_unit_test(what_is_in_use_makes_no_room),
        cmocka_unit_test(who_was_used_last_stays),
        cmocka_unit_test(what_was_used_of_late_makes_no_room),
        cmocka_unit_test(some_names_have_none),
        cmocka_unit_test(without_memory_there_is_none),
        cmocka_unit_test(threads_come_and_go),
        cmocka_unit_test(nobody_is_missed_who_comes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
