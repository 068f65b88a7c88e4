/* The network between the model's clients and the server: it runs requests now, later, or unheard.
 *
 * Part of the plain lock's model (plain_model.c), on its one thread. Each sender has one
 * connection at a time. What is slow on a live connection runs, and is answered, before anything
 * sent behind it; when the connection breaks, its copies are loose: each runs at any later time,
 * and nobody hears the reply. */
#include "plain_world.h"

#include "script.h"

#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>

/* A force that runs breaks a hold; one that nobody waits for any more must not. */
static void broke(struct model *m, const struct request *r) {
    m->tally.forced++;
    if (m->play.now > r->not_after)
        violated(&m->play, "a force that came too late broke the hold of %s", name_of(r->target));
    if (r->target >= OWNERS)
        m->javas[r->target - OWNERS].broken = m->javas[r->target - OWNERS].count > 0;
    else
        m->owners[r->target].broken = m->owners[r->target].count > 0;
}

/* Runs the script for a request, now. */
static void run(struct model *m, const struct request *r, bool hears) {
    char not_after[32], lease[32], count[32], seconds[32];
    bool guarded = m->discipline != WITHOUT_NOT_AFTER;
    snprintf(not_after, sizeof not_after, "%" PRId64, guarded ? clock_ms(r->not_after) : 0);
    snprintf(lease, sizeof lease, "%d", r->lease * TICK_MS);
    snprintf(count, sizeof count, "%d", r->count);
    snprintf(seconds, sizeof seconds, "%" PRId64, clock_ms(m->play.now) / 1000);

    const char *argv[16] = {"EVALSHA", m->sha[r->script], "1", LOCK_NAME, not_after};
    int argc = 5;
    if (r->script == RENEW)
        argv[argc++] = lease;
    argv[argc++] = name_of(r->script == FORCE ? r->target : r->sender);
    bool last = r->script == RELEASE && r->count == 1; /* then nothing else need be said */
    if (r->script == ACQUIRE || (r->script == RELEASE && !last)) {
        argv[argc++] = lease;
        if (r->count > 0)
            argv[argc++] = count;
    }
    if ((r->script == RELEASE && !last) || r->script == FORCE) {
        argv[argc++] = "publish";
        argv[argc++] = "redisson_lock__channel:{" LOCK_NAME "}";
    }
    argv[argc++] = seconds;
    argv[argc++] = "0";
    redisReply *reply = must(&m->play, redisCommandArgv(m->play.connection, argc, argv, NULL));
    reply = script_written_out(reply, r->script == ACQUIRE ? 1 : 0);
    m->tally.scripts++;

    bool late = r->script == RENEW && reply->elements == 1;
    int code = late ? -3 : (int)reply->element[0]->integer;
    int value = r->script == RENEW ? 0 : (int)reply->element[1]->integer;
    freeReplyObject(reply);
    note(&m->play, "%s(%d) of %s, sent at %d, not after %d, runs: %d %d%s", script_name(r->script),
         r->count, name_of(r->script == FORCE ? r->target : r->sender), r->sent, r->not_after, code,
         value, hears ? "" : ", unheard");
    if (r->script == FORCE && code == 1)
        broke(m, r);
    if (hears)
        answered(m, r, code, value);
    compare(m);
}

void run_copy(struct model *m, struct copy *c) {
    struct request r = c->request;
    bool connected = c->connected;
    c->used = false;
    if (connected && r.sender < OWNERS && m->owners[r.sender].op.serial == r.serial &&
        r.script != RENEW)
        m->owners[r.sender].op.unanswered--;
    run(m, &r, connected);
}

static bool same_pipe(const struct copy *c, int sender) {
    return c->used && c->connected && c->request.sender == sender;
}

/* There is at most one: whatever is sent behind it makes it run first. */
void run_pipe(struct model *m, int sender) {
    for (int i = 0; i < COPIES; i++)
        if (same_pipe(&m->copies[i], sender))
            run_copy(m, &m->copies[i]);
}

static void may_still_act(struct model *m, const struct request *r) {
    if (r->sender < OWNERS && r->script != RENEW) {
        struct owner *o = &m->owners[r->sender];
        o->quiet_after = larger(o->quiet_after, r->not_after);
    }
}

static void break_connection(struct model *m, int sender) {
    for (int i = 0; i < COPIES; i++)
        if (same_pipe(&m->copies[i], sender)) {
            m->copies[i].connected = false;
            may_still_act(m, &m->copies[i].request);
        }
}

static void delay(struct model *m, const struct request *r, bool connected) {
    for (int i = 0; i < COPIES; i++)
        if (!m->copies[i].used) {
            m->copies[i] = (struct copy){true, connected, *r};
            return;
        }
    support_die("too many copies");
}

static int free_copies(const struct model *m) {
    int count = 0;
    for (int i = 0; i < COPIES; i++)
        count += !m->copies[i].used;
    return count;
}

void transmit(struct model *m, struct request r, bool reliable) {
    r.sent = m->play.now;
    r.not_after = m->play.now + (int)roll(&m->play, 4);
    struct owner *o = r.sender < OWNERS ? &m->owners[r.sender] : NULL;
    run_pipe(m, r.sender);
    if (o != NULL && r.script != RENEW && (!o->op.pending || o->op.serial != r.serial))
        return; /* What ran before it has answered the question. */
    if (o != NULL)
        o->horizon = larger(o->horizon, r.not_after + r.lease);

    unsigned fate = reliable || free_copies(m) < 4 ? 0 : roll(&m->play, 100);
    if (fate < 55) {
        run(m, &r, true);
        return;
    }
    if (o != NULL && r.script != RENEW)
        o->op.unanswered++;
    if (fate < 70) {
        note(&m->play, "the reply to the next is lost");
        run(m, &r, false);
        may_still_act(m, &r);
        break_connection(m, r.sender);
    } else if (fate < 85) {
        note(&m->play, "%s(%d) of %d is stuck on a dead connection", script_name(r.script), r.count,
             r.sender);
        delay(m, &r, true);
        break_connection(m, r.sender);
    } else {
        note(&m->play, "%s(%d) of %d is slow", script_name(r.script), r.count, r.sender);
        delay(m, &r, true);
    }
}
