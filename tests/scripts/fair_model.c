/* The clients of the fair lock and their schedules, as fair_model.h tells.
 *
 * Used by test_fair_model.c, from its one thread. The subscriptions are real, too; the clock is the
 * one of play.h.
 *
 * One command of an owner is under way at a time. It runs and is answered; or it runs and the
 * answer is lost; or it does not run, or not yet: then the owner keeps quiet until its not-after
 * has passed and repeats it. Some of the owners are clients of version 0.1, in the queue with the
 * others. What must be true is in fair_compare(): nobody believes in the lock beside another, who
 * believes in it is in it, and nobody stays in the lock or in the queue who does not want to be. */
#include "fair_world.h"

#include "script.h"
#include "support/wait.h"

#include <stdio.h>
#include <string.h>

const char *const fair_script_names[SCRIPTS] = {"fair_acquire", "fair_release", "fair_give_up",
                                                "renew"};

static int tick_of(int64_t us) {
    return (int)((us / 1000 - EPOCH_MS) / TICK_MS);
}

/* ---- Scripts -------------------------------------------------------------------------------- */

static const char *sha_for(const struct fair_model *m, const struct request *r) {
    if (m->discipline == FAIR_HEARD_IS_UNHEARD && r->script == ACQUIRE)
        return m->shortened_sha;
    return r->old ? m->old_sha[r->script] : m->sha[r->script];
}

/* As version 0.1 runs them: with the beginning of the channels, and nothing left out. */
static redisReply *run_old(struct fair_model *m, const struct request *r, const char *sha,
                           long long not_after, int64_t us) {
    long long lease_ms = (long long)r->lease * TICK_MS;
    long long s = us / 1000000, rest = us % 1000000;
    switch (r->script) {
    case ACQUIRE:
        return ask(
            &m->play,
            "EVALSHA %s 4 f q z r %lld %s publish redisson_lock__channel:{f} %lld 0 %d %lld %lld "
            "%lld %lld %lld %lld",
            sha, not_after, r->owner, lease_ms, r->waits ? 1 : 0, (long long)r->confirm * TICK_MS,
            (long long)r->arrival, (long long)HORIZON * TICK_MS, (long long)JAVA_WAIT * TICK_MS, s,
            rest);
    case RELEASE:
        return ask(
            &m->play,
            "EVALSHA %s 4 f q z r %lld %s publish redisson_lock__channel:{f} %lld 1 %lld %lld", sha,
            not_after, r->owner, lease_ms, s, rest);
    case GIVE_UP:
        return ask(&m->play,
                   "EVALSHA %s 4 f q z r %lld %s publish redisson_lock__channel:{f} 0 %lld %lld",
                   sha, not_after, r->owner, s, rest);
    default:
        return ask(&m->play, "EVALSHA %s 1 f %lld %lld %s %lld %lld", sha, not_after, lease_ms,
                   r->owner, s, rest);
    }
}

static redisReply *run_script(struct fair_model *m, const struct request *r) {
    int64_t us = fair_now_us(m);
    m->instant += 7;
    m->tally.scripts++;
    long long not_after =
        m->discipline == FAIR_NO_NOT_AFTER ? 0 : (long long)clock_ms(r->not_after + 1) - 1;
    long long lease_ms = (long long)r->lease * TICK_MS;
    long long s = us / 1000000, rest = us % 1000000;
    const char *sha = sha_for(m, r);
    if (sha == m->old_sha[r->script])
        return run_old(m, r, sha, not_after, us);
    switch (r->script) {
    case ACQUIRE:
        return script_written_out(
            ask(&m->play,
                "EVALSHA %s 5 f q z r u %lld %s publish %lld %lld %lld %d %lld 0 %lld %lld %lld",
                sha, not_after, r->owner, (long long)HORIZON * TICK_MS,
                (long long)r->confirm * TICK_MS, (long long)r->arrival, r->waits ? 1 : 0, lease_ms,
                (long long)JAVA_WAIT * TICK_MS, s, rest),
            1);
    case RELEASE:
        return script_written_out(ask(&m->play, "EVALSHA %s 5 f q z r u %lld %s publish %lld %lld",
                                      sha, not_after, r->owner, s, rest),
                                  0);
    case GIVE_UP:
        return ask(&m->play, "EVALSHA %s 5 f q z r u %lld %s publish 0 %lld %lld", sha, not_after,
                   r->owner, s, rest);
    default:
        return ask(&m->play, "EVALSHA %s 1 f %lld %lld %s %lld %lld", sha, not_after, lease_ms,
                   r->owner, s, rest);
    }
}

/* ---- An owner of ours ----------------------------------------------------------------------- */

