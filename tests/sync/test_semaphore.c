/*
 * The semaphore, as its callers see it: what Redisson's own tests ask of it (the C rows), what its wire must be, and the
 * rules of every call. Faults of the network are in test_semaphore_faults.c.
 *
 * The number on the server is looked at directly. Waits that are to end are waits for ever, with the test's own limit.
 */
#include "sync/scene.h"

#include <stdio.h>
#include <unistd.h>

static void assert_available(hf_sem *sem, int64_t expected) {
    int64_t permits = -99;
    assert_int_equal(hf_sem_available(sem, &permits), HF_OK);
    assert_int_equal(permits, expected);
}

static void set(hf_sem *sem, int64_t permits) {
    bool was_set = false;
    assert_int_equal(hf_sem_set(sem, permits, 0, &was_set), HF_OK);
    assert_true(was_set);
}

/* ---- One caller ---- */

static void C144_set_once_and_with_a_ttl(void **state) {
    (void)state;
    struct scene s;
    bool was_set = false;
    scene_begin(&s, NULL);
    set(s.sem, 10);
    assert_int_equal(hf_sem_set(s.sem, 15, 0, &was_set), HF_OK);
    assert_false(was_set);
    assert_available(s.sem, 10);
    assert_int_equal(pttl(s.server, SEM_NAME), -1);
    bool deleted = false;
    assert_int_equal(hf_sem_delete(s.sem, &deleted), HF_OK);
    assert_true(deleted);
    assert_int_equal(hf_sem_delete(s.sem, &deleted), HF_OK);
    assert_false(deleted);

    int64_t start_ms = now_ms();
    assert_int_equal(hf_sem_set(s.sem, 1, 500, &was_set), HF_OK);
    assert_true(was_set);
    assert_available(s.sem, 1);
    while (key_exists(s.server, SEM_NAME))
        sleep_ms(1);
    assert_true(now_ms() - start_ms >= 500);
    assert_available(s.sem, 0);
    scene_end(&s);
}

static void C145_add_permits(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    set(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 10), HF_OK);
    assert_available(s.sem, 0);
    assert_int_equal(hf_sem_add(s.sem, 4), HF_OK);
    assert_available(s.sem, 4);
    assert_int_equal(hf_sem_release(s.sem, 10), HF_OK);
    assert_available(s.sem, 14);
    assert_int_equal(hf_sem_acquire(s.sem, 5), HF_OK);
    assert_available(s.sem, 9);
    scene_end(&s);
}

static void C146_reduce_permits(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    set(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 10), HF_OK);
    assert_int_equal(hf_sem_add(s.sem, -5), HF_OK);
    assert_available(s.sem, -5);
    assert_int_equal(hf_sem_release(s.sem, 10), HF_OK);
    assert_available(s.sem, 5);
    assert_int_equal(hf_sem_acquire(s.sem, 5), HF_OK);
    assert_available(s.sem, 0);
    scene_end(&s);
}

static void C150_release_without_permits(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_release(s.sem, 1), HF_OK);
    assert_available(s.sem, 1);
    scene_end(&s);
}

static void C151_drain(void **state) {
    (void)state;
    struct scene s;
    int64_t permits = -99;
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_drain(s.sem, &permits), HF_OK);
    assert_int_equal(permits, 0);
    assert_false(key_exists(s.server, SEM_NAME));
    set(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 3), HF_OK);
    assert_int_equal(hf_sem_drain(s.sem, &permits), HF_OK);
    assert_int_equal(permits, 7);
    assert_available(s.sem, 0);
    scene_end(&s);
}

static void C152_release_acquire(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    set(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 1), HF_OK);
    assert_available(s.sem, 9);
    assert_int_equal(hf_sem_release(s.sem, 1), HF_OK);
    assert_available(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 5), HF_OK);
    assert_available(s.sem, 5);
    assert_int_equal(hf_sem_release(s.sem, 5), HF_OK);
    assert_available(s.sem, 10);
    scene_end(&s);
}

