/*
 * Ballots: what one owner has of one lock at the servers, with a vote (struct hfi_member_vote) for
 * each.
 *
 * A ballot is in the table while it is wanted, a request or round uses it, or one of its member ops
 * is in progress. A late answer finds it there: a grant that is still wanted joins the hold, any
 * other is given back. Each vote has one member op at a time. A release or a renewal may be
 * followed by another member op before it has ended (the member's core keeps their order); its
 * result is then ignored.
 *
 * On the keeper's thread.
 */
#include "joint/quorum/quorum_impl.h"

#include <string.h>

#define AGAIN_MS 1000 /* retry interval after a member op could not be allocated */

/* Two kinds have ballots of their own if they differ in their part, of which one byte is enough. */
static size_t place_len_of(size_t name_len) {
    return name_len + 1 + sizeof(hf_owner) + 1;
}

static void write_place(char *place, const struct hfi_kind *kind, const char *name, size_t name_len,
                        hf_owner owner) {
    memcpy(place, name, name_len);
    place[name_len] = '\0';
    memcpy(place + name_len + 1, &owner, sizeof owner);
    place[name_len + 1 + sizeof owner] = hfi_kind_part(kind)[0];
}

static struct hfi_ballot *find(struct hfi_quorum *quorum, const char *place, size_t place_len) {
    return hfi_ballot_of(hfi_table_find(&quorum->table, place, place_len));
}

struct hfi_ballot *hfi_ballot_find(struct hfi_quorum *quorum, const struct hfi_kind *kind,
                                   const char *name, size_t name_len, hf_owner owner) {
    char small[256];
    size_t place_len = place_len_of(name_len);
    char *place = place_len <= sizeof small ? small : hfi_alloc(quorum->mem, place_len);
    if (place == NULL)
        return NULL;
    write_place(place, kind, name, name_len, owner);
    struct hfi_ballot *ballot = find(quorum, place, place_len);
    if (place != small)
        hfi_free(quorum->mem, place);
    return ballot;
}

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_ballot_check(HFI_CONTAINER(alarm, struct hfi_ballot, alarm));
}

static void round_alarm_fired(struct hfi_alarm *alarm) {
    hfi_ballot_check(HFI_CONTAINER(alarm, struct hfi_ballot, round_alarm));
}

static void end_alarm_fired(struct hfi_alarm *alarm) {
    hfi_ballot_check(HFI_CONTAINER(alarm, struct hfi_ballot, end_alarm));
}

struct hfi_ballot *hfi_ballot_get(struct hfi_quorum *quorum, const struct hfi_kind *kind,
                                  const char *name, size_t name_len, hf_owner owner) {
    struct hfi_ballot *ballot = hfi_ballot_find(quorum, kind, name, name_len, owner);
    if (ballot != NULL)
        return ballot;
    size_t place_len = place_len_of(name_len);
    ballot = hfi_zalloc(quorum->mem, sizeof *ballot + place_len);
    if (ballot == NULL)
        return NULL;
    ballot->refs = 1;
    ballot->quorum = quorum;
    ballot->owner = owner;
    ballot->votes.len = quorum->len;
    ballot->votes.guard_ms = quorum->guard_ms;
    ballot->votes.clock_drift_ppm = quorum->config.clock_drift_ppm;
    hfi_votes_begin(&ballot->votes);
    hfi_list_init(&ballot->rounds);
    ballot->alarm.fire = alarm_fired;
    ballot->round_alarm.fire = round_alarm_fired;
    ballot->end_alarm.fire = end_alarm_fired;
    ballot->place = ballot->name = (char *)(ballot + 1);
    ballot->name_len = name_len;
    ballot->place_len = place_len;
    write_place(ballot->place, kind, name, name_len, owner);
    hfi_table_add(quorum->mem, &quorum->table, &ballot->keyed, ballot->place, place_len);
    return ballot;
}

void hfi_ballot_ref(struct hfi_ballot *ballot) {
    ballot->refs++;
}

