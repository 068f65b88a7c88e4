/*
 * Settling: an operation is over for its caller, and the server has not answered yet.
 *
 * The same object settles what its command may have done, on the keeper, and keeps the hold's turn
 * meanwhile: nothing has to be allocated for that, and the next operation on the hold cannot
 * overtake it. One that acquires again need not wait: it asks the settlement to yield, and takes
 * over what is left. How long there may be something to settle is the engine's to say.
 *
 * Begun on the operation's executor by completing it; everything else runs on the keeper's thread.
 */
#include "core/op.h"

/* After a settlement was broken off, whoever has the turn has to finish it, unless somebody else is
 * next, or there is no time for it. */
static bool must_settle_leftover_locked(const struct hf_op *op, int err) {
    if (err == HF_ECLOSED || atomic_load(&op->core->abandoning))
        return false;
    return hfi_hold_has_leftover(op->hold) && op->hold->active == op &&
           hfi_list_empty(&op->hold->queue);
}

/* Both in one: between the two a settlement could be broken off for an operation that is about to leave, and
 * nobody would finish it. */
bool hfi_op_leave_turn(struct hf_op *op, int err) {
    if (op->hold == NULL)
        return true;
    pthread_mutex_lock(&op->shard->mtx);
    bool must = must_settle_leftover_locked(op, err);
    op->brief = must && op->hold->ended == HFI_RAN_OUT;
    if (!must) {
        hfi_gate_leave_locked(op->shard, op);
        hfi_op_leave_turn_locked(op);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    return !must;
}

/* The hold is busy until it is known what became of the command. */
static void settle_hold_locked(struct hf_op *op, int err) {
    struct hfi_hold *hold = op->hold;
    if (hold == NULL)
        return;
    if (hold->count == 0 && op->call->count > 0) {
        /* the possession has ended meanwhile, so nothing of it is to stay */
        op->call->count = 1;
        op->call->settle_release = true;
    }
    /* if it only has to leave the line, or too few have confirmed it, its command was answered */
    bool answered = (op->call->queued || err == HF_ENOREPLICA) && op->call->ghost_until_ms == 0;
    op->call->leftover = hfi_hold_has_leftover(hold);
    hfi_hold_settle_locked(hold, err != HF_ECANCELED && !answered);
    if (op->call->ghost_until_ms < hold->quiet_until_ms)
        op->call->ghost_until_ms = hold->quiet_until_ms;
}

void hfi_op_complete_unsettled_until(struct hf_op *op, int err, const hf_error *error,
                                     int64_t until_ms) {
    if (atomic_load(&op->core->abandoning)) {
        op->call->kind->ops->cancel(op->call, HF_ECLOSED); /* drops what is on its way */
        hfi_op_complete(op, err, error);
        return;
    }
    hfi_cancel_detach(op);
    hfi_alarm_clear(op->task.exec, &op->alarm);
    pthread_mutex_lock(&op->shard->mtx);
    hfi_gate_leave_locked(op->shard, op);
    settle_hold_locked(op, err);
    op->over = true;
    pthread_mutex_unlock(&op->shard->mtx);
    op->state = HFI_OP_SETTLING;
    op->call->deadline_ms = until_ms;
    op->call->lane = HFI_LANE_KEEPER;
    hfi_task_ref(&op->task);
    hfi_op_publish(op, err, error);
    hfi_task_move(&op->task, op->core->keeper); /* from here on it is the keeper's */
    hfi_task_post(&op->task, HFI_OP_SETTLE);
    hfi_task_unref(&op->task);
}

void hfi_op_complete_unsettled(struct hf_op *op, int err, const hf_error *error, int64_t lease_ms) {
    struct hfi_engine *engine = op->core->engine;
    /* what a lock is made of is settled by the cores that have it */
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
    hfi_op_look_if_done(op);
}

/* The next operation acquires again, and so takes over what this one was to undo. */
void hfi_op_yield_turn(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool anybody = !hfi_list_empty(&op->hold->queue);
    pthread_mutex_unlock(&op->shard->mtx);
    if (!anybody)
        return; /* it has given up meanwhile */
    op->call->kind->ops->cancel(op->call, HF_ECANCELED);
    hfi_op_look_if_done(op);
}

/* A settlement was broken off for the next operation in line, which takes over what is left. False:
 * there is none any more. */
static bool hand_on(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool anybody = !hfi_list_empty(&op->hold->queue);
    if (anybody) {
        hfi_hold_hand_on_locked(op->hold, op->call->ghost_until_ms);
        hfi_op_leave_turn_locked(op);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    return anybody;
}

void hfi_op_settled(struct hf_op *op) {
    if (op->call->err == HF_ECANCELED && op->hold != NULL && !hand_on(op))
        hfi_op_settle(op); /* whoever wanted the turn has given up meanwhile */
    else
        hfi_op_finish(op);
}

/* The client closes. A settlement that the server refuses will not be taken in the moment that is
 * left; one that is not answered yet may be. */
bool hfi_op_is_hopeless(const struct hf_op *op) {
    const struct hfi_signs *signs = &op->signs;
    return atomic_load(&op->core->abandoning) ||
           (atomic_load(&op->core->closing) && atomic_load(&signs->held_up_since_ms) != 0 &&
            atomic_load(&signs->held_up) == HF_EREFUSED);
}

/* The client is being closed, and the server has not answered in a while. */
bool hfi_op_is_too_long(const struct hf_op *op) {
    return op->brief && atomic_load(&op->core->closing) &&
           hfi_now_ms() >= op->call->start_ms + HFI_BRIEF_MS;
}
