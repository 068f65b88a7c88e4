/*
 * On a quorum of five servers, beside the libraries that take the same string at each of them: both
 * directions, contests, kills of either side, and servers that restart, with their data and
 * without.
 */
#include "peers.h"

#include "support/case.h"

#include <signal.h>

enum { SERVERS = 5, MAJORITY = 3 };

static const struct {
    const char *peer, *language;
} peers[] = {{"redsync", "go"}, {"node-redlock-4", "node"}, {"node-redlock-5", "node"}};
enum { PEERS = sizeof peers / sizeof *peers };

/* The servers serve all cases; each finds them up, and empty. They keep their data over a restart. */
static struct server *servers[SERVERS];
static struct remote *actors[PEERS]; /* NULL: cannot be built here */
static char urls[1024], ports[128];

static struct remote *ask_for(size_t peer) {
    int status = peers_build(peers[peer].language);
    assert_true(status == 0 || status == EXIT_SKIPPED);
    return status == 0 ? peers_start(peers[peer].language) : NULL;
}

static int begin_program(void **state) {
    (void)state;
    for (int i = 0; i < SERVERS; i++) {
        servers[i] = server_start(&(struct server_options){.tcp = true, .aof = true});
        size_t len = strlen(urls), ports_len = strlen(ports);
        snprintf(urls + len, sizeof urls - len, "%s%s", i > 0 ? " " : "", server_url(servers[i]));
        snprintf(ports + ports_len, sizeof ports - ports_len, " %d", server_port(servers[i]));
    }
    for (size_t i = 0; i < PEERS; i++)
        actors[i] = ask_for(i);
    return 0;
}

static int end_program(void **state) {
    (void)state;
    for (size_t i = 0; i < PEERS; i++) {
        if (actors[i] != NULL)
            remote_free(actors[i]);
    }
    for (int i = 0; i < SERVERS; i++)
        server_free(servers[i]);
    return 0;
}

/* ---- Both sides on one lock ------------------------------------------------------------------ */

struct both {
    size_t peer;
    hf_client *client;
    hf_lock *lock;
    char name[32];
};

static bool begin(struct both *both, size_t peer, int64_t guard_ms) {
    static unsigned made = 0;
    hf_options options = HF_OPTIONS_INIT;
    *both = (struct both){.peer = peer};
    if (actors[peer] == NULL)
        return false;
    snprintf(both->name, sizeof both->name, "job%u", ++made);
    options.restart_guard_ms = guard_ms;
    options.connect_timeout_ms = REMOTE_LIMIT_MS;
    assert_hf(HF_OK, hf_open(urls, &options, &both->client));
    assert_hf(HF_OK,
              new_lock(both->client, HF_STRING, both->name, strlen(both->name), &both->lock));
    for (int i = 0; i < SERVERS; i++)
        cmd_ok(servers[i], "FLUSHALL");
    return true;
}

static void open_at_peer(const struct both *both, const char *handle, int lease_ms) {
    assert_answer("ok",
                  remote_call(actors[both->peer], "open %s %s %s %d%s", handle,
                              peers[both->peer].peer, both->name, lease_ms, ports),
                  __FILE__, __LINE__);
}

#define peer_says(both, expected, ...)                                                             \
    assert_answer(expected, remote_call(actors[(both)->peer], __VA_ARGS__), __FILE__, __LINE__)

static int stored(const struct both *both) {
    int count = 0;
    for (int i = 0; i < SERVERS; i++)
        count += server_pid(servers[i]) != 0 && key_exists(servers[i], both->name);
    return count;
}

static void end(struct both *both) {
    assert_true(WAIT_FOR(stored(both) == 0, REMOTE_LIMIT_MS));
    hf_lock_free(both->lock);
    hf_close(both->client);
}

/* Runs with each peer that can be had; skipped if there is none. */
static void with_each(void (*play)(struct both *both), int64_t guard_ms) {
    int played = 0;
    for (size_t i = 0; i < PEERS; i++) {
        struct both both;
        if (!begin(&both, i, guard_ms))
            continue;
        play(&both);
        end(&both);
        played++;
    }
    if (played == 0)
        skip();
}

/* ---- Both directions ------------------------------------------------------------------------- */

