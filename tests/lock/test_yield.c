/*
 * Yielding to remote waiters (src/redis/wait/yield_to_waiters.c): a client that re-acquires right
 * after releasing a plain lock yields if others were notified, and a cohort lets all of those go
 * first.
 *
 * A server that answers the release slowly makes the yield long here, so that it differs from the
 * delays of a busy machine: lower bounds. A round that a pause of the machine spoils is repeated.
 */
#include "lock/cohort.h"
#include "support/crowd.h"

#define SLOW_MS 10  /* the answer to the release */
#define STAND_MS 15 /* what is stood back for then is 20 ms, on clocks of whole milliseconds */
#define TRIES 20
#define POLL_MS 10000 /* a waiter without a message asks then */

/* A subscriber that does nothing. */
static redisContext *listener(struct world *w) {
    redisContext *subscriber = server_connect(w->server);
    own_reply *reply = redisCommand(subscriber, "SUBSCRIBE " WORLD_CHANNEL);
    assert_non_null(reply);
    return subscriber;
}

/* The lock is ours after a wait, so that our client listens, too. */
static void acquire_after_wait(struct world *w) {
    struct world_caller caller;
    hf_acquire_options options = world_wait_as(5, HANG_MS, HF_WATCHDOG);
    size_t subscribed = proxy_seen(w->proxy, WORLD_SUBSCRIBE);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    world_call_acquire(&caller, w->lock, options);
    assert_true(proxy_wait_seen(w->proxy, WORLD_SUBSCRIBE, subscribed + 1, HANG_MS));
    assert_true(WAIT_FOR(cmd_int(w->server, "PUBLISH " WORLD_CHANNEL " 0") >= 1, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&caller), HF_OK);
}

static void let_slow_release_through(struct world *w) {
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_true(HOLDS_FOR(proxy_held(w->proxy) > 0, SLOW_MS));
    assert_true(proxy_release_held(w->proxy) > 0);
}

static void release_slowly(struct world *w, hf_owner owner) {
    hf_op *op;
    proxy_stall_request(w->proxy, WORLD_RELEASE);
    assert_int_equal(hf_lock_release_start(w->lock, owner, NULL, NULL, &op), HF_OK);
    let_slow_release_through(w);
    assert_int_equal(cohort_join(op), HF_OK);
}

/* How long an acquire takes right after such a release, with or without somebody else who listens. */
static int64_t comes_again_after_ms(bool others, int64_t wait_ms) {
    struct world w;
    world_begin(&w, NULL);
    redisContext *subscriber = others ? listener(&w) : NULL;
    acquire_after_wait(&w);
    release_slowly(&w, 5);
    hf_acquire_options options = world_wait_for(wait_ms, HF_WATCHDOG);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_with(w.lock, &options, NULL), HF_OK);
    int64_t took_ms = now_ms() - start_ms;
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    if (subscriber != NULL)
        redisFree(subscriber);
    world_end(&w);
    return took_ms;
}

CASE(a_client_that_released_yields) {
    int64_t took_ms = 0;
    for (int i = 0; i < TRIES && took_ms < STAND_MS; i++)
        took_ms = comes_again_after_ms(true, HF_FOREVER);
    assert_true(took_ms >= STAND_MS);
}

/* Neither if nobody else was notified, nor for a single attempt, nor for a wait that has no time for it. */
CASE(only_if_it_can_be) {
    const struct {
        bool others;
        int64_t wait_ms;
    } cases[] = {{false, HF_FOREVER}, {true, 0}, {true, 30}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t took_ms = STAND_MS;
        for (int k = 0; k < TRIES && took_ms >= STAND_MS; k++)
            took_ms = comes_again_after_ms(cases[i].others, cases[i].wait_ms);
        assert_true(took_ms < STAND_MS);
    }
}

/* Nothing was sent yet, so there is nothing to undo. */
CASE(it_ends_whenever_it_is_asked_to) {
    for (int closes = 0; closes < 2; closes++) {
        struct world w;
        hf_op *op;
        world_begin(&w, NULL);
        redisContext *subscriber = listener(&w);
        acquire_after_wait(&w);
        release_slowly(&w, 5);
        op = cohort_start(w.lock, 6, HF_FOREVER, NULL);
        if (closes != 0) {
            hf_close(w.client);
            w.client = NULL;
        } else {
            hf_op_cancel(op);
        }
        int err = joined(op, NULL);
        /* or it was late, and had it */
        assert_true(err == HF_OK || err == (closes != 0 ? HF_ECLOSED : HF_ECANCELED));
        if (err != HF_OK)
            assert_true(world_wait_free(&w, HANG_MS));
        redisFree(subscriber);
        if (closes != 0)
            assert_int_equal(hf_open(proxy_url(w.proxy), NULL, &w.client), HF_OK);
        world_end(&w);
    }
}

/* ---- Messages that do not come ---- */

/* An operation right after such a release, of a client that hears nothing more until the proxy is healed. `taken`: the
 * rival has the lock then. An owner that is not new is not parked. `ret_attempts`: before its first. */
