/* The verbs on a quorum: nesting, try, cancel, close, fork, asynchronous and manual dispatch, loss by
 * callback and descriptor, extend, break, questions, statistics, refused kinds. */
#include "joint/fleet.h"

#include <poll.h>

/* Servers store 1, however often it is nested. */
FLEET_CASE(nesting_is_local) {
    hf_result result = HF_RESULT_INIT;
    int64_t count;
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(hf_lock_acquire_with(f->lock, NULL, &result), HF_OK);
        assert_int_equal(result.count, i);
    }
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS));
    for (int i = 0; i < FLEET; i++)
        assert_int_equal(cmd_int(f->server[i], "HGET %s %s", FLEET_NAME, f->owner), 1);
    assert_int_equal(hf_lock_hold_count(f->lock, &count), HF_OK);
    assert_int_equal(count, 3);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_int_equal(fleet_held(f, f->owner), FLEET);
    assert_int_equal(hf_lock_try(f->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

/* Redisson's nested RedLock destroys the outer one when a server refuses the inner acquire. */
FLEET_CASE(nested_while_one_is_away) {
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS));
    proxy_cut_all(f->proxy[0]);
    proxy_refuse(f->proxy[0], true);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    proxy_heal(f->proxy[0]);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_int_equal(fleet_held(f, f->owner), FLEET);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

FLEET_CASE(kinds) {
    own_lock *lock;
    hf_sem *sem;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    static const struct {
        hf_kind kind;
        unsigned flags;
    } refused[] = {{HF_PLAIN, HF_SPIN}, {HF_PLAIN, HF_FENCED | HF_NONREENTRANT},
                   {HF_FAIR, 0},        {HF_READ, 0},
                   {HF_WRITE, 0},       {HF_FAIR, HF_NONREENTRANT}};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        options.kind = refused[i].kind;
        options.flags = refused[i].flags;
        assert_int_equal(hf_lock_new_with(f->client, "x", 1, &options, &lock), HF_ENOTSUP);
    }
    assert_int_equal(hf_sem_new(f->client, "x", &sem), HF_ENOTSUP);
    options.kind = HF_PLAIN;
    options.flags = HF_NONREENTRANT;
    assert_int_equal(hf_lock_new_with(f->client, FLEET_NAME, strlen(FLEET_NAME), &options, &lock),
                     HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_EDEADLK);
    assert_int_equal(hf_lock_try(f->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

FLEET_CASE(questions) {
    bool yes;
    int64_t ttl_ms;
    hf_lock_info *info;
    assert_int_equal(hf_ping(f->client), HF_OK);
    assert_int_equal(hf_lock_is_locked(f->lock, &yes), HF_OK);
    assert_false(yes);
    fleet_occupy(f, 0);
    fleet_occupy(f, 1);
    proxy_delay(f->proxy[3], "EXISTS", 300); /* the first to answer do not agree */
    proxy_delay(f->proxy[4], "EXISTS", 300);
    assert_int_equal(hf_lock_is_locked(f->lock, &yes), HF_OK);
    assert_false(yes); /* a minority is nobody's lock */
    proxy_heal(f->proxy[3]);
    proxy_heal(f->proxy[4]);
    fleet_vacate(f, 0);
    fleet_vacate(f, 1);
    hf_acquire_options leased = fleet_wait_for(HANG_MS, 40000);
    assert_int_equal(hf_lock_acquire_with(f->lock, &leased, NULL), HF_OK);
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS)); /* two of them will be down */
    assert_int_equal(hf_lock_is_locked(f->rival_lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(f->lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(f->rival_lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_ttl_ms(f->lock, &ttl_ms), HF_OK);
    assert_true(ttl_ms > 20000 && ttl_ms <= 40000);
    assert_int_equal(hf_lock_inspect(f->lock, &info), HF_OK);
    assert_int_equal(info->holders_len, 1);
    hf_lock_info_free(info);
    server_kill(f->server[0]);
    server_kill(f->server[3]);
    assert_int_equal(hf_ping(f->client), HF_OK);
    assert_int_equal(hf_lock_is_locked(f->rival_lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
}

FLEET_CASE(extend) {
    hf_acquire_options leased = fleet_wait_for(HANG_MS, 20000);
    assert_int_equal(hf_lock_acquire_with(f->lock, &leased, NULL), HF_OK);
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS));
    assert_int_equal(hf_lock_extend(f->lock, 60000), HF_OK);
    assert_true(hf_lock_remaining_ms(f->lock) > 30000);
    assert_true(hf_lock_remaining_ms(f->lock) <= 60000 - 602);
    for (int i = 0; i < FLEET; i++)
        cmd_ok(f->server[i], "DEL %s", FLEET_NAME);
    assert_int_equal(hf_lock_extend(f->lock, 60000), HF_ELOST);
    assert_int_equal(hf_lock_remaining_ms(f->lock), 0);
    assert_int_equal(hf_lock_release(f->lock), HF_ENOTOWNER);
    assert_true(fleet_wait_free(f, HANG_MS));
}

FLEET_CASE(broken) {
    struct fleet_events events = {0};
    bool was_broken;
    assert_int_equal(hf_lock_on_lost(f->lock, fleet_on_event, &events), HF_OK);
    int fd = hf_lock_lost_fd(f->lock);
    assert_true(fd >= 0);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(fleet_wait_held(f, f->owner, FLEET, HANG_MS));
    for (int i = 0; i < FLEET; i++)
        assert_true(wait_until(server_questions_are_received, f->server[i], HANG_MS));
    assert_int_equal(hf_lock_break(f->rival_lock, &was_broken), HF_OK);
    assert_true(was_broken);
    assert_true(fleet_wait_atomic(&events.losses, 1, 10000)); /* long before the next renewal */
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&readable, 1, 10000), 1);
    assert_int_equal(hf_lock_release(f->lock), HF_ELOST);
    assert_true(fleet_wait_free(f, HANG_MS));
}

FLEET_CASE(cancelled) {
    struct fleet_caller caller;
    own_cancel *cancel;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    assert_int_equal(hf_lock_acquire(f->rival_lock), HF_OK);
    hf_acquire_options options = fleet_wait_for(HF_FOREVER, HF_WATCHDOG);
    options.cancel = cancel;
    fleet_call_acquire(&caller, f->lock, options);
    assert_true(HOLDS_FOR(!atomic_load(&caller.done), 300));
    hf_cancel_fire(cancel);
    assert_int_equal(fleet_join(&caller), HF_ECANCELED);
    assert_true(caller.took_ms < 10000);
    assert_int_equal(hf_lock_release(f->rival_lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

/* What the last wait has left under way does not stand in the way of the next. */
FLEET_CASE_WITH(again_at_once, fleet_options()) {
    for (int i = 0; i < 3; i++)
        proxy_delay(f->proxy[i], FLEET_ACQUIRE, 700);
    for (int i = 0; i < 3; i++) {
        int err = hf_lock_acquire_for(f->lock, 100);
        assert_true(err == HF_ENOQUORUM || err == HF_OK); /* late answers count */
        if (err == HF_OK)
            assert_int_equal(hf_lock_release(f->lock), HF_OK);
        assert_int_equal(hf_lock_try(f->lock), HF_OK);
        assert_int_equal(hf_lock_release(f->lock), HF_OK);
    }
    for (int i = 0; i < 3; i++)
        proxy_heal(f->proxy[i]);
    assert_true(fleet_wait_free(f, HANG_MS));
}

static void done(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    atomic_store((atomic_int *)user, result->code == HF_OK ? 1 : result->code);
}

FLEET_CASE(asynchronous) {
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire_start(f->lock, NULL, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_true(result.votes >= MAJORITY);
    hf_op_free(op);
    atomic_int outcome = 0;
    assert_int_equal(hf_lock_release_start(f->lock, result.owner, done, &outcome, NULL), HF_OK);
    assert_true(fleet_wait_atomic(&outcome, 1, HANG_MS));
}

FLEET_CASE_WITH(manual_dispatch, fleet_options(), options.flags = HF_MANUAL_DISPATCH) {
    atomic_int outcome = 0;
    hf_acquire_options acquire = HF_ACQUIRE_OPTIONS_INIT;
    acquire.owner = 7;
    assert_int_equal(hf_lock_acquire_start(f->lock, &acquire, done, &outcome, NULL), HF_OK);
    int64_t end_ms = now_ms() + HANG_MS;
    while (atomic_load(&outcome) == 0 && now_ms() < end_ms)
        assert_true(hf_dispatch(f->client, 1000) >= 0);
    assert_int_equal(atomic_load(&outcome), 1);
    atomic_store(&outcome, 0);
    assert_int_equal(hf_lock_release_start(f->lock, 7, done, &outcome, NULL), HF_OK);
    while (atomic_load(&outcome) == 0 && now_ms() < end_ms)
        assert_true(hf_dispatch(f->client, 1000) >= 0);
    assert_int_equal(atomic_load(&outcome), 1);
}

static bool has_returned(void *arg) {
    struct fleet_caller *caller = arg;
    return atomic_load(&caller->done);
}

static void fall_silent_when_asked(struct proxy *proxy, int phase) {
    if (phase == 3)
        proxy_blackhole(proxy, false, true);
    else
        proxy_stall_request(proxy, FLEET_ACQUIRE);
}

/* Not before it has been asked: the call is under way then. */
static void fall_silent(struct proxy *proxy) {
    assert_true(proxy_wait_held(proxy, HANG_MS));
    proxy_blackhole(proxy, true, true);
}

/* Closed while it waits, while it asks, and with everything silent: nothing is left behind, and the wait
 * ends. */
CASE(closed) {
    for (int phase = 0; phase < 4; phase++) {
        struct fleet f;
        struct fleet_caller caller;
        hf_options options = fleet_options();
        /* those that are silent must not be given up, and asked again, before it is closed */
        options.cmd_timeout_ms = phase == 1 || phase == 2 ? 10000 : 2000;
        fleet_begin(&f, &options);
        hf_client *client = made(hf_open, f.urls, &options);
        hf_lock *lock = made(hf_lock_new, client, FLEET_NAME);
        assert_int_equal(hf_ping(client), HF_OK);
        int silent = phase == 1 ? FLEET : phase == 2 ? 3 : phase == 3 ? 1 : 0;
        size_t asked = proxy_seen(f.proxy[FLEET - 1], FLEET_ACQUIRE);
        if (phase == 0)
            assert_int_equal(hf_lock_acquire(f.rival_lock), HF_OK);
        for (int i = 0; i < silent; i++)
            fall_silent_when_asked(f.proxy[i], phase);
        fleet_call_acquire(&caller, lock, fleet_wait_for(HF_FOREVER, HF_WATCHDOG));
        for (int i = 0; i < silent && phase != 3; i++)
            fall_silent(f.proxy[i]);
        if (phase == 0)
            assert_true(proxy_wait_seen(f.proxy[FLEET - 1], FLEET_ACQUIRE, asked + 1, HANG_MS));
        if (phase == 3)
            assert_true(wait_until(has_returned, &caller, HANG_MS));
        assert_true(HOLDS_FOR(phase == 3 || !atomic_load(&caller.done), 300));
        int64_t start_ms = now_ms();
        assert_int_equal(hf_close(client), HF_OK);
        assert_true(now_ms() - start_ms < options.cmd_timeout_ms + 8000);
        assert_int_equal(fleet_join(&caller), phase == 3 ? HF_OK : HF_ECLOSED);
        hf_lock_free(lock);
        for (int i = 0; i < FLEET; i++)
            proxy_heal(f.proxy[i]);
        if (phase == 0) {
            assert_int_equal(hf_lock_release(f.rival_lock), HF_OK);
            assert_true(fleet_wait_free(&f, HANG_MS));
        }
        fleet_end(&f);
    }
}

static int child_calls(void *arg) {
    struct fleet *f = arg;
    if (hf_lock_try(f->lock) != HF_EFORKED)
        return 1;
    return hf_close(f->client) == HF_OK ? 0 : 2;
}

FLEET_CASE(forked) {
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_true(expect_exit(run_child(child_calls, f), 0, HANG_MS));
    assert_true(fleet_held(f, f->owner) >= MAJORITY);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
}

FLEET_CASE(statistics) {
    hf_stats before = HF_STATS_INIT, after = HF_STATS_INIT;
    assert_int_equal(hf_client_stats(f->client, &before), HF_OK);
    assert_int_equal(hf_lock_acquire(f->lock), HF_OK);
    assert_int_equal(hf_lock_release(f->lock), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
    assert_int_equal(hf_client_stats(f->client, &after), HF_OK);
    assert_int_equal(after.acquired - before.acquired, 1);
    assert_int_equal(after.released - before.released, 1);
    assert_int_equal(after.holds, 0);
    assert_true(after.commands - before.commands >= 2 * MAJORITY);
}

/* Threads pass it on without the servers. */
FLEET_CASE(cohort) {
    hf_op *next;
    bool mine;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    hf_acquire_options eleven = HF_ACQUIRE_OPTIONS_INIT;
    options.flags = HF_COHORT;
    options.cohort_ms = 60000;
    eleven.owner = 11;
    own_lock *lock = made(hf_lock_new_with, f->client, FLEET_NAME, strlen(FLEET_NAME), &options);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_try(f->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_acquire_start(lock, &eleven, NULL, NULL, &next), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(joined(next, NULL), HF_OK);
    assert_int_equal(hf_lock_is_mine_as(lock, 11, &mine), HF_OK);
    assert_true(mine);
    assert_int_equal(hf_lock_try(f->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(lock, 11), HF_OK);
    assert_true(fleet_wait_free(f, HANG_MS));
}

RUN_CASES(fleet_start_servers, fleet_stop_servers)
