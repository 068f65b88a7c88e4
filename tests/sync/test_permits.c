/*
 * Permits with leases, as their callers see them: what Redisson's own tests ask of them (the C
 * rows), and what must be on the wire. The watchdog and losses are in test_permits_holds.c, faults
 * of the network in test_permits_faults.c.
 *
 * Leases that are to end are short, those that are not are a minute. A time that must have passed
 * is checked exactly.
 */
#include "support/crowd.h"
#include "sync/pool.h"

#define LONG_MS 60000

static const hf_permit_id unknown = {"0123456789abcdef0123456789abcdef"};

/* ---- How many ---- */

POOL_CASE(C160_not_existent, 0) {
    pool_assert_counts(w->permits, 0, 0, 0);
    assert_int_equal(server_things(w->server), 0);
}

POOL_CASE(C167_try_set, 10) {
    bool set = true;
    assert_int_equal(hf_permits_try_set(w->permits, 15, &set), HF_OK);
    assert_false(set);
    pool_assert_available(w->permits, 10);
}

POOL_CASE(C168_set, 0) {
    hf_permit_id ids[3];
    assert_int_equal(hf_permits_set(w->permits, 10), HF_OK);
    pool_assert_counts(w->permits, 10, 10, 0);
    assert_int_equal(hf_permits_set(w->permits, 15), HF_OK);
    pool_assert_counts(w->permits, 15, 15, 0);
    assert_int_equal(hf_permits_set(w->permits, 15), HF_OK);
    pool_assert_counts(w->permits, 15, 15, 0);
    assert_int_equal(hf_permits_set(w->permits, 5), HF_OK);
    pool_assert_counts(w->permits, 5, 5, 0);
    pool_take(w->permits, 3, LONG_MS, ids);
    pool_assert_counts(w->permits, 5, 2, 3);
    assert_int_equal(hf_permits_set(w->permits, 3), HF_OK);
    pool_assert_counts(w->permits, 3, 0, 3);
    assert_int_equal(hf_permits_set(w->permits, 2), HF_OK);
    pool_assert_counts(w->permits, 2, -1, 3);
}

POOL_CASE(C169_add, 10) {
    assert_int_equal(hf_permits_add(w->permits, 5), HF_OK);
    pool_assert_available(w->permits, 15);
    assert_int_equal(hf_permits_add(w->permits, -10), HF_OK);
    pool_assert_available(w->permits, 5);
    assert_int_equal(hf_permits_add(w->permits, -10), HF_OK);
    pool_assert_available(w->permits, -5);
}

/* ---- Taking and giving back ---- */

POOL_CASE(C161_C163_leases_end_and_permits_return, 2) {
    enum { LEASE_MS = PASSING_MS };
    hf_permit_id ids[3];
    hf_permits_options more = pool_options(1, PASSING_MS, LONG_MS);
    pool_assert_counts(w->permits, 2, 2, 0);
    int64_t start_ms = now_ms();
    pool_take(w->permits, 1, LONG_MS, &ids[0]);
    pool_take(w->permits, 1, LONG_MS, &ids[1]);
    assert_string_not_equal(ids[0].text, ids[1].text);
    assert_int_equal(hf_permits_acquire_with(w->permits, &more, &ids[2]), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= PASSING_MS);
    pool_assert_counts(w->permits, 2, 0, 2);

    assert_int_equal(hf_permits_extend(w->permits, &ids[0], LEASE_MS), HF_OK);
    assert_int_equal(hf_permits_extend(w->permits, &ids[1], LEASE_MS), HF_OK);
    pool_wait_ended(now_ms() + LEASE_MS + 2, 0);
    pool_take(w->permits, 1, LONG_MS, &ids[2]);
    pool_assert_counts(w->permits, 2, 1, 1);
    assert_int_equal(hf_permits_extend(w->permits, &ids[2], LEASE_MS), HF_OK);
    pool_wait_ended(now_ms() + LEASE_MS + 2, 0);
    pool_assert_counts(w->permits, 2, 2, 0);
}

