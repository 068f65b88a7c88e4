/*
 * What the plain lock's kin have in common with it: rows C029 to C048 of the catalogue (there about
 * the spin lock), lost replies, cancelled waits and wrong types, for every kind in turn.
 *
 * Each row is played once for each kind but the plain one, which has tests of its own, as a test
 * "row.kind". What only one kind does is in test_kinds_*.c.
 */
#include "lock/kinds.h"
#include "support/crowd.h"

#include <sched.h>

static int64_t ask_count(hf_lock *lock) {
    int64_t count = -1;
    assert_int_equal(hf_lock_hold_count(lock, &count), HF_OK);
    return count;
}

static bool ask_locked(hf_lock *lock) {
    bool locked = false;
    assert_int_equal(hf_lock_is_locked(lock, &locked), HF_OK);
    return locked;
}

static bool ask_mine(hf_lock *lock) {
    bool mine = false;
    assert_int_equal(hf_lock_is_mine(lock, &mine), HF_OK);
    return mine;
}

/* ---- Holding and asking ---- */

ROW_CASES(C036_hold_count, kind, kin) {
    OWN(world_end) struct world w;
    kind_begin(&w, kind->kind, NULL);
    const int64_t deepest = kind->reentrant ? 2 : 1;
    for (int64_t depth = 1; depth <= deepest; depth++) {
        assert_int_equal(ask_count(w.lock), 0);
        for (int64_t held = 1; held <= depth; held++) {
            assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
            assert_int_equal(ask_count(w.lock), held);
            assert_int_equal(world_count(&w, w.owner), held);
        }
        for (int64_t held = depth; held > 0; held--) {
            assert_int_equal(ask_count(w.lock), held);
            assert_int_equal(hf_lock_release(w.lock), HF_OK);
        }
    }
    assert_int_equal(ask_count(w.lock), 0);
    assert_true(world_free(&w));
}

struct elsewhere {
    hf_lock *lock;
    int err, release_err;
    bool mine, locked;
};

static void *ask_and_release(void *arg) {
    struct elsewhere *e = arg;
    e->err = hf_lock_is_mine(e->lock, &e->mine);
    if (e->err == HF_OK)
        e->err = hf_lock_is_locked(e->lock, &e->locked);
    e->release_err = hf_lock_release(e->lock);
    return NULL;
}

static struct elsewhere on_another_thread(hf_lock *lock) {
    struct elsewhere e = {.lock = lock, .err = HF_EINVAL};
    pthread_t thread = started(ask_and_release, &e);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(e.err, HF_OK);
    return e;
}

ROW_CASES(C037_C039_C041_asked_and_released_by_another, kind, kin) {
    OWN(world_end) struct world w;
    kind_begin(&w, kind->kind, NULL);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    struct elsewhere during = on_another_thread(w.lock);
    assert_false(during.mine);
    assert_true(during.locked);
    assert_int_equal(during.release_err, HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_ENOTOWNER);
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    struct elsewhere after = on_another_thread(w.lock);
    assert_false(after.mine);
    assert_false(after.locked);
}

ROW_CASES(C040_C042_before_during_after_twice, kind, kin) {
    OWN(world_end) struct world w;
    kind_begin(&w, kind->kind, NULL);
    for (int round = 0; round < 2; round++) {
        assert_false(ask_locked(w.lock));
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        assert_true(ask_locked(w.lock));
        assert_true(ask_mine(w.lock));
        assert_false(ask_mine(w.rival_lock));
        assert_int_equal(hf_lock_try(w.rival_lock), HF_EBUSY);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
    }
    assert_false(ask_locked(w.lock));
    assert_int_equal(world_keys(w.server), kind->token ? 1 : 0);
}

ROW_CASES(C043_reentrancy, kind, kin) {
    OWN(world_end) struct world w;
    struct world_caller other;
    kind_begin(&w, kind->kind, NULL);
    assert_int_equal(hf_lock_try(w.lock), HF_OK);
    assert_int_equal(hf_lock_try(w.lock), kind->reentrant ? HF_OK : HF_EDEADLK);
    if (kind->reentrant)
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
    world_call_acquire(&other, w.lock, world_wait_for(0, HF_WATCHDOG));
    assert_int_equal(world_join(&other), HF_EBUSY);
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free(&w));
}

