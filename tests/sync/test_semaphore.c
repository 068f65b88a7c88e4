/*
 * The semaphore, as its callers see it: what Redisson's own tests ask of it (the C rows). The rules
 * that each of its calls keeps are in test_semaphore_calls.c, faults of the network in
 * test_semaphore_faults.c.
 *
 * The number on the server is looked at directly, whichever engine's server it is (support/either.h). Waits that are to end are waits for ever, with
 * the test's own limit.
 */
#include "sync/scene.h"

/* ---- One caller ---- */

static void C144_set_once(void **state) {
    (void)state;
    struct scene s;
    bool was_set = false, deleted = false;
    scene_begin(&s, NULL);
    scene_set_permits(s.sem, 10);
    assert_int_equal(hf_sem_try_set(s.sem, 15, 0, &was_set), HF_OK);
    assert_false(was_set);
    scene_assert_available(s.sem, 10);
    if (!server_is_other(s.server))
        assert_int_equal(pttl(s.server, SEM_NAME), -1);
    assert_int_equal(hf_sem_delete(s.sem, &deleted), HF_OK);
    assert_true(deleted);
    assert_int_equal(hf_sem_delete(s.sem, &deleted), HF_OK);
    assert_false(deleted);
    scene_end(&s);
}

static void C144_set_with_a_ttl(void **state) {
    (void)state;
    struct scene s;
    bool was_set = false;
    server_redis_only(scene_server(), "nodes with a TTL are off in ZooKeeper's servers");
    scene_begin(&s, NULL);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_sem_try_set(s.sem, 1, 500, &was_set), HF_OK);
    assert_true(was_set);
    int64_t permits = -1;
    assert_int_equal(hf_sem_available(s.sem, &permits), HF_OK);
    assert_true(permits == 1 || now_ms() - start_ms >= 500);
    while (key_exists(s.server, SEM_NAME))
        sleep_ms(1);
    assert_true(now_ms() - start_ms >= 500);
    scene_assert_available(s.sem, 0);
    scene_end(&s);
}

static void C145_add_permits(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    scene_set_permits(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 10), HF_OK);
    scene_assert_available(s.sem, 0);
    assert_int_equal(hf_sem_add(s.sem, 4), HF_OK);
    scene_assert_available(s.sem, 4);
    assert_int_equal(hf_sem_release(s.sem, 10), HF_OK);
    scene_assert_available(s.sem, 14);
    assert_int_equal(hf_sem_acquire(s.sem, 5), HF_OK);
    scene_assert_available(s.sem, 9);
    scene_end(&s);
}

static void C146_reduce_permits(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    scene_set_permits(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 10), HF_OK);
    assert_int_equal(hf_sem_add(s.sem, -5), HF_OK);
    scene_assert_available(s.sem, -5);
    assert_int_equal(hf_sem_release(s.sem, 10), HF_OK);
    scene_assert_available(s.sem, 5);
    assert_int_equal(hf_sem_acquire(s.sem, 5), HF_OK);
    scene_assert_available(s.sem, 0);
    scene_end(&s);
}

static void C150_release_without_permits(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_release(s.sem, 1), HF_OK);
    scene_assert_available(s.sem, 1);
    scene_end(&s);
}

static void C151_drain(void **state) {
    (void)state;
    struct scene s;
    int64_t permits = -99;
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_drain(s.sem, &permits), HF_OK);
    assert_int_equal(permits, 0);
    assert_false(server_has(s.server, SEM_NAME));
    scene_set_permits(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 3), HF_OK);
    assert_int_equal(hf_sem_drain(s.sem, &permits), HF_OK);
    assert_int_equal(permits, 7);
    scene_assert_available(s.sem, 0);
    scene_end(&s);
}

static void C152_release_acquire(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    scene_set_permits(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 1), HF_OK);
    scene_assert_available(s.sem, 9);
    assert_int_equal(hf_sem_release(s.sem, 1), HF_OK);
    scene_assert_available(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 5), HF_OK);
    scene_assert_available(s.sem, 5);
    assert_int_equal(hf_sem_release(s.sem, 5), HF_OK);
    scene_assert_available(s.sem, 10);
    scene_end(&s);
}

