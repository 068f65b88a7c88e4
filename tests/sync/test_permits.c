/*
 * Permits with leases, as their callers see them: what Redisson's own tests ask of them (the C
 * rows), and what must be on the wire. The watchdog and losses are in test_permits_holds.c, faults
 * of the network in test_permits_faults.c.
 *
 * Leases that are to end are short, those that are not are a minute. A time that must have passed
 * is checked exactly.
 */
#include "sync/pool.h"

#include <stdio.h>

#define LONG_MS 60000

static const hf_permit_id unknown = {"0123456789abcdef0123456789abcdef"};

/* ---- How many ---- */

static void C160_not_existent(void **state) {
    (void)state;
    struct pool p;
    pool_begin(&p, NULL, 0);
    pool_assert_counts(p.permits, 0, 0, 0);
    assert_int_equal(server_things(p.server), 0);
    pool_end(&p);
}

static void C167_try_set(void **state) {
    (void)state;
    struct pool p;
    bool set = true;
    pool_begin(&p, NULL, 10);
    assert_int_equal(hf_permits_try_set(p.permits, 15, &set), HF_OK);
    assert_false(set);
    pool_assert_available(p.permits, 10);
    pool_end(&p);
}

static void C168_set(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id ids[3];
    pool_begin(&p, NULL, 0);
    assert_int_equal(hf_permits_set(p.permits, 10), HF_OK);
    pool_assert_counts(p.permits, 10, 10, 0);
    assert_int_equal(hf_permits_set(p.permits, 15), HF_OK);
    pool_assert_counts(p.permits, 15, 15, 0);
    assert_int_equal(hf_permits_set(p.permits, 15), HF_OK);
    pool_assert_counts(p.permits, 15, 15, 0);
    assert_int_equal(hf_permits_set(p.permits, 5), HF_OK);
    pool_assert_counts(p.permits, 5, 5, 0);
    pool_take(p.permits, 3, LONG_MS, ids);
    pool_assert_counts(p.permits, 5, 2, 3);
    assert_int_equal(hf_permits_set(p.permits, 3), HF_OK);
    pool_assert_counts(p.permits, 3, 0, 3);
    assert_int_equal(hf_permits_set(p.permits, 2), HF_OK);
    pool_assert_counts(p.permits, 2, -1, 3);
    pool_end(&p);
}

static void C169_add(void **state) {
    (void)state;
    struct pool p;
    pool_begin(&p, NULL, 10);
    assert_int_equal(hf_permits_add(p.permits, 5), HF_OK);
    pool_assert_available(p.permits, 15);
    assert_int_equal(hf_permits_add(p.permits, -10), HF_OK);
    pool_assert_available(p.permits, 5);
    assert_int_equal(hf_permits_add(p.permits, -10), HF_OK);
    pool_assert_available(p.permits, -5);
    pool_end(&p);
}

/* ---- Taking and giving back ---- */

static void C161_C163_leases_end_and_permits_come_back(void **state) {
    (void)state;
    enum { LEASE_MS = PASSING_MS };
    struct pool p;
    hf_permit_id ids[3];
    hf_permits_options more = pool_options(1, PASSING_MS, LONG_MS);
    pool_begin(&p, NULL, 2);
    pool_assert_counts(p.permits, 2, 2, 0);
    int64_t start_ms = now_ms();
    pool_take(p.permits, 1, LONG_MS, &ids[0]);
    pool_take(p.permits, 1, LONG_MS, &ids[1]);
    assert_string_not_equal(ids[0].text, ids[1].text);
    assert_int_equal(hf_permits_acquire_with(p.permits, &more, &ids[2]), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= PASSING_MS);
    pool_assert_counts(p.permits, 2, 0, 2);

    assert_int_equal(hf_permits_extend(p.permits, &ids[0], LEASE_MS), HF_OK);
    assert_int_equal(hf_permits_extend(p.permits, &ids[1], LEASE_MS), HF_OK);
    pool_wait_ended(now_ms() + LEASE_MS + 2, 0);
    pool_take(p.permits, 1, LONG_MS, &ids[2]);
    pool_assert_counts(p.permits, 2, 1, 1);
    assert_int_equal(hf_permits_extend(p.permits, &ids[2], LEASE_MS), HF_OK);
    pool_wait_ended(now_ms() + LEASE_MS + 2, 0);
    pool_assert_counts(p.permits, 2, 2, 0);
    pool_end(&p);
}

