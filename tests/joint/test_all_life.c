/* One lock out of many: waits that are cancelled, clients that are closed in every phase, threads that
 * end, forks, asynchronous calls and manual dispatch, handles that are freed. */
#include "joint/pack.h"

#define LATE_MS 200

static void done(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    atomic_store((atomic_int *)user, result->code == HF_OK ? 1 : result->code);
}

static bool has_outcome(void *arg) {
    return atomic_load((atomic_int *)arg) != 0;
}

static int outcome_of(atomic_int *outcome) {
    assert_true(wait_until(has_outcome, outcome, HANG_MS));
    return atomic_load(outcome);
}

static void close_client(struct pack *p, int i) {
    assert_int_equal(hf_close(p->client[i]), HF_OK);
    p->client[i] = NULL;
}

/* ---- Cancelled ---- */

PACK_CASE(cancelled_while_it_waits) {
    struct fleet_caller caller;
    hf_cancel *cancel;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    pack_occupy(p, 1);
    hf_acquire_options options = fleet_wait_for(HF_FOREVER, HF_WATCHDOG);
    options.cancel = cancel;
    fleet_call_acquire(&caller, p->all, options);
    assert_true(proxy_wait_seen(p->proxy[1], "\r\nSUBSCRIBE\r\n", 1, HANG_MS));
    hf_cancel_fire(cancel);
    assert_int_equal(fleet_join(&caller), HF_ECANCELED);
    assert_true(pack_wait_locked(p, 1, HANG_MS));
    fleet_call_acquire(&caller, p->all, options); /* the switch has been fired: not even begun */
    assert_int_equal(fleet_join(&caller), HF_ECANCELED);
    hf_cancel_free(cancel);
    pack_vacate(p, 1);
}

/* A cancelled acquire does not wait for a silent server; its grants are given back. */
CASE(cancelled_while_it_asks) {
    for (int i = 0; i < PACK; i++) {
        struct pack p;
        hf_op *op;
        hf_result result = HF_RESULT_INIT;
        hf_options options = pack_options();
        options.cmd_timeout_ms = 600000;
        pack_begin(&p, &options);
        proxy_blackhole(p.proxy[i], false, true);
        assert_int_equal(hf_lock_acquire_start(p.all, NULL, NULL, NULL, &op), HF_OK);
        assert_true(pack_wait_locked(&p, PACK, HANG_MS));
        hf_op_cancel(op);
        assert_int_equal(joined(op, &result), HF_ECANCELED);
        assert_true(pack_wait_locked(&p, 1, HANG_MS));
        proxy_heal(p.proxy[i]);
        pack_end(&p);
    }
}

/* One that two rivals keep out. It waits at either, since the order of members is that of their clients' ids. */
struct pausing {
    struct pack p;
    struct fleet_caller caller;
    size_t given_back;
    int first; /* where it waits; 0: nowhere yet */
};

static bool waits_or_is_done(void *arg) {
    struct pausing *pausing = arg;
    for (int i = 1; i < PACK; i++)
        if (proxy_seen(pausing->p.proxy[i], "\r\nSUBSCRIBE\r\n") > 0)
            pausing->first = i;
    return pausing->first != 0 || atomic_load(&pausing->caller.done);
}

/* When it has got the first, finds the other one busy, and gives way for the second time in a row, it pauses
 * before it waits there. As both are asked late, the pause is long, nearly always. */
static void pausing_begin(struct pausing *pausing, hf_acquire_options options) {
    struct pack *p = &pausing->p;
    pausing->first = 0;
    pack_begin(p, NULL);
    for (int i = 1; i < PACK; i++) {
        pack_occupy(p, i);
        proxy_delay(p->proxy[i], FLEET_ACQUIRE, LATE_MS);
    }
    fleet_call_acquire(&pausing->caller, p->all, options);
    assert_true(wait_until(waits_or_is_done, pausing, HANG_MS));
    if (pausing->first == 0)
        pausing->first = 1; /* its time is over already */
    pausing->given_back = proxy_seen(p->proxy[pausing->first], FLEET_RELEASE);
    pack_vacate(p, pausing->first);
}

