/*
 * Requests and replies that are lost on the way, each with its connection, of what is no plain lock: numbers,
 * permits, and a writer that reads. What was asked for has happened once, or nobody can know.
 */
#include "zk/scene.h"

#include <string.h>

static hf_sem *sem_of(hf_client *client, const char *name) {
    hf_sem *sem = NULL;
    assert_hf(HF_OK, hf_sem_new(client, name, &sem));
    return sem;
}

static hf_permits *permits_of(hf_client *client, const char *name) {
    hf_permits *permits = NULL;
    assert_hf(HF_OK, hf_permits_new(client, name, &permits));
    return permits;
}

static void assert_available(hf_sem *sem, int64_t expected) {
    int64_t permits = -99;
    assert_hf(HF_OK, hf_sem_available(sem, &permits));
    assert_int_equal(permits, expected);
}

static void fired_once(size_t before) {
    assert_true(proxy_wait_fired(scene.proxy, before + 1, HANG_MS));
    proxy_heal(scene.proxy);
}

/* Nothing at the server tells who has taken them. */
static void reply_of_a_change_is_unknown(void **state) {
    (void)state;
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_sem *sem = sem_of(client, "sem-ran");
    assert_hf(HF_OK, hf_sem_try_set(sem, 5, 0, NULL));
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "setData /sem-ran");
    assert_hf(HF_EUNKNOWN, hf_sem_acquire(sem, 1));
    fired_once(fired);
    assert_available(sem, 4);
    hf_sem_free(sem);
    hf_close(client);
}

/* It is as it was, behind a sync: so it was not done, and what was kept is refused when it comes. */
static void request_of_a_change_is_sent_again(void **state) {
    (void)state;
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_sem *sem = sem_of(client, "sem-kept");
    assert_hf(HF_OK, hf_sem_try_set(sem, 5, 0, NULL));
    size_t fired = proxy_fired(scene.proxy);
    proxy_hold_request(scene.proxy, "setData /sem-kept");
    assert_hf(HF_OK, hf_sem_acquire(sem, 1));
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    (void)proxy_release_held(scene.proxy);
    assert_available(sem, 4);
    hf_sem_free(sem);
    hf_close(client);
}

static void reply_of_the_last_count_down(void **state) {
    (void)state;
    hf_latch *latch = NULL;
    hf_client *client = scene_proxied(SURVIVES_MS);
    assert_hf(HF_OK, hf_latch_new(client, "latch-ran", &latch));
    assert_hf(HF_OK, hf_latch_try_set(latch, 1, NULL));
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "delete /latch-ran");
    assert_hf(HF_EUNKNOWN, hf_latch_count_down(latch));
    fired_once(fired);
    assert_int_equal(zk_exists(scene.eyes, "/latch-ran"), ZK_NO_NODE);
    hf_latch_free(latch);
    hf_close(client);
}

/* The server deletes a container that has been empty for a while. */
static void assert_beneath(const char *path, int expected) {
    int count = zk_count(scene.eyes, path);
    assert_int_equal(count > 0 ? count : 0, expected);
}

static int take_two(hf_permits *permits, hf_permit_id ids[2]) {
    hf_permits_options options = HF_PERMITS_INIT;
    options.count = 2;
    return hf_permits_acquire_with(permits, &options, ids);
}

/* They are found by their ids. */
static void reply_of_taking_permits(void **state) {
    (void)state;
    hf_permit_id ids[2];
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_permits *permits = permits_of(client, "pool-ran");
    assert_hf(HF_OK, hf_permits_set(permits, 5));
    assert_hf(HF_OK, take_two(permits, ids)); /* the parents are there then */
    assert_hf(HF_OK, hf_permits_release_many(permits, ids, 2));
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "multi");
    assert_hf(HF_OK, take_two(permits, ids));
    fired_once(fired);
    assert_beneath("/pool-ran/leases", 2);
    assert_beneath("/pool-ran/locks", 0);
    assert_true(hf_permits_remaining_ms(permits, &ids[1]) > 0);

    fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "multi");
    assert_hf(HF_OK, hf_permits_release_many(permits, ids, 2));
    fired_once(fired);
    assert_beneath("/pool-ran/leases", 0);
    hf_permits_free(permits);
    hf_close(client);
}

static void request_of_taking_permits(void **state) {
    (void)state;
    hf_permit_id ids[2];
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_permits *permits = permits_of(client, "pool-kept");
    assert_hf(HF_OK, hf_permits_set(permits, 5));
    size_t fired = proxy_fired(scene.proxy);
    proxy_hold_request(scene.proxy, "multi");
    assert_hf(HF_OK, take_two(permits, ids));
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    (void)proxy_release_held(scene.proxy);
    assert_beneath("/pool-kept/leases", 2);
    assert_beneath("/pool-kept/locks", 0);
    assert_hf(HF_OK, hf_permits_release_many(permits, ids, 2));
    hf_permits_free(permits);
    hf_close(client);
}

static void reply_of_a_writer_that_reads(void **state) {
    (void)state;
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_lock *write = scene_lock(client, HF_WRITE, "rw-ran");
    hf_lock *read = scene_lock(client, HF_READ, "rw-ran");
    assert_hf(HF_OK, hf_lock_acquire(write));
    size_t fired = proxy_fired(scene.proxy);
    proxy_drop_replies_after(scene.proxy, "create2 /rw-ran/");
    assert_hf(HF_OK, hf_lock_acquire(read));
    fired_once(fired);
    struct zk_children *nodes = zk_children(scene.eyes, "/rw-ran");
    assert_int_equal(nodes->count, 2);
    const char *numbers[2] = {strrchr(nodes->names[0], '_'), strrchr(nodes->names[1], '_')};
    assert_string_equal(numbers[0], numbers[1]);
    zk_children_free(nodes);
    assert_hf(HF_OK, hf_lock_release(write));
    assert_hf(HF_OK, hf_lock_release(read));
    assert_beneath("/rw-ran", 0);
    hf_lock_free(write);
    hf_lock_free(read);
    hf_close(client);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(reply_of_a_change_is_unknown, scene_heal),
        cmocka_unit_test_teardown(request_of_a_change_is_sent_again, scene_heal),
        cmocka_unit_test_teardown(reply_of_the_last_count_down, scene_heal),
        cmocka_unit_test_teardown(reply_of_taking_permits, scene_heal),
        cmocka_unit_test_teardown(request_of_taking_permits, scene_heal),
        cmocka_unit_test_teardown(reply_of_a_writer_that_reads, scene_heal),
    };
    zk_need();
    return cmocka_run_group_tests(tests, scene_start, scene_stop);
}
