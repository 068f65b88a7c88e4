/*
 * Re-entry, and checking one node with the leader. Runs on the thread of the call's executor.
 */
#include "base/clock.h"
#include "zk/ops/queue.h"

void hfi_zk_write_check(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_queue_node_path(c, &c->queue.node, path);
    hfi_zk_multi_begin(out, 0);
    hfi_zk_multi_check(out, path, HFI_ZK_ANY_VERSION);
    hfi_zk_multi_end(out);
}

int hfi_zk_read_check(struct hfi_zk_call *c, int32_t *ret_refusal) {
    struct hfi_zk_results results = {.err = c->answers[0].err};
    if (results.err == HFI_ZK_OK && hfi_zk_get_results(&c->answers[0].body, &results) != HF_OK)
        return HF_EPROTO;
    *ret_refusal = results.err;
    return HF_OK;
}

static void gone_again(struct hfi_zk_call *c) {
    const struct hfi_zk_place place = hfi_zk_place_of(c->call);
    hfi_zk_forget(c->zk, &place);
    c->call->gone = true;
    hfi_zk_call_fail(c, HF_ELOST,
                     "the hold was gone from the server when the lock was "
                     "re-acquired");
}

static void grant_again(struct hfi_zk_call *c, const struct hfi_zk_credit *credit) {
    struct hfi_call *call = c->call;
    const struct hfi_zk_place place = hfi_zk_place_of(call);
    call->value = c->held.count = call->count + 1;
    call->token = c->held.token;
    call->proof = hfi_zk_proof(credit, call->lease_ms);
    c->held.promised_until_ms =
        hfi_max_ms(c->held.promised_until_ms, call->proof.promised_until_ms);
    hfi_zk_remember(c->zk, &place, &c->held); /* the entry exists, so this needs no memory */
    hfi_zk_call_finish(c, HF_OK);
}

static void checked_again(struct hfi_zk_call *c) {
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    int32_t refusal;
    if (hfi_zk_read_check(c, &refusal) != HF_OK)
        hfi_zk_call_fail_proto(c);
    else if (refusal == HFI_ZK_NO_NODE || credit.number != c->held.number)
        gone_again(c);
    else if (refusal != HFI_ZK_OK)
        hfi_zk_call_refused(c, refusal);
    else
        grant_again(c, &credit);
}

static const struct hfi_zk_step check_again_step = {
    .frames = 1, .commits = 1, .write = hfi_zk_write_check, .answered = checked_again};

void hfi_zk_acquire_again(struct hfi_zk_call *c, bool there) {
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    c->session_over = gone_again;
    c->number = c->held.number;
    c->queue.node = c->held.node;
    if (!there || credit.number != c->held.number)
        gone_again(c);
    else if (credit.good_until_ms - hfi_now_ms() > credit.timeout_ms / 4)
        grant_again(c, &credit);
    else
        hfi_zk_ask_for(c, &check_again_step);
}
