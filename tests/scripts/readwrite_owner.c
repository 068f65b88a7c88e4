/* A holdfast owner of the read/write lock: what it sends, what becomes of it, and what it concludes
 * from the replies.
 *
 * Part of the read/write lock's model (readwrite_model.c), on its one thread. Each side of an owner
 * has at most one operation, acquire or release, and repeats it until it is answered. Before the
 * first copy goes out, the server's clock has passed the not-after of all copies of earlier ones
 * that were not answered. A client that ends up with nothing while such copies may still act releases
 * once they cannot. */
#include "readwrite_world.h"

#include "script.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- A holdfast owner ----------------------------------------------------------------------- */

void rw_begin_operation(struct rw_model *m, struct part *p, enum verb verb, int count) {
    memset(&p->op, 0, sizeof p->op);
    p->op.pending = true;
    p->op.verb = verb;
    p->op.count = count;
    p->op.lease = 3 + (int)roll(&m->play, 6);
    p->op.serial = ++m->serial;
}

bool rw_must_wait(const struct rw_model *m, const struct part *p) {
    return m->play.now <= p->quiet_after;
}

void rw_settle(struct rw_model *m, struct part *p, int count) {
    m->tally.settled++;
    rw_begin_operation(m, p, RELEASE, count);
}

static void end_hold(struct part *p, int residue_until) {
    p->count = 0;
    p->broken = false;
    p->residue_until = residue_until;
}

void rw_lapse(struct rw_model *m, int who, int side) {
    struct part *p = &m->parts[who][side];
    note(&m->play, "%s %s: deadline passed", rw_client_names[who], rw_side_names[side]);
    m->tally.lost++;
    bool unfinished = p->op.pending && (p->op.verb == ACQUIRE || p->op.count > 1);
    end_hold(p, p->horizon);
    if (unfinished || rw_must_wait(m, p))
        rw_settle(m, p, 1);
}

static void held(struct rw_model *m, const struct request *r, int count) {
    struct part *p = &m->parts[r->who][r->side];
    int until = r->sent + r->lease;
    p->deadline = p->count > 0 ? larger(p->deadline, until) : until;
    p->count = count;
    p->residue_until = 0;
    if (m->play.now >= p->deadline)
        rw_lapse(m, r->who, r->side);
}

/* The hold is not there. Somebody must have broken it, or its time must have come. */
static void gone(struct rw_model *m, const struct request *r) {
    struct part *p = &m->parts[r->who][r->side];
    if (p->count > 0 && !p->broken && m->play.now < p->deadline)
        violated(&m->play, "%s %s no more, without a reason", rw_client_names[r->who],
                 rw_side_names[r->side]);
    m->tally.lost++;
    p->orphans_until = p->horizon;
    end_hold(p, p->horizon);
    if (rw_must_wait(m, p))
        rw_settle(m, p, 1);
}

static void acquire_answered(struct rw_model *m, const struct request *r, int code, int value) {
    struct part *p = &m->parts[r->who][r->side];
    bool copies_left = p->op.unanswered > 0;
    p->op.pending = false;
    if (code == 1) {
        if (value != r->count + 1)
            violated(&m->play, "%s wanted %d and got %d", rw_client_names[r->who], r->count + 1,
                     value);
        (*(r->count > 0      ? &m->tally.nested
           : r->side == READ ? &m->tally.read
                             : &m->tally.written))++;
        if (r->count == 0)
            p->fixed = roll(&m->play, 2) == 0;
        p->broken = false;
        held(m, r, value);
    } else if (code == 0) {
        if (r->count > 0)
            violated(&m->play, "%s holds and must wait", rw_client_names[r->who]);
        m->tally.busy++;
        if (copies_left) /* one may have read, on a lock that Java cut short: its key counts for nobody */
            p->orphans_until = p->horizon;
        if (rw_must_wait(m, p))
            rw_settle(m, p, 1);
    } else if (code == -1) {
        gone(m, r);
    } else if (code == -3) {
        if (copies_left)
            rw_settle(m, p, r->count + 1);
    } else {
        violated(&m->play, "%s: acquire from %d found %d", rw_client_names[r->who], r->count,
                 value);
    }
}

static void release_answered(struct rw_model *m, const struct request *r, int code, int value) {
    struct part *p = &m->parts[r->who][r->side];
    bool first = p->op.unanswered == 0 && p->count == r->count;
    if (code == -3)
        return; /* sent again by the owner's next step */
    p->op.pending = false;
    if (code == 0) {
        if (p->count > 0) /* a settlement leaves nothing to believe in */
            p->count = value;
    } else if (code == 1) {
        m->tally.released++;
        end_hold(p, 0);
    } else if (code == -1 && first) {
        gone(m, r);
    } else if (code == -1) {
        end_hold(p, 0);
    } else {
        violated(&m->play, "%s: release from %d found %d", rw_client_names[r->who], r->count,
                 value);
    }
}

