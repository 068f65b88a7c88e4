/*
 * Permits and faults: lost replies, late copies, abandoned waits, servers that end, a client whose
 * clock is wrong, ten thousand permits that ended.
 *
 * The checks are on the server's final state: no permit subtracted twice, none returned twice, none
 * taken without a holder. Leases are a minute unless a test is about their end, so nothing comes
 * back by itself.
 *
 * test_faults.c has the faults that a lock, a semaphore, permits and a latch share.
 */
#include "sync/pool.h"

#include <sys/syscall.h>
#include <time.h>

#define LONG_MS 60000
#define BRIEF_MS PASSING_MS

/* The library inside this program reads this clock: the wall's is a minute ahead while the clock is set
 * so. */
static atomic_bool clock_is_ahead;

/* The parameters have the C library's names. */
int clock_gettime(clockid_t clock_id, struct timespec *tp) {
    long err = syscall(SYS_clock_gettime, clock_id, tp);
    if (err == 0 && (clock_id == CLOCK_REALTIME || clock_id == CLOCK_REALTIME_COARSE) &&
        atomic_load(&clock_is_ahead))
        tp->tv_sec += 60;
    return (int)err;
}

/* For scenes in which nobody answers. */
static void begin_briefly(struct world *w, int64_t number) {
    hf_options options = world_options();
    options.cmd_timeout_ms = BRIEF_MS;
    pool_begin(w, &options, number);
}

/* ---- A reply is lost, with the connection ---- */

/* The permit may have ended by itself before the first copy came: then nobody can say it was
 * released in time. */
POOL_CASE(U15_release_reply_lost_and_the_lease_over, 1) {
    hf_permit_id id;
    hf_op *op = NULL;
    pool_take(w->permits, 1, PASSING_MS, &id);
    proxy_drop_replies_after(w->proxy, POOL_RELEASE);
    proxy_refuse(w->proxy, true); /* no other copy for longer than that */
    int err = hf_permits_release_start(w->permits, &id, 1, NULL, NULL, &op);
    assert_true(proxy_wait_fired(w->proxy, 1, HANG_MS));
    pool_wait_ended(now_ms() + PASSING_MS, 0);
    proxy_refuse(w->proxy, false);
    assert_int_equal(world_wait_op(err, op, NULL), HF_ELOST);
    assert_int_equal(pool_free_there(), 1);
    assert_int_equal(world_stats(w->client).holds, 0);
}

