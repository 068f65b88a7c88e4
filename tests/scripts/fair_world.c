/* Chance, words and subscriptions of the fair lock's model, and what must be true of the lock.
 *
 * Used by fair_model.c and fair_java.c, on the one thread of their test. */
#include "fair_world.h"

#include "script.h"
#include "support/wait.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Chance and words ----------------------------------------------------------------------- */

unsigned fair_roll(struct fair_model *m, unsigned sides) {
    m->random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = m->random;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ (z >> 31)) % sides);
}

void fair_note(struct fair_model *m, const char *format, ...) {
    if (m->trace_len + 256 > sizeof m->trace)
        return;
    va_list args;
    m->trace_len += (size_t)snprintf(m->trace + m->trace_len, 16, "%4d  ", m->now);
    va_start(args, format);
    m->trace_len += (size_t)vsnprintf(m->trace + m->trace_len, 200, format, args);
    va_end(args);
    m->trace[m->trace_len++] = '\n';
    m->trace[m->trace_len] = '\0';
}

void fair_violated(struct fair_model *m, const char *format, ...) {
    if (m->violation[0] != '\0')
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(m->violation, sizeof m->violation, format, args);
    va_end(args);
    fair_note(m, "VIOLATION %s", m->violation);
}

bool fair_going_well(const struct fair_model *m) {
    return m->violation[0] == '\0';
}

const char *fair_name_of(const struct fair_model *m, int who, char name[16]) {
    snprintf(name, 16, "h%d.%d", who, m->owners[who].generation);
    return name;
}

const char *fair_java_name(const struct fair_model *m, int who, char name[16]) {
    snprintf(name, 16, "j%d.%d", who, m->javas[who].generation);
    return name;
}

redisReply *fair_must(struct fair_model *m, redisReply *reply) {
    if (reply == NULL)
        support_die("the server does not answer: %s", m->connection->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        support_die("the server answers %s", reply->str);
    return reply;
}

int64_t fair_now_us(const struct fair_model *m) {
    return (EPOCH_S + (int64_t)m->now * (TICK_MS / 1000)) * 1000000 + m->instant;
}

/* ---- Subscriptions -------------------------------------------------------------------------- */

/* Puts what has arrived into the mailboxes; the answer to PING comes behind all of it. */
static void collect_mail(struct fair_model *m) {
    redisReply *reply;
    redisAppendCommand(m->ear, "PING");
    for (;;) {
        if (redisGetReply(m->ear, (void **)&reply) != REDIS_OK)
            support_die("the subscriber was disconnected");
        bool pong = reply->type == REDIS_REPLY_STATUS ||
                    (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
        for (int i = 0; i < OWNERS && !pong; i++) {
            struct owner *o = &m->owners[i];
            char name[16];
            if (strcmp(reply->element[1]->str + strlen("ch:"), fair_name_of(m, i, name)) == 0 &&
                o->heard && o->mails < MAILS)
                o->mail[o->mails++] = strtoll(reply->element[2]->str, NULL, 10);
        }
        freeReplyObject(reply);
        if (pong)
            return;
    }
}

void fair_listen(struct fair_model *m, int who, bool on) {
    struct owner *o = &m->owners[who];
    char name[16];
    if (o->heard == on)
        return;
    collect_mail(m);
    redisReply *reply;
    redisAppendCommand(m->ear, "%s ch:%s", on ? "SUBSCRIBE" : "UNSUBSCRIBE",
                       fair_name_of(m, who, name));
    if (redisGetReply(m->ear, (void **)&reply) != REDIS_OK)
        support_die("no answer to SUBSCRIBE");
    freeReplyObject(reply);
    o->heard = on;
    o->mails = 0;
    fair_note(m, "%s %s", name, on ? "listens" : "is deaf");
}

/* ---- What must be true ---------------------------------------------------------------------- */

static bool believes(const struct fair_model *m, const struct owner *o) {
    return o->state == HOLDING && m->now < o->deadline &&
           !(o->pending && o->request.script == RELEASE);
}

static void compare_lock(struct fair_model *m, const redisReply *fields) {
    char believer[16] = "", name[16];
    for (int i = 0; i < OWNERS; i++) {
        if (!believes(m, &m->owners[i]))
            continue;
        if (believer[0] != '\0')
            fair_violated(m, "%s and %s believe in it", believer, fair_name_of(m, i, name));
        fair_name_of(m, i, believer);
    }
    for (int i = 0; i < JAVAS; i++) {
        if (m->javas[i].state != HOLDING || m->now >= m->javas[i].deadline)
            continue;
        if (believer[0] != '\0')
            fair_violated(m, "%s and %s believe in it", believer, fair_java_name(m, i, name));
        fair_java_name(m, i, believer);
    }
    if (fields->elements > 2)
        fair_violated(m, "the lock has two owners");
    if (believer[0] != '\0' &&
        (fields->elements == 0 || strcmp(fields->element[0]->str, believer) != 0))
        fair_violated(m, "%s believes in it and is not there", believer);
    for (int i = 0; i < OWNERS && fields->elements > 0; i++) {
        const struct owner *o = &m->owners[i];
        if (strcmp(fields->element[0]->str, fair_name_of(m, i, name)) == 0 && o->state == IDLE &&
            !o->pending && m->now >= o->leftover_until)
            fair_violated(m, "%s holds it and does not know", name);
    }
}

static void compare_line(struct fair_model *m, const redisReply *line, const redisReply *records,
                         long long deadlines) {
    char name[16];
    int64_t last_ticket = 0;
    for (size_t i = 0; i < line->elements; i++) {
        const char *waiter = line->element[i]->str;
        for (size_t k = 0; k < i; k++)
            if (strcmp(waiter, line->element[k]->str) == 0)
                fair_violated(m, "%s is in line twice", waiter);
        for (int k = 0; k < OWNERS; k++)
            if (strcmp(waiter, fair_name_of(m, k, name)) == 0 && m->owners[k].state != WAITING &&
                !m->owners[k].pending)
                fair_violated(m, "%s was forgotten in line", waiter);
        for (size_t k = 0; k + 1 < records->elements && !m->with_java; k += 2) {
            if (strcmp(records->element[k]->str, waiter) != 0)
                continue;
            int64_t ticket = strtoll(strchr(records->element[k + 1]->str, ' ') + 1, NULL, 10);
            if (ticket <= last_ticket)
                fair_violated(m, "%s stands behind one who came later", waiter);
            last_ticket = ticket;
        }
    }
    if (deadlines != (long long)line->elements)
        fair_violated(m, "%zu in line, %lld deadlines of theirs", line->elements, deadlines);
}

/* The lock, the line, the records, and how many of the line have a deadline; -1: others have, too. */
static const char look_lua[] =
    "local line, n = redis.call('lrange', KEYS[2], 0, -1), 0\n"
    "for _, w in ipairs(line) do if redis.call('zscore', KEYS[3], w) then n = n + 1 end end\n"
    "if redis.call('zcard', KEYS[3]) ~= n then n = -1 end\n"
    "return {redis.call('hgetall', KEYS[1]), line, redis.call('hgetall', KEYS[4]), n}";

void fair_compare(struct fair_model *m) {
    collect_mail(m);
    redisReply *all =
        fair_must(m, redisCommand(m->connection, "EVALSHA %s 4 f q z r", m->look_sha));
    compare_lock(m, all->element[0]);
    compare_line(m, all->element[1], all->element[2], all->element[3]->integer);
    freeReplyObject(all);
}

void fair_load_looks(struct fair_model *m) {
    m->look_sha = script_load(m->server, look_lua);
}
