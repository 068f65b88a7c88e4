/*
 * The semaphore, as its callers see it: what Redisson's own tests ask of it (the C rows). The rules
 * that each of its calls keeps are in test_semaphore_calls.c, faults of the network in
 * test_semaphore_faults.c.
 *
 * The number on the server is looked at directly, whichever engine's server it is
 * (support/either.h). Waits that are to end are waits for ever, with the test's own limit.
 */
#include "support/crowd.h"
#include "sync/objects.h"

/* ---- One caller ---- */

OBJECTS_CASE(C144_set_once) {
    bool was_set = false, deleted = false;
    object_set_permits(w->sem, 10);
    assert_int_equal(hf_sem_try_set(w->sem, 15, 0, &was_set), HF_OK);
    assert_false(was_set);
    object_assert_available(w->sem, 10);
    if (!server_is_other(w->server))
        assert_int_equal(pttl(w->server, SEM_NAME), -1);
    assert_int_equal(hf_sem_delete(w->sem, &deleted), HF_OK);
    assert_true(deleted);
    assert_int_equal(hf_sem_delete(w->sem, &deleted), HF_OK);
    assert_false(deleted);
}

CASE(C144_set_with_a_ttl) {
    OWN(world_end) struct world w;
    bool was_set = false;
    server_redis_only(world_server(), "nodes with a TTL are off in ZooKeeper's servers");
    objects_begin(&w, NULL);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_sem_try_set(w.sem, 1, 500, &was_set), HF_OK);
    assert_true(was_set);
    int64_t permits = -1;
    assert_int_equal(hf_sem_available(w.sem, &permits), HF_OK);
    assert_true(permits == 1 || now_ms() - start_ms >= 500);
    assert_true(WAIT_FOR(!key_exists(w.server, SEM_NAME), HANG_MS));
    assert_true(now_ms() - start_ms >= 500);
    object_assert_available(w.sem, 0);
}

OBJECTS_CASE(C145_add_permits) {
    object_set_permits(w->sem, 10);
    assert_int_equal(hf_sem_acquire(w->sem, 10), HF_OK);
    object_assert_available(w->sem, 0);
    assert_int_equal(hf_sem_add(w->sem, 4), HF_OK);
    object_assert_available(w->sem, 4);
    assert_int_equal(hf_sem_release(w->sem, 10), HF_OK);
    object_assert_available(w->sem, 14);
    assert_int_equal(hf_sem_acquire(w->sem, 5), HF_OK);
    object_assert_available(w->sem, 9);
}

OBJECTS_CASE(C146_reduce_permits) {
    object_set_permits(w->sem, 10);
    assert_int_equal(hf_sem_acquire(w->sem, 10), HF_OK);
    assert_int_equal(hf_sem_add(w->sem, -5), HF_OK);
    object_assert_available(w->sem, -5);
    assert_int_equal(hf_sem_release(w->sem, 10), HF_OK);
    object_assert_available(w->sem, 5);
    assert_int_equal(hf_sem_acquire(w->sem, 5), HF_OK);
    object_assert_available(w->sem, 0);
}

OBJECTS_CASE(C150_release_without_permits) {
    assert_int_equal(hf_sem_release(w->sem, 1), HF_OK);
    object_assert_available(w->sem, 1);
}

OBJECTS_CASE(C151_drain) {
    int64_t permits = -99;
    assert_int_equal(hf_sem_drain(w->sem, &permits), HF_OK);
    assert_int_equal(permits, 0);
    assert_false(server_has(w->server, SEM_NAME));
    object_set_permits(w->sem, 10);
    assert_int_equal(hf_sem_acquire(w->sem, 3), HF_OK);
    assert_int_equal(hf_sem_drain(w->sem, &permits), HF_OK);
    assert_int_equal(permits, 7);
    object_assert_available(w->sem, 0);
}

OBJECTS_CASE(C152_release_acquire) {
    object_set_permits(w->sem, 10);
    assert_int_equal(hf_sem_acquire(w->sem, 1), HF_OK);
    object_assert_available(w->sem, 9);
    assert_int_equal(hf_sem_release(w->sem, 1), HF_OK);
    object_assert_available(w->sem, 10);
    assert_int_equal(hf_sem_acquire(w->sem, 5), HF_OK);
    object_assert_available(w->sem, 5);
    assert_int_equal(hf_sem_release(w->sem, 5), HF_OK);
    object_assert_available(w->sem, 10);
}

OBJECTS_CASE(C153_U52_release_if_exists) {
    bool released = false;
    object_set_permits(w->sem, 10);
    assert_int_equal(hf_sem_acquire(w->sem, 1), HF_OK);
    assert_int_equal(hf_sem_release_if_exists(w->sem, 1, &released), HF_OK);
    assert_true(released);
    object_assert_available(w->sem, 10);
    server_drop(w->server, SEM_NAME);
    assert_int_equal(hf_sem_release_if_exists(w->sem, 1, &released), HF_OK);
    assert_false(released);
    assert_false(server_has(w->server, SEM_NAME));
}

