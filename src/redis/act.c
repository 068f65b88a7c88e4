/*
 * What is done to things that are not locks, in one exchange each: set, give back, count down,
 * questions.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor, which owns
 * the state. The thing's table of acts says which script, what it is given and what its answer
 * means; nothing here knows which thing it is. An act that may run only once is never sent again
 * unless the server has said that it did nothing.
 */
#include "base/clock.h"
#include "redis/internal.h"
#include "redis/kind.h"

#include <assert.h>

static void write_act(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    state->u.act->write(x->redis, state->call, not_after_ms, command);
}

static void acted(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_act_answer answer = {0};
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    int err = state->u.act->read(call, hfi_exchange_reply(&state->exchange), &answer);
    if (err == HF_EPROTO) {
        hfi_call_fail_proto(call);
        return;
    }
    if (answer.not_notified)
        hfi_redis_notify_failed(&state->exchange);
    if (answer.not_told)
        hfi_rumours_refused(&state->exchange);
    call->value = answer.value;
    call->proof =
        hfi_proof_of(state->exchange.redis, call->kind, state->exchange.sent_ms, call->lease_ms);
    if (err == HF_OK)
        hfi_call_finish(call, HF_OK);
    else
        hfi_call_fail(call, err, answer.words != NULL ? answer.words : hf_strerror(err));
}

void hfi_act_send(struct hfi_call *call, const struct hfi_redis_act *act,
                  void (*answered)(struct hfi_call *call)) {
    struct hfi_call_state *state = hfi_state_of(call);
    assert(act->write != NULL);
    state->u.act = act;
    state->exchange.once = act->once;
    hfi_call_send(call, act->script, write_act, answered);
}

void hfi_act(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    const struct hfi_redis_act *act = &state->kind->acts[call->act];
    if (act->write == NULL) {
        hfi_call_fail(call, HF_ENOTSUP, "there is no such thing to be done to it");
        return;
    }
    state->settles = act->settles;
    hfi_act_send(call, act, acted);
}
