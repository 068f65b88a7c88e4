/*
 * C and Java on a primary that sentinels watch, and through the death of that primary.
 *
 * All holds were replicated before, so a failover costs no lock. Redisson takes seconds to find the
 * new primary, and throws meanwhile; its waiters sleep until the lease that they saw ends. So the
 * tests assert the outcome, not the time.
 */
#include "five.h"

#include "support/watched.h"

#include <stdio.h>
#include <string.h>

#define NAME "watched"
#define CHANNEL "redisson_lock__channel:{" NAME "}"
#define WAIT_MS 20000 /* so long a waiter of Java may sleep */

static struct {
    struct watched *watched;
    hf_client *client;
    hf_lock *lock;
    int thread;
} pair;

void sentinel_stop(void) {
    watched_free(pair.watched);
    pair.watched = NULL;
}

static void begin(void) {
    hf_options options = HF_OPTIONS_INIT;
    char set_up[256];
    /* No failover but ours: Redisson would throw for seconds. */
    const struct watched_options patient = {.down_after_ms = 15000};
    if (pair.watched == NULL)
        pair.watched = watched_start(&patient);
    snprintf(set_up, sizeof set_up, "client watched %s watchdog=%d", watched_url(pair.watched),
             WAIT_MS);
    if (strncmp(java_call(suite.java, "ids watched"), "ok ", 3) != 0)
        assert_int_equal(strncmp(java_call(suite.java, "%s", set_up), "ok ", 3), 0);
    java_open("watched", "plain", NAME, "W");
    options.watchdog_ms = WAIT_MS;
    options.cmd_timeout_ms = 20000; /* a failover is inside of it */
    assert_hf(HF_OK, hf_open(watched_url(pair.watched), &options, &pair.client));
    pair.lock = c_lock(pair.client, NAME);
    pair.thread = java_thread();
}

static void end(void) {
    hf_lock_free(pair.lock);
    hf_close(pair.client);
    watched_heal(pair.watched);
}

static bool somebody_listens(void *primary) {
    own_reply *reply = cmd(primary, "PUBSUB NUMSUB %s", CHANNEL);
    bool yes = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
               reply->element[1]->integer > 0;
    return yes;
}

static hf_op *c_waits(hf_owner owner) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    options.owner = owner;
    options.wait_ms = HF_FOREVER;
    assert_hf(HF_OK, hf_lock_acquire_start(pair.lock, &options, NULL, NULL, &op));
    assert_true(wait_until(somebody_listens, watched_primary(pair.watched), JAVA_LIMIT_MS));
    return op;
}

static int java_waits(int thread) {
    int command = java_send(suite.java, "lock W thread=%d", thread);
    wait_until_java_sleeps(thread);
    return command;
}

/* A connection's WAIT is for what it has written itself, and so for all that came before that. */
static bool has_replicated(void *primary) {
    cmd_ok(primary, "SET replicated 1");
    return cmd_int(primary, "WAIT 2 1000") == WATCHED_SERVERS - 1;
}

static bool c_has_followed(void *arg) {
    hf_stats stats = HF_STATS_INIT;
    (void)arg;
    return hf_client_stats(pair.client, &stats) == HF_OK && stats.failovers > 0;
}

static struct server *kill_primary(void) {
    struct server *old = watched_primary(pair.watched);
    assert_true(wait_until(has_replicated, old, JAVA_LIMIT_MS));
    server_kill(old);
    watched_fail_over(pair.watched);
    struct server *primary = watched_wait_switch(pair.watched, old);
    assert_true(wait_until(c_has_followed, NULL, JAVA_LIMIT_MS));
    return primary;
}

/* Redisson throws until it has found the new primary. An unlock that it believes to have failed may have
 * been done. */
static bool java_unlocks(void *failed) {
    const char *answer = java_call(suite.java, "unlock W thread=%d", pair.thread);
    bool done = strcmp(answer, "ok") == 0 ||
                (*(bool *)failed && strncmp(answer, "err IllegalMonitorState", 23) == 0);
    *(bool *)failed = true;
    return done;
}

static bool java_is_refused(void *arg) {
    (void)arg;
    return strcmp(java_call(suite.java, "try W thread=%d", pair.thread), "ok false") == 0;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

void sentinel_each_waits_for_the_other(void **state) {
    (void)state;
    begin();
    assert_java("ok", "lock W thread=%d", pair.thread);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    hf_op *op = c_waits(77);
    assert_java("ok", "unlock W thread=%d", pair.thread);
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, NULL));
    hf_op_free(op);
    int waiting = java_waits(pair.thread);
    assert_hf(HF_OK, hf_lock_release_as(pair.lock, 77));
    assert_string_equal(java_answer_within(suite.java, waiting, BY_MESSAGE_MS), "ok");
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_java("ok", "unlock W thread=%d", pair.thread);
    end();
}

void sentinel_java_waits_for_c_through_a_failover(void **state) {
    (void)state;
    begin();
    int waiter = java_thread();
    assert_hf(HF_OK, hf_lock_acquire(pair.lock));
    int waiting = java_waits(waiter);
    kill_primary();
    assert_true(wait_until(java_is_refused, NULL, JAVA_LIMIT_MS));
    assert_false(java_answered(suite.java, waiting));
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_string_equal(java_answer(suite.java, waiting), "ok");
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_java("ok", "unlock W thread=%d", waiter);
    end();
}

void sentinel_c_waits_for_java_through_a_failover(void **state) {
    (void)state;
    begin();
    bool failed = false;
    assert_java("ok", "lock W thread=%d lease=300000", pair.thread);
    hf_op *op = c_waits(77);
    struct server *primary = kill_primary();
    assert_true(wait_until(somebody_listens, primary, JAVA_LIMIT_MS));
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    assert_true(wait_until(java_unlocks, &failed, JAVA_LIMIT_MS));
    assert_hf(HF_OK, hf_op_wait(op, BY_MESSAGE_MS, NULL));
    hf_op_free(op);
    assert_true(wait_until(java_is_refused, NULL, JAVA_LIMIT_MS));
    assert_hf(HF_OK, hf_lock_release_as(pair.lock, 77));
    end();
}
