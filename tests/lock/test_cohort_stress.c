/*
 * HF_COHORT under load: two clients with eight threads each, and asynchronous operations; waits
 * that end just as the lock is handed over, cancels, nesting, leases. No two are ever inside, every
 * holder can release, and nothing is left.
 */
#include "lock/cohort.h"
#include "support/crowd.h"

#define THREADS 8
#define ROUNDS 150
#define OPS 150

struct comer {
    struct crowd *crowd;
    hf_lock *lock;
    unsigned random;
};

static unsigned pick(struct comer *comer, unsigned below) {
    return (unsigned)rand_r(&comer->random) % below;
}

/* Times are such that many end when the lock comes. */
static int acquire(struct comer *comer) {
    hf_acquire_options options =
        world_wait_for(HF_FOREVER, pick(comer, 4) == 0 ? 60000 : HF_WATCHDOG);
    if (pick(comer, 3) == 0)
        options.wait_ms = pick(comer, 4);
    return hf_lock_acquire_with(comer->lock, &options, NULL);
}

static void *come_and_go(void *arg) {
    struct comer *comer = arg;
    struct crowd *crowd = comer->crowd;
    for (int round = 0; round < ROUNDS; round++) {
        int err = acquire(comer);
        crowd_expect(crowd, err == HF_OK || err == HF_ETIMEDOUT || err == HF_EBUSY);
        if (err != HF_OK)
            continue;
        bool twice = pick(comer, 4) == 0;
        if (twice)
            crowd_expect(crowd, hf_lock_acquire(comer->lock) == HF_OK);
        crowd_visit(crowd);
        if (twice)
            crowd_expect(crowd, hf_lock_release(comer->lock) == HF_OK);
        crowd_expect(crowd, hf_lock_release(comer->lock) == HF_OK);
    }
    return NULL;
}

/* One operation after the other; some are cancelled, and have it all the same. */
static void *start_and_cancel(void *arg) {
    struct comer *comer = arg;
    struct crowd *crowd = comer->crowd;
    for (int round = 0; round < OPS; round++) {
        own_op *op = NULL;
        hf_result result = HF_RESULT_INIT;
        hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
        crowd_expect(crowd, hf_lock_acquire_start(comer->lock, &options, NULL, NULL, &op) == HF_OK);
        if (op == NULL)
            continue;
        if (pick(comer, 2) == 0)
            hf_op_cancel(op);
        int err = hf_op_wait(op, HANG_MS, &result);
        crowd_expect(crowd, err == HF_OK || err == HF_ECANCELED);
        if (err == HF_OK) {
            crowd_visit(crowd);
            crowd_expect(crowd, hf_lock_release_as(comer->lock, result.owner) == HF_OK);
        }
    }
    return NULL;
}

static void contend(hf_kind kind, int64_t passes) {
    OWN(world_end) struct world w;
    struct crowd crowd = {0};
    struct comer comers[2][THREADS + 1];
    world_begin(&w, NULL);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i <= THREADS; i++) {
            struct comer *comer = &comers[side][i];
            hf_client *client = side == 0 ? w.client : w.rival;
            *comer = (struct comer){.crowd = &crowd, .random = (unsigned)(side * 100 + i)};
            comer->lock = cohort_lock(client, kind, 0, passes, 2);
            crowd_add(&crowd, i < THREADS ? come_and_go : start_and_cancel, comer);
        }
    crowd_join(&crowd);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i <= THREADS; i++)
            hf_lock_free(comers[side][i].lock);
    crowd_assert_exclusive(&crowd);
    assert_true(world_wait_free(&w, HANG_MS));
    assert_int_equal(world_stats(w.client).holds, 0);
    assert_int_equal(world_stats(w.client).losses, 0);
}

CASE(plain) {
    contend(HF_PLAIN, 1000);
}

CASE(plain_with_few_passes) {
    contend(HF_PLAIN, 3);
}

CASE(fair) {
    contend(HF_FAIR, 20);
}

RUN_CASES(world_start_server, world_stop_server)
