/*
 * HF_COHORT: threads of one process pass a lock on without the server.
 *
 * What each verb says to the one inside and to the others, the order, the limits, and what the server sees: one
 * owner, once. What goes wrong is in test_cohort_faults.c, many at once in test_cohort_stress.c.
 */
#include "lock/cohort.h"

/* The one field of the lock's hash, if it is held once; the one node. */
static void expect_one_holder(struct world *w) {
    if (server_is_other(w->server)) {
        assert_int_equal(server_queued(w->server, WORLD_NAME), 1);
        return;
    }
    assert_int_equal(cmd_int(w->server, "HLEN %s", WORLD_NAME), 1);
    own_reply *values = cmd(w->server, "HVALS %s", WORLD_NAME);
    assert_non_null(values);
    assert_int_equal(values->elements, 1);
    assert_string_equal(values->element[0]->str, "1");
}

static void expect_inside(hf_lock *lock, hf_owner owner, int64_t count) {
    bool mine;
    int64_t found;
    assert_int_equal(hf_lock_is_mine_as(lock, owner, &mine), HF_OK);
    assert_int_equal(mine, count > 0);
    assert_int_equal(hf_lock_hold_count_as(lock, owner, &found), HF_OK);
    assert_int_equal(found, count);
    assert_int_equal(hf_lock_remaining_ms_as(lock, owner) > 0, count > 0);
}

COHORT_CASE(passes_on_in_order) {
    hf_op *ops[5];
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    for (hf_owner i = 0; i < 5; i++)
        ops[i] = cohort_start(w->lock, 11 + i, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    size_t acquires = proxy_seen(w->proxy, world_acquires(w)),
           releases = proxy_seen(w->proxy, world_releases(w));
    expect_inside(w->lock, hf_owner_self(), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    for (hf_owner i = 0; i < 5; i++) {
        assert_int_equal(cohort_join(ops[i]), HF_OK);
        for (hf_owner other = 0; other < 5; other++)
            expect_inside(w->lock, 11 + other, other == i);
        expect_inside(w->lock, hf_owner_self(), 0);
        expect_one_holder(w);
        for (hf_owner later = i + 1; later < 5; later++)
            assert_true(cohort_is_pending(ops[later]));
        assert_int_equal(proxy_seen(w->proxy, world_releases(w)), releases);
        assert_int_equal(hf_lock_release_as(w->lock, 11 + i), HF_OK);
    }
    assert_true(world_free(w));
    assert_int_equal(proxy_seen(w->proxy, world_acquires(w)), acquires);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
}

COHORT_CASE(nests) {
    hf_result result = HF_RESULT_INIT;
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(hf_lock_acquire_with(w->lock, NULL, &result), HF_OK);
        assert_int_equal(result.count, i);
        expect_one_holder(w);
        expect_inside(w->lock, hf_owner_self(), i);
    }
    hf_op *next = cohort_start(w->lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    for (int i = 2; i >= 1; i--) {
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        expect_inside(w->lock, hf_owner_self(), i);
        assert_true(cohort_is_pending(next));
    }
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, 11), HF_OK);
    assert_true(world_free(w));
}

COHORT_CASE(not_reentrant) {
    own_lock *once = cohort_lock(w->client, HF_PLAIN, HF_NONREENTRANT, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_acquire(once), HF_OK);
    assert_int_equal(hf_lock_acquire(once), HF_EDEADLK);
    assert_int_equal(hf_lock_release(once), HF_OK);
    assert_true(world_free(w));
}

/* All handles of a client on one name are of one cohort, and what was acquired outlives its handle. */
COHORT_CASE(handles_share_it) {
    hf_lock *other = cohort_lock(w->client, HF_PLAIN, 0, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_acquire(other), HF_OK);
    hf_lock_free(other);
    expect_inside(w->lock, hf_owner_self(), 1);
    hf_op *next = cohort_start(w->lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, 11), HF_OK);
    assert_true(world_free(w));
}

