/*
 * Permits with rarer faults: a server that is full, or refuses one script and takes another; answers
 * that come when the loss was reported already; a process without any memory.
 *
 * The watchdog's lease is short. What is to be renewed is looked at for longer than a lease without
 * a renewal would last.
 */
#include "support/memory.h"
#include "sync/pool.h"

#include <poll.h>

#define LONG_MS 60000

/* ---- A server that does not take everything ---- */

/* A permit, a plain lock and a reader: three scripts of renewal, in one batch. */
struct holder {
    struct world w;
    hf_lock *lock, *reader;
    hf_permit_id id;
};

static void hold_all(struct holder *h) {
    hf_options options = pool_short_watchdog();
    pool_begin(&h->w, &options, 2);
    assert_int_equal(hf_lock_new(h->w.client, "plain", &h->lock), HF_OK);
    assert_int_equal(new_lock(h->w.client, HF_READ, "rw", 2, &h->reader), HF_OK);
    pool_take(h->w.permits, 1, HF_WATCHDOG, &h->id);
    assert_int_equal(hf_lock_acquire(h->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(h->reader), HF_OK);
}

static void assert_locks_held(struct holder *h) {
    assert_true(hf_lock_remaining_ms(h->lock) > 0);
    assert_true(hf_lock_remaining_ms(h->reader) > 0);
    assert_true(key_exists(h->w.server, "plain"));
    assert_true(key_exists(h->w.server, "rw"));
}

static void release_all(struct holder *h) {
    assert_int_equal(hf_lock_release(h->lock), HF_OK);
    assert_int_equal(hf_lock_release(h->reader), HF_OK);
    hf_lock_free(h->lock);
    hf_lock_free(h->reader);
    world_end(&h->w);
}

/* What is held stays held, however full the server is: nothing that is new is stored for that. */
CASE_IN(U39_a_full_server_renews_and_extends, struct holder, h, hold_all, release_all) {
    hf_permit_id other;
    cmd_ok(h->w.server, "CONFIG SET maxmemory 1");
    assert_int_equal(hf_permits_try(h->w.permits, &other), HF_EOOM);
    uint64_t renewals = world_stats(h->w.client).renewals;
    while (world_stats(h->w.client).renewals < renewals + 4 * 3) { /* four of each */
        (void)wait_a_moment();
        assert_locks_held(h);
        assert_true(hf_permits_remaining_ms(h->w.permits, &h->id) > 0);
    }
    assert_int_equal(world_stats(h->w.client).renew_failures, 0);
    assert_int_equal(hf_permits_extend(h->w.permits, &h->id, LONG_MS), HF_OK);
    assert_true(hf_permits_remaining_ms(h->w.permits, &h->id) > LONG_MS / 2);
    assert_int_equal(hf_permits_release(h->w.permits, &h->id), HF_OK);
    cmd_ok(h->w.server, "CONFIG SET maxmemory 0");
    pool_assert_counts(h->w.permits, 2, 2, 0);
}

/* The script of the permits is refused, from now on: they are lost in the end, and nothing else
 * is. */
CASE_IN(one_script_that_is_refused_costs_no_other_hold, struct holder, h, hold_all, release_all) {
    struct pool_events events = {0};
    assert_int_equal(hf_permits_on_lost(h->w.permits, pool_on_event, &events), HF_OK);
    cmd_ok(h->w.server, "ACL SETUSER default -zscore");
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    for (int64_t end_ms = now_ms() + WATCHDOG_MS; now_ms() < end_ms; wait_a_moment())
        assert_locks_held(h);
    cmd_ok(h->w.server, "ACL SETUSER default +zscore");
    assert_true(world_stats(h->w.client).renew_failures >= 1);
    assert_int_equal(world_stats(h->w.client).losses, 1);
}

/* ---- Too late ---- */

struct extension {
    const hf_permit_id *id;
    long long before_ms; /* when its lease ended before */
};

static bool has_run(void *arg) {
    const struct extension *extension = arg;
    return pool_ends_at(extension->id) != extension->before_ms;
}

/* The lease was extended in time, but the answer came when its end had been reported: that stays true,
 * and nothing is left of the permit, also if it was to have no end. */
CASE(an_extension_that_is_answered_after_the_loss) {
    static const int64_t leases[] = {LONG_MS, HF_NO_LEASE};
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
        struct world w;
        struct pool_events events = {0};
        hf_permit_id id;
        hf_op *op = NULL;
        pool_begin(&w, NULL, 1);
        assert_int_equal(hf_permits_on_lost(w.permits, pool_on_event, &events), HF_OK);
        pool_take(w.permits, 1, 2 * PASSING_MS, &id); /* it is extended before that */
        proxy_blackhole(w.proxy, false, true);
        struct extension extension = {&id, pool_ends_at(&id)};
        int err = hf_permits_extend_start(w.permits, &id, leases[i], NULL, NULL, &op);
        assert_true(wait_until(has_run, &extension, HANG_MS));
        proxy_blackhole(w.proxy, true, true); /* it is given back half a second after the loss */
        assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
        assert_int_equal(pool_taken_there(), 1);
        proxy_heal(w.proxy);
        assert_int_equal(world_wait_op(err, op, NULL), HF_ENOTOWNER);
        assert_true(pool_wait_there(1, 0, HANG_MS));
        assert_int_equal(hf_permits_release(w.permits, &id), HF_ELOST);
        assert_int_equal(world_stats(w.client).losses, 1);
        world_end(&w);
    }
}

/* ---- No memory at all ---- */

/* A name for which a hold's place does not fit where short ones do. */
#define LONG_NAME_LEN 600
static const char *long_name(void) {
    static char name[LONG_NAME_LEN];
    memset(name, 'n', sizeof name);
    return name;
}