POOL_CASE(an_act_whose_reply_is_lost, 10) {
    bool done;
    hf_permit_id id;
    int64_t lease_ms;
    pool_take(w->permits, 1, LONG_MS, &id);
    /* What comes to the same when it is repeated is repeated... */
    proxy_drop_replies_after(w->proxy, hfi_script_permits_set.sha1);
    assert_int_equal(hf_permits_set(w->permits, 15), HF_OK);
    pool_assert_counts(w->permits, 15, 14, 1);
    proxy_drop_replies_after(w->proxy, POOL_EXTEND);
    assert_int_equal(hf_permits_extend(w->permits, &id, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_permits_ttl_ms(w->permits, &id, &lease_ms), HF_OK);
    assert_true(lease_ms > LONG_MS);
    proxy_drop_replies_after(w->proxy, hfi_script_permits_count.sha1);
    pool_assert_available(w->permits, 14);
    /* ...and what does not, is not. */
    proxy_drop_replies_after(w->proxy, hfi_script_permits_set.sha1);
    assert_int_equal(hf_permits_add(w->permits, 5), HF_EINDOUBT);
    pool_assert_available(w->permits, 19);
    proxy_drop_replies_after(w->proxy, hfi_script_permits_set.sha1);
    assert_int_equal(hf_permits_try_set(w->permits, 3, &done), HF_EINDOUBT);
    proxy_drop_replies_after(w->proxy, hfi_script_permits_delete.sha1);
    assert_int_equal(hf_permits_delete(w->permits, &done), HF_EINDOUBT);
    assert_int_equal(proxy_fired(w->proxy), 6);
    assert_int_equal(cmd_int(w->server, "DBSIZE"), 0);
}

/* ---- No answer until the deadline ---- */

/* A permit without a lease would be gone for good, so it is seen to for as long as the client
 * lives. */
CASE_IN(an_acquire_is_undone_however_late, struct world, w, begin_briefly, world_end, 1) {
    struct world_caller waiter;
    proxy_blackhole(w->proxy, false, true);
    world_call_permits(&waiter, w->permits, pool_options(1, 0, HF_NO_LEASE));
    assert_true(pool_wait_there(0, 1, HANG_MS));
    proxy_blackhole(w->proxy, true, true);
    assert_int_equal(world_join(&waiter), HF_EUNREACH);
    assert_true(HOLDS_FOR(pool_taken_there() == 1, 4 * BRIEF_MS));
    proxy_heal(w->proxy);
    assert_true(pool_wait_there(1, 0, HANG_MS));
}

/* The answer comes when the lease is over: nothing is held, and nothing is left. */
POOL_CASE(an_answer_that_comes_after_the_lease, 2) {
    struct world_caller waiter;
    proxy_blackhole(w->proxy, false, true);
    world_call_permits(&waiter, w->permits, pool_options(2, 0, 100));
    assert_true(pool_wait_there(0, 2, HANG_MS));
    pool_wait_ended(now_ms() + 150, 0);
    proxy_heal(w->proxy);
    assert_int_equal(world_join(&waiter), HF_ETIMEDOUT);
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_true(pool_wait_there(2, 0, HANG_MS));
}

ROW_CASES_IN(U16_release_never_answered_is_unknown_and_settled, form, pool_forms, struct world, w,
             begin_briefly, world_end, 3) {
    hf_permit_id ids[2];
    pool_take(w->permits, 2, HF_WATCHDOG, ids);
    proxy_blackhole(w->proxy, true, true);
    int64_t start_ms = now_ms();
    assert_int_equal(form->release(w->permits, ids, 2), HF_EINDOUBT);
    assert_true(now_ms() - start_ms >= BRIEF_MS);
    assert_int_equal(world_stats(w->client).holds, 0); /* not renewed any more */
    assert_int_equal(pool_taken_there(), 2);
    proxy_heal(w->proxy);
    assert_true(pool_wait_there(3, 0, HANG_MS));
    assert_int_equal(form->release(w->permits, ids, 2), HF_ENOTOWNER);
}

/* All or none, also when it is done behind the caller's back. */
CASE_IN(U16_release_of_many_is_settled_all_or_none, struct world, w, begin_briefly, world_end, 1) {
    hf_permit_id ids[2] = {{""}, {"0123456789abcdef0123456789abcdef"}};
    pool_take(w->permits, 1, HF_NO_LEASE, ids);
    proxy_blackhole(w->proxy, true, true);
    assert_int_equal(hf_permits_release_many(w->permits, ids, 2), HF_EINDOUBT);
    size_t copies = proxy_seen(w->proxy, POOL_RELEASE);
    proxy_heal(w->proxy);
    assert_true(
        proxy_wait_seen(w->proxy, POOL_RELEASE, copies + 2, HANG_MS)); /* the lost one, too */
    hf_permits_free(w->permits);
    w->permits = NULL;
    assert_int_equal(hf_close(w->client), HF_OK); /* waits for what is being settled */
    w->client = NULL;
    assert_int_equal(pool_taken_there(), 1);
    assert_int_equal(hf_permits_release(w->rival_permits, ids), HF_OK);
}

/* Perhaps it has a shorter lease now: it is trusted no longer than that. */
CASE_IN(an_unanswered_extension_may_have_shortened_it, struct world, w, begin_briefly, world_end,
        1) {
    struct pool_events events = {0};
    hf_permit_id id;
    assert_int_equal(hf_permits_on_lost(w->permits, pool_on_event, &events), HF_OK);
    pool_take(w->permits, 1, LONG_MS, &id);
    proxy_blackhole(w->proxy, true, true);
    assert_int_equal(hf_permits_extend(w->permits, &id, 100), HF_EINDOUBT);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    proxy_heal(w->proxy);
    assert_int_equal(hf_permits_release(w->permits, &id), HF_ELOST);
    assert_true(pool_wait_there(1, 0, HANG_MS));
}

/* ---- Given up ---- */

/* Cancelled while the acquire is on the wire, which then takes: it is given back. */
CASE(U22_a_cancelled_acquire_that_wins_is_undone) {
    for (int lost = 0; lost < 2; lost++) {
        struct world w;
        hf_permit_id ids[2];
        hf_op *op = NULL;
        hf_permits_options options = pool_options(2, HF_FOREVER, HF_NO_LEASE);
        pool_begin(&w, NULL, 2);
        proxy_stall_request(w.proxy, POOL_ACQUIRE);
        assert_int_equal(hf_permits_acquire_start(w.permits, &options, ids, NULL, NULL, &op),
                         HF_OK);
        assert_true(proxy_wait_held(w.proxy, HANG_MS));
        hf_op_cancel(op);
        assert_int_equal(world_wait_op(HF_OK, op, NULL), HF_ECANCELED);
        assert_int_equal(pool_taken_there(), 0);
        if (lost)
            proxy_mute_replies_after(w.proxy, ""); /* whatever comes next; then it must ask */
        assert_true(proxy_release_held(w.proxy) >= 1);
        assert_true(pool_wait_there(2, 0, HANG_MS));
        assert_int_equal(world_stats(w.client).cancelled, 1);
        assert_int_equal(world_stats(w.client).holds, 0);
        world_end(&w);
    }
}

/* ---- The server ---- */

CASE(U23_script_flush) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    hf_permit_id id, ids[2];
    bool done;
    int64_t lease_ms;
    pool_begin(&w, &options, 5);
#define FLUSHED(call, expected)                                                                    \
    do {                                                                                           \
        cmd_ok(w.server, "SCRIPT FLUSH");                                                          \
        assert_int_equal(call, expected);                                                          \
    } while (0)
    FLUSHED(hf_permits_acquire(w.permits, &id), HF_OK);
    assert_int_equal(pool_free_there(), 4);
    cmd_ok(w.server, "SCRIPT FLUSH");
    uint64_t renewals = world_stats(w.client).renewals;
    assert_true(WAIT_FOR(world_stats(w.client).renewals >= renewals + 2, HANG_MS));
    FLUSHED(hf_permits_extend(w.permits, &id, LONG_MS), HF_OK);
    FLUSHED(hf_permits_ttl_ms(w.permits, &id, &lease_ms), HF_OK);
    FLUSHED(hf_permits_release(w.permits, &id), HF_OK);
    FLUSHED(hf_permits_add(w.permits, 1), HF_OK);
    FLUSHED(hf_permits_set(w.permits, 3), HF_OK);
    cmd_ok(w.server, "SCRIPT FLUSH");
    pool_assert_counts(w.permits, 3, 3, 0);
    pool_take(w.permits, 2, LONG_MS, ids);
    FLUSHED(hf_permits_release_many(w.permits, ids, 2), HF_OK);
    FLUSHED(hf_permits_expire(w.permits, LONG_MS, &done), HF_OK);
    FLUSHED(hf_permits_delete(w.permits, &done), HF_OK);
    assert_int_equal(world_stats(w.client).losses, 0);
}

