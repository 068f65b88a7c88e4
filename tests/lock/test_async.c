/*
 * The asynchronous form of every verb, on the client's own dispatch thread.
 *
 * A callback runs exactly once for each start that worked, with the op that the start returned, and
 * hf_op_wait() tells the same. The op may be freed in the callback, before it, or never be asked
 * for. Cancelling ends a wait and nothing else; closing ends everything with HF_ECLOSED.
 */
#include "lock/world.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a callback was told. */
struct told {
    atomic_int calls;
    hf_op *op;
    hf_result result;
    bool free_op;
    pthread_t thread;
};

static void on_done(hf_op *op, const hf_result *result, void *user) {
    struct told *told = user;
    told->op = op;
    told->result = *result;
    told->thread = pthread_self();
    if (told->free_op)
        hf_op_free(op);
    atomic_fetch_add(&told->calls, 1);
}

static void wait_told(struct told *told) {
    assert_true(world_wait_atomic(&told->calls, 1, HANG_MS));
}

static bool somebody_listens(void *server) {
    return world_channels(server) > 0;
}

/* ---- Every verb ---- */

struct verb {
    const char *name;
    int (*start)(struct world *w, hf_owner owner, hf_callback callback, void *user, hf_op **op);
    bool owner; /* the result names the owner given */
    int64_t value, count, remaining_at_least;
};

static int start_acquire(struct world *w, hf_owner owner, hf_callback callback, void *user,
                         hf_op **op) {
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    options.owner = owner;
    return hf_lock_acquire_start(w->lock, &options, callback, user, op);
}

static int start_release(struct world *w, hf_owner owner, hf_callback callback, void *user,
                         hf_op **op) {
    return hf_lock_release_start(w->lock, owner, callback, user, op);
}

static int start_extend(struct world *w, hf_owner owner, hf_callback callback, void *user,
                        hf_op **op) {
    return hf_lock_extend_start(w->lock, owner, 90000, callback, user, op);
}

static int start_break(struct world *w, hf_owner owner, hf_callback callback, void *user,
                       hf_op **op) {
    (void)owner;
    return hf_lock_break_start(w->lock, callback, user, op);
}

static int start_is_locked(struct world *w, hf_owner owner, hf_callback callback, void *user,
                           hf_op **op) {
    (void)owner;
    return hf_lock_is_locked_start(w->lock, callback, user, op);
}

static int start_is_held_by(struct world *w, hf_owner owner, hf_callback callback, void *user,
                            hf_op **op) {
    return hf_lock_is_mine_start(w->lock, owner, callback, user, op);
}

static int start_hold_count(struct world *w, hf_owner owner, hf_callback callback, void *user,
                            hf_op **op) {
    return hf_lock_hold_count_start(w->lock, owner, callback, user, op);
}

static int start_ping(struct world *w, hf_owner owner, hf_callback callback, void *user,
                      hf_op **op) {
    (void)owner;
    return hf_ping_start(w->client, callback, user, op);
}

static const struct verb verbs[] = {
    {"acquire", start_acquire, true, 0, 1, 30000}, {"acquire", start_acquire, true, 0, 2, 30000},
    {"extend", start_extend, true, 0, 2, 60000},   {"locked", start_is_locked, false, 1, 0, 0},
    {"held by", start_is_held_by, true, 1, 0, 0},  {"count", start_hold_count, true, 2, 0, 0},
    {"release", start_release, true, 0, 1, 0},     {"count", start_hold_count, true, 1, 0, 0},
    {"release", start_release, true, 0, 0, 0},     {"locked", start_is_locked, false, 0, 0, 0},
    {"held by", start_is_held_by, true, 0, 0, 0},  {"break", start_break, false, 0, 0, 0},
    {"acquire", start_acquire, true, 0, 1, 30000}, {"break", start_break, false, 1, 0, 0},
    {"ping", start_ping, false, 0, 0, 0},
};

