/*
 * The sums of what clients count by name (cli/lock_times.h), without a fleet: what is told here is made up. Time passes as
 * a survey says. Whole clients are in lock_times.sh.
 */
#include "lock_times.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define QUARTER_MS (15 * 60 * 1000)

/* ---- A fleet that is made up ---- */

struct crowd {
    hf_fleet fleet;
    size_t len;
    hf_fleet_client *clients;
    const hf_fleet_client **listed;
    hf_fleet_times *times; /* one of each client */
    const hf_fleet_times **named;
    char (*ids)[40], (*names)[16];
};

static void crowd_begin(struct crowd *crowd, size_t room) {
    *crowd = (struct crowd){.clients = calloc(room, sizeof *crowd->clients),
                            .listed = calloc(room, sizeof *crowd->listed),
                            .times = calloc(room, sizeof *crowd->times),
                            .named = calloc(room, sizeof *crowd->named),
                            .ids = calloc(room, sizeof *crowd->ids),
                            .names = calloc(room, sizeof *crowd->names)};
    assert_true(crowd->clients != NULL && crowd->listed != NULL && crowd->times != NULL &&
                crowd->named != NULL && crowd->ids != NULL && crowd->names != NULL);
}

static void crowd_end(struct crowd *crowd) {
    free(crowd->clients);
    free(crowd->listed);
    free(crowd->times);
    free(crowd->named);
    free(crowd->ids);
    free(crowd->names);
}

/* A client that tells of one name: so many waits, and how long they were together. */
static void tells(struct crowd *crowd, unsigned id, const char *name, uint64_t count,
                  uint64_t sum_us) {
    size_t i = crowd->len++;
    snprintf(crowd->ids[i], sizeof crowd->ids[i], "%08x-0000-4000-8000-000000000000", id);
    snprintf(crowd->names[i], sizeof crowd->names[i], "%s", name);
    crowd->times[i] = (hf_fleet_times){.name = crowd->names[i],
                                       .name_len = strlen(name),
                                       .begun = 1,
                                       .wait = {.count = count, .sum_us = sum_us}};
    crowd->times[i].wait.buckets[10] = count;
    crowd->named[i] = &crowd->times[i];
    crowd->clients[i] = (hf_fleet_client){
        .id = crowd->ids[i], .presence = HF_ALIVE, .names_len = 1, .names = &crowd->named[i]};
    crowd->listed[i] = &crowd->clients[i];
}

static void ask(struct crowd *crowd, struct lock_times *times, int64_t taken_ms) {
    crowd->fleet =
        (hf_fleet){.taken_ms = taken_ms, .clients_len = crowd->len, .clients = crowd->listed};
    lock_times_add(times, &crowd->fleet);
    crowd->len = 0;
}

static void ask_one(struct lock_times *times, int64_t taken_ms, unsigned id, const char *name,
                    uint64_t count) {
    struct crowd crowd;
    crowd_begin(&crowd, 1);
    tells(&crowd, id, name, count, count);
    ask(&crowd, times, taken_ms);
    crowd_end(&crowd);
}

/* What is told of a name; -1: nothing. */
static long long waits_of(const struct lock_times *times, const char *name) {
    char *text = NULL, wanted[80];
    size_t len = 0;
    long long value = -1;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    lock_times_write(times, out);
    assert_int_equal(fclose(out), 0);
    snprintf(wanted, sizeof wanted, "\nholdfast_lock_wait_seconds_count{lock=\"%s\"} ", name);
    const char *line = strstr(text, wanted);
    if (line != NULL)
        value = strtoll(line + strlen(wanted), NULL, 10);
    free(text);
    return value;
}

/* ---- */

