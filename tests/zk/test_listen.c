/*
 * Listening to a name in ZooKeeper (hf_listen()): that something has changed is told, of whatever kind it is, and no more.
 */
#include "support/heard.h"
#include "support/memory.h"
#include "zk/scene.h"

#include <stdio.h>
#include <string.h>

/* Waits until what has just been done is told of. */
static void assert_changed(struct ear *ear, int *told) {
    assert_true(heard_wait(ear->heard, HF_NEWS_CHANGED, *told + 1, HANG_MS));
    *told = heard_count(ear->heard, HF_NEWS_CHANGED);
}

static void a_lock_of_which_there_is_nothing_yet(void **state) {
    int told = 0;
    (void)state;
    hf_client *client = scene_direct(SURVIVES_MS), *rival = scene_direct(SURVIVES_MS);
    struct ear ear = ear_new(client, "heard");
    hf_lock *lock = scene_lock(rival, HF_PLAIN, "heard");
    for (int i = 0; i < 3; i++) {
        assert_hf(HF_OK, hf_lock_acquire(lock));
        assert_changed(&ear, &told);
        assert_hf(HF_OK, hf_lock_release(lock));
        assert_changed(&ear, &told);
    }
    assert_int_equal(heard_count(ear.heard, HF_NEWS_LISTENING), 1);
    assert_int_equal(heard_count(ear.heard, HF_NEWS_DEAF), 0);
    hf_lock_free(lock);
    ear_free(&ear);
    hf_close(client);
    hf_close(rival);
}

static void who_comes_into_line_and_leaves_it(void **state) {
    int told = 0;
    (void)state;
    hf_client *client = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_WRITE, "line");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    struct ear ear = ear_new(client, "line");
    hf_op *op = scene_acquire_start(lock);
    assert_changed(&ear, &told);
    assert_true(zk_wait_children(scene.eyes, "/line", 2, HANG_MS));
    hf_op_cancel(op);
    assert_changed(&ear, &told);
    hf_op_free(op);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_changed(&ear, &told);
    hf_lock_free(lock);
    ear_free(&ear);
    hf_close(client);
}

static void what_is_no_lock(void **state) {
    int told = 0;
    bool set;
    hf_sem *sem;
    hf_permits *permits;
    hf_permit_id id;
    (void)state;
    hf_client *client = scene_direct(SURVIVES_MS);
    assert_hf(HF_OK, hf_sem_new(client, "tickets", &sem));
    struct ear ear = ear_new(client, "tickets");
    assert_hf(HF_OK, hf_sem_try_set(sem, 3, 0, &set));
    assert_changed(&ear, &told);
    assert_hf(HF_OK, hf_sem_acquire(sem, 1));
    assert_changed(&ear, &told);
    ear_free(&ear);
    hf_sem_free(sem);

    told = 0;
    assert_hf(HF_OK, hf_permits_new(client, "slots", &permits));
    ear = ear_new(client, "slots");
    assert_hf(HF_OK, hf_permits_try_set(permits, 2, &set));
    assert_changed(&ear, &told);
    assert_hf(HF_OK, hf_permits_acquire(permits, &id));
    assert_changed(&ear, &told);
    assert_hf(HF_OK, hf_permits_release(permits, &id));
    assert_changed(&ear, &told);
    assert_hf(HF_OK, hf_permits_set(permits, 5));
    assert_changed(&ear, &told);
    ear_free(&ear);
    hf_permits_free(permits);
    hf_close(client);
}

/* Watches end with the connection, and are set again; what was missed is found. */
static void whoever_connects_again_says_so(void **state) {
    int told = 0;
    (void)state;
    hf_client *client = scene_proxied(SURVIVES_MS);
    struct ear ear = ear_new(client, "cut");
    proxy_refuse(scene.proxy, true);
    assert_true(proxy_cut_connections(scene.proxy, "") > 0);
    assert_true(heard_wait(ear.heard, HF_NEWS_DEAF, 1, HANG_MS));
    assert_int_equal(heard_last(ear.heard, HF_NEWS_DEAF).code, HF_EUNREACH);
    assert_int_equal(zk_make(scene.eyes, "/cut", "", 0), 0);
    proxy_refuse(scene.proxy, false);
    assert_true(heard_wait(ear.heard, HF_NEWS_LISTENING, 2, HANG_MS));
    assert_changed(&ear, &told);
    assert_int_equal(zk_make(scene.eyes, "/cut/child", "", 0), 0);
    assert_changed(&ear, &told);
    ear_free(&ear);
    hf_close(client);
}

