/*
 * The verb adopt: turns another client's hold, known by its owner's text, into a hold of this
 * client.
 *
 * Runs on the operation's executor, like every verb. At the server only the lease changes, which is
 * raised. The owner stays the same, so other processes with the handle can go on using it. In this
 * client it is a hold like any other from then on, under its own number (alias.c).
 *
 * A hold that this client gave up, and that is still being undone, cannot be adopted.
 */
#include "core/op/op.h"

/* An earlier possession is being undone: what the server reports now will not be true for long. */
static bool is_ending_locked(const struct hf_op *op) {
    const struct hfi_hold *hold = op->hold;
    return hold->active != op || hfi_hold_has_residue(hold) || hfi_hold_is_settling(hold) ||
           hold->quiet_until_ms > hfi_now_ms();
}

static void fail_not_there(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail(&error, HF_ENOTOWNER, "nobody holds the lock by this handle any more");
    hfi_op_complete(op, HF_ENOTOWNER, &error);
}

static void call_engine(struct hf_op *op, int64_t count) {
    const struct hfi_core *core = op->core;
    const struct hfi_call_ops *ops = op->call->kind->ops;
    op->ours_before = count > 0;
    op->call->count = count;
    op->call->acks = core->acks == HF_ACKS_OFF ? 0 : core->acks;
    op->call->lease_ms = op->lease_ms == HF_WATCHDOG ? core->watchdog_ms : op->lease_ms;
    if (op->call->kind->token)
        op->call->token_wish = HFI_TOKEN_DRAW;
    hfi_op_call(op, ops->adopt != NULL && op->ours_before ? ops->extend : ops->adopt);
}

static void adopt_go(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    bool engine_events;
    pthread_mutex_lock(&op->shard->mtx);
    bool lost = hfi_hold_take_loss_locked(hold, &engine_events);
    bool ending = is_ending_locked(op);
    int64_t count = hold->count;
    if (count > 0 && op->kind->stamped && op->call->stamp.bits != hold->stamp.bits)
        ending = true; /* the handle is that of an earlier hold of this owner */
    if (count > 0 && !ending)
        hfi_op_take_stamp_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (engine_events)
        hfi_hold_report(hold, HFI_LOST);
    if (lost)
        hfi_op_fail_lost(op);
    else if (ending)
        fail_not_there(op);
    else
        call_engine(op, count);
}

static void adopted(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    const struct hfi_call *call = op->call;
    pthread_mutex_lock(&op->shard->mtx);
    const struct hfi_grant grant = {.kind = call->kind,
                                    .count = op->ours_before ? hold->count : call->count,
                                    .token = call->token,
                                    .lease_ms = call->lease_ms,
                                    .stamp = call->stamp,
                                    .acks = call->acks,
                                    .watched = op->lease_ms == HF_WATCHDOG,
                                    .proof = call->proof,
                                    .name_stats = op->name_stats};
    hfi_hold_granted_locked(hold, &grant);
    op->work->result.count = hold->count;
    op->work->result.token = call->token;
    op->work->result.acked = call->acked;
    op->work->result.remaining_ms = hfi_left_ms(hfi_hold_deadline_ms(hold));
    pthread_mutex_unlock(&op->shard->mtx);
    if (!op->ours_before)
        hfi_count(&op->core->counters.acquired);
    hfi_op_complete(op, HF_OK, NULL);
}

static void adopt_after(struct hf_op *op) {
    struct hfi_call *call = op->call;
    if (call->err == HF_ELOST && op->ours_before) {
        hfi_op_found_lost(op, "the hold was gone from the server when it was adopted again");
    } else if (call->err == HF_ELOST) {
        fail_not_there(op);
    } else if (call->err != HF_OK) {
        hfi_op_complete(op, call->err, &call->error);
    } else if (op->ours_before && hfi_op_ended_meanwhile(op)) {
        return;
    } else if (hfi_proof_is_over(&call->proof)) {
        hfi_fail(&call->error, HF_ETIMEDOUT, "the lease ended before the server answered");
        hfi_op_complete(op, HF_ETIMEDOUT, &call->error);
    } else {
        adopted(op);
    }
}

const struct hfi_verb hfi_verb_adopt = {
    .name = "adopt", .takes_turn = true, .timed = true, .go = adopt_go, .after = adopt_after};
