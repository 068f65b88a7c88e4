/* How long a client may trust its session: every order of events there is, up to a time, not some at random.
 *
 * The world is a client with a session, and three servers, two of which make a quorum. Server 0
 * leads. 1 and 2 may follow a new leader, 1, at any moment; 0 does not hear of it, and goes on. The
 * client talks to server 2, or to 0, and may connect again whenever it likes. Nobody is punctual:
 * whatever is on its way arrives at any later time or never, in order between two servers; the
 * leader's own steps, too, may be put off for ever. So a server that is stopped, packets that are
 * lost in one direction, and a leader that pings too late are all in it.
 *
 * As servers do it, a leader answers a handshake without asking anybody, and sets the session's time anew, unless it is
 * about to end the session for good; ending it is three steps: its time is over, it is marked, and a quorum has
 * committed that. A follower has one handshake of a session pending, which any answer about the session completes.
 *
 * The rule that the library keeps to is its own arithmetic (zk/session/session_validity.h). It must
 * never trust a session that is over. The others are what was thought to be enough, and of each the
 * search finds why not. One thread, no server. */
#include "support/case.h"
#include "zk/session/session_validity.h"

enum { END = 10, CONNECTS = 3, QUEUE = 3, UNIT_MS = 1000, DRIFT_PPM = 1000 };

enum rule {
    LIBRARY,
    /* as the library, but */
    AT_ONCE,       /* a handshake counts when it is answered */
    ANY_ANSWER,    /* whatever the leader itself answers counts, too */
    LATEST_T,      /* with the timeout that was granted last */
    WITHOUT_CHAIN, /* a handshake and a commit save a session, however late */
    PUNCTUAL /* what was committed proves what was sent a quarter of T before, as if the leader pinged in time */
};

enum place { NOWHERE, FOLLOWER, LEADER }; /* server 2, which follows 0 or then 1; server 0 */
enum phase {
    GREETING,
    WELCOME,
    OPEN
}; /* a handshake is on its way; so is its answer; it has come */
enum way { IDLE, ASKED, ANSWERED };
enum item { NOTHING, HANDSHAKE, REQUEST };
enum status { ALIVE, OVER, MARKED };

struct tracker {
    unsigned expires : 5, status : 2;
};

/* 64 bits, all of which are compared. */
struct state {
    /* the client */
    unsigned long long good_until : 5, place : 2, phase : 2, greeted : 4, proved : 1, shorter : 1,
        commit : 2, commit_sent : 4, ping : 2, connects : 2;
    /* what a follower, or the client itself, has sent to the leader */
    unsigned long long first : 2, second : 2, third : 2, ping_sent : 4;
    /* the servers */
    unsigned long long now : 4, left_1 : 1, left_2 : 1, leads : 1, closed : 1;
    unsigned long long expires_1 : 5, status_1 : 2, expires_2 : 5, status_2 : 2, unused : 6;
};
_Static_assert(sizeof(struct state) == 8, "a state is a number");

struct world {
    enum rule rule;
    unsigned created,
        granted; /* the session's timeout as it was made with, and as servers grant it later */
    uint64_t *seen;
    size_t seen_len, seen_cap;
    struct state *stack;
    size_t stack_len, stack_cap;
    struct state wrong;
    bool found;
    uint64_t proofs, later_proofs, closed, late;
};

/* ---- The search -------------------------------------------------------------------------------- */

static uint64_t number_of(const struct state *s) {
    uint64_t number;
    memcpy(&number, s, sizeof number);
    return number;
}

