/*
 * The scenes that every peer plays with us, by what it can; see scenes.h.
 *
 * A lease is measured by the server's wall clock, whose milliseconds begin elsewhere than ours: hence ROUNDING_MS.
 */
#include "scenes.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROUNDING_MS 2

static void we_take_and_release(const struct pair *pair) {
    assert_hf(HF_OK, hf_lock_try(pair->lock));
    assert_hf(HF_OK, hf_lock_release(pair->lock));
}

/* ---- Both directions ------------------------------------------------------------------------- */

static void its_hold_keeps_us_out(const struct peer *peer) {
    struct pair pair;
    pair_begin(&pair, peer);
    it_says("ok", "try long");
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    if (has(peer, PEER_EXTENDS)) {
        it_says("ok", "extend long");
        assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    }
    it_says(released(peer), "release long");
    we_take_and_release(&pair);
    pair_end(&pair);
}

static void our_hold_keeps_it_out(const struct peer *peer) {
    struct pair pair;
    pair_begin(&pair, peer);
    assert_hf(HF_OK, hf_lock_try(pair.lock));
    char *token = token_of(&pair);
    it_says("busy", "try long");
    assert_token(&pair, token);
    assert_hf(HF_OK, hf_lock_extend(pair.lock, LONG_MS));
    assert_token(&pair, token);
    it_says("busy", "try long");
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    it_says("ok", "try long");
    it_says(released(peer), "release long");
    free(token);
    pair_end(&pair);
}

