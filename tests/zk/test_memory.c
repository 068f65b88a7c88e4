/*
 * Memory runs out at each step in turn, for locks on a ZooKeeper server.
 *
 * A client's allocator fails its n-th call, for n = 1, 2, ... until a whole round ran without coming to
 * it. Whatever fails, nothing hangs or crashes, every byte is given back, and afterwards the server has
 * exactly the nodes of what the client says it holds. The n-th call only: what comes after it succeeds,
 * so the round goes on from there.
 */
#include "support/case.h"
#include "support/memory.h"
#include "zk/scene.h"

#define STEPS_MAX 1000
#define NAME "starved"
#define WAITER 7 /* an owner */

static void assert_allowed(int err) {
    if (err != HF_OK && err != HF_ENOMEM && err != HF_EUNREACH && err != HF_EINDOUBT &&
        err != HF_ETIMEDOUT && err != HF_EBUSY)
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
}

/* A release that found no memory may not have begun: then it is still ours, and the next call says
 * so. */
static void release_all(hf_lock *lock, hf_owner owner, int held) {
    int err = HF_OK;
    for (int calls = 0; err != HF_ENOTOWNER; calls++) {
        err = hf_lock_release_as(lock, owner);
        if (err != HF_ENOTOWNER)
            assert_allowed(err);
        assert_true(calls <= held + 1); /* one fails at most */
    }
    assert_nodes(NAME, 0);
}

static void hold_it(hf_lock *lock) {
    int held = 0;
    for (int i = 0; i < 2; i++) {
        int err = hf_lock_acquire_for(lock, HANG_MS);
        assert_allowed(err);
        held += err == HF_OK;
        assert_nodes(NAME, held > 0);
    }
    bool flag;
    hf_lock_info *info = NULL;
    assert_allowed(hf_lock_is_locked(lock, &flag));
    assert_allowed(hf_lock_inspect(lock, &info));
    hf_lock_info_free(info);
    release_all(lock, hf_owner_self(), held);
}

/* Behind another in the queue: whether or not it comes that far, only the other's node is left if not. */
static void wait_for_it(hf_lock *lock, hf_lock *rival) {
    hf_op *op = NULL;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = WAITER;
    assert_hf(HF_OK, hf_lock_acquire(rival));
    int err = hf_lock_acquire_start(lock, &options, NULL, NULL, &op);
    assert_allowed(err);
    assert_allowed(hf_lock_try(lock));
    assert_hf(HF_OK, hf_lock_release(rival));
    if (err == HF_OK)
        err = hf_op_wait(op, HANG_MS, NULL);
    assert_allowed(err);
    hf_op_free(op);
    assert_nodes(NAME, err == HF_OK);
    release_all(lock, WAITER, err == HF_OK);
}

/* True: the failing call was reached. */
static bool play(hf_lock *rival, long fail_at) {
    struct memory memory = {.fail_at = fail_at};
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    hf_lock *lock = NULL;
    options.watchdog_ms = SURVIVES_MS;
    options.cmd_timeout_ms = 20000;
    options.connect_timeout_ms = HANG_MS;
    options.allocator = memory_allocator(&memory);
    int err = hf_open(zk_url(scene.zk), &options, &client);
    if (err == HF_OK)
        err = hf_lock_new(client, NAME, &lock);
    if (err == HF_OK) {
        hold_it(lock);
        wait_for_it(lock, rival);
    } else {
        assert_int_equal(err, HF_ENOMEM);
    }
    hf_lock_free(lock);
    assert_hf(HF_OK, hf_close(client));
    assert_int_equal(atomic_load(&memory.live), 0);
    return atomic_load(&memory.calls) >= fail_at;
}

CASE_AROUND(memory_runs_out, scene_heal, NULL) {
    own_client *client = scene_direct(SURVIVES_MS);
    own_lock *rival = scene_lock(client, HF_PLAIN, NAME);
    scene_warm(NAME);
    long step = 1;
    while (play(rival, step))
        assert_true(++step < STEPS_MAX);
    assert_true(step > 20);
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