static void a_name_gives_way_when_nobody_tells_of_it(void **state) {
    (void)state;
    struct lock_times *times = lock_times_new(2);
    assert_non_null(times);
    ask_one(times, 0, 1, "old", 5);
    ask_one(times, QUARTER_MS / 2, 1, "kept", 3);
    ask_one(times, QUARTER_MS - 1, 2, "new", 1);
    assert_int_equal(waits_of(times, "old"), 5); /* so long it may come back */
    assert_int_equal(waits_of(times, "new"), -1);
    ask_one(times, QUARTER_MS, 2, "new", 4);
    assert_int_equal(waits_of(times, "old"), -1);
    assert_int_equal(waits_of(times, "kept"), 3);
    assert_int_equal(waits_of(times, "new"), 4);
    ask_one(times, QUARTER_MS + 1, 2, "new", 6);
    assert_int_equal(waits_of(times, "new"), 6);
    ask_one(times, 3 * QUARTER_MS, 1, "old", 7); /* it begins anew, with all that there is */
    assert_int_equal(waits_of(times, "old"), 7);
    assert_int_equal(waits_of(times, "kept"), -1);
    lock_times_free(times);
}

/* A crowd of processes that come and go is forgotten when it has not told for long; those who are there are not. */
static void accounts_are_bounded(void **state) {
    (void)state;
    enum { AT_ONCE = 20000, ROUNDS = 8, ALL = AT_ONCE * ROUNDS };
    struct crowd crowd;
    struct lock_times *times = lock_times_new(10);
    assert_non_null(times);
    crowd_begin(&crowd, AT_ONCE + 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < AT_ONCE; i++)
            tells(&crowd, 1 + round * AT_ONCE + i, "crowded", 1, 1);
        tells(&crowd, 0, "crowded", 10 + round, 1);
        ask(&crowd, times, (int64_t)round * QUARTER_MS);
    }
    assert_int_equal(waits_of(times, "crowded"), ALL + 10 + ROUNDS - 1);
    for (unsigned i = 0; i < AT_ONCE; i++) /* of the last round: still known */
        tells(&crowd, 1 + (ROUNDS - 1) * AT_ONCE + i, "crowded", 2, 2);
    ask(&crowd, times, (ROUNDS - 1) * QUARTER_MS + 1);
    assert_int_equal(waits_of(times, "crowded"), ALL + AT_ONCE + 10 + ROUNDS - 1);
    crowd_end(&crowd);
    lock_times_free(times);
}

/* Of a fleet that is larger than a survey others tell each time. Some of it is not counted, and none of it twice. */
static void a_fleet_beyond_the_room_is_counted_once(void **state) {
    (void)state;
    enum { PART = 40000, PARTS = 3, ROOM = 65536 };
    struct crowd crowd;
    struct lock_times *times = lock_times_new(10);
    assert_non_null(times);
    crowd_begin(&crowd, PART);
    for (unsigned round = 0; round < 2 * PARTS; round++) {
        for (unsigned i = 0; i < PART; i++)
            tells(&crowd, round % PARTS * PART + i, "crowded", 1, 1);
        ask(&crowd, times, round);
    }
    assert_int_equal(waits_of(times, "crowded"), ROOM);
    crowd_end(&crowd);
    lock_times_free(times);
}

static void a_name_is_told_twice_by_nobody(void **state) {
    (void)state;
    struct crowd crowd;
    struct lock_times *times = lock_times_new(10);
    assert_non_null(times);
    crowd_begin(&crowd, 2);
    for (int round = 1; round <= 3; round++) {
        tells(&crowd, 1, "x", 5, 5);
        tells(&crowd, 1, "x", 5, 5); /* the same client once more, as anybody may forge */
        ask(&crowd, times, round);
    }
    assert_int_equal(waits_of(times, "x"), 5);
    crowd_end(&crowd);
    lock_times_free(times);
}

static void sums_never_fall(void **state) {
    (void)state;
    struct lock_times *times = lock_times_new(1);
    assert_non_null(times);
    for (unsigned i = 0; i < 5; i++) {
        ask_one(times, i, i, "x", UINT64_MAX / 3);
        assert_int_equal((uint64_t)waits_of(times, "x"), UINT64_MAX / 64);
    }
    lock_times_free(times);
    times = lock_times_new(0);
    assert_non_null(times);
    ask_one(times, 0, 1, "x", 1);
    assert_int_equal(waits_of(times, "x"), -1);
    lock_times_free(times);
    lock_times_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_gives_way_when_nobody_tells_of_it),
        cmocka_unit_test(accounts_are_bounded),
        cmocka_unit_test(a_fleet_beyond_the_room_is_counted_once),
        cmocka_unit_test(a_name_is_told_twice_by_nobody),
        cmocka_unit_test(sums_never_fall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
