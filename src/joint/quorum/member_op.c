/*
 * Member ops: an operation on one member, for a ballot's vote or for a survey.
 *
 * The operation runs on the keeper, in its member's core. When it completes, it is put on a list.
 * The quorum's task calls `done` from there, so none of the member's frames is on the stack. A
 * member's hold that ended reports its loss once, to the next acquire. That report is useless here,
 * so the acquire is resent.
 */
#include "joint/quorum/quorum_impl.h"

#include "base/clock.h"

#define EVENT_FINISHED 0x02u

static void completed(struct hf_op *op, const hf_result *result, void *user) {
    struct hfi_member_op *member_op = user;
    const struct hfi_call *call = op->call;
    member_op->code = result->code;
    member_op->error = result->error;
    member_op->hopeless = result->code == HF_EUNREACH && call != NULL && call->hopeless;
    member_op->value = result->value;
    if (result->code == HF_OK) {
        member_op->token = call->token;
        member_op->sent_ms =
            call->proof.valid_until_ms -
            hfi_trusted_ms(member_op->lease_ms, member_op->member->core.clock_drift_ppm);
    }
    hfi_list_push_back(&member_op->quorum->finished, &member_op->link);
    hfi_task_post(member_op->quorum->task, EVENT_FINISHED);
}

static const struct hfi_verb *verb_of(const struct hfi_member_op_args *args) {
    static const struct hfi_verb *const verbs[] = {[HFI_MEMBER_ACQUIRE] = &hfi_verb_acquire,
                                                   [HFI_MEMBER_EXTEND] = &hfi_verb_extend,
                                                   [HFI_MEMBER_RELEASE] = &hfi_verb_release};
    return args->kind == HFI_MEMBER_QUERY ? args->verb : verbs[args->kind];
}

/* The members' kind for a kind of the whole quorum. */
static const struct hfi_kind *kind_at(const struct hfi_core *core,
                                      const struct hfi_member_op_args *args) {
    const struct hfi_engine_ops *ops = core->engine->ops;
    if (args->lock == NULL)
        return ops->server(core->engine);
    const struct hfi_quorum_kind *quorum_kind = args->lock->engine_private;
    return ops->kind(core->engine, quorum_kind->kind, quorum_kind->flags);
}

static bool start(struct hfi_member_op *member_op, const struct hfi_member_op_args *args) {
    struct hfi_core *core = &member_op->member->core;
    struct hfi_op_args op_args = {.verb = verb_of(args),
                                  .kind = kind_at(core, args),
                                  .text = args->text,
                                  .name = args->name,
                                  .name_len = args->name_len,
                                  .owner = args->owner,
                                  .wait_ms = args->wait_ms,
                                  .lease_ms = args->lease_ms,
                                  .lane = HFI_LANE_KEEPER,
                                  .query = args->query,
                                  .wanted = args->wanted,
                                  .token_wish = args->token_wish,
                                  .ret_info = &member_op->info,
                                  .ret_findings = &member_op->findings,
                                  .exec = member_op->quorum->keeper,
                                  .callback = completed,
                                  .user = member_op};
    member_op->op = hfi_op_new(core, &op_args);
    if (member_op->op == NULL)
        return false;
    member_op->op->handle_given = true;
    hfi_task_post(&member_op->op->task, HFI_OP_BEGIN);
    return true;
}

struct hfi_member_op *hfi_member_op_begin(struct hfi_quorum *quorum, size_t member,
                                          const struct hfi_member_op_args *args,
                                          void (*done)(struct hfi_member_op *member_op)) {
    struct hfi_member_op *member_op = hfi_zalloc(quorum->mem, sizeof *member_op);
    if (member_op == NULL)
        return NULL;
    member_op->quorum = quorum;
    member_op->member = quorum->members[member];
    member_op->index = member;
    member_op->kind = args->kind;
    member_op->waits = args->wait_ms != 0;
    member_op->lease_ms = args->lease_ms;
    member_op->token_wish = args->token_wish;
    member_op->began_us = hfi_now_us();
    member_op->done = done;
    if (!start(member_op, args)) {
        hfi_free(quorum->mem, member_op);
        return NULL;
    }
    atomic_fetch_add(&quorum->member_ops, 1);
    return member_op;
}

void hfi_member_op_stop(struct hfi_member_op *member_op) {
    hfi_task_post(&member_op->op->task, HFI_OP_CANCEL);
}

int64_t hfi_member_op_stalled_ms(const struct hfi_member_op *member_op) {
    int64_t since_ms = atomic_load(&member_op->op->call_status.stalled_since_ms);
    return since_ms == 0 ? 0 : hfi_now_ms() - since_ms;
}

/* True: it reported the loss of an old hold, and was resent. */
static bool sent_again(struct hfi_member_op *member_op) {
    if (member_op->kind != HFI_MEMBER_ACQUIRE || member_op->code != HF_ELOST || member_op->again)
        return false;
    struct hfi_ballot *ballot = member_op->ballot;
    struct hf_op *op = member_op->op;
    const struct hfi_member_op_args args = {.kind = member_op->kind,
                                            .name = ballot->name,
                                            .name_len = ballot->name_len,
                                            .owner = ballot->owner,
                                            .lock = ballot->held_as,
                                            .text = ballot->text,
                                            .wait_ms = op->wait_ms,
                                            .lease_ms = member_op->lease_ms};
    member_op->again = true;
    bool sent = start(member_op, &args);
    if (sent)
        hfi_task_unref(&op->task);
    else
        member_op->op = op;
    return sent;
}

/* Whether the server answered at all. */
static bool was_answered(const struct hfi_member_op *member_op) {
    return member_op->code == HF_OK || member_op->code == HF_EBUSY || member_op->code == HF_ELOST ||
           member_op->code == HF_EWRONGTYPE;
}

void hfi_member_ops_finish(struct hfi_quorum *quorum) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&quorum->finished)) != NULL) {
        struct hfi_member_op *member_op = HFI_CONTAINER(link, struct hfi_member_op, link);
        if (!quorum->stopped && sent_again(member_op))
            continue;
        if (was_answered(member_op) && !member_op->waits)
            hfi_member_answered(member_op->member, hfi_now_us() - member_op->began_us);
        else if (was_answered(member_op))
            member_op->member->slow = false;
        member_op->done(member_op);
        hfi_task_unref(&member_op->op->task);
        hfi_free(quorum->mem, member_op);
        if (atomic_fetch_sub(&quorum->member_ops, 1) == 1)
            quorum->config.idle(quorum->config.arg);
    }
}
