/*
 * Queued operations: behind another on the same hold (HFI_OP_QUEUED), or in the local queue behind
 * another owner of this process (HFI_OP_QUEUED_LOCALLY).
 *
 * A queued operation has an alarm for the end of its wait. In a local queue the alarm is also for
 * checking whether the front is stuck. Its turn comes as an event of its task (op.c). Runs on the
 * operation's executor; the state of the operation in front is read with the shard locked.
 */
#include "core/op/op.h"

/* how often an operation whose wait is over checks whether the reason is known */
#define OVERTIME_MS 20

void hfi_op_wait_queued(struct hf_op *op, enum hfi_op_state state) {
    op->state = state;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t check_at_ms = hfi_local_queue_check_at_ms_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    int64_t at_ms = check_at_ms < op->deadline_ms ? check_at_ms : op->deadline_ms;
    if (at_ms != HFI_NEVER)
        hfi_alarm_set(op->task.exec, &op->alarm, at_ms);
}

/* In a local queue: time to check whether the operation in front is stuck. */
static void check_front(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool ours = hfi_local_queue_take_over_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (ours)
        op->verb->go(op);
    else
        hfi_op_wait_queued(op, HFI_OP_QUEUED_LOCALLY);
}

/* If a release has waited too long in the queue, the keeper carries it out when its turn comes.
 * Until then the hold is not renewed, since its owner is done with it. */
static void leave_to_keeper(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    pthread_mutex_lock(&op->shard->mtx);
    hfi_hold_leave_locked(op->hold);
    pthread_mutex_unlock(&op->shard->mtx);
    hfi_fail(&error, HF_EINDOUBT, "an earlier command of this owner is still unanswered");
    op->call->lane = HFI_LANE_KEEPER;
    hfi_task_ref(&op->task);
    hfi_op_publish(op, HF_EINDOUBT, &error);
    hfi_task_move(&op->task, op->core->keeper); /* from here on the keeper owns it */
    hfi_task_unref(&op->task);
}

/* Whether the server has been unresponsive to the operation in front of `op` for as long as `op`
 * has waited. Then the server is the reason, not another owner. HF_OK: no. */
static int stalled_locked(const struct hf_op *op, int64_t *ret_since_ms) {
    *ret_since_ms = 0;
    bool queued = op->state == HFI_OP_QUEUED;
    const struct hf_op *front = queued ? op->hold->active : hfi_local_queue_front_locked(op);
    if (queued && hfi_hold_is_settling(op->hold) && op->hold->silent)
        return HF_EUNREACH;
    if (front == NULL || front == op)
        return HF_OK;
    *ret_since_ms = atomic_load(&front->call_status.stalled_since_ms);
    if (*ret_since_ms == 0 || *ret_since_ms > hfi_op_start_ms(op))
        return HF_OK;
    return atomic_load(&front->call_status.stalled);
}

/* The command in front is not answered yet. As with a command of its own, `op` allows it one
 * exchange to find out whether the server is the reason. */
static bool waits_for_answer(struct hf_op *op, int64_t since_ms) {
    if (hfi_now_ms() >= hfi_after_ms(since_ms, op->core->cmd_timeout_ms))
        return false;
    op->overtime = true;
    hfi_alarm_set(op->task.exec, &op->alarm, hfi_now_ms() + OVERTIME_MS);
    return true;
}

void hfi_op_wait_is_over(struct hf_op *op) {
    hfi_op_count(op, &op->core->counters.timed_out);
    hfi_op_complete(op, HF_ETIMEDOUT, NULL);
}

/* Its wait is over, or it is time to check the front. If it was behind a command that the server
 * does not answer, the server is the reason. */
void hfi_op_waited(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    pthread_mutex_lock(&op->shard->mtx);
    int64_t since_ms;
    int stalled = stalled_locked(op, &since_ms), shared_err = op->shared_err;
    bool our_turn = op->state == HFI_OP_QUEUED && op->hold->active == op;
    pthread_mutex_unlock(&op->shard->mtx);
    if (our_turn) {
        op->verb->go(op); /* it only had to send nothing for a while */
        return;
    }
    if (op->verb->releases) {
        leave_to_keeper(op);
        return;
    }
    if (shared_err != HF_OK) {
        const hf_error *kept = hfi_op_kept_error(op);
        if (kept != NULL)
            error = *kept;
        hfi_op_complete(op, shared_err, kept != NULL ? &error : NULL);
        return;
    }
    if (op->state == HFI_OP_QUEUED_LOCALLY && hfi_now_ms() < op->deadline_ms) {
        check_front(op);
        return;
    }
    if (stalled == HF_EUNREACH && since_ms != 0 && waits_for_answer(op, since_ms))
        return;
    if (stalled != HF_OK) {
        hfi_fail(&error, stalled, "the server has not %s an earlier command yet",
                 stalled == HF_EUNAVAILABLE ? "taken" : "answered");
        hfi_op_complete(op, stalled, &error);
        return;
    }
    hfi_op_wait_is_over(op);
}
