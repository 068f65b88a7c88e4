/*
 * Sentinels that say what real ones say only by misfortune: what is out of date, a replica, an address that
 * is good elsewhere, another server every moment. The servers are real.
 */
#include "route/scripted.h"

#include "route/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCALHOST "127.0.0.1"

static struct server *servers[2];

static int start(void **state) {
    const struct server_options options = {.tcp = true};
    (void)state;
    for (int i = 0; i < 2; i++)
        servers[i] = server_start(&options);
    return 0;
}

static int stop(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++)
        server_free(servers[i]);
    return 0;
}

static void url_of(struct scripted *const *sentinels, size_t len, char *url, size_t size) {
    int at = snprintf(url, size, "redis-sentinel://");
    for (size_t i = 0; i < len; i++)
        at += snprintf(url + at, size - (size_t)at, "%s" LOCALHOST ":%d", i > 0 ? "," : "",
                       scripted_port(sentinels[i]));
    snprintf(url + at, size - (size_t)at, "/" SCRIPTED_NAME);
}

static hf_client *open_on(struct scripted *const *sentinels, size_t len) {
    char url[256];
    hf_options options = scene_options();
    hf_client *client;
    options.cmd_timeout_ms = HANG_MS;
    url_of(sentinels, len, url, sizeof url);
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    return client;
}

/* All connections of clients end. */
static void cut_off(struct server *server) {
    freeReplyObject(cmd(server, "CLIENT KILL TYPE normal"));
    freeReplyObject(cmd(server, "CLIENT KILL TYPE pubsub"));
}

/* ---- Out of date ---- */

static void an_older_epoch_leads_nobody_back(void **state) {
    (void)state;
    struct scripted *sentinels[] = {scripted_start(), scripted_start()};
    scripted_name(sentinels[0], LOCALHOST, server_port(servers[0]), 5);
    scripted_name(sentinels[1], LOCALHOST, server_port(servers[1]), 3);
    scripted_hide(sentinels[1], true); /* else it is asked if the other is slow, and believed */
    hf_client *client = open_on(sentinels, 2);
    assert_int_equal(hf_ping(client), HF_OK);
    scripted_hide(sentinels[1], false);
    long long before = server_calls(servers[1], "evalsha");
    scripted_hide(sentinels[0], true);
    cut_off(servers[0]); /* so that somebody is asked, who is the other now */
    assert_true(scripted_wait_asked(sentinels[1], 1, HANG_MS));
    hf_lock *lock = scene_lock(client, HF_PLAIN, "stale");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(key_exists(servers[0], "stale"));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(server_calls(servers[1], "evalsha"), before);
    assert_int_equal(scene_stats(client).switches, 0);

    scripted_name(sentinels[1], LOCALHOST, server_port(servers[1]), 6); /* it has caught up */
    cut_off(servers[0]);
    assert_true(scene_wait_switches(client, 1));
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_true(key_exists(servers[1], "stale"));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinels[0]);
    scripted_free(sentinels[1]);
}

/* Not one of them, but all, and for a while: they were set up anew. Ten seconds, so only where there is time. */
static void all_that_begin_anew_are_believed(void **state) {
    (void)state;
    if (getenv("HF_SOAK") == NULL)
        return;
    struct scripted *sentinels[] = {scripted_start(), scripted_start()};
    for (int i = 0; i < 2; i++)
        scripted_name(sentinels[i], LOCALHOST, server_port(servers[0]), 5);
    hf_client *client = open_on(sentinels, 2);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "anew");
    assert_int_equal(hf_lock_acquire(lock), HF_OK); /* so that somebody looks */
    int64_t start_ms = now_ms();
    for (int i = 0; i < 2; i++)
        scripted_name(sentinels[i], LOCALHOST, server_port(servers[1]), 0);
    assert_true(scene_wait_switches(client, 1));
    assert_true(now_ms() - start_ms >= 9000);
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinels[0]);
    scripted_free(sentinels[1]);
}

/* Some services have sentinels that tell no epoch. */
static void no_epoch_is_fine(void **state) {
    (void)state;
    struct scripted *sentinel = scripted_start();
    scripted_name(sentinel, LOCALHOST, server_port(servers[0]), -1);
    hf_client *client = open_on(&sentinel, 1);
    assert_int_equal(hf_ping(client), HF_OK);
    scripted_name(sentinel, LOCALHOST, server_port(servers[1]), -1);
    cut_off(servers[0]);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "no-epoch");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(scene_wait_switches(client, 1));
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinel);
}

/* ---- A replica ---- */

