/*
 * Servers that are restarted, slow, frozen or paused during a hold.
 *
 * Every test has its own server, since that does not survive. A hold must outlive any outage
 * shorter than its lease. A longer one is a loss, reported while the server is still away, and
 * nothing brings the key back afterwards.
 */
#include "lock/own_server.h"

/* ---- Restarts ---- */

#define FORGOTTEN                                                                                  \
    "a client that has seen more than the server is not let in before its session is over"

CASE(U30_restart_without_data_is_a_loss) {
    OWN(end) struct world w;
    server_redis_only(NULL, FORGOTTEN);
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
    /* for more than a lease */
    assert_true(HOLDS_FOR(hf_lock_remaining_ms(w.lock) > 0, ENDURING_MS + 500));
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 1);
}

/* The next call comes before any renewal: it finds out, and makes nothing up. */
CASE(U30_reentry_after_restart_is_a_loss) {
    OWN(end) struct world w;
    server_redis_only(NULL, FORGOTTEN);
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
}

CASE_IN(U31_restart_with_data_keeps_the_hold, struct world, w, begin, end,
        &(struct server_options){.aof = true}, server_is_other(NULL) ? 20000 : 6000) {
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    uint64_t renewals = world_stats(w->client).renewals;
    server_restart(w->server);
    /* Longer than the lease: it is only there if it was renewed; or a renewal more. */
    assert_true(
        HOLDS_FOR(hf_lock_remaining_ms(w->lock) > 0, server_is_other(w->server) ? 6000 : 7000));
    assert_int_equal(world_count(w, w->owner), 2);
    assert_true(world_stats(w->client).renewals > renewals);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
    assert_int_equal(atomic_load(&events.losses), 0);
}

/* ---- Slow and frozen servers ---- */

CASE(U48_slow_server_is_no_loss) {
    OWN(end) struct world w;
    struct world_events events = {0};
    /* Renewed every 2 s, and an exchange may take 1.5 s. With ZooKeeper the worst moment leaves a third of it. */
    begin(&w, NULL, server_is_other(NULL) ? 20000 : 6000);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    server_freeze(w.server);
    assert_true(HOLDS_FOR(atomic_load(&events.losses) == 0, 2500));
    server_unfreeze(w.server);
    assert_int_equal(world_count(&w, w.owner), 1);
    uint64_t renewals = world_stats(w.client).renewals;
    assert_true(WAIT_FOR(world_stats(w.client).renewals != renewals, HANG_MS));
    assert_true(hf_lock_remaining_ms(w.lock) > 2000);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(world_stats(w.client).losses, 0);
}

CASE(U49_frozen_server_past_the_lease) {
    OWN(end) struct world w;
    enum { WATCHDOG_MS = 3000 }; /* warned halfway: no pause is so long that it is left out */
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
}

static void client_pause(const char *mode, int64_t pause_ms, int64_t watchdog_ms, bool lost) {
    OWN(end) struct world w;
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
        /* A command that was queued at the server meanwhile leaves no hold. */
        assert_true(WAIT_FOR(now_ms() - start_ms >= pause_ms, HANG_MS));
        assert_true(world_wait_free(&w, HANG_MS));
        assert_int_equal(hf_lock_acquire_for(w.rival_lock, HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    } else {
        assert_true(HOLDS_FOR(hf_lock_remaining_ms(w.lock) > 0,
                              start_ms + pause_ms + watchdog_ms - now_ms()));
        assert_int_equal(world_count(&w, w.owner), 1);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
        assert_int_equal(atomic_load(&events.losses), 0);
    }
}

CASE(R07_pause_shorter_than_the_lease) {
    server_redis_only(NULL, "CLIENT PAUSE");
    client_pause("WRITE", 2000, ENDURING_MS, false);
    client_pause("ALL", 2000, ENDURING_MS, false);
}

CASE(R06_pause_longer_than_the_lease) {
    server_redis_only(NULL, "CLIENT PAUSE");
    client_pause("WRITE", 5000, 2400, true);
    client_pause("ALL", 5000, 2400, true);
}

RUN_CASES(NULL, NULL)
