/*
 * Manual dispatch: callbacks run in hf_dispatch() and nowhere else, and hf_dispatch_fd() tells when
 * to call it.
 *
 * One loop blocks in hf_dispatch(), the other polls the descriptor and calls hf_dispatch(client, 0)
 * only when it is readable; whatever works with the first must work with the second. A wake-up that
 * the descriptor misses would hang the second loop, one too many would keep it from ever resting.
 */
#include "support/world.h"

#include <poll.h>

struct bench {
    struct world w;
    hf_client *client; /* dispatched by hand, through the proxy */
    hf_lock *lock;
    bool by_poll;
};

static void bench_begin(struct bench *b, bool by_poll, int64_t watchdog_ms) {
    hf_options options = world_options();
    world_begin(&b->w, &options);
    options.flags = HF_MANUAL_DISPATCH;
    options.watchdog_ms = watchdog_ms;
    b->by_poll = by_poll;
    assert_int_equal(hf_open(proxy_url(b->w.proxy), &options, &b->client), HF_OK);
    assert_int_equal(hf_lock_new(b->client, WORLD_NAME, &b->lock), HF_OK);
}

static void bench_end(struct bench *b) {
    hf_lock_free(b->lock);
    assert_int_equal(hf_close(b->client), HF_OK);
    world_end(&b->w);
}

/* One turn of the application's loop: how many callbacks ran. 0 when the limit passed. */
static int turn(struct bench *b, int64_t limit_ms) {
    if (!b->by_poll)
        return hf_dispatch(b->client, limit_ms);
    int64_t end_ms = now_ms() + limit_ms;
    for (;;) {
        int64_t left_ms = end_ms - now_ms();
        struct pollfd fd = {.fd = hf_dispatch_fd(b->client), .events = POLLIN};
        if (poll(&fd, 1, left_ms > 0 ? (int)left_ms : 0) == 0)
            return 0;
        int ran = hf_dispatch(b->client, 0);
        if (ran != 0)
            return ran;
    }
}

/* NOLINTNEXTLINE(bugprone-macro-parentheses): it names a variable */
#define FOR_BOTH_LOOPS(by_poll) for (int by_poll = 0; by_poll <= 1; by_poll++)

struct completion {
    int calls;
    hf_op *op;
    hf_result result;
    pthread_t thread;
};

static void on_done(hf_op *op, const hf_result *result, void *user) {
    struct completion *completion = user;
    completion->calls++;
    completion->op = op;
    completion->result = *result;
    completion->thread = pthread_self();
}

static void run_until_completion(struct bench *b, struct completion *completion) {
    int64_t end_ms = now_ms() + HANG_MS;
    while (completion->calls == 0) {
        assert_true(now_ms() < end_ms);
        assert_true(turn(b, HANG_MS) >= 0);
    }
    assert_int_equal(completion->calls, 1);
    assert_true(pthread_equal(completion->thread, pthread_self()));
}

static hf_result acquire(struct bench *b, hf_owner owner, int64_t wait_ms) {
    struct completion completion = {0};
    hf_acquire_options options = world_wait_as(owner, wait_ms, HF_WATCHDOG);
    assert_int_equal(hf_lock_acquire_start(b->lock, &options, on_done, &completion, NULL), HF_OK);
    run_until_completion(b, &completion);
    return completion.result;
}

static int release(struct bench *b, hf_owner owner) {
    struct completion completion = {0};
    assert_int_equal(hf_lock_release_start(b->lock, owner, on_done, &completion, NULL), HF_OK);
    run_until_completion(b, &completion);
    return completion.result.code;
}

/* ---- Every verb ---- */

static int64_t ask(struct bench *b, int (*start)(hf_lock *, hf_op_fn, void *, hf_op **)) {
    struct completion completion = {0};
    hf_op *op;
    assert_int_equal(start(b->lock, on_done, &completion, &op), HF_OK);
    run_until_completion(b, &completion);
    assert_ptr_equal(completion.op, op);
    hf_op_free(op);
    assert_int_equal(completion.result.code, HF_OK);
    return completion.result.value;
}

