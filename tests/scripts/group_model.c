/* The group of values, its other clients and the schedules, as group_model.h tells.
 *
 * Used by test_group_model.c, from its one thread, with the clock of play.h. Holdfast's owners are in
 * group_owner.c. The rules that a schedule may break are in group_compare(), but for those that only a
 * reply shows. */
#include "group_model.h"

#include "script.h"
#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const group_values[VALUES] = {"A", "B", "C"};
const char *const group_clients[CLIENTS] = {"c0:1", "c1:1", "c2:1", "j0:1"};
const char *const group_scripts[SCRIPTS] = {"group_acquire", "group_release", "group_renew"};

/* By the wire contract: KEYS 1 group, ARGV 1 lease, 2 now, 3 owner, then fields. */
static const char java_lock_lua[] =
    "local lease, now, owner = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]\n"
    "for i = 4, #ARGV do\n"
    "  local other = redis.call('hget', KEYS[1], ARGV[i])\n"
    "  if other and other ~= owner then\n"
    "    local ends = redis.call('hget', KEYS[1], ARGV[i] .. ':' .. other .. ':expire_time')\n"
    "    if ends and tonumber(ends) > now then return 0 end\n"
    "  end\n"
    "end\n"
    "for i = 4, #ARGV do\n"
    "  local mine = ARGV[i] .. ':' .. owner\n"
    "  redis.call('hset', KEYS[1], ARGV[i], owner)\n"
    "  redis.call('hset', KEYS[1], mine .. ':expire_time', string.format('%.0f', now + lease))\n"
    "  redis.call('hincrby', KEYS[1], mine .. ':lock_count', 1)\n"
    "end\n"
    "local ttl = redis.call('pttl', KEYS[1])\n"
    "if ttl < lease then redis.call('pexpire', KEYS[1], ARGV[1]) end\n"
    "return 1\n";
static const char java_unlock_lua[] =
    "local now, owner, failed = tonumber(ARGV[2]), ARGV[3], false\n"
    "for i = 4, #ARGV do\n"
    "  local mine = ARGV[i] .. ':' .. owner\n"
    "  local ends = redis.call('hget', KEYS[1], mine .. ':expire_time')\n"
    "  if not ends or tonumber(ends) < now then failed = true\n"
    "  elseif redis.call('hincrby', KEYS[1], mine .. ':lock_count', -1) <= 0 then\n"
    "    redis.call('hdel', KEYS[1], ARGV[i], mine .. ':expire_time', mine .. ':lock_count')\n"
    "  end\n"
    "end\n"
    "return failed and 0 or 1\n";

/* ---- What is true, and what is believed ----------------------------------------------------- */

static long long number_at(struct model *m, int value, int who, const char *what) {
    redisReply *reply =
        ask(&m->play, "HGET " GROUP " %s:%s:%s", group_values[value], group_clients[who], what);
    long long number = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
    freeReplyObject(reply);
    return number;
}

/* Who holds a value; -1: nobody, or its lease has ended. */
static int holder_of(struct model *m, int value) {
    redisReply *reply = ask(&m->play, "HGET " GROUP " %s", group_values[value]);
    int who = -1;
    for (int i = 0; i < CLIENTS && reply->type == REDIS_REPLY_STRING; i++)
        if (strcmp(reply->str, group_clients[i]) == 0)
            who = i;
    freeReplyObject(reply);
    if (who >= 0 && number_at(m, value, who, "expire_time") <= clock_ms(m->play.now))
        return -1;
    return who;
}

/* An owner that counts on its hold; who is about to leave for good has left. */
static bool believes(const struct model *m, const struct owner *o) {
    bool leaves = o->pending && o->op.script == RELEASE && o->op.count <= 1;
    return o->count > 0 && !o->broken && m->play.now < o->deadline && !leaves;
}

static void compare_value(struct model *m, int value) {
    int bit = 1 << value, holder = holder_of(m, value);
    for (int i = 0; i < OWNERS; i++) {
        const struct owner *o = &m->owners[i];
        if (believes(m, o) && (o->set & bit) != 0 && holder != i)
            violated(&m->play, "%s believes in %s, which is %s's", group_clients[i],
                     group_values[value], holder >= 0 ? group_clients[holder] : "nobody");
        if (believes(m, o) && (o->set & bit) != 0 && !o->pending &&
            number_at(m, value, i, "lock_count") != o->count)
            violated(&m->play, "%s has %s %d times, and the server counts differently",
                     group_clients[i], group_values[value], o->count);
        bool knows =
            (o->count > 0 && (o->set & bit) != 0) || (o->pending && (o->op.set & bit) != 0);
        if (holder == i && !knows)
            violated(&m->play, "%s is held for %s, which does not know of it", group_values[value],
                     group_clients[i]);
    }
    bool java = m->java.count > 0 && !m->java.broken && m->play.now < m->java.deadline &&
                (m->java.set & bit) != 0;
    if (java && holder != JAVA)
        violated(&m->play, "Java believes in %s, which is not its", group_values[value]);
}

void group_compare(struct model *m) {
    for (int value = 0; value < VALUES; value++)
        compare_value(m, value);
}

/* ---- Steps ---------------------------------------------------------------------------------- */

