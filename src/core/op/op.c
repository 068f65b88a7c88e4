/*
 * Operations: what they do between their beginning (op_new.c) and their result (op_result.c).
 *
 * An operation's own state belongs to its executor's thread. A shard guards the links by which
 * other operations find it: hold queue, local queue, the list of unfinished operations. The engine
 * finishes a call by setting `call_done`, which is checked when the engine has returned. So no
 * engine function is on the stack when an operation completes.
 *
 * Completing publishes the result. If a command may still run at the server, the same object then
 * settles it (op_settle.c).
 */
#include "core/op/op.h"

#include <assert.h>
#include <string.h>

void hfi_op_leave_turn_locked(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    if (hold == NULL)
        return;
    if (hfi_hold_leave_turn_locked(hold, op) && op->state == HFI_OP_SETTLING &&
        !atomic_load(&op->core->closing))
        hfi_expired_release_rest_locked(hold);
    hfi_hold_tidy_locked(hold);
}

void hfi_op_finish(struct hf_op *op) {
    hfi_cancel_detach(op);
    hfi_op_unpark(op);
    hfi_alarm_clear(op->task.exec, &op->alarm);
    pthread_mutex_lock(&op->shard->mtx);
    hfi_local_queue_leave_locked(op->shard, op);
    hfi_op_leave_turn_locked(op);
    bool listed = hfi_linked(&op->shard_link);
    hfi_list_remove(&op->shard_link);
    bool last = hfi_list_empty(&op->shard->ops);
    pthread_mutex_unlock(&op->shard->mtx);
    if (last && atomic_load(&op->core->closing))
        op->core->hooks.idle(op->core->hooks.arg);
    op->state = HFI_OP_DONE;
    if (op->verb->finished != NULL)
        op->verb->finished(op);
    /* a late cancel finds nothing to do, even after the client was closed */
    hfi_task_retire(&op->task);
    if (listed)
        hfi_task_unref(&op->task);
}

void hfi_op_complete(struct hf_op *op, int err, const hf_error *error) {
    if (!hfi_op_leave_turn(op, err)) {
        hfi_op_complete_unsettled(op, err, error, op->core->watchdog_ms);
        return;
    }
    hfi_task_ref(&op->task);
    hfi_op_finish(op);
    hfi_op_publish(op, err, error);
    hfi_task_unref(&op->task);
}

void hfi_op_count(const struct hf_op *op, atomic_ullong *counter) {
    if (!op->inner)
        hfi_count(counter);
}

/* ---- Calling the engine ---- */

void hfi_op_call_is_done(struct hfi_call *call) {
    struct hf_op *op = hfi_op_of_call(call);
    assert(!op->call_done);
    op->call_done = true;
}

void hfi_op_check_done(struct hf_op *op) {
    if (!op->call_done) {
        if (op->compact && op->state == HFI_OP_CALLING)
            hfi_op_park(op);
        return;
    }
    op->call_done = false;
    if (op->state == HFI_OP_SETTLING)
        hfi_op_settled(op);
    else
        op->verb->after(op);
}

static void refuse(struct hf_op *op, const char *text) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail(&error, HF_ENOTSUP, "%s: %s", op->verb->name, text);
    hfi_op_complete(op, HF_ENOTSUP, &error);
}

bool hfi_op_refuses_lease(struct hf_op *op) {
    if (!op->kind->leaseless || op->lease_ms == HF_WATCHDOG)
        return false;
    refuse(op, "this kind has no lease: it is held until it is released");
    return true;
}

void hfi_op_call(struct hf_op *op, void (*engine_op)(struct hfi_call *call)) {
    struct hfi_call *call = op->call;
    if (engine_op == NULL) {
        refuse(op, "this kind of object does not support the operation");
        return;
    }
    if (op->state != HFI_OP_NEW) /* else its state is still zeroed */
        memset(call->state, 0, call->kind->ops->call_size);
    op->state = HFI_OP_CALLING;
    engine_op(call);
    hfi_op_check_done(op);
}

/* ---- Lifetime ---- */

static int enqueue_for_hold_locked(struct hf_op *op, bool *ret_turn) {
    op->hold = hfi_hold_get_locked(op);
    if (op->hold == NULL)
        return HF_ENOMEM;
    hfi_hold_ref(op->hold);
    *ret_turn = hfi_hold_enqueue_locked(op->hold, op);
    return HF_OK;
}

int hfi_op_inflate(struct hf_op *op, bool *ret_turn) {
    if (!hfi_work_new(op))
        return HF_ENOMEM;
    pthread_mutex_lock(&op->shard->mtx);
    int err = enqueue_for_hold_locked(op, ret_turn);
    pthread_mutex_unlock(&op->shard->mtx);
    return err;
}

