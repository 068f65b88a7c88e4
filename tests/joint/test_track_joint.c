/*
 * Tracking on a quorum: each server reports, and without a majority the hold is lost.
 */
#include "joint/fleet.h"
#include "support/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_MS 1800000

static hf_stats fleet_stats(const struct fleet *f) {
    hf_stats stats = HF_STATS_INIT;
    assert_int_equal(hf_client_stats(f->client, &stats), HF_OK);
    return stats;
}

/* Won without these servers, whose grants come late, when it has been renewed so often. So a majority has
 * held it since before any of them did. */
static void hold_first_without(struct fleet *f, int from, int below, uint64_t renewals) {
    uint64_t before = fleet_stats(f).renewals;
    for (int i = from; i < below; i++)
        proxy_stall_request(f->proxy[i], FLEET_ACQUIRE);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(WAIT_FOR(fleet_stats(f).renewals >= before + renewals, HANG_MS));
    for (int i = from; i < below; i++) {
        assert_true(proxy_wait_held(f->proxy[i], HANG_MS));
        assert_int_not_equal(proxy_release_held(f->proxy[i]), -1);
    }
}

FLEET_CASE_WITH(S100_a_majority_that_has_lost_it_ends_a_hold, fleet_options(),
                options.watchdog_ms = LONG_MS) {
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, &events), HF_OK);
    hold_first_without(f, 0, 1, 0);
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET, HANG_MS));
    cmd_ok(f->server[0], "DEL " FLEET_NAME); /* one alone does not matter */
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET - 1, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    for (int i = 0; i < FLEET; i++)
        cmd_ok(f->server[i], "SET " FLEET_NAME " text");
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f->lock), HF_ELOST);
    for (int i = 0; i < FLEET; i++)
        cmd_ok(f->server[i], "DEL " FLEET_NAME);
}

/* Each asks all servers, and refills those that are known not to have it. */
static void nest_until_all_have_it(struct fleet *f) {
    hf_result result = HF_RESULT_INIT;
    do {
        assert_int_equal(hf_lock_acquire_with(f->lock, NULL, &result), HF_OK);
        assert_int_equal(hf_lock_release(f->lock), HF_OK);
    } while (fleet_held(f, f->owner) < FLEET);
}

/* A probe of a server shows that it has the hold, as a renewal does. Two joined when it was won already:
 * they make up for one that was probed after that. */
FLEET_CASE_WITH(S101_late_grants_make_up_for_a_server_that_was_probed, fleet_options(),
                options.watchdog_ms = LONG_MS, options.cmd_timeout_ms = HANG_MS) {
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, &events), HF_OK);
    hold_first_without(f, 3, FLEET, 1); /* the next renewal would come in minutes */
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET, HANG_MS));
    cmd_ok(f->server[0], "HSET " FLEET_NAME " other 1"); /* a change brings a probe */
    assert_true(WAIT_FOR(fleet_stats(f).track_false == 1, HANG_MS));
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET, HANG_MS));
    cmd_ok(f->server[0], "DEL " FLEET_NAME);
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET - 1, HANG_MS));
    nest_until_all_have_it(f);
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
}

/* For then late grants have come. Renewals that are due at about the same time go together, and with a
 * long lease that is a long time. */
FLEET_CASE_WITH(S102_a_hold_is_proved_again_after_a_second, fleet_options(),
                options.watchdog_ms = LONG_MS, options.flags = HF_NO_TRACKING) {
    uint64_t before = fleet_stats(f).renewals;
    int64_t begin_ms = now_ms();
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(WAIT_FOR(fleet_stats(f).renewals > before, HANG_MS));
    assert_true(now_ms() >= begin_ms + 1000);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
}

