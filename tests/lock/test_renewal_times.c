/*
 * When renewals are sent, what is reported about them, and how much time a hold has left.
 *
 * A lease counts from when it was requested, so the next renewal is planned from then, too: the
 * time that the reply took must not count twice. A problem that passes by itself is neither a
 * failure nor a warning. And the remaining time is never overstated.
 */
#include "support/world.h"

#include <time.h>

static void sleep_until(int64_t at_ms) {
    /* The times of renewals are tested: the server stops and goes on at fixed times, not at events. */
    sleep_ms(at_ms - now_ms());
}

static bool reach_renewals(struct world *w, uint64_t wanted) {
    return WAIT_FOR(world_stats(w->client).renewals >= wanted || world_stats(w->client).losses > 0,
                    HANG_MS) &&
           world_stats(w->client).losses == 0;
}

/* The first pause makes the answer late, the second is longer than what the next plan would leave
 * if it began at that answer. */
CASE(two_pauses_of_the_server_do_not_lose_a_hold_that_has_time) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    own_server *server = server_start(NULL);
    world_begin_on(&w, server, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_true(reach_renewals(&w, 1));
    int64_t start_ms = now_ms();
    sleep_until(start_ms + 1350);
    server_freeze(server); /* the next is due after 1500 ms, or a little earlier */
    sleep_until(start_ms + 2750);
    server_unfreeze(server);
    assert_true(reach_renewals(&w, 2));
    sleep_until(start_ms + 4000);
    server_freeze(server);
    sleep_until(start_ms + 6100); /* what that renewal gave has ended by then */
    server_unfreeze(server);
    assert_true(reach_renewals(&w, world_stats(w.client).renewals + 1));
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* A connection that has gone silent for a third of the lease is not asked a second time. */
WORLD_CASE_WITH(a_dead_connection_does_not_cost_the_hold, world_options(),
                options.watchdog_ms = ENDURING_MS, options.cmd_timeout_ms = 60000) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(reach_renewals(w, 1));
    assert_true(proxy_freeze_connections(w->proxy, WORLD_RENEW) > 0);
    assert_true(reach_renewals(w, world_stats(w->client).renewals + 2));
    proxy_heal(w->proxy);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* ---- What is said ---- */

static atomic_int warnings;

static void count_warnings(hf_log_level level, const char *message, void *user) {
    (void)user;
    if (level <= HF_LOG_WARN && strstr(message, "renewal") != NULL)
        atomic_fetch_add(&warnings, 1);
}

CASE(a_script_that_has_to_be_loaded_is_no_failed_renewal) {
    struct world w;
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    options.log = count_warnings;
    atomic_store(&warnings, 0);
    world_begin(&w, &options);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    for (int i = 0; i < 2; i++) {
        cmd_ok(w.server, "SCRIPT FLUSH");
        assert_true(reach_renewals(&w, world_stats(w.client).renewals + 1));
    }
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_stats(w.client).renew_failures, 0);
    world_end(&w);
    assert_int_equal(atomic_load(&warnings), 0);
}

/* ---- What is left ---- */

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* If a call begins and ends in one and the same millisecond, it is known from when the lease
 * counts, and so when it ends. */
WORLD_CASE(remaining_ms_is_never_too_much) {
    enum { LEASE_MS = 60000, WANTED = 100 };
    int known = 0;
    for (int i = 0; i < 20000 && known < WANTED; i++) {
        hf_acquire_options options = world_wait_for(HF_FOREVER, LEASE_MS);
        hf_result result = HF_RESULT_INIT;
        int64_t before_us = now_us();
        assert_int_equal(hf_lock_acquire_with(w->rival_lock, &options, &result), HF_OK);
        int64_t after_us = now_us();
        int64_t left_ms = hf_lock_remaining_ms(w->rival_lock);
        int64_t end_us = (before_us / 1000 + LEASE_MS) * 1000;
        if (before_us / 1000 == after_us / 1000) {
            known++;
            assert_true(before_us + result.remaining_ms * 1000 <= end_us);
            assert_true(after_us + left_ms * 1000 <= end_us);
        }
        assert_true(left_ms >= LEASE_MS - (after_us - before_us) / 1000 - 1000);
        assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    }
    assert_int_equal(known, WANTED);
}

RUN_CASES(world_start_server, world_stop_server)
