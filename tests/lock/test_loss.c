/*
 * Loss is never silent: the callback, the descriptor, the next call, the counter.
 *
 * A hold is lost in each way a server can lose it, and every sign of it must be there, once. Whom
 * the signs reach, and handles that come and go meanwhile, are in test_loss_handles.c.
 */
#include "lock/loss.h"

static void acquire_lease(hf_lock *lock, int64_t lease_ms) {
    hf_acquire_options options = world_wait_for(0, lease_ms);
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_OK);
}

/* Owners that are only numbers may never come to hear of their losses: the oldest of many are forgotten, after as
 * long as a lease lasts. */
WORLD_CASE_WITH(losses_without_a_listener, world_options(), options.watchdog_ms = 3000) {
    enum { LOST = 300, REMEMBERED = 256 };
    hf_owner owners[LOST];
    for (int i = 0; i < LOST; i++) {
        hf_acquire_options acquire = world_wait_as(owners[i] = hf_owner_new(), 0, HF_WATCHDOG);
        assert_int_equal(hf_lock_acquire_with(w->lock, &acquire, NULL), HF_OK);
        assert_int_equal(hf_lock_break(w->lock, NULL), HF_OK);
    }
    assert_int_equal(world_stats(w->client).losses, LOST);
    int err = HF_ELOST, asked = 0;
    for (; err == HF_ELOST; asked++) { /* a client that asks gets it, once */
        sleep_ms(500); /* records are dropped by age, and to look at one drops it, too */
        assert_true(asked < LOST - REMEMBERED);
        err = hf_lock_release_as(w->lock, owners[asked]);
    }
    assert_int_equal(err, HF_ENOTOWNER);
    assert_int_equal(hf_lock_release_as(w->lock, owners[LOST - 1]), HF_ELOST);
    assert_int_equal(hf_lock_release_as(w->lock, owners[LOST - 1]), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* Every sign of one loss, and then none of a second. */
static void expect_lost_once(struct world *w, struct world_events *events, int fd) {
    assert_true(loss_is_readable(fd, HANG_MS));
    assert_true(world_wait_atomic(&events->losses, 1, HANG_MS));
    uint64_t losses = 0;
    assert_int_equal(read(fd, &losses, sizeof losses), sizeof losses);
    assert_int_equal(losses, 1);
    assert_false(loss_is_readable(fd, 0));
    assert_int_equal(hf_lock_remaining_ms(w->lock), 0);
    assert_int_equal(world_stats(w->client).losses, 1);
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_not_equal(hf_last_error()->text[0], '\0');
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK); /* as if nothing had been */
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(atomic_load(&events->losses), 1);
    assert_int_equal(world_stats(w->client).losses, 1);
    assert_false(loss_is_readable(fd, 0));
}

static void lose_by(int64_t watchdog_ms, int64_t lease_ms, void (*lose)(struct world *w)) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    loss_begin(&w, watchdog_ms);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    int fd = hf_lock_lost_fd(w.lock);
    assert_true(fd >= 0);
    assert_int_equal(hf_lock_lost_fd(w.lock), fd);
    acquire_lease(w.lock, lease_ms);
    acquire_lease(w.lock, lease_ms);
    assert_false(loss_is_readable(fd, 0));
    lose(&w);
    expect_lost_once(&w, &events, fd);
    if (lease_ms != HF_WATCHDOG)
        assert_int_equal(atomic_load(&events.warnings), 1);
    assert_int_equal(atomic_load(&events.orphans), 0);
}

static void by_flush(struct world *w) {
    server_empty(w->server);
}

