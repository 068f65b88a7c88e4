/*
 * Operations on ownerless objects: semaphores, latches, permits. An object_op is one exchange; take
 * and await may wait.
 *
 * Verbs like those of locks, on the operation's executor, but without a hold: there is no state to
 * keep afterwards, and no turn to take. If the outcome is unknown, it is reported as HF_EINDOUBT
 * and not settled. Only a wait that was given up with its command in flight is settled: by the
 * engine, in the background, if its outcome can be known.
 */
#include "core/op/op.h"

/* ---- Object operations ---- */

static void object_op_go(struct hf_op *op) {
    op->call->lease_ms = op->lease_ms;
    hfi_op_call(op, op->call->kind->ops->object_op);
}

static void object_op_after(struct hf_op *op) {
    static const bool gives_back[HFI_OBJECT_OPS] = {
        [HFI_OBJECT_PUT] = true, [HFI_OBJECT_PUT_IF_EXISTS] = true};
    struct hfi_call *call = op->call;
    op->work->result.value = call->value;
    if (call->err == HF_OK && gives_back[op->call->object_op] && call->value > 0)
        hfi_count(&op->core->counters.released);
    if (call->unsettled)
        hfi_op_complete_unsettled(op, call->err, &call->error, call->lease_ms);
    else
        hfi_op_complete(op, call->err, &call->error);
}

const struct hfi_verb hfi_verb_object_op = {
    .name = "object op", .go = object_op_go, .after = object_op_after};

const struct hfi_verb hfi_verb_undo_take = {
    .name = "give back", .gives_back = true, .go = object_op_go, .after = object_op_after};

/* ---- No operation: an object_op on 0 of something ---- */

static void noop_go(struct hf_op *op) {
    hfi_op_complete(op, HF_OK, NULL);
}

const struct hfi_verb hfi_verb_noop = {.name = "nothing", .go = noop_go};

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
    int64_t now_us = hfi_now_us(), notified_us = op->call->notified_us;
    struct hfi_core *core = op->core;
    struct hfi_entries *entries = hfi_name_stats_entries(core->stats_table, op->name_stats);
    hfi_times_add(&core->wait, entries != NULL ? &entries->wait : NULL, now_us - op->start_us);
    if (notified_us > 0)
        hfi_times_add(&core->hand_over, entries != NULL ? &entries->hand_over : NULL,
                      now_us - notified_us);
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
    .name = "take", .waits = true, .timed = true, .gets = true, .go = take_go, .after = take_after};

/* Awaiting takes nothing, so nothing is counted. */
static void await_after(struct hf_op *op) {
    if (op->call->err != HF_OK)
        hfi_take_failed(op);
    else
        hfi_op_complete(op, HF_OK, NULL);
}

const struct hfi_verb hfi_verb_await = {
    .name = "await", .waits = true, .go = take_go, .after = await_after};