/* To others it is one owner, to other handles of the same client too. */
COHORT_CASE(excludes_others) {
    own_lock *plain = made(hf_lock_new, w->client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_EBUSY);
    assert_int_equal(hf_lock_try(plain), HF_EBUSY);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
    assert_int_equal(hf_lock_acquire_for(w->lock, 50), HF_ETIMEDOUT);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_try(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

COHORT_CASE(questions) {
    bool locked;
    int64_t ttl_ms;
    hf_lock_info *info;
    assert_int_equal(hf_lock_is_locked(w->lock, &locked), HF_OK);
    assert_false(locked);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_is_locked(w->lock, &locked), HF_OK);
    assert_true(locked);
    assert_int_equal(hf_lock_ttl_ms(w->lock, &ttl_ms), HF_OK);
    assert_true(ttl_ms > 0 && ttl_ms <= 60000);
    assert_int_equal(hf_lock_inspect(w->lock, &info), HF_OK);
    assert_int_equal(info->holders_len, 1);
    assert_int_equal(info->holders[0]->count, 1);
    assert_memory_equal(info->holders[0]->owner, hf_client_id(w->client), 36);
    hf_lock_info_free(info);
    if (!server_is_other(w->server)) {
        hf_server_info *server;
        assert_int_equal(hf_lock_server_info(w->lock, &server), HF_OK);
        hf_server_info_free(server);
    }
    assert_int_equal(hf_lock_adopt(w->lock, w->rival_owner, 60000, NULL), HF_ENOTSUP);
    assert_int_equal(hf_lock_token(w->lock, &ttl_ms), HF_ENOTSUP);
    assert_string_equal(hf_lock_name(w->lock, NULL), WORLD_NAME);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* ---- Limits ---- */

/* The lock is released at the server after this many passes, although another thread of this
 * process waits. */
CASE_IN(goes_back_after_passes, struct world, w, cohort_begin, world_end, NULL, 2, COHORT_LONG_MS) {
    hf_op *ops[4];
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    for (hf_owner i = 0; i < 4; i++)
        ops[i] = cohort_start(w->lock, 11 + i, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    size_t releases = proxy_seen(w->proxy, world_releases(w));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    for (hf_owner i = 0; i < 4; i++) {
        assert_int_equal(cohort_join(ops[i]), HF_OK);
        assert_int_equal(proxy_seen(w->proxy, world_releases(w)) - releases, i < 2 ? 0 : 1);
        assert_int_equal(hf_lock_release_as(w->lock, 11 + i), HF_OK);
    }
    assert_true(world_free(w));
}

CASE_IN(goes_back_after_time, struct world, w, cohort_begin, world_end, NULL, 1000, 1) {
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    hf_op *next = cohort_start(w->lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    size_t releases = proxy_seen(w->proxy, world_releases(w));
    cohort_outlast_turn();
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(proxy_seen(w->proxy, world_releases(w)), releases + 1);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, 11), HF_OK);
}

/* A client that arrives again is behind the waiters elsewhere: here because its command is kept back. */
CASE_IN(others_are_let_in, struct world, w, cohort_begin, world_end, NULL, 1, COHORT_LONG_MS) {
    hf_cancel *none = NULL;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    hf_op *first = cohort_start(w->lock, 11, HF_FOREVER, none);
    hf_op *second = cohort_start(w->lock, 12, HF_FOREVER, none);
    cohort_all_have_come(w->lock);
    struct world_caller rival;
    world_call_acquire(&rival, w->rival_lock, world_wait_for(HANG_MS, HF_WATCHDOG));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(cohort_join(first), HF_OK);
    assert_false(atomic_load(&rival.done));
    proxy_stall_request(w->proxy, world_acquires(w));
    assert_int_equal(hf_lock_release_as(w->lock, 11), HF_OK);
    assert_int_equal(world_join(&rival), HF_OK);
    assert_true(cohort_is_pending(second));
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_true(proxy_release_held(w->proxy) > 0);
    assert_int_equal(hf_lock_release_as(w->rival_lock, rival.owner), HF_OK);
    assert_int_equal(cohort_join(second), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, 12), HF_OK);
}

static bool is_queued(void *arg) {
    struct server *server = ((struct world *)arg)->server;
    return server_is_other(server)
               ? server_queued(server, WORLD_NAME) > 1
               : cmd_int(server, "LLEN redisson_lock_queue:{%s}", WORLD_NAME) > 0;
}

/* With a fair lock it is the server that lets them in, in their turn. */
CASE(others_have_their_turn) {
    OWN(world_end) struct world w;
    hf_lock_options fair = HF_LOCK_OPTIONS_INIT;
    fair.kind = HF_FAIR;
    world_begin(&w, NULL);
    own_lock *lock = cohort_lock(w.client, HF_FAIR, 0, 1, COHORT_LONG_MS);
    own_lock *rival_lock = made(hf_lock_new_with, w.rival, WORLD_NAME, strlen(WORLD_NAME), &fair);
    for (int round = 0; round < 5; round++) {
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        hf_op *first = cohort_start(lock, 11, HF_FOREVER, NULL);
        hf_op *second = cohort_start(lock, 12, HF_FOREVER, NULL);
        cohort_all_have_come(lock);
        struct world_caller rival;
        world_call_acquire(&rival, rival_lock, world_wait_for(HANG_MS, HF_WATCHDOG));
        assert_true(wait_until(is_queued, &w, HANG_MS));
        assert_int_equal(hf_lock_release(lock), HF_OK);
        assert_int_equal(cohort_join(first), HF_OK);
        assert_int_equal(hf_lock_release_as(lock, 11), HF_OK);
        assert_int_equal(world_join(&rival), HF_OK);
        assert_true(cohort_is_pending(second));
        assert_int_equal(hf_lock_release_as(rival_lock, rival.owner), HF_OK);
        assert_int_equal(cohort_join(second), HF_OK);
        assert_int_equal(hf_lock_release_as(lock, 12), HF_OK);
    }
}

/* ---- Waits that end ---- */

COHORT_CASE(waits_end) {
    own_cancel *cancel;
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    hf_op *in_time = cohort_start(w->lock, 11, 50, NULL);
    hf_op *cancelled = cohort_start(w->lock, 12, HF_FOREVER, NULL);
    hf_op *switched = cohort_start(w->lock, 13, HF_FOREVER, cancel);
    hf_op *stays = cohort_start(w->lock, 14, HF_FOREVER, NULL);
    hf_op *once = cohort_start(w->lock, 15, 0, NULL);
    assert_int_equal(cohort_join(once), HF_EBUSY);
    hf_op_cancel(cancelled);
    assert_int_equal(cohort_join(cancelled), HF_ECANCELED);
    hf_cancel_fire(cancel);
    assert_int_equal(cohort_join(switched), HF_ECANCELED);
    assert_int_equal(cohort_join(in_time), HF_ETIMEDOUT);
    assert_true(cohort_is_pending(stays));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(cohort_join(stays), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, 14), HF_OK);
    assert_true(world_free(w));
}

