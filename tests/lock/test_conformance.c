/*
 * Rows C002 to C026 of the catalogue: what Redisson's own test of its plain lock asserts, on one
 * server.
 *
 * Those that are not about keys are asked of ZooKeeper, too (support/either.h).
 *
 * Leases and waits are scaled down. What an assertion says is read from the server with plain
 * commands wherever the row allows; what happens on another thread is collected there and asserted
 * here. Lower bounds of time are exact; upper ones only tell a hang, or one cause of waking from
 * another (a lease of 400 ms from the poll every 10 s).
 */
#include "support/world.h"

#include <signal.h>

/* ---- Questions, and counting ---- */

static bool ask_mine(hf_lock *lock) {
    bool mine = false;
    assert_int_equal(hf_lock_is_mine(lock, &mine), HF_OK);
    return mine;
}

static bool ask_locked(hf_lock *lock) {
    bool locked = false;
    assert_int_equal(hf_lock_is_locked(lock, &locked), HF_OK);
    return locked;
}

static int64_t ask_count(hf_lock *lock) {
    int64_t count = -1;
    assert_int_equal(hf_lock_hold_count(lock, &count), HF_OK);
    return count;
}

static int64_t ask_ttl(hf_lock *lock) {
    int64_t ttl_ms = -3;
    assert_int_equal(hf_lock_ttl_ms(lock, &ttl_ms), HF_OK);
    return ttl_ms;
}

WORLD_CASE(C013_hold_count) {
    const int64_t wanted[] = {1, 0, 1, 2, 1, 0};
    const int steps[] = {1, -1, 1, 1, -1, -1};
    assert_int_equal(ask_count(w->lock), 0);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        assert_int_equal(steps[i] > 0 ? hf_lock_acquire(w->lock) : hf_lock_release(w->lock), HF_OK);
        assert_int_equal(ask_count(w->lock), wanted[i]);
        assert_int_equal(world_count(w, w->owner), wanted[i]);
    }
}

/* What another thread gets as an answer. */
struct asker {
    hf_lock *lock;
    int err;
    bool mine, locked;
};

static void *ask_both(void *arg) {
    struct asker *asker = arg;
    asker->err = hf_lock_is_mine(asker->lock, &asker->mine);
    if (asker->err == HF_OK)
        asker->err = hf_lock_is_locked(asker->lock, &asker->locked);
    return NULL;
}

static struct asker ask_elsewhere(hf_lock *lock) {
    struct asker asker = {.lock = lock, .err = HF_EINVAL};
    pthread_t thread = started(ask_both, &asker);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(asker.err, HF_OK);
    return asker;
}

WORLD_CASE(C014_C016_asked_on_another_thread) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    struct asker during = ask_elsewhere(w->lock);
    assert_false(during.mine);
    assert_true(during.locked);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    struct asker after = ask_elsewhere(w->lock);
    assert_false(after.mine);
    assert_false(after.locked);
}

WORLD_CASE(C015_C018_before_during_after) {
    for (int round = 0; round < 2; round++) {
        assert_false(ask_mine(w->lock));
        assert_false(ask_locked(w->lock));
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        assert_true(ask_mine(w->lock));
        assert_true(ask_locked(w->lock));
        assert_false(ask_mine(w->rival_lock));
        assert_true(ask_locked(w->rival_lock));
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
    }
    assert_false(ask_mine(w->lock));
    assert_false(ask_locked(w->lock));
}

WORLD_CASE(C020_two_cycles_on_one_handle) {
    for (int round = 0; round < 2; round++) {
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        assert_int_equal(world_count(w, w->owner), 1);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        assert_true(world_free(w));
    }
}

WORLD_CASE(C021_reentrancy) {
    assert_int_equal(hf_lock_try(w->lock), HF_OK);
    assert_int_equal(hf_lock_try(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    struct world_caller other;
    world_call_acquire(&other, w->lock, world_wait_for(0, HF_WATCHDOG));
    assert_int_equal(world_join(&other), HF_EBUSY);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_EBUSY);
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free_after_refusal(w));
}

/* ---- Releasing what is another's ---- */

