/*
 * Rows C081 to C099 of the catalogue, and U02, U70, U71, U73: what Redisson's own test of its
 * read/write lock asserts of leases, of both sides of one owner and of crowds, on one server, and
 * where ours is better on purpose. The others are in test_readwrite_*.c.
 *
 * Leases and waits are scaled down. Lower bounds of time are exact; upper ones only tell a hang, or
 * one cause of waking from another.
 */
#include "lock/readwrite.h"

#define LONG_MS 20000 /* a lease nobody waits out */
#define BRIEF_MS 1500 /* one that is waited out; no answer takes that long */

/* ---- Leases ---- */

CASE(C081_a_shorter_read_lease_does_not_shorten_the_lock) {
    OWN(rw_end) struct rw rw;
    server_redis_only(world_server(), "readers queue behind a waiting writer there");
    struct world_caller writer;
    rw_begin(&rw, NULL);
    assert_int_equal(acquire_as(rw.read, A, 0, 3 * LONG_MS), HF_OK);
    assert_int_equal(acquire_as(rw.rival_read, B, 0, LONG_MS), HF_OK);
    assert_true(pttl(rw.w.server, WORLD_NAME) > LONG_MS);
    wait_as(&writer, rw.write, C, HANG_MS);
    rw_wait_for_waiter(&rw);
    assert_int_equal(hf_lock_release_as(rw.rival_read, B), HF_OK);
    assert_true(pttl(rw.w.server, WORLD_NAME) > LONG_MS);

    /* Nor if it is not released, but runs out. */
    assert_int_equal(acquire_as(rw.rival_read, B, 0, BRIEF_MS), HF_OK);
    server_wait_clock(rw.w.server, BRIEF_MS + 1);
    assert_int_equal(hf_lock_release_as(rw.rival_read, B), HF_ELOST);
    assert_true(pttl(rw.w.server, WORLD_NAME) > LONG_MS);
    assert_false(atomic_load(&writer.done));
    assert_int_equal(hf_lock_release_as(rw.read, A), HF_OK);
    assert_int_equal(world_join(&writer), HF_OK);
    assert_int_equal(hf_lock_release_as(rw.write, C), HF_OK);
    rw_assert_clean(&rw);
}

RW_CASE(C087_readers_enter_when_the_writers_lease_ends) {
    struct world_caller readers[2];
    int64_t start_ms = now_ms();
    assert_int_equal(acquire_as(rw->rival_write, A, 0, BRIEF_MS), HF_OK);
    wait_as(&readers[0], rw->read, B, HANG_MS);
    wait_as(&readers[1], rw->read, C, HANG_MS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world_join(&readers[i]), HF_OK);
        assert_true(now_ms() - start_ms >= BRIEF_MS);
        assert_true(readers[i].took_ms < 8000); /* not the poll */
    }
    assert_int_equal(rw_hold_count(rw->read, B) + rw_hold_count(rw->read, C), 2);
    assert_int_equal(hf_lock_release_as(rw->read, B), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->read, C), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->rival_write, A), HF_ELOST);
    rw_assert_clean(rw);
}

RW_CASE(C088_a_leaving_reader_leaves_the_others_time) {
    int64_t start_ms = now_ms();
    assert_int_equal(acquire_as(rw->rival_read, A, 0, BRIEF_MS), HF_OK);
    assert_int_equal(acquire_as(rw->read, B, 0, LONG_MS), HF_OK);
    assert_true(rw_lasts(rw, BRIEF_MS));
    assert_int_equal(hf_lock_release_as(rw->read, B), HF_OK);
    assert_true(server_is_other(rw->w.server) || !rw_lasts(rw, BRIEF_MS));
    assert_int_equal(acquire_as(rw->write, C, HANG_MS, HF_WATCHDOG), HF_OK);
    assert_true(now_ms() - start_ms >= BRIEF_MS);
    assert_true(now_ms() - start_ms < 8000);
    assert_int_equal(hf_lock_release_as(rw->write, C), HF_OK);
}

/* A writer goes on reading, with a shorter lease, and dies: nobody waits for what it had as a writer. */
CASE(a_writer_leaves_a_reader_its_own_time) {
    OWN(rw_end) struct rw rw;
    server_redis_only(world_server(), "a hold ends with its session there");
    rw_begin(&rw, NULL);
    assert_int_equal(acquire_as(rw.write, A, 0, LONG_MS), HF_OK);
    assert_int_equal(acquire_as(rw.read, A, 0, BRIEF_MS), HF_OK);
    assert_int_equal(hf_lock_release_as(rw.write, A), HF_OK);
    assert_false(rw_lasts(&rw, BRIEF_MS));
    assert_int_equal(hf_lock_release_as(rw.read, A), HF_OK);
}

