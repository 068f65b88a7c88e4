/*
 * A real server behind a proxy, a client on it, a semaphore and a latch; see scene.h.
 *
 * The server is one per test program and lives from the group's setup to its teardown; everything
 * else is made and ended by the test itself, on its own thread. The server knows the scripts, and
 * the client is connected, before a test begins, so a rule of the proxy meets the command it is
 * meant for.
 */
#include "sync/scene.h"

#include <stdio.h>
#include <stdlib.h>

static struct server *server;

int scene_start_server(void **state) {
    (void)state;
    server = server_start(NULL);
    return 0;
}

int scene_stop_server(void **state) {
    (void)state;
    server_free(server);
    return 0;
}

struct server *scene_server(void) {
    return server;
}

hf_options scene_options(void) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 5000;
    options.connect_timeout_ms = 10000;
    return options;
}

hf_client *scene_open_mute(void) {
    hf_options options = scene_options();
    hf_client *client = NULL;
    cmd_ok(scene_server(), "ACL SETUSER mute on >x ~* +@all resetchannels");
    options.user = "mute";
    options.password = "x";
    assert_int_equal(hf_open(server_url(scene_server()), &options, &client), HF_OK);
    return client;
}

void scene_close_mute(hf_client *client) {
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(scene_server(), "ACL DELUSER mute");
}

hf_sem *scene_sem(hf_client *client) {
    hf_sem *sem = NULL;
    assert_int_equal(hf_sem_new_bytes(client, SEM_NAME, strlen(SEM_NAME), &sem), HF_OK);
    return sem;
}

hf_latch *scene_latch(hf_client *client) {
    hf_latch *latch = NULL;
    assert_int_equal(hf_latch_new_bytes(client, LATCH_NAME, strlen(LATCH_NAME), &latch), HF_OK);
    return latch;
}

static void load_scripts(void) {
    const struct hfi_script *const scripts[] = {
        &hfi_script_semaphore_set,   &hfi_script_semaphore_acquire, &hfi_script_semaphore_change,
        &hfi_script_semaphore_drain, &hfi_script_latch_set,         &hfi_script_latch_count_down,
        &hfi_script_counter_delete,  &hfi_script_latch_look,        &hfi_script_semaphore_undo};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        cmd_ok(server, "SCRIPT LOAD %b", scripts[i]->body, scripts[i]->len);
}

void scene_begin(struct scene *scene, const hf_options *options) {
    hf_options chosen = options != NULL ? *options : scene_options();
    memset(scene, 0, sizeof *scene);
    scene->server = server;
    server_empty(server);
    load_scripts();
    scene->proxy = server_proxy(server);
    assert_int_equal(hf_open(proxy_url(scene->proxy), &chosen, &scene->client), HF_OK);
    assert_int_equal(hf_open(server_url(server), &chosen, &scene->rival), HF_OK);
    scene->sem = scene_sem(scene->client);
    scene->latch = scene_latch(scene->client);
    scene->rival_sem = scene_sem(scene->rival);
    scene->rival_latch = scene_latch(scene->rival);
    hf_op *op = NULL;
    assert_int_equal(hf_ping(scene->client), HF_OK);
    int err = hf_ping_start(scene->client, NULL, NULL, &op); /* the keeper's connection, too */
    assert_int_equal(scene_wait_op(err, op, NULL), HF_OK);
}

void scene_end(struct scene *scene) {
    hf_sem_free(scene->sem);
    hf_latch_free(scene->latch);
    hf_sem_free(scene->rival_sem);
    hf_latch_free(scene->rival_latch);
    assert_int_equal(hf_close(scene->client), HF_OK);
    assert_int_equal(hf_close(scene->rival), HF_OK);
    proxy_free(scene->proxy);
}

/* ---- What the server knows ---- */

long long scene_number(const char *name) {
    return server_value(server, name);
}

struct wanted {
    const char *key;
    long long number;
};

static bool has_number(void *arg) {
    const struct wanted *wanted = arg;
    return server_has(server, wanted->key) && scene_number(wanted->key) == wanted->number;
}

bool scene_wait_number(const char *key, long long number, int64_t limit_ms) {
    struct wanted wanted = {key, number};
    return wait_until(has_number, &wanted, limit_ms);
}

/* Of those that somebody waits at: whoever has held something for a second listens, too, for breaks. */
static bool no_channels(void *arg) {
    (void)arg;
    if (server_is_other(server))
        return true; /* a watch that nobody waits for any more stays until it fires */
    redisReply *reply = cmd(server, "PUBSUB CHANNELS redisson_*");
    assert_non_null(reply);
    bool none = reply->type == REDIS_REPLY_ARRAY && reply->elements == 0;
    freeReplyObject(reply);
    return none;
}

bool scene_wait_no_channels(int64_t limit_ms) {
    return wait_until(no_channels, NULL, limit_ms);
}

hf_stats scene_stats(hf_client *client) {
    hf_stats stats = HF_STATS_INIT;
    assert_int_equal(hf_client_stats(client, &stats), HF_OK);
    return stats;
}

/* ---- Calls ---- */

void scene_set_permits(hf_sem *sem, int64_t permits) {
    bool was_set = false;
    assert_int_equal(hf_sem_try_set(sem, permits, 0, &was_set), HF_OK);
    assert_true(was_set);
}

void scene_assert_available(hf_sem *sem, int64_t expected) {
    int64_t permits = -99;
    assert_int_equal(hf_sem_available(sem, &permits), HF_OK);
    assert_int_equal(permits, expected);
}

int scene_wait_op(int err, hf_op *op, hf_result *ret) {
    if (err != HF_OK)
        return err;
    err = hf_op_wait(op, HANG_MS, ret);
    hf_op_free(op);
    return err;
}

