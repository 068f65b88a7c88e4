/*
 * Permits as holds: the watchdog renews them, their loss is reported, statistics count them; and the
 * rules of every call: arguments, types, forks, processes that die.
 *
 * The watchdog's lease is short. A permit that is to be renewed is looked at over several leases;
 * one that is to be lost is waited for by its event.
 */
#include "support/memory.h"
#include "sync/pool.h"

#include <signal.h>

#define LONG_MS 60000

static void begin_short(struct world *w, int64_t number) {
    hf_options options = pool_short_watchdog();
    pool_begin(w, &options, number);
}
#define SHORT_CASE(name, number) CASE_IN(name, struct world, w, begin_short, world_end, number)

static long long server_now_ms(void) {
    own_reply *reply = cmd(world_server(), "TIME");
    long long ms = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                   strtoll(reply->element[1]->str, NULL, 10) / 1000;
    return ms;
}

/* ---- The watchdog ---- */

ROW_CASES_IN(watched_permits_are_renewed_until_released, form, pool_forms, struct world, w,
             begin_short, world_end, 4) {
    struct pool_events events = {0};
    hf_permit_id ids[3];
    hf_permits_options options = pool_options(3, 0, HF_WATCHDOG);
    assert_int_equal(hf_permits_on_lost(w->permits, pool_on_event, &events), HF_OK);
    assert_int_equal(form->acquire(w->permits, &options, ids), HF_OK);
    assert_int_equal(world_stats(w->client).holds, 3);
    assert_int_equal(world_stats(w->client).acquired, 1);
    for (int64_t end_ms = now_ms() + 2 * WATCHDOG_MS; now_ms() < end_ms; wait_a_moment()) {
        long long ends_ms = pool_ends_at(&ids[1]);
        assert_true(ends_ms > server_now_ms() && ends_ms <= server_now_ms() + WATCHDOG_MS);
    }
    assert_true(world_stats(w->client).renewals >= 3 * 4);
    assert_int_equal(atomic_load(&events.losses), 0);
    /* Three permits of one name in a script, not three scripts. */
    assert_true(proxy_seen(w->proxy, POOL_RENEW) <= world_stats(w->client).renewals / 2);

    assert_int_equal(form->release(w->permits, &ids[1], 1), HF_OK);
    hf_permit_id rest[] = {ids[0], ids[2]};
    assert_int_equal(form->release(w->permits, rest, 2), HF_OK);
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_int_equal(world_stats(w->client).released, 2);
    size_t renewals = proxy_seen(w->proxy, POOL_RENEW);
    /* Longer than from one renewal to the next; one was under way. */
    assert_true(HOLDS_FOR(proxy_seen(w->proxy, POOL_RENEW) <= renewals + 1, WATCHDOG_MS / 2));
    pool_assert_counts(w->permits, 4, 4, 0);
    assert_int_equal(atomic_load(&events.losses), 0);
}

/* Many names and many permits: batches of up to a hundred. */
SHORT_CASE(watched_permits_of_many_names_share_batches, 0) {
    enum { NAMES = 5, EACH = 30 };
    hf_permits *permits[NAMES];
    hf_permit_id ids[NAMES][EACH];
    for (int i = 0; i < NAMES; i++) {
        char name[16];
        int len = snprintf(name, sizeof name, "many%d", i);
        assert_int_equal(hf_permits_new_bytes(w->client, name, (size_t)len, &permits[i]), HF_OK);
        assert_int_equal(hf_permits_set(permits[i], EACH), HF_OK);
        pool_take(permits[i], EACH, HF_WATCHDOG, ids[i]);
    }
    assert_int_equal(world_stats(w->client).holds, NAMES * EACH);
    assert_true(WAIT_FOR(world_stats(w->client).renewals >= NAMES * EACH * 4, HANG_MS));
    assert_int_equal(world_stats(w->client).losses, 0);
    hf_stats stats = world_stats(w->client);
    assert_true(stats.renewals >= NAMES * EACH * 4);
    assert_true(stats.renewals / proxy_seen(w->proxy, POOL_RENEW) > 20);
    for (int i = 0; i < NAMES; i++) {
        pool_assert_counts(permits[i], EACH, 0, EACH);
        assert_int_equal(hf_permits_release_many(permits[i], ids[i], EACH), HF_OK);
        hf_permits_free(permits[i]);
    }
    assert_int_equal(world_stats(w->client).holds, 0);
}

