/*
 * Abandoned operations: nobody will see the result, so what they acquired is given back.
 *
 * Who takes the result is decided once, by `claim` (op.h): its callback, hf_op_wait(), or
 * hf_op_abandon(), on their own threads. It becomes HFI_OP_ABANDONED with the shard locked. So
 * outputs of the caller, which are written with it locked, are not written any more. What an
 * abandoned operation has got is undone when it is both abandoned and complete: by the executor or
 * by the abandoning thread, whichever comes second. Undoing is a release of the core's own; it also
 * runs while the client closes. For that `returns` of the core counts from the abandoning on.
 */
#include "core/op/op.h"

#include "engine/server_info.h"

/* ---- Undoing ---- */

/* A release that no caller waits for. The operation's memory may be freed meanwhile. */
static bool release(const struct hf_op *op) {
    struct hfi_op_args args = {.kind = op->kind,
                               .name = op->name,
                               .name_len = op->name_len,
                               .owner = op->owner,
                               .parts = op->call->parts,
                               .lane = HFI_LANE_KEEPER,
                               .exec = op->core->keeper};
    if (op->verb == &hfi_verb_acquire) {
        args.verb = &hfi_verb_undo_acquire;
    } else if (op->verb == &hfi_verb_take) {
        args.verb = &hfi_verb_undo_take;
        args.object_op = HFI_OBJECT_PUT;
        args.amount = op->call->amount;
    } else {
        args.verb = &hfi_verb_undo_permits;
        args.object_op = HFI_OBJECT_PUT;
        args.ids = op->call->ids;
        args.ids_len = op->call->ids_len;
    }
    struct hf_op *undo = hfi_op_new(op->core, &args);
    if (undo == NULL)
        return false;
    hfi_task_post(&undo->task, HFI_OP_BEGIN);
    hfi_task_unref(&undo->task);
    return true;
}

/* Also when nothing was acquired: `returns` counts it until here. The lease ends what is not released here. */
static void undo(const struct hf_op *op) {
    bool begun = false;
    hf_error error;
    if (op->verb->gets && op->code == HF_OK)
        begun = release(op);
    else if (op->verb == &hfi_verb_adopt && op->code == HF_OK && !op->ours_before)
        hfi_forget(op->core, op->kind, op->name, op->name_len, op->owner, &error);
    if (!begun)
        hfi_note_return(op->core);
}

void hfi_op_undo(struct hf_op *op) {
    int abandoned = HFI_OP_ABANDONED;
    if (atomic_compare_exchange_strong(&op->claim, &abandoned, HFI_OP_UNDONE))
        undo(op);
}

/* ---- Outputs of the caller, and who may see them ---- */

bool hfi_op_see(struct hf_op *op) {
    int unseen = HFI_OP_UNSEEN;
    return atomic_compare_exchange_strong(&op->claim, &unseen, HFI_OP_SEEN) ||
           unseen == HFI_OP_SEEN;
}

bool hfi_op_may_write_locked(const struct hf_op *op) {
    int claim = atomic_load(&op->claim);
    return claim == HFI_OP_UNSEEN || claim == HFI_OP_SEEN;
}

static void free_written(const struct hf_op *op) {
    if (op->compact || !op->work->written)
        return;
    if (op->work->ret_info != NULL)
        hfi_lock_info_free(*op->work->ret_info);
    if (op->work->ret_server_info != NULL)
        hfi_server_info_free(*op->work->ret_server_info);
    if (op->work->ret_fleet != NULL)
        hf_fleet_free(*op->work->ret_fleet);
}

/* ---- Abandoning ---- */

/* False: it was seen. */
static bool claim(struct hf_op *op) {
    struct hfi_core *core = op->core;
    int unseen = HFI_OP_UNSEEN;
    atomic_fetch_add(&core->returns, 1);
    pthread_mutex_lock(&op->shard->mtx);
    bool ours = atomic_compare_exchange_strong(&op->claim, &unseen, HFI_OP_ABANDONED);
    if (ours)
        free_written(op);
    pthread_mutex_unlock(&op->shard->mtx);
    if (!ours)
        hfi_note_return(core);
    return ours;
}

bool hfi_op_abandon(struct hf_op *op) {
    const struct hfi_core_hooks *hooks = &op->core->hooks;
    if (!hooks->enter(hooks->arg)) { /* closing or closed: the holds run out, as all others */
        int unseen = HFI_OP_UNSEEN;
        bool complete = hfi_op_is_complete(op); /* then nobody writes any more */
        if (!atomic_compare_exchange_strong(&op->claim, &unseen, HFI_OP_UNDONE))
            return false;
        if (complete)
            free_written(op);
        return true;
    }
    bool ours = claim(op);
    if (ours)
        hfi_task_post(&op->task, HFI_OP_CANCEL);
    if (ours && hfi_op_is_complete(op))
        hfi_op_undo(op);
    hooks->leave(hooks->arg);
    return ours;
}