/* Also by a handle of another kind; and a break tells waiters of every kind. */
ROW_CASES(C032_break_from_two_handles, kind, kin) {
    OWN(world_end) struct world w;
    bool broken = false;
    kind_begin(&w, kind->kind, NULL);
    hf_lock *plain = new_handle(w.rival, HF_PLAIN);
    struct monitor *monitor = monitor_start(w.server);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_break(w.rival_lock, &broken), HF_OK);
    assert_true(broken);
    assert_false(ask_locked(w.lock));
    assert_false(ask_locked(plain));
    assert_int_equal(monitor_count(monitor, "lua] \"publish\" \"" WORLD_CHANNEL), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);

    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_break(plain, &broken), HF_OK);
    assert_true(broken);
    assert_int_equal(hf_lock_break(w.lock, &broken), HF_OK);
    assert_false(broken);
    monitor_stop(monitor);
    hf_lock_free(plain);
}

/* ---- Time ---- */

ROW_CASES(C033_waiter_enters_when_the_lease_ends, kind, kin) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    kind_begin(&w, kind->kind, NULL);
    hf_acquire_options brief = world_wait_for(0, 400);
    int64_t start_ms = now_ms();
    world_acquire_brief(w.lock, &brief);
    world_call_acquire(&waiter, w.rival_lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms >= 400);
    assert_true(now_ms() - start_ms < 9000); /* by the lease: the next poll would be after 10 s */
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(hf_lock_release_as(w.rival_lock, waiter.owner), HF_OK);
}

/* Renewed past its lease while the client lives, and free within one when it is closed. */
ROW_CASES(C035_watchdog_and_a_closed_client, kind, kin) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    kind_begin(&w, kind->kind, &options);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_true(WAIT_FOR(now_ms() - start_ms > ENDURING_MS && world_stats(w.client).renewals >= 4,
                         HANG_MS));
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(hf_close(w.client), HF_OK);
    assert_true(world_wait_free(&w, HANG_MS));
    w.client = NULL;
}

ROW_CASES(C048_timed_async_wait, kind, kin) {
    OWN(world_end) struct world w;
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    kind_begin(&w, kind->kind, NULL);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    hf_acquire_options options = world_wait_for(HANG_MS, 30000);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_start(w.lock, &options, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, 300, NULL), HF_EPENDING);
    assert_true(now_ms() - start_ms >= 300);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    int64_t freed_ms = now_ms();
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_true(now_ms() - freed_ms < 9000); /* not by the poll */
    assert_int_equal(result.count, 1);
    assert_int_equal(result.token > 0, kind->token);
    assert_in_range(pttl(w.server, WORLD_NAME), 1, 30000);
    hf_op_free(op);
    assert_int_equal(hf_lock_release_as(w.lock, result.owner), HF_OK);

    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    start_ms = now_ms();
    assert_int_equal(world_acquire_async(w.lock, 0, 300, NULL), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= 300);
    assert_true(now_ms() - start_ms < 9000);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
}

ROW_CASES(C029_server_gone_is_an_error, kind, kin) {
    OWN(world_end) struct world w;
    hf_options options = kind_impatient();
    options.connect_timeout_ms = 2500;
    own_server *server = server_start(NULL);
    kind_begin_on(&w, server, kind->kind, &options);
    server_kill(server);
    assert_int_equal(hf_lock_acquire_for(w.lock, 300), HF_EUNREACH);
    assert_int_equal(hf_lock_try(w.lock), HF_EUNREACH);
}

/* ---- Many at once ---- */

struct worker {
    hf_lock *lock;
    int64_t *counter; /* nothing but the lock guards it */
    int err;
};

static void *count_up(void *arg) {
    struct worker *worker = arg;
    for (int i = 0; i < 5 && worker->err == HF_OK; i++) {
        worker->err = hf_lock_acquire(worker->lock);
        if (worker->err != HF_OK)
            break;
        int64_t seen = __atomic_load_n(worker->counter, __ATOMIC_RELAXED);
        sched_yield();
        __atomic_store_n(worker->counter, seen + 1, __ATOMIC_RELAXED);
        worker->err = hf_lock_release(worker->lock);
    }
    return NULL;
}

ROW_CASES(C044_C046_many_threads_and_clients, kind, kin) {
    OWN(world_end) struct world w;
    enum { THREADS = 15, CLIENTS = 5 };
    struct worker workers[THREADS];
    struct crowd crowd = {0};
    hf_client *clients[CLIENTS];
    hf_lock *locks[CLIENTS];
    int64_t counter = 0;
    kind_begin(&w, kind->kind, NULL);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(hf_open(server_url(w.server), NULL, &clients[i]), HF_OK);
        locks[i] = new_handle(clients[i], kind->kind);
    }
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.lock = locks[i % CLIENTS], .counter = &counter};
        crowd_add(&crowd, count_up, &workers[i]);
    }
    crowd_join(&crowd);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(workers[i].err, HF_OK);
    assert_int_equal(counter, THREADS * 5);
    assert_true(world_free(&w));
    for (int i = 0; i < CLIENTS; i++) {
        hf_lock_free(locks[i]);
        assert_int_equal(hf_close(clients[i]), HF_OK);
    }
}

