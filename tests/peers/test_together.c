/*
 * All libraries that use the plain name on one lock at once, and we: each step in the book is taken by one alone.
 *
 * Each has an actor of its own. In the soak they go on for long.
 */
#include "peers.h"

#include "support/case.h"

static const struct {
    const char *peer, *language;
} workers[] = {
    {"redis-py", "python"},       {"redlock-py", "python"},   {"aioredlock", "python"},
    {"node-redlock-4", "node"},   {"node-redlock-5", "node"}, {"redsync", "go"},
    {"redsync-recreating", "go"}, {"redislock", "go"},        {"rslock", "rust"},
};
enum { WORKERS = sizeof workers / sizeof *workers, OURS = 2 };

/* A process of ours; 0: it took all its steps. */
static int we_work(void *arg) {
    const int rounds = *(const int *)arg;
    hf_client *client;
    hf_lock *lock;
    if (hf_open(server_url(suite.server), NULL, &client) != HF_OK ||
        new_lock(client, HF_STRING, "together", 8, &lock) != HF_OK)
        return 1;
    for (int i = 0; i < rounds; i++) {
        if (hf_lock_acquire(lock) != HF_OK)
            return 2;
        long long page = key_exists(suite.server, "book") ? cmd_int(suite.server, "GET book") : 0;
        linger(2);
        cmd_ok(suite.server, "SET book %lld", page + 1);
        if (hf_lock_release(lock) != HF_OK)
            return 3;
        linger(20); /* those that poll come in between, too */
    }
    hf_lock_free(lock);
    hf_close(client);
    return 0;
}

CASE(all_of_them_on_one_lock) {
    int rounds = getenv("HF_SOAK") != NULL ? 300 : 10;
    struct remote *actors[WORKERS] = {NULL};
    int commands[WORKERS], at_work = OURS;
    pid_t children[OURS];
    suite.server = server_start(&(struct server_options){.tcp = true});
    for (int i = 0; i < WORKERS; i++) {
        int status = peers_build(workers[i].language);
        assert_true(status == 0 || status == EXIT_SKIPPED);
        if (status == EXIT_SKIPPED)
            continue;
        actors[i] = peers_start(workers[i].language);
        assert_answer("ok",
                      remote_call(actors[i], "open h %s together %d %d", workers[i].peer, LONG_MS,
                                  server_port(suite.server)),
                      __FILE__, __LINE__);
        at_work++;
    }
    if (at_work == OURS)
        skip();
    for (int i = 0; i < OURS; i++)
        children[i] = run_child(we_work, &rounds);
    for (int i = 0; i < WORKERS; i++) {
        if (actors[i] != NULL)
            commands[i] = remote_send(actors[i], "work h %d %d", rounds, server_port(suite.server));
    }
    int64_t limit_ms = (int64_t)rounds * 30000;
    for (int i = 0; i < OURS; i++)
        assert_true(expect_exit(children[i], 0, limit_ms));
    for (int i = 0; i < WORKERS; i++) {
        if (actors[i] == NULL)
            continue;
        const char *answer = remote_answer_within(actors[i], commands[i], limit_ms);
        assert_answer("ok", answer, __FILE__, __LINE__);
        remote_free(actors[i]);
    }
    assert_int_equal(cmd_int(suite.server, "GET book"), at_work * rounds);
    server_free(suite.server);
}

RUN_CASES(NULL, NULL)
