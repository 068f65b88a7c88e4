/* What goes wrong while a quorum is asked, held or given back: lost replies, late copies, servers that
 * restart empty, the restart guard, a holder that is cut off. */
#include "joint/fleet.h"

#include <stdio.h>
#include <string.h>

static void pair(struct fleet *f) {
    assert_int_equal(hf_lock_acquire_for(f->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

static void replies_lost(void **state) {
    (void)state;
    struct fleet f;
    fleet_begin(&f, NULL);
    for (int i = 0; i < FLEET; i++) {
        proxy_drop_replies_after(f.proxy[i], FLEET_ACQUIRE);
        pair(&f);
        proxy_drop_replies_after(f.proxy[i], FLEET_RELEASE);
        pair(&f);
        proxy_heal(f.proxy[i]);
    }
    for (int i = 0; i < FLEET; i++)
        proxy_drop_replies_after(f.proxy[i], FLEET_ACQUIRE);
    pair(&f);
    for (int i = 0; i < FLEET; i++)
        proxy_drop_replies_after(f.proxy[i], FLEET_RELEASE);
    pair(&f);
    fleet_end(&f);
}

/* A copy of a command that was given up must not act when it arrives in the end. */
static void late_copies(void **state) {
    (void)state;
    struct fleet f;
    hf_options options = fleet_options();
    options.cmd_timeout_ms = 1500;
    fleet_begin(&f, &options);
    for (int i = 0; i < FLEET; i++)
        proxy_hold_request(f.proxy[i], FLEET_ACQUIRE);
    int err = hf_lock_acquire_for(f.lock, 300);
    assert_true(err == HF_ENOQUORUM || err == HF_OK);
    if (err == HF_OK)
        assert_int_equal(hf_lock_release(f.lock), HF_OK);
    for (int i = 0; i < FLEET; i++)
        proxy_heal(f.proxy[i]);
    assert_true(fleet_wait_free(&f, HANG_MS));
    sleep_ms(2000);
    for (int i = 0; i < FLEET; i++)
        proxy_release_held(f.proxy[i]);
    assert_int_equal(fleet_locked(&f), 0);
    pair(&f);
    fleet_end(&f);
}

/* Nests until each server has been asked to renew so often again. */
static void renew_at_all(struct fleet *f, size_t times) {
    size_t wanted[FLEET];
    for (int i = 0; i < FLEET; i++)
        wanted[i] = proxy_seen(f->proxy[i], FLEET_RENEW) + times;
    for (int i = 0; i < FLEET; i++) {
        int64_t end_ms = now_ms() + HANG_MS;
        while (proxy_seen(f->proxy[i], FLEET_RENEW) < wanted[i]) {
            assert_true(now_ms() < end_ms);
            assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
            assert_int_equal(hf_lock_release(f->lock), HF_OK);
        }
    }
}

/* All servers have the hold. When this returns, each has proved it since the last of them joined: only
 * then may any two of them break. Whoever is asked to renew has joined before; and of three more
 * renewals the second is sent after the first was answered, and has been answered when the third is
 * sent. */
static void prove_at_all(struct fleet *f) {
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS));
    renew_at_all(f, 1);
    renew_at_all(f, 3);
}

static hf_options enduring(void) {
    hf_options options = fleet_options();
    options.watchdog_ms = 9000;
    return options;
}

static void begin_held(struct fleet *f, struct fleet_events *events) {
    hf_options options = enduring();
    fleet_begin(f, &options);
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, events), HF_OK);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    prove_at_all(f);
}

static void restarted_empty_is_refilled(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    begin_held(&f, &events);
    server_restart(f.server[0]);
    bool refilled = fleet_wait_held(&f, f.owner, FLEET, HANG_MS);
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_true(refilled);
    prove_at_all(&f); /* what is refilled makes up for what breaks after that */
    cmd_ok(f.server[1], "DEL %s", FLEET_NAME);
    cmd_ok(f.server[2], "DEL %s", FLEET_NAME);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));
    fleet_end(&f);
}

static void a_majority_deleted_is_lost(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    begin_held(&f, &events);
    for (int i = 1; i < 4; i++)
        cmd_ok(f.server[i], "DEL %s", FLEET_NAME);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f.lock), HF_ELOST);
    assert_non_null(strstr(hf_last_error()->text, "fewer than a majority"));
    assert_true(fleet_wait_free(&f, HANG_MS)); /* what was left of it, too */
    fleet_end(&f);
}

static void exactly_a_majority_and_one_restarts(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    begin_held(&f, &events);
    server_kill(f.server[0]);
    server_kill(f.server[1]);
    server_restart(f.server[2]);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f.lock), HF_ELOST);
    fleet_end(&f);
}