static void C164_the_whole_object_expires(void **state) {
    (void)state;
    server_redis_only(scene_server(), "nodes with a TTL are off in ZooKeeper's servers");
    struct pool p;
    hf_permit_id id;
    bool existed = false;
    pool_begin(&p, NULL, 10);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_permits_expire(p.permits, 2 * PASSING_MS, &existed), HF_OK);
    assert_true(existed);
    pool_take(p.permits, 1, LONG_MS, &id);
    assert_true(pttl(p.server, POOL_TAKEN) > 0 && pttl(p.server, POOL_TAKEN) <= 2 * PASSING_MS);
    while (cmd_int(p.server, "DBSIZE") != 0)
        sleep_ms(1);
    assert_true(now_ms() - start_ms >= 2 * PASSING_MS);
    assert_int_equal(hf_permits_expire(p.permits, 2 * PASSING_MS, &existed), HF_OK);
    assert_false(existed);
    pool_end(&p);
}

static void C165_C166_a_waiter_comes_in_when_the_lease_ends(void **state) {
    (void)state;
    enum { LEASE_MS = PASSING_MS };
    for (int timed = 0; timed < 2; timed++) {
        struct pool p;
        struct pool_waiter waiter;
        hf_permit_id id;
        pool_begin(&p, NULL, 1);
        int64_t start_ms = now_ms();
        pool_take(p.permits, 1, LEASE_MS, &id);
        int64_t taken_ms = now_ms();
        pool_wait_for(&waiter, p.rival_permits,
                      pool_options(1, timed ? 100000 : HF_FOREVER, LONG_MS));
        assert_int_equal(pool_join(&waiter), HF_OK);
        assert_true(now_ms() - start_ms >= LEASE_MS);
        assert_true(now_ms() - taken_ms < 9000); /* not by the poll of ten seconds */
        assert_int_equal(hf_permits_release(p.permits, &id), HF_ELOST);
        pool_assert_counts(p.permits, 1, 0, 1);
        assert_int_equal(hf_permits_release(p.rival_permits, &waiter.ids[0]), HF_OK);
        pool_end(&p);
    }
}

static void C171_C173_many(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        hf_permit_id four[4], five[5], two[2];
        hf_permits_options options = pool_options(4, 0, LONG_MS);
        pool_begin(&p, NULL, 10);
        assert_int_equal(form->acquire(p.permits, &options, four), HF_OK);
        pool_assert_available(p.permits, 6);
        options.count = 5;
        assert_int_equal(form->acquire(p.permits, &options, five), HF_OK);
        pool_assert_available(p.permits, 1);
        options.count = 2;
        assert_int_equal(form->acquire(p.permits, &options, two), HF_EBUSY);
        pool_assert_available(p.permits, 1); /* all or none */
        assert_int_equal(form->release(p.permits, four, 4), HF_OK);
        assert_int_equal(form->release(p.permits, five, 5), HF_OK);
        pool_assert_counts(p.permits, 10, 10, 0);
        pool_end(&p);
    }
}

static void C172_a_release_wakes_a_waiter(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        struct pool_waiter waiter;
        hf_permit_id id, none;
        hf_permits_options once = pool_options(1, 0, LONG_MS);
        pool_begin(&p, NULL, 1);
        pool_take(p.rival_permits, 1, LONG_MS, &id);
        assert_int_equal(form->acquire(p.permits, &once, &none), HF_EBUSY);
        pool_wait_for(&waiter, p.permits, pool_options(1, HF_FOREVER, LONG_MS));
        assert_true(pool_wait_asleep(&p, 3, 1));
        assert_false(atomic_load(&waiter.done));
        assert_int_equal(form->release(p.rival_permits, &id, 1), HF_OK);
        assert_int_equal(pool_join(&waiter), HF_OK);
        assert_true(waiter.took_ms < 9000); /* by the message, not by the poll */
        assert_int_equal(strlen(waiter.ids[0].text), 32);
        pool_assert_available(p.permits, 0);
        assert_true(scene_wait_no_channels(HANG_MS));
        pool_end(&p);
    }
}

