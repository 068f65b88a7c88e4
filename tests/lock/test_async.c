/*
 * The asynchronous form of every verb, on the client's own dispatch thread.
 *
 * A callback runs exactly once for each start that worked, with the op that the start returned, and
 * hf_op_wait() tells the same. The op may be freed in the callback, before it, or never be asked
 * for. Cancelling ends a wait and nothing else; closing ends everything with HF_ECLOSED.
 */
#include "support/crowd.h"
#include "support/world.h"

#include <sched.h>

/* What a callback got. */
struct completion {
    atomic_int calls;
    hf_op *op;
    hf_result result;
    bool free_op;
    pthread_t thread;
};

static void on_done(hf_op *op, const hf_result *result, void *user) {
    struct completion *completion = user;
    completion->op = op;
    completion->result = *result;
    completion->thread = pthread_self();
    if (completion->free_op)
        hf_op_free(op);
    atomic_fetch_add(&completion->calls, 1);
}

static void wait_completion(struct completion *completion) {
    assert_true(world_wait_atomic(&completion->calls, 1, HANG_MS));
}

static bool somebody_listens(void *server) {
    return world_channels(server) > 0;
}

/* ---- Every verb ---- */

struct verb {
    const char *name;
    int (*start)(struct world *w, hf_owner owner, hf_op_fn callback, void *user, hf_op **op);
    bool owner; /* the result names the owner given */
    int64_t value, count, remaining_at_least;
};

static int start_acquire(struct world *w, hf_owner owner, hf_op_fn callback, void *user,
                         hf_op **op) {
    hf_acquire_options options = world_wait_as(owner, HF_FOREVER, HF_WATCHDOG);
    return hf_lock_acquire_start(w->lock, &options, callback, user, op);
}

static int start_release(struct world *w, hf_owner owner, hf_op_fn callback, void *user,
                         hf_op **op) {
    return hf_lock_release_start(w->lock, owner, callback, user, op);
}

static int start_extend(struct world *w, hf_owner owner, hf_op_fn callback, void *user,
                        hf_op **op) {
    return hf_lock_extend_start(w->lock, owner, 90000, callback, user, op);
}

static int start_break(struct world *w, hf_owner owner, hf_op_fn callback, void *user, hf_op **op) {
    (void)owner;
    return hf_lock_break_start(w->lock, callback, user, op);
}

static int start_is_locked(struct world *w, hf_owner owner, hf_op_fn callback, void *user,
                           hf_op **op) {
    (void)owner;
    return hf_lock_is_locked_start(w->lock, callback, user, op);
}

static int start_is_held_by(struct world *w, hf_owner owner, hf_op_fn callback, void *user,
                            hf_op **op) {
    return hf_lock_is_mine_start(w->lock, owner, callback, user, op);
}

static int start_hold_count(struct world *w, hf_owner owner, hf_op_fn callback, void *user,
                            hf_op **op) {
    return hf_lock_hold_count_start(w->lock, owner, callback, user, op);
}

static int start_ping(struct world *w, hf_owner owner, hf_op_fn callback, void *user, hf_op **op) {
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

WORLD_CASE(every_verb_with_a_callback) {
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        struct completion completion = {0};
        hf_op *op = NULL;
        assert_int_equal(verbs[i].start(w, 9, on_done, &completion, &op), HF_OK);
        wait_completion(&completion);
        assert_ptr_equal(completion.op, op);
        assert_false(pthread_equal(completion.thread, pthread_self()));
        expect_result(w, &verbs[i], &completion.result, 9);
        hf_result waited = HF_RESULT_INIT;
        assert_int_equal(hf_op_wait(op, 0, &waited), HF_OK);
        expect_result(w, &verbs[i], &waited, 9);
        hf_op_free(op);
        assert_int_equal(atomic_load(&completion.calls), 1);
    }
}

WORLD_CASE(every_verb_with_a_wait_or_without_an_op) {
    for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
        hf_op *op = NULL;
        struct completion completion = {.op = (hf_op *)&completion, .result = HF_RESULT_INIT};
        if (i % 2 == 0) {
            assert_int_equal(verbs[i].start(w, 9, NULL, NULL, &op), HF_OK);
            assert_int_equal(hf_op_wait(op, HF_FOREVER, &completion.result), HF_OK);
            hf_op_free(op);
        } else {
            assert_int_equal(verbs[i].start(w, 9, on_done, &completion, NULL), HF_OK);
            wait_completion(&completion);
            assert_null(completion.op);
        }
        expect_result(w, &verbs[i], &completion.result, 9);
    }
}

