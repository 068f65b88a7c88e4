/*
 * Waits, as the wire shows them: when somebody really sleeps, so that from then on only a message
 * or the end of the other's lease wakes it.
 *
 * Used by the rows, on the test's one thread. A wait is watched by a MONITOR that starts before it.
 * A waiter makes an attempt, subscribes and makes another. If its client hears the channel
 * already, for another who waits there, it does not subscribe again, and it is two attempts.
 *
 * A Java thread has to be looked at besides: a writer's release, on either side, lets those go who
 * sleep when its message arrives (LockPubSub, READ_UNLOCK_MESSAGE), and the client that has just tried in
 * vain and is about to sleep misses it, in every version of Redisson, and sleeps until the lease
 * ends.
 *
 * A client that listens to nothing has to subscribe. For one that does listen when the wait begins,
 * both are right, and cannot be distinguished beforehand: Redisson and holdfast give a subscription
 * back in the background, some time after the wait has ended, and only they know whether this one
 * is still to be used.
 */
#include "interop.h"

#include <stdio.h>
#include <string.h>

/* A server at which it may be. */
struct watched_server {
    struct monitor *monitor;
    bool listened;    /* its client did, before */
    char needle[128]; /* what its attempts have in them */
};

struct watched_wait {
    struct watched_server servers[FIVE];
    size_t servers_len;
};

/* ---- Lines of a monitor ---------------------------------------------------------------------- */

static bool has(const char *line, const char *text) {
    const char *end = strchrnul(line, '\n');
    return memmem(line, (size_t)(end - line), text, strlen(text)) != NULL;
}

static const char *next_line(const char *line) {
    const char *end = strchrnul(line, '\n');
    return *end == '\n' ? end + 1 : end;
}

static bool is_command(const char *line, const char *command) {
    const char *name = strstr(line, "] \"");
    return name != NULL && strncasecmp(name + 3, command, strlen(command)) == 0;
}

static bool is_of_a_script(const char *line) {
    return has(line, " lua] ");
}

/* An attempt that looked at something. A script that the server does not know yet shows no
 * commands, and one that came too late asks for the time alone: both are sent again. */
static bool was_run(const char *line) {
    if (!is_command(line, "EVAL"))
        return true;
    for (line = next_line(line); *line != '\0' && is_of_a_script(line); line = next_line(line)) {
        if (!is_command(line, "TIME\""))
            return true;
    }
    return false;
}

struct seen {
    int attempts;       /* before the subscription, or all if there is none */
    bool subscribed;    /* a SUBSCRIBE was sent */
    int attempts_since; /* that */
};

static struct seen look(const struct watched_server *at) {
    struct seen seen = {0};
    own_text *text = monitor_text(at->monitor);
    for (const char *line = text; *line != '\0'; line = next_line(line)) {
        if (is_of_a_script(line) || is_command(line, "UNSUBSCRIBE\"") ||
            has(line, "\"holdfast_ask\"") || has(line, "\"holdfast_tell:"))
            continue; /* the last two: for breaks and questions of a client that holds something */
        if (is_command(line, "SUBSCRIBE\""))
            seen.subscribed = true;
        else if (has(line, at->needle) && was_run(line))
            *(seen.subscribed ? &seen.attempts_since : &seen.attempts) += 1;
    }
    return seen;
}

/* ---- Watching -------------------------------------------------------------------------------- */

/* Whether one of its connections is subscribed to anything. Connections are called after their
 * client. */
static bool listens(struct server *server, const char *connection_name) {
    own_text *list = cmd_str(server, "CLIENT LIST");
    char name[128];
    bool any = false;
    snprintf(name, sizeof name, " name=%s", connection_name);
    for (const char *line = list; *line != '\0' && !any; line = next_line(line))
        any = has(line, name) && !has(line, " sub=0 ");
    return any;
}

static struct watched_wait *watch_none(void) {
    struct watched_wait *wait = zeroed(1, sizeof *wait);
    return wait;
}

static void add_server(struct watched_wait *wait, struct server *server,
                       const char *connection_name, const char *needle) {
    struct watched_server *at = &wait->servers[wait->servers_len++];
    snprintf(at->needle, sizeof at->needle, "%s", needle);
    at->monitor = monitor_start(server);
    at->listened = listens(server, connection_name);
}