/* Puts the op on the lists, and gets its hold's turn if it can. */
static int enlist(struct hf_op *op, bool *ret_turn) {
    int err = HF_OK;
    *ret_turn = true;
    pthread_mutex_lock(&op->shard->mtx);
    if (op->verb->takes_turn && !op->compact)
        err = enqueue_for_hold_locked(op, ret_turn);
    if (err == HF_OK) {
        hfi_task_ref(&op->task);
        hfi_list_push_back(&op->shard->ops, &op->shard_link);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    return err;
}

void hfi_op_set_off(struct hf_op *op) {
    op->start_us = hfi_now_us();
    op->call->start_ms = hfi_op_start_ms(op);
    op->deadline_ms = hfi_after_ms(op->call->start_ms, op->core->cmd_timeout_ms);
    op->call->deadline_ms = op->deadline_ms;
}

/* The client closes, and may have missed this operation. */
static bool came_too_late(const struct hf_op *op) {
    return atomic_load(&op->core->closing) &&
           (!op->verb->gives_back || atomic_load(&op->core->abandoning));
}

void hfi_note_return(struct hfi_core *core) {
    if (atomic_fetch_sub(&core->returns, 1) == 1 && atomic_load(&core->closing))
        core->hooks.idle(core->hooks.arg);
}

void hfi_op_begin(struct hf_op *op) {
    bool turn;
    if (op->cancelled_first) {
        hfi_op_count(op, &op->core->counters.cancelled);
        hfi_op_complete(op, HF_ECANCELED, NULL);
        return;
    }
    int err = enlist(op, &turn);
    if (op->verb->gives_back)
        hfi_note_return(op->core); /* before that it was on no list */
    if (err != HF_OK)
        hfi_op_complete(op, err, NULL);
    else if (came_too_late(op))
        hfi_op_complete(op, HF_ECLOSED, NULL);
    else if (turn)
        op->verb->go(op);
    else
        hfi_op_wait_queued(op, HFI_OP_QUEUED);
}

/* It waits, and has no command in flight. */
static bool waits_here(const struct hf_op *op) {
    return op->state == HFI_OP_QUEUED || op->state == HFI_OP_QUEUED_LOCALLY ||
           op->state == HFI_OP_PARKED;
}

/* The caller, or close, wants it to end. */
static void stop(struct hf_op *op, int err) {
    if (err == HF_ECANCELED && !op->cancellable)
        return;
    if (op->state == HFI_OP_NEW)
        op->cancelled_first = true;
    if (waits_here(op)) {
        if (err == HF_ECANCELED)
            hfi_op_count(op, &op->core->counters.cancelled);
        hfi_op_complete(op, err, NULL);
    } else if (op->state == HFI_OP_CALLING ||
               (op->state == HFI_OP_SETTLING &&
                (hfi_op_is_hopeless(op) || hfi_op_is_too_long(op)))) {
        op->kind->ops->cancel(op->call, err);
        hfi_op_check_done(op);
    } else if (op->state == HFI_OP_SETTLING && op->brief && err == HF_ECLOSED) {
        hfi_alarm_set(op->task.exec, &op->alarm, op->call->start_ms + HFI_BRIEF_MS);
    }
}

/* A completed operation that has something to settle moves to the keeper: then this thread must not
 * touch it any more. */
static bool is_still_on(struct hfi_task *task, const struct hfi_exec *here) {
    return atomic_load(&task->exec) == here;
}

void hfi_op_run(struct hfi_task *task, unsigned events) {
    struct hf_op *op = HFI_CONTAINER(task, struct hf_op, task);
    const struct hfi_exec *here = task->exec;
    if (events & HFI_OP_BEGIN) {
        op->cancelled_first |= op->cancellable && (events & HFI_OP_CANCEL) != 0;
        hfi_op_begin(op);
    }
    if ((events & HFI_OP_SETTLE) && is_still_on(task, here) && op->state == HFI_OP_SETTLING)
        hfi_op_settle(op);
    if ((events & HFI_OP_YIELD) && is_still_on(task, here) && op->state == HFI_OP_SETTLING)
        hfi_op_yield_turn(op);
    /* If cancel or close comes together with its turn, it ends: a command sent now would have to be
     * undone. */
    if ((events & (HFI_OP_CLOSE | HFI_OP_CANCEL)) && is_still_on(task, here) && waits_here(op))
        stop(op, events & HFI_OP_CLOSE ? HF_ECLOSED : HF_ECANCELED);
    if ((events & (HFI_OP_TURN | HFI_OP_LOCAL_TURN)) && is_still_on(task, here) &&
        (op->state == HFI_OP_QUEUED || op->state == HFI_OP_QUEUED_LOCALLY)) {
        hfi_alarm_clear(op->task.exec, &op->alarm);
        if (op->overtime)
            hfi_op_wait_is_over(op);
        else
            op->verb->go(op);
    }
    if ((events & (HFI_ENGINE_EVENTS | HFI_OP_TIMEOUT)) && is_still_on(task, here) &&
        op->state == HFI_OP_PARKED) {
        hfi_op_resume(op, events & HFI_ENGINE_EVENTS);
        events &= ~(HFI_ENGINE_EVENTS | (unsigned)HFI_OP_TIMEOUT);
    }
    if ((events & HFI_ENGINE_EVENTS) && is_still_on(task, here) &&
        (op->state == HFI_OP_CALLING || op->state == HFI_OP_SETTLING)) {
        op->call->kind->ops->step(op->call, events & HFI_ENGINE_EVENTS);
        hfi_op_check_done(op);
    }
    if (is_still_on(task, here) && op->state == HFI_OP_SETTLING && hfi_op_is_hopeless(op))
        stop(op, HF_ECLOSED);
    if ((events & (HFI_OP_CLOSE | HFI_OP_CANCEL)) && is_still_on(task, here))
        stop(op, events & HFI_OP_CLOSE ? HF_ECLOSED : HF_ECANCELED);
    if ((events & HFI_OP_TIMEOUT) && is_still_on(task, here)) {
        if (op->state == HFI_OP_SETTLING && hfi_op_is_too_long(op))
            stop(op, HF_ECLOSED);
        else if (op->state == HFI_OP_QUEUED || op->state == HFI_OP_QUEUED_LOCALLY)
            hfi_op_waited(op);
    }
}
