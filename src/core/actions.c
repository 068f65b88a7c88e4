/*
 * What is done to things that nobody holds: semaphores, latches, permits. An act is one exchange;
 * taking and awaiting may wait.
 *
 * Verbs like those of locks, on the operation's executor, but without a hold: there is nothing to
 * remember afterwards, and no turn to take. If it is not known whether something was done, that is
 * reported as HF_EUNKNOWN and left at that. Only a wait that was given up while its command was
 * under way is settled in the background, by the engine, as far as its outcome can be known.
 */
#include "core/op.h"

/* ---- Acts ---- */

static void act_go(struct hf_op *op) {
    op->call->lease_ms = op->lease_ms;
    hfi_op_call(op, op->call->kind->ops->act);
}

static void act_after(struct hf_op *op) {
    static const bool gives_back[HFI_ACTS] = {[HFI_ACT_PUT] = true, [HFI_ACT_PUT_IF_EXISTS] = true};
    struct hfi_call *call = op->call;
    op->work->result.value = call->value;
    if (call->err == HF_OK && gives_back[op->call->act] && call->value > 0)
        hfi_count(&op->core->counters.released);
    if (call->unsettled)
        hfi_op_complete_unsettled(op, call->err, &call->error, call->lease_ms);
    else
        hfi_op_complete(op, call->err, &call->error);
}

const struct hfi_verb hfi_verb_act = {.name = "act", .go = act_go, .after = act_after};

/* ---- Nothing at all: an act on 0 of something ---- */

static void nothing_go(struct hf_op *op) {
    hfi_op_complete(op, HF_OK, NULL);
}

const struct hfi_verb hfi_verb_nothing = {.name = "nothing", .go = nothing_go};

/* ---- Waiting ---- */

static void take_go(struct hf_op *op) {
    op->call->lease_ms = op->lease_ms;
    op->call->acks = op->core->acks == HF_ACKS_OFF ? 0 : op->core->acks;
    op->call->deadline_ms = op->wait_ms == 0 ? op->call->start_ms : op->deadline_ms;
    hfi_op_call(op, op->call->kind->ops->acquire);
}

void hfi_count_failure(const struct hf_op *op, int err) {
    if (err == HF_EBUSY || err == HF_ETIMEDOUT)
        hfi_op_count(op, &op->core->counters.timed_out);
    else if (err == HF_ECANCELED)
        hfi_op_count(op, &op->core->counters.cancelled);
}

void hfi_take_failed(struct hf_op *op) {
    struct hfi_call *call = op->call;
    hfi_count_failure(op, call->err);
    if (call->unsettled)
        hfi_op_complete_unsettled(op, call->err, &call->error, call->lease_ms);
    else
        hfi_op_complete(op, call->err, &call->error);
}

void hfi_count_times(const struct hf_op *op) {
    int64_t now_us = hfi_now_us(), told_us = op->call->told_us;
    struct hfi_core *core = op->core;
    struct hfi_entries *entries = hfi_diary_entries(core->diaries, op->diary);
    hfi_times_add(&core->wait, entries != NULL ? &entries->wait : NULL, now_us - op->start_us);
    if (told_us > 0)
        hfi_times_add(&core->hand_over, entries != NULL ? &entries->hand_over : NULL,
                      now_us - told_us);
}

void hfi_count_taken(struct hf_op *op) {
    hfi_count(&op->core->counters.acquired);
    if (op->call->contended)
        hfi_count(&op->core->counters.contended);
    hfi_count_times(op);
}

static void take_after(struct hf_op *op) {
    if (op->call->err != HF_OK) {
        hfi_take_failed(op);
        return;
    }
    hfi_count_taken(op);
    op->work->result.acked = op->call->acked;
    hfi_op_complete(op, HF_OK, NULL);
}

const struct hfi_verb hfi_verb_take = {
    .name = "take", .waits = true, .timed = true, .go = take_go, .after = take_after};

/* Nothing is taken by awaiting, so nothing is counted. */
static void await_after(struct hf_op *op) {
    if (op->call->err != HF_OK)
        hfi_take_failed(op);
    else
        hfi_op_complete(op, HF_OK, NULL);
}

const struct hfi_verb hfi_verb_await = {
    .name = "await", .waits = true, .go = take_go, .after = await_after};