/* Redisson gives each level its own lease; here the longest counts for the hold, as for all locks. */
RW_CASE(C089_the_longest_lease_counts_for_all_levels) {
    assert_int_equal(acquire_as(rw->read, A, 0, BRIEF_MS), HF_OK);
    int64_t nested_ms = now_ms();
    assert_int_equal(acquire_as(rw->read, A, 0, 3 * BRIEF_MS), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    assert_int_equal(rw_hold_count(rw->read, A), 1);
    assert_true(hf_lock_remaining_ms_as(rw->read, A) <= 3 * BRIEF_MS);
    if (!server_is_other(rw->w.server)) {
        assert_true(rw_hold_ttl(rw, rw->w.client, A, 1) > BRIEF_MS);
        assert_int_equal(rw_hold_ttl(rw, rw->w.client, A, 2), -2);
    }
    assert_int_equal(acquire_as(rw->rival_write, B, HANG_MS, HF_WATCHDOG), HF_OK);
    assert_true(now_ms() - nested_ms >= 3 * BRIEF_MS);
    assert_int_equal(hf_lock_release_as(rw->rival_write, B), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_ELOST);
    rw_assert_clean(rw);
}

RW_CASE(C097_late_release_of_a_read_is_a_loss) {
    assert_int_equal(acquire_as(rw->read, A, 0, BRIEF_MS), HF_OK);
    assert_int_equal(acquire_as(rw->rival_read, B, 0, LONG_MS), HF_OK); /* no exclusion */
    server_wait_clock(world_server(), BRIEF_MS + 1);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_ELOST);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release_as(rw->rival_read, B), HF_OK);
    rw_assert_clean(rw);
}

RW_CASE(C098_late_release_of_a_write_is_a_loss) {
    int64_t start_ms = now_ms();
    assert_int_equal(acquire_as(rw->write, A, 0, BRIEF_MS), HF_OK);
    assert_int_equal(acquire_as(rw->rival_write, B, HANG_MS, HF_WATCHDOG), HF_OK);
    assert_true(now_ms() - start_ms >= BRIEF_MS);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_ELOST);
    assert_true(rw_held(rw->rival_write, B));
    assert_int_equal(hf_lock_release_as(rw->rival_write, B), HF_OK);
    rw_assert_clean(rw);
}

CASE(C099_left_by_a_closed_client) {
    static const any_kind kinds[] = {HF_WRITE, HF_READ};
    for (size_t i = 0; i < 2; i++) {
        struct rw rw;
        hf_options options = rw_watchdog(2400);
        rw_begin(&rw, &options);
        hf_client *mortal = made(hf_open, server_url(rw.w.server), &options);
        hf_lock *lock = rw_handle(mortal, kinds[i]);
        int64_t start_ms = now_ms();
        assert_int_equal(try_as(lock, A), HF_OK);
        hf_lock_free(lock);
        assert_int_equal(hf_close(mortal), HF_OK);
        assert_int_equal(acquire_as(rw.write, B, HANG_MS, HF_WATCHDOG), HF_OK);
        assert_true(now_ms() - start_ms >= 2400);
        assert_int_equal(hf_lock_release_as(rw.write, B), HF_OK);
        assert_int_equal(world_stats(rw.w.client).holds, 0);
        rw_end(&rw);
    }
}

RW_CASE(U02_leases_beyond_reason) {
    assert_int_equal(acquire_as(rw->read, A, 0, INT64_MAX), HF_EINVAL);
    assert_int_equal(acquire_as(rw->write, A, 0, INT64_MAX), HF_EINVAL);
    assert_int_equal(acquire_as(rw->read, A, 0, -1), HF_EINVAL);
    assert_int_equal(world_keys(rw->w.server), 0);
    assert_int_equal(acquire_as(rw->read, A, 0, HF_LEASE_MAX_MS), HF_OK);
    assert_true(rw_lasts(rw, HF_LEASE_MAX_MS / 2));
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    rw_assert_clean(rw);
}

/* ---- Both sides of one owner ---- */

RW_CASE(C082_C090_reading_while_writing) {
    assert_false(rw_locked(rw->read));
    assert_false(rw_locked(rw->write));
    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_false(rw_locked(rw->read));
    assert_true(rw_locked(rw->write));
    assert_int_equal(acquire_as(rw->read, A, 10000, HF_WATCHDOG), HF_OK);
    assert_true(rw_locked(rw->read));
    assert_true(rw_locked(rw->write));
    assert_true(rw_mode_is(rw, "write"));
    assert_int_equal(rw_holders(rw), 2);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    assert_false(rw_locked(rw->read));
    assert_true(rw_locked(rw->write));
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    assert_false(rw_locked(rw->write));
    rw_assert_clean(rw);
}

