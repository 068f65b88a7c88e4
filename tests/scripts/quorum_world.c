/* The servers of the quorum's model, and what must be true of its world.
 *
 * Part of quorum_model.c, on its one thread. A server's keys age by its own clock, just before each
 * script that it runs. */
#include "quorum_world.h"

#include "script.h"

#include "support/new_lock.h"

#include <inttypes.h>
#include <stdio.h>

#define LOCK_NAME "thelock"
#define COUNTER_NAME "thetoken"
#define CHANNEL "redisson_lock__channel:{thelock}"
#define UNIT 100000 /* real ms of a model's */

/* ---- Clocks ---------------------------------------------------------------------------------- */

int64_t quorum_between(struct quorum_model *m, int64_t from, int64_t to) {
    return from + (int64_t)roll(&m->play, (unsigned)(to - from + 1));
}

int64_t quorum_clock_us(const struct quorum_model *m, const struct clock *clock) {
    return clock->offset_ms * MS + m->now + m->now / 1000 * clock->ppm / 1000;
}

int64_t quorum_clock_ms(const struct quorum_model *m, const struct clock *clock) {
    return quorum_clock_us(m, clock) / MS;
}

/* ---- Servers --------------------------------------------------------------------------------- */

static redisReply *next_reply(struct quorum_model *m, struct machine *machine) {
    void *reply = NULL;
    if (redisGetReply(machine->connection, &reply) != REDIS_OK)
        support_die("a server is gone: %s", machine->connection->errstr);
    return must(&m->play, reply);
}

/* Its keys grow older. The answer comes with the next. */
static void pass(struct quorum_model *m, struct machine *machine) {
    int64_t now_ms = quorum_clock_ms(m, &machine->clock);
    redisAppendCommand(machine->connection, "EVALSHA %s 1 " LOCK_NAME " %lld %d", machine->pass_sha,
                       (long long)(now_ms - machine->passed_ms) * UNIT, UNIT);
    machine->passed_ms = now_ms;
}

static void append(struct quorum_model *m, struct machine *machine, const struct copy *copy) {
    const struct command *command = &copy->command;
    bool guarded = m->discipline != WITHOUT_NOT_AFTER;
    int64_t time_us = quorum_clock_us(m, &machine->clock);
    char owner[32], not_after[32], lease[32], token[32], seconds[32], micros[32];
    snprintf(owner, sizeof owner, "c%d.%d:1", copy->client, copy->life);
    snprintf(not_after, sizeof not_after, "%" PRId64, guarded ? copy->not_after_ms : 0);
    snprintf(lease, sizeof lease, "%" PRId64,
             command->member_op == PROBE ? 1 : command->lease_ms * UNIT);
    snprintf(token, sizeof token, "%" PRId64, command->token);
    snprintf(seconds, sizeof seconds, "%" PRId64, time_us / 1000000);
    snprintf(micros, sizeof micros, "%" PRId64, time_us % 1000000);

    const char *const *sha = (const char *const *)machine->sha;
    const char *draw = m->discipline == BY_ONE ? machine->by_one_sha : sha[FENCED_ACQUIRE];
    const char *raise = m->discipline == BY_ONE ? machine->extend_by_one_sha : sha[FENCED_EXTEND];
    const char *ask[] = {
        "EVALSHA", sha[PLAIN_ACQUIRE], "1", LOCK_NAME, not_after, owner, lease, "0", seconds,
        micros};
    const char *ask_fenced[] = {"EVALSHA", draw,  "2", LOCK_NAME, COUNTER_NAME, not_after,
                                owner,     lease, "0", seconds,   micros};
    const char *extend[] = {"EVALSHA", sha[RENEW], "1",     LOCK_NAME, not_after,
                            lease,     owner,      seconds, micros};
    const char *raise_to[] = {"EVALSHA", raise, "2",   LOCK_NAME, COUNTER_NAME, not_after,
                              owner,     lease, token, seconds,   micros};
    const char *release[] = {"EVALSHA", sha[RELEASE], "1",       LOCK_NAME, not_after, owner,
                             "1",       "1",          "publish", CHANNEL,   seconds,   micros};
    redisContext *to = machine->connection;
    if (command->member_op == ASK && m->fenced)
        redisAppendCommandArgv(to, sizeof ask_fenced / sizeof *ask_fenced, ask_fenced, NULL);
    else if (command->member_op == ASK)
        redisAppendCommandArgv(to, sizeof ask / sizeof *ask, ask, NULL);
    else if (command->member_op == EXTEND || command->member_op == PROBE)
        redisAppendCommandArgv(to, sizeof extend / sizeof *extend, extend, NULL);
    else if (command->member_op == RAISE)
        redisAppendCommandArgv(to, sizeof raise_to / sizeof *raise_to, raise_to, NULL);
    else
        redisAppendCommandArgv(to, sizeof release / sizeof *release, release, NULL);
}