void hfi_ballot_unref(struct hfi_ballot *ballot) {
    if (--ballot->refs > 0)
        return;
    hfi_stamp_text_unref(ballot->text);
    hfi_free(ballot->quorum->mem, ballot);
}

static bool is_busy(const struct hfi_ballot *ballot) {
    for (size_t i = 0; i < ballot->quorum->len; i++)
        if (ballot->member_votes[i].member_op != NULL || ballot->member_votes[i].owed)
            return true;
    return ballot->request != NULL || !hfi_list_empty(&ballot->rounds);
}

void hfi_ballot_clear_alarms(struct hfi_ballot *ballot) {
    struct hfi_exec *keeper = ballot->quorum->keeper;
    hfi_alarm_clear(keeper, &ballot->alarm);
    hfi_alarm_clear(keeper, &ballot->round_alarm);
    hfi_alarm_clear(keeper, &ballot->end_alarm);
}

void hfi_ballot_tidy(struct hfi_ballot *ballot) {
    struct hfi_quorum *quorum = ballot->quorum;
    if (!hfi_keyed_is_in_table(&ballot->keyed) || ballot->wanted || is_busy(ballot))
        return;
    hfi_ballot_clear_alarms(ballot);
    hfi_table_remove(quorum->mem, &quorum->table, &ballot->keyed);
    hfi_ballot_unref(ballot);
}

/* ---- Member ops of votes ---- */

/* Whether a grant of server `i` is kept. While waiting, only the server waited at and the probed
 * one are. */
static bool keeps(const struct hfi_ballot *ballot, size_t i) {
    const struct hfi_request *request = ballot->request;
    if (!ballot->wanted)
        return false;
    return request == NULL || request->acquire.phase != HFI_PHASE_WAITING ||
           request->acquire.waits_at == i || request->acquire.probes_at == i;
}

static void note_held(struct hfi_ballot *ballot, const struct hfi_member_op *member_op) {
    hfi_votes_held(&ballot->votes, member_op->index, member_op->sent_ms, hfi_now_ms(),
                   member_op->lease_ms, hfi_member_up_since_ms(member_op->member));
    ballot->member_votes[member_op->index].proved_round = member_op->round;
}

static bool is_asking(const struct hfi_ballot *ballot) {
    return ballot->wanted && ballot->request != NULL &&
           ballot->request->acquire.phase == HFI_PHASE_ASKING;
}

static void give_back_vote(struct hfi_ballot *ballot, size_t i) {
    ballot->member_votes[i].owed = !hfi_member_vote_send(ballot, i, HFI_MEMBER_RELEASE, 0, 0);
}

/* What a server does not support is said in its own words, if that is the result. */
static void keep_cause(struct hfi_ballot *ballot, const struct hfi_member_op *member_op) {
    if (member_op->code == HF_ENOTSUP && ballot->request != NULL)
        ballot->request->error = member_op->error;
}

static void asked(struct hfi_ballot *ballot, const struct hfi_member_op *member_op) {
    struct hfi_member_vote *member_vote = &ballot->member_votes[member_op->index];
    member_vote->code = member_op->code == HF_ETIMEDOUT ? HF_EBUSY : member_op->code;
    member_vote->hopeless = member_op->hopeless;
    member_vote->known = member_op->code == HF_EBUSY;
    if (member_op->code == HF_OK && !keeps(ballot, member_op->index)) {
        member_vote->answer = HFI_UNASKED;
        give_back_vote(ballot, member_op->index);
    } else if (member_op->code == HF_OK) {
        member_vote->answer = HFI_GRANTED;
        note_held(ballot, member_op);
        hfi_token_received(ballot, member_op);
    } else if (member_op->code == HF_EBUSY || member_op->code == HF_ETIMEDOUT) {
        member_vote->answer = HFI_BUSY;
    } else {
        member_vote->answer = member_op->code == HF_ECANCELED ? HFI_UNASKED : HFI_FAILED;
        keep_cause(ballot, member_op);
    }
    /* an acquire of the last wait was in the way of one of this round */
    if (member_op->code == HF_ECANCELED && is_asking(ballot))
        hfi_member_vote_send(ballot, member_op->index, HFI_MEMBER_ACQUIRE, 0,
                             ballot->request->lease_ms);
}

