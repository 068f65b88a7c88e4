/*
 * Permits and InterProcessSemaphoreV2 with its SharedCount, a semaphore as a SharedCount, a latch as a
 * DistributedBarrier, and many locks as one.
 */
#include "suite.h"

#include <string.h>

static hf_permits *permits_of(hf_client *client, const char *name) {
    hf_permits *permits = NULL;
    assert_hf(HF_OK, hf_permits_new(client, name, &permits));
    return permits;
}

static void assert_java_leases(const char *answer) {
    if (strncmp(answer, "ok _c_", 6) != 0)
        fail_msg("Curator has no lease: %s", answer);
}

/* One total for both, no matter who sets it, and one number of leases. */
void permits_cross(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_permits *permits = permits_of(client, "p1");
    hf_permit_id id, none;
    int64_t number = -1;
    assert_java("ok", "open j1 permits /p1 p1");
    assert_java("ok", "total p1 to=2");
    assert_hf(HF_OK, hf_permits_total(permits, &number));
    assert_int_equal(number, 2);
    assert_hf(HF_OK, hf_permits_acquire(permits, &id));
    assert_java_leases(java_call(suite.java, "acquire p1 thread=%d", thread));
    assert_hf(HF_EBUSY, hf_permits_try(permits, &none));
    assert_java("ok false", "acquire p1 wait=200 thread=%d", thread);
    assert_hf(HF_OK, hf_permits_taken(permits, &number));
    assert_int_equal(number, 2);
    assert_hf(HF_OK, hf_permits_release(permits, &id));
    assert_java_leases(java_call(suite.java, "acquire p1 thread=%d", thread));
    assert_java("ok", "release p1 thread=%d", thread);
    assert_java("ok", "release p1 thread=%d", thread);
    assert_nodes("/p1/leases", 0);
    assert_hf(HF_OK, hf_permits_set(permits, 5));
    assert_java_leases(java_call(suite.java, "acquire p1 n=5 thread=%d", thread));
    assert_hf(HF_OK, hf_permits_available(permits, &number));
    assert_int_equal(number, 0);
    hf_permits_free(permits);
    hf_close(client);
}

void permits_wait_on_either_side(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_permits *permits = permits_of(client, "p2");
    hf_permit_id id, next;
    assert_hf(HF_OK, hf_permits_set(permits, 1));
    assert_java("ok", "open j1 permits /p2 p2");
    assert_hf(HF_OK, hf_permits_acquire(permits, &id));
    int waiting = java_send(suite.java, "acquire p2 thread=%d", thread);
    assert_nodes("/p2/leases", 2); /* Curator's own, which is one too many, and then waits */
    assert_false(java_answered(suite.java, waiting));
    assert_hf(HF_OK, hf_permits_release(permits, &id));
    assert_java_leases(java_answer(suite.java, waiting));

    hf_op *op = NULL;
    assert_hf(HF_OK, hf_permits_acquire_start(permits, NULL, &next, NULL, NULL, &op));
    assert_nodes("/p2/locks", 1); /* it is its turn, and it waits */
    assert_hf(HF_EPENDING, hf_op_wait(op, 0, NULL));
    assert_java("ok", "release p2 thread=%d", java_thread());
    assert_hf(HF_OK, joined(op, NULL));
    assert_hf(HF_OK, hf_permits_release(permits, &next));
    hf_permits_free(permits);
    hf_close(client);
}

void permits_of_the_killed_come_back(void **state) {
    (void)state;
    struct remote *doomed = java_new(DOOMED_SESSION_MS);
    hf_client *client = c_client(SESSION_MS);
    hf_permits *permits = permits_of(client, "p3");
    hf_permit_id id;
    assert_hf(HF_OK, hf_permits_set(permits, 1));
    assert_string_equal(java_call(doomed, "open c permits /p3 p3"), "ok");
    assert_java_leases(java_call(doomed, "acquire p3"));
    hf_op *op = NULL;
    assert_hf(HF_OK, hf_permits_acquire_start(permits, NULL, &id, NULL, NULL, &op));
    assert_true(wait_behind_java("/p3/locks", 1, op));
    java_kill(doomed);
    assert_hf(HF_OK, joined(op, NULL));
    assert_hf(HF_OK, hf_permits_release(permits, &id));
    java_free(doomed);
    hf_permits_free(permits);
    hf_close(client);
}

