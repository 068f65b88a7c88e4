/*
 * The arithmetic of votes. Called on the keeper's thread by the rest of src/joint, and by its unit
 * tests.
 *
 * A hold lasts as long as, at every moment, a majority of the configured servers have held it without
 * a break. A server that says that it is gone may have lost it at any time since its last proof; but if
 * its lease has run out, it says no more than that. So
 * what counts then are the others that have held it since before that time: one that was filled up
 * again later does not make up for a break that is older than it, since another owner may have been
 * inside in between.
 *
 * The token of a fenced hold is the smallest that a majority of those that count has not gone beyond, and is
 * held when a majority stores it or more. So whoever comes later has one server at least that draws
 * beyond it, or has forgotten it since.
 * One that has forgotten draws by its clock, and has no vote before the guard is over: what it draws then
 * is ahead of everything from before, if the clocks of the servers are closer to each other than the
 * guard is long. What it drew earlier need not be. tests/scripts/quorum_model.c plays all this.
 */
#include "joint/votes.h"

#define ROUNDING_MS 2 /* the clocks of both sides are read in whole milliseconds */

size_t hfi_quorum_of(size_t servers) {
    return servers / 2 + 1;
}

int64_t hfi_valid_until_ms(int64_t sent_ms, int64_t lease_ms) {
    return sent_ms + lease_ms - lease_ms / 100 - ROUNDING_MS;
}

void hfi_votes_begin(struct hfi_votes *votes) {
    votes->won = votes->broken = false;
    votes->won_ms = 0;
    for (size_t i = 0; i < votes->len; i++)
        votes->of[i] = (struct hfi_vote){.held = false};
}

static bool is_of_age(const struct hfi_votes *votes, const struct hfi_vote *vote, int64_t at_ms) {
    return votes->guard_ms == 0 || vote->up_since_ms <= INT64_MIN + votes->guard_ms ||
           vote->up_since_ms + votes->guard_ms <= at_ms;
}

bool hfi_votes_is_young(const struct hfi_votes *votes, size_t i, int64_t now_ms) {
    return !is_of_age(votes, &votes->of[i], now_ms);
}

/* How many have held it without a break from `at_ms` until now. */
static size_t unbroken_since(const struct hfi_votes *votes, int64_t at_ms, int64_t now_ms) {
    size_t count = 0;
    for (size_t i = 0; i < votes->len; i++) {
        const struct hfi_vote *vote = &votes->of[i];
        count += vote->held && vote->since_ms <= at_ms && vote->valid_until_ms > now_ms &&
                 is_of_age(votes, vote, at_ms);
    }
    return count;
}

/* A vote ends: at `gone_ms` at the earliest. Before the hold was won, nobody relied on it. */
static void lose(struct hfi_votes *votes, size_t i, int64_t gone_ms, int64_t now_ms) {
    votes->of[i].held = false;
    if (!votes->won)
        return;
    if (gone_ms < votes->won_ms)
        gone_ms = votes->won_ms;
    if (unbroken_since(votes, gone_ms, now_ms) < hfi_quorum_of(votes->len))
        votes->broken = true;
}

void hfi_votes_held(struct hfi_votes *votes, size_t i, int64_t sent_ms, int64_t now_ms,
                    int64_t lease_ms, int64_t up_since_ms) {
    struct hfi_vote *vote = &votes->of[i];
    int64_t until_ms = hfi_valid_until_ms(sent_ms, lease_ms);
    if (vote->held && vote->valid_until_ms <= now_ms)
        lose(votes, i, vote->valid_until_ms, now_ms); /* it may have ended in between */
    if (!vote->held)
        *vote = (struct hfi_vote){.held = true, .since_ms = now_ms, .proved_ms = sent_ms};
    if (sent_ms > vote->proved_ms)
        vote->proved_ms = sent_ms;
    if (until_ms > vote->valid_until_ms)
        vote->valid_until_ms = until_ms;
    vote->up_since_ms = up_since_ms;
}

void hfi_votes_gone(struct hfi_votes *votes, size_t i, int64_t now_ms) {
    const struct hfi_vote *vote = &votes->of[i];
    bool ran_out = vote->valid_until_ms <= now_ms;
    if (vote->held)
        lose(votes, i, ran_out ? vote->valid_until_ms : vote->proved_ms, now_ms);
}

