/*
 * Tracking with Sentinel: the primary reports, and after a failover the new one. With real servers.
 */
#include "route/scene.h"

static bool is_tracked(hf_client *client, uint64_t holds) {
    return WAIT_FOR(scene_stats(client).tracked == holds, HANG_MS);
}

SCENE_CASE(S99_the_primary_reports_and_the_next_one) {
    struct scene_events events = {0}, kept_events = {0};
    own_lock *lock = scene_watched_lock(s->client, HF_PLAIN, "tracked", &events);
    own_lock *kept = scene_watched_lock(s->client, HF_STRING, "kept", &kept_events);
    scene_acquire(lock, HF_WATCHDOG, NULL);
    scene_acquire(kept, LONG_MS, NULL);
    assert_true(is_tracked(s->client, 2));
    cmd_ok(watched_primary(s->watched), "DEL tracked");
    assert_true(scene_wait_losses(&events, 1));
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    scene_replicate(s);
    struct server *now = scene_kill_primary(s);
    assert_true(scene_wait_switches(s->client, 1));
    assert_true(is_tracked(s->client, 1));
    assert_int_equal(atomic_load(&kept_events.losses), 0);
    cmd_ok(now, "DEL kept");
    assert_true(scene_wait_losses(&kept_events, 1));
    assert_int_equal(hf_lock_release(kept), HF_ELOST);
}

/* A waiter behind a token of another library. */
SCENE_CASE(S98_a_foreign_release_at_the_primary_wakes_a_waiter) {
    struct scene_waiter waiter;
    struct server *at = watched_primary(s->watched);
    cmd_ok(at, "SET shared a-token-of-another-library");
    long long calls = server_calls(at, "client|caching");
    scene_wait_for(&waiter, scene_lock(s->client, HF_STRING, "shared"));
    assert_true(WAIT_FOR(server_calls(at, "client|caching") > calls, HANG_MS));
    cmd_ok(at, "DEL shared");
    assert_int_equal(scene_join(&waiter), HF_OK);
    hf_lock_free(waiter.lock);
}

/* The connection to which the primary reports. What was deleted meanwhile is noticed with the next. */
SCENE_CASE(S86_lost_subscriptions_at_the_primary_are_made_again) {
    struct scene_events events = {0}, kept_events = {0};
    struct server *at = watched_primary(s->watched);
    hf_lock *lock = scene_watched_lock(s->client, HF_PLAIN, "tracked", &events);
    hf_lock *kept = scene_watched_lock(s->client, HF_STRING, "kept", &kept_events);
    scene_acquire(lock, LONG_MS, NULL);
    scene_acquire(kept, LONG_MS, NULL);
    assert_true(is_tracked(s->client, 2));
    long long calls = server_calls(at, "client|id");
    cmd_ok(at, "MULTI");
    cmd_ok(at, "CLIENT KILL TYPE pubsub");
    cmd_ok(at, "DEL tracked");
    cmd_ok(at, "EXEC");
    assert_true(WAIT_FOR(server_calls(at, "client|id") > calls, HANG_MS));
    assert_true(scene_wait_losses(&events, 1));
    assert_true(is_tracked(s->client, 1));
    assert_int_equal(atomic_load(&kept_events.losses), 0);
    cmd_ok(at, "DEL kept");
    assert_true(scene_wait_losses(&kept_events, 1));
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    assert_int_equal(hf_lock_release(kept), HF_ELOST);
    hf_lock_free(lock);
    hf_lock_free(kept);
}

RUN_CASES(scene_start, scene_stop)