RW_CASE(C092_C093_downgrade) {
    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_int_equal(rw_hold_count(rw->write, A), 2);
    assert_int_equal(try_as(rw->read, A), HF_OK);
    assert_int_equal(try_as(rw->rival_read, B), HF_EBUSY);
    assert_int_equal(try_as(rw->rival_write, B), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    assert_int_equal(try_as(rw->rival_read, B), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    assert_true(rw_mode_is(rw, "read"));
    assert_false(rw_locked(rw->write));
    assert_false(rw_held(rw->write, A));
    assert_true(rw_held(rw->read, A));
    assert_int_equal(try_as(rw->write, A), HF_EDEADLK);
    assert_int_equal(try_as(rw->rival_write, B), HF_EBUSY);
    assert_int_equal(try_as(rw->rival_read, B), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->rival_read, B), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    rw_assert_clean(rw);
}

RW_CASE(U71_downgrade_wakes_readers) {
    struct world_caller reader;
    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_int_equal(try_as(rw->read, A), HF_OK);
    wait_as(&reader, rw->rival_read, B, HF_FOREVER);
    rw_wait_for_waiter(rw);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    assert_int_equal(world_join(&reader), HF_OK);
    assert_true(reader.took_ms < 8000); /* neither the lease of 60 s nor the poll */
    assert_int_equal(hf_lock_release_as(rw->rival_read, B), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    rw_assert_clean(rw);
}

/* Refused at once, whatever the wait; the hold and the lock stay as they are. */
RW_CASE(U70_upgrade_is_refused) {
    struct world_caller rival;
    assert_int_equal(acquire_as(rw->read, A, 0, LONG_MS), HF_OK);
    long long commands = server_calls(rw->w.server, "evalsha");
    assert_int_equal(try_as(rw->write, A), HF_EDEADLK);
    assert_int_equal(acquire_as(rw->write, A, HANG_MS, HF_WATCHDOG), HF_EDEADLK);
    assert_int_equal(acquire_as(rw->write, A, HF_FOREVER, HF_WATCHDOG), HF_EDEADLK);
    assert_int_equal(world_acquire_async(rw->write, A, HF_FOREVER, NULL), HF_EDEADLK);
    assert_int_equal(server_calls(rw->w.server, "evalsha"), commands);

    /* Also while another of this process waits to write, in whose queue it would wait. */
    wait_as(&rival, rw->write, B, HF_FOREVER);
    rw_wait_for_waiter(rw);
    assert_int_equal(acquire_as(rw->write, A, HF_FOREVER, HF_WATCHDOG), HF_EDEADLK);
    assert_int_equal(rw_hold_count(rw->read, A), 1);
    assert_true(rw_mode_is(rw, "read"));
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    assert_int_equal(world_join(&rival), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->write, B), HF_OK);
    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    rw_assert_clean(rw);
}

/* A read whose lease is over is nothing to wait for. */
RW_CASE(U70_upgrade_after_the_read_has_run_out) {
    assert_int_equal(acquire_as(rw->read, A, 0, BRIEF_MS), HF_OK);
    server_wait_clock(world_server(), BRIEF_MS + 1);
    assert_int_equal(acquire_as(rw->write, A, HANG_MS, HF_WATCHDOG), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_ELOST);
    rw_assert_clean(rw);
}

/* ---- Many ---- */

enum { CROWD = 20 };

struct attempts {
    struct server *server;
    long long wanted;
};

static bool were_made(void *arg) {
    const struct attempts *attempts = arg;
    if (server_is_other(attempts->server)) /* all of them, and the writer */
        return server_queued(attempts->server, WORLD_NAME) == CROWD + 1;
    return server_calls(attempts->server, "evalsha") >= attempts->wanted;
}

RW_CASE(C091_release_of_a_write_wakes_all_readers) {
    struct world_caller readers[CROWD];
    assert_int_equal(try_as(rw->write, A), HF_OK);
    /* Each tries once, and again when it is sure to be notified. */
    struct attempts attempts = {rw->w.server, server_calls(rw->w.server, "evalsha") + 2 * CROWD};
    for (int i = 0; i < CROWD; i++)
        wait_as(&readers[i], i % 2 ? rw->read : rw->rival_read, 100 + (hf_owner)i, HF_FOREVER);
    assert_true(wait_until(were_made, &attempts, HANG_MS));
    struct monitor *monitor = monitor_start(rw->w.server);
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(world_join(&readers[i]), HF_OK);
        assert_true(readers[i].took_ms < 8000);
    }
    if (!server_is_other(rw->w.server))
        assert_int_equal(monitor_count(monitor, "lua] \"publish\""), 1);
    monitor_stop(monitor);
    assert_int_equal(rw_holders(rw), CROWD); /* all at once */
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(hf_lock_release_as(i % 2 ? rw->read : rw->rival_read, 100 + (hf_owner)i),
                         HF_OK);
    rw_assert_clean(rw);
}

RW_CASE(C094_many_readers) {
    struct world_caller writer;
    assert_false(rw_break(rw->read));
    assert_false(rw_break(rw->write));
    assert_int_equal(try_as(rw->read, A), HF_OK);
    assert_int_equal(try_as(rw->rival_write, C), HF_EBUSY);
    assert_int_equal(try_as(rw->read, B), HF_OK);
    assert_int_equal(try_as(rw->rival_write, C), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    assert_int_equal(try_as(rw->rival_write, C), HF_EBUSY);
    wait_as(&writer, rw->rival_write, C, HF_FOREVER);
    rw_wait_for_waiter(rw);
    assert_int_equal(hf_lock_release_as(rw->read, B), HF_OK);
    assert_int_equal(world_join(&writer), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->rival_write, C), HF_OK);
    rw_assert_clean(rw);
}

RW_CASE(C095_break_one_side) {
    assert_int_equal(try_as(rw->read, A), HF_OK);
    assert_int_equal(try_as(rw->rival_read, B), HF_OK);
    assert_false(rw_break(rw->write));
    assert_true(rw_locked(rw->read));
    assert_true(rw_break(rw->rival_read));
    assert_false(rw_locked(rw->read));
    assert_int_equal(hf_lock_release_as(rw->rival_read, B), HF_ELOST);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_ELOST); /* by the release itself */

    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_int_equal(try_as(rw->read, A), HF_OK);
    assert_false(rw_break(rw->rival_read)); /* the writer's own */
    assert_true(rw_break(rw->write));
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_ELOST);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_ELOST);
    assert_int_equal(try_as(rw->rival_write, B), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->rival_write, B), HF_OK);
    assert_int_equal(world_stats(rw->w.client).holds, 0);
}