static int64_t ask_of(struct bench *b, hf_owner owner,
                      int (*start)(hf_lock *, hf_owner, hf_op_fn, void *, hf_op **)) {
    struct completion completion = {0};
    assert_int_equal(start(b->lock, owner, on_done, &completion, NULL), HF_OK);
    run_until_completion(b, &completion);
    assert_int_equal(completion.result.code, HF_OK);
    return completion.result.value;
}

CASE(every_verb) {
    FOR_BOTH_LOOPS(by_poll) {
        struct bench b;
        bench_begin(&b, by_poll, 60000);
        assert_int_equal(ask(&b, hf_lock_is_locked_start), 0);
        assert_int_equal(ask(&b, hf_lock_ttl_ms_start), -2);
        assert_int_equal(acquire(&b, 9, 0).count, 1);
        assert_int_equal(acquire(&b, 9, HF_FOREVER).count, 2);
        assert_int_equal(ask(&b, hf_lock_is_locked_start), 1);
        assert_int_equal(ask_of(&b, 9, hf_lock_is_mine_start), 1);
        assert_int_equal(ask_of(&b, 8, hf_lock_is_mine_start), 0);
        assert_int_equal(ask_of(&b, 9, hf_lock_hold_count_start), 2);
        bool by_session = server_is_other(b.w.server); /* and asked by another owner than its own */
        int64_t ttl_ms = ask(&b, hf_lock_ttl_ms_start);
        assert_true(by_session ? ttl_ms == -1 : ttl_ms > 30000);
        struct completion completion = {0};
        assert_int_equal(hf_lock_extend_start(b.lock, 9, 90000, on_done, &completion, NULL), HF_OK);
        run_until_completion(&b, &completion);
        assert_int_equal(completion.result.code, HF_OK);
        assert_true(completion.result.remaining_ms > (by_session ? 30000 : 60000));
        assert_int_equal(release(&b, 9), HF_OK);
        assert_int_equal(release(&b, 9), HF_OK);
        assert_int_equal(release(&b, 9), HF_ENOTOWNER);
        assert_int_equal(ask(&b, hf_lock_break_start), 0);
        assert_int_equal(acquire(&b, 0, 0).code, HF_OK);
        assert_int_equal(ask(&b, hf_lock_break_start), 1);
        memset(&completion, 0, sizeof completion);
        assert_int_equal(hf_ping_start(b.client, on_done, &completion, NULL), HF_OK);
        run_until_completion(&b, &completion);
        assert_int_equal(completion.result.code, HF_OK);
        bench_end(&b);
    }
}

/* Synchronous verbs need no dispatching. */
CASE_IN(synchronous_verbs_work_beside, struct bench, b, bench_begin, bench_end, false, 60000) {
    assert_int_equal(hf_lock_acquire(b->lock), HF_OK);
    assert_int_equal(acquire(b, 0, 0).code, HF_EBUSY);
    assert_int_equal(hf_lock_release(b->lock), HF_OK);
    hf_result result = acquire(b, 0, 0);
    assert_int_equal(result.code, HF_OK);
    assert_int_equal(hf_lock_try(b->lock), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(b->lock, result.owner), HF_OK);
}

/* ---- Waiting ---- */

static bool somebody_listens(void *server) {
    return world_channels(server) > 0;
}

/* Turns the loop until its waiter sleeps: it has tried, subscribed and tried again, and has read what
 * the server said to that. */