static void *release_elsewhere(void *arg) {
    struct asker *asker = arg;
    asker->err = hf_lock_release(asker->lock);
    return NULL;
}

WORLD_CASE(C019_only_the_owner_releases) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    struct asker intruder = {.lock = w->lock};
    pthread_t thread = started(release_elsewhere, &intruder);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(intruder.err, HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_ENOTOWNER);
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
}

static bool knows_of_a_loss(void *client) {
    return world_stats(client).losses == 1;
}

WORLD_CASE_WITH(C329_break_free_then_held, world_options(), options.watchdog_ms = ENDURING_MS) {
    bool broken = true;
    assert_int_equal(hf_lock_break(w->lock, &broken), HF_OK);
    assert_false(broken);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_true(broken);
    assert_true(world_free(w));
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_false(broken);
    if (server_is_other(w->server)) /* who counts for himself hears of it with the next heartbeat */
        assert_true(wait_until(knows_of_a_loss, w->client, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
}

/* ---- How long it lasts ---- */

CASE(C005_partial_release_keeps_the_lease) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "there is no lease on the server");
    world_begin(&w, NULL);
    hf_acquire_options options = world_wait_for(0, 10000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(hf_lock_acquire_with(w.lock, &options, NULL), HF_OK);
    /* Worn down by another hand, so that re-arming shows. */
    cmd_ok(w.server, "PEXPIRE %s %d", WORLD_NAME, 5000);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_in_range(pttl(w.server, WORLD_NAME), 5001, 10000);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

CASE(C010_ttl_of_a_lease_of_none_and_of_the_default) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "there is no lease on the server");
    hf_options defaults = HF_OPTIONS_INIT;
    world_begin(&w, &defaults);
    hf_acquire_options hour = world_wait_for(0, 3600000);
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire_with(w.lock, &hour, &result), HF_OK);
    assert_in_range(result.remaining_ms, 3600000 - 60000, 3600000);
    assert_in_range(pttl(w.server, WORLD_NAME), 3600000 - 60000, 3600000);
    assert_in_range(ask_ttl(w.lock), 3600000 - 60000, 3600000);
    /* What we believe never outlasts what the server has. */
    int64_t server_ms = pttl(w.server, WORLD_NAME);
    /* A key still lives in the millisecond for which PTTL says 0, and the two clocks tick apart. */
    assert_true(hf_lock_remaining_ms(w.lock) <= server_ms + 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(ask_ttl(w.lock), -2);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_in_range(pttl(w.server, WORLD_NAME), 15000, 30000);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
}

WORLD_CASE(C006_timed_wait_on_a_closed_client) {
    hf_client *gone = made(hf_open, server_url(w->server), NULL);
    hf_lock *lock = made(hf_lock_new, gone, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_close(gone), HF_OK);
    hf_lock_free(lock);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_for(w->lock, 300), HF_ETIMEDOUT);
    int64_t took_ms = now_ms() - start_ms;
    assert_true(took_ms >= 300);
    assert_true(took_ms < 10000);
}

