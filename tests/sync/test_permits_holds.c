/*
 * Permits as holds: the watchdog renews them, their loss is told, statistics count them; and the
 * rules of every call: arguments, types, forks, processes that die.
 *
 * The watchdog's lease is short. A permit that is to be renewed is looked at over several leases;
 * one that is to be lost is waited for by its event.
 */
#include "support/memory.h"
#include "sync/pool.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LONG_MS 60000

static void begin_short(struct pool *p, int64_t number) {
    hf_options options = pool_short_watchdog();
    pool_begin(p, &options, number);
}

static long long server_now_ms(void) {
    redisReply *reply = cmd(scene_server(), "TIME");
    long long ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                   strtoll(reply->element[1]->str, NULL, 10) / 1000;
    freeReplyObject(reply);
    return ms;
}

/* ---- The watchdog ---- */

static void watched_permits_are_renewed_until_released(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        struct pool_events events = {0};
        hf_permit_id ids[3];
        hf_permits_options options = pool_options(3, 0, HF_WATCHDOG);
        begin_short(&p, 4);
        assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
        assert_int_equal(form->acquire(p.permits, &options, ids), HF_OK);
        assert_int_equal(scene_stats(p.client).holds, 3);
        assert_int_equal(scene_stats(p.client).acquired, 1);
        for (int64_t end_ms = now_ms() + 2 * WATCHDOG_MS; now_ms() < end_ms; sleep_ms(20)) {
            long long ends_ms = pool_ends_at(&ids[1]);
            assert_true(ends_ms > server_now_ms() && ends_ms <= server_now_ms() + WATCHDOG_MS);
        }
        assert_true(scene_stats(p.client).renewals >= 3 * 4);
        assert_int_equal(atomic_load(&events.losses), 0);
        /* Three permits of one name in a script, not three scripts. */
        assert_true(proxy_seen(p.proxy, POOL_RENEW) <= scene_stats(p.client).renewals / 2);

        assert_int_equal(form->release(p.permits, &ids[1], 1), HF_OK);
        hf_permit_id rest[] = {ids[0], ids[2]};
        assert_int_equal(form->release(p.permits, rest, 2), HF_OK);
        assert_int_equal(scene_stats(p.client).holds, 0);
        assert_int_equal(scene_stats(p.client).released, 2);
        size_t renewals = proxy_seen(p.proxy, POOL_RENEW);
        sleep_ms(WATCHDOG_MS / 2); /* longer than from one renewal to the next */
        assert_true(proxy_seen(p.proxy, POOL_RENEW) <= renewals + 1); /* one was under way */
        pool_assert_counts(p.permits, 4, 4, 0);
        assert_int_equal(atomic_load(&events.losses), 0);
        pool_end(&p);
    }
}

/* Many names and many permits: batches of up to a hundred. */
static void watched_permits_of_many_names_share_batches(void **state) {
    (void)state;
    enum { NAMES = 5, EACH = 30 };
    struct pool p;
    hf_permits *permits[NAMES];
    hf_permit_id ids[NAMES][EACH];
    begin_short(&p, 0);
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        int len = snprintf(name, sizeof name, "many%d", i);
        assert_int_equal(hf_permits_new_bytes(p.client, name, (size_t)len, &permits[i]), HF_OK);
        assert_int_equal(hf_permits_set(permits[i], EACH), HF_OK);
        pool_take(permits[i], EACH, HF_WATCHDOG, ids[i]);
    }
    assert_int_equal(scene_stats(p.client).holds, NAMES * EACH);
    sleep_ms(2 * WATCHDOG_MS);
    assert_int_equal(scene_stats(p.client).losses, 0);
    hf_stats stats = scene_stats(p.client);
    assert_true(stats.renewals >= NAMES * EACH * 4);
    assert_true(stats.renewals / proxy_seen(p.proxy, POOL_RENEW) > 20);
    for (int i = 0; i < NAMES; i++) {
        pool_assert_counts(permits[i], EACH, 0, EACH);
        assert_int_equal(hf_permits_release_many(permits[i], ids[i], EACH), HF_OK);
        hf_permits_free(permits[i]);
    }
    assert_int_equal(scene_stats(p.client).holds, 0);
    pool_end(&p);
}

