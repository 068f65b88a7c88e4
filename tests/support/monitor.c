/*
 * A MONITOR connection that keeps what it sees; see server.h, the manual.
 *
 * Called by tests on any thread. A thread of its own reads the connection, which belongs to that
 * thread from the start to the join; the lines are guarded by `sync`.
 *
 * Invariants: lines only grow, except in monitor_clear. To count exactly, a mark is sent as a
 * command and waited for: the server shows commands in the order it runs them, so all earlier ones
 * are here when the mark is. Marks, of this and of other monitors, are not kept.
 */
#include "support/server_internal.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define MARK "hf-monitor-mark"

enum { MARK_LIMIT_MS = 30000 };

struct monitor {
    struct server *server;
    redisContext *connection;
    pthread_t thread;

    struct sync sync;
    char **lines;
    size_t count, room;
    unsigned clears;
    unsigned marks_sent;
    char *last_mark; /* the newest mark line that came */
    bool ended;      /* no more lines will come */
};

static void keep_line(struct monitor *monitor, const char *text) {
    char *line = strdup(text);
    if (line == NULL)
        support_die("out of memory");
    if (strstr(line, MARK) != NULL) {
        free(monitor->last_mark);
        monitor->last_mark = line;
        return;
    }
    if (monitor->count == monitor->room) {
        monitor->room = monitor->room == 0 ? 64 : monitor->room * 2;
        monitor->lines = realloc(monitor->lines, monitor->room * sizeof *monitor->lines);
        if (monitor->lines == NULL)
            support_die("out of memory");
    }
    monitor->lines[monitor->count++] = line;
}

static void *read_lines(void *arg) {
    struct monitor *monitor = arg;
    void *reply;
    while (redisGetReply(monitor->connection, &reply) == REDIS_OK) {
        sync_lock(&monitor->sync);
        keep_line(monitor, ((redisReply *)reply)->str);
        sync_changed(&monitor->sync);
        sync_unlock(&monitor->sync);
        freeReplyObject(reply);
    }
    sync_lock(&monitor->sync);
    monitor->ended = true;
    sync_changed(&monitor->sync);
    sync_unlock(&monitor->sync);
    return NULL;
}

struct monitor *monitor_start(struct server *server) {
    struct monitor *monitor = zeroed(1, sizeof *monitor);
    monitor->server = server;
    monitor->connection = server_connect(server);
    if (monitor->connection == NULL)
        support_die("the server cannot be reached for MONITOR");
    redisReply *reply = redisCommand(monitor->connection, "MONITOR");
    if (reply == NULL || reply->type != REDIS_REPLY_STATUS)
        support_die("MONITOR was refused");
    freeReplyObject(reply);
    server_count_own(server, 1);

    struct timeval for_ever = {0};
    redisSetTimeout(monitor->connection, for_ever);
    sync_init(&monitor->sync);
    monitor->thread = sync_thread(read_lines, monitor);
    return monitor;
}

/* Returns with the mutex held, when all that ran before has arrived, or nothing more will. */
static void lock_up_to_date(struct monitor *monitor) {
    sync_lock(&monitor->sync);
    char mark[64];
    snprintf(mark, sizeof mark, "\"" MARK "-%p-%u\"", (void *)monitor, monitor->marks_sent++);
    sync_unlock(&monitor->sync);

    redisReply *reply = cmd(monitor->server, "ECHO %b", mark + 1, strlen(mark) - 2);
    bool sent = reply != NULL;
    if (reply != NULL)
        freeReplyObject(reply);

    sync_lock(&monitor->sync);
    int64_t end_ms = now_ms() + (sent ? MARK_LIMIT_MS : 0);
    while (!monitor->ended &&
           (monitor->last_mark == NULL || strstr(monitor->last_mark, mark) == NULL)) {
        if (!sync_wait(&monitor->sync, end_ms))
            break;
    }
}

size_t monitor_count(struct monitor *monitor, const char *text) {
    size_t found = 0;
    lock_up_to_date(monitor);
    for (size_t i = 0; i < monitor->count; i++)
        found += strstr(monitor->lines[i], text) != NULL;
    sync_unlock(&monitor->sync);
    return found;
}

bool monitor_wait(struct monitor *monitor, const char *text, size_t count, int64_t limit_ms) {
    int64_t end_ms = now_ms() + limit_ms;
    size_t found = 0, next = 0;
    sync_lock(&monitor->sync);
    unsigned clears = monitor->clears;
    for (;;) {
        if (clears != monitor->clears) {
            clears = monitor->clears;
            found = next = 0;
        }
        for (; next < monitor->count; next++)
            found += strstr(monitor->lines[next], text) != NULL;
        if (found >= count || monitor->ended || !sync_wait(&monitor->sync, end_ms))
            break;
    }
    sync_unlock(&monitor->sync);
    return found >= count;
}

static void free_lines(struct monitor *monitor) {
    for (size_t i = 0; i < monitor->count; i++)
        free(monitor->lines[i]);
    monitor->count = 0;
}

void monitor_clear(struct monitor *monitor) {
    lock_up_to_date(monitor);
    free_lines(monitor);
    monitor->clears++;
    sync_unlock(&monitor->sync);
}

char *monitor_text(struct monitor *monitor) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        support_die("out of memory");
    lock_up_to_date(monitor);
    for (size_t i = 0; i < monitor->count; i++)
        fprintf(out, "%s%s", i == 0 ? "" : "\n", monitor->lines[i]);
    sync_unlock(&monitor->sync);
    fclose(out);
    return text;
}

void monitor_stop(struct monitor *monitor) {
    if (monitor == NULL)
        return;
    shutdown(monitor->connection->fd, SHUT_RDWR); /* its thread leaves redisGetReply */
    pthread_join(monitor->thread, NULL);
    redisFree(monitor->connection);
    free_lines(monitor);
    free(monitor->lines);
    free(monitor->last_mark);
    sync_destroy(&monitor->sync);
    free(monitor);
}
