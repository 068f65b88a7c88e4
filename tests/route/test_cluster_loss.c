/*
 * Failovers of a cluster that lose what was written, and servers that come back empty: who holds what was lost
 * there is told, soon and in these words, and nobody else notices. With real servers.
 */
#include "route/ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void acquire(hf_lock *lock, int64_t lease_ms, hf_result *result) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    options.lease_ms = lease_ms;
    assert_int_equal(hf_lock_acquire_with(lock, &options, result), HF_OK);
}

static hf_lock *watched_lock(hf_client *client, any_kind kind, const char *name,
                             struct scene_events *events) {
    hf_lock *lock = scene_lock(client, kind, name);
    assert_int_equal(hf_lock_on_lost(lock, scene_on_event, events), HF_OK);
    return lock;
}

/* The next renewal is a hundred seconds away, and the end of the lease three hundred. */
static void told_of_a_lost_lock(int64_t lease_ms) {
    struct ring r;
    struct scene_events events = {0}, none = {0};
    hf_result first = HF_RESULT_INIT, second = HF_RESULT_INIT;
    char kept_name[32];
    ring_begin(&r, NULL);
    struct server *old = shards_owner_of(r.shards, "lost");
    ring_name_at(&r, old, "kept", kept_name);
    hf_lock *lock = watched_lock(r.client, HF_PLAIN | HF_FENCED, "lost", &events);
    hf_lock *kept = watched_lock(r.client, HF_PLAIN, kept_name, &none);
    hf_lock *rival = scene_lock(r.rival, HF_PLAIN | HF_FENCED, "lost");
    acquire(kept, lease_ms, NULL);
    ring_replicate(&r, old);
    shards_cut_off_replica(r.shards, old);
    acquire(lock, lease_ms, &first);
    shards_lose_writes(r.shards, old);
    assert_true(scene_wait_losses(&events, 1));
    assert_string_equal(events.reason, "the primary changed, and the new one does not have it");
    acquire(rival, lease_ms, &second);
    assert_true(second.token > first.token);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    assert_int_equal(hf_lock_release(rival), HF_OK);
    assert_int_equal(hf_lock_release(kept), HF_OK);
    assert_int_equal(atomic_load(&none.losses), 0);
    assert_int_equal(scene_stats(r.client).losses, 1);
    hf_lock_free(lock);
    hf_lock_free(kept);
    hf_lock_free(rival);
    ring_end(&r);
}

static void told_of_one_with_a_watchdog(void **state) {
    (void)state;
    told_of_a_lost_lock(HF_WATCHDOG);
}

static void told_of_one_with_a_lease(void **state) {
    (void)state;
    told_of_a_lost_lock(LONG_MS);
}

/* A few of very many, on all three. What is promised is a second; it is only demanded where nothing else is to be done. */
static void many_are_verified(void **state) {
    (void)state;
    bool soak = getenv("HF_SOAK") != NULL;
    size_t many = soak ? 10000 : 900, lost = 0;
    struct ring r;
    struct scene_events events = {0};
    ring_begin(&r, NULL);
    struct server *old = shards_owner(r.shards, 0);
    hf_lock **locks = calloc(many, sizeof(hf_lock *));
    bool *cut = calloc(many, sizeof(bool));
    for (size_t i = 0; i < many; i++) {
        char name[24];
        snprintf(name, sizeof name, "many-%zu", i);
        if (i == many - 30) { /* what comes now is at the replicas of the others only */
            ring_replicate(&r, old);
            shards_cut_off_replica(r.shards, old);
        }
        cut[i] = i >= many - 30 && shards_owner_of(r.shards, name) == old;
        lost += cut[i];
        locks[i] = watched_lock(r.client, HF_PLAIN, name, &events);
        acquire(locks[i], i % 2 == 0 ? HF_WATCHDOG : LONG_MS, NULL);
    }
    assert_true(lost > 0);
    shards_lose_writes(r.shards, old);
    assert_true(scene_wait_losses(&events, (int)lost));
    long long after_ms = atomic_load(&events.told_ms) - shards_told_ms(r.shards);
    print_message("told %lld ms after the failover, of %zu\n", after_ms, many);
    assert_true(!soak || after_ms <= 1000);
    for (size_t i = 0; i < many; i++) {
        assert_int_equal(hf_lock_release(locks[i]), cut[i] ? HF_ELOST : HF_OK);
        hf_lock_free(locks[i]);
    }
    free(locks);
    free(cut);
    assert_int_equal(scene_stats(r.client).losses, lost);
    ring_end(&r);
}

/* It comes back empty before anybody has noticed: it serves what it did, and nothing is there. If they
 * notice after all, the replica has nothing either. */
static void told_of_one_that_forgot(void **state) {
    (void)state;
    struct ring r;
    struct scene_events events = {0};
    ring_begin(&r, NULL);
    struct server *old = shards_owner_of(r.shards, "forgotten");
    ring_replicate(&r, old);
    shards_cut_off_replica(r.shards, old);
    hf_lock *lock = watched_lock(r.client, HF_PLAIN, "forgotten", &events);
    acquire(lock, LONG_MS, NULL);
    assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK);
    server_restart(old);
    assert_true(scene_wait_losses(&events, 1));
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    hf_lock_free(lock);
    ring_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(told_of_one_with_a_watchdog),
        cmocka_unit_test(told_of_one_with_a_lease),
        cmocka_unit_test(many_are_verified),
        cmocka_unit_test(told_of_one_that_forgot),
    };
    return cmocka_run_group_tests(tests, ring_start_partial, ring_stop);
}
