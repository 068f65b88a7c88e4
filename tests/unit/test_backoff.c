/*
 * C210 and the spin lock's own sleeps: how long a waiter that nobody wakes sleeps between attempts;
 * and the pauses of what was refused.
 *
 * The chance in a sleep is an argument, so every value it can have is looked at. No server, no time
 * passes.
 */

#include "base/backoff.h"
#include "base/jitter.h"
#include "redis/kinds/kind.h"
#include "support/case.h"

#define DRAWS 200 /* more than any number of pauses here: all outcomes of a throw */

struct range {
    int64_t least_ms, most_ms;
};

static struct range range_of(const struct hfi_backoff *backoff, unsigned pauses) {
    struct range range = {INT64_MAX, 0};
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        int64_t pause_ms = hfi_backoff_ms(backoff, pauses, draw);
        range.least_ms = pause_ms < range.least_ms ? pause_ms : range.least_ms;
        range.most_ms = pause_ms > range.most_ms ? pause_ms : range.most_ms;
    }
    return range;
}

CASE(C210_sequence_of_sleeps) {
    static const struct hfi_backoff backoff = {.first_ms = 10, .max_ms = 100, .factor = 3};
    static const struct range wanted[] = {{10, 10}, {30, 31}, {90, 92}, {100, 103}, {100, 104}};
    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct range range = range_of(&backoff, i);
        assert_in_range(range.least_ms, wanted[i].least_ms, wanted[i].most_ms);
        assert_in_range(range.most_ms, wanted[i].least_ms, wanted[i].most_ms);
    }
    assert_int_equal(range_of(&backoff, 2).most_ms, 92); /* there is chance in it */
}

CASE(spin_doubles_from_one_to_128) {
    const struct hfi_backoff *backoff = &hfi_spin_backoff;
    assert_ptr_equal(hfi_redis_kind_of(&hfi_kind_spin)->waiting, &hfi_wait_spin);
    for (unsigned pauses = 0; pauses < 7; pauses++) {
        struct range range = range_of(backoff, pauses);
        assert_int_equal(range.least_ms, (int64_t)1 << pauses);
        assert_int_equal(range.most_ms, ((int64_t)1 << pauses) + pauses);
    }
    static const unsigned later[] = {7, 8, 63, 64, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        struct range range = range_of(backoff, later[i]);
        assert_int_equal(range.least_ms, 128);
        assert_int_equal(range.most_ms, 128);
    }
    assert_ptr_equal(hfi_redis_kind_of(&hfi_kind_plain)->waiting, &hfi_wait_subscribe);
}

CASE(pauses_are_spread_between_half_and_all) {
    static const struct hfi_backoff backoff = {.first_ms = 20, .max_ms = 100, .factor = 2};
    static const struct range wanted[] = {{10, 20}, {20, 40}, {40, 80}, {50, 100}, {50, 100}};
    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct range range = {INT64_MAX, 0};
        for (uint64_t draw = 0; draw < DRAWS; draw++) {
            int64_t ms = hfi_backoff_spread_ms(&backoff, i, draw);
            range.least_ms = ms < range.least_ms ? ms : range.least_ms;
            range.most_ms = ms > range.most_ms ? ms : range.most_ms;
        }
        assert_int_equal(range.least_ms, wanted[i].least_ms);
        assert_int_equal(range.most_ms, wanted[i].most_ms);
    }
    assert_in_range(hfi_backoff_spread_ms(&backoff, UINT32_MAX, 7), 50, 100);
}

/* What comes out of a clock and an address still fills the whole range. */
CASE(jitter_reaches_every_value) {
    unsigned seen[6] = {0};
    char salts[1000];
    for (size_t i = 0; i < sizeof salts; i++)
        seen[hfi_jitter_bits(&salts[i]) % 6]++;
    for (size_t i = 0; i < 6; i++)
        assert_true(seen[i] > 0);
}

/* As a handle may want it. */
CASE(a_factor_of_one_does_not_grow) {
    static const struct hfi_backoff backoff = {.first_ms = 10, .max_ms = 40, .factor = 1};
    static const unsigned pauses[] = {0, 1, 7, 29, 30, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        struct range range = range_of(&backoff, pauses[i]);
        assert_int_equal(range.least_ms, 10);
        assert_in_range(range.most_ms, 10, 40);
    }
}

RUN_CASES(NULL, NULL)
