/*
 * Counts the answers of a round to all servers: have enough come, and is it worth waiting for the
 * rest? On the keeper's thread.
 */
#include "joint/quorum/quorum_impl.h"

static bool is_curable(int code) {
    return code == HF_EUNREACH || code == HF_EUNAVAILABLE || code == HF_EINDOUBT ||
           code == HF_EOOM || code == HF_ECLOSED || code == HF_ELOST;
}

int64_t hfi_doubled_us(int64_t us, unsigned times, int64_t most_us) {
    for (; times > 0 && us < most_us; times--)
        us *= 2;
    return us < most_us ? us : most_us;
}

struct hfi_tally hfi_tally_of(const struct hfi_ballot *ballot) {
    struct hfi_tally tally = {.refusal = HF_OK};
    for (size_t i = 0; i < ballot->quorum->len; i++) {
        const struct hfi_member_vote *member_vote = &ballot->member_votes[i];
        if (member_vote->member_op != NULL && member_vote->member_op->kind == HFI_MEMBER_ACQUIRE) {
            tally.pending++;
            tally.pending_fast += !ballot->quorum->members[i]->slow;
        } else if (member_vote->answer == HFI_FAILED && !is_curable(member_vote->code)) {
            tally.refused++;
            tally.refusal = member_vote->code;
        } else {
            tally.answered += member_vote->answer == HFI_GRANTED || member_vote->answer == HFI_BUSY;
            tally.hopeless += member_vote->answer == HFI_FAILED && member_vote->hopeless;
        }
    }
    return tally;
}

/* Whether it would be won if all missing answers were grants. Then no other owner has a majority,
 * and waiting for the one that is in our way may never end: it may hold a minority for good. */
bool hfi_tally_is_open(const struct hfi_request *request, const struct hfi_tally *tally) {
    return hfi_votes_holders(&request->ballot->votes) + tally->pending >= request->quorum->majority;
}

/* Whether no majority can answer, however long we wait. */
bool hfi_tally_is_hopeless(const struct hfi_request *request, const struct hfi_tally *tally) {
    return tally->hopeless > request->quorum->len - request->quorum->majority;
}

/* How long to wait for answers after those of a majority. The more rounds were lost by late
 * answers, the longer: up to cmd_timeout_ms, in which a server answers or has failed. A lower bound
 * would keep out a client for ever whose servers answer later, and one after the other. One attempt
 * ends cmd_timeout_ms after its start. */
int64_t hfi_tally_grace_us(const struct hfi_request *request, bool open) {
    int64_t grace = request->acquire.majority_us - request->acquire.began_us;
    int64_t longer = hfi_doubled_us(HFI_GRACE_US, request->acquire.late_rounds,
                                    request->quorum->config.cmd_timeout_ms * 1000);
    if (grace < HFI_GRACE_US)
        grace = HFI_GRACE_US;
    if (open && grace < longer)
        grace = longer;
    int64_t left = hfi_attempt_ends_us(request) - request->acquire.majority_us;
    return request->acquire.one_attempt && left < grace ? left : grace;
}

int64_t hfi_attempt_ends_us(const struct hfi_request *request) {
    return (request->start_ms + request->quorum->config.cmd_timeout_ms) * 1000;
}

bool hfi_attempt_is_over(const struct hfi_request *request) {
    return request->acquire.one_attempt && request->acquire.late_rounds > 0 &&
           hfi_now_us() >= hfi_attempt_ends_us(request);
}

/* Whether all answers that are worth waiting for have come. */
bool hfi_tally_is_over(struct hfi_request *request, const struct hfi_tally *tally) {
    const struct hfi_quorum *quorum = request->quorum;
    bool open = hfi_tally_is_open(request, tally);
    int64_t now_us = hfi_now_us(), *majority_us = &request->acquire.majority_us;
    if (tally->pending == 0 || hfi_attempt_is_over(request))
        return true;
    if (tally->answered < quorum->majority)
        return false;
    if (tally->pending_fast == 0 && !(open && request->acquire.late_rounds > 0))
        return true;
    if (*majority_us == 0)
        *majority_us = now_us;
    return now_us >= *majority_us + hfi_tally_grace_us(request, open);
}

void hfi_tally_mark_slow(struct hfi_ballot *ballot) {
    for (size_t i = 0; i < ballot->quorum->len; i++)
        if (ballot->member_votes[i].member_op != NULL &&
            ballot->member_votes[i].member_op->kind == HFI_MEMBER_ACQUIRE)
            ballot->quorum->members[i]->slow = true;
}