void hfi_votes_won(struct hfi_votes *votes, int64_t now_ms) {
    votes->won = true;
    votes->won_ms = now_ms;
}

bool hfi_votes_counts(const struct hfi_votes *votes, size_t i, int64_t now_ms) {
    const struct hfi_vote *vote = &votes->of[i];
    return vote->held && vote->valid_until_ms > now_ms && is_of_age(votes, vote, now_ms);
}

size_t hfi_votes_count(const struct hfi_votes *votes, int64_t now_ms) {
    size_t count = 0;
    for (size_t i = 0; i < votes->len; i++)
        count += hfi_votes_counts(votes, i, now_ms);
    return count;
}

size_t hfi_votes_holders(const struct hfi_votes *votes) {
    size_t count = 0;
    for (size_t i = 0; i < votes->len; i++)
        count += votes->of[i].held;
    return count;
}

/* The q-th largest of `len` times; there are at least so many. */
static int64_t qth_largest(int64_t *times, size_t len, size_t q) {
    for (size_t i = 1; i < len; i++)
        for (size_t j = i; j > 0 && times[j] > times[j - 1]; j--) {
            int64_t earlier = times[j - 1];
            times[j - 1] = times[j];
            times[j] = earlier;
        }
    return times[q - 1];
}

int64_t hfi_votes_deadline_ms(const struct hfi_votes *votes, int64_t now_ms) {
    int64_t times[HFI_SERVERS_MAX];
    size_t len = 0, q = hfi_quorum_of(votes->len);
    if (votes->broken)
        return 0;
    for (size_t i = 0; i < votes->len; i++)
        if (hfi_votes_counts(votes, i, now_ms))
            times[len++] = votes->of[i].valid_until_ms;
    return len < q ? 0 : qth_largest(times, len, q);
}

int64_t hfi_votes_of_age_ms(const struct hfi_votes *votes) {
    int64_t ages[HFI_SERVERS_MAX];
    size_t len = 0, q = hfi_quorum_of(votes->len);
    for (size_t i = 0; i < votes->len; i++)
        if (votes->of[i].held) /* negated: the q-th smallest is wanted */
            ages[len++] = is_of_age(votes, &votes->of[i], INT64_MIN)
                              ? INT64_MAX
                              : -(votes->of[i].up_since_ms + votes->guard_ms);
    return len < q ? INT64_MAX : -qth_largest(ages, len, q);
}

/* ---- Tokens ---- */

void hfi_votes_drew(struct hfi_votes *votes, size_t i, int64_t token, int64_t sent_ms) {
    votes->of[i].token = token;
    votes->of[i].ripe = is_of_age(votes, &votes->of[i], sent_ms);
}

void hfi_votes_stored(struct hfi_votes *votes, size_t i, int64_t token) {
    votes->of[i].token = token;
}

/* Those that have a vote and a token that counts. */
static bool is_ripe(const struct hfi_votes *votes, size_t i, int64_t now_ms) {
    return votes->of[i].ripe && hfi_votes_counts(votes, i, now_ms);
}

int64_t hfi_votes_token(const struct hfi_votes *votes, int64_t now_ms, int64_t *ret_wishes) {
    int64_t tokens[HFI_SERVERS_MAX];
    size_t ripe = 0, stored = 0, q = hfi_quorum_of(votes->len);
    for (size_t i = 0; i < votes->len; i++) {
        bool draws = !votes->of[i].ripe && hfi_votes_counts(votes, i, now_ms);
        ret_wishes[i] = draws ? HFI_TOKEN_DRAW : 0;
        if (is_ripe(votes, i, now_ms))
            tokens[ripe++] = votes->of[i].token;
    }
    if (ripe < q)
        return 0;
    int64_t token = qth_largest(tokens, ripe, ripe - q + 1);
    for (size_t i = 0; i < votes->len; i++) {
        if (!is_ripe(votes, i, now_ms))
            continue;
        if (votes->of[i].token >= token)
            stored++;
        else
            ret_wishes[i] = token;
    }
    return stored >= q ? token : 0;
}