static void a_lease_instead_of_the_watchdog(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id id;
    begin_short(&p, 1);
    pool_take(p.permits, 1, HF_WATCHDOG, &id);
    assert_int_equal(hf_permits_extend(p.permits, &id, LONG_MS), HF_OK);
    long long ends_ms = pool_ends_at(&id);
    size_t renewals = proxy_seen(p.proxy, POOL_RENEW);
    sleep_ms(WATCHDOG_MS);
    assert_true(proxy_seen(p.proxy, POOL_RENEW) <= renewals + 1); /* one was under way */
    assert_int_equal(pool_ends_at(&id), ends_ms);
    assert_int_equal(scene_stats(p.client).holds, 1);

    /* Without a lease it is nobody's to watch. */
    assert_int_equal(hf_permits_extend(p.permits, &id, HF_NO_LEASE), HF_OK);
    assert_int_equal(pool_ends_at(&id), 922337203685477);
    assert_int_equal(scene_stats(p.client).holds, 0);
    assert_int_equal(scene_stats(p.client).losses, 0);
    assert_int_equal(hf_permits_release(p.permits, &id), HF_OK);
    pool_assert_counts(p.permits, 1, 1, 0);
    pool_end(&p);
}

static void what_remains_is_told_from_memory(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id fixed, watched, endless, unknown = {"00000000000000000000000000000000"};
    hf_permit_id wrong = {"no id"};
    hf_permits_options options = pool_options(1, 0, LONG_MS);
    begin_short(&p, 3);
    int64_t before_ms = now_ms();
    assert_int_equal(hf_permits_acquire_with(p.permits, &options, &fixed), HF_OK);
    assert_int_equal(hf_permits_acquire(p.permits, &watched), HF_OK);
    options.lease_ms = HF_NO_LEASE;
    assert_int_equal(hf_permits_acquire_with(p.permits, &options, &endless), HF_OK);
    uint64_t commands = scene_stats(p.client).commands;
    int64_t left_ms = hf_permits_remaining_ms(p.permits, &fixed);
    assert_true(left_ms <= LONG_MS && left_ms >= LONG_MS - 2 - (now_ms() - before_ms));
    assert_true(hf_permits_remaining_ms(p.permits, &watched) <= WATCHDOG_MS);
    assert_true(hf_permits_remaining_ms(p.permits, &watched) > 0);
    /* What is not watched over is not remembered. */
    assert_int_equal(hf_permits_remaining_ms(p.permits, &endless), 0);
    assert_int_equal(hf_permits_remaining_ms(p.permits, &unknown), 0);
    assert_int_equal(hf_permits_remaining_ms(p.permits, &wrong), 0);
    assert_int_equal(hf_permits_remaining_ms(p.permits, NULL), 0);
    assert_int_equal(hf_permits_remaining_ms(NULL, &fixed), 0);
    /* A renewal may have come between. */
    assert_true(scene_stats(p.client).commands <= commands + 2);
    assert_int_equal(hf_permits_release(p.permits, &fixed), HF_OK);
    assert_int_equal(hf_permits_remaining_ms(p.permits, &fixed), 0);
    pool_end(&p);
}

/* ---- Loss ---- */

