/*
 * Operations: from start to callback.
 *
 * All of an operation's own state belongs to its executor's thread; a shard guards the links by
 * which others find it (hold queue, gate, the list of unfinished ones). The engine finishes a call
 * by setting `call_done`; it is looked at when the engine has returned, so nothing of the engine's
 * is on the stack when an operation completes.
 *
 * Completing publishes the result and then, if a command may still run at the server, turns the
 * same object into the one that settles it (settle.c).
 */
#include "core/op.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

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

/* All but the words of its errors, which are a third of it, and the room for the name and the ids. */
static void clear(struct hf_op *op, size_t head) {
    char *bytes = (char *)op;
    size_t call_error = offsetof(struct hf_op, call.error);
    size_t result_error = offsetof(struct hf_op, result.error);
    size_t behind_call = call_error + sizeof(hf_error);
    size_t behind_result = result_error + sizeof(hf_error);
    memset(bytes, 0, call_error);
    memset(bytes + behind_call, 0, result_error - behind_call);
    memset(bytes + behind_result, 0, head - behind_result);
    hfi_error_clear(&op->call.error);
    hfi_error_clear(&op->result.error);
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
        clear(op, head_size(kind));
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
    hfi_stake_unref(op->stake);
    hfi_parts_unref(op->call.parts);
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

static size_t write_owner(struct hf_op *op, const struct hfi_op_args *args) {
    size_t len = args->handle != NULL ? strlen(args->handle) : 0;
    if (args->handle == NULL)
        len = hfi_owner_text(op->core, args->owner, op->owner_text);
    else
        memcpy(op->owner_text, args->handle, len + 1);
    op->foreign = atomic_load_explicit(&op->core->aliases.len, memory_order_relaxed) > 0 ||
                  args->handle != NULL;
    if (op->foreign)
        op->foreign = hfi_owner_is_foreign(op->core, op->owner_text);
    return len;
}

/* All that the caller wants of the engine. */
static void fill_call(struct hf_op *op, const struct hfi_op_args *args) {
    struct hfi_call *call = &op->call;
    char *name = (char *)op + head_size(args->kind);
    call->engine = op->core->engine;
    call->task = &op->task;
    call->lane = args->lane;
    call->kind = args->kind;
    call->name = memcpy(name, args->name, args->name_len);
    name[args->name_len + args->ids_len * HFI_ID_LEN] = '\0';
    call->name_len = args->name_len;
    call->owner = op->owner_text;
    call->owner_len = write_owner(op, args);
    call->question = args->question;
    call->token_wish = args->token_wish;
    call->act = args->act;
    call->amount = args->amount;
    call->ttl_ms = args->ttl_ms;
    if (args->ids_len > 0) {
        call->ids = memcpy(name + args->name_len, args->ids, args->ids_len * HFI_ID_LEN);
        call->ids_len = args->ids_len;
    }
    if (args->spin != NULL)
        call->spin = *args->spin;
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
    struct hfi_shard *shard =
        hfi_core_shard(core, args->name, hfi_kind_stem_len(args->kind, args->name, args->name_len));
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
    op->acks = args->acks;
    op->yes_or_no = args->yes_or_no;
    op->inner = args->inner;
    op->callback = args->callback;
    op->told = args->told;
    op->user = args->user;
    op->alarm.fire = alarm_fired;
    op->notice.run = run_callback;
    op->permits.ret_ids = args->ret_ids;
    op->ret_info = args->ret_info;
    op->ret_facts = args->ret_facts;
    op->ret_fleet = args->ret_fleet;
    op->ret_findings = args->ret_findings;
    op->shard = shard;
    op->start_us = hfi_now_us();
    op->cancellable = args->verb->waits;
    op->deadline_ms = end_ms(op, args);
    fill_call(op, args);
    if (args->self != NULL) {
        hfi_self_ref(args->self);
        op->self = args->self;
    }
    if (args->stake != NULL) {
        hfi_stake_ref(args->stake);
        op->stake = args->stake;
    }
    if (args->parts != NULL) {
        hfi_parts_ref(args->parts);
        op->call.parts = args->parts;
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

/* To whoever waits on another thread, and to the dispatcher. */
static void tell_completion(struct hf_op *op) {
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

    if (op->lane == HFI_LANE_CALLER)
        op->complete = true; /* this is the only thread that looks */
    else
        tell_completion(op);
    if (op->told != NULL)
        op->told(op->user, &op->result);
}

void hfi_op_leave_turn_locked(struct hf_op *op) {
    struct hfi_hold *hold = op->hold;
    if (hold == NULL)
        return;
    if (hfi_hold_leave_turn_locked(hold, op) && op->state == HFI_OP_SETTLING &&
        !atomic_load(&op->core->closing))
        hfi_let_go_rest_locked(hold);
    hfi_hold_tidy_locked(hold);
}

void hfi_op_finish(struct hf_op *op) {
    hfi_cancel_detach(op);
    hfi_alarm_clear(op->task.exec, &op->alarm);
    pthread_mutex_lock(&op->shard->mtx);
    hfi_gate_leave_locked(op->shard, op);
    hfi_op_leave_turn_locked(op);
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

void hfi_op_complete(struct hf_op *op, int err, const hf_error *error) {
    if (hfi_op_must_settle_leftover(op, err)) {
        hfi_op_complete_unsettled(op, err, error, op->core->watchdog_ms);
        return;
    }
    hfi_task_ref(&op->task);
    hfi_op_finish(op);
    hfi_op_publish(op, err, error);
    hfi_task_unref(&op->task);
}

void hfi_op_count(const struct hf_op *op, atomic_ullong *counter) {
    if (!op->inner)
        hfi_count(counter);
}

/* ---- Talking to the engine ---- */

/* The engine's `done`. */
static void call_is_done(struct hfi_call *call) {
    struct hf_op *op = HFI_CONTAINER(call, struct hf_op, call);
    assert(!op->call_done);
    op->call_done = true;
}

void hfi_op_look_if_done(struct hf_op *op) {
    if (!op->call_done)
        return;
    op->call_done = false;
    if (op->state == HFI_OP_SETTLING)
        hfi_op_settled(op);
    else
        op->verb->after(op);
}

static void refuse(struct hf_op *op, const char *words) {
    hfi_fail(&op->call.error, HF_ENOTSUP, "%s: %s", op->verb->name, words);
    hfi_op_complete(op, HF_ENOTSUP, &op->call.error);
}

bool hfi_op_refuses_lease(struct hf_op *op) {
    if (!op->call.kind->leaseless || op->lease_ms == HF_WATCHDOG)
        return false;
    refuse(op, "this kind has no leases, it is held until released");
    return true;
}

void hfi_op_call(struct hf_op *op, void (*engine_op)(struct hfi_call *call)) {
    struct hfi_call *call = &op->call;
    if (engine_op == NULL) {
        refuse(op, "this kind does not offer it");
        return;
    }
    if (op->state != HFI_OP_NEW) /* else nobody has seen it since it was made */
        memset(call->state, 0, call->kind->ops->call_size);
    op->state = HFI_OP_CALLING;
    engine_op(call);
    hfi_op_look_if_done(op);
}

/* ---- Life ---- */

/* Puts the op on the lists, and gets its hold's turn if it can. */
static int enlist(struct hf_op *op, bool *ret_turn) {
    int err = HF_OK;
    *ret_turn = true;
    pthread_mutex_lock(&op->shard->mtx);
    if (op->verb->takes_turn) {
        op->hold = hfi_hold_get_locked(op);
        if (op->hold == NULL) {
            err = HF_ENOMEM;
        } else {
            hfi_hold_ref(op->hold);
            *ret_turn = hfi_hold_line_up_locked(op->hold, op);
        }
    }
    if (err == HF_OK) {
        hfi_task_ref(&op->task);
        hfi_list_push_back(&op->shard->ops, &op->shard_link);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    return err;
}

void hfi_op_set_off(struct hf_op *op) {
    op->start_us = hfi_now_us();
    op->call.start_ms = op->start_us / 1000;
    op->deadline_ms = hfi_after_ms(op->call.start_ms, op->core->cmd_timeout_ms);
    op->call.deadline_ms = op->deadline_ms;
}

/* The client closes, and may have missed this one. */
static bool came_too_late(const struct hf_op *op) {
    return atomic_load(&op->core->closing) &&
           (!op->verb->gives_back || atomic_load(&op->core->abandoning));
}

void hfi_note_return(struct hfi_core *core) {
    if (atomic_fetch_sub(&core->returns, 1) == 1 && atomic_load(&core->closing))
        core->hooks.idle(core->hooks.arg);
}

void hfi_op_begin(struct hf_op *op) {
    bool turn;
    if (op->cancelled_first) {
        hfi_op_count(op, &op->core->counters.cancelled);
        hfi_op_complete(op, HF_ECANCELED, NULL);
        return;
    }
    int err = enlist(op, &turn);
    if (op->verb->gives_back)
        hfi_note_return(op->core); /* until then it was on no list */
    if (err != HF_OK)
        hfi_op_complete(op, err, NULL);
    else if (came_too_late(op))
        hfi_op_complete(op, HF_ECLOSED, NULL);
    else if (turn)
        op->verb->go(op);
    else
        hfi_op_wait_in_line(op, HFI_OP_QUEUED);
}

/* The caller, or close, wants it to end. */
static void stop(struct hf_op *op, int err) {
    if (err == HF_ECANCELED && !op->cancellable)
        return;
    if (op->state == HFI_OP_NEW)
        op->cancelled_first = true;
    if (op->state == HFI_OP_QUEUED || op->state == HFI_OP_GATED) {
        if (err == HF_ECANCELED)
            hfi_op_count(op, &op->core->counters.cancelled);
        hfi_op_complete(op, err, NULL);
    } else if (op->state == HFI_OP_CALLING ||
               (op->state == HFI_OP_SETTLING &&
                (hfi_op_is_hopeless(op) || hfi_op_is_too_long(op)))) {
        op->call.kind->ops->cancel(&op->call, err);
        hfi_op_look_if_done(op);
    } else if (op->state == HFI_OP_SETTLING && op->brief && err == HF_ECLOSED) {
        hfi_alarm_set(op->task.exec, &op->alarm, op->call.start_ms + HFI_BRIEF_MS);
    }
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
        hfi_op_settle(op);
    if ((events & HFI_OP_YIELD) && is_still_on(task, here) && op->state == HFI_OP_SETTLING)
        hfi_op_yield_turn(op);
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
        hfi_op_look_if_done(op);
    }
    if (is_still_on(task, here) && op->state == HFI_OP_SETTLING && hfi_op_is_hopeless(op))
        stop(op, HF_ECLOSED);
    if ((events & (HFI_OP_CLOSE | HFI_OP_CANCEL)) && is_still_on(task, here))
        stop(op, events & HFI_OP_CLOSE ? HF_ECLOSED : HF_ECANCELED);
    if ((events & HFI_OP_TIMEOUT) && is_still_on(task, here)) {
        if (op->state == HFI_OP_SETTLING && hfi_op_is_too_long(op))
            stop(op, HF_ECLOSED);
        else if (op->state == HFI_OP_QUEUED || op->state == HFI_OP_GATED)
            hfi_op_waited(op);
    }
}