static void turn_until_it_rests(struct bench *b, size_t attempts) {
    int64_t end_ms = now_ms() + HANG_MS;
    size_t tries = server_is_other(b->w.server) ? 1 : 2; /* a watch needs no second one */
    while (proxy_seen(b->w.proxy, world_acquires(&b->w)) < attempts + tries ||
           !somebody_listens(b->w.server)) {
        assert_true(now_ms() < end_ms);
        assert_int_equal(turn(b, 5), 0);
    }
    assert_true(proxy_wait_answered(b->w.proxy, HANG_MS));
    assert_int_equal(turn(b, 50), 0);
}

CASE(a_wait_ends_by_release_timeout_and_cancel) {
    FOR_BOTH_LOOPS(by_poll) {
        struct bench b;
        struct completion waiting = {0};
        hf_op *op;
        bench_begin(&b, by_poll, 60000);
        assert_int_equal(hf_lock_acquire(b.w.rival_lock), HF_OK);
        int64_t start_ms = now_ms();
        assert_int_equal(acquire(&b, 0, 300).code, HF_ETIMEDOUT);
        assert_true(now_ms() - start_ms >= 300);

        size_t attempts = proxy_seen(b.w.proxy, world_acquires(&b.w));
        assert_int_equal(hf_lock_acquire_start(b.lock, NULL, on_done, &waiting, &op), HF_OK);
        turn_until_it_rests(&b, attempts);
        hf_op_cancel(op);
        run_until_completion(&b, &waiting);
        assert_int_equal(waiting.result.code, HF_ECANCELED);
        hf_op_free(op);

        memset(&waiting, 0, sizeof waiting);
        attempts = proxy_seen(b.w.proxy, world_acquires(&b.w));
        assert_int_equal(hf_lock_acquire_start(b.lock, NULL, on_done, &waiting, NULL), HF_OK);
        turn_until_it_rests(&b, attempts);
        assert_int_equal(hf_lock_release(b.w.rival_lock), HF_OK);
        run_until_completion(&b, &waiting);
        assert_int_equal(waiting.result.code, HF_OK);
        assert_int_equal(release(&b, waiting.result.owner), HF_OK);
        bench_end(&b);
    }
}

/* Timers too: a waiter enters when the other's lease ends, without a message. */
CASE(a_wait_ends_with_the_others_lease) {
    FOR_BOTH_LOOPS(by_poll) {
        struct bench b;
        bench_begin(&b, by_poll, 60000);
        hf_acquire_options brief = world_wait_for(0, 300);
        int64_t start_ms = now_ms();
        world_acquire_brief(b.w.rival_lock, &brief);
        hf_result result = acquire(&b, 0, HF_FOREVER);
        assert_int_equal(result.code, HF_OK);
        assert_true(now_ms() - start_ms >= 300);
        assert_true(now_ms() - start_ms < 9000); /* not by the poll after 10 s */
        assert_int_equal(release(&b, result.owner), HF_OK);
        bench_end(&b);
    }
}

/* A loop that rests: with a waiter pending, the descriptor is quiet. */
CASE_IN(the_descriptor_is_quiet_when_there_is_nothing_to_do, struct bench, b, bench_begin,
        bench_end, true, 60000) {
    struct completion waiting = {0};
    assert_int_equal(hf_lock_acquire(b->w.rival_lock), HF_OK);
    size_t attempts = proxy_seen(b->w.proxy, world_acquires(&b->w));
    assert_int_equal(hf_lock_acquire_start(b->lock, NULL, on_done, &waiting, NULL), HF_OK);
    turn_until_it_rests(b, attempts);
    struct pollfd fd = {.fd = hf_dispatch_fd(b->client), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 200), 0);
    assert_int_equal(hf_dispatch(b->client, 0), 0);
    assert_int_equal(poll(&fd, 1, 0), 0);
    assert_int_equal(hf_lock_release(b->w.rival_lock), HF_OK);
    assert_int_equal(poll(&fd, 1, HANG_MS), 1);
    run_until_completion(b, &waiting);
    assert_int_equal(release(b, waiting.result.owner), HF_OK);
}

