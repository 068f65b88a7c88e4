/*
 * Connections that are lost: killed by the server, cut, half-open, refused; and the way back.
 *
 * A wait polls every 10 s at the latest, so "at once" is shown by limits well below that, and locks
 * have leases of a minute. Half-open connections are frozen by the proxy: nobody learns that they
 * are dead, and only a PING finds out.
 */
#include "net/scene.h"
#include "redis/wire/script.h"
#include "support/case.h"
#include "support/crowd.h"

#define AT_ONCE_MS 5000 /* half of the longest sleep of a wait */
/* Pings find half-open connections. A server that answers must not be taken for silent because the
 * machine is busy. */
#define PING_MS 150
#define SILENT_MS 1500

struct pair {
    struct server *server;
    struct proxy *proxy;
    hf_client *client, *rival; /* through the proxy; past it */
    hf_lock *lock, *held;
};

static void begin(struct pair *pair, const hf_options *options) {
    pair->server = scene_server();
    cmd_ok(pair->server, "FLUSHALL");
    pair->proxy = proxy_start(server_socket(pair->server));
    pair->client = scene_open(proxy_url(pair->proxy), options);
    pair->rival = scene_open(server_url(pair->server), NULL);
    pair->lock = scene_lock(pair->client, "again");
    pair->held = scene_lock(pair->rival, "again");
}

static void end(struct pair *pair) {
    hf_lock_free(pair->lock);
    hf_lock_free(pair->held);
    assert_int_equal(hf_close(pair->client), HF_OK);
    assert_int_equal(hf_close(pair->rival), HF_OK);
    proxy_free(pair->proxy);
}

#define PAIR_CASE(name) CASE_IN(name, struct pair, pair, begin, end, NULL)
#define PAIR_CASE_WITH(name, ...) CASE_WITH(name, struct pair, pair, begin, end, __VA_ARGS__)

/* The client waits for the rival's lock, asleep, with its subscription confirmed. */
static void begin_waiting(struct pair *pair, struct scene_call *call) {
    assert_int_equal(hf_lock_acquire(pair->held), HF_OK);
    scene_acquire(call, pair->lock, HF_FOREVER, NULL);
    scene_wait_subscribed(pair->server, "again");
}

static void assert_handed_over(struct pair *pair, struct scene_call *call) {
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(pair->held), HF_OK);
    assert_int_equal(scene_join(call), HF_OK);
    assert_true(now_ms() - start_ms < AT_ONCE_MS);
    assert_int_equal(hf_lock_release_as(pair->lock, call->options.owner), HF_OK);
}

/* ---- CLIENT KILL ---- */

CASE(U33_pubsub_killed_while_waiting) {
    for (int round = 0; round < 10; round++) {
        struct pair pair;
        struct scene_call call;
        begin(&pair, NULL);
        begin_waiting(&pair, &call);
        assert_true(cmd_int(pair.server, "CLIENT KILL TYPE pubsub") >= 1);
        assert_handed_over(&pair, &call); /* in the gap: the message itself is lost */
        end(&pair);
    }
}

PAIR_CASE(U33_pubsub_killed_and_subscribed_again) {
    struct scene_call call;
    begin_waiting(pair, &call);
    assert_true(cmd_int(pair->server, "CLIENT KILL TYPE pubsub") >= 1);
    scene_wait_subscribed(pair->server, "again");
    assert_handed_over(pair, &call);
    assert_true(scene_stats(pair->client).reconnects >= 1);
}

PAIR_CASE(killed_while_idle) {
    long long ids[SCENE_CONNS];
    for (int idle_ms = 0; idle_ms <= 100; idle_ms += 50) {
        assert_int_equal(hf_ping(pair->client), HF_OK);
        assert_int_equal(scene_ping_async(pair->client), HF_OK);
        size_t len = scene_conns(pair->server, pair->client, ids);
        assert_int_equal(len, 2);
        for (size_t i = 0; i < len; i++)
            scene_kill(pair->server, ids[i]);
        scene_stay_idle(idle_ms);
        assert_int_equal(hf_lock_try(pair->lock), HF_OK);
        assert_int_equal(hf_lock_release(pair->lock), HF_OK);
        assert_int_equal(scene_ping_async(pair->client), HF_OK);
    }
}