CASE(C164_the_whole_object_expires) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "nodes with a TTL are off in ZooKeeper's servers");
    hf_permit_id id;
    bool existed = false;
    pool_begin(&w, NULL, 10);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_permits_expire(w.permits, 2 * PASSING_MS, &existed), HF_OK);
    assert_true(existed);
    pool_take(w.permits, 1, LONG_MS, &id);
    assert_true(pttl(w.server, POOL_TAKEN) > 0 && pttl(w.server, POOL_TAKEN) <= 2 * PASSING_MS);
    assert_true(WAIT_FOR(cmd_int(w.server, "DBSIZE") == 0, HANG_MS));
    assert_true(now_ms() - start_ms >= 2 * PASSING_MS);
    assert_int_equal(hf_permits_expire(w.permits, 2 * PASSING_MS, &existed), HF_OK);
    assert_false(existed);
}

CASE(C165_C166_a_waiter_enters_when_the_lease_ends) {
    enum { LEASE_MS = PASSING_MS };
    for (int timed = 0; timed < 2; timed++) {
        struct world w;
        struct world_caller waiter;
        hf_permit_id id;
        pool_begin(&w, NULL, 1);
        int64_t start_ms = now_ms();
        pool_take(w.permits, 1, LEASE_MS, &id);
        int64_t taken_ms = now_ms();
        world_call_permits(&waiter, w.rival_permits,
                           pool_options(1, timed ? 100000 : HF_FOREVER, LONG_MS));
        assert_int_equal(world_join(&waiter), HF_OK);
        assert_true(now_ms() - start_ms >= LEASE_MS);
        assert_true(now_ms() - taken_ms < 9000); /* not by the poll of ten seconds */
        assert_int_equal(hf_permits_release(w.permits, &id), HF_ELOST);
        pool_assert_counts(w.permits, 1, 0, 1);
        assert_int_equal(hf_permits_release(w.rival_permits, &waiter.ids[0]), HF_OK);
        world_end(&w);
    }
}

ROW_CASES_IN(C171_C173_many, form, pool_forms, struct world, w, pool_begin, world_end, NULL, 10) {
    hf_permit_id four[4], five[5], two[2];
    hf_permits_options options = pool_options(4, 0, LONG_MS);
    assert_int_equal(form->acquire(w->permits, &options, four), HF_OK);
    pool_assert_available(w->permits, 6);
    options.count = 5;
    assert_int_equal(form->acquire(w->permits, &options, five), HF_OK);
    pool_assert_available(w->permits, 1);
    options.count = 2;
    assert_int_equal(form->acquire(w->permits, &options, two), HF_EBUSY);
    pool_assert_available(w->permits, 1); /* all or none */
    assert_int_equal(form->release(w->permits, four, 4), HF_OK);
    assert_int_equal(form->release(w->permits, five, 5), HF_OK);
    pool_assert_counts(w->permits, 10, 10, 0);
}

ROW_CASES_IN(C172_a_release_wakes_a_waiter, form, pool_forms, struct world, w, pool_begin,
             world_end, NULL, 1) {
    struct world_caller waiter;
    hf_permit_id id, none;
    hf_permits_options once = pool_options(1, 0, LONG_MS);
    pool_take(w->rival_permits, 1, LONG_MS, &id);
    assert_int_equal(form->acquire(w->permits, &once, &none), HF_EBUSY);
    world_call_permits(&waiter, w->permits, pool_options(1, HF_FOREVER, LONG_MS));
    assert_true(pool_wait_asleep(w, 3, 1));
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(form->release(w->rival_permits, &id, 1), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 9000); /* by the message, not by the poll */
    assert_int_equal(strlen(waiter.ids[0].text), 32);
    pool_assert_available(w->permits, 0);
    assert_true(object_wait_no_channels(HANG_MS));
}

ROW_CASES_IN(C174_release_unknown, form, pool_forms, struct world, w, pool_begin, world_end, NULL,
             2) {
    hf_permit_id bad = {"1234"}, upper = {"0123456789ABCDEF0123456789ABCDEF"};
    assert_int_equal(form->release(w->permits, &bad, 1), HF_EINVAL);
    assert_int_equal(form->release(w->permits, &upper, 1), HF_EINVAL);
    assert_int_equal(form->release(w->permits, &unknown, 1), HF_ENOTOWNER);
    pool_assert_available(w->permits, 2);
    assert_int_equal(hf_permits_release(w->permits, &unknown), HF_ENOTOWNER);
    assert_string_equal(hf_last_error()->text, "there is no such permit any more");
}

