/* Names, and the comparison of the real lock with the clients' beliefs.
 *
 * Part of the read/write lock's model (readwrite_model.c), called by its other parts on their one
 * thread. The rules that a schedule may break are all in rw_compare(), but for those that only a
 * reply shows (readwrite_owner.c):
 * - who writes is alone, but for its own reads;
 * - the server's count is what the believer knows, give or take the operation it waits for, and a
 *   reader that believes has a key;
 * - the first level of a reader lasts as long as it believes, and no level longer than the one
 *   below it;
 * - nobody is on the lock without knowing of it, unless its deadline has passed; no key is left of
 *   a reader that has released; nothing but `mode` and holders is in the hash. */
#include "readwrite_world.h"

#include "support/new_lock.h"

#include <string.h>

const char *const rw_script_names[SCRIPTS] = {"read_acquire",   "read_release",  "read_renew",
                                              "write_acquire",  "write_release", "renew",
                                              "readwrite_break"};
const char *const rw_client_names[CLIENTS] = {"c0:1", "c1:1", "c2:1", "j0:1", "j1:1"};
const char *const rw_side_names[SIDES] = {"reads", "writes"};

/* For each owner: how many ticks its level 1 lasts, and how many levels last longer than the one
 * below. KEYS 1 the lock; ARGV 1 a tick in ms, then owners. */
const char rw_leases_lua[] =
    "local reply = {}\n"
    "for i = 2, #ARGV do\n"
    "  local key = '{' .. KEYS[1] .. '}:' .. ARGV[i] .. ':rwlock_timeout:'\n"
    "  local first, below, longer\n"
    "  for level = 1, math.max(1, tonumber(redis.call('hget', KEYS[1], ARGV[i]) or 0)) do\n"
    "    local left = math.ceil(redis.call('pttl', key .. level) / ARGV[1])\n"
    "    first = first or left\n"
    "    longer = (longer or 0) + (left > (below or left) and 1 or 0)\n"
    "    below = left\n"
    "  end\n"
    "  table.insert(reply, first)\n"
    "  table.insert(reply, longer)\n"
    "end\n"
    "return reply\n";

/* ---- What is true, and what is believed ----------------------------------------------------- */

static redisReply *next_reply(struct rw_model *m) {
    void *reply = NULL;
    redisGetReply(m->play.connection, &reply);
    return must(&m->play, reply);
}

static void look_at_fields(struct rw_model *m, struct truth *truth) {
    own_reply *reply = next_reply(m);
    truth->there = reply->elements > 0;
    bool mode = false;
    for (size_t i = 0; i < reply->elements; i += 2) {
        const char *field = reply->element[i]->str, *value = reply->element[i + 1]->str;
        int who = 0, side = strstr(field, ":write") != NULL ? WRITE : READ;
        if (strcmp(field, "mode") == 0) {
            mode = true;
            truth->write_mode = strcmp(value, "write") == 0;
            continue;
        }
        while (who < CLIENTS &&
               strncmp(rw_client_names[who], field, strlen(rw_client_names[who])) != 0)
            who++;
        if (who == CLIENTS)
            violated(&m->play, "a field %s that is nobody's", field);
        else
            truth->count[who][side] = atoi(value);
    }
    if (truth->there && (!mode || reply->elements < 4))
        violated(&m->play, "a lock without a mode, or with nothing else");
}

static void look_at_leases(struct rw_model *m, struct truth *truth) {
    own_reply *reply = next_reply(m);
    for (size_t who = 0; who < OWNERS; who++) {
        truth->first[who] = (int)reply->element[2 * who]->integer;
        truth->longer[who] = (int)reply->element[2 * who + 1]->integer;
    }
}

void rw_look(struct rw_model *m, struct truth *truth) {
    memset(truth, 0, sizeof *truth);
    redisAppendCommand(m->play.connection, "EVALSHA %s 1 " LOCK_NAME " %d %s %s %s", m->leases_sha,
                       TICK_MS, rw_client_names[0], rw_client_names[1], rw_client_names[2]);
    redisAppendCommand(m->play.connection, "HGETALL " LOCK_NAME);
    redisAppendCommand(m->play.connection, "KEYS {*");
    look_at_leases(m, truth);
    look_at_fields(m, truth);
    own_reply *reply = next_reply(m);
    for (size_t i = 0; i < reply->elements; i++)
        for (int who = 0; who < CLIENTS; who++)
            truth->keys[who] += strstr(reply->element[i]->str, rw_client_names[who]) != NULL;
}