static bool has_renewed_thrice(void *arg) {
    return scene_stats(arg).renewals >= 3;
}

PAIR_CASE_WITH(killed_while_holding, scene_options(), options.watchdog_ms = ENDURING_MS) {
    long long command, both[2];
    assert_int_equal(hf_lock_acquire(pair->lock), HF_OK);
    command = scene_new_conn(pair->server, pair->client, NULL, 0);
    assert_int_equal(scene_ping_async(pair->client), HF_OK);
    both[0] = command;
    both[1] = scene_new_conn(pair->server, pair->client, &command, 1);
    scene_kill(pair->server, both[1]); /* the one that renews */
    scene_kill(pair->server, both[0]);
    assert_true(wait_until(has_renewed_thrice, pair->client, HANG_MS));
    assert_int_equal(scene_stats(pair->client).losses, 0);
    assert_int_equal(hf_lock_release(pair->lock), HF_OK);
}

struct worker {
    struct crowd *crowd;
    hf_lock *lock;
    int *guarded;
    int rounds, result;
};

static void *work(void *arg) {
    struct worker *worker = arg;
    while (!atomic_load(&worker->crowd->over) && worker->result == HF_OK) {
        worker->result = hf_lock_acquire(worker->lock);
        if (worker->result != HF_OK)
            break;
        ++*worker->guarded; /* by the lock alone */
        worker->rounds++;
        worker->result = hf_lock_release(worker->lock);
    }
    return NULL;
}

/* Kills the connections whose last command was this one. Not those that are being made: a release that finds no
 * connection, and cannot make one, is refused, as it should be. */
static void kill_at_work(struct server *s, const char *last_command) {
    char *list = cmd_str(s, "CLIENT LIST"), *rest = NULL;
    for (char *line = strtok_r(list, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        long long id;
        if (strstr(line, last_command) != NULL && sscanf(line, "id=%lld", &id) == 1)
            freeReplyObject(cmd(s, "CLIENT KILL ID %lld", id)); /* unless it has just gone */
    }
    free(list);
}

/* All connections are killed again and again under load: every call still works, and only one
 * thread is inside at a time. */
PAIR_CASE_WITH(killed_under_load, scene_options(), options.cmd_timeout_ms = HANG_MS,
               options.connect_timeout_ms = HANG_MS) {
    enum { WORKERS = 6 };
    struct worker workers[WORKERS];
    struct crowd crowd = {0};
    int guarded = 0, rounds = 0;
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.crowd = &crowd, .lock = pair->lock, .guarded = &guarded};
        crowd_add(&crowd, work, &workers[i]);
    }
    for (int kills = 0; kills < 10; kills++) {
        long long work = server_calls(pair->server, "evalsha");
        assert_true(WAIT_FOR(server_calls(pair->server, "evalsha") >= work + 20, HANG_MS));
        kill_at_work(pair->server, kills % 2 ? " cmd=subscribe " : " cmd=evalsha ");
    }
    crowd_end(&crowd);
    for (size_t i = 0; i < WORKERS; i++) {
        assert_int_equal(workers[i].result, HF_OK);
        rounds += workers[i].rounds;
    }
    assert_int_equal(guarded, rounds);
    assert_true(rounds > 0);
    assert_false(key_exists(pair->server, "again"));
}

/* ---- Half-open ---- */

static hf_options pinging_options(void) {
    hf_options options = scene_options();
    options.ping_interval_ms = PING_MS;
    options.cmd_timeout_ms = SILENT_MS;
    return options;
}

PAIR_CASE_WITH(U35_half_open_pubsub, pinging_options()) {
    struct scene_call call;
    begin_waiting(pair, &call);
    assert_int_equal(proxy_freeze_connections(pair->proxy, "\r\nSUBSCRIBE\r\n"), 1);
    assert_handed_over(pair, &call);
}