static int java_call(struct model *m, const char *sha, int lease) {
    char now[32], ms[32];
    snprintf(now, sizeof now, "%" PRId64, clock_ms(m->play.now));
    snprintf(ms, sizeof ms, "%d", lease * TICK_MS);
    const char *argv[12] = {"EVALSHA", sha, "1", GROUP, ms, now, group_clients[JAVA]};
    int argc = group_add_fields(argv, 7, m->java.set);
    redisReply *reply = must(&m->play, redisCommandArgv(m->play.connection, argc, argv, NULL));
    int answer = (int)reply->integer;
    freeReplyObject(reply);
    note(&m->play, "Java %s %d: %d", sha == m->java_lock_sha ? "locks" : "unlocks", m->java.set,
         answer);
    return answer;
}

static void java_step(struct model *m) {
    int lease = 3 + (int)roll(&m->play, 6);
    if (m->java.count == 0) {
        m->java.set = group_some_values(m);
        m->java.broken = false;
        if (java_call(m, m->java_lock_sha, lease) == 1) {
            m->tally.java++;
            m->java.count = 1;
            m->java.deadline = m->play.now + lease;
        }
    } else {
        if (java_call(m, m->java_unlock_sha, lease) == 0 && !m->java.broken)
            violated(&m->play, "Java lost its hold without a reason");
        m->java.count = 0;
    }
    group_compare(m);
}

static void force_step(struct model *m) {
    int value = (int)roll(&m->play, VALUES), who = holder_of(m, value);
    if (who < 0)
        return;
    redisReply *reply = ask(
        &m->play, "EVALSHA %s 1 " GROUP " 0 publish x elsewhere broken: %s %s %lld 0", m->force_sha,
        group_values[value], group_clients[who], (long long)clock_ms(m->play.now) / 1000);
    bool broken = reply->element[0]->integer == 1;
    freeReplyObject(reply);
    note(&m->play, "%s of %s is broken", group_values[value], group_clients[who]);
    m->tally.forced += broken;
    if (who == JAVA)
        m->java.broken = true;
    else
        m->owners[who].broken = m->owners[who].count > 0;
    group_compare(m);
}

static void pass_time(struct model *m, int ticks) {
    pass_ticks(&m->play, ticks);
    note(&m->play, "%d ticks pass", ticks);
    for (int i = 0; i < OWNERS; i++)
        if (m->owners[i].count > 0 && m->play.now >= m->owners[i].deadline)
            group_lose(m, i);
    if (m->java.count > 0 && m->play.now >= m->java.deadline)
        m->java.count = 0;
    group_compare(m);
}

static void copy_step(struct model *m) {
    int i = (int)roll(&m->play, COPIES);
    if (!m->copies[i].used)
        return;
    m->copies[i].used = false;
    group_run_request(m, &m->copies[i].request, false);
}

static void step(struct model *m) {
    unsigned draw = roll(&m->play, 100);
    if (draw < 50)
        group_owner_step(m, (int)roll(&m->play, OWNERS));
    else if (draw < 60)
        java_step(m);
    else if (draw < 63)
        force_step(m);
    else if (draw < 85)
        copy_step(m);
    else
        pass_time(m, 1 + (int)roll(&m->play, 2));
}

/* The network heals, everybody lets go, the last copies arrive: nothing may be left. */
static void finish(struct model *m) {
    for (int i = 0; i < OWNERS; i++)
        for (int tries = 0;
             going_well(&m->play) && (m->owners[i].pending || m->owners[i].count > 0); tries++) {
            if (tries == 1000)
                violated(&m->play, "%s never comes to an end", group_clients[i]);
            if (group_must_wait(m, &m->owners[i])) {
                pass_time(m, 1);
                continue;
            }
            if (!m->owners[i].pending)
                group_begin_operation(m, i, RELEASE, m->owners[i].set, m->owners[i].count);
            group_send_operation(m, i, true);
        }
    for (int i = 0; going_well(&m->play) && i < COPIES; i++)
        if (m->copies[i].used)
            group_run_request(m, &m->copies[i].request, false);
    if (going_well(&m->play))
        pass_time(m, 20); /* longer than any lease */
    own_reply *reply = ask(&m->play, "EXISTS " GROUP);
    if (going_well(&m->play) && reply->integer != 0)
        violated(&m->play, "something is left in the end");
}

static void play_schedule(void *arg, int discipline) {
    struct model *m = arg;
    memset(m->owners, 0, sizeof m->owners);
    memset(m->copies, 0, sizeof m->copies);
    memset(&m->java, 0, sizeof m->java);
    for (int i = 0; i < OWNERS; i++)
        m->owners[i].quiet_after = -1;
    m->discipline = (enum discipline)discipline;
    m->serial = 0;
    for (int i = 0; going_well(&m->play) && i < STEPS; i++)
        step(m);
    finish(m);
}

/* ---- Its life ------------------------------------------------------------------------------- */

/* The time is what comes last, and no field: it is taken away. */
static char *load(struct server *server, const char *name) {
    own_text *text = script_text(name);
    char *sha =
        script_load_timed_text(server, text, "{table.remove(ARGV, #ARGV - 1), table.remove(ARGV)}");
    return sha;
}

void group_model_open(struct model *m, struct server *server) {
    memset(m, 0, sizeof *m);
    play_open(&m->play, server, m, play_schedule);
    for (int i = 0; i < SCRIPTS; i++)
        m->sha[i] = load(server, group_scripts[i]);
    m->force_sha = load(server, "group_break");
    m->java_lock_sha = script_load(server, java_lock_lua);
    m->java_unlock_sha = script_load(server, java_unlock_lua);
}

void group_model_close(struct model *m) {
    for (int i = 0; i < SCRIPTS; i++)
        free(m->sha[i]);
    free(m->force_sha);
    free(m->java_lock_sha);
    free(m->java_unlock_sha);
    play_close(&m->play);
}