/* In ZooKeeper every hold has a token, and lasts no longer than what is known of the session. */
static void expect_result(const struct world *w, const struct verb *verb, const hf_result *result,
                          hf_owner owner) {
    bool by_session = server_is_other(w->server);
    int64_t least_ms =
        by_session && verb->remaining_at_least > 30000 ? 30000 : verb->remaining_at_least;
    assert_int_equal(result->code, HF_OK);
    assert_int_equal(result->error.code, HF_OK);
    assert_int_equal(result->value, verb->value);
    assert_int_equal(result->count, verb->count);
    assert_true(result->remaining_ms >= least_ms);
    if (verb->remaining_at_least == 0)
        assert_int_equal(result->remaining_ms, 0);
    if (!by_session)
        assert_int_equal(result->token, 0);
    if (verb->owner)
        assert_int_equal(result->owner, owner);
}

static void every_verb_with_a_callback(void **state) {
    (void)state;
    struct world w;
    world_begin(&w, NULL);
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        struct told told = {0};
        hf_op *op = NULL;
        assert_int_equal(verbs[i].start(&w, 9, on_done, &told, &op), HF_OK);
        wait_told(&told);
        assert_ptr_equal(told.op, op);
        assert_false(pthread_equal(told.thread, pthread_self()));
        expect_result(&w, &verbs[i], &told.result, 9);
        hf_result waited = HF_RESULT_INIT;
        assert_int_equal(hf_op_wait(op, 0, &waited), HF_OK);
        expect_result(&w, &verbs[i], &waited, 9);
        hf_op_free(op);
        assert_int_equal(atomic_load(&told.calls), 1);
    }
    world_end(&w);
}

static void every_verb_with_a_wait_or_without_an_op(void **state) {
    (void)state;
    struct world w;
    world_begin(&w, NULL);
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        hf_op *op = NULL;
        struct told told = {.op = (hf_op *)&told, .result = HF_RESULT_INIT};
        if (i % 2 == 0) {
            assert_int_equal(verbs[i].start(&w, 9, NULL, NULL, &op), HF_OK);
            assert_int_equal(hf_op_wait(op, HF_FOREVER, &told.result), HF_OK);
            hf_op_free(op);
        } else {
            assert_int_equal(verbs[i].start(&w, 9, on_done, &told, NULL), HF_OK);
            wait_told(&told);
            assert_null(told.op);
        }
        expect_result(&w, &verbs[i], &told.result, 9);
    }
    world_end(&w);
}