WORLD_CASE(ttl_in_both_forms) {
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_ttl_ms_start(w->lock, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_int_equal(result.value, -2);
    hf_op_free(op);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_ttl_ms_start(w->lock, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_true(result.value > 30000 && result.value <= 60000);
    hf_op_free(op);
    hf_lock *asker = w->rival_lock; /* in ZooKeeper another's hold has no end */
    if (!server_is_other(w->server)) {
        cmd_ok(w->server, "PERSIST %s", WORLD_NAME);
        asker = w->lock;
    }
    assert_int_equal(hf_lock_ttl_ms_start(asker, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_int_equal(result.value, -1);
    hf_op_free(op);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* Failures come in the result, with words; only bad arguments fail the start. */
WORLD_CASE(failures_come_in_the_result) {
    hf_op *op = NULL;
    struct completion completion = {0};
    hf_acquire_options bad = world_wait_for(0, -1);
    assert_int_equal(hf_lock_acquire_start(w->lock, &bad, on_done, &completion, &op), HF_EINVAL);
    assert_int_equal(hf_lock_extend_start(w->lock, 1, 0, on_done, &completion, &op), HF_EINVAL);
    assert_int_equal(hf_lock_release_start(w->lock, UINT64_MAX, on_done, &completion, &op),
                     HF_EINVAL);
    /* it belongs to no thread, so it cannot be about this one's hold without saying so */
    assert_int_equal(hf_lock_release_start(w->lock, 0, on_done, &completion, &op), HF_EINVAL);
    assert_int_equal(hf_lock_extend_start(w->lock, 0, 1000, on_done, &completion, &op), HF_EINVAL);
    assert_int_equal(hf_lock_is_mine_start(w->lock, 0, on_done, &completion, &op), HF_EINVAL);
    assert_int_equal(hf_lock_hold_count_start(w->lock, 0, on_done, &completion, &op), HF_EINVAL);
    assert_int_equal(hf_lock_inspect_start(w->lock, NULL, on_done, &completion, &op), HF_EINVAL);
    assert_null(op);
    assert_int_equal(hf_lock_release_start(w->lock, 1, on_done, &completion, NULL), HF_OK);
    wait_completion(&completion);
    assert_int_equal(completion.result.code, HF_ENOTOWNER);
    assert_int_equal(completion.result.error.code, HF_ENOTOWNER);
    assert_int_not_equal(completion.result.error.text[0], '\0');
    assert_int_equal(atomic_load(&completion.calls), 1);
}

/* The answer is there when the callback runs, and is the caller's. */
WORLD_CASE(inspect_writes_before_the_callback) {
    hf_lock_info *info = NULL;
    struct completion completion = {0};
    hf_op *op = NULL;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_inspect_start(w->lock, &info, on_done, &completion, NULL), HF_OK);
    wait_completion(&completion);
    assert_int_equal(completion.result.code, HF_OK);
    assert_int_equal(info->kind, HF_FOUND_PLAIN);
    assert_null(info->type_name);
    assert_int_equal(info->holders_len, 1);
    assert_string_equal(info->holders[0]->owner, w->owner);
    hf_lock_info_free(info);

    info = NULL;
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    hf_close(w->client);
    assert_int_equal(hf_lock_inspect_start(w->lock, &info, NULL, NULL, &op), HF_ECLOSED);
    assert_null(info);
    w->client = NULL;
}

CASE(inspect_finds_something_else) {
    OWN(world_end) struct world w;
    own_info *info = NULL;
    own_op *op = NULL;
    server_redis_only(world_server(), "another type of key");
    world_begin(&w, NULL);
    cmd_ok(w.server, "RPUSH " WORLD_NAME " something");
    assert_int_equal(hf_lock_inspect_start(w.lock, &info, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_OTHER);
    assert_string_equal(info->type_name, "list");
}

/* ---- Freeing ---- */

WORLD_CASE(freed_inside_the_callback_and_before_it) {
    for (int i = 0; i < 200; i++) {
        struct completion inside = {.free_op = true}, before = {0};
        hf_op *op = NULL;
        assert_int_equal(hf_ping_start(w->client, on_done, &inside, &op), HF_OK);
        wait_completion(&inside);
        assert_ptr_equal(inside.op, op);
        assert_int_equal(hf_ping_start(w->client, on_done, &before, &op), HF_OK);
        hf_op_free(op); /* it goes on */
        wait_completion(&before);
        assert_int_equal(before.result.code, HF_OK);
    }
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
WORLD_CASE(sixty_four_in_flight_start_each_other) {
    struct chain chain = {.lock = w->lock, .client = w->client};
    atomic_store(&chain.left, 500);
    for (int i = 0; i < 64; i++)
        assert_int_equal(hf_lock_acquire_start(w->lock, NULL, chain_acquired, &chain, NULL), HF_OK);
    for (int i = 47; i <= 564; i += 47) /* a busy machine takes its time for all of them */
        assert_true(world_wait_atomic(&chain.done, i, HANG_MS));
    assert_int_equal(chain.inside, 564);
    assert_int_equal(atomic_load(&chain.refused), 564);
    assert_int_equal(world_stats(w->client).acquired, 564 + 1); /* one by world_begin */
    assert_true(world_free(w));
}

struct commands {
    hf_client *client;
    uint64_t wanted;
};

static bool has_sent(void *arg) {
    const struct commands *commands = arg;
    return world_stats(commands->client).commands >= commands->wanted;
}

/* The acquire of another name starts after the nested ones, so it is sent after them, if they are. */
CASE(R03_one_command_of_a_hold_is_in_flight) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "a nested acquire sends nothing");
    enum { OWNER = 7, LEVELS = 3 };
    struct completion nested = {0}, fence = {0};
    own_lock *other;
    int64_t count = 0;
    world_begin(&w, NULL);
    assert_int_equal(hf_lock_new(w.client, "other", &other), HF_OK);
    hf_acquire_options options = world_wait_as(OWNER, HF_FOREVER, HF_WATCHDOG);
    size_t seen = proxy_seen(w.proxy, WORLD_ACQUIRE);
    struct commands sent = {w.client, world_stats(w.client).commands + 2};
    proxy_stall_request(w.proxy, WORLD_ACQUIRE);
    for (int i = 0; i < LEVELS; i++)
        assert_int_equal(hf_lock_acquire_start(w.lock, &options, on_done, &nested, NULL), HF_OK);
    assert_true(proxy_wait_held(w.proxy, HANG_MS));
    assert_int_equal(hf_lock_acquire_start(other, &options, on_done, &fence, NULL), HF_OK);
    assert_true(wait_until(has_sent, &sent, HANG_MS));
    assert_int_equal(world_stats(w.client).commands, sent.wanted);
    assert_true(proxy_release_held(w.proxy) >= 1);
    assert_true(world_wait_atomic(&nested.calls, LEVELS, HANG_MS));
    wait_completion(&fence);
    assert_int_equal(proxy_seen(w.proxy, WORLD_ACQUIRE), seen + 1 + LEVELS);
    assert_int_equal(hf_lock_hold_count_as(w.lock, OWNER, &count), HF_OK);
    assert_int_equal(count, LEVELS);
    for (int i = 0; i < LEVELS; i++)
        assert_int_equal(hf_lock_release_as(w.lock, OWNER), HF_OK);
    assert_int_equal(hf_lock_release_as(other, OWNER), HF_OK);
    assert_int_equal(world_keys(w.server), 0);
}

WORLD_CASE(sixty_four_in_flight_on_names_of_their_own) {
    hf_lock *locks[64];
    struct chain chains[64];
    for (int i = 0; i < 64; i++) {
        own_text *name = text_of("own-%d", i);
        assert_int_equal(hf_lock_new(w->client, name, &locks[i]), HF_OK);
        memset(&chains[i], 0, sizeof chains[i]);
        chains[i].lock = locks[i];
        chains[i].client = w->client;
        atomic_store(&chains[i].left, 20);
        assert_int_equal(hf_lock_acquire_start(locks[i], NULL, chain_acquired, &chains[i], NULL),
                         HF_OK);
    }
    for (int i = 0; i < 64; i++) {
        assert_true(world_wait_atomic(&chains[i].done, 21, HANG_MS));
        assert_int_equal(chains[i].inside, 21);
        hf_lock_free(locks[i]);
    }
    assert_int_equal(world_keys(w->server), 0);
}

static void waiting_inside_a_callback_is_refused_cb(hf_op *op, const hf_result *result,
                                                    void *user) {
    (void)result;
    atomic_int *code = user;
    atomic_store(code, -hf_op_wait(op, HF_FOREVER, NULL));
}

WORLD_CASE(waiting_inside_a_callback_is_refused) {
    own_op *op;
    atomic_int code = 0;
    assert_int_equal(hf_ping_start(w->client, waiting_inside_a_callback_is_refused_cb, &code, &op),
                     HF_OK);
    assert_true(world_wait_atomic(&code, 1, HANG_MS));
    assert_int_equal(atomic_load(&code), -HF_EDEADLK);
}

/* ---- Cancelling ---- */

WORLD_CASE(cancelled_while_it_waits) {
    hf_op *op;
    struct completion completion = {0};
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_start(w->lock, NULL, on_done, &completion, &op), HF_OK);
    assert_true(wait_until(somebody_listens, w->server, HANG_MS));
    hf_op_cancel(op);
    hf_op_cancel(op);
    wait_completion(&completion);
    assert_int_equal(completion.result.code, HF_ECANCELED);
    hf_op_cancel(op); /* after it */
    hf_op_free(op);
    assert_true(world_wait_no_channels(w->server, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    /* Its last attempt may have been on its way, and is undone then. */
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(world_stats(w->client).cancelled, 1);
    assert_int_equal(atomic_load(&completion.calls), 1);
}

static bool nothing_left(void *server) {
    return world_keys(server) == 0;
}

/* At once, when it may be anywhere between start and answer: acquired or cancelled, and then
 * nothing is left. On names of their own, since a lock that may have been taken is only given back
 * when the command can act no more. */
WORLD_CASE(cancelled_at_once) {
    uint64_t cancelled = 0;
    for (int i = 0; i < 300; i++) {
        struct completion completion = {0};
        hf_op *op;
        own_text *name = text_of("own-%d", i);
        own_lock *lock = made(hf_lock_new, w->client, name);
        assert_int_equal(hf_lock_acquire_start(lock, NULL, on_done, &completion, &op), HF_OK);
        if (i % 3 == 1)
            sched_yield();
        if (i % 3 == 2)
            (void)wait_a_moment();
        hf_op_cancel(op);
        wait_completion(&completion);
        hf_op_free(op);
        if (completion.result.code == HF_OK) {
            assert_int_equal(hf_lock_release_as(lock, completion.result.owner), HF_OK);
        } else {
            assert_int_equal(completion.result.code, HF_ECANCELED);
            cancelled++;
        }
    }
    assert_true(cancelled > 0);
    assert_true(wait_until(nothing_left, w->server, HANG_MS));
    hf_stats stats = world_stats(w->client);
    assert_int_equal(stats.cancelled, cancelled);
    assert_int_equal(stats.acquired, 301 - cancelled); /* one by world_begin */
    assert_int_equal(stats.holds, 0);
}

/* A cancelled acquire was granted, unheard. Its owner comes again while another of this process
 * waits at the server for just that acquire in doubt: it takes it over, and does not queue behind the
 * other. */
CASE(an_owner_that_returns_takes_over_its_acquire_in_doubt) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(),
                      "an acquire that was given up is deleted there, and never taken over");
    struct world_caller waiter;
    own_op *op;
    hf_options patient = world_options();
    patient.cmd_timeout_ms = 5000;
    world_begin(&w, &patient);
    assert_int_equal(world_acquire_async(w.lock, 9, 0, NULL), HF_OK); /* the way is warm */
    assert_int_equal(world_release_async(w.lock, 9, NULL), HF_OK);
    hf_acquire_options options = world_wait_as(9, 0, HF_WATCHDOG);
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
        assert_true(atomic_load(&waiter.done)); /* we came late: it was undone already */
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
}

/* A verb that needs no waiting is not undone. */
WORLD_CASE(cancel_does_not_undo_a_release) {
    struct completion completion = {0};
    own_op *op;
    assert_int_equal(world_acquire_async(w->lock, 9, 0, NULL), HF_OK);
    proxy_delay(w->proxy, WORLD_RELEASE, 100);
    assert_int_equal(hf_lock_release_start(w->lock, 9, on_done, &completion, &op), HF_OK);
    hf_op_cancel(op);
    wait_completion(&completion);
    assert_int_equal(completion.result.code, HF_OK);
    assert_true(world_free(w));
}

/* ---- Closing ---- */

WORLD_CASE(U59_close_ends_everything_that_is_pending) {
    enum { WAITING = 50 };
    struct completion completion[WAITING] = {0}, ping = {0};
    hf_op *ops[WAITING];
    own_lock *held;
    hf_options options = world_options();
    hf_client *client = made(hf_open, proxy_url(w->proxy), &options);
    own_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    assert_int_equal(hf_lock_new(client, "held", &held), HF_OK);
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    struct world_caller sync;
    world_call_acquire(&sync, lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(somebody_listens, w->server, HANG_MS));
    for (int i = 0; i < WAITING; i++)
        assert_int_equal(hf_lock_acquire_start(lock, NULL, on_done, &completion[i], &ops[i]),
                         HF_OK);
    proxy_blackhole(w->proxy, true, true); /* closing never waits for the network */
    assert_int_equal(hf_ping_start(client, on_done, &ping, NULL), HF_OK);

    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(world_join(&sync), HF_ECLOSED);
    for (int i = 0; i < WAITING; i++) {
        assert_int_equal(atomic_load(&completion[i].calls), 1);
        assert_int_equal(completion[i].result.code, HF_ECLOSED);
        hf_op_cancel(ops[i]); /* allowed, and nothing happens */
        assert_int_equal(hf_op_wait(ops[i], 0, NULL), HF_ECLOSED);
        hf_op_free(ops[i]);
    }
    assert_int_equal(atomic_load(&ping.calls), 1);
    assert_int_equal(ping.result.code, HF_ECLOSED);
    proxy_heal(w->proxy);
    assert_true(server_has(w->server, "held")); /* not released: its work may go on */
    assert_int_equal(world_count(w, w->rival_owner), 1);
    assert_int_equal(hf_lock_try(lock), HF_ECLOSED);
    assert_int_equal(hf_lock_acquire_start(lock, NULL, on_done, &completion[0], NULL), HF_ECLOSED);
    assert_int_equal(atomic_load(&completion[0].calls), 1);
}

/* ---- Many ---- */

struct visitors {
    struct crowd crowd;
    hf_lock *lock;
    atomic_int released;
};

static void on_released(hf_op *op, const hf_result *result, void *user) {
    struct visitors *visitors = user;
    (void)op;
    if (crowd_expect(&visitors->crowd, result->code == HF_OK))
        atomic_fetch_add(&visitors->released, 1);
}

static void on_acquired(hf_op *op, const hf_result *result, void *user) {
    struct visitors *visitors = user;
    struct crowd *crowd = &visitors->crowd;
    (void)op;
    crowd_expect(crowd, result->code == HF_OK);
    crowd_visit(crowd);
    crowd_expect(crowd, hf_lock_release_start(visitors->lock, result->owner, on_released, visitors,
                                              NULL) == HF_OK);
}

WORLD_CASE(a_thousand_waiters_on_one_name) {
    struct visitors visitors = {.lock = w->lock};
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(hf_lock_acquire_start(w->lock, NULL, on_acquired, &visitors, NULL), HF_OK);
    assert_true(wait_until(somebody_listens, w->server, HANG_MS));
    assert_int_equal(atomic_load(&visitors.crowd.entered), 0);
    assert_true(server_has(w->server, WORLD_NAME));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    /* A busy machine takes its time for a thousand: they hang if none gets on. */
    for (int i = 50; i <= 1000; i += 50)
        assert_true(world_wait_atomic(&visitors.released, i, HANG_MS));
    crowd_assert_exclusive(&visitors.crowd);
    assert_true(world_free(w));
    assert_true(world_wait_no_channels(w->server, HANG_MS));
}

RUN_CASES(world_start_server, world_stop_server)
