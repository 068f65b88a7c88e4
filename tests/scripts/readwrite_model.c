/* The clients of the read/write lock and their schedules, as readwrite_model.h tells.
 *
 * Used by test_readwrite_model.c, from its one thread, with the clock of play.h.
 *
 * Here are the clients other than holdfast's, the passing of time, and the play of a schedule;
 * holdfast's owners are in readwrite_owner.c, and what must be true in readwrite_world.c. */
#include "readwrite_world.h"

#include "script.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

/* What a Redisson client does. KEYS 1 the lock; ARGV 1 the owner, 2 the lease. */
static const char java_read_lua[] =
    "local mode = redis.call('hget', KEYS[1], 'mode')\n"
    "local key = '{' .. KEYS[1] .. '}:' .. ARGV[1] .. ':rwlock_timeout:'\n"
    "if not mode then\n"
    "  redis.call('hset', KEYS[1], 'mode', 'read')\n"
    "  redis.call('hset', KEYS[1], ARGV[1], 1)\n"
    "  redis.call('set', key .. 1, 1)\n"
    "  redis.call('pexpire', key .. 1, ARGV[2])\n"
    "  redis.call('pexpire', KEYS[1], ARGV[2])\n"
    "  return nil\n"
    "end\n"
    "if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[1] .. ':write') == 1 then\n"
    "  local i = redis.call('hincrby', KEYS[1], ARGV[1], 1)\n"
    "  redis.call('set', key .. i, 1)\n"
    "  redis.call('pexpire', key .. i, ARGV[2])\n"
    "  local left = redis.call('pttl', KEYS[1])\n"
    "  redis.call('pexpire', KEYS[1], math.max(left, tonumber(ARGV[2])))\n"
    "  return nil\n"
    "end\n"
    "return redis.call('pttl', KEYS[1])\n";
static const char java_unread_lua[] =
    "local prefix = '{' .. KEYS[1] .. '}'\n"
    "local mode = redis.call('hget', KEYS[1], 'mode')\n"
    "if not mode then return nil end\n"
    "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end\n"
    "local c = redis.call('hincrby', KEYS[1], ARGV[1], -1)\n"
    "if c == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end\n"
    "redis.call('del', prefix .. ':' .. ARGV[1] .. ':rwlock_timeout:' .. (c + 1))\n"
    "if redis.call('hlen', KEYS[1]) > 1 then\n"
    "  local most = -3\n"
    "  for _, f in ipairs(redis.call('hkeys', KEYS[1])) do\n"
    "    local n = tonumber(redis.call('hget', KEYS[1], f))\n"
    "    if n then for i = n, 1, -1 do\n"
    "      most = math.max(most, redis.call('pttl', prefix .. ':' .. f .. ':rwlock_timeout:' .. i))\n"
    "    end end\n"
    "  end\n"
    "  if most > 0 then redis.call('pexpire', KEYS[1], most) return 0 end\n"
    "  if mode == 'write' then return 0 end\n"
    "end\n"
    "redis.call('del', KEYS[1])\n"
    "return 1\n";
static const char java_write_lua[] =
    "local mode, w = redis.call('hget', KEYS[1], 'mode'), ARGV[1] .. ':write'\n"
    "if not mode then\n"
    "  redis.call('hset', KEYS[1], 'mode', 'write')\n"
    "  redis.call('hset', KEYS[1], w, 1)\n"
    "  redis.call('pexpire', KEYS[1], ARGV[2])\n"
    "  return nil\n"
    "end\n"
    "if mode == 'write' and redis.call('hexists', KEYS[1], w) == 1 then\n"
    "  redis.call('hincrby', KEYS[1], w, 1)\n"
    "  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + tonumber(ARGV[2]))\n"
    "  return nil\n"
    "end\n"
    "return redis.call('pttl', KEYS[1])\n";
