/*
 * The verb break: ends all holds on a name, of any owner. It has no hold of its own and takes no
 * turn; this client's own holds are lost at once. Runs on the operation's executor.
 */
#include "core/op/op.h"

static void break_go(struct hf_op *op) {
    hfi_op_call(op, op->call->kind->ops->break_holds);
}

/* Our own holds on the name, both read and write, are lost at once, not at their next renewal: a
 * break deletes the whole lock. A hold that began after the break was requested may be newer than
 * the break. */
static void lose_own_holds(struct hf_op *op) {
    const struct hfi_losing losing = {
        .scope = {.name = op->call->name, .name_len = op->call->name_len, .kind = op->call->kind},
        .since_before_us = op->start_us + 1, /* or in the same microsecond */
        .only_idle = true,
        .reason = "the lock was broken"};
    hfi_lose_holds(op->core, &losing);
}

static void break_after(struct hf_op *op) {
    op->work->result.value = op->call->value;
    if (op->call->err == HF_OK && op->call->value == 1)
        lose_own_holds(op);
    hfi_op_complete(op, op->call->err, &op->call->error);
}

const struct hfi_verb hfi_verb_break = {.name = "break", .go = break_go, .after = break_after};
