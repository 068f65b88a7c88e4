/*
 * The directory of local: is removed while something is held.
 *
 * The next client makes a new one, with a new server in it, and is let in there. So the client that held
 * something at the old server must notice, although that server still answers.
 */
#include "fixture.h"

#include <stdatomic.h>

#include "support/case.h"
#include "support/new_lock.h"

#define WATCHDOG_MS ENDURING_MS
#define NAME "guarded"

struct pair {
    hf_client *old, *newcomer;
    hf_lock *old_lock, *new_lock;
    atomic_int losses;
    char reason[256];
};

static void open_client(hf_client **ret_client, hf_lock **ret_lock) {
    char url[512];
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = WATCHDOG_MS;
    snprintf(url, sizeof url, "local:%s", local_case_dir);
    assert_int_equal(hf_open(url, &options, ret_client), HF_OK);
    assert_int_equal(hf_lock_new(*ret_client, NAME, ret_lock), HF_OK);
}

static void on_event(hf_lock *lock, const hf_event *event, void *arg) {
    struct pair *pair = arg;
    (void)lock;
    if (event->kind != HF_EVENT_LOST)
        return;
    snprintf(pair->reason, sizeof pair->reason, "%s", event->reason);
    atomic_fetch_add(&pair->losses, 1);
}

static void pair_begin(struct pair *pair) {
    *pair = (struct pair){0};
    open_client(&pair->old, &pair->old_lock);
    open_client(&pair->newcomer, &pair->new_lock);
    assert_int_equal(hf_lock_on_lost(pair->old_lock, on_event, pair), HF_OK);
}

static void pair_end(struct pair *pair) {
    hf_lock_free(pair->old_lock);
    hf_lock_free(pair->new_lock);
    assert_int_equal(hf_close(pair->old), HF_OK);
    assert_int_equal(hf_close(pair->newcomer), HF_OK);
}

static bool has_lost(void *arg) {
    return atomic_load(&((struct pair *)arg)->losses) > 0;
}

static void remove_dir(void) {
    static const char *const names[] = {"redis.sock", "redis.sock.idle", "server.log"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", local_case_dir, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(local_case_dir), 0);
}

static void move_dir(void) {
    own_text *away = text_of("%s.away", local_case_dir);
    assert_int_equal(rename(local_case_dir, away), 0);
}

static void (*const ways[])(void) = {remove_dir, move_dir};
enum { WAYS = sizeof ways / sizeof *ways };

/* A whole lease and a renewal are far less than what a fixed lease would last. */
LOCAL_CASE(a_holder_loses_it_at_the_next_renewal) {
    for (size_t i = 0; i < WAYS; i++) {
        struct pair pair;
        pair_begin(&pair);
        assert_int_equal(hf_lock_acquire(pair.old_lock), HF_OK);
        pid_t old_server = local_server_pid(dir);
        ways[i]();
        int64_t start_ms = now_ms();
        assert_int_equal(hf_lock_acquire_for(pair.new_lock, HANG_MS), HF_OK);
        assert_true(wait_until(has_lost, &pair, HANG_MS));
        assert_true(now_ms() - start_ms < HANG_MS);
        assert_non_null(strstr(pair.reason, "server"));
        assert_true(process_alive(old_server)); /* it still would have answered */
        assert_int_equal(hf_lock_release(pair.old_lock), HF_ELOST);
        assert_int_equal(hf_lock_try(pair.old_lock), HF_EBUSY); /* asked where the other holds it */
        assert_int_equal(hf_lock_release(pair.new_lock), HF_OK);
        assert_int_equal(hf_lock_acquire_for(pair.old_lock, HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(pair.old_lock), HF_OK);
        pair_end(&pair);
        local_stop(dir);
    }
}

/* Connected to the old one, and nothing held: the first acquire goes to the new one. So it is found
 * out about what was held there with a lease that nobody renews. */
LOCAL_CASE(a_first_acquire_goes_to_the_new_server) {
    for (size_t i = 0; i < WAYS; i++) {
        struct pair pair;
        pair_begin(&pair);
        hf_acquire_options leased = HF_ACQUIRE_OPTIONS_INIT;
        leased.lease_ms = 600000;
        hf_lock *other = made(hf_lock_new, pair.old, "another");
        assert_int_equal(hf_lock_acquire_with(other, &leased, NULL), HF_OK);
        assert_int_equal(hf_lock_on_lost(other, on_event, &pair), HF_OK);
        ways[i]();
        assert_int_equal(hf_lock_acquire_for(pair.new_lock, HANG_MS), HF_OK);
        assert_int_equal(hf_lock_try(pair.old_lock), HF_EBUSY);
        assert_true(wait_until(has_lost, &pair, HANG_MS));
        assert_int_equal(hf_lock_release(other), HF_ELOST);
        assert_int_equal(hf_lock_release(pair.new_lock), HF_OK);
        hf_lock_free(other);
        pair_end(&pair);
        local_stop(dir);
    }
}

/* No other client comes: the lock is lost all the same, since one could. */
LOCAL_CASE(a_removed_socket_alone_is_enough) {
    OWN(pair_end) struct pair pair;
    char path[512];
    pair_begin(&pair);
    assert_int_equal(hf_lock_acquire(pair.old_lock), HF_OK);
    snprintf(path, sizeof path, "%s/redis.sock", dir);
    assert_int_equal(unlink(path), 0);
    assert_true(wait_until(has_lost, &pair, HANG_MS));
}

/* While the server looks whether it may leave, its socket has another name. */
LOCAL_CASE(a_renamed_socket_is_the_same_server) {
    OWN(pair_end) struct pair pair;
    char path[512], idle[512];
    pair_begin(&pair);
    assert_int_equal(hf_lock_acquire(pair.old_lock), HF_OK);
    snprintf(path, sizeof path, "%s/redis.sock", dir);
    snprintf(idle, sizeof idle, "%s/redis.sock.idle", dir);
    for (int64_t start_ms = now_ms(); now_ms() - start_ms < 2 * WATCHDOG_MS; wait_a_moment()) {
        assert_int_equal(rename(path, idle), 0);
        (void)wait_a_moment();
        assert_int_equal(rename(idle, path), 0);
        if (has_lost(&pair))
            fail_msg("lost: %s", pair.reason);
    }
    assert_int_equal(hf_lock_release(pair.old_lock), HF_OK);
}

RUN_CASES(local_setup, local_teardown)
