/*
 * Winning a hold: on the keeper's thread, driven by the members' answers and the ballot's alarm.
 *
 *     ASKING ──▶ a majority has granted it: won
 *        │ ▲
 *        │ ├── KEEPING   the first server is ours: ask the others again, for some round trips
 *        ├─┼── WAITING   the first is another's: give everything back, wait there like any waiter
 *        │ ├── PAUSING   too few have answered, or keeping failed, or late answers keep us out, not
 *        │ │             another owner: give everything back, then ask all again
 *        │ └── AGEING    a majority has granted it, but some of them have restarted a moment ago
 *        ▼
 *     too late, cancelled, closed, or a single attempt: give everything back
 *
 * "First" is by an order that all clients share. If several clients have split the servers, one
 * keeps what it has and the others give way, without a random pause. A server known to be slow is
 * waited for only if there is no majority without it.
 */
#include "base/jitter.h"
#include "joint/quorum/quorum_impl.h"

#include <string.h>

#define PROVE_AGAIN_MS 1000 /* a hold that lasts longer is proved again after this */
#define KEEP_MIN_US 10000
#define KEEP_MAX_US 500000
#define KEEP_PAUSE_US 1000 /* between two rounds, or two round trips if those are longer */
#define PAUSE_MAX_US 500000
#define PROBE_MS 10000 /* how long to wait at one server before another is probed, too */
/* how long to wait before all are asked again, if too few were busy to know that it is held */
#define UNSURE_MS 1000
#define CHECK_MS 250 /* how often to check the server at which we wait */
#define SIGN_MS 5000 /* the longest alarm interval, which shows that it is not stuck */
#define GRACE_MS 1000
#define AGEING_MS 50   /* between two renewals, if the reason is not a server's age */
#define STALLED_MS 500 /* a server stalled for longer is not waited at */

static void ask_all(struct hfi_request *request);

static int64_t random_between(const struct hfi_request *request, int64_t from, int64_t to) {
    return from + (int64_t)(hfi_jitter_bits(request) % (uint64_t)(to - from + 1));
}

/* When the wait is over. Even a short wait has time for one exchange, to see whether a majority
 * answers. */
static int64_t ends_ms(const struct hfi_request *request) {
    bool answered = request->acquire.phase != HFI_PHASE_ASKING ||
                    request->acquire.majority_us != 0 ||
                    request->acquire.answered_ms > request->start_ms;
    int64_t exchange_ms = hfi_after_ms(request->start_ms, request->quorum->config.cmd_timeout_ms);
    return answered || request->deadline_ms > exchange_ms ? request->deadline_ms : exchange_ms;
}

/* Sets the alarm for then, or for the end of the wait. */
static void check_at_ms(struct hfi_request *request, int64_t now_us, int64_t at_ms) {
    if (at_ms > now_us / 1000 + SIGN_MS)
        at_ms = now_us / 1000 + SIGN_MS;
    if (!request->acquire.one_attempt && ends_ms(request) < at_ms)
        at_ms = ends_ms(request);
    atomic_store(&request->call_status->due_ms, at_ms + GRACE_MS);
    hfi_alarm_set(request->quorum->keeper, &request->ballot->alarm, at_ms);
}

static void check_after_us(struct hfi_request *request, int64_t pause_us) {
    int64_t now_us = hfi_now_us();
    check_at_ms(request, now_us, (now_us + pause_us + 999) / 1000);
}

/* Rounds down: alarms have millisecond resolution, and a client that keeps others waiting rather
 * looks too early. */
static void check_soon_us(struct hfi_request *request, int64_t pause_us) {
    int64_t now_us = hfi_now_us();
    check_at_ms(request, now_us, (now_us + pause_us) / 1000);
}

static void leave(struct hfi_request *request) {
    struct hfi_ballot *ballot = request->ballot;
    hfi_alarm_clear(request->quorum->keeper, &ballot->alarm);
    ballot->request = NULL;
}

/* ---- The end ---- */

static void fail(struct hfi_request *request, int err) {
    struct hfi_ballot *ballot = request->ballot;
    hfi_error_text_of_servers(request, err);
    leave(request);
    hfi_ballot_give_back(ballot);
    hfi_ballot_stop_asking(ballot);
    hfi_request_finish(request, err);
    hfi_ballot_tidy(ballot);
}

static void stop(struct hfi_request *request, int err) {
    if (request->ballot != NULL)
        fail(request, err);
    else
        hfi_request_finish(request, err);
}