/* Every script's first number is its verdict, but a renewal that comes too late has none. */
static void read_answer(struct copy *copy, redisReply *answer) {
    const redisReply *reply = script_written_out(answer, copy->command.member_op == ASK ? 1 : 0);
    bool late = reply->elements == 1;
    copy->code = late ? -3 : reply->element[0]->integer;
    copy->value = reply->elements < 3 ? 0 : reply->element[reply->elements - 2]->integer;
    copy->server_ms = reply->element[reply->elements - 1]->integer;
    if (copy->command.member_op == ASK && copy->code == 0 && copy->value > 0)
        copy->value = (copy->value + UNIT - 1) / UNIT; /* a TTL */
}

void quorum_run(struct quorum_model *m, struct copy *copy) {
    static const char *const names[] = {"ask", "extend", "raise", "probe", "give back"};
    struct machine *machine = &m->machines[copy->server];
    pass(m, machine);
    append(m, machine, copy);
    freeReplyObject(next_reply(m, machine));
    redisReply *reply = next_reply(m, machine);
    read_answer(copy, reply);
    freeReplyObject(reply);
    copy->ran_at = m->now;
    m->tally.scripts++;
    m->tally.late += copy->code == -3;
    note(&m->play, "s%d: '%s' of c%d.%d, sent at its %" PRId64 ": %" PRId64 " %" PRId64,
         copy->server, names[copy->command.member_op], copy->client, copy->life, copy->sent_ms,
         copy->code, copy->value);
}

void quorum_save(struct quorum_model *m, int server) {
    struct machine *machine = &m->machines[server];
    redisAppendCommand(machine->connection, "GET " COUNTER_NAME);
    own_reply *reply = next_reply(m, machine);
    machine->saved = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
}

void quorum_forget_all_but(struct quorum_model *m, int server, int64_t counter) {
    struct machine *machine = &m->machines[server];
    redisAppendCommand(machine->connection, "FLUSHALL");
    freeReplyObject(next_reply(m, machine));
    if (counter == 0)
        return;
    redisAppendCommand(machine->connection, "SET " COUNTER_NAME " %lld", (long long)counter);
    freeReplyObject(next_reply(m, machine));
}

void quorum_delete(struct quorum_model *m, int server) {
    redisAppendCommand(m->machines[server].connection, "DEL " LOCK_NAME);
    own_reply *reply = next_reply(m, &m->machines[server]);
    m->tally.deleted += (uint64_t)reply->integer;
    note(&m->play, "s%d: deleted%s", server, reply->integer != 0 ? "" : ", but it was not there");
}

/* ---- What must be true ----------------------------------------------------------------------- */

bool quorum_believes(const struct quorum_model *m, const struct client *client) {
    int64_t now_ms = quorum_clock_ms(m, &client->clock);
    if (client->phase != HOLDING)
        return false;
    if (m->discipline == OF_THOSE_THAT_ANSWER)
        return hfi_votes_count(&client->votes, now_ms) >= client->needed;
    return hfi_votes_deadline_ms(&client->votes, now_ms) > now_ms;
}

void quorum_judge(struct quorum_model *m) {
    int holder = -1;
    for (int i = 0; i < CLIENTS && !m->deletes; i++)
        if (quorum_believes(m, &m->clients[i])) {
            if (holder >= 0)
                violated(&m->play, "c%d and c%d hold it at once", holder, i);
            holder = i;
        }
}

/* A client that believes in its hold meanwhile has been robbed of servers, which is for it to find out. */
static void steal(struct quorum_model *m, struct client *from, const struct client *winner) {
    int64_t now_ms = quorum_clock_ms(m, &winner->clock);
    if (from->stolen_of != 0)
        return;
    from->stolen_of = hfi_votes_holders(&from->votes);
    m->tally.stolen++;
    for (size_t s = 0; s < SERVERS; s++)
        if (from->votes.of[s].held && hfi_votes_counts(&winner->votes, s, now_ms))
            from->stolen[s] = true;
}

void quorum_judge_win(struct quorum_model *m, int winner, int64_t token) {
    struct client *client = &m->clients[winner];
    for (size_t s = 0; s < SERVERS; s++)
        m->had_it[s] = hfi_votes_counts(&client->votes, s, quorum_clock_ms(m, &client->clock));
    for (int i = 0; i < CLIENTS && m->deletes; i++)
        if (i != winner && quorum_believes(m, &m->clients[i]))
            steal(m, &m->clients[i], client);
    if (m->fenced && !m->deletes && token <= m->highest)
        violated(&m->play, "c%d holds it with %" PRId64 " after another with %" PRId64, winner,
                 token, m->highest);
    if (token > m->highest)
        m->highest = token;
}

/* It has heard that too many are gone of those that held it when another came in. */
void quorum_judge_answer(struct quorum_model *m, const struct copy *copy) {
    struct client *client = &m->clients[copy->client];
    size_t heard = 0;
    if (client->stolen_of == 0 || client->phase != HOLDING)
        return;
    if (client->stolen[copy->server] && copy->command.member_op != ASK && copy->code == 0)
        client->heard[copy->server] = true;
    for (size_t s = 0; s < SERVERS; s++)
        heard += client->heard[s];
    if (client->stolen_of - heard < hfi_quorum_of(SERVERS) && quorum_believes(m, client))
        violated(&m->play, "c%d goes on, although another was inside meanwhile", copy->client);
}
