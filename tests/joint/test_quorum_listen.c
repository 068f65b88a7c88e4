/*
 * Listening to a name of a quorum (hf_listen()): each server is heard for itself, and says which it
 * is; one that is down is heard when it is back.
 */
#include "joint/fleet.h"
#include "support/memory.h"
#include "support/notification_log.h"

/* Which of the servers said something of a kind, as bits. */
struct chorus {
    atomic_uint listening, released, broken, interrupted;
    atomic_int count;
    atomic_size_t servers;
};

static void note(hf_listener *listener, const hf_notification *notification, void *user) {
    struct chorus *chorus = user;
    unsigned bit = 1u << notification->server;
    (void)listener;
    atomic_store(&chorus->servers, notification->servers);
    if (notification->kind == HF_NOTIFY_SUBSCRIBED)
        atomic_fetch_or(&chorus->listening, bit);
    else if (notification->kind == HF_NOTIFY_RELEASED)
        atomic_fetch_or(&chorus->released, bit);
    else if (notification->kind == HF_NOTIFY_BROKEN)
        atomic_fetch_or(&chorus->broken, bit);
    else if (notification->kind == HF_NOTIFY_INTERRUPTED)
        atomic_fetch_or(&chorus->interrupted, bit);
    atomic_fetch_add(&chorus->count, 1);
}

static bool has_all(void *arg) {
    return atomic_load((atomic_uint *)arg) == (1u << FLEET) - 1;
}

static bool has_last(void *arg) {
    return (atomic_load((atomic_uint *)arg) & (1u << (FLEET - 1))) != 0;
}

FLEET_CASE(every_server_is_listened_to) {
    struct chorus chorus = {0};
    own_listener *listener;
    assert_int_equal(hf_listen(f->client, FLEET_NAME, note, &chorus, &listener), HF_OK);
    assert_true(wait_until(has_all, &chorus.listening, HANG_MS));
    assert_int_equal(atomic_load(&chorus.servers), FLEET);
    assert_int_equal(hf_lock_acquire(f->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(f->rival_lock), HF_OK);
    assert_true(wait_until(has_all, &chorus.released, HANG_MS));
}

FLEET_CASE(every_server_reports_a_break) {
    struct chorus one = {0}, all = {0};
    own_listener *listener, *breaks;
    bool broken;
    assert_int_equal(hf_listen(f->client, FLEET_NAME, note, &one, &listener), HF_OK);
    assert_int_equal(hf_listen_breaks(f->client, note, &all, &breaks), HF_OK);
    assert_true(wait_until(has_all, &one.listening, HANG_MS));
    assert_true(wait_until(has_all, &all.listening, HANG_MS));
    assert_int_equal(hf_lock_acquire(f->rival_lock), HF_OK);
    assert_int_equal(hf_lock_break(f->lock, &broken), HF_OK);
    assert_true(broken);
    assert_true(wait_until(has_all, &one.broken, HANG_MS));
    assert_true(wait_until(has_all, &all.broken, HANG_MS));
}

FLEET_CASE(a_server_that_was_down_is_listened_to_again) {
    struct chorus chorus = {0};
    own_listener *listener;
    assert_int_equal(hf_listen(f->client, FLEET_NAME, note, &chorus, &listener), HF_OK);
    assert_true(wait_until(has_all, &chorus.listening, HANG_MS));
    server_kill(f->server[FLEET - 1]);
    assert_true(wait_until(has_last, &chorus.interrupted, HANG_MS));
    assert_int_equal(atomic_load(&chorus.interrupted), 1u << (FLEET - 1));
    atomic_store(&chorus.listening, 0);
    server_restart(f->server[FLEET - 1]);
    assert_true(wait_until(has_last, &chorus.listening, HANG_MS));
}

/* All members or none: whichever allocation fails, all is given back. */
FLEET_CASE(memory_runs_out_at_each_step) {
    bool came_to_it = true;
    for (long n = 1; came_to_it; n++) {
        struct memory memory = {0};
        struct chorus chorus = {0};
        hf_listener *listener = NULL;
        hf_options options = fleet_options();
        options.allocator = memory_allocator(&memory);
        hf_client *client = made(hf_open, f->direct_urls, &options);
        atomic_store(&memory.fail_at, atomic_load(&memory.calls) + n);
        int err = hf_listen(client, FLEET_NAME, note, &chorus, &listener);
        came_to_it = err != HF_OK;
        if (came_to_it)
            assert_int_equal(err, HF_ENOMEM);
        hf_listener_free(listener);
        assert_int_equal(hf_close(client), HF_OK);
        assert_int_equal(atomic_load(&memory.live), 0);
        assert_true(n < 100);
    }
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