/* More of this process than one round of telling takes. */
RW_CASE(a_break_notifies_all_readers_of_the_process) {
    enum { MANY = 50 };
    for (hf_owner i = 1; i <= MANY; i++)
        assert_int_equal(try_as(rw->read, i), HF_OK);
    assert_int_equal(world_stats(rw->w.client).holds, MANY);
    assert_true(rw_break(rw->read));
    assert_int_equal(world_stats(rw->w.client).holds, 0);
    assert_int_equal(world_stats(rw->w.client).losses, MANY);
    for (hf_owner i = 1; i <= MANY; i++)
        assert_int_equal(hf_lock_release_as(rw->read, i), HF_ELOST);
}

/* A writer of the same process waits; readers do not wait in its queue. */
CASE(readers_pass_a_waiting_writer) {
    OWN(rw_end) struct rw rw;
    server_redis_only(world_server(), "readers queue behind a waiting writer there");
    struct world_caller writer, reader;
    rw_begin(&rw, NULL);
    assert_int_equal(try_as(rw.rival_read, A), HF_OK);
    wait_as(&writer, rw.write, B, HF_FOREVER);
    rw_wait_for_waiter(&rw);
    wait_as(&reader, rw.read, C, 5000);
    assert_int_equal(world_join(&reader), HF_OK);
    assert_int_equal(world_acquire_async(rw.read, A, 5000, NULL), HF_OK);
    assert_false(atomic_load(&writer.done));
    assert_int_equal(hf_lock_release_as(rw.read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(rw.read, C), HF_OK);
    assert_int_equal(hf_lock_release_as(rw.rival_read, A), HF_OK);
    assert_int_equal(world_join(&writer), HF_OK);
    assert_int_equal(hf_lock_release_as(rw.write, B), HF_OK);
    rw_assert_clean(&rw);
}

CASE(U73_readers_may_keep_a_writer_out_for_its_wait) {
    OWN(rw_end) struct rw rw;
    server_redis_only(world_server(), "readers queue behind a waiting writer there");
    struct world_caller writer;
    rw_begin(&rw, NULL);
    assert_int_equal(try_as(rw.read, A), HF_OK);
    wait_as(&writer, rw.rival_write, C, 700);
    for (hf_owner next = B, last = A; !atomic_load(&writer.done); last = next++) {
        assert_int_equal(try_as(rw.read, next), HF_OK);
        assert_int_equal(hf_lock_release_as(rw.read, last), HF_OK);
        (void)wait_a_moment();
        if (atomic_load(&writer.done))
            assert_int_equal(hf_lock_release_as(rw.read, next), HF_OK);
    }
    assert_int_equal(world_join(&writer), HF_ETIMEDOUT);
    assert_true(writer.took_ms >= 700);
}

RUN_CASES(world_start_server, world_stop_server)
