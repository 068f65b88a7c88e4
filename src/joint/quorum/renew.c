/*
 * Keeping a hold: renewal rounds, for the watchdog of the core above, for extend, and for re-entry.
 * Re-entry is local except for the proof that the hold still exists.
 *
 * A round renews the hold at every server that has it, and makes one attempt to acquire it at the
 * others: they join the hold while it is valid. It ends as soon as a majority has answered. A
 * server that says the hold is gone stops counting at once (quorum_validity.c).
 *
 * One round of a ballot is in progress at a time, the others are queued. On the keeper's thread.
 */
#include "joint/quorum/quorum_impl.h"

#include <stdlib.h>

/* A server that has not answered an earlier member op is asked when it has. */
static void ask(const struct hfi_round *round) {
    struct hfi_ballot *ballot = round->ballot;
    for (size_t i = 0; i < ballot->quorum->len; i++) {
        struct hfi_member_vote *member_vote = &ballot->member_votes[i];
        if (member_vote->member_op != NULL || member_vote->asked_round == round->number)
            continue;
        bool held = ballot->votes.of[i].held;
        member_vote->asked_round = round->number;
        hfi_member_vote_send(ballot, i, held ? HFI_MEMBER_EXTEND : HFI_MEMBER_ACQUIRE, 0,
                             round->lease_ms);
    }
}

static void begin(struct hfi_round *round) {
    struct hfi_ballot *ballot = round->ballot;
    round->begun = true;
    round->number = ++ballot->round;
    hfi_alarm_set(ballot->quorum->keeper, &ballot->round_alarm, round->deadline_ms);
}

/* How many have proved it in this round. */
static size_t fresh_votes(const struct hfi_round *round, int64_t now_ms) {
    const struct hfi_ballot *ballot = round->ballot;
    size_t fresh = 0;
    for (size_t i = 0; i < ballot->quorum->len; i++)
        fresh += ballot->member_votes[i].proved_round == round->number &&
                 hfi_votes_counts(&ballot->votes, i, now_ms);
    return fresh;
}

static bool is_pending(const struct hfi_round *round) {
    const struct hfi_ballot *ballot = round->ballot;
    for (size_t i = 0; i < ballot->quorum->len; i++) {
        const struct hfi_member_vote *member_vote = &ballot->member_votes[i];
        if (member_vote->member_op != NULL && (member_vote->member_op->round == round->number ||
                                               member_vote->asked_round != round->number))
            return true;
    }
    return false;
}

/* True: it is over, with *ret_err. */
static bool is_over(const struct hfi_round *round, int *ret_err) {
    const struct hfi_ballot *ballot = round->ballot;
    int64_t now_ms = hfi_now_ms();
    if (!ballot->votes.won || hfi_votes_deadline_ms(&ballot->votes, now_ms) <= now_ms)
        *ret_err = HF_ELOST;
    else if (fresh_votes(round, now_ms) >= ballot->quorum->majority)
        *ret_err = HF_OK;
    else if (!is_pending(round) || now_ms >= round->deadline_ms)
        *ret_err = HF_ENOQUORUM;
    else
        return false;
    return true;
}

static struct hfi_round *first_round(struct hfi_ballot *ballot) {
    return hfi_list_empty(&ballot->rounds)
               ? NULL
               : HFI_CONTAINER(ballot->rounds.next, struct hfi_round, link);
}

static void end(struct hfi_round *round, int err) {
    hfi_alarm_clear(round->ballot->quorum->keeper, &round->ballot->round_alarm);
    hfi_list_remove(&round->link);
    round->done(round, err);
}

void hfi_rounds_check(struct hfi_ballot *ballot) {
    struct hfi_round *round;
    int err;
    while ((round = first_round(ballot)) != NULL) {
        if (!round->begun)
            begin(round);
        ask(round);
        if (!is_over(round, &err))
            return;
        end(round, err);
    }
}

void hfi_rounds_end(struct hfi_ballot *ballot, int err) {
    struct hfi_round *round;
    while ((round = first_round(ballot)) != NULL)
        end(round, err);
}

void hfi_round_begin(struct hfi_ballot *ballot, struct hfi_round *round) {
    round->ballot = ballot;
    hfi_list_push_back(&ballot->rounds, &round->link);
    hfi_ballot_check(ballot);
}

/* ---- Renewals of the core above ---- */

static void finish_if_answered(struct hfi_renewal *renewal) {
    size_t *left = renewal->engine_private;
    if (--*left > 0)
        return;
    free(left);
    renewal->done(renewal);
}