static void C153_U52_release_if_exists(void **state) {
    (void)state;
    struct scene s;
    bool released = false;
    scene_begin(&s, NULL);
    scene_set_permits(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 1), HF_OK);
    assert_int_equal(hf_sem_release_if_exists(s.sem, 1, &released), HF_OK);
    assert_true(released);
    scene_assert_available(s.sem, 10);
    server_drop(s.server, SEM_NAME);
    assert_int_equal(hf_sem_release_if_exists(s.sem, 1, &released), HF_OK);
    assert_false(released);
    assert_false(server_has(s.server, SEM_NAME));
    scene_end(&s);
}

static void U51_the_ttl_stays(void **state) {
    (void)state;
    struct scene s;
    int64_t permits = 0;
    server_redis_only(scene_server(), "nodes with a TTL are off in ZooKeeper's servers");
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_try_set(s.sem, 5, 60000, NULL), HF_OK);
    assert_int_equal(hf_sem_add(s.sem, 3), HF_OK);
    assert_int_equal(hf_sem_drain(s.sem, &permits), HF_OK);
    assert_int_equal(permits, 8);
    assert_int_equal(hf_sem_release(s.sem, 8), HF_OK);
    assert_int_equal(hf_sem_acquire(s.sem, 2), HF_OK);
    long long left_ms = pttl(s.server, SEM_NAME);
    assert_true(left_ms > 60000 - HANG_MS && left_ms <= 60000);
    scene_end(&s);
}

/* ---- Waiting ---- */

static void C141_acquire_after_add_permits(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_add(s.rival_sem, 1), HF_OK);
    waiter_acquire(&waiter, s.sem, 2, HF_FOREVER, NULL);
    assert_true(scene_wait_sem(&s, 2, 1));
    assert_int_equal(hf_sem_acquire(s.rival_sem, 1), HF_OK);
    assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
    /* It was told of one, and has looked. */
    assert_true(scene_wait_sem(&s, 3, 2));
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(hf_sem_add(s.rival_sem, 1), HF_OK);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000); /* the message, and not the poll */
    assert_int_equal(scene_number(SEM_NAME), 0);
    scene_end(&s);
}

static void C147_blocking_acquire(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    scene_begin(&s, NULL);
    scene_set_permits(s.sem, 1);
    assert_int_equal(hf_sem_acquire(s.rival_sem, 1), HF_OK);
    waiter_acquire(&waiter, s.sem, 1, HF_FOREVER, NULL);
    assert_true(scene_wait_sem(&s, 2, 1));
    assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    assert_int_equal(hf_sem_try(s.sem, 1), HF_EBUSY);
    scene_assert_available(s.sem, 0);
    hf_stats stats = scene_stats(s.client);
    assert_int_equal(stats.acquired, 1);
    assert_int_equal(stats.contended, 1);
    assert_int_equal(stats.timed_out, 1);
    assert_int_equal(stats.wait.count, 1);
    assert_int_equal(stats.holds, 0);
    assert_int_equal(scene_stats(s.rival).released, 1);
    assert_true(scene_wait_no_channels(HANG_MS));
    scene_end(&s);
}

static void C148_C149_blocking_for_many(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        scene_begin(&s, NULL);
        scene_set_permits(s.sem, 5);
        assert_int_equal(form->acquire(&s, 3, HF_FOREVER), HF_OK);
        assert_int_equal(form->acquire(&s, 4, 0), HF_EBUSY);
        struct waiter waiter;
        waiter_acquire(&waiter, s.sem, 4, HANG_MS, NULL);
        assert_true(scene_wait_sem(&s, 4, 2)); /* who tries once leaves no watch */
        assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
        assert_true(scene_wait_sem(&s, 5, 3));
        assert_false(atomic_load(&waiter.done));
        assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
        assert_int_equal(waiter_join(&waiter), HF_OK);
        assert_true(waiter.took_ms < 10000);
        scene_assert_available(s.sem, 0);
        scene_end(&s);
    }
}

