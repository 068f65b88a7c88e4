/*
 * Waiting in line at the server, and what a hand-over leaves in front of the line.
 *
 * Called by acquire.c, verbs.c and the fair lock, on the thread of the call's executor, which owns
 * the state (u.acquire.line). A grant is ours before we know of it, for `confirm` ms; the message says since
 * when, on the server's clock. The message alone makes us the owner if it cannot be older than the
 * last answer, and if a third of the confirm is certain to be left. Both are judged by the last
 * answer, whose time is known here to within a round trip. Such a grant is proved for a part of its lease: the core
 * has it renewed before the confirm is over. A doubtful message (one that was long under way, or
 * from a server whose clock was set) is only a hint, and the next attempt finds out whether there
 * is a grant.
 *
 * Invariant: a message cannot make us the owner while an attempt is under way or may still act.
 */
#include "redis/line.h"

#include "base/clock.h"
#include "base/error.h"

#include <string.h>

#define CONFIRM_MAX_MS 3000
#define POLL_MAX_MS 10000
#define LINGER_MS 5000 /* for the subscription: the same owner often comes again */
#define DRIFT 1000     /* clocks drift apart by no more than one part in this many */
#define ROUNDING_US 2000
#define FAR_BEHIND 65 /* the first place that is not told */
#define DEAF_PART 6   /* this part of the horizon, while the waiter does not listen yet */

/* For waiters that find the lock free, but somebody else first in line. */
static const struct hfi_backoff behind = {.first_ms = 50, .max_ms = 5000, .factor = 2};

