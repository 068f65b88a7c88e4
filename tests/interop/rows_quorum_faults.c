/*
 * A quorum of five between C and Java when something is lost: a server, a holder, a lock on some of the
 * servers; and what RedissonRedLock does wrong by itself, with what holdfast does in its place
 * (docs/redisson.md names each). C324 of Redisson's own tests is here.
 */
#include "five.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define JAVA_TIMEOUT_MS 1500 /* Java's, for a server that may be lost */

/* ---- Servers that are lost ------------------------------------------------------------------- */

/* C324, in both directions: it is stopped under a hold of Java's, and is not there for the next ones. */
static void stopped(int server) {
    five_begin();
    five_replace(server, JAVA_TIMEOUT_MS);
    struct five_pair pair = five_pair(0);
    hf_result result = HF_RESULT_INIT;
    assert_java("ok", "lock Q thread=%d", pair.thread);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    server_kill(five.servers[server]);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    hf_op *op = five_c_waits(&pair, 77);
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, &result));
    assert_true(result.votes >= FIVE_MAJORITY && result.votes < FIVE);
    hf_op_free(op);

    assert_java("ok false", "try Q thread=%d", pair.thread);
    int waiting = five_java_waits("Q", pair.thread);
    assert_hf(HF_OK, hf_lock_release_as(pair.lock, 77));
    five_assert_java_woken(waiting);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    five_pair_end(&pair);
}

void quorum_first_server_stopped(void **state) {
    (void)state;
    stopped(0);
}

void quorum_last_server_stopped(void **state) {
    (void)state;
    stopped(FIVE - 1);
}

/* Its unlock waits for a server that is silent before it comes to the others, so a waiter there
 * waits, too. */
void quorum_java_unlocks_one_after_the_other(void **state) {
    (void)state;
    five_begin();
    five_replace(0, JAVA_TIMEOUT_MS);
    struct five_pair pair = five_pair(0);
    assert_java("ok", "lock Q thread=%d", pair.thread);
    server_freeze(five.servers[0]);
    hf_op *op = five_c_waits(&pair, 77);
    int64_t sent_ms = now_ms();
    int unlocking = java_send(suite.java, "unlock Q thread=%d", pair.thread);
    assert_hf(HF_OK, hf_op_wait(op, JAVA_LIMIT_MS, NULL));
    hf_op_free(op);
    assert_true(now_ms() - sent_ms >= JAVA_TIMEOUT_MS);
    assert_string_equal(java_answer(suite.java, unlocking), "ok");
    server_unfreeze(five.servers[0]);
    assert_hf(HF_OK, hf_lock_release_as(pair.lock, 77));
    five_vacate(0); /* the unlock that was given up may not have reached it */
    five_pair_end(&pair);
}

/* ---- Nested holds ---------------------------------------------------------------------------- */

/* It refuses scripts, to everybody. */
static void refuse(int server, bool yes) {
    cmd_ok(five.servers[server],
           yes ? "ACL SETUSER default -eval -evalsha" : "ACL SETUSER default +eval +evalsha");
}

/* The servers 0, 1 and 2 are had, and all are free for a nested acquire, but for the first, which
 * refuses it. */
static void make_a_bare_majority(void) {
    five_occupy(3);
    five_occupy(4);
}

static void let_others_go(void) {
    five_vacate(3);
    five_vacate(4);
}

/* A nested RedLock lowers the count at each server when it is released, also where it has not raised
 * it: one server that refuses the inner acquire, and the outer one is over, without a word. C comes in
 * when a majority is free, and not before; and Java's unlock does it no harm. */
void quorum_nested_redlock_loses_the_outer_hold(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    hf_result result = HF_RESULT_INIT;
    hf_acquire_options patient = HF_ACQUIRE_OPTIONS_INIT;
    patient.wait_ms = JAVA_LIMIT_MS;
    make_a_bare_majority();
    assert_java("ok true", "try Q thread=%d", pair.thread);
    let_others_go();
    refuse(0, true);
    assert_java("ok true", "try Q thread=%d", pair.thread);
    refuse(0, false);
    assert_int_equal(five_locked(), FIVE);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));

    assert_java("ok", "unlock Q thread=%d", pair.thread);
    assert_int_equal(five_locked(), 2); /* of the hold that has not been released */
    assert_hf(HF_OK, hf_lock_acquire_with(pair.lock, &patient, &result));
    assert_int_equal(result.votes, FIVE_MAJORITY);
    assert_int_equal(five_held(pair.owner), FIVE_MAJORITY);
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    assert_true(five_wait_held(pair.owner, FIVE));
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    five_pair_end(&pair);
}

