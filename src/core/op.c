/*
 * Operations: from start to callback.
 *
 * All of an operation's own state belongs to its executor's thread; a shard guards the links by
 * which others find it (hold queue, gate, the list of unfinished ones). The engine finishes a call
 * by setting `call_done`; it is looked at when the engine has returned, so nothing of the engine's
 * is on the stack when an operation completes.
 *
 * Completing publishes the result and then, if a command may still run at the server, turns the
 * same object into the one that settles it, on the keeper, keeping the hold's turn meanwhile:
 * nothing has to be allocated for that, and the next operation on the hold cannot overtake it.
 */
#include "core/op.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define BRIEF_MS 250 /* a server that can be reached answers sooner */

static void alarm_fired(struct hfi_alarm *alarm) {
    struct hf_op *op = HFI_CONTAINER(alarm, struct hf_op, alarm);
    hfi_task_post(&op->task, HFI_OP_TIMEOUT);
}

/* An operation is larger than what malloc keeps at hand, so each shard keeps one: a thread that
 * locks and releases in a loop gets the same memory again and again. Operations on long names, or
 * with many ids, are allocated each time. */
#define SMALL_ROOM 64

static size_t aligned(size_t size) {
    return (size + 15) & ~(size_t)15;
}

/* Where the name of an operation begins. */
static size_t head_size(const struct hfi_kind *kind) {
    return aligned(sizeof(struct hf_op)) + aligned(kind->ops->call_size);
}

/* `room`: bytes for the name and the ids. */
static struct hf_op *allocate(struct hfi_core *core, struct hfi_shard *shard,
                              const struct hfi_kind *kind, size_t room) {
    size_t size = head_size(kind) + (room < SMALL_ROOM ? SMALL_ROOM : room) + 1;
    struct hf_op *op = room <= SMALL_ROOM ? atomic_exchange(&shard->spare_op, NULL) : NULL;
    if (op != NULL && op->size != size) { /* it was made for another engine's state */
        hfi_free(core->mem, op);
        op = NULL;
    }
    if (op == NULL)
        op = hfi_alloc(core->mem, size);
    if (op != NULL) {
        memset(op, 0, size);
        op->size = size;
    }
    return op;
}

static void deallocate(struct hfi_core *core, struct hf_op *op) {
    void *none = NULL;
    bool small = op->size == head_size(op->call.kind) + SMALL_ROOM + 1;
    if (!small || atomic_load(&core->closing) ||
        !atomic_compare_exchange_strong(&op->shard->spare_op, &none, op))
        hfi_free(core->mem, op);
}

static void destroy(struct hfi_task *task) {
    struct hf_op *op = HFI_CONTAINER(task, struct hf_op, task);
    struct hfi_core *core = op->core;
    hfi_hold_unref(op->hold);
    hfi_self_unref(op->self);
    if (op->lane != HFI_LANE_CALLER) {
        pthread_cond_destroy(&op->cond);
        pthread_mutex_destroy(&op->mtx);
    }
    deallocate(core, op);
    core->hooks.forget(core->hooks.arg);
}

static void run(struct hfi_task *task, unsigned events);
static void run_callback(struct hfi_notice *notice);

/* For hf_op_wait(). A synchronous caller watches `complete` on its own thread. */
static void init_completion(struct hf_op *op) {
    pthread_mutex_init(&op->mtx, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&op->cond, &attr);
    pthread_condattr_destroy(&attr);
}

static void call_is_done(struct hfi_call *call);

/* All that the caller wants of the engine. */
static void fill_call(struct hf_op *op, const struct hfi_op_args *args) {
    struct hfi_call *call = &op->call;
    char *name = (char *)op + head_size(args->kind);
    call->engine = op->core->engine;
    call->task = &op->task;
    call->lane = args->lane;
    call->kind = args->kind;
    call->name = memcpy(name, args->name, args->name_len);
    call->name_len = args->name_len;
    call->owner = op->owner_text;
    call->owner_len = hfi_owner_text(op->core, args->owner, op->owner_text);
    call->question = args->question;
    call->act = args->act;
    call->amount = args->amount;
    call->ttl_ms = args->ttl_ms;
    if (args->ids_len > 0) {
        call->ids = memcpy(name + args->name_len, args->ids, args->ids_len * HFI_ID_LEN);
        call->ids_len = args->ids_len;
    }
    call->start_ms = op->start_us / 1000;
    call->deadline_ms = op->deadline_ms;
    call->done = call_is_done;
    call->state = (char *)op + aligned(sizeof *op);
}