static void ttl_in_both_forms(void **state) {
    (void)state;
    struct world w;
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    world_begin(&w, NULL);
    assert_int_equal(hf_lock_ttl_ms_start(w.lock, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_int_equal(result.value, -2);
    hf_op_free(op);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_ttl_ms_start(w.lock, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_true(result.value > 30000 && result.value <= 60000);
    hf_op_free(op);
    hf_lock *asker = w.rival_lock; /* in ZooKeeper another's hold has no end */
    if (!server_is_other(w.server)) {
        cmd_ok(w.server, "PERSIST %s", WORLD_NAME);
        asker = w.lock;
    }
    assert_int_equal(hf_lock_ttl_ms_start(asker, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_int_equal(result.value, -1);
    hf_op_free(op);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    world_end(&w);
}

/* Failures come in the result, with words; only bad arguments fail the start. */
static void failures_come_in_the_result(void **state) {
    (void)state;
    struct world w;
    hf_op *op = NULL;
    struct told told = {0};
    world_begin(&w, NULL);
    hf_acquire_options bad = world_wait_for(0, -1);
    assert_int_equal(hf_lock_acquire_start(w.lock, &bad, on_done, &told, &op), HF_EINVAL);
    assert_int_equal(hf_lock_extend_start(w.lock, 1, 0, on_done, &told, &op), HF_EINVAL);
    assert_int_equal(hf_lock_release_start(w.lock, UINT64_MAX, on_done, &told, &op), HF_EINVAL);
    /* it belongs to no thread, so it cannot be about this one's hold without saying so */
    assert_int_equal(hf_lock_release_start(w.lock, 0, on_done, &told, &op), HF_EINVAL);
    assert_int_equal(hf_lock_extend_start(w.lock, 0, 1000, on_done, &told, &op), HF_EINVAL);
    assert_int_equal(hf_lock_is_mine_start(w.lock, 0, on_done, &told, &op), HF_EINVAL);
    assert_int_equal(hf_lock_hold_count_start(w.lock, 0, on_done, &told, &op), HF_EINVAL);
    assert_int_equal(hf_lock_inspect_start(w.lock, NULL, on_done, &told, &op), HF_EINVAL);
    assert_null(op);
    assert_int_equal(hf_lock_release_start(w.lock, 1, on_done, &told, NULL), HF_OK);
    wait_told(&told);
    assert_int_equal(told.result.code, HF_ENOTOWNER);
    assert_int_equal(told.result.error.code, HF_ENOTOWNER);
    assert_int_not_equal(told.result.error.text[0], '\0');
    assert_int_equal(atomic_load(&told.calls), 1);
    world_end(&w);
}

/* The answer is there when the callback runs, and is the caller's. */
static void inspect_writes_before_the_callback(void **state) {
    (void)state;
    struct world w;
    hf_lock_info *info = NULL;
    struct told told = {0};
    hf_op *op = NULL;
    world_begin(&w, NULL);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_inspect_start(w.lock, &info, on_done, &told, NULL), HF_OK);
    wait_told(&told);
    assert_int_equal(told.result.code, HF_OK);
    assert_int_equal(info->kind, HF_FOUND_PLAIN);
    assert_null(info->words);
    assert_int_equal(info->holders_len, 1);
    assert_string_equal(info->holders[0]->owner, w.owner);
    hf_lock_info_free(info);

    info = NULL;
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    hf_close(w.client);
    assert_int_equal(hf_lock_inspect_start(w.lock, &info, NULL, NULL, &op), HF_ECLOSED);
    assert_null(info);
    w.client = NULL;
    world_end(&w);
}

static void inspect_finds_something_else(void **state) {
    (void)state;
    struct world w;
    hf_lock_info *info = NULL;
    hf_op *op = NULL;
    server_redis_only(world_server(), "another type of key");
    world_begin(&w, NULL);
    cmd_ok(w.server, "RPUSH " WORLD_NAME " something");
    assert_int_equal(hf_lock_inspect_start(w.lock, &info, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_OTHER);
    assert_string_equal(info->words, "list");
    hf_op_free(op);
    hf_lock_info_free(info);
    world_end(&w);
}

/* ---- Freeing ---- */

static void freed_inside_the_callback_and_before_it(void **state) {
    (void)state;
    struct world w;
    world_begin(&w, NULL);
    for (int i = 0; i < 200; i++) {
        struct told inside = {.free_op = true}, before = {0};
        hf_op *op = NULL;
        assert_int_equal(hf_ping_start(w.client, on_done, &inside, &op), HF_OK);
        wait_told(&inside);
        assert_ptr_equal(inside.op, op);
        assert_int_equal(hf_ping_start(w.client, on_done, &before, &op), HF_OK);
        hf_op_free(op); /* it goes on */
        wait_told(&before);
        assert_int_equal(before.result.code, HF_OK);
    }
    world_end(&w);
}

/* ---- From one callback to the next ---- */

struct chain {
    hf_lock *lock;
    hf_client *client;
    atomic_int left, done, refused;
    int64_t inside; /* guarded by the lock itself */
};

static void chain_released(hf_op *op, const hf_result *result, void *user);

static void chain_acquired(hf_op *op, const hf_result *result, void *user) {
    struct chain *chain = user;
    (void)op;
    if (result->code != HF_OK)
        abort();
    chain->inside++;
    /* What would wait for this very thread is refused. */
    bool locked;
    if (hf_lock_release(chain->lock) == HF_EDEADLK &&
        hf_lock_is_locked(chain->lock, &locked) == HF_EDEADLK &&
        hf_close(chain->client) == HF_EDEADLK)
        atomic_fetch_add(&chain->refused, 1);
    if (hf_lock_release_start(chain->lock, result->owner, chain_released, chain, NULL) != HF_OK)
        abort();
}

static void chain_released(hf_op *op, const hf_result *result, void *user) {
    struct chain *chain = user;
    (void)op;
    if (result->code != HF_OK)
        abort();
    if (atomic_fetch_sub(&chain->left, 1) > 0 &&
        hf_lock_acquire_start(chain->lock, NULL, chain_acquired, chain, NULL) != HF_OK)
        abort();
    atomic_fetch_add(&chain->done, 1);
}

/* 64 in flight all the time, all on one name, each started by the callback of the one before. */
static void sixty_four_in_flight_start_each_other(void **state) {
    (void)state;
    struct world w;
    world_begin(&w, NULL);
    struct chain chain = {.lock = w.lock, .client = w.client};
    atomic_store(&chain.left, 500);
    for (int i = 0; i < 64; i++)
        assert_int_equal(hf_lock_acquire_start(w.lock, NULL, chain_acquired, &chain, NULL), HF_OK);
    assert_true(world_wait_atomic(&chain.done, 564, HANG_MS));
    assert_int_equal(chain.inside, 564);
    assert_int_equal(atomic_load(&chain.refused), 564);
    assert_int_equal(world_stats(w.client).acquired, 564 + 1); /* one by world_begin */
    assert_true(world_free(&w));
    world_end(&w);
}

static void sixty_four_in_flight_on_names_of_their_own(void **state) {
    (void)state;
    struct world w;
    world_begin(&w, NULL);
    hf_lock *locks[64];
    struct chain chains[64];
    for (int i = 0; i < 64; i++) {
        char name[32];
        snprintf(name, sizeof name, "own-%d", i);
        assert_int_equal(hf_lock_new(w.client, name, &locks[i]), HF_OK);
        memset(&chains[i], 0, sizeof chains[i]);
        chains[i].lock = locks[i];
        chains[i].client = w.client;
        atomic_store(&chains[i].left, 20);
        assert_int_equal(hf_lock_acquire_start(locks[i], NULL, chain_acquired, &chains[i], NULL),
                         HF_OK);
    }
    for (int i = 0; i < 64; i++) {
        assert_true(world_wait_atomic(&chains[i].done, 21, HANG_MS));
        assert_int_equal(chains[i].inside, 21);
        hf_lock_free(locks[i]);
    }
    assert_int_equal(world_keys(w.server), 0);
    world_end(&w);
}

static void waiting_inside_a_callback_is_refused_cb(hf_op *op, const hf_result *result,
                                                    void *user) {
    (void)result;
    atomic_int *code = user;
    atomic_store(code, -hf_op_wait(op, HF_FOREVER, NULL));
}

static void waiting_inside_a_callback_is_refused(void **state) {
    (void)state;
    struct world w;
    hf_op *op;
    atomic_int code = 0;
    world_begin(&w, NULL);
    assert_int_equal(hf_ping_start(w.client, waiting_inside_a_callback_is_refused_cb, &code, &op),
                     HF_OK);
    assert_true(world_wait_atomic(&code, 1, HANG_MS));
    assert_int_equal(atomic_load(&code), -HF_EDEADLK);
    hf_op_free(op);
    world_end(&w);
}

/* ---- Cancelling ---- */

static void cancelled_while_it_waits(void **state) {
    (void)state;
    struct world w;
    hf_op *op;
    struct told told = {0};
    world_begin(&w, NULL);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_start(w.lock, NULL, on_done, &told, &op), HF_OK);
    assert_true(wait_until(somebody_listens, w.server, HANG_MS));
    hf_op_cancel(op);
    hf_op_cancel(op);
    wait_told(&told);
    assert_int_equal(told.result.code, HF_ECANCELED);
    hf_op_cancel(op); /* after it */
    hf_op_free(op);
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_true(world_free(&w));
    assert_int_equal(world_stats(w.client).cancelled, 1);
    assert_int_equal(atomic_load(&told.calls), 1);
    world_end(&w);
}

static bool nothing_left(void *server) {
    return world_keys(server) == 0;
}

/* At once, when it may be anywhere between start and answer: acquired or cancelled, and then
 * nothing is left. On names of their own, since a lock that may have been taken is only given back
 * when the command can act no more. */
static void cancelled_at_once(void **state) {
    (void)state;
    struct world w;
    uint64_t cancelled = 0;
    world_begin(&w, NULL);
    for (int i = 0; i < 300; i++) {
        struct told told = {0};
        hf_op *op;
        hf_lock *lock;
        char name[32];
        snprintf(name, sizeof name, "own-%d", i);
        assert_int_equal(hf_lock_new(w.client, name, &lock), HF_OK);
        assert_int_equal(hf_lock_acquire_start(lock, NULL, on_done, &told, &op), HF_OK);
        if (i % 3 == 1)
            sched_yield();
        if (i % 3 == 2)
            sleep_ms(0);
        hf_op_cancel(op);
        wait_told(&told);
        hf_op_free(op);
        if (told.result.code == HF_OK) {
            assert_int_equal(hf_lock_release_as(lock, told.result.owner), HF_OK);
        } else {
            assert_int_equal(told.result.code, HF_ECANCELED);
            cancelled++;
        }
        hf_lock_free(lock);
    }
    assert_true(cancelled > 0);
    assert_true(wait_until(nothing_left, w.server, HANG_MS));
    hf_stats stats = world_stats(w.client);
    assert_int_equal(stats.cancelled, cancelled);
    assert_int_equal(stats.acquired, 301 - cancelled); /* one by world_begin */
    assert_int_equal(stats.holds, 0);
    world_end(&w);
}

/* A cancelled acquire was granted, unheard. Its owner comes again while another of this process
 * waits at the server for just that ghost: it takes it over, and does not line up behind the
 * other. */
static void an_owner_that_returns_takes_its_ghost_over(void **state) {
    (void)state;
    server_redis_only(world_server(),
                      "an acquire that was given up is deleted there, and never taken over");
    struct world w;
    struct world_caller waiter;
    hf_op *op;
    hf_options patient = world_options();
    patient.cmd_timeout_ms = 5000;
    world_begin(&w, &patient);
    assert_int_equal(world_acquire_async(w.lock, 9, 0, NULL), HF_OK); /* the way is warm */
    assert_int_equal(world_release_async(w.lock, 9, NULL), HF_OK);
    hf_acquire_options options = world_wait_for(0, HF_WATCHDOG);
    options.owner = 9;
    proxy_mute_replies_after(w.proxy, WORLD_ACQUIRE);
    assert_int_equal(hf_lock_acquire_start(w.lock, &options, NULL, NULL, &op), HF_OK);
    assert_true(proxy_wait_fired(w.proxy, 1, HANG_MS));
    world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(somebody_listens, w.server, HANG_MS));
    hf_result untouched = HF_RESULT_INIT;
    untouched.code = 1;
    assert_int_equal(hf_op_wait(op, 0, &untouched), HF_EPENDING);
    assert_int_equal(untouched.code, 1);
    hf_op_cancel(op);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_ECANCELED);
    options.wait_ms = 10000;
    int err = hf_lock_acquire_with(w.lock, &options, NULL);
    if (err == HF_OK)
        assert_int_equal(hf_lock_release_as(w.lock, 9), HF_OK);
    else
        assert_true(atomic_load(&waiter.done)); /* we came late: the ghost was gone already */
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
    hf_op_free(op);
    world_end(&w);
}

/* A verb that needs no waiting is not undone. */
static void cancel_does_not_undo_a_release(void **state) {
    (void)state;
    struct world w;
    struct told told = {0};
    hf_op *op;
    world_begin(&w, NULL);
    assert_int_equal(world_acquire_async(w.lock, 9, 0, NULL), HF_OK);
    proxy_delay(w.proxy, WORLD_RELEASE, 100);
    assert_int_equal(hf_lock_release_start(w.lock, 9, on_done, &told, &op), HF_OK);
    hf_op_cancel(op);
    wait_told(&told);
    assert_int_equal(told.result.code, HF_OK);
    assert_true(world_free(&w));
    hf_op_free(op);
    world_end(&w);
}

/* ---- Closing ---- */

static void U59_close_ends_everything_that_is_pending(void **state) {
    (void)state;
    struct world w;
    enum { WAITING = 50 };
    struct told told[WAITING] = {0}, ping = {0};
    hf_op *ops[WAITING];
    world_begin(&w, NULL);
    hf_client *client;
    hf_lock *lock, *held;
    hf_options options = world_options();
    assert_int_equal(hf_open(proxy_url(w.proxy), &options, &client), HF_OK);
    assert_int_equal(hf_lock_new(client, WORLD_NAME, &lock), HF_OK);
    assert_int_equal(hf_lock_new(client, "held", &held), HF_OK);
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    struct world_caller sync;
    world_call_acquire(&sync, lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(somebody_listens, w.server, HANG_MS));
    for (int i = 0; i < WAITING; i++)
        assert_int_equal(hf_lock_acquire_start(lock, NULL, on_done, &told[i], &ops[i]), HF_OK);
    proxy_blackhole(w.proxy, true, true); /* closing never waits for the network */
    assert_int_equal(hf_ping_start(client, on_done, &ping, NULL), HF_OK);

    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(world_join(&sync), HF_ECLOSED);
    for (int i = 0; i < WAITING; i++) {
        assert_int_equal(atomic_load(&told[i].calls), 1);
        assert_int_equal(told[i].result.code, HF_ECLOSED);
        hf_op_cancel(ops[i]); /* allowed, and nothing happens */
        assert_int_equal(hf_op_wait(ops[i], 0, NULL), HF_ECLOSED);
        hf_op_free(ops[i]);
    }
    assert_int_equal(atomic_load(&ping.calls), 1);
    assert_int_equal(ping.result.code, HF_ECLOSED);
    proxy_heal(w.proxy);
    assert_true(server_has(w.server, "held")); /* not released: its work may go on */
    assert_int_equal(world_count(&w, w.rival_owner), 1);
    assert_int_equal(hf_lock_try(lock), HF_ECLOSED);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, on_done, &told[0], NULL), HF_ECLOSED);
    assert_int_equal(atomic_load(&told[0].calls), 1);
    hf_lock_free(lock);
    hf_lock_free(held);
    world_end(&w);
}

