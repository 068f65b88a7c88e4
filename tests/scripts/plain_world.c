/* Chance, names, the trace, and the comparison of the real lock with the clients' beliefs.
 *
 * Part of the plain lock's model (plain_model.c), called by its other parts on their one thread.
 * The rules that a schedule may break are all in compare(), but for those that only a reply shows
 * (plain_owner.c):
 * - one owner in the lock, and one client that believes in its hold;
 * - the server's count is what the believer knows, give or take the operation it waits for;
 * - nobody is in the lock without knowing of it. Whose deadline has passed may be there still, but
 *   no longer than its last request can have made it. */
#include "plain_world.h"

#include "support/wait.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Small things --------------------------------------------------------------------------- */

/* splitmix64: good enough, and the same everywhere. */
unsigned roll(struct model *m, unsigned sides) {
    uint64_t z = (m->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ (z >> 31)) % sides);
}

int max_int(int a, int b) {
    return a > b ? a : b;
}

void note(struct model *m, const char *format, ...) {
    if (m->trace_len + 200 > sizeof m->trace)
        return;
    va_list args;
    va_start(args, format);
    m->trace_len += (size_t)snprintf(m->trace + m->trace_len, 32, "%4d  ", m->now);
    m->trace_len += (size_t)vsnprintf(m->trace + m->trace_len, 150, format, args);
    m->trace_len += (size_t)snprintf(m->trace + m->trace_len, 2, "\n");
    va_end(args);
}

void violated(struct model *m, const char *format, ...) {
    if (m->violation[0] != '\0')
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(m->violation, sizeof m->violation, format, args);
    va_end(args);
    note(m, "VIOLATED: %s", m->violation);
}

const char *name_of(int client) {
    static const char *const names[CLIENTS] = {"c0:1", "c1:1", "c2:1", "j0:1", "j1:1"};
    assert(client >= 0 && client < CLIENTS);
    return names[client];
}

const char *script_name(enum script script) {
    static const char *const names[SCRIPTS] = {"plain_acquire", "plain_release", "plain_force",
                                               "renew"};
    return names[script];
}

redisReply *must(struct model *m, redisReply *reply) {
    if (reply == NULL)
        support_die("the server is gone: %s", m->connection->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        support_die("a script failed: %s", reply->str);
    return reply;
}

/* ---- What is true, and what is believed ----------------------------------------------------- */

size_t look(struct model *m, struct field fields[CLIENTS]) {
    redisReply *reply = must(m, redisCommand(m->connection, "HGETALL " LOCK_NAME));
    size_t count = reply->elements / 2;
    if (count > CLIENTS)
        support_die("more fields than clients");
    for (size_t i = 0; i < count; i++) {
        int who = 0;
        while (strcmp(name_of(who), reply->element[2 * i]->str) != 0)
            who++;
        fields[i].owner = who;
        fields[i].count = atoi(reply->element[2 * i + 1]->str);
    }
    freeReplyObject(reply);
    return count;
}

/* The counts that an owner's field may have, while it believes in its hold. */
static bool believes(const struct model *m, const struct owner *o, int *ret_low, int *ret_high) {
    const struct operation *op = &o->op;
    if (o->count == 0 || o->broken || m->now >= o->deadline)
        return false;
    *ret_low = *ret_high = o->count;
    if (op->pending && op->script == ACQUIRE)
        *ret_high = op->count + 1;
    if (op->pending && op->script == RELEASE) {
        *ret_low = op->count - 1;
        *ret_high = max_int(o->count, op->count);
    }
    return *ret_low > 0; /* who is about to leave for good has left */
}

void compare(struct model *m) {
    struct field fields[CLIENTS];
    size_t count = look(m, fields);
    int there[CLIENTS] = {0};
    for (size_t i = 0; i < count; i++)
        there[fields[i].owner] = fields[i].count;

    if (count > 1)
        violated(m, "two owners in the lock at once");
    int believers = 0;
    for (int i = 0; i < OWNERS; i++) {
        const struct owner *o = &m->owners[i];
        int low, high;
        if (believes(m, o, &low, &high)) {
            believers++;
            if (there[i] < low || there[i] > high)
                violated(m, "%s believes in %d to %d, the server has %d", name_of(i), low, high,
                         there[i]);
        }
        if (there[i] != 0 && o->count == 0 && !o->op.pending && m->now >= o->leftover_until)
            violated(m, "held for %s, which does not know of it", name_of(i));
    }
    for (int i = 0; i < JAVAS; i++) {
        const struct java *j = &m->javas[i];
        bool belief = j->count > 0 && !j->broken && m->now < j->deadline;
        believers += belief;
        if (belief && there[OWNERS + i] != j->count)
            violated(m, "%s believes in %d, the server has %d", name_of(OWNERS + i), j->count,
                     there[OWNERS + i]);
        if (j->count == 0 && there[OWNERS + i] != 0)
            violated(m, "held for %s, which does not know of it", name_of(OWNERS + i));
    }
    if (believers > 1)
        violated(m, "%d believers at once", believers);
}