SHORT_CASE(a_lease_instead_of_the_watchdog, 1) {
    hf_permit_id id;
    pool_take(w->permits, 1, HF_WATCHDOG, &id);
    assert_int_equal(hf_permits_extend(w->permits, &id, LONG_MS), HF_OK);
    long long ends_ms = pool_ends_at(&id);
    size_t renewals = proxy_seen(w->proxy, POOL_RENEW);
    assert_true(HOLDS_FOR(proxy_seen(w->proxy, POOL_RENEW) <= renewals + 1,
                          WATCHDOG_MS)); /* one was under way */
    assert_int_equal(pool_ends_at(&id), ends_ms);
    assert_int_equal(world_stats(w->client).holds, 1);

    /* Without a lease it is nobody's to watch. */
    assert_int_equal(hf_permits_extend(w->permits, &id, HF_NO_LEASE), HF_OK);
    assert_int_equal(pool_ends_at(&id), 922337203685477);
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_int_equal(world_stats(w->client).losses, 0);
    assert_int_equal(hf_permits_release(w->permits, &id), HF_OK);
    pool_assert_counts(w->permits, 1, 1, 0);
}

SHORT_CASE(the_remaining_time_comes_from_memory, 3) {
    hf_permit_id fixed, watched, endless, unknown = {"00000000000000000000000000000000"};
    hf_permit_id wrong = {"no id"};
    hf_permits_options options = pool_options(1, 0, LONG_MS);
    int64_t before_ms = now_ms();
    assert_int_equal(hf_permits_acquire_with(w->permits, &options, &fixed), HF_OK);
    assert_int_equal(hf_permits_acquire(w->permits, &watched), HF_OK);
    options.lease_ms = HF_NO_LEASE;
    assert_int_equal(hf_permits_acquire_with(w->permits, &options, &endless), HF_OK);
    uint64_t commands = world_stats(w->client).commands;
    int64_t left_ms = hf_permits_remaining_ms(w->permits, &fixed);
    assert_true(left_ms <= trusted_ms(LONG_MS));
    assert_true(left_ms >= trusted_ms(LONG_MS) - 2 - (now_ms() - before_ms));
    assert_true(hf_permits_remaining_ms(w->permits, &watched) <= WATCHDOG_MS);
    assert_true(hf_permits_remaining_ms(w->permits, &watched) > 0);
    /* What is not watched over is not remembered. */
    assert_int_equal(hf_permits_remaining_ms(w->permits, &endless), 0);
    assert_int_equal(hf_permits_remaining_ms(w->permits, &unknown), 0);
    assert_int_equal(hf_permits_remaining_ms(w->permits, &wrong), 0);
    assert_int_equal(hf_permits_remaining_ms(w->permits, NULL), 0);
    assert_int_equal(hf_permits_remaining_ms(NULL, &fixed), 0);
    /* A renewal may have come between. */
    assert_true(world_stats(w->client).commands <= commands + 2);
    assert_int_equal(hf_permits_release(w->permits, &fixed), HF_OK);
    assert_int_equal(hf_permits_remaining_ms(w->permits, &fixed), 0);
}

/* ---- Loss ---- */

SHORT_CASE(a_permit_that_vanished_is_lost, 2) {
    struct pool_events events = {0};
    hf_permit_id ids[2];
    own_permits *silent = pool_permits(w->client);
    assert_int_equal(hf_permits_on_lost(silent, pool_on_event, &events), HF_OK);
    assert_int_equal(hf_permits_on_lost(silent, NULL, NULL), HF_OK);
    assert_int_equal(hf_permits_on_lost(w->permits, pool_on_event, &events), HF_OK);
    pool_take(w->permits, 1, HF_WATCHDOG, &ids[0]);
    pool_take(w->permits, 1, HF_WATCHDOG, &ids[1]);
    assert_int_equal(hf_permits_release(w->rival_permits, &ids[0]),
                     HF_OK); /* the client that knows it may */
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_string_equal(events.lost_id, ids[0].text);
    assert_int_equal(world_stats(w->client).losses, 1);
    assert_int_equal(world_stats(w->client).holds, 1);
    assert_int_equal(hf_permits_release(w->permits, &ids[0]), HF_ELOST); /* reported once... */
    assert_int_equal(hf_permits_release(w->permits, &ids[0]), HF_ENOTOWNER);
    assert_int_equal(hf_permits_release(w->permits, &ids[1]), HF_OK); /* ...and the other is fine */
    assert_int_equal(atomic_load(&events.losses), 1);
}