static void wait_runs_out(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        scene_begin(&s, NULL);
        scene_set_permits(s.sem, 1);
        int64_t start_ms = now_ms();
        assert_int_equal(form->acquire(&s, 2, PASSING_MS), HF_ETIMEDOUT);
        assert_true(now_ms() - start_ms >= PASSING_MS);
        assert_int_equal(scene_number(SEM_NAME), 1);
        assert_int_equal(scene_stats(s.client).timed_out, 1);
        assert_int_equal(scene_stats(s.client).unknowns, 0);
        scene_end(&s);
    }
}

/* A semaphore that does not exist has no permits, and comes to have some. */
static void waits_for_one_that_is_not_there_yet(void **state) {
    (void)state;
    struct scene s;
    struct waiter waiter;
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_try(s.sem, 1), HF_EBUSY);
    waiter_acquire(&waiter, s.sem, 1, HF_FOREVER, NULL);
    assert_true(scene_wait_sem(&s, 3, 2)); /* and whether it exists */
    scene_set_permits(s.rival_sem, 1);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    scene_end(&s);
}

/* Several waiters of one process: whoever can be served by what came back is, the small beside the
 * large. */
static void one_release_wakes_all_it_can_serve(void **state) {
    (void)state;
    enum { SMALL = 5 };
    struct scene s;
    struct waiter large, small[SMALL];
    scene_begin(&s, NULL);
    scene_set_permits(s.sem, 0);
    waiter_acquire(&large, s.sem, 10, HF_FOREVER, NULL);
    for (int i = 0; i < SMALL; i++)
        waiter_acquire(&small[i], s.sem, 1, HF_FOREVER, NULL);
    assert_true(scene_wait_sem(&s, 2 * (SMALL + 1), SMALL + 1));
    assert_int_equal(hf_sem_release(s.rival_sem, SMALL), HF_OK);
    for (int i = 0; i < SMALL; i++) {
        assert_int_equal(waiter_join(&small[i]), HF_OK);
        assert_true(small[i].took_ms < 10000);
    }
    assert_false(atomic_load(&large.done));
    assert_int_equal(hf_sem_release(s.rival_sem, 10), HF_OK);
    assert_int_equal(waiter_join(&large), HF_OK);
    assert_int_equal(scene_number(SEM_NAME), 0);
    scene_end(&s);
}

/* ---- Many ---- */

struct crowd {
    hf_client *client;
    int rounds;
    int64_t permits;
    /* read and written in two steps, which only the semaphore keeps together */
    atomic_int *counter;
    int failures;
};

static void *work_in_crowd(void *arg) {
    struct crowd *crowd = arg;
    hf_sem *sem = scene_sem(crowd->client);
    for (int i = 0; i < crowd->rounds; i++) {
        if (hf_sem_acquire(sem, crowd->permits) != HF_OK) {
            crowd->failures++;
            continue;
        }
        int seen = atomic_load_explicit(crowd->counter, memory_order_relaxed);
        sleep_ms(1);
        atomic_store_explicit(crowd->counter, seen + 1, memory_order_relaxed);
        crowd->failures += hf_sem_release(sem, crowd->permits) != HF_OK;
    }
    hf_sem_free(sem);
    return NULL;
}

