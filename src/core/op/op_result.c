/*
 * The result of an operation: for the thread that waits for it, and for the dispatcher.
 *
 * Written once, on the operation's executor, before `complete` is set; any thread may read it
 * afterwards. It is in the operation's work. An operation without work has acquired nothing, so its
 * result is only an error. A text other than the code's default is kept in memory allocated for it;
 * without memory the default is used.
 */
#include "core/op/op.h"

#include "task/futex.h"

#include <limits.h>
#include <stdio.h>

void hfi_op_keep_error(struct hf_op *op, const hf_error *error) {
    if (op->work != NULL) {
        op->work->result.error = *error;
        return;
    }
    if (op->error == NULL)
        op->error = hfi_alloc(op->core->mem, sizeof *op->error);
    if (op->error != NULL)
        *op->error = *error;
}

const hf_error *hfi_op_kept_error(const struct hf_op *op) {
    return op->work != NULL ? &op->work->result.error : op->error;
}

/* The code's default text, if there is no other. */
static void add_default_text(hf_error *error, int code) {
    error->code = code;
    if (code != HF_OK && error->text[0] == '\0')
        snprintf(error->text, sizeof error->text, "%s", hf_strerror(code));
}

const hf_result *hfi_op_result(const struct hf_op *op, hf_result *room) {
    if (op->work != NULL)
        return &op->work->result;
    *room = (hf_result){.size = sizeof *room, .code = op->code, .owner = op->owner};
    if (op->error != NULL)
        room->error = *op->error;
    add_default_text(&room->error, op->code);
    return room;
}

static void run_callback(struct hfi_notice *notice) {
    struct hf_op *op = HFI_CONTAINER(notice, struct hf_op, notice);
    hf_result room;
    if (hfi_op_see(op))
        op->callback(op->handle_given ? op : NULL, hfi_op_result(op, &room), op->user);
    hfi_task_unref(&op->task);
}

bool hfi_op_await(struct hf_op *op, int64_t until_ms) {
    while (!hfi_op_is_complete(op)) {
        unsigned incomplete = HFI_INCOMPLETE;
        if (hfi_now_ms() >= until_ms)
            return false;
        atomic_compare_exchange_strong(&op->complete, &incomplete, HFI_AWAITED);
        hfi_futex_wait(&op->complete, HFI_AWAITED, until_ms);
    }
    return true;
}

/* Wakes a waiting thread, and queues the callback on the dispatcher. */
static void notify_completion(struct hf_op *op) {
    bool dispatch = op->callback != NULL;
    if (dispatch) {
        hfi_task_ref(&op->task);
        op->notice = (struct hfi_notice){.run = run_callback};
    }
    if (atomic_exchange(&op->complete, HFI_COMPLETE) == HFI_AWAITED)
        hfi_futex_wake(&op->complete, INT_MAX);
    if (dispatch)
        op->core->hooks.dispatch(op->core->hooks.arg, &op->notice);
    if (atomic_load(&op->claim) == HFI_OP_ABANDONED)
        hfi_op_undo(op);
}

/* A shared error text may have been kept, but the operation ends for another reason. */
static void keep_or_clear_error(struct hf_op *op, int err, const hf_error *error) {
    if (err != HF_OK && error != NULL) {
        hfi_op_keep_error(op, error);
    } else if (op->work != NULL && op->shared_err != HF_OK) {
        hfi_error_clear(&op->work->result.error);
    } else if (op->work == NULL) {
        hfi_free(op->core->mem, op->error);
        op->error = NULL;
    }
}

void hfi_op_publish(struct hf_op *op, int err, const hf_error *error) {
    if (hfi_op_is_complete(op))
        return; /* its caller did not wait for this */
    keep_or_clear_error(op, err, error);
    op->code = err;
    if (op->work != NULL) {
        hf_result *result = &op->work->result;
        result->size = sizeof *result;
        result->code = err;
        result->owner = op->owner;
        add_default_text(&result->error, err);
    }
    if (op->lane == HFI_LANE_CALLER) /* no other thread reads it */
        atomic_store_explicit(&op->complete, HFI_COMPLETE, memory_order_relaxed);
    else
        notify_completion(op);
    if (op->work != NULL && op->work->on_result != NULL)
        op->work->on_result(op->user, &op->work->result);
}