/* Nothing watches a fixed lease before its end; the next call finds out. */
ROW_CASES_IN(the_next_call_finds_out, form, pool_forms, struct world, w, pool_begin, world_end,
             NULL, 2) {
    struct pool_events events = {0};
    hf_permit_id ids[2];
    assert_int_equal(hf_permits_on_lost(w->permits, pool_on_event, &events), HF_OK);
    pool_take(w->permits, 2, LONG_MS, ids);
    assert_int_equal(hf_permits_release_many(w->rival_permits, ids, 2), HF_OK);
    assert_int_equal(form->extend(w->permits, &ids[0], LONG_MS), HF_ENOTOWNER);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_string_equal(events.lost_id, ids[0].text);
    assert_int_equal(form->release(w->permits, &ids[0], 1), HF_ELOST);
    assert_int_equal(form->release(w->permits, &ids[1], 1), HF_ELOST);
    assert_int_equal(world_stats(w->client).losses, 2);
    assert_int_equal(world_stats(w->client).holds, 0);
    pool_assert_counts(w->permits, 2, 2, 0);
}

SHORT_CASE(a_fixed_lease_that_ends_is_a_loss, 1) {
    struct pool_events events = {0};
    hf_permit_id id;
    assert_int_equal(hf_permits_on_lost(w->permits, pool_on_event, &events), HF_OK);
    int64_t start_ms = now_ms();
    pool_take(w->permits, 1, 8000, &id); /* warned two seconds before */
    assert_int_equal(world_stats(w->client).holds, 1);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    /* the server may end it a millisecond early */
    assert_true(now_ms() - start_ms >= trusted_ms(8000) - 1);
    assert_int_equal(atomic_load(&events.warnings), 1);
    assert_string_equal(events.lost_id, id.text);
    assert_int_equal(world_stats(w->client).losses, 1);
    assert_int_equal(world_stats(w->client).holds, 0);
    /* What was lost stays so, whatever the server still knows of it. */
    assert_int_equal(hf_permits_extend(w->permits, &id, LONG_MS), HF_ENOTOWNER);
    assert_int_equal(hf_permits_release(w->permits, &id), HF_ELOST);
    assert_int_equal(hf_permits_release(w->permits, &id), HF_ENOTOWNER);
    pool_assert_counts(w->permits, 1, 1, 0);
}

SHORT_CASE(a_deleted_object_is_a_loss_of_all, 3) {
    struct pool_events events = {0};
    hf_permit_id ids[3];
    bool deleted = false;
    assert_int_equal(hf_permits_on_lost(w->permits, pool_on_event, &events), HF_OK);
    pool_take(w->permits, 3, HF_WATCHDOG, ids);
    assert_int_equal(hf_permits_delete(w->rival_permits, &deleted), HF_OK);
    assert_true(deleted);
    assert_true(world_wait_atomic(&events.losses, 3, HANG_MS));
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_int_equal(hf_permits_release_many(w->permits, ids, 3), HF_ENOTOWNER);
    assert_int_equal(cmd_int(w->server, "DBSIZE"), 0); /* a release brings nothing back to life */
}

/* A lock and permits of one name are two things; so are their losses. (The key is deleted
 * between.) */
