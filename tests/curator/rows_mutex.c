/*
 * The mutex in both directions: InterProcessMutex on one side, a plain lock on the other.
 */
#include "suite.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void mutex_c_waits_for_java(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_lock *lock = c_lock(client, HF_PLAIN, "m1");
    assert_java("ok", "open j1 mutex /m1 m1");
    assert_java("ok true", "lock m1 thread=%d", thread);
    assert_hf(HF_EBUSY, hf_lock_try(lock));
    assert_nodes("/m1", 1);
    hf_op *op = c_acquire_start(lock);
    assert_nodes("/m1", 2);
    assert_hf(HF_EPENDING, hf_op_wait(op, 0, NULL));
    assert_java("ok", "unlock m1 thread=%d", thread);
    hf_owner owner = c_acquired(op);
    assert_java("ok false", "lock m1 wait=1 thread=%d", thread);
    assert_hf(HF_OK, hf_lock_release_as(lock, owner));
    assert_nodes("/m1", 0);
    hf_lock_free(lock);
    hf_close(client);
}

void mutex_java_waits_for_c(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_lock *lock = c_lock(client, HF_PLAIN, "m2");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_java("ok", "open j1 mutex /m2 m2");
    int waiting = java_send(suite.java, "lock m2 thread=%d", thread);
    assert_nodes("/m2", 2);
    assert_false(java_answered(suite.java, waiting));
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_java_ends("ok true", waiting);
    assert_hf(HF_EBUSY, hf_lock_try(lock));
    assert_java("ok", "unlock m2 thread=%d", thread);
    assert_hf(HF_OK, hf_lock_try(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
}

/* Java holds; C, Java and C stand behind it, and each comes when the one before has gone. */
void mutex_mixed_queue_in_order(void **state) {
    (void)state;
    int first = java_thread(), third = java_thread();
    hf_client *clients[2] = {c_client(SESSION_MS), c_client(SESSION_MS)};
    hf_lock *second = c_lock(clients[0], HF_FAIR, "m3"),
            *fourth = c_lock(clients[1], HF_FAIR, "m3");
    assert_java("ok", "open j1 mutex /m3 m3");
    assert_java("ok", "open j2 mutex /m3 m3b");
    assert_java("ok true", "lock m3 thread=%d", first);
    hf_op *op2 = c_acquire_start(second);
    assert_nodes("/m3", 2);
    int waiting = java_send(suite.java, "lock m3b thread=%d", third);
    assert_nodes("/m3", 3);
    hf_op *op4 = c_acquire_start(fourth);
    assert_nodes("/m3", 4);

    assert_java("ok", "unlock m3 thread=%d", first);
    hf_owner owner2 = c_acquired(op2);
    assert_false(java_answered(suite.java, waiting));
    assert_hf(HF_EPENDING, hf_op_wait(op4, 0, NULL));
    assert_hf(HF_OK, hf_lock_release_as(second, owner2));
    assert_java_ends("ok true", waiting);
    assert_hf(HF_EPENDING, hf_op_wait(op4, 0, NULL));
    assert_java("ok", "unlock m3b thread=%d", third);
    assert_hf(HF_OK, hf_lock_release_as(fourth, c_acquired(op4)));
    hf_lock_free(second);
    hf_lock_free(fourth);
    hf_close(clients[0]);
    hf_close(clients[1]);
}

/* By counting at home: there is one node, no matter who nests. */
void mutex_nests_on_either_side(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_lock *lock = c_lock(client, HF_PLAIN, "m4");
    assert_java("ok", "open j1 mutex /m4 m4");
    assert_java("ok true", "lock m4 thread=%d", thread);
    assert_java("ok true", "lock m4 thread=%d", thread);
    assert_int_equal(zk_count(suite.eyes, "/m4"), 1);
    assert_java("ok", "unlock m4 thread=%d", thread);
    assert_hf(HF_EBUSY, hf_lock_try(lock));
    assert_java("ok", "unlock m4 thread=%d", thread);

    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_int_equal(zk_count(suite.eyes, "/m4"), 1);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_java("ok false", "lock m4 wait=1 thread=%d", thread);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_java("ok true", "lock m4 thread=%d", thread);
    assert_java("ok", "unlock m4 thread=%d", thread);
    hf_lock_free(lock);
    hf_close(client);
}

void mutex_timed_waits_give_up(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_lock *lock = c_lock(client, HF_PLAIN, "m5");
    assert_java("ok", "open j1 mutex /m5 m5");
    assert_java("ok true", "lock m5 thread=%d", thread);
    assert_hf(HF_ETIMEDOUT, hf_lock_acquire_for(lock, 300));
    assert_nodes("/m5", 1);
    assert_java("ok", "unlock m5 thread=%d", thread);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_java("ok false", "lock m5 wait=300 thread=%d", thread);
    assert_nodes("/m5", 1);
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
}

/* Java asks the holder to give up, by writing into its node: a request, not an end. */
void mutex_revoked_node_stays_held(void **state) {
    (void)state;
    hf_client *client = c_client(SESSION_MS);
    hf_lock *lock = c_lock(client, HF_PLAIN, "m6");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    struct zk_children *nodes = zk_children(suite.eyes, "/m6");
    assert_int_equal(nodes->count, 1);
    assert_java("ok", "revoke j1 /m6/%s", nodes->names[0]);
    own_text *path = text_of("/m6/%s", nodes->names[0]);
    char *data = zk_data(suite.eyes, path, NULL);
    assert_string_equal(data, "__REVOKE__");
    free(data);
    zk_children_free(nodes);
    bool mine = false;
    assert_hf(HF_OK, hf_lock_is_mine(lock, &mine));
    assert_true(mine);
    assert_true(hf_lock_remaining_ms(lock) > 0);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_nodes("/m6", 0);
    hf_lock_free(lock);
    hf_close(client);
}

void mutex_broken_by_c(void **state) {
    (void)state;
    int thread = java_thread();
    bool broken = false;
    hf_client *client = c_client(SESSION_MS);
    hf_lock *lock = c_lock(client, HF_PLAIN, "m7");
    assert_java("ok", "open j1 mutex /m7 m7");
    assert_java("ok true", "lock m7 thread=%d", thread);
    hf_op *op = c_acquire_start(lock);
    assert_nodes("/m7", 2);
    assert_hf(HF_OK, hf_lock_break(lock, &broken));
    assert_true(broken);
    assert_hf(HF_OK, hf_lock_release_as(lock, c_acquired(op)));
    assert_java("ok true", "held m7 thread=%d", thread); /* nobody tells it */
    hf_lock_free(lock);
    hf_close(client);
}

void mutex_inspect_names_java(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_lock *lock = c_lock(client, HF_FAIR, "m8");
    hf_lock_info *info = NULL;
    assert_java("ok", "open j1 mutex /m8 m8");
    assert_java("ok true", "lock m8 thread=%d", thread);
    hf_op *op = c_acquire_start(lock);
    assert_nodes("/m8", 2);
    assert_hf(HF_OK, hf_lock_inspect(lock, &info));
    assert_int_equal(info->holders_len, 1);
    assert_int_equal(info->waiters_len, 1);
    assert_non_null(strstr(info->waiters[0]->owner, hf_client_id(client)));
    hf_lock_info_free(info);
    assert_java("ok", "unlock m8 thread=%d", thread);
    assert_hf(HF_OK, hf_lock_release_as(lock, c_acquired(op)));
    hf_lock_free(lock);
    hf_close(client);
}

static hf_fleet *survey(hf_client *client, const char *pattern) {
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.pattern = pattern;
    options.limit_ms = HANG_MS;
    assert_hf(HF_OK, hf_survey(client, &options, &fleet));
    return fleet;
}

static bool is_java(const hf_fleet_party *party) {
    return strncmp(party->owner, "session 0x", 10) == 0 && strchr(party->owner, '.') != NULL &&
           party->presence == HF_PRESENCE_CONNECTED;
}

/* When the waits have lasted for twice as long as it is from one survey to the next. */
static bool has_deadlock(void *arg) {
    hf_deadlocks *found = NULL;
    hf_fleet *earlier = survey(arg, "s8/*"), *later = survey(arg, "s8/*");
    assert_hf(HF_OK, hf_fleet_deadlocks(earlier, later, &found));
    bool any = found->len == 1 && found->all[0].steps_len == 2;
    hf_deadlocks_free(found);
    hf_fleet_free(later);
    hf_fleet_free(earlier);
    return any;
}

/* Java holds one and waits for the other, and so does C: a survey shows both, and the deadlock. */
void mutex_survey_names_java(void **state) {
    (void)state;
    int thread = java_thread();
    hf_client *client = c_client(SESSION_MS);
    hf_lock *javas = c_lock(client, HF_PLAIN, "s8/java"), *ours = c_lock(client, HF_PLAIN, "s8/c");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *held, *waits;
    options.owner = 7;
    options.wait_ms = HF_FOREVER;
    assert_java("ok", "open j1 mutex /s8/java s8j");
    assert_java("ok", "open j1 mutex /s8/c s8c");
    assert_java("ok true", "lock s8j thread=%d", thread);
    assert_hf(HF_OK, hf_lock_acquire_start(ours, &options, NULL, NULL, &held));
    assert_hf(HF_OK, joined(held, NULL));
    assert_hf(HF_OK, hf_lock_acquire_start(javas, &options, NULL, NULL, &waits));
    int waiting = java_send(suite.java, "lock s8c thread=%d", thread);
    assert_nodes("/s8/java", 2);
    assert_nodes("/s8/c", 2);

    hf_fleet *fleet = survey(client, "s8/*");
    assert_int_equal(fleet->locks_len, 2); /* by name */
    assert_true(is_java(fleet->locks[0]->waiters[0]));
    assert_true(is_java(fleet->locks[1]->holders[0]));
    assert_string_equal(fleet->locks[0]->holders[0]->owner, fleet->locks[1]->waiters[0]->owner);
    hf_fleet_free(fleet);
    assert_true(wait_until(has_deadlock, client, HANG_MS));

    hf_op_cancel(waits);
    hf_op_free(waits);
    assert_hf(HF_OK, hf_lock_release_as(ours, 7));
    assert_java_ends("ok true", waiting);
    assert_java("ok", "unlock s8c thread=%d", thread);
    assert_java("ok", "unlock s8j thread=%d", thread);
    hf_lock_free(ours);
    hf_lock_free(javas);
    hf_close(client);
}

void mutex_killed_java_holder(void **state) {
    (void)state;
    struct remote *doomed = java_new(DOOMED_SESSION_MS);
    hf_client *client = c_client(SESSION_MS);
    hf_lock *lock = c_lock(client, HF_PLAIN, "m9");
    assert_string_equal(java_call(doomed, "open c mutex /m9 m9"), "ok");
    assert_string_equal(java_call(doomed, "lock m9"), "ok true");
    hf_op *op = c_acquire_start(lock);
    assert_true(wait_behind_java("/m9", 2, op));
    java_kill(doomed);
    assert_hf(HF_OK, hf_lock_release_as(lock, c_acquired(op)));
    java_free(doomed);
    hf_lock_free(lock);
    hf_close(client);
}

static int hold_for_ever(void *name) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    hf_lock *lock = NULL;
    options.watchdog_ms = DOOMED_SESSION_MS;
    options.cmd_timeout_ms = 20000;
    options.connect_timeout_ms = HANG_MS;
    if (hf_open(zk_url(suite.zk), &options, &client) != HF_OK ||
        hf_lock_new(client, name, &lock) != HF_OK || hf_lock_acquire(lock) != HF_OK)
        return 1;
    return child_waits_for_ever(NULL);
}

void mutex_killed_c_holder(void **state) {
    (void)state;
    int thread = java_thread();
    pid_t doomed = run_child(hold_for_ever, "m10");
    assert_nodes("/m10", 1);
    assert_java("ok", "open j1 mutex /m10 m10");
    int waiting = java_send(suite.java, "lock m10 thread=%d", thread);
    assert_true(wait_behind_c("/m10", 2, waiting));
    kill_child(doomed);
    assert_java_ends("ok true", waiting);
    assert_java("ok", "unlock m10 thread=%d", thread);
}
