/*
 * The wait strategy of string locks: by who has the lock now, which each attempt shows.
 *
 * Used by acquire.c through the table, on the thread of the call's executor. A holder of ours
 * publishes its release, so the waiter subscribes, as for a plain lock. Other libraries publish
 * nothing: behind one of their tokens the attempt has the key tracked (pubsub/track.h), and the
 * report comes as a message. It can fail to come if the connection of the attempt ends, so the
 * waiter also attempts every few seconds. Without tracking it attempts every 50 to 250 ms. In any
 * case it does when the lease ends.
 */
#include "base/clock.h"
#include "base/jitter.h"
#include "redis/kinds/kind.h"
#include "redis/pubsub/track.h"
#include "redis/wait/wait_strategy.h"

#define FOREIGN_MIN_MS 50
#define FOREIGN_MAX_MS 250
#define TRACKED_MAX_MS 5000

static bool on_busy(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    hfi_state_of(call)->u.acquire.string.foreign = answer->foreign;
    hfi_state_of(call)->u.acquire.string.tracked = answer->tracked;
    return false;
}

static enum hfi_notified_when begin(struct hfi_call *call, int64_t *ret_subscribe_timeout_ms) {
    const struct hfi_call_state *state = hfi_state_of(call);
    bool possible = hfi_tracker_is_possible(hfi_node_learnt(state->exchange.node)->tracker) &&
                    !hfi_exchange_is_acked(&state->exchange);
    if (state->u.acquire.string.foreign && !possible)
        return HFI_NOTIFIED_NEVER;
    return hfi_listen_begin(call, ret_subscribe_timeout_ms);
}

static int64_t sleep_ms(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    int64_t ttl_ms = state->u.acquire.ttl_ms;
    if (!state->u.acquire.string.foreign)
        return hfi_listen_sleep_ms(call);
    int64_t ms =
        FOREIGN_MIN_MS + (int64_t)(hfi_jitter_bits(state) % (FOREIGN_MAX_MS - FOREIGN_MIN_MS + 1));
    if (state->u.acquire.string.tracked && state->u.acquire.subscribed)
        ms = TRACKED_MAX_MS;
    return ttl_ms >= 0 ? hfi_min_ms(ms, ttl_ms + 1) : ms;
}

const struct hfi_wait_strategy hfi_wait_string = {
    .begin = begin,
    .on_busy = on_busy,
    .sleep_ms = sleep_ms,
    .end = hfi_listen_end,
};