/* ---- Waking each other ---- */

static void wakes(any_kind holder_kind, any_kind waiter_kind) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    kind_begin(&w, holder_kind, NULL);
    own_client *client = made(hf_open, server_url(w.server), NULL);
    own_lock *lock = new_handle(client, waiter_kind);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    struct monitor *monitor = monitor_start(w.server);
    world_call_acquire(&waiter, lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    /* Two attempts, the second after the subscription if it has one; each is seen as the script and
     * as the look at the owner's field in it. */
    own_text *owner = text_of("\"%s:", hf_client_id(client));
    assert_true(monitor_wait(monitor, owner, 4, HANG_MS));
    monitor_stop(monitor);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms < 9000); /* the lease is a minute, the poll 10 s */
    assert_int_equal(hf_lock_release_as(lock, waiter.owner), HF_OK);
}

ROW_CASES(R05_wakes_waiters_of_every_kind, kind, kin) {
    wakes(kind->kind, HF_PLAIN);
    for (int i = 0; i < KIN; i++)
        wakes(kind->kind, kin[i].kind);
}

/* ---- Lost replies, cancelled waits ---- */

ROW_CASES(U14_U15_replies_lost, kind, kin) {
    OWN(world_end) struct world w;
    kind_begin(&w, kind->kind, NULL);
    proxy_drop_replies_after(w.proxy, kind->acquire->sha1);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(world_count(&w, w.owner), 1);
    proxy_drop_replies_after(w.proxy, WORLD_RELEASE);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(proxy_fired(w.proxy), 2);
    assert_true(world_free(&w));
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
}

ROW_CASES(R04_acquire_never_answered_is_undone, kind, kin) {
    OWN(world_end) struct world w;
    hf_options options = kind_impatient();
    kind_begin(&w, kind->kind, &options);
    proxy_mute_replies_after(w.proxy, kind->acquire->sha1);
    assert_int_equal(hf_lock_try(w.lock), HF_EUNREACH);
    assert_int_equal(proxy_fired(w.proxy), 1); /* so it had run */
    assert_true(world_wait_free(&w, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

ROW_CASES(R09_cancelled_wait_leaves_nothing, kind, kin) {
    OWN(world_end) struct world w;
    own_cancel *cancel;
    struct world_caller waiter;
    kind_begin(&w, kind->kind, NULL);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    size_t seen = proxy_seen(w.proxy, kind->acquire->sha1);
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    options.cancel = cancel;
    world_call_acquire(&waiter, w.lock, options);
    assert_true(proxy_wait_seen(w.proxy, kind->acquire->sha1, seen + 2, HANG_MS));
    hf_cancel_fire(cancel);
    assert_int_equal(world_join(&waiter), HF_ECANCELED);
    assert_true(waiter.took_ms < 9000);
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    /* The last attempt may have been on its way when it was cancelled: then it is undone in the background. */
    assert_true(world_wait_free(&w, HANG_MS));
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

/* ---- Loss ---- */

/* One hold, whatever the handles: a plain handle hears of the loss, and the kind's own as well. */
ROW_CASES(R06_loss_is_reported_to_handles_of_every_kind, kind, kin) {
    OWN(world_end) struct world w;
    struct world_events own = {0}, others = {0};
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    kind_begin(&w, kind->kind, &options);
    own_lock *other = new_handle(w.client, HF_PLAIN);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &own), HF_OK);
    assert_int_equal(hf_lock_on_lost(other, world_on_event, &others), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    cmd_ok(w.server, "DEL " WORLD_NAME);
    assert_true(world_wait_atomic(&own.losses, 1, HANG_MS));
    assert_true(world_wait_atomic(&others.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(other), HF_ELOST); /* once, through whichever handle */
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
}

/* ---- Other things under the name ---- */

ROW_CASES(U67_U68_no_lock_of_ours, kind, kin) {
    OWN(world_end) struct world w;
    static const char *const there[] = {"SET " WORLD_NAME " text", "RPUSH " WORLD_NAME " x",
                                        "HSET " WORLD_NAME " mode read someone:1 1"};
    bool broken = false;
    kind_begin(&w, kind->kind, NULL);
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        cmd_ok(w.server, "FLUSHALL");
        cmd_ok(w.server, there[i]);
        assert_int_equal(hf_lock_try(w.lock), HF_EWRONGTYPE);
        assert_int_equal(hf_lock_acquire_for(w.lock, 1000), HF_EWRONGTYPE);
        assert_int_equal(hf_lock_break(w.lock, &broken), HF_EWRONGTYPE);
        assert_int_equal(world_keys(w.server), 1); /* and no token was drawn */
    }
}

RUN_CASES(world_start_server, world_stop_server)