static void C174_release_unknown(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        hf_permit_id bad = {"1234"}, upper = {"0123456789ABCDEF0123456789ABCDEF"};
        pool_begin(&p, NULL, 2);
        assert_int_equal(form->release(p.permits, &bad, 1), HF_EINVAL);
        assert_int_equal(form->release(p.permits, &upper, 1), HF_EINVAL);
        assert_int_equal(form->release(p.permits, &unknown, 1), HF_ENOTOWNER);
        pool_assert_available(p.permits, 2);
        assert_int_equal(hf_permits_release(p.permits, &unknown), HF_ENOTOWNER);
        assert_string_equal(hf_last_error()->text, "there is no such permit, or not any more");
        pool_end(&p);
    }
}

static void C175_release_ended(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        hf_permit_id id;
        if (form != &pool_forms[0] && server_is_other(scene_server()))
            break; /* there only the holder knows that it has ended */
        pool_begin(&p, NULL, 1);
        pool_take(p.permits, 1, PASSING_MS, &id);
        if (form != &pool_forms[0]) /* the holder would give it back by itself soon */
            proxy_blackhole(p.proxy, true, true);
        pool_wait_ended(now_ms() + PASSING_MS + 2, 0);
        /* Whoever knows the id is told the same, if the holder has not been here. */
        hf_permits *other = form == &pool_forms[0] ? p.permits : p.rival_permits;
        assert_int_equal(form->release(other, &id, 1), HF_ELOST);
        assert_true(pool_wait_there(1, 0, HANG_MS)); /* it went back all the same */
        assert_int_equal(form->release(p.rival_permits, &id, 1), HF_ENOTOWNER);
        proxy_heal(p.proxy);
        pool_end(&p);
    }
}

static void C179_C181_release_in_two_parts(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        hf_permit_id ids[6];
        pool_begin(&p, NULL, 10);
        pool_take(p.permits, 6, LONG_MS, ids);
        assert_int_equal(form->release(p.permits, ids, 4), HF_OK);
        pool_assert_available(p.permits, 8);
        assert_int_equal(form->release(p.permits, ids + 4, 2), HF_OK);
        pool_assert_available(p.permits, 10);
        assert_int_equal(form->release(p.permits, ids, 6), HF_ENOTOWNER);
        assert_int_equal(form->release(p.permits, ids, 1), HF_ENOTOWNER);
        pool_assert_available(p.permits, 10);
        pool_end(&p);
    }
}

struct told {
    atomic_int calls;
    int code;
    int64_t value, count, remaining_ms;
    hf_permit_id ids[6];
    char seen[33]; /* the first id, as it was when the callback ran */
};

static void on_done(hf_op *op, const hf_result *result, void *user) {
    struct told *told = user;
    (void)op;
    told->code = result->code;
    told->value = result->value;
    told->count = result->count;
    told->remaining_ms = result->remaining_ms;
    memcpy(told->seen, told->ids[0].text, sizeof told->seen);
    atomic_fetch_add(&told->calls, 1);
}