ROW_CASES(C175_release_ended, form, pool_forms) {
    OWN(world_end) struct world w;
    hf_permit_id id;
    if (form != &pool_forms[0] && server_is_other(world_server()))
        skip(); /* there only the holder knows that it has ended */
    pool_begin(&w, NULL, 1);
    pool_take(w.permits, 1, PASSING_MS, &id);
    if (form != &pool_forms[0]) /* the holder would give it back by itself soon */
        proxy_blackhole(w.proxy, true, true);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 0);
    /* A client that knows the id gets the same answer, if the holder has not been here. */
    hf_permits *other = form == &pool_forms[0] ? w.permits : w.rival_permits;
    assert_int_equal(form->release(other, &id, 1), HF_ELOST);
    assert_true(pool_wait_there(1, 0, HANG_MS)); /* it went back all the same */
    assert_int_equal(form->release(w.rival_permits, &id, 1), HF_ENOTOWNER);
    proxy_heal(w.proxy);
}

ROW_CASES_IN(C179_C181_release_in_two_parts, form, pool_forms, struct world, w, pool_begin,
             world_end, NULL, 10) {
    hf_permit_id ids[6];
    pool_take(w->permits, 6, LONG_MS, ids);
    assert_int_equal(form->release(w->permits, ids, 4), HF_OK);
    pool_assert_available(w->permits, 8);
    assert_int_equal(form->release(w->permits, ids + 4, 2), HF_OK);
    pool_assert_available(w->permits, 10);
    assert_int_equal(form->release(w->permits, ids, 6), HF_ENOTOWNER);
    assert_int_equal(form->release(w->permits, ids, 1), HF_ENOTOWNER);
    pool_assert_available(w->permits, 10);
}

struct completion {
    atomic_int calls;
    int code;
    int64_t value, count, remaining_ms;
    hf_permit_id ids[6];
    char seen[33]; /* the first id, as it was when the callback ran */
};

static void on_done(hf_op *op, const hf_result *result, void *user) {
    struct completion *completion = user;
    (void)op;
    completion->code = result->code;
    completion->value = result->value;
    completion->count = result->count;
    completion->remaining_ms = result->remaining_ms;
    memcpy(completion->seen, completion->ids[0].text, sizeof completion->seen);
    atomic_fetch_add(&completion->calls, 1);
}

POOL_CASE(C178_C180_async_with_a_callback, 10) {
    struct completion completion = {0};
    hf_permits_options options = pool_options(6, HF_FOREVER, LONG_MS);
    assert_int_equal(
        hf_permits_acquire_start(w->permits, &options, completion.ids, on_done, &completion, NULL),
        HF_OK);
    assert_true(world_wait_atomic(&completion.calls, 1, HANG_MS));
    assert_int_equal(completion.code, HF_OK);
    assert_int_equal(completion.count, 6);
    assert_true(completion.remaining_ms > 0 && completion.remaining_ms <= LONG_MS);
    assert_int_equal(strspn(completion.seen, "0123456789abcdef"), 32);
    pool_assert_available(w->permits, 4);

    assert_int_equal(
        hf_permits_ttl_ms_start(w->permits, completion.ids, on_done, &completion, NULL), HF_OK);
    assert_true(world_wait_atomic(&completion.calls, 2, HANG_MS));
    assert_true(completion.code == HF_OK && completion.value > 0 && completion.value <= LONG_MS);
    int (*const asks[])(hf_permits *, hf_op_fn, void *,
                        hf_op **) = {hf_permits_available_start, hf_permits_total_start,
                                     hf_permits_taken_start, hf_permits_delete_start};
    const int64_t answers[] = {4, 10, 6, 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(asks[i](w->permits, on_done, &completion, NULL), HF_OK);
        assert_true(world_wait_atomic(&completion.calls, 3 + i, HANG_MS));
        assert_int_equal(completion.code, HF_OK);
        assert_int_equal(completion.value, answers[i]);
    }
    assert_int_equal(server_things(w->server), 0);
}