static int64_t lesser(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static bool waits(const struct hfi_call *call) {
    return call->count == 0 && call->deadline_ms > call->start_ms;
}

static int64_t horizon_ms(const struct hfi_call_state *state) {
    int64_t full_ms = state->exchange.redis->fair_horizon_ms;
    return state->u.acquire.heard ? full_ms : full_ms / DEAF_PART;
}

void hfi_line_begin(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_line *line = &state->u.acquire.line;
    line->confirm_ms =
        lesser(lesser(CONFIRM_MAX_MS, call->lease_ms), state->exchange.redis->fair_confirm_ms);
    state->u.acquire.waiter.linger_ms = LINGER_MS;
}

struct hfi_line_words hfi_line_say(const struct hfi_call *call) {
    struct hfi_call_state *state = call->state;
    struct hfi_line *line = &state->u.acquire.line;
    struct hfi_line_words words = {.waits = waits(call),
                                   .confirm_ms = state->u.acquire.heard ? line->confirm_ms : 0,
                                   .ticket = line->ticket,
                                   .horizon_ms = horizon_ms(state)};
    if (words.confirm_ms > 0 &&
        (line->least_confirm_ms == 0 || words.confirm_ms < line->least_confirm_ms))
        line->least_confirm_ms = words.confirm_ms;
    return words;
}

/* The newest server time that any call of this client has seen. If the server's clock is set back,
 * it takes a while until messages are newer than that again. */
static int64_t note_newest(struct hfi_redis *redis, int64_t server_us) {
    int64_t newest_us = atomic_load(&redis->fair_newest_us);
    while (newest_us < server_us &&
           !atomic_compare_exchange_weak(&redis->fair_newest_us, &newest_us, server_us))
        continue;
    return newest_us > server_us ? newest_us : server_us;
}

void hfi_line_stand(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_line *line = &state->u.acquire.line;
    if (line->granted) /* it was over before we came, so the next grant has to wait longer for us */
        line->confirm_ms = lesser(2 * line->confirm_ms, call->lease_ms);
    line->granted = false;
    line->queued = line->queued || waits(call);
    line->place = answer->place;
    line->ticket = answer->ticket;
    line->answered_us = answer->server_us;
    line->newest_us = note_newest(state->exchange.redis, answer->server_us);
    line->asked_ms = state->exchange.sent_ms;
    line->again_ms = answer->again_ms;
    if (answer->ttl_ms != -2)
        line->behind = 0;
}

int64_t hfi_line_nap_ms(struct hfi_call_state *state, int64_t poll_ms) {
    struct hfi_line *line = &state->u.acquire.line;
    int64_t ttl_ms = state->u.acquire.ttl_ms;
    int64_t nap_ms = lesser(poll_ms, horizon_ms(state) / 3);
    if (line->again_ms > 0)
        nap_ms = lesser(nap_ms, line->again_ms);
    if (!state->u.acquire.heard)
        return nap_ms;
    nap_ms = lesser(nap_ms, POLL_MAX_MS);
    if (ttl_ms == -2)
        nap_ms = lesser(nap_ms, hfi_backoff_ms(&behind, line->behind++, (uint64_t)line->ticket));
    else if (ttl_ms >= 0 && ttl_ms < nap_ms) /* each of those in front may hold it as long */
        nap_ms = lesser(nap_ms, (ttl_ms + 1) * (line->place > 0 ? line->place : FAR_BEHIND));
    return nap_ms;
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

bool hfi_line_enter(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_line *line = &state->u.acquire.line;
    int64_t said_us, heard_ms, now_ms = hfi_now_ms();
    if (!state->u.acquire.listening || !waits(call) ||
        !hfi_pubsub_take(state->exchange.redis->pubsub, &state->u.acquire.waiter, &said_us,
                         &heard_ms))
        return false;
    int64_t passed_us = (now_ms - line->asked_ms) * 1000;
    int64_t latest_us = line->answered_us + ROUNDING_US + passed_us + passed_us / DRIFT;
    line->granted = said_us > line->newest_us && said_us <= latest_us;
    int64_t left_ms = (said_us - latest_us) / 1000 + line->least_confirm_ms - 1;
    if (!line->granted || left_ms <= line->least_confirm_ms / 3)
        return false;

    int64_t confirm_end_ms = lesser(now_ms + left_ms, heard_ms + line->least_confirm_ms);
    note_newest(state->exchange.redis, said_us);
    call->value = 1;
    call->proof = proof_of_message(call, now_ms, confirm_end_ms);
    hfi_call_finish(call, HF_OK);
    return true;
}

/* ---- Handing over ---- */

void hfi_line_stop(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->handing_over)
        hfi_error_clear(&call->error); /* what went wrong with the rest is not its outcome */
    if (state->outcome_words == NULL)
        hfi_call_finish(call, state->outcome);
    else
        hfi_call_fail(call, state->outcome, state->outcome_words);
}

static void write_hand_over(struct hfi_exchange *x, int64_t not_after_ms,
                            struct hfi_command *command) {
    const struct hfi_call_state *state = HFI_CONTAINER(x, struct hfi_call_state, exchange);
    state->kind->write_hand_over(x->redis, state->call, not_after_ms, command);
}

static void handed_over(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_release_answer answer = {0};
    if (state->exchange.err == HF_OK)
        state->kind->read_hand_over(hfi_exchange_reply(&state->exchange), &answer);
    if (answer.not_notified)
        hfi_redis_notify_failed(state->exchange.redis);
    if (answer.more)
        hfi_call_send(call, state->kind->hand_over, write_hand_over, handed_over);
    else
        hfi_line_stop(call);
}

/* What fails from here on is left to those who wait: they look for themselves. */
void hfi_line_finish(struct hfi_call *call, int err, const char *words, bool more) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->outcome = err;
    state->outcome_words = words;
    state->handing_over = more;
    if (!more) {
        hfi_line_stop(call);
        return;
    }
    state->settles = false;
    hfi_call_send(call, state->kind->hand_over, write_hand_over, handed_over);
}

/* ---- Rights ---- */

void hfi_line_note_keys(const struct hfi_call *call, bool remembers) {
    struct hfi_call_state *state = call->state;
    state->remembers = remembers;
}

bool hfi_line_do_without(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis *redis = state->exchange.redis;
    /* All servers say "key" if it is not for a command, and none of them says which one. */
    if (!state->remembers || state->exchange.err != HF_EPERM ||
        strstr(call->error.text, "key") == NULL)
        return false;
    if (!atomic_exchange(&redis->fair_forgets, true))
        hfi_log(redis->log, HF_LOG_WARN,
                "this user may not use a key of a fair lock, perhaps that which remembers who did "
                "not hear; without it, dead Java clients are waited for one by one");
    return true;
}

bool hfi_line_is_queued(const struct hfi_call_state *state) {
    return state->acquiring && state->kind->give_up != NULL && state->u.acquire.line.queued;
}
