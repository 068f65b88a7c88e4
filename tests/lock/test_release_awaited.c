/*
 * A release that gets its turn while its caller waits is not one that was left to the keeper
 * (src/core/verb/release.c): it counts as awaited, and has its caller's time limit.
 *
 * The counter is the core's own. No caller can see that it is off by one or two, so the test reads
 * it there.
 */
#include "core/op/op.h"
#include "support/world.h"

#define OWNER 9

static void *await(void *op) {
    hf_op_wait(op, HANG_MS, NULL);
    return NULL;
}

static bool is_awaited(void *arg) {
    return atomic_load(&((struct hf_op *)arg)->complete) == HFI_AWAITED;
}

/* An acquire of the same owner is on its way, so the release is in the queue until that is answered. */
CASE(a_queued_one_that_is_awaited) {
    OWN(world_end) struct world w;
    own_op *acquire, *release;
    hf_acquire_options options = world_wait_as(OWNER, 0, HF_WATCHDOG);
    world_begin(&w, NULL);
    assert_int_equal(world_acquire_async(w.lock, OWNER, 0, NULL), HF_OK);
    proxy_stall_request(w.proxy, WORLD_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(w.lock, &options, NULL, NULL, &acquire), HF_OK);
    assert_true(proxy_wait_held(w.proxy, HANG_MS));
    assert_int_equal(hf_lock_release_start(w.lock, OWNER, NULL, NULL, &release), HF_OK);
    pthread_t thread = started(await, release);
    assert_true(wait_until(is_awaited, release, HANG_MS));
    assert_int_equal(proxy_release_held(w.proxy), 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(hf_op_wait(acquire, HANG_MS, NULL), HF_OK);
    assert_int_equal(hf_op_wait(release, HANG_MS, NULL), HF_OK);
    assert_int_equal(release->hold->leaving, 0);
    assert_int_equal(release->call->deadline_ms, release->deadline_ms);
    assert_int_equal(hf_lock_release_as(w.lock, OWNER), HF_OK);
    assert_true(world_free(&w));
}

RUN_CASES(world_start_server, world_stop_server)
