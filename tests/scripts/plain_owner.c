/* A holdfast owner: what it sends and what it concludes from the replies.
 *
 * Part of the plain lock's model (plain_model.c), on its one thread. An owner has at most one
 * operation, acquire or release, and repeats it until it is answered. Renewals come beside it and
 * are never repeated.
 *
 * The discipline: before the first copy of an operation goes out, the server's clock has passed
 * the not-after of all copies of earlier ones on broken connections. And whenever an owner ends up
 * with nothing while such copies may still act (busy, lost, or past its deadline), it settles: it
 * releases once they cannot. HASTY owners leave out the first, UNSETTLED ones the second. */
#include "plain_world.h"

/* ---- Operations of an owner ----------------------------------------------------------------- */

void begin_operation(struct model *m, struct owner *o, enum script script, int count) {
    o->op = (struct operation){.pending = true,
                               .script = script,
                               .count = count,
                               .lease = 3 + (int)roll(&m->play, 6),
                               .serial = ++m->serial};
}

/* Undoes an acquire, or gives back whatever is left of a hold that was lost. */
static void settle(struct model *m, struct owner *o, int count) {
    m->tally.settled++;
    begin_operation(m, o, RELEASE, count);
}

static bool has_loose_copies(const struct model *m, const struct owner *o) {
    return m->play.now <= o->quiet_after;
}

bool must_wait(const struct model *m, const struct owner *o) {
    return m->discipline != HASTY && has_loose_copies(m, o);
}

static bool must_settle(const struct model *m, const struct owner *o) {
    return m->discipline != UNSETTLED && has_loose_copies(m, o);
}

static void end_hold(struct owner *o) {
    o->count = 0;
    o->broken = false;
    o->residue_until = 0;
}

/* What is left on the server is given back if something may still renew it. */
void lapse(struct model *m, int who) {
    struct owner *o = &m->owners[who];
    note(&m->play, "%s: deadline passed", name_of(who));
    m->tally.lost++;
    end_hold(o);
    o->residue_until = o->horizon;
    bool unfinished = o->op.pending && (o->op.script == ACQUIRE || o->op.count > 1);
    if (unfinished || must_settle(m, o))
        settle(m, o, 1);
}

static void held(struct model *m, const struct request *r, int count) {
    struct owner *o = &m->owners[r->sender];
    int until = r->sent + r->lease;
    o->deadline = o->count > 0 ? larger(o->deadline, until) : until;
    o->count = count;
    if (m->play.now >= o->deadline)
        lapse(m, r->sender);
}

/* The hold is not there. Somebody must have broken it, or its time must have come. */
static void gone(struct model *m, int who, const char *said_by) {
    struct owner *o = &m->owners[who];
    if (o->count > 0 && !o->broken && m->play.now < o->deadline)
        violated(&m->play, "%s lost its hold without a reason, says %s", name_of(who), said_by);
    m->tally.lost++;
    end_hold(o);
    if (must_settle(m, o)) /* One of an acquire would take the lock again. */
        settle(m, o, 1);
}

static void acquire_answered(struct model *m, const struct request *r, int code, int value) {
    struct owner *o = &m->owners[r->sender];
    bool copies_left = o->op.unanswered > 0;
    o->op.pending = false;
    switch (code) {
    case 1:
        if (value != r->count + 1)
            violated(&m->play, "%s wanted %d and got %d", name_of(r->sender), r->count + 1, value);
        if (r->count == 0)
            m->tally.held++;
        else
            m->tally.reentered++;
        o->broken = false;
        o->residue_until = 0;
        held(m, r, value);
        break;
    case 0:
        if (r->count > 0)
            violated(&m->play, "%s holds and must wait", name_of(r->sender));
        m->tally.busy++;
        if (must_settle(m, o))
            settle(m, o, 1);
        break;
    case -1:
        gone(m, r->sender, "acquire");
        break;
    case -3:
        m->tally.late++;
        if (copies_left)
            settle(m, o, r->count + 1);
        break;
    default:
        violated(&m->play, "%s: acquire from %d found %d", name_of(r->sender), r->count, value);
    }
}

static void release_answered(struct model *m, const struct request *r, int code, int value) {
    struct owner *o = &m->owners[r->sender];
    bool first = o->op.unanswered == 0 && o->count == r->count;
    if (code == -3) { /* Sent again by the owner's next step. */
        m->tally.late++;
        return;
    }
    o->op.pending = false;
    if (code == 0) {
        held(m, r, value);
    } else if (code == 1) {
        m->tally.released++;
        end_hold(o);
    } else if (code == -1) {
        if (first)
            gone(m, r->sender, "release");
        else
            end_hold(o);
    } else {
        violated(&m->play, "%s: release from %d found %d", name_of(r->sender), r->count, value);
    }
}

static void renew_answered(struct model *m, const struct request *r, int code) {
    struct owner *o = &m->owners[r->sender];
    if (o->op.pending || o->count == 0 || r->serial != o->op.serial)
        return;
    if (code == 1)
        o->deadline = larger(o->deadline, r->sent + r->lease);
    else if (code == 0)
        gone(m, r->sender, "renew");
}

void answered(struct model *m, const struct request *r, int code, int value) {
    if (r->script == RENEW) {
        renew_answered(m, r, code);
        return;
    }
    if (r->script == FORCE)
        return;
    const struct operation *op = &m->owners[r->sender].op;
    if (!op->pending || op->serial != r->serial)
        return; /* Nobody waits for it any more. */
    if (r->script == ACQUIRE)
        acquire_answered(m, r, code, value);
    else
        release_answered(m, r, code, value);
}

/* ---- Sending -------------------------------------------------------------------------------- */

void send_operation(struct model *m, int who, bool reliable) {
    struct operation *op = &m->owners[who].op;
    if (op->sent)
        m->tally.resent++;
    else if (must_wait(m, &m->owners[who]))
        return;
    op->sent = true;
    transmit(m,
             (struct request){.script = op->script,
                              .sender = who,
                              .count = op->count,
                              .lease = op->lease,
                              .serial = op->serial},
             reliable);
}

void owner_step(struct model *m, int who) {
    struct owner *o = &m->owners[who];
    if (o->op.pending) {
        bool gives_up = o->op.script == ACQUIRE && o->op.sent && roll(&m->play, 4) == 0;
        if (gives_up && !must_wait(m, o)) {
            note(&m->play, "%s gives up its acquire from %d", name_of(who), o->op.count);
            settle(m, o, o->op.count + 1);
        }
        send_operation(m, who, false);
        return;
    }
    unsigned wish = roll(&m->play, 10);
    if (o->count > 0 && wish < 3) {
        transmit(m,
                 (struct request){.script = RENEW,
                                  .sender = who,
                                  .lease = 3 + (int)roll(&m->play, 6),
                                  .serial = o->op.serial},
                 false);
        return;
    }
    if (must_wait(m, o))
        return;
    if (o->count == 0 || (o->count < 4 && wish < 6))
        begin_operation(m, o, ACQUIRE, o->count);
    else
        begin_operation(m, o, RELEASE, o->count);
    send_operation(m, who, false);
}
