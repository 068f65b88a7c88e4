/*
 * Semaphores and latches in ZooKeeper: numbers that nobody owns. What is on the server is looked at, and
 * changed, past the library, as Curator's SharedCount and DistributedBarrier would.
 */
#include "support/case.h"
#include "zk/scene.h"

static hf_sem *sem_of(hf_client *client, const char *name) {
    hf_sem *sem = NULL;
    assert_int_equal(hf_sem_new(client, name, &sem), HF_OK);
    return sem;
}

static hf_latch *latch_of(hf_client *client, const char *name) {
    hf_latch *latch = NULL;
    assert_int_equal(hf_latch_new(client, name, &latch), HF_OK);
    return latch;
}

/* Four bytes, big endian. */
static void assert_stored(const char *path, int32_t number) {
    size_t len = 0;
    own_text *data = zk_data(scene.eyes, path, &len);
    assert_non_null(data);
    assert_int_equal(len, 4);
    const unsigned char *b = (const unsigned char *)data;
    assert_int_equal((int32_t)((uint32_t)b[0] << 24 | b[1] << 16 | b[2] << 8 | b[3]), number);
    assert_int_equal(zk_owner(scene.eyes, path), 0);
}

static void assert_available(hf_sem *sem, int64_t expected) {
    int64_t permits = -99;
    assert_int_equal(hf_sem_available(sem, &permits), HF_OK);
    assert_int_equal(permits, expected);
}

/* ---- Semaphores ---- */

PAIR_CASE(a_semaphore_is_a_number) {
    bool done = false;
    int64_t permits = 0;
    hf_sem *sem = sem_of(pair->ours, "sems/number"), *theirs = sem_of(pair->theirs, "sems/number");
    assert_available(sem, 0);
    assert_int_equal(hf_sem_try_set(sem, 10, 0, &done), HF_OK);
    assert_true(done);
    assert_stored("/sems/number", 10);
    assert_int_equal(hf_sem_try_set(theirs, 5, 0, &done), HF_OK);
    assert_false(done);
    assert_int_equal(hf_sem_acquire(theirs, 3), HF_OK);
    assert_int_equal(hf_sem_try(sem, 8), HF_EBUSY);
    assert_int_equal(hf_sem_acquire_for(sem, 8, 20), HF_ETIMEDOUT);
    assert_stored("/sems/number", 7);
    assert_int_equal(hf_sem_release(sem, 1), HF_OK);
    assert_int_equal(hf_sem_add(sem, -10), HF_OK);
    assert_stored("/sems/number", -2);
    assert_int_equal(hf_sem_add(sem, 6), HF_OK);
    assert_int_equal(hf_sem_drain(theirs, &permits), HF_OK);
    assert_int_equal(permits, 4);
    assert_available(sem, 0);
    assert_int_equal(hf_sem_delete(sem, &done), HF_OK);
    assert_true(done);
    assert_int_equal(hf_sem_delete(sem, &done), HF_OK);
    assert_false(done);
    assert_int_equal(hf_sem_release_if_exists(sem, 1, &done), HF_OK);
    assert_false(done);
    assert_int_equal(hf_sem_release(sem, 2), HF_OK);
    assert_stored("/sems/number", 2);
    hf_sem_free(sem);
    hf_sem_free(theirs);
}

PAIR_CASE(a_wait_ends_when_there_are_enough) {
    hf_op *op = NULL;
    hf_sem *sem = sem_of(pair->ours, "sems/wait"), *theirs = sem_of(pair->theirs, "sems/wait");
    assert_int_equal(hf_sem_acquire_start(sem, 2, NULL, NULL, NULL, &op), HF_OK);
    scene_await_watches("/sems/wait", 1); /* before there is any */
    assert_int_equal(hf_sem_try_set(theirs, 1, 0, NULL), HF_OK);
    scene_await_watches("/sems/wait", 1);
    assert_false(scene_is_done(op));
    assert_int_equal(hf_sem_release(theirs, 1), HF_OK);
    assert_int_equal(scene_join(op), HF_OK);
    assert_available(theirs, 0);

    assert_int_equal(hf_sem_acquire_start(sem, 1, NULL, NULL, NULL, &op), HF_OK);
    scene_await_watches("/sems/wait", 1);
    hf_op_cancel(op);
    assert_int_equal(scene_join(op), HF_ECANCELED);
    assert_int_equal(hf_sem_release(theirs, 1), HF_OK);
    assert_available(theirs, 1);
    hf_sem_free(sem);
    hf_sem_free(theirs);
}

PAIR_CASE(many_take_and_give_back) {
    hf_op *ops[16];
    hf_sem *sem = sem_of(pair->ours, "sems/many"), *theirs = sem_of(pair->theirs, "sems/many");
    assert_int_equal(hf_sem_try_set(sem, 8, 0, NULL), HF_OK);
    for (int i = 0; i < 16; i++)
        assert_int_equal(
            hf_sem_acquire_start(i % 2 == 0 ? sem : theirs, 1, NULL, NULL, NULL, &ops[i]), HF_OK);
    for (int i = 0; i < 8; i++)
        assert_int_equal(hf_sem_release(i % 2 == 0 ? sem : theirs, 1), HF_OK);
    for (int i = 0; i < 16; i++)
        assert_int_equal(scene_join(ops[i]), HF_OK);
    assert_available(sem, 0);
    hf_sem_free(sem);
    hf_sem_free(theirs);
}

