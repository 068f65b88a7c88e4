/*
 * What the tests with ZooKeeper's servers share; see scene.h.
 */
#include "zk/scene.h"

#include "support/tool.h"

#include <stdio.h>
#include <string.h>

struct scene scene;
const struct zk_options scene_options = {
    .keeps_containers = true, .config = (const char *const[]){"maxSessionTimeout=600000", NULL}};

int scene_start(void **state) {
    (void)state;
    scene.zk = zk_start(&scene_options);
    scene.proxy = proxy_start_tcp(zk_port(scene.zk), PROXY_ZOOKEEPER);
    scene.eyes = zk_client_open(zk_port(scene.zk));
    return 0;
}

int scene_stop(void **state) {
    (void)state;
    zk_client_close(scene.eyes);
    proxy_free(scene.proxy);
    zk_free(scene.zk);
    return 0;
}

int scene_heal(void **state) {
    (void)state;
    proxy_heal(scene.proxy);
    if (proxy_held(scene.proxy) > 0)
        (void)proxy_release_held(
            scene.proxy); /* to a connection that the server has closed since */
    return 0;
}

hf_client *scene_client(const char *url, int64_t watchdog_ms) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    options.watchdog_ms = watchdog_ms;
    options.cmd_timeout_ms = 20000; /* an election may be inside of it */
    options.connect_timeout_ms = HANG_MS;
    assert_hf(HF_OK, hf_open(url, &options, &client));
    return client;
}

hf_client *scene_direct(int64_t watchdog_ms) {
    return scene_client(zk_url(scene.zk), watchdog_ms);
}

hf_client *scene_proxied(int64_t watchdog_ms) {
    return scene_client(proxy_tcp_url(scene.proxy), watchdog_ms);
}

hf_lock *scene_lock(hf_client *client, any_kind kind, const char *name) {
    hf_lock *lock = NULL;
    assert_hf(HF_OK, new_lock(client, kind, name, strlen(name), &lock));
    return lock;
}

void scene_warm(const char *name) {
    hf_client *client = scene_direct(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, name);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_lock_free(lock);
    hf_close(client);
}

void scene_pair_begin(struct scene_pair *pair) {
    pair->ours = scene_direct(SURVIVES_MS);
    pair->theirs = scene_direct(SURVIVES_MS);
}

void scene_pair_end(struct scene_pair *pair) {
    assert_hf(HF_OK, hf_close(pair->ours));
    assert_hf(HF_OK, hf_close(pair->theirs));
}

hf_op *scene_acquire_start(hf_lock *lock) {
    hf_op *op = NULL;
    assert_hf(HF_OK, hf_lock_acquire_start(lock, NULL, NULL, NULL, &op));
    return op;
}

hf_owner scene_acquired(hf_op *op) {
    hf_result result = HF_RESULT_INIT;
    assert_hf(HF_OK, joined(op, &result));
    return result.owner;
}

hf_op *scene_acquire_as(hf_lock *lock, hf_owner owner) {
    hf_op *op = NULL;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.owner = owner;
    assert_hf(HF_OK, hf_lock_acquire_start(lock, &options, NULL, NULL, &op));
    return op;
}

int scene_join(hf_op *op) {
    int err = hf_op_wait(op, HANG_MS, NULL);
    assert_int_not_equal(err, HF_EPENDING);
    hf_op_free(op);
    return err;
}

bool scene_is_done(hf_op *op) {
    return hf_op_wait(op, 0, NULL) != HF_EPENDING;
}

bool scene_wait_behind(const char *path, hf_op *op) {
    return WAIT_FOR(zk_count(scene.eyes, path) == 2 || scene_is_done(op), HANG_MS);
}

/* How often the server's answer to a four-letter word has the text. */
static int times_in(const char *word, const char *text) {
    int seen = 0;
    own_text *answer = zk_word(scene.zk, word);
    for (const char *at = answer; at != NULL && (at = strstr(at, text)) != NULL; at++)
        seen++;
    return seen;
}

void scene_await_nodes(const char *text, int count) {
    assert_true(WAIT_FOR(times_in("dump", text) == count, HANG_MS));
}

void scene_await_watches(const char *text, int count) {
    assert_true(WAIT_FOR(times_in("wchp", text) == count, HANG_MS));
}

void scene_await_empty(const char *path) {
    assert_true(WAIT_FOR(zk_count(scene.eyes, path) <= 0, HANG_MS));
}

int scene_tool(const char *command, const char *name) {
    own_text *words = text_of("%s '%s'", command, name);
    tool_use(zk_url(scene.zk));
    return wait_exit(tool_start(words), HANG_MS);
}

hf_stats scene_stats(hf_client *client) {
    hf_stats stats = HF_STATS_INIT;
    assert_hf(HF_OK, hf_client_stats(client, &stats));
    return stats;
}

void scene_on_event(hf_lock *lock, const hf_event *event, void *arg) {
    struct scene_events *events = arg;
    (void)lock;
    atomic_fetch_add(event->kind == HF_EVENT_LOST ? &events->losses : &events->warnings, 1);
}

bool scene_wait_losses(struct scene_events *events, int at_least) {
    return WAIT_FOR(atomic_load(&events->losses) >= at_least, HANG_MS);
}

void scene_note_loss(hf_lock *lock, const hf_event *event, void *trust) {
    (void)lock;
    if (event->kind == HF_EVENT_LOST)
        atomic_store(&((struct scene_trust *)trust)->lost, 1);
}

void scene_note_trust(struct scene_trust *trust, hf_lock *lock) {
    int64_t now = now_ms(), left = hf_lock_remaining_ms(lock);
    if (left > 0 && now + left > atomic_load(&trust->until_ms))
        atomic_store(&trust->until_ms, now + left);
}
