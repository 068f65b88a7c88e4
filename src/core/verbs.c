/*
 * The verbs of locks other than acquire: release, extend, break, questions.
 *
 * Each is a const table of two steps: `go` when it is the operation's turn, `after` when the engine
 * has answered. Both run on the operation's executor. Holds are touched under their shard; the
 * engine is called without it.
 */
#include "core/op.h"

/* ---- Release ---- */

static void release_go(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    bool news;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t count = hold->count;
    hold->leaving -= op->complete; /* left to the keeper */
    bool lost = hfi_hold_take_loss_locked(hold, &news);
    op->call.lease_ms = hold->watchdog ? op->core->watchdog_ms : hold->lease_ms;
    if (count == 1 && !lost) { /* from here on it must not be renewed */
        hold->watchdog = hold->kept_fresh = false;
        hold->provisional_ms = 0;
        hfi_watchdog_disarm_locked(hold);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    if (news)
        hfi_hold_report(hold, HFI_LOST);
    if (lost)
        hfi_op_fail_lost(op);
    else if (count == 0)
        hfi_op_complete(op, HF_ENOTOWNER, NULL);
    else {
        op->call.count = count;
        if (op->complete) /* left to the keeper: it has its own time */
            op->call.deadline_ms = hfi_now_ms() + op->core->cmd_timeout_ms;
        hfi_op_call(op, op->call.kind->ops->release);
    }
}

static void set_count_after_release(struct hf_op *op, int64_t count) {
    pthread_mutex_lock(&op->shard->mtx);
    if (count == 0) {
        hfi_hold_end_locked(op->hold);
        op->hold->lost = false; /* it was there to be released */
    } else {
        op->hold->count = count;
    }
    pthread_mutex_unlock(&op->shard->mtx);
    op->result.count = count;
}

/* How long there may be something to release: a renewal that was not answered may have lengthened
 * the lease. */
static int64_t may_last_until_ms_locked(const struct hf_op *op) {
    const struct hfi_hold *hold = op->hold;
    if (hold->renewal_until_ms == 0)
        return hold->deadline_ms;
    int64_t renewed_ms = hfi_after_ms(hold->renewal_until_ms, op->call.lease_ms);
    return renewed_ms > hold->deadline_ms ? renewed_ms : hold->deadline_ms;
}

static void release_after(struct hf_op *op) {
    struct hfi_call *call = &op->call;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t deadline_ms = op->hold->deadline_ms;
    int64_t settle_until_ms = may_last_until_ms_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    /* A repeated release that finds nothing has worked the first time, unless the lease may have
     * run out by then. */
    bool late = call->err == HF_OK && call->gone && hfi_now_ms() >= deadline_ms;
    if (call->err == HF_ELOST || late) {
        if (late)
            hfi_fail(&call->error, HF_ELOST, "the lease ran out before the release was answered");
        hfi_op_found_lost(op, "the lock was gone when it was released");
        return;
    }
    if (call->err == HF_OK) {
        if (call->value > 0 && hfi_op_ended_meanwhile(op))
            return;
        set_count_after_release(op, call->value);
        hfi_count(&op->core->counters.released);
        hfi_op_complete(op, HF_OK, NULL);
        return;
    }
    /* The caller is done with it, whether or not the server knows: it is never renewed again, and
     * is released in the background. */
    if (hfi_op_ended_meanwhile(op))
        return;
    set_count_after_release(op, call->count - 1);
    call->settle_release = true;
    /* out of memory means: nothing has begun */
    int err = call->err == HF_ENOMEM ? HF_EUNKNOWN : call->err;
    hfi_op_complete_unsettled(op, err, &call->error, settle_until_ms);
}

const struct hfi_verb hfi_verb_release = {
    .name = "release", .takes_turn = true, .go = release_go, .after = release_after};

/* ---- Extend ---- */

static void extend_go(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    bool news;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t count = hold->count;
    bool lost = hfi_hold_take_loss_locked(hold, &news);
    pthread_mutex_unlock(&op->shard->mtx);
    if (news)
        hfi_hold_report(hold, HFI_LOST);
    if (lost)
        hfi_op_fail_lost(op);
    else if (count == 0)
        hfi_op_complete(op, HF_ENOTOWNER, NULL);
    else {
        op->call.count = count;
        op->call.lease_ms = op->lease_ms;
        hfi_op_call(op, op->call.kind->ops->extend);
    }
}

static void extend_after(struct hf_op *op) {
    struct hfi_call *call = &op->call;
    if (call->err == HF_ELOST) {
        pthread_mutex_lock(&op->shard->mtx);
        op->hold->leftover |= call->kind->leaves_traces;
        pthread_mutex_unlock(&op->shard->mtx);
        hfi_op_found_lost(op, "the lock was gone when it was extended");
        return;
    }
    if (call->err == HF_OK) {
        if (hfi_op_ended_meanwhile(op))
            return;
        pthread_mutex_lock(&op->shard->mtx);
        struct hfi_hold *hold = op->hold;
        if (hold->count > 0 && call->valid_until_ms > hold->deadline_ms) {
            hold->deadline_ms = call->valid_until_ms;
            hold->warned = false;
            hfi_watchdog_arm_locked(hold);
        }
        if (call->lease_ms > hold->lease_ms)
            hold->lease_ms = call->lease_ms;
        op->result.count = hold->count;
        op->result.remaining_ms = hfi_left_ms(hold->deadline_ms);
        pthread_mutex_unlock(&op->shard->mtx);
    }
    /* A copy that may still run does no harm: it can only lengthen the lease. */
    hfi_op_complete(op, call->err, &call->error);
}

const struct hfi_verb hfi_verb_extend = {
    .name = "extend", .takes_turn = true, .go = extend_go, .after = extend_after};

/* ---- Break ---- */

static void force_go(struct hf_op *op) {
    hfi_op_call(op, op->call.kind->ops->force);
}

/* A hold that began after the break was requested may have come after it; one with a command under
 * way will be told by the answer. */
static bool was_broken_locked(const struct hf_op *op, const struct hfi_hold *hold) {
    const struct hfi_call *call = &op->call;
    if (hold->active != NULL || hold->since_us >= op->start_us)
        return false;
    if (call->kind->overlap != NULL)
        return hfi_hold_overlaps(hold, call->kind, call->name, call->name_len);
    return hfi_hold_is_in_scope(hold, call->name, call->name_len);
}

/* Loses some of our own holds on the name, on both sides, since a break deletes the whole lock.
 * False: there are no more. */
static bool lose_some_holds(struct hf_op *op) {
    struct hfi_hold *hold, *next, *broken[16];
    size_t len = 0;
    pthread_mutex_lock(&op->shard->mtx);
    HASH_ITER(hh, op->shard->holds, hold, next) {
        if (len == sizeof broken / sizeof broken[0])
            break;
        if (was_broken_locked(op, hold) && hfi_hold_lose_locked(hold, "the lock was broken")) {
            hfi_hold_ref(hold);
            broken[len++] = hold;
        }
    }
    pthread_mutex_unlock(&op->shard->mtx);
    for (size_t i = 0; i < len; i++) {
        hfi_hold_report(broken[i], HFI_LOST);
        hfi_hold_unref(broken[i]);
    }
    return len == sizeof broken / sizeof broken[0];
}

/* Our own holds on the name need not wait for their next renewal to find out. */
static void lose_own_holds(struct hf_op *op) {
    while (lose_some_holds(op)) {
    }
}

static void force_after(struct hf_op *op) {
    op->result.value = op->call.value;
    if (op->call.err == HF_OK && op->call.value == 1)
        lose_own_holds(op);
    hfi_op_complete(op, op->call.err, &op->call.error);
}

const struct hfi_verb hfi_verb_force = {.name = "break", .go = force_go, .after = force_after};

/* ---- Questions ---- */

static void ask_go(struct hf_op *op) {
    hfi_op_call(op, op->call.kind->ops->ask);
}

static void ask_after(struct hf_op *op) {
    op->result.value = op->yes_or_no ? op->call.value > 0 : op->call.value;
    hfi_op_complete(op, op->call.err, &op->call.error);
}

const struct hfi_verb hfi_verb_ask = {.name = "ask", .go = ask_go, .after = ask_after};

static void inspect_go(struct hf_op *op) {
    hfi_op_call(op, op->call.kind->ops->inspect);
}

const struct hfi_verb hfi_verb_inspect = {.name = "inspect", .go = inspect_go, .after = ask_after};