PAIR_CASE(verbs_a_semaphore_lacks) {
    own_sem *sem = sem_of(pair->ours, "sems/less");
    assert_int_equal(hf_sem_try_set(sem, 1, 5000, NULL), HF_ENOTSUP);
    assert_non_null(strstr(hf_last_error()->text, "TTL"));
    assert_int_equal(hf_sem_release(sem, HF_PERMITS_MAX), HF_OK);
    assert_int_equal(hf_sem_release(sem, 1), HF_EINVAL);
    assert_stored("/sems/less", INT32_MAX);
}

PAIR_CASE(something_else_is_no_semaphore) {
    int64_t permits;
    assert_int_equal(zk_make(scene.eyes, "/words", "some words", 10), 0);
    hf_sem *sem = sem_of(pair->ours, "words");
    assert_int_equal(hf_sem_available(sem, &permits), HF_EWRONGTYPE);
    assert_int_equal(hf_sem_acquire(sem, 1), HF_EWRONGTYPE);
    assert_int_equal(hf_sem_release(sem, 1), HF_EWRONGTYPE);
    hf_sem_free(sem);
    hf_lock *lock = scene_lock(pair->theirs, HF_PLAIN, "sems/locked");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    sem = sem_of(pair->ours, "sems/locked");
    assert_int_equal(hf_sem_release(sem, 1), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    hf_sem_free(sem);
}

/* ---- Latches ---- */

static void assert_count(hf_latch *latch, int64_t expected) {
    int64_t count = -1;
    assert_int_equal(hf_latch_count(latch, &count), HF_OK);
    assert_int_equal(count, expected);
}

PAIR_CASE(a_latch_opens_at_zero) {
    bool done = false;
    hf_op *ops[3];
    own_latch *latch = latch_of(pair->ours, "latches/zero");
    own_latch *theirs = latch_of(pair->theirs, "latches/zero");
    assert_int_equal(hf_latch_await(latch), HF_OK); /* there is none */
    assert_int_equal(hf_latch_try_set(latch, 2, &done), HF_OK);
    assert_true(done);
    assert_stored("/latches/zero", 2);
    assert_int_equal(hf_latch_try_set(theirs, 3, &done), HF_OK);
    assert_false(done);
    assert_int_equal(hf_latch_await_for(theirs, 0), HF_EBUSY);
    for (int i = 0; i < 3; i++)
        assert_int_equal(hf_latch_await_start(i == 0 ? latch : theirs, NULL, NULL, NULL, &ops[i]),
                         HF_OK);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_count(theirs, 1);
    for (int i = 0; i < 3; i++)
        assert_false(scene_is_done(ops[i]));
    assert_int_equal(hf_latch_count_down(theirs), HF_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(scene_join(ops[i]), HF_OK);
    assert_count(latch, 0);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_int_equal(zk_exists(scene.eyes, "/latches/zero"), ZK_NO_NODE);
}

/* Java's setBarrier() and removeBarrier(): a node with anything in it. */
PAIR_CASE(a_barrier_of_java_is_closed) {
    hf_op *op = NULL;
    bool done = false;
    own_latch *latch = latch_of(pair->ours, "barrier");
    assert_int_equal(zk_make(scene.eyes, "/barrier", "127.0.0.1", 9), 0);
    assert_count(latch, 1);
    assert_int_equal(hf_latch_try_set(latch, 2, &done), HF_OK);
    assert_false(done);
    assert_int_equal(hf_latch_await_start(latch, NULL, NULL, NULL, &op), HF_OK);
    scene_await_watches("/barrier", 1);
    assert_int_equal(zk_delete(scene.eyes, "/barrier"), 0);
    assert_int_equal(scene_join(op), HF_OK);

    assert_int_equal(zk_make(scene.eyes, "/barrier", "", 0), 0);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_int_equal(zk_exists(scene.eyes, "/barrier"), ZK_NO_NODE);
}

/* A waiter has seen that it was open, however soon it was closed again. */
PAIR_CASE(closed_again_is_another_latch) {
    hf_op *op = NULL;
    bool done = false;
    own_latch *latch = latch_of(pair->ours, "latches/again");
    own_latch *theirs = latch_of(pair->theirs, "latches/again");
    assert_int_equal(hf_latch_try_set(theirs, 1, NULL), HF_OK);
    assert_int_equal(hf_latch_await_start(latch, NULL, NULL, NULL, &op), HF_OK);
    scene_await_watches("/latches/again", 1);
    assert_int_equal(hf_latch_delete(theirs, &done), HF_OK);
    assert_true(done);
    assert_int_equal(hf_latch_try_set(theirs, 5, &done), HF_OK);
    assert_int_equal(scene_join(op), HF_OK);
    assert_count(theirs, 5);
    assert_int_equal(hf_latch_delete(theirs, &done), HF_OK);
    assert_true(done);
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
