/*
 * Faults of group locks: lost replies, late copies, broken holds and expired leases. Each is tested
 * on one set of values, and on a second set that the same owner holds.
 */
#include "lock/group.h"

static hf_options watched(int64_t watchdog_ms) {
    hf_options options = world_options();
    options.watchdog_ms = watchdog_ms;
    return options;
}

/* ---- Replies that are lost ---- */

GROUP_CASE(each_reply_is_lost_in_turn) {
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 60000);
    for (long long count = 1; count <= 2; count++) {
        proxy_drop_replies_after(w->proxy, GROUP_ACQUIRE);
        assert_int_equal(hf_lock_acquire_with(w->lock, &leased, NULL), HF_OK);
        assert_int_equal(group_number(w->server, "jack", w->owner, "lock_count"), count);
        assert_int_equal(group_number(w->server, "mary", w->owner, "lock_count"), count);
    }
    proxy_drop_replies_after(w->proxy, GROUP_RENEW);
    assert_int_equal(hf_lock_extend(w->lock, 90000), HF_OK);
    proxy_drop_replies_after(w->proxy, GROUP_RELEASE);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(group_number(w->server, "jack", w->owner, "lock_count"), 1);
    proxy_drop_replies_after(w->proxy, GROUP_RELEASE);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
    assert_true(proxy_wait_fired(w->proxy, 5, HANG_MS));

    bool broken = false;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    proxy_drop_replies_after(w->proxy, GROUP_FORCE);
    assert_int_equal(hf_lock_break(w->lock, &broken), HF_OK);
    assert_true(broken);
    assert_true(world_free(w));
}

