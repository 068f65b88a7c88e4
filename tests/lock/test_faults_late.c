/*
 * R02, R04, R09: a command that is held up on the way, and arrives when the client has given it
 * up.
 *
 * The proxy keeps exactly one command back (`hold` cuts the client's connection, `stall` leaves it
 * open) and delivers it on its old connection when the test says so: after the client has moved
 * on, when it must do nothing at all, or at once, when it must count for one. Leases are 60 s, so
 * nothing here ends by itself.
 */
#include "lock/faults_forms.h"

/* ---- The command is held up, and arrives late ---- */

/* The copy arrives when the client has acquired by a second one, released, and gone. */
ROW_CASES_IN(R02_late_acquire_leaves_no_hold, form, forms, struct world, w, world_begin, world_end,
             NULL) {
    hold(w, form, 0);
    proxy_hold_request(w->proxy, WORLD_ACQUIRE);
    assert_int_equal(form->acquire(w, HANG_MS), HF_OK);
    assert_int_equal(proxy_held(w->proxy), 1);
    release_exactly(w, form, 1);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_true(world_free(w));
}

/* The caller learned that nothing answered: the copy must not make it a holder afterwards. */
ROW_CASES(R04_late_acquire_after_timeout_leaves_no_hold, form, forms) {
    for (int held = 0; held <= 1; held++) {
        struct world w;
        begin_briefly(&w);
        hold(&w, form, held);
        proxy_stall_request(w.proxy, WORLD_ACQUIRE);
        assert_int_equal(form->acquire(&w, 0), HF_EUNREACH);
        assert_true(proxy_release_held(w.proxy) >= 1);
        assert_true(world_wait_count(&w, w.owner, held, HANG_MS));
        if (held > 0)
            release_exactly(&w, form, held);
        assert_int_equal(hf_lock_try(w.rival_lock), HF_OK);
        assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
        world_end(&w);
    }
}

