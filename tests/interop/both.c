/* C and Java on one name, where servers may change; see both.h. Used on the test's one thread. */
#include "both.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define C_OWNER 7

static struct {
    const char *channels;
    struct remote *java;
    hf_client *client;
    struct server *(*server_of)(const char *name);
} stage;

/* ---- Life ---- */

int both_build(void) {
    /* A JVM that is killed must not take the driver along when it is written to. */
    signal(SIGPIPE, SIG_IGN);
    return java_build(JAVA_REDISSON);
}

bool both_start(const char *url, const char *channels, struct server *(*server_of)(const char *)) {
    hf_options options = HF_OPTIONS_INIT;
    options.cmd_timeout_ms = 20000; /* there is a failover inside of it */
    stage.channels = channels;
    stage.server_of = server_of;
    stage.java = java_start(JAVA_REDISSON);
    char *word = java_word(url);
    const char *answer = java_call(stage.java, "client j %s timeout=5000 scan=1000", word);
    free(word);
    if (strncmp(answer, "ok ", 3) != 0)
        print_error("Redisson does not connect: %s\n", answer);
    return strncmp(answer, "ok ", 3) == 0 && hf_open(url, &options, &stage.client) == HF_OK;
}

void both_stop(void) {
    hf_close(stage.client);
    java_kill_all();
}

struct remote *both_java(void) {
    return stage.java;
}

struct both both_on(const char *name, const char *java_kind, any_kind kind) {
    static int last_thread = 0;
    struct both both = {.name = name, .thread = ++last_thread};
    assert_java("ok", "open j %s %s %s", java_kind, name, name);
    assert_int_equal(new_lock(stage.client, kind, name, strlen(name), &both.lock), HF_OK);
    return both;
}

void both_end(struct both *both) {
    assert_false(key_exists(stage.server_of(both->name), both->name));
    hf_lock_free(both->lock);
}

/* ---- Java ---- */

static bool is_error(const char *answer) {
    return strncmp(answer, "err Redis", 9) == 0 || strstr(answer, "TimeoutException") != NULL;
}

struct sleeping {
    const struct both *both;
    int command; /* 0: to be sent */
};

static bool is_asleep(void *arg) {
    struct sleeping *sleeping = arg;
    const struct both *both = sleeping->both;
    if (sleeping->command != 0 && java_answered(stage.java, sleeping->command)) {
        const char *answer = java_answer(stage.java, sleeping->command);
        if (!is_error(answer)) /* it has not come back to all servers yet, and threw */
            fail_msg("Java does not wait: %s", answer);
        sleeping->command = 0;
    }
    if (sleeping->command == 0)
        sleeping->command = java_send(stage.java, "lock %s thread=%d", both->name, both->thread);
    return strcmp(java_call(stage.java, "asleep thread=%d", both->thread), "ok true") == 0;
}

int both_java_waits(struct both *both) {
    struct sleeping sleeping = {.both = both};
    assert_true(wait_until(is_asleep, &sleeping, BOTH_HANG_MS));
    return sleeping.command;
}

void both_assert_java_gets_it(struct both *both, int command, int64_t limit_ms) {
    assert_string_equal(java_answer_within(stage.java, command, limit_ms), "ok");
    assert_int_equal(hf_lock_try(both->lock), HF_EBUSY);
}

void both_java_takes(const struct both *both) {
    assert_java("ok", "lock %s thread=%d", both->name, both->thread);
}

struct unlocking {
    const struct both *both;
    char answer[256];
};

/* Whether it was sent before it threw is not known: then a second one may find nothing. */
static bool has_unlocked(void *arg) {
    struct unlocking *unlocking = arg;
    bool again = unlocking->answer[0] != '\0';
    const char *answer = java_call(stage.java, "unlock %s thread=%d", unlocking->both->name,
                                   unlocking->both->thread);
    snprintf(unlocking->answer, sizeof unlocking->answer, "%s", answer);
    if (!is_error(answer) && strcmp(answer, "ok") != 0 &&
        !(again && strncmp(answer, "err IllegalMonitorStateException", 32) == 0))
        fail_msg("Java does not unlock: %s", answer);
    return !is_error(answer);
}

void both_java_unlocks(const struct both *both) {
    struct unlocking unlocking = {.both = both};
    if (!wait_until(has_unlocked, &unlocking, BOTH_HANG_MS))
        fail_msg("Java does not unlock: %s", unlocking.answer);
}

/* ---- C ---- */

void both_c_takes(struct both *both, int64_t lease_ms) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = lease_ms;
    assert_int_equal(hf_lock_acquire_with(both->lock, &options, NULL), HF_OK);
}

void both_c_releases(struct both *both) {
    bool held = hf_lock_remaining_ms(both->lock) > BOTH_WAIT_MS / 4;
    int err = hf_lock_release(both->lock);
    if (err != HF_OK && held)
        fail_msg("release: %s", hf_last_error()->text);
}

struct listened {
    struct server *server;
    const char *name;
};

static bool is_listened(void *arg) {
    const struct listened *listened = arg;
    own_text *line = text_of("%s *{%s}*", stage.channels, listened->name);
    redisReply *reply = cmd(listened->server, line);
    bool any = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
    if (reply != NULL)
        freeReplyObject(reply);
    return any;
}

void both_wait_listened(const struct both *both) {
    struct listened listened = {stage.server_of(both->name), both->name};
    assert_true(wait_until(is_listened, &listened, BOTH_HANG_MS));
}

hf_op *both_c_waits(struct both *both) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    options.wait_ms = HF_FOREVER;
    options.owner = C_OWNER;
    assert_int_equal(hf_lock_acquire_start(both->lock, &options, NULL, NULL, &op), HF_OK);
    both_wait_listened(both);
    return op;
}

void both_assert_c_still_waits(hf_op *op) {
    assert_int_equal(hf_op_wait(op, 0, NULL), HF_EPENDING);
}

void both_assert_c_gets_it(struct both *both, hf_op *op, int64_t limit_ms) {
    assert_int_equal(hf_op_wait(op, limit_ms, NULL), HF_OK);
    hf_op_free(op);
    assert_int_equal(hf_lock_release_as(both->lock, C_OWNER), HF_OK);
}

/* ---- In turn ---- */

void both_wake_each_other(const char *name, const char *java_kind, any_kind kind) {
    struct both both = both_on(name, java_kind, kind);
    both_c_takes(&both, HF_WATCHDOG);
    assert_java("ok false", "try %s thread=%d", both.name, both.thread);
    int waiting = both_java_waits(&both);
    assert_int_equal(hf_lock_release(both.lock), HF_OK);
    both_assert_java_gets_it(&both, waiting, BOTH_BY_MESSAGE_MS);

    hf_op *op = both_c_waits(&both);
    assert_java("ok", "unlock %s thread=%d", both.name, both.thread);
    both_assert_c_gets_it(&both, op, BOTH_BY_MESSAGE_MS);
    both_end(&both);
}
