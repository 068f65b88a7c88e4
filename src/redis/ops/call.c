/*
 * What all calls of the engine share: initialising, stepping, cancelling and ending them.
 *
 * Called by the operations, and by src/core through the engine's table (step, cancel); always on
 * the thread of the call's executor. Invariant: done() runs exactly once, last, when nothing of the
 * call is left: no request that could post to its task, no alarm, no subscription.
 */
#include "redis/ops/call.h"
#include "base/clock.h"
#include "base/error.h"
#include "redis/kinds/kind.h"
#include "redis/wait/fair_queue.h"

#include <assert.h>
#include <stdio.h>

static void step_exchange(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (hfi_exchange_step(&state->exchange, events) == HFI_FINISHED)
        state->answered(call);
}

struct hfi_call_state *hfi_call_begin(struct hfi_call *call) {
    struct hfi_call_state *state = call->state;
    struct hfi_exchange *x = &state->exchange;
    state->call = call;
    state->step = step_exchange;
    state->kind = hfi_redis_kind_of(call->kind);
    call->err = HF_OK;
    call->value = call->token = call->acked = call->notified_us = 0;
    call->proof = (struct hfi_proof){0};
    call->contended = call->unsettled = call->may_have_run = call->gone = false;
    call->queued = call->no_server = call->hopeless = false;
    call->others = HFI_OTHERS_UNKNOWN;
    hfi_error_clear(&call->error);

    x->redis = hfi_redis_of(call->engine);
    x->task = call->task;
    x->lane = call->lane;
    x->name = call->name;
    x->name_len = hfi_kind_stem_len(call->kind, call->name, call->name_len);
    x->undeclared_keys = state->kind != NULL && state->kind->undeclared_keys;
    x->retry = HFI_RETRY_BRIEFLY;
    x->limit_ms = call->deadline_ms;
    x->reach_until_ms = call->deadline_ms;
    x->silence_ms = HFI_NEVER;
    x->limit_err = HF_EINDOUBT;
    x->copy_lost = NULL;
    x->error = &call->error;
    x->call_status = call->call_status;
    return state;
}

void hfi_call_send(struct hfi_call *call, const struct hfi_script *script,
                   void (*write)(struct hfi_exchange *, int64_t, struct hfi_command *),
                   void (*answered)(struct hfi_call *call)) {
    hfi_call_send_chosen(call, NULL, script, write, answered);
}

void hfi_call_send_chosen(struct hfi_call *call, void (*choose)(struct hfi_exchange *x),
                          const struct hfi_script *script,
                          void (*write)(struct hfi_exchange *, int64_t, struct hfi_command *),
                          void (*answered)(struct hfi_call *call)) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_exchange_choose_by(&state->exchange, choose);
    state->step = step_exchange;
    state->answered = answered;
    state->exchange.script = script;
    state->exchange.write = write;
    if (hfi_exchange_begin(&state->exchange) == HFI_FINISHED)
        answered(call);
}

void hfi_call_drive(struct hfi_call *call) {
    hfi_conn_drive(&hfi_state_of(call)->exchange.sync_caller, call->task->exec);
}

/* Tells the core what it needs to settle a command with an unknown outcome. */
static void note_unsettled(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    bool unanswered = state->exchange.unanswered;
    if (state->exchange.once && unanswered && call->err == HF_ECLOSED && state->in_doubt == NULL)
        call->err = call->error.code = HF_EINDOUBT; /* closed, but the command may have run */
    call->may_have_run = call->err != HF_OK && unanswered;
    /* a command that must not run twice can only be undone if its reply may still come */
    bool can_settle = state->settles && (!state->exchange.once || state->in_doubt != NULL);
    call->queued = call->err != HF_OK && hfi_fair_waiter_is_queued(state);
    call->unsettled = call->err != HF_OK && can_settle &&
                      (unanswered || state->settling || call->queued || state->unacked);
    if (call->unsettled && unanswered)
        call->in_doubt_until_ms = hfi_exchange_in_doubt_until_ms(&state->exchange);
}

void hfi_call_finish(struct hfi_call *call, int err) {
    struct hfi_call_state *state = hfi_state_of(call);
    assert(state->step != NULL);
    if (state->cleanup != NULL)
        state->cleanup(call);
    if ((err == HF_ECANCELED || err == HF_ECLOSED) && state->acquiring) {
        state->in_doubt = hfi_exchange_leave(&state->exchange, &state->in_doubt_node);
        state->in_doubt_event = state->exchange.reply_event;
    } else {
        hfi_exchange_end(&state->exchange);
    }
    call->err = err;
    call->error.code = err;
    call->no_server = err != HF_OK && state->exchange.gave_up;
    call->hopeless = err != HF_OK && state->exchange.hopeless;
    /* copies of a settlement do nothing to a later acquire, but copies of the settled command
     * would */
    bool is_over = state->settling && hfi_now_ms() >= call->in_doubt_until_ms;
    note_unsettled(call);
    if (state->kind != NULL && state->kind->ended != NULL)
        state->kind->ended(call);
    if (!call->unsettled || state->settling)
        hfi_idempotency_end(call, !call->unsettled || is_over);
    state->step = NULL;
    call->done(call);
}

void hfi_call_drop_in_doubt(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->in_doubt == NULL)
        return;
    if (atomic_load(&hfi_redis_of(call->engine)->stopped))
        hfi_req_unref(state->in_doubt);
    else
        hfi_req_abandon(state->in_doubt);
    hfi_node_unref(state->in_doubt_node);
    state->in_doubt = NULL;
    state->in_doubt_node = NULL;
}

void hfi_call_fail(struct hfi_call *call, int err, const char *text) {
    const struct hfi_node *node = hfi_state_of(call)->exchange.node;
    hfi_error_clear(&call->error);
    hfi_fail(&call->error, err, "%s", text);
    if (node != NULL)
        snprintf(call->error.node, sizeof call->error.node, "%s", hfi_node_name(node));
    hfi_call_finish(call, err);
}

void hfi_call_fail_proto(struct hfi_call *call) {
    hfi_state_of(call)->exchange.unanswered = true; /* it may have done anything */
    hfi_call_fail(call, HF_EPROTO, "the server sent an invalid reply");
}

/* The owner of a call in settlement wants to acquire again. A command is under way, and the next
 * acquire must not be sent while that may still act. This takes much longer than its reply, so wait
 * for the reply. */
static bool awaits_answer(const struct hfi_call_state *state) {
    return state->settling && (state->kind->waiting->has_queue || state->call->settle_release) &&
           state->exchange.phase == HFI_PHASE_ASKED;
}

void hfi_call_cancel(struct hfi_call *call, int err) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->step == NULL) { /* it has ended, and will not be settled */
        hfi_call_drop_in_doubt(call);
        return;
    }
    if (state->handing_over) {
        hfi_fair_waiter_stop(call);
        return;
    }
    if (err == HF_ECANCELED && awaits_answer(state)) {
        state->yields = true;
        return;
    }
    hfi_call_fail(call, err, hf_strerror(err));
}

void hfi_call_step(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->step == NULL)
        return;
    state->step(call, events);
    if (state->step != NULL && state->yields && !awaits_answer(state))
        hfi_call_cancel(call, HF_ECANCELED); /* the reply did not come */
}
