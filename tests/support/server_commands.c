/*
 * Commands to a private server, on a connection that the test's client knows nothing of; see
 * server.h.
 *
 * Called by tests, by server.c (PING) and by monitor.c, on any thread and in forked children. The
 * connection is guarded by `helper`, so that calls take turns; a child makes its own and leaves the
 * parent's alone.
 *
 * Invariants: a command is sent at most once. Before it is sent the connection is looked at, and
 * one that has ended is replaced; after it was sent a failure is a failure. SIGPIPE, which hiredis
 * may raise, is never seen by the test. `helper_commands` is what the server has counted of ours.
 */
#include "support/server_internal.h"
#include "support/wait.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static const struct timeval answer_limit = {.tv_sec = 30};

/* ---- SIGPIPE --------------------------------------------------------------------------------- */

struct sigpipe_guard {
    sigset_t before;
    bool was_pending;
};

static void hold_sigpipe(struct sigpipe_guard *guard) {
    sigset_t sigpipe, pending;
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &sigpipe, &guard->before);
    sigpending(&pending);
    guard->was_pending = sigismember(&pending, SIGPIPE);
}

static void drop_sigpipe(const struct sigpipe_guard *guard) {
    sigset_t sigpipe;
    sigemptyset(&sigpipe);
    sigaddset(&sigpipe, SIGPIPE);
    struct timespec no_time = {0};
    if (!guard->was_pending)
        while (sigtimedwait(&sigpipe, NULL, &no_time) < 0 && errno == EINTR)
            continue;
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
}

/* ---- The connection -------------------------------------------------------------------------- */

static bool introduce(redisContext *context, const char *password) {
    if (password != NULL) {
        own_reply *reply = redisCommand(context, "AUTH %s", password);
        if (reply == NULL)
            return false;
    }
    redisReply *reply = redisCommand(context, "CLIENT SETNAME " SUPPORT_CLIENT_NAME);
    if (reply == NULL)
        return false;
    freeReplyObject(reply);
    return true;
}

static redisContext *open_connection(const struct server *server) {
    redisContext *context = redisConnectUnixWithTimeout(server->socket, answer_limit);
    if (context == NULL)
        support_die("out of memory");
    struct sigpipe_guard guard;
    hold_sigpipe(&guard);
    bool good = context->err == 0 && redisSetTimeout(context, answer_limit) == REDIS_OK &&
                introduce(context, server->password);
    drop_sigpipe(&guard);
    if (good)
        return context;
    redisFree(context);
    return NULL;
}

static int introduction_commands(const struct server *server) {
    return server->password != NULL ? 2 : 1;
}

redisContext *server_connect(struct server *server) {
    redisContext *context = open_connection(server);
    if (context != NULL)
        server_count_own(server, introduction_commands(server));
    return context;
}

static void drop_connection(struct server *server) {
    if (server->connection != NULL)
        redisFree(server->connection);
    server->connection = NULL;
}

