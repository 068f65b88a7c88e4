/*
 * The verb acquire: what happens to the hold before and after the engine call.
 *
 * Runs on the operation's executor, like every verb: acquire_go() when it is the operation's turn
 * on the hold, acquire_after() when the engine has answered. The hold is accessed with its shard
 * locked; the engine is called without it.
 *
 * Before: nothing is sent while a copy of this owner's earlier command may still act. An unreported
 * loss is reported. An owner that would wait for itself is refused. Operations of this process join
 * the local queue, so that only one of them waits at the server. After: a hold begins or grows,
 * with a deadline that counts from when the command was sent.
 */
#include "core/op/op.h"

#define ENDING_MS 20 /* how often to check whether another hold has ended */

/* Refuses acks that the servers cannot give. The parts of a joint lock use the acks of their own
 * clients. */
static bool refuses_acks(struct hf_op *op) {
    struct hfi_engine *engine = op->core->engine;
    hf_error error;
    hfi_error_clear(&error);
    int err = HF_OK;
    if (op->acks == 0 || op->acks == HF_ACKS_OFF)
        return false;
    if (op->kind->joint || engine->ops->check_acks == NULL)
        err = hfi_fail(&error, HF_ENOTSUP, "acks are not supported for this lock");
    else
        err = engine->ops->check_acks(engine, op->acks, &error);
    if (err != HF_OK)
        hfi_op_complete(op, err, &error);
    return err != HF_OK;
}

static int acks_of(const struct hf_op *op) {
    int acks = op->acks != 0 ? op->acks : op->core->acks;
    return acks == HF_ACKS_OFF ? 0 : acks;
}

/* However long the wait, this owner would wait for itself. */
static void refuse_deadlock(struct hf_op *op, const char *why) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail(&error, HF_EDEADLK, "%s", why);
    hfi_op_complete(op, HF_EDEADLK, &error);
}

/* The owner holds a lock that it would have to release first: it reads and wants to write. (An
 * owner that already writes just nests.) */
static bool waits_for_itself_locked(struct hf_op *op) {
    const struct hfi_kind *other = op->kind->never_beside;
    if (other == NULL || op->hold->count > 0)
        return false;
    const struct hfi_hold *hold = hfi_hold_find_locked(op->core, op->shard, other, op->call->name,
                                                       op->call->name_len, op->owner);
    return hold != NULL && hold->count > hold->leaving && !hfi_hold_expired_locked(hold);
}

/* Of all operations in this process that wait for one lock, only one waits at the server. A single
 * attempt, or a nested acquire, does not queue. */
static bool must_queue_locked(struct hf_op *op) {
    const struct hfi_hold *hold = op->hold;
    /* queued operations may be waiting for what this very owner left behind */
    if (hold != NULL && (hfi_hold_has_residue(hold) || hold->count > 0))
        return false;
    if (op->wait_ms == 0 || !op->kind->exclusive)
        return false;
    if (op->local_queue != NULL || op->outside)
        return false;
    return !hfi_local_queue_enter_locked(op->shard, op);
}

/* The wait ended before this owner's earlier command could be settled. If that was the extension of
 * a lock that it holds, there is nothing to give back: a release would free the lock. */
static void fail_unsettled(struct hf_op *op, bool unanswered) {
    hf_error error;
    hfi_error_clear(&error);
    pthread_mutex_lock(&op->shard->mtx);
    bool silent = op->hold->silent || unanswered, held = op->hold->count > 0;
    pthread_mutex_unlock(&op->shard->mtx);
    int err = silent ? HF_EUNREACH : HF_ETIMEDOUT;
    if (silent)
        hfi_fail(&error, err, "the server has not answered this owner's last command");
    else
        hfi_op_count(op, &op->core->counters.timed_out);
    if (held)
        hfi_op_complete(op, err, silent ? &error : NULL);
    else
        hfi_op_complete_unsettled(op, err, silent ? &error : NULL, op->core->watchdog_ms);
}

/* A copy of this owner's earlier command may still act: nothing is sent before `until_ms`. If
 * `unanswered`, the server is the reason. */
