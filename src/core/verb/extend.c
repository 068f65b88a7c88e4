/*
 * The verb extend: raises the lease of a hold. Two steps on the operation's executor, as in
 * release.c.
 */
#include "core/op/op.h"

static void extend_go(struct hf_op *op) {
    if (hfi_op_refuses_lease(op))
        return;
    struct hfi_hold *hold = op->hold;
    bool engine_events;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t count = hold->count;
    op->call->acks = hold->acks;
    if (count > 0)
        hfi_op_take_stamp_locked(op);
    bool lost = hfi_hold_take_loss_locked(hold, &engine_events);
    pthread_mutex_unlock(&op->shard->mtx);
    if (engine_events)
        hfi_hold_report(hold, HFI_LOST);
    if (lost)
        hfi_op_fail_lost(op);
    else if (count == 0)
        hfi_op_complete(op, HF_ENOTOWNER, NULL);
    else {
        op->call->count = count;
        op->call->lease_ms = op->lease_ms;
        hfi_op_call(op, op->call->kind->ops->extend);
    }
}

static void extend_after(struct hf_op *op) {
    struct hfi_call *call = op->call;
    if (call->err == HF_ELOST) {
        pthread_mutex_lock(&op->shard->mtx);
        if (call->kind->leaves_traces)
            hfi_hold_leave_behind_locked(op->hold);
        pthread_mutex_unlock(&op->shard->mtx);
        hfi_op_found_lost(op, "the hold was gone from the server when it was extended");
        return;
    }
    if (call->err == HF_OK) {
        if (hfi_op_ended_meanwhile(op))
            return;
        pthread_mutex_lock(&op->shard->mtx);
        struct hfi_hold *hold = op->hold;
        hfi_hold_extended_locked(hold, call->lease_ms, &call->proof);
        op->work->result.count = hold->count;
        op->work->result.votes = call->votes;
        op->work->result.servers = call->servers;
        op->work->result.acked = call->acked;
        op->work->result.remaining_ms = hfi_left_ms(hfi_hold_deadline_ms(hold));
        pthread_mutex_unlock(&op->shard->mtx);
    }
    /* A copy that may still run does no harm: it can only lengthen the lease. */
    hfi_op_complete(op, call->err, &call->error);
}

const struct hfi_verb hfi_verb_extend = {
    .name = "extend", .takes_turn = true, .go = extend_go, .after = extend_after};