SHORT_CASE(a_lock_of_the_same_name_is_not_notified, 1) {
    struct pool_events events = {0};
    hf_permit_id id;
    own_lock *lock = made(hf_lock_new, w->client, POOL_NAME);
    int fd = hf_lock_lost_fd(lock);
    assert_true(fd >= 0);
    assert_int_equal(hf_permits_on_lost(w->permits, pool_on_event, &events), HF_OK);
    pool_take(w->permits, 1, HF_WATCHDOG, &id);
    cmd_ok(w->server, "DEL " POOL_NAME " " POOL_TAKEN);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    uint64_t count;
    assert_int_equal(read(fd, &count, sizeof count), -1);
    assert_int_equal(hf_lock_try(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* ---- Calls ---- */

POOL_CASE(bad_arguments_are_refused, 5) {
    hf_permit_id ids[2], id = {"0123456789abcdef0123456789abcdef"};
    hf_permit_id unended = {"0123456789abcdef0123456789abcdef"};
    hf_permits *permits;
    hf_op *op;
    int64_t number;
    bool done;
    own_monitor *monitor = monitor_start(w->server);
    assert_int_equal(hf_permits_new_bytes(w->client, "", 0, &permits), HF_EINVAL);
    assert_int_equal(hf_permits_new_bytes(w->client, NULL, 3, &permits), HF_EINVAL);
    assert_int_equal(hf_permits_new_bytes(w->client, "x", 1, NULL), HF_EINVAL);
    assert_int_equal(hf_permits_try_set(NULL, 1, &done), HF_EINVAL);
    assert_int_equal(hf_permits_try_set(w->permits, -1, &done), HF_EINVAL);
    assert_int_equal(hf_permits_set(w->permits, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_permits_add(w->permits, -HF_PERMITS_MAX - 1), HF_EINVAL);
    const hf_permits_options bad[] = {
        pool_options(0, 0, 0),   pool_options(-1, 0, 0), pool_options(1001, 0, 0),
        pool_options(1, -2, 0),  pool_options(1, 0, -2), pool_options(1, 0, HF_LEASE_MAX_MS + 1),
        {.size = 1, .count = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(hf_permits_acquire_with(w->permits, &bad[i], ids), HF_EINVAL);
        assert_int_equal(hf_permits_acquire_start(w->permits, &bad[i], ids, NULL, NULL, &op),
                         HF_EINVAL);
    }
    assert_int_equal(hf_permits_acquire(w->permits, NULL), HF_EINVAL);
    assert_int_equal(hf_permits_acquire(NULL, ids), HF_EINVAL);
    assert_int_equal(hf_permits_release(w->permits, NULL), HF_EINVAL);
    assert_int_equal(hf_permits_release_many(w->permits, &id, 0), HF_EINVAL);
    assert_int_equal(hf_permits_release_many(w->permits, ids, 1001), HF_EINVAL);
    unended.text[32] = 'x';
    assert_int_equal(hf_permits_release(w->permits, &unended), HF_EINVAL);
    id.text[31] = 'g';
    assert_int_equal(hf_permits_extend(w->permits, &id, 1000), HF_EINVAL);
    id.text[31] = 'f';
    assert_int_equal(hf_permits_extend(w->permits, &id, 0), HF_EINVAL);
    assert_int_equal(hf_permits_extend(w->permits, &id, -2), HF_EINVAL);
    assert_int_equal(hf_permits_ttl_ms(NULL, &id, &number), HF_EINVAL);
    assert_int_equal(hf_permits_expire(w->permits, 0, &done), HF_EINVAL);
    assert_int_equal(hf_permits_on_lost(NULL, pool_on_event, NULL), HF_EINVAL);
    hf_permits_free(NULL);
    assert_int_equal(monitor_count(monitor, "evalsha") + monitor_count(monitor, "EVALSHA"), 0);
}

POOL_CASE(wrong_types_are_refused, 0) {
    hf_permit_id id = {"0123456789abcdef0123456789abcdef"};
    int64_t number = -99;
    bool done;
    static const char *const makes[] = {"HSET " POOL_NAME " me 1", "SET " POOL_NAME " many",
                                        "RPUSH " POOL_NAME " x"};
    for (size_t i = 0; i < sizeof makes / sizeof *makes; i++) {
        cmd_ok(w->server, "FLUSHALL");
        cmd_ok(w->server, makes[i]);
        assert_int_equal(hf_permits_try(w->permits, &id), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_acquire_for(w->permits, 50, &id), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_release(w->permits, &id), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_extend(w->permits, &id, 1000), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_ttl_ms(w->permits, &id, &number), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_available(w->permits, &number), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_try_set(w->permits, 3, &done), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_set(w->permits, 3), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_add(w->permits, 3), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_delete(w->permits, &done), HF_EWRONGTYPE);
        assert_int_equal(hf_permits_expire(w->permits, 1000, &done), HF_EWRONGTYPE);
        assert_int_equal(cmd_int(w->server, "DBSIZE"), 1);
    }
    assert_int_equal(number, -99);
}

/* The keys of taken permits have become another type: the permits are lost, and each loss is
 * reported and counted, by whichever call finds it. */
ROW_CASES(an_overwritten_hold_is_lost, form, pool_forms) {
    struct world w;
    struct pool_events events = {0};
    hf_permit_id ids[4];
    pool_begin(&w, NULL, 4);
    assert_int_equal(hf_permits_on_lost(w.permits, pool_on_event, &events), HF_OK);
    pool_take(w.permits, 4, LONG_MS, ids);
    cmd_ok(w.server, "SET " POOL_TAKEN " text");
    assert_int_equal(form->release(w.permits, &ids[0], 1), HF_ELOST);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_string_equal(events.lost_id, ids[0].text);
    assert_int_equal(form->extend(w.permits, &ids[1], LONG_MS), HF_ELOST);
    assert_true(world_wait_atomic(&events.losses, 2, HANG_MS));
    assert_int_equal(form->release(w.permits, &ids[1], 1), HF_ELOST);
    cmd_ok(w.server, "SET " POOL_NAME " many");
    assert_int_equal(form->release(w.permits, &ids[2], 2), HF_ELOST);
    assert_true(world_wait_atomic(&events.losses, 4, HANG_MS));
    assert_int_equal(world_stats(w.client).losses, 4);
    assert_int_equal(world_stats(w.client).holds, 0);
    assert_int_equal(form->release(w.permits, &ids[0], 1), HF_EWRONGTYPE);
    cmd_ok(w.server, "FLUSHALL");
    world_end(&w);
    assert_int_equal(atomic_load(&events.losses), 4);
}

struct in_callback {
    struct world *pool;
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

CASE(inside_a_callback_it_would_deadlock) {
    struct world w;
    struct in_callback in = {.pool = &w};
    hf_permits_options options = pool_options(1, 0, LONG_MS);
    pool_begin(&w, NULL, 1);
    assert_int_equal(hf_permits_acquire_start(w.permits, &options, &in.id, call_inside, &in, NULL),
                     HF_OK);
    assert_true(world_wait_atomic(&in.calls, 1, HANG_MS));
    assert_int_equal(in.err, HF_EDEADLK);
    assert_int_equal(hf_permits_release(w.permits, &in.id), HF_OK);
    world_end(&w);
}

/* Names with braces have no braces of their own; a prefix is part of the name. */
CASE(names_are_those_of_redisson) {
    OWN(world_end) struct world w;
    hf_permit_id id;
    hf_options options = world_options();
    options.name_prefix = "app:";
    pool_begin(&w, NULL, 0);
    hf_client *client = made(hf_open, server_url(w.server), &options);
    hf_permits *permits = made(hf_permits_new_bytes, client, "a{b}c", 5);
    struct monitor *monitor = monitor_start(w.server);
    assert_int_equal(hf_permits_set(permits, 1), HF_OK);
    pool_take(permits, 1, LONG_MS, &id);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    pool_take(permits, 1, LONG_MS, &id);
    assert_true(key_exists(w.server, "app:a{b}c"));
    assert_true(key_exists(w.server, "app:a{b}c:timeout"));
    assert_int_equal(monitor_count(monitor, "\"publish\" \"redisson_sc:app:a{b}c\" \"1\""), 2);
    monitor_stop(monitor);
    hf_permits_free(permits);
    assert_int_equal(hf_close(client), HF_OK);
}

/* ---- Memory ---- */

/* Takes and gives back, with the n-th allocation failing: what was not acquired is not there, what
 * was is given back. False: it did not come to that allocation. */
static bool take_without_memory(struct world *w, long fail_at) {
    struct memory memory = {.fail_at = fail_at};
    hf_options options = world_options();
    hf_client *client;
    hf_permits *permits;
    hf_permit_id ids[5];
    options.allocator = memory_allocator(&memory);
    int err = hf_open(server_url(w->server), &options, &client);
    if (err == HF_OK) {
        err = hf_permits_new_bytes(client, POOL_NAME, strlen(POOL_NAME), &permits);
        if (err == HF_OK) {
            hf_permits_options all = pool_options(5, 0, HF_WATCHDOG);
            err = hf_permits_acquire_with(permits, &all, ids);
            int released = err == HF_OK ? hf_permits_release_many(permits, ids, 5) : HF_OK;
            if (released == HF_ENOMEM) /* nothing was done; else it is repeated by itself */
                assert_int_equal(hf_permits_release_many(permits, ids, 5), HF_OK);
            else if (released != HF_OK)
                assert_int_equal(released, HF_EINDOUBT);
            assert_int_equal(world_stats(client).holds, 0);
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
CASE(permits_that_end_by_themselves_leave_no_memory) {
    OWN(world_end) struct world w;
    struct memory memory = {0};
    hf_options options = world_options();
    hf_permit_id ids[500];
    options.allocator = memory_allocator(&memory);
    pool_begin(&w, NULL, 1000);
    hf_client *client = made(hf_open, server_url(w.server), &options);
    hf_permits *permits = pool_permits(client);
    pool_take(permits, 1, LONG_MS, ids);
    assert_int_equal(hf_permits_release(permits, ids), HF_OK);
    long before = atomic_load(&memory.live);
    for (int round = 0; round < 2; round++)
        pool_take(permits, 500, PASSING_MS, ids);
    assert_true(atomic_load(&memory.live) >= before + 500);
    struct ebb ebb = {&memory, before + 10};
    assert_true(wait_until(is_down, &ebb, HANG_MS));
    assert_int_equal(world_stats(client).losses, 1000);
    pool_assert_counts(permits, 1000, 1000, 0);
    hf_permits_free(permits);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
}

POOL_CASE(U65_memory_runs_out, 5) {
    long step = 1;
    while (take_without_memory(w, step))
        step++;
    assert_true(step > 10);
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

SHORT_CASE(in_a_forked_child_nothing_works, 1) {
    struct child child = {0};
    pool_take(w->permits, 1, HF_WATCHDOG, &child.id);
    child.permits = w->permits;
    child.client = w->client;
    assert_true(expect_exit(run_child(use_parents_client, &child), 0, HANG_MS));
    uint64_t renewals = world_stats(w->client).renewals;
    assert_true(WAIT_FOR(world_stats(w->client).renewals >= renewals + 4, HANG_MS)); /* a lease */
    assert_int_equal(hf_permits_release(w->permits, &child.id), HF_OK); /* the parent's goes on */
}

static int take_and_stay(void *arg) {
    struct child *child = arg;
    hf_options options = pool_short_watchdog();
    hf_client *client;
    hf_permits *permits;
    if (hf_open(server_url(world_server()), &options, &client) != HF_OK ||
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

/* kill -9 of a holder with the watchdog: a waiter comes in when the lease is over. */
CASE(a_killed_holders_permit_returns) {
    struct child *child = shared_new(sizeof *child);
    cmd_ok(world_server(), "FLUSHALL");
    cmd_ok(world_server(), "SET " POOL_NAME " 1");
    pid_t pid = run_child(take_and_stay, child);
    assert_true(wait_until(is_set, &child->holds, HANG_MS));
    long long first_ms = pool_ends_at(&child->id);
    assert_true(WAIT_FOR(server_now_ms() > first_ms, HANG_MS));
    assert_true(pool_ends_at(&child->id) > server_now_ms()); /* renewed beyond its first lease */

    hf_permit_id id;
    hf_options options = pool_short_watchdog();
    hf_client *client = made(hf_open, server_url(world_server()), &options);
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

RUN_CASES(world_start_server, world_stop_server)
