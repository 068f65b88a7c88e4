/*
 * Waiting in line: behind another operation on the same hold (HFI_OP_QUEUED), or at a gate behind
 * another owner of this process (HFI_OP_GATED).
 *
 * Whoever waits has an alarm, for the end of its wait or, at a gate, for when to look whether the
 * one in front is stuck. Its turn comes as an event of its task (op.c). Runs on the operation's
 * executor; what others know of whoever is in front is read under the shard.
 */
#include "core/op.h"

#define OVERTIME_MS 20 /* how often somebody whose wait is over looks if it can be told why */

void hfi_op_wait_in_line(struct hf_op *op, enum hfi_op_state state) {
    op->state = state;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t look_at_ms = hfi_gate_look_at_ms_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    int64_t at_ms = look_at_ms < op->deadline_ms ? look_at_ms : op->deadline_ms;
    if (at_ms != HFI_NEVER)
        hfi_alarm_set(op->task.exec, &op->alarm, at_ms);
}

/* In line at a gate, and it is time to see if the one in front is stuck. */
static void look_ahead(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool ours = hfi_gate_take_over_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (ours)
        op->verb->go(op);
    else
        hfi_op_wait_in_line(op, HFI_OP_GATED);
}

/* A release that has waited too long in line is carried out by the keeper when its turn comes;
 * until then the hold is not renewed, since its owner is done with it. */
static void leave_to_keeper(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    pthread_mutex_lock(&op->shard->mtx);
    hfi_hold_leave_locked(op->hold);
    pthread_mutex_unlock(&op->shard->mtx);
    hfi_fail(&error, HF_EUNKNOWN, "this owner's command before it has not been answered yet");
    op->call->lane = HFI_LANE_KEEPER;
    hfi_task_ref(&op->task);
    hfi_op_publish(op, HF_EUNKNOWN, &error);
    hfi_task_move(&op->task, op->core->keeper); /* from here on it is the keeper's */
    hfi_task_unref(&op->task);
}

/* Has the server been of no help to whoever is in front of `op`, for all the time that it waited?
 * Then that is why, and not another owner. HF_OK: no. */
static int held_up_locked(const struct hf_op *op, int64_t *ret_since_ms) {
    *ret_since_ms = 0;
    bool queued = op->state == HFI_OP_QUEUED;
    const struct hf_op *front = queued ? op->hold->active : hfi_gate_front_locked(op);
    if (queued && hfi_hold_is_settling(op->hold) && op->hold->silent)
        return HF_EUNREACH;
    if (front == NULL || front == op)
        return HF_OK;
    *ret_since_ms = atomic_load(&front->signs.held_up_since_ms);
    if (*ret_since_ms == 0 || *ret_since_ms > hfi_op_start_ms(op))
        return HF_OK;
    return atomic_load(&front->signs.held_up);
}

/* Behind a command that is not answered yet. As a command of its own would have, it has one
 * exchange to find out whether the server is to blame. */
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

/* It has waited too long in line, or it is time to look ahead. If it was behind a command that the
 * server does not answer, the server is to blame. */
void hfi_op_waited(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    pthread_mutex_lock(&op->shard->mtx);
    int64_t since_ms;
    int held_up = held_up_locked(op, &since_ms), shared_err = op->shared_err;
    bool our_turn = op->state == HFI_OP_QUEUED && op->hold->active == op;
    pthread_mutex_unlock(&op->shard->mtx);
    if (our_turn) {
        op->verb->go(op); /* it was only to keep quiet for a while */
        return;
    }
    if (op->verb->releases) {
        leave_to_keeper(op);
        return;
    }
    if (shared_err != HF_OK) {
        const hf_error *words = hfi_op_words(op);
        if (words != NULL)
            error = *words;
        hfi_op_complete(op, shared_err, words != NULL ? &error : NULL);
        return;
    }
    if (op->state == HFI_OP_GATED && hfi_now_ms() < op->deadline_ms) {
        look_ahead(op);
        return;
    }
    if (held_up == HF_EUNREACH && since_ms != 0 && waits_for_answer(op, since_ms))
        return;
    if (held_up != HF_OK) {
        hfi_fail(&error, held_up, "the server has not %s a command before this one yet",
                 held_up == HF_EREFUSED ? "taken" : "answered");
        hfi_op_complete(op, held_up, &error);
        return;
    }
    hfi_op_wait_is_over(op);
}