/* It has another session then, and listens on; that what there was is gone is a change like any other. */
static void a_server_that_comes_back_empty(void **state) {
    int told = 0;
    (void)state;
    hf_client *client = scene_direct(ENDURING_MS);
    assert_int_equal(zk_make(scene.eyes, "/forgotten", "", 0), 0);
    struct ear ear = ear_new(client, "forgotten");
    zk_restart_empty(scene.zk);
    assert_true(heard_wait(ear.heard, HF_NEWS_DEAF, 1, HANG_MS));
    assert_true(heard_wait(ear.heard, HF_NEWS_LISTENING, 2, HANG_MS));
    assert_changed(&ear, &told);
    assert_int_equal(zk_make(scene.eyes, "/forgotten", "", 0), 0);
    assert_changed(&ear, &told);
    assert_int_equal(zk_make(scene.eyes, "/forgotten/child", "", 0), 0);
    assert_changed(&ear, &told);
    ear_free(&ear);
    hf_close(client);
}

/* Others listen beside it, wait beside it, and end while it is told. */
static void two_listeners_and_a_waiter(void **state) {
    int told = 0;
    (void)state;
    hf_client *client = scene_direct(SURVIVES_MS), *rival = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "shared"),
            *other = scene_lock(rival, HF_PLAIN, "shared");
    assert_hf(HF_OK, hf_lock_acquire(other));
    struct ear one = ear_new(client, "shared"), two = ear_new(client, "shared");
    hf_op *op = scene_acquire_start(lock);
    assert_true(zk_wait_children(scene.eyes, "/shared", 2, HANG_MS));
    assert_changed(&one, &told);
    ear_free(&two);
    assert_hf(HF_OK, hf_lock_release(other));
    hf_owner owner = scene_acquired(op);
    assert_changed(&one, &told);
    assert_hf(HF_OK, hf_lock_release_as(lock, owner));
    hf_lock_free(lock);
    hf_lock_free(other);
    hf_close(client); /* first */
    ear_free(&one);
    hf_close(rival);
}

static bool play_with_memory(long fail_at) {
    struct memory memory = {0};
    struct heard *heard = heard_new();
    hf_client *client;
    hf_listener *listener = NULL;
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = SURVIVES_MS;
    options.allocator = memory_allocator(&memory);
    assert_hf(HF_OK, hf_open(zk_url(scene.zk), &options, &client));
    atomic_store(&memory.fail_at, atomic_load(&memory.calls) + fail_at);
    int err = hf_listen(client, "starved", heard_note, heard, &listener);
    if (err == HF_OK) {
        for (int64_t start_ms = now_ms(); heard_count(heard, HF_NEWS_LISTENING) == 0; sleep_ms(1))
            assert_true(now_ms() - start_ms < HANG_MS);
    } else {
        assert_int_equal(err, HF_ENOMEM);
    }
    bool came_to_it = atomic_load(&memory.calls) >= atomic_load(&memory.fail_at);
    hf_listener_free(listener);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
    heard_free(heard);
    return came_to_it;
}

static void memory_runs_out_at_each_step(void **state) {
    (void)state;
    for (long n = 1; play_with_memory(n); n++)
        assert_true(n < 1000);
}

int main(void) {
    zk_need();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_lock_of_which_there_is_nothing_yet, scene_heal),
        cmocka_unit_test_setup(who_comes_into_line_and_leaves_it, scene_heal),
        cmocka_unit_test_setup(what_is_no_lock, scene_heal),
        cmocka_unit_test_setup(whoever_connects_again_says_so, scene_heal),
        cmocka_unit_test_setup(a_server_that_comes_back_empty, scene_heal),
        cmocka_unit_test_setup(two_listeners_and_a_waiter, scene_heal),
        cmocka_unit_test_setup(memory_runs_out_at_each_step, scene_heal),
    };
    return cmocka_run_group_tests(tests, scene_start, scene_stop);
}
