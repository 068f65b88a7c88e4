/*
 * Failovers of a cluster that lose writes, and servers that come back empty: the holders of lost
 * locks are notified soon, with the right reason, and no other client notices. With real servers.
 */
#include "route/ring.h"

/* The next renewal is a hundred seconds away, and the end of the lease three hundred. */
static void notified_of_a_lost_lock(int64_t lease_ms) {
    OWN(ring_end) struct ring r;
    struct scene_events events = {0}, none = {0};
    hf_result first = HF_RESULT_INIT, second = HF_RESULT_INIT;
    char kept_name[32];
    ring_begin(&r, NULL);
    struct server *old = shards_owner_of(r.shards, "lost");
    ring_name_at(&r, old, "kept", kept_name);
    own_lock *lock = scene_watched_lock(r.client, HF_PLAIN | HF_FENCED, "lost", &events);
    own_lock *kept = scene_watched_lock(r.client, HF_PLAIN, kept_name, &none);
    own_lock *rival = scene_lock(r.rival, HF_PLAIN | HF_FENCED, "lost");
    scene_acquire(kept, lease_ms, NULL);
    ring_replicate(&r, old);
    shards_cut_off_replica(r.shards, old);
    scene_acquire(lock, lease_ms, &first);
    shards_lose_writes(r.shards, old);
    assert_true(scene_wait_losses(&events, 1));
    assert_string_equal(events.reason, "the primary changed, and the new one does not have it");
    scene_acquire(rival, lease_ms, &second);
    assert_true(second.token > first.token);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    assert_int_equal(hf_lock_release(rival), HF_OK);
    assert_int_equal(hf_lock_release(kept), HF_OK);
    assert_int_equal(atomic_load(&none.losses), 0);
    assert_int_equal(scene_stats(r.client).losses, 1);
}

CASE(notified_of_a_watchdog_hold) {
    notified_of_a_lost_lock(HF_WATCHDOG);
}

CASE(notified_of_a_leased_hold) {
    notified_of_a_lost_lock(LONG_MS);
}

/* A few of very many, on all three. What is promised is a second; it is only demanded where nothing
 * else is to be done. */
CASE(many_are_verified) {
    OWN(ring_end) struct ring r;
    bool soak = getenv("HF_SOAK") != NULL;
    size_t many = soak ? 10000 : 900, lost = 0;
    struct scene_events events = {0};
    ring_begin(&r, NULL);
    struct server *old = shards_owner(r.shards, 0);
    hf_lock **locks = calloc(many, sizeof(hf_lock *));
    bool *cut = calloc(many, sizeof(bool));
    for (size_t i = 0; i < many; i++) {
        own_text *name = text_of("many-%zu", i);
        if (i == many - 30) { /* what comes now is at the replicas of the others only */
            ring_replicate(&r, old);
            shards_cut_off_replica(r.shards, old);
        }
        cut[i] = i >= many - 30 && shards_owner_of(r.shards, name) == old;
        lost += cut[i];
        locks[i] = scene_watched_lock(r.client, HF_PLAIN, name, &events);
        scene_acquire(locks[i], i % 2 == 0 ? HF_WATCHDOG : LONG_MS, NULL);
    }
    assert_true(lost > 0);
    shards_lose_writes(r.shards, old);
    assert_true(scene_wait_losses(&events, (int)lost));
    long long after_ms = atomic_load(&events.notified_ms) - shards_notified_ms(r.shards);
    print_message("notified %lld ms after the failover, of %zu\n", after_ms, many);
    assert_true(!soak || after_ms <= 1000);
    for (size_t i = 0; i < many; i++) {
        assert_int_equal(hf_lock_release(locks[i]), cut[i] ? HF_ELOST : HF_OK);
        hf_lock_free(locks[i]);
    }
    free(locks);
    free(cut);
    assert_int_equal(scene_stats(r.client).losses, lost);
}

/* It comes back empty before the others notice: it serves its slots, and all keys are gone. If they
 * do notice, its replica has nothing either. */
RING_CASE(notified_of_a_server_that_forgot) {
    struct scene_events events = {0};
    struct server *old = shards_owner_of(r->shards, "forgotten");
    ring_replicate(r, old);
    shards_cut_off_replica(r->shards, old);
    own_lock *lock = scene_watched_lock(r->client, HF_PLAIN, "forgotten", &events);
    scene_acquire(lock, LONG_MS, NULL);
    assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK);
    server_restart(old);
    assert_true(scene_wait_losses(&events, 1));
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
}

RUN_CASES(ring_start_partial, ring_stop)
