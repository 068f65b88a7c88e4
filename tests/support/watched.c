/*
 * A primary, two replicas and three sentinels; see watched.h, the manual.
 *
 * The sentinels learn each other and the replicas from their configuration, and run by a quicker
 * clock than usual, so that they are ready in a moment and notice a dead primary in half a second, unless
 * they are to take longer. They write their configuration themselves as they learn, so a sentinel that is
 * started again goes on where it was.
 */
#include "support/watched.h"

#include "support/server_internal.h"
#include "support/supervisor.h"
#include "support/wait.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT_MS = 90000, STOP_TIMEOUT_MS = 30000, DOWN_AFTER_MS = 500 };

struct sentinel {
    char *dir, *config_path, *log_path;
    int port;
    pid_t pid; /* 0: down */
};

struct watched {
    struct server *servers[WATCHED_SERVERS];
    struct sentinel sentinels[WATCHED_SENTINELS];
    char *password, *sentinel_password, *url;
    int down_after_ms;
};

static char *format(const char *template, const char *a, const char *b) {
    char *text = NULL;
    if (asprintf(&text, template, a, b) < 0)
        support_die("out of memory");
    return text;
}

/* ---- Asking a sentinel ---- */

/* NULL: it cannot be reached, or does not answer. */
static redisReply *ask(const struct watched *w, int i, const char *line) {
    struct timeval limit = {.tv_sec = 5};
    if (w->sentinels[i].pid == 0)
        return NULL;
    redisContext *context = redisConnectWithTimeout("127.0.0.1", w->sentinels[i].port, limit);
    redisReply *reply = NULL;
    if (context != NULL && context->err == 0 && redisSetTimeout(context, limit) == REDIS_OK) {
        if (w->sentinel_password != NULL)
            freeReplyObject(redisCommand(context, "AUTH %s", w->sentinel_password));
        reply = redisCommand(context, line);
    }
    if (context != NULL)
        redisFree(context);
    return reply;
}

static bool says(const struct watched *w, int i, const char *line, const char *text) {
    redisReply *reply = ask(w, i, line);
    bool found = reply != NULL &&
                 (reply->type == REDIS_REPLY_STATUS || reply->type == REDIS_REPLY_STRING) &&
                 strstr(reply->str, text) != NULL;
    if (reply != NULL)
        freeReplyObject(reply);
    return found;
}

static const char *value_of(const redisReply *list, const char *field) {
    for (size_t i = 0; i + 1 < list->elements; i += 2)
        if (strcmp(list->element[i]->str, field) == 0)
            return list->element[i + 1]->str;
    return "";
}

/* What a sentinel says of a server or of another sentinel: the role alone, or with the other's opinion of the primary.
 * Valkey 9.1 never forgets that opinion, not even when another server is the primary. */
static bool is_well(const char *flags, const char *role) {
    size_t len = strlen(role);
    return strncmp(flags, role, len) == 0 &&
           (flags[len] == '\0' || strcmp(flags + len, ",master_down") == 0);
}

/* How many of those that it lists are well. */
static size_t count_well(const struct watched *w, int i, const char *line, const char *role,
                         const char *field, const char *value) {
    redisReply *reply = ask(w, i, line);
    size_t well = 0;
    for (size_t k = 0; reply != NULL && reply->type == REDIS_REPLY_ARRAY && k < reply->elements;
         k++)
        well += is_well(value_of(reply->element[k], "flags"), role) &&
                (field == NULL || strcmp(value_of(reply->element[k], field), value) == 0);
    if (reply != NULL)
        freeReplyObject(reply);
    return well;
}

/* 0: it does not say. */
static int primary_port(const struct watched *w, int i) {
    redisReply *reply = ask(w, i, "SENTINEL GET-MASTER-ADDR-BY-NAME " WATCHED_NAME);
    int port = 0;
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2)
        port = atoi(reply->element[1]->str);
    if (reply != NULL)
        freeReplyObject(reply);
    return port;
}

/* ---- Which is the primary ---- */

static bool is_master(struct server *server) {
    redisReply *reply = server_pid(server) != 0 ? cmd(server, "ROLE") : NULL;
    bool master = reply != NULL && reply->type == REDIS_REPLY_ARRAY &&
                  strcmp(reply->element[0]->str, "master") == 0;
    if (reply != NULL)
        freeReplyObject(reply);
    return master;
}

struct finding {
    struct watched *w;
    const struct server *old;
    struct server *found;
};

static bool find_primary(void *arg) {
    struct finding *finding = arg;
    int port = 0;
    for (int i = 0; i < WATCHED_SENTINELS; i++) {
        if (finding->w->sentinels[i].pid == 0)
            continue;
        int said = primary_port(finding->w, i);
        if (said == 0 || (port != 0 && said != port))
            return false;
        port = said;
    }
    finding->found = NULL;
    for (int i = 0; i < WATCHED_SERVERS; i++)
        if (server_port(finding->w->servers[i]) == port)
            finding->found = finding->w->servers[i];
    return finding->found != NULL && finding->found != finding->old &&
           (finding->old == NULL || is_master(finding->found));
}