static void by_another_owner(struct world *w) {
    server_drop(w->server, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    /* for longer than until the next renewal, which must not touch it */
    assert_true(HOLDS_FOR(world_count(w, w->rival_owner) == 1, ENDURING_MS / 3 + 500));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

static void by_another_type(struct world *w) {
    cmd_ok(w->server, "SET %s text", WORLD_NAME);
    assert_true(HOLDS_FOR(key_exists(w->server, WORLD_NAME), ENDURING_MS / 3 + 500)); /* as above */
    cmd_ok(w->server, "DEL %s", WORLD_NAME);
}

static void by_break(struct world *w) {
    bool broken = false;
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_true(broken);
}

static void by_waiting(struct world *w) {
    (void)w;
}

CASE(lost_by_del) {
    lose_by(ENDURING_MS, HF_WATCHDOG, loss_by_del);
}

CASE(lost_by_flushall) {
    lose_by(ENDURING_MS, HF_WATCHDOG, by_flush);
}

CASE(lost_to_another_owner) {
    lose_by(ENDURING_MS, HF_WATCHDOG, by_another_owner);
}

CASE(lost_to_another_type) {
    server_redis_only(world_server(), "a node has no type");
    lose_by(ENDURING_MS, HF_WATCHDOG, by_another_type);
}

CASE(lost_by_break_of_another_client) {
    lose_by(ENDURING_MS, HF_WATCHDOG, by_break);
}

/* A fixed lease ends as was asked: with a warning before, since its work goes on. */
CASE(lost_by_the_end_of_a_fixed_lease) {
    lose_by(60000, 4000, by_waiting); /* warned a second before */
}

/* A break by our own client is known at once, without a renewal; the minute of lease shows it. */
LOSS_CASE(lost_by_break_of_its_own_client, 60000) {
    struct world_events events = {0};
    bool broken = false;
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    int fd = hf_lock_lost_fd(w->lock);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_break(w->lock, &broken), HF_OK);
    assert_true(broken);
    expect_lost_once(w, &events, fd);
}

/* ---- The next call ---- */

static int call_acquire(struct world *w) {
    return hf_lock_acquire(w->lock);
}

static int call_try(struct world *w) {
    return hf_lock_try(w->lock);
}

static int call_extend(struct world *w) {
    return hf_lock_extend(w->lock, 1000);
}

static int call_release(struct world *w) {
    return hf_lock_release(w->lock);
}

static int call_acquire_async(struct world *w) {
    return world_acquire_async(w->lock, 0, 0, NULL);
}

static int call_release_async(struct world *w) {
    return world_release_async(w->lock, hf_owner_self(), NULL);
}

/* Whichever call comes first says it, whether it finds out itself or it was known. On ZooKeeper only a release asks the
 * server while the session is well. */
CASE(the_next_call_says_so_once) {
    static const struct {
        int (*make)(struct world *);
        bool asks_anywhere;
    } calls[] = {{call_acquire, false},       {call_try, false},    {call_extend, false},
                 {call_acquire_async, false}, {call_release, true}, {call_release_async, true}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        bool finds_out = calls[i].asks_anywhere || !server_is_other(world_server());
        for (int known = finds_out ? 0 : 1; known <= 1; known++) {
            struct world w;
            struct world_events events = {0};
            loss_begin(&w, known ? 2400 : 60000);
            assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
            assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
            loss_by_del(&w);
            if (known)
                assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
            assert_int_equal(calls[i].make(&w), HF_ELOST);
            assert_true(world_free(&w)); /* a nested acquire does not take it anew */
            assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
            assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
            assert_int_equal(hf_lock_extend(w.lock, 1000), HF_ENOTOWNER);
            assert_int_equal(world_stats(w.client).losses, 1);
            assert_int_equal(atomic_load(&events.losses), 1);
            world_end(&w);
        }
    }
}

/* The answer to a nested call comes after the hold's deadline, when its end has been reported: too
 * late, whatever it says. Nothing is held afterwards, here or at the server. */
static void answered_after_the_deadline(int (*start)(hf_lock *lock, hf_op **op)) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    hf_op *op;
    hf_options options = world_options();
    server_redis_only(world_server(), "there the holder counts for itself, and asks nobody");
    options.cmd_timeout_ms = 10000;
    world_begin(&w, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    hf_acquire_options brief = world_wait_for(0, 3000); /* so that the next is in time */
    brief.owner = 9;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_lock_acquire_start(w.lock, &brief, NULL, NULL, &op), HF_OK);
        assert_int_equal(joined(op, NULL), HF_OK);
    }
    proxy_blackhole(w.proxy, false, true);
    struct monitor *monitor = monitor_start(w.server);
    assert_int_equal(start(w.lock, &op), HF_OK);
    assert_true(monitor_wait(monitor, "EVALSHA", 1, HANG_MS)); /* it has run, in time */
    monitor_stop(monitor);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    proxy_heal(w.proxy);
    assert_int_equal(joined(op, NULL), HF_ELOST);
    assert_int_equal(hf_lock_remaining_ms_as(w.lock, 9), 0);
    assert_int_equal(world_stats(w.client).holds, 0);
    assert_int_equal(world_stats(w.client).losses, 1);
    assert_int_equal(hf_lock_release_as(w.lock, 9), HF_ENOTOWNER);
    assert_true(world_wait_free(&w, 60000 / 2)); /* not only when the lease of a minute ends */
    assert_int_equal(hf_lock_try(w.rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 1);
}

static int start_release(hf_lock *lock, hf_op **op) {
    return hf_lock_release_start(lock, 9, NULL, NULL, op);
}

static int start_acquire(hf_lock *lock, hf_op **op) {
    hf_acquire_options options = world_wait_as(9, HF_FOREVER, 60000);
    return hf_lock_acquire_start(lock, &options, NULL, NULL, op);
}

static int start_extend(hf_lock *lock, hf_op **op) {
    return hf_lock_extend_start(lock, 9, 60000, NULL, NULL, op);
}

CASE(a_nested_release_answered_after_the_deadline) {
    answered_after_the_deadline(start_release);
}

CASE(a_nested_acquire_answered_after_the_deadline) {
    answered_after_the_deadline(start_acquire);
}

CASE(an_extension_answered_after_the_deadline) {
    answered_after_the_deadline(start_extend);
}

/* ---- Warnings ---- */