POOL_CASE(C178_async_setting, 0) {
    hf_op *op = NULL;
    hf_result result = HF_RESULT_INIT;
    int err = hf_permits_try_set_start(w->permits, 3, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &result), HF_OK);
    assert_int_equal(result.value, 1);
    err = hf_permits_try_set_start(w->permits, 4, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &result), HF_OK);
    assert_int_equal(result.value, 0);
    err = hf_permits_set_start(w->permits, 7, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, NULL), HF_OK);
    err = hf_permits_add_start(w->permits, -2, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, NULL), HF_OK);
    pool_assert_available(w->permits, 5);
    if (server_is_other(w->server))
        return; /* nothing has a TTL there */
    err = hf_permits_expire_start(w->permits, LONG_MS, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, &result), HF_OK);
    assert_int_equal(result.value, 1);
    assert_true(pttl(w->server, POOL_NAME) > 0);
}

/* ---- Leases that end ---- */

POOL_CASE(C182_ended_ones_are_swept_by_the_next, 10) {
    hf_permit_id ids[6], id;
    pool_take(w->permits, 6, PASSING_MS, ids);
    assert_int_equal(pool_free_there(), 4);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 0);
    pool_take(w->permits, 1, PASSING_MS, &id);
    assert_int_equal(pool_free_there(), 9);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 0);
    pool_assert_counts(w->permits, 10, 10, 0);
}

ROW_CASES_IN(C183_release_many_some_without_a_lease, form, pool_forms, struct world, w, pool_begin,
             world_end, NULL, 10) {
    hf_permit_id leased[3], unlimited[3];
    pool_take(w->permits, 3, PASSING_MS, leased);
    pool_take(w->permits, 3, HF_NO_LEASE, unlimited);
    if (!server_is_other(w->server))
        assert_int_equal(pool_ends_at(&unlimited[0]), 922337203685477);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 3);
    assert_int_equal(form->release(w->permits, unlimited, 3), HF_OK);
    assert_int_equal(pool_free_there(), 10);
    assert_int_equal(form->release(w->permits, leased, 3), HF_ENOTOWNER);
    assert_int_equal(pool_free_there(), 10);
}

ROW_CASES_IN(C184_all_or_none, form, pool_forms, struct world, w, pool_begin, world_end, NULL, 10) {
    hf_permit_id ended[2], live[6];
    pool_take(w->permits, 6, LONG_MS, live);
    pool_take(w->permits, 2, PASSING_MS, ended);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 6);
    hf_permit_id with_ended[] = {live[0], ended[0]}, with_unknown[] = {live[1], unknown};
    assert_int_equal(form->release(w->permits, with_ended, 2), HF_ENOTOWNER);
    assert_int_equal(form->release(w->permits, with_unknown, 2), HF_ENOTOWNER);
    pool_assert_counts(w->permits, 10, 4, 6);
    assert_int_equal(form->release(w->permits, live, 2), HF_OK);
    pool_assert_counts(w->permits, 10, 6, 4);
    hf_permit_id with_released[] = {live[2], live[0]};
    assert_int_equal(form->release(w->permits, with_released, 2), HF_ENOTOWNER);
    pool_assert_counts(w->permits, 10, 6, 4);
}

ROW_CASES_IN(C159_extend, form, pool_forms, struct world, w, pool_begin, world_end, NULL, 1) {
    hf_permit_id id;
    assert_int_equal(form->extend(w->permits, &unknown, 1000), HF_ENOTOWNER);
    pool_take(w->permits, 1, PASSING_MS, &id);
    int64_t taken_ms = now_ms();
    assert_int_equal(form->extend(w->permits, &id, 3 * PASSING_MS), HF_OK);
    pool_wait_ended(taken_ms + PASSING_MS + 2, 1);
    pool_assert_available(w->permits, 0); /* it would have ended */
    assert_int_equal(form->extend(w->permits, &id, PASSING_MS), HF_OK);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 0);
    assert_int_equal(form->extend(w->permits, &id, 1000), HF_ENOTOWNER);
    pool_assert_available(w->permits, 1);
}