struct server *watched_primary(struct watched *w) {
    struct finding finding = {.w = w};
    if (!wait_until(find_primary, &finding, LIMIT_MS))
        support_die("the sentinels do not agree on a primary");
    return finding.found;
}

struct server *watched_wait_switch(struct watched *w, const struct server *old) {
    struct finding finding = {.w = w, .old = old};
    if (!wait_until(find_primary, &finding, LIMIT_MS))
        support_die("there was no failover");
    return finding.found;
}

static bool begin_failover(void *arg) {
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        if (says(arg, i, "SENTINEL FAILOVER " WATCHED_NAME, "OK"))
            return true;
    return false;
}

void watched_fail_over(struct watched *w) {
    if (!wait_until(begin_failover, w, LIMIT_MS))
        support_die("no sentinel begins a failover");
}

/* ---- Sentinels ---- */

static void write_config(const struct watched *w, int i) {
    const struct sentinel *sentinel = &w->sentinels[i];
    FILE *file = fopen(sentinel->config_path, "we");
    if (file == NULL)
        support_die("%s: %s", sentinel->config_path, strerror(errno));
    fprintf(file, "bind 127.0.0.1\nport %d\ndir %s\nsentinel myid %040x\n", sentinel->port,
            sentinel->dir, 0xabc0 + i);
    fprintf(file, "sentinel monitor " WATCHED_NAME " 127.0.0.1 %d 2\n", server_port(w->servers[0]));
    fprintf(file,
            "sentinel down-after-milliseconds " WATCHED_NAME " %d\n"
            "sentinel failover-timeout " WATCHED_NAME " 2000\n"
            "sentinel parallel-syncs " WATCHED_NAME " 9\n",
            w->down_after_ms);
    if (w->password != NULL)
        fprintf(file, "sentinel auth-pass " WATCHED_NAME " %s\n", w->password);
    if (w->sentinel_password != NULL)
        fprintf(file, "requirepass %s\n", w->sentinel_password);
    for (int k = 1; k < WATCHED_SERVERS; k++)
        fprintf(file, "sentinel known-replica " WATCHED_NAME " 127.0.0.1 %d\n",
                server_port(w->servers[k]));
    for (int k = 0; k < WATCHED_SENTINELS; k++)
        if (k != i)
            fprintf(file, "sentinel known-sentinel " WATCHED_NAME " 127.0.0.1 %d %040x\n",
                    w->sentinels[k].port, 0xabc0 + k);
    if (fclose(file) != 0)
        support_die("%s: %s", sentinel->config_path, strerror(errno));
}

struct one {
    struct watched *w;
    int i;
};

static bool is_up(void *arg) {
    struct one *one = arg;
    redisReply *reply = ask(one->w, one->i, "PING");
    bool up = reply != NULL && reply->type == REDIS_REPLY_STATUS;
    if (reply != NULL)
        freeReplyObject(reply);
    return up;
}

void watched_start_sentinel(struct watched *w, int i) {
    struct sentinel *sentinel = &w->sentinels[i];
    struct one one = {w, i};
    const char *argv[] = {server_program(), sentinel->config_path, "--sentinel", NULL};
    if (sentinel->pid != 0)
        return;
    sentinel->pid = supervisor_spawn(sentinel->log_path, argv);
    if (!wait_until(is_up, &one, LIMIT_MS))
        support_die("a sentinel does not get ready; see %s", sentinel->log_path);
    /* Redis 6.2 does not know this, and takes a little longer for everything. */
    redisReply *reply = ask(w, i,
                            "SENTINEL DEBUG ping-period 300 info-period 500 ask-period 100 "
                            "publish-period 500 min-link-reconnect-period 100");
    if (reply != NULL)
        freeReplyObject(reply);
}

void watched_kill_sentinel(struct watched *w, int i) {
    struct sentinel *sentinel = &w->sentinels[i];
    if (sentinel->pid != 0)
        supervisor_end(sentinel->pid, SIGKILL, STOP_TIMEOUT_MS);
    sentinel->pid = 0;
}

int watched_sentinel_port(const struct watched *w, int i) {
    return w->sentinels[i].port;
}

/* ---- Whole ---- */

static bool is_whole(void *arg) {
    struct watched *w = arg;
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        if (!says(w, i, "SENTINEL CKQUORUM " WATCHED_NAME, "OK") ||
            count_well(w, i, "SENTINEL SENTINELS " WATCHED_NAME, "sentinel", NULL, NULL) !=
                WATCHED_SENTINELS - 1 ||
            count_well(w, i, "SENTINEL REPLICAS " WATCHED_NAME, "slave", "master-link-status",
                       "ok") != WATCHED_SERVERS - 1)
            return false;
    return true;
}

