/*
 * Permits when things go wrong: replies that are lost, copies that come late, waits that are given
 * up, servers that end, a client whose clock is wrong, ten thousand permits that ended.
 *
 * What counts is what the server has in the end: no permit paid for twice, none returned twice,
 * none taken that nobody has. Leases are a minute unless a test is about their end, so nothing here
 * comes back by itself.
 */
#include "sync/pool.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LONG_MS 60000
#define BRIEF_MS PASSING_MS

/* The library inside this program reads this clock: the wall's is a minute ahead while it is told
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
static void begin_briefly(struct pool *p, int64_t number) {
    hf_options options = scene_options();
    options.cmd_timeout_ms = BRIEF_MS;
    pool_begin(p, &options, number);
}

/* ---- A reply is lost, with the connection ---- */

static void U14_acquire_reply_lost(void **state) {
    (void)state;
    static const int64_t leases[] = {LONG_MS, HF_WATCHDOG, HF_NO_LEASE};
    FOR_EACH_POOL_FORM(form)
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
        struct pool p;
        hf_permit_id ids[3];
        hf_permits_options options = pool_options(3, i == 0 ? HANG_MS : 0, leases[i]);
        pool_begin(&p, NULL, 10);
        proxy_drop_replies_after(p.proxy, POOL_ACQUIRE);
        assert_int_equal(form->acquire(p.permits, &options, ids), HF_OK);
        assert_int_equal(proxy_fired(p.proxy), 1); /* so it ran twice */
        assert_true(proxy_seen(p.proxy, POOL_ACQUIRE) >= 2);
        assert_int_equal(pool_free_there(), 7);
        assert_int_equal(pool_taken_there(), 3);
        assert_int_equal(scene_stats(p.client).unknowns, 1);
        assert_int_equal(form->release(p.permits, ids, 3), HF_OK);
        assert_int_equal(pool_free_there(), 10);
        pool_end(&p);
    }
}

static void U15_release_reply_lost(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form)
    for (size_t len = 1; len <= 3; len += 2) {
        struct pool p;
        hf_permit_id ids[3];
        pool_begin(&p, NULL, 10);
        pool_take(p.permits, 3, LONG_MS, ids);
        proxy_drop_replies_after(p.proxy, POOL_RELEASE);
        assert_int_equal(form->release(p.permits, ids, len), HF_OK);
        assert_int_equal(proxy_fired(p.proxy), 1);
        assert_true(proxy_seen(p.proxy, POOL_RELEASE) >= 2);
        assert_int_equal(pool_free_there(), 7 + (int)len);
        assert_int_equal(scene_stats(p.client).released, 1);
        assert_int_equal(form->release(p.permits, ids, len), HF_ENOTOWNER);
        pool_end(&p);
    }
}

/* The permit may have ended by itself before the first copy came: then nobody can say it was
 * released in time. */
static void U15_release_reply_lost_and_the_lease_over(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id id;
    hf_op *op = NULL;
    pool_begin(&p, NULL, 1);
    pool_take(p.permits, 1, PASSING_MS, &id);
    proxy_drop_replies_after(p.proxy, POOL_RELEASE);
    proxy_refuse(p.proxy, true); /* no other copy for longer than that */
    int err = hf_permits_release_start(p.permits, &id, 1, NULL, NULL, &op);
    assert_true(proxy_wait_fired(p.proxy, 1, HANG_MS));
    sleep_ms(PASSING_MS);
    proxy_refuse(p.proxy, false);
    assert_int_equal(scene_wait_op(err, op, NULL), HF_ELOST);
    assert_int_equal(pool_free_there(), 1);
    assert_int_equal(scene_stats(p.client).holds, 0);
    pool_end(&p);
}

