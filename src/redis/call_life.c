/*
 * What all calls of the engine share: their state, stepping and ending them.
 *
 * Called by the operations, and by src/core through the engine's table (step, cancel); always on
 * the thread of the call's executor. Invariant: done() runs exactly once, last, when nothing of the
 * call is left anywhere: no request that could post to its task, no alarm, no subscription.
 */
#include "base/clock.h"
#include "base/error.h"
#include "redis/internal.h"
#include "redis/kind.h"
#include "redis/line.h"

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
    call->value = call->token = call->acked = call->told_us = 0;
    call->proof = (struct hfi_proof){0};
    call->contended = call->unsettled = call->gone = false;
    call->queued = call->no_server = false;
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
    x->limit_err = HF_EUNKNOWN;
    x->error = &call->error;
    x->signs = call->signs;
    return state;
}

void hfi_call_send(struct hfi_call *call, const struct hfi_script *script,
                   void (*write)(struct hfi_exchange *, int64_t, struct hfi_command *),
                   void (*answered)(struct hfi_call *call)) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->step = step_exchange;
    state->answered = answered;
    state->exchange.script = script;
    state->exchange.write = write;
    if (hfi_exchange_begin(&state->exchange) == HFI_FINISHED)
        answered(call);
}

void hfi_call_attend(struct hfi_call *call) {
    hfi_conn_attend(&hfi_state_of(call)->exchange.attendant, call->task->exec);
}

/* What the core has to know about a command whose outcome is open. */
static void note_unsettled(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    bool unanswered = state->exchange.unanswered;
    if (state->exchange.once && unanswered && call->err == HF_ECLOSED && state->ghost == NULL)
        call->err = call->error.code = HF_EUNKNOWN; /* closed, but it may have been done */
    /* what must not run twice can only be undone if its answer may still come */
    bool can_settle = state->settles && (!state->exchange.once || state->ghost != NULL);
    call->queued = call->err != HF_OK && hfi_line_is_queued(state);
    call->unsettled = call->err != HF_OK && can_settle &&
                      (unanswered || state->settling || call->queued || state->unacked);
    if (call->unsettled && unanswered)
        call->ghost_until_ms = hfi_exchange_ghost_until_ms(&state->exchange);
}

void hfi_call_finish(struct hfi_call *call, int err) {
    struct hfi_call_state *state = hfi_state_of(call);
    assert(state->step != NULL);
    if (state->cleanup != NULL)
        state->cleanup(call);
    if ((err == HF_ECANCELED || err == HF_ECLOSED) && state->acquiring) {
        state->ghost = hfi_exchange_leave(&state->exchange, &state->ghost_node);
        state->ghost_event = state->exchange.reply_event;
    } else {
        hfi_exchange_end(&state->exchange);
    }
    call->err = err;
    call->error.code = err;
    call->no_server = err != HF_OK && state->exchange.gave_up;
    /* copies of a settlement do not touch what is another's, but those that it follows would */
    bool is_over = state->settling && hfi_now_ms() >= call->ghost_until_ms;
    note_unsettled(call);
    if (!call->unsettled || state->settling)
        hfi_ticket_end(call, !call->unsettled || is_over);
    state->step = NULL;
    call->done(call);
}

void hfi_call_drop_ghost(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->ghost == NULL)
        return;
    if (atomic_load(&hfi_redis_of(call->engine)->stopped))
        hfi_req_unref(state->ghost);
    else
        hfi_req_abandon(state->ghost);
    hfi_node_unref(state->ghost_node);
    state->ghost = NULL;
    state->ghost_node = NULL;
}

void hfi_call_fail(struct hfi_call *call, int err, const char *words) {
    const struct hfi_node *node = hfi_state_of(call)->exchange.node;
    hfi_error_clear(&call->error);
    hfi_fail(&call->error, err, "%s", words);
    if (node != NULL)
        snprintf(call->error.node, sizeof call->error.node, "%s", hfi_node_name(node));
    hfi_call_finish(call, err);
}

void hfi_call_fail_proto(struct hfi_call *call) {
    hfi_state_of(call)->exchange.unanswered = true; /* who knows what it did */
    hfi_call_fail(call, HF_EPROTO, "the server sent an answer that makes no sense");
}

/* Its owner wants to acquire again. If a command is under way, whoever takes over has to keep
 * quiet for as long as that may act, which is much longer than its answer takes; so wait for the
 * answer. */
static bool awaits_answer(const struct hfi_call_state *state) {
    return state->settling && (state->kind->waiting->in_line || state->call->settle_release) &&
           state->exchange.phase == HFI_PHASE_ASKED;
}

void hfi_call_cancel(struct hfi_call *call, int err) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->step == NULL) { /* it has ended, and what it left behind will not be settled */
        hfi_call_drop_ghost(call);
        return;
    }
    if (state->handing_over) {
        hfi_line_stop(call);
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
        hfi_call_cancel(call, HF_ECANCELED); /* it did not come */
}
