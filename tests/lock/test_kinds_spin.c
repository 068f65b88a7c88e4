/*
 * The spin lock: its waiters never subscribe, come back after the sleeps of C210, and never sleep
 * past their deadline or the end of the other's lease.
 *
 * How often a waiter tried is counted at the server. Sleeps are at least 1, 2, 4 ... 64 and then
 * 128 ms, so within a given time there can only be so many attempts; a machine that is slow makes
 * them fewer.
 */
#include "lock/kinds.h"

/* The most attempts of one waiter within `ms`, the first included. */
static size_t most_attempts(int64_t ms) {
    size_t attempts = 1;
    int64_t pause_ms = 1;
    for (int64_t at_ms = 0; (at_ms += pause_ms) <= ms; attempts++)
        pause_ms = pause_ms < 128 ? 2 * pause_ms : 128;
    return attempts;
}

KIND_CASE(spin_never_subscribes_and_backs_off, HF_SPIN) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    struct monitor *monitor = monitor_start(w->server);
    size_t before = proxy_seen(w->proxy, WORLD_ACQUIRE);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_for(w->lock, 900), HF_ETIMEDOUT);
    int64_t took_ms = now_ms() - start_ms;
    size_t attempts = proxy_seen(w->proxy, WORLD_ACQUIRE) - before;
    assert_true(took_ms >= 900);
    assert_true(attempts >= 3);
    assert_true(attempts <= most_attempts(took_ms));
    assert_int_equal(monitor_count(monitor, "SUBSCRIBE\" \"redisson"), 0);
    assert_int_equal(world_channels(w->server), 0);
    monitor_stop(monitor);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    /* The last attempt may have been on its way when the time was over, and is undone then. */
    assert_true(world_wait_free(w, HANG_MS));
}

/* Its deadline falls into a sleep of 128 ms: it ends there, and not after the sleep. */
KIND_CASE(spin_never_sleeps_past_its_deadline, HF_SPIN) {
    enum { WAIT_MS = 150 };
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    /* The pauses end at 1, 3, 7, ... 127 and then 255 ms at the earliest, the one before the last at
     * 148 at the latest: only the deadline lies between. Sooner or later one is not delayed by the
     * machine; who sleeps past the deadline never is so early. */
    int64_t until_ms = now_ms() + HANG_MS, took_ms = INT64_MAX;
    while (took_ms >= 255) {
        int64_t start_ms = now_ms();
        assert_true(start_ms < until_ms);
        assert_int_equal(hf_lock_acquire_for(w->lock, WAIT_MS), HF_ETIMEDOUT);
        took_ms = now_ms() - start_ms;
        assert_true(took_ms >= WAIT_MS);
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

/* While one of a process tries again and again, the others of it send nothing at all. */
KIND_CASE(spin_one_remote_waiter_per_process, HF_SPIN) {
    enum { OTHERS = 7, FIRST = 100, SECOND = 200 };
    struct world_caller first, others[OTHERS];
    char owner[64];
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_acquire_options options = world_wait_as(FIRST, HF_FOREVER, HF_WATCHDOG);
    world_call_acquire(&first, w->lock, options);
    world_owner_text(w->client, FIRST, owner);
    assert_true(proxy_wait_seen(w->proxy, owner, 2, HANG_MS));
    for (int i = 0; i < OTHERS; i++) {
        options = world_wait_for(200, HF_WATCHDOG);
        options.owner = SECOND + (hf_owner)i;
        world_call_acquire(&others[i], w->lock, options);
    }
    for (int i = 0; i < OTHERS; i++) {
        assert_int_equal(world_join(&others[i]), HF_ETIMEDOUT);
        world_owner_text(w->client, SECOND + (hf_owner)i, owner);
        assert_int_equal(proxy_seen(w->proxy, owner), 0);
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&first), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_OK);
}

KIND_CASE(spin_counts_as_contended, HF_SPIN) {
    struct world_caller waiter;
    uint64_t before = world_stats(w->client).contended;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    size_t seen = proxy_seen(w->proxy, WORLD_ACQUIRE);
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    /* The second goes out when the first has been answered. */
    assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, seen + 2, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(world_stats(w->client).contended, before + 1);
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