/* By when it ends, one way or another. */
static int64_t end_ms(const struct hf_op *op, const struct hfi_op_args *args) {
    int64_t start_ms = op->start_us / 1000;
    if (!args->verb->waits || args->wait_ms == 0)
        return hfi_after_ms(start_ms, op->core->cmd_timeout_ms);
    /* the clock is read in whole milliseconds, and a wait must not be too short by a fraction of
     * one */
    return hfi_after_ms(start_ms + 1, args->wait_ms);
}

struct hf_op *hfi_op_new(struct hfi_core *core, const struct hfi_op_args *args) {
    struct hfi_shard *shard = hfi_core_shard(
        core, args->name, hfi_kind_scope_len(args->kind, args->name, args->name_len));
    struct hf_op *op =
        allocate(core, shard, args->kind, args->name_len + args->ids_len * HFI_ID_LEN);
    if (op == NULL)
        return NULL;
    hfi_task_init(&op->task, args->exec, run, destroy);
    op->core = core;
    op->verb = args->verb;
    op->lane = args->lane;
    op->owner = args->owner;
    op->wait_ms = args->wait_ms;
    op->lease_ms = args->lease_ms;
    op->yes_or_no = args->yes_or_no;
    op->callback = args->callback;
    op->user = args->user;
    op->alarm.fire = alarm_fired;
    op->notice.run = run_callback;
    op->permits.ret_ids = args->ret_ids;
    op->shard = shard;
    op->start_us = hfi_now_us();
    op->cancellable = args->verb->waits;
    op->deadline_ms = end_ms(op, args);
    fill_call(op, args);
    if (args->self != NULL) {
        hfi_self_ref(args->self);
        op->self = args->self;
    }
    core->hooks.retain(core->hooks.arg);
    if (args->lane != HFI_LANE_CALLER)
        init_completion(op);
    hfi_cancel_attach(args->cancel, op);
    return op;
}

/* ---- Completion ---- */

static void run_callback(struct hfi_notice *notice) {
    struct hf_op *op = HFI_CONTAINER(notice, struct hf_op, notice);
    op->callback(op->handle_given ? op : NULL, &op->result, op->user);
    hfi_task_unref(&op->task);
}

void hfi_op_publish(struct hf_op *op, int err, const hf_error *error) {
    if (op->complete)
        return; /* its caller did not wait for this */
    op->result.size = sizeof op->result;
    op->result.code = err;
    op->result.owner = op->owner;
    if (err != HF_OK && error != NULL)
        op->result.error = *error;
    else if (op->shared_err != HF_OK) /* its words are there, but it ends for another reason */
        hfi_error_clear(&op->result.error);
    op->result.error.code = err;
    if (err != HF_OK && op->result.error.text[0] == '\0')
        snprintf(op->result.error.text, sizeof op->result.error.text, "%s", hf_strerror(err));

    if (op->lane == HFI_LANE_CALLER) {
        op->complete = true; /* this is the only thread that looks */
        return;
    }
    bool dispatch = op->callback != NULL;
    if (dispatch)
        hfi_task_ref(&op->task);
    pthread_mutex_lock(&op->mtx);
    op->complete = true;
    pthread_cond_broadcast(&op->cond);
    pthread_mutex_unlock(&op->mtx);
    if (dispatch)
        op->core->hooks.dispatch(op->core->hooks.arg, &op->notice);
}

/* Gives the turn to the next operation on this hold. */
static void leave_turn_locked(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    if (hold == NULL)
        return;
    hfi_list_remove(&op->hold_link);
    if (hold->active == op) {
        hold->settling = false;
        struct hfi_link *next = hfi_list_pop_front(&hold->queue);
        hold->active = next != NULL ? HFI_CONTAINER(next, struct hf_op, hold_link) : NULL;
        if (hold->active != NULL)
            hfi_task_post(&hold->active->task, HFI_OP_TURN);
        else if (op->state == HFI_OP_SETTLING && !atomic_load(&op->core->closing))
            hfi_let_go_rest_locked(hold);
    }
    hfi_hold_tidy_locked(hold);
}

