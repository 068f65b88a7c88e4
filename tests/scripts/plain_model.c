/* The clients of the plain lock and their schedules, as plain_model.h tells.
 *
 * Used by test_plain_model.c, from its one thread, with the clock of play.h.
 *
 * Here are the clients other than holdfast's, the passing of time, and the play of a schedule;
 * holdfast's owners are in plain_owner.c, what happens to their requests in plain_network.c, and
 * what must be true in plain_world.c. */
#include "plain_world.h"

#include "script.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 70 };

/* As a Redisson client does it: take or re-enter, and give back one level. */
static const char java_lock_lua[] =
    "if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then\n"
    "  return redis.call('pttl', KEYS[1])\n"
    "end\n"
    "redis.call('hincrby', KEYS[1], ARGV[1], 1)\n"
    "redis.call('pexpire', KEYS[1], ARGV[2])\n"
    "return nil\n";
static const char java_unlock_lua[] =
    "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end\n"
    "if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then\n"
    "  redis.call('pexpire', KEYS[1], ARGV[2])\n"
    "  return 0\n"
    "end\n"
    "redis.call('del', KEYS[1])\n"
    "redis.call('publish', 'redisson_lock__channel:{' .. KEYS[1] .. '}', '0')\n"
    "return 1\n";

/* ---- Steps ---------------------------------------------------------------------------------- */

static redisReply *java_call(struct model *m, const char *sha, int who, int lease) {
    m->tally.scripts++;
    return ask(&m->play, "EVALSHA %s 1 " LOCK_NAME " %s %d", sha, name_of(OWNERS + who),
               lease * TICK_MS);
}

static void java_locks(struct model *m, int who, int lease) {
    struct java *j = &m->javas[who];
    redisReply *reply = java_call(m, m->java_lock_sha, who, lease);
    bool locked = reply->type == REDIS_REPLY_NIL;
    freeReplyObject(reply);
    note(&m->play, "%s locks: %s", name_of(OWNERS + who), locked ? "held" : "busy");

    if (!locked && j->count > 0 && !j->broken)
        violated(&m->play, "%s lost its hold without a reason", name_of(OWNERS + who));
    if (j->broken || !locked)
        *j = (struct java){0}; /* It cannot tell, but its count starts anew. */
    if (locked) {
        m->tally.java_held++;
        j->count++;
        j->deadline = m->play.now + lease;
    }
}

static void java_unlocks(struct model *m, int who, int lease) {
    struct java *j = &m->javas[who];
    redisReply *reply = java_call(m, m->java_unlock_sha, who, lease);
    bool owner = reply->type != REDIS_REPLY_NIL;
    freeReplyObject(reply);
    note(&m->play, "%s unlocks%s", name_of(OWNERS + who), owner ? "" : ": not the owner");

    if (!owner && !j->broken)
        violated(&m->play, "%s lost its hold without a reason", name_of(OWNERS + who));
    j->count = owner ? j->count - 1 : 0;
    j->broken = false;
    j->deadline = m->play.now + lease;
}

static void java_step(struct model *m, int who) {
    int lease = 3 + (int)roll(&m->play, 6);
    int count = m->javas[who].count;
    if (count == 0 || (count < 3 && roll(&m->play, 3) == 0))
        java_locks(m, who, lease);
    else
        java_unlocks(m, who, lease);
    compare(m);
}

static void force_step(struct model *m) {
    struct field fields[CLIENTS];
    if (look(m, fields) == 0)
        return;
    struct request r = {.script = FORCE, .sender = FORCER, .target = fields[0].owner};
    transmit(m, r, false);
    if (roll(&m->play, 3) == 0) {
        m->tally.resent++;
        transmit(m, r, false);
    }
}

static void pass_time(struct model *m, int ticks) {
    long long gone = pass_ticks(&m->play, ticks);
    m->tally.expired += (uint64_t)gone;
    note(&m->play, "%d ticks pass%s", ticks, gone != 0 ? ", the lease ran out" : "");
    for (int i = 0; i < OWNERS; i++)
        if (m->owners[i].count > 0 && m->play.now >= m->owners[i].deadline)
            lapse(m, i);
    for (int i = 0; i < JAVAS; i++)
        if (m->javas[i].count > 0 && m->play.now >= m->javas[i].deadline)
            m->javas[i] = (struct java){0};
    compare(m);
}

static void copy_step(struct model *m) {
    struct copy *c = &m->copies[roll(&m->play, COPIES)];
    if (!c->used)
        return;
    if (c->connected)
        run_pipe(m, c->request.sender);
    else
        run_copy(m, c);
}

static void step(struct model *m) {
    unsigned draw = roll(&m->play, 100);
    if (draw < 45)
        owner_step(m, (int)roll(&m->play, OWNERS));
    else if (draw < 60)
        java_step(m, (int)roll(&m->play, JAVAS));
    else if (draw < 63)
        force_step(m);
    else if (draw < 85)
        copy_step(m);
    else
        pass_time(m, 1 + (int)roll(&m->play, 2));
}

/* ---- Schedules ------------------------------------------------------------------------------ */

/* The network heals, everybody finishes and lets go, and the last copies arrive. */
static void finish(struct model *m) {
    for (int i = 0; i < OWNERS; i++)
        for (int tries = 0;
             going_well(&m->play) && (m->owners[i].op.pending || m->owners[i].count > 0); tries++) {
            if (tries == 1000)
                violated(&m->play, "%s never comes to an end", name_of(i));
            if (must_wait(m, &m->owners[i])) {
                pass_time(m, 1);
                continue;
            }
            if (!m->owners[i].op.pending)
                begin_operation(m, &m->owners[i], RELEASE, m->owners[i].count);
            send_operation(m, i, true);
        }
    for (int i = 0; going_well(&m->play) && i < COPIES; i++)
        if (m->copies[i].used)
            run_copy(m, &m->copies[i]);
    if (going_well(&m->play))
        pass_time(m, 20); /* longer than any lease */
    struct field fields[CLIENTS];
    if (going_well(&m->play) && look(m, fields) != 0)
        violated(&m->play, "held for %s in the end", name_of(fields[0].owner));
}

static void run(void *model, int discipline) {
    struct model *m = model;
    memset(m->owners, 0, sizeof m->owners);
    memset(m->javas, 0, sizeof m->javas);
    memset(m->copies, 0, sizeof m->copies);
    for (int i = 0; i < OWNERS; i++)
        m->owners[i].quiet_after = -1;
    m->discipline = (enum discipline)discipline;
    m->serial = 0;
    for (int i = 0; going_well(&m->play) && i < STEPS; i++)
        step(m);
    finish(m);
}

struct play *model_play(struct model *m) {
    return &m->play;
}

const struct model_tally *model_tally(const struct model *m) {
    return &m->tally;
}

struct model *model_open(struct server *server) {
    struct model *m = zeroed(1, sizeof *m);
    play_open(&m->play, server, m, run);
    for (int i = 0; i < SCRIPTS; i++)
        m->sha[i] = play_load(server, script_name((enum script)i));
    m->java_lock_sha = script_load(server, java_lock_lua);
    m->java_unlock_sha = script_load(server, java_unlock_lua);
    return m;
}

void model_close(struct model *m) {
    if (m == NULL)
        return;
    for (int i = 0; i < SCRIPTS; i++)
        free(m->sha[i]);
    free(m->java_lock_sha);
    free(m->java_unlock_sha);
    play_close(&m->play);
    free(m);
}
