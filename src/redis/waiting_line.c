/*
 * Waiting in line at the server, each waiter with a channel of its own.
 *
 * Used by acquire.c through the table, and by the fair lock, on the thread of the call's executor,
 * which owns the state (u.acquire.line). A grant is ours before we know of it, for
 * `confirm` ms; the message says since when, on the server's clock. The message alone makes us the owner if it cannot be older than the
 * last answer, and if a third of the confirm is certain to be left. Both are judged by the last
 * answer, whose time is known here to within a round trip. Such a grant is proved for a part of its
 * lease: the core has it renewed before the confirm is over. A doubtful message (one that was long under way, or
 * from a server whose clock was set) is only a hint, and the next attempt finds out whether there
 * is a grant.
 *
 * Invariant: a message cannot make us the owner while an attempt is under way or may still act.
 */
#include "redis/line.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "redis/waiting.h"

#define CONFIRM_MAX_MS 3000
#define POLL_MAX_MS 10000
#define LINGER_MS 5000 /* for the subscription: the same owner often comes again */
#define DRIFT 1000     /* clocks drift apart by no more than one part in this many */
#define ROUNDING_US 2000
#define FAR_BEHIND 65 /* the first position that is not told */
#define DEAF_PART 6   /* this part of the horizon, while the waiter does not listen yet */

/* For waiters that find the lock free, but somebody else first in line. */
static const struct hfi_backoff behind = {.first_ms = 50, .max_ms = 5000, .factor = 2};

static bool waits(const struct hfi_call *call) {
    return call->count == 0 && call->deadline_ms > call->start_ms;
}

static int64_t horizon_ms(const struct hfi_call_state *state) {
    int64_t full_ms = state->exchange.redis->fair_horizon_ms;
    return state->u.acquire.heard ? full_ms : full_ms / DEAF_PART;
}

static void prepare(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_line *line = &state->u.acquire.line;
    line->confirm_ms = hfi_min_ms(hfi_min_ms(CONFIRM_MAX_MS, call->lease_ms),
                                  state->exchange.redis->fair_confirm_ms);
    state->u.acquire.waiter.linger_ms = LINGER_MS;
    state->u.acquire.waiter.heard = &line->heard;
    if (call->deadline_ms > call->start_ms)
        hfi_listen_if_heard(call);
}

struct hfi_line_words hfi_line_say(const struct hfi_call *call) {
    struct hfi_call_state *state = call->state;
    struct hfi_line *line = &state->u.acquire.line;
    struct hfi_line_words words = {.waits = waits(call),
                                   .confirm_ms = state->u.acquire.heard ? line->confirm_ms : 0,
                                   .number = line->number,
                                   .horizon_ms = horizon_ms(state)};
    if (words.confirm_ms > 0 &&
        (line->least_confirm_ms == 0 || words.confirm_ms < line->least_confirm_ms))
        line->least_confirm_ms = words.confirm_ms;
    return words;
}

/* The newest time of a server that any call of this client has seen. If its clock is set back, it
 * takes a while until messages are newer than that again. */
static int64_t note_newest(struct hfi_node *node, int64_t server_us) {
    _Atomic int64_t *known_us = &hfi_node_learnt(node)->newest_us;
    int64_t newest_us = atomic_load(known_us);
    while (newest_us < server_us && !atomic_compare_exchange_weak(known_us, &newest_us, server_us))
        continue;
    return newest_us > server_us ? newest_us : server_us;
}

static bool stood(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_line *line = &state->u.acquire.line;
    if (line->granted) /* it was over before we came, so the next grant has to wait longer for us */
        line->confirm_ms = hfi_min_ms(2 * line->confirm_ms, call->lease_ms);
    line->granted = false;
    line->queued = line->queued || waits(call);
    line->position = answer->position;
    line->number = answer->number;
    line->answered_us = answer->server_us;
    line->newest_us = note_newest(state->exchange.node, answer->server_us);
    line->asked_ms = state->exchange.sent_ms;
    line->again_ms = answer->again_ms;
    if (answer->ttl_ms != -2)
        line->behind = 0;
    return false;
}

/* How long to sleep at most, so that the server does not take us for dead and we notice when a
 * lease runs out. `poll_ms` is the limit for all other reasons. */
