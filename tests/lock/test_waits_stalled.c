/*
 * Waits that the server holds up, and not another owner: it is silent, or it refuses. The caller
 * must be able to tell the two apart (HF_ETIMEDOUT and HF_EBUSY mean that somebody else has the
 * lock), a wait without end must end, the log must say why meanwhile, and closing the client must
 * not take long for what was refused.
 *
 * Every test has a server of its own. Lower bounds are exact; upper ones are hang limits.
 */
#include "support/world.h"

#define CMD_MS 1500
#define CONNECT_MS 3500
#define SLACK_MS 8000

/* What the log said: the sentences about waits, and how many there were. */
struct log_lines {
    pthread_mutex_t mutex;
    char text[512];
    int lines;
};

static void write_down(hf_log_level level, const char *message, void *user) {
    struct log_lines *log = user;
    if (level != HF_LOG_WARN || strncmp(message, "waiting for ", 12) != 0)
        return;
    pthread_mutex_lock(&log->mutex);
    snprintf(log->text, sizeof log->text, "%s", message);
    log->lines++;
    pthread_mutex_unlock(&log->mutex);
}

static void begin_patient(struct world *w, struct log_lines *log, int64_t connect_ms) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = CMD_MS;
    options.connect_timeout_ms = connect_ms;
    options.ping_interval_ms = 200;
    if (log != NULL) {
        memset(log, 0, sizeof *log);
        pthread_mutex_init(&log->mutex, NULL);
        options.log = write_down;
        options.log_user = log;
    }
    world_begin_on(w, server_start(NULL), &options);
}

static void begin(struct world *w, struct log_lines *log) {
    begin_patient(w, log, CONNECT_MS);
}

static void end(struct world *w) {
    own_server *server = w->server;
    world_end(w);
}

/* ---- Silence ---- */

CASE_IN(frozen_is_not_busy, struct world, w, begin, end, NULL) {
    hf_result result = HF_RESULT_INIT;
    server_freeze(w->server);
    assert_int_equal(hf_lock_try(w->lock), HF_EUNREACH);
    assert_int_equal(hf_lock_acquire_for(w->lock, 100), HF_EUNREACH);
    assert_int_equal(hf_lock_acquire_for(w->rival_lock, 100), HF_EUNREACH);
    assert_int_equal(world_acquire_async(w->lock, 7, 0, &result), HF_EUNREACH);
    assert_int_equal(world_acquire_async(w->lock, 8, 100, &result), HF_EUNREACH);
    assert_int_equal(world_stats(w->client).timed_out, 0);
    server_unfreeze(w->server);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(hf_lock_acquire_for(w->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* In line behind another of the process, whose command is not answered: the same. */
CASE_IN(frozen_while_queued, struct world, w, begin, end, NULL) {
    struct world_caller first;
    server_freeze(w->server);
    hf_acquire_options options = world_wait_as(70, HF_FOREVER, HF_WATCHDOG);
    size_t sent = proxy_seen(w->proxy, WORLD_ACQUIRE);
    world_call_acquire(&first, w->lock, options);
    /* of a wait that began before that command it is not known what the server would have said */
    assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, sent + 1, HANG_MS));
    assert_int_equal(hf_lock_acquire_for(w->lock, 200), HF_EUNREACH);
    hf_acquire_options same = world_wait_as(70, 200, HF_WATCHDOG);
    assert_int_equal(hf_lock_acquire_with(w->lock, &same, NULL), HF_EUNREACH);
    assert_int_equal(world_join(&first), HF_EUNREACH);
    server_unfreeze(w->server);
}

/* It is another's, and the server has said so; that it is silent at the end changes nothing. */
CASE_IN(frozen_after_an_answer_is_a_wait_that_timed_out, struct world, w, begin_patient, end, NULL,
        HANG_MS) {
    struct world_caller waiter; /* nobody gives up before the wait ends */
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    world_call_acquire(&waiter, w->lock, world_wait_for(ENDURING_MS, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w->proxy, WORLD_SUBSCRIBE, 1, HANG_MS));
    assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, 3, HANG_MS)); /* one was to warm up */
    proxy_blackhole(w->proxy, true, true);
    assert_int_equal(world_join(&waiter), HF_ETIMEDOUT);
    proxy_heal(w->proxy);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

static bool has_lines(void *arg) {
    struct log_lines *log = arg;
    pthread_mutex_lock(&log->mutex);
    bool some = log->lines > 0;
    pthread_mutex_unlock(&log->mutex);
    return some;
}

CASE(silence_is_reported_once) {
    OWN(end) struct world w;
    struct log_lines log;
    struct world_caller waiter[3];
    begin(&w, &log);
    server_freeze(w.server);
    for (int i = 0; i < 3; i++)
        world_call_acquire(&waiter[i], w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(has_lines, &log, HANG_MS));
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_join(&waiter[i]), HF_EUNREACH);
    assert_int_equal(log.lines, 1);
    if (strstr(log.text, "'" WORLD_NAME "'") == NULL || strstr(log.text, "does not answer") == NULL)
        fail_msg("%s", log.text);
    server_unfreeze(w.server);
}

/* ---- Refusals ---- */

static const struct {
    const char *word, *on[2], *off[2];
} refusals[] = {
    {"READONLY", {"REPLICAOF 127.0.0.1 1"}, {"REPLICAOF NO ONE"}},
    {"NOREPLICAS", {"CONFIG SET min-replicas-to-write 1"}, {"CONFIG SET min-replicas-to-write 0"}},
    {"MASTERDOWN",
     {"CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"},
     {"REPLICAOF NO ONE", "CONFIG SET replica-serve-stale-data yes"}},
};

