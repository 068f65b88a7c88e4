/*
 * Permits that are given up without a release are given back, too; and if their object is deleted,
 * their holders are notified at once.
 *
 * Another client raises the lease at the server, so no permit ends there by itself.
 */
#include "sync/pool.h"

#include <time.h>

#define FAR 4102444800000 /* the year 2100 */

static void lengthen_all(struct world *w) {
    own_reply *taken = cmd(w->server, "ZRANGE " POOL_TAKEN " 0 -1");
    assert_non_null(taken);
    for (size_t i = 0; i < taken->elements; i++)
        cmd_ok(w->server, "ZADD " POOL_TAKEN " XX %lld %b", FAR, taken->element[i]->str,
               taken->element[i]->len);
}

CASE(permits_that_ran_out_are_given_back) {
    OWN(world_end) struct world w;
    enum { MANY = 100 };
    hf_permit_id ids[MANY];
    pool_begin(&w, NULL, MANY + 1);
    pool_take(w.permits, MANY, ENDURING_MS, ids); /* they are lengthened before that */
    lengthen_all(&w);
    assert_true(pool_wait_there(MANY + 1, 0, HANG_MS));
    assert_int_equal(world_stats(w.client).losses, MANY);
    assert_int_equal(hf_permits_release(w.permits, &ids[0]), HF_ELOST);
    pool_assert_counts(w.permits, MANY + 1, MANY + 1, 0); /* once, and not twice */
}

POOL_CASE(a_late_extension_releases_it, 1) {
    hf_permit_id id;
    pool_take(w->permits, 1, PASSING_MS, &id);
    lengthen_all(w);
    pool_wait_ended(now_ms() + PASSING_MS + 10, 1);
    assert_int_equal(hf_permits_extend(w->permits, &id, 60000), HF_ENOTOWNER);
    assert_true(pool_wait_there(1, 0, HANG_MS));
}

CASE(a_permit_holder_is_notified_of_the_deletion) {
    static const int64_t leases[] = {HF_WATCHDOG, 1800000};
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
        struct world w;
        struct pool_events events = {0};
        hf_permit_id ids[2];
        bool deleted = false;
        hf_options options = HF_OPTIONS_INIT;
        options.watchdog_ms = 1800000; /* it does not find out by itself */
        pool_begin(&w, &options, 2);
        assert_int_equal(hf_permits_on_lost(w.permits, pool_on_event, &events), HF_OK);
        pool_take(w.permits, 2, leases[i], ids);
        assert_true(wait_until(server_questions_are_received, w.server, HANG_MS));
        assert_int_equal(hf_permits_delete(w.rival_permits, &deleted), HF_OK);
        assert_true(deleted);
        assert_true(world_wait_atomic(&events.losses, 2, HANG_MS));
        world_end(&w);
    }
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The server reads its clock in whole milliseconds, so a permit may be free that much early. */
POOL_CASE(remaining_ms_is_never_more_than_the_server_keeps, 1) {
    enum { LEASE_MS = 60000, WANTED = 50 };
    int known = 0;
    for (int i = 0; i < 20000 && known < WANTED; i++) {
        hf_permit_id id;
        int64_t before_us = now_us();
        pool_take(w->rival_permits, 1, LEASE_MS, &id);
        int64_t after_us = now_us();
        int64_t left_ms = hf_permits_remaining_ms(w->rival_permits, &id);
        if (before_us / 1000 == after_us / 1000) {
            known++;
            assert_true(after_us + left_ms * 1000 <= (before_us / 1000 + LEASE_MS - 1) * 1000);
        }
        assert_int_equal(hf_permits_release(w->rival_permits, &id), HF_OK);
    }
    assert_int_equal(known, WANTED);
}

RUN_CASES(world_start_server, world_stop_server)
