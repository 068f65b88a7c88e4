/*
 * The server's error replies: which code each one is, which of them are waited out, and that a hold
 * is renewed through all of them until its deadline.
 *
 * All but LOADING come from a real server that was brought into that state; each test has a server
 * of its own, since the states are the server's. The exact words are the server's and are only
 * looked for by their first one.
 */
#include "net/scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define EXCHANGE_MS 1500 /* who answers must not seem silent on a busy machine */

struct scene {
    struct server *server;
    hf_client *client;
    hf_lock *lock;
};

static hf_options short_options(void) {
    hf_options options = scene_options();
    options.cmd_timeout_ms = EXCHANGE_MS;
    options.watchdog_ms = ENDURING_MS;
    return options;
}

static void begin_with(struct scene *scene, const char *const *config) {
    const struct server_options server_options = {.config = config};
    hf_options options = short_options();
    scene->server = server_start(&server_options);
    scene->client = scene_open(server_url(scene->server), &options);
    scene->lock = scene_lock(scene->client, "app:lock");
    assert_int_equal(hf_lock_acquire(scene->lock), HF_OK);
    assert_int_equal(hf_lock_release(scene->lock), HF_OK);
    assert_int_equal(scene_ping_async(scene->client), HF_OK);
}

static void begin(struct scene *scene) {
    begin_with(scene, NULL);
}

static void end(struct scene *scene) {
    hf_lock_free(scene->lock);
    assert_int_equal(hf_close(scene->client), HF_OK);
    server_free(scene->server);
}

static void assert_words(const char *words) {
    if (strstr(hf_last_error()->text, words) == NULL)
        printf("not \"%s\" but: %s\n", words, hf_last_error()->text);
    assert_non_null(strstr(hf_last_error()->text, words));
    assert_int_not_equal(hf_last_error()->node[0], '\0');
}

/* ---- Scripts the server has forgotten ---- */

static void U23_script_flush_before_each_verb(void **state) {
    (void)state;
    struct scene scene;
    bool broken = false;
    char owner[64];
    begin(&scene);
    scene_owner(scene.client, hf_owner_self(), owner);
    cmd_ok(scene.server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_acquire(scene.lock), HF_OK);
    cmd_ok(scene.server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_try(scene.lock), HF_OK);
    assert_int_equal(cmd_int(scene.server, "HGET app:lock %s", owner), 2);
    cmd_ok(scene.server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_extend(scene.lock, 60000), HF_OK);
    assert_true(pttl(scene.server, "app:lock") > 30000);
    cmd_ok(scene.server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_release(scene.lock), HF_OK);
    assert_int_equal(cmd_int(scene.server, "HGET app:lock %s", owner), 1);
    cmd_ok(scene.server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_break(scene.lock, &broken), HF_OK);
    assert_true(broken);
    assert_false(key_exists(scene.server, "app:lock"));
    end(&scene);
}

struct renewed {
    hf_client *client;
    uint64_t renewals, failures;
};

static bool has_renewed(void *arg) {
    struct renewed *renewed = arg;
    hf_stats stats = scene_stats(renewed->client);
    return stats.renewals >= renewed->renewals && stats.renew_failures >= renewed->failures;
}

static void wait_renewals(struct scene *scene, uint64_t more, uint64_t more_failures) {
    hf_stats stats = scene_stats(scene->client);
    struct renewed renewed = {scene->client, stats.renewals + more,
                              stats.renew_failures + more_failures};
    assert_true(wait_until(has_renewed, &renewed, HANG_MS));
}

static void U24_renewals_survive_a_script_flush(void **state) {
    (void)state;
    struct scene scene;
    begin(&scene);
    assert_int_equal(hf_lock_acquire(scene.lock), HF_OK);
    for (int i = 0; i < 3; i++) {
        cmd_ok(scene.server, "SCRIPT FLUSH");
        wait_renewals(&scene, 1, 0);
    }
    assert_int_equal(scene_stats(scene.client).renew_failures, 0);
    assert_int_equal(hf_lock_release(scene.lock), HF_OK);
    end(&scene);
}