/* True: it was won. */
static bool won(struct hfi_request *request) {
    struct hfi_ballot *ballot = request->ballot;
    int64_t now_ms = hfi_now_ms(), deadline_ms = hfi_votes_deadline_ms(&ballot->votes, now_ms);
    if (deadline_ms <= now_ms)
        return false;
    if (ballot->held_as->token) {
        ballot->token = hfi_token_agreed(ballot, request->lease_ms);
        if (ballot->token == 0)
            return false;
    }
    request->token = ballot->token;
    hfi_votes_won(&ballot->votes, now_ms);
    ballot->count = request->value = 1;
    ballot->lease_ms = request->lease_ms;
    request->votes = (int64_t)hfi_votes_count(&ballot->votes, now_ms);
    request->proof = hfi_ballot_proof(ballot, request->lease_ms);
    /* until it is proved again, servers that join now do not make up for one of these */
    if (request->proof.renew_at_ms > now_ms + PROVE_AGAIN_MS)
        request->proof.renew_at_ms = now_ms + PROVE_AGAIN_MS;
    leave(request);
    hfi_alarm_set(ballot->quorum->keeper, &ballot->end_alarm, deadline_ms);
    hfi_request_finish(request, HF_OK);
    return true;
}

/* ---- Phases ---- */

/* Asks the servers that have not granted it. */
static void ask_others(struct hfi_request *request) {
    struct hfi_ballot *ballot = request->ballot;
    request->acquire.phase = HFI_PHASE_ASKING;
    request->acquire.began_us = hfi_now_us();
    request->acquire.majority_us = 0;
    ballot->wanted = true;
    ballot->round++;
    for (size_t k = 0; k < request->quorum->len; k++) {
        size_t i = ballot->order[k];
        struct hfi_member_vote *member_vote = &ballot->member_votes[i];
        if (ballot->votes.of[i].held)
            continue;
        if (member_vote->member_op != NULL && member_vote->member_op->kind == HFI_MEMBER_ACQUIRE)
            continue; /* it has not answered the last acquire */
        member_vote->answer = HFI_UNASKED;
        if (!hfi_member_vote_send(ballot, i, HFI_MEMBER_ACQUIRE, 0, request->lease_ms)) {
            member_vote->answer = HFI_FAILED;
            member_vote->code = HF_ENOMEM;
        }
    }
    /* by then all have answered, or failed */
    int64_t most_us = 2 * request->quorum->config.cmd_timeout_ms * 1000;
    if (request->acquire.one_attempt && request->acquire.late_rounds > 0)
        most_us = hfi_attempt_ends_us(request) - hfi_now_us();
    check_after_us(request, most_us);
}

static void ask_all(struct hfi_request *request) {
    request->acquire.keep_until_us = 0;
    ask_others(request);
}

static void pause_us(struct hfi_request *request, int64_t pause) {
    hfi_ballot_give_back(request->ballot);
    request->acquire.phase = HFI_PHASE_PAUSING;
    request->acquire.keep_until_us = 0;
    check_after_us(request, pause);
}

/* The first server, in the order of this name, that has answered; or the first busy one. */
static size_t first_in_order(const struct hfi_ballot *ballot, bool busy) {
    for (size_t k = 0; k < ballot->quorum->len; k++) {
        size_t i = ballot->order[k];
        enum hfi_answer answer = ballot->member_votes[i].answer;
        if (answer == HFI_BUSY || (answer == HFI_GRANTED && !busy))
            return i;
    }
    return ballot->order[0];
}

/* Whether a majority was busy, each by its last answer. */
static bool is_known_held(const struct hfi_ballot *ballot) {
    size_t busy = 0;
    for (size_t i = 0; i < ballot->quorum->len; i++)
        busy += ballot->member_votes[i].code == HF_EBUSY;
    return busy >= ballot->quorum->majority;
}

/* Of one attempt. If no server has said that another owner is there, the answers came too late:
 * their leases were over. */
static int why_lost(const struct hfi_ballot *ballot) {
    for (size_t i = 0; i < ballot->quorum->len; i++)
        if (ballot->member_votes[i].known)
            return HF_EBUSY;
    return HF_ETIMEDOUT;
}

static int64_t next_probe_us(const struct hfi_request *request) {
    return hfi_now_us() + random_between(request, PROBE_MS, PROBE_MS * 5 / 4) * 1000;
}

