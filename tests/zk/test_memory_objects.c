/*
 * Memory runs out at each step in turn, for the kinds in ZooKeeper that are no mutex.
 *
 * A client's allocator fails its n-th call, for n = 1, 2, ... until a whole round ran without coming to it.
 * Whatever fails, nothing hangs or crashes, every byte is given back, and when the client is closed
 * nothing of it is left at the server. After HF_OK it was done.
 */
#include "support/case.h"
#include "support/memory.h"
#include "zk/scene.h"

#define STEPS_MAX 2000

/* What may come of a call without memory. */
static bool is_done(int err) {
    bool known = err == HF_OK || err == HF_ENOMEM || err == HF_EUNREACH || err == HF_EINDOUBT ||
                 err == HF_ETIMEDOUT || err == HF_ELOST;
    if (!known)
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
    return err == HF_OK;
}

static void write_and_read(hf_client *client) {
    hf_lock *write = NULL, *read = NULL;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = HF_WRITE;
    int err = hf_lock_new_with(client, "mem/rw", 6, &options, &write);
    options.kind = HF_READ;
    if (err == HF_OK)
        err = hf_lock_new_with(client, "mem/rw", 6, &options, &read);
    if (is_done(err) && is_done(hf_lock_acquire_for(write, HANG_MS))) {
        if (is_done(hf_lock_acquire_for(read, HANG_MS)))
            is_done(hf_lock_release(read));
        is_done(hf_lock_release(write));
    }
    hf_lock_free(write);
    hf_lock_free(read);
}

static void take_and_give_back(hf_client *client) {
    own_permits *permits = NULL;
    hf_permit_id ids[3];
    hf_permits_options options = HF_PERMITS_OPTIONS_INIT;
    options.count = 3;
    options.wait_ms = HANG_MS;
    int err = hf_permits_new(client, "mem/pool", &permits);
    if (is_done(err) && is_done(hf_permits_acquire_with(permits, &options, ids)))
        is_done(hf_permits_release_many(permits, ids, 3));
}

static void count(hf_client *client) {
    own_sem *sem = NULL;
    own_latch *latch = NULL;
    if (is_done(hf_sem_new(client, "mem/sem", &sem)))
        if (is_done(hf_sem_acquire_for(sem, 1, HANG_MS)))
            is_done(hf_sem_release(sem, 1));
    if (is_done(hf_latch_new(client, "mem/latch", &latch)))
        if (is_done(hf_latch_try_set(latch, 1, NULL)))
            is_done(hf_latch_count_down(latch));
}

/* True: the failing call was reached. */
static bool play(long fail_at) {
    struct memory memory = {.fail_at = fail_at};
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    options.watchdog_ms = ENDURING_MS;
    options.cmd_timeout_ms = 20000;
    options.connect_timeout_ms = HANG_MS;
    options.allocator = memory_allocator(&memory);
    if (is_done(hf_open(zk_url(scene.zk), &options, &client))) {
        write_and_read(client);
        take_and_give_back(client);
        count(client);
    }
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
    return atomic_load(&memory.calls) >= fail_at;
}

CASE(memory_runs_out) {
    long step = 1;
    while (play(step))
        assert_true(++step < STEPS_MAX);
    assert_true(step > 20);
    scene_await_empty("/mem/rw");
    scene_await_empty("/mem/pool/locks");
    scene_await_empty("/mem/pool/leases");
}

static int start(void **state) {
    hf_permits *permits = NULL;
    hf_sem *sem = NULL;
    scene_start(state);
    hf_client *client = scene_direct(SURVIVES_MS);
    assert_int_equal(hf_permits_new(client, "mem/pool", &permits), HF_OK);
    assert_int_equal(hf_permits_set(permits, 3), HF_OK);
    assert_int_equal(hf_sem_new(client, "mem/sem", &sem), HF_OK);
    assert_int_equal(hf_sem_try_set(sem, STEPS_MAX, 0, NULL), HF_OK);
    hf_permits_free(permits);
    hf_sem_free(sem);
    return hf_close(client);
}

int main(void) {
    zk_need();
    return test_cases_run(start, scene_stop);
}
