/*
 * HF_COHORT and faults: a lost hold, a hold that is about to end, a thread that ends inside or
 * ignores its grant, a client that closes, a fork, a silent server.
 */
#include "lock/cohort.h"

static hf_options brief_options(int64_t watchdog_ms) {
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    options.watchdog_ms = watchdog_ms;
    return options;
}

/* ---- Loss ---- */

/* The thread inside is notified; the queued one gets in through the server, not on the lost
 * hold. */
COHORT_CASE(broken) {
    struct world_events events = {0};
    bool was_held = false, mine = true;
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    hf_op *next = cohort_start(w->lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    size_t acquires = proxy_seen(w->proxy, WORLD_ACQUIRE);
    assert_int_equal(hf_lock_break(w->lock, &was_held), HF_OK);
    assert_true(was_held);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(cohort_join(next), HF_OK);
    assert_true(proxy_seen(w->proxy, WORLD_ACQUIRE) > acquires);
    assert_int_equal(hf_lock_is_mine(w->lock, &mine), HF_OK);
    assert_false(mine);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release_as(w->lock, 11), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 1);
    assert_true(world_free(w));
}

/* Deleted without a message: the last thread to leave learns it from the server. */
COHORT_CASE(deleted) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    cmd_ok(w->server, "DEL %s", WORLD_NAME);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
}

/* A renewal finds the loss: the thread inside is notified, whichever that is by then. */
CASE(deleted_when_passed_on) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    hf_options options = brief_options(3 * ENDURING_MS);
    cohort_begin(&w, &options, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    hf_op *next = cohort_start(w.lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w.lock);
    cmd_ok(w.server, "DEL %s", WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK); /* nothing is known yet */
    assert_int_equal(cohort_join(next), HF_OK);
    hf_op *last = cohort_start(w.lock, 12, HF_FOREVER, NULL);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release_as(w.lock, 11), HF_ELOST);
    assert_true(cohort_is_pending(last));
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(cohort_join(last), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, 12), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 1);
}

/* Little is left of it, since it could not be renewed: it is not passed on. */
CASE(warned_of) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    hf_options options = brief_options(2 * ENDURING_MS);
    cohort_begin(&w, &options, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    hf_op *next = cohort_start(w.lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w.lock);
    proxy_blackhole(w.proxy, true, true);
    assert_true(world_wait_atomic(&events.warnings, 1, HANG_MS));
    int err = hf_lock_release(w.lock);
    assert_true(err == HF_EINDOUBT || err == HF_EUNREACH || err == HF_ELOST);
    assert_true(cohort_is_pending(next));
    proxy_heal(w.proxy);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, 11), HF_OK);
}

/* ---- Threads ---- */

static void *acquire_and_end(void *arg) {
    return hf_lock_acquire(arg) == HF_OK ? arg : NULL;
}

/* A thread ends inside: its hold lasts no longer than its proof, and then the next is let in. */
CASE(thread_ends_inside) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    void *acquired;
    hf_options options = brief_options(ENDURING_MS);
    cohort_begin(&w, &options, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    pthread_t thread = started(acquire_and_end, w.lock);
    assert_int_equal(pthread_join(thread, &acquired), 0);
    assert_non_null(acquired);
    hf_op *next = cohort_start(w.lock, 11, HF_FOREVER, NULL);
    assert_true(world_wait_atomic(&events.orphans, 1, HANG_MS));
    assert_int_equal(cohort_join(next), HF_OK);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release_as(w.lock, 11), HF_OK);
    assert_true(world_free(&w));
}

/* One that was let in and does not come for it is passed over, and lines up again when it does. */
CASE(one_is_stuck) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    struct world_caller caller;
    options.flags |= HF_MANUAL_DISPATCH;
    cohort_begin(&w, &options, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    hf_op *stuck = cohort_start(w.lock, 11, HF_FOREVER, NULL);
    assert_int_equal(hf_dispatch(w.client, 0), 0);
    world_call_acquire(&caller, w.lock, world_wait_for(HANG_MS, HF_WATCHDOG));
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_join(&caller), HF_OK);
    assert_int_equal(hf_dispatch(w.client, 0), 0);
    assert_true(cohort_is_pending(stuck));
    assert_int_equal(hf_lock_release_as(w.lock, caller.owner), HF_OK);
    while (cohort_is_pending(stuck))
        hf_dispatch(w.client, 10);
    assert_int_equal(cohort_join(stuck), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, 11), HF_OK);
    assert_true(world_free(&w));
}