/* The command comes when nobody waits for it any more. */
GROUP_CASE_WITH(a_late_acquire_takes_nothing, world_options(),
                options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    proxy_hold_request(w->proxy, GROUP_ACQUIRE);
    proxy_refuse(w->proxy, true);
    assert_int_equal(hf_lock_try(w->lock), HF_EUNREACH);
    proxy_refuse(w->proxy, false);
    server_wait_clock(w->server, 1100); /* its not-after has passed */
    assert_int_equal(proxy_release_held(w->proxy), 1);
    assert_true(world_free(w));
    assert_int_equal(hf_lock_try(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

/* The outcome of an acquire is unknown, and it is undone in the background. Meanwhile its owner
 * wants other values, some of them the same: what undoes the first must not hit the second. */
GROUP_CASE_WITH(an_undo_is_waited_for, world_options(), options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    own_lock *across = new_values(w->client, "mary paul");
    proxy_mute_replies_after(w->proxy, GROUP_ACQUIRE);
    proxy_refuse(w->proxy, true); /* so that it is not undone before it was looked at */
    assert_int_equal(hf_lock_try(w->lock), HF_EUNREACH);
    assert_true(group_held_by(w->server, "mary", w->owner)); /* nobody knows of it */
    proxy_refuse(w->proxy, false);
    assert_int_equal(hf_lock_acquire_for(across, HANG_MS), HF_OK);
    assert_true(group_held_by(w->server, "jack", ""));
    assert_true(HOLDS_FOR(group_held_by(w->server, "mary", w->owner) &&
                              group_held_by(w->server, "paul", w->owner),
                          1000));
    assert_int_equal(hf_lock_release(across), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
}

/* Something of its owner was in its way until its wait was over. It has asked for nothing, and gives back
 * what it wanted, all the same: that must not hit what the owner acquires next. */
GROUP_CASE(a_waiter_that_gave_up_before_asking_is_waited_for) {
    hf_acquire_options own = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    hf_op *op;
    hf_lock *across = new_values(w->client, "mary paul"), *paul = new_values(w->client, "paul");
    own.owner = hf_owner_self();
    proxy_stall_request(w->proxy, GROUP_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(w->lock, &own, NULL, NULL, &op), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    hf_op_cancel(op);
    assert_int_equal(joined(op, NULL), HF_ECANCELED);
    assert_int_equal(hf_lock_acquire_for(across, 50), HF_ETIMEDOUT);
    int err = hf_lock_acquire_for(paul, 300);
    proxy_release_held(w->proxy);
    if (err != HF_OK)
        assert_int_equal(hf_lock_acquire_for(paul, HANG_MS), HF_OK);
    assert_true(HOLDS_FOR(group_held_by(w->server, "paul", w->owner), 1000));
    assert_int_equal(hf_lock_release(paul), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
    hf_lock_free(across);
    hf_lock_free(paul);
}

/* ---- Renewals ---- */

/* Another thread of the client, which holds "paul" until it is asked to stop. */
struct paul {
    pthread_t thread;
    hf_client *client;
    char owner[64];
    atomic_int held, stop;
    int released;
};

static void *hold_paul(void *arg) {
    struct paul *paul = arg;
    own_lock *lock = new_values(paul->client, "paul");
    world_owner_text(paul->client, hf_owner_self(), paul->owner);
    atomic_store(&paul->held, hf_lock_acquire(lock) == HF_OK ? 1 : -1);
    world_wait_atomic(&paul->stop, 1, 2 * HANG_MS);
    paul->released = hf_lock_release(lock);
    return NULL;
}

static long long ends_at(struct world *w, const char *value, const char *owner) {
    return group_number(w->server, value, owner, "expire_time");
}

/* A Java client renews the values of one of its threads only. */
GROUP_CASE_WITH(C120_the_values_of_every_thread_are_renewed, watched(ENDURING_MS)) {
    struct paul paul = {0};
    paul.client = w->client;
    own_lock *rival = new_values(w->rival, "paul");
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(pthread_create(&paul.thread, NULL, hold_paul, &paul), 0);
    assert_true(world_wait_atomic(&paul.held, 1, HANG_MS));
    long long ours_ms = ends_at(w, "jack", w->owner), pauls_ms = ends_at(w, "paul", paul.owner);
    int64_t until_ms = now_ms() + HANG_MS;
    while (ends_at(w, "jack", w->owner) < ours_ms + ENDURING_MS ||
           ends_at(w, "paul", paul.owner) < pauls_ms + ENDURING_MS) {
        assert_true(now_ms() < until_ms);
        assert_int_equal(hf_lock_try(w->rival_lock), HF_EBUSY);
        assert_int_equal(hf_lock_try(rival), HF_EBUSY);
        (void)wait_a_moment();
    }
    long long jacks_ms, marys_ms;
    do { /* until there is no renewal between the two looks */
        jacks_ms = ends_at(w, "jack", w->owner);
        marys_ms = ends_at(w, "mary", w->owner);
    } while (jacks_ms != ends_at(w, "jack", w->owner));
    assert_int_equal(jacks_ms, marys_ms);
    atomic_store(&paul.stop, 1);
    pthread_join(paul.thread, NULL);
    assert_int_equal(paul.released, HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
}

/* C131: a client that is gone holds nothing for longer than a lease. */
GROUP_CASE(C131_a_client_that_is_gone) {
    hf_options options = watched(2400);
    hf_client *gone = made(hf_open, server_url(w->server), &options);
    hf_lock *lock = new_values(gone, "jack");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    hf_lock_free(lock);
    hf_close(gone);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_for(w->lock, HANG_MS), HF_OK);
    assert_true(now_ms() - start_ms < 9000); /* by the lease: the next poll would be after 10 s */
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* ---- Losses ---- */

static bool mary_is_free(void *arg) {
    return group_held_by(arg, "mary", "");
}

static bool jack_is_free(void *arg) {
    return group_held_by(arg, "jack", "");
}

static bool has_lost(void *arg) {
    return world_stats(arg).losses > 0;
}

/* One of its values is broken: the hold is over, its holder is notified at once, and the rest is given
 * up without waiting for its lease. */
GROUP_CASE_WITH(one_value_is_broken, watched(600000)) {
    bool broken = false;
    own_lock *jack = new_values(w->rival, "jack");
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(wait_until(server_questions_are_received, w->server, HANG_MS)); /* it listens */
    assert_int_equal(hf_lock_break(jack, &broken), HF_OK);
    assert_true(broken);
    assert_true(wait_until(has_lost, w->client, 5000));
    assert_true(wait_until(mary_is_free, w->server, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

/* The same through a handle of its own client, which need not be notified by the server. */
GROUP_CASE(one_value_is_broken_by_its_own_client) {
    bool broken = false;
    struct world_events events = {0};
    own_lock *mary = new_values(w->client, "mary paul");
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_break(mary, &broken), HF_OK);
    assert_true(broken);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(wait_until(jack_is_free, w->server, HANG_MS)); /* its lease is twice as long */
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
}

/* Somebody has deleted a value, as Java's forceUnlock() does: a release finds out, and leaves
 * nothing of the rest. */
GROUP_CASE(a_release_that_finds_one_value_gone) {
    char field[HFI_FIELD_LEN + 1];
    group_field("jack", field);
    for (int nested = 0; nested < 2; nested++) {
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        if (nested)
            assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        cmd_ok(w->server, "HDEL " WORLD_NAME " %s %s:%s:expire_time %s:%s:lock_count", field, field,
               w->owner, field, w->owner);
        assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
        assert_true(world_free(w));
        assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    }
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    cmd_ok(w->server, "HDEL " WORLD_NAME " %s", field);
    assert_int_equal(hf_lock_acquire(w->lock), HF_ELOST);
    assert_true(world_free(w));
}

/* A hold that ran out while others keep the group's key: it is reported, and nothing of it stays. */
GROUP_CASE(a_hold_that_ran_out_leaves_nothing) {
    struct world_events events = {0};
    hf_acquire_options brief = world_wait_for(HF_FOREVER, 400);
    hf_lock *paul = new_values(w->rival, "paul"), *across = new_values(w->client, "mary peter");
    assert_int_equal(hf_lock_acquire(paul), HF_OK);
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    world_acquire_brief(w->lock, &brief);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(wait_until(mary_is_free, w->server, 5000));
    assert_int_equal(cmd_int(w->server, "HLEN " WORLD_NAME), 3);

    /* An overlapping set right after it ran out: what ends the first does not hit the second. */
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    world_acquire_brief(w->lock, &brief);
    assert_true(world_wait_atomic(&events.losses, 2, HANG_MS));
    assert_int_equal(hf_lock_acquire_for(across, HANG_MS), HF_OK);
    assert_true(HOLDS_FOR(group_held_by(w->server, "mary", w->owner) &&
                              group_held_by(w->server, "peter", w->owner),
                          1000));
    assert_int_equal(hf_lock_release(across), HF_OK);
    assert_int_equal(hf_lock_release(paul), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
    hf_lock_free(paul);
    hf_lock_free(across);
}

/* One hold runs out, and its owner wants other values at once, one of them the same. No other owner
 * has any of them. 200 ms may be too little on a busy machine, but not each time. */
GROUP_CASE(C380_other_values_of_an_owner_whose_hold_ran_out) {
    struct world_events events = {0};
    hf_acquire_options brief = world_wait_for(HF_FOREVER, 400);
    own_lock *across = new_values(w->client, "mary peter");
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    int err = HF_ETIMEDOUT;
    for (int i = 1; i <= 10 && err == HF_ETIMEDOUT; i++) {
        world_acquire_brief(w->lock, &brief);
        assert_true(world_wait_atomic(&events.losses, i, HANG_MS));
        err = hf_lock_acquire_for(across, 200);
        assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    }
    assert_int_equal(err, HF_OK);
    assert_true(HOLDS_FOR(group_held_by(w->server, "mary", w->owner), 700));
    assert_int_equal(hf_lock_release(across), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
}

/* The same while the server does not answer: the owner gets the server as the reason. */
GROUP_CASE_WITH(C381_other_values_while_the_server_is_silent, world_options(),
                options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    struct world_events events = {0};
    hf_acquire_options brief = world_wait_for(HF_FOREVER, 400);
    own_lock *across = new_values(w->client, "mary peter");
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    world_acquire_brief(w->lock, &brief);
    proxy_refuse(w->proxy, true);
    proxy_cut_all(w->proxy);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_acquire_for(across, 3000), HF_EUNREACH);
    proxy_refuse(w->proxy, false);
    assert_int_equal(hf_lock_acquire_for(across, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(across), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_true(world_wait_free(w, HANG_MS));
}

RUN_CASES(world_start_server, world_stop_server)
