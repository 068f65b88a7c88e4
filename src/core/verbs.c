/*
 * What each verb does with holds and the engine. Each is a const table of two steps: `go` when it is the operation's
 * turn, `after` when the engine has answered. Both run on the operation's executor; holds are touched under their
 * shard, the engine is called without it.
 */
#include "core/op.h"

#include <string.h>

/* ---- Acquire ---- */

/* A loss that nobody has been told of is reported by the next call on the hold, once. */
static bool take_loss_locked(struct hfi_hold *hold, bool *ret_news) {
    *ret_news = false;
    if (hfi_hold_expired_locked(hold))
        *ret_news = hfi_hold_lose_locked(hold, "the lease ran out");
    bool lost = hold->lost;
    hold->lost = false;
    return lost;
}

static void fail_lost(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    pthread_mutex_lock(&op->shard->mtx);
    const char *reason = op->hold->reason;
    pthread_mutex_unlock(&op->shard->mtx);
    hfi_fail(&error, HF_ELOST, "%s", reason != NULL ? reason : hf_strerror(HF_ELOST));
    hfi_op_complete(op, HF_ELOST, &error);
}

/* The kind does not nest, and whatever the wait, this owner would wait for itself. */
static void fail_again(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail(&error, HF_EDEADLK, "this owner holds the lock already, and it is not reentrant");
    hfi_op_complete(op, HF_EDEADLK, &error);
}

/* It holds something that it would have to give up first: a reader that wants to write. One that is writing already only
 * writes once more. */
static bool waits_for_itself_locked(struct hf_op *op) {
    const struct hfi_kind *other = op->call.kind->never_beside;
    if (other == NULL || op->hold->count > 0)
        return false;
    const struct hfi_hold *hold =
        hfi_hold_find_locked(op->core, op->shard, other, op->name, op->name_len, op->owner);
    return hold != NULL && hold->count > hold->leaving && !hfi_hold_expired_locked(hold);
}

static void fail_deadlock(struct hf_op *op) {
    hf_error error;
    hfi_error_clear(&error);
    hfi_fail(&error, HF_EDEADLK, "this owner reads, and would have to stop before it can write");
    hfi_op_complete(op, HF_EDEADLK, &error);
}

/* Of those who wait for one lock in this process, one waits at the server. One attempt, or a nested acquire, waits for
 * nobody. */
