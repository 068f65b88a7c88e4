/*
 * A quorum of five between C and Java: a client of five urls, and RedissonRedLock of five clients. The
 * servers come in Java's order, q0 first; C's is by their run ids, another one in each run.
 *
 * What happens when servers or holders are lost, and what RedLock itself does wrong, is in
 * rows_quorum_faults.c. C321 to C323 of Redisson's own tests are here, for both sides and on five
 * servers instead of two.
 */
#include "five.h"

#include <stdio.h>

/* ---- Exclusion and hand-over ----------------------------------------------------------------- */

void quorum_java_waits_for_c(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    five_c_takes_all(&pair);
    assert_java("ok false", "try Q thread=%d", pair.thread);
    assert_java("ok false", "try Q thread=%d wait=250", pair.thread);
    assert_java("ok false", "try Q thread=%d wait=250 lease=60000", pair.thread);
    int waiting = five_java_waits("Q", pair.thread);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    five_assert_java_woken(waiting);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    five_pair_end(&pair);
}

void quorum_c_waits_for_java(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    hf_result result = HF_RESULT_INIT;
    assert_java("ok", "lock Q thread=%d", pair.thread);
    assert_int_equal(five_locked(), FIVE);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(pair.lock, 200));
    hf_op *op = five_c_waits(&pair, 77);
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, &result));
    assert_true(result.votes >= FIVE_MAJORITY);
    assert_int_equal(result.servers, FIVE);
    hf_op_free(op);
    assert_java("ok false", "try Q thread=%d", pair.thread);
    assert_hf(HF_OK, hf_lock_release_as(pair.lock, 77));
    five_pair_end(&pair);
}

struct waiters {
    int java;
    hf_op *c;
};

static bool one_has_come(void *arg) {
    const struct waiters *waiters = arg;
    return java_answered(suite.java, waiters->java) || hf_op_wait(waiters->c, 0, NULL) == HF_OK;
}

/* One of each side waits, behind a holder of either: they come in one after the other. */
void quorum_waiters_of_both_sides(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    for (int by_java = 0; by_java < 2; by_java++) {
        int holder = java_thread(), waiter = java_thread();
        if (by_java)
            assert_java("ok", "lock Q thread=%d", holder);
        else
            five_c_takes_all(&pair);
        struct waiters waiters = {five_java_waits("Q", waiter), five_c_waits(&pair, 77)};
        if (by_java)
            assert_java("ok", "unlock Q thread=%d", holder);
        else
            assert_hf(HF_OK, hf_lock_release(pair.lock));
        assert_true(wait_until(one_has_come, &waiters, BY_MESSAGE_MS));
        bool java_first = java_answered(suite.java, waiters.java);
        for (int turn = 0; turn < 2; turn++) {
            if (java_first == (turn == 0)) {
                five_assert_java_woken(waiters.java);
                assert_java("ok", "unlock Q thread=%d", waiter);
            } else {
                five_assert_c_woken(waiters.c);
                assert_hf(HF_OK, hf_lock_release_as(pair.lock, 77));
            }
        }
        five_assert_empty();
    }
    five_pair_end(&pair);
}

/* ---- Some of the servers are another's ------------------------------------------------------- */

/* C's lock on one server alone. */
struct single {
    hf_client *client;
    hf_lock *lock;
};

static struct single c_takes(int server) {
    struct single single;
    assert_hf(HF_OK, hf_open(server_url(five.servers[server]), NULL, &single.client));
    single.lock = c_lock(single.client, FIVE_NAME);
    assert_hf(HF_OK, hf_lock_acquire(single.lock));
    return single;
}

static void c_leaves(struct single *single) {
    assert_hf(HF_OK, hf_lock_release(single->lock));
    hf_lock_free(single->lock);
    hf_close(single->client);
}

/* Java's, as the handle "one0" and so on. */
static void java_takes(int server, int thread) {
    own_text *handle = text_of("one%d", server);
    java_open(five.names[server], "plain", FIVE_NAME, handle);
    assert_java("ok", "lock %s thread=%d", handle, thread);
}

static void java_leaves(int server, int thread) {
    assert_java("ok", "unlock one%d thread=%d", server, thread);
}

