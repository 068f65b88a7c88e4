/* Random schedules of the string lock: no owner may believe that it holds a lock which the server
 * would give to another, and nothing may stay held for nobody. Copies are late, replies are lost,
 * and the server's clock is stepped.
 *
 * The server is a model, too: one string, with the decisions of the rows in
 * test_string_scripts.c. Time is in ticks. The other tests show that the model can fail: for each
 * rule that clients keep to, it finds what comes of leaving it out. One thread. */
#include "play.h"
#include "support/case.h"

#include <inttypes.h>

enum discipline {
    CAREFUL,
    REUSED_TOKENS,   /* an owner has one token for all its holds */
    RENEWS_BY_PXAT,  /* a renewal carries the time at which the lease ends */
    TRUSTS_RESENDS,  /* the lease is counted from the copy that was answered */
    RENEWS_BY_PX,    /* a renewal sets the lease, and an extension is trusted as a whole */
    NEVER_SETTLES,   /* nothing is released once more when a lost copy cannot act any more */
    NEVER_ASKS_TIME, /* an old reading of the server's clock is trusted */
    ONE_STEP,        /* an acquire without a lease sets a key without an end */
    /* on a server without scripts a renewal sets the lease, at least to what is left */
    CAREFUL_NATIVE,       /* of an extension no more is trusted than a lease */
    TRUSTS_NATIVE,        /* it is trusted as a whole */
    SHORT_NATIVE_RENEWALS /* a renewal sets a lease, whatever is left of a longer one */
};

enum { OWNERS = 3, COPIES = 64, LATE_RELEASES = 64 };
enum {
    LEASE = 100,
    LONG_LEASE = 600,
    CMD_TIMEOUT = 12,
    STEPS = 400,
    STUCK_MAX = 300,
    SAMPLE_OLD = 10
};

#define NEVER INT64_MAX

enum verb { ACQUIRE, PERSIST, RELEASE, RENEW, EXTEND, SETTLE };

/* A copy of a command, on its way to the server. */
struct copy {
    bool used;
    enum verb verb;
    int owner, token;
    int64_t at; /* when it arrives */
    int64_t number, not_after;
    bool reply_lost;
    int request; /* of its sender: an answer to another is not looked at */
};

struct owner {
    enum { IDLE, ASKING, HOLDING } state;
    enum verb verb; /* of the request in flight */
    bool in_flight;
    int request, token, copies;
    bool lost_copy; /* of the acquire of this token */
    bool no_lease;  /* it is to be permanent: by a second step */
    int64_t first, sent, ends, believes;
    int64_t lease;
    int64_t leased; /* when the longest lease ends that it was granted */
    bool asked_time;
    int64_t ahead, sampled; /* the server's clock, as last read */
};

struct model {
    struct play play;
    int discipline;
    struct {
        int token; /* 0: nothing */
        int64_t expires;
        int64_t ahead; /* of real time */
    } server;
    struct copy copies[COPIES];
    struct owner owners[OWNERS];
    struct {
        int token; /* 0: none */
        int64_t at;
        bool sent;
    } late_releases[LATE_RELEASES];
    int64_t now;
    int last_token, last_request;
    uint64_t held, resent, late, lost, extended, settled, stepped, permanent;
};

static struct model model;

static int64_t server_now(const struct model *m) {
    return m->now + m->server.ahead;
}

/* ---- Sending ---- */

static void send_copy(struct model *m, struct copy copy) {
    for (int i = 0; i < COPIES; i++) {
        if (m->copies[i].used)
            continue;
        unsigned fate = roll(&m->play, 10);
        copy.used = true;
        /* in time, in time with the reply lost, or stuck on a connection that is dead */
        copy.at = m->now + 1 + (fate < 8 ? roll(&m->play, 4) : roll(&m->play, STUCK_MAX));
        copy.reply_lost = fate >= 6;
        m->copies[i] = copy;
        return;
    }
}

static void ask_server(struct model *m, int who, enum verb verb, int64_t number) {
    struct owner *o = &m->owners[who];
    o->request = ++m->last_request;
    o->verb = verb;
    o->in_flight = true;
    o->sent = m->now;
    send_copy(m, (struct copy){.verb = verb,
                               .owner = who,
                               .token = o->token,
                               .number = number,
                               .not_after = m->now + o->ahead + CMD_TIMEOUT,
                               .request = o->request});
}

/* A lost copy of the token's acquire may still act: it is released when that is over. */
static void owe_release(struct model *m, int token, int64_t at) {
    if (m->discipline == NEVER_SETTLES)
        return;
    for (int i = 0; i < LATE_RELEASES; i++)
        if (m->late_releases[i].token == 0) {
            m->late_releases[i].token = token;
            m->late_releases[i].at = at;
            m->late_releases[i].sent = false;
            return;
        }
}