static void an_act_whose_reply_is_lost(void **state) {
    (void)state;
    struct pool p;
    bool done;
    hf_permit_id id;
    int64_t lease_ms;
    pool_begin(&p, NULL, 10);
    pool_take(p.permits, 1, LONG_MS, &id);
    /* What comes to the same when it is repeated is repeated... */
    proxy_drop_replies_after(p.proxy, hfi_script_permits_set.sha1);
    assert_int_equal(hf_permits_set(p.permits, 15), HF_OK);
    pool_assert_counts(p.permits, 15, 14, 1);
    proxy_drop_replies_after(p.proxy, POOL_EXTEND);
    assert_int_equal(hf_permits_extend(p.permits, &id, 2 * LONG_MS), HF_OK);
    assert_int_equal(hf_permits_lease_ms(p.permits, &id, &lease_ms), HF_OK);
    assert_true(lease_ms > LONG_MS);
    proxy_drop_replies_after(p.proxy, hfi_script_permits_count.sha1);
    pool_assert_available(p.permits, 14);
    /* ...and what does not, is not. */
    proxy_drop_replies_after(p.proxy, hfi_script_permits_set.sha1);
    assert_int_equal(hf_permits_add(p.permits, 5), HF_EUNKNOWN);
    pool_assert_available(p.permits, 19);
    proxy_drop_replies_after(p.proxy, hfi_script_permits_set.sha1);
    assert_int_equal(hf_permits_try_set(p.permits, 3, &done), HF_EUNKNOWN);
    proxy_drop_replies_after(p.proxy, hfi_script_permits_delete.sha1);
    assert_int_equal(hf_permits_delete(p.permits, &done), HF_EUNKNOWN);
    assert_int_equal(proxy_fired(p.proxy), 6);
    assert_int_equal(cmd_int(p.server, "DBSIZE"), 0);
    pool_end(&p);
}

/* ---- No answer until the deadline ---- */

static void rule4_acquire_never_answered_is_undone(void **state) {
    (void)state;
    static const int64_t leases[] = {LONG_MS, HF_WATCHDOG, HF_NO_LEASE};
    FOR_EACH_POOL_FORM(form)
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
        struct pool p;
        hf_permit_id ids[2] = {{"untouched"}, {"untouched"}};
        hf_permits_options options = pool_options(2, 0, leases[i]);
        begin_briefly(&p, 3);
        proxy_mute_replies_after(p.proxy, POOL_ACQUIRE);
        assert_int_equal(form->acquire(p.permits, &options, ids), HF_EUNREACH);
        assert_int_equal(proxy_fired(p.proxy), 1); /* so it had run */
        assert_true(pool_wait_there(3, 0, HANG_MS));
        assert_string_equal(ids[0].text, "untouched");
        assert_int_equal(scene_stats(p.client).holds, 0);
        pool_end(&p);
    }
}

/* A permit without a lease would be gone for good, so it is seen to for as long as the client
 * lives. */
static void an_acquire_is_undone_however_late(void **state) {
    (void)state;
    struct pool p;
    struct pool_waiter waiter;
    begin_briefly(&p, 1);
    proxy_blackhole(p.proxy, false, true);
    pool_wait_for(&waiter, p.permits, pool_options(1, 0, HF_NO_LEASE));
    assert_true(pool_wait_there(0, 1, HANG_MS));
    proxy_blackhole(p.proxy, true, true);
    assert_int_equal(pool_join(&waiter), HF_EUNREACH);
    sleep_ms(4 * BRIEF_MS);
    assert_int_equal(pool_taken_there(), 1);
    proxy_heal(p.proxy);
    assert_true(pool_wait_there(1, 0, HANG_MS));
    pool_end(&p);
}

/* The answer comes when the lease is over: nothing is held, and nothing is left. */
static void an_answer_that_comes_after_the_lease(void **state) {
    (void)state;
    struct pool p;
    struct pool_waiter waiter;
    pool_begin(&p, NULL, 2);
    proxy_blackhole(p.proxy, false, true);
    pool_wait_for(&waiter, p.permits, pool_options(2, 0, 100));
    assert_true(pool_wait_there(0, 2, HANG_MS));
    sleep_ms(150);
    proxy_heal(p.proxy);
    assert_int_equal(pool_join(&waiter), HF_ETIMEDOUT);
    assert_int_equal(scene_stats(p.client).holds, 0);
    assert_true(pool_wait_there(2, 0, HANG_MS));
    pool_end(&p);
}

