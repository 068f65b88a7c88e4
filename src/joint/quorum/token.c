/*
 * The token of a fenced hold. Each server draws a token with its grant. quorum_validity.c says which
 * of them is the hold's, and what is still missing. This file asks the servers for that by an extend
 * with a wish: store this token, or draw another. A server that fails is not asked again in this
 * round.
 *
 * On the keeper's thread.
 */
#include "joint/quorum/quorum_impl.h"

int64_t hfi_token_agreed(struct hfi_ballot *ballot, int64_t lease_ms) {
    int64_t wishes[HFI_SERVERS_MAX];
    int64_t token = hfi_votes_token(&ballot->votes, hfi_now_ms(), wishes);
    for (size_t i = 0; i < ballot->quorum->len && token == 0; i++) {
        struct hfi_member_vote *member_vote = &ballot->member_votes[i];
        if (wishes[i] != 0 && member_vote->member_op == NULL &&
            member_vote->unwilling_round != ballot->round &&
            !hfi_member_vote_wish(ballot, i, wishes[i], lease_ms))
            member_vote->unwilling_round = ballot->round;
    }
    return token;
}

bool hfi_token_is_pending(const struct hfi_ballot *ballot) {
    for (size_t i = 0; i < ballot->quorum->len; i++)
        if (ballot->member_votes[i].member_op != NULL &&
            ballot->member_votes[i].member_op->token_wish != 0)
            return true;
    return false;
}

/* A grant without a token belongs to a plain lock of this name, requested earlier. */
void hfi_token_received(struct hfi_ballot *ballot, const struct hfi_member_op *member_op) {
    if (member_op->token_wish != 0 && member_op->code != HF_OK)
        ballot->member_votes[member_op->index].unwilling_round = member_op->round;
    else if (member_op->token > 0 && member_op->token_wish > 0)
        hfi_votes_stored(&ballot->votes, member_op->index, member_op->token);
    else if (member_op->token > 0)
        hfi_votes_drew(&ballot->votes, member_op->index, member_op->token, member_op->sent_ms);
}
