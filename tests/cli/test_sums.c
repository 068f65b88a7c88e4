/*
 * The sums of the clients' per-name statistics (cli/fleet/lock_times.h), without a fleet: the
 * reports are made up here, and time passes as a survey says. lock_times.sh tests whole clients.
 */
#include "fleet/lock_times.h"
#include "support/case.h"

#include <inttypes.h>

#define QUARTER_MS (15 * 60 * 1000)

/* ---- A fleet that is made up ---- */

struct reports {
    hf_fleet fleet;
    size_t len;
    hf_fleet_client *clients;
    const hf_fleet_client **listed;
    hf_fleet_name_stats *times; /* one of each client */
    const hf_fleet_name_stats **named;
    char (*ids)[40], (*names)[16];
};

static void reports_begin(struct reports *reports, size_t room) {
    *reports = (struct reports){.clients = calloc(room, sizeof *reports->clients),
                                .listed = calloc(room, sizeof *reports->listed),
                                .times = calloc(room, sizeof *reports->times),
                                .named = calloc(room, sizeof *reports->named),
                                .ids = calloc(room, sizeof *reports->ids),
                                .names = calloc(room, sizeof *reports->names)};
    assert_true(reports->clients != NULL && reports->listed != NULL && reports->times != NULL &&
                reports->named != NULL && reports->ids != NULL && reports->names != NULL);
}

static void reports_end(struct reports *reports) {
    free(reports->clients);
    free(reports->listed);
    free(reports->times);
    free(reports->named);
    free(reports->ids);
    free(reports->names);
}

/* A client that reports one name: the number of waits, and their total time. */
static void tells(struct reports *reports, unsigned id, const char *name, uint64_t count,
                  uint64_t sum_us) {
    size_t i = reports->len++;
    snprintf(reports->ids[i], sizeof reports->ids[i], "%08x-0000-4000-8000-000000000000", id);
    snprintf(reports->names[i], sizeof reports->names[i], "%s", name);
    reports->times[i] = (hf_fleet_name_stats){.name = reports->names[i],
                                              .name_len = strlen(name),
                                              .begun = 1,
                                              .wait = {.count = count, .sum_us = sum_us}};
    reports->times[i].wait.buckets[10] = count;
    reports->named[i] = &reports->times[i];
    reports->clients[i] = (hf_fleet_client){.id = reports->ids[i],
                                            .presence = HF_PRESENCE_ALIVE,
                                            .names_len = 1,
                                            .names = &reports->named[i]};
    reports->listed[i] = &reports->clients[i];
}

static void ask(struct reports *reports, struct lock_times *times, int64_t taken_ms) {
    reports->fleet =
        (hf_fleet){.taken_ms = taken_ms, .clients_len = reports->len, .clients = reports->listed};
    lock_times_add(times, &reports->fleet);
    reports->len = 0;
}

static void ask_one(struct lock_times *times, int64_t taken_ms, unsigned id, const char *name,
                    uint64_t count) {
    OWN(reports_end) struct reports reports;
    reports_begin(&reports, 1);
    tells(&reports, id, name, count, count);
    ask(&reports, times, taken_ms);
}

/* What is reported of a name; -1: nothing. */
static long long waits_of(const struct lock_times *times, const char *name) {
    char *text = NULL, wanted[80];
    size_t len = 0;
    long long value = -1;
    FILE *out = open_memstream(&text, &len);
    assert_non_null(out);
    lock_times_write(times, out);
    assert_int_equal(fclose(out), 0);
    snprintf(wanted, sizeof wanted, "\nholdfast_fleet_lock_wait_seconds_count{lock=\"%s\"} ", name);
    const char *line = strstr(text, wanted);
    if (line != NULL)
        value = strtoll(line + strlen(wanted), NULL, 10);
    free(text);
    return value;
}

/* ---- */

static void a_name_without_reports_gives_way(void **state) {
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

/* Short-lived processes are forgotten when they have not reported for long; present clients are
 * not. */
static void accounts_are_bounded(void **state) {
    (void)state;
    enum { AT_ONCE = 20000, ROUNDS = 8, ALL = AT_ONCE * ROUNDS };
    struct reports reports;
    struct lock_times *times = lock_times_new(10);
    assert_non_null(times);
    reports_begin(&reports, AT_ONCE + 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < AT_ONCE; i++)
            tells(&reports, 1 + round * AT_ONCE + i, "crowded", 1, 1);
        tells(&reports, 0, "crowded", 10 + round, 1);
        ask(&reports, times, (int64_t)round * QUARTER_MS);
    }
    assert_int_equal(waits_of(times, "crowded"), ALL + 10 + ROUNDS - 1);
    for (unsigned i = 0; i < AT_ONCE; i++) /* of the last round: still known */
        tells(&reports, 1 + (ROUNDS - 1) * AT_ONCE + i, "crowded", 2, 2);
    ask(&reports, times, (ROUNDS - 1) * QUARTER_MS + 1);
    assert_int_equal(waits_of(times, "crowded"), ALL + AT_ONCE + 10 + ROUNDS - 1);
    reports_end(&reports);
    lock_times_free(times);
}

/* Of a fleet that is larger than a survey others tell each time. Some of it is not counted, and none of it twice. */
static void a_fleet_beyond_the_room_is_counted_once(void **state) {
    (void)state;
    enum { PART = 40000, PARTS = 3, ROOM = 65536 };
    struct reports reports;
    struct lock_times *times = lock_times_new(10);
    assert_non_null(times);
    reports_begin(&reports, PART);
    for (unsigned round = 0; round < 2 * PARTS; round++) {
        for (unsigned i = 0; i < PART; i++)
            tells(&reports, round % PARTS * PART + i, "crowded", 1, 1);
        ask(&reports, times, round);
    }
    assert_int_equal(waits_of(times, "crowded"), ROOM);
    reports_end(&reports);
    lock_times_free(times);
}

static void a_name_is_reported_once(void **state) {
    (void)state;
    struct reports reports;
    struct lock_times *times = lock_times_new(10);
    assert_non_null(times);
    reports_begin(&reports, 2);
    for (int round = 1; round <= 3; round++) {
        tells(&reports, 1, "x", 5, 5);
        tells(&reports, 1, "x", 5, 5); /* the same client once more, as any client could forge */
        ask(&reports, times, round);
    }
    assert_int_equal(waits_of(times, "x"), 5);
    reports_end(&reports);
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
        cmocka_unit_test(a_name_without_reports_gives_way),
        cmocka_unit_test(accounts_are_bounded),
        cmocka_unit_test(a_fleet_beyond_the_room_is_counted_once),
        cmocka_unit_test(a_name_is_reported_once),
        cmocka_unit_test(sums_never_fall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
