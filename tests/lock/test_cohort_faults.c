/*
 * HF_COHORT when things go wrong: a hold that is lost, one of which little is left, a thread that ends inside or
 * does not come for what it was given, a client that closes, a fork, a server that does not answer.
 */
#include "lock/cohort.h"

#include <stdio.h>
#include <stdlib.h>

static hf_options brief_options(int64_t watchdog_ms) {
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    options.watchdog_ms = watchdog_ms;
    return options;
}

/* ---- Loss ---- */

/* Whoever is inside is told; the one in line is let in by the server, not on what is gone. */
static void broken(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    bool was_held = false, mine = true;
    cohort_begin(&w, NULL, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    hf_op *next = cohort_start(w.lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w.lock);
    size_t acquires = proxy_seen(w.proxy, WORLD_ACQUIRE);
    assert_int_equal(hf_lock_break(w.lock, &was_held), HF_OK);
    assert_true(was_held);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(cohort_join(next), HF_OK);
    assert_true(proxy_seen(w.proxy, WORLD_ACQUIRE) > acquires);
    assert_int_equal(hf_lock_is_mine(w.lock, &mine), HF_OK);
    assert_false(mine);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release_as(w.lock, 11), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 1);
    assert_true(world_free(&w));
    world_end(&w);
}

/* Gone without a word: who leaves last hears it from the server. */
static void deleted(void **state) {
    (void)state;
    struct world w;
    cohort_begin(&w, NULL, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    cmd_ok(w.server, "DEL %s", WORLD_NAME);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free(&w));
    world_end(&w);
}

/* A renewal finds out: the one inside is told, whoever that is by then. */
static void deleted_when_passed_on(void **state) {
    (void)state;
    struct world w;
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
    world_end(&w);
}

/* Little is left of it, since it could not be renewed: it is not passed on. */
static void warned_of(void **state) {
    (void)state;
    struct world w;
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
    assert_true(err == HF_EUNKNOWN || err == HF_EUNREACH || err == HF_ELOST);
    assert_true(cohort_is_pending(next));
    proxy_heal(w.proxy);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, 11), HF_OK);
    world_end(&w);
}

/* ---- Threads ---- */

static void *acquire_and_end(void *arg) {
    return hf_lock_acquire(arg) == HF_OK ? arg : NULL;
}

/* A thread ends inside: its hold lasts no longer than what is proved of it, and then the next is let in. */
static void thread_ends_inside(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    pthread_t thread;
    void *acquired;
    hf_options options = brief_options(ENDURING_MS);
    cohort_begin(&w, &options, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(pthread_create(&thread, NULL, acquire_and_end, w.lock), 0);
    assert_int_equal(pthread_join(thread, &acquired), 0);
    assert_non_null(acquired);
    hf_op *next = cohort_start(w.lock, 11, HF_FOREVER, NULL);
    assert_true(world_wait_atomic(&events.orphans, 1, HANG_MS));
    assert_int_equal(cohort_join(next), HF_OK);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release_as(w.lock, 11), HF_OK);
    assert_true(world_free(&w));
    world_end(&w);
}

/* One that was let in and does not come for it is passed over, and lines up again when it does. */
static void one_is_stuck(void **state) {
    (void)state;
    struct world w;
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
    world_end(&w);
}

/* ---- Client and process ---- */

static void closing_ends_waits(void **state) {
    (void)state;
    struct world w;
    hf_op *ops[3];
    hf_client *client;
    hf_options options = world_options();
    world_begin(&w, NULL);
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
    for (int inside = 0; inside < 2; inside++) { /* of this client, or of another */
        hf_lock *lock = cohort_lock(client, HF_PLAIN, 0, 1000, COHORT_LONG_MS);
        assert_int_equal(hf_lock_acquire(inside ? lock : w.rival_lock), HF_OK);
        for (hf_owner i = 0; i < 3; i++)
            ops[i] = cohort_start(lock, 11 + i, HF_FOREVER, NULL);
        cohort_all_have_come(lock);
        assert_int_equal(hf_close(client), HF_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(cohort_join(ops[i]), HF_ECLOSED);
        hf_lock_free(lock);
        cmd_ok(w.server, "DEL %s", WORLD_NAME);
        hf_lock_release(w.rival_lock); /* lost, or never held */
        assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
    }
    assert_int_equal(hf_close(client), HF_OK);
    world_end(&w);
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

static void a_child_has_nothing(void **state) {
    (void)state;
    struct world w;
    cohort_begin(&w, NULL, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    hf_op *next = cohort_start(w.lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w.lock);
    assert_true(expect_exit(run_child(child, &w), 0, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, 11), HF_OK);
    assert_true(world_free(&w));
    world_end(&w);
}

/* ---- The server ---- */

/* It says nothing at all: all who wait are told so, and nothing is left when it does again. */
static void no_answer(void **state) {
    (void)state;
    struct world w;
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
    world_end(&w);
}

/* The answer to a grant is lost, and so is that to a release. */
static void lost_answers(void **state) {
    (void)state;
    struct world w;
    cohort_begin(&w, NULL, 1000, COHORT_LONG_MS);
    world_warm_up(w.lock);
    for (int i = 0; i < 3; i++) {
        proxy_drop_replies_after(w.proxy, WORLD_ACQUIRE);
        assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_OK);
        proxy_drop_replies_after(w.proxy, WORLD_RELEASE);
        hf_op *next = cohort_start(w.lock, 11, HF_FOREVER, NULL);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
        assert_int_equal(cohort_join(next), HF_OK);
        assert_int_equal(hf_lock_release_as(w.lock, 11), HF_OK);
        assert_true(world_wait_free(&w, HANG_MS));
    }
    world_end(&w);
}

static void another_type(void **state) {
    (void)state;
    struct world w;
    cohort_begin(&w, NULL, 1000, COHORT_LONG_MS);
    cmd_ok(w.server, "SET %s text", WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w.lock), HF_EWRONGTYPE);
    assert_int_equal(hf_lock_try(w.lock), HF_EWRONGTYPE);
    cmd_ok(w.server, "DEL %s", WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken),
        cmocka_unit_test(deleted),
        cmocka_unit_test(deleted_when_passed_on),
        cmocka_unit_test(warned_of),
        cmocka_unit_test(thread_ends_inside),
        cmocka_unit_test(one_is_stuck),
        cmocka_unit_test(closing_ends_waits),
        cmocka_unit_test(a_child_has_nothing),
        cmocka_unit_test(no_answer),
        cmocka_unit_test(lost_answers),
        cmocka_unit_test(another_type),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