static void U16_release_never_answered_is_unknown_and_settled(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        hf_permit_id ids[2];
        begin_briefly(&p, 3);
        pool_take(p.permits, 2, HF_WATCHDOG, ids);
        proxy_blackhole(p.proxy, true, true);
        int64_t start_ms = now_ms();
        assert_int_equal(form->release(p.permits, ids, 2), HF_EUNKNOWN);
        assert_true(now_ms() - start_ms >= BRIEF_MS);
        assert_int_equal(scene_stats(p.client).holds, 0); /* not renewed any more */
        assert_int_equal(pool_taken_there(), 2);
        proxy_heal(p.proxy);
        assert_true(pool_wait_there(3, 0, HANG_MS));
        assert_int_equal(form->release(p.permits, ids, 2), HF_ENOTOWNER);
        pool_end(&p);
    }
}

/* All or none, also when it is done behind the caller's back. */
static void U16_release_of_many_is_settled_all_or_none(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id ids[2] = {{""}, {"0123456789abcdef0123456789abcdef"}};
    begin_briefly(&p, 1);
    pool_take(p.permits, 1, HF_NO_LEASE, ids);
    proxy_blackhole(p.proxy, true, true);
    assert_int_equal(hf_permits_release_many(p.permits, ids, 2), HF_EUNKNOWN);
    size_t copies = proxy_seen(p.proxy, POOL_RELEASE);
    proxy_heal(p.proxy);
    assert_true(
        proxy_wait_seen(p.proxy, POOL_RELEASE, copies + 2, HANG_MS)); /* the lost one, too */
    hf_permits_free(p.permits);
    p.permits = NULL;
    assert_int_equal(hf_close(p.client), HF_OK); /* waits for what is being settled */
    p.client = NULL;
    assert_int_equal(pool_taken_there(), 1);
    assert_int_equal(hf_permits_release(p.rival_permits, ids), HF_OK);
    pool_end(&p);
}

/* Perhaps it has a shorter lease now: it is trusted no longer than that. */
static void an_unanswered_extension_may_have_shortened_it(void **state) {
    (void)state;
    struct pool p;
    struct pool_events events = {0};
    hf_permit_id id;
    begin_briefly(&p, 1);
    assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
    pool_take(p.permits, 1, LONG_MS, &id);
    proxy_blackhole(p.proxy, true, true);
    assert_int_equal(hf_permits_extend(p.permits, &id, 100), HF_EUNKNOWN);
    assert_true(pool_wait_atomic(&events.losses, 1, HANG_MS));
    proxy_heal(p.proxy);
    assert_int_equal(hf_permits_release(p.permits, &id), HF_ELOST);
    assert_true(pool_wait_there(1, 0, HANG_MS));
    pool_end(&p);
}

/* A copy of the acquire that was stuck in the network comes when everything is over. */
static void U17_a_late_copy_takes_nothing(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id id;
    hf_permits_options options = pool_options(1, HANG_MS, HF_NO_LEASE);
    pool_begin(&p, NULL, 1);
    proxy_hold_request(p.proxy, POOL_ACQUIRE);
    assert_int_equal(hf_permits_acquire_with(p.permits, &options, &id), HF_OK);
    assert_int_equal(hf_permits_release(p.permits, &id), HF_OK);
    assert_int_equal(proxy_release_held(p.proxy) >= 1, 1);
    assert_int_equal(pool_free_there(), 1);
    assert_int_equal(pool_taken_there(), 0);
    pool_end(&p);
}

/* ---- Given up ---- */

/* Cancelled while the acquire is on the wire, which then takes: it is given back. */
static void U22_a_cancelled_acquire_that_wins_is_undone(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct pool p;
        hf_permit_id ids[2];
        hf_op *op = NULL;
        hf_permits_options options = pool_options(2, HF_FOREVER, HF_NO_LEASE);
        pool_begin(&p, NULL, 2);
        proxy_stall_request(p.proxy, POOL_ACQUIRE);
        assert_int_equal(hf_permits_acquire_start(p.permits, &options, ids, NULL, NULL, &op),
                         HF_OK);
        assert_true(proxy_wait_held(p.proxy, HANG_MS));
        hf_op_cancel(op);
        assert_int_equal(scene_wait_op(HF_OK, op, NULL), HF_ECANCELED);
        assert_int_equal(pool_taken_there(), 0);
        if (lost)
            proxy_mute_replies_after(p.proxy, ""); /* whatever comes next; then it must ask */
        assert_true(proxy_release_held(p.proxy) >= 1);
        assert_true(pool_wait_there(2, 0, HANG_MS));
        assert_int_equal(scene_stats(p.client).cancelled, 1);
        assert_int_equal(scene_stats(p.client).holds, 0);
        pool_end(&p);
    }
}