CASE_IN(dispatch_waits_as_long_as_asked, struct bench, b, bench_begin, bench_end, false, 60000) {
    assert_int_equal(hf_dispatch(b->client, 0), 0);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_dispatch(b->client, 150), 0);
    assert_true(now_ms() - start_ms >= 150);
    assert_int_equal(hf_dispatch(b->client, -2), HF_EINVAL);
    assert_int_equal(hf_dispatch(NULL, 0), HF_EINVAL);
    assert_int_equal(hf_dispatch(b->w.client, 0), HF_EINVAL); /* that one has a thread of its own */
    assert_int_equal(hf_dispatch_fd(b->w.client), HF_EINVAL);
}

/* ---- Many ---- */

struct chain {
    struct bench *b;
    int left, done;
    int64_t inside;
    int errors;
};

static void chain_released(hf_op *op, const hf_result *result, void *user);

static void chain_acquired(hf_op *op, const hf_result *result, void *user) {
    struct chain *chain = user;
    (void)op;
    chain->inside++;
    if (result->code != HF_OK || hf_dispatch(chain->b->client, 0) != HF_EDEADLK ||
        hf_lock_release_start(chain->b->lock, result->owner, chain_released, chain, NULL) != HF_OK)
        chain->errors++;
}

static void chain_released(hf_op *op, const hf_result *result, void *user) {
    struct chain *chain = user;
    (void)op;
    chain->errors += result->code != HF_OK;
    chain->done++;
    if (chain->left-- > 0 &&
        hf_lock_acquire_start(chain->b->lock, NULL, chain_acquired, chain, NULL) != HF_OK)
        chain->errors++;
}

CASE(sixty_four_in_flight) {
    FOR_BOTH_LOOPS(by_poll) {
        struct bench b;
        bench_begin(&b, by_poll, 60000);
        struct chain chain = {.b = &b, .left = 300};
        for (int i = 0; i < 64; i++)
            assert_int_equal(hf_lock_acquire_start(b.lock, NULL, chain_acquired, &chain, NULL),
                             HF_OK);
        while (chain.done < 364)
            assert_true(turn(&b, HANG_MS) > 0);
        assert_int_equal(chain.errors, 0);
        assert_int_equal(chain.inside, 364);
        assert_true(world_free(&b.w));
        bench_end(&b);
    }
}

/* ---- Threads ---- */

struct dispatcher {
    struct bench *b;
    atomic_bool stop;
    int result;
};

static void *dispatch_until_stopped(void *arg) {
    struct dispatcher *d = arg;
    while (!atomic_load(&d->stop) && d->result >= 0)
        d->result = hf_dispatch(d->b->client, 50);
    return NULL;
}