static void wait_at(struct hfi_request *request, size_t i) {
    struct hfi_ballot *ballot = request->ballot;
    int64_t wait_ms = request->deadline_ms - hfi_now_ms();
    request->acquire.unsure = !is_known_held(ballot);
    if (request->acquire.unsure && wait_ms > UNSURE_MS)
        wait_ms = random_between(request, UNSURE_MS, UNSURE_MS * 5 / 4);
    request->acquire.phase = HFI_PHASE_WAITING;
    request->acquire.waits_at = request->acquire.probes_at = i;
    request->acquire.probe_us = next_probe_us(request);
    ballot->wanted = true;
    if (hfi_member_vote_send(ballot, i, HFI_MEMBER_ACQUIRE, wait_ms > 0 ? wait_ms : 1,
                             request->lease_ms))
        check_after_us(request, CHECK_MS * 1000);
    else
        fail(request, HF_ENOMEM);
}

/* One attempt goes on, in rounds, while it can still be won by answers that have not come. */
static bool is_undecided(const struct hfi_request *request, const struct hfi_tally *tally) {
    return hfi_tally_is_open(request, tally) && hfi_now_us() < hfi_attempt_ends_us(request);
}

/* Gives everything back: the owner of the first server keeps what it has. */
static void wait_for_first(struct hfi_request *request) {
    size_t i = first_in_order(request->ballot, true);
    const struct hfi_member_op *member_op = request->ballot->member_votes[i].member_op;
    request->contended = true;
    hfi_ballot_give_back(request->ballot);
    if (member_op == NULL)
        wait_at(request, i);
    else
        pause_us(request, HFI_GRACE_US); /* it was asked meanwhile */
}

/* The next server after `i` that was busy by its last answer. */
static size_t next_busy(const struct hfi_ballot *ballot, size_t i) {
    size_t len = ballot->quorum->len, at = 0;
    while (ballot->order[at] != i)
        at++;
    for (size_t k = 1; k < len; k++) {
        size_t next = ballot->order[(at + k) % len];
        if (ballot->member_votes[next].code == HF_EBUSY &&
            ballot->member_votes[next].member_op == NULL)
            return next;
    }
    return i;
}

/* No other owner keeps us out: ask again, and wait longer for late answers. */
static void ask_late_ones_again(struct hfi_request *request) {
    unsigned late = request->acquire.late_rounds++;
    pause_us(request, random_between(request, 0, hfi_doubled_us(HFI_GRACE_US, late, PAUSE_MAX_US)));
}

static int64_t longer_pause_us(int64_t pause_us, int64_t rtt_us) {
    int64_t most_us = hfi_max_ms(KEEP_PAUSE_US, 2 * rtt_us);
    return 2 * pause_us < most_us ? 2 * pause_us : most_us;
}

/* The first server is ours, so a competitor gives way. If an owner keeps the others for longer than
 * that takes, it holds the lock without the first one, and is waited for. If answers are missing
 * that would be a majority with ours, they get more time in the next round. */
static void keep(struct hfi_request *request, const struct hfi_tally *tally) {
    struct hfi_quorum *quorum = request->quorum;
    int64_t now_us = hfi_now_us(), rtt_us = hfi_members_rtt_us(quorum);
    request->contended = true;
    if (request->acquire.keep_until_us == 0) {
        int64_t keep_us = 6 * rtt_us;
        keep_us = keep_us < KEEP_MIN_US   ? KEEP_MIN_US
                  : keep_us > KEEP_MAX_US ? KEEP_MAX_US
                                          : keep_us;
        request->acquire.keep_until_us = now_us + keep_us;
        request->acquire.keep_pause_us = rtt_us / 2;
    }
    if (now_us < request->acquire.keep_until_us) {
        request->acquire.phase = HFI_PHASE_KEEPING;
        check_soon_us(request, request->acquire.keep_pause_us);
        request->acquire.keep_pause_us = longer_pause_us(request->acquire.keep_pause_us, rtt_us);
    } else if (request->acquire.one_attempt && !is_undecided(request, tally)) {
        fail(request, why_lost(request->ballot));
    } else if (!request->acquire.one_attempt && is_known_held(request->ballot)) {
        wait_for_first(request);
    } else if (hfi_tally_is_open(request, tally)) {
        ask_late_ones_again(request);
    } else {
        unsigned lost = request->acquire.rounds_lost++;
        pause_us(request,
                 random_between(request, 0, hfi_doubled_us(2 * rtt_us, lost, PAUSE_MAX_US)));
    }
}