CASE(U51_the_ttl_stays) {
    OWN(world_end) struct world w;
    int64_t permits = 0;
    server_redis_only(world_server(), "nodes with a TTL are off in ZooKeeper's servers");
    objects_begin(&w, NULL);
    assert_int_equal(hf_sem_try_set(w.sem, 5, 60000, NULL), HF_OK);
    assert_int_equal(hf_sem_add(w.sem, 3), HF_OK);
    assert_int_equal(hf_sem_drain(w.sem, &permits), HF_OK);
    assert_int_equal(permits, 8);
    assert_int_equal(hf_sem_release(w.sem, 8), HF_OK);
    assert_int_equal(hf_sem_acquire(w.sem, 2), HF_OK);
    long long left_ms = pttl(w.server, SEM_NAME);
    assert_true(left_ms > 60000 - HANG_MS && left_ms <= 60000);
}

/* ---- Waiting ---- */

OBJECTS_CASE(C141_acquire_after_add_permits) {
    struct world_caller waiter;
    assert_int_equal(hf_sem_add(w->rival_sem, 1), HF_OK);
    world_call_sem(&waiter, w->sem, 2, HF_FOREVER, NULL);
    assert_true(object_wait_sem(w, 2, 1));
    assert_int_equal(hf_sem_acquire(w->rival_sem, 1), HF_OK);
    assert_int_equal(hf_sem_release(w->rival_sem, 1), HF_OK);
    /* It was notified of one, and has looked. */
    assert_true(object_wait_sem(w, 3, 2));
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(hf_sem_add(w->rival_sem, 1), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000); /* the message, and not the poll */
    assert_int_equal(object_number(SEM_NAME), 0);
}