static void C178_C180_async_with_a_callback(void **state) {
    (void)state;
    struct pool p;
    struct told told = {0};
    hf_permits_options options = pool_options(6, HF_FOREVER, LONG_MS);
    pool_begin(&p, NULL, 10);
    assert_int_equal(hf_permits_acquire_start(p.permits, &options, told.ids, on_done, &told, NULL),
                     HF_OK);
    assert_true(pool_wait_atomic(&told.calls, 1, HANG_MS));
    assert_int_equal(told.code, HF_OK);
    assert_int_equal(told.count, 6);
    assert_true(told.remaining_ms > 0 && told.remaining_ms <= LONG_MS);
    assert_int_equal(strspn(told.seen, "0123456789abcdef"), 32);
    pool_assert_available(p.permits, 4);

    assert_int_equal(hf_permits_lease_ms_start(p.permits, told.ids, on_done, &told, NULL), HF_OK);
    assert_true(pool_wait_atomic(&told.calls, 2, HANG_MS));
    assert_true(told.code == HF_OK && told.value > 0 && told.value <= LONG_MS);
    int (*const asks[])(hf_permits *, hf_callback, void *,
                        hf_op **) = {hf_permits_available_start, hf_permits_total_start,
                                     hf_permits_taken_start, hf_permits_delete_start};
    const int64_t answers[] = {4, 10, 6, 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(asks[i](p.permits, on_done, &told, NULL), HF_OK);
        assert_true(pool_wait_atomic(&told.calls, 3 + i, HANG_MS));
        assert_int_equal(told.code, HF_OK);
        assert_int_equal(told.value, answers[i]);
    }
    assert_int_equal(server_things(p.server), 0);
    pool_end(&p);
}

static void C178_async_setting(void **state) {
    (void)state;
    struct pool p;
    hf_op *op = NULL;
    hf_result result = HF_RESULT_INIT;
    pool_begin(&p, NULL, 0);
    int err = hf_permits_try_set_start(p.permits, 3, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &result), HF_OK);
    assert_int_equal(result.value, 1);
    err = hf_permits_try_set_start(p.permits, 4, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &result), HF_OK);
    assert_int_equal(result.value, 0);
    err = hf_permits_set_start(p.permits, 7, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, NULL), HF_OK);
    err = hf_permits_add_start(p.permits, -2, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, NULL), HF_OK);
    pool_assert_available(p.permits, 5);
    if (server_is_other(p.server)) {
        pool_end(&p);
        return; /* nothing has a TTL there */
    }
    err = hf_permits_expire_start(p.permits, LONG_MS, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &result), HF_OK);
    assert_int_equal(result.value, 1);
    assert_true(pttl(p.server, POOL_NAME) > 0);
    pool_end(&p);
}

/* ---- Leases that end ---- */

static void C182_ended_ones_are_swept_by_the_next(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id ids[6], id;
    pool_begin(&p, NULL, 10);
    pool_take(p.permits, 6, PASSING_MS, ids);
    assert_int_equal(pool_free_there(), 4);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 0);
    pool_take(p.permits, 1, PASSING_MS, &id);
    assert_int_equal(pool_free_there(), 9);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 0);
    pool_assert_counts(p.permits, 10, 10, 0);
    pool_end(&p);
}

static void C183_release_many_some_without_a_lease(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        hf_permit_id leased[3], unlimited[3];
        pool_begin(&p, NULL, 10);
        pool_take(p.permits, 3, PASSING_MS, leased);
        pool_take(p.permits, 3, HF_NO_LEASE, unlimited);
        if (!server_is_other(p.server))
            assert_int_equal(pool_ends_at(&unlimited[0]), 922337203685477);
        pool_wait_ended(now_ms() + PASSING_MS + 2, 3);
        assert_int_equal(form->release(p.permits, unlimited, 3), HF_OK);
        assert_int_equal(pool_free_there(), 10);
        assert_int_equal(form->release(p.permits, leased, 3), HF_ENOTOWNER);
        assert_int_equal(pool_free_there(), 10);
        pool_end(&p);
    }
}

static void C184_all_or_none(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        hf_permit_id ended[2], live[6];
        pool_begin(&p, NULL, 10);
        pool_take(p.permits, 6, LONG_MS, live);
        pool_take(p.permits, 2, PASSING_MS, ended);
        pool_wait_ended(now_ms() + PASSING_MS + 2, 6);
        hf_permit_id with_ended[] = {live[0], ended[0]}, with_unknown[] = {live[1], unknown};
        assert_int_equal(form->release(p.permits, with_ended, 2), HF_ENOTOWNER);
        assert_int_equal(form->release(p.permits, with_unknown, 2), HF_ENOTOWNER);
        pool_assert_counts(p.permits, 10, 4, 6);
        assert_int_equal(form->release(p.permits, live, 2), HF_OK);
        pool_assert_counts(p.permits, 10, 6, 4);
        hf_permit_id with_released[] = {live[2], live[0]};
        assert_int_equal(form->release(p.permits, with_released, 2), HF_ENOTOWNER);
        pool_assert_counts(p.permits, 10, 6, 4);
        pool_end(&p);
    }
}