static void begin(struct fair_model *m, int who, enum script script) {
    struct owner *o = &m->owners[who];
    o->pending = true;
    o->sent = false;
    o->request = (struct request){
        .script = script, .old = who < m->olds, .waits = !o->once, .lease = o->lease};
    fair_name_of(m, who, o->request.owner);
}

static void become_holder(struct fair_model *m, int who, int deadline, bool provisional) {
    struct owner *o = &m->owners[who];
    o->state = HOLDING;
    o->deadline = deadline;
    o->provisional = provisional;
    if (m->play.now >= deadline) { /* the answer came too late to be worth anything */
        o->residue_until = m->play.now + o->lease + 1;
        begin(m, who, GIVE_UP);
        o->state = IDLE;
    }
}

static void acquire_answered(struct fair_model *m, int who, const redisReply *reply) {
    struct owner *o = &m->owners[who];
    if (reply->element[0]->integer == 1) {
        m->tally.held++;
        become_holder(m, who, o->sent_at + o->lease, false);
        return;
    }
    if (o->once) {
        o->state = IDLE;
        return;
    }
    m->tally.queued++;
    o->arrival = reply->element[3]->integer;
    o->answered_us = reply->element[4]->integer;
    o->asked_at = o->sent_at;
}

static void answered(struct fair_model *m, int who, const redisReply *reply) {
    struct owner *o = &m->owners[who];
    long long code = reply->element[0]->integer;
    enum script script = o->request.script;
    note(&m->play, "%s %s: %lld", o->request.owner, fair_script_names[script], code);
    if (code == -3 || reply->elements == 1) {
        return; /* did nothing: it stays pending */
    }
    o->pending = false;
    switch (script) {
    case ACQUIRE:
        acquire_answered(m, who, reply);
        break;
    case RELEASE:
        m->tally.released++;
        o->state = IDLE;
        break;
    case GIVE_UP:
        m->tally.given_up++;
        o->state = IDLE;
        o->residue_until = 0;
        break;
    default:
        if (code == 1) {
            m->tally.confirmed += o->provisional;
            o->deadline = o->sent_at + o->lease > o->deadline ? o->sent_at + o->lease : o->deadline;
            o->provisional = false;
        } else {
            m->tally.lost++;
            o->state = IDLE;
        }
    }
}

/* Sends the owner's command, and decides what becomes of it. */
static void transmit(struct fair_model *m, int who, bool reliable) {
    struct owner *o = &m->owners[who];
    if (m->play.now <= o->quiet_until)
        return;
    m->tally.resent += o->sent;
    o->request.not_after = m->play.now + NOT_AFTER;
    o->request.confirm = o->heard ? o->confirm : 0;
    o->request.arrival = o->arrival;
    if (o->request.script == ACQUIRE && o->request.confirm > 0 &&
        (o->least_confirm == 0 || o->request.confirm < o->least_confirm))
        o->least_confirm = o->request.confirm;
    o->sent_at = m->play.now;
    unsigned draw = reliable ? 0 : roll(&m->play, 100);
    if (draw < 80) {
        redisReply *reply = run_script(m, &o->request);
        answered(m, who, reply);
        freeReplyObject(reply);
    } else {
        o->sent = true;
        o->quiet_until = o->request.not_after;
        const char *fate = "is lost";
        if (draw < 88) {
            freeReplyObject(run_script(m, &o->request));
            fate = "runs, answer lost";
        } else if (draw < 96 && m->copies_len < COPIES) {
            m->copies[m->copies_len++] = o->request;
            fate = "is held up";
        }
        note(&m->play, "%s %s %s", o->request.owner, fair_script_names[o->request.script], fate);
    }
    fair_compare(m);
}

/* A message: is it enough? */
static bool enters(struct fair_model *m, struct owner *o, int64_t said_us) {
    if (said_us == 0 || o->least_confirm == 0 || o->pending)
        return false;
    if (said_us <= o->answered_us && m->discipline != FAIR_OLD_GRANTS)
        return false;
    int latest = tick_of(o->answered_us) + (m->play.now - o->asked_at);
    if (m->discipline == FAIR_GRANT_FROM_NOW) {
        o->deadline = m->play.now + o->least_confirm;
        return true;
    }
    if (tick_of(said_us) + o->least_confirm - latest < 1)
        return false;
    o->deadline = m->play.now + (tick_of(said_us) + o->least_confirm - latest);
    return true;
}