CASE(a_server_that_restarts_empty_is_a_loss) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    options.watchdog_ms = 2 * PASSING_MS;
    struct pool_events events = {0};
    hf_permit_id ids[2];
    pool_begin(&w, &options, 2);
    assert_int_equal(hf_permits_on_lost(w.permits, pool_on_event, &events), HF_OK);
    pool_take(w.permits, 2, HF_WATCHDOG, ids);
    server_restart(w.server);
    assert_true(world_wait_atomic(&events.losses, 2, HANG_MS));
    assert_int_equal(world_stats(w.client).holds, 0);
    pool_assert_counts(w.permits, 0, 0, 0);
    assert_int_equal(hf_permits_release_many(w.permits, ids, 2), HF_ENOTOWNER);
}

struct renewed {
    const hf_permit_id *id;
    long long ended_ms;
};

static bool ends_later(void *arg) {
    const struct renewed *renewed = arg;
    return pool_ends_at(renewed->id) > renewed->ended_ms;
}

/* Renewals arrive but are not answered: a warning first, then the loss, before the server's lease
 * is over. What we have called lost stays so, though the server still has it. */
CASE(a_silent_server_is_a_warning_and_then_a_loss) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    options.cmd_timeout_ms = BRIEF_MS;
    struct pool_events events = {0};
    hf_permit_id id;
    pool_begin(&w, &options, 1);
    assert_int_equal(hf_permits_on_lost(w.permits, pool_on_event, &events), HF_OK);
    pool_take(w.permits, 1, HF_WATCHDOG, &id);
    struct renewed renewed = {&id, pool_ends_at(&id)};
    proxy_blackhole(w.proxy, false, true);
    assert_true(wait_until(ends_later, &renewed, HANG_MS));
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(atomic_load(&events.warnings) >= 1);
    assert_true(world_stats(w.client).renew_failures >= 1);
    assert_int_equal(world_stats(w.client).losses, 1);
    proxy_heal(w.proxy);
    assert_int_equal(hf_permits_extend(w.permits, &id, LONG_MS), HF_ENOTOWNER);
    assert_int_equal(hf_permits_release(w.permits, &id), HF_ELOST);
    assert_true(pool_wait_there(1, 0, HANG_MS));
}