static void answered(struct rw_model *m, const struct request *r, int code, int value) {
    struct part *p = &m->parts[r->who][r->side];
    if (r->verb == RENEW) {
        if (p->op.pending || p->count == 0 || r->serial != p->op.serial || code == -3)
            return;
        if (code == 0)
            gone(m, r);
        else if (!p->fixed)
            p->deadline = larger(p->deadline, r->sent + r->lease);
        return;
    }
    if (!p->op.pending || p->op.serial != r->serial)
        return; /* nobody waits for it any more */
    if (r->verb == ACQUIRE)
        acquire_answered(m, r, code, value);
    else
        release_answered(m, r, code, value);
}

/* ---- The network ---------------------------------------------------------------------------- */

void rw_run(struct rw_model *m, const struct request *r, bool hears) {
    char not_after[32], lease[32], count[32], seconds[32], name[32];
    enum script script = (enum script)((int)r->verb + (r->side == WRITE ? 3 : 0));
    bool guarded = m->discipline != RW_WITHOUT_NOT_AFTER;
    snprintf(not_after, sizeof not_after, "%" PRId64, guarded ? clock_ms(r->not_after) : 0);
    snprintf(lease, sizeof lease, "%d", r->lease * TICK_MS);
    snprintf(count, sizeof count, "%d", r->count);
    snprintf(seconds, sizeof seconds, "%" PRId64, clock_ms(m->play.now) / 1000);
    snprintf(name, sizeof name, "%s%s", rw_client_names[r->who], r->side == WRITE ? ":write" : "");

    const char *argv[16] = {"EVALSHA", m->sha[script], "1", LOCK_NAME, not_after};
    int argc = 5;
    if (r->verb == RENEW)
        argv[argc++] = lease;
    argv[argc++] = name;
    if (r->verb == ACQUIRE || script == WRITE_RELEASE)
        argv[argc++] = lease;
    if (r->verb != RENEW)
        argv[argc++] = count;
    if (script != WRITE_ACQUIRE && r->verb != RENEW) {
        argv[argc++] = "publish";
        argv[argc++] = RW_CHANNEL;
    }
    argv[argc++] = seconds;
    argv[argc++] = "0";
    redisReply *reply = must(&m->play, redisCommandArgv(m->play.connection, argc, argv, NULL));
    reply = script_written_out(reply, r->verb == ACQUIRE ? 1 : 0);
    m->tally.scripts++;
    int code = reply->elements == 1 ? -3 : (int)reply->element[0]->integer;
    int value = r->verb == RENEW ? 0 : (int)reply->element[1]->integer;
    freeReplyObject(reply);
    m->tally.late += code == -3;
    note(&m->play, "%s(%d) of %s, sent at %d, lease %d, not after %d, runs: %d %d%s",
         rw_script_names[script], r->count, rw_client_names[r->who], r->sent, r->lease,
         r->not_after, code, value, hears ? "" : ", unheard");
    if (hears)
        answered(m, r, code, value);
    rw_compare(m);
}

static int free_copy(const struct rw_model *m) {
    for (int i = 0; i < COPIES; i++)
        if (!m->copies[i].used)
            return i;
    return -1;
}

static void transmit(struct rw_model *m, struct request r, bool reliable) {
    struct part *p = &m->parts[r.who][r.side];
    int copy = free_copy(m);
    r.sent = m->play.now;
    r.not_after = m->play.now + (int)roll(&m->play, 4);
    p->horizon = larger(p->horizon, r.not_after + r.lease);
    unsigned fate = reliable || copy < 0 ? 0 : roll(&m->play, 100);
    if (fate < 60) {
        rw_run(m, &r, true);
        return;
    }
    if (r.verb != RENEW) {
        p->op.unanswered++;
        p->quiet_after = larger(p->quiet_after, r.not_after);
    }
    if (fate < 80) {
        rw_run(m, &r, false);
        return;
    }
    note(&m->play, "verb %d (%d) of %s on side %d is stuck", (int)r.verb, r.count,
         rw_client_names[r.who], r.side);
    m->copies[copy].used = true;
    m->copies[copy].request = r;
}

void rw_send_operation(struct rw_model *m, int who, int side, bool reliable) {
    struct part *p = &m->parts[who][side];
    if (p->op.sent)
        m->tally.resent++;
    else if (rw_must_wait(m, p))
        return;
    p->op.sent = true;
    struct request r = {.verb = p->op.verb,
                        .who = who,
                        .side = side,
                        .count = p->op.count,
                        .lease = p->op.lease,
                        .serial = p->op.serial};
    transmit(m, r, reliable);
}

void rw_send_renewal(struct rw_model *m, int who, int side, int lease, bool reliable) {
    struct request r = {.verb = RENEW,
                        .who = who,
                        .side = side,
                        .lease = lease,
                        .serial = m->parts[who][side].op.serial};
    transmit(m, r, reliable);
}
