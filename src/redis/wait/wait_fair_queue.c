/*
 * The wait strategy of the fair queue at the server. Each waiter has a channel of its own.
 *
 * Used by acquire.c through the table, and by the fair lock, on the thread of the call's executor,
 * which owns the state (u.acquire.fair_waiter).
 *
 * A grant reserves the lock for us for `confirm` ms before we know of it; the message says since
 * when, on the server's clock. The message alone makes us the holder on two conditions: it cannot
 * be older than the last reply, and a third of the confirm time is certainly left. Both are judged
 * by the last reply, whose server time we know to within a round trip. Such a grant is proved for a
 * part of its lease: the core has it renewed before the confirm time is over. A doubtful message
 * (long under way, or from a server whose clock was set) is only a hint. The next attempt finds out
 * whether there is a grant.
 *
 * Invariant: a message cannot make us the holder while an attempt is under way or may still act.
 */
#include "redis/wait/fair_queue.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "redis/wait/wait_strategy.h"

#define CONFIRM_MAX_MS 3000
#define POLL_MAX_MS 10000
#define LINGER_MS 5000 /* of the subscription: the same owner often returns */
#define ROUNDING_US 2000
#define FAR_BEHIND 65  /* the first position that is not reported */
#define REFUSED_PART 6 /* this part of the horizon, while not yet subscribed */

/* For waiters that find the lock free, but another waiter at the head of the queue. */
static const struct hfi_backoff behind = {.first_ms = 50, .max_ms = 5000, .factor = 2};

static bool waits(const struct hfi_call *call) {
    return call->count == 0 && call->deadline_ms > call->start_ms;
}

static int64_t horizon_ms(const struct hfi_call_state *state) {
    int64_t full_ms = state->exchange.redis->fair_horizon_ms;
    return state->u.acquire.subscribed ? full_ms : full_ms / REFUSED_PART;
}

static void prepare(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_fair_waiter *fair_waiter = &state->u.acquire.fair_waiter;
    fair_waiter->confirm_ms = hfi_min_ms(hfi_min_ms(CONFIRM_MAX_MS, call->lease_ms),
                                         state->exchange.redis->fair_confirm_ms);
    state->u.acquire.waiter.linger_ms = LINGER_MS;
    state->u.acquire.waiter.grant = &fair_waiter->grant;
    if (call->deadline_ms > call->start_ms)
        hfi_listen_if_subscribed(call);
}

struct hfi_fair_waiter_report hfi_fair_waiter_build_report(const struct hfi_call *call) {
    struct hfi_call_state *state = call->state;
    struct hfi_fair_waiter *fair_waiter = &state->u.acquire.fair_waiter;
    struct hfi_fair_waiter_report report = {
        .waits = waits(call),
        .confirm_ms = state->u.acquire.subscribed ? fair_waiter->confirm_ms : 0,
        .arrival = fair_waiter->arrival,
        .horizon_ms = horizon_ms(state)};
    if (report.confirm_ms > 0 &&
        (fair_waiter->least_confirm_ms == 0 || report.confirm_ms < fair_waiter->least_confirm_ms))
        fair_waiter->least_confirm_ms = report.confirm_ms;
    return report;
}

/* Returns the newest time of a server that any call of this client has seen. If that clock is set
 * back, it takes a while until messages are newer again. */
static int64_t note_newest(struct hfi_node *node, int64_t server_us) {
    _Atomic int64_t *known_us = &hfi_node_learnt(node)->newest_us;
    int64_t newest_us = atomic_load(known_us);
    while (newest_us < server_us && !atomic_compare_exchange_weak(known_us, &newest_us, server_us))
        continue;
    return newest_us > server_us ? newest_us : server_us;
}

static bool on_busy(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_fair_waiter *fair_waiter = &state->u.acquire.fair_waiter;
    /* the grant ended before our attempt, so the next one has to wait longer for us */
    if (fair_waiter->granted)
        fair_waiter->confirm_ms = hfi_min_ms(2 * fair_waiter->confirm_ms, call->lease_ms);
    fair_waiter->granted = false;
    fair_waiter->queued = fair_waiter->queued || waits(call);
    fair_waiter->position = answer->position;
    fair_waiter->arrival = answer->arrival;
    fair_waiter->answered_us = answer->server_us;
    fair_waiter->newest_us = note_newest(state->exchange.node, answer->server_us);
    fair_waiter->asked_ms = state->exchange.sent_ms;
    fair_waiter->again_ms = answer->again_ms;
    if (answer->ttl_ms != -2)
        fair_waiter->behind = 0;
    return false;
}

/* The longest sleep with which the server does not take us for dead, and we notice when a lease
 * expires. `poll_ms` is the limit for all other reasons. */