/* No thread wants it any more: the acquire at the server is taken back. */
COHORT_CASE(no_waiter_is_left) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_op *op = cohort_start(w->lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    hf_op_cancel(op);
    assert_int_equal(cohort_join(op), HF_ECANCELED);
    assert_int_equal(hf_lock_acquire_for(w->lock, 50), HF_ETIMEDOUT);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_for(w->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
}

/* ---- Leases ---- */

COHORT_CASE(leases_are_kept_here) {
    hf_acquire_options leased = world_wait_for(HANG_MS, 20000);
    assert_int_equal(hf_lock_acquire_with(w->lock, &leased, NULL), HF_OK);
    int64_t left_ms = hf_lock_remaining_ms(w->lock);
    assert_true(left_ms > 0 && left_ms <= 20000);
    assert_true(server_is_other(w->server) || pttl(w->server, WORLD_NAME) > 20000);
    assert_int_equal(hf_lock_extend(w->lock, 40000), HF_OK);
    assert_true(hf_lock_remaining_ms(w->lock) > 20000);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_extend(w->lock, 40000), HF_ENOTOWNER);
    leased.acks = 1;
    assert_int_equal(hf_lock_acquire_with(w->lock, &leased, NULL), HF_ENOTSUP);
}

/* A lease that runs out is a loss for its owner, and the next is let in. */
COHORT_CASE(leases_run_out) {
    struct world_events events = {0};
    hf_acquire_options brief = world_wait_for(HANG_MS, 200);
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    world_acquire_brief(w->lock, &brief);
    hf_op *next = cohort_start(w->lock, 11, HF_FOREVER, NULL);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    expect_inside(w->lock, 11, 1);
    assert_int_equal(hf_lock_release_as(w->lock, 11), HF_OK);
    assert_true(world_free(w));
}

/* ---- What is not offered ---- */

static void expect_refused(hf_client *client, hf_kind kind, unsigned flags, const char *words) {
    hf_lock *lock = NULL;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = kind;
    options.flags = HF_COHORT | flags;
    assert_int_equal(hf_lock_new_with(client, "x", 1, &options, &lock), HF_ENOTSUP);
    assert_non_null(strstr(hf_last_error()->text, words));
}

COHORT_CASE(refusals) {
    hf_lock *lock = NULL;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    expect_refused(w->client, HF_PLAIN, HF_FENCED, "draws no token");
    expect_refused(w->client, HF_READ, 0, "HF_PLAIN, HF_FAIR or HF_STRING");
    expect_refused(w->client, HF_WRITE, 0, "HF_PLAIN, HF_FAIR or HF_STRING");
    expect_refused(w->client, HF_PLAIN, HF_SPIN, "HF_NONREENTRANT only");
    assert_int_equal(hf_lock_new_multi(&w->lock, 1, &lock), HF_ENOTSUP);
    options.flags = HF_COHORT;
    options.cohort_passes = 0;
    assert_int_equal(hf_lock_new_with(w->client, "x", 1, &options, &lock), HF_EINVAL);
    options.cohort_passes = 1;
    options.cohort_ms = 60001;
    assert_int_equal(hf_lock_new_with(w->client, "x", 1, &options, &lock), HF_EINVAL);
    options.cohort_ms = 1;
    assert_int_equal(hf_lock_new_with(w->client, "", 0, &options, &lock), HF_EINVAL);
}

RUN_CASES(world_start_server, world_stop_server)