/* ---- States in which a server refuses ---- */

struct trouble {
    const char *word;
    void (*on)(struct scene *scene);
    void (*off)(struct scene *scene);
};

static void need_replica(struct scene *scene) {
    cmd_ok(scene->server, "CONFIG SET min-replicas-to-write 1");
}

static void need_none(struct scene *scene) {
    cmd_ok(scene->server, "CONFIG SET min-replicas-to-write 0");
}

static void become_replica(struct scene *scene) {
    cmd_ok(scene->server, "REPLICAOF 127.0.0.1 1");
}

static void become_stale_replica(struct scene *scene) {
    cmd_ok(scene->server, "CONFIG SET replica-serve-stale-data no");
    cmd_ok(scene->server, "REPLICAOF 127.0.0.1 1");
}

static void become_master(struct scene *scene) {
    cmd_ok(scene->server, "REPLICAOF NO ONE");
    cmd_ok(scene->server, "CONFIG SET replica-serve-stale-data yes");
}

static bool save_failed(void *arg) {
    char *info = cmd_str(arg, "INFO persistence");
    bool failed = strstr(info, "rdb_last_bgsave_status:err") != NULL;
    free(info);
    return failed;
}

/* A directory stands where the snapshot should go. */
static void fail_to_save(struct scene *scene) {
    char path[512];
    snprintf(path, sizeof path, "%s/no-room.rdb", server_dir(scene->server));
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/no-room.rdb/x", server_dir(scene->server));
    mkdir(path, 0700);
    cmd_ok(scene->server, "CONFIG SET dir %s", server_dir(scene->server));
    cmd_ok(scene->server, "CONFIG SET dbfilename no-room.rdb");
    cmd_ok(scene->server, "CONFIG SET save %s", "3600 100000");
    cmd_ok(scene->server, "BGSAVE");
    assert_true(wait_until(save_failed, scene->server, HANG_MS));
}

static void save_no_more(struct scene *scene) {
    cmd_ok(scene->server, "CONFIG SET save %s", "");
}

static const struct trouble troubles[] = {
    {"NOREPLICAS", need_replica, need_none},
    {"READONLY", become_replica, become_master},
    {"MASTERDOWN", become_stale_replica, become_master},
    {"MISCONF", fail_to_save, save_no_more},
};

/* NOLINTBEGIN(bugprone-macro-parentheses): it names a variable */
#define FOR_EACH_TROUBLE(trouble)                                                                  \
    for (const struct trouble *trouble = troubles;                                                 \
         trouble < troubles + sizeof troubles / sizeof troubles[0]; trouble++)
/* NOLINTEND(bugprone-macro-parentheses) */

/* One attempt is told of it at once, a wait goes on until it is over, and nothing is written. */
static void U40_U41_U42_refusals_are_waited_out(void **state) {
    (void)state;
    FOR_EACH_TROUBLE(trouble) {
        struct scene scene;
        struct scene_call call;
        begin(&scene);
        trouble->on(&scene);
        assert_int_equal(hf_lock_try(scene.lock), HF_EREFUSED);
        assert_words(trouble->word);
        int64_t start_ms = now_ms();
        assert_int_equal(hf_lock_acquire_for(scene.lock, 400), HF_EREFUSED);
        assert_true(now_ms() - start_ms >= 400);
        scene_acquire(&call, scene.lock, HF_FOREVER, NULL);
        sleep_ms(100);
        assert_false(atomic_load(&call.done));
        trouble->off(&scene);
        assert_int_equal(scene_join(&call), HF_OK);
        assert_int_equal(hf_lock_release_as(scene.lock, call.options.owner), HF_OK);
        assert_false(key_exists(scene.server, "app:lock"));
        end(&scene);
    }
}