static const char java_unwrite_lua[] =
    "local mode, w = redis.call('hget', KEYS[1], 'mode'), ARGV[1] .. ':write'\n"
    "if not mode or mode == 'read' or redis.call('hexists', KEYS[1], w) == 0 then return nil end\n"
    "if redis.call('hincrby', KEYS[1], w, -1) > 0 then\n"
    "  redis.call('pexpire', KEYS[1], ARGV[2])\n"
    "  return 0\n"
    "end\n"
    "redis.call('hdel', KEYS[1], w)\n"
    "if redis.call('hlen', KEYS[1]) == 1 then redis.call('del', KEYS[1])\n"
    "else redis.call('hset', KEYS[1], 'mode', 'read') end\n"
    "return 1\n";
static const char java_watchdog_lua[] =
    "local n = tonumber(redis.call('hget', KEYS[1], ARGV[1]))\n"
    "if not n then return 0 end\n"
    "for i = n, 1, -1 do\n"
    "  redis.call('pexpire', '{' .. KEYS[1] .. '}:' .. ARGV[1] .. ':rwlock_timeout:' .. i, ARGV[2])\n"
    "end\n"
    "redis.call('pexpire', KEYS[1], ARGV[2])\n"
    "return 1\n";

/* ---- Steps ---------------------------------------------------------------------------------- */

static void owner_step(struct rw_model *m, int who) {
    int side = (int)roll(&m->play, SIDES);
    struct part *p = &m->parts[who][side];
    if (p->op.pending) {
        bool gives_up = p->op.verb == ACQUIRE && p->op.sent && roll(&m->play, 4) == 0;
        if (gives_up && !rw_must_wait(m, p)) {
            note(&m->play, "%s gives up its acquire from %d", rw_client_names[who], p->op.count);
            rw_settle(m, p, p->op.count + 1);
        }
        rw_send_operation(m, who, side, false);
        return;
    }
    unsigned wish = roll(&m->play, 10);
    if (p->count > 0 && wish < 3) {
        if (!p->fixed)
            rw_send_renewal(m, who, side, 3 + (int)roll(&m->play, 6), false);
        return;
    }
    if (rw_must_wait(m, p))
        return;
    bool upgrade = side == WRITE && p->count == 0 && m->parts[who][READ].count > 0;
    if (upgrade)
        return; /* HF_EDEADLK */
    bool more = p->count == 0 || (p->count < LEVELS - 1 && wish < 6);
    rw_begin_operation(m, p, more ? ACQUIRE : RELEASE, p->count);
    rw_send_operation(m, who, side, false);
}

static bool java_call(struct rw_model *m, int who, const char *sha, int lease, long long *ret) {
    own_reply *reply = ask(&m->play, "EVALSHA %s 1 " LOCK_NAME " %s %d", sha,
                           rw_client_names[OWNERS + who], lease * TICK_MS);
    m->tally.scripts++;
    bool nil = reply->type == REDIS_REPLY_NIL;
    *ret = reply->integer;
    return nil;
}

static void java_lock(struct rw_model *m, int who, int side, int lease) {
    struct java *j = &m->javas[who];
    long long ttl;
    bool ours = rw_java_believes(m, j, side);
    bool locked = java_call(m, who, m->java_sha[side][0], lease, &ttl);
    note(&m->play, "%s %s for %d: %s", rw_client_names[OWNERS + who], rw_side_names[side], lease,
         locked ? "yes" : "no");
    if (!locked && ours)
        violated(&m->play, "%s lost its hold without a reason", rw_client_names[OWNERS + who]);
    if (!ours)
        memset(j, 0, sizeof *j);
    if (!locked)
        return;
    struct truth truth; /* it may find a residue of its own, and count on from there */
    rw_look(m, &truth);
    m->tally.java_held++;
    j->count[side] = truth.count[OWNERS + who][side];
    if (side == READ && j->count[READ] <= LEVELS)
        j->until[j->count[READ]] = m->play.now + lease;
    j->write_until = larger(j->write_until, m->play.now + lease);
    j->lock_until = larger(j->lock_until, m->play.now + lease);
}

