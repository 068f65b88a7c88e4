/*
 * Counting the answers to a question that all servers were asked: whether enough have come, and whether it is
 * worth waiting for the others.
 */
#include "joint/internal.h"

static bool is_curable(int code) {
    return code == HF_EUNREACH || code == HF_EREFUSED || code == HF_EUNKNOWN || code == HF_EOOM ||
           code == HF_ECLOSED || code == HF_ELOST;
}

struct hfi_tally hfi_tally_of(const struct hfi_ballot *ballot) {
    struct hfi_tally tally = {.refusal = HF_OK};
    for (size_t i = 0; i < ballot->quorum->len; i++) {
        const struct hfi_seat *seat = &ballot->seats[i];
        if (seat->errand != NULL && seat->errand->kind == HFI_ERRAND_ACQUIRE) {
            tally.pending++;
            tally.pending_fast += !ballot->quorum->members[i]->slow;
        } else if (seat->answer == HFI_FAILED && !is_curable(seat->code)) {
            tally.refused++;
            tally.refusal = seat->code;
        } else {
            tally.answered += seat->answer == HFI_GRANTED || seat->answer == HFI_BUSY;
        }
    }
    return tally;
}

/* Would it be won if whoever has not answered yet grants it? Then it is not another owner who keeps us
 * out, and who waits for one may wait for nothing: it may have a few servers only, and for ever. */
bool hfi_tally_is_open(const struct hfi_request *request, const struct hfi_tally *tally) {
    return hfi_votes_holders(&request->ballot->votes) + tally->pending >= request->quorum->majority;
}

/* For how long those are waited for that have not answered with the majority. The more rounds were lost
 * by answers that came too late, the longer. */
int64_t hfi_tally_patience_us(const struct hfi_request *request, bool open) {
    int64_t patience = request->acquire.majority_us - request->acquire.began_us;
    unsigned late = request->acquire.late_rounds;
    int64_t longer = (int64_t)HFI_PATIENCE_US << (late < 8 ? late : 8);
    if (patience < HFI_PATIENCE_US)
        patience = HFI_PATIENCE_US;
    return open && patience < longer ? longer : patience;
}

/* Has everybody answered whom it is worth waiting for? */
bool hfi_tally_is_over(struct hfi_request *request, const struct hfi_tally *tally) {
    const struct hfi_quorum *quorum = request->quorum;
    bool open = hfi_tally_is_open(request, tally);
    int64_t now_us = hfi_now_us(), *majority_us = &request->acquire.majority_us;
    if (tally->pending == 0)
        return true;
    if (tally->answered < quorum->majority)
        return false;
    if (tally->pending_fast == 0 && !(open && request->acquire.late_rounds > 0))
        return true;
    if (*majority_us == 0)
        *majority_us = now_us;
    return now_us >= *majority_us + hfi_tally_patience_us(request, open);
}

void hfi_tally_mark_slow(struct hfi_ballot *ballot) {
    for (size_t i = 0; i < ballot->quorum->len; i++)
        if (ballot->seats[i].errand != NULL && ballot->seats[i].errand->kind == HFI_ERRAND_ACQUIRE)
            ballot->quorum->members[i]->slow = true;
}