static void C159_extend(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        hf_permit_id id;
        pool_begin(&p, NULL, 1);
        assert_int_equal(form->extend(p.permits, &unknown, 1000), HF_ENOTOWNER);
        pool_take(p.permits, 1, PASSING_MS, &id);
        int64_t taken_ms = now_ms();
        assert_int_equal(form->extend(p.permits, &id, 3 * PASSING_MS), HF_OK);
        pool_wait_ended(taken_ms + PASSING_MS + 2, 1);
        pool_assert_available(p.permits, 0); /* it would have ended */
        assert_int_equal(form->extend(p.permits, &id, PASSING_MS), HF_OK);
        pool_wait_ended(now_ms() + PASSING_MS + 2, 0);
        assert_int_equal(form->extend(p.permits, &id, 1000), HF_ENOTOWNER);
        pool_assert_available(p.permits, 1);
        pool_end(&p);
    }
}

static void C185_lease(void **state) {
    (void)state;
    server_redis_only(scene_server(), "of another client's lease ZooKeeper knows nothing");
    struct pool p;
    hf_permit_id unlimited, leased;
    int64_t lease_ms = -99;
    pool_begin(&p, NULL, 2);
    assert_int_equal(hf_permits_lease_ms(p.permits, &unknown, &lease_ms), HF_ENOTOWNER);
    assert_int_equal(lease_ms, -99);
    pool_take(p.permits, 1, HF_NO_LEASE, &unlimited);
    assert_int_equal(hf_permits_lease_ms(p.permits, &unlimited, &lease_ms), HF_OK);
    assert_int_equal(lease_ms, -1);
    pool_take(p.permits, 1, LONG_MS, &leased);
    sleep_ms(30);
    assert_int_equal(hf_permits_lease_ms(p.rival_permits, &leased, &lease_ms), HF_OK);
    assert_true(lease_ms >= 1 && lease_ms <= LONG_MS - 30);
    assert_int_equal(hf_permits_extend(p.rival_permits, &leased, PASSING_MS), HF_OK);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 1);
    assert_int_equal(hf_permits_lease_ms(p.permits, &leased, &lease_ms), HF_ENOTOWNER);
    pool_assert_available(p.permits, 1);
    pool_end(&p);
}

/* ---- Several at once ---- */

struct worker {
    pthread_t thread;
    hf_permits *permits;
    struct shared {
        atomic_int inside, overlaps, rounds;
    } * shared;
    int64_t count;
    int rounds, err;
};

static void *work(void *arg) {
    struct worker *worker = arg;
    hf_permits_options options = pool_options(worker->count, HF_FOREVER, LONG_MS);
    hf_permit_id ids[2];
    for (int i = 0; i < worker->rounds && worker->err == HF_OK; i++) {
        worker->err = hf_permits_acquire_with(worker->permits, &options, ids);
        if (worker->err != HF_OK)
            break;
        if (atomic_fetch_add(&worker->shared->inside, 1) != 0)
            atomic_fetch_add(&worker->shared->overlaps, 1);
        atomic_fetch_add(&worker->shared->rounds, 1);
        atomic_fetch_sub(&worker->shared->inside, 1);
        worker->err = hf_permits_release_many(worker->permits, ids, (size_t)worker->count);
    }
    return NULL;
}

static void run_workers(struct worker *workers, int len, hf_permits *a, hf_permits *b,
                        struct shared *shared, const int64_t *counts, int rounds) {
    for (int i = 0; i < len; i++) {
        workers[i] = (struct worker){.permits = i % 2 == 0 ? a : b,
                                     .shared = shared,
                                     .count = counts[i % 2],
                                     .rounds = rounds};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < len; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].err, HF_OK);
    }
}