static void C153_U52_release_if_exists(void **state) {
    (void)state;
    struct scene s;
    bool released = false;
    scene_begin(&s, NULL);
    set(s.sem, 10);
    assert_int_equal(hf_sem_acquire(s.sem, 1), HF_OK);
    assert_int_equal(hf_sem_release_if_exists(s.sem, 1, &released), HF_OK);
    assert_true(released);
    assert_available(s.sem, 10);
    cmd_ok(s.server, "DEL " SEM_NAME);
    assert_int_equal(hf_sem_release_if_exists(s.sem, 1, &released), HF_OK);
    assert_false(released);
    assert_false(key_exists(s.server, SEM_NAME));
    scene_end(&s);
}

static void U51_the_ttl_stays(void **state) {
    (void)state;
    struct scene s;
    int64_t permits = 0;
    scene_begin(&s, NULL);
    assert_int_equal(hf_sem_set(s.sem, 5, 60000, NULL), HF_OK);
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
    assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 2, HANG_MS));
    assert_int_equal(hf_sem_acquire(s.rival_sem, 1), HF_OK);
    assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
    /* It was told of one, and has looked. */
    assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 3, HANG_MS));
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
    set(s.sem, 1);
    assert_int_equal(hf_sem_acquire(s.rival_sem, 1), HF_OK);
    waiter_acquire(&waiter, s.sem, 1, HF_FOREVER, NULL);
    assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 2, HANG_MS));
    assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    assert_int_equal(hf_sem_try(s.sem, 1), HF_EBUSY);
    assert_available(s.sem, 0);
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
        set(s.sem, 5);
        assert_int_equal(form->acquire(&s, 3, HF_FOREVER), HF_OK);
        assert_int_equal(form->acquire(&s, 4, 0), HF_EBUSY);
        struct waiter waiter;
        waiter_acquire(&waiter, s.sem, 4, HANG_MS, NULL);
        assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 4, HANG_MS));
        assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
        assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 5, HANG_MS));
        assert_false(atomic_load(&waiter.done));
        assert_int_equal(hf_sem_release(s.rival_sem, 1), HF_OK);
        assert_int_equal(waiter_join(&waiter), HF_OK);
        assert_true(waiter.took_ms < 10000);
        assert_available(s.sem, 0);
        scene_end(&s);
    }
}

static void wait_runs_out(void **state) {
    (void)state;
    FOR_EACH_FORM(form) {
        struct scene s;
        scene_begin(&s, NULL);
        set(s.sem, 1);
        int64_t start_ms = now_ms();
        assert_int_equal(form->acquire(&s, 2, 300), HF_ETIMEDOUT);
        assert_true(now_ms() - start_ms >= 300);
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
    assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 3, HANG_MS));
    set(s.rival_sem, 1);
    assert_int_equal(waiter_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < 10000);
    scene_end(&s);
}