static int64_t surely_over(const struct owner *o) {
    return o->first + o->lease + 2 * SAMPLE_OLD + 2;
}

/* ---- The server ---- */

static void expire(struct model *m) {
    if (m->server.token != 0 && server_now(m) >= m->server.expires)
        m->server.token = 0;
}

static void set_expiry(struct model *m, int64_t expires) {
    m->server.expires = expires;
    expire(m);
}

static int64_t larger_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static bool is_native(const struct model *m) {
    return m->discipline >= CAREFUL_NATIVE;
}

static bool raises(const struct model *m) {
    return m->discipline != RENEWS_BY_PX && m->discipline != RENEWS_BY_PXAT && !is_native(m);
}

/* Returns what the command replies: of an acquire the token that was there, else 1 or 0. */
static int run_command(struct model *m, const struct copy *copy) {
    expire(m);
    int there = m->server.token;
    bool own = there != 0 && there == copy->token;
    switch (copy->verb) {
    case ACQUIRE:
        if (there == 0) {
            m->server.token = copy->token;
            set_expiry(m, copy->number);
        }
        return there;
    case PERSIST: /* as a command, which has no not-after */
        if (own)
            m->server.expires = NEVER;
        return own;
    case RELEASE:
    case SETTLE:
        if (own)
            m->server.token = 0;
        return own;
    case RENEW:
        if (own && is_native(m))
            set_expiry(m, server_now(m) + copy->number);
        else if (own && m->discipline == RENEWS_BY_PXAT)
            set_expiry(m, copy->number);
        else if (own && m->discipline == RENEWS_BY_PX)
            set_expiry(m, server_now(m) + LEASE);
        else if (own && server_now(m) <= copy->not_after)
            set_expiry(m, larger_of(m->server.expires, server_now(m) + LEASE));
        return own && (!raises(m) || server_now(m) <= copy->not_after);
    default:
        if (is_native(m)) {
            if (own)
                set_expiry(m, server_now(m) + copy->number);
            return own;
        }
        if (own && server_now(m) <= copy->not_after)
            set_expiry(m, larger_of(m->server.expires, server_now(m) + LONG_LEASE));
        return own && server_now(m) <= copy->not_after;
    }
}

/* ---- Owners ---- */

static void release(struct model *m, struct owner *o) {
    if (o->lost_copy)
        owe_release(m, o->token, surely_over(o));
    *o = (struct owner){.ahead = o->ahead, .sampled = o->sampled};
}

static void grant(struct model *m, struct owner *o) {
    int64_t from = m->discipline == TRUSTS_RESENDS ? o->sent : o->first;
    if (o->no_lease && m->discipline != ONE_STEP) {
        ask_server(m, (int)(o - m->owners), PERSIST, 0);
        return;
    }
    o->state = HOLDING;
    o->believes = o->no_lease ? NEVER : from + o->lease;
    o->leased = o->believes;
    if (o->asked_time) { /* read in the same write, so not before it was sent */
        int64_t shown = o->sent + (o->ends - server_now(m));
        o->ahead = m->server.ahead;
        o->sampled = m->now;
        if (m->discipline != TRUSTS_RESENDS && shown < o->believes)
            o->believes = shown;
    }
    m->held++;
}

static void answered(struct model *m, const struct copy *copy, int reply) {
    struct owner *o = &m->owners[copy->owner];
    if (!o->in_flight || o->request != copy->request)
        return;
    o->in_flight = false;
    if (copy->verb == ACQUIRE && (reply == 0 || (reply == o->token && o->copies > 1)))
        grant(m, o);
    else if (copy->verb == PERSIST && reply != 0) {
        m->permanent += o->state != HOLDING;
        o->state = HOLDING;
        o->believes = NEVER;
    } else if (copy->verb == ACQUIRE || copy->verb == RELEASE || copy->verb == PERSIST)
        release(m, o);
    else if (reply == 0) /* gone, or too late */
        return;
    else if (copy->verb == RENEW)
        o->believes = larger_of(o->believes, o->sent + LEASE);
    else {
        bool whole = !is_native(m) || m->discipline == TRUSTS_NATIVE;
        o->believes = larger_of(o->believes, o->sent + (whole ? LONG_LEASE : LEASE));
        o->leased = larger_of(o->leased, o->sent + LONG_LEASE);
        m->extended++;
    }
}