static void a_permit_that_vanished_is_lost(void **state) {
    (void)state;
    struct pool p;
    struct pool_events events = {0};
    hf_permit_id ids[2];
    begin_short(&p, 2);
    hf_permits *silent = pool_permits(p.client);
    assert_int_equal(hf_permits_on_lost(silent, pool_on_event, &events), HF_OK);
    assert_int_equal(hf_permits_on_lost(silent, NULL, NULL), HF_OK);
    assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
    pool_take(p.permits, 1, HF_WATCHDOG, &ids[0]);
    pool_take(p.permits, 1, HF_WATCHDOG, &ids[1]);
    assert_int_equal(hf_permits_release(p.rival_permits, &ids[0]),
                     HF_OK); /* whoever knows it may */
    assert_true(pool_wait_atomic(&events.losses, 1, HANG_MS));
    assert_string_equal(events.lost_id, ids[0].text);
    assert_int_equal(scene_stats(p.client).losses, 1);
    assert_int_equal(scene_stats(p.client).holds, 1);
    assert_int_equal(hf_permits_release(p.permits, &ids[0]), HF_ELOST); /* told once... */
    assert_int_equal(hf_permits_release(p.permits, &ids[0]), HF_ENOTOWNER);
    assert_int_equal(hf_permits_release(p.permits, &ids[1]), HF_OK); /* ...and the other is fine */
    assert_int_equal(atomic_load(&events.losses), 1);
    hf_permits_free(silent);
    pool_end(&p);
}

/* Nothing watches a fixed lease before its end; the next call finds out. */
static void the_next_call_finds_out(void **state) {
    (void)state;
    FOR_EACH_POOL_FORM(form) {
        struct pool p;
        struct pool_events events = {0};
        hf_permit_id ids[2];
        pool_begin(&p, NULL, 2);
        assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
        pool_take(p.permits, 2, LONG_MS, ids);
        assert_int_equal(hf_permits_release_many(p.rival_permits, ids, 2), HF_OK);
        assert_int_equal(form->extend(p.permits, &ids[0], LONG_MS), HF_ENOTOWNER);
        assert_true(pool_wait_atomic(&events.losses, 1, HANG_MS));
        assert_string_equal(events.lost_id, ids[0].text);
        assert_int_equal(form->release(p.permits, &ids[0], 1), HF_ELOST);
        assert_int_equal(form->release(p.permits, &ids[1], 1), HF_ELOST);
        assert_int_equal(scene_stats(p.client).losses, 2);
        assert_int_equal(scene_stats(p.client).holds, 0);
        pool_assert_counts(p.permits, 2, 2, 0);
        pool_end(&p);
    }
}

static void a_fixed_lease_that_ends_is_a_loss(void **state) {
    (void)state;
    struct pool p;
    struct pool_events events = {0};
    hf_permit_id id;
    begin_short(&p, 1);
    assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
    int64_t start_ms = now_ms();
    pool_take(p.permits, 1, 8000, &id); /* warned two seconds before */
    assert_int_equal(scene_stats(p.client).holds, 1);
    assert_true(pool_wait_atomic(&events.losses, 1, HANG_MS));
    assert_true(now_ms() - start_ms >= 7999); /* the server may end it a millisecond early */
    assert_int_equal(atomic_load(&events.warnings), 1);
    assert_string_equal(events.lost_id, id.text);
    assert_int_equal(scene_stats(p.client).losses, 1);
    assert_int_equal(scene_stats(p.client).holds, 0);
    /* What was lost stays so, whatever the server still knows of it. */
    assert_int_equal(hf_permits_extend(p.permits, &id, LONG_MS), HF_ENOTOWNER);
    assert_int_equal(hf_permits_release(p.permits, &id), HF_ELOST);
    assert_int_equal(hf_permits_release(p.permits, &id), HF_ENOTOWNER);
    pool_assert_counts(p.permits, 1, 1, 0);
    pool_end(&p);
}

static void a_deleted_object_is_a_loss_of_all(void **state) {
    (void)state;
    struct pool p;
    struct pool_events events = {0};
    hf_permit_id ids[3];
    bool deleted = false;
    begin_short(&p, 3);
    assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
    pool_take(p.permits, 3, HF_WATCHDOG, ids);
    assert_int_equal(hf_permits_delete(p.rival_permits, &deleted), HF_OK);
    assert_true(deleted);
    assert_true(pool_wait_atomic(&events.losses, 3, HANG_MS));
    assert_int_equal(scene_stats(p.client).holds, 0);
    assert_int_equal(hf_permits_release_many(p.permits, ids, 3), HF_ENOTOWNER);
    assert_int_equal(cmd_int(p.server, "DBSIZE"), 0); /* a release brings nothing back to life */
    pool_end(&p);
}

