/*
 * Redlock validity: how long a hold on a majority of servers is valid, computed from their votes.
 * Called on the keeper's thread by src/joint/quorum, and by its unit tests.
 *
 * A hold lasts as long as, at every moment, a majority of the configured servers have held it
 * without a break. A server that says the hold is gone may have lost it at any time since its last
 * proof. But if its lease has run out, the answer says no more than that. If the server has
 * restarted, it could not vote for another owner before the guard was over. What counts at the time
 * of the loss are the other servers that have held it since before. A server that acquired it again
 * later does not make up for an older break: another owner may have been inside in between.
 *
 * The token of a fenced hold is the smallest that a majority of the counting servers has not gone
 * beyond. It is held when a majority stores it or more. So a later owner has at least one server
 * that draws beyond it, or has forgotten it since. A server that has forgotten draws by its clock,
 * and has no vote before the guard is over. What it draws after that is ahead of everything from
 * before, if the servers' clocks differ by less than the guard. What it drew earlier need not be.
 * tests/scripts/quorum_model.c checks all this.
 */
#include "joint/quorum/quorum_validity.h"

#include "base/clock.h"

#define ROUNDING_MS 2       /* both clocks are read in whole milliseconds */
#define UP_ROUNDING_MS 2000 /* servers report their uptime in whole seconds */

size_t hfi_quorum_of(size_t servers) {
    return servers / 2 + 1;
}

static int64_t leased_until_ms(const struct hfi_votes *votes, int64_t sent_ms, int64_t lease_ms) {
    return sent_ms + hfi_trusted_ms(lease_ms, votes->clock_drift_ppm) - ROUNDING_MS;
}

/* How much of a lease one proof covers. */
static int64_t within_guard_ms(const struct hfi_votes *votes, int64_t lease_ms) {
    return votes->guard_ms > 0 ? hfi_min_ms(lease_ms, votes->guard_ms) : lease_ms;
}

int64_t hfi_vote_valid_until_ms(const struct hfi_votes *votes, int64_t sent_ms, int64_t lease_ms) {
    return leased_until_ms(votes, sent_ms, within_guard_ms(votes, lease_ms));
}

int64_t hfi_votes_period_ms(const struct hfi_votes *votes, int64_t lease_ms) {
    return hfi_trusted_ms(within_guard_ms(votes, lease_ms), votes->clock_drift_ppm) / 3;
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

/* A vote ends, at `gone_ms` at the earliest. A loss before the hold was won does not matter. */
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
    int64_t until_ms = hfi_vote_valid_until_ms(votes, sent_ms, lease_ms);
    if (vote->held && vote->valid_until_ms <= now_ms)
        lose(votes, i, vote->valid_until_ms, now_ms); /* it may have ended in between */
    if (!vote->held)
        *vote = (struct hfi_vote){.held = true, .since_ms = now_ms, .proved_ms = sent_ms};
    if (sent_ms > vote->proved_ms)
        vote->proved_ms = sent_ms;
    if (until_ms > vote->valid_until_ms)
        vote->valid_until_ms = until_ms;
    vote->leased_until_ms =
        hfi_max_ms(vote->leased_until_ms, leased_until_ms(votes, sent_ms, lease_ms));
    vote->up_since_ms = up_since_ms;
}

/* A vote that has ended is left as it is: what the server had meanwhile is not known. */
void hfi_votes_found(struct hfi_votes *votes, size_t i, int64_t sent_ms) {
    struct hfi_vote *vote = &votes->of[i];
    if (vote->held && sent_ms < vote->valid_until_ms)
        vote->proved_ms = hfi_max_ms(vote->proved_ms, sent_ms);
}

static bool has_restarted(const struct hfi_votes *votes, const struct hfi_vote *vote,
                          int64_t up_since_ms) {
    return votes->guard_ms > 0 && up_since_ms > vote->up_since_ms;
}

/* A server that restarted, and is up since then, has not voted for another owner before this time.
 * No later than the end of its vote: it may have restarted twice, or after its lease ran out. */
static int64_t first_vote_ms(const struct hfi_votes *votes, const struct hfi_vote *vote,
                             int64_t up_since_ms) {
    int64_t guarded_ms =
        up_since_ms - UP_ROUNDING_MS + hfi_trusted_ms(votes->guard_ms, votes->clock_drift_ppm);
    return hfi_max_ms(vote->proved_ms, hfi_min_ms(guarded_ms, vote->valid_until_ms));
}

void hfi_votes_gone(struct hfi_votes *votes, size_t i, int64_t now_ms, int64_t up_since_ms) {
    const struct hfi_vote *vote = &votes->of[i];
    bool ran_out = vote->leased_until_ms <= now_ms;
    int64_t gone_ms = ran_out ? vote->leased_until_ms : vote->proved_ms;
    if (has_restarted(votes, vote, up_since_ms))
        gone_ms = first_vote_ms(votes, vote, up_since_ms);
    if (vote->held)
        lose(votes, i, hfi_min_ms(gone_ms, now_ms), now_ms);
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

/* The q-th largest of `len` times; q <= len. */
static int64_t qth_largest(int64_t *times, size_t len, size_t q) {
    for (size_t i = 1; i < len; i++)
        for (size_t j = i; j > 0 && times[j] > times[j - 1]; j--) {
            int64_t earlier = times[j - 1];
            times[j - 1] = times[j];
            times[j] = earlier;
        }
    return times[q - 1];
}

static int64_t until_ms(const struct hfi_votes *votes, int64_t now_ms, bool leased) {
    int64_t times[HFI_SERVERS_MAX];
    size_t len = 0, q = hfi_quorum_of(votes->len);
    if (votes->broken)
        return 0;
    for (size_t i = 0; i < votes->len; i++)
        if (hfi_votes_counts(votes, i, now_ms))
            times[len++] = leased ? votes->of[i].leased_until_ms : votes->of[i].valid_until_ms;
    return len < q ? 0 : qth_largest(times, len, q);
}

int64_t hfi_votes_deadline_ms(const struct hfi_votes *votes, int64_t now_ms) {
    return until_ms(votes, now_ms, false);
}

int64_t hfi_votes_leased_until_ms(const struct hfi_votes *votes, int64_t now_ms) {
    return until_ms(votes, now_ms, true);
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

/* Whether both its vote and its token count. */
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
