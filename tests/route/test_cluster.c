/*
 * A primary of a cluster that dies, or is only stopped: who holds, waits or releases need not know. With real
 * servers.
 */
#include "route/ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const any_kind kinds[] = {HF_PLAIN,
                                 HF_PLAIN | HF_NONREENTRANT,
                                 HF_PLAIN | HF_SPIN,
                                 HF_PLAIN | HF_FENCED,
                                 HF_FAIR,
                                 HF_READ,
                                 HF_WRITE};
#define KINDS (sizeof kinds / sizeof kinds[0])

static any_kind rival_of(any_kind kind) {
    return kind == HF_READ ? HF_WRITE : kind;
}

/* ---- Killed ---- */

/* Of each kind one with a watchdog and one with a lease, all at the primary that dies. */
static void killed_while_held(void **state) {
    (void)state;
    struct ring r;
    ring_begin(&r, NULL);
    struct server *old = shards_owner(r.shards, 0);
    hf_lock *locks[2 * KINDS], *rivals[2 * KINDS];
    for (size_t i = 0; i < 2 * KINDS; i++) {
        char stem[16], name[32];
        snprintf(stem, sizeof stem, "held-%zu", i);
        ring_name_at(&r, old, stem, name);
        hf_acquire_options options = HF_ACQUIRE_INIT;
        options.lease_ms = i % 2 == 0 ? HF_WATCHDOG : LONG_MS;
        locks[i] = scene_lock(r.client, kinds[i / 2], name);
        rivals[i] = scene_lock(r.rival, rival_of(kinds[i / 2]), name);
        assert_int_equal(hf_lock_acquire_with(locks[i], &options, NULL), HF_OK);
    }
    ring_replicate(&r, old);
    shards_kill(r.shards, old);
    assert_true(scene_wait_switches(r.client, 1));
    for (size_t i = 0; i < 2 * KINDS; i++) {
        assert_int_equal(hf_lock_try(rivals[i]), HF_EBUSY);
        assert_true(hf_lock_remaining_ms(locks[i]) > 0);
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        assert_int_equal(hf_lock_try(rivals[i]), HF_OK);
        hf_lock_free(locks[i]);
        hf_lock_free(rivals[i]);
    }
    assert_int_equal(scene_stats(r.client).losses, 0);
    ring_end(&r);
}

/* The waiter is heard at the new primary, and then told of the release. */
static void killed_while_waited_for(any_kind kind) {
    struct ring r;
    struct scene_waiter waiter;
    ring_begin(&r, NULL);
    hf_lock *lock = scene_lock(r.client, kind, "waited");
    hf_lock *rival = scene_lock(r.rival, kind, "waited");
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
    hf_lock_free(lock);
    hf_lock_free(rival);
    ring_end(&r);
}

static void killed_while_a_plain_one_is_waited_for(void **state) {
    (void)state;
    killed_while_waited_for(HF_PLAIN);
}

static void killed_while_a_fair_one_is_waited_for(void **state) {
    (void)state;
    killed_while_waited_for(HF_FAIR);
}

static void killed_before_a_release(void **state) {
    (void)state;
    struct ring r;
    ring_begin(&r, NULL);
    hf_lock *lock = scene_lock(r.client, HF_PLAIN, "released");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    struct server *old = shards_owner_of(r.shards, "released");
    ring_replicate(&r, old);
    server_kill(old);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    struct server *primary = shards_owner_of(r.shards, "released");
    assert_ptr_not_equal(primary, old);
    assert_false(key_exists(primary, "released"));
    hf_lock_free(lock);
    ring_end(&r);
}

/* It was only stopped, and nobody at the new one is kept out by what it does when it wakes. */
static void frozen_while_held(void **state) {
    (void)state;
    struct ring r;
    ring_begin(&r, NULL);
    hf_lock *lock = scene_lock(r.client, HF_PLAIN, "frozen");
    hf_lock *rival = scene_lock(r.rival, HF_PLAIN, "frozen");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    struct server *old = shards_owner_of(r.shards, "frozen");
    ring_replicate(&r, old);
    server_freeze(old);
    assert_int_equal(hf_lock_extend(lock, LONG_MS), HF_OK); /* where somebody answers */
    server_unfreeze(old);
    assert_int_equal(hf_lock_try(rival), HF_EBUSY);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(hf_lock_try(rival), HF_OK);
    assert_int_equal(scene_stats(r.client).losses, 0);
    hf_lock_free(lock);
    hf_lock_free(rival);
    ring_end(&r);
}

/* Nothing is held, and what is under way waits for replicas, as it may: that the server itself is silent is noticed all the
 * same, long before a command's time is up. */
static void frozen_while_replicas_are_to_confirm(void **state) {
    (void)state;
    struct ring r;
    hf_options options = scene_options();
    options.acks = HF_ACKS_REPORT;
    ring_begin(&r, &options);
    hf_lock *lock = scene_lock(r.client, HF_PLAIN, "confirmed");
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
    hf_lock_free(lock);
    ring_end(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_while_held),
        cmocka_unit_test(killed_while_a_plain_one_is_waited_for),
        cmocka_unit_test(killed_while_a_fair_one_is_waited_for),
        cmocka_unit_test(killed_before_a_release),
        cmocka_unit_test(frozen_while_held),
        cmocka_unit_test(frozen_while_replicas_are_to_confirm),
    };
    return cmocka_run_group_tests(tests, ring_start_with_replicas, ring_stop);
}
