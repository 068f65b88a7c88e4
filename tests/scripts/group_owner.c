/* The holdfast owners of the group's model: what they send, what becomes of it, and what they conclude
 * from the replies.
 *
 * Part of group_model.c, on its one thread. An owner has at most one operation, and repeats it until
 * it is answered; renewals come beside it. The discipline: before the first copy of an operation
 * goes out, the server's clock has passed the not-after of all copies of earlier ones that went
 * unanswered; and what an owner has lost it releases all the same. */
#include "group_model.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- Owners --------------------------------------------------------------------------------- */

void group_begin_operation(struct model *m, int who, enum script script, int set, int count) {
    struct owner *o = &m->owners[who];
    o->op = (struct request){.script = script,
                             .who = who,
                             .set = set,
                             .count = count,
                             .lease = 3 + (int)roll(&m->play, 6),
                             .serial = ++m->serial};
    o->pending = true;
    o->begun = false;
    o->unanswered = 0;
}

static bool has_loose_copies(const struct model *m, const struct owner *o) {
    return m->play.now <= o->quiet_after;
}

bool group_must_wait(const struct model *m, const struct owner *o) {
    return m->discipline != HASTY && has_loose_copies(m, o);
}

static void settle(struct model *m, int who, int set, int count) {
    m->tally.settled++;
    group_begin_operation(m, who, RELEASE, set, count);
}

/* The hold is over without its release. What may be left of it is ended. */
void group_lose(struct model *m, int who) {
    struct owner *o = &m->owners[who];
    m->tally.lost++;
    o->count = 0;
    o->broken = false;
    o->pending = false;
    if (m->discipline != FORGETFUL)
        settle(m, who, o->set, 1);
}

static void held(struct model *m, const struct request *r, int count) {
    struct owner *o = &m->owners[r->who];
    int until = r->sent + r->lease;
    o->deadline = o->count > 0 ? larger(o->deadline, until) : until;
    o->count = count;
    o->set = r->set;
    if (m->play.now >= o->deadline)
        group_lose(m, r->who);
}

static void gone(struct model *m, int who, const char *said_by) {
    struct owner *o = &m->owners[who];
    if (o->count > 0 && !o->broken && m->play.now < o->deadline)
        violated(&m->play, "%s lost its hold without a reason, says %s", group_clients[who],
                 said_by);
    group_lose(m, who);
}

static void acquire_answered(struct model *m, const struct request *r, int code) {
    struct owner *o = &m->owners[r->who];
    bool copies_left = o->unanswered > 0;
    o->pending = false;
    if (code == 1) {
        *(r->count == 0 ? &m->tally.held : &m->tally.nested) += 1;
        o->broken = false;
        held(m, r, r->count + 1);
    } else if (code == 0) {
        m->tally.busy++;
        if (copies_left)
            settle(m, r->who, r->set, 1);
    } else if (code == -1) {
        gone(m, r->who, "acquire");
    } else if (code == -3) {
        if (copies_left)
            settle(m, r->who, r->set, r->count + 1);
    } else {
        violated(&m->play, "%s: an acquire from %d was answered %d", group_clients[r->who],
                 r->count, code);
    }
}

static void release_answered(struct model *m, const struct request *r, int code) {
    struct owner *o = &m->owners[r->who];
    bool first = o->unanswered == 0 && o->count == r->count;
    if (code == -3)
        return; /* sent again by the owner's next step */
    o->pending = false;
    if (code == 0) {
        held(m, r, r->count - 1);
    } else if (code == 1) {
        m->tally.released++;
        o->count = 0;
        o->broken = false;
    } else if (code == -1 && first) {
        gone(m, r->who, "release");
    } else if (code == -1) {
        o->count = 0;
        o->broken = false;
    } else {
        violated(&m->play, "%s: a release from %d was answered %d", group_clients[r->who], r->count,
                 code);
    }
}

static void answered(struct model *m, const struct request *r, int code) {
    struct owner *o = &m->owners[r->who];
    if (r->script == RENEW) {
        if (o->pending || o->count == 0 || r->serial != o->op.serial)
            return;
        if (code == 1)
            o->deadline = larger(o->deadline, r->sent + r->lease);
        else if (code == 0)
            gone(m, r->who, "renew");
        return;
    }
    if (!o->pending || o->op.serial != r->serial)
        return; /* nobody waits for it any more */
    if (r->script == ACQUIRE)
        acquire_answered(m, r, code);
    else
        release_answered(m, r, code);
}

/* ---- The network ---------------------------------------------------------------------------- */

