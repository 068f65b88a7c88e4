/*
 * The sweep of dead waiters that a hand-over left at the head of a fair queue.
 *
 * Called by release.c, break.c, settle.c, acquire.c and the fair lock, on the thread of the call's
 * executor, which owns the state. One script sweeps a bounded number of dead waiters. If there are
 * more, the call that handed over sends further scripts, and keeps the result that it already has.
 */
#include "base/error.h"
#include "redis/wait/fair_queue.h"

#include <string.h>

void hfi_fair_waiter_stop(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->handing_over)
        hfi_error_clear(&call->error); /* a failed sweep is not the call's result */
    if (state->outcome_text == NULL)
        hfi_call_finish(call, state->outcome);
    else
        hfi_call_fail(call, state->outcome, state->outcome_text);
}

static void write_hand_over(struct hfi_exchange *x, int64_t not_after_ms,
                            struct hfi_command *command) {
    const struct hfi_call_state *state = hfi_state_around(x);
    state->kind->write_hand_over(x->redis, state->call, not_after_ms, command);
}

static void handed_over(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_release_answer answer = {0};
    if (state->exchange.err == HF_OK)
        state->kind->read_hand_over(hfi_exchange_reply(&state->exchange), &answer);
    if (answer.waiters_unnotified)
        hfi_redis_notify_failed(&state->exchange);
    if (answer.more)
        hfi_call_send(call, state->kind->hand_over, write_hand_over, handed_over);
    else
        hfi_fair_waiter_stop(call);
}

/* If the sweep fails, the waiters do it themselves with their next attempts. */
void hfi_fair_waiter_finish(struct hfi_call *call, int err, const char *text, bool more) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->outcome = err;
    state->outcome_text = text;
    state->handing_over = more;
    if (!more) {
        hfi_fair_waiter_stop(call);
        return;
    }
    state->settles = false;
    hfi_call_send(call, state->kind->hand_over, write_hand_over, handed_over);
}

/* ---- Rights ---- */

void hfi_fair_waiter_note_keys(const struct hfi_call *call, bool remembers) {
    struct hfi_call_state *state = call->state;
    state->remembers = remembers;
}

bool hfi_fair_waiter_do_without(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis *redis = state->exchange.redis;
    /* If a key is not allowed for a command, all servers say "key", and none says which one. */
    if (!state->remembers || state->exchange.err != HF_EPERM ||
        strstr(call->error.text, "key") == NULL)
        return false;
    if (!atomic_exchange(&hfi_node_learnt(state->exchange.node)->no_unheard, true))
        hfi_log(redis->log, HF_LOG_WARN,
                HFI_ABOUT(.code = HF_EPERM, .server = hfi_node_name(state->exchange.node),
                          .name = call->name, .name_len = call->name_len),
                "this user may not use a key of a fair lock, perhaps the one that records "
                "unheard notifications; without it, each dead Java client delays the queue; "
                "allow it");
    return true;
}
