/*
 * Acknowledgement when something goes wrong: renewals that nobody confirms, a primary that is demoted, a connection
 * that is lost between a script and its WAIT, and the client that stops waiting. With real replicas.
 */
#include "route/acks.h"
#include "support/case.h"

struct notified {
    atomic_int warnings, losses;
    atomic_int warnings_before; /* the first loss */
};

static void on_event(hf_lock *lock, const hf_event *event, void *arg) {
    struct notified *notified = arg;
    (void)lock;
    if (event->kind == HF_EVENT_LOST && atomic_load(&notified->losses) == 0)
        atomic_store(&notified->warnings_before, atomic_load(&notified->warnings));
    atomic_fetch_add(&notified->warnings, event->kind == HF_EVENT_WARNING);
    atomic_fetch_add(&notified->losses, event->kind == HF_EVENT_LOST);
}

static bool is_lost(void *arg) {
    return atomic_load(&((struct notified *)arg)->losses) > 0;
}

/* ---- Renewals ---- */

/* From here on nothing that was confirmed before the replicas stopped is under way. */
static void wait_for_an_unconfirmed_renewal(hf_client *client) {
    uint64_t before = acks_stats(client).ack_failures;
    assert_true(acks_wait_failures(client, before + 1));
}

/* The server has it for longer each time, and that counts for nothing. One that asks nobody is not
 * concerned. */