static void java_unlock(struct rw_model *m, int who, int side, int lease) {
    struct java *j = &m->javas[who];
    long long code;
    bool ours = rw_java_believes(m, j, side);
    bool stranger = java_call(m, who, m->java_sha[side][1], lease, &code);
    note(&m->play, "%s no longer %s: %s", rw_client_names[OWNERS + who], rw_side_names[side],
         stranger ? "not its" : "done");
    if (stranger && ours)
        violated(&m->play, "%s lost its hold without a reason", rw_client_names[OWNERS + who]);
    if (stranger || --j->count[side] == 0)
        memset(j, 0, sizeof *j);
    else if (side == WRITE)
        j->write_until = j->lock_until = m->play.now + lease;
}

/* It sets what is left of the lock to its own lease, no matter who else reads. */
static void java_watchdog(struct rw_model *m, int who) {
    struct java *j = &m->javas[who];
    long long held;
    java_call(m, who, m->java_watchdog_sha, JAVA_WATCHDOG, &held);
    note(&m->play, "the watchdog of %s: %lld", rw_client_names[OWNERS + who], held);
    if (!held)
        return;
    for (int i = 1; i <= j->count[READ] && i <= LEVELS; i++)
        j->until[i] = m->play.now < j->until[i] ? m->play.now + JAVA_WATCHDOG : 0;
    for (int i = 0; i < JAVAS; i++)
        if (m->play.now < m->javas[i].lock_until) /* else it is another lock by now */
            m->javas[i].lock_until = m->play.now + JAVA_WATCHDOG;
}

static void java_step(struct rw_model *m, int who) {
    struct java *j = &m->javas[who];
    int side = j->count[READ] > 0 ? READ : j->count[WRITE] > 0 ? WRITE : (int)roll(&m->play, SIDES);
    int lease = 3 + (int)roll(&m->play, 6);
    unsigned wish = roll(&m->play, 4);
    if (j->count[READ] > 0 && wish == 0)
        java_watchdog(m, who);
    else if (j->count[side] == 0 || (j->count[side] < LEVELS && wish == 1))
        java_lock(m, who, side, lease);
    else
        java_unlock(m, who, side, lease);
    rw_compare(m);
}

static void break_step(struct rw_model *m) {
    struct truth truth;
    int who = 0, side = 0;
    rw_look(m, &truth);
    side = truth.write_mode ? WRITE : READ;
    while (who < CLIENTS && truth.count[who][side] == 0)
        who++;
    if (who == CLIENTS)
        return;
    redisReply *reply =
        ask(&m->play, "EVALSHA %s 1 " LOCK_NAME " 0 %s%s %s publish " RW_CHANNEL " %s 0",
            m->sha[FORCE], rw_client_names[who], side == WRITE ? ":write" : "",
            side == WRITE ? "write" : "read", "1700000000");
    if (reply->element[0]->integer != 1)
        violated(&m->play, "a break of what was seen did nothing");
    freeReplyObject(reply);
    m->tally.broken++;
    note(&m->play, "the lock is broken");
    for (int i = 0; i < OWNERS; i++)
        for (side = 0; side < SIDES; side++) {
            struct part *p = &m->parts[i][side];
            p->broken = p->count > 0;
            p->orphans_until = p->horizon; /* the keys stay */
        }
    for (int i = 0; i < JAVAS; i++)
        m->javas[i].broken = true;
    rw_compare(m);
}

static void keep_fresh(struct rw_model *m) {
    for (int who = 0; who < OWNERS; who++) {
        const struct part *p = &m->parts[who][READ];
        if (p->count > 0 && m->play.now < p->deadline)
            rw_send_renewal(m, who, READ, p->deadline - m->play.now, true);
    }
}

static void pass_time(struct rw_model *m) {
    if (m->play.now % FRESH_EVERY == 0 && m->discipline != RW_STALE)
        keep_fresh(m);
    long long gone = pass_ticks(&m->play, 1);
    m->tally.expired += (uint64_t)gone;
    note(&m->play, "a tick passes, %lld keys run out", gone);
    for (int who = 0; who < OWNERS; who++)
        for (int side = 0; side < SIDES; side++)
            if (m->parts[who][side].count > 0 && m->play.now >= m->parts[who][side].deadline)
                rw_lapse(m, who, side);
    rw_compare(m);
}

