/*
 * Parking: a compact operation in front of its local queue, while the engine sleeps.
 *
 * Most waits are long. While nothing happens an acquire only needs to be found: by a message, by
 * its alarm, by a cancel, or by a survey. So the engine packs its state into as little as it can,
 * and the call, its state and the hold's record are freed. A parked operation has no command in
 * flight, so its end needs no settlement. When something happens everything is allocated again;
 * without memory the operation ends with HF_ENOMEM.
 *
 * On the operation's executor.
 */
#include "core/op/op.h"

/* It had the turn of its hold, and has not acquired it. */
static void leave_hold(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    pthread_mutex_lock(&op->shard->mtx);
    hfi_op_leave_turn_locked(op);
    op->hold = NULL;
    pthread_mutex_unlock(&op->shard->mtx);
    hfi_hold_unref(hold);
}

/* Whether another call has used the same owner number, so that the hold has a history. */
static bool has_history(const struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    const struct hfi_hold *hold = op->hold;
    bool any = hold->count > 0 || hold->possession != HFI_HOLD_FREE ||
               hold->wire != HFI_WIRE_QUIET || hold->quiet_until_ms != 0 || hold->active != op;
    pthread_mutex_unlock(&op->shard->mtx);
    return any;
}

void hfi_op_park(struct hf_op *op) {
    const struct hfi_call_ops *ops = op->kind->ops;
    int64_t until_ms;
    op->parked = ops->park != NULL ? ops->park(op->call, &until_ms) : NULL;
    if (op->parked == NULL)
        return;
    op->state = HFI_OP_PARKED;
    leave_hold(op);
    hfi_work_free(op);
    hfi_alarm_set(op->task.exec, &op->alarm, until_ms);
}

void hfi_op_unpark(struct hf_op *op) {
    if (op->parked != NULL)
        op->kind->ops->unpark(op->core->engine, op->parked);
    op->parked = NULL;
}

void hfi_op_resume(struct hf_op *op, unsigned events) {
    struct hfi_parked *parked = op->parked;
    bool turn;
    hfi_alarm_clear(op->task.exec, &op->alarm);
    if (hfi_op_inflate(op, &turn) != HF_OK) {
        hfi_op_complete(op, HF_ENOMEM, NULL);
        return;
    }
    if (!turn || has_history(op)) { /* then it begins again, with all the checks of an acquire */
        hfi_op_unpark(op);
        if (turn)
            op->verb->go(op);
        else
            hfi_op_wait_queued(op, HFI_OP_QUEUED);
        return;
    }
    op->parked = NULL;
    op->state = HFI_OP_CALLING;
    hfi_acquire_fill(op, 0);
    op->kind->ops->resume(op->call, parked, events);
    hfi_op_check_done(op);
}
