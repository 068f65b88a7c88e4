/*
 * Replica acks of acquires: what waits for them, what is undone, and what is refused. With real
 * replicas.
 */
#include "route/acks.h"
#include "route/scene.h"
#include "support/crowd.h"

/* ---- Who waits for what ---- */

/* Nobody asked for it: no WAIT, whatever is done. */
CASE(off_sends_no_wait) {
    hf_client *client = acks_begin("watchdog_ms=300000");
    struct monitor *monitor = monitor_start(trio_primary(acks_trio));
    hf_lock *lock = acks_lock(client, HF_PLAIN, "off");
    hf_acquire_options off = HF_ACQUIRE_OPTIONS_INIT;
    hf_result result = HF_RESULT_INIT;
    off.acks = HF_ACKS_OFF;
    for (int i = 0; i < 3; i++)
        assert_int_equal(hf_lock_acquire_with(lock, i == 1 ? &off : NULL, &result), HF_OK);
    assert_int_equal(result.acked, 0);
    assert_int_equal(hf_lock_extend(lock, 400000), HF_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(monitor_count(monitor, "EVAL") > 0);
    assert_int_equal(monitor_count(monitor, "WAIT"), 0);
    monitor_stop(monitor);
    hf_lock_free(lock);
    hf_close(client);
}

/* Each kind of lock; its release waits for nobody. */
CASE(both_confirm_each_kind) {
    own_client *client = acks_begin("acks=2" PATIENT);
    for (size_t i = 0; i < SCENE_KINDS; i++) {
        char name[16];
        hf_result result = HF_RESULT_INIT;
        snprintf(name, sizeof name, "kind-%zu", i);
        own_lock *lock = acks_lock(client, scene_kinds[i], name);
        assert_int_equal(hf_lock_acquire_with(lock, NULL, &result), HF_OK);
        assert_int_equal(result.acked, 2);
        for (int r = 0; r < 2; r++)
            assert_true(key_exists(trio_replica(acks_trio, r), name));
        assert_int_equal(hf_lock_extend(lock, 400000), HF_OK);
        long long waits = server_calls(trio_primary(acks_trio), "wait");
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(server_calls(trio_primary(acks_trio), "wait"), waits);
    }
    assert_int_equal(acks_stats(client).ack_failures, 0);
}

CASE(a_group_is_confirmed) {
    own_client *client = acks_begin("acks=2" PATIENT);
    const hf_bytes values[] = {{"a", 1}, {"b", 1}};
    hf_result result = HF_RESULT_INIT;
    own_lock *lock = made(hf_lock_new_group, client, "group", 5, values, 2);
    assert_int_equal(hf_lock_acquire_with(lock, NULL, &result), HF_OK);
    assert_int_equal(result.acked, 2);
    assert_int_equal(hf_lock_extend(lock, 400000), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

CASE(one_of_two_is_enough_for_one) {
    own_client *client = acks_begin("acks=1" PATIENT);
    own_lock *lock = acks_lock(client, HF_PLAIN, "one");
    hf_result result = HF_RESULT_INIT;
    trio_freeze(acks_trio, 1);
    assert_int_equal(hf_lock_acquire_with(lock, NULL, &result), HF_OK);
    assert_int_equal(result.acked, 1);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

CASE(report_changes_nothing) {
    own_client *client = acks_begin("acks=report" BRIEF);
    own_lock *lock = acks_lock(client, HF_PLAIN, "acked");
    hf_result result = HF_RESULT_INIT;
    trio_freeze(acks_trio, 2);
    assert_int_equal(hf_lock_acquire_with(lock, NULL, &result), HF_OK);
    assert_int_equal(result.acked, 0);
    assert_int_equal(acks_stats(client).ack_failures, 1);
    assert_int_equal(hf_lock_extend(lock, 400000), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* ---- Too few ---- */

/* One attempt. It fails, and leaves nothing. */
CASE(U88_too_few_is_undone) {
    own_client *client = acks_begin("acks=2" HALF_IN_VAIN);
    own_lock *lock = acks_lock(client, HF_PLAIN, "few");
    trio_freeze(acks_trio, 1);
    assert_int_equal(hf_lock_try(lock), HF_ENOREPLICA);
    assert_non_null(strstr(hf_last_error()->text, "1 of 2 replicas"));
    assert_true(acks_wait_free("few"));
    assert_int_equal(hf_lock_remaining_ms(lock), 0);
    assert_int_equal(hf_lock_release(lock), HF_ENOTOWNER);
    assert_int_equal(acks_stats(client).ack_failures, 1);
}

/* What was held before stays. */
CASE(a_nested_one_is_undone_alone) {
    static const any_kind kinds[] = {HF_PLAIN, HF_FAIR, HF_READ, HF_WRITE, HF_STRING};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        own_client *client = acks_begin("acks=2" BRIEF);
        own_lock *lock = acks_lock(client, kinds[i], "nested");
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        options.acks = HF_ACKS_OFF;
        int64_t count;
        assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_OK);
        trio_freeze(acks_trio, 1);
        assert_int_equal(hf_lock_try(lock), HF_ENOREPLICA);
        /* its settlement has the hold's turn, so this is behind it */
        assert_int_equal(hf_lock_extend(lock, 400000), HF_OK);
        assert_int_equal(hf_lock_hold_count(lock, &count), HF_OK);
        assert_int_equal(count, 1);
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_false(key_exists(trio_primary(acks_trio), "nested"));
    }
}

/* It tries again while there is time, holding nothing meanwhile: others get it. */
CASE(waits_until_there_are_enough) {
    static const any_kind kinds[] = {HF_PLAIN, HF_FAIR, HF_STRING};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        own_client *client = acks_begin("acks=2" BRIEF);
        own_client *other = acks_open("acks=off" BRIEF);
        own_lock *lock = acks_lock(client, kinds[i], "again");
        own_lock *rival = acks_lock(other, kinds[i], "again");
        hf_result result = HF_RESULT_INIT;
        trio_freeze(acks_trio, 1);
        own_op *op = acks_acquire_start(lock, HF_FOREVER);
        assert_true(acks_wait_failures(client, 3));
        assert_int_equal(hf_lock_acquire_for(rival, ACKS_HANG_MS), HF_OK);
        trio_heal(acks_trio);
        assert_int_equal(hf_lock_release(rival), HF_OK);
        assert_int_equal(hf_op_wait(op, ACKS_HANG_MS, &result), HF_OK);
        assert_int_equal(result.acked, 2);
        assert_int_equal(hf_lock_release_as(lock, result.owner), HF_OK);
    }
}

CASE(a_wait_ends_without_them) {
    own_client *client = acks_begin("acks=2&connect_timeout_ms=4000" BRIEF);
    own_lock *lock = acks_lock(client, HF_PLAIN, "ends");
    trio_freeze(acks_trio, 1);
    assert_int_equal(hf_lock_acquire_for(lock, 700), HF_ENOREPLICA);
    assert_int_equal(hf_lock_acquire(lock),
                     HF_ENOREPLICA); /* for ever is not for ever without them */
    assert_true(acks_wait_free("ends"));
}

/* The server refuses by itself when it has too few. */
CASE(a_server_that_wants_replicas) {
    own_client *client = acks_begin("acks=1" PATIENT);
    own_lock *lock = acks_lock(client, HF_PLAIN, "wanted");
    cmd_ok(trio_primary(acks_trio), "CONFIG SET min-replicas-to-write 3");
    assert_int_equal(hf_lock_try(lock), HF_EUNAVAILABLE);
    assert_non_null(strstr(hf_last_error()->text, "NOREPLICAS"));
    cmd_ok(trio_primary(acks_trio), "CONFIG SET min-replicas-to-write 2");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    cmd_ok(trio_primary(acks_trio), "CONFIG SET min-replicas-to-write 0");
}

/* ---- Each call by itself; in the queue; things ---- */

CASE(a_call_can_ask_for_more) {
    own_client *client = acks_begin("acks=1" PATIENT);
    own_lock *lock = acks_lock(client, HF_PLAIN, "call");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_result result = HF_RESULT_INIT;
    options.acks = 2;
    assert_int_equal(hf_lock_acquire_with(lock, &options, &result), HF_OK);
    assert_int_equal(result.acked, 2);
    options.acks = HF_ACKS_MAX + 1;
    assert_int_equal(hf_lock_acquire_with(lock, &options, &result), HF_EINVAL);
    options.acks = HF_ACKS_ALL; /* nobody knows how many there are */
    assert_int_equal(hf_lock_acquire_with(lock, &options, &result), HF_EINVAL);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* A grant by message is confirmed before it is one. */
CASE(a_fair_grant_is_confirmed) {
    own_client *client = acks_begin("acks=2" PATIENT);
    own_client *other = acks_open("acks=2" PATIENT);
    hf_lock *first = acks_lock(client, HF_FAIR, "fair"),
            *second = acks_lock(other, HF_FAIR, "fair");
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire(first), HF_OK);
    hf_op *op = acks_acquire_start(second, HF_FOREVER);
    assert_int_equal(hf_op_wait(op, 100, &result), HF_EPENDING);
    assert_int_equal(hf_lock_release(first), HF_OK);
    assert_int_equal(hf_op_wait(op, ACKS_HANG_MS, &result), HF_OK);
    assert_int_equal(result.acked, 2);
    assert_true(result.remaining_ms > 200000); /* its lease, not the moment that a grant has */
    assert_int_equal(hf_lock_release_as(second, result.owner), HF_OK);
    hf_op_free(op);
    hf_lock_free(first);
    hf_lock_free(second);
}

/* Of a number nothing can be undone: it is only reported. */
CASE(a_semaphore_only_reports) {
    own_client *client = acks_begin("acks=2" HALF_IN_VAIN);
    hf_result result = HF_RESULT_INIT;
    own_sem *sem;
    own_op *op;
    assert_int_equal(hf_sem_new(client, "sem", &sem), HF_OK);
    assert_int_equal(hf_sem_try_set(sem, 3, 0, NULL), HF_OK);
    trio_freeze(acks_trio, 1);
    assert_int_equal(hf_sem_acquire_start(sem, 1, NULL, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, ACKS_HANG_MS, &result), HF_OK);
    assert_int_equal(result.acked, 1);
    assert_int_equal(hf_sem_release(sem, 1), HF_OK);
}

/* ---- Together ---- */

/* One is out; the others wait for it, and go together with one behind them all. */
CASE(later_callers_share_one_lookup) {
    enum { MANY = 63 };
    own_client *client = acks_begin("acks=2" PATIENT);
    hf_lock *locks[MANY + 1];
    hf_op *ops[MANY + 1];
    for (int i = 0; i <= MANY; i++) {
        own_text *name = text_of("shared-%d", i);
        locks[i] = acks_lock(client, HF_PLAIN, name);
    }
    long long before = server_calls(trio_primary(acks_trio), "wait");
    trio_freeze(acks_trio, 1); /* of two that are wanted */
    ops[0] = acks_acquire_start(locks[0], 0);
    assert_true(trio_wait_blocked(acks_trio, 1));
    for (int i = 1; i <= MANY; i++)
        ops[i] = acks_acquire_start(locks[i], 0);
    hf_op *last;
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_ping_start(client, NULL, NULL, &last), HF_OK);
    assert_int_equal(hf_op_wait(last, ACKS_HANG_MS, NULL), HF_OK); /* so all before it have begun */
    hf_op_free(last);
    trio_thaw(acks_trio);
    for (int i = 0; i <= MANY; i++) {
        assert_int_equal(hf_op_wait(ops[i], ACKS_HANG_MS, &result), HF_OK);
        assert_int_equal(result.acked, 2);
    }
    assert_int_equal(server_calls(trio_primary(acks_trio), "wait") - before, 2);
    for (int i = 0; i <= MANY; i++) {
        hf_op_free(ops[i]);
        hf_lock_free(locks[i]);
    }
}

enum { THREADS = 64, ROUNDS = 20 };

static void *lock_and_release(void *arg) {
    hf_lock *lock = arg;
    int failures = 0;
    for (int i = 0; i < ROUNDS; i++)
        failures += hf_lock_acquire(lock) != HF_OK || hf_lock_release(lock) != HF_OK;
    return (void *)(intptr_t)failures;
}

CASE(threads_share_them) {
    own_client *client = acks_begin("acks=1" PATIENT);
    hf_lock *locks[THREADS];
    struct crowd crowd = {0};
    for (int i = 0; i < THREADS; i++) {
        own_text *name = text_of("thread-%d", i);
        locks[i] = acks_lock(client, HF_PLAIN, name);
    }
    long long before = server_calls(trio_primary(acks_trio), "wait");
    for (int i = 0; i < THREADS; i++)
        crowd_add(&crowd, lock_and_release, locks[i]);
    crowd_join(&crowd);
    for (int i = 0; i < THREADS; i++)
        hf_lock_free(locks[i]);
    assert_true(server_calls(trio_primary(acks_trio), "wait") - before < THREADS * ROUNDS);
}

/* ---- What cannot be ---- */

static void refuse(const char *url, int err, const char *words) {
    hf_client *client;
    assert_int_equal(hf_open(url, NULL, &client), err);
    assert_non_null(strstr(hf_last_error()->text, words));
}

CASE(senseless_options_are_refused) {
    trio_heal(acks_trio);
    refuse(trio_url(acks_trio, "acks=all"), HF_EINVAL, "give a number instead");
    refuse(trio_url(acks_trio, "acks=0"), HF_EINVAL, "a number of replicas (1 .. 100)");
    refuse(trio_url(acks_trio, "acks=some"), HF_EINVAL, "the option acks must be");
    refuse(trio_url(acks_trio, "acks=1&acks=2"), HF_EINVAL, "twice");
    refuse(trio_url(acks_trio, "ack_disk=1"), HF_EINVAL, "on or off");
    refuse("redis://a?acks=1 redis://b redis://c", HF_EINVAL, "acks cannot be used with a quorum");
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.acks = 1;
    own_client *client =
        made(hf_open, "redis://127.0.0.1:1 redis://127.0.0.2:1 redis://127.0.0.3:1", NULL);
    own_lock *lock = made(hf_lock_new, client, "x");
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_ENOTSUP);
}

/* Confirmed on disk, where the server knows that; else said so, and undone. */
CASE(on_disk_where_that_can_be_asked) {
    own_client *client = acks_begin("acks=1&ack_disk=on" PATIENT);
    own_lock *lock = acks_lock(client, HF_PLAIN, "disk");
    assert_int_equal(hf_lock_try(lock),
                     HF_ENOTSUP); /* without `appendonly` not even a new server can */
    assert_non_null(strstr(hf_last_error()->text, "ack_disk needs Redis 7.2"));
    assert_true(acks_wait_free("disk"));
}

static struct server *one_of_three(int i) {
    return i == 0 ? trio_primary(acks_trio) : trio_replica(acks_trio, i - 1);
}

/* Written there at once, from here on. */
static bool all_write_to_disk(void *arg) {
    (void)arg;
    for (int i = 0; i < 3; i++) {
        char *info = cmd_str(one_of_three(i), "INFO persistence");
        bool on = strstr(info, "aof_enabled:1") != NULL &&
                  strstr(info, "aof_rewrite_in_progress:0") != NULL &&
                  strstr(info, "aof_rewrite_scheduled:0") != NULL;
        free(info);
        if (!on)
            return false;
    }
    return true;
}

static bool knows_waitaof(void) {
    own_reply *reply = cmd(trio_primary(acks_trio), "COMMAND INFO WAITAOF");
    bool known = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 1 &&
                 reply->element[0]->type == REDIS_REPLY_ARRAY;
    return known;
}

/* On the disks of the primary and of both replicas. Redis 7.2 and later, Valkey. */
CASE(on_the_disks_of_all) {
    if (!knows_waitaof())
        skip();
    own_client *client = acks_begin("acks=2&ack_disk=on" PATIENT);
    own_lock *lock = acks_lock(client, HF_PLAIN, "disks");
    hf_result result = HF_RESULT_INIT;
    for (int i = 0; i < 3; i++) {
        cmd_ok(one_of_three(i), "CONFIG SET appendfsync always");
        cmd_ok(one_of_three(i), "CONFIG SET appendonly yes");
    }
    assert_true(wait_until(all_write_to_disk, NULL, ACKS_HANG_MS));
    assert_int_equal(hf_lock_acquire_with(lock, NULL, &result), HF_OK);
    assert_int_equal(result.acked, 2);
    assert_true(server_calls(trio_primary(acks_trio), "waitaof") > 0);
    assert_int_equal(hf_lock_extend(lock, 400000), HF_OK);
    assert_int_equal(acks_stats(client).ack_failures, 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    for (int i = 0; i < 3; i++)
        cmd_ok(one_of_three(i), "CONFIG SET appendonly no");
}

RUN_CASES(acks_start, acks_stop)