CASE(a_deadline_is_not_moved_without_them) {
    struct notified notified = {0}, none = {0};
    own_client *client = acks_begin("acks=1&watchdog_ms=9000&cmd_timeout_ms=30000");
    own_lock *lock = acks_lock(client, HF_PLAIN, "deadline");
    own_lock *alone = acks_lock(client, HF_PLAIN, "alone");
    hf_acquire_options off = HF_ACQUIRE_OPTIONS_INIT;
    off.acks = HF_ACKS_OFF;
    assert_int_equal(hf_lock_on_lost(lock, on_event, &notified), HF_OK);
    assert_int_equal(hf_lock_on_lost(alone, on_event, &none), HF_OK);
    assert_int_equal(hf_lock_acquire_with(alone, &off, NULL), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    trio_freeze(acks_trio, 2);
    wait_for_an_unconfirmed_renewal(client);
    int64_t there_ms = pttl(trio_primary(acks_trio), "deadline");
    int64_t deadline_ms = now_ms() + hf_lock_remaining_ms(lock);
    assert_true(there_ms > hf_lock_remaining_ms(lock));
    assert_true(wait_until(is_lost, &notified, ACKS_HANG_MS));
    int64_t late_ms = now_ms() - deadline_ms;
    assert_true(late_ms >= -1);
    /* A holder that got no processor when its warning was due is notified of the loss only. */
    assert_true(atomic_load(&notified.warnings_before) == 1 || late_ms > 500);
    assert_int_equal(hf_lock_release(lock), HF_ELOST);
    assert_true(acks_wait_free("deadline"));
    assert_int_equal(hf_lock_release(alone), HF_OK);
    assert_int_equal(atomic_load(&none.losses), 0);
}

struct renewals {
    hf_client *client;
    uint64_t more_than;
};

static bool is_renewed(void *arg) {
    const struct renewals *renewals = arg;
    return acks_stats(renewals->client).renewals > renewals->more_than;
}

CASE(a_later_renewal_makes_up_for_it) {
    struct notified notified = {0};
    own_client *client = acks_begin("acks=1&watchdog_ms=12000&cmd_timeout_ms=30000");
    own_lock *lock = acks_lock(client, HF_PLAIN, "later");
    assert_int_equal(hf_lock_on_lost(lock, on_event, &notified), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    trio_freeze(acks_trio, 2);
    wait_for_an_unconfirmed_renewal(client);
    struct renewals renewals = {.client = client, .more_than = acks_stats(client).renewals};
    trio_thaw(acks_trio);
    assert_true(wait_until(is_renewed, &renewals, ACKS_HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(atomic_load(&notified.losses), 0);
}

CASE(an_extension_without_them_is_none) {
    own_client *client = acks_begin("acks=1" BRIEF);
    own_lock *lock = acks_lock(client, HF_PLAIN, "extend");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    trio_freeze(acks_trio, 2);
    int64_t before_ms = hf_lock_remaining_ms(lock);
    assert_int_equal(hf_lock_extend(lock, 900000), HF_ENOREPLICA);
    assert_in_range(hf_lock_remaining_ms(lock), 1, before_ms);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* Another server has taken over, and these two do not learn of it. A client with acks has lost the
 * lock before the other side grants it again; a client without acks still believes that it holds
 * the lock, and two hold it, as documented. */
CASE(U89_cut_off_beside_the_old_primary) {
    own_client *asking = acks_begin("acks=2&watchdog_ms=4500&cmd_timeout_ms=30000");
    hf_client *trusting = acks_open("watchdog_ms=4500&cmd_timeout_ms=30000"), *other;
    hf_lock *asked = acks_lock(asking, HF_PLAIN, "asked");
    hf_lock *trusted = acks_lock(trusting, HF_PLAIN, "trusted");
    struct notified notified = {0};
    assert_int_equal(hf_lock_on_lost(asked, on_event, &notified), HF_OK);
    assert_int_equal(hf_lock_acquire(trusted), HF_OK);
    assert_int_equal(hf_lock_acquire(asked),
                     HF_OK); /* so the one before it is at the replicas, too */
    trio_take_over(acks_trio);
    assert_int_equal(hf_open(server_tcp_url(trio_replica(acks_trio, 0)), NULL, &other), HF_OK);
    hf_lock *first = acks_lock(other, HF_PLAIN, "asked");
    hf_lock *second = acks_lock(other, HF_PLAIN, "trusted");
    assert_int_equal(hf_lock_acquire_for(first, ACKS_HANG_MS), HF_OK);
    assert_int_equal(hf_lock_remaining_ms(asked), 0);
    assert_int_equal(hf_lock_acquire_for(second, ACKS_HANG_MS), HF_OK);
    assert_true(hf_lock_remaining_ms(trusted) > 0);
    assert_true(wait_until(is_lost, &notified, ACKS_HANG_MS));
    assert_int_equal(hf_lock_release(asked), HF_ELOST);
    assert_int_equal(hf_lock_release(trusted), HF_OK);
    hf_lock_free(asked);
    hf_lock_free(trusted);
    hf_lock_free(first);
    hf_lock_free(second);
    hf_close(other);
    hf_close(trusting);
}

/* ---- While a WAIT is out ---- */

/* Scripts that every server knows do not blur the counts. */
static void warm_up(hf_client *client, const char *name) {
    own_lock *lock = acks_lock(client, HF_PLAIN, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

CASE(demoted_meanwhile) {
    own_client *client = acks_begin("acks=1" PATIENT);
    own_lock *lock = acks_lock(client, HF_PLAIN, "demoted");
    hf_result result = HF_RESULT_INIT;
    trio_freeze(acks_trio, 2);
    own_op *op = acks_acquire_start(lock, 0);
    assert_true(trio_wait_blocked(acks_trio, 1));
    cmd_ok(trio_primary(acks_trio), "REPLICAOF 127.0.0.1 %d",
           server_port(trio_replica(acks_trio, 0)));
    assert_int_equal(hf_op_wait(op, ACKS_HANG_MS, &result), HF_ENOREPLICA);
    cmd_ok(trio_primary(acks_trio), "REPLICAOF NO ONE");
    assert_true(acks_wait_free("demoted"));
}

/* A WAIT on another connection would speak of other writes: the script is sent again, and writes. */
CASE(a_connection_lost_in_between) {
    hf_client *client = acks_begin("acks=2" PATIENT);
    hf_result result = HF_RESULT_INIT;
    warm_up(client, "warm");
    struct monitor *monitor = monitor_start(trio_primary(acks_trio));
    hf_lock *lock = acks_lock(client, HF_PLAIN, "between");
    trio_freeze(acks_trio, 2);
    hf_op *op = acks_acquire_start(lock, 0);
    assert_true(trio_wait_blocked(acks_trio, 1));
    assert_int_equal(monitor_count(monitor, "\"1\" \"between\""), 1);
    trio_kill_blocked(acks_trio);
    assert_true(trio_wait_blocked(acks_trio, 1));
    assert_int_equal(monitor_count(monitor, "\"1\" \"between\""), 2);
    assert_int_equal(monitor_count(monitor, "\"pexpire\" \"between\""), 2);
    assert_int_equal(monitor_count(monitor, "\"WAIT\" \"2\""), 2);
    trio_thaw(acks_trio);
    assert_int_equal(hf_op_wait(op, ACKS_HANG_MS, &result), HF_OK);
    assert_int_equal(result.acked, 2);
    assert_int_equal(hf_lock_release_as(lock, result.owner), HF_OK);
    monitor_stop(monitor);
    hf_op_free(op);
    hf_lock_free(lock);
    hf_close(client);
}

/* Those that were gathered behind it were not sent, and go on at once. */
CASE(gathered_renewals_continue) {
    enum { MANY = 8 };
    own_client *client = acks_begin("acks=2" PATIENT);
    hf_lock *locks[MANY];
    hf_op *ops[MANY], *last;
    hf_result result = HF_RESULT_INIT;
    trio_freeze(acks_trio, 2);
    for (int i = 0; i < MANY; i++) {
        char name[] = {'g', (char)('0' + i), '\0'};
        locks[i] = acks_lock(client, HF_PLAIN, name);
        ops[i] = acks_acquire_start(locks[i], 0);
        if (i == 0)
            assert_true(trio_wait_blocked(acks_trio, 1));
    }
    assert_int_equal(hf_ping_start(client, NULL, NULL, &last), HF_OK);
    assert_int_equal(hf_op_wait(last, ACKS_HANG_MS, NULL), HF_OK); /* so all before it have begun */
    trio_kill_blocked(acks_trio);
    trio_thaw(acks_trio);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(hf_op_wait(ops[i], ACKS_HANG_MS, &result), HF_OK);
        assert_int_equal(result.acked, 2);
        hf_op_free(ops[i]);
        hf_lock_free(locks[i]);
    }
    hf_op_free(last);
}

CASE(cancelled_meanwhile) {
    own_client *client = acks_begin("acks=2" PATIENT);
    own_lock *lock = acks_lock(client, HF_PLAIN, "cancelled");
    trio_freeze(acks_trio, 2);
    own_op *op = acks_acquire_start(lock, HF_FOREVER);
    assert_true(trio_wait_blocked(acks_trio, 1));
    hf_op_cancel(op);
    assert_int_equal(hf_op_wait(op, ACKS_HANG_MS, NULL), HF_ECANCELED);
    trio_thaw(acks_trio);
    assert_true(acks_wait_free("cancelled"));
}

/* It waits for the answer, and leaves nothing behind: no lease would end before this test does. */
CASE(closed_meanwhile) {
    hf_client *client =
        acks_begin("acks=2&cmd_timeout_ms=30000&ack_timeout_ms=1000&watchdog_ms=300000");
    own_lock *lock = acks_lock(client, HF_PLAIN, "closed");
    trio_freeze(acks_trio, 2);
    own_op *op = acks_acquire_start(lock, HF_FOREVER);
    assert_true(trio_wait_blocked(acks_trio, 1));
    hf_close(client);
    assert_int_equal(hf_op_wait(op, ACKS_HANG_MS, NULL), HF_ECLOSED);
    assert_false(key_exists(trio_primary(acks_trio), "closed"));
}

/* The pause between two attempts ends as well. */
CASE(cancelled_in_a_pause) {
    own_client *client = acks_begin("acks=2" BRIEF);
    own_lock *lock = acks_lock(client, HF_PLAIN, "pause");
    trio_freeze(acks_trio, 2);
    own_op *op = acks_acquire_start(lock, HF_FOREVER);
    assert_true(acks_wait_failures(client, 4));
    hf_op_cancel(op);
    assert_int_equal(hf_op_wait(op, ACKS_HANG_MS, NULL), HF_ECANCELED);
    assert_true(acks_wait_free("pause"));
}

RUN_CASES(acks_start, acks_stop)