CASE(C185_lease) {
    OWN(world_end) struct world w;
    server_redis_only(world_server(), "of another client's lease ZooKeeper knows nothing");
    hf_permit_id unlimited, leased;
    int64_t lease_ms = -99;
    pool_begin(&w, NULL, 2);
    assert_int_equal(hf_permits_ttl_ms(w.permits, &unknown, &lease_ms), HF_ENOTOWNER);
    assert_int_equal(lease_ms, -99);
    pool_take(w.permits, 1, HF_NO_LEASE, &unlimited);
    assert_int_equal(hf_permits_ttl_ms(w.permits, &unlimited, &lease_ms), HF_OK);
    assert_int_equal(lease_ms, -1);
    pool_take(w.permits, 1, LONG_MS, &leased);
    assert_true(WAIT_FOR(hf_permits_ttl_ms(w.rival_permits, &leased, &lease_ms) != HF_OK ||
                             lease_ms <= LONG_MS - 30,
                         HANG_MS));
    assert_int_equal(hf_permits_ttl_ms(w.rival_permits, &leased, &lease_ms), HF_OK);
    assert_true(lease_ms >= 1 && lease_ms <= LONG_MS - 30);
    assert_int_equal(hf_permits_extend(w.rival_permits, &leased, PASSING_MS), HF_OK);
    pool_wait_ended(now_ms() + PASSING_MS + 2, 1);
    assert_int_equal(hf_permits_ttl_ms(w.permits, &leased, &lease_ms), HF_ENOTOWNER);
    pool_assert_available(w.permits, 1);
}

/* ---- Several at once ---- */

struct worker {
    struct crowd *crowd;
    hf_permits *permits;
    int64_t count;
    int rounds;
};

static void *work(void *arg) {
    const struct worker *worker = arg;
    hf_permits_options options = pool_options(worker->count, HF_FOREVER, LONG_MS);
    hf_permit_id ids[2];
    int err = HF_OK;
    for (int i = 0; i < worker->rounds && err == HF_OK; i++) {
        err = hf_permits_acquire_with(worker->permits, &options, ids);
        if (err != HF_OK)
            break;
        crowd_visit(worker->crowd);
        err = hf_permits_release_many(worker->permits, ids, (size_t)worker->count);
    }
    crowd_expect(worker->crowd, err == HF_OK);
    return NULL;
}

/* Half of them are the rival's. Every worker has been inside in every round, and alone. */
static void assert_workers_exclude(struct world *w, int len, const int64_t *counts, int rounds) {
    enum { MOST = 8 };
    struct worker workers[MOST];
    struct crowd crowd = {0};
    for (int i = 0; i < len; i++) {
        workers[i] = (struct worker){.crowd = &crowd,
                                     .permits = i % 2 == 0 ? w->permits : w->rival_permits,
                                     .count = counts[i % 2],
                                     .rounds = rounds};
        crowd_add(&crowd, work, &workers[i]);
    }
    crowd_join(&crowd);
    crowd_assert_exclusive(&crowd);
    assert_int_equal(atomic_load(&crowd.entered), len * rounds);
}

/* One permit is a mutex, within a client and between two. */
POOL_CASE(C176_C177_one_permit_excludes, 1) {
    static const int64_t ones[2] = {1, 1};
    assert_workers_exclude(w, 8, ones, 25);
    pool_assert_counts(w->permits, 1, 1, 0);
    assert_int_equal(world_stats(w->client).holds, 0);
}

/* A client that needs both permits and a client that needs one come in one after the other. */
POOL_CASE(C186_C187_needs_the_whole_pool, 2) {
    static const int64_t both[2] = {2, 2}, mixed[2] = {1, 2};
    assert_workers_exclude(w, 2, both, 10);
    assert_workers_exclude(w, 2, mixed, 10);

    struct world_caller waiter;
    hf_permit_id id;
    pool_take(w->rival_permits, 1, LONG_MS, &id);
    size_t before = pool_attempts(w);
    world_call_permits(&waiter, w->permits, pool_options(2, HF_FOREVER, LONG_MS));
    assert_true(pool_wait_asleep(w, before + 2, before + 1));
    assert_int_equal(hf_permits_release(w->rival_permits, &id), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 9000); /* by the message */
}

/* A waiter for two sleeps until the second lease ends, and not on. */
POOL_CASE(a_waiter_for_two_enters_when_enough_leases_ended, 2) {
    struct world_caller waiter;
    hf_permit_id first, second;
    int64_t start_ms = now_ms();
    pool_take(w->rival_permits, 1, PASSING_MS, &first);
    pool_take(w->rival_permits, 1, 2 * PASSING_MS, &second);
    world_call_permits(&waiter, w->permits, pool_options(2, HF_FOREVER, LONG_MS));
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms >= 2 * PASSING_MS);
    assert_true(waiter.took_ms < 9000); /* not by the poll */
}

RUN_CASES(world_start_server, world_stop_server)
