/*
 * Waiting without being told: attempts, ever further apart, until the holder's lease ends at the
 * latest.
 *
 * Used by acquire.c through the table, on the thread of the call's executor. The first sleeps are as
 * short as the clock allows, so a short hold is taken over within a millisecond or two.
 */
#include "base/backoff.h"
#include "base/chance.h"
#include "base/clock.h"
#include "redis/kind.h"
#include "redis/waiting.h"

const struct hfi_backoff hfi_spin_backoff = {.first_ms = 1, .max_ms = 128, .factor = 2};

static enum hfi_told begin(struct hfi_call *call, int64_t *ret_patience_ms) {
    (void)call;
    (void)ret_patience_ms;
    return HFI_TOLD_NOT;
}

static int64_t nap_ms(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int64_t ttl_ms = state->u.acquire.ttl_ms;
    const struct hfi_backoff *backoff = call->spin.first_ms > 0 ? &call->spin : &hfi_spin_backoff;
    int64_t ms = hfi_backoff_ms(backoff, state->u.acquire.naps++, hfi_throw_dice(state));
    return ttl_ms >= 0 ? hfi_min_ms(ms, ttl_ms + 1) : ms;
}

const struct hfi_waiting hfi_waiting_spin = {
    .begin = begin,
    .nap_ms = nap_ms,
};
