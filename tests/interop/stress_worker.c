/*
 * A process of the mixed stress tests: a client and a few threads that enter objects in every way the
 * library offers (stress_kinds.c), and while they are inside one keep the ledger: who is there with
 * what weight, and a counter that is raised in two steps that only the lock keeps together.
 *
 * Runs in a forked child, so nothing here may use cmocka: what goes wrong is printed and becomes
 * the exit status. Each thread has handles, a random sequence and a server connection of its own;
 * they share the client, which is what is tested. The ledger is kept by the two scripts, which the
 * Java workers run too.
 */
#include "stress_worker.h"

#include "support/server.h"

#include <hiredis/hiredis.h>
#include <stdio.h>

struct worker {
    const struct stress *stress;
    hf_client *client, *second;
    struct stress_door doors[STRESS_OBJECTS];
    redisContext *server;
    char me[64]; /* "process/thread" */
    unsigned random;
    int64_t longest_ms;
    const char *longest_at; /* that an acquire took */
    const char *failure;    /* what went wrong, or NULL */
    int failure_code;
    char words[256]; /* the library's own */
};

static unsigned pick(struct worker *worker, unsigned below) {
    return (unsigned)rand_r(&worker->random) % below;
}

static void note(struct worker *worker, const char *what, int err) {
    if (worker->failure == NULL) {
        worker->failure = what;
        worker->failure_code = err;
        snprintf(worker->words, sizeof worker->words, "%s", hf_last_error()->text);
    }
}

/* Steps in, takes some time, steps out. */
static void section(struct worker *worker, const char *name, const struct stress_way *way,
                    const struct stress_visit *visit) {
    const struct stress *stress = worker->stress;
    redisReply *counter = redisCommand(
        worker->server,
        "EVALSHA %s 5 stress:inside:%s stress:counter:%s stress:killed stress:violations "
        "stress:token:%s %s %lld %lld %lld",
        stress->enter, name, name, name, worker->me, (long long)visit->weight,
        (long long)way->capacity, (long long)visit->token);
    if (counter == NULL || counter->type != REDIS_REPLY_STRING) {
        note(worker, "the ledger cannot be reached", 0);
        freeReplyObject(counter);
        return;
    }
    linger(pick(worker, STRESS_WORK_MS));
    own_reply *left = redisCommand(
        worker->server,
        "EVALSHA %s 5 stress:inside:%s stress:counter:%s stress:done stress:violations "
        "stress:alone %s %lld %lld %s",
        stress->leave, name, name, worker->me, (long long)visit->weight, (long long)way->capacity,
        counter->str);
    freeReplyObject(counter);
    if (left == NULL || left->type == REDIS_REPLY_ERROR)
        note(worker, "the ledger cannot be written", 0);
}

static void stay(struct worker *worker, struct stress_door *door, const char *name,
                 struct stress_visit *visit) {
    bool again = false;
    int err = HF_OK;
    section(worker, name, door->way, visit);
    if (door->way->downgrade != NULL && (err = door->way->downgrade(door, visit, &again)) != HF_OK)
        note(worker, "a downgrade failed", err);
    if (again)
        section(worker, name, door->way, visit);
    if ((err = door->way->leave(door, visit)) != HF_OK)
        note(worker, "a release failed", err);
}

static bool is_over(struct worker *worker) {
    own_reply *over = redisCommand(worker->server, "EXISTS stress:over");
    if (over == NULL)
        note(worker, "the ledger cannot be reached", 0);
    return over == NULL || over->integer != 0 || now_ms() >= worker->stress->end_ms;
}

static void *run(void *arg) {
    struct worker *worker = arg;
    while (worker->failure == NULL && !is_over(worker)) {
        unsigned i = pick(worker, STRESS_OBJECTS);
        struct stress_visit visit = {0};
        int64_t start_ms = now_ms();
        int err = worker->doors[i].way->enter(&worker->doors[i], &visit);
        if (now_ms() - start_ms > worker->longest_ms) {
            worker->longest_ms = now_ms() - start_ms;
            worker->longest_at = worker->stress->objects[i].name;
        }
        if (err == HF_OK)
            stay(worker, &worker->doors[i], worker->stress->objects[i].name, &visit);
        else if (err != HF_EBUSY && err != HF_ETIMEDOUT && err != HF_ECANCELED)
            note(worker, "an acquire failed", err);
    }
    own_text *longest = text_of("%lld ms at %s", (long long)worker->longest_ms,
                                worker->longest_at != NULL ? worker->longest_at : "");
    freeReplyObject(redisCommand(worker->server, "HSET stress:longest %s %s", worker->me, longest));
    return NULL;
}

static bool worker_init(struct worker *worker, const struct stress *stress, unsigned i) {
    worker->stress = stress;
    worker->random = stress->seed + i;
    snprintf(worker->me, sizeof worker->me, "%s/%u", stress->process, i);
    worker->server = redisConnectUnix(stress->socket);
    if (worker->server == NULL || worker->server->err != 0)
        return false;
    for (unsigned n = 0; n < STRESS_OBJECTS; n++) {
        struct stress_door *door = &worker->doors[n];
        *door = (struct stress_door){.way = stress_way_of(stress->objects[n].kind),
                                     .second = worker->second,
                                     .lease_ms = stress->lease_ms,
                                     .random = &worker->random};
        if (door->way == NULL ||
            door->way->open(door, worker->client, stress->objects[n].name) != HF_OK)
            return false;
    }
    return true;
}

static void worker_end(struct worker *worker) {
    for (unsigned n = 0; n < STRESS_OBJECTS; n++)
        worker->doors[n].way->close(&worker->doors[n]);
    redisFree(worker->server);
}

int stress_worker(void *arg) {
    const struct stress *stress = arg;
    struct worker workers[STRESS_WORKERS] = {0};
    pthread_t threads[STRESS_WORKERS];
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client, *second = NULL;
    options.watchdog_ms = stress->watchdog_ms;
    options.fair_wait_ms = stress->fair_wait_ms;
    options.restart_guard_ms = 0;
    if (hf_open(stress->url, &options, &client) != HF_OK ||
        (stress->second_url != NULL && hf_open(stress->second_url, &options, &second) != HF_OK))
        return 1;
    for (unsigned i = 0; i < STRESS_WORKERS; i++) {
        workers[i].client = client;
        workers[i].second = second;
        if (!worker_init(&workers[i], stress, i) ||
            pthread_create(&threads[i], NULL, run, &workers[i]) != 0)
            return 1;
    }
    int status = 0;
    for (unsigned i = 0; i < STRESS_WORKERS; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].failure != NULL) {
            fprintf(stderr, "%s: %s: %s (%s)\n", workers[i].me, workers[i].failure,
                    hf_error_name(workers[i].failure_code), workers[i].words);
            status = 1;
        }
        worker_end(&workers[i]);
    }
    hf_close(client);
    if (second != NULL)
        hf_close(second);
    return status;
}
