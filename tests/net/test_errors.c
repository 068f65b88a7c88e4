/*
 * The server's error replies: which code each one is, which of them are waited out, and that a hold
 * is renewed through all of them until its deadline.
 *
 * All but LOADING come from a real server that was brought into that state; each test has a server
 * of its own, since the states are the server's. The exact words are the server's and are only
 * looked for by their first one.
 */
#include "net/scene.h"
#include "support/case.h"

#include <sys/stat.h>

#define EXCHANGE_MS 1500 /* a server that answers must not seem silent on a busy machine */

struct fixture {
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

static void begin_with(struct fixture *fixture, const char *const *config) {
    const struct server_options server_options = {.config = config};
    hf_options options = short_options();
    fixture->server = server_start(&server_options);
    fixture->client = scene_open(server_url(fixture->server), &options);
    fixture->lock = scene_lock(fixture->client, "app:lock");
    assert_int_equal(hf_lock_acquire(fixture->lock), HF_OK);
    assert_int_equal(hf_lock_release(fixture->lock), HF_OK);
    assert_int_equal(scene_ping_async(fixture->client), HF_OK);
}

static void begin(struct fixture *fixture) {
    begin_with(fixture, NULL);
}

static void end(struct fixture *fixture) {
    hf_lock_free(fixture->lock);
    assert_int_equal(hf_close(fixture->client), HF_OK);
    server_free(fixture->server);
}

static void assert_words(const char *words) {
    if (strstr(hf_last_error()->text, words) == NULL)
        printf("not \"%s\" but: %s\n", words, hf_last_error()->text);
    assert_non_null(strstr(hf_last_error()->text, words));
    assert_int_not_equal(hf_last_error()->node[0], '\0');
}

/* ---- Scripts the server has forgotten ---- */

CASE_IN(U23_script_flush_before_each_verb, struct fixture, fixture, begin, end) {
    bool broken = false;
    char owner[64];
    scene_owner(fixture->client, hf_owner_self(), owner);
    cmd_ok(fixture->server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_acquire(fixture->lock), HF_OK);
    cmd_ok(fixture->server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_try(fixture->lock), HF_OK);
    assert_int_equal(cmd_int(fixture->server, "HGET app:lock %s", owner), 2);
    cmd_ok(fixture->server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_extend(fixture->lock, 60000), HF_OK);
    assert_true(pttl(fixture->server, "app:lock") > 30000);
    cmd_ok(fixture->server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_release(fixture->lock), HF_OK);
    assert_int_equal(cmd_int(fixture->server, "HGET app:lock %s", owner), 1);
    cmd_ok(fixture->server, "SCRIPT FLUSH");
    assert_int_equal(hf_lock_break(fixture->lock, &broken), HF_OK);
    assert_true(broken);
    assert_false(key_exists(fixture->server, "app:lock"));
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

static void wait_renewals(struct fixture *fixture, uint64_t more, uint64_t more_failures) {
    hf_stats stats = scene_stats(fixture->client);
    struct renewed renewed = {fixture->client, stats.renewals + more,
                              stats.renew_failures + more_failures};
    assert_true(wait_until(has_renewed, &renewed, HANG_MS));
}

CASE_IN(U24_renewals_survive_a_script_flush, struct fixture, fixture, begin, end) {
    assert_int_equal(hf_lock_acquire(fixture->lock), HF_OK);
    for (int i = 0; i < 3; i++) {
        cmd_ok(fixture->server, "SCRIPT FLUSH");
        wait_renewals(fixture, 1, 0);
    }
    assert_int_equal(scene_stats(fixture->client).renew_failures, 0);
    assert_int_equal(hf_lock_release(fixture->lock), HF_OK);
}

/* ---- States in which a server refuses ---- */

struct fault {
    const char *word;
    void (*on)(struct fixture *fixture);
    void (*off)(struct fixture *fixture);
};

static void need_replica(struct fixture *fixture) {
    cmd_ok(fixture->server, "CONFIG SET min-replicas-to-write 1");
}

static void need_none(struct fixture *fixture) {
    cmd_ok(fixture->server, "CONFIG SET min-replicas-to-write 0");
}

static void become_replica(struct fixture *fixture) {
    cmd_ok(fixture->server, "REPLICAOF 127.0.0.1 1");
}

static void become_stale_replica(struct fixture *fixture) {
    cmd_ok(fixture->server, "CONFIG SET replica-serve-stale-data no");
    cmd_ok(fixture->server, "REPLICAOF 127.0.0.1 1");
}

static void become_master(struct fixture *fixture) {
    cmd_ok(fixture->server, "REPLICAOF NO ONE");
    cmd_ok(fixture->server, "CONFIG SET replica-serve-stale-data yes");
}

static bool save_failed(void *arg) {
    own_text *info = cmd_str(arg, "INFO persistence");
    return strstr(info, "rdb_last_bgsave_status:err") != NULL;
}

/* A directory stands where the snapshot should go. */
static void fail_to_save(struct fixture *fixture) {
    char path[512];
    snprintf(path, sizeof path, "%s/no-room.rdb", server_dir(fixture->server));
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/no-room.rdb/x", server_dir(fixture->server));
    mkdir(path, 0700);
    cmd_ok(fixture->server, "CONFIG SET dir %s", server_dir(fixture->server));
    cmd_ok(fixture->server, "CONFIG SET dbfilename no-room.rdb");
    cmd_ok(fixture->server, "CONFIG SET save %s", "3600 100000");
    cmd_ok(fixture->server, "BGSAVE");
    assert_true(wait_until(save_failed, fixture->server, HANG_MS));
}

static void save_no_more(struct fixture *fixture) {
    cmd_ok(fixture->server, "CONFIG SET save %s", "");
}

static const struct fault faults[] = {
    {"NOREPLICAS", need_replica, need_none},
    {"READONLY", become_replica, become_master},
    {"MASTERDOWN", become_stale_replica, become_master},
    {"MISCONF", fail_to_save, save_no_more},
};

/* NOLINTBEGIN(bugprone-macro-parentheses): it names a variable */
#define FOR_EACH_FAULT(fault)                                                                      \
    for (const struct fault *fault = faults; fault < faults + sizeof faults / sizeof faults[0];    \
         fault++)
/* NOLINTEND(bugprone-macro-parentheses) */

/* A single attempt fails at once, a wait continues until it times out, and nothing is written. */
CASE(U40_U41_U42_refusals_are_waited_out) {
    FOR_EACH_FAULT(fault) {
        struct fixture fixture;
        struct scene_call call;
        begin(&fixture);
        fault->on(&fixture);
        assert_int_equal(hf_lock_try(fixture.lock), HF_EUNAVAILABLE);
        assert_words(fault->word);
        int64_t start_ms = now_ms();
        assert_int_equal(hf_lock_acquire_for(fixture.lock, 400), HF_EUNAVAILABLE);
        assert_true(now_ms() - start_ms >= 400);
        scene_acquire(&call, fixture.lock, HF_FOREVER, NULL);
        assert_true(HOLDS_FOR(!atomic_load(&call.done), 100));
        fault->off(&fixture);
        assert_int_equal(scene_join(&call), HF_OK);
        assert_int_equal(hf_lock_release_as(fixture.lock, call.options.owner), HF_OK);
        assert_false(key_exists(fixture.server, "app:lock"));
        end(&fixture);
    }
}

CASE(R07_renewals_survive_refusals) {
    FOR_EACH_FAULT(fault) {
        struct fixture fixture;
        begin(&fixture);
        assert_int_equal(hf_lock_acquire(fixture.lock), HF_OK);
        fault->on(&fixture);
        wait_renewals(&fixture, 0, 1);
        assert_true(hf_lock_remaining_ms(fixture.lock) > 0);
        fault->off(&fixture);
        wait_renewals(&fixture, 2, 0);
        assert_true(key_exists(fixture.server, "app:lock"));
        assert_int_equal(scene_stats(fixture.client).losses, 0);
        assert_int_equal(hf_lock_release(fixture.lock), HF_OK);
        assert_false(key_exists(fixture.server, "app:lock"));
        end(&fixture);
    }
}

static bool is_free(void *arg) {
    return !key_exists(arg, "app:lock");
}

/* The caller gets the error, and the release is repeated until it works: long before the lease
 * ends. */
CASE(U40_a_refused_release_is_made_up_for) {
    FOR_EACH_FAULT(fault) {
        struct fixture fixture;
        hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
        options.lease_ms = 10 * HANG_MS;
        begin(&fixture);
        assert_int_equal(hf_lock_acquire_with(fixture.lock, &options, NULL), HF_OK);
        fault->on(&fixture);
        assert_int_equal(hf_lock_release(fixture.lock), HF_EUNAVAILABLE);
        assert_words(fault->word);
        fault->off(&fixture);
        assert_true(wait_until(is_free, fixture.server, HANG_MS));
        end(&fixture);
    }
}

static bool has_lost(void *arg) {
    return scene_stats(arg).losses == 1;
}

CASE_IN(U40_a_refusal_past_the_deadline_is_a_loss, struct fixture, fixture, begin, end) {
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(fixture->lock), HF_OK);
    need_replica(fixture);
    assert_true(wait_until(has_lost, fixture->client, HANG_MS));
    assert_true(now_ms() - start_ms >= trusted_ms(ENDURING_MS));
    assert_int_equal(hf_lock_remaining_ms(fixture->lock), 0);
    assert_int_equal(hf_lock_release(fixture->lock), HF_ELOST);
}

/* ---- BUSY ---- */

static void *run_busy_script(void *arg) {
    redisContext *context = arg;
    freeReplyObject(redisCommand(context, "EVAL %s 0", "while true do end"));
    return NULL;
}

static bool is_busy(void *arg) {
    own_reply *reply = cmd(arg, "PING");
    return reply != NULL && reply->type == REDIS_REPLY_ERROR;
}

CASE(BUSY_is_waited_out) {
    OWN(end) struct fixture fixture;
    static const char *const config[] = {"lua-time-limit 10", NULL};
    struct scene_call call;
    pthread_t thread;
    begin_with(&fixture, config);
    own_lock *held = scene_lock(fixture.client, "app:held");
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    own_context *context = server_connect(fixture.server);
    pthread_create(&thread, NULL, run_busy_script, context);
    assert_true(wait_until(is_busy, fixture.server, HANG_MS));
    assert_int_equal(hf_lock_try(fixture.lock), HF_EUNAVAILABLE);
    assert_words("BUSY");
    scene_acquire(&call, fixture.lock, HF_FOREVER, NULL);
    wait_renewals(&fixture, 0, 1);
    assert_false(atomic_load(&call.done));
    cmd_ok(fixture.server, "SCRIPT KILL");
    pthread_join(thread, NULL);
    assert_int_equal(scene_join(&call), HF_OK);
    wait_renewals(&fixture, 2, 0);
    assert_int_equal(hf_lock_release(held), HF_OK);
    assert_int_equal(scene_stats(fixture.client).losses, 0);
}

/* ---- LOADING ---- */

CASE(U32_LOADING_is_waited_out) {
    static const char loading[] = "-LOADING Redis is loading the dataset in memory\r\n";
    own_server *server = server_start(NULL);
    own_proxy *proxy = proxy_start(server_socket(server));
    hf_options options = short_options();
    own_client *client = scene_open(proxy_url(proxy), &options);
    own_lock *lock = scene_lock(client, "app:lock");
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
    assert_int_equal(hf_lock_try(lock), HF_EUNAVAILABLE);
    assert_true(now_ms() - start_ms >= EXCHANGE_MS);
    assert_words("LOADING");
    assert_int_equal(scene_stats(client).contended, 0);
    /* In the handshake as well: the connection is tried again. */
    proxy_heal(proxy);
    proxy_cut_all(proxy);
    proxy_answer_instead(proxy, "TIME", loading, sizeof loading - 1);
    assert_int_equal(hf_lock_try(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* ---- Memory ---- */

CASE_IN(U38_out_of_memory, struct fixture, fixture, begin, end) {
    own_lock *other = scene_lock(fixture->client, "app:other");
    assert_int_equal(hf_lock_acquire(fixture->lock), HF_OK);
    cmd_ok(fixture->server, "CONFIG SET maxmemory 1");
    assert_int_equal(hf_lock_try(other), HF_EOOM);
    assert_words("OOM");
    assert_int_equal(hf_lock_acquire_for(other, 200), HF_EOOM);
    assert_false(key_exists(fixture->server, "app:other"));
    wait_renewals(fixture, 2, 0); /* needs no memory */
    assert_int_equal(hf_lock_release(fixture->lock), HF_OK);
    assert_false(key_exists(fixture->server, "app:lock"));
}

/* ---- Rights ---- */

static hf_client *open_as(struct server *server, const char *user) {
    hf_options options = short_options();
    options.user = user;
    options.password = "secret";
    return scene_open(server_url(server), &options);
}

CASE_IN(U45_keys_that_are_not_allowed, struct fixture, fixture, begin, end) {
    cmd_ok(fixture->server, "ACL SETUSER narrow on >secret ~app:* &* +@all");
    own_client *client = open_as(fixture->server, "narrow");
    hf_lock *inside = scene_lock(client, "app:mine"), *outside = scene_lock(client, "other");
    assert_int_equal(hf_lock_try(outside), HF_EPERM);
    assert_words("NOPERM");
    assert_int_equal(hf_lock_acquire(outside), HF_EPERM); /* not waited for */
    assert_int_equal(hf_lock_acquire(inside), HF_OK);
    assert_int_equal(hf_lock_release(inside), HF_OK);
    assert_int_equal(scene_stats(client).notify_failures, 0);
    hf_lock_free(inside);
    hf_lock_free(outside);
}

CASE_IN(U46_channels_that_are_not_allowed, struct fixture, fixture, begin, end) {
    struct scene_call call;
    cmd_ok(fixture->server, "ACL SETUSER mute on >secret ~* resetchannels +@all");
    own_client *client = open_as(fixture->server, "mute");
    own_lock *lock = scene_lock(client, "app:lock");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK); /* released, though nobody was notified */
    assert_false(key_exists(fixture->server, "app:lock"));
    assert_int_equal(scene_stats(client).notify_failures, 1);
    assert_int_equal(hf_lock_acquire(fixture->lock), HF_OK);
    scene_acquire(&call, lock, HF_FOREVER, NULL); /* and it waits without being notified */
    assert_true(HOLDS_FOR(!atomic_load(&call.done), 100));
    assert_int_equal(hf_lock_release(fixture->lock), HF_OK);
    assert_int_equal(scene_join(&call), HF_OK);
}

CASE_IN(U46_commands_that_are_not_allowed, struct fixture, fixture, begin, end) {
    cmd_ok(fixture->server, "ACL SETUSER reader on >secret ~* &* +@all -@write");
    cmd_ok(fixture->server, "ACL SETUSER scriptless on >secret ~* &* +@all -@scripting");
    static const char *const users[] = {"reader", "scriptless"};
    for (size_t i = 0; i < 2; i++) {
        own_client *client = open_as(fixture->server, users[i]);
        own_lock *lock = scene_lock(client, "app:lock");
        assert_int_equal(hf_lock_try(lock), HF_EPERM);
        assert_false(key_exists(fixture->server, "app:lock"));
    }
}

/* Rights that are taken away during a hold and given back in time. */
CASE_IN(R07_renewals_survive_a_loss_of_rights, struct fixture, fixture, begin, end) {
    cmd_ok(fixture->server, "ACL SETUSER holder on >secret ~* &* +@all");
    own_client *client = open_as(fixture->server, "holder");
    own_lock *lock = scene_lock(client, "app:lock");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    cmd_ok(fixture->server, "ACL SETUSER holder -@scripting");
    struct fixture holder = {fixture->server, client, lock};
    wait_renewals(&holder, 0, 1);
    cmd_ok(fixture->server, "ACL SETUSER holder +@all");
    wait_renewals(&holder, 2, 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* ---- Types ---- */

CASE_IN(U67_the_key_is_not_a_lock, struct fixture, fixture, begin, end) {
    static const char *const commands[] = {"SET app:lock text", "RPUSH app:lock a",
                                           "SADD app:lock a", "ZADD app:lock 1 a"};
    for (size_t i = 0; i < 4; i++) {
        bool broken = false;
        cmd_ok(fixture->server, commands[i]);
        assert_int_equal(hf_lock_try(fixture->lock), HF_EWRONGTYPE);
        assert_int_equal(hf_lock_acquire(fixture->lock), HF_EWRONGTYPE); /* not waited for */
        assert_words("WRONGTYPE");
        assert_int_equal(hf_lock_break(fixture->lock, &broken), HF_EWRONGTYPE);
        assert_true(key_exists(fixture->server, "app:lock"));
        cmd_ok(fixture->server, "DEL app:lock");
    }
}

RUN_CASES(NULL, NULL)
