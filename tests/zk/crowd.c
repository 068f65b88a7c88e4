#include "zk/crowd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static struct zk *server;

int crowd_start_server(void **state) {
    (void)state;
    server = zk_start(NULL);
    return 0;
}

int crowd_stop_server(void **state) {
    (void)state;
    zk_free(server);
    return 0;
}

struct zk *crowd_server(void) {
    return server;
}

hf_client *crowd_client(void) {
    hf_client *client = NULL;
    hf_options options = HF_OPTIONS_INIT;
    options.watchdog_ms = SURVIVES_MS;
    options.cmd_timeout_ms = 20000;
    options.connect_timeout_ms = HANG_MS;
    assert_int_equal(hf_open(zk_url(server), &options, &client), HF_OK);
    return client;
}

void crowd_begin(struct crowd *crowd) {
    crowd->ours = crowd_client();
    crowd->theirs = crowd_client();
}

void crowd_end(struct crowd *crowd) {
    assert_int_equal(hf_close(crowd->ours), HF_OK);
    assert_int_equal(hf_close(crowd->theirs), HF_OK);
}

hf_lock *crowd_lock(hf_client *client, const char *name, hf_kind kind) {
    hf_lock *lock = NULL;
    hf_lock_options options = HF_LOCK_INIT;
    options.kind = kind;
    assert_int_equal(hf_lock_new_with(client, name, strlen(name), &options, &lock), HF_OK);
    return lock;
}

hf_op *crowd_acquire(hf_lock *lock, hf_owner owner) {
    hf_op *op = NULL;
    hf_acquire_options options = HF_ACQUIRE_INIT;
    options.owner = owner;
    assert_int_equal(hf_lock_acquire_start(lock, &options, NULL, NULL, &op), HF_OK);
    return op;
}

int crowd_join(hf_op *op) {
    int err = hf_op_wait(op, HANG_MS, NULL);
    assert_int_not_equal(err, HF_EPENDING);
    hf_op_free(op);
    return err;
}

bool crowd_is_done(hf_op *op) {
    return hf_op_wait(op, 0, NULL) != HF_EPENDING;
}

int crowd_tool(const char *command, const char *name) {
    char line[512];
    const char *tool = getenv("HOLDFAST");
    assert_non_null(tool);
    snprintf(line, sizeof line,
             "'%s' -u '%s?cmd_timeout_ms=20000&connect_timeout_ms=%d' -t 60s %s '%s'", tool,
             zk_url(server), HANG_MS, command, name);
    int status = system(line); /* NOLINT(cert-env33-c): the words are ours */
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

struct wanted {
    const char *word, *text;
    int count;
};

static bool server_tells(void *arg) {
    const struct wanted *wanted = arg;
    int seen = 0;
    char *told = zk_word(server, wanted->word);
    for (const char *at = told; at != NULL && (at = strstr(at, wanted->text)) != NULL; at++)
        seen++;
    free(told);
    return seen == wanted->count;
}

void crowd_await_nodes(const char *text, int count) {
    struct wanted wanted = {.word = "dump", .text = text, .count = count};
    assert_true(wait_until(server_tells, &wanted, HANG_MS));
}

void crowd_await_watches(const char *text, int count) {
    struct wanted wanted = {.word = "wchp", .text = text, .count = count};
    assert_true(wait_until(server_tells, &wanted, HANG_MS));
}

struct place {
    struct zk_client *eyes;
    const char *path;
};

static bool is_empty(void *arg) {
    const struct place *place = arg;
    return zk_count(place->eyes, place->path) <= 0;
}

void crowd_await_empty(struct zk_client *eyes, const char *path) {
    struct place place = {.eyes = eyes, .path = path};
    assert_true(wait_until(is_empty, &place, HANG_MS));
}
