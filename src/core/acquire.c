/*
 * The verb acquire: what happens to the hold before and after the engine is called.
 *
 * Runs on the operation's executor, as every verb does: acquire_go() when it is the operation's
 * turn on the hold, acquire_after() when the engine has answered. The hold is touched under its
 * shard, the engine is called without it.
 *
 * Before: nothing is sent while a copy of this owner's former command may still act; a loss that
 * nobody has been told of is reported; an owner that would wait for itself is refused; and the
 * operations of this process line up at the gate, so that only one waits at the server. After: a
 * hold begins or grows, with a deadline that counts from when the command was sent.
 */
#include "core/op.h"

#define ENDING_MS 20 /* how often to look whether another hold has ended */

/* What the servers cannot do is not to be believed. The parts of a lock of several follow their own
 * clients. */
static bool refuses_acks(struct hf_op *op) {
    struct hfi_engine *engine = op->core->engine;
    hf_error error;
    hfi_error_clear(&error);
    int err = HF_OK;
    if (op->acks == 0 || op->acks == HF_ACKS_OFF)
        return false;
    if (op->kind->joint || engine->ops->check_acks == NULL)
        err = hfi_fail(&error, HF_ENOTSUP, "no replicas can be asked to confirm this lock");
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

/* The owner holds something that it would have to give up first: it reads and wants to write. (One
 * that already writes just nests.) */
static bool waits_for_itself_locked(struct hf_op *op) {
    const struct hfi_kind *other = op->kind->never_beside;
    if (other == NULL || op->hold->count > 0)
        return false;
    const struct hfi_hold *hold = hfi_hold_find_locked(op->core, op->shard, other, op->call->name,
                                                       op->call->name_len, op->owner);
    return hold != NULL && hold->count > hold->leaving && !hfi_hold_expired_locked(hold);
}

/* Of all operations in this process that wait for one lock, only one waits at the server. A single
 * attempt, or a nested acquire, does not wait for the others. */
static bool must_line_up_locked(struct hf_op *op) {
    const struct hfi_hold *hold = op->hold;
    /* those in line may be waiting for what this very owner left behind */
    if (hold != NULL && (hfi_hold_has_leftover(hold) || hold->count > 0))
        return false;
    if (op->wait_ms == 0 || !op->kind->exclusive)
        return false;
    if (op->gate != NULL || op->outside)
        return false;
    return !hfi_gate_enter_locked(op->shard, op);
}

/* The wait ended before this owner's former command could be settled. */
static void fail_unsettled(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    pthread_mutex_lock(&op->shard->mtx);
    bool silent = op->hold->silent;
    pthread_mutex_unlock(&op->shard->mtx);
    int64_t lease_ms = op->core->watchdog_ms;
    if (silent) {
        hfi_fail(&error, HF_EUNREACH, "the server has not answered this owner's last command");
        hfi_op_complete_unsettled(op, HF_EUNREACH, &error, lease_ms);
    } else {
        hfi_op_count(op, &op->core->counters.timed_out);
        hfi_op_complete_unsettled(op, HF_ETIMEDOUT, NULL, lease_ms);
    }
}

/* A copy of this owner's former command may still act: nothing is sent before that is over. */
static bool keep_quiet(struct hf_op *op, int64_t until_ms) {
    int64_t now_ms = hfi_now_ms();
    if (now_ms >= until_ms)
        return false;
    if (now_ms >= op->deadline_ms) {
        fail_unsettled(op);
        return true;
    }
    op->state = HFI_OP_QUEUED;
    hfi_alarm_set(op->task.exec, &op->alarm,
                  until_ms < op->deadline_ms ? until_ms : op->deadline_ms);
    return true;
}

/* A loss that nobody has been told of comes first, whatever is still under way at the server. */
static bool reports_loss(struct hf_op *op) {
    bool news;
    pthread_mutex_lock(&op->shard->mtx);
    bool lost = hfi_hold_take_loss_locked(op->hold, &news);
    pthread_mutex_unlock(&op->shard->mtx);
    if (news)
        hfi_hold_report(op->hold, HFI_LOST);
    if (lost)
        hfi_op_fail_lost(op);
    return lost;
}

/* What this owner wants has something in common with what it holds already: on the server they
 * would be one. */
static bool is_entangled(struct hf_op *op) {
    if (op->kind->overlap == NULL)
        return false;
    pthread_mutex_lock(&op->shard->mtx);
    enum hfi_entanglement entanglement = hfi_overlap_claim_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (entanglement == HFI_HELD)
        refuse_deadlock(op, "this owner holds some of these values together with others");
    else if (entanglement == HFI_ENDING)
        return keep_quiet(op, hfi_now_ms() + ENDING_MS);
    return entanglement == HFI_HELD;
}

/* A slight operation begins without a hold, since there is nothing to know of an owner that is new.
 * It has nothing else, either, before it is in front of its gate. False: it waits, or has ended. */
static bool is_equipped(struct hf_op *op) {
    bool turn;
    if (op->hold != NULL)
        return true;
    if (hfi_op_refuses_lease(op) || refuses_acks(op))
        return false;
    pthread_mutex_lock(&op->shard->mtx);
    bool line_up = must_line_up_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (line_up) {
        op->lined_up = true;
        hfi_op_wait_in_line(op, HFI_OP_GATED);
        return false;
    }
    int err = hfi_op_equip(op, &turn);
    if (err != HF_OK)
        hfi_op_complete(op, err, NULL);
    else if (!turn)
        hfi_op_wait_in_line(op, HFI_OP_QUEUED);
    return err == HF_OK && turn;
}

void hfi_acquire_fill(struct hf_op *op, int64_t count) {
    op->call->count = count;
    op->call->acks = acks_of(op);
    op->call->lease_ms = op->lease_ms == HF_WATCHDOG ? op->core->watchdog_ms : op->lease_ms;
    op->call->deadline_ms = op->wait_ms == 0 ? op->call->start_ms : op->deadline_ms;
}

static void acquire_go(struct hf_op *op) {
    if (!is_equipped(op))
        return;
    struct hfi_hold *hold = op->hold;
    if (reports_loss(op) || hfi_op_refuses_lease(op) || refuses_acks(op))
        return;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t quiet_until_ms = hfi_hold_quiet_until_locked(hold, op->lease_ms != HF_WATCHDOG);
    pthread_mutex_unlock(&op->shard->mtx);
    if (keep_quiet(op, quiet_until_ms) || is_entangled(op))
        return;
    pthread_mutex_lock(&op->shard->mtx);
    bool again = hold->count > 0 && !op->kind->reentrant;
    bool deadlock = waits_for_itself_locked(op);
    bool line_up = !deadlock && must_line_up_locked(op);
    int64_t count = hold->count;
    pthread_mutex_unlock(&op->shard->mtx);
    if (again) {
        refuse_deadlock(op, "this owner holds the lock already, and it is not reentrant");
    } else if (deadlock) {
        refuse_deadlock(op, "this owner reads, and would have to stop before it can write");
    } else if (line_up) {
        op->lined_up = true;
        hfi_op_wait_in_line(op, HFI_OP_GATED);
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
                                    .acks = call->acks,
                                    .watched = op->lease_ms == HF_WATCHDOG,
                                    .proof = call->proof,
                                    .self = op->work->self,
                                    .diary = op->diary};
    pthread_mutex_lock(&op->shard->mtx);
    if (hold->count == 0)
        op->work->self = NULL; /* it is the hold's now */
    if (call->share != NULL)
        hfi_share_put_locked(call->share, hold);
    hfi_hold_granted_locked(hold, &grant);
    if (op->work->stake != NULL)
        hfi_stake_put_locked(op->work->stake, hold);
    call->share = NULL; /* it is the hold's now */
    struct hfi_self *watch = hold->self;
    result->count = hold->count;
    result->token = call->token;
    result->votes = call->votes;
    result->servers = call->servers;
    result->acked = call->acked;
    int64_t deadline_ms = hfi_hold_deadline_ms(hold);
    pthread_mutex_unlock(&op->shard->mtx);

    if (watch != NULL)
        hfi_self_watch(watch, op->core->watchdog); /* without memory: the lease still ends it */
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
    hfi_fail(&call->error, HF_ETIMEDOUT, "the lease was over before the server's answer came");
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
        hfi_op_found_lost(op, "the lock was gone when it was acquired again");
        return;
    }
    int err = call->err;
    hfi_count_failure(op, err);
    pthread_mutex_lock(&op->shard->mtx);
    if (err == HF_EBUSY && !call->kind->queues) /* another's, so nothing of ours is there */
        hfi_hold_nothing_left_locked(op->hold);
    if (call->no_server)
        hfi_gate_share_failure_locked(op);
    bool leftover = hfi_hold_has_leftover(op->hold);
    pthread_mutex_unlock(&op->shard->mtx);
    if (call->unsettled || leftover)
        hfi_op_complete_unsettled(op, err, &call->error, call->lease_ms);
    else
        hfi_op_complete(op, err, &call->error);
}

const struct hfi_verb hfi_verb_acquire = {.name = "acquire",
                                          .takes_turn = true,
                                          .waits = true,
                                          .timed = true,
                                          .acquires = true,
                                          .go = acquire_go,
                                          .after = acquire_after};
