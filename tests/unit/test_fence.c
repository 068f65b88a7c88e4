/*
 * The fence check of the protected side: what it lets pass, what it says of the rest, and many
 * threads at one fence. No server.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <holdfast/holdfast.h>
#include <pthread.h>
#include <string.h>

static void fence_lets_nobody_pass_who_comes_late(void **state) {
    (void)state;
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

static void fence_goes_on_from_what_was_stored(void **state) {
    (void)state;
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

static void fence_only_rises_under_many_threads(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    int64_t firsts[THREADS];
    for (int i = 0; i < THREADS; i++) {
        firsts[i] = i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, offer, &firsts[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_true(shared.highest == THREADS * TOKENS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fence_lets_nobody_pass_who_comes_late),
        cmocka_unit_test(fence_goes_on_from_what_was_stored),
        cmocka_unit_test(fence_only_rises_under_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