static bool insert(uint64_t *table, size_t cap, uint64_t number) {
    size_t at = (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (cap - 1);
    while (table[at] != 0 && table[at] != number)
        at = (at + 1) & (cap - 1);
    bool is_new = table[at] == 0;
    table[at] = number;
    return is_new;
}

static void grow(struct world *w) {
    size_t cap = w->seen_cap == 0 ? 1 << 16 : 2 * w->seen_cap;
    uint64_t *table = calloc(cap, sizeof *table);
    assert_non_null(table);
    for (size_t i = 0; i < w->seen_cap; i++)
        if (w->seen[i] != 0)
            insert(table, cap, w->seen[i]);
    free(w->seen);
    w->seen = table;
    w->seen_cap = cap;
}

/* Trust in a session that is over is what must not be. */
static void visit(struct world *w, struct state s) {
    if (2 * w->seen_len >= w->seen_cap)
        grow(w);
    if (!insert(w->seen, w->seen_cap, number_of(&s)))
        return;
    w->seen_len++;
    w->closed += s.closed;
    if (s.closed && s.now < s.good_until && !w->found) {
        w->found = true;
        w->wrong = s;
    }
    if (w->stack_len == w->stack_cap) {
        w->stack_cap = w->stack_cap == 0 ? 1024 : 2 * w->stack_cap;
        w->stack = realloc(w->stack, w->stack_cap * sizeof *w->stack);
        assert_non_null(w->stack);
    }
    w->stack[w->stack_len++] = s;
}

/* ---- The client -------------------------------------------------------------------------------- */

static struct hfi_zk_validity trust_of(const struct world *w, const struct state *s) {
    struct hfi_zk_validity trust;
    unsigned timeout = s->shorter && w->granted < w->created ? w->granted : w->created;
    hfi_zk_validity_begin(&trust, timeout * UNIT_MS, DRIFT_PPM,
                          ((int64_t)s->good_until - timeout) * UNIT_MS);
    trust.greeted_ms = (int64_t)s->greeted * UNIT_MS;
    trust.proved = s->proved;
    return trust;
}

static void take_trust(struct state *s, const struct hfi_zk_validity *trust) {
    s->good_until = (unsigned)((trust->good_until_ms + UNIT_MS - 1) / UNIT_MS);
    s->proved = trust->proved;
}

static void trusts_until(struct state *s, unsigned until) {
    if (until > s->good_until)
        s->good_until = until;
}

static void handshake_answered(const struct world *w, struct state *s) {
    s->phase = OPEN;
    if (w->rule == LIBRARY) {
        struct hfi_zk_validity trust = trust_of(w, s);
        hfi_zk_validity_connected(&trust, (int64_t)w->granted * UNIT_MS,
                                  (int64_t)s->greeted * UNIT_MS);
        s->shorter = 1;
        take_trust(s, &trust);
    } else {
        s->proved = 0;
        if (w->rule == AT_ONCE && s->now < s->good_until)
            trusts_until(s, s->greeted + w->granted);
    }
}

static void commit_answered(struct world *w, struct state *s) {
    unsigned before = s->good_until;
    if (w->rule == LIBRARY) {
        struct hfi_zk_validity trust = trust_of(w, s);
        hfi_zk_validity_committed(&trust, (int64_t)s->now * UNIT_MS);
        take_trust(s, &trust);
    } else if (w->rule == PUNCTUAL) {
        if (s->now < s->good_until && s->commit_sent > 0)
            trusts_until(s, s->commit_sent - 1 + w->granted);
    } else if (w->rule == WITHOUT_CHAIN || s->now < s->good_until) {
        trusts_until(s, s->greeted + w->granted);
    }
    w->proofs += s->good_until > before;
    w->later_proofs += s->good_until > before && s->leads;
    w->late += s->good_until == before && !s->proved;
    s->commit = IDLE;
}

static void drop_queue(struct state *s) {
    s->first = s->second = s->third = NOTHING;
}

static void push(struct state *s, enum item item) {
    if (s->first == NOTHING)
        s->first = item;
    else if (s->second == NOTHING)
        s->second = item;
    else
        s->third = item;
}

static bool has_room(const struct state *s) {
    return s->third == NOTHING;
}

/* What the last connection has sent to its server may still arrive: at the same server nothing overtakes it. Requests
 * of it are nobody's any more. */
static void connect_to(struct world *w, struct state s, enum place place) {
    bool serves = place == LEADER || !s.left_2 || s.leads;
    if (!serves || s.connects == CONNECTS)
        return;
    if (s.place != place || place == LEADER)
        drop_queue(&s);
    if (!has_room(&s))
        return;
    s.place = place;
    s.phase = GREETING;
    s.greeted = s.now;
    s.proved = 0;
    s.commit = s.ping = IDLE;
    s.commit_sent = s.ping_sent = 0;
    s.connects++;
    push(&s, HANDSHAKE);
    visit(w, s);
}

static void client_moves(struct world *w, const struct state *s) {
    struct state next;
    connect_to(w, *s, FOLLOWER);
    connect_to(w, *s, LEADER);
    if (s->place == NOWHERE)
        return;
    if (s->phase == WELCOME) {
        next = *s;
        handshake_answered(w, &next);
        visit(w, next);
    }
    if (s->phase == OPEN && s->commit == IDLE && has_room(s)) {
        next = *s;
        next.commit = ASKED;
        next.commit_sent = s->now;
        push(&next, REQUEST);
        visit(w, next);
    }
    if (s->commit == ANSWERED) {
        next = *s;
        commit_answered(w, &next);
        next.commit_sent = 0;
        visit(w, next);
    }
    if (w->rule != ANY_ANSWER || s->phase != OPEN || s->place != LEADER)
        return;
    if (s->ping == IDLE) { /* who leads answers it, no matter who else does by now */
        next = *s;
        next.ping = ANSWERED;
        next.ping_sent = s->now;
        visit(w, next);
    } else if (s->now < s->good_until) {
        next = *s;
        trusts_until(&next, s->ping_sent + w->granted);
        next.ping = IDLE;
        next.ping_sent = 0;
        visit(w, next);
    }
}

/* ---- The servers ------------------------------------------------------------------------------- */

static bool is_second(const struct state *s) {
    return s->place == FOLLOWER && s->left_2;
}

static struct tracker tracker_of(const struct state *s, bool second) {
    return second ? (struct tracker){s->expires_2, s->status_2}
                  : (struct tracker){s->expires_1, s->status_1};
}

static void set_tracker(struct state *s, bool second, struct tracker tracker) {
    if (second) {
        s->expires_2 = tracker.expires;
        s->status_2 = tracker.status;
    } else {
        s->expires_1 = tracker.expires;
        s->status_1 = tracker.status;
    }
}

/* Two servers of three: 0 needs one that has not left it. */
static bool has_quorum(const struct state *s, bool second) {
    return second ? s->leads : !s->left_1 || !s->left_2;
}

/* The leader that the client's server talks to, or is, takes what comes first. A session that is over is refused. */
static void leader_takes(struct world *w, struct state s) {
    bool second = is_second(&s);
    struct tracker tracker = tracker_of(&s, second);
    enum item item = (enum item)s.first;
    if (item == NOTHING)
        return;
    s.first = s.second;
    s.second = s.third;
    s.third = NOTHING;
    bool lives = tracker.status != MARKED && !(second && s.closed);
    if (item == HANDSHAKE && lives) {
        tracker.expires = s.now + w->granted;
        set_tracker(&s, second, tracker);
        if (s.phase == GREETING)
            s.phase = WELCOME;
    } else if (item == REQUEST && lives && has_quorum(&s, second) && s.commit == ASKED) {
        s.commit = ANSWERED;
    }
    visit(w, s);
}

static void leader_ends(struct world *w, struct state s, bool second) {
    struct tracker tracker = tracker_of(&s, second);
    if (tracker.status == ALIVE && s.now >= tracker.expires)
        tracker.status = OVER;
    else if (tracker.status == OVER)
        tracker.status = MARKED;
    else if (tracker.status == MARKED && has_quorum(&s, second) && !s.closed)
        s.closed = 1;
    else
        return;
    set_tracker(&s, second, tracker);
    visit(w, s);
}

/* A server that leaves closes the connections of its clients. */
static void leave(struct world *w, struct state s, int server) {
    if (server == 1 ? s.left_1 : s.left_2)
        return;
    if (server == 1)
        s.left_1 = 1;
    else
        s.left_2 = 1;
    if (server == 2 && s.place == FOLLOWER) {
        s.place = NOWHERE;
        s.commit = s.ping = IDLE;
        s.commit_sent = s.ping_sent = 0;
        drop_queue(&s);
    }
    visit(w, s);
}

/* The new leader knows what was stored when the session was made. */
static void lead(struct world *w, struct state s) {
    if (!s.left_1 || !s.left_2 || s.leads)
        return;
    s.leads = 1;
    s.expires_2 = s.now + w->created;
    s.status_2 = s.closed ? MARKED : ALIVE;
    visit(w, s);
}

/* ---- All of it --------------------------------------------------------------------------------- */

static void pass_time(struct world *w, struct state s) {
    if (s.now == END)
        return;
    s.now++;
    visit(w, s);
}

static void expand(struct world *w, const struct state *s) {
    client_moves(w, s);
    leader_takes(w, *s);
    leader_ends(w, *s, false);
    if (s->leads)
        leader_ends(w, *s, true);
    leave(w, *s, 1);
    leave(w, *s, 2);
    lead(w, *s);
    pass_time(w, *s);
}

/* Until something is wrong, or there is nothing more. */
static struct world search(enum rule rule, unsigned created, unsigned granted) {
    struct world w = {.rule = rule, .created = created, .granted = granted};
    struct state begin = {.good_until = created,
                          .place = FOLLOWER,
                          .phase = OPEN,
                          .proved = 1,
                          .expires_1 = created,
                          .status_1 = ALIVE};
    visit(&w, begin);
    while (w.stack_len > 0 && !w.found) {
        struct state s = w.stack[--w.stack_len];
        expand(&w, &s);
    }
    free(w.seen);
    free(w.stack);
    return w;
}

static void assert_right(unsigned created, unsigned granted) {
    struct world w = search(LIBRARY, created, granted);
    printf(
        "made with %u, granted %u later: %zu states, %llu proofs, %llu of them by the next leader, "
        "%llu that came late, %llu states in which it is over\n",
        created, granted, w.seen_len, (unsigned long long)w.proofs,
        (unsigned long long)w.later_proofs, (unsigned long long)w.late,
        (unsigned long long)w.closed);
    assert_false(w.found);
    assert_true(w.proofs > 0 && w.later_proofs > 0 && w.late > 0 && w.closed > 0);
}

CASE(the_library_trusts_no_session_that_is_over) {
    assert_right(4, 4);
    assert_right(2, 4);
}

static void assert_wrong(enum rule rule, unsigned created, unsigned granted) {
    struct world w = search(rule, created, granted);
    printf("after %zu states: at %u it is over, and trusted until %u%s\n", w.seen_len,
           (unsigned)w.wrong.now, (unsigned)w.wrong.good_until,
           w.wrong.leads ? ", with another leader" : "");
    assert_true(w.found);
}

#define GOES_WRONG(name, rule, created, granted)                                                   \
    CASE(name) {                                                                                   \
        assert_wrong(rule, created, granted);                                                      \
    }

/* What is taken for granted: a server that grants less than the last one did, and whose answer is lost. */
GOES_WRONG(servers_with_other_limits, LIBRARY, 4, 2)

GOES_WRONG(a_handshake_that_counts_at_once, AT_ONCE, 4, 4)
GOES_WRONG(any_answer_of_the_leader, ANY_ANSWER, 4, 4)
GOES_WRONG(the_latest_timeout, LATEST_T, 2, 4)
GOES_WRONG(a_handshake_that_comes_too_late, WITHOUT_CHAIN, 4, 4)
GOES_WRONG(a_leader_that_is_counted_on, PUNCTUAL, 4, 4)

/* By two clocks, of which ours is the slower one; and by the shortest timeout that any server has granted. */
CASE(a_proof_lasts_the_timeout_less_the_drift) {
    enum { PPM = 20000 };
    struct hfi_zk_validity validity;
    hfi_zk_validity_begin(&validity, 10000, PPM, 1000);
    assert_in_range(validity.good_until_ms, 1000 + 9700, 1000 + 9800);
    hfi_zk_validity_connected(&validity, 10000, 5000);
    hfi_zk_validity_committed(&validity, 5100);
    assert_in_range(validity.good_until_ms, 5000 + 9700, 5000 + 9800);
    hfi_zk_validity_connected(&validity, 6000, 7000);
    assert_in_range(validity.good_until_ms, 5000 + 5780, 5000 + 5880);
    hfi_zk_validity_committed(&validity, 7100);
    assert_in_range(validity.good_until_ms, 7000 + 5780, 7000 + 5880);
    hfi_zk_validity_connected(&validity, 10000, 8000);
    hfi_zk_validity_committed(&validity, 8100);
    assert_in_range(validity.good_until_ms, 8000 + 5780, 8000 + 5880);
}

RUN_CASES(NULL, NULL)