static void a_replica_gets_nothing_but_a_greeting(void **state) {
    (void)state;
    const struct server_options options = {.tcp = true};
    struct server *replica = server_start(&options);
    char port[16];
    snprintf(port, sizeof port, "%d", server_port(servers[0]));
    cmd_ok(replica, "REPLICAOF " LOCALHOST " %s", port);
    struct monitor *monitor = monitor_start(replica);
    struct scripted *sentinel = scripted_start();
    scripted_name(sentinel, LOCALHOST, server_port(replica), 1);
    hf_client *client = open_on(&sentinel, 1);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "replica");
    struct scene_waiter waiter;
    scene_wait_for(&waiter, lock);
    assert_true(scripted_wait_asked(sentinel, scripted_asked(sentinel) + 2, HANG_MS));
    scripted_name(sentinel, LOCALHOST, server_port(servers[0]), 1);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(lock, waiter.owner), HF_OK);
    assert_int_equal(monitor_count(monitor, "EVALSHA"), 0);
    assert_int_equal(monitor_count(monitor, "UBSCRIBE"), 0);
    monitor_stop(monitor);
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinel);
    server_free(replica);
}

/* It was the primary, becomes a replica while we are connected, and says so when it is written to. */
static void one_that_becomes_a_replica_is_left(void **state) {
    (void)state;
    struct scripted *sentinel = scripted_start();
    char port[16];
    scripted_name(sentinel, LOCALHOST, server_port(servers[1]), 1);
    hf_client *client = open_on(&sentinel, 1);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "demoted");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    snprintf(port, sizeof port, "%d", server_port(servers[0]));
    cmd_ok(servers[1], "REPLICAOF " LOCALHOST " %s", port);
    scripted_name(sentinel, LOCALHOST, server_port(servers[0]), 2);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_stats(client).switches, 1);
    cmd_ok(servers[1], "REPLICAOF NO ONE");
    hf_lock_free(lock);
    hf_close(client);
    scripted_free(sentinel);
}

/* ---- Addresses ---- */

static void announced_addresses_are_mapped(void **state) {
    (void)state;
    struct scripted *sentinel = scripted_start();
    char url[256];
    hf_options options = scene_options();
    hf_client *client;
    scripted_name(sentinel, "inside.invalid", 6379, 1);
    snprintf(url, sizeof url,
             "redis-sentinel://" LOCALHOST ":%d/" SCRIPTED_NAME
             "?map=inside.invalid:6379=" LOCALHOST ":%d",
             scripted_port(sentinel), server_port(servers[0]));
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    assert_int_equal(hf_ping(client), HF_OK);
    hf_close(client);

    *strchr(url, '?') = '\0';
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    assert_int_equal(hf_ping(client), HF_EUNREACH); /* at once: there never was a server */
    assert_non_null(strstr(hf_last_error()->text, "map"));
    hf_close(client);
    scripted_free(sentinel);
}

static bool map_inside(const char *host, uint16_t port, char *ret_host, uint16_t *ret_port,
                       void *user) {
    if (strcmp(host, "inside.invalid") != 0 || port != 6379)
        return false;
    snprintf(ret_host, HF_HOST_SIZE, "%s", LOCALHOST);
    *ret_port = *(const uint16_t *)user;
    return true;
}

/* The application is asked about what the url does not have, and need not know everything. */
static void the_application_maps_addresses(void **state) {
    (void)state;
    struct scripted *sentinel = scripted_start();
    uint16_t real_port = (uint16_t)server_port(servers[0]);
    char url[256];
    hf_options options = scene_options();
    hf_client *client;
    scripted_name(sentinel, "inside.invalid", 6379, 1);
    url_of(&sentinel, 1, url, sizeof url);
    options.map = map_inside;
    options.map_user = &real_port;
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    assert_int_equal(hf_ping(client), HF_OK);
    assert_int_equal(scene_stats(client).switches, 0);

    scripted_name(sentinel, LOCALHOST, server_port(servers[1]), 2); /* which it leaves alone */
    cut_off(servers[0]);
    assert_true(scene_wait_switches(client, 1));
    assert_int_equal(hf_ping(client), HF_OK);
    hf_close(client);
    scripted_free(sentinel);
}

/* ---- Another every moment ---- */

struct busy {
    pthread_t thread;
    hf_client *client;
    const char *name;
    atomic_bool stop;
    int rounds, wrong;
};

/* Each server has its own idea of who holds what, so a hold may be lost, or be over before its answer is there; but nothing
 * else happens. */
static void *be_busy(void *arg) {
    struct busy *busy = arg;
    hf_lock *lock;
    if (hf_lock_new(busy->client, busy->name, &lock) != HF_OK)
        return NULL;
    for (; !atomic_load(&busy->stop) && busy->wrong == HF_OK; busy->rounds++) {
        hf_acquire_options options = HF_ACQUIRE_INIT;
        options.wait_ms = busy->rounds % 3 == 0 ? 50 : HF_FOREVER;
        options.lease_ms = 2000; /* what a server keeps of a hold that was lost ends soon */
        int err = hf_lock_acquire_with(lock, &options, NULL);
        if (err == HF_OK)
            err = hf_lock_release(lock);
        bool late = err == HF_ETIMEDOUT || (options.wait_ms > 0 && err == HF_EUNREACH);
        if (err != HF_OK && err != HF_ELOST && !late)
            busy->wrong = err;
    }
    hf_lock_free(lock);
    return NULL;
}

