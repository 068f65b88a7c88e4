/*
 * Settling: an operation has completed for its caller, but the server has not answered yet.
 *
 * The same object settles, on the keeper, what its command may have done, and keeps the hold's turn
 * meanwhile. So settling needs no allocation, and the next operation on the hold cannot overtake
 * it. An operation that acquires again need not wait: it asks the settlement to yield, and takes
 * over what is left. The engine decides how long settling can be necessary.
 *
 * Completing the operation begins the settlement, on the operation's executor; everything else runs
 * on the keeper's thread.
 */
#include "core/op/op.h"

/* After a settlement was broken off, the operation with the turn has to finish it, unless another
 * is queued, or there is no time left. */
static bool must_settle_residue_locked(const struct hf_op *op, int err) {
    if (err == HF_ECLOSED || atomic_load(&op->core->abandoning))
        return false;
    return hfi_hold_has_residue(op->hold) && op->hold->active == op &&
           hfi_list_empty(&op->hold->queue);
}

/* Checks and leaves in one step. In between, a settlement could be broken off for an operation that
 * is about to leave; then none would finish it. */
bool hfi_op_leave_turn(struct hf_op *op, int err) {
    if (op->hold == NULL)
        return true;
    pthread_mutex_lock(&op->shard->mtx);
    bool must = must_settle_residue_locked(op, err);
    op->brief = must && op->hold->ended == HFI_RAN_OUT;
    if (!must) {
        hfi_local_queue_leave_locked(op->shard, op);
        hfi_op_leave_turn_locked(op);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    return !must;
}

/* The hold is busy until the outcome of the command is known. */
static void settle_hold_locked(struct hf_op *op, int err) {
    struct hfi_hold *hold = op->hold;
    if (hold == NULL)
        return;
    if (hold->count == 0 && op->call->count > 0) {
        /* the possession has ended meanwhile, so nothing of it is to stay */
        op->call->count = 1;
        op->call->settle_release = true;
    }
    /* its command was answered if it came too late, only has to leave the fair queue, or has too
     * few acks */
    bool answered = (op->answered || op->call->queued || err == HF_ENOREPLICA) &&
                    op->call->in_doubt_until_ms == 0;
    op->call->residue = hfi_hold_has_residue(hold);
    hfi_hold_settle_locked(hold, err != HF_ECANCELED && !answered);
    if (op->call->in_doubt_until_ms < hold->quiet_until_ms)
        op->call->in_doubt_until_ms = hold->quiet_until_ms;
}

void hfi_op_complete_unsettled_until(struct hf_op *op, int err, const hf_error *error,
                                     int64_t until_ms) {
    if (atomic_load(&op->core->abandoning)) {
        op->call->kind->ops->cancel(op->call, HF_ECLOSED); /* drops what is in flight */
        hfi_op_complete(op, err, error);
        return;
    }
    hfi_cancel_detach(op);
    hfi_alarm_clear(op->task.exec, &op->alarm);
    pthread_mutex_lock(&op->shard->mtx);
    hfi_local_queue_leave_locked(op->shard, op);
    settle_hold_locked(op, err);
    op->over = true;
    pthread_mutex_unlock(&op->shard->mtx);
    op->state = HFI_OP_SETTLING;
    op->call->deadline_ms = until_ms;
    op->call->lane = HFI_LANE_KEEPER;
    hfi_task_ref(&op->task);
    hfi_op_publish(op, err, error);
    hfi_task_move(&op->task, op->core->keeper); /* from here on the keeper owns it */
    hfi_task_post(&op->task, HFI_OP_SETTLE);
    hfi_task_unref(&op->task);
}

void hfi_op_complete_unsettled(struct hf_op *op, int err, const hf_error *error, int64_t lease_ms) {
    struct hfi_engine *engine = op->core->engine;
    /* the cores of the parts settle a joint lock */
    int64_t until_ms = op->call->kind->joint
                           ? hfi_now_ms()
                           : engine->ops->settle_until_ms(engine, op->call->kind, lease_ms);
    hfi_op_complete_unsettled_until(op, err, error, until_ms);
}

void hfi_op_settle(struct hf_op *op) {
    if (op->call->kind->ops->settle == NULL) {
        hfi_op_finish(op);
        return;
    }
    op->call->kind->ops->settle(op->call);
    hfi_op_check_done(op);
}

/* The next operation acquires again, and takes over what this one was to undo. */
void hfi_op_yield_turn(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool has_next = !hfi_list_empty(&op->hold->queue);
    pthread_mutex_unlock(&op->shard->mtx);
    if (!has_next)
        return; /* the acquire has given up meanwhile */
    op->call->kind->ops->cancel(op->call, HF_ECANCELED);
    hfi_op_check_done(op);
}

/* A settlement was broken off for the next queued operation, which takes over what is left. False:
 * the queue is empty now. */
static bool hand_on(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool has_next = !hfi_list_empty(&op->hold->queue);
    if (has_next) {
        hfi_hold_hand_on_locked(op->hold, op->call->in_doubt_until_ms);
        hfi_op_leave_turn_locked(op);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    return has_next;
}

void hfi_op_settled(struct hf_op *op) {
    if (op->call->err == HF_ECANCELED && op->hold != NULL && !hand_on(op))
        hfi_op_settle(op); /* the operation that wanted the turn has given up meanwhile */
    else
        hfi_op_finish(op);
}

/* The client closes. If the server refuses a settlement, it will not accept it in the moment that
 * is left. If it has not answered yet, it may. */
bool hfi_op_is_hopeless(const struct hf_op *op) {
    const struct hfi_call_status *call_status = &op->call_status;
    return atomic_load(&op->core->abandoning) ||
           (atomic_load(&op->core->closing) && atomic_load(&call_status->stalled_since_ms) != 0 &&
            atomic_load(&call_status->stalled) == HF_EUNAVAILABLE);
}

/* The client closes, and the server has not answered for a while. */
bool hfi_op_is_too_long(const struct hf_op *op) {
    return op->brief && atomic_load(&op->core->closing) &&
           hfi_now_ms() >= op->call->start_ms + HFI_BRIEF_MS;
}
