/*
 * The votes of a quorum hold: which servers hold it, since when, and how long each vote can be
 * trusted. Pure arithmetic: reads no clock, sends nothing.
 */
#ifndef HFI_JOINT_QUORUM_QUORUM_VALIDITY_H
#define HFI_JOINT_QUORUM_QUORUM_VALIDITY_H

#include "engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HFI_SERVERS_MIN 3
#define HFI_SERVERS_MAX 9

struct hfi_vote {
    bool held;
    int64_t since_ms;        /* held without a break since then, at the latest */
    int64_t proved_ms;       /* and at least until then: when the last answered command was sent */
    int64_t valid_until_ms;  /* it counts until then */
    int64_t leased_until_ms; /* or until then, if it is proved again */
    int64_t up_since_ms;     /* the server is up since then, at the latest; INT64_MIN: for ever */
    int64_t token;           /* of fenced locks: it stores this, or more */
    bool ripe;               /* it drew a token when it was of age */
};

struct hfi_votes {
    size_t len;       /* the configured servers */
    int64_t guard_ms; /* a server up for less has no vote */
    int64_t clock_drift_ppm;
    bool won; /* the hold was won, at won_ms, and not given up since */
    int64_t won_ms;
    bool broken; /* since then, fewer than a majority may have held it at some time */
    struct hfi_vote of[HFI_SERVERS_MAX];
};

/* More than half. */
size_t hfi_quorum_of(size_t servers);

/* Until when a vote counts whose command was sent at `sent_ms` with this lease: no longer than the
 * guard. A server that restarts right after its answer may vote for another owner when the guard is
 * over. */
int64_t hfi_vote_valid_until_ms(const struct hfi_votes *votes, int64_t sent_ms, int64_t lease_ms);
/* How often to prove it: a third of the time that a proof is trusted. */
int64_t hfi_votes_period_ms(const struct hfi_votes *votes, int64_t lease_ms);

/* Starts anew, without any vote. */
void hfi_votes_begin(struct hfi_votes *votes);
/* Server `i` has granted or renewed it. */
void hfi_votes_held(struct hfi_votes *votes, size_t i, int64_t sent_ms, int64_t now_ms,
                    int64_t lease_ms, int64_t up_since_ms);
/* Server `i` still had it when it was asked, at `sent_ms` or later, without a new lease. */
void hfi_votes_found(struct hfi_votes *votes, size_t i, int64_t sent_ms);
/* Server `i`, up since `up_since_ms`, does not have it, or is to lose it. */
void hfi_votes_gone(struct hfi_votes *votes, size_t i, int64_t now_ms, int64_t up_since_ms);
void hfi_votes_won(struct hfi_votes *votes, int64_t now_ms);

/* Whether this server's vote counts, and how many do. */
bool hfi_votes_is_young(const struct hfi_votes *votes, size_t i, int64_t now_ms); /* by the guard */
bool hfi_votes_counts(const struct hfi_votes *votes, size_t i, int64_t now_ms);
size_t hfi_votes_count(const struct hfi_votes *votes, int64_t now_ms);
/* How many have it, whether their votes count or not. */
size_t hfi_votes_holders(const struct hfi_votes *votes);
/* Until when a majority counts, and until when its leases last; 0: no majority. */
int64_t hfi_votes_deadline_ms(const struct hfi_votes *votes, int64_t now_ms);
int64_t hfi_votes_leased_until_ms(const struct hfi_votes *votes, int64_t now_ms);
/* When enough holding servers are of age to be a majority; INT64_MAX: too few hold it. */
int64_t hfi_votes_of_age_ms(const struct hfi_votes *votes);

/* ---- Tokens ---- */

/* Server `i`, which has just granted or renewed it, drew this token, as asked at `sent_ms`; or it
 * stores this token now. */
void hfi_votes_drew(struct hfi_votes *votes, size_t i, int64_t token, int64_t sent_ms);
void hfi_votes_stored(struct hfi_votes *votes, size_t i, int64_t token);
/* The token of the hold, as soon as a majority that counts stores it. 0: not yet. Then `ret_wishes`
 * says what to ask of each server: to store that token, HFI_TOKEN_DRAW, or 0, nothing. */
int64_t hfi_votes_token(const struct hfi_votes *votes, int64_t now_ms, int64_t *ret_wishes);

#endif
