/*
 * Listening to a name in ZooKeeper (hf_listen()): a change is reported, of whatever
 * kind it is, and no more.
 */
#include "support/case.h"
#include "support/memory.h"
#include "support/notification_log.h"
#include "zk/scene.h"

/* Waits until what has just been done is reported. */
static void assert_changed(struct subscriber *subscriber, int *notified) {
    assert_true(notification_log_wait(subscriber->notification_log, HF_NOTIFY_CHANGED,
                                      *notified + 1, HANG_MS));
    *notified = notification_log_count(subscriber->notification_log, HF_NOTIFY_CHANGED);
}

CASE_AROUND(a_lock_of_which_there_is_nothing_yet, scene_heal, NULL) {
    int notified = 0;
    hf_client *client = scene_direct(SURVIVES_MS), *rival = scene_direct(SURVIVES_MS);
    struct subscriber subscriber = subscriber_new(client, "heard");
    hf_lock *lock = scene_lock(rival, HF_PLAIN, "heard");
    for (int i = 0; i < 3; i++) {
        assert_hf(HF_OK, hf_lock_acquire(lock));
        assert_changed(&subscriber, &notified);
        assert_hf(HF_OK, hf_lock_release(lock));
        assert_changed(&subscriber, &notified);
    }
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED), 1);
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_INTERRUPTED), 0);
    hf_lock_free(lock);
    subscriber_free(&subscriber);
    hf_close(client);
    hf_close(rival);
}

/* A break deletes the holder's node, as a release does. */
CASE_AROUND(a_break_is_a_change, scene_heal, NULL) {
    int notified = 0;
    bool broken;
    hf_listener *breaks = NULL;
    hf_client *client = scene_direct(SURVIVES_MS), *rival = scene_direct(SURVIVES_MS);
    struct subscriber subscriber = subscriber_new(client, "broken");
    hf_lock *lock = scene_lock(rival, HF_PLAIN, "broken");
    hf_lock *breaking = scene_lock(client, HF_PLAIN, "broken");
    assert_hf(HF_ENOTSUP,
              hf_listen_breaks(client, notification_log_add, subscriber.notification_log, &breaks));
    assert_null(breaks);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_changed(&subscriber, &notified);
    assert_hf(HF_OK, hf_lock_break(breaking, &broken));
    assert_changed(&subscriber, &notified);
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_BROKEN), 0);
    hf_lock_free(breaking);
    hf_lock_free(lock);
    subscriber_free(&subscriber);
    hf_close(client);
    hf_close(rival);
}

CASE_AROUND(waiters_enter_and_leave_the_queue, scene_heal, NULL) {
    int notified = 0;
    own_client *client = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_WRITE, "line");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    struct subscriber subscriber = subscriber_new(client, "line");
    hf_op *op = scene_acquire_start(lock);
    assert_changed(&subscriber, &notified);
    assert_true(zk_wait_children(scene.eyes, "/line", 2, HANG_MS));
    hf_op_cancel(op);
    assert_changed(&subscriber, &notified);
    hf_op_free(op);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_changed(&subscriber, &notified);
    hf_lock_free(lock);
    subscriber_free(&subscriber);
}

CASE_AROUND(other_keys_are_no_lock, scene_heal, NULL) {
    int notified = 0;
    bool set;
    hf_sem *sem;
    hf_permits *permits;
    hf_permit_id id;
    hf_client *client = scene_direct(SURVIVES_MS);
    assert_hf(HF_OK, hf_sem_new(client, "tickets", &sem));
    struct subscriber subscriber = subscriber_new(client, "tickets");
    assert_hf(HF_OK, hf_sem_try_set(sem, 3, 0, &set));
    assert_changed(&subscriber, &notified);
    assert_hf(HF_OK, hf_sem_acquire(sem, 1));
    assert_changed(&subscriber, &notified);
    subscriber_free(&subscriber);
    hf_sem_free(sem);

    notified = 0;
    assert_hf(HF_OK, hf_permits_new(client, "slots", &permits));
    subscriber = subscriber_new(client, "slots");
    assert_hf(HF_OK, hf_permits_try_set(permits, 2, &set));
    assert_changed(&subscriber, &notified);
    assert_hf(HF_OK, hf_permits_acquire(permits, &id));
    assert_changed(&subscriber, &notified);
    assert_hf(HF_OK, hf_permits_release(permits, &id));
    assert_changed(&subscriber, &notified);
    assert_hf(HF_OK, hf_permits_set(permits, 5));
    assert_changed(&subscriber, &notified);
    subscriber_free(&subscriber);
    hf_permits_free(permits);
    hf_close(client);
}

