/*
 * The wait strategy of a latch, which may be open for a moment only.
 *
 * Used by acquire.c through the table, on the thread of the call's executor. An attempt only reads.
 * A wait also ends if the latch was open in between. Two things show that: a proof that was not
 * there at the first attempt, or a count that has grown. A message proves nothing, but is a reason
 * to attempt.
 */
#include "redis/kinds/kind.h"
#include "redis/wait/wait_strategy.h"

/* It is closed. Has it been open since the first attempt? */
static bool on_busy(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    struct hfi_latch_view *seen = &hfi_state_of(call)->u.acquire.latch;
    bool first = seen->count == 0;
    bool grown = answer->count > seen->count;
    seen->count = answer->count;
    if (first)
        seen->proof = answer->proof;
    return !first && (grown || (answer->proof != 0 && answer->proof != seen->proof));
}

const struct hfi_wait_strategy hfi_wait_latch = {
    .begin = hfi_listen_begin,
    .on_busy = on_busy,
    .sleep_ms = hfi_listen_sleep_ms,
    .end = hfi_listen_end,
    .read_only = true,
};