/* ---- Many ---- */

struct crowd {
    hf_lock *lock;
    atomic_int inside, entered, failed;
};

static void crowd_released(hf_op *op, const hf_result *result, void *user) {
    struct crowd *crowd = user;
    (void)op;
    atomic_fetch_add(result->code == HF_OK ? &crowd->entered : &crowd->failed, 1);
}

static void crowd_entered(hf_op *op, const hf_result *result, void *user) {
    struct crowd *crowd = user;
    (void)op;
    if (result->code != HF_OK || atomic_fetch_add(&crowd->inside, 1) != 0)
        atomic_fetch_add(&crowd->failed, 1);
    atomic_fetch_sub(&crowd->inside, 1);
    if (hf_lock_release_start(crowd->lock, result->owner, crowd_released, crowd, NULL) != HF_OK)
        atomic_fetch_add(&crowd->failed, 1);
}

static void a_thousand_waiters_on_one_name(void **state) {
    (void)state;
    struct world w;
    world_begin(&w, NULL);
    struct crowd crowd = {.lock = w.lock};
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(hf_lock_acquire_start(w.lock, NULL, crowd_entered, &crowd, NULL), HF_OK);
    assert_true(wait_until(somebody_listens, w.server, HANG_MS));
    assert_int_equal(atomic_load(&crowd.entered), 0);
    assert_true(server_has(w.server, WORLD_NAME));
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_true(world_wait_atomic(&crowd.entered, 1000, HANG_MS));
    assert_int_equal(atomic_load(&crowd.failed), 0);
    assert_true(world_free(&w));
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_verb_with_a_callback),
        cmocka_unit_test(every_verb_with_a_wait_or_without_an_op),
        cmocka_unit_test(ttl_in_both_forms),
        cmocka_unit_test(failures_come_in_the_result),
        cmocka_unit_test(inspect_writes_before_the_callback),
        cmocka_unit_test(inspect_finds_something_else),
        cmocka_unit_test(freed_inside_the_callback_and_before_it),
        cmocka_unit_test(sixty_four_in_flight_start_each_other),
        cmocka_unit_test(sixty_four_in_flight_on_names_of_their_own),
        cmocka_unit_test(waiting_inside_a_callback_is_refused),
        cmocka_unit_test(cancelled_while_it_waits),
        cmocka_unit_test(cancelled_at_once),
        cmocka_unit_test(an_owner_that_returns_takes_its_ghost_over),
        cmocka_unit_test(cancel_does_not_undo_a_release),
        cmocka_unit_test(U59_close_ends_everything_that_is_pending),
        cmocka_unit_test(a_thousand_waiters_on_one_name),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
