/*
 * A process of the mixed stress test: a client and a few threads that acquire locks in every way
 * the library offers, and while they hold one raise a counter in two steps that only the lock keeps
 * together.
 *
 * Runs in a forked child, so nothing here may use cmocka: what goes wrong is printed and becomes
 * the exit status. Each thread has lock handles, a random sequence and a server connection of its
 * own; they share the client, which is what is tested. The books (who is inside, how often,
 * violations) are kept by the two scripts, which the Java workers run too.
 */
#include "stress_worker.h"

#include "support/wait.h"

#include <hiredis/hiredis.h>
#include <holdfast/holdfast.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct worker {
    const struct stress *stress;
    hf_client *client;
    hf_lock *locks[STRESS_NAMES];
    redisContext *server;
    char me[64]; /* "process/thread" */
    unsigned random;
    int64_t longest_ms;  /* that an acquire took */
    const char *trouble; /* what went wrong, or NULL */
    int trouble_code;
};

static unsigned pick(struct worker *worker, unsigned below) {
    return (unsigned)rand_r(&worker->random) % below;
}

static void note(struct worker *worker, const char *what, int err) {
    if (worker->trouble == NULL) {
        worker->trouble = what;
        worker->trouble_code = err;
    }
}

/* An asynchronous acquire by a fresh owner, half of them cancelled before they can be over. */
static int acquire_async(struct worker *worker, hf_lock *lock, hf_owner *ret_owner) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    hf_result result = HF_RESULT_INIT;
    hf_op *op;
    options.wait_ms = pick(worker, STRESS_WAIT_MS);
    int err = hf_lock_acquire_start(lock, &options, NULL, NULL, &op);
    if (err != HF_OK)
        return err;
    if (pick(worker, 2) == 0)
        hf_op_cancel(op);
    err = hf_op_wait(op, HF_FOREVER, &result);
    hf_op_free(op);
    if (err == HF_OK)
        *ret_owner = result.owner;
    return err;
}

/* One of the ways to acquire, at random. */
static int acquire(struct worker *worker, hf_lock *lock, hf_owner *ret_owner) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    *ret_owner = hf_owner_self();
    switch (pick(worker, 6)) {
    case 0:
        return hf_lock_try(lock);
    case 1:
        return hf_lock_acquire_for(lock, pick(worker, STRESS_WAIT_MS));
    case 2:
        options.wait_ms = pick(worker, STRESS_WAIT_MS);
        options.lease_ms = worker->stress->lease_ms;
        return hf_lock_acquire_with(lock, &options, NULL);
    case 3:
        options.lease_ms = worker->stress->lease_ms;
        return hf_lock_acquire_with(lock, &options, NULL);
    case 4:
        return acquire_async(worker, lock, ret_owner);
    default:
        return hf_lock_acquire(lock);
    }
}

/* Raises the counter that the lock guards: read it, take some time, write it. */
static void section(struct worker *worker, const char *name) {
    const struct stress *stress = worker->stress;
    redisReply *counter =
        redisCommand(worker->server,
                     "EVALSHA %s 4 stress:inside:%s stress:counter:%s stress:killed "
                     "stress:violations %s",
                     stress->enter, name, name, worker->me);
    if (counter == NULL || counter->type != REDIS_REPLY_STRING) {
        note(worker, "the books cannot be reached", 0);
        freeReplyObject(counter);
        return;
    }
    long long raised = atoll(counter->str) + 1;
    freeReplyObject(counter);
    sleep_ms(pick(worker, STRESS_WORK_MS));
    redisReply *left = redisCommand(worker->server,
                                    "EVALSHA %s 4 stress:inside:%s stress:counter:%s stress:done "
                                    "stress:violations %s %lld",
                                    stress->leave, name, name, worker->me, raised);
    if (left == NULL || left->type == REDIS_REPLY_ERROR)
        note(worker, "the books cannot be written", 0);
    freeReplyObject(left);
}

/* Holds once more, works, and gives everything back. */
static void use_hold(struct worker *worker, hf_lock *lock, const char *name, hf_owner owner) {
    hf_acquire_options again = HF_ACQUIRE_INIT;
    bool nested = pick(worker, 4) == 0;
    again.owner = owner;
    int err = nested ? hf_lock_acquire_with(lock, &again, NULL) : HF_OK;
    if (err != HF_OK) {
        note(worker, "a nested acquire failed", err);
        return;
    }
    section(worker, name);
    if (nested && (err = hf_lock_release_as(lock, owner)) != HF_OK)
        note(worker, "a nested release failed", err);
    if ((err = hf_lock_release_as(lock, owner)) != HF_OK)
        note(worker, "a release failed", err);
}

static void *run(void *arg) {
    struct worker *worker = arg;
    while (worker->trouble == NULL && now_ms() < worker->stress->end_ms) {
        unsigned i = pick(worker, STRESS_NAMES);
        hf_owner owner;
        int64_t start_ms = now_ms();
        int err = acquire(worker, worker->locks[i], &owner);
        if (now_ms() - start_ms > worker->longest_ms)
            worker->longest_ms = now_ms() - start_ms;
        if (err == HF_OK)
            use_hold(worker, worker->locks[i], worker->stress->names[i], owner);
        else if (err != HF_EBUSY && err != HF_ETIMEDOUT && err != HF_ECANCELED)
            note(worker, "an acquire failed", err);
    }
    freeReplyObject(redisCommand(worker->server, "HSET stress:longest %s %lld", worker->me,
                                 (long long)worker->longest_ms));
    return NULL;
}

static bool worker_init(struct worker *worker, const struct stress *stress, hf_client *client,
                        unsigned i) {
    worker->stress = stress;
    worker->client = client;
    worker->random = stress->seed + i;
    snprintf(worker->me, sizeof worker->me, "%s/%u", stress->process, i);
    worker->server = redisConnectUnix(stress->socket);
    if (worker->server == NULL || worker->server->err != 0)
        return false;
    for (unsigned n = 0; n < STRESS_NAMES; n++) {
        if (hf_lock_new(client, stress->names[n], &worker->locks[n]) != HF_OK)
            return false;
    }
    return true;
}

static void worker_end(struct worker *worker) {
    for (unsigned n = 0; n < STRESS_NAMES; n++)
        hf_lock_free(worker->locks[n]);
    redisFree(worker->server);
}

int stress_worker(void *arg) {
    const struct stress *stress = arg;
    struct worker workers[STRESS_WORKERS] = {0};
    pthread_t threads[STRESS_WORKERS];
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    options.watchdog_ms = stress->watchdog_ms;
    if (hf_open(stress->url, &options, &client) != HF_OK)
        return 1;
    for (unsigned i = 0; i < STRESS_WORKERS; i++) {
        if (!worker_init(&workers[i], stress, client, i) ||
            pthread_create(&threads[i], NULL, run, &workers[i]) != 0)
            return 1;
    }
    int status = 0;
    for (unsigned i = 0; i < STRESS_WORKERS; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].trouble != NULL) {
            fprintf(stderr, "%s: %s: %s\n", workers[i].me, workers[i].trouble,
                    hf_error_name(workers[i].trouble_code));
            status = 1;
        }
        worker_end(&workers[i]);
    }
    hf_close(client);
    return status;
}
