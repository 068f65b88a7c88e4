/* What goes wrong while a quorum is asked, held or given back: lost replies, late copies, servers that
 * restart empty, the restart guard, a holder that is cut off. */
#include "joint/fleet.h"

static void pair(struct fleet *f) {
    assert_int_equal(hf_lock_acquire_for(f->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

FLEET_CASE(replies_lost) {
    for (int i = 0; i < FLEET; i++) {
        proxy_drop_replies_after(f->proxy[i], FLEET_ACQUIRE);
        pair(f);
        proxy_drop_replies_after(f->proxy[i], FLEET_RELEASE);
        pair(f);
        proxy_heal(f->proxy[i]);
    }
    for (int i = 0; i < FLEET; i++)
        proxy_drop_replies_after(f->proxy[i], FLEET_ACQUIRE);
    pair(f);
    for (int i = 0; i < FLEET; i++)
        proxy_drop_replies_after(f->proxy[i], FLEET_RELEASE);
    pair(f);
}

/* A copy of a command that was given up must not act when it arrives in the end. */
FLEET_CASE_WITH(late_copies, fleet_options(), options.cmd_timeout_ms = 1500) {
    for (int i = 0; i < FLEET; i++)
        proxy_hold_request(f->proxy[i], FLEET_ACQUIRE);
    int err = hf_lock_acquire_for(f->lock, 300);
    assert_true(err == HF_ENOQUORUM || err == HF_OK);
    if (err == HF_OK)
        assert_int_equal(hf_lock_release(f->lock), HF_OK);
    for (int i = 0; i < FLEET; i++)
        proxy_heal(f->proxy[i]);
    assert_true(fleet_wait_free(f, HANG_MS));
    server_wait_clock(f->server[0], 2000); /* longer than a copy may act */
    for (int i = 0; i < FLEET; i++)
        proxy_release_held(f->proxy[i]);
    assert_int_equal(fleet_locked(f), 0);
    pair(f);
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
 * then may any two of them break. A client that is asked to renew has joined before; and of three more
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

CASE(restarted_empty_is_refilled) {
    OWN(fleet_end) struct fleet f;
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
}

CASE(a_majority_deleted_is_lost) {
    OWN(fleet_end) struct fleet f;
    struct fleet_events events = {0};
    begin_held(&f, &events);
    for (int i = 1; i < 4; i++)
        cmd_ok(f.server[i], "DEL %s", FLEET_NAME);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f.lock), HF_ELOST);
    assert_non_null(strstr(hf_last_error()->text, "fewer than a majority"));
    assert_true(fleet_wait_free(&f, HANG_MS)); /* what was left of it, too */
}

/* Until its lease has run out, a server that is down counts. */
static void wait_votes(struct fleet *f, int64_t wanted) {
    int64_t end_ms = now_ms() + HANG_MS;
    hf_acquire_options nested = fleet_wait_for(HANG_MS, HF_WATCHDOG);
    hf_result result = HF_RESULT_INIT;
    do {
        assert_true(now_ms() < end_ms);
        assert_int_equal(hf_lock_acquire_with(f->lock, &nested, &result), HF_OK);
        assert_int_equal(hf_lock_release(f->lock), HF_OK);
    } while (result.votes != wanted);
}

CASE(exactly_a_majority_and_one_restarts) {
    OWN(fleet_end) struct fleet f;
    struct fleet_events events = {0};
    begin_held(&f, &events);
    server_kill(f.server[0]);
    server_kill(f.server[1]);
    wait_votes(&f, MAJORITY);
    server_restart(f.server[2]);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(f.lock), HF_ELOST);
}

CASE(two_down_while_held) {
    OWN(fleet_end) struct fleet f;
    struct fleet_events events = {0};
    begin_held(&f, &events);
    server_kill(f.server[3]);
    server_kill(f.server[4]);
    /* for more than a lease */
    assert_true(
        HOLDS_FOR(atomic_load(&events.losses) == 0 && hf_lock_remaining_ms(f.lock) > 0, 12000));
    assert_true(hf_lock_remaining_ms(f.lock) > 0);
    assert_int_equal(hf_lock_try(f.rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f.lock), HF_OK);
    assert_true(fleet_wait_free(&f, HANG_MS));
}

FLEET_CASE_WITH(cut_off, fleet_options(), options.watchdog_ms = 4500,
                options.cmd_timeout_ms = 1500) {
    struct fleet_events events = {0};
    struct fleet_caller rival;
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS));
    for (int i = 0; i < 3; i++)
        proxy_blackhole(f->proxy[i], true, true);
    fleet_call_acquire(&rival, f->rival_lock, fleet_wait_for(HANG_MS, 60000));
    while (!atomic_load(&rival.done)) {
        /* read before: it must not be believed once the other has it */
        int64_t left_ms = hf_lock_remaining_ms(f->lock);
        assert_true(!atomic_load(&rival.done) || left_ms == 0 ||
                    hf_lock_remaining_ms(f->lock) == 0);
        (void)wait_a_moment();
    }
    assert_int_equal(hf_lock_remaining_ms(f->lock), 0);
    assert_int_equal(fleet_join(&rival), HF_OK);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    for (int i = 0; i < 3; i++)
        proxy_heal(f->proxy[i]);
    assert_int_equal(hf_lock_release(f->lock), HF_ELOST);
}

/* ---- The restart guard ---- */