/* Nothing more will happen: takes the op off all lists, and drops the list's reference. */
static void finish(struct hf_op *op) {
    hfi_cancel_detach(op);
    hfi_alarm_clear(op->task.exec, &op->alarm);
    pthread_mutex_lock(&op->shard->mtx);
    hfi_gate_leave_locked(op->shard, op);
    leave_turn_locked(op);
    bool listed = hfi_linked(&op->shard_link);
    hfi_list_remove(&op->shard_link);
    bool last = hfi_list_empty(&op->shard->ops);
    pthread_mutex_unlock(&op->shard->mtx);
    if (last && atomic_load(&op->core->closing))
        op->core->hooks.idle(op->core->hooks.arg);
    op->state = HFI_OP_DONE;
    if (op->verb->finished != NULL)
        op->verb->finished(op);
    /* a late cancel finds nothing to do, even after the client was closed */
    hfi_task_retire(&op->task);
    if (listed)
        hfi_task_unref(&op->task);
}

/* After a settlement was broken off, whoever has the turn has to finish it, unless somebody else is
 * next. */
static bool must_settle_leftover(struct hf_op *op, int err) {
    if (op->hold == NULL || err == HF_ECLOSED)
        return false;
    pthread_mutex_lock(&op->shard->mtx);
    bool must = op->hold->leftover && op->hold->active == op && hfi_list_empty(&op->hold->queue);
    op->brief = must && op->hold->ran_out;
    pthread_mutex_unlock(&op->shard->mtx);
    return must;
}

void hfi_op_complete(struct hf_op *op, int err, const hf_error *error) {
    if (must_settle_leftover(op, err)) {
        hfi_op_complete_unsettled(op, err, error,
                                  hfi_now_ms() + op->core->watchdog_ms + op->core->cmd_timeout_ms);
        return;
    }
    hfi_task_ref(&op->task);
    finish(op);
    hfi_op_publish(op, err, error);
    hfi_task_unref(&op->task);
}

/* The hold is busy until it is known what became of the command. */
static void settle_hold_locked(struct hf_op *op, int err) {
    struct hfi_hold *hold = op->hold;
    if (hold == NULL)
        return;
    if (hold->count == 0 && op->call.count > 0) {
        /* the possession has ended meanwhile, so nothing of it is to stay */
        op->call.count = 1;
        op->call.settle_release = true;
    }
    hold->settling = true;
    if (!hold->leftover)
        /* if it only has to leave the line, its command was answered */
        hold->silent = err != HF_ECANCELED && !(op->call.queued && op->call.ghost_until_ms == 0);
    hold->leftover = false; /* this settlement sees to it */
    if (op->call.ghost_until_ms < hold->quiet_until_ms)
        op->call.ghost_until_ms = hold->quiet_until_ms;
}

void hfi_op_complete_unsettled(struct hf_op *op, int err, const hf_error *error, int64_t until_ms) {
    if (atomic_load(&op->core->abandoning)) {
        op->call.kind->ops->cancel(&op->call, HF_ECLOSED); /* drops what is on its way */
        hfi_task_ref(&op->task);
        finish(op);
        hfi_op_publish(op, err, error);
        hfi_task_unref(&op->task);
        return;
    }
    hfi_cancel_detach(op);
    hfi_alarm_clear(op->task.exec, &op->alarm);
    pthread_mutex_lock(&op->shard->mtx);
    hfi_gate_leave_locked(op->shard, op);
    settle_hold_locked(op, err);
    pthread_mutex_unlock(&op->shard->mtx);
    op->state = HFI_OP_SETTLING;
    op->call.deadline_ms = until_ms;
    op->call.lane = HFI_LANE_KEEPER;
    hfi_task_ref(&op->task);
    hfi_op_publish(op, err, error);
    hfi_task_move(&op->task, op->core->keeper); /* from here on it is the keeper's */
    hfi_task_post(&op->task, HFI_OP_SETTLE);
    hfi_task_unref(&op->task);
}

/* ---- Talking to the engine ---- */

/* The engine's `done`. */
static void call_is_done(struct hfi_call *call) {
    struct hf_op *op = HFI_CONTAINER(call, struct hf_op, call);
    assert(!op->call_done);
    op->call_done = true;
}

