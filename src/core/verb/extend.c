/*
 * The verb extend: raises the lease of a hold, sets it, or adds to it. Two steps on the operation's
 * executor, as in release.c.
 *
 * A lease that is raised can be raised twice, or late. One that is set may become shorter, so the
 * hold must not be trusted for longer from when that is sent until it is answered; nor may another
 * extension count while a copy is on its way, which could take it back.
 */
#include "core/op/op.h"

/* An earlier extension may still shorten the lease. */
static void fail_quiet(struct hf_op *op) {
    hfi_fail(&op->call->error, HF_EINDOUBT,
             "an earlier extension, whose answer was lost, may still shorten the lease");
    hfi_op_complete(op, HF_EINDOUBT, &op->call->error);
}

static void fail_without_lease(struct hf_op *op) {
    hfi_fail(&op->call->error, HF_ENOTSUP, "this hold has no lease to set, or to add to");
    hfi_op_complete(op, HF_ENOTSUP, &op->call->error);
}

/* The server may set the lease from now on. */
static void trust_only_what_is_set(struct hf_op *op) {
    int64_t trusted_ms = hfi_trusted_ms(op->lease_ms, op->core->clock_drift_ppm);
    pthread_mutex_lock(&op->shard->mtx);
    hfi_hold_setting_lease_locked(op->hold, hfi_after_ms(hfi_now_ms(), trusted_ms));
    pthread_mutex_unlock(&op->shard->mtx);
}

static void extend_go(struct hf_op *op) {
    if (hfi_op_refuses_lease(op))
        return;
    struct hfi_hold *hold = op->hold;
    bool engine_events;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t count = hold->count;
    op->call->acks = hold->acks;
    if (count > 0)
        hfi_op_take_stamp_locked(op);
    bool lost = hfi_hold_take_loss_locked(hold, &engine_events);
    bool quiet = hold->quiet_until_ms > hfi_now_ms();
    bool raises = op->call->extend_mode == HF_EXTEND_RAISE || !hfi_hold_has_no_lease(hold);
    pthread_mutex_unlock(&op->shard->mtx);
    if (engine_events)
        hfi_hold_report(hold, HFI_LOST);
    if (lost)
        hfi_op_fail_lost(op);
    else if (count == 0)
        hfi_op_complete(op, HF_ENOTOWNER, NULL);
    else if (quiet)
        fail_quiet(op);
    else if (!raises)
        fail_without_lease(op);
    else {
        const struct hfi_call_ops *ops = op->call->kind->ops;
        op->call->count = count;
        op->call->lease_ms = op->lease_ms;
        if (op->call->extend_mode == HF_EXTEND_SET)
            trust_only_what_is_set(op);
        hfi_op_call(op, op->call->extend_mode == HF_EXTEND_RAISE ? ops->extend : ops->set_lease);
    }
}

/* The lease may have become shorter, and may still: also that of the next possession, if this one
 * has ended meanwhile. */
static void lease_is_unknown(struct hf_op *op) {
    int64_t until_ms =
        hfi_after_ms(op->call->start_ms, hfi_trusted_ms(op->lease_ms, op->core->clock_drift_ppm));
    pthread_mutex_lock(&op->shard->mtx);
    if (op->hold->count > 0)
        hfi_hold_lease_unknown_locked(op->hold, until_ms, op->deadline_ms);
    else
        hfi_hold_stay_quiet_locked(op->hold, op->deadline_ms);
    pthread_mutex_unlock(&op->shard->mtx);
}

static void nothing_was_set(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    if (op->hold->set_until_ms != 0)
        hfi_hold_setting_lease_locked(op->hold, 0);
    pthread_mutex_unlock(&op->shard->mtx);
}

static bool may_be_set(const struct hfi_call *call) {
    bool unknown = call->err == HF_EINDOUBT || call->err == HF_EPROTO ||
                   call->err == HF_ENOREPLICA || call->may_have_run;
    return call->extend_mode == HF_EXTEND_SET && unknown;
}

static void extended_locked(struct hf_op *op) {
    const struct hfi_call *call = op->call;
    if (call->extend_mode == HF_EXTEND_SET && op->hold->count > 0)
        hfi_hold_set_lease_locked(op->hold, call->lease_ms, &call->proof);
    else
        hfi_hold_extended_locked(op->hold, call->lease_ms, &call->proof);
}

static void extend_after(struct hf_op *op) {
    struct hfi_call *call = op->call;
    if (call->err == HF_ELOST) {
        pthread_mutex_lock(&op->shard->mtx);
        if (call->kind->leaves_traces)
            hfi_hold_leave_behind_locked(op->hold);
        pthread_mutex_unlock(&op->shard->mtx);
        hfi_op_found_lost(op, "the hold was gone from the server when it was extended");
        return;
    }
    if (call->err == HF_OK) {
        if (hfi_op_ended_meanwhile(op))
            return;
        pthread_mutex_lock(&op->shard->mtx);
        struct hfi_hold *hold = op->hold;
        extended_locked(op);
        op->work->result.count = hold->count;
        op->work->result.votes = call->votes;
        op->work->result.servers = call->servers;
        op->work->result.acked = call->acked;
        op->work->result.remaining_ms = hfi_left_ms(hfi_hold_deadline_ms(hold));
        pthread_mutex_unlock(&op->shard->mtx);
    }
    if (may_be_set(call))
        lease_is_unknown(op);
    else
        nothing_was_set(op);
    /* Any other copy that may still run does no harm: it can only lengthen the lease. */
    hfi_op_complete(op, call->err, &call->error);
}

const struct hfi_verb hfi_verb_extend = {
    .name = "extend", .takes_turn = true, .go = extend_go, .after = extend_after};
