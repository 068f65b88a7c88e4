/*
 * The library itself, as an application would use it: one client; a handle for each thread, or 64
 * operations in flight from callbacks.
 *
 * Asynchronous rows: each of the 64 locks is acquired, released and acquired again from its own
 * callbacks. With manual dispatch they run on the worker in hf_dispatch(); else on the client's
 * thread, and the worker only waits. A slot belongs to whichever thread runs the callbacks.
 */
#include "bench.h"

#include <pthread.h>
#include <string.h>

static hf_client *open_client(const struct bench *bench, unsigned flags) {
    hf_options options = HF_OPTIONS_INIT;
    options.flags = flags | (bench->sleeps_at_once ? HF_NO_BUSY_POLL : 0);
    hf_client *client;
    check(hf_open(bench->url, &options, &client), "hf_open");
    return client;
}

static hf_lock *new_lock_of(hf_client *client, hf_kind kind, int index) {
    char name[64];
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    hf_lock *lock;
    options.kind = kind;
    snprintf(name, sizeof name, "bench-%d", index);
    check(hf_lock_new_with(client, name, strlen(name), &options, &lock), "hf_lock_new");
    return lock;
}

static hf_lock *new_lock(hf_client *client, int index) {
    return new_lock_of(client, HF_PLAIN, index);
}

/* ---- Synchronous ---- */

static void work_with(struct worker *worker, hf_lock *lock) {
    worker_ready(worker);
    while (worker_goes_on(worker)) {
        check(hf_lock_acquire(lock), "acquire");
        check(hf_lock_release(lock), "release");
        worker_count(worker);
    }
    hf_lock_free(lock);
}

static void work(struct worker *worker) {
    work_with(worker, new_lock(worker->shared, worker->index));
}

static void work_string(struct worker *worker) {
    work_with(worker, new_lock_of(worker->shared, HF_STRING, worker->index));
}

void run_holdfast_string(const struct bench *bench, int n, struct sample *ret) {
    hf_client *client = open_client(bench, 0);
    run_workers(bench, n, work_string, client, ret);
    hf_close(client);
}

void run_holdfast(const struct bench *bench, int n, struct sample *ret) {
    hf_client *client = open_client(bench, 0);
    run_workers(bench, n, work, client, ret);
    hf_close(client);
}

void run_holdfast_confirmed(const struct bench *bench, int n, struct sample *ret) {
    hf_options options = HF_OPTIONS_INIT;
    options.acks = 1;
    hf_client *client;
    check(hf_open(bench->url, &options, &client), "hf_open");
    run_workers(bench, n, work, client, ret);
    hf_close(client);
}

/* ---- Asynchronous ---- */

struct flight;

struct slot {
    struct flight *flight;
    hf_lock *lock;
};

struct flight {
    struct worker *worker;
    struct slot slots[BENCH_IN_FLIGHT];
    pthread_mutex_t mtx; /* guards `flying` */
    pthread_cond_t landed;
    int flying;
};

static void land(struct flight *flight) {
    pthread_mutex_lock(&flight->mtx);
    if (--flight->flying == 0)
        pthread_cond_signal(&flight->landed);
    pthread_mutex_unlock(&flight->mtx);
}

static void on_acquired(hf_op *op, const hf_result *result, void *user);

static void on_released(hf_op *op, const hf_result *result, void *user) {
    struct slot *slot = user;
    (void)op;
    if (result->code != HF_OK)
        die("release: %s", result->error.text);
    worker_count(slot->flight->worker);
    if (!worker_goes_on(slot->flight->worker))
        land(slot->flight);
    else
        check(hf_lock_acquire_start(slot->lock, NULL, on_acquired, slot, NULL), "acquire_start");
}

static void on_acquired(hf_op *op, const hf_result *result, void *user) {
    struct slot *slot = user;
    (void)op;
    if (result->code != HF_OK)
        die("acquire: %s", result->error.text);
    check(hf_lock_release_start(slot->lock, result->owner, on_released, slot, NULL),
          "release_start");
}

static void take_off(struct flight *flight, struct worker *worker, hf_client *client) {
    flight->worker = worker;
    flight->flying = BENCH_IN_FLIGHT;
    pthread_mutex_init(&flight->mtx, NULL);
    pthread_cond_init(&flight->landed, NULL);
    for (int i = 0; i < BENCH_IN_FLIGHT; i++) {
        struct slot *slot = &flight->slots[i];
        slot->flight = flight;
        slot->lock = new_lock(client, i);
        check(hf_lock_acquire_start(slot->lock, NULL, on_acquired, slot, NULL), "acquire_start");
    }
}

static void clear(struct flight *flight) {
    for (int i = 0; i < BENCH_IN_FLIGHT; i++)
        hf_lock_free(flight->slots[i].lock);
    pthread_cond_destroy(&flight->landed);
    pthread_mutex_destroy(&flight->mtx);
}

static void dispatch(struct worker *worker) {
    struct flight flight;
    take_off(&flight, worker, worker->shared);
    worker_ready(worker);
    while (flight.flying > 0)
        if (hf_dispatch(worker->shared, HF_FOREVER) < 0)
            die("hf_dispatch: %s", hf_last_error()->text);
    clear(&flight);
}

void run_holdfast_manual(const struct bench *bench, int n, struct sample *ret) {
    hf_client *client = open_client(bench, HF_MANUAL_DISPATCH);
    run_workers(bench, n, dispatch, client, ret);
    hf_close(client);
}

static void wait_for_callbacks(struct worker *worker) {
    struct flight flight;
    take_off(&flight, worker, worker->shared);
    worker_ready(worker);
    pthread_mutex_lock(&flight.mtx);
    while (flight.flying > 0)
        pthread_cond_wait(&flight.landed, &flight.mtx);
    pthread_mutex_unlock(&flight.mtx);
    clear(&flight);
}

void run_holdfast_thread(const struct bench *bench, int n, struct sample *ret) {
    hf_client *client = open_client(bench, 0);
    run_workers(bench, n, wait_for_callbacks, client, ret);
    hf_close(client);
}