FLEET_CASE_WITH(restarted_servers_have_no_vote, fleet_options(), options.restart_guard_ms = 8000) {
    int64_t start_ms = now_ms();
    for (int i = 0; i < 3; i++)
        server_restart(f->server[i]);
    assert_int_equal(hf_lock_try(f->lock), HF_ENOQUORUM);
    assert_non_null(strstr(hf_last_error()->text, "started "));
    assert_int_equal(hf_lock_acquire_for(f->lock, 100), HF_ENOQUORUM);
    assert_int_equal(hf_lock_acquire_for(f->lock, HANG_MS), HF_OK);
    assert_true(now_ms() - start_ms >= 7000); /* servers tell their age in seconds */
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

/* A lease that is shorter than the guard is renewed until enough servers are of age. */
FLEET_CASE_WITH(cold_start, fleet_options(), options.restart_guard_ms = 9000) {
    for (int i = 0; i < FLEET; i++)
        server_restart(f->server[i]);
    hf_acquire_options leased = fleet_wait_for(HANG_MS, 6000);
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire_with(f->lock, &leased, &result), HF_OK);
    assert_true(result.remaining_ms > 0);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
}

/* Two urls lead to the same server, and the client does not know that yet: a release at one frees
 * the lock at the other. */
static bool gives_back(hf_lock *lock) {
    int err = hf_lock_release(lock);
    return err == HF_OK || err == HF_ELOST;
}

FLEET_CASE(same_server_twice) {
    own_text *urls = text_of("%s %s %s", server_url(f->server[0]), proxy_url(f->proxy[0]),
                             server_url(f->server[1]));
    hf_options options = fleet_options();
    own_client *client = made(hf_open, urls, &options);
    own_lock *lock = made(hf_lock_new, client, "other");
    int err = hf_lock_try(lock);
    /* two are a majority: they may be granted it before the third has said who it is */
    for (int64_t end_ms = now_ms() + HANG_MS; err != HF_EINVAL && now_ms() < end_ms;) {
        if (err == HF_OK)
            assert_true(gives_back(lock));
        err = hf_lock_try(lock);
    }
    assert_int_equal(err, HF_EINVAL);
    assert_non_null(strstr(hf_last_error()->text, "are the same server"));
}

/* Each server grants it, but the lease is over when that is heard. Nobody else has it, so it is not busy. */
FLEET_CASE(C383_answers_that_come_after_the_lease) {
    hf_acquire_options brief = HF_ACQUIRE_OPTIONS_INIT;
    brief.wait_ms = 0;
    brief.lease_ms = 300;
    for (int i = 0; i < FLEET; i++)
        proxy_delay(f->proxy[i], FLEET_ACQUIRE, 400);
    assert_int_equal(hf_lock_acquire_with(f->lock, &brief, NULL), HF_ETIMEDOUT);
    for (int i = 0; i < FLEET; i++)
        proxy_heal(f->proxy[i]);
    assert_int_equal(hf_lock_acquire_for(f->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
}

/* Two servers are another's, and one of those that would make a majority answers late: nothing is
 * decided until it has. With a server that never answers it is the other owner's as far as anybody
 * can say. */
FLEET_CASE(C384_one_attempt_waits_for_the_answer_that_decides) {
    for (int i = 0; i < FLEET; i++) {
        int late = (i + 2) % FLEET;
        fleet_occupy(f, i);
        fleet_occupy(f, (i + 1) % FLEET);
        proxy_delay(f->proxy[late], FLEET_ACQUIRE, 200);
        assert_int_equal(hf_lock_try(f->lock), HF_OK);
        assert_int_equal(hf_lock_release(f->lock), HF_OK);
        proxy_delay(f->proxy[late], FLEET_ACQUIRE, 0);
        fleet_vacate(f, i);
        fleet_vacate(f, (i + 1) % FLEET);
        assert_true(fleet_wait_free(f, HANG_MS));
    }
    fleet_occupy(f, 0);
    fleet_occupy(f, 1);
    proxy_blackhole(f->proxy[2], true, true);
    assert_int_equal(hf_lock_try(f->lock), HF_EBUSY);
    proxy_heal(f->proxy[2]);
    fleet_vacate(f, 0);
    fleet_vacate(f, 1);
    assert_int_equal(hf_lock_acquire_for(f->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
}

#define CMD_TIMEOUT_MS 5000 /* of fleet_options() */

static void block_the_granting(struct fleet *f) {
    for (int i = 3; i < FLEET; i++)
        proxy_blackhole(f->proxy[i], true, true);
}

/* The servers that have granted it freeze as well, while the attempt waits for a last one. It ends
 * with its cmd_timeout_ms, and not that much behind the freeze. */
FLEET_CASE(C384_one_attempt_ends_in_time_if_more_servers_freeze) {
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 0;
    fleet_occupy(f, 0);
    fleet_occupy(f, 1);
    proxy_blackhole(f->proxy[2], true, true);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_start(f->lock, &options, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, CMD_TIMEOUT_MS * 9 / 10, &result), HF_EPENDING);
    block_the_granting(f);
    int64_t blocked_ms = now_ms();
    hf_op_wait(op, HANG_MS, &result);
    if (blocked_ms - start_ms < CMD_TIMEOUT_MS) /* else it was over before */
        assert_in_range(now_ms() - blocked_ms, 0, CMD_TIMEOUT_MS * 9 / 10);
    assert_int_equal(result.code, HF_EBUSY);
    hf_op_free(op);
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