LOSS_CASE(a_warning_comes_before_the_loss, ENDURING_MS) {
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    proxy_blackhole(w->proxy, true, true);
    assert_true(world_wait_atomic(&events.warnings, 1, HANG_MS));
    assert_int_equal(atomic_load(&events.lost_when_warned), 0);
    int64_t left_ms = atomic_load(&events.warned_with_ms);
    assert_true(left_ms > 0 && left_ms <= ENDURING_MS / 2);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_remaining_ms(w->lock), 0);
    assert_int_equal(atomic_load(&events.warnings), 1);
    assert_true(world_stats(w->client).renew_failures >= 1);
    proxy_heal(w->proxy);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

static bool renewed(void *client) {
    return world_stats(client).renewals >= 1;
}

/* On ZooKeeper with the second renewal after a silence: the first proves little of the time before it. */
static bool has_time_again(void *lock) {
    return hf_lock_remaining_ms(lock) > 3000;
}

/* A warning is only that: the network comes back in time, and nothing is lost. */
LOSS_CASE(a_warning_is_not_a_loss, 6000) {
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    proxy_blackhole(w->proxy, true, true);
    assert_true(world_wait_atomic(&events.warnings, 1, HANG_MS));
    proxy_heal(w->proxy);
    assert_true(wait_until(renewed, w->client, HANG_MS));
    assert_true(wait_until(has_time_again, w->lock, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* What we believe runs out by itself, with nobody answering, and never promises more than was asked
 * for: the lease counts from before the command was sent. */
LOSS_CASE(remaining_counts_down_to_zero, 60000) {
    int64_t start_ms = now_ms();
    hf_acquire_options brief = world_wait_for(0, 500);
    world_acquire_brief(w->lock, &brief);
    int64_t acquired_ms = now_ms(), before_ms = acquired_ms, left_ms;
    server_freeze(w->server);
    while ((left_ms = hf_lock_remaining_ms(w->lock)) > 0) {
        assert_true(left_ms <= acquired_ms + 500 - before_ms);
        assert_true(before_ms < acquired_ms + HANG_MS);
        (void)wait_a_moment();
        before_ms = now_ms();
    }
    /* the last part of a millisecond is not promised, and a release within it would be in time */
    assert_true(now_ms() >= start_ms + trusted_ms(500) - 1);
    assert_true(WAIT_FOR(now_ms() > acquired_ms + 500, HANG_MS));
    server_unfreeze(w->server);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
}

/* ---- What is no loss ---- */

static void *release_it(void *arg) {
    struct world_caller *caller = arg;
    caller->result = hf_lock_release_as(caller->handle, 9);
    return NULL;
}

struct wanted_commands {
    hf_client *client;
    uint64_t number;
};

static bool has_sent(void *arg) {
    const struct wanted_commands *wanted = arg;
    return world_stats(wanted->client).commands >= wanted->number;
}

static void wait_commands(hf_client *client, uint64_t number) {
    struct wanted_commands wanted = {client, number};
    assert_true(wait_until(has_sent, &wanted, HANG_MS));
}

/* A renewal that is on its way when the lock is released finds it gone: that is the release's
 * doing. The frozen server gets the release first and the delayed renewal second, and answers both
 * at once, so either answer may be the first to be looked at. */
CASE(a_renewal_overtaken_by_the_release) {
    struct world w;
    struct world_events events = {0};
    hf_options options = world_options();
    server_redis_only(world_server(), "on one connection nothing overtakes");
    options.watchdog_ms = 4500; /* a renewal each 1.5 s, and none is lost by a pause */
    options.cmd_timeout_ms = 10000;
    world_begin(&w, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    hf_acquire_options given = world_wait_as(9, 0, HF_WATCHDOG);
    for (int i = 0; i < 4; i++) {
        struct world_caller caller = {.handle = w.lock};
        proxy_delay(w.proxy, WORLD_RENEW, 80);
        assert_int_equal(hf_lock_acquire_with(w.lock, &given, NULL), HF_OK);
        wait_commands(w.client,
                      world_stats(w.client).commands + 1); /* the renewal is at the proxy */
        server_freeze(w.server);
        uint64_t commands = world_stats(w.client).commands;
        assert_int_equal(pthread_create(&caller.thread, NULL, release_it, &caller), 0);
        wait_commands(w.client, commands + 1);
        /* longer than the renewal is delayed; the server that would show it is stopped */
        sleep_ms(100);
        server_unfreeze(w.server);
        assert_int_equal(world_join(&caller), HF_OK);
        proxy_heal(w.proxy);
    }
    assert_int_equal(world_stats(w.client).losses, 0);
    assert_int_equal(hf_lock_acquire_with(w.lock, &given, NULL), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, 9), HF_OK);
    world_end(&w);
    assert_int_equal(atomic_load(&events.losses), 0);
}

CASE(closing_and_releasing_lose_nothing) {
    struct world w;
    struct world_events events = {0};
    loss_begin(&w, ENDURING_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
    }
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    /* for more than a lease, renewed */
    assert_true(HOLDS_FOR(hf_lock_remaining_ms(w.lock) > 0, ENDURING_MS + 1000));
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_stats(w.client).losses, 0);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    world_end(&w);
    assert_int_equal(atomic_load(&events.losses), 0);
}

RUN_CASES(world_start_server, world_stop_server)