/* `permits` of all there are, so that only one can be inside. */
static void run_crowd(int clients, int threads_each, int rounds, int64_t permits, bool one_or_all) {
    enum { MOST = 64 };
    struct scene s;
    hf_client *client[MOST];
    struct crowd crowd[MOST];
    pthread_t thread[MOST];
    atomic_int counter = 0;
    int n = clients * threads_each;
    scene_begin(&s, NULL);
    scene_set_permits(s.rival_sem, permits);
    for (int i = 0; i < clients; i++)
        assert_int_equal(hf_open(server_url(s.server), NULL, &client[i]), HF_OK);
    for (int i = 0; i < n; i++) {
        int64_t mine = one_or_all && i % 2 == 0 ? 1 : permits;
        crowd[i] = (struct crowd){client[i % clients], rounds, mine, &counter, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, work_in_crowd, &crowd[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(crowd[i].failures, 0);
    }
    for (int i = 0; i < clients; i++)
        assert_int_equal(hf_close(client[i]), HF_OK);
    if (!one_or_all)
        assert_int_equal(counter, n * rounds);
    assert_int_equal(scene_number(SEM_NAME), permits);
    scene_end(&s);
}

static void C154_one_permit_is_a_mutex(void **state) {
    (void)state;
    run_crowd(1, 15, 1, 1, false);
}

static void C155_one_or_all_of_the_most(void **state) {
    (void)state;
    run_crowd(4, 1, 10, HF_PERMITS_MAX, true);
}

static void C156_a_mutex_across_clients(void **state) {
    (void)state;
    run_crowd(8, 1, 10, 1, false);
}

struct guest {
    hf_client *client;
    struct barrier *met, *left;
    int wrong;
};

static void *meet(void *arg) {
    struct guest *guest = arg;
    hf_sem *sem = scene_sem(guest->client);
    int64_t permits = -1;
    guest->wrong += hf_sem_acquire(sem, 1) != HF_OK;
    guest->wrong += !barrier_wait(guest->met, HANG_MS);
    guest->wrong += hf_sem_available(sem, &permits) != HF_OK || permits != 0;
    guest->wrong += hf_sem_try(sem, 1) != HF_EBUSY;
    guest->wrong += !barrier_wait(guest->left, HANG_MS);
    guest->wrong += hf_sem_release(sem, 1) != HF_OK;
    hf_sem_free(sem);
    return NULL;
}

static void C330_ten_permits_meet_at_a_barrier(void **state) {
    (void)state;
    enum { PERMITS = 10, GUESTS = 30 };
    struct scene s;
    struct guest guest[GUESTS];
    pthread_t thread[GUESTS];
    struct barrier *met = barrier_new(PERMITS), *left = barrier_new(PERMITS);
    scene_begin(&s, NULL);
    scene_set_permits(s.rival_sem, PERMITS);
    for (int i = 0; i < GUESTS; i++) {
        guest[i] = (struct guest){NULL, met, left, 0};
        assert_int_equal(hf_open(server_url(s.server), NULL, &guest[i].client), HF_OK);
        assert_int_equal(pthread_create(&thread[i], NULL, meet, &guest[i]), 0);
    }
    for (int i = 0; i < GUESTS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(guest[i].wrong, 0);
        assert_int_equal(hf_close(guest[i].client), HF_OK);
    }
    assert_int_equal(scene_number(SEM_NAME), PERMITS);
    barrier_free(met);
    barrier_free(left);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C144_set_once),
        cmocka_unit_test(C144_set_with_a_ttl),
        cmocka_unit_test(C145_add_permits),
        cmocka_unit_test(C146_reduce_permits),
        cmocka_unit_test(C150_release_without_permits),
        cmocka_unit_test(C151_drain),
        cmocka_unit_test(C152_release_acquire),
        cmocka_unit_test(C153_U52_release_if_exists),
        cmocka_unit_test(U51_the_ttl_stays),
        cmocka_unit_test(C141_acquire_after_add_permits),
        cmocka_unit_test(C147_blocking_acquire),
        cmocka_unit_test(C148_C149_blocking_for_many),
        cmocka_unit_test(wait_runs_out),
        cmocka_unit_test(waits_for_one_that_is_not_there_yet),
        cmocka_unit_test(one_release_wakes_all_it_can_serve),
        cmocka_unit_test(C154_one_permit_is_a_mutex),
        cmocka_unit_test(C155_one_or_all_of_the_most),
        cmocka_unit_test(C156_a_mutex_across_clients),
        cmocka_unit_test(C330_ten_permits_meet_at_a_barrier),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
