/*
 * Permits that are given up without a release are given back, too; and those whose object somebody
 * deletes hear of it at once.
 *
 * Somebody else lengthens the lease at the server, so nothing ends there by itself.
 */
#include "sync/pool.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FAR 4102444800000 /* the year 2100 */

static void lengthen_all(struct pool *p) {
    redisReply *taken = cmd(p->server, "ZRANGE " POOL_TAKEN " 0 -1");
    assert_non_null(taken);
    for (size_t i = 0; i < taken->elements; i++)
        cmd_ok(p->server, "ZADD " POOL_TAKEN " XX %lld %b", FAR, taken->element[i]->str,
               taken->element[i]->len);
    freeReplyObject(taken);
}

static void permits_that_ran_out_are_given_back(void **state) {
    (void)state;
    enum { MANY = 100 };
    hf_permit_id ids[MANY];
    struct pool p;
    pool_begin(&p, NULL, MANY + 1);
    pool_take(p.permits, MANY, ENDURING_MS, ids); /* they are lengthened before that */
    lengthen_all(&p);
    assert_true(pool_wait_there(MANY + 1, 0, HANG_MS));
    assert_int_equal(scene_stats(p.client).losses, MANY);
    assert_int_equal(hf_permits_release(p.permits, &ids[0]), HF_ELOST);
    pool_assert_counts(p.permits, MANY + 1, MANY + 1, 0); /* once, and not twice */
    pool_end(&p);
}

static void an_extension_that_comes_too_late_gives_it_back(void **state) {
    (void)state;
    hf_permit_id id;
    struct pool p;
    pool_begin(&p, NULL, 1);
    pool_take(p.permits, 1, PASSING_MS, &id);
    lengthen_all(&p);
    sleep_ms(PASSING_MS + 10);
    assert_int_equal(hf_permits_extend(p.permits, &id, 60000), HF_ENOTOWNER);
    assert_true(pool_wait_there(1, 0, HANG_MS));
    pool_end(&p);
}

static void whoever_holds_permits_hears_of_their_deletion(void **state) {
    (void)state;
    static const int64_t leases[] = {HF_WATCHDOG, 1800000};
    for (size_t i = 0; i < sizeof leases / sizeof *leases; i++) {
        struct pool p;
        struct pool_events events = {0};
        hf_permit_id ids[2];
        bool deleted = false;
        hf_options options = HF_OPTIONS_INIT;
        options.watchdog_ms = 1800000; /* it does not find out by itself */
        pool_begin(&p, &options, 2);
        assert_int_equal(hf_permits_on_lost(p.permits, pool_on_event, &events), HF_OK);
        pool_take(p.permits, 2, leases[i], ids);
        assert_true(wait_until(server_questions_are_heard, p.server, HANG_MS));
        assert_int_equal(hf_permits_delete(p.rival_permits, &deleted), HF_OK);
        assert_true(deleted);
        assert_true(pool_wait_atomic(&events.losses, 2, HANG_MS));
        pool_end(&p);
    }
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* The server reads its clock in whole milliseconds, so a permit may be free that much early. */
static void remaining_ms_is_never_more_than_the_server_keeps(void **state) {
    (void)state;
    enum { LEASE_MS = 60000, WANTED = 50 };
    struct pool p;
    int known = 0;
    pool_begin(&p, NULL, 1);
    for (int i = 0; i < 20000 && known < WANTED; i++) {
        hf_permit_id id;
        int64_t before_us = now_us();
        pool_take(p.rival_permits, 1, LEASE_MS, &id);
        int64_t after_us = now_us();
        int64_t left_ms = hf_permits_remaining_ms(p.rival_permits, &id);
        if (before_us / 1000 == after_us / 1000) {
            known++;
            assert_true(after_us + left_ms * 1000 <= (before_us / 1000 + LEASE_MS - 1) * 1000);
        }
        assert_int_equal(hf_permits_release(p.rival_permits, &id), HF_OK);
    }
    assert_int_equal(known, WANTED);
    pool_end(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permits_that_ran_out_are_given_back),
        cmocka_unit_test(an_extension_that_comes_too_late_gives_it_back),
        cmocka_unit_test(whoever_holds_permits_hears_of_their_deletion),
        cmocka_unit_test(remaining_ms_is_never_more_than_the_server_keeps),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