static void read_mail(struct fair_model *m, int who) {
    struct owner *o = &m->owners[who];
    int64_t said_us = o->mail[0];
    memmove(o->mail, o->mail + 1, sizeof o->mail[0] * (MAILS - 1));
    o->mails--;
    if (m->play.now <= o->quiet_until)
        return;
    if (enters(m, o, said_us)) {
        char name[16];
        note(&m->play, "%s enters until %d", fair_name_of(m, who, name), o->deadline);
        m->tally.entered++;
        o->state = HOLDING;
        o->provisional = o->lease > o->least_confirm;
        fair_compare(m);
        return;
    }
    m->tally.missed += said_us > o->answered_us;
    begin(m, who, ACQUIRE);
    transmit(m, who, false);
}

static void crash(struct fair_model *m, int who) {
    int generation = m->owners[who].generation;
    note(&m->play, "h%d.%d crashes", who, generation);
    fair_listen(m, who, false);
    m->owners[who] = (struct owner){.generation = generation + 1, .quiet_until = -1};
    m->tally.crashed++;
}

static void owner_step(struct fair_model *m, int who) {
    struct owner *o = &m->owners[who];
    unsigned draw = roll(&m->play, 100);
    if (draw < 1) {
        crash(m, who);
    } else if (o->heard ? draw < 5 : draw < 30) {
        fair_listen(m, who, !o->heard);
    } else if (o->pending) {
        transmit(m, who, false);
    } else if (o->state == IDLE) {
        o->once = roll(&m->play, 4) == 0;
        o->lease = 3 + (int)roll(&m->play, 10);
        o->confirm = o->lease < CONFIRM ? o->lease : CONFIRM;
        o->least_confirm = 0;
        o->arrival = 0;
        o->answered_us = 0; /* what is in the mail may be of the wait before */
        o->state = WAITING;
        begin(m, who, ACQUIRE);
        transmit(m, who, false);
    } else if (o->state == WAITING && o->mails > 0 && draw < 50) {
        read_mail(m, who);
    } else if (o->state == WAITING) {
        begin(m, who, draw < 92 ? ACQUIRE : GIVE_UP);
        transmit(m, who, false);
    } else if (draw < 75) { /* it has work to do; a grant it confirms rather sooner */
        if (draw < (o->provisional ? 50 : 25)) {
            begin(m, who, RENEW);
            transmit(m, who, false);
        }
    } else {
        begin(m, who, RELEASE);
        transmit(m, who, false);
    }
}

/* ---- Time ----------------------------------------------------------------------------------- */

static void pass_tick(struct fair_model *m) {
    long long gone = pass_ticks(&m->play, 1);
    m->tally.expired += (uint64_t)gone;
    m->instant = 0;
    note(&m->play, "a tick passes, %lld keys run out", gone);
    for (int i = 0; i < OWNERS; i++) {
        struct owner *o = &m->owners[i];
        if (o->state != HOLDING || m->play.now < o->deadline)
            continue;
        m->tally.lost++;
        o->state = IDLE; /* what it has under way is answered as ever */
        o->residue_until = m->play.now + 2 * o->lease + 2 * NOT_AFTER;
        if (o->pending && o->request.script != RELEASE)
            begin(m, i, RELEASE);
    }
    for (int i = 0; i < JAVAS; i++)
        if (m->javas[i].state == HOLDING && m->play.now >= m->javas[i].deadline)
            m->javas[i].state = IDLE;
    fair_compare(m);
}

/* Less than a tick, but perhaps what a Java client has to come if nobody hears for it. */
static void pass_moment(struct fair_model *m) {
    enum { LONGEST_US = 3000000 };
    if (m->instant + LONGEST_US >= (int64_t)TICK_MS * 1000)
        return;
    m->instant += roll(&m->play, LONGEST_US);
    note(&m->play, "it is %lld us later", (long long)m->instant);
}

static void run_copy(struct fair_model *m, int index) {
    struct request r = m->copies[index];
    m->copies[index] = m->copies[--m->copies_len];
    note(&m->play, "%s %s arrives late", r.owner, fair_script_names[r.script]);
    redisReply *reply = run_script(m, &r);
    m->tally.late += reply->elements == 1 || reply->element[0]->integer == -3;
    freeReplyObject(reply);
    fair_compare(m);
}

/* ---- Schedules ------------------------------------------------------------------------------ */

static void step(struct fair_model *m) {
    unsigned draw = roll(&m->play, 100);
    if (draw < (m->with_java ? 6 : 12))
        pass_tick(m);
    else if (draw < 18 && m->copies_len > 0)
        run_copy(m, (int)roll(&m->play, (unsigned)m->copies_len));
    else if (draw < 42 && m->with_java)
        fair_java_step(m, (int)roll(&m->play, JAVAS));
    else if (draw < 50 && m->with_java)
        pass_moment(m);
    else
        owner_step(m, (int)roll(&m->play, OWNERS));
}