/* ---- Client and process ---- */

WORLD_CASE(closing_ends_waits) {
    hf_op *ops[3];
    hf_options options = world_options();
    hf_client *client = made(hf_open, server_url(w->server), &options);
    for (int inside = 0; inside < 2; inside++) { /* of this client, or of another */
        hf_lock *lock = cohort_lock(client, HF_PLAIN, 0, 1000, COHORT_LONG_MS);
        assert_int_equal(hf_lock_acquire(inside ? lock : w->rival_lock), HF_OK);
        for (hf_owner i = 0; i < 3; i++)
            ops[i] = cohort_start(lock, 11 + i, HF_FOREVER, NULL);
        cohort_all_have_come(lock);
        assert_int_equal(hf_close(client), HF_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(cohort_join(ops[i]), HF_ECLOSED);
        hf_lock_free(lock);
        cmd_ok(w->server, "DEL %s", WORLD_NAME);
        hf_lock_release(w->rival_lock); /* lost, or never held */
        assert_int_equal(hf_open(server_url(w->server), &options, &client), HF_OK);
    }
    assert_int_equal(hf_close(client), HF_OK);
}

static int child(void *arg) {
    struct world *w = arg;
    bool mine;
    if (hf_lock_acquire(w->lock) != HF_EFORKED || hf_lock_release(w->lock) != HF_EFORKED)
        return 1;
    if (hf_lock_is_mine(w->lock, &mine) != HF_EFORKED || hf_lock_remaining_ms(w->lock) != 0)
        return 2;
    hf_lock_free(w->lock);
    hf_close(w->client);
    return 0;
}

COHORT_CASE(a_child_has_nothing) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    hf_op *next = cohort_start(w->lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    assert_true(expect_exit(run_child(child, w), 0, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, 11), HF_OK);
    assert_true(world_free(w));
}

/* ---- The server ---- */

/* The server is silent: all waiters get an error, and nothing is left when it answers again. */
CASE(no_answer) {
    OWN(world_end) struct world w;
    hf_options options = brief_options(ENDURING_MS);
    options.connect_timeout_ms = 3 * WORLD_BRIEF_MS;
    cohort_begin(&w, &options, 1000, COHORT_LONG_MS);
    proxy_blackhole(w.proxy, true, true);
    hf_op *brief = cohort_start(w.lock, 11, 100, NULL);
    hf_op *patient = cohort_start(w.lock, 12, HF_FOREVER, NULL);
    cohort_all_have_come(w.lock);
    assert_int_equal(hf_lock_try(w.lock), HF_EBUSY); /* others of this process were first */
    assert_int_equal(cohort_join(brief), HF_EUNREACH);
    assert_int_equal(cohort_join(patient), HF_EUNREACH);
    assert_int_equal(hf_lock_try(w.lock), HF_EUNREACH);
    proxy_heal(w.proxy);
    assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_wait_free(&w, HANG_MS));
}

/* The answer to a grant is lost, and so is that to a release. */
COHORT_CASE(lost_answers) {
    world_warm_up(w->lock);
    for (int i = 0; i < 3; i++) {
        proxy_drop_replies_after(w->proxy, WORLD_ACQUIRE);
        assert_int_equal(hf_lock_acquire_for(w->lock, HANG_MS), HF_OK);
        proxy_drop_replies_after(w->proxy, WORLD_RELEASE);
        hf_op *next = cohort_start(w->lock, 11, HF_FOREVER, NULL);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        assert_int_equal(cohort_join(next), HF_OK);
        assert_int_equal(hf_lock_release_as(w->lock, 11), HF_OK);
        assert_true(world_wait_free(w, HANG_MS));
    }
}

COHORT_CASE(another_type) {
    cmd_ok(w->server, "SET %s text", WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_try(w->lock), HF_EWRONGTYPE);
    cmd_ok(w->server, "DEL %s", WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
