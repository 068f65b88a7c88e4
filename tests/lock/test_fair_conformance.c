/*
 * What Redisson's own tests ask of a fair lock, by the ids of the conformance list, with times and
 * crowds scaled down (full crowds with HF_SOAK). Of the rows that drive Redisson's scripts by hand
 * (C056 to C059), all but C057 are in tests/scripts and in the interop suite; in C064 the late
 * release reports the loss, on purpose.
 */
#include "lock/fair.h"

#include <inttypes.h>
#include <time.h>

#define FIRST 100

static bool soak(void) {
    return getenv("HF_SOAK") != NULL;
}

static hf_acquire_options as(hf_owner owner, int64_t wait_ms, int64_t lease_ms) {
    hf_acquire_options options = world_wait_as(owner, wait_ms, lease_ms);
    return options;
}

/* No waiter's deadline is further away than a lease and one wait of Java's, or our horizon. */
static void assert_no_drift(struct world *w, int64_t lease_ms) {
    int64_t now = cmd_int(w->server, "EVAL %s 0", "return redis.call('time')[1] * 1000");
    own_reply *scores = cmd(w->server, "ZRANGE " FAIR_DEADLINES " 0 -1 WITHSCORES");
    for (size_t i = 1; i < scores->elements; i += 2)
        assert_true(strtoll(scores->element[i]->str, NULL, 10) <= now + 1000 + lease_ms + 300000);
}

/* ---- Order ---- */

/* Every hand-over is by a lease that ran out. */
FAIR_CASE(C052_lease_timeout_keeps_order) {
    enum { COMERS = 8, LEASE_MS = 1500 }; /* time enough to note that one has come in */
    struct comer comers[COMERS];
    static struct arrivals arrivals;
    struct monitor *monitor = monitor_start(w->server);
    atomic_store(&arrivals.next, 0);
    for (int i = 0; i < COMERS; i++) {
        comers[i] = (struct comer){.lock = w->lock,
                                   .options = as((hf_owner)(FIRST + i), HANG_MS, LEASE_MS),
                                   .arrivals = &arrivals,
                                   .index = i,
                                   .keeps = true};
        comer_start(&comers[i]);
        if (i == 0)
            assert_int_equal(comer_join(&comers[0]), HF_OK);
        char owner[64];
        world_owner_text(w->client, (hf_owner)(FIRST + i), owner);
        assert_true(monitor_wait(monitor, owner, 1, HANG_MS)); /* the server has seen it come */
    }
    monitor_stop(monitor);
    for (int i = 1; i < COMERS; i++)
        assert_int_equal(comer_join(&comers[i]), HF_OK);
    for (int i = 0; i < COMERS; i++)
        assert_int_equal(atomic_load(&arrivals.order[i]), i);
    assert_true(wait_no_keys(w->server));
}

/* A crowd, all threads of one client. */
CASE(C053_a_crowd) {
    OWN(world_end) struct world w;
    int comers_len = soak() ? 500 : 60;
    struct comer *comers = calloc((size_t)comers_len, sizeof *comers);
    static struct arrivals arrivals;
    fair_begin(&w, NULL);
    atomic_store(&arrivals.next, 0);
    for (int i = 0; i < comers_len; i++) {
        comers[i] = (struct comer){.lock = w.lock,
                                   .options = as((hf_owner)(FIRST + i), HF_FOREVER, 30000),
                                   .arrivals = &arrivals,
                                   .index = i,
                                   .hold_ms = 2};
        comer_start(&comers[i]);
    }
    for (int i = 0; i < comers_len; i++)
        assert_int_equal(comer_join(&comers[i]), HF_OK);
    assert_int_equal(atomic_load(&arrivals.next), comers_len);
    assert_true(wait_no_keys(w.server));
    free(comers);
}