PAIR_CASE_WITH(U35_half_open_control, pinging_options(), options.watchdog_ms = ENDURING_MS) {
    assert_int_equal(hf_lock_acquire(pair->lock), HF_OK);
    size_t open = proxy_open(pair->proxy);
    assert_int_equal(scene_ping_async(pair->client), HF_OK);
    assert_int_equal(proxy_open(pair->proxy), open + 1);
    /* All of them: the one that renews as well. None says goodbye. */
    assert_int_equal(proxy_freeze_connections(pair->proxy, ""), open + 1);
    assert_true(wait_until(has_renewed_thrice, pair->client, HANG_MS));
    assert_int_equal(scene_stats(pair->client).losses, 0);
    assert_int_equal(hf_lock_release(pair->lock), HF_OK);
}

static bool none_open(void *arg) {
    return proxy_open(arg) == 0;
}

/* Nobody uses it, and still it is found out: the next call does not have to wait for it. */
PAIR_CASE_WITH(U35_half_open_command_connection_while_idle, pinging_options()) {
    assert_int_equal(hf_ping(pair->client), HF_OK);
    assert_int_equal(proxy_freeze_connections(pair->proxy, ""), 1);
    int64_t start_ms = now_ms();
    assert_true(wait_until(none_open, pair->proxy, HANG_MS));
    assert_true(now_ms() - start_ms < 10 * (PING_MS + SILENT_MS));
    assert_int_equal(hf_lock_try(pair->lock), HF_OK);
    assert_int_equal(hf_lock_release(pair->lock), HF_OK);
    assert_int_equal(scene_stats(pair->client).in_doubt, 0);
}

static bool only_the_second_is_open(void *arg) {
    return proxy_connections(arg) == 2 && proxy_open(arg) == 1;
}

/* A caller that gave up had not waited long enough to prove the connection dead. An overdue reply
 * still proves it, so the next call does not use that connection. */
CASE(half_open_found_after_the_only_caller_left) {
    OWN(end) struct pair pair;
    hf_options options = scene_options();
    options.cmd_timeout_ms = 2500; /* what comes before the silence is answered within it */
    options.ping_interval_ms = 3600000;
    struct scene_call call;
    own_cancel *cancel;
    begin(&pair, &options);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    assert_int_equal(hf_lock_try(pair.lock), HF_OK);
    assert_int_equal(hf_lock_release(pair.lock), HF_OK);
    proxy_mute_replies_after(pair.proxy, hfi_script_plain_acquire.sha1);
    int64_t start_ms = now_ms();
    scene_acquire(&call, pair.lock, HF_FOREVER, cancel);
    assert_true(proxy_wait_fired(pair.proxy, 1, HANG_MS));
    hf_cancel_fire(cancel);
    assert_int_equal(scene_join(&call), HF_ECANCELED);
    /* What it took is given back on a connection of its own, which stays. */
    assert_true(wait_until(only_the_second_is_open, pair.proxy, HANG_MS));
    assert_true(now_ms() - start_ms >= options.cmd_timeout_ms);
    assert_int_equal(hf_lock_acquire_for(pair.lock, HANG_MS),
                     HF_OK); /* perhaps before it was given back */
    assert_int_equal(hf_lock_release(pair.lock), HF_OK);
    assert_int_equal(scene_stats(pair.client).in_doubt, 1); /* the one that was cancelled */
}

CASE(U35_black_hole_in_each_direction) {
    for (int direction = 1; direction <= 3; direction++) {
        hf_options options = pinging_options();
        options.connect_timeout_ms = HANG_MS;
        struct pair pair;
        struct scene_call call;
        begin(&pair, &options);
        begin_waiting(&pair, &call);
        size_t before = proxy_connections(pair.proxy);
        proxy_blackhole(pair.proxy, (direction & 1) != 0, (direction & 2) != 0);
        struct proxy *proxy = pair.proxy;
        assert_true(
            WAIT_FOR(proxy_connections(proxy) != before, HANG_MS)); /* it has given one up */
        assert_int_equal(hf_lock_release(pair.held), HF_OK);        /* heard by nobody */
        assert_false(atomic_load(&call.done));
        proxy_heal(proxy);
        int64_t start_ms = now_ms();
        assert_int_equal(scene_join(&call), HF_OK);
        assert_true(now_ms() - start_ms < AT_ONCE_MS);
        end(&pair);
    }
}

