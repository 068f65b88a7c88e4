/*
 * Tracking in a cluster: each server reports changes of what it has. With real servers.
 */
#include "route/ring.h"

static bool is_tracked(hf_client *client, uint64_t holds) {
    return WAIT_FOR(scene_stats(client).tracked == holds, HANG_MS);
}

static const any_kind kinds[] = {HF_PLAIN, HF_READ, HF_STRING};

/* One lock on each server; then each is deleted. */
RING_CASE(S96_each_server_of_a_cluster_reports_its_own) {
    enum { KINDS = sizeof kinds / sizeof *kinds };
    struct scene_events events[KINDS][SHARDS] = {0};
    hf_lock *locks[KINDS][SHARDS];
    char names[KINDS][SHARDS][32];
    struct server *at[SHARDS];
    for (int i = 0; i < SHARDS; i++)
        at[i] = shards_owner(r->shards, (unsigned)i * 5461 + 100);
    for (size_t k = 0; k < KINDS; k++)
        for (int i = 0; i < SHARDS; i++) {
            own_text *stem = text_of("track-%zu-%d", k, i);
            ring_name_at(r, at[i], stem, names[k][i]);
            locks[k][i] = scene_watched_lock(r->client, kinds[k], names[k][i], &events[k][i]);
            scene_acquire(locks[k][i], i == 0 ? LONG_MS : HF_WATCHDOG, NULL);
        }
    assert_true(is_tracked(r->client, KINDS * SHARDS));
    for (size_t k = 0; k < KINDS; k++)
        for (int i = 0; i < SHARDS; i++) {
            cmd_ok(at[i], "DEL %s", names[k][i]);
            assert_true(scene_wait_losses(&events[k][i], 1));
            assert_int_equal(hf_lock_release(locks[k][i]), HF_ELOST);
            hf_lock_free(locks[k][i]);
        }
    assert_int_equal(scene_stats(r->client).losses, KINDS * SHARDS);
}

/* The hold goes with its slot, and is tracked where it is then. */
RING_CASE(S97_a_hold_is_tracked_where_its_slot_goes) {
    struct scene_events events = {0};
    own_lock *lock = scene_watched_lock(r->client, HF_PLAIN, "wandering", &events);
    scene_acquire(lock, HF_WATCHDOG, NULL);
    assert_true(is_tracked(r->client, 1));
    struct ring_move move = ring_move_of(r, "wandering");
    ring_open_slot(&move);
    ring_move_key(&move, "wandering");
    ring_close_slot(&move);
    assert_true(WAIT_FOR(server_calls(move.to, "client|caching") > 0, HANG_MS));
    assert_true(is_tracked(r->client, 1));
    cmd_ok(move.to, "DEL wandering");
    assert_true(scene_wait_losses(&events, 1));
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
}

/* A waiter behind a token of another library. */
RING_CASE(S98_a_foreign_release_in_a_cluster_wakes_a_waiter) {
    struct scene_waiter waiter;
    struct server *at = shards_owner_of(r->shards, "shared");
    cmd_ok(at, "SET shared a-token-of-another-library");
    long long calls = server_calls(at, "client|caching");
    scene_wait_for(&waiter, scene_lock(r->client, HF_STRING, "shared"));
    assert_true(WAIT_FOR(server_calls(at, "client|caching") > calls, HANG_MS));
    cmd_ok(at, "DEL shared");
    assert_int_equal(scene_join(&waiter), HF_OK);
    hf_lock_free(waiter.lock);
}

/* The connections to which the servers report. What was deleted meanwhile is noticed with the next. */
RING_CASE(S86_lost_subscriptions_in_a_cluster_are_made_again) {
    struct scene_events events[SHARDS] = {0};
    hf_lock *locks[SHARDS];
    char names[SHARDS][32];
    struct server *at[SHARDS];
    for (int i = 0; i < SHARDS; i++) {
        at[i] = shards_owner(r->shards, (unsigned)i * 5461 + 100);
        ring_name_at(r, at[i], "again", names[i]);
        locks[i] = scene_watched_lock(r->client, kinds[i], names[i], &events[i]);
        scene_acquire(locks[i], LONG_MS, NULL);
    }
    assert_true(is_tracked(r->client, SHARDS));
    for (int i = 0; i < SHARDS; i++) {
        long long calls = server_calls(at[i], "client|id");
        cmd_ok(at[i], "MULTI");
        cmd_ok(at[i], "CLIENT KILL TYPE pubsub");
        if (i == 0)
            cmd_ok(at[i], "DEL %s", names[i]);
        cmd_ok(at[i], "EXEC");
        assert_true(WAIT_FOR(server_calls(at[i], "client|id") > calls, HANG_MS));
    }
    assert_true(scene_wait_losses(&events[0], 1));
    assert_true(is_tracked(r->client, SHARDS - 1));
    for (int i = 1; i < SHARDS; i++) {
        cmd_ok(at[i], "DEL %s", names[i]);
        assert_true(scene_wait_losses(&events[i], 1));
    }
    for (int i = 0; i < SHARDS; i++) {
        assert_int_equal(hf_lock_release(locks[i]), HF_ELOST);
        hf_lock_free(locks[i]);
    }
}

RUN_CASES(ring_start, ring_stop)