/* The connections to which the servers report. What was deleted meanwhile is noticed with the next. */
FLEET_CASE_WITH(S86_lost_subscriptions_of_a_quorum_are_made_again, fleet_options(),
                options.watchdog_ms = LONG_MS) {
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, &events), HF_OK);
    hold_first_without(f, 0, 1, 0);
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET, HANG_MS));
    for (int i = 0; i < FLEET; i++) {
        cmd_ok(f->server[i], "MULTI");
        cmd_ok(f->server[i], "CLIENT KILL TYPE pubsub");
        if (i == 0)
            cmd_ok(f->server[i], "SET " FLEET_NAME " text");
        cmd_ok(f->server[i], "EXEC");
    }
    assert_true(WAIT_FOR(fleet_stats(f).reconnects >= FLEET, HANG_MS));
    assert_true(WAIT_FOR(fleet_stats(f).tracked == FLEET - 1, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    for (int i = 1; i < FLEET; i++)
        cmd_ok(f->server[i], "SET " FLEET_NAME " text");
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f->lock), HF_ELOST);
    for (int i = 0; i < FLEET; i++)
        cmd_ok(f->server[i], "DEL " FLEET_NAME);
}

/* ---- Waiters ---- */

#define FOREIGN "a-token-of-another-library"
#define ROUNDS 9
#define AT_ONCE_MS 1000

static long long tracked_keys(struct server *server) {
    char *info = cmd_str(server, "INFO stats");
    const char *found = strstr(info, "\ntracking_total_keys:");
    long long keys = found != NULL ? strtoll(strchr(found, ':') + 1, NULL, 10) : 0;
    free(info);
    return keys;
}

/* It waits at one of those that are taken. */
static bool is_asleep(struct fleet *f) {
    long long keys = 0;
    for (int i = 0; i < FLEET; i++)
        keys += tracked_keys(f->server[i]);
    return keys == 1;
}

/* There is nothing to wait for: a waiter that polls would attempt several times meanwhile. */
static void assert_does_not_poll(struct fleet *f) {
    struct monitor *monitors[MAJORITY];
    size_t attempts = 0;
    for (int i = 0; i < MAJORITY; i++)
        monitors[i] = monitor_start(f->server[i]);
    sleep_ms(1000); /* the attempts of this time are counted: there is no event to wait for */
    for (int i = 0; i < MAJORITY; i++) {
        attempts += monitor_count(monitors[i], "\"SET\"");
        monitor_stop(monitors[i]);
    }
    assert_in_range(attempts, 0, 2);
}

static int by_value(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

struct waiter {
    pthread_t thread;
    hf_lock *lock;
    int result;
    int64_t granted_ms;
};

static void *wait_and_release(void *arg) {
    struct waiter *waiter = arg;
    waiter->result = hf_lock_acquire(waiter->lock);
    waiter->granted_ms = now_ms();
    if (waiter->result == HF_OK)
        waiter->result = hf_lock_release(waiter->lock);
    return NULL;
}

/* redsync, node-redlock and the like delete their keys, and publish nothing. A machine that pauses for a
 * second makes some of the waits long, not half. */
FLEET_CASE_WITH(S104_a_foreign_release_at_a_majority_wakes_a_waiter, fleet_options(),
                options.watchdog_ms = LONG_MS) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    struct waiter waiter;
    int64_t times[ROUNDS];
    options.kind = HF_STRING;
    assert_int_equal(hf_lock_new_named(f->client, "shared", &options, &waiter.lock), HF_OK);
    for (int round = 0; round < ROUNDS; round++) {
        int len = round % 2 == 0 ? MAJORITY : FLEET, last = round % 4 < 2 ? 0 : len - 1;
        for (int i = 0; i < len; i++)
            cmd_ok(f->server[i], "SET shared " FOREIGN " NX PX 1800000");
        assert_int_equal(pthread_create(&waiter.thread, NULL, wait_and_release, &waiter), 0);
        assert_true(WAIT_FOR(is_asleep(f), HANG_MS));
        if (round == 0)
            assert_does_not_poll(f);
        int64_t begin_ms = now_ms();
        for (int i = 0; i < len; i++) /* the one where it waits is among the first, or the last */
            cmd_ok(f->server[abs(last - i)], "DEL shared");
        pthread_join(waiter.thread, NULL);
        assert_int_equal(waiter.result, HF_OK);
        times[round] = waiter.granted_ms - begin_ms;
        for (int i = 0; i < FLEET; i++)
            assert_true(WAIT_FOR(!key_exists(f->server[i], "shared"), HANG_MS));
    }
    qsort(times, ROUNDS, sizeof *times, by_value);
    assert_in_range(times[ROUNDS / 2], 0, AT_ONCE_MS - 1);
    hf_lock_free(waiter.lock);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