static void renewed(struct hfi_ballot *ballot, const struct hfi_member_op *member_op) {
    struct hfi_member_vote *member_vote = &ballot->member_votes[member_op->index];
    if (member_op->code == HF_OK) {
        note_held(ballot, member_op);
    } else if (member_op->code == HF_ELOST || member_op->code == HF_ENOTOWNER) {
        member_vote->answer = HFI_UNASKED;
        member_vote->code = member_op->code;
        member_vote->hopeless = false;
        hfi_votes_gone(&ballot->votes, member_op->index, hfi_now_ms(),
                       hfi_member_up_since_ms(member_op->member));
    }
    hfi_token_received(ballot, member_op);
}

static void released(struct hfi_ballot *ballot, const struct hfi_member_op *member_op) {
    struct hfi_member_vote *member_vote = &ballot->member_votes[member_op->index];
    member_vote->gone = member_op->code == HF_ELOST || member_op->code == HF_ENOTOWNER;
    member_vote->known = member_vote->gone || member_op->code == HF_OK;
}

static void vote_done(struct hfi_member_op *member_op) {
    struct hfi_ballot *ballot = member_op->ballot;
    struct hfi_member_vote *member_vote = &ballot->member_votes[member_op->index];
    if (member_vote->member_op == member_op) {
        member_vote->member_op = NULL;
        if (member_op->kind == HFI_MEMBER_ACQUIRE)
            asked(ballot, member_op);
        else if (member_op->kind == HFI_MEMBER_RELEASE)
            released(ballot, member_op);
        else if (ballot->wanted)
            renewed(ballot, member_op);
        hfi_ballot_check(ballot);
    }
    hfi_ballot_unref(ballot);
}

/* Sends an overdue release first; the member's core keeps the order. False: still no memory. */
static bool pay_back(struct hfi_ballot *ballot, size_t i) {
    if (ballot->member_votes[i].owed && ballot->member_votes[i].member_op == NULL)
        give_back_vote(ballot, i);
    return !ballot->member_votes[i].owed;
}

static bool send(struct hfi_ballot *ballot, size_t i, const struct hfi_member_op_args *what) {
    struct hfi_member_op_args args = *what;
    args.name = ballot->name;
    args.name_len = ballot->name_len;
    args.owner = ballot->owner;
    args.lock = ballot->held_as;
    args.text = args.kind == HFI_MEMBER_ACQUIRE ? ballot->text : NULL;
    if (ballot->quorum->stopped || (args.kind != HFI_MEMBER_RELEASE && !pay_back(ballot, i)))
        return false;
    struct hfi_member_op *member_op = hfi_member_op_begin(ballot->quorum, i, &args, vote_done);
    if (member_op == NULL)
        return false;
    member_op->ballot = ballot;
    member_op->round = ballot->round;
    hfi_ballot_ref(ballot);
    ballot->member_votes[i].member_op = member_op;
    return true;
}

bool hfi_member_vote_send(struct hfi_ballot *ballot, size_t i, enum hfi_member_op_kind kind,
                          int64_t wait_ms, int64_t lease_ms) {
    const struct hfi_member_op_args args = {.kind = kind, .wait_ms = wait_ms, .lease_ms = lease_ms};
    return send(ballot, i, &args);
}

bool hfi_member_vote_wish(struct hfi_ballot *ballot, size_t i, int64_t token_wish,
                          int64_t lease_ms) {
    const struct hfi_member_op_args args = {
        .kind = HFI_MEMBER_EXTEND, .lease_ms = lease_ms, .token_wish = token_wish};
    return send(ballot, i, &args);
}

/* ---- The ballot as a whole ---- */