static int64_t longest_nap_ms(struct hfi_call_state *state, int64_t poll_ms) {
    struct hfi_line *line = &state->u.acquire.line;
    int64_t ttl_ms = state->u.acquire.ttl_ms;
    int64_t nap_ms = hfi_min_ms(poll_ms, horizon_ms(state) / 3);
    if (line->again_ms > 0)
        nap_ms = hfi_min_ms(nap_ms, line->again_ms);
    if (!state->u.acquire.heard)
        return nap_ms;
    nap_ms = hfi_min_ms(nap_ms, POLL_MAX_MS);
    if (ttl_ms == -2)
        nap_ms =
            hfi_min_ms(nap_ms, hfi_backoff_ms(&behind, line->behind++, (uint64_t)line->number));
    else if (ttl_ms >= 0 && ttl_ms < nap_ms) /* each of those in front may hold it as long */
        nap_ms =
            hfi_min_ms(nap_ms, (ttl_ms + 1) * (line->position > 0 ? line->position : FAR_BEHIND));
    return nap_ms;
}

static int64_t nap_ms(struct hfi_call *call) {
    return longest_nap_ms(hfi_state_of(call), hfi_listen_poll_ms(call));
}

static enum hfi_told begin(struct hfi_call *call, int64_t *ret_patience_ms) {
    enum hfi_told told = hfi_listen_begin(call, ret_patience_ms);
    if (told == HFI_TOLD_SOON)
        *ret_patience_ms = longest_nap_ms(hfi_state_of(call), *ret_patience_ms);
    return told;
}

/* A message proves the hold for its confirm only; the first renewal, when a third of that is over,
 * gets it the rest of its lease. */
static struct hfi_proof proof_of_message(const struct hfi_call *call, int64_t now_ms,
                                         int64_t confirm_end_ms) {
    const struct hfi_call_state *state = call->state;
    int64_t renew_every_ms = state->exchange.redis->renew_every_ms;
    if (call->lease_ms <= state->u.acquire.line.least_confirm_ms)
        return (struct hfi_proof){.valid_until_ms = confirm_end_ms,
                                  .renew_at_ms = confirm_end_ms - call->lease_ms + renew_every_ms,
                                  .promised_until_ms = confirm_end_ms};
    return (struct hfi_proof){.valid_until_ms = confirm_end_ms,
                              .renew_at_ms = now_ms + (confirm_end_ms - now_ms) / 3,
                              .promised_until_ms = hfi_after_ms(now_ms, call->lease_ms)};
}

static bool woken(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_line *line = &state->u.acquire.line;
    int64_t said_us, heard_ms, now_ms = hfi_now_ms();
    /* a time of one server says nothing about the answers of another */
    bool same = state->u.acquire.home == state->exchange.node;
    if (state->u.acquire.home == NULL || !waits(call) ||
        !hfi_pubsub_take(&state->u.acquire.waiter, &said_us, &heard_ms) || !same)
        return false;
    int64_t passed_us = (now_ms - line->asked_ms) * 1000;
    int64_t latest_us = line->answered_us + ROUNDING_US + passed_us + passed_us / DRIFT;
    line->granted = said_us > line->newest_us && said_us <= latest_us;
    int64_t left_ms = (said_us - latest_us) / 1000 + line->least_confirm_ms - 1;
    /* what replicas are to confirm takes an attempt, which finds the grant */
    if (!line->granted || call->acks != 0 || left_ms <= line->least_confirm_ms / 3)
        return false;

    int64_t confirm_end_ms = hfi_min_ms(now_ms + left_ms, heard_ms + line->least_confirm_ms);
    note_newest(state->exchange.node, said_us);
    call->value = 1;
    call->proof = proof_of_message(call, now_ms, confirm_end_ms);
    hfi_call_finish(call, HF_OK);
    return true;
}

bool hfi_line_is_queued(const struct hfi_call_state *state) {
    return state->acquiring && state->u.acquire.line.queued;
}

const struct hfi_waiting hfi_waiting_in_line = {
    .prepare = prepare,
    .begin = begin,
    .stood = stood,
    .nap_ms = nap_ms,
    .woken = woken,
    .left = hfi_listen_left,
    .in_line = true,
};
