/*
 * What an operation does when its hold turns out to be lost.
 *
 * The verbs of locks (acquire.c, release.c, extend.c) call these on the operation's executor. A
 * loss is reported twice: to the listeners at once, by hfi_hold_report(), and to the owner. The
 * owner's next call on the hold fails with HF_ELOST. HFI_HOLD_LOST means that the second report is
 * still to come.
 */
#include "core/op/op.h"

void hfi_op_fail_lost(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    pthread_mutex_lock(&op->shard->mtx);
    const char *reason = op->hold->reason;
    pthread_mutex_unlock(&op->shard->mtx);
    hfi_fail(&error, HF_ELOST, "%s", reason != NULL ? reason : hf_strerror(HF_ELOST));
    hfi_op_complete(op, HF_ELOST, &error);
}

void hfi_op_found_lost(struct hf_op *op, const char *reason) {
    pthread_mutex_lock(&op->shard->mtx);
    bool engine_events = hfi_hold_lose_locked(op->hold, reason);
    hfi_hold_loss_reported_locked(op->hold);
    pthread_mutex_unlock(&op->shard->mtx);
    if (engine_events)
        hfi_hold_report(op->hold, HFI_LOST);
    hfi_op_complete(op, HF_ELOST, &op->call->error);
}

bool hfi_op_ended_meanwhile(struct hf_op *op) {
    struct hfi_call *call = op->call;
    if (call->count == 0) /* there was none */
        return false;
    pthread_mutex_lock(&op->shard->mtx);
    bool ended = op->hold->count == 0;
    bool ran_out = op->hold->ended == HFI_RAN_OUT || op->hold->reason == NULL;
    const char *why = ran_out ? "the lease ended before the server answered" : op->hold->reason;
    if (ended)
        hfi_hold_loss_reported_locked(op->hold);
    pthread_mutex_unlock(&op->shard->mtx);
    if (!ended)
        return false;
    hfi_fail(&call->error, HF_ELOST, "%s", why);
    call->count = 1;
    call->settle_release = true;
    op->answered = true;
    hfi_op_complete_unsettled(op, HF_ELOST, &call->error, call->lease_ms);
    return true;
}