static int64_t longest_sleep_ms(struct hfi_call_state *state, int64_t poll_ms) {
    struct hfi_fair_waiter *fair_waiter = &state->u.acquire.fair_waiter;
    int64_t ttl_ms = state->u.acquire.ttl_ms;
    int64_t sleep_ms = hfi_min_ms(poll_ms, horizon_ms(state) / 3);
    if (fair_waiter->again_ms > 0)
        sleep_ms = hfi_min_ms(sleep_ms, fair_waiter->again_ms);
    if (!state->u.acquire.subscribed)
        return sleep_ms;
    sleep_ms = hfi_min_ms(sleep_ms, POLL_MAX_MS);
    if (ttl_ms == -2)
        sleep_ms = hfi_min_ms(sleep_ms, hfi_backoff_ms(&behind, fair_waiter->behind++,
                                                       (uint64_t)fair_waiter->arrival));
    else if (ttl_ms >= 0 && ttl_ms < sleep_ms) /* each waiter ahead may hold it as long */
        sleep_ms =
            hfi_min_ms(sleep_ms, (ttl_ms + 1) * (fair_waiter->position > 0 ? fair_waiter->position
                                                                           : FAR_BEHIND));
    return sleep_ms;
}

static int64_t sleep_ms(struct hfi_call *call) {
    return longest_sleep_ms(hfi_state_of(call), hfi_listen_poll_ms(call));
}

static enum hfi_notified_when begin(struct hfi_call *call, int64_t *ret_subscribe_timeout_ms) {
    enum hfi_notified_when notified = hfi_listen_begin(call, ret_subscribe_timeout_ms);
    if (notified == HFI_NOTIFIED_SOON)
        *ret_subscribe_timeout_ms = longest_sleep_ms(hfi_state_of(call), *ret_subscribe_timeout_ms);
    return notified;
}

/* A message proves the hold for its confirm time only. The first renewal, when a third of that is
 * over, proves the rest of the lease. */
static struct hfi_proof proof_of_message(const struct hfi_call *call, int64_t now_ms,
                                         int64_t confirm_end_ms) {
    const struct hfi_call_state *state = call->state;
    const struct hfi_redis *redis = state->exchange.redis;
    if (call->lease_ms <= state->u.acquire.fair_waiter.least_confirm_ms)
        return (struct hfi_proof){.valid_until_ms = confirm_end_ms,
                                  .renew_at_ms =
                                      confirm_end_ms - call->lease_ms + redis->renew_every_ms,
                                  .promised_until_ms = confirm_end_ms};
    return (struct hfi_proof){.valid_until_ms = confirm_end_ms,
                              .renew_at_ms = now_ms + (confirm_end_ms - now_ms) / 3,
                              .promised_until_ms = hfi_after_ms(
                                  now_ms, hfi_trusted_ms(call->lease_ms, redis->clock_drift_ppm))};
}

static bool woken(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_fair_waiter *fair_waiter = &state->u.acquire.fair_waiter;
    int64_t said_us, received_ms, now_ms = hfi_now_ms();
    /* a time of one server says nothing about the replies of another */
    bool same = state->u.acquire.home == state->exchange.node;
    if (state->u.acquire.home == NULL || !waits(call) ||
        !hfi_pubsub_take(&state->u.acquire.waiter, &said_us, &received_ms) || !same)
        return false;
    int64_t passed_us = (now_ms - fair_waiter->asked_ms) * 1000;
    int64_t drift_ppm = state->exchange.redis->clock_drift_ppm;
    int64_t latest_us =
        fair_waiter->answered_us + ROUNDING_US + passed_us + hfi_drift(passed_us, drift_ppm);
    fair_waiter->granted = said_us > fair_waiter->newest_us && said_us <= latest_us;
    int64_t left_ms =
        hfi_trusted_ms((said_us - latest_us) / 1000 + fair_waiter->least_confirm_ms - 1, drift_ppm);
    /* replica acks take an attempt, which finds the grant */
    if (!fair_waiter->granted || call->acks != 0 || left_ms <= fair_waiter->least_confirm_ms / 3)
        return false;

    int64_t confirm_end_ms =
        hfi_min_ms(now_ms + left_ms, received_ms + fair_waiter->least_confirm_ms);
    note_newest(state->exchange.node, said_us);
    call->value = 1;
    call->proof = proof_of_message(call, now_ms, confirm_end_ms);
    hfi_call_finish(call, HF_OK);
    return true;
}

bool hfi_fair_waiter_is_queued(const struct hfi_call_state *state) {
    return state->acquiring && state->u.acquire.fair_waiter.queued;
}

const struct hfi_wait_strategy hfi_wait_fair_queue = {
    .prepare = prepare,
    .begin = begin,
    .on_busy = on_busy,
    .sleep_ms = sleep_ms,
    .woken = woken,
    .end = hfi_listen_end,
    .has_queue = true,
};