void semaphore_is_a_count(void **state) {
    (void)state;
    hf_client *client = c_client(SESSION_MS);
    hf_sem *sem = NULL;
    bool set = false;
    int64_t number = -1;
    assert_hf(HF_OK, hf_sem_new(client, "s1", &sem));
    assert_hf(HF_OK, hf_sem_try_set(sem, 3, 0, &set));
    assert_true(set);
    assert_java("ok", "open j1 count /s1 s1");
    assert_java("ok 3", "get s1");
    assert_hf(HF_OK, hf_sem_acquire(sem, 3));
    hf_op *op = NULL;
    assert_hf(HF_OK, hf_sem_acquire_start(sem, 2, NULL, NULL, NULL, &op));
    assert_watched("/s1", 2); /* Java's count, and our wait */
    assert_hf(HF_EPENDING, hf_op_wait(op, 0, NULL));
    assert_java("ok", "set s1 to=7");
    assert_hf(HF_OK, joined(op, NULL));
    assert_hf(HF_OK, hf_sem_available(sem, &number));
    assert_int_equal(number, 5);
    hf_sem_free(sem);
    hf_close(client);
}

void latch_is_a_barrier(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_latch *latch = NULL;
    bool set = false;
    int64_t count = -1;
    assert_hf(HF_OK, hf_latch_new(client, "l1", &latch));
    assert_java("ok", "open j1 barrier /l1 l1");

    assert_java("ok", "set l1");
    assert_hf(HF_OK, hf_latch_count(latch, &count));
    assert_int_equal(count, 1);
    assert_hf(HF_ETIMEDOUT, hf_latch_await_for(latch, 100));
    hf_op *op = NULL;
    assert_hf(HF_OK, hf_latch_await_start(latch, NULL, NULL, NULL, &op));
    assert_watched("/l1", 1);
    assert_java("ok", "lift l1");
    assert_hf(HF_OK, joined(op, NULL));

    assert_hf(HF_OK, hf_latch_try_set(latch, 2, &set));
    assert_true(set);
    int waiting = java_send(suite.java, "await l1 thread=%d", thread);
    assert_watched("/l1", 1);
    assert_hf(HF_OK, hf_latch_count_down(latch));
    assert_false(java_answered(suite.java, waiting));
    assert_hf(HF_OK, hf_latch_count_down(latch));
    assert_java_ends("ok true", waiting);
    hf_latch_free(latch);
    hf_close(client);
}

static hf_lock *all_of(hf_lock *a, hf_lock *b) {
    hf_lock *all = NULL;
    assert_hf(HF_OK, hf_lock_new_multi((hf_lock *[]){a, b}, 2, &all));
    return all;
}

void multi_crosses(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_lock *a = c_lock(client, HF_PLAIN, "all/a"), *b = c_lock(client, HF_PLAIN, "all/b");
    hf_lock *all = all_of(a, b);
    assert_java("ok", "open j1 multi /all/a,/all/b all");
    assert_java("ok true", "lock all thread=%d", thread);
    assert_hf(HF_EBUSY, hf_lock_try(all));
    assert_hf(HF_EBUSY, hf_lock_try(b));
    assert_java("ok", "unlock all thread=%d", thread);
    assert_hf(HF_OK, hf_lock_acquire(all));
    assert_int_equal(zk_count(suite.eyes, "/all/a"), 1);
    assert_int_equal(zk_count(suite.eyes, "/all/b"), 1);
    int waiting = java_send(suite.java, "lock all thread=%d", thread);
    assert_nodes("/all/a", 2);
    assert_hf(HF_OK, hf_lock_release(all));
    assert_java_ends("ok true", waiting);
    assert_java("ok", "unlock all thread=%d", thread);
    hf_lock_free(all);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_close(client);
}