static void a_waiter_that_gives_up_leaves_nothing(void **state) {
    (void)state;
    struct pool p;
    struct pool_waiter waiter;
    hf_permit_id id;
    hf_cancel *cancel;
    pool_begin(&p, NULL, 1);
    pool_take(p.rival_permits, 1, LONG_MS, &id);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    hf_permits_options options = pool_options(1, HF_FOREVER, LONG_MS);
    options.cancel = cancel;
    pool_wait_for(&waiter, p.permits, options);
    assert_true(proxy_wait_seen(p.proxy, POOL_ACQUIRE, 2, HANG_MS));
    hf_cancel_fire(cancel);
    assert_int_equal(pool_join(&waiter), HF_ECANCELED);
    assert_true(scene_wait_no_channels(HANG_MS));
    assert_int_equal(hf_permits_acquire_with(p.permits, &options, waiter.ids), HF_ECANCELED);

    int64_t start_ms = now_ms();
    assert_int_equal(hf_permits_acquire_for(p.permits, PASSING_MS, waiter.ids), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= PASSING_MS);
    assert_true(scene_wait_no_channels(HANG_MS));
    assert_int_equal(scene_stats(p.client).timed_out, 1);
    assert_int_equal(scene_stats(p.client).cancelled, 2);
    assert_int_equal(hf_permits_release(p.rival_permits, &id), HF_OK);
    pool_assert_counts(p.permits, 1, 1, 0);
    hf_cancel_free(cancel);
    pool_end(&p);
}

static void close_ends_waits_and_undoes(void **state) {
    (void)state;
    struct pool p;
    struct pool_waiter waiter;
    hf_permit_id id;
    pool_begin(&p, NULL, 1);
    pool_take(p.rival_permits, 1, LONG_MS, &id);
    pool_wait_for(&waiter, p.permits, pool_options(1, HF_FOREVER, LONG_MS));
    assert_true(proxy_wait_seen(p.proxy, POOL_ACQUIRE, 2, HANG_MS));
    assert_int_equal(hf_close(p.client), HF_OK);
    assert_int_equal(pool_join(&waiter), HF_ECLOSED);
    assert_int_equal(hf_permits_try(p.permits, &id), HF_ECLOSED);
    hf_permits_free(p.permits);
    p.client = NULL;
    p.permits = NULL;
    assert_true(scene_wait_no_channels(HANG_MS));
    assert_int_equal(pool_taken_there(), 1);
    pool_end(&p);
}

/* ---- The server ---- */

static void U23_script_flush(void **state) {
    (void)state;
    hf_options options = scene_options();
    options.watchdog_ms = ENDURING_MS;
    struct pool p;
    hf_permit_id id, ids[2];
    bool done;
    int64_t lease_ms;
    pool_begin(&p, &options, 5);
#define FLUSHED(call, expected)                                                                    \
    do {                                                                                           \
        cmd_ok(p.server, "SCRIPT FLUSH");                                                          \
        assert_int_equal(call, expected);                                                          \
    } while (0)
    FLUSHED(hf_permits_acquire(p.permits, &id), HF_OK);
    assert_int_equal(pool_free_there(), 4);
    cmd_ok(p.server, "SCRIPT FLUSH");
    uint64_t renewals = scene_stats(p.client).renewals;
    while (scene_stats(p.client).renewals < renewals + 2)
        sleep_ms(5);
    FLUSHED(hf_permits_extend(p.permits, &id, LONG_MS), HF_OK);
    FLUSHED(hf_permits_lease_ms(p.permits, &id, &lease_ms), HF_OK);
    FLUSHED(hf_permits_release(p.permits, &id), HF_OK);
    FLUSHED(hf_permits_add(p.permits, 1), HF_OK);
    FLUSHED(hf_permits_set(p.permits, 3), HF_OK);
    cmd_ok(p.server, "SCRIPT FLUSH");
    pool_assert_counts(p.permits, 3, 3, 0);
    pool_take(p.permits, 2, LONG_MS, ids);
    FLUSHED(hf_permits_release_many(p.permits, ids, 2), HF_OK);
    FLUSHED(hf_permits_expire(p.permits, LONG_MS, &done), HF_OK);
    FLUSHED(hf_permits_delete(p.permits, &done), HF_OK);
    assert_int_equal(scene_stats(p.client).losses, 0);
    pool_end(&p);
}

