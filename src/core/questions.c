/*
 * The verbs that only ask: about a lock, the server, who is on a lock, or on all of
 * them. No hold, no turn. Run on
 * the operation's executor.
 */
#include "core/op.h"
#include "survey/survey.h"

static void ask_go(struct hf_op *op) {
    hfi_op_call(op, op->call->kind->ops->ask);
}

static void ask_after(struct hf_op *op) {
    op->work->result.value = op->yes_or_no ? op->call->value > 0 : op->call->value;
    hfi_op_complete(op, op->call->err, &op->call->error);
}

const struct hfi_verb hfi_verb_ask = {.name = "ask", .go = ask_go, .after = ask_after};

static void inspect_go(struct hf_op *op) {
    hfi_op_call(op, op->call->kind->ops->inspect);
}

static void inspect_after(struct hf_op *op) {
    if (op->call->err == HF_OK)
        *op->work->ret_info = op->call->info;
    hfi_op_complete(op, op->call->err, &op->call->error);
}

const struct hfi_verb hfi_verb_inspect = {
    .name = "inspect", .go = inspect_go, .after = inspect_after};

static void facts_go(struct hf_op *op) {
    hfi_op_call(op, op->call->kind->ops->facts);
}

static void facts_after(struct hf_op *op) {
    if (op->call->err == HF_OK)
        *op->work->ret_facts = op->call->facts;
    hfi_op_complete(op, op->call->err, &op->call->error);
}

const struct hfi_verb hfi_verb_facts = {.name = "facts", .go = facts_go, .after = facts_after};

static void survey_go(struct hf_op *op) {
    if (op->call->kind->ops->survey != NULL) {
        hfi_op_call(op, op->call->kind->ops->survey);
        return;
    }
    hfi_fail(&op->call->error, HF_ENOTSUP, "a survey is not offered with servers of this kind yet");
    hfi_op_complete(op, HF_ENOTSUP, &op->call->error);
}

static void survey_after(struct hf_op *op) {
    struct hfi_findings *findings = op->call->findings;
    if (op->call->err != HF_OK) {
        hfi_op_complete(op, op->call->err, &op->call->error);
        return;
    }
    if (op->work->ret_findings != NULL) {
        *op->work->ret_findings = findings;
        hfi_op_complete(op, HF_OK, NULL);
        return;
    }
    hf_fleet *fleet = hfi_fleet_join(findings, op->call->name, op->call->name_len);
    hfi_findings_free(findings);
    if (fleet != NULL)
        *op->work->ret_fleet = fleet;
    hfi_op_complete(op, fleet != NULL ? HF_OK : HF_ENOMEM, NULL);
}

const struct hfi_verb hfi_verb_survey = {
    .name = "survey", .waits = true, .go = survey_go, .after = survey_after};
