/*
 * The verb release. From when it is sent the hold is not renewed any more; for its caller the hold
 * is over, whatever the outcome.
 *
 * release_go() runs when it is the operation's turn, release_after() when the engine has answered,
 * both on the operation's executor. The hold is accessed with its shard locked; the engine is
 * called without it.
 */
#include "core/op/op.h"

static void release_go(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    bool engine_events;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t count = hold->count;
    if (hfi_op_is_complete(op)) /* left to the keeper */
        hfi_hold_left_locked(hold);
    bool lost = hfi_hold_take_loss_locked(hold, &engine_events);
    op->call->lease_ms = hfi_hold_has_no_lease(hold) ? HF_NO_LEASE
                         : hfi_hold_is_watched(hold) ? op->core->watchdog_ms
                                                     : hold->lease_ms;
    if (count == 1 && !lost) { /* from here on it must not be renewed */
        hfi_hold_stop_renewing_locked(hold);
        hfi_watchdog_disarm_locked(hold);
    }
    if (count > 0 && !lost)
        hfi_op_take_stamp_locked(op);
    if (count > 0 && !lost && hold->kind->joint)
        op->call->share = hfi_share_take_locked(hold);
    pthread_mutex_unlock(&op->shard->mtx);
    if (engine_events)
        hfi_hold_report(hold, HFI_LOST);
    if (lost)
        hfi_op_fail_lost(op);
    else if (count == 0)
        hfi_op_complete(op, HF_ENOTOWNER, NULL);
    else {
        op->call->count = count;
        if (hfi_op_is_complete(op)) /* left to the keeper: it has its own time limit */
            op->call->deadline_ms = hfi_now_ms() + op->core->cmd_timeout_ms;
        hfi_op_call(op, op->call->kind->ops->release);
    }
}

static void set_count_after_release(struct hf_op *op, int64_t count) {
    pthread_mutex_lock(&op->shard->mtx);
    hfi_hold_released_locked(op->hold, count);
    pthread_mutex_unlock(&op->shard->mtx);
    op->work->result.count = count;
}

/* How long there may be something to release: an unanswered renewal may have lengthened the
 * lease. */
static int64_t may_last_until_ms_locked(const struct hf_op *op) {
    const struct hfi_hold *hold = op->hold;
    int64_t deadline_ms = hfi_hold_deadline_ms(hold);
    if (hold->renewal_until_ms == 0)
        return deadline_ms;
    int64_t renewed_ms = hfi_after_ms(hold->renewal_until_ms, op->call->lease_ms);
    return renewed_ms > deadline_ms ? renewed_ms : deadline_ms;
}

/* It is released, or held fewer times. */
static void released(struct hf_op *op) {
    if (op->call->value > 0 && hfi_op_ended_meanwhile(op))
        return;
    set_count_after_release(op, op->call->value);
    hfi_op_count(op, &op->core->counters.released);
    hfi_op_complete(op, HF_OK, NULL);
}

static void release_after(struct hf_op *op) {
    struct hfi_call *call = op->call;
    if (call->err == HF_OK && !call->gone) {
        released(op);
        return;
    }
    pthread_mutex_lock(&op->shard->mtx);
    int64_t deadline_ms = hfi_hold_deadline_ms(op->hold);
    int64_t settle_until_ms = may_last_until_ms_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    /* A repeated release that finds nothing succeeded the first time, unless the lease may have run
     * out by then. */
    bool late = call->err == HF_OK && call->gone && hfi_now_ms() >= deadline_ms;
    if (call->err == HF_ELOST || late) {
        if (late)
            hfi_fail(&call->error, HF_ELOST, "the lease ran out before the release was answered");
        hfi_op_found_lost(op, "the hold was gone from the server when it was released");
        return;
    }
    if (call->err == HF_OK) {
        released(op);
        return;
    }
    /* The caller is done with it, whether or not the server knows: it is never renewed again, and
     * is released in the background. */
    if (hfi_op_ended_meanwhile(op))
        return;
    set_count_after_release(op, call->count - 1);
    call->settle_release = true;
    /* out of memory means: nothing has begun */
    int err = call->err == HF_ENOMEM ? HF_EINDOUBT : call->err;
    hfi_op_complete_unsettled_until(op, err, &call->error, settle_until_ms);
}

const struct hfi_verb hfi_verb_release = {.name = "release",
                                          .takes_turn = true,
                                          .releases = true,
                                          .go = release_go,
                                          .after = release_after};

const struct hfi_verb hfi_verb_undo_acquire = {.name = "release",
                                               .takes_turn = true,
                                               .releases = true,
                                               .gives_back = true,
                                               .go = release_go,
                                               .after = release_after};

/* ---- Parts of a joint lock ---- */

/* The stake's possession may have ended meanwhile. A possession that began since is not this
 * stake's. */
static void give_back_go(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool ours = hfi_stake_take_locked(op->work->stake);
    if (hfi_stake_is_lost_locked(op->work->stake, op->hold))
        hfi_hold_loss_reported_locked(op->hold);
    if (!ours && hfi_op_is_complete(op)) /* it was left to the keeper in vain */
        hfi_hold_left_locked(op->hold);
    pthread_mutex_unlock(&op->shard->mtx);
    if (ours) {
        release_go(op);
        return;
    }
    const char *why = atomic_load(&op->work->stake->lost);
    int err = why != NULL ? HF_ELOST : HF_ENOTOWNER;
    hfi_fail(&op->call->error, err, "%s", why != NULL ? why : hf_strerror(err));
    hfi_op_complete(op, err, &op->call->error);
}

const struct hfi_verb hfi_verb_give_back = {.name = "release",
                                            .takes_turn = true,
                                            .releases = true,
                                            .gives_back = true,
                                            .go = give_back_go,
                                            .after = release_after};

/* The joint lock's client was closed: like that client's own holds, this part is not released, but
 * not renewed any more, either. If its owner also holds it by itself, it goes on, with one count
 * less. */
static void run_out_go(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool all = hfi_stakes_are_all_locked(op->hold);
    bool ours = hfi_stake_take_locked(op->work->stake);
    if (ours && all) {
        hfi_hold_unwatch_locked(op->hold);
        hfi_watchdog_arm_locked(op->hold);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    if (ours && !all)
        release_go(op);
    else
        hfi_op_complete(op, HF_OK, NULL);
}

const struct hfi_verb hfi_verb_run_out = {
    .name = "expire", .takes_turn = true, .go = run_out_go, .after = release_after};