static bool keep_quiet(struct hf_op *op, int64_t until_ms, bool unanswered) {
    int64_t now_ms = hfi_now_ms();
    if (now_ms >= until_ms)
        return false;
    if (now_ms >= op->deadline_ms) {
        fail_unsettled(op, unanswered);
        return true;
    }
    op->state = HFI_OP_QUEUED;
    hfi_alarm_set(op->task.exec, &op->alarm,
                  until_ms < op->deadline_ms ? until_ms : op->deadline_ms);
    return true;
}

/* An unreported loss comes first, whatever is still in flight. False: nothing may be sent before
 * `ret_quiet_until_ms`. */
static bool reports_loss(struct hf_op *op, int64_t *ret_quiet_until_ms) {
    bool is_new;
    pthread_mutex_lock(&op->shard->mtx);
    bool lost = hfi_hold_take_loss_locked(op->hold, &is_new);
    if (!lost)
        *ret_quiet_until_ms = hfi_hold_quiet_until_locked(op->hold, op->lease_ms != HF_WATCHDOG);
    pthread_mutex_unlock(&op->shard->mtx);
    if (is_new)
        hfi_hold_report(op->hold, HFI_LOST);
    if (lost)
        hfi_op_fail_lost(op);
    return lost;
}

/* The lock overlaps one that this owner already holds: to the server they would be one. */
static bool is_entangled(struct hf_op *op) {
    if (op->kind->overlap == NULL)
        return false;
    pthread_mutex_lock(&op->shard->mtx);
    enum hfi_entanglement entanglement = hfi_overlap_claim_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (entanglement == HFI_HELD)
        refuse_deadlock(op, "this owner already holds some of these values, together with others");
    else if (entanglement != HFI_APART)
        return keep_quiet(op, hfi_now_ms() + ENDING_MS, entanglement == HFI_ENDING_UNANSWERED);
    return entanglement == HFI_HELD;
}

/* A compact operation begins without a hold, since a new owner has no history. It gets its work and
 * its hold when it is in front of its local queue. False: it waits, or has ended. */
static bool is_inflated(struct hf_op *op) {
    bool turn;
    if (op->hold != NULL)
        return true;
    if (hfi_op_refuses_lease(op) || refuses_acks(op))
        return false;
    pthread_mutex_lock(&op->shard->mtx);
    bool join_queue = must_queue_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (join_queue) {
        op->lined_up = true;
        hfi_op_wait_queued(op, HFI_OP_QUEUED_LOCALLY);
        return false;
    }
    int err = hfi_op_inflate(op, &turn);
    if (err != HF_OK)
        hfi_op_complete(op, err, NULL);
    else if (!turn)
        hfi_op_wait_queued(op, HFI_OP_QUEUED);
    return err == HF_OK && turn;
}

void hfi_acquire_fill(struct hf_op *op, int64_t count) {
    op->call->count = count;
    op->call->acks = acks_of(op);
    op->call->lease_ms = op->lease_ms == HF_WATCHDOG ? op->core->watchdog_ms : op->lease_ms;
    op->call->deadline_ms = op->wait_ms == 0 ? op->call->start_ms : op->deadline_ms;
}

/* Its renewals in flight would give it a lease again. */
static bool refuses_no_lease_locked(const struct hf_op *op) {
    return op->lease_ms == HF_NO_LEASE && op->hold->count > 0 && !hfi_hold_has_no_lease(op->hold);
}

static void refuse_no_lease(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail(&error, HF_ENOTSUP, "this hold has a lease, and cannot be without one any more");
    hfi_op_complete(op, HF_ENOTSUP, &error);
}

static void acquire_go(struct hf_op *op) {
    if (!is_inflated(op))
        return;
    struct hfi_hold *hold = op->hold;
    int64_t quiet_until_ms = 0;
    if (reports_loss(op, &quiet_until_ms) || hfi_op_refuses_lease(op) || refuses_acks(op))
        return;
    if (keep_quiet(op, quiet_until_ms, false) || is_entangled(op))
        return;
    pthread_mutex_lock(&op->shard->mtx);
    bool again = hold->count > 0 && !op->kind->reentrant;
    bool deadlock = waits_for_itself_locked(op);
    bool join_queue = !deadlock && must_queue_locked(op);
    bool refused = refuses_no_lease_locked(op);
    int64_t count = hold->count;
    if (count > 0)
        hfi_op_take_stamp_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (again) {
        refuse_deadlock(op, "this owner already holds the lock, and it is not reentrant");
    } else if (deadlock) {
        refuse_deadlock(op, "this owner holds the read lock; release it before acquiring the "
                            "write lock");
    } else if (refused) {
        refuse_no_lease(op);
    } else if (join_queue) {
        op->lined_up = true;
        hfi_op_wait_queued(op, HFI_OP_QUEUED_LOCALLY);
    } else {
        hfi_acquire_fill(op, count);
        hfi_op_call(op, op->kind->ops->acquire);
    }
}

