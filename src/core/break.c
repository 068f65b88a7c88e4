/*
 * The verb break: ends anybody's hold on a name. It has no hold of its own and takes no turn; what
 * this client held is lost at once. Runs on the operation's executor.
 */
#include "core/op.h"

static void force_go(struct hf_op *op) {
    hfi_op_call(op, op->call->kind->ops->force);
}

/* Our own holds on the name, on both sides, need not wait for their next renewal to find out, since
 * a break deletes the whole lock. One that began after the break was requested may have come after
 * it. */
static void lose_own_holds(struct hf_op *op) {
    const struct hfi_losing losing = {
        .scope = {.name = op->call->name, .name_len = op->call->name_len, .kind = op->call->kind},
        .since_before_us = op->start_us,
        .only_idle = true,
        .reason = "the lock was broken"};
    hfi_lose_holds(op->core, &losing);
}

static void force_after(struct hf_op *op) {
    op->work->result.value = op->call->value;
    if (op->call->err == HF_OK && op->call->value == 1)
        lose_own_holds(op);
    hfi_op_complete(op, op->call->err, &op->call->error);
}

const struct hfi_verb hfi_verb_force = {.name = "break", .go = force_go, .after = force_after};