struct order {
    struct server *server;
    char line[64];
};

static bool is_obeyed(void *arg) {
    struct order *order = arg;
    redisReply *reply = cmd(order->server, order->line);
    bool obeyed = reply != NULL && reply->type == REDIS_REPLY_STATUS;
    if (reply != NULL)
        freeReplyObject(reply);
    return obeyed;
}

/* A sentinel that gives a server another role ends the connections of its clients, and so perhaps ours. */
static void insist(struct order order) {
    if (!wait_until(is_obeyed, &order, LIMIT_MS))
        support_die("a server does not obey '%s'", order.line);
}

static void follow(struct server *server, const struct server *primary) {
    struct order order = {.server = server};
    snprintf(order.line, sizeof order.line, "REPLICAOF 127.0.0.1 %d", server_port(primary));
    insist(order);
}

void watched_heal(struct watched *w) {
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        watched_start_sentinel(w, i);
    struct server *primary = watched_primary(w);
    if (server_pid(primary) == 0)
        primary = watched_wait_switch(w, primary);
    for (int i = 0; i < WATCHED_SERVERS; i++) {
        if (server_pid(w->servers[i]) == 0) {
            server_restart(w->servers[i]);
            follow(w->servers[i], primary);
        }
        insist((struct order){.server = w->servers[i], .line = "CONFIG SET replica-read-only yes"});
    }
    if (!wait_until(is_whole, w, LIMIT_MS))
        support_die("the sentinels do not find everybody well again");
}

/* ---- Life ---- */

static void start_server(struct watched *w, int i) {
    char follows[64] = "";
    own_text *auth = w->password != NULL ? format("masterauth %s", w->password, NULL) : NULL;
    if (i > 0)
        snprintf(follows, sizeof follows, "replicaof 127.0.0.1 %d", server_port(w->servers[0]));
    const char *config[] = {"repl-diskless-sync yes",
                            "repl-diskless-sync-delay 0",
                            "repl-ping-replica-period 1",
                            "repl-timeout 5",
                            i > 0 ? follows : "# the first",
                            auth,
                            NULL};
    const struct server_options options = {.tcp = true, .password = w->password, .config = config};
    w->servers[i] = server_start(&options);
}

static void make_url(struct watched *w) {
    char hosts[128] = "";
    for (int i = 0; i < WATCHED_SENTINELS; i++) {
        size_t len = strlen(hosts);
        snprintf(hosts + len, sizeof hosts - len, "%s127.0.0.1:%d", i > 0 ? "," : "",
                 w->sentinels[i].port);
    }
    own_text *userinfo = w->password != NULL ? format(":%s@", w->password, NULL) : strdup("");
    own_text *where = format("redis-sentinel://%s%s/" WATCHED_NAME, userinfo, hosts);
    w->url = w->sentinel_password != NULL
                 ? format("%s?sentinel_password=%s", where, w->sentinel_password)
                 : strdup(where);
}

struct watched *watched_start(const struct watched_options *options) {
    struct watched *w = zeroed(1, sizeof *w);
    if (options != NULL && options->password != NULL)
        w->password = strdup(options->password);
    if (options != NULL && options->sentinel_password != NULL)
        w->sentinel_password = strdup(options->sentinel_password);
    w->down_after_ms =
        options != NULL && options->down_after_ms != 0 ? options->down_after_ms : DOWN_AFTER_MS;
    for (int i = 0; i < WATCHED_SERVERS; i++)
        start_server(w, i);
    for (int i = 0; i < WATCHED_SENTINELS; i++) {
        w->sentinels[i].dir = temp_dir();
        w->sentinels[i].config_path = format("%s/sentinel.conf", w->sentinels[i].dir, NULL);
        w->sentinels[i].log_path = format("%s/log", w->sentinels[i].dir, NULL);
        w->sentinels[i].port = server_pick_port();
    }
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        write_config(w, i);
    for (int i = 0; i < WATCHED_SENTINELS; i++)
        watched_start_sentinel(w, i);
    if (!wait_until(is_whole, w, LIMIT_MS))
        support_die("the sentinels do not find each other; see %s", w->sentinels[0].log_path);
    make_url(w);
    return w;
}

void watched_free(struct watched *w) {
    if (w == NULL)
        return;
    for (int i = 0; i < WATCHED_SENTINELS; i++) {
        watched_kill_sentinel(w, i);
        temp_dir_remove(w->sentinels[i].dir);
        free(w->sentinels[i].dir);
        free(w->sentinels[i].config_path);
        free(w->sentinels[i].log_path);
    }
    for (int i = 0; i < WATCHED_SERVERS; i++)
        server_free(w->servers[i]);
    free(w->password);
    free(w->sentinel_password);
    free(w->url);
    free(w);
}

const char *watched_url(const struct watched *w) {
    return w->url;
}

struct server *watched_server(struct watched *w, int i) {
    return w->servers[i];
}
