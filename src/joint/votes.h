/*
 * What a quorum hold knows of its servers: which of them hold it, since when, and how far that can be
 * trusted. Pure arithmetic: no clock is read, nothing is sent.
 */
#ifndef HFI_JOINT_VOTES_H
#define HFI_JOINT_VOTES_H

#include "engine/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HFI_SERVERS_MIN 3
#define HFI_SERVERS_MAX 9

struct hfi_vote {
    bool held;
    int64_t since_ms; /* held without a break from then on, at the latest */
    int64_t
        proved_ms; /* and at least until then: when the last command that was answered was sent */
    int64_t valid_until_ms; /* it counts until then */
    int64_t up_since_ms; /* the server has been up since then, at the latest; INT64_MIN: for ever */
    int64_t token;       /* of fenced locks: it stores this, or more */
    bool ripe;           /* it drew one when it was of age */
};

struct hfi_votes {
    size_t len;       /* the configured servers */
    int64_t guard_ms; /* a server that has been up for less has no vote */
    bool won;         /* the hold was won, at won_ms, and has not been given up since */
    int64_t won_ms;
    bool broken; /* at some time since then fewer than a majority may have held it */
    struct hfi_vote of[HFI_SERVERS_MAX];
};

/* More than half. */
size_t hfi_quorum_of(size_t servers);

/* What was sent then with this lease counts until when: clocks may be one in a hundred apart. */
int64_t hfi_valid_until_ms(int64_t sent_ms, int64_t lease_ms);

/* A new possession, of nothing yet. */
void hfi_votes_begin(struct hfi_votes *votes);
/* Server `i` has granted or renewed it. */
void hfi_votes_held(struct hfi_votes *votes, size_t i, int64_t sent_ms, int64_t now_ms,
                    int64_t lease_ms, int64_t up_since_ms);
/* Server `i` does not have it, or is not to have it any more. */
void hfi_votes_gone(struct hfi_votes *votes, size_t i, int64_t now_ms);
void hfi_votes_won(struct hfi_votes *votes, int64_t now_ms);

/* Does this server count? How many do? */
bool hfi_votes_is_young(const struct hfi_votes *votes, size_t i, int64_t now_ms); /* by the guard */
bool hfi_votes_counts(const struct hfi_votes *votes, size_t i, int64_t now_ms);
size_t hfi_votes_count(const struct hfi_votes *votes, int64_t now_ms);
/* How many have it, whether they count or not. */
size_t hfi_votes_holders(const struct hfi_votes *votes);
/* Until when a majority counts; 0: none does. */
int64_t hfi_votes_deadline_ms(const struct hfi_votes *votes, int64_t now_ms);
/* When enough servers have come of age for those that hold it to be a majority; INT64_MAX: there are
 * too few of them. */
int64_t hfi_votes_of_age_ms(const struct hfi_votes *votes);

/* ---- Tokens ---- */

/* Server `i`, which has just granted or renewed it, was asked then to draw a token, which is this; or it
 * stores this one now. */
void hfi_votes_drew(struct hfi_votes *votes, size_t i, int64_t token, int64_t sent_ms);
void hfi_votes_stored(struct hfi_votes *votes, size_t i, int64_t token);
/* The token of the hold, as soon as a majority that counts stores it. 0: not yet. Then `ret_wishes` says
 * what to ask of each server: to store that token, HFI_TOKEN_DRAW, or 0, nothing. */
int64_t hfi_votes_token(const struct hfi_votes *votes, int64_t now_ms, int64_t *ret_wishes);

#endif