static void run_copy(struct rw_model *m, int i) {
    if (!m->copies[i].used)
        return;
    m->copies[i].used = false;
    rw_run(m, &m->copies[i].request, false);
}

static void step(struct rw_model *m) {
    unsigned draw = roll(&m->play, 100);
    if (draw < 50)
        owner_step(m, (int)roll(&m->play, OWNERS));
    else if (draw < 66)
        java_step(m, (int)roll(&m->play, JAVAS));
    else if (draw < 68)
        break_step(m);
    else if (draw < 85)
        run_copy(m, (int)roll(&m->play, COPIES));
    else
        pass_time(m);
}

/* ---- Schedules ------------------------------------------------------------------------------ */

static bool is_done(const struct part *p) {
    return !p->op.pending && p->count == 0;
}

/* The network heals, everybody finishes and lets go, and the last copies arrive. */
static void finish(struct rw_model *m) {
    for (int i = 0; i < OWNERS * SIDES; i++) {
        struct part *p = &m->parts[i / SIDES][i % SIDES];
        for (int tries = 0; going_well(&m->play) && !is_done(p); tries++) {
            if (tries == 1000)
                violated(&m->play, "%s never comes to an end", rw_client_names[i / SIDES]);
            if (rw_must_wait(m, p)) {
                pass_time(m);
                continue;
            }
            if (!p->op.pending)
                rw_begin_operation(m, p, RELEASE, p->count);
            rw_send_operation(m, i / SIDES, i % SIDES, true);
        }
    }
    for (int i = 0; going_well(&m->play) && i < COPIES; i++)
        run_copy(m, i);
    for (int i = 0; going_well(&m->play) && i < 60; i++)
        pass_time(m); /* longer than any lease, also those that Java adds up */
    own_reply *reply = ask(&m->play, "DBSIZE");
    if (going_well(&m->play) && reply->integer != 0)
        violated(&m->play, "%lld keys are left in the end", reply->integer);
}

static void run(void *model, int discipline) {
    struct rw_model *m = model;
    memset(m->parts, 0, sizeof m->parts);
    memset(m->javas, 0, sizeof m->javas);
    memset(m->copies, 0, sizeof m->copies);
    for (int i = 0; i < OWNERS * SIDES; i++)
        m->parts[i / SIDES][i % SIDES].quiet_after = -1;
    m->discipline = (enum rw_discipline)discipline;
    m->serial = 0;
    for (int i = 0; going_well(&m->play) && i < STEPS; i++)
        step(m);
    finish(m);
}

struct play *rw_model_play(struct rw_model *m) {
    return &m->play;
}

const struct rw_tally *rw_model_tally(const struct rw_model *m) {
    return &m->tally;
}

struct rw_model *rw_model_open(struct server *server) {
    struct rw_model *m = zeroed(1, sizeof *m);
    play_open(&m->play, server, m, run);
    for (int i = 0; i < SCRIPTS; i++)
        m->sha[i] = play_load(server, rw_script_names[i]);
    m->java_sha[READ][0] = script_load(server, java_read_lua);
    m->java_sha[READ][1] = script_load(server, java_unread_lua);
    m->java_sha[WRITE][0] = script_load(server, java_write_lua);
    m->java_sha[WRITE][1] = script_load(server, java_unwrite_lua);
    m->java_watchdog_sha = script_load(server, java_watchdog_lua);
    m->leases_sha = script_load(server, rw_leases_lua);
    return m;
}

void rw_model_close(struct rw_model *m) {
    if (m == NULL)
        return;
    for (int i = 0; i < SCRIPTS; i++)
        free(m->sha[i]);
    for (int side = 0; side < SIDES; side++)
        for (int i = 0; i < 2; i++)
            free(m->java_sha[side][i]);
    free(m->java_watchdog_sha);
    free(m->leases_sha);
    play_close(&m->play);
    free(m);
}
