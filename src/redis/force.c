/*
 * Breaking a hold, whoever has it: look who holds the lock, then break that hold and no other.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor, which owns
 * the state. If the lock has changed hands in between, it begins again, BREAK_ROUNDS_MAX times at
 * most.
 */
#include "redis/internal.h"
#include "redis/kind.h"
#include "redis/line.h"

#include <assert.h>

#define BREAK_ROUNDS_MAX 10

static void look_at_holder(struct hfi_call *call);

static void drop_seen(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_req_unref(state->u.force.seen);
    state->u.force.seen = NULL;
}

static void write_force(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    const redisReply *owner = NULL;
    int err = state->kind->find_holder(state->u.force.seen->reply, &owner);
    assert(err == HF_OK && owner != NULL); /* it was found in this very reply before */
    (void)err;
    state->kind->write_force(x->redis, state->call, owner->str, owner->len, not_after_ms, command);
}

static void broken(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_force_answer answer = {0};
    if (hfi_line_do_without(call)) {
        hfi_call_send(call, state->kind->force, write_force, broken);
        return;
    }
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    if (state->kind->read_force(hfi_answer_of(call), &answer) != HF_OK) {
        hfi_call_fail_proto(call);
        return;
    }
    if (answer.not_notified)
        hfi_redis_notify_failed(&state->exchange);
    if (answer.not_told)
        hfi_rumours_refused(&state->exchange);
    if (answer.broken || state->exchange.resent) {
        call->value = 1;
        hfi_line_finish(call, HF_OK, NULL, answer.more);
        return;
    }
    drop_seen(call);
    if (++state->u.force.rounds >= BREAK_ROUNDS_MAX)
        hfi_call_fail(call, HF_EBUSY,
                      "the lock passed from hand to hand faster than it was broken");
    else
        look_at_holder(call);
}

static void seen_holder(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    const redisReply *owner = NULL;
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    const redisReply *fields = hfi_answer_of(call);
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements % 2 != 0) {
        hfi_call_fail_proto(call);
    } else if (state->kind->find_holder(fields, &owner) != HF_OK) {
        hfi_call_fail(call, HF_EWRONGTYPE, "what has this name is no lock of this kind");
    } else if (owner == NULL) {
        hfi_call_finish(call, HF_OK); /* value 0: there was nothing to break */
    } else {
        state->u.force.seen = x->req; /* the reply is where the owner's name is */
        x->req = NULL;
        hfi_call_send(call, state->kind->force, write_force, broken);
    }
}

static void write_fields(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    (void)not_after_ms;
    hfi_command_text(command, "HGETALL");
    hfi_name_key(&x->redis->names, call->name, call->name_len, command);
}

static void look_at_holder(struct hfi_call *call) {
    hfi_call_send(call, NULL, write_fields, seen_holder);
}

void hfi_force(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    state->cleanup = drop_seen;
    look_at_holder(call);
}
