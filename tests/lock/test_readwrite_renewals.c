/*
 * The read/write lock over time: renewals on both sides, fixed leases of readers that others
 * shorten, dead readers, and holds that are gone. Rows C096, C111, C112, C212 and C213.
 */
#include "lock/readwrite.h"

/* ---- Renewals ---- */

RW_CASE_WITH(C096_both_sides_are_renewed, rw_watchdog(ENDURING_MS)) {
    assert_int_equal(try_as(rw->write, A), HF_OK);
    assert_int_equal(try_as(rw->read, A), HF_OK);
    for (int sides = 2; sides > 0; sides--) {
        for (int64_t start_ms = now_ms(); now_ms() - start_ms < ENDURING_MS + 1000;
             wait_a_moment()) {
            assert_true(pttl(rw->w.server, WORLD_NAME) > 0);
            assert_true(rw_hold_ttl(rw, rw->w.client, A, 1) > 0);
        }
        if (sides == 2)
            assert_int_equal(hf_lock_release_as(rw->write, A), HF_OK);
    }
    assert_int_equal(world_stats(rw->w.client).losses, 0);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    rw_assert_clean(rw);
}

CASE(C111_C112_dead_readers_are_not_kept_alive) {
    OWN(rw_end) struct rw rw;
    enum { DEAD = 20 };
    hf_options options = rw_watchdog(ENDURING_MS);
    rw_begin(&rw, &options);
    hf_client *mortal = made(hf_open, server_url(rw.w.server), &options);
    hf_lock *lock = rw_handle(mortal, HF_READ);
    for (hf_owner i = 1; i <= DEAD; i++)
        for (int level = 0; level < 3; level++)
            assert_int_equal(try_as(lock, i), HF_OK);
    assert_int_equal(try_as(rw.read, A), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(mortal), HF_OK);
    /* longer than their lease; ours is renewed */
    assert_true(HOLDS_FOR(hf_lock_remaining_ms_as(rw.read, A) > 0, ENDURING_MS + 1000));
    assert_int_equal(cmd_int(rw.w.server, "HLEN " WORLD_NAME), DEAD + 2);
    assert_int_equal(world_keys(rw.w.server), 2); /* the lock and our own hold */
    assert_int_equal(hf_lock_release_as(rw.read, A), HF_OK);
    assert_int_equal(try_as(rw.write, A), HF_OK);
    assert_int_equal(hf_lock_release_as(rw.write, A), HF_OK);
    rw_assert_clean(&rw);
}

/* What was released is not renewed any more, however often it was entered. */
RW_CASE_WITH(C212_C213_nothing_is_left_to_renew, rw_watchdog(ENDURING_MS)) {
    hf_lock *const sides[] = {rw->read, rw->write};
    for (int side = 0; side < 2; side++)
        for (int levels = 1; levels <= 2; levels++) {
            for (int i = 0; i < levels; i++)
                assert_int_equal(try_as(sides[side], A), HF_OK);
            for (int i = 0; i < levels; i++)
                assert_int_equal(hf_lock_release_as(sides[side], A), HF_OK);
            assert_int_equal(world_stats(rw->w.client).holds, 0);
            own_monitor *monitor = monitor_start(rw->w.server);
            /* for longer than until the next renewal would be */
            assert_true(HOLDS_FOR(monitor_count(monitor, "EVALSHA") == 0, ENDURING_MS / 3 + 200));
        }
    rw_assert_clean(rw);
}

/* Many readers of one process are renewed together, each with its own lease. */
RW_CASE_WITH(renewals_go_in_batches, rw_watchdog(9000)) {
    enum { MANY = 250 };
    hf_lock *locks[MANY];
    for (int i = 0; i < MANY; i++) {
        own_text *name = text_of("many-%d", i);
        assert_int_equal(new_lock(rw->w.client, HF_READ, name, strlen(name), &locks[i]), HF_OK);
        assert_int_equal(acquire_as(locks[i], A, 0, i % 2 ? HF_WATCHDOG : 60000), HF_OK);
    }
    size_t before = proxy_seen(rw->w.proxy, hfi_script_read_renew.sha1);
    uint64_t renewed = world_stats(rw->w.client).renewals;
    assert_true(WAIT_FOR(world_stats(rw->w.client).renewals >= renewed + 2 * MANY, HANG_MS));
    size_t scripts = proxy_seen(rw->w.proxy, hfi_script_read_renew.sha1) - before;
    assert_true(scripts <= MANY / 4);
    assert_int_equal(world_stats(rw->w.client).losses, 0);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(hf_lock_release_as(locks[i], A), HF_OK);
        hf_lock_free(locks[i]);
    }
    rw_assert_clean(rw);
}

/* ---- What others do to us ---- */

static bool is_raised_again(void *server) {
    return pttl(server, WORLD_NAME) > ENDURING_MS / 2;
}

/* Redisson's watchdog for its own readers sets what is left of the lock to its own lease, also if
 * ours is longer. Then it dies, and nobody raises it again but us; up to the end of our own lease
 * and no further. */