static void another_every_moment(void **state) {
    (void)state;
    enum { THREADS = 6, CHANGES = 30 };
    struct scripted *sentinel = scripted_start();
    struct busy busy[THREADS];
    scripted_name(sentinel, LOCALHOST, server_port(servers[0]), 1);
    hf_client *client = open_on(&sentinel, 1);
    hf_lock *held = scene_lock(client, HF_PLAIN, "held");
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    for (int i = 0; i < THREADS; i++) {
        busy[i] = (struct busy){.client = client, .name = i % 2 == 0 ? "even" : "odd"};
        assert_int_equal(pthread_create(&busy[i].thread, NULL, be_busy, &busy[i]), 0);
    }
    for (int i = 1; i <= CHANGES; i++) {
        scripted_name(sentinel, LOCALHOST, server_port(servers[i % 2]), 1 + i);
        cut_off(servers[(i + 1) % 2]);
        assert_true(scene_wait_switches(client, (uint64_t)i));
    }
    for (int i = 0; i < THREADS; i++)
        atomic_store(&busy[i].stop, true);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(busy[i].thread, NULL);
        assert_int_equal(busy[i].wrong, HF_OK);
    }
    assert_int_equal(hf_lock_release(held), HF_ELOST); /* the other server never had it */
    hf_lock_free(held);
    hf_close(client);
    scripted_free(sentinel);
}

/* The same with callbacks on a thread of the application: its connections are that thread's to end. */
struct turns {
    hf_lock *lock;
    atomic_int done;
    atomic_bool stop;
    atomic_int wrong;
};

static void next_turn(struct turns *turns);

static void on_released(hf_op *op, const hf_result *result, void *user) {
    struct turns *turns = user;
    hf_op_free(op);
    if (result->code != HF_OK && result->code != HF_ELOST)
        turns->wrong = result->code;
    atomic_fetch_add(&turns->done, 1);
    next_turn(turns);
}

static void on_acquired(hf_op *op, const hf_result *result, void *user) {
    struct turns *turns = user;
    hf_op *release;
    hf_owner owner = result->owner;
    int err = result->code;
    hf_op_free(op);
    if (err == HF_OK)
        err = hf_lock_release_start(turns->lock, owner, on_released, turns, &release);
    else if (err == HF_ELOST || err == HF_ETIMEDOUT) /* its lease was over before its answer came */
        next_turn(turns);
    if (err != HF_OK && err != HF_ELOST && err != HF_ETIMEDOUT)
        turns->wrong = err;
}

static void next_turn(struct turns *turns) {
    hf_acquire_options options = HF_ACQUIRE_INIT;
    hf_op *op;
    options.lease_ms = 2000;
    if (!atomic_load(&turns->stop) && turns->wrong == HF_OK)
        turns->wrong = hf_lock_acquire_start(turns->lock, &options, on_acquired, turns, &op);
}

static void *dispatch(void *arg) {
    while (hf_dispatch(arg, HF_FOREVER) >= 0)
        continue;
    return NULL;
}

static bool has_turned(void *arg) {
    return atomic_load(&((struct turns *)arg)->done) > 0 || ((struct turns *)arg)->wrong != HF_OK;
}

static void another_every_moment_with_manual_dispatch(void **state) {
    (void)state;
    enum { CHANGES = 10 };
    struct scripted *sentinel = scripted_start();
    hf_options options = scene_options();
    hf_client *client;
    char url[256];
    pthread_t thread;
    scripted_name(sentinel, LOCALHOST, server_port(servers[0]), 1);
    url_of(&sentinel, 1, url, sizeof url);
    options.cmd_timeout_ms = HANG_MS; /* there are several changes in a row */
    options.flags = HF_MANUAL_DISPATCH;
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    struct turns turns = {.lock = scene_lock(client, HF_PLAIN, "turns")};
    next_turn(&turns);
    assert_int_equal(pthread_create(&thread, NULL, dispatch, client), 0);
    for (int i = 1; i <= CHANGES; i++) {
        atomic_store(&turns.done, 0);
        assert_true(wait_until(has_turned, &turns, HANG_MS));
        scripted_name(sentinel, LOCALHOST, server_port(servers[i % 2]), 1 + i);
        cut_off(servers[(i + 1) % 2]);
        assert_true(scene_wait_switches(client, (uint64_t)i));
    }
    atomic_store(&turns.done, 0);
    assert_true(wait_until(has_turned, &turns, HANG_MS));
    atomic_store(&turns.stop, true);
    hf_close(client);
    pthread_join(thread, NULL);
    assert_int_equal(turns.wrong == HF_ECLOSED ? HF_OK : turns.wrong, HF_OK);
    hf_lock_free(turns.lock);
    scripted_free(sentinel);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_epoch_leads_nobody_back),
        cmocka_unit_test(all_that_begin_anew_are_believed),
        cmocka_unit_test(no_epoch_is_fine),
        cmocka_unit_test(a_replica_gets_nothing_but_a_greeting),
        cmocka_unit_test(one_that_becomes_a_replica_is_left),
        cmocka_unit_test(announced_addresses_are_mapped),
        cmocka_unit_test(the_application_maps_addresses),
        cmocka_unit_test(another_every_moment),
        cmocka_unit_test(another_every_moment_with_manual_dispatch),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
