/*
 * Parking: a slight operation in front of its gate, while the engine sleeps.
 *
 * Most waits are long, and while nothing happens an acquire needs only to be found: by a message, by
 * its alarm, by whoever cancels it or asks who waits here. So what the engine has to remember is put
 * into as little as it can, and the call, its state and the record of the hold go. Nothing of the
 * operation is under way at the server then, so its end needs no settlement. When something happens
 * all of it is made anew; if there is no memory for that, the operation ends with HF_ENOMEM.
 *
 * On the operation's executor.
 */
#include "core/op.h"

/* It had the turn of its hold, and nothing came of it. */
static void leave_hold(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    pthread_mutex_lock(&op->shard->mtx);
    hfi_op_leave_turn_locked(op);
    op->hold = NULL;
    pthread_mutex_unlock(&op->shard->mtx);
    hfi_hold_unref(hold);
}

/* Whether somebody has guessed its owner, and something is known of that. */
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
    if (hfi_op_equip(op, &turn) != HF_OK) {
        hfi_op_complete(op, HF_ENOMEM, NULL);
        return;
    }
    if (!turn || has_history(op)) { /* then it begins again, with all that it has to heed */
        hfi_op_unpark(op);
        if (turn)
            op->verb->go(op);
        else
            hfi_op_wait_in_line(op, HFI_OP_QUEUED);
        return;
    }
    op->parked = NULL;
    op->state = HFI_OP_CALLING;
    hfi_acquire_fill(op, 0);
    op->kind->ops->resume(op->call, parked, events);
    hfi_op_look_if_done(op);
}