/* Warns when exactly a majority is left: one more failure, and the hold is lost. */
static void log_thinness(struct hfi_ballot *ballot) {
    const struct hfi_quorum *quorum = ballot->quorum;
    size_t votes = hfi_votes_count(&ballot->votes, hfi_now_ms());
    bool thin = votes == quorum->majority;
    if (thin && !ballot->thin)
        hfi_log(quorum->log, HF_LOG_WARN,
                HFI_ABOUT(.name = ballot->name, .name_len = ballot->name_len),
                "'%.*s' is held by %zu of %zu servers, a bare majority: losing one more loses "
                "the lock",
                (int)ballot->name_len, ballot->name, votes, quorum->len);
    ballot->thin = thin;
}

static void renewal_done(struct hfi_round *round, int err) {
    struct hfi_renewal *renewal = round->renewal;
    struct hfi_renewal_item *item = &renewal->items[round->item];
    struct hfi_ballot *ballot = round->ballot;
    const struct hfi_mem *mem = ballot->quorum->mem;
    if (err == HF_OK) {
        item->answer = 1;
        item->proof = hfi_ballot_proof(ballot, item->lease_ms);
        log_thinness(ballot);
        ballot->lease_ms = item->lease_ms;
    } else if (err == HF_ELOST) {
        item->answer = 0;
        renewal->gone = HFI_LOST_TEXT;
    } else {
        item->answer = err;
        if (err == HF_ENOQUORUM)
            hfi_fail(&renewal->error, err, "fewer than a majority of the servers answered");
    }
    hfi_free(mem, round);
    finish_if_answered(renewal);
}

static void renew_item(struct hfi_quorum *quorum, struct hfi_renewal *renewal, size_t i) {
    struct hfi_renewal_item *item = &renewal->items[i];
    hf_owner owner = strtoull(item->owner + sizeof quorum->id, NULL, 10);
    struct hfi_ballot *ballot =
        hfi_ballot_find(quorum, item->kind, item->name, item->name_len, owner);
    if (ballot == NULL || !ballot->votes.won) {
        item->answer = 0;
        finish_if_answered(renewal);
        return;
    }
    struct hfi_round *round = hfi_zalloc(quorum->mem, sizeof *round);
    if (round == NULL) {
        item->answer = HF_ENOMEM;
        finish_if_answered(renewal);
        return;
    }
    round->lease_ms = item->lease_ms;
    round->deadline_ms = renewal->deadline_ms;
    round->renewal = renewal;
    round->item = i;
    round->done = renewal_done;
    hfi_round_begin(ballot, round);
}

void hfi_quorum_renew(struct hfi_engine *engine, struct hfi_renewal *renewal) {
    struct hfi_quorum *quorum = hfi_quorum_of_engine(engine);
    size_t *left = quorum->stopped ? NULL : malloc(sizeof *left);
    if (left == NULL) {
        renewal->err = hfi_fail(&renewal->error, quorum->stopped ? HF_ECLOSED : HF_ENOMEM,
                                "it could not be renewed");
        renewal->done(renewal);
        return;
    }
    *left = renewal->len + 1; /* one for this function */
    renewal->engine_private = left;
    size_t len = renewal->len;
    for (size_t i = 0; i < len; i++)
        renew_item(quorum, renewal, i);
    finish_if_answered(renewal);
}

/* ---- Extend, and re-entry ---- */

static void verb_done(struct hfi_round *round, int err) {
    struct hfi_request *request = round->request;
    struct hfi_ballot *ballot = round->ballot;
    if (err == HF_OK) {
        int64_t now_ms = hfi_now_ms();
        request->proof = hfi_ballot_proof(ballot, request->lease_ms);
        request->votes = (int64_t)hfi_votes_count(&ballot->votes, now_ms);
        request->token = request->kind->token ? ballot->token : 0; /* one for the whole hold */
        request->value = request->begin == hfi_acquire_begin ? request->count + 1 : request->count;
        ballot->count = request->value;
    } else if (err == HF_ELOST) {
        request->gone = true;
        hfi_fail(&request->error, err, "%s", HFI_LOST_TEXT);
    } else {
        hfi_error_text_of_servers(request, err);
    }
    hfi_request_finish(request, err);
}

static void stop(struct hfi_request *request, int err) {
    struct hfi_round *round = &request->round;
    if (round->ballot == NULL)
        hfi_request_finish(request, err);
    else
        end(round, err);
}

void hfi_extend_begin(struct hfi_request *request) {
    struct hfi_ballot *ballot = hfi_ballot_find(request->quorum, request->kind, request->name,
                                                request->name_len, request->owner);
    request->stop = stop;
    if (ballot == NULL || !ballot->votes.won) {
        request->gone = true;
        hfi_request_finish(request, HF_ELOST);
        return;
    }
    hfi_ballot_ref(ballot);
    request->ballot = ballot;
    request->round.request = request;
    request->round.lease_ms = request->lease_ms;
    request->round.deadline_ms =
        hfi_after_ms(request->start_ms, request->quorum->config.cmd_timeout_ms);
    request->round.done = verb_done;
    hfi_round_begin(ballot, &request->round);
}