/* The network heals; everybody who waits comes in, and leaves. */
static bool settle_owner(struct fair_model *m, int who) {
    struct owner *o = &m->owners[who];
    fair_listen(m, who, true);
    if (o->pending)
        transmit(m, who, true);
    else if (o->state == WAITING && o->mails > 0)
        read_mail(m, who);
    else if (o->state == WAITING) {
        begin(m, who, ACQUIRE);
        transmit(m, who, true);
    } else if (o->state == HOLDING) {
        begin(m, who, RELEASE);
        transmit(m, who, true);
    }
    return o->state == IDLE && !o->pending;
}

static void finish(struct fair_model *m) {
    /* A dead Java client costs a tick. Clients of version 0.1 wait for its deadline, if nobody else
     * waits with them. */
    const int enough = 40 + m->java_died;
    const int enough_alone = enough + (m->java_died + JAVAS) * 3 * JAVA_WAIT;
    for (int i = 0; going_well(&m->play) && i < NOT_AFTER + 1; i++)
        pass_tick(m);
    while (going_well(&m->play) && m->copies_len > 0)
        run_copy(m, 0);
    for (int i = 0; i < JAVAS; i++)
        fair_java_leave(m, i);
    bool all = false;
    for (int ticks = 0; going_well(&m->play) && !all; ticks++) {
        int waiting = 0, olds_waiting = 0;
        for (int i = 0; going_well(&m->play) && i < OWNERS; i++) {
            bool waits = !settle_owner(m, i);
            waiting += waits;
            olds_waiting += waits && i < m->olds;
        }
        all = waiting == 0;
        if (ticks > (waiting > olds_waiting ? enough : enough_alone))
            violated(&m->play, "somebody waits for ever");
        if (going_well(&m->play))
            pass_tick(m);
    }
    for (int i = 0; going_well(&m->play) && i < 20; i++)
        pass_tick(m); /* longer than any lease */
    own_reply *there = ask(&m->play, "EXISTS f");
    if (there->integer != 0)
        violated(&m->play, "held in the end");
}

static void run(void *model, int discipline) {
    struct fair_model *m = model;
    for (int i = 0; i < OWNERS; i++)
        m->owners[i] = (struct owner){.generation = 1, .quiet_until = -1};
    memset(m->javas, 0, sizeof m->javas);
    m->copies_len = 0;
    m->discipline = (enum fair_discipline)discipline;
    m->with_java = m->play.random % 2 == 0; /* every other seed */
    m->olds = (int)(m->play.random / 2 % 3);
    m->java_died = 0;
    m->java_acts = false;
    m->seen_len = 0;
    m->instant = 0;
    for (int i = 0; going_well(&m->play) && i < STEPS; i++)
        step(m);
    if (going_well(&m->play))
        finish(m);
    for (int i = 0; i < OWNERS; i++)
        fair_listen(m, i, false);
    for (int i = 0; i < JAVAS; i++)
        fair_java_listen(m, i, false);
}

struct play *fair_model_play(struct fair_model *m) {
    return &m->play;
}

const struct fair_tally *fair_model_tally(const struct fair_model *m) {
    return &m->tally;
}

/* So that the model has something to find. */
static void load_shortened(struct fair_model *m) {
    own_text *text = script_text("fair_acquire");
    own_text *changed = script_changed(text, "if listeners > 0 or record or waiters.more == 1 then",
                                       "listeners = 0 if record or waiters.more == 1 then");
    m->shortened_sha = play_load_text(m->server, changed);
}

struct fair_model *fair_model_open(struct server *server) {
    struct fair_model *m = zeroed(1, sizeof *m);
    m->server = server;
    play_open(&m->play, server, m, run);
    m->subscriber = connect_as(server, NULL, NULL);
    for (int i = 0; i < SCRIPTS; i++) {
        m->sha[i] = play_load(server, fair_script_names[i]);
        m->old_sha[i] = play_load_0_1(server, fair_script_names[i]);
    }
    load_shortened(m);
    fair_load_java(m);
    fair_load_looks(m);
    return m;
}

void fair_model_close(struct fair_model *m) {
    if (m == NULL)
        return;
    for (int i = 0; i < SCRIPTS; i++)
        free(m->sha[i]);
    for (int i = 0; i < SCRIPTS; i++)
        free(m->old_sha[i]);
    free(m->shortened_sha);
    for (int i = 0; i < 3; i++)
        free(m->java_sha[i]);
    free(m->look_sha);
    redisFree(m->subscriber);
    play_close(&m->play);
    free(m);
}