/* A majority has granted it, but not all of them have been up for long enough. */
static void wait_for_age(struct hfi_request *request) {
    int64_t now_ms = hfi_now_ms(), at_ms = hfi_votes_of_age_ms(&request->ballot->votes);
    if (request->acquire.one_attempt || at_ms > request->deadline_ms) {
        fail(request, HF_ENOQUORUM);
        return;
    }
    request->acquire.phase = HFI_PHASE_AGEING;
    /* else the token is missing, or a renewal was not answered in time */
    int64_t pause_ms = at_ms > now_ms ? at_ms - now_ms : AGEING_MS;
    int64_t renew_ms = hfi_votes_period_ms(&request->ballot->votes, request->lease_ms);
    check_after_us(request, (pause_ms < renew_ms ? pause_ms : renew_ms) * 1000);
}

/* Renews the grants so far, and asks the others. */
static void renew_young(struct hfi_request *request) {
    struct hfi_ballot *ballot = request->ballot;
    ask_others(request);
    for (size_t i = 0; i < request->quorum->len; i++)
        if (ballot->votes.of[i].held && ballot->member_votes[i].member_op == NULL)
            hfi_member_vote_send(ballot, i, HFI_MEMBER_EXTEND, 0, request->lease_ms);
}

/* No majority answers: retry until the wait is over, or for connect_timeout_ms without a
 * majority. */
static void retry(struct hfi_request *request) {
    int64_t patient_until_ms =
        hfi_after_ms(request->acquire.answered_ms, request->quorum->config.connect_timeout_ms);
    atomic_store(&request->call_status->stalled, HF_ENOQUORUM);
    atomic_store(&request->call_status->stalled_since_ms, request->acquire.answered_ms);
    hfi_report_servers(request, HF_ENOQUORUM);
    if (request->acquire.one_attempt)
        fail(request, HF_ENOQUORUM);
    else if (hfi_now_ms() >= patient_until_ms) {
        request->no_server = true;
        fail(request, HF_ENOQUORUM);
    } else
        pause_us(request, random_between(request, 50000, 100000));
}

/* The round is over without a majority for us. */
static void decide(struct hfi_request *request, const struct hfi_tally *tally) {
    const struct hfi_ballot *ballot = request->ballot;
    size_t majority = request->quorum->majority;
    hfi_log_votes(ballot);
    if (hfi_votes_holders(&ballot->votes) >= majority) {
        wait_for_age(request);
        return;
    }
    if (tally->refused > request->quorum->len - majority) {
        fail(request, tally->refusal);
        return;
    }
    if (hfi_tally_is_hopeless(request, tally)) {
        fail(request, HF_ENOQUORUM);
        return;
    }
    if (tally->answered < majority) {
        if (hfi_attempt_is_over(request))
            fail(request, why_lost(ballot));
        else
            retry(request);
        return;
    }
    request->acquire.answered_ms = hfi_now_ms();
    atomic_store(&request->call_status->stalled_since_ms, 0);
    size_t first = first_in_order(ballot, false);
    if (ballot->member_votes[first].answer == HFI_GRANTED)
        keep(request, tally);
    else if (request->acquire.one_attempt && !is_undecided(request, tally))
        fail(request, why_lost(request->ballot));
    else if (hfi_tally_is_open(request, tally))
        ask_late_ones_again(request);
    else
        wait_for_first(request);
}

static void check_answers(struct hfi_request *request) {
    struct hfi_tally tally = hfi_tally_of(request->ballot);
    int err = hfi_members_check(request->quorum, &request->error);
    if (err != HF_OK) {
        fail(request, err);
        return;
    }
    if (won(request))
        return;
    if (hfi_token_is_pending(request->ballot))
        check_after_us(request, CHECK_MS * 1000);
    else if (hfi_tally_is_over(request, &tally)) {
        hfi_tally_mark_slow(request->ballot);
        decide(request, &tally);
    } else if (request->acquire.majority_us != 0) {
        int64_t end_us = request->acquire.majority_us +
                         hfi_tally_grace_us(request, hfi_tally_is_open(request, &tally));
        check_after_us(request, end_us - hfi_now_us());
    }
}

/* Probes the next busy server, once. This finds a release or an expiry at that server only, of
 * which no message comes. */
static void probe(struct hfi_request *request) {
    struct hfi_ballot *ballot = request->ballot;
    size_t i = next_busy(ballot, request->acquire.probes_at);
    if (i == request->acquire.waits_at)
        i = next_busy(ballot, i);
    request->acquire.probe_us = next_probe_us(request);
    if (i == request->acquire.waits_at)
        return;
    request->acquire.probes_at = i;
    hfi_member_vote_send(ballot, i, HFI_MEMBER_ACQUIRE, 0,
                         request->lease_ms); /* if that fails, the next time */
}

static bool is_free_elsewhere(const struct hfi_request *request) {
    return request->acquire.probes_at != request->acquire.waits_at &&
           request->ballot->votes.of[request->acquire.probes_at].held;
}