/* The same of C's: the outer hold stays. */
void quorum_nested_c_keeps_the_outer_hold(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    make_a_bare_majority();
    assert_hf(HF_OK, hf_lock_acquire_for(pair.lock, JAVA_LIMIT_MS));
    assert_int_equal(five_held(pair.owner), FIVE_MAJORITY);
    let_others_go();
    refuse(0, true);
    assert_hf(HF_OK, hf_lock_acquire_for(pair.lock, JAVA_LIMIT_MS));
    refuse(0, false);
    assert_java("ok false", "try Q thread=%d", pair.thread);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_java("ok false", "try Q thread=%d", pair.thread);
    assert_true(five_held(pair.owner) >= FIVE_MAJORITY);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    five_assert_empty();
    assert_java("ok true", "try Q thread=%d", pair.thread);
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    five_pair_end(&pair);
}

/* ---- Leases ---------------------------------------------------------------------------------- */

#define GATHER_MS 1500 /* Java takes each server for twice as long, until it has enough of them */
#define LEASE_MS 8123  /* Java's; and C's, which is renewed long before that is over */
#define OUR_LEASE_MS 9000

/* Java has enough of them and is about to set its lease, one server after the other. */
static int java_is_held_up(struct five_pair *pair, struct proxy *proxy) {
    for (;;) {
        proxy_stall_request(proxy, "\r\n8123\r\n");
        int acquiring = java_send(suite.java, "try Q thread=%d wait=%d lease=%d", pair->thread,
                                  GATHER_MS, LEASE_MS);
        assert_true(
            WAIT_FOR(proxy_held(proxy) > 0 || java_answered(suite.java, acquiring), JAVA_LIMIT_MS));
        proxy_heal(proxy); /* no rule is left for what comes next */
        if (proxy_held(proxy) > 0)
            return acquiring;
        assert_string_equal(java_answer(suite.java, acquiring), "ok false"); /* it was too slow */
    }
}

static bool lease_is_back(void *arg) {
    (void)arg;
    for (int i = 0; i < FIVE; i++)
        if (pttl(five.servers[i], FIVE_NAME) <= LEASE_MS)
            return false;
    return true;
}

/* RedLock does not look how long it took: here what it had is over, and another's, when it sets its
 * lease. It believes that it holds the lock, and the other's locks have its lease, here a shorter one.
 * C's watchdog sets that right; and an acquire of C's counts the time that it took. */
void quorum_java_is_late_and_does_not_check(void **state) {
    (void)state;
    five_begin();
    own_proxy *proxy = proxy_start(server_socket(five.servers[0]));
    five_reach_through(0, proxy);
    struct five_pair pair = five_pair(OUR_LEASE_MS);
    int acquiring = java_is_held_up(&pair, proxy);
    assert_hf(HF_OK, hf_lock_acquire_for(pair.lock, JAVA_LIMIT_MS));
    assert_true(five_wait_held(pair.owner, FIVE));
    assert_true(proxy_release_held(proxy) >= 1);
    assert_string_equal(java_answer(suite.java, acquiring), "ok true");
    assert_true(wait_until(lease_is_back, NULL, JAVA_LIMIT_MS));
    assert_int_equal(five_held(pair.owner), FIVE);
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    five_pair_end(&pair);
}

/* ---- A wait that is interrupted -------------------------------------------------------------- */

/* RedLock takes the interrupt for a server that failed, and waits on. */
void quorum_java_cannot_be_interrupted(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    five_c_takes_all(&pair);
    int waiting = five_java_waits("Q", pair.thread);
    assert_java("ok", "interrupt thread=%d", pair.thread);
    wait_until_java_sleeps(pair.thread);
    hf_op *op = five_c_waits(&pair, 77);
    hf_op_cancel(op);
    assert_hf(HF_ECANCELED, hf_op_wait(op, JAVA_LIMIT_MS, NULL));
    hf_op_free(op);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    five_assert_java_woken(waiting);
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    five_pair_end(&pair);
}