static int acquire_here(struct scene *scene, int64_t permits, int64_t wait_ms) {
    return hf_sem_acquire_for(scene->sem, permits, wait_ms);
}

static int release_here(struct scene *scene, int64_t permits) {
    return hf_sem_release(scene->sem, permits);
}

static int count_down_here(struct scene *scene) {
    return hf_latch_count_down(scene->latch);
}

static int await_here(struct scene *scene, int64_t wait_ms) {
    return hf_latch_await_for(scene->latch, wait_ms);
}

static int acquire_started(struct scene *scene, int64_t permits, int64_t wait_ms) {
    hf_op *op = NULL;
    hf_wait_options options = HF_WAIT_INIT;
    options.wait_ms = wait_ms;
    int err = hf_sem_acquire_start(scene->sem, permits, &options, NULL, NULL, &op);
    return scene_wait_op(err, op, NULL);
}

static int release_started(struct scene *scene, int64_t permits) {
    hf_op *op = NULL;
    int err = hf_sem_release_start(scene->sem, permits, NULL, NULL, &op);
    return scene_wait_op(err, op, NULL);
}

static int count_down_started(struct scene *scene) {
    hf_op *op = NULL;
    int err = hf_latch_count_down_start(scene->latch, NULL, NULL, &op);
    return scene_wait_op(err, op, NULL);
}

static int await_started(struct scene *scene, int64_t wait_ms) {
    hf_op *op = NULL;
    hf_wait_options options = HF_WAIT_INIT;
    options.wait_ms = wait_ms;
    int err = hf_latch_await_start(scene->latch, &options, NULL, NULL, &op);
    return scene_wait_op(err, op, NULL);
}

const struct form scene_forms[2] = {
    {"synchronous", acquire_here, release_here, count_down_here, await_here},
    {"asynchronous", acquire_started, release_started, count_down_started, await_started},
};

static void *wait_on_thread(void *arg) {
    struct waiter *waiter = arg;
    int64_t start_ms = now_ms();
    waiter->result = waiter->sem != NULL
                         ? hf_sem_acquire_with(waiter->sem, waiter->permits, &waiter->options)
                         : hf_latch_await_with(waiter->latch, &waiter->options);
    waiter->took_ms = now_ms() - start_ms;
    atomic_store(&waiter->done, true);
    return NULL;
}

static void start(struct waiter *waiter, int64_t wait_ms, hf_cancel *cancel) {
    hf_wait_options options = HF_WAIT_INIT;
    options.wait_ms = wait_ms;
    options.cancel = cancel;
    waiter->options = options;
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_on_thread, waiter), 0);
}

void waiter_acquire(struct waiter *waiter, hf_sem *sem, int64_t permits, int64_t wait_ms,
                    hf_cancel *cancel) {
    memset(waiter, 0, sizeof *waiter);
    waiter->sem = sem;
    waiter->permits = permits;
    start(waiter, wait_ms, cancel);
}

void waiter_await(struct waiter *waiter, hf_latch *latch, int64_t wait_ms, hf_cancel *cancel) {
    memset(waiter, 0, sizeof *waiter);
    waiter->latch = latch;
    start(waiter, wait_ms, cancel);
}

int waiter_join(struct waiter *waiter) {
    assert_int_equal(pthread_join(waiter->thread, NULL), 0);
    return waiter->result;
}

bool scene_wait_asleep(struct scene *scene, const char *matcher, size_t attempts,
                       int64_t limit_ms) {
    return proxy_wait_seen(scene->proxy, matcher, attempts, limit_ms);
}

/* A path and, behind it in the frame, that a watch is wanted. */
static bool wait_watches(struct scene *scene, const char *path_and_watch, size_t watches) {
    return proxy_wait_seen(scene->proxy, path_and_watch, watches, HANG_MS) &&
           proxy_wait_answered(scene->proxy, HANG_MS);
}

bool scene_wait_sem(struct scene *scene, size_t attempts, size_t watches) {
    return server_is_other(server) ? wait_watches(scene, "/" SEM_NAME "\1", watches)
                                   : scene_wait_asleep(scene, SCENE_ACQUIRE, attempts, HANG_MS);
}

bool scene_wait_latch(struct scene *scene, size_t attempts, size_t watches) {
    return server_is_other(server) ? wait_watches(scene, "/" LATCH_NAME "\1", watches)
                                   : scene_wait_asleep(scene, SCENE_LOOK, attempts, HANG_MS);
}

/* ---- Generations of a latch ---- */

void scene_next_generation(enum scene_hand opener, enum scene_hand closer, int count) {
    static const char keys[] = "3 " LATCH_NAME " {" LATCH_NAME "}:timeout " LATCH_PROOF;
    char command[512];
    cmd_ok(server, "MULTI");
    if (opener == SCENE_OURS) {
        snprintf(command, sizeof command, "EVALSHA %s %s 0 publish " LATCH_CHANNEL,
                 hfi_script_latch_count_down.sha1, keys);
        cmd_ok(server, command);
    } else {
        cmd_ok(server, "DEL " LATCH_NAME);
        cmd_ok(server, "PUBLISH " LATCH_CHANNEL " 0");
    }
    if (closer == SCENE_OURS) {
        snprintf(command, sizeof command, "EVALSHA %s %s 0 %d publish " LATCH_CHANNEL,
                 hfi_script_latch_set.sha1, keys, count);
        cmd_ok(server, command);
    } else {
        cmd_ok(server, "SET " LATCH_NAME " %d", count);
        cmd_ok(server, "PUBLISH " LATCH_CHANNEL " 1");
    }
    cmd_ok(server, "EXEC");
}
