/*
 * Waiting for a latch, which counts down to being open for everybody, perhaps for a moment only.
 *
 * Used by acquire.c through the table, on the thread of the call's executor. An attempt only looks.
 * So a wait is also ended by a proof that the latch was open which was not there at the first look,
 * or by a count that has grown: it was open in between. A message is no proof, but a reason to look.
 */
#include "redis/kind.h"
#include "redis/waiting.h"

/* It is closed. Has it been open since the first look? */
static bool stood(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    struct hfi_latch_look *look = &hfi_state_of(call)->u.acquire.latch;
    bool first = look->count == 0;
    bool grown = answer->count > look->count;
    look->count = answer->count;
    if (first)
        look->proof = answer->proof;
    return !first && (grown || (answer->proof != 0 && answer->proof != look->proof));
}

const struct hfi_waiting hfi_waiting_latch = {
    .begin = hfi_listen_begin,
    .stood = stood,
    .nap_ms = hfi_listen_nap_ms,
    .left = hfi_listen_left,
    .only_looks = true,
};
