/*
 * Release, extend and settle.
 *
 * A node is deleted by its path, which is unique for ever, so deleting it twice is deleting it once. Run
 * on the thread of the call's executor; a settlement on the keeper's, until it is answered or the session
 * is over.
 */
#include "base/clock.h"
#include "base/error.h"
#include "zk/line.h"

/* ---- Release ---- */

static void forget(struct hfi_zk_call *c) {
    const struct hfi_zk_place place = hfi_zk_place_of(c->call);
    hfi_zk_forget(c->zk, &place);
    c->leaves = false;
}

/* It is not there. If a request before this one was lost, that one has done it. */
static void was_gone(struct hfi_zk_call *c) {
    forget(c);
    c->call->gone = true;
    if (c->resent || c->settling)
        hfi_zk_call_finish(c, HF_OK);
    else
        hfi_zk_call_fail(c, HF_ELOST, "the lock was gone when it was released");
}

static void write_delete(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_call_node_path(c, c->held.beneath, &c->held.node, path);
    hfi_zk_put_delete(out, 0, path, HFI_ZK_ANY_VERSION);
}

static void deleted(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    if (err == HFI_ZK_NO_NODE) {
        was_gone(c);
    } else if (err != HFI_ZK_OK) {
        hfi_zk_call_refused(c, err);
    } else {
        forget(c);
        hfi_zk_call_finish(c, HF_OK);
    }
}

static const struct hfi_zk_step delete_step = {
    .frames = 1, .commits = 1, .write = write_delete, .answered = deleted};

static void release_one(struct hfi_zk_call *c, const struct hfi_zk_place *place) {
    c->held.count = c->call->value;
    hfi_zk_remember(c->zk, place, &c->held); /* it is there, so this takes no memory */
    hfi_zk_call_finish(c, HF_OK);
}

void hfi_zk_release(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    const struct hfi_zk_place place = hfi_zk_place_of(call);
    call->value = call->count - 1;
    c->session_over = was_gone;
    if (!hfi_zk_nodes_find(c->zk->nodes, &place, &c->held)) {
        was_gone(c);
    } else if (call->count > 1) {
        release_one(c, &place);
    } else {
        c->number = c->held.number;
        c->leaves = true;
        hfi_zk_ask_for(c, &delete_step);
    }
}

/* ---- Extend ---- */

/* A lease is ours to end, so nobody has to be asked. */
void hfi_zk_extend(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    const struct hfi_zk_place place = hfi_zk_place_of(call);
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    if (!hfi_zk_nodes_find(c->zk->nodes, &place, &c->held) || credit.number != c->held.number) {
        call->gone = true;
        hfi_zk_call_fail(c, HF_ELOST, "the lock was gone when it was extended");
        return;
    }
    call->proof = hfi_zk_proof(&credit, call->lease_ms);
    call->token = c->held.token;
    c->held.promised_until_ms =
        hfi_max_ms(c->held.promised_until_ms, call->proof.promised_until_ms);
    hfi_zk_remember(c->zk, &place, &c->held);
    hfi_zk_call_finish(c, HF_OK);
}

/* ---- Settle ---- */

/* What is in the table is to go, too: what was held and given up. If it was of another session, it is
 * gone. */
static void settle_held(struct hfi_zk_call *c) {
    const struct hfi_zk_place place = hfi_zk_place_of(c->call);
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    c->line = (struct hfi_zk_line){0};
    if (hfi_zk_nodes_find(c->zk->nodes, &place, &c->held) && c->held.number == credit.number) {
        c->number = c->held.number;
        hfi_zk_ask_for(c, &delete_step);
        return;
    }
    hfi_zk_forget(c->zk, &place);
    hfi_zk_call_finish(c, HF_OK);
}

static void settle_deleted(struct hfi_zk_call *c) {
    int32_t err = c->answers[0].err;
    if (err == HFI_ZK_OK || err == HFI_ZK_NO_NODE)
        c->left(c);
    else
        hfi_zk_call_refused(c, err);
}

static void write_own(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_line_node_path(c, &c->line.node, path);
    hfi_zk_put_delete(out, 0, path, HFI_ZK_ANY_VERSION);
}

static const struct hfi_zk_step own_step = {
    .frames = 1, .commits = 1, .write = write_own, .answered = settle_deleted};

static void settle_made(struct hfi_zk_call *c) {
    if (c->line.made)
        hfi_zk_ask_for(c, &own_step);
    else
        c->left(c);
}

void hfi_zk_leave_line(struct hfi_zk_call *c) {
    if (c->line.made)
        settle_made(c);
    else
        hfi_zk_line_search(c, settle_made);
}

/* Nested, nothing is at the server but what stays there. */
static bool is_nested(const struct hfi_call *call) {
    return call->settle_release ? call->count > 1 : call->count > 0;
}

void hfi_zk_settle(struct hfi_call *call) {
    const struct hfi_zk_call *before = hfi_zk_call_of(call);
    bool leaves = before->leaves;
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->settling = true;
    c->left = settle_held;
    c->session_over = settle_held; /* our node went with it */
    c->end_ms = HFI_NEVER;         /* as long as the session lives, nobody else ends it */
    if (is_nested(call))
        hfi_zk_call_finish(c, HF_OK);
    else if (!leaves || !c->line.drawn || c->number == 0)
        settle_held(c);
    else
        hfi_zk_leave_line(c);
}