/* Waiters find out by themselves when the channel was cut and a message lost in the gap. */
static void a_message_that_is_lost_hangs_nobody(void **state) {
    (void)state;
    struct pool p;
    struct pool_waiter waiter;
    hf_permit_id id;
    pool_begin(&p, NULL, 1);
    pool_take(p.rival_permits, 1, LONG_MS, &id);
    pool_wait_for(&waiter, p.permits, pool_options(1, HF_FOREVER, LONG_MS));
    assert_true(proxy_wait_seen(p.proxy, POOL_ACQUIRE, 2, HANG_MS));
    proxy_refuse(p.proxy, true);
    assert_int_equal(proxy_cut_connections(p.proxy, SCENE_SUBSCRIBE), 1);
    assert_int_equal(hf_permits_release(p.rival_permits, &id), HF_OK);
    proxy_heal(p.proxy);
    assert_int_equal(pool_join(&waiter), HF_OK);
    pool_end(&p);
}

static void a_server_that_restarts_empty_is_a_loss(void **state) {
    (void)state;
    hf_options options = scene_options();
    options.watchdog_ms = 2 * PASSING_MS;
    struct pool p;
    struct pool_events events = {0};
    hf_permit_id ids[2];
    pool_begin(&p, &options, 2);
    assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
    pool_take(p.permits, 2, HF_WATCHDOG, ids);
    server_restart(p.server);
    assert_true(pool_wait_atomic(&events.losses, 2, HANG_MS));
    assert_int_equal(scene_stats(p.client).holds, 0);
    pool_assert_counts(p.permits, 0, 0, 0);
    assert_int_equal(hf_permits_release_many(p.permits, ids, 2), HF_ENOTOWNER);
    pool_end(&p);
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
static void a_silent_server_is_a_warning_and_then_a_loss(void **state) {
    (void)state;
    hf_options options = scene_options();
    options.watchdog_ms = ENDURING_MS;
    options.cmd_timeout_ms = BRIEF_MS;
    struct pool p;
    struct pool_events events = {0};
    hf_permit_id id;
    pool_begin(&p, &options, 1);
    assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
    pool_take(p.permits, 1, HF_WATCHDOG, &id);
    struct renewed renewed = {&id, pool_ends_at(&id)};
    proxy_blackhole(p.proxy, false, true);
    assert_true(wait_until(ends_later, &renewed, HANG_MS));
    assert_true(pool_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(atomic_load(&events.warnings) >= 1);
    assert_true(scene_stats(p.client).renew_failures >= 1);
    assert_int_equal(scene_stats(p.client).losses, 1);
    proxy_heal(p.proxy);
    assert_int_equal(hf_permits_extend(p.permits, &id, LONG_MS), HF_ENOTOWNER);
    assert_int_equal(hf_permits_release(p.permits, &id), HF_ELOST);
    assert_true(pool_wait_there(1, 0, HANG_MS));
    pool_end(&p);
}

/* ---- Clocks and numbers ---- */

/* A client whose wall clock is a minute ahead neither takes what others have nor leaves permits
 * that end late. */
static void U62_the_servers_clock_counts(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id id, mine;
    pool_begin(&p, NULL, 2);
    pool_take(p.rival_permits, 1, 30000, &id);
    atomic_store(&clock_is_ahead, true);
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    pool_take(p.permits, 1, 30000, &mine);
    hf_permit_id none;
    int err = hf_permits_try(p.permits, &none);
    int64_t available = -99;
    int asked = hf_permits_available(p.permits, &available);
    atomic_store(&clock_is_ahead, false);
    assert_int_equal(err, HF_EBUSY);
    assert_int_equal(asked, HF_OK);
    assert_int_equal(available, 0);
    long long difference_ms = pool_ends_at(&mine) - pool_ends_at(&id);
    assert_true(difference_ms >= 0 && difference_ms < 20000);
    assert_true((long long)wall.tv_sec * 1000 > pool_ends_at(&mine) - 1); /* it was ahead */
    assert_int_equal(hf_permits_release(p.rival_permits, &id), HF_OK);
    pool_end(&p);
}

static void U50_ten_thousand_ended(void **state) {
    (void)state;
    enum { MANY = 10000 };
    struct pool p;
    hf_permit_id id, unknown = {"0123456789abcdef0123456789abcdef"};
    int64_t lease_ms;
    pool_begin(&p, NULL, 0);
    cmd_ok(p.server, "SET " POOL_NAME " 0");
    cmd_ok(p.server, "EVAL %s 1 " POOL_TAKEN " %d",
           "for i = 1, ARGV[1] do redis.call('zadd', KEYS[1], i, string.format('%016d', i)) end "
           "return 1",
           MANY);
    pool_assert_counts(p.permits, MANY, MANY, 0);
    assert_int_equal(hf_permits_lease_ms(p.permits, &unknown, &lease_ms), HF_ENOTOWNER);
    assert_int_equal(hf_permits_extend(p.permits, &unknown, 1000), HF_ENOTOWNER);
    assert_true(pool_taken_there() > MANY / 2); /* never all at once */
    pool_take(p.permits, 1, LONG_MS, &id);
    pool_assert_counts(p.permits, MANY, MANY - 1, 1);
    assert_int_equal(hf_permits_release(p.permits, &id), HF_OK);

    /* A thousand at once, again and again, reach all of them. */
    static hf_permit_id ids[MANY];
    for (int i = 0; i < MANY; i += 1000)
        pool_take(p.permits, 1000, LONG_MS, ids + i);
    assert_int_equal(hf_permits_try(p.permits, &id), HF_EBUSY);
    assert_int_equal(scene_stats(p.client).holds, MANY);
    for (int i = 0; i < MANY; i += 1000)
        assert_int_equal(hf_permits_release_many(p.permits, ids + i, 1000), HF_OK);
    pool_assert_counts(p.permits, MANY, MANY, 0);
    assert_int_equal(scene_stats(p.client).holds, 0);
    pool_end(&p);
}

static void U51_the_objects_ttl_stays(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id id;
    bool existed;
    pool_begin(&p, NULL, 5);
    assert_int_equal(hf_permits_expire(p.permits, LONG_MS, &existed), HF_OK);
    pool_take(p.permits, 1, LONG_MS / 2, &id);
    assert_int_equal(hf_permits_add(p.permits, 3), HF_OK);
    assert_int_equal(hf_permits_set(p.permits, 4), HF_OK);
    assert_int_equal(hf_permits_release(p.permits, &id), HF_OK);
    pool_take(p.permits, 1, HF_NO_LEASE, &id);
    assert_true(pttl(p.server, POOL_NAME) > 0 && pttl(p.server, POOL_NAME) <= LONG_MS);
    assert_true(pttl(p.server, POOL_TAKEN) > 0 && pttl(p.server, POOL_TAKEN) <= LONG_MS);
    pool_end(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(U14_acquire_reply_lost),
        cmocka_unit_test(U15_release_reply_lost),
        cmocka_unit_test(U15_release_reply_lost_and_the_lease_over),
        cmocka_unit_test(an_act_whose_reply_is_lost),
        cmocka_unit_test(rule4_acquire_never_answered_is_undone),
        cmocka_unit_test(an_acquire_is_undone_however_late),
        cmocka_unit_test(an_answer_that_comes_after_the_lease),
        cmocka_unit_test(U16_release_never_answered_is_unknown_and_settled),
        cmocka_unit_test(U16_release_of_many_is_settled_all_or_none),
        cmocka_unit_test(an_unanswered_extension_may_have_shortened_it),
        cmocka_unit_test(U17_a_late_copy_takes_nothing),
        cmocka_unit_test(U22_a_cancelled_acquire_that_wins_is_undone),
        cmocka_unit_test(a_waiter_that_gives_up_leaves_nothing),
        cmocka_unit_test(close_ends_waits_and_undoes),
        cmocka_unit_test(U23_script_flush),
        cmocka_unit_test(a_message_that_is_lost_hangs_nobody),
        cmocka_unit_test(a_server_that_restarts_empty_is_a_loss),
        cmocka_unit_test(a_silent_server_is_a_warning_and_then_a_loss),
        cmocka_unit_test(U62_the_servers_clock_counts),
        cmocka_unit_test(U50_ten_thousand_ended),
        cmocka_unit_test(U51_the_objects_ttl_stays),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