/* Only the other rival has anything. */
static void pausing_end(struct pausing *pausing) {
    struct pack *p = &pausing->p;
    assert_true(pack_wait_locked(p, 1, HANG_MS));
    for (int i = 1; i < PACK; i++)
        proxy_heal(p->proxy[i]);
    pack_vacate(p, PACK - pausing->first);
    pack_end(p);
}

CASE(cancelled_in_its_pause) {
    OWN(pausing_end) struct pausing pausing;
    own_cancel *cancel;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    hf_acquire_options options = fleet_wait_for(HF_FOREVER, HF_WATCHDOG);
    options.cancel = cancel;
    pausing_begin(&pausing, options);
    assert_true(proxy_wait_seen(pausing.p.proxy[pausing.first], FLEET_RELEASE,
                                pausing.given_back + 1, HANG_MS));
    hf_cancel_fire(cancel);
    assert_int_equal(fleet_join(&pausing.caller), HF_ECANCELED);
}

CASE_IN(too_late_in_its_pause, struct pausing, pausing, pausing_begin, pausing_end,
        fleet_wait_for(3 * LATE_MS, HF_WATCHDOG)) {
    assert_int_equal(fleet_join(&pausing->caller), HF_ETIMEDOUT);
}

/* ---- Closed ---- */

/* The client of the whole, or of another member, is closed while it waits at one of them. */
CASE(closed_while_it_waits) {
    for (int waits_at = 0; waits_at < PACK; waits_at++) {
        for (int closes = 0; closes < PACK; closes++) {
            struct pack p;
            struct fleet_caller caller;
            if (closes != 0 && closes != waits_at)
                continue;
            pack_begin(&p, NULL);
            pack_occupy(&p, waits_at);
            fleet_call_acquire(&caller, p.all, fleet_wait_for(HF_FOREVER, HF_WATCHDOG));
            assert_true(proxy_wait_seen(p.proxy[waits_at], "\r\nSUBSCRIBE\r\n", 1, HANG_MS));
            close_client(&p, closes);
            assert_int_equal(fleet_join(&caller), HF_ECLOSED);
            pack_vacate(&p, waits_at);
            pack_end(&p);
        }
    }
}

static bool is_free_but_for_the_silent_one(void *arg) {
    struct pack *p = arg;
    return !key_exists(p->server[0], pack_names[0]) && !key_exists(p->server[1], pack_names[1]);
}

/* While one is silent. The client of the whole gives back what it got of its own server, too. The silent one may hear
 * that it is given back, which nobody hears of then, or not. */
CASE(closed_while_it_asks) {
    for (int async = 0; async < 2; async++) {
        struct pack p;
        struct fleet_caller caller;
        atomic_int outcome = 0;
        hf_options options = pack_options();
        pack_begin(&p, &options);
        proxy_blackhole(p.proxy[2], false, true);
        if (async)
            assert_int_equal(hf_lock_acquire_start(p.all, NULL, done, &outcome, NULL), HF_OK);
        else
            fleet_call_acquire(&caller, p.all, fleet_wait_for(HF_FOREVER, HF_WATCHDOG));
        assert_true(pack_wait_locked(&p, PACK, HANG_MS));
        close_client(&p, 0);
        assert_int_equal(async ? outcome_of(&outcome) : fleet_join(&caller), HF_ECLOSED);
        assert_true(wait_until(is_free_but_for_the_silent_one, &p, HANG_MS));
        proxy_heal(p.proxy[2]);
        pack_end(&p);
    }
}