static void two_down_while_held(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    begin_held(&f, &events);
    server_kill(f.server[3]);
    server_kill(f.server[4]);
    sleep_ms(12000); /* more than a lease */
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_true(hf_lock_remaining_ms(f.lock) > 0);
    assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));
    fleet_end(&f);
}

static void cut_off(void **state) {
    (void)state;
    struct fleet f;
    struct fleet_events events = {0};
    struct fleet_caller rival;
    hf_options options = fleet_options();
    options.watchdog_ms = 4500;
    options.cmd_timeout_ms = 1500;
    fleet_begin(&f, &options);
    assert_int_equal(hf_lock_on_lost(f.lock, fleet_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(f.lock), HF_OK);
    assert_true(fleet_wait_held(&f, f.owner, FLEET, HANG_MS));
    for (int i = 0; i < 3; i++)
        proxy_blackhole(f.proxy[i], true, true);
    fleet_call_acquire(&rival, f.rival_lock, fleet_wait_for(HANG_MS, 60000));
    while (!atomic_load(&rival.done)) {
        /* read before: it must not be believed once the other has it */
        int64_t left_ms = hf_lock_remaining_ms(f.lock);
        assert_true(!atomic_load(&rival.done) || left_ms == 0 || hf_lock_remaining_ms(f.lock) == 0);
        sleep_ms(1);
    }
    assert_int_equal(hf_lock_remaining_ms(f.lock), 0);
    assert_int_equal(fleet_join(&rival), HF_OK);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    for (int i = 0; i < 3; i++)
        proxy_heal(f.proxy[i]);
    assert_int_equal(hf_lock_release(f.lock), HF_ELOST);
    fleet_end(&f);
}

/* ---- The restart guard ---- */

static void restarted_servers_have_no_vote(void **state) {
    (void)state;
    struct fleet f;
    hf_options options = fleet_options();
    options.restart_guard_ms = 8000;
    fleet_begin(&f, &options);
    int64_t start_ms = now_ms();
    for (int i = 0; i < 3; i++)
        server_restart(f.server[i]);
    assert_int_equal(hf_lock_try(f.lock), HF_ENOQUORUM);
    assert_non_null(strstr(hf_last_error()->text, "started "));
    assert_int_equal(hf_lock_acquire_for(f.lock, 100), HF_ENOQUORUM);
    assert_int_equal(hf_lock_acquire_for(f.lock, HANG_MS), HF_OK);
    assert_true(now_ms() - start_ms >= 7000); /* servers tell their age in seconds */
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));
    fleet_end(&f);
}

/* A lease that is shorter than the guard is renewed until enough servers are of age. */
static void cold_start(void **state) {
    (void)state;
    struct fleet f;
    hf_options options = fleet_options();
    options.restart_guard_ms = 9000;
    fleet_begin(&f, &options);
    for (int i = 0; i < FLEET; i++)
        server_restart(f.server[i]);
    hf_acquire_options leased = fleet_wait_for(HANG_MS, 6000);
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire_with(f.lock, &leased, &result), HF_OK);
    assert_true(result.remaining_ms > 0);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    fleet_end(&f);
}

/* As long as nobody knows that two of them are one: what is given back as one's is gone as the other's. */
static bool gives_back(hf_lock *lock) {
    int err = hf_lock_release(lock);
    return err == HF_OK || err == HF_ELOST;
}

static void same_server_twice(void **state) {
    (void)state;
    struct fleet f;
    hf_client *client;
    hf_lock *lock;
    char urls[1024];
    fleet_begin(&f, NULL);
    snprintf(urls, sizeof urls, "%s %s %s", server_url(f.server[0]), proxy_url(f.proxy[0]),
             server_url(f.server[1]));
    hf_options options = fleet_options();
    assert_int_equal(hf_open(urls, &options, &client), HF_OK);
    assert_int_equal(hf_lock_new(client, "other", &lock), HF_OK);
    int err = hf_lock_try(lock);
    /* two are a majority: they may be granted it before the third has said who it is */
    for (int64_t end_ms = now_ms() + HANG_MS; err != HF_EINVAL && now_ms() < end_ms;) {
        if (err == HF_OK)
            assert_true(gives_back(lock));
        err = hf_lock_try(lock);
    }
    assert_int_equal(err, HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "are the same server"));
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    fleet_end(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_lost),
        cmocka_unit_test(late_copies),
        cmocka_unit_test(restarted_empty_is_refilled),
        cmocka_unit_test(a_majority_deleted_is_lost),
        cmocka_unit_test(exactly_a_majority_and_one_restarts),
        cmocka_unit_test(two_down_while_held),
        cmocka_unit_test(cut_off),
        cmocka_unit_test(restarted_servers_have_no_vote),
        cmocka_unit_test(cold_start),
        cmocka_unit_test(same_server_twice),
    };
    return cmocka_run_group_tests(tests, fleet_start_servers, fleet_stop_servers);
}
