/*
 * The token of a fenced hold. Each server draws one with its grant; which of them is the hold's, and what is
 * missing before it is, is said by votes.c. Here servers are asked for that: an extension with a wish, to
 * store a token or to draw another. One that fails is not asked again in this round.
 *
 * On the keeper's thread.
 */
#include "joint/internal.h"

int64_t hfi_token_agreed(struct hfi_ballot *ballot, int64_t lease_ms) {
    int64_t wishes[HFI_SERVERS_MAX];
    int64_t token = hfi_votes_token(&ballot->votes, hfi_now_ms(), wishes);
    for (size_t i = 0; i < ballot->quorum->len && token == 0; i++) {
        struct hfi_seat *seat = &ballot->seats[i];
        if (wishes[i] != 0 && seat->errand == NULL && seat->unwilling_round != ballot->round &&
            !hfi_seat_wish(ballot, i, wishes[i], lease_ms))
            seat->unwilling_round = ballot->round;
    }
    return token;
}

bool hfi_token_is_pending(const struct hfi_ballot *ballot) {
    for (size_t i = 0; i < ballot->quorum->len; i++)
        if (ballot->seats[i].errand != NULL && ballot->seats[i].errand->token_wish != 0)
            return true;
    return false;
}

/* A grant without a token is one to a plain lock of this name, which was asked for before. */
void hfi_token_heard(struct hfi_ballot *ballot, const struct hfi_errand *errand) {
    if (errand->token_wish != 0 && errand->code != HF_OK)
        ballot->seats[errand->index].unwilling_round = errand->round;
    else if (errand->token > 0 && errand->token_wish > 0)
        hfi_votes_stored(&ballot->votes, errand->index, errand->token);
    else if (errand->token > 0)
        hfi_votes_drew(&ballot->votes, errand->index, errand->token, errand->sent_ms);
}
