/*
 * The verbs that only ask: about a lock, the server, or who is on a lock. No hold, no turn. Run on
 * the operation's executor.
 */
#include "core/op.h"

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

static void inspect_after(struct hf_op *op) {
    if (op->call.err == HF_OK)
        *op->ret_info = op->call.info;
    hfi_op_complete(op, op->call.err, &op->call.error);
}

const struct hfi_verb hfi_verb_inspect = {
    .name = "inspect", .go = inspect_go, .after = inspect_after};

static void facts_go(struct hf_op *op) {
    hfi_op_call(op, op->call.kind->ops->facts);
}

static void facts_after(struct hf_op *op) {
    if (op->call.err == HF_OK)
        *op->ret_facts = op->call.facts;
    hfi_op_complete(op, op->call.err, &op->call.error);
}

const struct hfi_verb hfi_verb_facts = {.name = "facts", .go = facts_go, .after = facts_after};