/* A lock and permits of one name are two things; so are their losses. (The key is deleted
 * between.) */
static void a_lock_of_the_same_name_hears_nothing(void **state) {
    (void)state;
    struct pool p;
    struct pool_events events = {0};
    hf_permit_id id;
    hf_lock *lock;
    begin_short(&p, 1);
    assert_int_equal(hf_lock_new(p.client, POOL_NAME, &lock), HF_OK);
    int fd = hf_lock_lost_fd(lock);
    assert_true(fd >= 0);
    assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
    pool_take(p.permits, 1, HF_WATCHDOG, &id);
    cmd_ok(p.server, "DEL " POOL_NAME " " POOL_TAKEN);
    assert_true(pool_wait_atomic(&events.losses, 1, HANG_MS));
    uint64_t count;
    assert_int_equal(read(fd, &count, sizeof count), -1);
    assert_int_equal(hf_lock_try(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    pool_end(&p);
}

/* ---- Calls ---- */

static void bad_arguments_are_refused(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id ids[2], id = {"0123456789abcdef0123456789abcdef"};
    hf_permit_id unended = {"0123456789abcdef0123456789abcdef"};
    hf_permits *permits;
    hf_op *op;
    int64_t number;
    bool done;
    pool_begin(&p, NULL, 5);
    struct monitor *monitor = monitor_start(p.server);
    assert_int_equal(hf_permits_new_bytes(p.client, "", 0, &permits), HF_EINVAL);
    assert_int_equal(hf_permits_new_bytes(p.client, NULL, 3, &permits), HF_EINVAL);
    assert_int_equal(hf_permits_new_bytes(p.client, "x", 1, NULL), HF_EINVAL);
    assert_int_equal(hf_permits_try_set(NULL, 1, &done), HF_EINVAL);
    assert_int_equal(hf_permits_try_set(p.permits, -1, &done), HF_EINVAL);
    assert_int_equal(hf_permits_set(p.permits, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_permits_add(p.permits, -HF_PERMITS_MAX - 1), HF_EINVAL);
    const hf_permits_options bad[] = {
        pool_options(0, 0, 0),   pool_options(-1, 0, 0), pool_options(1001, 0, 0),
        pool_options(1, -2, 0),  pool_options(1, 0, -2), pool_options(1, 0, HF_LEASE_MAX_MS + 1),
        {.size = 1, .count = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hf_permits_acquire_with(p.permits, &bad[i], ids), HF_EINVAL);
        assert_int_equal(hf_permits_acquire_start(p.permits, &bad[i], ids, NULL, NULL, &op),
                         HF_EINVAL);
    }
    assert_int_equal(hf_permits_acquire(p.permits, NULL), HF_EINVAL);
    assert_int_equal(hf_permits_acquire(NULL, ids), HF_EINVAL);
    assert_int_equal(hf_permits_release(p.permits, NULL), HF_EINVAL);
    assert_int_equal(hf_permits_release_many(p.permits, &id, 0), HF_EINVAL);
    assert_int_equal(hf_permits_release_many(p.permits, ids, 1001), HF_EINVAL);
    unended.text[32] = 'x';
    assert_int_equal(hf_permits_release(p.permits, &unended), HF_EINVAL);
    id.text[31] = 'g';
    assert_int_equal(hf_permits_extend(p.permits, &id, 1000), HF_EINVAL);
    id.text[31] = 'f';
    assert_int_equal(hf_permits_extend(p.permits, &id, 0), HF_EINVAL);
    assert_int_equal(hf_permits_extend(p.permits, &id, -2), HF_EINVAL);
    assert_int_equal(hf_permits_lease_ms(NULL, &id, &number), HF_EINVAL);
    assert_int_equal(hf_permits_expire(p.permits, 0, &done), HF_EINVAL);
    assert_int_equal(hf_permits_on_lost(NULL, pool_on_event, NULL), HF_EINVAL);
    hf_permits_free(NULL);
    assert_int_equal(monitor_count(monitor, "evalsha") + monitor_count(monitor, "EVALSHA"), 0);
    monitor_stop(monitor);
    pool_end(&p);
}

static void wrong_types_are_refused(void **state) {
    (void)state;
    struct pool p;
    hf_permit_id id = {"0123456789abcdef0123456789abcdef"};
    int64_t number = -99;
    bool done;
    static const char *const makes[] = {"HSET " POOL_NAME " me 1", "SET " POOL_NAME " many",
                                        "RPUSH " POOL_NAME " x"};
    pool_begin(&p, NULL, 0);
    for (size_t i = 0; i < sizeof makes / sizeof *makes; i++) {
        cmd_ok(p.server, "FLUSHALL");
        cmd_ok(p.server, makes[i]);
        assert_int_equal(hf_permits_try(p.permits, &id), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_acquire_for(p.permits, 50, &id), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_release(p.permits, &id), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_extend(p.permits, &id, 1000), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_lease_ms(p.permits, &id, &number), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_available(p.permits, &number), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_try_set(p.permits, 3, &done), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_set(p.permits, 3), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_add(p.permits, 3), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_delete(p.permits, &done), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_expire(p.permits, 1000, &done), HF_EWRONGTYPE);
        assert_int_equal(cmd_int(p.server, "DBSIZE"), 1);
    }
    assert_int_equal(number, -99);
    pool_end(&p);
}

struct in_callback {
    struct pool *pool;
    hf_permit_id id;
    atomic_int calls;
    int err;
};

static void call_inside(hf_op *op, const hf_result *result, void *user) {
    struct in_callback *in = user;
    (void)op;
    (void)result;
    in->err = hf_permits_release(in->pool->permits, &in->id);
    atomic_fetch_add(&in->calls, 1);
}

static void inside_a_callback_it_would_deadlock(void **state) {
    (void)state;
    struct pool p;
    struct in_callback in = {.pool = &p};
    hf_permits_options options = pool_options(1, 0, LONG_MS);
    pool_begin(&p, NULL, 1);
    assert_int_equal(hf_permits_acquire_start(p.permits, &options, &in.id, call_inside, &in, NULL),
                     HF_OK);
    assert_true(pool_wait_atomic(&in.calls, 1, HANG_MS));
    assert_int_equal(in.err, HF_EDEADLK);
    assert_int_equal(hf_permits_release(p.permits, &in.id), HF_OK);
    pool_end(&p);
}

/* Names with braces have no braces of their own; a prefix is part of the name. */
static void names_are_those_of_redisson(void **state) {
    (void)state;
    struct pool p;
    hf_client *client;
    hf_permits *permits;
    hf_permit_id id;
    hf_options options = scene_options();
    options.name_prefix = "app:";
    pool_begin(&p, NULL, 0);
    assert_int_equal(hf_open(server_url(p.server), &options, &client), HF_OK);
    assert_int_equal(hf_permits_new_bytes(client, "a{b}c", 5, &permits), HF_OK);
    struct monitor *monitor = monitor_start(p.server);
    assert_int_equal(hf_permits_set(permits, 1), HF_OK);
    pool_take(permits, 1, LONG_MS, &id);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    pool_take(permits, 1, LONG_MS, &id);
    assert_true(key_exists(p.server, "app:a{b}c"));
    assert_true(key_exists(p.server, "app:a{b}c:timeout"));
    assert_int_equal(monitor_count(monitor, "\"publish\" \"redisson_sc:app:a{b}c\" \"1\""), 2);
    monitor_stop(monitor);
    hf_permits_free(permits);
    assert_int_equal(hf_close(client), HF_OK);
    pool_end(&p);
}

/* ---- Memory ---- */

/* Takes and gives back, with the n-th allocation failing: what was not acquired is not there, what
 * was is given back. False: it did not come to that allocation. */
static bool take_without_memory(struct pool *p, long fail_at) {
    struct memory memory = {.fail_at = fail_at};
    hf_options options = scene_options();
    hf_client *client;
    hf_permits *permits;
    hf_permit_id ids[5];
    options.allocator = memory_allocator(&memory);
    int err = hf_open(server_url(p->server), &options, &client);
    if (err == HF_OK) {
        err = hf_permits_new_bytes(client, POOL_NAME, strlen(POOL_NAME), &permits);
        if (err == HF_OK) {
            hf_permits_options all = pool_options(5, 0, HF_WATCHDOG);
            err = hf_permits_acquire_with(permits, &all, ids);
            int released = err == HF_OK ? hf_permits_release_many(permits, ids, 5) : HF_OK;
            if (released == HF_ENOMEM) /* nothing was done; else it is repeated by itself */
                assert_int_equal(hf_permits_release_many(permits, ids, 5), HF_OK);
            else if (released != HF_OK)
                assert_int_equal(released, HF_EUNKNOWN);
            assert_int_equal(scene_stats(client).holds, 0);
            hf_permits_free(permits);
        }
        assert_true(pool_wait_there(5, 0, HANG_MS));
        assert_int_equal(hf_close(client), HF_OK);
    }
    if (err != HF_OK && err != HF_ENOMEM && err != HF_EUNREACH)
        fail_msg("allocation %ld failed, and then %s", fail_at, hf_error_name(err));
    assert_int_equal(atomic_load(&memory.live), 0);
    return atomic_load(&memory.calls) >= fail_at;
}

struct ebb {
    const struct memory *memory;
    long down_to;
};

static bool is_down(void *arg) {
    const struct ebb *ebb = arg;
    return atomic_load(&ebb->memory->live) <= ebb->down_to;
}

/* Permits may be left to end by themselves, thousands of them: nothing of them is remembered for
 * ever. */
static void permits_that_end_by_themselves_leave_no_memory(void **state) {
    (void)state;
    struct pool p;
    struct memory memory = {0};
    hf_options options = scene_options();
    hf_client *client;
    hf_permit_id ids[500];
    options.allocator = memory_allocator(&memory);
    pool_begin(&p, NULL, 1000);
    assert_int_equal(hf_open(server_url(p.server), &options, &client), HF_OK);
    hf_permits *permits = pool_permits(client);
    pool_take(permits, 1, LONG_MS, ids);
    assert_int_equal(hf_permits_release(permits, ids), HF_OK);
    long before = atomic_load(&memory.live);
    for (int round = 0; round < 2; round++)
        pool_take(permits, 500, PASSING_MS, ids);
    assert_true(atomic_load(&memory.live) >= before + 500);
    struct ebb ebb = {&memory, before + 10};
    assert_true(wait_until(is_down, &ebb, HANG_MS));
    assert_int_equal(scene_stats(client).losses, 1000);
    pool_assert_counts(permits, 1000, 1000, 0);
    hf_permits_free(permits);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
    pool_end(&p);
}

static void U65_memory_runs_out(void **state) {
    (void)state;
    struct pool p;
    long step = 1;
    pool_begin(&p, NULL, 5);
    while (take_without_memory(&p, step))
        step++;
    assert_true(step > 10);
    pool_end(&p);
}

/* ---- Processes ---- */

struct child {
    hf_permits *permits; /* the parent's */
    hf_client *client;
    hf_permit_id id;
    atomic_bool holds;
};

static int use_parents_client(void *arg) {
    struct child *child = arg;
    int64_t number;
    hf_permit_id id;
    if (hf_permits_available(child->permits, &number) != HF_EFORKED)
        return 1;
    if (hf_permits_try(child->permits, &id) != HF_EFORKED)
        return 2;
    if (hf_permits_release(child->permits, &child->id) != HF_EFORKED)
        return 3;
    hf_permits_free(child->permits);
    return hf_close(child->client) == HF_OK ? 0 : 4;
}

static void in_a_forked_child_nothing_works(void **state) {
    (void)state;
    struct pool p;
    struct child child = {0};
    begin_short(&p, 1);
    pool_take(p.permits, 1, HF_WATCHDOG, &child.id);
    child.permits = p.permits;
    child.client = p.client;
    assert_true(expect_exit(run_child(use_parents_client, &child), 0, HANG_MS));
    sleep_ms(WATCHDOG_MS);
    assert_int_equal(hf_permits_release(p.permits, &child.id), HF_OK); /* the parent's goes on */
    pool_end(&p);
}

static int take_and_stay(void *arg) {
    struct child *child = arg;
    hf_options options = pool_short_watchdog();
    hf_client *client;
    hf_permits *permits;
    if (hf_open(server_url(scene_server()), &options, &client) != HF_OK ||
        hf_permits_new_bytes(client, POOL_NAME, strlen(POOL_NAME), &permits) != HF_OK ||
        hf_permits_acquire(permits, &child->id) != HF_OK)
        return 1;
    atomic_store(&child->holds, true);
    for (;;)
        pause();
}

static bool is_set(void *flag) {
    return atomic_load((atomic_bool *)flag);
}

/* kill -9 of a holder with the watchdog: whoever waits comes in when the lease is over. */
static void a_killed_holders_permit_comes_back(void **state) {
    (void)state;
    struct child *child = shared_new(sizeof *child);
    cmd_ok(scene_server(), "FLUSHALL");
    cmd_ok(scene_server(), "SET " POOL_NAME " 1");
    pid_t pid = run_child(take_and_stay, child);
    assert_true(wait_until(is_set, &child->holds, HANG_MS));
    sleep_ms(2 * WATCHDOG_MS);
    assert_true(pool_ends_at(&child->id) > server_now_ms()); /* renewed beyond its first lease */

    hf_client *client;
    hf_permit_id id;
    hf_options options = pool_short_watchdog();
    assert_int_equal(hf_open(server_url(scene_server()), &options, &client), HF_OK);
    hf_permits *permits = pool_permits(client);
    assert_int_equal(hf_permits_try(permits, &id), HF_EBUSY);
    kill_child(pid);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_permits_acquire_for(permits, HANG_MS, &id), HF_OK);
    assert_true(now_ms() - start_ms < 9000); /* about a lease; not the poll of ten seconds */
    pool_assert_counts(permits, 1, 0, 1);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    hf_permits_free(permits);
    assert_int_equal(hf_close(client), HF_OK);
    shared_free(child, sizeof *child);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watched_permits_are_renewed_until_released),
        cmocka_unit_test(watched_permits_of_many_names_share_batches),
        cmocka_unit_test(a_lease_instead_of_the_watchdog),
        cmocka_unit_test(what_remains_is_told_from_memory),
        cmocka_unit_test(a_permit_that_vanished_is_lost),
        cmocka_unit_test(the_next_call_finds_out),
        cmocka_unit_test(a_fixed_lease_that_ends_is_a_loss),
        cmocka_unit_test(a_deleted_object_is_a_loss_of_all),
        cmocka_unit_test(a_lock_of_the_same_name_hears_nothing),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(wrong_types_are_refused),
        cmocka_unit_test(inside_a_callback_it_would_deadlock),
        cmocka_unit_test(names_are_those_of_redisson),
        cmocka_unit_test(U65_memory_runs_out),
        cmocka_unit_test(permits_that_end_by_themselves_leave_no_memory),
        cmocka_unit_test(in_a_forked_child_nothing_works),
        cmocka_unit_test(a_killed_holders_permit_comes_back),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