WORLD_CASE(C009_waiter_enters_when_the_lease_ends) {
    own_monitor *monitor = monitor_start(w->server);
    hf_acquire_options brief = world_wait_for(0, 400);
    int64_t start_ms = now_ms();
    world_acquire_brief(w->lock, &brief);
    struct world_caller waiter;
    world_call_acquire(&waiter, w->rival_lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(world_join(&waiter), HF_OK);
    int64_t took_ms = now_ms() - start_ms;
    assert_true(took_ms >= 400);
    assert_true(took_ms < 9000); /* by the lease: the next poll would be after 10 s */
    assert_int_equal(monitor_count(monitor, "lua] \"publish\""), 0);

    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    char owner[64];
    world_owner_text(w->rival, waiter.owner, owner);
    assert_int_equal(world_count(w, owner), 1);
    assert_int_equal(hf_lock_release_as(w->rival_lock, waiter.owner), HF_OK);
}

static bool renewed_twice(void *client) {
    return world_stats(client).renewals >= 2;
}

WORLD_CASE_WITH(C012_a_closed_client_lets_go_within_a_lease, world_options(),
                options.watchdog_ms = server_is_other(world_server()) ? 2 * ENDURING_MS
                                                                      : ENDURING_MS) {
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(wait_until(renewed_twice, w->client, HANG_MS));
    assert_true(now_ms() - start_ms >=
                ENDURING_MS / 3); /* renewals come every third, or fourth, and not at once */
    assert_int_equal(world_count(w, w->owner), 1);

    assert_int_equal(hf_close(w->client), HF_OK);
    struct monitor *monitor = monitor_start(w->server);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(monitor_count(monitor, WORLD_RENEW), 0);
    monitor_stop(monitor);
    w->client = NULL;
}

/* ---- Waiting ---- */

struct contender {
    pthread_t thread;
    hf_lock *lock;
    struct barrier *barrier;
    int results[2];
};

static void *contend(void *arg) {
    struct contender *c = arg;
    for (int round = 0; round < 2; round++) {
        barrier_wait(c->barrier, HANG_MS);
        c->results[round] = hf_lock_acquire_for(c->lock, 5000);
        if (c->results[round] == HF_OK)
            c->results[round] = hf_lock_release(c->lock);
    }
    return NULL;
}

/* A wake-up that is lost would show: the wait is shorter than the poll, the lease is a minute. */
WORLD_CASE(C002_two_names_on_one_subscription_connection) {
    hf_lock *other_name = made(hf_lock_new, w->client, "other");
    struct contender contenders[4];
    struct barrier *barrier = barrier_new(4);
    for (int i = 0; i < 4; i++) {
        contenders[i] =
            (struct contender){.lock = i % 2 == 0 ? w->lock : other_name, .barrier = barrier};
        assert_int_equal(pthread_create(&contenders[i].thread, NULL, contend, &contenders[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(contenders[i].thread, NULL), 0);
        assert_int_equal(contenders[i].results[0], HF_OK);
        assert_int_equal(contenders[i].results[1], HF_OK);
    }
    assert_int_equal(world_keys(w->server), 0);
    assert_true(world_wait_no_channels(w->server, HANG_MS));
    barrier_free(barrier);
    hf_lock_free(other_name);
}

WORLD_CASE_WITH(C003_a_cancelled_try_leaves_nothing, world_options(), options.watchdog_ms = 600) {
    hf_cancel *cancel;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    proxy_stall_request(w->proxy, world_acquires(w));
    struct world_caller caller;
    hf_acquire_options once = world_wait_for(0, HF_WATCHDOG);
    once.cancel = cancel;
    world_call_acquire(&caller, w->lock, once);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    hf_cancel_fire(cancel);
    assert_int_equal(world_join(&caller), HF_ECANCELED);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_true(world_wait_free(w, HANG_MS));

    struct monitor *monitor = monitor_start(w->server);
    /* for more than a lease: a renewal that was left running would show */
    assert_true(HOLDS_FOR(world_free(w), 900));
    assert_int_equal(monitor_count(monitor, WORLD_RENEW), 0);
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    monitor_stop(monitor);
    hf_cancel_free(cancel);
}

CASE(C004_a_stopped_server_is_an_error_not_a_refusal) {
    const int64_t waits_ms[] = {0, 300, 5000, HF_FOREVER};
    size_t step = server_is_other(world_server()) ? 3 : 1; /* a server takes seconds to start */
    for (size_t i = 0; i < sizeof waits_ms / sizeof waits_ms[0]; i += step) {
        own_server *server = server_start(NULL);
        struct world w;
        hf_options options = world_options();
        options.connect_timeout_ms = 2500;
        world_begin_on(&w, server, &options);
        server_stop(server);
        hf_acquire_options given = world_wait_for(waits_ms[i], 10000);
        assert_int_equal(hf_lock_acquire_with(w.lock, &given, NULL), HF_EUNREACH);
        assert_int_not_equal(hf_last_error()->text[0], '\0');
        world_end(&w);
    }
}

static atomic_int signals_seen;

static void on_signal(int signal) {
    (void)signal;
    atomic_fetch_add(&signals_seen, 1);
}

static void catch_without_restart(int signal) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    assert_int_equal(sigaction(signal, &action, NULL), 0);
}

static bool somebody_listens(void *server) {
    return world_channels(server) > 0;
}

WORLD_CASE(C007_U63_signals_do_not_end_a_wait) {
    catch_without_restart(SIGUSR1);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    struct world_caller waiter;
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(somebody_listens, w->server, HANG_MS));
    for (int i = 1; i <= 200; i++) {
        assert_int_equal(pthread_kill(waiter.thread, SIGUSR1), 0);
        assert_true(world_wait_atomic(&signals_seen, i, HANG_MS));
    }
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
    signal(SIGUSR1, SIG_DFL);
}

WORLD_CASE(U63_a_signal_storm_keeps_the_deadline) {
    catch_without_restart(SIGUSR1);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    struct world_caller waiter;
    world_call_acquire(&waiter, w->lock, world_wait_for(400, HF_WATCHDOG));
    while (!atomic_load(&waiter.done)) {
        pthread_kill(waiter.thread, SIGUSR1);
        (void)wait_a_moment();
    }
    assert_int_equal(world_join(&waiter), HF_ETIMEDOUT);
    assert_true(waiter.took_ms >= 400);
    assert_true(waiter.took_ms < 9000);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    signal(SIGUSR1, SIG_DFL);
}

/* ---- After a server that forgot ---- */

CASE(C202_C331_later_holds_are_renewed_after_a_restart) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "zk.sessions has a server that comes back empty");
    own_server *server = server_start(NULL);
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    world_begin_on(&w, server, &options);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    server_restart(server);
    assert_true(world_free(&w));
    assert_true(WAIT_FOR(hf_lock_remaining_ms(w.lock) == 0,
                         HANG_MS)); /* the row is about a release after the lease */
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        assert_true(HOLDS_FOR(hf_lock_remaining_ms(w.lock) > 0, ENDURING_MS + 500));
        assert_int_equal(world_count(&w, w.owner), 1);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
    }
}

