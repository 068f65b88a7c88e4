/*
 * Leaving a cohort's queue (cohort.h) without the lock: timeout or cancel.
 *
 * Runs on the executor of the call, under the cohort's mutex. A leaving call does not wait for the
 * operation at the server: the cohort owns it, continues without the call, and gives back a hold
 * that no call wants any more.
 */
#include "joint/cohort/cohort.h"

/* Removes the call from the queue. If it was the last, no call wants the lock. True: drop a
 * reference after unlocking the cohort. */
static bool step_out_locked(struct hfi_cohort *cohort, struct hfi_cohort_call *state) {
    hfi_list_remove(&state->link);
    state->phase = HFI_COHORT_OVER;
    if (!hfi_list_empty(&cohort->queue))
        return false;
    if (cohort->state == HFI_COHORT_ACQUIRING)
        hfi_task_post(&cohort->op->task, HFI_OP_CANCEL);
    if (cohort->state != HFI_COHORT_PAUSING)
        return false;
    cohort->state = HFI_COHORT_FREE;
    return hfi_cohort_clear_alarm_locked(cohort);
}

/* The error of a wait that ends now. A silent server is the reason, once it had time for an
 * exchange. HF_EPENDING: it may still answer, or was not asked yet. A single attempt has had that
 * time, and does not wait for more. */
static int blame_locked(const struct hfi_cohort *cohort, bool one_attempt) {
    int timed_out = one_attempt ? HF_EBUSY : HF_ETIMEDOUT;
    if (cohort->op == NULL || (cohort->state != HFI_COHORT_ACQUIRING && !one_attempt))
        return timed_out;
    struct hfi_call_status *call_status = &cohort->op->call_status;
    int64_t since_ms = atomic_load(&call_status->stalled_since_ms);
    if (since_ms == 0 && one_attempt)
        return atomic_load(&call_status->due_ms) != 0 ? timed_out : HF_EUNREACH;
    /* The server may stay unasked for long: other operations of this process can be ahead. */
    bool asked = since_ms != 0 || atomic_load(&call_status->due_ms) != 0;
    int64_t from_ms = asked ? since_ms : hfi_op_start_ms(cohort->op);
    if (since_ms == 0 && asked)
        return timed_out;
    if (!one_attempt &&
        hfi_now_ms() < hfi_after_ms(from_ms, cohort->parts->of[0].core->cmd_timeout_ms))
        return HF_EPENDING;
    if (!asked)
        return timed_out;
    return atomic_load(&call_status->stalled);
}

/* The error known so far; else the text for an operation queued behind another command. */
static void explain_locked(const struct hfi_cohort *cohort, struct hfi_cohort_call *state,
                           int err) {
    bool known = cohort->state == HFI_COHORT_ACQUIRING && cohort->stall_error.text[0] != '\0';
    hfi_error_clear(&state->error);
    if (err == HF_ETIMEDOUT || err == HF_EBUSY)
        return;
    if (known)
        state->error = cohort->stall_error;
    else
        hfi_fail(&state->error, err, "the server has not %s an earlier command yet",
                 err == HF_EUNAVAILABLE ? "taken" : "answered");
    state->error.code = err;
}

/* A parked call is not in the queue: its own thread was late. */
static int give_up_locked(struct hfi_cohort *cohort, struct hfi_cohort_call *state,
                          bool *ret_unref) {
    if (state->phase == HFI_COHORT_PARKED) {
        state->phase = HFI_COHORT_OVER;
        hfi_error_clear(&state->error);
        return state->one_attempt ? HF_EBUSY : HF_ETIMEDOUT;
    }
    if (state->phase != HFI_COHORT_WAITING)
        return HF_OK;
    int err = blame_locked(cohort, state->one_attempt);
    if (err == HF_EPENDING)
        return err;
    explain_locked(cohort, state, err);
    *ret_unref = step_out_locked(cohort, state);
    return err;
}

int hfi_cohort_give_up(struct hfi_cohort *cohort, struct hfi_call *call) {
    bool unref = false;
    pthread_mutex_lock(&cohort->mtx);
    int err = give_up_locked(cohort, hfi_cohort_call_of(call), &unref);
    pthread_mutex_unlock(&cohort->mtx);
    if (unref)
        hfi_parts_unref(call->parts);
    return err;
}

/* When the client closes, the operation at the server keeps it open; queued calls need not. */
bool hfi_cohort_stop(struct hfi_cohort *cohort, struct hfi_call *call) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    bool unref = false;
    pthread_mutex_lock(&cohort->mtx);
    bool parked = state->phase == HFI_COHORT_PARKED, waits = state->phase == HFI_COHORT_WAITING;
    if (parked)
        state->phase = HFI_COHORT_OVER;
    else if (waits)
        unref = step_out_locked(cohort, state);
    pthread_mutex_unlock(&cohort->mtx);
    if (unref)
        hfi_parts_unref(call->parts);
    return parked || waits;
}