static void play_both_directions(struct both *both) {
    open_at_peer(both, "h", LONG_MS);
    peer_says(both, "ok", "try h");
    assert_hf(HF_EBUSY, hf_lock_try(both->lock));
    peer_says(both, "ok", "extend h");
    assert_hf(HF_EBUSY, hf_lock_try(both->lock));
    peer_says(both, "ok", "release h");
    assert_hf(HF_OK, hf_lock_try(both->lock));
    peer_says(both, "busy", "try h");
    assert_hf(HF_OK, hf_lock_extend(both->lock, LONG_MS));
    peer_says(both, "busy", "try h");
    assert_hf(HF_OK, hf_lock_release(both->lock));
    assert_true(WAIT_FOR(stored(both) == 0, REMOTE_LIMIT_MS));
    peer_says(both, "ok", "try h");
    peer_says(both, "ok", "release h");
}

CASE(S71_each_keeps_the_other_out) {
    with_each(play_both_directions, 0);
}

static void play_waits(struct both *both) {
    enum { OWNER = 77 };
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *waiting;
    options.owner = OWNER;
    open_at_peer(both, "h", LONG_MS);
    peer_says(both, "ok", "try h");
    assert_hf(HF_OK, hf_lock_acquire_start(both->lock, &options, NULL, NULL, &waiting));
    assert_hf(HF_EPENDING, hf_op_wait(waiting, 300, NULL));
    peer_says(both, "ok", "release h");
    assert_hf(HF_OK, hf_op_wait(waiting, REMOTE_LIMIT_MS, NULL));
    hf_op_free(waiting);
    int taking = remote_send(actors[both->peer], "take h");
    assert_true(HOLDS_FOR(!remote_answered(actors[both->peer], taking), 300));
    assert_hf(HF_OK, hf_lock_release_as(both->lock, OWNER));
    assert_answer("ok", remote_answer(actors[both->peer], taking), __FILE__, __LINE__);
    assert_hf(HF_EBUSY, hf_lock_try(both->lock));
    peer_says(both, "ok", "release h");
}

CASE(S72_each_waits_for_the_other) {
    with_each(play_waits, 0);
}

/* Steps in a book that only an exclusive owner may take: what was read is what is written over. */
static void play_contest(struct both *both) {
    int rounds = getenv("HF_SOAK") != NULL ? 300 : 6;
    const int64_t limit_ms = rounds * REMOTE_LIMIT_MS; /* the peer takes it again at once */
    struct server *book = server_start(&(struct server_options){.tcp = true});
    open_at_peer(both, "h", LONG_MS);
    int work = remote_send(actors[both->peer], "work h %d %d", rounds, server_port(book));
    for (int i = 0; i < rounds; i++) {
        assert_hf(HF_OK, hf_lock_acquire_for(both->lock, limit_ms));
        long long page = key_exists(book, "book") ? cmd_int(book, "GET book") : 0;
        linger(2);
        cmd_ok(book, "SET book %lld", page + 1);
        assert_hf(HF_OK, hf_lock_release(both->lock));
        linger(50); /* who polls comes in between, too */
    }
    const char *answer = remote_answer_within(actors[both->peer], work, limit_ms);
    assert_answer("ok", answer, __FILE__, __LINE__);
    assert_int_equal(cmd_int(book, "GET book"), 2 * rounds);
    server_free(book);
}

CASE(S73_neither_works_while_the_other_does) {
    with_each(play_contest, 0);
}

/* ---- Kills ----------------------------------------------------------------------------------- */

/* Its lease is what ends it; ours comes behind. The actor is started anew. */
static void play_peer_killed(struct both *both) {
    open_at_peer(both, "h", SHORT_MS);
    int64_t began = now_ms();
    peer_says(both, "ok", "take h");
    remote_kill(actors[both->peer]);
    remote_free(actors[both->peer]);
    assert_hf(HF_OK, hf_lock_acquire_for(both->lock, REMOTE_LIMIT_MS));
    assert_true(now_ms() - began >= SHORT_MS - 2);
    actors[both->peer] = peers_start(peers[both->peer].language);
    open_at_peer(both, "h", LONG_MS);
    peer_says(both, "busy", "try h");
    assert_hf(HF_OK, hf_lock_release(both->lock));
}

CASE(S74_a_killed_peer_leaves_by_its_lease) {
    with_each(play_peer_killed, 0);
}

struct holder {
    const char *name;
    volatile sig_atomic_t *held;
};

static int hold(void *arg) {
    const struct holder *holder = arg;
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client;
    hf_lock *lock;
    options.watchdog_ms = SHORT_MS;
    options.restart_guard_ms = 0;
    if (hf_open(urls, &options, &client) != HF_OK ||
        new_lock(client, HF_STRING, holder->name, strlen(holder->name), &lock) != HF_OK ||
        hf_lock_try(lock) != HF_OK)
        return 1;
    *holder->held = 1;
    return child_waits_for_ever(NULL);
}