FAIR_CASE(C077_order_of_grants_is_order_of_arrival) {
    enum { COMERS = 16 };
    struct comer comers[COMERS];
    static struct arrivals arrivals;
    atomic_store(&arrivals.next, 0);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    for (int i = 0; i < COMERS; i++) {
        comers[i] = (struct comer){.lock = i % 3 == 0 ? w->rival_lock : w->lock,
                                   .options = as((hf_owner)(FIRST + i), HF_FOREVER, HF_WATCHDOG),
                                   .arrivals = &arrivals,
                                   .index = i,
                                   .hold_ms = 1};
        comer_start(&comers[i]);
        assert_true(wait_queue(w->server, i + 1));
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    for (int i = 0; i < COMERS; i++)
        assert_int_equal(comer_join(&comers[i]), HF_OK);
    for (int i = 0; i < COMERS; i++)
        assert_int_equal(atomic_load(&arrivals.order[i]), i);
    assert_true(wait_no_keys(w->server));
}

/* ---- Deadlines do not drift ---- */

static void drift(int rounds, int64_t wait_ms, int64_t hold_ms) {
    OWN(world_end) struct world w;
    enum { THREADS = 3, LEASE_MS = 3000 };
    struct comer comers[THREADS];
    struct world_caller last;
    static struct arrivals arrivals;
    own_cancel *cancel;
    fair_begin(&w, NULL);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    for (int round = 0; round < rounds; round++) {
        atomic_store(&arrivals.next, 0);
        for (int i = 0; i < THREADS; i++) {
            comers[i] = (struct comer){.lock = w.lock,
                                       .options = as((hf_owner)(FIRST + i), wait_ms, LEASE_MS),
                                       .arrivals = &arrivals,
                                       .index = i,
                                       .hold_ms = hold_ms};
            comer_start(&comers[i]);
        }
        for (int i = 0; i < THREADS; i++)
            comer_join(&comers[i]);
        assert_no_drift(&w, LEASE_MS);
    }
    hf_acquire_options options = as(FIRST, HF_FOREVER, LEASE_MS);
    options.cancel = cancel;
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    queue_up(&last, w.server, w.client, w.lock, FIRST, options);
    assert_no_drift(&w, LEASE_MS);
    hf_cancel_fire(cancel);
    assert_int_equal(world_join(&last), HF_ECANCELED);
    assert_true(wait_queue(w.server, 0)); /* or the break would hand it to one that is leaving */
    bool broken;
    assert_int_equal(hf_lock_break(w.lock, &broken), HF_OK);
    assert_true(broken);
    assert_true(world_free(&w));
    assert_true(wait_no_keys(w.server));
    assert_int_equal(hf_lock_release(w.rival_lock), HF_ELOST);
}

CASE(C054_C060_waits_that_fail_do_not_drift) {
    drift(10, 20, 30);
}

CASE(C055_waits_that_succeed_do_not_drift) {
    drift(10, HANG_MS, 5);
}

/* ---- One attempt ---- */

/* What Redisson does without a wait, by its wire contract: drops the heads whose time is over,
 * takes the lock if it is free and nobody else is head of the queue, or once more; else refuses. */
static const char java_try_once[] =
    "local lock, line, ends = KEYS[1], KEYS[2], KEYS[3] "
    "local me, lease_ms, wait_ms, now_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]) "
    "local first = redis.call('lindex', line, 0) "
    "while first do "
    "local score = redis.call('zscore', ends, first) "
    "if not score or tonumber(score) > now_ms then break end "
    "redis.call('zrem', ends, first) redis.call('lpop', line) "
    "first = redis.call('lindex', line, 0) end "
    "local mine = redis.call('hexists', lock, me) == 1 "
    "local free = redis.call('exists', lock) == 0 and (not first or first == me) "
    "if not mine and not free then return 1 end "
    "if free then redis.call('lpop', line) redis.call('zrem', ends, me) "
    "for _, other in ipairs(redis.call('zrange', ends, 0, -1)) do "
    "redis.call('zincrby', ends, -wait_ms, other) end end "
    "redis.call('hincrby', lock, me, 1) redis.call('pexpire', lock, lease_ms) return 0";

/* One who tries, ours or Redisson's. */
struct taker {
    struct world *w;
    bool java;
    hf_owner number;
    int64_t lease_ms;
};

static bool try_once(const struct taker *taker) {
    if (taker->java)
        return cmd_int(taker->w->server,
                       "EVAL %s 3 " WORLD_NAME " " FAIR_QUEUE " " FAIR_DEADLINES
                       " java:%lld %lld 5000 %lld",
                       java_try_once, (long long)taker->number, (long long)taker->lease_ms,
                       (long long)time(NULL) * 1000) == 0;
    hf_acquire_options options = as(taker->number, 0, taker->lease_ms);
    int err = hf_lock_acquire_with(taker->w->lock, &options, NULL);
    assert_true(err == HF_OK || err == HF_EBUSY);
    return err == HF_OK;
}

static void release_taker(const struct taker *taker) {
    if (taker->java)
        cmd_ok(taker->w->server, "DEL " WORLD_NAME); /* nobody is in the queue to be notified */
    else
        assert_int_equal(hf_lock_release_as(taker->w->lock, taker->number), HF_OK);
}

static bool tries_again(void *arg) {
    return try_once(arg);
}

/* The lock is all there is: nobody has lined up. */
static void assert_refused(const struct taker *taker) {
    assert_false(try_once(taker));
    assert_int_equal(world_keys(taker->w->server), 1);
}

/* Bit i of `javas` says whether the i-th is Redisson's. */
static void one_attempt_each(unsigned javas) {
    OWN(world_end) struct world w;
    enum { TAKERS = 4, LEASE_MS = 1500 }; /* longer than a call takes on a busy machine */
    struct taker takers[TAKERS];
    fair_begin(&w, NULL);
    for (int i = 0; i < TAKERS; i++)
        takers[i] = (struct taker){&w, (javas >> i & 1) != 0, (hf_owner)(FIRST + i), 60000};
    assert_true(try_once(&takers[0]));
    assert_refused(&takers[1]);
    assert_refused(&takers[2]);
    release_taker(&takers[0]);
    assert_int_equal(world_keys(w.server), 0);

    takers[1].lease_ms = LEASE_MS;
    int64_t start_ms = now_ms();
    assert_true(try_once(&takers[1]));
    assert_true(wait_until(tries_again, &takers[2], HANG_MS));
    assert_true(now_ms() - start_ms >= LEASE_MS);
    assert_refused(&takers[3]);
    assert_refused(&takers[0]);
    if (!takers[1].java) /* and it learns that its time was over */
        assert_int_equal(hf_lock_release_as(w.lock, takers[1].number), HF_ELOST);
    release_taker(&takers[2]);
    assert_int_equal(world_keys(w.server), 0);
}

CASE(C057_one_attempt_never_queues) {
    one_attempt_each(0);
    one_attempt_each(5);
    one_attempt_each(10);
    one_attempt_each(15);
}

/* ---- One owner ---- */

FAIR_CASE(C063_C068_C070_force_and_questions) {
    bool yes;
    assert_int_equal(hf_lock_is_locked(w->lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_is_mine(w->lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_is_locked(w->rival_lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(w->lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_break(w->rival_lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_locked(w->lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_is_mine(w->lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_break(w->rival_lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(world_keys(w->server), 0);
}

/* Breaking gives it to the head of the queue, as a release does. */
FAIR_CASE(C063_break_hands_over) {
    struct world_caller waiter;
    bool broken;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(hf_lock_break(w->lock, &broken), HF_OK);
    assert_true(broken);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_ELOST);
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

FAIR_CASE(C064_waiter_enters_on_expiry_and_the_late_release_fails) {
    enum { LEASE_MS = 400 };
    hf_acquire_options options = world_wait_for(HF_FOREVER, LEASE_MS);
    int64_t start_ms = now_ms();
    world_acquire_brief(w->rival_lock, &options);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(now_ms() - start_ms >= LEASE_MS);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_ELOST);
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

FAIR_CASE(C066_C073_hold_count_and_reentrancy) {
    int64_t count;
    for (int depth = 1; depth <= 2; depth++) {
        for (int i = 1; i <= depth; i++) {
            assert_int_equal(hf_lock_try(w->lock), HF_OK);
            assert_int_equal(hf_lock_hold_count(w->lock, &count), HF_OK);
            assert_int_equal(count, i);
        }
        for (int i = depth - 1; i >= 0; i--) {
            assert_int_equal(hf_lock_try(w->rival_lock), HF_EBUSY);
            assert_int_equal(hf_lock_release(w->lock), HF_OK);
            assert_int_equal(hf_lock_hold_count(w->lock, &count), HF_OK);
            assert_int_equal(count, i);
        }
    }
    assert_int_equal(world_keys(w->server), 0);
}

FAIR_CASE(C069_C071_others_see_it_but_cannot_release) {
    bool yes;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_is_locked(w->lock, &yes), HF_OK);
    assert_true(yes);
    assert_int_equal(hf_lock_is_mine(w->lock, &yes), HF_OK);
    assert_false(yes);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    assert_int_equal(world_count(w, w->rival_owner), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

/* ---- Many ---- */

FAIR_CASE(C074_C076_counter) {
    enum { CLIENTS = 6, THREADS = 3, ALL = CLIENTS * THREADS };
    struct comer comers[ALL];
    static struct arrivals arrivals;
    hf_client *clients[CLIENTS];
    hf_lock *locks[CLIENTS];
    hf_options options = world_options();
    atomic_store(&arrivals.next, 0);
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(hf_open(server_url(w->server), &options, &clients[i]), HF_OK);
        locks[i] = new_handle(clients[i], HF_FAIR);
    }
    for (int i = 0; i < ALL; i++) {
        comers[i] = (struct comer){.lock = locks[i % CLIENTS],
                                   .options = as((hf_owner)(FIRST + i), HF_FOREVER, HF_WATCHDOG),
                                   .arrivals = &arrivals,
                                   .index = i};
        comer_start(&comers[i]);
    }
    for (int i = 0; i < ALL; i++)
        assert_int_equal(comer_join(&comers[i]), HF_OK);
    assert_int_equal(atomic_load(&arrivals.next), ALL);
    assert_true(wait_no_keys(w->server));
    for (int i = 0; i < CLIENTS; i++) {
        hf_lock_free(locks[i]);
        assert_int_equal(hf_close(clients[i]), HF_OK);
    }
}

CASE(C078_name_prefix) {
    OWN(world_end) struct world w;
    struct world_caller waiter;
    hf_lock *lock;
    hf_options options = world_options();
    options.name_prefix = "test::";
    fair_begin(&w, NULL);
    hf_client *client = made(hf_open, server_url(w.server), &options);
    lock = new_handle(client, HF_FAIR);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    world_call_acquire(&waiter, lock, as(FIRST, HF_FOREVER, HF_WATCHDOG));
    assert_true(
        WAIT_FOR(key_exists(w.server, "redisson_lock_queue:{test::" WORLD_NAME "}"), HANG_MS));
    assert_true(key_exists(w.server, "test::" WORLD_NAME));
    assert_true(key_exists(w.server, "redisson_lock_timeout:{test::" WORLD_NAME "}"));
    assert_int_equal(queue_len(w.server), 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(lock, FIRST), HF_OK);
    assert_int_equal(world_keys(w.server), 0);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
}

/* ---- The non-reentrant form ---- */

FAIR_CASE(C207_C208_C209_nonreentrant) {
    struct world_caller waiter;
    bool mine;
    own_lock *lock = new_handle(w->client, HF_FAIR | HF_NONREENTRANT);
    own_lock *other = new_handle(w->client, HF_FAIR | HF_NONREENTRANT);
    own_lock *fair = new_handle(w->client, HF_FAIR);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_try(lock), HF_EDEADLK);
    assert_int_equal(hf_lock_acquire_for(lock, 100), HF_EDEADLK);
    assert_int_equal(hf_lock_acquire(other), HF_EDEADLK);
    assert_int_equal(hf_lock_is_mine(other, &mine), HF_OK);
    assert_true(mine);
    assert_int_equal(hf_lock_try(fair), HF_OK); /* one lock, whichever handle */
    assert_int_equal(hf_lock_release(fair), HF_OK);
    queue_up(&waiter, w->server, w->rival, w->rival_lock, FIRST,
             as(FIRST, HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(hf_lock_release(other), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_try(lock), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(w->rival_lock, FIRST), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

/* ---- The length of the queue costs nothing ---- */

/* How many commands scripts run for a hand-over with so many in the queue. */
static long long hand_over_cost(struct world *w, int in_line) {
    struct world_caller waiter;
    cmd_ok(w->server, "FLUSHALL");
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, HF_WATCHDOG));
    cmd_ok(w->server, "EVAL %s 3 " FAIR_QUEUE " " FAIR_DEADLINES " " FAIR_RECORDS " %d",
           "local t = redis.call('time') local us = t[1] * 1000000 + t[2] "
           "for i = 1, tonumber(ARGV[1]) do local o = 'x:' .. i "
           "redis.call('rpush', KEYS[1], o) redis.call('zadd', KEYS[2], 99999999999999, o) "
           "redis.call('hset', KEYS[3], o, string.format('3000 %.0f 99999999999999', us + i)) "
           "end",
           in_line);
    long long before = server_commands(w->server);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    hf_acquire_options again =
        as(FIRST + 1, 1, HF_WATCHDOG); /* one more in the queue, behind all */
    assert_int_equal(hf_lock_acquire_with(w->lock, &again, NULL), HF_ETIMEDOUT);
    assert_true(wait_queue(w->server, in_line));
    long long cost = server_commands(w->server) - before;
    cmd_ok(w->server, "FLUSHALL");
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_ELOST);
    return cost;
}

FAIR_CASE(a_long_queue_takes_no_more_commands) {
    long long few = hand_over_cost(w, 100), many = hand_over_cost(w, 10000);
    /* The attempt that times out is made once, or twice if it subscribed in time. */
    assert_true(many < few + 40);
    assert_true(few < 120);
}

RUN_CASES(world_start_server, world_stop_server)
