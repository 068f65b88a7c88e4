/*
 * Requests and replies that are lost on the way, each with its connection: what was asked for has happened once, and
 * nothing is left behind. The proxy lets a request run and drops its reply, or keeps it from the server.
 */
#include "zk/scene.h"

#include <stdio.h>

enum loss { REPLY_LOST, REQUEST_LOST };

static void arm(enum loss loss, const char *matcher) {
    if (loss == REPLY_LOST)
        proxy_drop_replies_after(scene.proxy, matcher);
    else
        proxy_hold_request(scene.proxy, matcher);
}

/* What was kept from the server comes after all. The session has another connection by then. */
static void deliver(enum loss loss) {
    if (loss == REQUEST_LOST)
        (void)proxy_release_held(scene.proxy);
}

static void loses_on_the_way_in(enum loss loss, const char *name, const char *matcher) {
    char path[64];
    snprintf(path, sizeof path, "/%s", name);
    scene_warm(name);
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, name);
    assert_hf(HF_OK, hf_ping(client));
    size_t fired = proxy_fired(scene.proxy);
    arm(loss, matcher);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    assert_int_equal(zk_count(scene.eyes, path), 1);
    deliver(loss);
    assert_int_equal(zk_count(scene.eyes, path), 1);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_true(zk_wait_children(scene.eyes, path, 0, HANG_MS));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
}

static void reply_of_create(void **state) {
    (void)state;
    loses_on_the_way_in(REPLY_LOST, "create-ran", "create2 /create-ran/");
}

static void request_of_create(void **state) {
    (void)state;
    loses_on_the_way_in(REQUEST_LOST, "create-kept", "create2 /create-kept/");
}

static void reply_of_children(void **state) {
    (void)state;
    loses_on_the_way_in(REPLY_LOST, "children-ran", "getChildren2 /children-ran");
}

static void request_of_children(void **state) {
    (void)state;
    loses_on_the_way_in(REQUEST_LOST, "children-kept", "getChildren2 /children-kept");
}

static void loses_on_the_way_out(enum loss loss, const char *name, const char *matcher) {
    char path[64];
    snprintf(path, sizeof path, "/%s", name);
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, name);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    size_t fired = proxy_fired(scene.proxy);
    arm(loss, matcher);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    assert_true(zk_wait_children(scene.eyes, path, 0, HANG_MS));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    deliver(loss);
    assert_int_equal(zk_count(scene.eyes, path), 1);
    assert_true(hf_lock_remaining_ms(lock) > 0);
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
}

static void reply_of_delete(void **state) {
    (void)state;
    loses_on_the_way_out(REPLY_LOST, "delete-ran", "delete /delete-ran/");
}

static void request_of_delete(void **state) {
    (void)state;
    loses_on_the_way_out(REQUEST_LOST, "delete-kept", "delete /delete-kept/");
}

/* A waiter that is about to look at the one before it. */
static void waits_through(enum loss loss, const char *name, const char *matcher) {
    hf_client *holder = scene_direct(SURVIVES_MS), *waiter = scene_proxied(SURVIVES_MS);
    hf_lock *held = scene_lock(holder, HF_PLAIN, name),
            *wanted = scene_lock(waiter, HF_PLAIN, name);
    assert_hf(HF_OK, hf_lock_acquire(held));
    size_t fired = proxy_fired(scene.proxy);
    arm(loss, matcher);
    hf_op *op = scene_acquire_start(wanted);
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    assert_true(proxy_wait_seen(scene.proxy, matcher, 2, HANG_MS));
    assert_hf(HF_OK, hf_lock_release(held));
    hf_owner owner = scene_acquired(op);
    assert_hf(HF_OK, hf_lock_release_as(wanted, owner));
    hf_lock_free(held);
    hf_lock_free(wanted);
    hf_close(holder);
    hf_close(waiter);
}

static void reply_of_the_watch(void **state) {
    (void)state;
    waits_through(REPLY_LOST, "watch-ran", "getData /watch-ran/");
}

static void request_of_the_watch(void **state) {
    (void)state;
    waits_through(REQUEST_LOST, "watch-kept", "getData /watch-kept/");
}

/* A heartbeat: the next one comes, and nothing is lost. There has to be time for a connection between them. */
static void beats_through(enum loss loss, const char *name) {
    hf_client *client = scene_proxied(2 * ENDURING_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, name);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    size_t seen = proxy_seen(scene.proxy, "multi"), fired = proxy_fired(scene.proxy);
    arm(loss, "multi");
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    assert_true(proxy_wait_seen(scene.proxy, "multi", seen + 3, HANG_MS));
    assert_int_equal(scene_stats(client).losses, 0);
    assert_true(hf_lock_remaining_ms(lock) > 0);
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
}

static void reply_of_the_heartbeat(void **state) {
    (void)state;
    beats_through(REPLY_LOST, "beat-ran");
}

static void request_of_the_heartbeat(void **state) {
    (void)state;
    beats_through(REQUEST_LOST, "beat-kept");
}

/* Whoever gives up with a create unanswered leaves no node behind. */
static void given_up_without_an_answer(void **state) {
    (void)state;
    scene_warm("given-up");
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "given-up");
    assert_hf(HF_OK, hf_ping(client));
    proxy_stall_request(scene.proxy, "create2 /given-up/");
    hf_op *op = scene_acquire_start(lock);
    assert_true(proxy_wait_held(scene.proxy, HANG_MS));
    hf_op_cancel(op);
    assert_hf(HF_ECANCELED, hf_op_wait(op, HANG_MS, NULL));
    hf_op_free(op);
    assert_true(proxy_release_held(scene.proxy) > 0);
    assert_nodes("given-up", 0);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
}

/* The server deletes an empty container when it likes: here between two acquires, and with a create on its way. */
static void the_parent_vanishes(void **state) {
    (void)state;
    scene_warm("vanishing");
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "vanishing");
    assert_int_equal(zk_delete(scene.eyes, "/vanishing"), 0);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    proxy_stall_request(scene.proxy, "create2 /vanishing/");
    hf_op *op = scene_acquire_start(lock);
    assert_true(proxy_wait_held(scene.proxy, HANG_MS));
    assert_int_equal(zk_delete(scene.eyes, "/vanishing"), 0);
    assert_true(proxy_release_held(scene.proxy) > 0);
    hf_owner owner = scene_acquired(op);
    assert_int_equal(zk_count(scene.eyes, "/vanishing"), 1);
    assert_hf(HF_OK, hf_lock_release_as(lock, owner));
    hf_lock_free(lock);
    hf_close(client);
}

#define ROW(name) cmocka_unit_test_setup(name, scene_heal)

int main(void) {
    const struct CMUnitTest tests[] = {
        ROW(reply_of_create),
        ROW(request_of_create),
        ROW(reply_of_children),
        ROW(request_of_children),
        ROW(reply_of_delete),
        ROW(request_of_delete),
        ROW(reply_of_the_watch),
        ROW(request_of_the_watch),
        ROW(reply_of_the_heartbeat),
        ROW(request_of_the_heartbeat),
        ROW(given_up_without_an_answer),
        ROW(the_parent_vanishes),
    };
    zk_need();
    return cmocka_run_group_tests(tests, scene_start, scene_stop);
}