static void rule7_renewals_survive_refusals(void **state) {
    (void)state;
    FOR_EACH_TROUBLE(trouble) {
        struct scene scene;
        begin(&scene);
        assert_int_equal(hf_lock_acquire(scene.lock), HF_OK);
        trouble->on(&scene);
        wait_renewals(&scene, 0, 1);
        assert_true(hf_lock_remaining_ms(scene.lock) > 0);
        trouble->off(&scene);
        wait_renewals(&scene, 2, 0);
        assert_true(key_exists(scene.server, "app:lock"));
        assert_int_equal(scene_stats(scene.client).losses, 0);
        assert_int_equal(hf_lock_release(scene.lock), HF_OK);
        assert_false(key_exists(scene.server, "app:lock"));
        end(&scene);
    }
}

static bool is_free(void *arg) {
    return !key_exists(arg, "app:lock");
}

/* The caller is told, and the release is repeated until it works: long before the lease ends. */
static void U40_a_refused_release_is_made_up_for(void **state) {
    (void)state;
    FOR_EACH_TROUBLE(trouble) {
        struct scene scene;
        hf_acquire_options options = HF_ACQUIRE_INIT;
        options.lease_ms = 10 * HANG_MS;
        begin(&scene);
        assert_int_equal(hf_lock_acquire_with(scene.lock, &options, NULL), HF_OK);
        trouble->on(&scene);
        assert_int_equal(hf_lock_release(scene.lock), HF_EREFUSED);
        assert_words(trouble->word);
        trouble->off(&scene);
        assert_true(wait_until(is_free, scene.server, HANG_MS));
        end(&scene);
    }
}

static bool has_lost(void *arg) {
    return scene_stats(arg).losses == 1;
}

static void U40_a_refusal_past_the_deadline_is_a_loss(void **state) {
    (void)state;
    struct scene scene;
    begin(&scene);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(scene.lock), HF_OK);
    need_replica(&scene);
    assert_true(wait_until(has_lost, scene.client, HANG_MS));
    assert_true(now_ms() - start_ms >= ENDURING_MS);
    assert_int_equal(hf_lock_remaining_ms(scene.lock), 0);
    assert_int_equal(hf_lock_release(scene.lock), HF_ELOST);
    end(&scene);
}

/* ---- BUSY ---- */

static void *run_busy_script(void *arg) {
    redisContext *context = arg;
    freeReplyObject(redisCommand(context, "EVAL %s 0", "while true do end"));
    return NULL;
}

static bool is_busy(void *arg) {
    redisReply *reply = cmd(arg, "PING");
    bool busy = reply != NULL && reply->type == REDIS_REPLY_ERROR;
    freeReplyObject(reply);
    return busy;
}

static void BUSY_is_waited_out(void **state) {
    (void)state;
    static const char *const config[] = {"lua-time-limit 10", NULL};
    struct scene scene;
    struct scene_call call;
    pthread_t thread;
    begin_with(&scene, config);
    hf_lock *held = scene_lock(scene.client, "app:held");
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    redisContext *context = server_connect(scene.server);
    pthread_create(&thread, NULL, run_busy_script, context);
    assert_true(wait_until(is_busy, scene.server, HANG_MS));
    assert_int_equal(hf_lock_try(scene.lock), HF_EREFUSED);
    assert_words("BUSY");
    scene_acquire(&call, scene.lock, HF_FOREVER, NULL);
    wait_renewals(&scene, 0, 1);
    assert_false(atomic_load(&call.done));
    cmd_ok(scene.server, "SCRIPT KILL");
    pthread_join(thread, NULL);
    assert_int_equal(scene_join(&call), HF_OK);
    wait_renewals(&scene, 2, 0);
    assert_int_equal(hf_lock_release(held), HF_OK);
    assert_int_equal(scene_stats(scene.client).losses, 0);
    redisFree(context);
    hf_lock_free(held);
    end(&scene);
}

/* ---- LOADING ---- */

