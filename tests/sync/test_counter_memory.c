/*
 * Memory runs out at each step in turn (U65), for semaphore and latch.
 *
 * A client's allocator fails its n-th call, for n = 1, 2, ... until a whole round ran without
 * coming to it. Whatever fails, nothing hangs or crashes, every byte is given back, and the codes
 * are true: after HF_OK it was done, after HF_ENOMEM and the like it was not, after HF_EINDOUBT it
 * was done once or not at all. The n-th call only: what comes after it succeeds, so the round goes
 * on from there.
 */
#include "support/memory.h"
#include "sync/objects.h"

#define STEPS_MAX 1000

/* The number on the server went from `before` to `before + delta`, or stayed, as the code says. */
static void assert_true_code(int err, const char *key, long long before, long long delta) {
    long long now = object_number(key);
    if (err == HF_OK)
        assert_int_equal(now, before + delta);
    else if (err == HF_EINDOUBT)
        assert_true(now == before || now == before + delta);
    else if (err == HF_ENOMEM || err == HF_EUNREACH || err == HF_EBUSY || err == HF_ETIMEDOUT)
        assert_int_equal(now, before);
    else
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
}

static int wait_started(int err, hf_op *op) {
    return world_wait_op(err, op, NULL);
}

static void change_a_semaphore(hf_sem *sem) {
    int64_t permits;
    hf_op *op = NULL;
    cmd_ok(world_server(), "SET " SEM_NAME " 100");
    assert_true_code(hf_sem_acquire_for(sem, 3, 2000), SEM_NAME, 100, -3);
    cmd_ok(world_server(), "SET " SEM_NAME " 100");
    assert_true_code(hf_sem_release(sem, 3), SEM_NAME, 100, 3);
    cmd_ok(world_server(), "SET " SEM_NAME " 100");
    int err = hf_sem_acquire_start(sem, 3, NULL, NULL, NULL, &op);
    assert_true_code(wait_started(err, op), SEM_NAME, 100, -3);
    cmd_ok(world_server(), "SET " SEM_NAME " 100");
    err = hf_sem_add_start(sem, 3, NULL, NULL, &op);
    assert_true_code(wait_started(err, op), SEM_NAME, 100, 3);
    cmd_ok(world_server(), "SET " SEM_NAME " 100");
    assert_true_code(hf_sem_available(sem, &permits), SEM_NAME, 100, 0);
}

/* It has looked once, or has ended for want of memory. */
static void wait_tried(struct world_caller *waiter, long long attempts) {
    assert_true(WAIT_FOR(
        atomic_load(&waiter->done) || server_calls(world_server(), "evalsha") > attempts, HANG_MS));
}

/* With or without memory for a subscription, a waiter gets what is given back. */
static void wait_for_permits(struct world *w, hf_sem *sem) {
    struct world_caller waiter;
    cmd_ok(world_server(), "SET " SEM_NAME " 0");
    long long attempts = server_calls(world_server(), "evalsha");
    world_call_sem(&waiter, sem, 1, HANG_MS, NULL);
    wait_tried(&waiter, attempts);
    assert_int_equal(hf_sem_release(w->rival_sem, 1), HF_OK);
    assert_true_code(world_join(&waiter), SEM_NAME, 1, -1);
}

static void use_a_latch(struct world *w, hf_latch *latch) {
    struct world_caller waiter;
    int64_t count;
    cmd_ok(world_server(), "SET " LATCH_NAME " 5");
    assert_true_code(hf_latch_count_down(latch), LATCH_NAME, 5, -1);
    cmd_ok(world_server(), "SET " LATCH_NAME " 1");
    assert_true_code(hf_latch_count(latch, &count), LATCH_NAME, 1, 0);
    long long attempts = server_calls(world_server(), "evalsha");
    world_call_latch(&waiter, latch, HANG_MS, NULL);
    wait_tried(&waiter, attempts);
    assert_int_equal(hf_latch_count_down(w->rival_latch), HF_OK);
    int err = world_join(&waiter);
    assert_true(err == HF_OK || err == HF_ENOMEM || err == HF_EUNREACH);
}

/* True: the failing call was reached. */
static bool play(struct world *w, long fail_at) {
    struct memory memory = {.fail_at = fail_at};
    hf_options options = world_options();
    hf_client *client = NULL;
    hf_sem *sem = NULL;
    hf_latch *latch = NULL;
    options.allocator = memory_allocator(&memory);
    int err = hf_open(server_url(w->server), &options, &client);
    if (err == HF_OK)
        err = hf_sem_new_bytes(client, SEM_NAME, strlen(SEM_NAME), &sem);
    if (err == HF_OK)
        err = hf_latch_new_bytes(client, LATCH_NAME, strlen(LATCH_NAME), &latch);
    if (err == HF_OK) {
        change_a_semaphore(sem);
        wait_for_permits(w, sem);
        use_a_latch(w, latch);
    } else {
        assert_int_equal(err, HF_ENOMEM);
    }
    hf_sem_free(sem);
    hf_latch_free(latch);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
    return atomic_load(&memory.calls) >= fail_at;
}

OBJECTS_CASE(U65_memory_runs_out) {
    long step = 1;
    while (play(w, step))
        assert_true(++step < STEPS_MAX);
    assert_true(step > 20);
}

RUN_CASES(world_start_server, world_stop_server)