/* ---- Down and back ---- */

static size_t count_words(struct scene_log *log, const char *words) {
    size_t count = 0;
    sync_lock(&log->sync);
    for (const char *at = log->text; at != NULL && (at = strstr(at, words)) != NULL; at++)
        count++;
    sync_unlock(&log->sync);
    return count;
}

/* While the server is down it is tried again and again, but with growing pauses. */
CASE(down_is_no_tight_loop) {
    OWN(scene_log_end) struct scene_log log;
    hf_options options = scene_options();
    options.connect_timeout_ms = ENDURING_MS;
    scene_log_start(&log, &options);
    struct pair pair;
    struct scene_call call;
    begin(&pair, &options);
    begin_waiting(&pair, &call);
    proxy_refuse(pair.proxy, true);
    proxy_cut_all(pair.proxy);
    assert_int_equal(scene_join(&call), HF_EUNREACH);
    assert_true(call.took_ms >= ENDURING_MS);
    /* Two connections, each after 20 ms and then about twice as long each time, up to a second. */
    size_t attempts = count_words(&log, "cannot connect");
    assert_true(attempts >= 6 && attempts <= 60);
    proxy_heal(pair.proxy);
    assert_int_equal(hf_lock_release(pair.held), HF_OK);
    assert_int_equal(hf_lock_acquire_for(pair.lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(pair.lock), HF_OK);
    end(&pair);
}

PAIR_CASE(refused_and_back_while_waiting) {
    struct scene_call call;
    begin_waiting(pair, &call);
    proxy_refuse(pair->proxy, true);
    proxy_cut_all(pair->proxy);
    assert_int_equal(hf_lock_release(pair->held), HF_OK); /* heard by nobody */
    assert_true(HOLDS_FOR(!atomic_load(&call.done), 300));
    proxy_refuse(pair->proxy, false);
    int64_t start_ms = now_ms();
    assert_int_equal(scene_join(&call), HF_OK);
    assert_true(now_ms() - start_ms < AT_ONCE_MS);
}

PAIR_CASE(refused_from_the_start) {
    struct scene_call call;
    proxy_refuse(pair->proxy, true);
    assert_int_equal(hf_ping(pair->client), HF_EUNREACH);
    assert_int_not_equal(hf_last_error()->sys_errno, 0);
    assert_string_equal(hf_last_error()->node, proxy_socket(pair->proxy));
    scene_acquire(&call, pair->lock, HF_FOREVER, NULL);
    assert_true(HOLDS_FOR(!atomic_load(&call.done), 100));
    proxy_refuse(pair->proxy, false);
    assert_int_equal(scene_join(&call), HF_OK);
}

CASE(server_restarted) {
    own_server *server = server_start(NULL);
    own_client *client = scene_open(server_url(server), NULL);
    own_lock *lock = scene_lock(client, "again");
    struct scene_call call;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_lock_try(lock), HF_OK);
        scene_acquire(&call, lock, HF_FOREVER, NULL);
        scene_wait_subscribed(server, "again");
        server_restart(server); /* without data: our hold is gone, and the other one enters */
        assert_int_equal(scene_join(&call), HF_OK);
        assert_true(call.took_ms < AT_ONCE_MS + 5000);
        assert_int_equal(hf_lock_release_as(lock, call.options.owner), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_ELOST);
    }
    server_stop(server);
    assert_int_equal(hf_lock_try(lock), HF_EUNREACH);
}

RUN_CASES(scene_start_server, scene_stop_server)