static void send_acquire(struct model *m, int who) {
    struct owner *o = &m->owners[who];
    o->copies++;
    o->asked_time =
        (m->now - o->sampled > SAMPLE_OLD || o->copies > 1) && m->discipline != NEVER_ASKS_TIME;
    ask_server(m, who, ACQUIRE, o->ends);
}

static void begin(struct model *m, int who) {
    struct owner *o = &m->owners[who];
    if (m->discipline == NEVER_ASKS_TIME && o->sampled == 0) {
        o->ahead = m->server.ahead; /* when it connected */
        o->sampled = m->now;
    }
    o->state = ASKING;
    o->token = m->discipline == REUSED_TOKENS ? who + 1 : ++m->last_token + OWNERS;
    o->first = m->now;
    o->no_lease = roll(&m->play, 3) == 0;
    o->lease = is_native(m) && roll(&m->play, 4) == 0 ? 2 * LEASE : LEASE;
    o->ends = o->no_lease && m->discipline == ONE_STEP ? NEVER : m->now + o->ahead + o->lease;
    send_acquire(m, who);
}

/* No answer came in time. */
static void timed_out(struct model *m, int who) {
    struct owner *o = &m->owners[who];
    o->in_flight = false;
    m->lost++;
    if (o->verb == ACQUIRE) {
        o->lost_copy = true;
        if (m->now - o->first <= o->lease / 2) {
            m->resent++;
            send_acquire(m, who);
            return;
        }
        owe_release(m, o->token, m->now);
        release(m, o);
    } else if (o->verb == RELEASE || (o->verb == PERSIST && o->state == ASKING)) {
        owe_release(m, o->token, m->now);
        release(m, o);
    }
}

static void use_hold(struct model *m, int who) {
    struct owner *o = &m->owners[who];
    unsigned what = roll(&m->play, 6);
    if (m->now >= o->believes) { /* it ran out */
        owe_release(m, o->token, m->now);
        release(m, o);
    } else if (what == 0) {
        o->believes = 0; /* the caller is done with it */
        ask_server(m, who, RELEASE, 0);
    } else if (what <= 3 && o->no_lease) {
        ask_server(m, who, PERSIST, 0);
    } else if (what == 1) {
        ask_server(m, who, EXTEND, larger_of(LONG_LEASE, o->leased - m->now));
    } else if (m->discipline == TRUSTS_NATIVE && o->believes - m->now > LEASE) {
        return; /* then it needs no renewal */
    } else if (what <= 3 && is_native(m)) {
        bool brief = m->discipline == SHORT_NATIVE_RENEWALS;
        ask_server(m, who, RENEW, brief ? LEASE : larger_of(LEASE, o->leased - m->now));
    } else if (what <= 3) {
        ask_server(m, who, RENEW, m->now + o->ahead + LEASE);
    }
}

static void act(struct model *m, int who) {
    struct owner *o = &m->owners[who];
    if (o->in_flight && m->now - o->sent >= CMD_TIMEOUT)
        timed_out(m, who);
    else if (!o->in_flight && o->state == IDLE && roll(&m->play, 4) == 0)
        begin(m, who);
    else if (!o->in_flight && o->state == HOLDING)
        use_hold(m, who);
}

/* ---- Time ---- */

/* A clock that is stepped ends leases early; only a reading that is not older than the step can
 * show that. So it is stepped while nobody believes, and no command relies on an older reading. */
static void step_clock(struct model *m) {
    for (int i = 0; i < OWNERS; i++)
        if (m->owners[i].believes > m->now ||
            (m->discipline != NEVER_ASKS_TIME &&
             m->now - m->owners[i].sampled <= SAMPLE_OLD + CMD_TIMEOUT))
            return;
    m->server.ahead += LEASE / 2;
    m->stepped++;
    expire(m);
}

static void send_late_releases(struct model *m) {
    for (int i = 0; i < LATE_RELEASES; i++) {
        if (m->late_releases[i].token == 0 || m->now < m->late_releases[i].at ||
            m->late_releases[i].sent)
            continue;
        m->late_releases[i].sent = true;
        send_copy(m, (struct copy){.verb = SETTLE, .token = m->late_releases[i].token, .owner = i});
    }
}

static void deliver(struct model *m) {
    for (int i = 0; i < COPIES; i++) {
        struct copy copy = m->copies[i];
        if (!copy.used || m->now < copy.at)
            continue;
        m->copies[i].used = false;
        int reply = run_command(m, &copy);
        m->late += copy.at - m->now > CMD_TIMEOUT;
        if (copy.verb == SETTLE) {
            if (copy.reply_lost) {
                m->late_releases[copy.owner].sent = false; /* and again */
            } else {
                m->late_releases[copy.owner].token = 0;
                m->settled++;
            }
        } else if (!copy.reply_lost) {
            answered(m, &copy, reply);
        }
    }
}