/* Nothing is due between commands, so any event is an end (or a farewell that comes before one). */
static bool has_ended(const redisContext *context) {
    char byte;
    return recv(context->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

static bool have_connection(struct server *server) {
    if (server->connection != NULL &&
        (server->connection->err != 0 || has_ended(server->connection)))
        drop_connection(server);
    if (server->connection == NULL) {
        server->connection = open_connection(server);
        if (server->connection != NULL)
            server->helper_commands += introduction_commands(server);
    }
    return server->connection != NULL;
}

static void lock_helper(struct server *server) {
    bool in_child = server->helper_pid != getpid();
    if (in_child)
        sync_init(&server->helper); /* another thread of the parent may have held it */
    sync_lock(&server->helper);
    if (in_child) {
        drop_connection(server); /* closes our copy of the parent's descriptor, nothing more */
        server->helper_pid = getpid();
    }
}

void server_forget_connection(struct server *server) {
    lock_helper(server);
    drop_connection(server);
    server->helper_commands = 0;
    sync_unlock(&server->helper);
}

void server_count_own(struct server *server, int commands) {
    lock_helper(server);
    server->helper_commands += commands;
    sync_unlock(&server->helper);
}

/* ---- Commands -------------------------------------------------------------------------------- */

static redisReply *vcmd(struct server *server, const char *format, va_list args) {
    redisReply *reply = NULL;
    lock_helper(server);
    if (have_connection(server)) {
        struct sigpipe_guard guard;
        hold_sigpipe(&guard);
        reply = redisvCommand(server->connection, format, args);
        drop_sigpipe(&guard);
        server->helper_commands++;
        if (reply == NULL)
            drop_connection(server);
    }
    sync_unlock(&server->helper);
    return reply;
}

redisReply *cmd(struct server *server, const char *format, ...) {
    va_list args;
    va_start(args, format);
    redisReply *reply = vcmd(server, format, args);
    va_end(args);
    return reply;
}

static void die_of_reply(const char *format, const redisReply *reply) {
    static const char *const names[] = {"nothing", "string", "array", "integer",
                                        "nil",     "status", "error"};
    if (reply == NULL)
        support_die("\"%s\": the server cannot be reached", format);
    support_die("\"%s\" was answered by %s %s", format,
                reply->type <= REDIS_REPLY_ERROR ? names[reply->type] : "something else",
                reply->str != NULL ? reply->str : "");
}

/* A reply that is neither missing nor an error. */
static redisReply *vcmd_sound(struct server *server, const char *format, va_list args) {
    redisReply *reply = vcmd(server, format, args);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
        die_of_reply(format, reply);
    return reply;
}

long long cmd_int(struct server *server, const char *format, ...) {
    va_list args;
    va_start(args, format);
    own_reply *reply = vcmd_sound(server, format, args);
    va_end(args);
    long long number = reply->integer;
    if (reply->type != REDIS_REPLY_INTEGER) {
        char *end = NULL;
        if (reply->type == REDIS_REPLY_STRING)
            number = strtoll(reply->str, &end, 10);
        if (end == NULL || end == reply->str || *end != '\0')
            die_of_reply(format, reply);
    }
    return number;
}

char *cmd_str(struct server *server, const char *format, ...) {
    va_list args;
    va_start(args, format);
    own_reply *reply = vcmd_sound(server, format, args);
    va_end(args);
    char *text = NULL;
    if (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS)
        text = strdup(reply->str);
    else if (reply->type != REDIS_REPLY_NIL)
        die_of_reply(format, reply);
    return text;
}

void cmd_ok(struct server *server, const char *format, ...) {
    va_list args;
    va_start(args, format);
    freeReplyObject(vcmd_sound(server, format, args));
    va_end(args);
}

bool key_exists(struct server *server, const char *key) {
    return cmd_int(server, "EXISTS %s", key) == 1;
}

long long pttl(struct server *server, const char *key) {
    return cmd_int(server, "PTTL %s", key);
}

static int64_t clock_of(struct server *server) {
    if (server_is_other(server)) /* ZooKeeper says nothing of its own */
        return now_ms();
    return cmd_int(server, "EVAL %s 0",
                   "local t = redis.call('time') return t[1] * 1000 + math.floor(t[2] / 1000)");
}

void server_wait_clock(struct server *server, int64_t duration_ms) {
    int64_t until_ms = clock_of(server) + duration_ms;
    if (!WAIT_FOR(clock_of(server) > until_ms, duration_ms + 60000))
        support_die("the server's clock stands still");
}

bool server_wait_outlived(struct server *server, const char *key, int64_t limit_ms) {
    enum { RENEWALS = 4 };
    long long left_ms = pttl(server, key), before_ms;
    int renewals = 0;
    return WAIT_FOR((before_ms = left_ms, left_ms = pttl(server, key),
                     renewals += left_ms > before_ms, left_ms < 0 || renewals == RENEWALS),
                    limit_ms) &&
           left_ms >= 0;
}

/* ---- Counts ---------------------------------------------------------------------------------- */

/* The number behind `label` in a section of INFO, 0 when the label is not there. */
static long long info_number(struct server *server, const char *section, const char *label) {
    own_text *text = cmd_str(server, "INFO %s", section);
    const char *found = text != NULL ? strstr(text, label) : NULL;
    return found != NULL ? strtoll(found + strlen(label), NULL, 10) : 0;
}

long long server_commands(struct server *server) {
    long long all = info_number(server, "stats", "\ntotal_commands_processed:");
    lock_helper(server);
    long long own = server->helper_commands - 1; /* this INFO was not yet counted by itself */
    sync_unlock(&server->helper);
    return all - own;
}

long long server_calls(struct server *server, const char *command) {
    char label[128];
    snprintf(label, sizeof label, "\ncmdstat_%s:calls=", command);
    return info_number(server, "commandstats", label);
}

long long server_subscribers(struct server *server, const char *channel) {
    own_reply *reply = cmd(server, "PUBSUB NUMSUB %s", channel);
    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        support_die("the server does not tell who hears %s", channel);
    return reply->element[1]->integer;
}

bool server_questions_are_received(void *server) {
    return server_subscribers(server, "holdfast_ask") > 0;
}

long long server_clients(struct server *server) {
    own_text *list = cmd_str(server, "CLIENT LIST");
    long long clients = 0;
    for (char *rest = list, *line; (line = strsep(&rest, "\n")) != NULL;)
        clients += line[0] != '\0' && strstr(line, " name=" SUPPORT_CLIENT_NAME " ") == NULL;
    return clients;
}
