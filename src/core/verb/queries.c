/*
 * The read-only verbs: ask (a lock, the server), and the observations inspect, server info and
 * survey. No hold, no turn. Run on the operation's executor.
 */
#include "core/op/op.h"
#include "engine/observe.h"
#include "engine/server_info.h"
#include "fleet/survey.h"

/* The server does not know a stamped hold's count, and knows the hold only by its stamp. */
static void find_stamped(struct hf_op *op) {
    pthread_mutex_lock(&op->shard->mtx);
    const struct hfi_hold *hold =
        hfi_hold_find_locked(op->core, op->shard, op->kind, op->name, op->name_len, op->owner);
    if (hold != NULL && hold->count > 0) {
        op->call->count = hold->count;
        op->call->stamp = hfi_hold_stamp(hold);
        op->work->text = op->call->stamp.text;
    }
    pthread_mutex_unlock(&op->shard->mtx);
}

static void ask_go(struct hf_op *op) {
    if (op->kind->stamped && op->call->query == HFI_QUERY_COUNT)
        find_stamped(op);
    hfi_op_call(op, op->call->kind->ops->ask);
}

static void ask_after(struct hf_op *op) {
    op->work->result.value = op->yes_or_no ? op->call->value > 0 : op->call->value;
    hfi_op_complete(op, op->call->err, &op->call->error);
}

const struct hfi_verb hfi_verb_query = {.name = "query", .go = ask_go, .after = ask_after};

typedef void call_fn(struct hfi_call *call);

/* NULL: the kind or the engine does not offer it. */
static call_fn *reader_of(const struct hf_op *op, enum hfi_observation what) {
    bool offered = (op->call->kind->ops->observes & 1u << what) != 0;
    return offered ? op->core->engine->ops->observe->read[what] : NULL;
}

static void inspect_go(struct hf_op *op) {
    hfi_op_call(op, reader_of(op, HFI_OBSERVE_LOCK));
}

/* Writes an output of the caller, or frees it if the operation was abandoned. */
#define WRITE(op, ret, made, free_it)                                                              \
    do {                                                                                           \
        pthread_mutex_lock(&(op)->shard->mtx);                                                     \
        bool may_ = hfi_op_may_write_locked(op);                                                   \
        if (may_)                                                                                  \
            *(ret) = (made);                                                                       \
        (op)->work->written = may_;                                                                \
        pthread_mutex_unlock(&(op)->shard->mtx);                                                   \
        if (!may_)                                                                                 \
            free_it(made);                                                                         \
    } while (0)

static void inspect_after(struct hf_op *op) {
    if (op->call->err == HF_OK)
        WRITE(op, op->work->ret_info, op->call->info, hfi_lock_info_free);
    hfi_op_complete(op, op->call->err, &op->call->error);
}

const struct hfi_verb hfi_verb_inspect = {
    .name = "inspect", .go = inspect_go, .after = inspect_after};

static void server_info_go(struct hf_op *op) {
    hfi_op_call(op, reader_of(op, HFI_OBSERVE_SERVER));
}

static void server_info_after(struct hf_op *op) {
    if (op->call->err == HF_OK)
        WRITE(op, op->work->ret_server_info, op->call->server_info, hfi_server_info_free);
    hfi_op_complete(op, op->call->err, &op->call->error);
}

const struct hfi_verb hfi_verb_server_info = {
    .name = "server info", .go = server_info_go, .after = server_info_after};

static void survey_go(struct hf_op *op) {
    if (reader_of(op, HFI_OBSERVE_FLEET) != NULL) {
        hfi_op_call(op, reader_of(op, HFI_OBSERVE_FLEET));
        return;
    }
    hfi_fail(&op->call->error, HF_ENOTSUP, "surveys are not supported with this kind of server");
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
        WRITE(op, op->work->ret_fleet, fleet, hf_fleet_free);
    hfi_op_complete(op, fleet != NULL ? HF_OK : HF_ENOMEM, NULL);
}

const struct hfi_verb hfi_verb_survey = {
    .name = "survey", .waits = true, .go = survey_go, .after = survey_after};
