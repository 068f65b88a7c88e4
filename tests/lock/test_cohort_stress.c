/*
 * HF_COHORT with many at once: two clients, eight threads each, and operations beside them; waits that end at the
 * moment at which the lock is handed over, cancels, nesting, leases. Nobody meets anybody inside, whoever
 * got it can release it, and nothing is left.
 */
#include "lock/cohort.h"

#include <stdio.h>
#include <stdlib.h>

#define THREADS 8
#define ROUNDS 150
#define OPS 150

struct crowd {
    atomic_int inside, clashes, failures, entered;
};

struct comer {
    struct crowd *crowd;
    hf_lock *lock;
    unsigned random;
    pthread_t thread;
};

static unsigned pick(struct comer *comer, unsigned below) {
    return (unsigned)rand_r(&comer->random) % below;
}

static void note(struct crowd *crowd, bool good) {
    if (!good)
        atomic_fetch_add(&crowd->failures, 1);
}

static void be_inside(struct crowd *crowd) {
    if (atomic_fetch_add(&crowd->inside, 1) != 0)
        atomic_fetch_add(&crowd->clashes, 1);
    atomic_fetch_add(&crowd->entered, 1);
    atomic_fetch_sub(&crowd->inside, 1);
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
        note(crowd, err == HF_OK || err == HF_ETIMEDOUT || err == HF_EBUSY);
        if (err != HF_OK)
            continue;
        bool twice = pick(comer, 4) == 0;
        if (twice)
            note(crowd, hf_lock_acquire(comer->lock) == HF_OK);
        be_inside(crowd);
        if (twice)
            note(crowd, hf_lock_release(comer->lock) == HF_OK);
        note(crowd, hf_lock_release(comer->lock) == HF_OK);
    }
    return NULL;
}

/* One operation after the other; some are cancelled, and have it all the same. */
static void *start_and_cancel(void *arg) {
    struct comer *comer = arg;
    struct crowd *crowd = comer->crowd;
    for (int round = 0; round < OPS; round++) {
        hf_op *op = NULL;
        hf_result result = HF_RESULT_INIT;
        hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
        note(crowd, hf_lock_acquire_start(comer->lock, &options, NULL, NULL, &op) == HF_OK);
        if (op == NULL)
            continue;
        if (pick(comer, 2) == 0)
            hf_op_cancel(op);
        int err = hf_op_wait(op, HANG_MS, &result);
        note(crowd, err == HF_OK || err == HF_ECANCELED);
        if (err == HF_OK) {
            be_inside(crowd);
            note(crowd, hf_lock_release_as(comer->lock, result.owner) == HF_OK);
        }
        hf_op_free(op);
    }
    return NULL;
}

static void contend(hf_kind kind, int64_t passes) {
    struct world w;
    struct crowd crowd = {0};
    struct comer comers[2][THREADS + 1];
    world_begin(&w, NULL);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i <= THREADS; i++) {
            struct comer *comer = &comers[side][i];
            hf_client *client = side == 0 ? w.client : w.rival;
            *comer = (struct comer){.crowd = &crowd, .random = (unsigned)(side * 100 + i)};
            comer->lock = cohort_lock(client, kind, 0, passes, 2);
            assert_int_equal(pthread_create(&comer->thread, NULL,
                                            i < THREADS ? come_and_go : start_and_cancel, comer),
                             0);
        }
    for (int side = 0; side < 2; side++)
        for (int i = 0; i <= THREADS; i++) {
            assert_int_equal(pthread_join(comers[side][i].thread, NULL), 0);
            hf_lock_free(comers[side][i].lock);
        }
    assert_int_equal(atomic_load(&crowd.clashes), 0);
    assert_int_equal(atomic_load(&crowd.failures), 0);
    assert_true(atomic_load(&crowd.entered) > 0);
    assert_true(world_wait_free(&w, HANG_MS));
    assert_int_equal(world_stats(w.client).holds, 0);
    assert_int_equal(world_stats(w.client).losses, 0);
    world_end(&w);
}

static void plain(void **state) {
    (void)state;
    contend(HF_PLAIN, 1000);
}

static void plain_with_few_passes(void **state) {
    (void)state;
    contend(HF_PLAIN, 3);
}

static void fair(void **state) {
    (void)state;
    contend(HF_FAIR, 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),
        cmocka_unit_test(plain_with_few_passes),
        cmocka_unit_test(fair),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
