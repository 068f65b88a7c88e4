/*
 * What the tests with ZooKeeper's servers share; see scene.h.
 */
#include "zk/scene.h"

#include <string.h>

struct scene scene;
const struct zk_options scene_options = {
    .keeps_containers = true, .config = (const char *const[]){"maxSessionTimeout=60000", NULL}};

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

hf_op *scene_acquire_start(hf_lock *lock) {
    hf_op *op = NULL;
    assert_hf(HF_OK, hf_lock_acquire_start(lock, NULL, NULL, NULL, &op));
    return op;
}

hf_owner scene_acquired(hf_op *op) {
    hf_result result = HF_RESULT_INIT;
    assert_hf(HF_OK, hf_op_wait(op, HANG_MS, &result));
    hf_op_free(op);
    return result.owner;
}

struct behind {
    const char *path;
    hf_op *op;
};

static bool is_behind(void *arg) {
    const struct behind *behind = arg;
    return zk_count(scene.eyes, behind->path) == 2 ||
           hf_op_wait(behind->op, 0, NULL) != HF_EPENDING;
}

bool scene_wait_behind(const char *path, hf_op *op) {
    struct behind behind = {path, op};
    return wait_until(is_behind, &behind, HANG_MS);
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

struct losses {
    struct scene_events *events;
    int at_least;
};

static bool are_lost(void *arg) {
    const struct losses *losses = arg;
    return atomic_load(&losses->events->losses) >= losses->at_least;
}

bool scene_wait_losses(struct scene_events *events, int at_least) {
    struct losses losses = {events, at_least};
    return wait_until(are_lost, &losses, HANG_MS);
}

void assert_hf_at(int expected, int actual, const char *file, int line) {
    if (expected == actual)
        return;
    print_error("expected %s, got %s (%s)\n", hf_error_name(expected), hf_error_name(actual),
                actual == HF_OK ? "" : hf_last_error()->text);
    _fail(file, line);
}