/* Several waiters of one process: whoever can be served by what came back is, the small beside the large. */
static void one_release_wakes_all_it_can_serve(void **state) {
    (void)state;
    enum { SMALL = 5 };
    struct scene s;
    struct waiter large, small[SMALL];
    scene_begin(&s, NULL);
    set(s.sem, 0);
    waiter_acquire(&large, s.sem, 10, HF_FOREVER, NULL);
    for (int i = 0; i < SMALL; i++)
        waiter_acquire(&small[i], s.sem, 1, HF_FOREVER, NULL);
    assert_true(scene_wait_asleep(&s, SCENE_ACQUIRE, 2 * (SMALL + 1), HANG_MS));
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
    atomic_int
        *counter; /* read and written in two steps, which only the semaphore keeps together */
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
    set(s.rival_sem, permits);
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
    set(s.rival_sem, PERMITS);
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

/* ---- The rules of every call ---- */

static void arguments_are_checked(void **state) {
    (void)state;
    struct scene s;
    hf_sem *sem = NULL;
    hf_wait_options options = HF_WAIT_INIT;
    scene_begin(&s, NULL);
    struct monitor *monitor = monitor_start(s.server);
    assert_int_equal(hf_sem_new(NULL, "x", 1, &sem), HF_EINVAL);
    assert_int_equal(hf_sem_new(s.client, NULL, 1, &sem), HF_EINVAL);
    assert_int_equal(hf_sem_new(s.client, "x", 0, &sem), HF_EINVAL);
    assert_int_equal(hf_sem_new(s.client, "x", 1, NULL), HF_EINVAL);
    assert_null(sem);
    assert_int_equal(hf_sem_acquire(NULL, 1), HF_EINVAL);
    assert_int_equal(hf_sem_acquire(s.sem, -1), HF_EINVAL);
    assert_int_equal(hf_sem_acquire(s.sem, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_sem_acquire_for(s.sem, 1, -2), HF_EINVAL);
    options.size = 3;
    assert_int_equal(hf_sem_acquire_with(s.sem, 1, &options), HF_EINVAL);
    assert_int_equal(hf_sem_release(NULL, 1), HF_EINVAL);
    assert_int_equal(hf_sem_release(s.sem, -1), HF_EINVAL);
    assert_int_equal(hf_sem_release(s.sem, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_sem_release_if_exists(s.sem, -1, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_set(s.sem, -1, 0, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_set(s.sem, 1, -1, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_set(s.sem, 1, HF_LEASE_MAX_MS + 1, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_add(s.sem, -HF_PERMITS_MAX - 1), HF_EINVAL);
    assert_int_equal(hf_sem_add(s.sem, HF_PERMITS_MAX + 1), HF_EINVAL);
    assert_int_equal(hf_sem_drain(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_available(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_sem_delete(NULL, NULL), HF_EINVAL);
    hf_sem_free(NULL);
    assert_int_equal(hf_last_error()->code, HF_EINVAL);
    assert_int_equal(monitor_count(monitor, "EVAL"), 0);
    monitor_stop(monitor);
    scene_end(&s);
}

static void of_no_permits_nothing_is_sent(void **state) {
    (void)state;
    struct scene s;
    bool released = true;
    hf_op *op = NULL;
    scene_begin(&s, NULL);
    struct monitor *monitor = monitor_start(s.server);
    assert_int_equal(hf_sem_acquire(s.sem, 0), HF_OK);
    assert_int_equal(hf_sem_try(s.sem, 0), HF_OK);
    assert_int_equal(hf_sem_release(s.sem, 0), HF_OK);
    assert_int_equal(hf_sem_release_if_exists(s.sem, 0, &released), HF_OK);
    assert_false(released);
    hf_result result = HF_RESULT_INIT;
    int err = hf_sem_release_if_exists_start(s.sem, 0, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &result), HF_OK);
    assert_int_equal(result.value, 0);
    err = hf_sem_acquire_start(s.sem, 0, NULL, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, NULL), HF_OK);
    assert_int_equal(monitor_count(monitor, "EVAL"), 0);
    monitor_stop(monitor);
    assert_false(key_exists(s.server, SEM_NAME));
    scene_end(&s);
}

static void every_call_refuses(hf_sem *sem, int expected) {
    int64_t permits;
    assert_int_equal(hf_sem_set(sem, 1, 0, NULL), expected);
    assert_int_equal(hf_sem_try(sem, 1), expected);
    assert_int_equal(hf_sem_acquire(sem, 1), expected);
    assert_int_equal(hf_sem_release(sem, 1), expected);
    assert_int_equal(hf_sem_release_if_exists(sem, 1, NULL), expected);
    assert_int_equal(hf_sem_add(sem, 1), expected);
    assert_int_equal(hf_sem_drain(sem, &permits), expected);
    assert_int_equal(hf_sem_available(sem, &permits), expected);
    assert_int_equal(hf_sem_delete(sem, NULL), expected);
}

static void U67_U68_what_is_something_else(void **state) {
    (void)state;
    struct scene s;
    hf_lock *lock = NULL;
    scene_begin(&s, NULL);
    cmd_ok(s.server, "RPUSH " SEM_NAME " 1");
    every_call_refuses(s.sem, HF_EWRONGTYPE);
    assert_int_equal(cmd_int(s.server, "LLEN " SEM_NAME), 1);
    cmd_ok(s.server, "SET " SEM_NAME " many");
    every_call_refuses(s.sem, HF_EWRONGTYPE);
    cmd_ok(s.server, "DEL " SEM_NAME);
    assert_int_equal(hf_lock_new(s.client, SEM_NAME, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    every_call_refuses(s.sem, HF_EWRONGTYPE);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    set(s.sem, 1);
    assert_int_equal(hf_lock_try(lock), HF_EWRONGTYPE);
    assert_available(s.sem, 1);
    hf_lock_free(lock);
    scene_end(&s);
}

static int child_of_fork(void *arg) {
    struct scene *s = arg;
    int64_t permits;
    hf_op *op;
    if (hf_sem_acquire(s->sem, 1) != HF_EFORKED || hf_sem_release(s->sem, 1) != HF_EFORKED ||
        hf_sem_available(s->sem, &permits) != HF_EFORKED ||
        hf_sem_acquire_start(s->sem, 1, NULL, NULL, NULL, &op) != HF_EFORKED)
        return 1;
    hf_sem_free(s->sem);
    hf_close(s->client);
    return 0;
}

static void a_forked_child_is_refused(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    set(s.sem, 1);
    assert_true(expect_exit(run_child(child_of_fork, &s), 0, HANG_MS));
    assert_int_equal(hf_sem_try(s.sem, 1), HF_OK);
    scene_end(&s);
}

static void U23_scripts_flushed_between_calls(void **state) {
    (void)state;
    struct scene s;
    int64_t permits = 0;
    bool deleted = false;
    scene_begin(&s, NULL);
    FOR_EACH_FORM(form) {
        cmd_ok(s.server, "SCRIPT FLUSH");
        set(s.sem, 10);
        cmd_ok(s.server, "SCRIPT FLUSH");
        assert_int_equal(form->acquire(&s, 3, HF_FOREVER), HF_OK);
        cmd_ok(s.server, "SCRIPT FLUSH");
        assert_int_equal(form->release(&s, 1), HF_OK);
        cmd_ok(s.server, "SCRIPT FLUSH");
        assert_int_equal(hf_sem_drain(s.sem, &permits), HF_OK);
        assert_int_equal(permits, 8);
        cmd_ok(s.server, "SCRIPT FLUSH");
        assert_int_equal(hf_sem_delete(s.sem, &deleted), HF_OK);
        assert_true(deleted);
    }
    scene_end(&s);
}

/* ---- The wire ---- */

/* The names are Redisson's, with and without a prefix, with and without braces of the caller's own. */
static void names_on_the_wire(void **state) {
    (void)state;
    static const struct {
        const char *prefix, *name, *key, *channel;
    } names[] = {{NULL, "a", "a", "redisson_sc:{a}"},
                 {NULL, "a{b}c", "a{b}c", "redisson_sc:a{b}c"},
                 {"app:", "a", "app:a", "redisson_sc:{app:a}"},
                 {"{app}:", "a", "{app}:a", "redisson_sc:{app}:a"}};
    struct server *server = scene_server();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        hf_options options = scene_options();
        hf_client *client = NULL;
        hf_sem *sem = NULL;
        char publish[128];
        options.name_prefix = names[i].prefix;
        cmd_ok(server, "FLUSHALL");
        struct monitor *monitor = monitor_start(server);
        assert_int_equal(hf_open(server_url(server), &options, &client), HF_OK);
        assert_int_equal(hf_sem_new(client, names[i].name, strlen(names[i].name), &sem), HF_OK);
        set(sem, 7);
        assert_int_equal(cmd_int(server, "GET %s", names[i].key), 7);
        snprintf(publish, sizeof publish, "lua] \"publish\" \"%s\" \"7\"", names[i].channel);
        assert_int_equal(monitor_count(monitor, publish), 1);
        assert_int_equal(cmd_int(server, "DBSIZE"), 1);
        monitor_stop(monitor);
        hf_sem_free(sem);
        assert_int_equal(hf_close(client), HF_OK);
    }
}

/* ---- Asynchronous ---- */

static void every_operation_can_be_started(void **state) {
    (void)state;
    struct scene s;
    hf_op *op = NULL;
    hf_result r = HF_RESULT_INIT;
    scene_begin(&s, NULL);
#define START(start, wanted)                                                                       \
    do {                                                                                           \
        int started = start;                                                                       \
        assert_int_equal(scene_wait_op(started, op, &r), HF_OK);                                   \
        assert_int_equal(r.value, wanted);                                                         \
    } while (0)
    START(hf_sem_set_start(s.sem, 10, 60000, NULL, NULL, &op), 1);
    START(hf_sem_set_start(s.sem, 12, 0, NULL, NULL, &op), 0);
    int err = hf_sem_acquire_start(s.sem, 4, NULL, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    START(hf_sem_available_start(s.sem, NULL, NULL, &op), 6);
    err = hf_sem_release_start(s.sem, 1, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    START(hf_sem_release_if_exists_start(s.sem, 1, NULL, NULL, &op), 1);
    err = hf_sem_add_start(s.sem, -3, NULL, NULL, &op);
    assert_int_equal(scene_wait_op(err, op, &r), HF_OK);
    START(hf_sem_drain_start(s.sem, NULL, NULL, &op), 5);
    START(hf_sem_delete_start(s.sem, NULL, NULL, &op), 1);
    START(hf_sem_delete_start(s.sem, NULL, NULL, &op), 0);
    START(hf_sem_release_if_exists_start(s.sem, 1, NULL, NULL, &op), 0);
#undef START
    assert_int_equal(cmd_int(s.server, "DBSIZE"), 0);
    scene_end(&s);
}

static void count_callback(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    if (result->code == HF_OK)
        atomic_fetch_add((atomic_int *)user, 1);
}

static void with_manual_dispatch(void **state) {
    (void)state;
    enum { WAITERS = 5 };
    hf_options options = scene_options();
    options.flags = HF_MANUAL_DISPATCH;
    struct scene s;
    atomic_int done = 0;
    scene_begin(&s, NULL);
    hf_client *client = NULL;
    assert_int_equal(hf_open(server_url(s.server), &options, &client), HF_OK);
    hf_sem *sem = scene_sem(client);
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(hf_sem_acquire_start(sem, 1, NULL, count_callback, &done, NULL), HF_OK);
    assert_int_equal(hf_dispatch(client, 100), 0);
    set(s.rival_sem, WAITERS);
    int64_t start_ms = now_ms();
    while (atomic_load(&done) < WAITERS && now_ms() - start_ms < HANG_MS)
        assert_true(hf_dispatch(client, 100) >= 0);
    assert_int_equal(atomic_load(&done), WAITERS);
    assert_int_equal(scene_number(SEM_NAME), 0);
    hf_sem_free(sem);
    assert_int_equal(hf_close(client), HF_OK);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(C144_set_once_and_with_a_ttl),
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
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(of_no_permits_nothing_is_sent),
        cmocka_unit_test(U67_U68_what_is_something_else),
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(U23_scripts_flushed_between_calls),
        cmocka_unit_test(names_on_the_wire),
        cmocka_unit_test(every_operation_can_be_started),
        cmocka_unit_test(with_manual_dispatch),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
