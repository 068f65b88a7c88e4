/* A world whose lock is a cohort's, and waiters of which it is known that they are in the queue. */
#ifndef HF_TEST_LOCK_COHORT_H
#define HF_TEST_LOCK_COHORT_H

#include "support/world.h"

/* Long enough for whatever a test does meanwhile. */
#define COHORT_LONG_MS 60000

static inline hf_lock *cohort_lock(hf_client *client, hf_kind kind, unsigned flags, int64_t passes,
                                   int64_t ms) {
    hf_lock *lock = NULL;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = kind;
    options.flags = HF_COHORT | flags;
    options.cohort_passes = passes;
    options.cohort_ms = ms;
    assert_int_equal(hf_lock_new_with(client, WORLD_NAME, strlen(WORLD_NAME), &options, &lock),
                     HF_OK);
    return lock;
}

/* The world's own lock becomes one. */
static inline void cohort_begin(struct world *w, const hf_options *options, int64_t passes,
                                int64_t ms) {
    world_begin(w, options);
    hf_lock_free(w->lock);
    w->lock = cohort_lock(w->client, HF_PLAIN, 0, passes, ms);
}
#define COHORT_CASE(name)                                                                          \
    CASE_IN(name, struct world, w, cohort_begin, world_end, NULL, 1000, COHORT_LONG_MS)

static inline hf_op *cohort_start(hf_lock *lock, hf_owner owner, int64_t wait_ms,
                                  hf_cancel *cancel) {
    hf_op *op = NULL;
    hf_acquire_options options = world_wait_for(wait_ms, HF_WATCHDOG);
    options.owner = owner;
    options.cancel = cancel;
    assert_int_equal(hf_lock_acquire_start(lock, &options, NULL, NULL, &op), HF_OK);
    return op;
}

/* Operations are begun in the order in which they were started: when this question, which needs no
 * server, has its answer, those before it are in the queue. */
static inline void cohort_all_have_come(hf_lock *lock) {
    hf_op *op = NULL;
    assert_int_equal(hf_lock_is_mine_start(lock, 999999, NULL, NULL, &op), HF_OK);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_OK);
    hf_op_free(op);
}

static inline int cohort_join(hf_op *op) {
    int err = hf_op_wait(op, HANG_MS, NULL);
    hf_op_free(op);
    return err;
}

static inline bool cohort_is_pending(hf_op *op) {
    return hf_op_wait(op, 0, NULL) == HF_EPENDING;
}

/* A turn of one millisecond is over when this returns: by the clock alone, so there is nothing to wait for. */
static inline void cohort_outlast_turn(void) {
    sleep_ms(5); /* a turn ends by the clock alone */
}

#endif
