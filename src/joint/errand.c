/*
 * Errands: an operation on one member, for a seat of a ballot or for a survey.
 *
 * The operation runs on the keeper, in its member's core; when it completes it is put on a list, and the
 * quorum's task calls `done` from there, so nothing of the member's is on the stack. A hold of a member
 * that ended reports its loss once to the next acquire: that report is of no use here, and the acquire
 * is sent again.
 */
#include "joint/internal.h"

#define EVENT_FINISHED 0x02u

static void completed(struct hf_op *op, const hf_result *result, void *user) {
    struct hfi_errand *errand = user;
    const struct hfi_call *call = op->call;
    errand->code = result->code;
    errand->error = result->error;
    errand->value = result->value;
    if (result->code == HF_OK) {
        errand->token = call->token;
        errand->sent_ms = call->proof.valid_until_ms - errand->lease_ms;
    }
    hfi_list_push_back(&errand->quorum->finished, &errand->link);
    hfi_task_post(errand->quorum->task, EVENT_FINISHED);
}

static const struct hfi_verb *verb_of(const struct hfi_errand_args *args) {
    static const struct hfi_verb *const verbs[] = {[HFI_ERRAND_ACQUIRE] = &hfi_verb_acquire,
                                                   [HFI_ERRAND_EXTEND] = &hfi_verb_extend,
                                                   [HFI_ERRAND_RELEASE] = &hfi_verb_release};
    return args->kind == HFI_ERRAND_ASK ? args->verb : verbs[args->kind];
}

static bool start(struct hfi_errand *errand, const struct hfi_errand_args *args) {
    struct hfi_core *core = &errand->member->core;
    const struct hfi_engine_ops *ops = core->engine->ops;
    struct hfi_op_args op_args = {
        .verb = verb_of(args),
        .kind = args->about_server
                    ? ops->server(core->engine)
                    : ops->kind(core->engine, HF_PLAIN, args->fenced ? HF_FENCED : 0),
        .name = args->name,
        .name_len = args->name_len,
        .owner = args->owner,
        .wait_ms = args->wait_ms,
        .lease_ms = args->lease_ms,
        .lane = HFI_LANE_KEEPER,
        .question = args->question,
        .wanted = args->wanted,
        .token_wish = args->token_wish,
        .ret_info = &errand->info,
        .ret_findings = &errand->findings,
        .exec = errand->quorum->keeper,
        .callback = completed,
        .user = errand};
    errand->op = hfi_op_new(core, &op_args);
    if (errand->op == NULL)
        return false;
    errand->op->handle_given = true;
    hfi_task_post(&errand->op->task, HFI_OP_BEGIN);
    return true;
}

struct hfi_errand *hfi_errand_begin(struct hfi_quorum *quorum, size_t member,
                                    const struct hfi_errand_args *args,
                                    void (*done)(struct hfi_errand *errand)) {
    struct hfi_errand *errand = hfi_zalloc(quorum->mem, sizeof *errand);
    if (errand == NULL)
        return NULL;
    errand->quorum = quorum;
    errand->member = quorum->members[member];
    errand->index = member;
    errand->kind = args->kind;
    errand->waits = args->wait_ms != 0;
    errand->lease_ms = args->lease_ms;
    errand->token_wish = args->token_wish;
    errand->began_us = hfi_now_us();
    errand->done = done;
    if (!start(errand, args)) {
        hfi_free(quorum->mem, errand);
        return NULL;
    }
    atomic_fetch_add(&quorum->errands, 1);
    return errand;
}

void hfi_errand_stop(struct hfi_errand *errand) {
    hfi_task_post(&errand->op->task, HFI_OP_CANCEL);
}

int64_t hfi_errand_held_up_ms(const struct hfi_errand *errand) {
    int64_t since_ms = atomic_load(&errand->op->signs.held_up_since_ms);
    return since_ms == 0 ? 0 : hfi_now_ms() - since_ms;
}

/* True: what it reported is about a hold that is over, and it was sent again. */
static bool sent_again(struct hfi_errand *errand) {
    if (errand->kind != HFI_ERRAND_ACQUIRE || errand->code != HF_ELOST || errand->again)
        return false;
    struct hfi_ballot *ballot = errand->ballot;
    struct hf_op *op = errand->op;
    const struct hfi_errand_args args = {.kind = errand->kind,
                                         .name = ballot->name,
                                         .name_len = ballot->name_len,
                                         .owner = ballot->owner,
                                         .fenced = ballot->fenced,
                                         .wait_ms = op->wait_ms,
                                         .lease_ms = errand->lease_ms};
    errand->again = true;
    bool sent = start(errand, &args);
    if (sent)
        hfi_task_unref(&op->task);
    else
        errand->op = op;
    return sent;
}

/* Did the server say something, whatever it was? */
static bool was_answered(const struct hfi_errand *errand) {
    return errand->code == HF_OK || errand->code == HF_EBUSY || errand->code == HF_ELOST ||
           errand->code == HF_EWRONGTYPE;
}

void hfi_errands_finish(struct hfi_quorum *quorum) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&quorum->finished)) != NULL) {
        struct hfi_errand *errand = HFI_CONTAINER(link, struct hfi_errand, link);
        if (!quorum->stopped && sent_again(errand))
            continue;
        if (was_answered(errand) && !errand->waits)
            hfi_member_answered(errand->member, hfi_now_us() - errand->began_us);
        else if (was_answered(errand))
            errand->member->slow = false;
        errand->done(errand);
        hfi_task_unref(&errand->op->task);
        hfi_free(quorum->mem, errand);
        if (atomic_fetch_sub(&quorum->errands, 1) == 1)
            quorum->config.idle(quorum->config.arg);
    }
}
