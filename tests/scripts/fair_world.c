/* Names, time and subscriptions of the fair lock's model, and what must be true of the lock.
 *
 * Used by fair_model.c and fair_java.c, on the one thread of their test. */
#include "fair_world.h"

#include "script.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

/* ---- Names and time ------------------------------------------------------------------------- */

const char *fair_name_of(const struct fair_model *m, int who, char name[16]) {
    snprintf(name, 16, "h%d.%d", who, m->owners[who].generation);
    return name;
}

const char *fair_java_name(const struct fair_model *m, int who, char name[16]) {
    snprintf(name, 16, "j%d.%d", who, m->javas[who].generation);
    return name;
}

int64_t fair_now_us(const struct fair_model *m) {
    return clock_ms(m->play.now) * 1000 + m->instant;
}

/* ---- Subscriptions -------------------------------------------------------------------------- */

/* Puts what has arrived into the mailboxes; the answer to PING comes behind all of it. */
static void collect_mail(struct fair_model *m) {
    redisReply *reply;
    redisAppendCommand(m->subscriber, "PING");
    for (;;) {
        if (redisGetReply(m->subscriber, (void **)&reply) != REDIS_OK)
            support_die("the subscriber was disconnected");
        bool pong = reply->type == REDIS_REPLY_STATUS ||
                    (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
        for (int i = 0; i < OWNERS && !pong; i++) {
            struct owner *o = &m->owners[i];
            char name[16];
            if (strcmp(reply->element[1]->str + strlen(CHANNELS), fair_name_of(m, i, name)) == 0 &&
                o->heard && o->mails < MAILS)
                o->mail[o->mails++] = strtoll(reply->element[2]->str, NULL, 10);
        }
        freeReplyObject(reply);
        if (pong)
            return;
    }
}

static void subscribe(struct fair_model *m, const char *name, bool on) {
    redisReply *reply;
    collect_mail(m);
    redisAppendCommand(m->subscriber, "%s " CHANNELS "%s", on ? "SUBSCRIBE" : "UNSUBSCRIBE", name);
    if (redisGetReply(m->subscriber, (void **)&reply) != REDIS_OK)
        support_die("no answer to SUBSCRIBE");
    freeReplyObject(reply);
    note(&m->play, "%s %s", name, on ? "subscribes" : "is not subscribed");
}

void fair_listen(struct fair_model *m, int who, bool on) {
    struct owner *o = &m->owners[who];
    char name[16];
    if (o->heard == on)
        return;
    subscribe(m, fair_name_of(m, who, name), on);
    o->heard = on;
    o->mails = 0;
}

void fair_java_listen(struct fair_model *m, int who, bool on) {
    struct java *j = &m->javas[who];
    char name[16];
    if (j->heard == on)
        return;
    subscribe(m, fair_java_name(m, who, name), on);
    j->heard = on;
}

/* ---- What must be true ---------------------------------------------------------------------- */

static bool believes(const struct fair_model *m, const struct owner *o) {
    return o->state == HOLDING && m->play.now < o->deadline &&
           !(o->pending && o->request.script == RELEASE);
}

static void compare_lock(struct fair_model *m, const redisReply *fields) {
    char believer[16] = "", name[16];
    for (int i = 0; i < OWNERS; i++) {
        if (!believes(m, &m->owners[i]))
            continue;
        if (believer[0] != '\0')
            violated(&m->play, "%s and %s believe in it", believer, fair_name_of(m, i, name));
        fair_name_of(m, i, believer);
    }
    for (int i = 0; i < JAVAS; i++) {
        if (m->javas[i].state != HOLDING || m->play.now >= m->javas[i].deadline)
            continue;
        if (believer[0] != '\0')
            violated(&m->play, "%s and %s believe in it", believer, fair_java_name(m, i, name));
        fair_java_name(m, i, believer);
    }
    if (fields->elements > 2)
        violated(&m->play, "the lock has two owners");
    if (believer[0] != '\0' &&
        (fields->elements == 0 || strcmp(fields->element[0]->str, believer) != 0))
        violated(&m->play, "%s believes in it and is not there", believer);
    for (int i = 0; i < OWNERS && fields->elements > 0; i++) {
        const struct owner *o = &m->owners[i];
        if (strcmp(fields->element[0]->str, fair_name_of(m, i, name)) == 0 && o->state == IDLE &&
            !o->pending && m->play.now >= o->residue_until)
            violated(&m->play, "%s holds it and does not know", name);
    }
}

static void compare_line(struct fair_model *m, const redisReply *line, const redisReply *records,
                         long long deadlines) {
    char name[16];
    int64_t last_arrival = 0;
    for (size_t i = 0; i < line->elements; i++) {
        const char *waiter = line->element[i]->str;
        for (size_t k = 0; k < i; k++)
            if (strcmp(waiter, line->element[k]->str) == 0)
                violated(&m->play, "%s is in line twice", waiter);
        for (int k = 0; k < OWNERS; k++)
            if (strcmp(waiter, fair_name_of(m, k, name)) == 0 && m->owners[k].state != WAITING &&
                !m->owners[k].pending)
                violated(&m->play, "%s was forgotten in line", waiter);
        for (size_t k = 0; k + 1 < records->elements && !m->with_java; k += 2) {
            if (strcmp(records->element[k]->str, waiter) != 0)
                continue;
            int64_t arrival = strtoll(strchr(records->element[k + 1]->str, ' ') + 1, NULL, 10);
            if (arrival <= last_arrival)
                violated(&m->play, "%s stands behind one who came later", waiter);
            last_arrival = arrival;
        }
    }
    if (deadlines != (long long)line->elements)
        violated(&m->play, "%zu in line, %lld deadlines of theirs", line->elements, deadlines);
}

/* The deadline of somebody in the queue; 0: it is not there. */
static int64_t until_of(const redisReply *line, const redisReply *scores, const char *name) {
    for (size_t i = 0; i < line->elements; i++)
        if (strcmp(line->element[i]->str, name) == 0)
            return strtoll(scores->element[i]->str, NULL, 10);
    return 0;
}

/* It listened before, and does. */
static bool java_hears(const struct fair_model *m, const char *name) {
    char known[16];
    for (int i = 0; i < JAVAS; i++)
        if (strcmp(name, fair_java_name(m, i, known)) == 0)
            return m->javas[i].heard && m->javas[i].was_heard;
    return false;
}

/* What became of the Java clients that were in the queue when it was last looked at, if it was our doing:
 * one that listens keeps its place and its deadline. */
static void compare_javas(struct fair_model *m, const redisReply *line, const redisReply *scores) {
    for (int i = 0; i < m->seen_len && !m->java_acts; i++) {
        const struct seen *s = &m->seen[i];
        int64_t until_ms = until_of(line, scores, s->name);
        if (s->name[0] != 'j' || s->until_ms <= fair_now_us(m) / 1000)
            continue;
        m->tally.java_passed_over += until_ms == 0;
        m->tally.java_hurried += until_ms > 0 && until_ms < s->until_ms;
        if (until_ms < s->until_ms && java_hears(m, s->name))
            violated(&m->play, "%s listens, and was %s", s->name,
                     until_ms == 0 ? "passed over" : "hurried");
    }
    m->seen_len = 0;
    for (size_t i = 0; i < line->elements && i < SEEN; i++) {
        struct seen *s = &m->seen[m->seen_len++];
        snprintf(s->name, sizeof s->name, "%s", line->element[i]->str);
        s->until_ms = until_of(line, scores, s->name);
    }
    for (int i = 0; i < JAVAS; i++)
        m->javas[i].was_heard = m->javas[i].heard;
    m->java_acts = false;
}

/* The lock, the queue, the records, how many of the queue have a deadline (-1: others have, too),
 * and these deadlines. */
static const char look_lua[] =
    "local line, n, scores = redis.call('lrange', KEYS[2], 0, -1), 0, {}\n"
    "for i, w in ipairs(line) do local s = redis.call('zscore', KEYS[3], w)\n"
    "scores[i] = s or '0' if s then n = n + 1 end end\n"
    "if redis.call('zcard', KEYS[3]) ~= n then n = -1 end\n"
    "return {redis.call('hgetall', KEYS[1]), line, redis.call('hgetall', KEYS[4]), n, scores}";

void fair_compare(struct fair_model *m) {
    collect_mail(m);
    own_reply *all = ask(&m->play, "EVALSHA %s 4 f q z r", m->look_sha);
    compare_lock(m, all->element[0]);
    compare_line(m, all->element[1], all->element[2], all->element[3]->integer);
    compare_javas(m, all->element[1], all->element[4]);
}

void fair_load_looks(struct fair_model *m) {
    m->look_sha = script_load(m->server, look_lua);
}