struct watched_wait *java_watch(const char *client, const char *needle) {
    struct watched_wait *wait = watch_none();
    own_text *name = text_of("%s ", client);
    add_server(wait, suite.server, name, needle);
    return wait;
}

static void add_c(struct watched_wait *wait, struct server *server, const hf_client *client,
                  const char *needle) {
    own_text *name = text_of("holdfast:%s:", hf_client_id(client));
    add_server(wait, server, name, needle);
}

struct watched_wait *c_watch(const hf_client *client, const char *needle) {
    struct watched_wait *wait = watch_none();
    add_c(wait, suite.server, client, needle);
    return wait;
}

struct watched_wait *c_watch_at(struct server *const *servers, hf_client *const *clients,
                                size_t len, hf_owner owner) {
    struct watched_wait *wait = watch_none();
    for (size_t i = 0; i < len; i++)
        add_c(wait, servers[i], clients[i], c_owner(clients[i], owner));
    return wait;
}

typedef bool watched_condition(const struct watched_server *at, struct seen seen);

static bool is_asleep(const struct watched_server *at, struct seen seen) {
    if (seen.subscribed)
        return seen.attempts >= 1 && seen.attempts_since >= 1;
    return at->listened && seen.attempts >= 2;
}

static bool has_tried(const struct watched_server *at, struct seen seen) {
    (void)at;
    return seen.attempts >= 1;
}

static bool has_tried_twice(const struct watched_server *at, struct seen seen) {
    (void)at;
    return seen.attempts >= 2;
}

struct expected {
    const struct watched_wait *wait;
    watched_condition *condition;
};

/* At one of the servers: a lock that is made of several waits at one. */
static bool is_met(void *arg) {
    const struct expected *expected = arg;
    const struct watched_wait *wait = expected->wait;
    for (size_t i = 0; i < wait->servers_len; i++)
        if (expected->condition(&wait->servers[i], look(&wait->servers[i])))
            return true;
    return false;
}

static void tell(const struct watched_wait *wait, const char *complaint) {
    for (size_t i = 0; i < wait->servers_len; i++) {
        own_text *text = monitor_text(wait->servers[i].monitor);
        print_error("%s: %s (its client %s)\n%s\n", wait->servers[i].needle, complaint,
                    wait->servers[i].listened ? "listened before" : "listened to nothing", text);
    }
}

static void wait_for(watched_condition *condition, struct watched_wait *wait,
                     const char *complaint) {
    struct expected expected = {wait, condition};
    bool met = wait_until(is_met, &expected, JAVA_LIMIT_MS);
    if (!met)
        tell(wait, complaint);
    for (size_t i = 0; i < wait->servers_len; i++)
        monitor_stop(wait->servers[i].monitor);
    free(wait);
    assert_true(met);
}

void wait_until_asleep(struct watched_wait *wait) {
    wait_for(is_asleep, wait, "does not fall asleep");
}

void wait_until_tried(struct watched_wait *wait) {
    wait_for(has_tried, wait, "does not try");
}

void wait_until_trying(struct watched_wait *wait) {
    wait_for(has_tried_twice, wait, "does not try again");
}

bool java_sleeps(int thread) {
    return strcmp(java_call(suite.java, "asleep thread=%d", thread), "ok true") == 0;
}

static bool java_thread_sleeps(void *arg) {
    return java_sleeps(*(int *)arg);
}

void wait_until_java_sleeps(int thread) {
    assert_true(wait_until(java_thread_sleeps, &thread, JAVA_LIMIT_MS));
}

void wait_until_java_asleep(struct watched_wait *wait, int thread) {
    wait_until_asleep(wait);
    wait_until_java_sleeps(thread);
}

/* ---- Waits for ever -------------------------------------------------------------------------- */

int java_wait_start(const char *client, const char *handle, int thread) {
    struct watched_wait *wait = java_watch(client, java_owner(client, thread));
    int command = java_send(suite.java, "lock %s thread=%d", handle, thread);
    wait_until_java_asleep(wait, thread);
    return command;
}

hf_op *c_wait_start(hf_client *client, hf_lock *lock, hf_owner owner) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    hf_op *op;
    struct watched_wait *wait = c_watch(client, c_owner(client, owner));
    options.owner = owner;
    assert_hf(HF_OK, hf_lock_acquire_start(lock, &options, NULL, NULL, &op));
    wait_until_asleep(wait);
    return op;
}