static void check(struct model *m) {
    expire(m);
    for (int i = 0; i < OWNERS; i++) {
        const struct owner *o = &m->owners[i];
        if (o->state == HOLDING && m->now < o->believes && m->server.token != o->token)
            violated(&m->play, "tick %" PRId64 ": owner %d believes in %d, and the server has %d",
                     m->now, i, o->token, m->server.token);
    }
}

static void tick(struct model *m) {
    m->now++;
    deliver(m);
    send_late_releases(m);
    check(m);
}

/* Everything arrives, owners end what they hold: then nothing may be left that no lease ends. */
static void wind_up(struct model *m) {
    for (int i = 0; i < OWNERS; i++) {
        struct owner *o = &m->owners[i];
        if (o->state != IDLE)
            owe_release(m, o->token, surely_over(o));
        *o = (struct owner){.ahead = o->ahead};
    }
    for (int i = 0; i < 2 * LEASE + STUCK_MAX + 100 && going_well(&m->play); i++)
        tick(m);
    if (going_well(&m->play) && m->server.token != 0)
        violated(&m->play, "%d is held for nobody", m->server.token);
}

static void run(void *arg, int discipline) {
    struct model *m = arg;
    struct play play = m->play;
    uint64_t counts[] = {m->held,     m->resent,  m->late,    m->lost,
                         m->extended, m->settled, m->stepped, m->permanent};
    memset(m, 0, sizeof *m);
    m->play = play;
    m->held = counts[0], m->resent = counts[1], m->late = counts[2], m->lost = counts[3];
    m->extended = counts[4], m->settled = counts[5], m->stepped = counts[6];
    m->permanent = counts[7];
    m->discipline = discipline;
    m->now = 1000;
    for (int i = 0; i < STEPS && going_well(&m->play); i++) {
        unsigned what = roll(&m->play, 40);
        if (what == 0)
            step_clock(m);
        else if (what < 20)
            act(m, (int)roll(&m->play, OWNERS));
        else
            for (unsigned ticks = 1 + roll(&m->play, 3); ticks > 0 && going_well(&m->play); ticks--)
                tick(m);
    }
    if (going_well(&m->play))
        wind_up(m);
}

static int open_group(void **state) {
    (void)state;
    play_open(&model.play, NULL, &model, run);
    return 0;
}

/* ---- Tests ---- */

CASE(S50_careful_clients_never_share_the_lock) {
    uint64_t schedules = play_many(&model.play, CAREFUL, 20000);
    printf("%" PRIu64 " schedules: held %" PRIu64 ", resent %" PRIu64 ", lost %" PRIu64
           ", extended %" PRIu64 ", settled %" PRIu64 ", clock stepped %" PRIu64
           ", without a lease %" PRIu64 "\n",
           schedules, model.held, model.resent, model.lost, model.extended, model.settled,
           model.stepped, model.permanent);
    assert_true(model.held > 0 && model.resent > 0 && model.lost > 0 && model.extended > 0);
    assert_true(model.settled > 0 && model.stepped > 0 && model.permanent > 0);
}

CASE(S50_careful_clients_without_scripts) {
    uint64_t extended = model.extended;
    play_many(&model.play, CAREFUL_NATIVE, 20000);
    assert_true(model.extended > extended);
}

CASE(S50_extensions_without_scripts_trusted_whole_go_wrong) {
    play_until_wrong(&model.play, TRUSTS_NATIVE);
}

CASE(S50_short_renewals_without_scripts_go_wrong) {
    play_until_wrong(&model.play, SHORT_NATIVE_RENEWALS);
}

CASE(S50_reused_tokens_go_wrong) {
    play_until_wrong(&model.play, REUSED_TOKENS);
}

CASE(S50_renewals_by_pxat_go_wrong) {
    play_until_wrong(&model.play, RENEWS_BY_PXAT);
}

CASE(S50_trusting_a_later_copy_goes_wrong) {
    play_until_wrong(&model.play, TRUSTS_RESENDS);
}

CASE(S50_renewals_that_shorten_go_wrong) {
    play_until_wrong(&model.play, RENEWS_BY_PX);
}

CASE(S50_unsettled_copies_go_wrong) {
    play_until_wrong(&model.play, NEVER_SETTLES);
}

CASE(S50_an_old_reading_of_the_clock_goes_wrong) {
    play_until_wrong(&model.play, NEVER_ASKS_TIME);
}

CASE(S50_a_first_step_without_an_end_goes_wrong) {
    play_until_wrong(&model.play, ONE_STEP);
}

RUN_CASES(open_group, NULL)