CASE(a_fixed_read_lease_survives_the_watchdog_of_others) {
    OWN(rw_end) struct rw rw;
    hf_options options = rw_watchdog(900); /* so every 300 ms */
    rw_begin(&rw, &options);
    assert_int_equal(acquire_as(rw.read, A, 0, 2 * ENDURING_MS), HF_OK);
    int64_t left_ms = hf_lock_remaining_ms_as(rw.read, A), promised_ms = now_ms() + left_ms;
    for (int round = 0; round < 2; round++) {
        assert_int_equal(cmd_int(rw.w.server, "PEXPIRE " WORLD_NAME " %d", ENDURING_MS / 2), 1);
        assert_true(wait_until(is_raised_again, rw.w.server, HANG_MS));
        assert_true(rw_held(rw.read, A));
        assert_int_equal(try_as(rw.rival_write, B), HF_EBUSY);
    }
    int64_t before_ms = now_ms();
    left_ms = hf_lock_remaining_ms_as(rw.read, A);
    assert_true(before_ms + left_ms <= promised_ms + 1);
    assert_true(rw_hold_ttl(&rw, rw.w.client, A, 1) <= left_ms + 1000);
    int64_t until_ms = before_ms + left_ms;
    assert_int_equal(acquire_as(rw.rival_write, B, HANG_MS, 60000), HF_OK);
    assert_true(now_ms() >= until_ms - 1);
    assert_int_equal(hf_lock_release_as(rw.read, A), HF_ELOST);
    assert_int_equal(hf_lock_release_as(rw.rival_write, B), HF_OK);
    rw_assert_clean(&rw);
}

static bool lasts_long(void *server) {
    return pttl(server, WORLD_NAME) > 30000;
}

/* A longer fixed lease inside a watchdog's: Redisson lowers that, too. */
RW_CASE_WITH(a_long_nested_lease_survives_as_well, rw_watchdog(ENDURING_MS)) {
    assert_int_equal(acquire_as(rw->read, A, 0, HF_WATCHDOG), HF_OK);
    assert_int_equal(acquire_as(rw->read, A, 0, 60000), HF_OK);
    cmd_ok(rw->w.server, "PEXPIRE " WORLD_NAME " %d", ENDURING_MS);
    assert_true(wait_until(lasts_long, rw->w.server, HANG_MS));
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_OK);
    rw_assert_clean(rw);
}

/* Each side's handles hear of their side's holds. */
RW_CASE_WITH(loss_is_reported_to_the_side_that_lost, rw_watchdog(ENDURING_MS)) {
    struct world_events reads = {0}, writes = {0};
    assert_int_equal(hf_lock_on_lost(rw->read, world_on_event, &reads), HF_OK);
    assert_int_equal(hf_lock_on_lost(rw->write, world_on_event, &writes), HF_OK);
    assert_int_equal(try_as(rw->read, A), HF_OK);
    cmd_ok(rw->w.server, "DEL " WORLD_NAME);
    assert_true(world_wait_atomic(&reads.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release_as(rw->read, A), HF_ELOST);
    assert_int_equal(try_as(rw->write, A), HF_OK);
    cmd_ok(rw->w.server, "DEL " WORLD_NAME);
    assert_true(world_wait_atomic(&writes.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release_as(rw->write, A), HF_ELOST);
    assert_int_equal(atomic_load(&reads.losses), 1);
    assert_int_equal(atomic_load(&writes.losses), 1);
    assert_int_equal(world_stats(rw->w.client).losses, 2);
}

/* The lock is there, and so is our field, but no key of ours: to everybody else we are gone. */
RW_CASE_WITH(a_reader_whose_keys_are_gone_is_lost, rw_watchdog(ENDURING_MS)) {
    struct world_events events = {0};
    char key[160];
    assert_int_equal(hf_lock_on_lost(rw->read, world_on_event, &events), HF_OK);
    assert_int_equal(try_as(rw->rival_read, B), HF_OK);
    const int64_t leases[] = {HF_WATCHDOG, 60000};
    for (int i = 0; i < 2; i++) { /* also with a fixed lease, long before its end */
        assert_int_equal(acquire_as(rw->read, A, 0, leases[i]), HF_OK);
        rw_hold_key(rw->w.client, A, 1, key);
        cmd_ok(rw->w.server, "DEL %s", key);
        assert_true(world_wait_atomic(&events.losses, i + 1, HANG_MS));
        assert_int_equal(hf_lock_release_as(rw->read, A), HF_ELOST);
        assert_true(rw_held(rw->rival_read, B));
    }
    /* Found by the owner itself, before any renewal. */
    assert_int_equal(try_as(rw->rival_read, C), HF_OK);
    assert_int_equal(acquire_as(rw->rival_read, C, 0, HF_WATCHDOG), HF_OK);
    for (int level = 1; level <= 2; level++) {
        rw_hold_key(rw->w.rival, C, level, key);
        cmd_ok(rw->w.server, "DEL %s", key);
    }
    assert_int_equal(try_as(rw->rival_read, C), HF_ELOST);
    assert_int_equal(try_as(rw->rival_read, C), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->rival_read, C), HF_OK);
    assert_int_equal(hf_lock_release_as(rw->rival_read, B), HF_OK);
    rw_assert_clean(rw);
}

RUN_CASES(world_start_server, world_stop_server)