/* A member's client is closed: the hold ends with that member's lease, and the rest is released. */
PACK_CASE_WITH(a_members_client_is_closed, pack_options(), options.watchdog_ms = ENDURING_MS) {
    struct fleet_events events = {0};
    assert_int_equal(hf_lock_on_lost(p->all, fleet_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    close_client(p, 1);
    assert_true(fleet_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(p->all), HF_ELOST);
    assert_int_equal(hf_lock_acquire_for(p->all, HANG_MS), HF_ECLOSED);
    assert_int_equal(hf_last_error()->text[1], 'b');
}

/* And if it is closed while it is held, and released then: what can be released is. */
CASE_IN(released_after_a_members_client_was_closed, struct pack, p, pack_begin, pack_end_anyhow,
        NULL) {
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    close_client(p, 1);
    assert_int_equal(hf_lock_release(p->all), HF_ECLOSED);
    assert_int_equal(pack_locked(p), 1);
}

/* The client of the whole is closed: as always, nothing is released, but nothing is renewed, either. */
PACK_CASE_WITH(its_client_is_closed, pack_options(), options.watchdog_ms = ENDURING_MS) {
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    assert_int_equal(hf_lock_acquire(p->lock[2]), HF_OK); /* this one is somebody's still */
    close_client(p, 0);
    assert_int_equal(hf_lock_release(p->all), HF_ECLOSED);
    assert_int_equal(hf_lock_acquire(p->all), HF_ECLOSED);
    assert_true(pack_wait_locked(p, 1, HANG_MS));
    assert_true(hf_lock_remaining_ms(p->lock[2]) > 0);
    /* what the whole had of it is given back, or runs out if this was quicker */
    assert_int_equal(hf_lock_release(p->lock[2]), HF_OK);
    assert_true(pack_wait_free(p, HANG_MS));
}

static hf_owner acquire_as_nobody(struct pack *p) {
    own_op *op;
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire_start(p->all, NULL, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    return result.owner;
}

/* One does not answer the release, and the client of the whole, or that of the one, is closed: as it has
 * reached all of them, nothing is left. */
CASE(closed_while_it_releases) {
    for (int closes = 0; closes < PACK; closes += 2) {
        struct pack p;
        atomic_int outcome = 0;
        hf_options options = pack_options();
        options.cmd_timeout_ms = 4500; /* by then the others have answered */
        pack_begin(&p, &options);
        hf_owner owner = acquire_as_nobody(&p);
        proxy_blackhole(p.proxy[2], false, true);
        assert_int_equal(hf_lock_release_start(p.all, owner, done, &outcome, NULL), HF_OK);
        assert_true(pack_wait_free(&p, HANG_MS));
        close_client(&p, closes);
        int err = outcome_of(&outcome);
        assert_true(err == HF_ECLOSED || err == HF_EINDOUBT);
        proxy_heal(p.proxy[2]);
        pack_end(&p);
    }
}

/* The same of an extension. What was held stays for its lease, as always, but for what is released. */
CASE(closed_while_it_extends) {
    for (int closes = 0; closes < PACK; closes += 2) {
        struct pack p;
        atomic_int outcome = 0;
        pack_begin(&p, NULL);
        hf_owner owner = acquire_as_nobody(&p);
        size_t seen = proxy_seen(p.proxy[2], FLEET_RENEW);
        proxy_blackhole(p.proxy[2], false, true);
        assert_int_equal(hf_lock_extend_start(p.all, owner, 120000, done, &outcome, NULL), HF_OK);
        assert_true(proxy_wait_seen(p.proxy[2], FLEET_RENEW, seen + 1, HANG_MS));
        close_client(&p, closes);
        assert_int_equal(outcome_of(&outcome), HF_ECLOSED);
        proxy_heal(p.proxy[2]);
        pack_end_anyhow(&p);
    }
}

CASE(all_are_closed_in_any_order) {
    for (int first = 0; first < PACK; first++) {
        struct pack p;
        hf_lock *again;
        pack_begin(&p, NULL);
        assert_int_equal(hf_lock_acquire(p.all), HF_OK);
        for (int i = 0; i < PACK; i++)
            close_client(&p, (first + i) % PACK);
        assert_int_equal(hf_lock_new_multi(p.lock, PACK, &again), HF_ECLOSED);
        pack_end_anyhow(&p);
    }
}

/* ---- Threads and processes ---- */

static void *acquire_and_end(void *arg) {
    return hf_lock_acquire(arg) == HF_OK ? NULL : arg;
}

static void on_orphaned(hf_lock *lock, const hf_event *event, void *arg) {
    (void)lock;
    if (event->kind == HF_EVENT_ORPHANED)
        atomic_fetch_add((atomic_int *)arg, 1);
}

CASE(a_thread_ends) {
    struct pack p;
    void *failed;
    atomic_int orphaned = 0;
    hf_options options = pack_options();
    options.watchdog_ms = ENDURING_MS;
    pack_begin(&p, &options);
    assert_int_equal(hf_lock_on_lost(p.all, on_orphaned, &orphaned), HF_OK);
    pthread_t thread = started(acquire_and_end, p.all);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_true(fleet_wait_atomic(&orphaned, 1, HANG_MS));
    pack_end(&p); /* nobody renews it */
}

static int child_calls(void *arg) {
    struct pack *p = arg;
    hf_lock *lock;
    if (hf_lock_try(p->all) != HF_EFORKED || hf_lock_release(p->all) != HF_EFORKED)
        return 1;
    if (hf_lock_new_multi(p->lock, PACK, &lock) != HF_EFORKED)
        return 2;
    hf_lock_free(p->all);
    return hf_close(p->client[0]) == HF_OK ? 0 : 3;
}

PACK_CASE(forked) {
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    assert_true(expect_exit(run_child(child_calls, p), 0, HANG_MS));
    assert_int_equal(pack_held(p), PACK);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
}

/* ---- Asynchronous ---- */

PACK_CASE(asynchronous) {
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    bool mine;
    assert_int_equal(hf_lock_acquire_start(p->all, NULL, NULL, NULL, &op), HF_OK);
    assert_int_equal(joined(op, &result), HF_OK);
    assert_int_equal(hf_lock_is_mine_as(p->all, result.owner, &mine), HF_OK);
    assert_true(mine);
    assert_int_equal(hf_lock_try(p->all), HF_EBUSY);
    atomic_int extended = 0, released = 0;
    assert_int_equal(hf_lock_extend_start(p->all, result.owner, 600000, done, &extended, NULL),
                     HF_OK);
    assert_int_equal(outcome_of(&extended), 1);
    assert_int_equal(hf_lock_release_start(p->all, result.owner, done, &released, NULL), HF_OK);
    assert_int_equal(outcome_of(&released), 1);
    assert_int_equal(pack_locked(p), 0);
}

static int dispatched(hf_client *client, atomic_int *outcome) {
    int64_t end_ms = now_ms() + HANG_MS;
    while (atomic_load(outcome) == 0 && now_ms() < end_ms)
        assert_true(hf_dispatch(client, 1000) >= 0);
    return atomic_load(outcome);
}

/* Only the client of the whole has to be dispatched. */
PACK_CASE_WITH(manual_dispatch, pack_options(), options.flags = HF_MANUAL_DISPATCH) {
    hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    atomic_int acquired = 0, refused = 0, released = 0, closed = 0;
    acquire.owner = 7;
    assert_int_equal(hf_lock_acquire_start(p->all, &acquire, done, &acquired, NULL), HF_OK);
    assert_int_equal(dispatched(p->client[0], &acquired), 1);
    acquire.owner = 8;
    acquire.wait_ms = 0;
    assert_int_equal(hf_lock_acquire_start(p->all, &acquire, done, &refused, NULL), HF_OK);
    assert_int_equal(dispatched(p->client[0], &refused), HF_EBUSY);
    assert_int_equal(hf_lock_release_start(p->all, 7, done, &released, NULL), HF_OK);
    assert_int_equal(dispatched(p->client[0], &released), 1);
    pack_occupy(p, 1);
    acquire.wait_ms = HF_FOREVER;
    assert_int_equal(hf_lock_acquire_start(p->all, &acquire, done, &closed, NULL), HF_OK);
    assert_int_equal(hf_dispatch(p->client[0], 0) >= 0, true);
    close_client(p, 0);
    assert_int_equal(outcome_of(&closed), HF_ECLOSED);
    pack_vacate(p, 1);
}

/* A handle is not a hold. */
PACK_CASE(released_by_another_handle) {
    assert_int_equal(hf_lock_acquire(p->all), HF_OK);
    hf_lock_free(p->all);
    assert_int_equal(hf_lock_new_multi(p->lock, PACK, &p->all), HF_OK);
    assert_true(hf_lock_remaining_ms(p->all) > 0);
    assert_int_equal(hf_lock_release(p->all), HF_OK);
}

PACK_CASE(handles_of_members_may_be_freed) {
    static const char *const abc[] = {"a", "b", "c"};
    own_lock *all = pack_all_of(p->client[0], HF_PLAIN, abc, 3);
    assert_int_equal(hf_lock_acquire(all), HF_OK);
    assert_int_equal(cmd_int(p->server[0], "DBSIZE"), 3);
    assert_int_equal(hf_lock_release(all), HF_OK);
    assert_int_equal(cmd_int(p->server[0], "DBSIZE"), 0);
}

RUN_CASES(pack_start_servers, pack_stop_servers)