/* Watches end with the connection, and are set again; what was missed is found. */
CASE_AROUND(a_reconnecting_client_reports_it, scene_heal, NULL) {
    int notified = 0;
    own_client *client = scene_proxied(SURVIVES_MS);
    struct subscriber subscriber = subscriber_new(client, "cut");
    proxy_refuse(scene.proxy, true);
    assert_true(proxy_cut_connections(scene.proxy, "") > 0);
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_INTERRUPTED, 1, HANG_MS));
    assert_int_equal(notification_log_last(subscriber.notification_log, HF_NOTIFY_INTERRUPTED).code,
                     HF_EUNREACH);
    assert_int_equal(zk_make(scene.eyes, "/cut", "", 0), 0);
    proxy_refuse(scene.proxy, false);
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED, 2, HANG_MS));
    assert_changed(&subscriber, &notified);
    assert_int_equal(zk_make(scene.eyes, "/cut/child", "", 0), 0);
    assert_changed(&subscriber, &notified);
    subscriber_free(&subscriber);
}

/* It has another session then, and listens on; that what there was is gone is a change like any other. */
CASE_AROUND(a_server_that_returns_empty, scene_heal, NULL) {
    int notified = 0;
    own_client *client = scene_direct(ENDURING_MS);
    assert_int_equal(zk_make(scene.eyes, "/forgotten", "", 0), 0);
    struct subscriber subscriber = subscriber_new(client, "forgotten");
    zk_restart_empty(scene.zk);
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_INTERRUPTED, 1, HANG_MS));
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED, 2, HANG_MS));
    assert_changed(&subscriber, &notified);
    assert_int_equal(zk_make(scene.eyes, "/forgotten", "", 0), 0);
    assert_changed(&subscriber, &notified);
    assert_int_equal(zk_make(scene.eyes, "/forgotten/child", "", 0), 0);
    assert_changed(&subscriber, &notified);
    subscriber_free(&subscriber);
}

/* Others listen beside it, wait beside it, and end while it is reported. */
CASE_AROUND(two_listeners_and_a_waiter, scene_heal, NULL) {
    int notified = 0;
    hf_client *client = scene_direct(SURVIVES_MS), *rival = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "shared"),
            *other = scene_lock(rival, HF_PLAIN, "shared");
    assert_hf(HF_OK, hf_lock_acquire(other));
    struct subscriber one = subscriber_new(client, "shared"),
                      two = subscriber_new(client, "shared");
    hf_op *op = scene_acquire_start(lock);
    assert_true(zk_wait_children(scene.eyes, "/shared", 2, HANG_MS));
    assert_changed(&one, &notified);
    subscriber_free(&two);
    assert_hf(HF_OK, hf_lock_release(other));
    hf_owner owner = scene_acquired(op);
    assert_changed(&one, &notified);
    assert_hf(HF_OK, hf_lock_release_as(lock, owner));
    hf_lock_free(lock);
    hf_lock_free(other);
    hf_close(client); /* first */
    subscriber_free(&one);
    hf_close(rival);
}

static bool play_with_memory(long fail_at) {
    struct memory memory = {0};
    struct notification_log *notification_log = notification_log_new();
    hf_client *client;
    hf_listener *listener = NULL;
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = SURVIVES_MS;
    options.allocator = memory_allocator(&memory);
    assert_hf(HF_OK, hf_open(zk_url(scene.zk), &options, &client));
    atomic_store(&memory.fail_at, atomic_load(&memory.calls) + fail_at);
    int err = hf_listen(client, "starved", notification_log_add, notification_log, &listener);
    if (err == HF_OK) {
        assert_true(notification_log_wait(notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    } else {
        assert_int_equal(err, HF_ENOMEM);
    }
    bool came_to_it = atomic_load(&memory.calls) >= atomic_load(&memory.fail_at);
    hf_listener_free(listener);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
    notification_log_free(notification_log);
    return came_to_it;
}

CASE_AROUND(memory_runs_out_at_each_step, scene_heal, NULL) {
    for (long n = 1; play_with_memory(n); n++)
        assert_true(n < 1000);
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
