/*
 * Requests and replies that are lost on the way, each with its connection: what was asked for has happened once, and
 * nothing is left behind. The proxy lets a request run and drops its reply, or keeps it from the server.
 */
#include "support/case.h"
#include "zk/scene.h"

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
    own_text *path = text_of("/%s", name);
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

CASE_AROUND(reply_of_create, scene_heal, NULL) {
    loses_on_the_way_in(REPLY_LOST, "create-ran", "create2 /create-ran/");
}

CASE_AROUND(request_of_create, scene_heal, NULL) {
    loses_on_the_way_in(REQUEST_LOST, "create-kept", "create2 /create-kept/");
}

CASE_AROUND(reply_of_children, scene_heal, NULL) {
    loses_on_the_way_in(REPLY_LOST, "children-ran", "getChildren2 /children-ran");
}

CASE_AROUND(request_of_children, scene_heal, NULL) {
    loses_on_the_way_in(REQUEST_LOST, "children-kept", "getChildren2 /children-kept");
}

static void loses_on_the_way_out(enum loss loss, const char *name, const char *matcher) {
    own_text *path = text_of("/%s", name);
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

CASE_AROUND(reply_of_delete, scene_heal, NULL) {
    loses_on_the_way_out(REPLY_LOST, "delete-ran", "delete /delete-ran/");
}

CASE_AROUND(request_of_delete, scene_heal, NULL) {
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

CASE_AROUND(reply_of_the_watch, scene_heal, NULL) {
    waits_through(REPLY_LOST, "watch-ran", "getData /watch-ran/");
}

CASE_AROUND(request_of_the_watch, scene_heal, NULL) {
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

CASE_AROUND(reply_of_the_heartbeat, scene_heal, NULL) {
    beats_through(REPLY_LOST, "beat-ran");
}

CASE_AROUND(request_of_the_heartbeat, scene_heal, NULL) {
    beats_through(REQUEST_LOST, "beat-kept");
}

/* A client that gives up with a create unanswered leaves no node behind. */
CASE_AROUND(given_up_without_an_answer, scene_heal, NULL) {
    scene_warm("given-up");
    own_client *client = scene_proxied(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "given-up");
    assert_hf(HF_OK, hf_ping(client));
    proxy_stall_request(scene.proxy, "create2 /given-up/");
    hf_op *op = scene_acquire_start(lock);
    assert_true(proxy_wait_held(scene.proxy, HANG_MS));
    hf_op_cancel(op);
    assert_hf(HF_ECANCELED, joined(op, NULL));
    assert_true(proxy_release_held(scene.proxy) > 0);
    assert_nodes("given-up", 0);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
}

/* The server deletes an empty container when it likes: here between two acquires, and with a create on its way. */
CASE_AROUND(the_parent_vanishes, scene_heal, NULL) {
    scene_warm("vanishing");
    own_client *client = scene_proxied(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "vanishing");
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
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