/* Somebody else dispatches: then one may wait for operations, and must not dispatch too. */
CASE_IN(op_wait_while_another_thread_dispatches, struct bench, b, bench_begin, bench_end, false,
        60000) {
    struct dispatcher d = {.b = b};
    pthread_t thread = started(dispatch_until_stopped, &d);
    for (int i = 0; i < 100; i++) {
        hf_result result = HF_RESULT_INIT;
        assert_int_equal(world_acquire_async(b->lock, 0, 0, &result), HF_OK);
        assert_int_equal(world_release_async(b->lock, result.owner, NULL), HF_OK);
    }
    int busy = 0;
    for (int i = 0; i < 1000 && busy != HF_EBUSY; i++)
        busy = hf_dispatch(b->client, 0);
    assert_int_equal(busy, HF_EBUSY);
    atomic_store(&d.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(d.result >= 0 || d.result == HF_EBUSY);
}

static void *dispatch_for_ever(void *arg) {
    struct dispatcher *d = arg;
    do
        d->result = hf_dispatch(d->b->client, HF_FOREVER);
    while (d->result > 0);
    return NULL;
}

CASE(U59_close_ends_a_dispatch_and_runs_the_rest) {
    struct bench b;
    bench_begin(&b, false, 60000);
    struct dispatcher d = {.b = &b};
    struct completion completion = {0};
    hf_op *op;
    assert_int_equal(hf_lock_acquire(b.w.rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_start(b.lock, NULL, on_done, &completion, &op), HF_OK);
    pthread_t thread = started(dispatch_for_ever, &d);
    assert_true(wait_until(somebody_listens, b.w.server, HANG_MS));
    hf_lock_free(b.lock);
    assert_int_equal(hf_close(b.client), HF_OK);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(d.result == 0 || d.result == HF_ECLOSED);
    assert_int_equal(completion.calls, 1);
    assert_int_equal(completion.result.code, HF_ECLOSED);
    hf_op_free(op);
    world_end(&b.w);
}

CASE(U59_close_without_a_dispatch) {
    struct bench b;
    bench_begin(&b, true, 60000);
    struct completion completion[20];
    memset(completion, 0, sizeof completion);
    for (int i = 0; i < 20; i++)
        assert_int_equal(hf_lock_acquire_start(b.lock, NULL, on_done, &completion[i], NULL), HF_OK);
    hf_lock_free(b.lock);
    assert_int_equal(hf_close(b.client), HF_OK); /* nobody has called hf_dispatch() ever */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(completion[i].calls, 1);
        assert_int_equal(completion[i].result.code, HF_ECLOSED);
    }
    world_end(&b.w);
}

/* ---- Renewals and losses ---- */

static bool renewed(void *client) {
    return world_stats(client).renewals >= 3;
}

/* No thread dispatches, and the lock is renewed all the same. */
CASE_IN(renewals_do_not_need_a_dispatch, struct bench, b, bench_begin, bench_end, false,
        ENDURING_MS) {
    hf_result result = acquire(b, 0, 0);
    assert_int_equal(result.code, HF_OK);
    assert_true(wait_until(renewed, b->client, HANG_MS));
    assert_true(hf_lock_remaining_ms_as(b->lock, result.owner) > 0);
    assert_int_equal(release(b, result.owner), HF_OK);
}

CASE(losses_are_reported_in_a_dispatch) {
    FOR_BOTH_LOOPS(by_poll) {
        struct bench b;
        struct world_events events = {0};
        bench_begin(&b, by_poll, ENDURING_MS);
        assert_int_equal(hf_lock_on_lost(b.lock, world_on_event, &events), HF_OK);
        int fd = hf_lock_lost_fd(b.lock);
        hf_result result = acquire(&b, 0, 0);
        assert_int_equal(result.code, HF_OK);
        server_drop(b.w.server, WORLD_NAME);
        struct pollfd lost = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&lost, 1, HANG_MS), 1); /* this needs no dispatch */
        assert_int_equal(atomic_load(&events.losses), 0);
        while (atomic_load(&events.losses) == 0)
            assert_true(turn(&b, HANG_MS) > 0); /* two, if the renewal was late: a warning */
        assert_int_equal(atomic_load(&events.losses), 1);
        assert_int_equal(release(&b, result.owner), HF_ELOST);
        assert_int_equal(release(&b, result.owner), HF_ENOTOWNER);
        bench_end(&b);
    }
}

/* The connection it drives may be lost at any time. */
CASE(reconnects_while_dispatching) {
    FOR_BOTH_LOOPS(by_poll) {
        struct bench b;
        bench_begin(&b, by_poll, 60000);
        for (int i = 0; i < 5; i++) {
            hf_result result = acquire(&b, 0, HF_FOREVER);
            assert_int_equal(result.code, HF_OK);
            assert_true(proxy_cut_all(b.w.proxy) > 0);
            assert_int_equal(release(&b, result.owner), HF_OK);
            assert_true(world_free(&b.w));
        }
        bench_end(&b);
    }
}

RUN_CASES(world_start_server, world_stop_server)