/* The copy arrives while a successor holds: another owner, or the same one again. */
ROW_CASES_IN(R02_late_release_does_not_free_a_successor, form, forms, struct world, w, world_begin,
             world_end, NULL) {
    hold(w, form, 1);
    proxy_hold_request(w->proxy, WORLD_RELEASE);
    assert_int_equal(form->release(w), HF_OK);
    assert_int_equal(proxy_held(w->proxy), 1);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_OK);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_int_equal(world_count(w, w->rival_owner), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

ROW_CASES_IN(R02_late_release_does_not_free_our_own_next_hold, form, forms, struct world, w,
             world_begin, world_end, NULL) {
    hold(w, form, 1);
    proxy_hold_request(w->proxy, WORLD_RELEASE);
    assert_int_equal(form->release(w), HF_OK);
    assert_int_equal(form->acquire(w, 0), HF_OK); /* the same field of the same hash */
    assert_true(proxy_release_held(w->proxy) >= 1);
    release_exactly(w, form, 1);
}

/* Nested: the copy would set a count that was true once. */
ROW_CASES_IN(R02_late_nested_copies_do_not_set_old_counts, form, forms, struct world, w,
             world_begin, world_end, NULL) {
    hold(w, form, 3);
    proxy_hold_request(w->proxy, WORLD_RELEASE); /* 3 to 2 */
    assert_int_equal(form->release(w), HF_OK);
    assert_int_equal(form->release(w), HF_OK);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_int_equal(world_count(w, w->owner), 1);
    proxy_hold_request(w->proxy, WORLD_ACQUIRE); /* 1 to 2 */
    assert_int_equal(form->acquire(w, HANG_MS), HF_OK);
    assert_int_equal(form->release(w), HF_OK);
    assert_true(proxy_release_held(w->proxy) >= 1);
    release_exactly(w, form, 1);
}

/* Delivered while the client still waits to send it again: it runs, and once. */
struct early {
    struct proxy *proxy;
    pthread_t thread;
    int delivered;
};

static void *deliver_when_held(void *arg) {
    struct early *early = arg;
    early->delivered =
        proxy_wait_held(early->proxy, HANG_MS) ? proxy_release_held(early->proxy) : -2;
    return NULL;
}

static void deliver_early(struct early *early, struct proxy *proxy, const char *matcher) {
    *early = (struct early){.proxy = proxy};
    proxy_hold_request(proxy, matcher);
    assert_int_equal(pthread_create(&early->thread, NULL, deliver_when_held, early), 0);
}

static void assert_delivered(struct early *early) {
    assert_int_equal(pthread_join(early->thread, NULL), 0);
    assert_true(early->delivered >= 1);
}

ROW_CASES_IN(U18_cut_after_send_runs_once, form, forms, struct world, w, world_begin, world_end,
             NULL) {
    struct early early;
    hold(w, form, 0);
    deliver_early(&early, w->proxy, WORLD_ACQUIRE);
    assert_int_equal(form->acquire(w, HANG_MS), HF_OK);
    assert_delivered(&early);
    deliver_early(&early, w->proxy, WORLD_ACQUIRE);
    assert_int_equal(form->acquire(w, HANG_MS), HF_OK);
    assert_delivered(&early);
    assert_int_equal(world_count(w, w->owner), 2);
    deliver_early(&early, w->proxy, WORLD_RELEASE);
    assert_int_equal(form->release(w), HF_OK);
    assert_delivered(&early);
    assert_int_equal(world_count(w, w->owner), 1);
    deliver_early(&early, w->proxy, WORLD_RELEASE);
    assert_int_equal(form->release(w), HF_OK);
    assert_delivered(&early);
    assert_true(world_free(w));
    assert_int_equal(form->release(w), HF_ENOTOWNER);
}

ROW_CASES(U18_cut_before_it_ran_is_sent_again, form, forms) {
    struct world w;
    world_begin(&w, NULL);
    hold(&w, form, 0);
    proxy_hold_request(w.proxy, WORLD_ACQUIRE);
    assert_int_equal(form->acquire(&w, HANG_MS), HF_OK);
    assert_int_equal(world_count(&w, w.owner), 1);
    proxy_hold_request(w.proxy, WORLD_RELEASE);
    assert_int_equal(form->release(&w), HF_OK);
    assert_true(world_free(&w));
    world_end(&w); /* what was held never arrives */
}

/* ---- Cancelled while the command is on its way ---- */

struct canceller {
    struct world *world;
    hf_cancel *cancel;
};

static void *cancel_when_held(void *arg) {
    struct canceller *canceller = arg;
    if (!proxy_wait_held(canceller->world->proxy, HANG_MS))
        abort();
    hf_cancel_fire(canceller->cancel);
    return NULL;
}

static void cancelled_on_the_wire(int held) {
    struct world w;
    struct canceller canceller = {.world = &w};
    world_begin(&w, NULL);
    hold(&w, &forms[0], held);
    assert_int_equal(hf_cancel_new(&canceller.cancel), HF_OK);
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    options.cancel = canceller.cancel;
    proxy_stall_request(w.proxy, WORLD_ACQUIRE);
    pthread_t thread = started(cancel_when_held, &canceller);
    assert_int_equal(hf_lock_acquire_with(w.lock, &options, NULL), HF_ECANCELED);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(proxy_release_held(w.proxy) >= 1); /* in time: it acquires */
    assert_true(world_wait_count(&w, w.owner, held, HANG_MS));
    if (held > 0)
        release_exactly(&w, &forms[0], held);
    assert_true(world_free(&w));
    assert_int_equal(world_stats(w.client).cancelled, 1);
    hf_cancel_free(canceller.cancel);
    world_end(&w);
}

CASE(U22_cancelled_acquire_that_wins_is_undone) {
    cancelled_on_the_wire(0);
    cancelled_on_the_wire(1);
}

WORLD_CASE(U22_cancelled_async_acquire_that_wins_is_undone) {
    own_op *op;
    hf_result result = HF_RESULT_INIT;
    hold(w, &forms[1], 0);
    proxy_stall_request(w->proxy, WORLD_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(w->lock, NULL, NULL, NULL, &op), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    hf_op_cancel(op);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_ECANCELED);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(world_stats(w->client).holds, 0);
}

/* What a copy is answered that did nothing says nothing of the copies before it. */
static void cancel_and_refuse(struct world *w, hf_op *op) {
    hf_result result = HF_RESULT_INIT;
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    hf_op_cancel(op);
    assert_int_equal(joined(op, &result), HF_ECANCELED);
    cmd_ok(w->server, "SCRIPT FLUSH"); /* so what arrives now is refused */
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_true(world_wait_free(w, HANG_MS));
}

WORLD_CASE(U22_cancelled_copy_is_refused_after_one_that_ran) {
    hf_op *op;
    hold(w, &forms[1], 0);
    proxy_drop_replies_after(w->proxy, WORLD_ACQUIRE);
    proxy_stall_request(w->proxy, WORLD_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(w->lock, NULL, NULL, NULL, &op), HF_OK);
    cancel_and_refuse(w, op);
}

/* The one that ran was another call's, whose settlement has yielded. */
CASE(U22_cancelled_copy_is_refused_after_another_calls) {
    OWN(world_end) struct world w;
    hf_op *first, *second;
    hf_result result = HF_RESULT_INIT;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = hf_owner_self();
    world_begin(&w, NULL);
    hold(&w, &forms[1], 0);
    proxy_drop_replies_after(w.proxy, WORLD_ACQUIRE);
    proxy_stall_request(w.proxy, WORLD_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(w.lock, &options, NULL, NULL, &first), HF_OK);
    assert_true(proxy_wait_fired(w.proxy, 1, HANG_MS));
    hf_op_cancel(first);
    assert_int_equal(joined(first, &result), HF_ECANCELED);
    assert_int_equal(hf_lock_acquire_start(w.lock, &options, NULL, NULL, &second), HF_OK);
    cancel_and_refuse(&w, second);
}

static bool has_no_keys(void *server) {
    return world_keys(server) == 0;
}

/* The second is about to take over what the first may hold when it is cancelled, too: one of the
 * two sees to that. Each time it is another lock, which the first may really get. */
WORLD_CASE(two_are_cancelled) {
    enum { ROUNDS = 3000 };
    world_warm_up(w->lock);
    proxy_delay(w->proxy, WORLD_ACQUIRE, 1);
    for (int round = 0; round < ROUNDS; round++) {
        char name[32];
        own_lock *lock;
        snprintf(name, sizeof name, "lock-%d", round);
        assert_int_equal(hf_lock_new(w->client, name, &lock), HF_OK);
        for (int i = 0; i < 2; i++) {
            int err = world_acquire_and_cancel(lock, 1);
            if (err == HF_OK)
                err = hf_lock_release_as(lock, 1) == HF_OK ? HF_ECANCELED : HF_ELOST;
            assert_int_equal(err, HF_ECANCELED);
        }
    }
    proxy_heal(w->proxy);
    assert_true(wait_until(has_no_keys, w->server, HANG_MS));
    assert_int_equal(world_stats(w->client).holds, 0);
}

RUN_CASES(world_start_server, world_stop_server)