/* ---- Holds that are broken ------------------------------------------------------------------- */

static void force(int servers, int thread) {
    for (int i = 0; i < servers; i++) {
        java_open(five.names[i], "plain", FIVE_NAME, "one");
        assert_java("ok true", "force one thread=%d", thread);
    }
}

/* C hears of each break at once: it may take a server again before Java comes to the next, and it
 * gives back what is left when a majority is gone. So Java goes round until C has lost it. */
static bool force_until(struct pollfd *lost, int thread) {
    for (int i = 0; i < FIVE; i++) {
        java_open(five.names[i], "plain", FIVE_NAME, "one");
        java_call(suite.java, "force one thread=%d", thread);
    }
    return poll(lost, 1, 0) == 1;
}

/* All five count, and have been proved since all of them do: then any two may go. The last proof may
 * still be on its way to some, so there is one more. */
static void prove_all(struct five_pair *pair) {
    hf_result result = HF_RESULT_INIT;
    for (int proofs = 0; proofs < 3; proofs = result.votes == FIVE ? proofs + 1 : 0) {
        assert_hf(HF_OK, hf_lock_acquire_with(pair->lock, NULL, &result));
        assert_hf(HF_OK, hf_lock_release(pair->lock));
    }
}

/* Java breaks C's lock on two servers: they are taken again. If a majority loses it: C is notified. */
void quorum_broken_servers_are_refilled_or_reported(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(ENDURING_MS);
    five_c_takes_all(&pair);
    prove_all(&pair);
    force(2, pair.thread);
    assert_true(five_wait_held(pair.owner, FIVE));
    struct pollfd lost = {.fd = hf_lock_lost_fd(pair.lock), .events = POLLIN};
    assert_true(WAIT_FOR(force_until(&lost, pair.thread), JAVA_LIMIT_MS));
    assert_hf(HF_ELOST, hf_lock_release(pair.lock));
    five_assert_empty();
    assert_java("ok true", "try Q thread=%d", pair.thread);
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    five_pair_end(&pair);
}

/* ---- Holders that are killed ----------------------------------------------------------------- */

static int hold_until_killed(void *arg) {
    int held = *(int *)arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    hf_lock *lock;
    options.watchdog_ms = ENDURING_MS;
    options.restart_guard_ms = 0;
    if (hf_open(five.urls, &options, &client) != HF_OK ||
        hf_lock_new(client, FIVE_NAME, &lock) != HF_OK || hf_lock_acquire(lock) != HF_OK ||
        write(held, "h", 1) != 1)
        return 1;
    for (;;)
        pause();
}

void quorum_killed_c_holder(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    int held[2];
    char byte;
    assert_int_equal(pipe(held), 0);
    pid_t pid = run_child(hold_until_killed, &held[1]);
    assert_int_equal(read(held[0], &byte, 1), 1);
    int waiting = five_java_waits("Q", pair.thread);
    kill_child(pid);
    int64_t free_at = five_free_at();
    assert_string_equal(java_answer(suite.java, waiting), "ok true");
    assert_true(wall_ms() >= free_at);
    assert_java("ok", "unlock Q thread=%d", pair.thread);
    close(held[0]);
    close(held[1]);
    five_pair_end(&pair);
}

void quorum_killed_java_holder(void **state) {
    (void)state;
    five_begin();
    struct five_pair pair = five_pair(0);
    struct remote *victim = java_start(JAVA_REDISSON);
    for (int i = 0; i < FIVE; i++)
        assert_memory_equal(java_call(victim, "client %s %s watchdog=%d", five.names[i],
                                      server_tcp_url(five.servers[i]), ENDURING_MS),
                            "ok ", 3);
    assert_string_equal(java_call(victim, "open %s redlock " FIVE_NAME " Q", five.java), "ok");
    assert_string_equal(java_call(victim, "lock Q"), "ok");
    hf_op *op = five_c_waits(&pair, 77);
    java_kill(victim);
    int64_t free_at = five_free_at();
    assert_hf(HF_OK, hf_op_wait(op, JAVA_LIMIT_MS, NULL));
    assert_true(wall_ms() >= free_at);
    hf_op_free(op);
    assert_hf(HF_OK, hf_lock_release_as(pair.lock, 77));
    java_free(victim);
    five_pair_end(&pair);
}