static void U32_LOADING_is_waited_out(void **state) {
    (void)state;
    static const char loading[] = "-LOADING Redis is loading the dataset in memory\r\n";
    struct server *server = server_start(NULL);
    struct proxy *proxy = proxy_start(server_socket(server));
    hf_options options = short_options();
    hf_client *client = scene_open(proxy_url(proxy), &options);
    hf_lock *lock = scene_lock(client, "app:lock");
    for (int i = 0; i < 3; i++)
        proxy_answer_instead(proxy, "app:lock", loading, sizeof loading - 1);
    assert_int_equal(hf_lock_try(lock), HF_OK);
    assert_int_equal(proxy_fired(proxy), 3);
    for (int i = 0; i < 3; i++)
        proxy_answer_instead(proxy, "app:lock", loading, sizeof loading - 1);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(proxy_fired(proxy), 6);
    for (int i = 0; i < 100; i++)
        proxy_answer_instead(proxy, "app:lock", loading, sizeof loading - 1);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_try(lock), HF_EREFUSED);
    assert_true(now_ms() - start_ms >= EXCHANGE_MS);
    assert_words("LOADING");
    assert_int_equal(scene_stats(client).contended, 0);
    /* In the handshake as well: the connection is tried again. */
    proxy_heal(proxy);
    proxy_cut_all(proxy);
    proxy_answer_instead(proxy, "TIME", loading, sizeof loading - 1);
    assert_int_equal(hf_lock_try(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    proxy_free(proxy);
    server_free(server);
}

/* ---- Memory ---- */

static void U38_out_of_memory(void **state) {
    (void)state;
    struct scene scene;
    begin(&scene);
    hf_lock *other = scene_lock(scene.client, "app:other");
    assert_int_equal(hf_lock_acquire(scene.lock), HF_OK);
    cmd_ok(scene.server, "CONFIG SET maxmemory 1");
    assert_int_equal(hf_lock_try(other), HF_EOOM);
    assert_words("OOM");
    assert_int_equal(hf_lock_acquire_for(other, 200), HF_EOOM);
    assert_false(key_exists(scene.server, "app:other"));
    wait_renewals(&scene, 2, 0); /* needs no memory */
    assert_int_equal(hf_lock_release(scene.lock), HF_OK);
    assert_false(key_exists(scene.server, "app:lock"));
    hf_lock_free(other);
    end(&scene);
}

/* ---- Rights ---- */

static hf_client *open_as(struct server *server, const char *user) {
    hf_options options = short_options();
    options.user = user;
    options.password = "secret";
    return scene_open(server_url(server), &options);
}

static void U45_keys_that_are_not_allowed(void **state) {
    (void)state;
    struct scene scene;
    begin(&scene);
    cmd_ok(scene.server, "ACL SETUSER narrow on >secret ~app:* &* +@all");
    hf_client *client = open_as(scene.server, "narrow");
    hf_lock *inside = scene_lock(client, "app:mine"), *outside = scene_lock(client, "other");
    assert_int_equal(hf_lock_try(outside), HF_EPERM);
    assert_words("NOPERM");
    assert_int_equal(hf_lock_acquire(outside), HF_EPERM); /* not waited for */
    assert_int_equal(hf_lock_acquire(inside), HF_OK);
    assert_int_equal(hf_lock_release(inside), HF_OK);
    assert_int_equal(scene_stats(client).notify_failures, 0);
    hf_lock_free(inside);
    hf_lock_free(outside);
    assert_int_equal(hf_close(client), HF_OK);
    end(&scene);
}

static void U46_channels_that_are_not_allowed(void **state) {
    (void)state;
    struct scene scene;
    struct scene_call call;
    begin(&scene);
    cmd_ok(scene.server, "ACL SETUSER mute on >secret ~* resetchannels +@all");
    hf_client *client = open_as(scene.server, "mute");
    hf_lock *lock = scene_lock(client, "app:lock");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK); /* released, though nobody was told */
    assert_false(key_exists(scene.server, "app:lock"));
    assert_int_equal(scene_stats(client).notify_failures, 1);
    assert_int_equal(hf_lock_acquire(scene.lock), HF_OK);
    scene_acquire(&call, lock, HF_FOREVER, NULL); /* and it waits without being told */
    sleep_ms(100);
    assert_false(atomic_load(&call.done));
    assert_int_equal(hf_lock_release(scene.lock), HF_OK);
    assert_int_equal(scene_join(&call), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    end(&scene);
}

static void U46_commands_that_are_not_allowed(void **state) {
    (void)state;
    struct scene scene;
    begin(&scene);
    cmd_ok(scene.server, "ACL SETUSER reader on >secret ~* &* +@all -@write");
    cmd_ok(scene.server, "ACL SETUSER scriptless on >secret ~* &* +@all -@scripting");
    static const char *const users[] = {"reader", "scriptless"};
    for (size_t i = 0; i < 2; i++) {
        hf_client *client = open_as(scene.server, users[i]);
        hf_lock *lock = scene_lock(client, "app:lock");
        assert_int_equal(hf_lock_try(lock), HF_EPERM);
        assert_false(key_exists(scene.server, "app:lock"));
        hf_lock_free(lock);
        assert_int_equal(hf_close(client), HF_OK);
    }
    end(&scene);
}

/* Rights that are taken away during a hold and given back in time. */
static void rule7_renewals_survive_a_loss_of_rights(void **state) {
    (void)state;
    struct scene scene;
    begin(&scene);
    cmd_ok(scene.server, "ACL SETUSER holder on >secret ~* &* +@all");
    hf_client *client = open_as(scene.server, "holder");
    hf_lock *lock = scene_lock(client, "app:lock");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    cmd_ok(scene.server, "ACL SETUSER holder -@scripting");
    struct scene holder = {scene.server, client, lock};
    wait_renewals(&holder, 0, 1);
    cmd_ok(scene.server, "ACL SETUSER holder +@all");
    wait_renewals(&holder, 2, 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    end(&scene);
}

/* ---- Types ---- */

static void U67_what_is_there_is_no_lock(void **state) {
    (void)state;
    struct scene scene;
    begin(&scene);
    static const char *const commands[] = {"SET app:lock text", "RPUSH app:lock a",
                                           "SADD app:lock a", "ZADD app:lock 1 a"};
    for (size_t i = 0; i < 4; i++) {
        bool broken = false;
        cmd_ok(scene.server, commands[i]);
        assert_int_equal(hf_lock_try(scene.lock), HF_EWRONGTYPE);
        assert_int_equal(hf_lock_acquire(scene.lock), HF_EWRONGTYPE); /* not waited for */
        assert_words("WRONGTYPE");
        assert_int_equal(hf_lock_break(scene.lock, &broken), HF_EWRONGTYPE);
        assert_true(key_exists(scene.server, "app:lock"));
        cmd_ok(scene.server, "DEL app:lock");
    }
    end(&scene);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(U23_script_flush_before_each_verb),
        cmocka_unit_test(U24_renewals_survive_a_script_flush),
        cmocka_unit_test(U40_U41_U42_refusals_are_waited_out),
        cmocka_unit_test(rule7_renewals_survive_refusals),
        cmocka_unit_test(U40_a_refused_release_is_made_up_for),
        cmocka_unit_test(U40_a_refusal_past_the_deadline_is_a_loss),
        cmocka_unit_test(BUSY_is_waited_out),
        cmocka_unit_test(U32_LOADING_is_waited_out),
        cmocka_unit_test(U38_out_of_memory),
        cmocka_unit_test(U45_keys_that_are_not_allowed),
        cmocka_unit_test(U46_channels_that_are_not_allowed),
        cmocka_unit_test(U46_commands_that_are_not_allowed),
        cmocka_unit_test(rule7_renewals_survive_a_loss_of_rights),
        cmocka_unit_test(U67_what_is_there_is_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
