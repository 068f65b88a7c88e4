/*
 * The result of an operation: to whoever waits for it, and to the dispatcher.
 *
 * Written once, on the operation's executor, before `complete` says so; read by anybody afterwards.
 * It is in the operation's work. One that has none has come to nothing, so there is only an error to
 * tell; if its words are not those of its code, they are kept in memory that is allocated then, and
 * without memory they are.
 */
#include "core/op.h"

#include "base/futex.h"

#include <limits.h>
#include <stdio.h>

void hfi_op_keep_words(struct hf_op *op, const hf_error *error) {
    if (op->work != NULL) {
        op->work->result.error = *error;
        return;
    }
    if (op->error == NULL)
        op->error = hfi_alloc(op->core->mem, sizeof *op->error);
    if (op->error != NULL)
        *op->error = *error;
}

const hf_error *hfi_op_words(const struct hf_op *op) {
    return op->work != NULL ? &op->work->result.error : op->error;
}

/* Those of the code, if there are no others. */
static void finish_words(hf_error *error, int code) {
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
    finish_words(&room->error, op->code);
    return room;
}

static void run_callback(struct hfi_notice *notice) {
    struct hf_op *op = HFI_CONTAINER(notice, struct hf_op, notice);
    hf_result room;
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

/* To whoever waits on another thread, and to the dispatcher. */
static void tell_completion(struct hf_op *op) {
    bool dispatch = op->callback != NULL;
    if (dispatch) {
        hfi_task_ref(&op->task);
        op->notice = (struct hfi_notice){.run = run_callback};
    }
    if (atomic_exchange(&op->complete, HFI_COMPLETE) == HFI_AWAITED)
        hfi_futex_wake(&op->complete, INT_MAX);
    if (dispatch)
        op->core->hooks.dispatch(op->core->hooks.arg, &op->notice);
}

/* Others' words may have been kept, but it ends for another reason. */
static void write_words(struct hf_op *op, int err, const hf_error *error) {
    if (err != HF_OK && error != NULL) {
        hfi_op_keep_words(op, error);
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
    write_words(op, err, error);
    op->code = err;
    if (op->work != NULL) {
        hf_result *result = &op->work->result;
        result->size = sizeof *result;
        result->code = err;
        result->owner = op->owner;
        finish_words(&result->error, err);
    }
    if (op->lane == HFI_LANE_CALLER) /* this is the only thread that looks */
        atomic_store_explicit(&op->complete, HFI_COMPLETE, memory_order_relaxed);
    else
        tell_completion(op);
    if (op->work != NULL && op->work->told != NULL)
        op->work->told(op->user, &op->work->result);
}