static void play_ours_killed(struct both *both) {
    struct holder holder = {both->name, shared_new(sizeof *holder.held)};
    pid_t child = run_child(hold, &holder);
    assert_true(WAIT_FOR(*holder.held != 0 || !process_alive(child), REMOTE_LIMIT_MS));
    assert_int_equal(*holder.held, 1);
    open_at_peer(both, "h", LONG_MS);
    peer_says(both, "busy", "try h");
    kill_child(child);
    peer_says(both, "ok", "take h");
    assert_hf(HF_EBUSY, hf_lock_try(both->lock));
    peer_says(both, "ok", "release h");
    shared_free((void *)(uintptr_t)holder.held, sizeof *holder.held);
}

CASE(S75_our_killed_process_leaves_by_its_lease) {
    with_each(play_ours_killed, 0);
}

/* ---- Restarts -------------------------------------------------------------------------------- */

static void restart(int from, int below) {
    for (int i = from; i < below; i++)
        server_restart(servers[i]);
}

/* A majority restarts with its data: neither's hold ends, nobody else comes in. */
static void play_restart_with_data(struct both *both) {
    open_at_peer(both, "h", LONG_MS);
    peer_says(both, "ok", "try h");
    restart(0, MAJORITY);
    peer_says(both, "ok", "ready h");
    assert_hf(HF_EBUSY, hf_lock_try(both->lock));
    peer_says(both, "ok", "release h");
    assert_hf(HF_OK, hf_lock_acquire_for(both->lock, REMOTE_LIMIT_MS));
    assert_true(WAIT_FOR(stored(both) == SERVERS, REMOTE_LIMIT_MS));
    restart(2, SERVERS);
    peer_says(both, "ok", "ready h");
    peer_says(both, "busy", "try h");
    assert_true(hf_lock_remaining_ms(both->lock) > 0);
    assert_hf(HF_OK, hf_lock_extend(both->lock, LONG_MS));
    assert_hf(HF_OK, hf_lock_release(both->lock));
    assert_true(WAIT_FOR(stored(both) == 0, REMOTE_LIMIT_MS));
    peer_says(both, "ok", "try h");
    peer_says(both, "ok", "release h");
}

CASE(S76_restarts_with_data_end_nothing) {
    with_each(play_restart_with_data, 0);
}

static void forget(int from, int below) {
    for (int i = from; i < below; i++) {
        cmd_ok(servers[i], "FLUSHALL"); /* so its file says, too */
        server_restart(servers[i]);
    }
}

/* It holds, and a majority forgets. Ours waits for the guard's time, which is longer than this test;
 * a second client of its own library walks in at once. */
static void play_empty_restart(struct both *both) {
    open_at_peer(both, "h", LONG_MS);
    open_at_peer(both, "second", LONG_MS);
    peer_says(both, "ok", "try h");
    forget(0, MAJORITY);
    peer_says(both, "ok", "ready h");
    peer_says(both, "ok", "ready second");
    int err = hf_lock_try(both->lock);
    assert_true(err == HF_ENOQUORUM || err == HF_EBUSY); /* by who answers first */
    assert_true(WAIT_FOR(stored(both) == SERVERS - MAJORITY, REMOTE_LIMIT_MS));
    peer_says(both, "ok", "try second");
    peer_says(both, "ok", "release second");
    peer_says(both, "lost", "release h");
}

CASE(S77_after_an_empty_restart_only_we_wait) {
    with_each(play_empty_restart, 600000);
}

/* A majority has another token, as after an extension that re-creates. */
static void play_our_loss(struct both *both) {
    open_at_peer(both, "h", LONG_MS);
    assert_hf(HF_OK, hf_lock_try(both->lock));
    assert_true(WAIT_FOR(stored(both) == SERVERS, REMOTE_LIMIT_MS));
    for (int i = 0; i < MAJORITY; i++)
        cmd_ok(servers[i], "SET %s 5f3a PX 60000", both->name);
    assert_hf(HF_ELOST, hf_lock_extend(both->lock, LONG_MS));
    for (int i = 0; i < MAJORITY; i++)
        cmd_ok(servers[i], "DEL %s", both->name);
    assert_true(WAIT_FOR(stored(both) == 0, REMOTE_LIMIT_MS));
    peer_says(both, "ok", "try h");
    assert_hf(HF_EBUSY, hf_lock_try(both->lock));
    peer_says(both, "ok", "release h");
}

CASE(S78_our_loss_is_found_and_the_peer_goes_on) {
    with_each(play_our_loss, 0);
}

RUN_CASES(begin_program, end_program)