/* One permit is a mutex, within a client and between two. */
static void C176_C177_one_permit_excludes(void **state) {
    (void)state;
    enum { WORKERS = 8, ROUNDS = 25 };
    static const int64_t ones[2] = {1, 1};
    struct pool p;
    struct worker workers[WORKERS];
    struct shared shared = {0};
    pool_begin(&p, NULL, 1);
    run_workers(workers, WORKERS, p.permits, p.rival_permits, &shared, ones, ROUNDS);
    assert_int_equal(atomic_load(&shared.rounds), WORKERS * ROUNDS);
    assert_int_equal(atomic_load(&shared.overlaps), 0);
    pool_assert_counts(p.permits, 1, 1, 0);
    assert_int_equal(scene_stats(p.client).holds, 0);
    pool_end(&p);
}

/* Whoever needs both permits, and whoever needs one, come in one after the other. */
static void C186_C187_needs_the_whole_pool(void **state) {
    (void)state;
    static const int64_t both[2] = {2, 2}, mixed[2] = {1, 2};
    struct pool p;
    struct worker workers[2];
    struct shared shared = {0};
    pool_begin(&p, NULL, 2);
    run_workers(workers, 2, p.permits, p.rival_permits, &shared, both, 10);
    assert_int_equal(atomic_load(&shared.overlaps), 0);
    run_workers(workers, 2, p.permits, p.rival_permits, &shared, mixed, 10);
    assert_int_equal(atomic_load(&shared.overlaps), 0);

    struct pool_waiter waiter;
    hf_permit_id id;
    pool_take(p.rival_permits, 1, LONG_MS, &id);
    size_t before = pool_attempts(&p);
    pool_wait_for(&waiter, p.permits, pool_options(2, HF_FOREVER, LONG_MS));
    assert_true(pool_wait_asleep(&p, before + 2, before + 1));
    assert_int_equal(hf_permits_release(p.rival_permits, &id), HF_OK);
    assert_int_equal(pool_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 9000); /* by the message */
    pool_end(&p);
}

/* A waiter for two sleeps until the second lease ends, and not on. */
static void a_waiter_for_two_comes_in_when_enough_leases_ended(void **state) {
    (void)state;
    struct pool p;
    struct pool_waiter waiter;
    hf_permit_id first, second;
    pool_begin(&p, NULL, 2);
    int64_t start_ms = now_ms();
    pool_take(p.rival_permits, 1, PASSING_MS, &first);
    pool_take(p.rival_permits, 1, 2 * PASSING_MS, &second);
    pool_wait_for(&waiter, p.permits, pool_options(2, HF_FOREVER, LONG_MS));
    assert_int_equal(pool_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms >= 2 * PASSING_MS);
    assert_true(waiter.took_ms < 9000); /* not by the poll */
    pool_end(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C160_not_existent),
        cmocka_unit_test(C167_try_set),
        cmocka_unit_test(C168_set),
        cmocka_unit_test(C169_add),
        cmocka_unit_test(C161_C163_leases_end_and_permits_come_back),
        cmocka_unit_test(C164_the_whole_object_expires),
        cmocka_unit_test(C165_C166_a_waiter_comes_in_when_the_lease_ends),
        cmocka_unit_test(C171_C173_many),
        cmocka_unit_test(C172_a_release_wakes_a_waiter),
        cmocka_unit_test(C174_release_unknown),
        cmocka_unit_test(C175_release_ended),
        cmocka_unit_test(C179_C181_release_in_two_parts),
        cmocka_unit_test(C178_C180_async_with_a_callback),
        cmocka_unit_test(C178_async_setting),
        cmocka_unit_test(C182_ended_ones_are_swept_by_the_next),
        cmocka_unit_test(C183_release_many_some_without_a_lease),
        cmocka_unit_test(C184_all_or_none),
        cmocka_unit_test(C159_extend),
        cmocka_unit_test(C185_lease),
        cmocka_unit_test(C176_C177_one_permit_excludes),
        cmocka_unit_test(C186_C187_needs_the_whole_pool),
        cmocka_unit_test(a_waiter_for_two_comes_in_when_enough_leases_ended),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
