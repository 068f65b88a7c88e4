/*
 * When renewals are sent, what is said about them, and how much time a hold is said to have.
 *
 * A lease counts from when it was asked for, so the next renewal is planned from there, too: the
 * time that an answer took must not be counted twice. What is overcome without anybody's doing is
 * no failure and no warning. And what is left of a hold is never said to be more than it is.
 */
#include "lock/world.h"

#include <string.h>
#include <time.h>

static bool reach_renewals(struct world *w, uint64_t wanted) {
    for (int64_t start_ms = now_ms(); now_ms() - start_ms < HANG_MS; sleep_ms(2))
        if (world_stats(w->client).renewals >= wanted || world_stats(w->client).losses > 0)
            return world_stats(w->client).losses == 0;
    return false;
}

/* The first pause makes the answer late, the second is longer than what the next plan would leave
 * if it began at that answer. */
static void two_pauses_of_the_server_do_not_lose_a_hold_that_has_time(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    struct server *server = server_start(NULL);
    world_begin_on(&w, server, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_true(reach_renewals(&w, 1));
    int64_t start_ms = now_ms();
    sleep_ms(1350);
    server_freeze(server); /* the next is due after 1500 ms, or a little earlier */
    sleep_ms(start_ms + 2750 - now_ms());
    server_unfreeze(server);
    assert_true(reach_renewals(&w, 2));
    sleep_ms(start_ms + 4000 - now_ms());
    server_freeze(server);
    sleep_ms(start_ms + 6100 - now_ms()); /* what that renewal gave has ended by then */
    server_unfreeze(server);
    assert_true(reach_renewals(&w, world_stats(w.client).renewals + 1));
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    world_end(&w);
    server_free(server);
}

/* A connection that has gone silent for a third of the lease is not asked a second time. */
static void a_dead_connection_does_not_cost_the_hold(void **state) {
    (void)state;
    struct world w;
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    options.cmd_timeout_ms = 60000;
    world_begin(&w, &options);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_true(reach_renewals(&w, 1));
    assert_true(proxy_freeze_connections(w.proxy, WORLD_RENEW) > 0);
    assert_true(reach_renewals(&w, world_stats(w.client).renewals + 2));
    proxy_heal(w.proxy);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    world_end(&w);
}

/* ---- What is said ---- */

static atomic_int warnings;

static void count_warnings(hf_log_level level, const char *message, void *user) {
    (void)user;
    if (level <= HF_LOG_WARN && strstr(message, "renewal") != NULL)
        atomic_fetch_add(&warnings, 1);
}

static void a_script_that_has_to_be_loaded_is_no_failed_renewal(void **state) {
    (void)state;
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
static void remaining_ms_is_never_too_much(void **state) {
    (void)state;
    enum { LEASE_MS = 60000, WANTED = 100 };
    struct world w;
    int known = 0;
    world_begin(&w, NULL);
    for (int i = 0; i < 20000 && known < WANTED; i++) {
        hf_acquire_options options = world_wait_for(HF_FOREVER, LEASE_MS);
        hf_result result = HF_RESULT_INIT;
        int64_t before_us = now_us();
        assert_int_equal(hf_lock_acquire_with(w.rival_lock, &options, &result), HF_OK);
        int64_t after_us = now_us();
        int64_t left_ms = hf_lock_remaining_ms(w.rival_lock);
        int64_t end_us = (before_us / 1000 + LEASE_MS) * 1000;
        if (before_us / 1000 == after_us / 1000) {
            known++;
            assert_true(before_us + result.remaining_ms * 1000 <= end_us);
            assert_true(after_us + left_ms * 1000 <= end_us);
        }
        assert_true(left_ms >= LEASE_MS - (after_us - before_us) / 1000 - 1000);
        assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    }
    assert_int_equal(known, WANTED);
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_pauses_of_the_server_do_not_lose_a_hold_that_has_time),
        cmocka_unit_test(a_dead_connection_does_not_cost_the_hold),
        cmocka_unit_test(a_script_that_has_to_be_loaded_is_no_failed_renewal),
        cmocka_unit_test(remaining_ms_is_never_too_much),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
