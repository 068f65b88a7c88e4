/*
 * Breaking a hold, regardless of its owner: read the holder, then break that hold and no other.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor, which owns
 * the state. If the lock has changed hands in between, it starts over, BREAK_ROUNDS_MAX times at
 * most.
 */
#include "redis/kinds/kind.h"
#include "redis/ops/call.h"
#include "redis/wait/fair_queue.h"

#include <assert.h>

#define BREAK_ROUNDS_MAX 10

static void read_holder(struct hfi_call *call);

static void drop_seen(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_req_unref(state->u.break_holds.seen);
    state->u.break_holds.seen = NULL;
}

static void write_break(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    const struct hfi_reply *owner = NULL;
    int err = state->kind->find_holder(state->u.break_holds.seen->reply, &owner);
    assert(err == HF_OK && owner != NULL); /* it was found in this reply before */
    (void)err;
    state->kind->write_break(x->redis, state->call, owner->str, owner->len, not_after_ms, command);
}

static void broken(struct hfi_call *call);

static void send_break(struct hfi_call *call) {
    const struct hfi_redis_kind *kind = hfi_state_of(call)->kind;
    hfi_call_send_chosen(call, kind->choose_break, kind->break_holds, write_break, broken);
}

static void broken(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_break_reply answer = {0};
    if (hfi_fair_waiter_do_without(call) ||
        (state->kind->learn != NULL && state->kind->learn(&state->exchange))) {
        send_break(call);
        return;
    }
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    int err = state->kind->read_chosen_break != NULL
                  ? state->kind->read_chosen_break(&state->exchange, &answer)
                  : state->kind->read_break(hfi_answer_of(call), &answer);
    if (err != HF_OK) {
        hfi_call_fail_proto(call);
        return;
    }
    if (answer.waiters_unnotified)
        hfi_redis_notify_failed(&state->exchange);
    if (answer.holder_unnotified)
        hfi_break_channel_refused(&state->exchange);
    if (answer.broken || state->exchange.resent) {
        call->value = 1;
        hfi_fair_waiter_finish(call, HF_OK, NULL, answer.more);
        return;
    }
    drop_seen(call);
    if (++state->u.break_holds.rounds >= BREAK_ROUNDS_MAX)
        hfi_call_fail(call, HF_EBUSY,
                      "the lock changed owners faster than it could be broken; try again");
    else
        read_holder(call);
}

static void seen_holder(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    const struct hfi_reply *owner = NULL;
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    const struct hfi_reply *fields = hfi_answer_of(call);
    if (state->kind->holder_query == NULL &&
        (fields->type != HFI_REPLY_ARRAY || fields->elements % 2 != 0)) {
        hfi_call_fail_proto(call);
    } else if (state->kind->find_holder(fields, &owner) != HF_OK) {
        hfi_call_fail(call, HF_EWRONGTYPE, "the name is not a lock of this kind");
    } else if (owner == NULL) {
        hfi_call_finish(call, HF_OK); /* value 0: there was nothing to break */
    } else {
        state->u.break_holds.seen = x->req; /* the reply contains the owner */
        x->req = NULL;
        send_break(call);
    }
}

static void write_fields(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    const struct hfi_call_state *state = hfi_state_around(x);
    const struct hfi_call *call = state->call;
    const char *query = state->kind->holder_query;
    (void)not_after_ms;
    hfi_command_text(command, query != NULL ? query : "HGETALL");
    hfi_name_key(&x->redis->names, call->name, call->name_len, command);
}

static void read_holder(struct hfi_call *call) {
    hfi_call_send(call, NULL, write_fields, seen_holder);
}

void hfi_break(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    state->cleanup = drop_seen;
    read_holder(call);
}