/* From its n-th allocation on an acquire gets none: it is all or nothing, and what was acquired can
 * be given back. */
static int acquire_and_release_without_memory(struct world *w, long from) {
    struct memory memory = {0};
    hf_options options = world_options();
    hf_permit_id ids[5];
    hf_permits_options all = pool_options(5, 0, HF_WATCHDOG);
    int64_t taken = -1;
    options.allocator = memory_allocator(&memory);
    hf_client *client = made(hf_open, server_url(w->server), &options);
    hf_permits *permits = made(hf_permits_new_bytes, client, long_name(), LONG_NAME_LEN);
    assert_int_equal(hf_permits_set(permits, 5), HF_OK);
    atomic_store(&memory.fail_from, atomic_load(&memory.calls) + from);
    int err = hf_permits_acquire_with(permits, &all, ids);
    atomic_store(&memory.fail_from, 0);
    assert_int_equal(world_stats(client).holds, err == HF_OK ? 5 : 0);
    if (err == HF_OK)
        assert_int_equal(hf_permits_release_many(permits, ids, 5), HF_OK);
    assert_true(WAIT_FOR(hf_permits_taken(permits, &taken) != HF_OK || taken == 0, HANG_MS));
    assert_int_equal(taken, 0);
    hf_permits_free(permits);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
    return err;
}

POOL_CASE(U65_an_acquire_that_runs_out_of_memory, 1) {
    long from = 1;
    int err;
    while ((err = acquire_and_release_without_memory(w, from)) != HF_OK) {
        assert_int_equal(err, HF_ENOMEM);
        assert_true(++from < 100);
    }
    assert_true(from > 5); /* each of the five permits needs some */
}

/* A permit that is given back is not renewed any more, also if there is no memory to say so to the
 * server now. */
CASE(U65_a_release_without_memory) {
    OWN(world_end) struct world w;
    struct memory memory = {0};
    hf_options options = pool_short_watchdog();
    hf_permit_id id;
    hf_op *op = NULL;
    int64_t taken = -1;
    pool_begin(&w, NULL, 1);
    options.allocator = memory_allocator(&memory);
    hf_client *client = made(hf_open, server_url(w.server), &options);
    hf_permits *permits = made(hf_permits_new_bytes, client, long_name(), LONG_NAME_LEN);
    assert_int_equal(hf_permits_set(permits, 1), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    atomic_store(&memory.fail_from, atomic_load(&memory.calls) + 2); /* enough for an operation */
    int err = hf_permits_release_start(permits, &id, 1, NULL, NULL, &op);
    assert_int_equal(world_wait_op(err, op, NULL), HF_EINDOUBT);
    assert_int_equal(world_stats(client).holds, 0);
    atomic_store(&memory.fail_from, 0);
    assert_true(WAIT_FOR(hf_permits_taken(permits, &taken) != HF_OK || taken == 0, HANG_MS));
    assert_int_equal(taken, 0);
    assert_int_equal(world_stats(client).losses, 0);
    hf_permits_free(permits);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
}

/* ---- A descriptor for losses, and the name ---- */

static bool is_readable(int fd, int limit_ms) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    return poll(&ready, 1, limit_ms) == 1;
}

CASE(a_lost_permit_makes_its_descriptor_readable) {
    OWN(world_end) struct world w;
    hf_permit_id id;
    hf_options options = pool_short_watchdog();
    pool_begin(&w, &options, 2);
    int fd = hf_permits_lost_fd(w.permits), rival_fd = hf_permits_lost_fd(w.rival_permits);
    assert_true(fd >= 0 && rival_fd >= 0 && fd != rival_fd);
    assert_int_equal(hf_permits_lost_fd(w.permits), fd);
    pool_take(w.permits, 1, HF_WATCHDOG, &id);
    assert_int_equal(hf_permits_release(w.permits, &id), HF_OK);
    assert_false(is_readable(fd, 0)); /* given back is not lost */
    pool_take(w.permits, 1, HF_WATCHDOG, &id);
    assert_int_equal(hf_permits_delete(w.rival_permits, NULL), HF_OK);
    assert_true(is_readable(fd, HANG_MS));
    uint64_t count;
    assert_int_equal(read(fd, &count, sizeof count), sizeof count);
    assert_int_equal(count, 1);
    assert_false(is_readable(rival_fd, 0)); /* that one held nothing */
    assert_int_equal(hf_permits_lost_fd(NULL), HF_EINVAL);
}

POOL_CASE(handles_know_their_names, 1) {
    hf_sem *sem;
    hf_permits *permits;
    size_t len;
    assert_string_equal(hf_permits_name(w->permits, NULL), POOL_NAME);
    assert_int_equal(hf_sem_new(w->client, "sem", &sem), HF_OK);
    hf_latch *latch = made(hf_latch_new_bytes, w->client, "a\0b", 3);
    assert_int_equal(hf_permits_new(w->client, "permits", &permits), HF_OK);
    assert_string_equal(hf_sem_name(sem, &len), "sem");
    assert_int_equal(len, 3);
    assert_memory_equal(hf_latch_name(latch, &len), "a\0b", 4);
    assert_int_equal(len, 3);
    assert_string_equal(hf_permits_name(permits, &len), "permits");
    assert_int_equal(len, 7);
    hf_sem_free(sem);
    hf_latch_free(latch);
    hf_permits_free(permits);
    assert_int_equal(hf_sem_new(w->client, NULL, &sem), HF_EINVAL);
    assert_int_equal(hf_latch_new(w->client, "", &latch), HF_EINVAL);
}

RUN_CASES(world_start_server, world_stop_server)