static void it_sees_our_hold(const struct peer *peer) {
    struct pair pair;
    pair_begin(&pair, peer);
    it_says("ok", "try long");
    it_says("yes", "locked long");
    it_says(released(peer), "release long");
    assert_hf(HF_OK, hf_lock_try(pair.lock));
    it_says(has(peer, PEER_SEES_OTHERS) ? "yes" : "no", "locked long");
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    it_says("no", "locked long");
    pair_end(&pair);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static void it_waits_for_us(const struct peer *peer) {
    struct pair pair;
    pair_begin(&pair, peer);
    assert_hf(HF_OK, hf_lock_try(pair.lock));
    struct monitor *monitor = monitor_start(suite.server);
    int waiting = remote_send(suite.actor, "take long");
    assert_true(monitor_wait(monitor, pair.key, 1, REMOTE_LIMIT_MS));
    monitor_stop(monitor);
    assert_false(remote_answered(suite.actor, waiting));
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    assert_answer("ok", remote_answer(suite.actor, waiting), __FILE__, __LINE__);
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    it_says(released(peer), "release long");
    pair_end(&pair);
}

static void we_wait_for_it(const struct peer *peer) {
    enum { OWNER = 77 };
    struct pair pair;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *waiting;
    pair_begin(&pair, peer);
    it_says("ok", "try long");
    options.owner = OWNER;
    struct monitor *monitor = monitor_start(suite.server);
    assert_hf(HF_OK, hf_lock_acquire_start(pair.lock, &options, NULL, NULL, &waiting));
    assert_true(monitor_wait(monitor, pair.key, 1, REMOTE_LIMIT_MS));
    monitor_stop(monitor);
    assert_hf(HF_EPENDING, hf_op_wait(waiting, 0, NULL));
    it_says(released(peer), "release long");
    assert_hf(HF_OK, hf_op_wait(waiting, REMOTE_LIMIT_MS, NULL));
    hf_op_free(waiting);
    it_says("busy", "try long");
    assert_hf(HF_OK, hf_lock_release_as(pair.lock, OWNER));
    pair_end(&pair);
}

/* Steps in a book that only an exclusive owner may take: what was read is what is written over. */
static void we_work(hf_lock *lock, int rounds) {
    for (int i = 0; i < rounds; i++) {
        assert_hf(HF_OK, hf_lock_acquire(lock));
        long long page = key_exists(suite.server, "book") ? cmd_int(suite.server, "GET book") : 0;
        linger(2);
        cmd_ok(suite.server, "SET book %lld", page + 1);
        assert_hf(HF_OK, hf_lock_release(lock));
    }
}

static void neither_works_while_the_other_does(const struct peer *peer) {
    int rounds = getenv("HF_SOAK") != NULL ? 500 : 10;
    struct pair pair;
    pair_begin(&pair, peer);
    int work = remote_send(suite.actor, "work long %d %d", rounds, server_port(suite.server));
    we_work(pair.lock, rounds);
    const char *answer = remote_answer_within(suite.actor, work, (int64_t)rounds * 10000);
    assert_answer("ok", answer, __FILE__, __LINE__);
    assert_int_equal(cmd_int(suite.server, "GET book"), 2 * rounds);
    pair_end(&pair);
}

/* No message reports the end of a lease. A peer that sleeps until it is notified tries again and again instead. */
static void it_takes_in_the_end(const struct peer *peer, const char *handle) {
    if (has(peer, PEER_WAITS))
        it_says("ok", "take %s", handle);
    else
        assert_true(WAIT_FOR(strcmp(remote_call(suite.actor, "try %s", handle), "ok") == 0,
                             REMOTE_LIMIT_MS));
}

/* ---- Leases that end ------------------------------------------------------------------------- */

/* It takes the lock, overruns its lease, and we have the lock when it comes back. Returns our token. */
static char *it_overruns(const struct pair *pair) {
    int64_t began = now_ms();
    it_says("ok", "take short");
    assert_hf(HF_OK, hf_lock_acquire_for(pair->lock, REMOTE_LIMIT_MS));
    assert_true(now_ms() - began >= SHORT_MS - ROUNDING_MS);
    return token_of(pair);
}

static void its_late_calls_leave_ours_alone(const struct peer *peer) {
    struct pair pair;
    pair_begin(&pair, peer);
    char *token = it_overruns(&pair);
    if (has(peer, PEER_EXTENDS))
        it_says("lost", "extend short");
    it_says(not_released(peer), "release short");
    assert_token(&pair, token);
    it_says("busy", "try long");
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    free(token);
    pair_end(&pair);
}

/* We hold, somebody deletes the key, and it takes the lock: we do not know that yet. */
static redisReply *it_replaces_us(const struct pair *pair) {
    assert_hf(HF_OK, hf_lock_try(pair->lock));
    cmd_ok(suite.server, "DEL %s", pair->key);
    it_says("ok", "try long");
    return cmd(suite.server, "GET %s", pair->key);
}

/* Its token is still there; rslock's is raw bytes. Frees `token`. */
static void assert_its_own(const struct pair *pair, redisReply *token) {
    redisReply *now = cmd(suite.server, "GET %s", pair->key);
    assert_int_equal(now->type, REDIS_REPLY_STRING);
    assert_int_equal(now->len, token->len);
    assert_memory_equal(now->str, token->str, token->len);
    freeReplyObject(now);
    freeReplyObject(token);
    it_says(released(pair->peer), "release long");
}

static void our_late_calls_leave_its_alone(const struct peer *peer) {
    struct pair pair;
    pair_begin(&pair, peer);
    redisReply *token = it_replaces_us(&pair);
    assert_hf(HF_ELOST, hf_lock_extend(pair.lock, LONG_MS));
    assert_its_own(&pair, token);
    assert_hf(HF_ENOTOWNER, hf_lock_release(pair.lock)); /* the loss has been reported */

    token = it_replaces_us(&pair);
    assert_hf(HF_ELOST, hf_lock_release(pair.lock));
    assert_its_own(&pair, token);
    pair_end(&pair);
}

/* Without safeUpdate: shown as it is. What it wrote over ours we cannot defend, only report. */
static void its_late_calls_delete_ours(const struct peer *peer) {
    struct pair pair;
    pair_begin(&pair, peer);
    char *token = it_overruns(&pair);
    it_says("ok", "extend short");
    char *value = token_of(&pair);
    assert_non_null(value);
    assert_string_not_equal(value, token);
    it_says("ok", "release short");
    assert_false(key_exists(suite.server, pair.key));
    assert_hf(HF_ELOST, hf_lock_release(pair.lock));
    free(value);
    free(token);
    pair_end(&pair);
}

static void an_extension_after_the_lease(const struct peer *peer) {
    struct pair pair;
    pair_begin(&pair, peer);
    it_says("ok", "take short");
    assert_true(WAIT_FOR(!key_exists(suite.server, pair.key), REMOTE_LIMIT_MS));
    it_says("lost", "extend short");
    we_take_and_release(&pair);
    pair_end(&pair);
}

/* With a long lease: what it has re-created is there when we look. */
static void an_extension_takes_it_again(const struct peer *peer) {
    struct pair pair;
    bool broken;
    pair_begin(&pair, peer);
    it_says("ok", "try long");
    assert_hf(HF_OK, hf_lock_break(pair.lock, &broken));
    assert_true(broken);
    assert_false(key_exists(suite.server, pair.key));
    it_says("ok", "extend long");
    assert_hf(HF_EBUSY, hf_lock_try(pair.lock));
    it_says(released(peer), "release long");
    we_take_and_release(&pair);
    pair_end(&pair);
}

static void a_break_frees_it(const struct peer *peer) {
    struct pair pair;
    bool broken;
    pair_begin(&pair, peer);
    it_says("ok", "try long");
    assert_hf(HF_OK, hf_lock_break(pair.lock, &broken));
    assert_true(broken);
    assert_hf(HF_OK, hf_lock_try(pair.lock));
    char *token = token_of(&pair);
    if (has(peer, PEER_EXTENDS))
        it_says("lost", "extend long");
    it_says(not_released(peer), "release long");
    assert_token(&pair, token);
    assert_hf(HF_OK, hf_lock_release(pair.lock));
    free(token);
    pair_end(&pair);
}

/* ---- Kills ----------------------------------------------------------------------------------- */

/* One actor holds a lock by each of its libraries. */
static void killed_peers_leave_by_their_leases(const struct peer *unused) {
    struct remote *victim = peers_start(suite.language);
    int64_t *began = calloc(suite.peers_len, sizeof *began);
    assert_non_null(began);
    (void)unused;
    for (size_t i = 0; i < suite.peers_len; i++) {
        const struct peer *peer = &suite.peers[i];
        assert_answer("ok",
                      remote_call(victim, "open h%zu %s killed-%s %d %d", i, peer->name, peer->name,
                                  SHORT_MS, server_port(suite.server)),
                      __FILE__, __LINE__);
        began[i] = now_ms();
        assert_answer("ok", remote_call(victim, "take h%zu", i), __FILE__, __LINE__);
    }
    remote_kill(victim);
    remote_free(victim);
    for (size_t i = 0; i < suite.peers_len; i++) {
        char name[64];
        snprintf(name, sizeof name, "killed-%s", suite.peers[i].name);
        hf_client *client = our_client(suite.peers[i].prefix, 0);
        hf_lock *lock = our_lock(client, name);
        assert_hf(HF_OK, hf_lock_acquire_for(lock, REMOTE_LIMIT_MS));
        assert_true(now_ms() - began[i] >= SHORT_MS - ROUNDING_MS);
        assert_hf(HF_OK, hf_lock_release(lock));
        hf_lock_free(lock);
        hf_close(client);
    }
    free(began);
}

/* The body of our process; its index says which client could not be made, or that all hold. */
static int hold_one_for_each(void *arg) {
    volatile sig_atomic_t *held = arg;
    for (size_t i = 0; i < suite.peers_len; i++) {
        char name[64];
        hf_options options = HF_OPTIONS_INIT;
        hf_client *client;
        hf_lock *lock;
        snprintf(name, sizeof name, "ours-%s", suite.peers[i].name);
        options.name_prefix = suite.peers[i].prefix;
        options.watchdog_ms = ENDURING_MS;
        if (hf_open(server_url(suite.server), &options, &client) != HF_OK ||
            new_lock(client, HF_STRING, name, strlen(name), &lock) != HF_OK ||
            hf_lock_try(lock) != HF_OK)
            return 1;
    }
    *held = 1;
    return child_waits_for_ever(NULL);
}

static void our_killed_process_leaves_by_its_leases(const struct peer *unused) {
    volatile sig_atomic_t *held = shared_new(sizeof *held);
    int64_t *free_at = calloc(suite.peers_len, sizeof *free_at);
    assert_non_null(free_at);
    (void)unused;
    pid_t child = run_child(hold_one_for_each, (void *)(uintptr_t)held);
    assert_true(WAIT_FOR(*held != 0 || !process_alive(child), REMOTE_LIMIT_MS));
    assert_int_equal(*held, 1);
    kill_child(child);
    for (size_t i = 0; i < suite.peers_len; i++) {
        int64_t asked = now_ms();
        char key[128];
        snprintf(key, sizeof key, "%sours-%s", suite.peers[i].prefix, suite.peers[i].name);
        long long left = pttl(suite.server, key);
        assert_true(left > 0);
        free_at[i] = asked + left;
    }
    for (size_t i = 0; i < suite.peers_len; i++) {
        const struct peer *peer = &suite.peers[i];
        it_says("ok", "open heir %s ours-%s %d %d", peer->name, peer->name, SHORT_MS,
                server_port(suite.server));
        it_takes_in_the_end(peer, "heir");
        assert_true(now_ms() >= free_at[i] - ROUNDING_MS);
        it_says(released(peer), "release heir");
    }
    free(free_at);
    shared_free((void *)(uintptr_t)held, sizeof *held);
}

/* ---- Another kind ---------------------------------------------------------------------------- */

/* A hash of that name: to a peer it is busy, or an error. No peer harms it, but for one that deletes blindly. */
static void a_plain_lock_of_that_name_is_safe(const struct peer *peer) {
    struct pair pair;
    hf_lock *plain;
    pair_begin(&pair, peer);
    assert_hf(HF_OK, new_lock(pair.client, HF_PLAIN, pair.name, strlen(pair.name), &plain));
    assert_hf(HF_OK, hf_lock_try(plain));
    assert_hf(HF_EWRONGTYPE, hf_lock_try(pair.lock));
    const char *answer = remote_call(suite.actor, "try long");
    assert_true(strcmp(answer, "busy") == 0 || strncmp(answer, "err ", 4) == 0);
    assert_hf(HF_OK, hf_lock_release(plain));
    it_says("ok", "try long");
    assert_hf(HF_EWRONGTYPE, hf_lock_try(plain));
    it_says(released(peer), "release long");
    hf_lock_free(plain);
    pair_end(&pair);
}

/* ---- The page -------------------------------------------------------------------------------- */

/* The last cell of the library's row on the page: a command between backticks. */
static void read_example(const char *library, char *ret_command, size_t size) {
    char line[1024], row[64], *command = NULL;
    FILE *page = fopen(HF_SOURCE_DIR "/docs/strings.md", "r");
    assert_non_null(page);
    snprintf(row, sizeof row, "|%s|", library);
    while (command == NULL && fgets(line, sizeof line, page) != NULL) {
        if (strncmp(line, row, strlen(row)) == 0 && strstr(line, "`holdfast run ") != NULL)
            command = strstr(line, "`holdfast run ") + 1;
    }
    fclose(page);
    if (command == NULL)
        support_die("docs/strings.md has no example for %s", library);
    command[strcspn(command, "`")] = '\0';
    snprintf(ret_command, size, "%s", command);
}

struct example {
    char *dir, command[256];
};

/* As a user runs it, in a directory with a report that notes that it runs, and goes on until the test says so. */
static int run_example(void *arg) {
    const struct example *example = arg;
    char path[4096];
    snprintf(path, sizeof path, "%s:%s", HF_BUILD_DIR "/bin", getenv("PATH"));
    if (chdir(example->dir) != 0 || setenv("PATH", path, 1) != 0 ||
        setenv("HOLDFAST_URL", server_url(suite.server), 1) != 0)
        return 1;
    execl("/bin/sh", "sh", "-c", example->command, (char *)NULL);
    return 1;
}

static void write_file(const struct example *example, const char *name, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", example->dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    chmod(path, 0700);
}

static bool example_has(const struct example *example, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", example->dir, name);
    return access(path, F_OK) == 0;
}

static void its_example_on_the_page(const struct peer *peer) {
    struct example example = {.dir = temp_dir()};
    char key[96];
    read_example(peer->page, example.command, sizeof example.command);
    write_file(&example, "report.sh",
               "#!/bin/sh\ntouch ran\nwhile [ ! -e go ]; do sleep 0.02; done\n");
    snprintf(key, sizeof key, "%snightly", peer->prefix);
    it_says("ok", "open h %s nightly %d %d", peer->name, LONG_MS, server_port(suite.server));

    it_says("ok", "try h");
    struct monitor *monitor = monitor_start(suite.server);
    pid_t command = run_child(run_example, &example);
    assert_true(monitor_wait(monitor, key, 1, REMOTE_LIMIT_MS));
    monitor_stop(monitor);
    assert_false(example_has(&example, "ran"));
    it_says(released(peer), "release h");
    assert_true(WAIT_FOR(example_has(&example, "ran"), REMOTE_LIMIT_MS));
    it_says("busy", "try h");
    write_file(&example, "go", "");
    assert_true(expect_exit(command, 0, REMOTE_LIMIT_MS));
    it_says("ok", "try h");
    it_says(released(peer), "release h");
    temp_dir_remove(example.dir);
    free(example.dir);
}

const struct peer_scene scenes[] = {
    {"its_hold_keeps_us_out", its_hold_keeps_us_out, 0, 0, false},
    {"our_hold_keeps_it_out", our_hold_keeps_it_out, 0, 0, false},
    {"it_sees_its_hold", it_sees_our_hold, PEER_SEES_OTHERS, 0, false},
    {"it_sees_only_its_hold", it_sees_our_hold, PEER_SEES_OWN, 0, false},
    {"it_waits_for_us", it_waits_for_us, PEER_WAITS, 0, false},
    {"we_wait_for_it", we_wait_for_it, 0, 0, false},
    {"neither_works_while_the_other_does", neither_works_while_the_other_does, PEER_WAITS, 0,
     false},
    {"its_late_calls_leave_ours_alone", its_late_calls_leave_ours_alone, 0, PEER_CARELESS, false},
    {"our_late_calls_leave_its_alone", our_late_calls_leave_its_alone, 0, 0, false},
    {"its_late_calls_delete_ours", its_late_calls_delete_ours, PEER_CARELESS, 0, false},
    {"an_extension_after_the_lease", an_extension_after_the_lease, PEER_EXTENDS, PEER_RECREATES,
     false},
    {"an_extension_takes_it_again", an_extension_takes_it_again, PEER_RECREATES, 0, false},
    {"a_break_frees_it", a_break_frees_it, 0, PEER_RECREATES | PEER_CARELESS, false},
    {"a_plain_lock_of_that_name_is_safe", a_plain_lock_of_that_name_is_safe, 0, 0, false},
    {"its_example_on_the_page", its_example_on_the_page, 0, 0, false},
    {"killed_peers_leave_by_their_leases", killed_peers_leave_by_their_leases, 0, 0, true},
    {"our_killed_process_leaves_by_its_leases", our_killed_process_leaves_by_its_leases, 0, 0,
     true},
};
const size_t scenes_len = sizeof scenes / sizeof *scenes;