OBJECTS_CASE(C147_blocking_acquire) {
    struct world_caller waiter;
    object_set_permits(w->sem, 1);
    assert_int_equal(hf_sem_acquire(w->rival_sem, 1), HF_OK);
    world_call_sem(&waiter, w->sem, 1, HF_FOREVER, NULL);
    assert_true(object_wait_sem(w, 2, 1));
    assert_int_equal(hf_sem_release(w->rival_sem, 1), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    assert_int_equal(hf_sem_try(w->sem, 1), HF_EBUSY);
    object_assert_available(w->sem, 0);
    hf_stats stats = world_stats(w->client);
    assert_int_equal(stats.acquired, 1);
    assert_int_equal(stats.contended, 1);
    assert_int_equal(stats.timed_out, 1);
    assert_int_equal(stats.wait.count, 1);
    assert_int_equal(stats.holds, 0);
    assert_int_equal(world_stats(w->rival).released, 1);
    assert_true(object_wait_no_channels(HANG_MS));
}

ROW_CASES_IN(C148_C149_blocking_for_many, form, object_forms, struct world, w, objects_begin,
             world_end, NULL) {
    object_set_permits(w->sem, 5);
    assert_int_equal(form->acquire(w, 3, HF_FOREVER), HF_OK);
    assert_int_equal(form->acquire(w, 4, 0), HF_EBUSY);
    struct world_caller waiter;
    world_call_sem(&waiter, w->sem, 4, HANG_MS, NULL);
    assert_true(object_wait_sem(w, 4, 2)); /* who tries once leaves no watch */
    assert_int_equal(hf_sem_release(w->rival_sem, 1), HF_OK);
    assert_true(object_wait_sem(w, 5, 3));
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(hf_sem_release(w->rival_sem, 1), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    object_assert_available(w->sem, 0);
}

ROW_CASES_IN(wait_runs_out, form, object_forms, struct world, w, objects_begin, world_end, NULL) {
    object_set_permits(w->sem, 1);
    int64_t start_ms = now_ms();
    assert_int_equal(form->acquire(w, 2, PASSING_MS), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= PASSING_MS);
    assert_int_equal(object_number(SEM_NAME), 1);
    assert_int_equal(world_stats(w->client).timed_out, 1);
    assert_int_equal(world_stats(w->client).in_doubt, 0);
}

/* A semaphore that does not exist has no permits, and comes to have some. */
OBJECTS_CASE(waits_for_one_that_is_not_there_yet) {
    struct world_caller waiter;
    assert_int_equal(hf_sem_try(w->sem, 1), HF_EBUSY);
    world_call_sem(&waiter, w->sem, 1, HF_FOREVER, NULL);
    assert_true(object_wait_sem(w, 3, 2)); /* and whether it exists */
    object_set_permits(w->rival_sem, 1);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
}

/* Several waiters of one process: the client that can be served by what came back is, the small beside the
 * large. */
OBJECTS_CASE(one_release_wakes_all_it_can_serve) {
    enum { SMALL = 5 };
    struct world_caller large, small[SMALL];
    object_set_permits(w->sem, 0);
    world_call_sem(&large, w->sem, 10, HF_FOREVER, NULL);
    for (int i = 0; i < SMALL; i++)
        world_call_sem(&small[i], w->sem, 1, HF_FOREVER, NULL);
    assert_true(object_wait_sem(w, 2 * (SMALL + 1), SMALL + 1));
    assert_int_equal(hf_sem_release(w->rival_sem, SMALL), HF_OK);
    for (int i = 0; i < SMALL; i++) {
        assert_int_equal(world_join(&small[i]), HF_OK);
        assert_true(small[i].took_ms < 10000);
    }
    assert_false(atomic_load(&large.done));
    assert_int_equal(hf_sem_release(w->rival_sem, 10), HF_OK);
    assert_int_equal(world_join(&large), HF_OK);
    assert_int_equal(object_number(SEM_NAME), 0);
}

/* ---- Many ---- */

struct worker {
    struct crowd *crowd;
    hf_client *client;
    int rounds;
    int64_t permits;
    /* read and written in two steps, which only the semaphore keeps together */
    atomic_int *counter;
};

static void *work(void *arg) {
    const struct worker *worker = arg;
    own_sem *sem = object_sem(worker->client);
    for (int i = 0; i < worker->rounds; i++) {
        if (!crowd_expect(worker->crowd, hf_sem_acquire(sem, worker->permits) == HF_OK))
            continue;
        int seen = atomic_load_explicit(worker->counter, memory_order_relaxed);
        (void)wait_a_moment(); /* for another to read it, too */
        atomic_store_explicit(worker->counter, seen + 1, memory_order_relaxed);
        crowd_expect(worker->crowd, hf_sem_release(sem, worker->permits) == HF_OK);
    }
    return NULL;
}

/* `permits` of all there are, so that only one can be inside. */
static void run_crowd(int clients, int threads_each, int rounds, int64_t permits, bool one_or_all) {
    OWN(world_end) struct world w;
    enum { MOST = 64 };
    hf_client *client[MOST];
    struct worker workers[MOST];
    struct crowd crowd = {0};
    atomic_int counter = 0;
    int n = clients * threads_each;
    objects_begin(&w, NULL);
    object_set_permits(w.rival_sem, permits);
    for (int i = 0; i < clients; i++)
        assert_int_equal(hf_open(server_url(w.server), NULL, &client[i]), HF_OK);
    for (int i = 0; i < n; i++) {
        int64_t mine = one_or_all && i % 2 == 0 ? 1 : permits;
        workers[i] = (struct worker){&crowd, client[i % clients], rounds, mine, &counter};
        crowd_add(&crowd, work, &workers[i]);
    }
    crowd_join(&crowd);
    assert_int_equal(atomic_load(&crowd.failures), 0);
    for (int i = 0; i < clients; i++)
        assert_int_equal(hf_close(client[i]), HF_OK);
    if (!one_or_all)
        assert_int_equal(counter, n * rounds);
    assert_int_equal(object_number(SEM_NAME), permits);
}

CASE(C154_one_permit_is_a_mutex) {
    run_crowd(1, 15, 1, 1, false);
}

CASE(C155_one_or_all_of_the_most) {
    run_crowd(4, 1, 10, HF_PERMITS_MAX, true);
}

CASE(C156_a_mutex_across_clients) {
    run_crowd(8, 1, 10, 1, false);
}

struct taker {
    struct crowd *crowd;
    hf_client *client;
    struct barrier *met, *left;
};

static void *meet(void *arg) {
    const struct taker *taker = arg;
    struct crowd *crowd = taker->crowd;
    own_sem *sem = object_sem(taker->client);
    int64_t permits = -1;
    crowd_expect(crowd, hf_sem_acquire(sem, 1) == HF_OK);
    crowd_expect(crowd, barrier_wait(taker->met, HANG_MS));
    crowd_expect(crowd, hf_sem_available(sem, &permits) == HF_OK && permits == 0);
    crowd_expect(crowd, hf_sem_try(sem, 1) == HF_EBUSY);
    crowd_expect(crowd, barrier_wait(taker->left, HANG_MS));
    crowd_expect(crowd, hf_sem_release(sem, 1) == HF_OK);
    return NULL;
}

CASE(C330_ten_permits_meet_at_a_barrier) {
    OWN(world_end) struct world w;
    enum { PERMITS = 10, TAKERS = 30 };
    struct taker taker[TAKERS];
    struct crowd crowd = {0};
    struct barrier *met = barrier_new(PERMITS), *left = barrier_new(PERMITS);
    objects_begin(&w, NULL);
    object_set_permits(w.rival_sem, PERMITS);
    for (int i = 0; i < TAKERS; i++) {
        taker[i] = (struct taker){&crowd, NULL, met, left};
        assert_int_equal(hf_open(server_url(w.server), NULL, &taker[i].client), HF_OK);
        crowd_add(&crowd, meet, &taker[i]);
    }
    crowd_join(&crowd);
    assert_int_equal(atomic_load(&crowd.failures), 0);
    for (int i = 0; i < TAKERS; i++)
        assert_int_equal(hf_close(taker[i].client), HF_OK);
    assert_int_equal(object_number(SEM_NAME), PERMITS);
    barrier_free(met);
    barrier_free(left);
}

RUN_CASES(world_start_server, world_stop_server)