void hfi_ballot_give_back(struct hfi_ballot *ballot) {
    ballot->wanted = false;
    ballot->votes.won = false;
    /* in order: other clients wait at the first */
    for (size_t k = 0; k < ballot->quorum->len; k++) {
        size_t i = ballot->order[k];
        struct hfi_member_vote *member_vote = &ballot->member_votes[i];
        member_vote->answer = HFI_UNASKED;
        member_vote->gone = false;
        member_vote->known = member_vote->member_op == NULL;
        if (!ballot->votes.of[i].held)
            continue;
        member_vote->known = false;
        give_back_vote(ballot, i);
    }
    hfi_votes_begin(&ballot->votes);
}

void hfi_ballot_stop_asking(struct hfi_ballot *ballot) {
    for (size_t i = 0; i < ballot->quorum->len; i++) {
        const struct hfi_member_op *member_op = ballot->member_votes[i].member_op;
        if (member_op != NULL && member_op->kind == HFI_MEMBER_ACQUIRE)
            hfi_member_op_stop(ballot->member_votes[i].member_op);
    }
}

/* Fewer than a majority have held it without a break: report the loss to the core above at once,
 * and give back the rest. */
static void lose(struct hfi_ballot *ballot) {
    const struct hfi_engine_events *engine_events = ballot->quorum->engine_events;
    char owner[HFI_OWNER_MAX];
    const struct hfi_scope scope = {
        .name = ballot->name,
        .name_len = ballot->name_len,
        .owner = owner,
        .owner_len = hfi_owner_text(&ballot->quorum->members[0]->core, ballot->owner, owner),
        .kind = ballot->held_as};
    hfi_ballot_give_back(ballot);
    hfi_rounds_end(ballot, HF_ELOST);
    engine_events->lost(engine_events->arg, &scope, HFI_LOST_TEXT);
}

/* The deadline of a hold may come nearer, when a server with a late one stops counting. */
static void watch_end(struct hfi_ballot *ballot) {
    int64_t now_ms = hfi_now_ms(), end_ms = hfi_votes_deadline_ms(&ballot->votes, now_ms);
    if (end_ms <= now_ms)
        lose(ballot);
    else
        hfi_alarm_set(ballot->quorum->keeper, &ballot->end_alarm, end_ms);
}

static void pay_all_back(struct hfi_ballot *ballot) {
    bool owed = false;
    for (size_t i = 0; i < ballot->quorum->len && !ballot->quorum->stopped; i++)
        owed |= !pay_back(ballot, i);
    if (owed && hfi_list_empty(&ballot->rounds))
        hfi_alarm_set(ballot->quorum->keeper, &ballot->round_alarm, hfi_now_ms() + AGAIN_MS);
}

void hfi_ballot_check(struct hfi_ballot *ballot) {
    hfi_ballot_ref(ballot);
    if (ballot->votes.won && !ballot->quorum->stopped)
        watch_end(ballot);
    if (!hfi_list_empty(&ballot->rounds))
        hfi_rounds_check(ballot);
    if (ballot->request != NULL)
        ballot->request->check(ballot->request);
    pay_all_back(ballot);
    hfi_ballot_tidy(ballot);
    hfi_ballot_unref(ballot);
}

struct hfi_proof hfi_ballot_proof(const struct hfi_ballot *ballot, int64_t lease_ms) {
    const struct hfi_votes *votes = &ballot->votes;
    int64_t now_ms = hfi_now_ms(), until_ms = hfi_votes_deadline_ms(votes, now_ms);
    int64_t sent_ms = until_ms - hfi_vote_valid_until_ms(votes, 0, lease_ms);
    int64_t period_ms =
        hfi_votes_period_ms(votes, hfi_min_ms(lease_ms, ballot->quorum->config.watchdog_ms));
    return (struct hfi_proof){.valid_until_ms = until_ms,
                              .renew_at_ms = sent_ms + period_ms,
                              .promised_until_ms = hfi_votes_leased_until_ms(votes, now_ms)};
}