/* ---- Clocks and numbers ---- */

/* A client whose wall clock is a minute ahead neither takes what others have nor leaves permits
 * that end late. */
POOL_CASE(U62_the_servers_clock_counts, 2) {
    hf_permit_id id, mine;
    pool_take(w->rival_permits, 1, 30000, &id);
    atomic_store(&clock_is_ahead, true);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    pool_take(w->permits, 1, 30000, &mine);
    hf_permit_id none;
    int err = hf_permits_try(w->permits, &none);
    int64_t available = -99;
    int asked = hf_permits_available(w->permits, &available);
    atomic_store(&clock_is_ahead, false);
    assert_int_equal(err, HF_EBUSY);
    assert_int_equal(asked, HF_OK);
    assert_int_equal(available, 0);
    long long difference_ms = pool_ends_at(&mine) - pool_ends_at(&id);
    assert_true(difference_ms >= 0 && difference_ms < 20000);
    assert_true((long long)wall.tv_sec * 1000 > pool_ends_at(&mine) - 1); /* it was ahead */
    assert_int_equal(hf_permits_release(w->rival_permits, &id), HF_OK);
}

POOL_CASE(U50_ten_thousand_ended, 0) {
    enum { MANY = 10000 };
    hf_permit_id id, unknown = {"0123456789abcdef0123456789abcdef"};
    int64_t lease_ms;
    cmd_ok(w->server, "SET " POOL_NAME " 0");
    cmd_ok(w->server, "EVAL %s 1 " POOL_TAKEN " %d",
           "for i = 1, ARGV[1] do redis.call('zadd', KEYS[1], i, string.format('%016d', i)) end "
           "return 1",
           MANY);
    pool_assert_counts(w->permits, MANY, MANY, 0);
    assert_int_equal(hf_permits_ttl_ms(w->permits, &unknown, &lease_ms), HF_ENOTOWNER);
    assert_int_equal(hf_permits_extend(w->permits, &unknown, 1000), HF_ENOTOWNER);
    assert_true(pool_taken_there() > MANY / 2); /* never all at once */
    pool_take(w->permits, 1, LONG_MS, &id);
    pool_assert_counts(w->permits, MANY, MANY - 1, 1);
    assert_int_equal(hf_permits_release(w->permits, &id), HF_OK);

    /* A thousand at once, again and again, reach all of them. */
    static hf_permit_id ids[MANY];
    for (int i = 0; i < MANY; i += 1000)
        pool_take(w->permits, 1000, LONG_MS, ids + i);
    assert_int_equal(hf_permits_try(w->permits, &id), HF_EBUSY);
    assert_int_equal(world_stats(w->client).holds, MANY);
    for (int i = 0; i < MANY; i += 1000)
        assert_int_equal(hf_permits_release_many(w->permits, ids + i, 1000), HF_OK);
    pool_assert_counts(w->permits, MANY, MANY, 0);
    assert_int_equal(world_stats(w->client).holds, 0);
}

POOL_CASE(U51_the_objects_ttl_stays, 5) {
    hf_permit_id id;
    bool existed;
    assert_int_equal(hf_permits_expire(w->permits, LONG_MS, &existed), HF_OK);
    pool_take(w->permits, 1, LONG_MS / 2, &id);
    assert_int_equal(hf_permits_add(w->permits, 3), HF_OK);
    assert_int_equal(hf_permits_set(w->permits, 4), HF_OK);
    assert_int_equal(hf_permits_release(w->permits, &id), HF_OK);
    pool_take(w->permits, 1, HF_NO_LEASE, &id);
    assert_true(pttl(w->server, POOL_NAME) > 0 && pttl(w->server, POOL_NAME) <= LONG_MS);
    assert_true(pttl(w->server, POOL_TAKEN) > 0 && pttl(w->server, POOL_TAKEN) <= LONG_MS);
}

RUN_CASES(world_start_server, world_stop_server)