static bool must_line_up_locked(struct hf_op *op) {
    if (op->hold->leftover) /* those in line may be waiting for what is left of this very owner */
        return false;
    if (op->hold->count > 0 || op->wait_ms == 0 || !op->call.kind->exclusive || op->gate != NULL)
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
    int64_t until_ms = hfi_now_ms() + op->core->watchdog_ms + op->core->cmd_timeout_ms;
    if (silent) {
        hfi_fail(&error, HF_EUNREACH, "the server has not answered this owner's last command");
        hfi_op_complete_unsettled(op, HF_EUNREACH, &error, until_ms);
    } else {
        hfi_count(&op->core->counters.timed_out);
        hfi_op_complete_unsettled(op, HF_ETIMEDOUT, NULL, until_ms);
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

/* Until when nothing may be sent. A renewal of the possession before, if it is still on its way, would lengthen a fixed
 * lease of the next one; it wakes us when it is answered. */
static int64_t quiet_until_locked(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    bool renewal_matters = hold->count == 0 && op->lease_ms != HF_WATCHDOG;
    hold->renewal_awaited = renewal_matters && hold->renewal_until_ms > hold->quiet_until_ms;
    return hold->renewal_awaited ? hold->renewal_until_ms : hold->quiet_until_ms;
}

static void acquire_go(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    bool news;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t quiet_until_ms = quiet_until_locked(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (keep_quiet(op, quiet_until_ms))
        return;
    pthread_mutex_lock(&op->shard->mtx);
    bool lost = take_loss_locked(hold, &news);
    bool again = !lost && hold->count > 0 && !op->call.kind->reentrant;
    bool deadlock = !lost && waits_for_itself_locked(op);
    bool line_up = !lost && !deadlock && must_line_up_locked(op);
    int64_t count = hold->count;
    pthread_mutex_unlock(&op->shard->mtx);
    if (news)
        hfi_hold_report(hold, HFI_LOST);
    if (lost) {
        fail_lost(op);
        return;
    }
    if (again) {
        fail_again(op);
        return;
    }
    if (deadlock) {
        fail_deadlock(op);
        return;
    }
    if (line_up) {
        op->lined_up = true;
        hfi_op_wait_in_line(op, HFI_OP_GATED);
        return;
    }
    op->call.count = count;
    op->call.lease_ms = op->lease_ms == HF_WATCHDOG ? op->core->watchdog_ms : op->lease_ms;
    op->call.deadline_ms = op->wait_ms == 0 ? op->start_ms : op->deadline_ms;
    hfi_op_call(op, op->core->engine->ops->acquire);
}

static void begin_possession_locked(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    hold->generation++;
    hold->since_us = hfi_now_us();
    hold->lease_ms = 0;
    hold->deadline_ms = 0;
    hold->watchdog = hold->warned = hold->orphaned = hold->lost = false;
    hold->reason = NULL;
    hold->token = 0;
    hfi_self_unref(hold->self);
    hold->self = op->self;
    op->self = NULL;
    atomic_fetch_add_explicit(&op->core->counters.holds, 1, memory_order_relaxed);
}

/* A grant that is ours for a moment only is renewed when a third of that is over. Any other one has its lease; but a
 * nested one that ends before the first was promised to does not take the place of that. */
static void note_provisional_locked(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    if (!op->call.provisional) {
        if (hold->deadline_ms >= hold->promised_until_ms)
            hold->provisional_ms = 0;
        return;
    }
    int64_t now_ms = hfi_now_ms();
    hold->provisional_ms = op->call.valid_until_ms - now_ms;
    hold->promised_until_ms = hfi_after_ms(now_ms, op->call.lease_ms);
    hold->renew_at_ms = now_ms + hold->provisional_ms / 3;
}

static void acquired(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    const struct hfi_call *call = &op->call;
    struct hfi_self *watch = NULL;
    pthread_mutex_lock(&op->shard->mtx);
    if (hold->count == 0)
        begin_possession_locked(op);
    hold->leftover = false;
    hold->count = call->value;
    if (call->token != 0) /* a nested acquire of a kind without tokens leaves the last one valid */
        hold->token = call->token;
    if (call->valid_until_ms > hold->deadline_ms)
        hold->deadline_ms = call->valid_until_ms;
    if (call->lease_ms > hold->lease_ms)
        hold->lease_ms = call->lease_ms;
    hold->watchdog |= op->lease_ms == HF_WATCHDOG;
    hold->kept_fresh = call->kind->keeps_fresh;
    if (op->lease_ms == HF_WATCHDOG || (hold->kept_fresh && !hold->watchdog)) {
        int64_t sent_ms = call->valid_until_ms - call->lease_ms;
        hold->renew_at_ms = sent_ms + op->core->watchdog_ms / 3;
    }
    note_provisional_locked(op);
    hold->warned = false;
    hfi_watchdog_arm_locked(hold);
    watch = hold->self;
    op->result.count = hold->count;
    op->result.token = call->token;
    int64_t deadline_ms = hold->deadline_ms;
    pthread_mutex_unlock(&op->shard->mtx);

    if (watch != NULL)
        hfi_self_watch(watch, op->core->watchdog); /* without memory: the lease still ends it */
    hfi_count(&op->core->counters.acquired);
    if (call->contended || op->lined_up)
        hfi_count(&op->core->counters.contended);
    int64_t now_us = hfi_now_us();
    hfi_times_add(&op->core->wait, now_us - op->start_us);
    op->result.remaining_ms = deadline_ms - now_us / 1000;
    hfi_op_complete(op, HF_OK, NULL);
}

static void count_failure(struct hf_op *op, int err) {
    if (err == HF_EBUSY || err == HF_ETIMEDOUT)
        hfi_count(&op->core->counters.timed_out);
    else if (err == HF_ECANCELED)
        hfi_count(&op->core->counters.cancelled);
}

/* The server says the hold is gone: over, and this very call reports it. */
static void found_lost(struct hf_op *op, const char *reason) {
    pthread_mutex_lock(&op->shard->mtx);
    bool news = hfi_hold_lose_locked(op->hold, reason);
    op->hold->lost = false;
    pthread_mutex_unlock(&op->shard->mtx);
    if (news)
        hfi_hold_report(op->hold, HFI_LOST);
    hfi_op_complete(op, HF_ELOST, &op->call.error);
}

/* The hold's deadline passed, and its end was told, while a command on it was under way: then its answer comes too
 * late, and what the server still has of it is undone. True: the op is complete. */
static bool ended_meanwhile(struct hf_op *op) {
    struct hfi_call *call = &op->call;
    pthread_mutex_lock(&op->shard->mtx);
    bool ended = call->count > 0 && op->hold->count == 0;
    if (ended)
        op->hold->lost = false;
    pthread_mutex_unlock(&op->shard->mtx);
    if (!ended)
        return false;
    hfi_fail(&call->error, HF_ELOST, "the lease ran out before the server answered");
    call->count = 1;
    call->settle_release = true;
    hfi_op_complete_unsettled(op, HF_ELOST, &call->error,
                              hfi_now_ms() + call->lease_ms + op->core->cmd_timeout_ms);
    return true;
}

/* The lease was over before its grant arrived: a first acquire has nothing to show for it. */
static bool came_too_late(struct hf_op *op) {
    struct hfi_call *call = &op->call;
    if (call->count > 0 || call->valid_until_ms > hfi_now_ms())
        return false;
    hfi_count(&op->core->counters.timed_out);
    hfi_fail(&call->error, HF_ETIMEDOUT, "the lease was over before the server's answer came");
    hfi_op_complete_unsettled(op, HF_ETIMEDOUT, &call->error,
                              hfi_now_ms() + op->core->cmd_timeout_ms);
    return true;
}

static void acquire_after(struct hf_op *op) {
    struct hfi_call *call = &op->call;
    if (call->err == HF_OK) {
        if (ended_meanwhile(op) || came_too_late(op))
            return;
        acquired(op);
        return;
    }
    if (call->err == HF_ELOST) {
        found_lost(op, "the lock was gone when it was acquired again");
        return;
    }
    int err = call->err;
    count_failure(op, err);
    pthread_mutex_lock(&op->shard->mtx);
    if (err == HF_EBUSY && !call->kind->queues) /* another's, so nothing of ours is there */
        op->hold->leftover = false;
    bool leftover = op->hold->leftover;
    pthread_mutex_unlock(&op->shard->mtx);
    if (call->unsettled || leftover)
        hfi_op_complete_unsettled(op, err, &call->error,
                                  hfi_now_ms() + call->lease_ms + op->core->cmd_timeout_ms);
    else
        hfi_op_complete(op, err, &call->error);
}

const struct hfi_verb hfi_verb_acquire = {
    .name = "acquire", .takes_turn = true, .waits = true, .go = acquire_go, .after = acquire_after};

/* ---- Release ---- */

static void release_go(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    bool news;
    pthread_mutex_lock(&op->shard->mtx);
    int64_t count = hold->count;
    hold->leaving -= op->complete; /* left to the keeper */
    bool lost = take_loss_locked(hold, &news);
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
        fail_lost(op);
    else if (count == 0)
        hfi_op_complete(op, HF_ENOTOWNER, NULL);
    else {
        op->call.count = count;
        if (op->complete) /* left to the keeper: it has its own time */
            op->call.deadline_ms = hfi_now_ms() + op->core->cmd_timeout_ms;
        hfi_op_call(op, op->core->engine->ops->release);
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

/* Until when there may be something to release: a renewal that was not answered may have lengthened the lease. */
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
    /* A repeated release that finds nothing has worked the first time, unless the lease may have run out by then. */
    bool late = call->err == HF_OK && call->gone && hfi_now_ms() >= deadline_ms;
    if (call->err == HF_ELOST || late) {
        if (late)
            hfi_fail(&call->error, HF_ELOST, "the lease ran out before the release was answered");
        found_lost(op, "the lock was gone when it was released");
        return;
    }
    if (call->err == HF_OK) {
        if (call->value > 0 && ended_meanwhile(op))
            return;
        set_count_after_release(op, call->value);
        hfi_count(&op->core->counters.released);
        hfi_op_complete(op, HF_OK, NULL);
        return;
    }
    /* The caller is done with it, whether the server knows or not: never renewed again, released in the background. */
    if (ended_meanwhile(op))
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
    bool lost = take_loss_locked(hold, &news);
    pthread_mutex_unlock(&op->shard->mtx);
    if (news)
        hfi_hold_report(hold, HFI_LOST);
    if (lost)
        fail_lost(op);
    else if (count == 0)
        hfi_op_complete(op, HF_ENOTOWNER, NULL);
    else {
        op->call.count = count;
        op->call.lease_ms = op->lease_ms;
        hfi_op_call(op, op->core->engine->ops->extend);
    }
}

static void extend_after(struct hf_op *op) {
    struct hfi_call *call = &op->call;
    if (call->err == HF_ELOST) {
        found_lost(op, "the lock was gone when it was extended");
        return;
    }
    if (call->err == HF_OK) {
        if (ended_meanwhile(op))
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
        op->result.remaining_ms = hold->deadline_ms - hfi_now_ms();
        pthread_mutex_unlock(&op->shard->mtx);
    }
    /* One that may still run does no harm: it can only lengthen the lease. */
    hfi_op_complete(op, call->err, &call->error);
}

const struct hfi_verb hfi_verb_extend = {
    .name = "extend", .takes_turn = true, .go = extend_go, .after = extend_after};

/* ---- Break ---- */

static void force_go(struct hf_op *op) {
    hfi_op_call(op, op->core->engine->ops->force);
}

/* One that began after the break was asked for may have come after it; one with a command under way will hear of it
 * by that. */
static bool was_broken_locked(const struct hf_op *op, const struct hfi_hold *hold) {
    return hold->active == NULL && hold->since_us < op->start_us &&
           hold->name_len == op->name_len && memcmp(hold->name, op->name, op->name_len) == 0;
}

/* Some of our own holds on the name, on both sides: what was broken is deleted. False: there were no more. */
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

/* Our own holds on the name need not wait for their next renewal to hear of it. */
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

static void ask(struct hfi_call *call) {
    struct hf_op *op = HFI_CONTAINER(call, struct hf_op, call);
    call->engine->ops->ask(call, op->question);
}

static void ask_go(struct hf_op *op) {
    hfi_op_call(op, ask);
}

static void ask_after(struct hf_op *op) {
    op->result.value = op->yes_or_no ? op->call.value > 0 : op->call.value;
    hfi_op_complete(op, op->call.err, &op->call.error);
}

const struct hfi_verb hfi_verb_ask = {.name = "ask", .go = ask_go, .after = ask_after};

static void inspect(struct hfi_call *call) {
    struct hf_op *op = HFI_CONTAINER(call, struct hf_op, call);
    call->engine->ops->inspect(call, &op->info);
}

static void inspect_go(struct hf_op *op) {
    hfi_op_call(op, inspect);
}

const struct hfi_verb hfi_verb_inspect = {.name = "inspect", .go = inspect_go, .after = ask_after};