/* ---- Key events ---- */

static void expect_push(redisContext *events, const char *channel, const char *message) {
    void *any = NULL;
    assert_int_equal(redisGetReply(events, &any), REDIS_OK);
    own_reply *reply = any;
    assert_int_equal(reply->elements, 3);
    assert_string_equal(reply->element[1]->str, channel);
    if (message != NULL)
        assert_string_equal(reply->element[2]->str, message);
}

static bool key_gone(void *server) {
    return !key_exists(server, WORLD_NAME);
}

/* The marks tell that nothing else came before them. */
CASE(C026_one_event_for_release_and_for_expiry) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "events about keys");
    static const char *const config[] = {"notify-keyspace-events Egx", NULL};
    own_server *server = server_start(&(struct server_options){.config = config});
    world_begin_on(&w, server, NULL);
    own_context *events = server_connect(server);
    assert_non_null(events);
    const char *subscribe = "SUBSCRIBE __keyevent@0__:del __keyevent@0__:expired mark";
    assert_int_equal(redisAppendCommand(events, subscribe), REDIS_OK);
    for (int confirmed = 0; confirmed < 3; confirmed++) {
        void *any = NULL;
        assert_int_equal(redisGetReply(events, &any), REDIS_OK);
        freeReplyObject(any);
    }

    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    cmd_ok(server, "PUBLISH mark held");
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    cmd_ok(server, "PUBLISH mark released");
    hf_acquire_options brief = world_wait_for(0, 2000); /* held when the call returns */
    assert_int_equal(hf_lock_acquire_with(w.lock, &brief, NULL), HF_OK);
    assert_true(wait_until(key_gone, server, HANG_MS));
    cmd_ok(server, "PUBLISH mark expired");

    expect_push(events, "mark", "held");
    expect_push(events, "__keyevent@0__:del", WORLD_NAME);
    expect_push(events, "mark", "released");
    expect_push(events, "__keyevent@0__:expired", WORLD_NAME);
    expect_push(events, "mark", "expired");
}

RUN_CASES(world_start_server, world_stop_server)
