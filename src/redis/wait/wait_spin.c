/*
 * The wait strategy of the spin lock: attempts with exponential back-off, at the latest when the
 * holder's lease ends. No subscription.
 *
 * Used by acquire.c through the table, on the thread of the call's executor. The first sleeps are
 * as short as the clock allows, so a short hold is taken over within a millisecond or two.
 */
#include "base/backoff.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "redis/kinds/kind.h"
#include "redis/wait/wait_strategy.h"

const struct hfi_backoff hfi_spin_backoff = {.first_ms = 1, .max_ms = 128, .factor = 2};

static enum hfi_notified_when begin(struct hfi_call *call, int64_t *ret_subscribe_timeout_ms) {
    (void)call;
    (void)ret_subscribe_timeout_ms;
    return HFI_NOTIFIED_NEVER;
}

static int64_t sleep_ms(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int64_t ttl_ms = state->u.acquire.ttl_ms;
    const struct hfi_backoff *backoff = call->spin.first_ms > 0 ? &call->spin : &hfi_spin_backoff;
    int64_t ms = hfi_backoff_ms(backoff, state->u.acquire.sleeps++, hfi_jitter_bits(state));
    return ttl_ms >= 0 ? hfi_min_ms(ms, ttl_ms + 1) : ms;
}

const struct hfi_wait_strategy hfi_wait_spin = {
    .begin = begin,
    .sleep_ms = sleep_ms,
};