int group_add_fields(const char **argv, int argc, int set) {
    for (int value = 0; value < VALUES; value++)
        if ((set & 1 << value) != 0)
            argv[argc++] = group_values[value];
    return argc;
}

void group_run_request(struct model *m, const struct request *r, bool hears) {
    char not_after[32], lease[32], count[32], seconds[32];
    bool guarded = m->discipline != WITHOUT_NOT_AFTER;
    snprintf(not_after, sizeof not_after, "%" PRId64, guarded ? clock_ms(r->not_after) : 0);
    snprintf(lease, sizeof lease, "%d", r->lease * TICK_MS);
    snprintf(count, sizeof count, "%d",
             r->script == RENEW ? __builtin_popcount((unsigned)r->set) : r->count);
    snprintf(seconds, sizeof seconds, "%" PRId64, clock_ms(m->play.now) / 1000);
    const char *argv[20] = {"EVALSHA", m->sha[r->script], "1", GROUP, not_after};
    int argc = 5;
    if (r->script == RENEW)
        argv[argc++] = lease;
    argv[argc++] = group_clients[r->who];
    if (r->script != RENEW)
        argv[argc++] = lease;
    argv[argc++] = count;
    if (r->script != RENEW) {
        argv[argc++] = "publish";
        argv[argc++] = "redisson_lock__channel:{" GROUP "}";
    }
    argc = group_add_fields(argv, argc, r->set);
    argv[argc++] = seconds;
    argv[argc++] = "0";
    redisReply *reply = must(&m->play, redisCommandArgv(m->play.connection, argc, argv, NULL));
    bool late = r->script == RENEW && reply->elements == 1;
    int code = late ? -3 : (int)reply->element[0]->integer;
    freeReplyObject(reply);
    note(&m->play, "%s(%d) of %s on %d, sent at %d, not after %d: %d%s", group_scripts[r->script],
         r->count, group_clients[r->who], r->set, r->sent, r->not_after, code,
         hears ? "" : ", unheard");
    m->tally.late += code == -3;
    if (hears)
        answered(m, r, code);
    group_compare(m);
}

static bool delay(struct model *m, const struct request *r) {
    for (int i = 0; i < COPIES; i++)
        if (!m->copies[i].used) {
            m->copies[i].used = true;
            m->copies[i].request = *r;
            return true;
        }
    return false;
}

static void transmit(struct model *m, struct request r, bool reliable) {
    struct owner *o = &m->owners[r.who];
    r.sent = m->play.now;
    r.not_after = m->play.now + (int)roll(&m->play, 4);
    unsigned fate = reliable ? 0 : roll(&m->play, 100);
    if (fate < 60) {
        group_run_request(m, &r, true);
        return;
    }
    if (r.script != RENEW) {
        o->unanswered++;
        o->quiet_after = larger(o->quiet_after, r.not_after);
    }
    if (fate < 80 || !delay(m, &r))
        group_run_request(m, &r, false);
    else
        note(&m->play, "%s(%d) of %s is stuck", group_scripts[r.script], r.count,
             group_clients[r.who]);
}

void group_send_operation(struct model *m, int who, bool reliable) {
    struct owner *o = &m->owners[who];
    if (!o->begun && group_must_wait(m, o))
        return;
    m->tally.resent += o->begun;
    o->begun = true;
    transmit(m, o->op, reliable);
}

/* ---- Its steps ------------------------------------------------------------------------------ */

int group_some_values(struct model *m) {
    return 1 + (int)roll(&m->play, ALL);
}

void group_owner_step(struct model *m, int who) {
    struct owner *o = &m->owners[who];
    if (o->pending) {
        bool gives_up = o->op.script == ACQUIRE && o->begun && roll(&m->play, 4) == 0;
        if (gives_up && !group_must_wait(m, o))
            settle(m, who, o->op.set, o->op.count + 1);
        group_send_operation(m, who, false);
        return;
    }
    unsigned wish = roll(&m->play, 10);
    if (o->count > 0 && wish < 3) {
        struct request r = {.script = RENEW, .who = who, .set = o->set, .serial = o->op.serial};
        r.lease = 3 + (int)roll(&m->play, 6);
        transmit(m, r, false);
        return;
    }
    if (group_must_wait(m, o))
        return;
    if (o->count == 0)
        group_begin_operation(m, who, ACQUIRE, group_some_values(m), 0);
    else
        group_begin_operation(m, who, o->count < 3 && wish < 6 ? ACQUIRE : RELEASE, o->set,
                              o->count);
    group_send_operation(m, who, false);
}
