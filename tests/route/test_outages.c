/*
 * What the log says of an outage: once for each server, also if several are away at once. With real servers.
 */
#include <holdfast/holdfast.h>

#include "support/case.h"
#include "support/new_lock.h"
#include "support/shards.h"
#include "support/watched.h"

#include <stdatomic.h>

enum { WARNINGS_MAX = 64, ATTEMPTS = 8, RENEWALS = 3 };

/* Connects and renewals that failed; the renewals that were warned of; and warnings that were repeated. A warning about
 * a renewal names no server, so it is counted only. */
struct journal {
    atomic_int connects, renewals, renewal_warnings, repeated;
    pthread_mutex_t mtx;
    char warnings[WARNINGS_MAX][256];
    int len;
};

static void note_warning(struct journal *journal, const char *message) {
    pthread_mutex_lock(&journal->mtx);
    for (int i = 0; i < journal->len; i++)
        if (strcmp(journal->warnings[i], message) == 0)
            atomic_fetch_add(&journal->repeated, 1);
    if (journal->len < WARNINGS_MAX)
        snprintf(journal->warnings[journal->len++], sizeof journal->warnings[0], "%s", message);
    pthread_mutex_unlock(&journal->mtx);
}

static void write_journal(hf_log_level level, const char *message, void *user) {
    struct journal *journal = user;
    bool renewal = strncmp(message, "renewal of", 10) == 0;
    atomic_fetch_add(&journal->renewals, renewal);
    atomic_fetch_add(&journal->connects, !renewal && strstr(message, "cannot connect") != NULL);
    if (level <= HF_LOG_WARN && renewal)
        atomic_fetch_add(&journal->renewal_warnings, 1);
    else if (level <= HF_LOG_WARN)
        note_warning(journal, message);
}

static hf_client *open_client(const char *urls, struct journal *journal) {
    hf_options options = HF_OPTIONS_INIT;
    *journal = (struct journal){.mtx = PTHREAD_MUTEX_INITIALIZER};
    options.watchdog_ms = 9000;
    options.restart_guard_ms = 0;
    options.log = write_journal;
    options.log_user = journal;
    return made(hf_open, urls, &options);
}

static hf_lock *hold(hf_client *client, const char *name) {
    hf_lock *lock = made(hf_lock_new, client, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    return lock;
}

struct count {
    atomic_int *number;
    int at_least;
};

static bool has_come(void *arg) {
    const struct count *count = arg;
    return atomic_load(count->number) >= count->at_least;
}

static bool wait_count(atomic_int *number, int at_least) {
    struct count count = {number, at_least};
    return wait_until(has_come, &count, HANG_MS);
}

static void assert_said_once(struct journal *journal) {
    if (atomic_load(&journal->repeated) > 0)
        for (int i = 0; i < journal->len; i++)
            print_message("%s\n", journal->warnings[i]);
    assert_int_equal(atomic_load(&journal->repeated), 0);
}

/* A lock at each of the two that go; their renewals fail in turn. */
CASE(U92_two_nodes_of_a_cluster) {
    const struct shards_options options = {.partial = true, .node_timeout_ms = 60000};
    struct shards *shards = shards_start(&options);
    struct journal journal;
    hf_client *client = open_client(shards_url(shards), &journal);
    struct server *first = shards_owner_of(shards, "name-0"), *second = first;
    char name[32];
    for (int i = 1; second == first; i++) {
        snprintf(name, sizeof name, "name-%d", i);
        second = shards_owner_of(shards, name);
    }
    hf_lock *locks[] = {hold(client, "name-0"), hold(client, name)};
    server_kill(first);
    server_kill(second);
    assert_true(wait_count(&journal.connects, ATTEMPTS));
    assert_true(wait_count(&journal.renewals, 2 * RENEWALS));
    assert_int_equal(atomic_load(&journal.renewal_warnings), 2);
    assert_said_once(&journal);
    hf_lock_free(locks[0]);
    hf_lock_free(locks[1]);
    hf_close(client);
    shards_free(shards);
}

/* All are away, so a waiting client asks each of them again and again. */
CASE(U92_every_sentinel) {
    struct watched *watched = watched_start(NULL);
    struct journal journal;
    hf_op *op;
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        watched_kill_sentinel(watched, i);
    hf_client *client = open_client(watched_url(watched), &journal);
    hf_lock *lock = made(hf_lock_new, client, "guarded");
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, NULL, &op), HF_OK);
    assert_true(wait_count(&journal.connects, WATCHED_SENTINELS * ATTEMPTS));
    assert_said_once(&journal);
    (void)hf_op_abandon(op);
    hf_lock_free(lock);
    hf_close(client);
    watched_free(watched);
}

CASE(U92_two_servers_of_a_quorum) {
    struct server *servers[3];
    struct journal journal;
    char urls[512] = "";
    for (int i = 0; i < 3; i++) {
        servers[i] = server_start(NULL);
        size_t len = strlen(urls);
        snprintf(urls + len, sizeof urls - len, "%s ", server_url(servers[i]));
    }
    urls[strlen(urls) - 1] = '\0';
    hf_client *client = open_client(urls, &journal);
    hf_lock *lock = hold(client, "elected");
    server_kill(servers[0]);
    server_kill(servers[1]);
    assert_true(wait_count(&journal.connects, ATTEMPTS));
    assert_true(wait_count(&journal.renewals, RENEWALS));
    assert_int_equal(atomic_load(&journal.renewal_warnings), 1);
    assert_said_once(&journal);
    hf_lock_free(lock);
    hf_close(client);
    for (int i = 0; i < 3; i++)
        server_free(servers[i]);
}

/* ZooKeeper: one connection to any of several hosts, which fail in different ways. */
CASE(U92_two_hosts_of_a_url) {
    struct journal journal;
    own_client *client = open_client("zk://127.0.0.1:1,255.255.255.255:1", &journal);
    hf_op *op;
    own_lock *lock = made(hf_lock_new, client, "nowhere");
    assert_int_equal(hf_lock_acquire_start(lock, NULL, NULL, NULL, &op), HF_OK);
    assert_true(wait_count(&journal.connects, ATTEMPTS));
    assert_int_equal(journal.len, 1);
    (void)hf_op_abandon(op);
}

RUN_CASES(NULL, NULL)
