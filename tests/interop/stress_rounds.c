/*
 * A process of the latch's mixed stress test. Two latches take turns, so that each is closed anew
 * again and again. In each round every worker of every process closes the round's latch if nobody
 * has yet, notes that it came, counts down and waits for the others; the client that gets out before all
 * have come has found a violation, and the client that is trapped by the next round's latch never gets out.
 * Rounds.java is the same in Java.
 *
 * Runs in a forked child, so nothing here may use cmocka. Each thread has a connection of its own
 * for the ledger; they share the client.
 */
#include "stress_rounds.h"

#include "support/server.h"
#include "support/wait.h"

#include <hiredis/hiredis.h>
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <string.h>

enum { MOST_WORKERS = 4 };

struct walker {
    const struct rounds *rounds;
    hf_client *client;
    redisContext *server;
    int number;
    const char *failure;
    int failure_code;
};

static bool note(struct walker *walker, const char *what, int err) {
    walker->failure = what;
    walker->failure_code = err;
    return false;
}

static long long ledger(struct walker *walker, const char *verb, int round) {
    own_reply *reply = redisCommand(walker->server, "%s stress:came:%d", verb, round);
    long long number = -1;
    if (reply != NULL && reply->type == REDIS_REPLY_INTEGER)
        number = reply->integer;
    else if (reply != NULL && reply->type == REDIS_REPLY_STRING)
        sscanf(reply->str, "%lld", &number);
    return number;
}

/* One round; writes how long the wait was, if longer. */
static bool walk(struct walker *walker, hf_latch *latch, int round, int64_t *longest_ms) {
    int parties = walker->rounds->parties;
    bool set;
    int err = hf_latch_try_set(latch, parties, &set);
    if (err != HF_OK)
        return note(walker, "a latch cannot be set", err);
    if (ledger(walker, "INCR", round) < 1)
        return note(walker, "the ledger cannot be written", 0);
    if ((err = hf_latch_count_down(latch)) != HF_OK)
        return note(walker, "a latch cannot be counted down", err);
    int64_t start_ms = now_ms();
    if ((err = hf_latch_await_for(latch, HANG_MS)) != HF_OK)
        return note(walker, "a round does not end", err);
    if (now_ms() - start_ms > *longest_ms)
        *longest_ms = now_ms() - start_ms;
    if (ledger(walker, "GET", round) != parties)
        return note(walker, "a round ended too early", 0);
    return true;
}

static void *run(void *arg) {
    struct walker *walker = arg;
    hf_latch *latches[2] = {NULL, NULL};
    int64_t longest_ms = 0;
    for (int i = 0; i < 2; i++) {
        const char *name = i == 0 ? "rounds-0" : "rounds-1";
        if (hf_latch_new_bytes(walker->client, name, strlen(name), &latches[i]) != HF_OK)
            note(walker, "no latch", 0);
    }
    for (int round = 0; walker->failure == NULL && round < walker->rounds->rounds; round++)
        walk(walker, latches[round % 2], round, &longest_ms);
    freeReplyObject(redisCommand(walker->server, "HSET stress:longest %s/%d %lld",
                                 walker->rounds->process, walker->number, (long long)longest_ms));
    hf_latch_free(latches[0]);
    hf_latch_free(latches[1]);
    return NULL;
}

int rounds_worker(void *arg) {
    const struct rounds *rounds = arg;
    struct walker walkers[MOST_WORKERS] = {0};
    pthread_t threads[MOST_WORKERS];
    hf_client *client;
    int status = 0;
    if (rounds->workers > MOST_WORKERS || hf_open(rounds->url, NULL, &client) != HF_OK)
        return 1;
    for (int i = 0; i < rounds->workers; i++) {
        walkers[i] = (struct walker){.rounds = rounds, .client = client, .number = i};
        walkers[i].server = redisConnectUnix(rounds->socket);
        if (walkers[i].server == NULL || walkers[i].server->err != 0 ||
            pthread_create(&threads[i], NULL, run, &walkers[i]) != 0)
            return 1;
    }
    for (int i = 0; i < rounds->workers; i++) {
        pthread_join(threads[i], NULL);
        redisFree(walkers[i].server);
        if (walkers[i].failure == NULL)
            continue;
        fprintf(stderr, "%s/%d: %s: %s\n", rounds->process, i, walkers[i].failure,
                hf_error_name(walkers[i].failure_code));
        status = 1;
    }
    hf_close(client);
    return status;
}