static hf_op *come_again_unsubscribed(struct world *w, bool taken, int64_t *ret_start_ms,
                                      size_t *ret_attempts) {
    acquire_after_wait(w);
    assert_int_equal(proxy_freeze_connections(w->proxy, WORLD_SUBSCRIBE), 1);
    release_slowly(w, 5);
    if (taken)
        assert_int_equal(hf_lock_try(w->rival_lock), HF_OK);
    *ret_attempts = proxy_seen(w->proxy, WORLD_ACQUIRE);
    *ret_start_ms = now_ms();
    return cohort_start(w->lock, 6, HF_FOREVER, NULL);
}

static void release_and_free(struct world *w, hf_op *op) {
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_op_wait(op, HANG_MS, &result), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
    hf_op_free(op);
}

/* Nobody tells it that nobody else wants the lock, or that others have had it: it attempts all the same. */
WORLD_CASE(a_lost_message_ends_it_as_well) {
    own_context *subscriber = listener(w);
    int64_t start_ms;
    size_t attempts;
    hf_op *op = come_again_unsubscribed(w, false, &start_ms, &attempts);
    assert_int_equal(hf_op_wait(op, POLL_MS / 2, NULL), HF_OK);
    proxy_heal(w->proxy);
    release_and_free(w, op);
}

/* The message of its own release has not come when it attempts, in vain. Every later message is for it,
 * although the first message is still that one: both come together. False: it did not stand back. */
static bool receives_messages_after_its_attempt(void) {
    struct world w;
    world_begin(&w, NULL);
    redisContext *subscriber = listener(&w);
    int64_t start_ms;
    size_t attempts;
    hf_op *op = come_again_unsubscribed(&w, true, &start_ms, &attempts);
    assert_true(proxy_wait_seen(w.proxy, WORLD_ACQUIRE, attempts + 1, HANG_MS));
    bool stood_back = now_ms() - start_ms >= STAND_MS;
    hf_op *ping; /* goes the same way, so the attempt is answered when it is */
    assert_int_equal(hf_ping_start(w.client, NULL, NULL, &ping), HF_OK);
    assert_int_equal(cohort_join(ping), HF_OK);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    proxy_heal(w.proxy);
    assert_int_equal(hf_op_wait(op, POLL_MS / 2, NULL), HF_OK);
    release_and_free(&w, op);
    redisFree(subscriber);
    world_end(&w);
    return stood_back;
}

CASE(its_own_message_is_none_after_an_attempt) {
    bool stood_back = false;
    for (int i = 0; i < TRIES && !stood_back; i++)
        stood_back = receives_messages_after_its_attempt();
    assert_true(stood_back);
}

/* An operation that stands back has not asked yet, so it is not parked, and what it is owed for is
 * not forgotten. It has met nobody, then. */
CASE(a_yielding_client_met_no_contention) {
    int64_t took_ms = 0;
    for (int i = 0; i < TRIES && took_ms < STAND_MS; i++) {
        struct world w;
        world_begin(&w, NULL);
        redisContext *subscriber = listener(&w);
        acquire_after_wait(&w);
        release_slowly(&w, 5);
        uint64_t contended = world_stats(w.client).contended;
        hf_op *op = NULL;
        int64_t start_ms = now_ms();
        assert_int_equal(hf_lock_acquire_start(w.lock, NULL, NULL, NULL, &op), HF_OK);
        assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_OK);
        took_ms = now_ms() - start_ms;
        assert_int_equal(world_stats(w.client).contended, contended);
        release_and_free(&w, op);
        redisFree(subscriber);
        world_end(&w);
    }
    assert_true(took_ms >= STAND_MS);
}

/* ---- Cohorts ---- */

/* Somebody else has it as soon as it is free. */
static bool take(void *arg) {
    struct world *w = arg;
    return cmd_int(w->server, "EVAL %s 1 " WORLD_NAME,
                   "if redis.call('exists', KEYS[1]) == 1 then return 0 end "
                   "redis.call('hset', KEYS[1], 'other:1', 1) "
                   "return redis.call('pexpire', KEYS[1], 60000)") == 1;
}

/* From a message to the attempt that follows it, while others are owed to go first; -1: the machine paused, and the
 * cohort had the lock again. */