/* C322, by either side: nobody misses them, and nobody takes them away. */
void quorum_minority_of_the_other_side(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    struct single first = c_takes(0), second = c_takes(3);
    int other = java_thread();
    hf_result result = HF_RESULT_INIT;
    hf_acquire_options patient = HF_ACQUIRE_OPTIONS_INIT;
    bool mine = false;
    assert_java("ok true", "try Q thread=%d", pair.thread);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    five_assert_java_holds("Q", pair.thread, false); /* unless all are held */
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    assert_int_equal(five_locked(), 2);
    c_leaves(&first);
    c_leaves(&second);

    java_takes(0, other);
    java_takes(3, other);
    patient.wait_ms = JAVA_LIMIT_MS; /* a try does not wait for those that answer late */
    assert_hf(HF_OK, hf_lock_acquire_with(pair.lock, &patient, &result));
    assert_int_equal(result.votes, FIVE_MAJORITY);
    assert_hf(HF_OK, hf_lock_is_mine(pair.lock, &mine));
    assert_true(mine);
    assert_java("ok false", "try Q thread=%d", pair.thread);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_true(five_wait_held(pair.owner, 0));
    java_leaves(0, other);
    java_leaves(3, other);
    five_pair_end(&pair);
}

/* C321, by either side: nobody gets in, and the client that tried has left nothing. */
void quorum_majority_of_the_other_side(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    struct single held[FIVE_MAJORITY];
    int other = java_thread();
    for (int i = 0; i < FIVE_MAJORITY; i++)
        held[i] = c_takes(i + 1);
    assert_java("ok false", "try Q thread=%d", pair.thread);
    assert_java("ok false", "try Q thread=%d wait=250", pair.thread);
    assert_int_equal(five_locked(), FIVE_MAJORITY);
    for (int i = 0; i < FIVE_MAJORITY; i++)
        c_leaves(&held[i]);

    for (int i = 0; i < FIVE_MAJORITY; i++)
        java_takes(i + 1, other);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(pair.lock, 200));
    assert_true(five_wait_held(pair.owner, 0));
    for (int i = 0; i < FIVE_MAJORITY; i++)
        java_leaves(i + 1, other);
    five_pair_end(&pair);
}

/* Java has the quorum beside C's lock on one server, which is then broken; and the next is C. */
static void after_c_on(int server, struct five_pair *pair) {
    struct single single = c_takes(server);
    bool broken = false;
    assert_java("ok true", "try Q thread=%d", pair->thread);
    assert_hf(HF_OK, hf_lock_break(single.lock, &broken));
    assert_true(broken);
    assert_hf(HF_ELOST, hf_lock_release(single.lock));
    hf_lock_free(single.lock);
    hf_close(single.client);
    hf_op *op = five_c_waits(pair, 77);
    assert_java("ok", "unlock Q thread=%d", pair->thread);
    five_assert_c_woken(op);
    assert_hf(HF_OK, hf_lock_release_as(pair->lock, 77));
    five_assert_empty();
}

static void after_java_on(int server, struct five_pair *pair) {
    int other = java_thread();
    java_takes(server, other);
    assert_hf(HF_OK, hf_lock_acquire_for(pair->lock, JAVA_LIMIT_MS));
    assert_java("ok true", "force one%d thread=%d", server, other);
    int waiting = five_java_waits("Q", pair->thread);
    assert_hf(HF_OK, hf_lock_release(pair->lock));
    five_assert_java_woken(waiting);
    assert_java("ok", "unlock Q thread=%d", pair->thread);
    five_assert_empty();
}

/* C323, for each of the servers. */
void quorum_each_server_in_turn(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    for (int i = 0; i < FIVE; i++) {
        after_c_on(i, &pair);
        after_java_on(i, &pair);
    }
    five_pair_end(&pair);
}

/* C has just as many as it needs, and Java comes to the others first. */
void quorum_java_refused_by_a_bare_majority(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    hf_result result = HF_RESULT_INIT;
    hf_acquire_options patient = HF_ACQUIRE_OPTIONS_INIT;
    five_occupy(0);
    five_occupy(1);
    patient.wait_ms = JAVA_LIMIT_MS;
    assert_hf(HF_OK, hf_lock_acquire_with(pair.lock, &patient, &result));
    assert_int_equal(result.votes, FIVE_MAJORITY);
    five_vacate(0);
    five_vacate(1);
    assert_java("ok false", "try Q thread=%d", pair.thread);
    assert_java("ok false", "try Q thread=%d wait=250", pair.thread);
    assert_true(five_wait_held(pair.owner, FIVE)); /* what Java gave back, too */
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    five_pair_end(&pair);
}