/* While waiting at one server. */
static void check_wait(struct hfi_request *request) {
    struct hfi_ballot *ballot = request->ballot;
    const struct hfi_member_vote *member_vote = &ballot->member_votes[request->acquire.waits_at];
    if (member_vote->member_op == NULL) {
        /* granted, or the server went down, or a majority has to be found without it */
        ask_all(request);
        return;
    }
    if (is_free_elsewhere(request)) {
        hfi_member_op_stop(member_vote->member_op);
        ask_all(request);
        return;
    }
    bool doubtful = !request->acquire.unsure && !is_known_held(ballot); /* by the last probe */
    if (doubtful || hfi_member_op_stalled_ms(member_vote->member_op) > STALLED_MS)
        hfi_member_op_stop(member_vote->member_op);
    if (hfi_now_us() >= request->acquire.probe_us)
        probe(request);
    check_after_us(request, CHECK_MS * 1000);
}

/* The error at the deadline: another owner has it, or too few servers are reachable. */
static int late_code(const struct hfi_request *request) {
    struct hfi_tally tally = hfi_tally_of(request->ballot);
    if (hfi_votes_holders(&request->ballot->votes) >= request->quorum->majority)
        return HF_ENOQUORUM; /* no other owner has it: some of these are too young to count */
    bool answered = request->acquire.phase == HFI_PHASE_WAITING ||
                    request->acquire.phase == HFI_PHASE_KEEPING ||
                    tally.answered >= request->quorum->majority;
    if (request->acquire.phase == HFI_PHASE_PAUSING ||
        (tally.answered < request->quorum->majority && !answered))
        answered = request->acquire.answered_ms > request->start_ms;
    return answered ? HF_ETIMEDOUT : HF_ENOQUORUM;
}

static bool is_due(const struct hfi_request *request) {
    return !request->ballot->alarm.timer.set;
}

static bool is_late(const struct hfi_request *request) {
    return !request->acquire.one_attempt && hfi_now_ms() >= ends_ms(request);
}

static void check(struct hfi_request *request) {
    enum hfi_acquire_phase phase = request->acquire.phase;
    if ((is_late(request) || phase == HFI_PHASE_AGEING) && won(request))
        return;
    if (is_late(request))
        fail(request, late_code(request));
    else if (phase == HFI_PHASE_ASKING)
        check_answers(request);
    else if (phase == HFI_PHASE_WAITING)
        check_wait(request);
    else if (!is_due(request))
        return;
    else if (phase == HFI_PHASE_KEEPING)
        ask_others(request);
    else if (phase == HFI_PHASE_PAUSING)
        ask_all(request);
    else
        renew_young(request);
}

/* ---- Start ---- */

/* Re-entry is local: it is enough that the hold still exists. It has one token, or none. */
static void nest(struct hfi_request *request) {
    const struct hfi_ballot *ballot = hfi_ballot_find(request->quorum, request->kind, request->name,
                                                      request->name_len, request->owner);
    if (request->kind->token && ballot != NULL && ballot->votes.won && ballot->token == 0) {
        hfi_fail(&request->error, HF_ENOTSUP, "this owner holds the lock without a token");
        hfi_request_finish(request, HF_ENOTSUP);
        return;
    }
    hfi_extend_begin(request);
}

void hfi_acquire_begin(struct hfi_request *request) {
    struct hfi_quorum *quorum = request->quorum;
    if (request->count > 0) {
        nest(request);
        return;
    }
    request->stop = stop;
    request->check = check;
    struct hfi_ballot *ballot =
        hfi_ballot_get(quorum, request->kind, request->name, request->name_len, request->owner);
    if (ballot == NULL) {
        hfi_request_finish(request, HF_ENOMEM);
        return;
    }
    hfi_ballot_ref(ballot);
    request->ballot = ballot;
    ballot->request = request;
    ballot->held_as = request->kind;
    hfi_stamp_text_unref(ballot->text);
    ballot->text = hfi_stamp_text_ref(request->text);
    ballot->token = 0;
    hfi_votes_begin(&ballot->votes);
    hfi_members_order(quorum, ballot->name, ballot->name_len, ballot->order);
    for (size_t i = 0; i < quorum->len; i++) {
        ballot->member_votes[i].answer = HFI_UNASKED;
        ballot->member_votes[i].code = HF_EUNREACH;
        ballot->member_votes[i].hopeless = false;
    }
    request->acquire.one_attempt = request->deadline_ms <= request->start_ms;
    request->acquire.answered_ms = request->start_ms;
    ask_all(request);
}
