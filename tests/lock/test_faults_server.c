/*
 * Servers that are restarted, slow, frozen or paused under a hold.
 *
 * Every test has a server of its own, since it does not survive. A hold must outlive what is
 * shorter than its lease; what is longer is a loss, told while the server is still away, and
 * nothing brings the key back afterwards.
 */
#include "lock/world.h"

#include <unistd.h>

#define CMD_MS 1500
#define SLACK_MS 6000

static hf_options options_of(int64_t watchdog_ms) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = CMD_MS;
    options.connect_timeout_ms = 4000;
    options.watchdog_ms = watchdog_ms;
    options.ping_ms = 200;
    return options;
}

static void begin(struct world *w, const struct server_options *server_options,
                  int64_t watchdog_ms) {
    hf_options options = options_of(watchdog_ms);
    world_begin_on(w, server_start(server_options), &options);
}

static void end(struct world *w) {
    struct server *server = w->server;
    world_end(w);
    server_free(server);
}

/* ---- Restarts ---- */

#define FORGOTTEN                                                                                  \
    "a client that has seen more than the server is not let in before its session is over"

static void U30_restart_without_data_is_a_loss(void **state) {
    (void)state;
    server_redis_only(NULL, FORGOTTEN);
    struct world w;
    struct world_events events = {0};
    begin(&w, NULL, ENDURING_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    server_restart(w.server);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(world_free(&w));
    assert_true(hf_lock_remaining_ms(w.lock) == 0);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    assert_int_equal(world_keys(w.server), 0);
    assert_int_equal(world_stats(w.client).losses, 1);

    /* C202: what is held later is renewed again. */
    assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_OK);
    sleep_ms(ENDURING_MS + 500); /* more than a lease */
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 1);
    end(&w);
}

/* The next call comes before any renewal: it finds out, and makes nothing up. */
static void U30_reentry_after_restart_is_a_loss(void **state) {
    (void)state;
    server_redis_only(NULL, FORGOTTEN);
    struct world w;
    begin(&w, NULL, 60000);
    assert_int_equal(
        hf_lock_acquire_with(
            w.lock, &(hf_acquire_options){sizeof(hf_acquire_options), .lease_ms = 50000}, NULL),
        HF_OK);
    server_restart(w.server);
    assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_ELOST);
    assert_true(world_free(&w));
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_OK); /* a new hold, of count 1 */
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    end(&w);
}

static void U31_restart_with_data_keeps_the_hold(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    begin(&w, &(struct server_options){.aof = true}, server_is_other(NULL) ? 20000 : 6000);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    uint64_t renewals = world_stats(w.client).renewals;
    server_restart(w.server);
    /* Longer than the lease: it is only there if it was renewed; or a renewal more. */
    sleep_ms(server_is_other(w.server) ? 6000 : 7000);
    assert_int_equal(world_count(&w, w.owner), 2);
    assert_true(world_stats(w.client).renewals > renewals);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free(&w));
    assert_int_equal(atomic_load(&events.losses), 0);
    end(&w);
}

/* ---- Slow and frozen servers ---- */

static void U48_slow_server_is_no_loss(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    /* Renewed every 2 s, and an exchange may take 1.5 s. With ZooKeeper the worst moment leaves a third of it. */
    begin(&w, NULL, server_is_other(NULL) ? 20000 : 6000);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    server_freeze(w.server);
    sleep_ms(2500);
    server_unfreeze(w.server);
    assert_int_equal(world_count(&w, w.owner), 1);
    uint64_t renewals = world_stats(w.client).renewals;
    for (int64_t start_ms = now_ms(); world_stats(w.client).renewals == renewals;) {
        assert_true(now_ms() - start_ms < HANG_MS);
        sleep_ms(5);
    }
    assert_true(hf_lock_remaining_ms(w.lock) > 2000);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(world_stats(w.client).losses, 0);
    end(&w);
}

static void U49_frozen_server_past_the_lease(void **state) {
    (void)state;
    enum { WATCHDOG_MS = 3000 }; /* warned halfway: no pause is so long that it is left out */
    struct world w;
    struct world_events events = {0};
    begin(&w, NULL, WATCHDOG_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    int fd = hf_lock_lost_fd(w.lock);
    assert_true(fd >= 0);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    server_freeze(w.server);
    int64_t start_ms = now_ms();
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS)); /* while it is still frozen */
    assert_true(now_ms() - start_ms < WATCHDOG_MS + SLACK_MS);
    assert_true(hf_lock_remaining_ms(w.lock) == 0);
    uint64_t count = 0;
    assert_int_equal(read(fd, &count, sizeof count), (int)sizeof count);
    assert_int_equal(count, 1);
    assert_true(atomic_load(&events.warnings) >= 1);
    int64_t left_ms = atomic_load(&events.warned_with_ms);
    assert_true(left_ms > 0 && left_ms <= WATCHDOG_MS / 2);
    server_unfreeze(w.server);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_true(world_wait_free(&w, HANG_MS)); /* a renewal that was stuck does not keep it */
    assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 1);
    end(&w);
}

static void client_pause(const char *mode, int64_t pause_ms, int64_t watchdog_ms, bool lost) {
    struct world w;
    struct world_events events = {0};
    begin(&w, NULL, watchdog_ms);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    int64_t start_ms = now_ms();
    cmd_ok(w.server, "CLIENT PAUSE %lld %s", (long long)pause_ms, mode);
    if (lost) {
        assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
        assert_true(hf_lock_remaining_ms(w.lock) == 0);
        assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
        /* Whatever was queued at the server meanwhile makes no ghost. */
        while (now_ms() - start_ms < pause_ms)
            sleep_ms(10);
        assert_true(world_wait_free(&w, HANG_MS));
        assert_int_equal(hf_lock_acquire_for(w.rival_lock, HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    } else {
        while (now_ms() - start_ms < pause_ms + watchdog_ms)
            sleep_ms(10);
        assert_int_equal(world_count(&w, w.owner), 1);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
        assert_int_equal(atomic_load(&events.losses), 0);
    }
    end(&w);
}

static void rule7_pause_shorter_than_the_lease(void **state) {
    (void)state;
    server_redis_only(NULL, "CLIENT PAUSE");
    client_pause("WRITE", 2000, ENDURING_MS, false);
    client_pause("ALL", 2000, ENDURING_MS, false);
}

static void rule6_pause_longer_than_the_lease(void **state) {
    (void)state;
    server_redis_only(NULL, "CLIENT PAUSE");
    client_pause("WRITE", 5000, 2400, true);
    client_pause("ALL", 5000, 2400, true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(U30_restart_without_data_is_a_loss),
        cmocka_unit_test(U30_reentry_after_restart_is_a_loss),
        cmocka_unit_test(U31_restart_with_data_keeps_the_hold),
        cmocka_unit_test(U48_slow_server_is_no_loss),
        cmocka_unit_test(U49_frozen_server_past_the_lease),
        cmocka_unit_test(rule7_pause_shorter_than_the_lease),
        cmocka_unit_test(rule6_pause_longer_than_the_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
