/*
 * Releasing a hold. The release is sent to every server that has a vote of ours, and returns when a
 * majority is known not to have the hold. The rest goes on in the background, so a dead server
 * causes no delay. On the keeper's thread.
 */
#include "joint/quorum/quorum_impl.h"

static void leave(struct hfi_request *request, int err) {
    struct hfi_ballot *ballot = request->ballot;
    hfi_alarm_clear(request->quorum->keeper, &ballot->alarm);
    ballot->request = NULL;
    request->gone = err == HF_ELOST;
    if (err == HF_ELOST)
        hfi_fail(&request->error, err,
                 "fewer than a majority of the servers held it until the "
                 "release");
    else if (err == HF_EINDOUBT)
        hfi_fail(&request->error, err, "fewer than a majority of the servers answered");
    hfi_request_finish(request, err);
}

static void check(struct hfi_request *request) {
    const struct hfi_ballot *ballot = request->ballot;
    size_t known = 0, held = 0;
    for (size_t i = 0; i < request->quorum->len; i++) {
        known += ballot->member_votes[i].known;
        held += request->release.counted[i] && !ballot->member_votes[i].gone;
    }
    size_t majority = request->quorum->majority;
    if (known >= majority)
        leave(request, request->release.valid && held >= majority ? HF_OK : HF_ELOST);
    else if (hfi_now_ms() >= request->deadline_ms)
        leave(request, HF_EINDOUBT);
}

void hfi_release_begin(struct hfi_request *request) {
    struct hfi_ballot *ballot = hfi_ballot_find(request->quorum, request->kind, request->name,
                                                request->name_len, request->owner);
    int64_t now_ms = hfi_now_ms();
    if (ballot == NULL || !ballot->votes.won) {
        request->gone = true;
        hfi_request_finish(request, HF_ELOST);
        return;
    }
    if (request->count > 1) { /* servers store 1, however often it is nested */
        ballot->count = request->value = request->count - 1;
        hfi_request_finish(request, HF_OK);
        return;
    }
    hfi_rounds_end(ballot, HF_ECANCELED);
    hfi_ballot_ref(ballot);
    request->ballot = ballot;
    request->check = check;
    request->stop = leave;
    /* a server whose lease had run out says nothing about the others */
    for (size_t i = 0; i < request->quorum->len; i++)
        request->release.counted[i] = hfi_votes_counts(&ballot->votes, i, now_ms);
    request->release.valid = hfi_votes_deadline_ms(&ballot->votes, now_ms) > now_ms;
    ballot->request = request;
    ballot->count = 0;
    hfi_ballot_give_back(ballot);
    hfi_alarm_set(request->quorum->keeper, &ballot->alarm, request->deadline_ms);
    hfi_ballot_check(ballot);
}

/* Gives back the residue of a hold that is over, or of a failed acquire, in the background, by the
 * members' cores. */
void hfi_settle_begin(struct hfi_request *request) {
    struct hfi_ballot *ballot = hfi_ballot_find(request->quorum, request->kind, request->name,
                                                request->name_len, request->owner);
    if (ballot != NULL && ballot->request == NULL) {
        hfi_rounds_end(ballot, HF_ECANCELED);
        hfi_ballot_give_back(ballot);
        hfi_ballot_stop_asking(ballot);
        hfi_ballot_tidy(ballot);
    }
    hfi_request_finish(request, HF_OK);
}
