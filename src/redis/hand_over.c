/*
 * What a hand-over leaves in front of a line, and what it may leave behind.
 *
 * Called by release.c, force.c, settle.c, acquire.c and the fair lock, on the thread of the call's
 * executor, which owns the state. One script passes over so many dead waiters at most. If there are
 * more, the call that handed over goes on, with the outcome it already has.
 */
#include "base/error.h"
#include "redis/line.h"

#include <string.h>

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
    const struct hfi_call_state *state = hfi_state_around(x);
    state->kind->write_hand_over(x->redis, state->call, not_after_ms, command);
}

static void handed_over(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_release_answer answer = {0};
    if (state->exchange.err == HF_OK)
        state->kind->read_hand_over(hfi_exchange_reply(&state->exchange), &answer);
    if (answer.not_notified)
        hfi_redis_notify_failed(&state->exchange);
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
    if (!atomic_exchange(&hfi_node_learnt(state->exchange.node)->no_unheard, true))
        hfi_log(redis->log, HF_LOG_WARN,
                "this user may not use a key of a fair lock, perhaps that which remembers who did "
                "not hear; without it, dead Java clients are waited for one by one");
    return true;
}