static int64_t follows_message_after_ms(void) {
    struct world w;
    redisContext *subscribers[3];
    int64_t took_ms = -1;
    cohort_begin(&w, NULL, 1, COHORT_LONG_MS);
    for (size_t i = 0; i < 3; i++)
        subscribers[i] = listener(&w);
    acquire_after_wait(&w);
    hf_op *first = cohort_start(w.lock, 11, HF_FOREVER, NULL);
    hf_op *second = cohort_start(w.lock, 12, HF_FOREVER, NULL);
    cohort_all_have_come(w.lock);
    assert_int_equal(hf_lock_release_as(w.lock, 5), HF_OK);
    assert_int_equal(cohort_join(first), HF_OK);
    size_t attempts = proxy_seen(w.proxy, WORLD_ACQUIRE);
    hf_op *release;
    proxy_stall_request(w.proxy, WORLD_RELEASE);
    assert_int_equal(hf_lock_release_start(w.lock, 11, NULL, NULL, &release), HF_OK);
    let_slow_release_through(&w);
    while (!take(&w) && cohort_is_pending(second))
        ;
    assert_int_equal(cohort_join(release), HF_OK);
    if (cohort_is_pending(second)) {
        assert_true(proxy_wait_seen(w.proxy, WORLD_ACQUIRE, attempts + 1, HANG_MS));
        assert_true(proxy_wait_answered(w.proxy, HANG_MS));
        attempts = proxy_seen(w.proxy, WORLD_ACQUIRE);
        int64_t start_ms = now_ms();
        cmd_int(w.server, "PUBLISH " WORLD_CHANNEL " 0");
        assert_true(proxy_wait_seen(w.proxy, WORLD_ACQUIRE, attempts + 1, HANG_MS));
        took_ms = now_ms() - start_ms;
        cmd_ok(w.server, "DEL " WORLD_NAME);
        cmd_int(w.server, "PUBLISH " WORLD_CHANNEL " 0");
    }
    assert_int_equal(cohort_join(second), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, 12), HF_OK);
    for (size_t i = 0; i < 3; i++)
        redisFree(subscribers[i]);
    world_end(&w);
    return took_ms;
}

CASE(cohort_yields_to_notified_waiters) {
    int64_t took_ms = -1;
    for (int i = 0; i < TRIES && took_ms < STAND_MS; i++)
        took_ms = follows_message_after_ms();
    assert_true(took_ms >= STAND_MS);
}

/* ---- All of them ---- */

#define COHORTS 3
#define PARTIES (COHORTS + 1) /* and somebody who passes nothing on */
#define THREADS 3             /* of a cohort */
#define TURNS 20              /* of each party, at least */

struct turns {
    struct crowd crowd;
    pthread_mutex_t mtx;
    int last;           /* who has it, or had it last */
    int turns[PARTIES]; /* so often it came to a party */
    int all;            /* to any of them */
};

struct one_of_many {
    struct turns *turns;
    int party;
    hf_lock *lock;
};

static bool everybody_had_enough(const struct turns *turns) {
    for (int i = 0; i < PARTIES; i++)
        if (turns->turns[i] < TURNS)
            return false;
    return true;
}

static void note_turn(struct turns *turns, int party) {
    pthread_mutex_lock(&turns->mtx);
    turns->turns[party] += turns->last != party;
    turns->all += turns->last != party;
    turns->last = party;
    if (everybody_had_enough(turns))
        atomic_store(&turns->crowd.over, true);
    pthread_mutex_unlock(&turns->mtx);
}

static void *come_again_and_again(void *arg) {
    struct one_of_many *self = arg;
    struct crowd *crowd = &self->turns->crowd;
    while (!atomic_load(&crowd->over)) {
        bool ok = crowd_expect(crowd, hf_lock_acquire(self->lock) == HF_OK);
        if (ok)
            note_turn(self->turns, self->party);
        if (!ok || !crowd_expect(crowd, hf_lock_release(self->lock) == HF_OK))
            atomic_store(&crowd->over, true); /* nobody waits for its turns */
    }
    return NULL;
}

/* Nobody is left out: the client that is worst off waits for no more than ten times as many as if
 * they took turns strictly, which on a machine that is too busy for others to come in time they do
 * not. */
CASE(cohorts_take_turns) {
    struct turns turns = {.mtx = PTHREAD_MUTEX_INITIALIZER, .last = -1};
    struct one_of_many all[COHORTS * THREADS + 1];
    hf_client *clients[PARTIES];
    size_t len = 0;
    for (int party = 0; party < PARTIES; party++) {
        bool cohort = party < COHORTS;
        assert_int_equal(hf_open(server_url(world_server()), NULL, &clients[party]), HF_OK);
        for (int i = 0; i < (cohort ? THREADS : 1); i++, len++) {
            all[len] = (struct one_of_many){.turns = &turns, .party = party};
            if (cohort)
                all[len].lock = cohort_lock(clients[party], HF_PLAIN, 0, 1000, 2);
            else
                assert_int_equal(hf_lock_new(clients[party], WORLD_NAME, &all[len].lock), HF_OK);
        }
    }
    for (size_t i = 0; i < len; i++)
        crowd_add(&turns.crowd, come_again_and_again, &all[i]);
    crowd_join(&turns.crowd);
    assert_int_equal(atomic_load(&turns.crowd.failures), 0);
    assert_true(turns.all <= 10 * PARTIES * TURNS);
    for (size_t i = 0; i < len; i++)
        hf_lock_free(all[i].lock);
    for (int party = 0; party < PARTIES; party++)
        hf_close(clients[party]);
}

RUN_CASES(world_start_server, world_stop_server)
