/*
 * The fence check of the protected side: what it lets pass, what it says of the rest, and many
 * threads at one fence. No server.
 */
#include "support/case.h"
#include "support/crowd.h"

#include <holdfast/holdfast.h>
#include <pthread.h>

CASE(fence_refuses_late_tokens) {
    static const struct {
        int64_t token;
        int err;
        int64_t highest; /* afterwards */
    } steps[] = {
        {1, HF_OK, 1},
        {1, HF_OK, 1},
        {7, HF_OK, 7},
        {6, HF_ELOST, 7},
        {7, HF_OK, 7},
        {0, HF_EINVAL, 7},
        {-1, HF_EINVAL, 7},
        {8, HF_OK, 8},
        {INT64_MIN, HF_EINVAL, 8},
        {INT64_MAX, HF_OK, INT64_MAX},
        {8, HF_ELOST, INT64_MAX},
    };
    hf_fence fence = HF_FENCE_INIT;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(hf_fence_check(&fence, steps[i].token), steps[i].err);
        assert_true(fence.highest == steps[i].highest);
        if (steps[i].err != HF_OK)
            assert_int_equal(hf_last_error()->code, steps[i].err);
    }
    assert_int_equal(hf_fence_check(NULL, 1), HF_EINVAL);
}

CASE(fence_continues_from_the_stored_token) {
    hf_fence fence = {.highest = 41};
    assert_int_equal(hf_fence_check(&fence, 40), HF_ELOST);
    assert_non_null(strstr(hf_last_error()->text, "40"));
    assert_non_null(strstr(hf_last_error()->text, "41"));
    assert_int_equal(hf_fence_check(&fence, 42), HF_OK);
}

/* Every thread offers its tokens in rising order. What passes is never below what the same thread
 * saw as the highest before it asked, and in the end the highest of all is remembered. */
enum { THREADS = 4, TOKENS = 20000 };
static hf_fence shared = HF_FENCE_INIT;

static void *offer(void *arg) {
    int64_t first = *(const int64_t *)arg;
    for (int64_t i = 0; i < TOKENS; i++) {
        int64_t token = first + i * THREADS;
        int64_t before = __atomic_load_n(&shared.highest, __ATOMIC_ACQUIRE);
        int err = hf_fence_check(&shared, token);
        int64_t after = __atomic_load_n(&shared.highest, __ATOMIC_ACQUIRE);
        if (after < before || after < token || (err == HF_OK && token < before) ||
            (err == HF_ELOST && token >= after))
            return "wrong";
    }
    return NULL;
}

CASE(fence_only_rises_under_many_threads) {
    struct crowd crowd = {0};
    int64_t firsts[THREADS];
    for (int i = 0; i < THREADS; i++) {
        firsts[i] = i + 1;
        crowd_add(&crowd, offer, &firsts[i]);
    }
    crowd_join(&crowd);
    assert_true(shared.highest == THREADS * TOKENS);
}

RUN_CASES(NULL, NULL)
