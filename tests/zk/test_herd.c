/*
 * Many in one line: a release wakes the next one and nobody else, and who leaves the line moves only the one behind.
 * Two hundred here, a thousand in `make soak`. And many holds of one client, which are all kept.
 */
#include "support/case.h"
#include "zk/scene.h"

/* A client reconnects three times per session time and then sets its watches again. Here requests
 * and watches are counted, so the session is so long that no test lasts until then. */
#define UNINTERRUPTED_MS 600000

enum { FEW = 200, MANY = 1000, RELEASES = 20, HOLDS = 500, MANY_HOLDS = 10000 };

static int how_many(int here, int in_soak) {
    return getenv("HF_SOAK") != NULL ? in_soak : here;
}

static long long watches_fired(void) {
    return zk_number(scene.zk, "zk_sum_node_deleted_watch_count");
}

CASE_AROUND(one_event_for_each_release, scene_heal, NULL) {
    int waiters = how_many(FEW, MANY);
    hf_client *holder = scene_direct(UNINTERRUPTED_MS), *client = scene_proxied(UNINTERRUPTED_MS);
    hf_lock *held = scene_lock(holder, HF_FAIR, "herd"),
            *lock = scene_lock(client, HF_FAIR, "herd");
    hf_op **ops = calloc((size_t)waiters, sizeof *ops);
    assert_non_null(ops);
    assert_hf(HF_OK, hf_lock_acquire(held));
    for (int i = 0; i < waiters; i++) {
        ops[i] = scene_acquire_start(lock);
        assert_true(proxy_wait_seen(scene.proxy, "getData /herd/", (size_t)i + 1, HANG_MS));
    }
    assert_int_equal(zk_count(scene.eyes, "/herd"), waiters + 1);

    /* One in the middle goes: the one behind looks again. */
    int quitter = waiters / 2;
    assert_true(proxy_wait_answered(scene.proxy, HANG_MS));
    size_t looked = proxy_seen(scene.proxy, "getData /herd/");
    long long fired = watches_fired();
    hf_op_cancel(ops[quitter]);
    assert_hf(HF_ECANCELED, hf_op_wait(ops[quitter], HANG_MS, NULL));
    assert_true(proxy_wait_seen(scene.proxy, "getData /herd/", looked + 1, HANG_MS));
    assert_true(proxy_wait_answered(scene.proxy, HANG_MS));
    assert_int_equal(watches_fired(), fired + 1);
    hf_op_free(ops[quitter]);

    size_t listed = proxy_seen(scene.proxy, "getChildren2 /herd");
    assert_hf(HF_OK, hf_lock_release(held));
    hf_owner owner = scene_acquired(ops[0]);
    for (int i = 1; i < RELEASES; i++) {
        assert_hf(HF_OK, hf_lock_release_as(lock, owner));
        owner = scene_acquired(ops[i]);
    }
    assert_int_equal(watches_fired(), fired + 1 + RELEASES);
    /* A client that was woken has looked whether it is the first, and nobody else has. */
    assert_in_range(proxy_seen(scene.proxy, "getChildren2 /herd"), listed, listed + RELEASES);
    assert_hf(HF_OK, hf_lock_release_as(lock, owner));
    for (int i = RELEASES; i < waiters; i++) {
        if (i == quitter)
            continue;
        owner = scene_acquired(ops[i]);
        assert_hf(HF_OK, hf_lock_release_as(lock, owner));
    }
    free(ops);
    hf_lock_free(held);
    hf_lock_free(lock);
    hf_close(holder);
    hf_close(client);
}

/* All of them are kept for as long as a session would last by itself, and none is late: the client
 * that has less than 3/8 of the session's time left is warned. */
CASE_AROUND(many_holds_are_kept, scene_heal, NULL) {
    struct scene_events events = {0};
    int holds = how_many(HOLDS, MANY_HOLDS);
    own_client *client = scene_proxied(SURVIVES_MS);
    hf_lock **locks = calloc((size_t)holds, sizeof *locks);
    hf_op **ops = calloc((size_t)holds, sizeof *ops);
    assert_true(locks != NULL && ops != NULL);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = hf_owner_self();
    for (int i = 0; i < holds; i++) {
        own_text *name = text_of("many/%d", i);
        locks[i] = scene_lock(client, HF_PLAIN, name);
        assert_hf(HF_OK, hf_lock_on_lost(locks[i], scene_on_event, &events));
        assert_hf(HF_OK, hf_lock_acquire_start(locks[i], &options, NULL, NULL, &ops[i]));
    }
    for (int i = 0; i < holds; i++) {
        assert_hf(HF_OK, joined(ops[i], NULL));
    }
    size_t beats = (size_t)(holds + 99) / 100, seen = proxy_seen(scene.proxy, "multi");
    assert_true(proxy_wait_seen(scene.proxy, "multi", seen + beats, HANG_MS));
    /* while they were acquired, which may take longer than a session; by now that is reported */
    int warned = atomic_load(&events.warnings);
    for (size_t round = 2; round <= 4; round++)
        assert_true(proxy_wait_seen(scene.proxy, "multi", seen + round * beats, HANG_MS));
    for (int i = 0; i < holds; i++)
        assert_true(hf_lock_remaining_ms(locks[i]) > 0);
    assert_int_equal(scene_stats(client).losses, 0);
    assert_int_equal(atomic_load(&events.warnings), warned);
    for (int i = 0; i < holds; i++) {
        assert_hf(HF_OK, hf_lock_release(locks[i]));
        hf_lock_free(locks[i]);
    }
    free(locks);
    free(ops);
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