static void refuse(struct world *w, size_t which, bool on) {
    for (int i = 0; i < 2; i++) {
        const char *command = on ? refusals[which].on[i] : refusals[which].off[i];
        if (command != NULL)
            cmd_ok(w->server, command);
    }
}

CASE(a_server_that_refuses_is_given_up) {
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct world w;
        struct log_lines log;
        struct world_caller waiter, second;
        begin(&w, &log);
        refuse(&w, i, true);
        int64_t start_ms = now_ms();
        world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
        world_call_acquire(&second, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
        assert_true(wait_until(has_lines, &log, HANG_MS));
        if (strstr(log.text, "refuses commands") == NULL ||
            strstr(log.text, refusals[i].word) == NULL)
            fail_msg("%s", log.text);
        assert_int_equal(hf_lock_acquire_for(w.lock, HF_FOREVER), HF_EUNAVAILABLE);
        if (strstr(hf_last_error()->text, refusals[i].word) == NULL)
            fail_msg("%s: %s", refusals[i].word, hf_last_error()->text);
        assert_true(now_ms() - start_ms >= CONNECT_MS);
        assert_int_equal(world_join(&waiter), HF_EUNAVAILABLE);
        assert_int_equal(world_join(&second), HF_EUNAVAILABLE);
        assert_true(now_ms() - start_ms < 3 * CONNECT_MS + SLACK_MS);
        assert_int_equal(log.lines, 1);
        refuse(&w, i, false);
        assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_OK);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
        end(&w);
    }
}

/* A server that refuses writes answers queries: that does not end the state that was logged. */
CASE(a_refusal_is_reported_once_beside_queries) {
    OWN(end) struct world w;
    struct log_lines log;
    struct world_caller waiter;
    bool locked;
    begin(&w, &log);
    refuse(&w, 1, true);
    world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(has_lines, &log, HANG_MS));
    assert_int_equal(hf_lock_is_locked(w.lock, &locked), HF_OK);
    assert_int_equal(world_join(&waiter), HF_EUNAVAILABLE);
    assert_int_equal(log.lines, 1);
    refuse(&w, 1, false);
}

/* A caller in the local queue gets the same error, and not that another owner has the lock. */
CASE_IN(refused_while_queued, struct world, w, begin, end, NULL) {
    struct world_caller first;
    refuse(w, 0, true);
    world_call_acquire(&first, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, 3, HANG_MS));
    assert_int_equal(hf_lock_acquire_for(w->lock, 200), HF_EUNAVAILABLE);
    assert_int_equal(world_join(&first), HF_EUNAVAILABLE);
    refuse(w, 0, false);
}

/* Lost copies do not hide it. */
CASE_IN(refused_and_then_unanswered, struct world, w, begin, end, NULL) {
    struct world_caller first;
    refuse(w, 0, true);
    world_call_acquire(&first, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, 3, HANG_MS));
    for (int i = 0; i < 100; i++)
        proxy_drop_replies_after(w->proxy, WORLD_ACQUIRE);
    assert_int_equal(world_join(&first), HF_EUNAVAILABLE);
    assert_true(proxy_fired(w->proxy) > 0);
    proxy_heal(w->proxy);
    refuse(w, 0, false);
}

/* It passes in time: nobody has noticed but the log. */
CASE(a_refusal_that_passes_is_waited_out) {
    OWN(end) struct world w;
    struct log_lines log;
    struct world_caller waiter;
    begin_patient(&w, &log, HANG_MS);
    refuse(&w, 0, true);
    world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(has_lines, &log, HANG_MS));
    refuse(&w, 0, false);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
}

/* ---- Closing ---- */

static void close_soon_after(bool stood) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 10000;
    options.connect_timeout_ms = 1000;
    hf_lock *fair;
    own_server *server = server_start(NULL);
    hf_client *client = made(hf_open, server_url(server), &options);
    hf_client *rival = made(hf_open, server_url(server), &options);
    assert_int_equal(new_lock(client, HF_FAIR, "fair", 4, &fair), HF_OK);
    hf_lock *held = made(new_lock, rival, HF_FAIR, "fair", 4);
    if (stood) { /* it has a place in the queue that it can no longer leave */
        struct world_caller waiter;
        assert_int_equal(hf_lock_acquire(held), HF_OK);
        world_call_acquire(&waiter, fair, world_wait_for(HF_FOREVER, HF_WATCHDOG));
        assert_true(WAIT_FOR(cmd_int(server, "LLEN redisson_lock_queue:{fair}") != 0, HANG_MS));
        cmd_ok(server, "REPLICAOF 127.0.0.1 1");
        assert_int_equal(hf_lock_release(held), HF_EUNAVAILABLE);
        assert_int_equal(world_join(&waiter), HF_EUNAVAILABLE);
    } else {
        cmd_ok(server, "REPLICAOF 127.0.0.1 1");
        assert_int_equal(hf_lock_try(fair), HF_EUNAVAILABLE);
        assert_int_equal(hf_lock_acquire_for(fair, 50), HF_EUNAVAILABLE);
    }
    int64_t start_ms = now_ms();
    assert_int_equal(hf_close(client), HF_OK);
    assert_true(now_ms() - start_ms < 5000); /* half of what it takes to wait in vain */
    hf_lock_free(fair);
    hf_lock_free(held);
    hf_close(rival);
}

CASE(close_is_quick_after_a_refused_acquire) {
    close_soon_after(false);
}

CASE(close_is_quick_though_the_queue_entry_stays) {
    close_soon_after(true);
}

RUN_CASES(NULL, NULL)