/* The counts that its field may have, while an owner believes in its hold. */
static bool believes(const struct rw_model *m, const struct part *p, int *ret_low, int *ret_high) {
    if (p->count == 0 || p->broken || m->play.now >= p->deadline)
        return false;
    *ret_low = *ret_high = p->count;
    if (p->op.pending && p->op.verb == ACQUIRE)
        *ret_high = p->op.count + 1;
    if (p->op.pending && p->op.verb == RELEASE) {
        *ret_low = p->op.count - 1;
        *ret_high = larger(p->count, p->op.count);
    }
    return *ret_low > 0; /* who is about to leave for good has left */
}

bool rw_java_believes(const struct rw_model *m, const struct java *j, int side) {
    int until = j->write_until;
    if (side == READ)
        for (int i = 1, longest = 0; i <= j->count[READ]; i++)
            until = longest = larger(longest, j->until[i]);
    return j->count[side] > 0 && !j->broken && m->play.now < until && m->play.now < j->lock_until;
}

static void compare_owner(struct rw_model *m, const struct truth *truth, int who, bool in[SIDES]) {
    for (int side = 0; side < SIDES; side++) {
        const struct part *p = &m->parts[who][side];
        int low, high, there = truth->count[who][side];
        in[side] = believes(m, p, &low, &high);
        if (in[side] && (there < low || there > high))
            violated(&m->play, "%s believes it %s %d to %d times, the server has %d",
                     rw_client_names[who], rw_side_names[side], low, high, there);
        if (in[side] && side == READ && truth->keys[who] == 0)
            violated(&m->play, "%s reads, but has no key", rw_client_names[who]);
        if (in[side] && side == READ && truth->first[who] < p->deadline - m->play.now)
            violated(&m->play, "%s reads until %d, its first level %d", rw_client_names[who],
                     p->deadline, m->play.now + truth->first[who]);
        if (side == READ && truth->longer[who] > 0)
            violated(&m->play, "%s has a level that lasts longer than the one below",
                     rw_client_names[who]);
        if (p->count > 0 || p->op.pending)
            continue;
        int until = p->residue_until; /* its own reads make its lost write last */
        if (side == WRITE && until > 0)
            until = larger(until, m->parts[who][READ].horizon);
        if (there > 0 && (side == WRITE || truth->keys[who] > 0) && m->play.now >= until)
            violated(&m->play, "%s %s without knowing of it", rw_client_names[who],
                     rw_side_names[side]);
        if (side == READ && truth->keys[who] > 0 && m->play.now >= larger(until, p->orphans_until))
            violated(&m->play, "%s has left a key", rw_client_names[who]);
    }
}

static void compare_java(struct rw_model *m, const struct truth *truth, int who, bool in[SIDES]) {
    const struct java *j = &m->javas[who - OWNERS];
    for (int side = 0; side < SIDES; side++) {
        in[side] = rw_java_believes(m, j, side);
        if (in[side] && truth->count[who][side] != j->count[side])
            violated(&m->play, "%s %s %d times, the server has %d", rw_client_names[who],
                     rw_side_names[side], j->count[side], truth->count[who][side]);
    }
}

void rw_compare(struct rw_model *m) {
    struct truth truth;
    bool in[CLIENTS][SIDES];
    rw_look(m, &truth);
    for (int who = 0; who < CLIENTS; who++) {
        if (who < OWNERS)
            compare_owner(m, &truth, who, in[who]);
        else
            compare_java(m, &truth, who, in[who]);
    }
    for (int writer = 0; writer < CLIENTS; writer++)
        for (int other = 0; in[writer][WRITE] && other < CLIENTS; other++)
            if (other != writer && (in[other][READ] || in[other][WRITE]))
                violated(&m->play, "%s writes while %s does something", rw_client_names[writer],
                         rw_client_names[other]);
}
