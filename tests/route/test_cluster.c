/*
 * A primary of a cluster that dies, or is only stopped: who holds, waits or releases need not know. With real
 * servers.
 */
#include "route/ring.h"

/* ---- Killed ---- */

/* Of each kind one with a watchdog and one with a lease, all at the primary that dies. */
RING_CASE(killed_while_held) {
    struct server *old = shards_owner(r->shards, 0);
    hf_lock *locks[2 * SCENE_KINDS], *rivals[2 * SCENE_KINDS];
    for (size_t i = 0; i < 2 * SCENE_KINDS; i++) {
        char stem[16], name[32];
        snprintf(stem, sizeof stem, "held-%zu", i);
        ring_name_at(r, old, stem, name);
        locks[i] = scene_lock(r->client, scene_kinds[i / 2], name);
        rivals[i] = scene_lock(r->rival, scene_rival_of(scene_kinds[i / 2]), name);
        scene_acquire(locks[i], i % 2 == 0 ? HF_WATCHDOG : LONG_MS, NULL);
    }
    ring_replicate(r, old);
    shards_kill(r->shards, old);
    assert_true(scene_wait_switches(r->client, 1));
    for (size_t i = 0; i < 2 * SCENE_KINDS; i++)
        scene_release_held(locks[i], rivals[i]);
    assert_int_equal(scene_stats(r->client).losses, 0);
}

/* The waiter subscribes at the new primary, and is then notified of the release. */
static void killed_while_waited_for(any_kind kind) {
    OWN(ring_end) struct ring r;
    struct scene_waiter waiter;
    ring_begin(&r, NULL);
    own_lock *lock = scene_lock(r.client, kind, "waited");
    own_lock *rival = scene_lock(r.rival, kind, "waited");
    struct server *old = shards_owner_of(r.shards, "waited");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_wait_for(&waiter, rival);
    assert_true(ring_wait_listened(old, "waited"));
    ring_replicate(&r, old);
    struct server *primary = shards_kill(r.shards, old);
    assert_true(ring_wait_listened(primary, "waited"));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
}

CASE(killed_while_a_plain_one_is_waited_for) {
    killed_while_waited_for(HF_PLAIN);
}

CASE(killed_while_a_fair_one_is_waited_for) {
    killed_while_waited_for(HF_FAIR);
}

RING_CASE(killed_before_a_release) {
    own_lock *lock = scene_lock(r->client, HF_PLAIN, "released");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    struct server *old = shards_owner_of(r->shards, "released");
    ring_replicate(r, old);
    server_kill(old);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    struct server *primary = shards_owner_of(r->shards, "released");
    assert_ptr_not_equal(primary, old);
    assert_false(key_exists(primary, "released"));
}

/* It was only stopped, and nobody at the new one is kept out by what it does when it wakes. */
RING_CASE(frozen_while_held) {
    own_lock *lock = scene_lock(r->client, HF_PLAIN, "frozen");
    own_lock *rival = scene_lock(r->rival, HF_PLAIN, "frozen");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    struct server *old = shards_owner_of(r->shards, "frozen");
    ring_replicate(r, old);
    server_freeze(old);
    assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK); /* where somebody answers */
    server_unfreeze(old);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_OK);
    assert_int_equal(scene_stats(r->client).losses, 0);
}

/* Nothing is held, and the commands in flight wait for replicas, as they may. The client still
 * notices that the server itself is silent, long before the request timeout. */
CASE(frozen_while_replicas_are_to_confirm) {
    OWN(ring_end) struct ring r;
    hf_options options = scene_options();
    options.acks = HF_ACKS_REPORT;
    ring_begin(&r, &options);
    own_lock *lock = scene_lock(r.client, HF_PLAIN, "confirmed");
    assert_int_equal(hf_lock_try(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    struct server *old = shards_owner_of(r.shards, "confirmed");
    ring_replicate(&r, old);
    server_freeze(old);
    int64_t began_ms = now_ms();
    assert_int_equal(hf_lock_try(lock), HF_OK); /* where somebody answers */
    print_message("answered after %lld ms\n", (long long)(now_ms() - began_ms));
    assert_true(getenv("HF_SOAK") == NULL || now_ms() - began_ms < options.cmd_timeout_ms / 2);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

RUN_CASES(ring_start_with_replicas, ring_stop)
