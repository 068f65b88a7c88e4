/*
 * The wait strategy of string locks: by who has the lock now, which each attempt shows.
 *
 * Used by acquire.c through the table, on the thread of the call's executor. A holder of ours
 * publishes its release, so the waiter subscribes, as for a plain lock. Other libraries publish
 * nothing: behind one of their tokens the waiter attempts every 50 to 250 ms, at the latest when
 * the lease ends. This is where tracking could wake it earlier.
 */
#include "base/clock.h"
#include "base/jitter.h"
#include "redis/kinds/kind.h"
#include "redis/wait/wait_strategy.h"

#define FOREIGN_MIN_MS 50
#define FOREIGN_MAX_MS 250

static bool on_busy(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    hfi_state_of(call)->u.acquire.string.foreign = answer->foreign;
    return false;
}

static enum hfi_notified_when begin(struct hfi_call *call, int64_t *ret_patience_ms) {
    if (hfi_state_of(call)->u.acquire.string.foreign)
        return HFI_NOTIFIED_NEVER;
    return hfi_listen_begin(call, ret_patience_ms);
}

static int64_t sleep_ms(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    int64_t ttl_ms = state->u.acquire.ttl_ms;
    if (!state->u.acquire.string.foreign)
        return hfi_listen_sleep_ms(call);
    int64_t ms =
        FOREIGN_MIN_MS + (int64_t)(hfi_jitter_bits(state) % (FOREIGN_MAX_MS - FOREIGN_MIN_MS + 1));
    return ttl_ms >= 0 ? hfi_min_ms(ms, ttl_ms + 1) : ms;
}

const struct hfi_wait_strategy hfi_wait_string = {
    .begin = begin,
    .on_busy = on_busy,
    .sleep_ms = sleep_ms,
    .end = hfi_listen_end,
};