static void settle(struct hf_op *op);

/* A settlement was broken off for the next operation in line, which takes over what is left. False:
 * there is none any more. */
static bool hand_on(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool anybody = !hfi_list_empty(&op->hold->queue);
    if (anybody) {
        op->hold->leftover = true;
        op->hold->quiet_until_ms = op->call.ghost_until_ms;
        leave_turn_locked(op);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    return anybody;
}

static void look_if_done(struct hf_op *op) {
    if (!op->call_done)
        return;
    op->call_done = false;
    if (op->state != HFI_OP_SETTLING) {
        op->verb->after(op);
        return;
    }
    if (op->call.err == HF_ECANCELED && op->hold != NULL && !hand_on(op))
        settle(op); /* whoever wanted the turn has given up meanwhile */
    else
        finish(op);
}

void hfi_op_call(struct hf_op *op, void (*engine_op)(struct hfi_call *call)) {
    op->state = HFI_OP_CALLING;
    struct hfi_call *call = &op->call;
    memset(call->state, 0, call->kind->ops->call_size);
    engine_op(call);
    look_if_done(op);
}

/* ---- Life ---- */

/* While nobody has the hold, and its last possession is being undone at the server, all but an
 * acquire can be answered from what we know, and so can an acquire that is to hear of a loss. */
static bool needs_no_turn_locked(const struct hf_op *op) {
    const struct hfi_hold *hold = op->hold;
    return hold->settling && hold->count == 0 && hfi_list_empty(&hold->queue) &&
           (op->verb != &hfi_verb_acquire || hold->lost);
}

static void line_up_locked(struct hf_op *op, bool *ret_turn) {
    struct hfi_hold *hold = op->hold;
    *ret_turn = hold->active == NULL || needs_no_turn_locked(op);
    if (hold->active == NULL)
        hold->active = op;
    else if (!*ret_turn)
        hfi_list_push_back(&hold->queue, &op->hold_link);
    if (hold->active == op && op->verb == &hfi_verb_let_go)
        hold->settling = true; /* from now on an acquire asks it to yield */
    else if (!*ret_turn && hold->settling && hold->count == 0 && op->verb == &hfi_verb_acquire)
        hfi_task_post(&hold->active->task, HFI_OP_YIELD);
}

/* Puts the op on the lists, and gets its hold's turn if it can. */
static int enlist(struct hf_op *op, bool *ret_turn) {
    int err = HF_OK;
    *ret_turn = true;
    pthread_mutex_lock(&op->shard->mtx);
    if (op->verb->takes_turn) {
        op->hold = hfi_hold_get_locked(op->core, op->shard, op->call.kind, op->call.name,
                                       op->call.name_len, op->owner);
        if (op->hold == NULL) {
            err = HF_ENOMEM;
        } else {
            hfi_hold_ref(op->hold);
            line_up_locked(op, ret_turn);
        }
    }
    if (err == HF_OK) {
        hfi_task_ref(&op->task);
        hfi_list_push_back(&op->shard->ops, &op->shard_link);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    return err;
}

void hfi_op_begin(struct hf_op *op) {
    bool turn;
    if (op->cancelled_first) {
        hfi_count(&op->core->counters.cancelled);
        hfi_op_complete(op, HF_ECANCELED, NULL);
        return;
    }
    int err = enlist(op, &turn);
    if (err != HF_OK)
        hfi_op_complete(op, err, NULL);
    else if (atomic_load(&op->core->closing))
        hfi_op_complete(op, HF_ECLOSED, NULL); /* close may have missed us */
    else if (turn)
        op->verb->go(op);
    else
        hfi_op_wait_in_line(op, HFI_OP_QUEUED);
}

/* The client closes. A settlement that the server refuses will not be taken in the moment that is
 * left; one that is not answered yet may be. */
static bool is_hopeless(const struct hf_op *op) {
    const struct hfi_signs *signs = &op->call.signs;
    return atomic_load(&op->core->abandoning) ||
           (atomic_load(&op->core->closing) && atomic_load(&signs->held_up_since_ms) != 0 &&
            atomic_load(&signs->held_up) == HF_EREFUSED);
}

/* The client is being closed, and the server has not answered in a while. */
static bool is_too_long(const struct hf_op *op) {
    return op->brief && atomic_load(&op->core->closing) &&
           hfi_now_ms() >= op->call.start_ms + BRIEF_MS;
}

/* The caller, or close, wants it to end. */
static void stop(struct hf_op *op, int err) {
    if (err == HF_ECANCELED && !op->cancellable)
        return;
    if (op->state == HFI_OP_NEW)
        op->cancelled_first = true;
    if (op->state == HFI_OP_QUEUED || op->state == HFI_OP_GATED) {
        if (err == HF_ECANCELED)
            hfi_count(&op->core->counters.cancelled);
        hfi_op_complete(op, err, NULL);
    } else if (op->state == HFI_OP_CALLING ||
               (op->state == HFI_OP_SETTLING && (is_hopeless(op) || is_too_long(op)))) {
        op->call.kind->ops->cancel(&op->call, err);
        look_if_done(op);
    } else if (op->state == HFI_OP_SETTLING && op->brief && err == HF_ECLOSED) {
        hfi_alarm_set(op->task.exec, &op->alarm, op->call.start_ms + BRIEF_MS);
    }
}

static void settle(struct hf_op *op) {
    op->call.kind->ops->settle(&op->call);
    look_if_done(op);
}

/* The next operation acquires again, and so takes over what this one was to undo. */
static void yield_turn(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    bool anybody = !hfi_list_empty(&op->hold->queue);
    pthread_mutex_unlock(&op->shard->mtx);
    if (!anybody)
        return; /* it has given up meanwhile */
    op->call.kind->ops->cancel(&op->call, HF_ECANCELED);
    look_if_done(op);
}

/* A completed operation that has something to settle moves to the keeper: then this thread must let
 * go of it. */
static bool is_still_on(struct hfi_task *task, const struct hfi_exec *here) {
    return atomic_load(&task->exec) == here;
}

static void run(struct hfi_task *task, unsigned events) {
    struct hf_op *op = HFI_CONTAINER(task, struct hf_op, task);
    const struct hfi_exec *here = task->exec;
    if (events & HFI_OP_BEGIN) {
        op->cancelled_first |= op->cancellable && (events & HFI_OP_CANCEL) != 0;
        hfi_op_begin(op);
    }
    if ((events & HFI_OP_SETTLE) && is_still_on(task, here) && op->state == HFI_OP_SETTLING)
        settle(op);
    if ((events & HFI_OP_YIELD) && is_still_on(task, here) && op->state == HFI_OP_SETTLING)
        yield_turn(op);
    /* If it is told to end at the same moment as its turn comes, it ends: what it would send now
     * would have to be undone. */
    if ((events & (HFI_OP_CLOSE | HFI_OP_CANCEL)) && is_still_on(task, here) &&
        (op->state == HFI_OP_QUEUED || op->state == HFI_OP_GATED))
        stop(op, events & HFI_OP_CLOSE ? HF_ECLOSED : HF_ECANCELED);
    if ((events & (HFI_OP_TURN | HFI_OP_GATE)) && is_still_on(task, here) &&
        (op->state == HFI_OP_QUEUED || op->state == HFI_OP_GATED)) {
        hfi_alarm_clear(op->task.exec, &op->alarm);
        if (op->overtime)
            hfi_op_wait_is_over(op);
        else
            op->verb->go(op);
    }
    if ((events & HFI_ENGINE_EVENTS) && is_still_on(task, here) &&
        (op->state == HFI_OP_CALLING || op->state == HFI_OP_SETTLING)) {
        op->call.kind->ops->step(&op->call, events & HFI_ENGINE_EVENTS);
        look_if_done(op);
    }
    if (is_still_on(task, here) && op->state == HFI_OP_SETTLING && is_hopeless(op))
        stop(op, HF_ECLOSED);
    if ((events & (HFI_OP_CLOSE | HFI_OP_CANCEL)) && is_still_on(task, here))
        stop(op, events & HFI_OP_CLOSE ? HF_ECLOSED : HF_ECANCELED);
    if ((events & HFI_OP_TIMEOUT) && is_still_on(task, here)) {
        if (op->state == HFI_OP_SETTLING && is_too_long(op))
            stop(op, HF_ECLOSED);
        else if (op->state == HFI_OP_QUEUED || op->state == HFI_OP_GATED)
            hfi_op_waited(op);
    }
}
