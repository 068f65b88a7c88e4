/*
 * The heap of timers against a model: an array that is searched for its smallest time.
 *
 * Random adds, removals and takings of the first, in mixes that make the heap wide and deep; every
 * step compares the first. The seed is printed, HF_SEED repeats a run.
 */
#include "support/case.h"
#include "support/random.h"
#include "task/timer.h"

#define TIMERS 300

/* What the model says is first: the smallest time. Several may share it. */
static int64_t smallest(const struct hfi_timer *timers, const bool *is_set, bool *ret_any) {
    int64_t at_ms = INT64_MAX;
    *ret_any = false;
    for (size_t i = 0; i < TIMERS; i++) {
        if (!is_set[i])
            continue;
        *ret_any = true;
        at_ms = timers[i].at_ms < at_ms ? timers[i].at_ms : at_ms;
    }
    return at_ms;
}

static void check(const struct hfi_timers *heap, const struct hfi_timer *timers,
                  const bool *is_set) {
    bool any;
    int64_t at_ms = smallest(timers, is_set, &any);
    const struct hfi_timer *first = hfi_timers_first(heap);
    assert_int_equal(first != NULL, any);
    if (first != NULL) {
        assert_true(first->set && is_set[first - timers]);
        assert_int_equal(first->at_ms, at_ms);
    }
}

CASE(random_steps_agree_with_the_model) {
    uint64_t random = random_seed();
    for (int round = 0; round < 20; round++) {
        struct hfi_timers heap = {NULL};
        struct hfi_timer timers[TIMERS] = {{0}};
        bool is_set[TIMERS] = {false};
        uint64_t adds = 1 + random_next(&random) % 9; /* of ten steps */
        uint64_t range = 1 + random_next(&random) % (round % 2 == 0 ? 10 : 1000000);
        for (int step = 0; step < 3000; step++) {
            size_t i = random_next(&random) % TIMERS;
            struct hfi_timer *first = hfi_timers_first(&heap);
            if (random_next(&random) % 10 < adds) {
                hfi_timers_remove(&heap, &timers[i]); /* as setting an alarm again does */
                hfi_timers_add(&heap, &timers[i], (int64_t)(random_next(&random) % range));
                is_set[i] = true;
            } else if (random_next(&random) % 2 == 0 && first != NULL) {
                hfi_timers_remove(&heap, first);
                is_set[first - timers] = false;
            } else {
                hfi_timers_remove(&heap, &timers[i]); /* set or not */
                is_set[i] = false;
            }
            for (size_t k = 0; step % 500 == 0 && k < TIMERS; k++)
                assert_int_equal(timers[k].set, is_set[k]);
            check(&heap, timers, is_set);
        }
        int64_t before_ms = INT64_MIN;
        struct hfi_timer *first;
        while ((first = hfi_timers_first(&heap)) != NULL) { /* the rest comes in order */
            assert_true(first->at_ms >= before_ms);
            before_ms = first->at_ms;
            hfi_timers_remove(&heap, first);
            is_set[first - timers] = false;
            assert_false(first->set);
        }
        for (size_t k = 0; k < TIMERS; k++)
            assert_false(is_set[k]);
    }
}

CASE(removing_one_that_is_not_set_is_fine) {
    struct hfi_timers heap = {NULL};
    struct hfi_timer one = {0}, other = {0};
    hfi_timers_remove(&heap, &one);
    assert_null(hfi_timers_first(&heap));
    hfi_timers_add(&heap, &one, 5);
    hfi_timers_remove(&heap, &other);
    assert_ptr_equal(hfi_timers_first(&heap), &one);
    hfi_timers_remove(&heap, &one);
    hfi_timers_remove(&heap, &one);
    assert_null(hfi_timers_first(&heap));
}

CASE(extreme_times_keep_their_order) {
    struct hfi_timers heap = {NULL};
    struct hfi_timer last = {0}, first = {0}, middle = {0};
    hfi_timers_add(&heap, &last, INT64_MAX);
    hfi_timers_add(&heap, &middle, 0);
    hfi_timers_add(&heap, &first, INT64_MIN);
    assert_ptr_equal(hfi_timers_first(&heap), &first);
    hfi_timers_remove(&heap, &first);
    assert_ptr_equal(hfi_timers_first(&heap), &middle);
    hfi_timers_remove(&heap, &middle);
    assert_ptr_equal(hfi_timers_first(&heap), &last);
}

RUN_CASES(NULL, NULL)
