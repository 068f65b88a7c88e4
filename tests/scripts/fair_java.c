/* Redisson's clients in the fair lock's model: the scripts of its wire contract, always answered,
 * but for clients that die. They listen, or do not yet, or not for a while.
 *
 * Used by fair_model.c, on the one thread of its test. */
#include "fair_world.h"

#include "script.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

/* ---- A Java client, by the wire contract ---------------------------------------------------- */

static const char java_sweep[] =
    "while true do local h = redis.call('lindex', KEYS[2], 0) if not h then break end\n"
    "local s = redis.call('zscore', KEYS[3], h)\n"
    "if s and tonumber(s) <= tonumber(ARGV[4]) then redis.call('zrem', KEYS[3], h)\n"
    "redis.call('lpop', KEYS[2]) else break end end\n";
static const char java_acquire[] =
    "if redis.call('exists', KEYS[1]) == 0 and (redis.call('exists', KEYS[2]) == 0 or\n"
    "redis.call('lindex', KEYS[2], 0) == ARGV[2]) then redis.call('lpop', KEYS[2])\n"
    "redis.call('zrem', KEYS[3], ARGV[2])\n"
    "for _, w in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do\n"
    "redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), w) end\n"
    "redis.call('hset', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return -9 end\n"
    "if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then redis.call('hincrby', KEYS[1], ARGV[2], 1)\n"
    "redis.call('pexpire', KEYS[1], ARGV[1]) return -9 end\n"
    "if redis.call('zscore', KEYS[3], ARGV[2]) then return 0 end\n"
    "local last, ttl = redis.call('lindex', KEYS[2], -1), redis.call('pttl', KEYS[1])\n"
    "local s = last and last ~= ARGV[2] and redis.call('zscore', KEYS[3], last)\n"
    "if s then ttl = tonumber(s) - tonumber(ARGV[4]) end\n"
    "if redis.call('zadd', KEYS[3], string.format('%.0f', ttl + tonumber(ARGV[3]) +\n"
    "tonumber(ARGV[4])), ARGV[2]) == 1 then redis.call('rpush', KEYS[2], ARGV[2]) end return 0\n";
static const char java_unlock[] =
    "local h = redis.call('lindex', KEYS[2], 0)\n"
    "if redis.call('exists', KEYS[1]) == 0 then\n"
    "if h then redis.call('publish', 'redisson_lock__channel:{f}:' .. h, '0') end return 1 end\n"
    "if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return -1 end\n"
    "redis.call('del', KEYS[1])\n"
    "if h then redis.call('publish', 'redisson_lock__channel:{f}:' .. h, '0') end return 1\n";
static const char java_give_up[] =
    "local behind = false\n"
    "for _, w in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do\n"
    "if behind then redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), w) end\n"
    "if w == ARGV[2] then behind = true end end\n"
    "redis.call('zrem', KEYS[3], ARGV[2]) redis.call('lrem', KEYS[2], 0, ARGV[2]) return 1\n";

enum java_script { JAVA_ACQUIRE, JAVA_UNLOCK, JAVA_GIVE_UP };

static long long java_call(struct fair_model *m, int who, enum java_script script, int lease) {
    char name[16];
    m->tally.scripts++;
    m->java_acts = true;
    own_reply *reply = ask(&m->play, "EVALSHA %s 3 f q z %lld %s %lld %lld", m->java_sha[script],
                           (long long)lease * TICK_MS, fair_java_name(m, who, name),
                           (long long)JAVA_WAIT * TICK_MS, (long long)(fair_now_us(m) / 1000));
    long long answer = reply->integer;
    m->instant += 7;
    return answer;
}

static void java_try(struct fair_model *m, int who) {
    struct java *j = &m->javas[who];
    int lease = 3 + (int)roll(&m->play, 6);
    char name[16];
    bool held = java_call(m, who, JAVA_ACQUIRE, lease) == -9;
    note(&m->play, "%s %s", fair_java_name(m, who, name), held ? "holds" : "waits");
    m->tally.java_held += held;
    j->state = held ? HOLDING : WAITING;
    j->deadline = m->play.now + lease;
}

void fair_java_leave(struct fair_model *m, int who) {
    struct java *j = &m->javas[who];
    char name[16];
    note(&m->play, "%s %s", fair_java_name(m, who, name),
         j->state == HOLDING ? "unlocks" : "gives up");
    if (j->state == HOLDING)
        java_call(m, who, JAVA_UNLOCK, 1);
    else if (j->state == WAITING)
        java_call(m, who, JAVA_GIVE_UP, 1);
    j->state = IDLE;
}

/* Its entry stays. */
static void die(struct fair_model *m, int who) {
    struct java *j = &m->javas[who];
    char name[16];
    fair_java_listen(m, who, false);
    note(&m->play, "%s dies", fair_java_name(m, who, name));
    *j = (struct java){.generation = j->generation + 1};
    m->java_died++;
    m->tally.java_died++;
}

void fair_java_step(struct fair_model *m, int who) {
    struct java *j = &m->javas[who];
    unsigned draw = roll(&m->play, 100);
    if (draw < 6) { /* alone, or its whole process, with all who wait in it */
        for (int i = draw < 3 ? who : 0; i < (draw < 3 ? who + 1 : JAVAS); i++)
            die(m, i);
    } else if (draw < 12) { /* the process connects again */
        for (int i = 0; i < JAVAS; i++)
            fair_java_listen(m, i, false);
    } else if (!j->heard && draw < 35) {
        fair_java_listen(m, who, true);
    } else if (j->state == HOLDING || (j->state == WAITING && draw < 42)) {
        fair_java_leave(m, who);
    } else {
        java_try(m, who);
    }
    fair_compare(m);
}

void fair_load_java(struct fair_model *m) {
    static const char *const scripts[3][2] = {
        {java_sweep, java_acquire}, {java_sweep, java_unlock}, {"", java_give_up}};
    for (int i = 0; i < 3; i++) {
        own_text *text = text_of("%s%s", scripts[i][0], scripts[i][1]);
        m->java_sha[i] = script_load(m->server, text);
    }
}