static void acquired(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    hf_result *result = &op->work->result;
    struct hfi_call *call = op->call;
    const struct hfi_grant grant = {.kind = call->kind,
                                    .count = call->value,
                                    .token = call->token,
                                    .lease_ms = call->lease_ms,
                                    .stamp = call->stamp,
                                    .acks = call->acks,
                                    .watched = op->lease_ms == HF_WATCHDOG,
                                    .proof = call->proof,
                                    .self = op->work->self,
                                    .name_stats = op->name_stats};
    pthread_mutex_lock(&op->shard->mtx);
    if (hold->count == 0)
        op->work->self = NULL; /* the hold owns it now */
    if (call->share != NULL)
        hfi_share_put_locked(call->share, hold);
    hfi_hold_granted_locked(hold, &grant);
    if (op->work->stake != NULL)
        hfi_stake_put_locked(op->work->stake, hold);
    call->share = NULL; /* the hold owns it now */
    struct hfi_thread_record *watch = hold->self;
    result->count = hold->count;
    result->token = call->token;
    result->votes = call->votes;
    result->servers = call->servers;
    result->acked = call->acked;
    int64_t deadline_ms = hfi_hold_deadline_ms(hold);
    pthread_mutex_unlock(&op->shard->mtx);

    if (watch != NULL)
        hfi_thread_record_watch(watch, op->core->watchdog); /* no memory: the lease ends it */
    hfi_op_count(op, &op->core->counters.acquired);
    if (call->contended || op->lined_up)
        hfi_op_count(op, &op->core->counters.contended);
    if (!op->inner)
        hfi_count_times(op);
    result->remaining_ms = hfi_left_ms(deadline_ms);
    hfi_op_complete(op, HF_OK, NULL);
}

/* The lease was over before the grant arrived, so a first acquire has got nothing. */
static bool came_too_late(struct hf_op *op) {
    struct hfi_call *call = op->call;
    if (call->count > 0 || !hfi_proof_is_over(&call->proof))
        return false;
    hfi_op_count(op, &op->core->counters.timed_out);
    hfi_fail(&call->error, HF_ETIMEDOUT, "the lease ended before the server answered");
    op->answered = true;
    hfi_op_complete_unsettled(op, HF_ETIMEDOUT, &call->error, 0);
    return true;
}

static void acquire_after(struct hf_op *op) {
    struct hfi_call *call = op->call;
    if (call->err == HF_OK) {
        if (hfi_op_ended_meanwhile(op) || came_too_late(op))
            return;
        acquired(op);
        return;
    }
    if (call->err == HF_ELOST) {
        hfi_op_found_lost(op, "the hold was gone from the server when the lock was re-acquired");
        return;
    }
    int err = call->err;
    hfi_count_failure(op, err);
    pthread_mutex_lock(&op->shard->mtx);
    /* another owner has it, so nothing of ours is there */
    if (err == HF_EBUSY && !call->kind->queues)
        hfi_hold_nothing_left_locked(op->hold);
    if (err == HF_EWRONGTYPE && op->hold->count > 0) { /* is its hold still there? */
        hfi_hold_verify_locked(op->hold);
        hfi_watchdog_arm_locked(op->hold);
    }
    if (call->no_server)
        hfi_local_queue_share_failure_locked(op);
    bool residue = hfi_hold_has_residue(op->hold);
    pthread_mutex_unlock(&op->shard->mtx);
    if (call->unsettled || residue)
        hfi_op_complete_unsettled(op, err, &call->error, call->lease_ms);
    else
        hfi_op_complete(op, err, &call->error);
}

const struct hfi_verb hfi_verb_acquire = {.name = "acquire",
                                          .takes_turn = true,
                                          .waits = true,
                                          .timed = true,
                                          .gets = true,
                                          .acquires = true,
                                          .go = acquire_go,
                                          .after = acquire_after};
