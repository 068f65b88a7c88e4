/*
 * Operations on objects that are not locks, in one exchange each: set, give back, count down,
 * queries.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor, which owns
 * the state. The object's table of operations has each one's script, its arguments and how to read
 * the reply; nothing here knows which object it is. An operation that may run only once is never
 * sent again unless the server has said that it did nothing.
 */
#include "base/clock.h"
#include "redis/kinds/lease_validity.h"
#include "redis/ops/call.h"

#include <assert.h>

static void write_object_op(struct hfi_exchange *x, int64_t not_after_ms,
                            struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    state->u.object_op->write(x->redis, state->call, not_after_ms, command);
}

static void acted(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_object_op_reply answer = {0};
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    int err = state->u.object_op->read(call, hfi_exchange_reply(&state->exchange), &answer);
    if (err == HF_EPROTO) {
        hfi_call_fail_proto(call);
        return;
    }
    if (answer.waiters_unnotified)
        hfi_redis_notify_failed(&state->exchange);
    if (answer.holder_unnotified)
        hfi_break_channel_refused(&state->exchange);
    call->value = answer.value;
    call->proof =
        hfi_proof_of(state->exchange.redis, call->kind, state->exchange.sent_ms, call->lease_ms);
    if (err == HF_OK && call->object_op == HFI_OBJECT_EXTEND)
        hfi_confirm_extension(call);
    else if (err == HF_OK)
        hfi_call_finish(call, HF_OK);
    else
        hfi_call_fail(call, err, answer.text != NULL ? answer.text : hf_strerror(err));
}

void hfi_object_op_send(struct hfi_call *call, const struct hfi_redis_object_op *object_op,
                        void (*answered)(struct hfi_call *call)) {
    struct hfi_call_state *state = hfi_state_of(call);
    assert(object_op->write != NULL);
    state->u.object_op = object_op;
    state->exchange.once = object_op->once;
    hfi_call_send(call, object_op->script, write_object_op, answered);
}

void hfi_object_op(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    const struct hfi_redis_object_op *object_op = &state->kind->object_ops[call->object_op];
    if (object_op->write == NULL) {
        hfi_call_fail(call, HF_ENOTSUP, "this kind of object does not support the operation");
        return;
    }
    state->settles = object_op->settles;
    hfi_object_op_send(call, object_op, acted);
}
