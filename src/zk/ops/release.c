/*
 * Release, extend and settle.
 *
 * A node's path is unique for ever, so deleting it is idempotent. Runs on the thread of the call's
 * executor; a settlement on the keeper's, until it is answered or the session is over.
 */
#include "base/clock.h"
#include "base/error.h"
#include "zk/ops/queue.h"

/* ---- Release ---- */

static void forget(struct hfi_zk_call *c) {
    const struct hfi_zk_place place = hfi_zk_place_of(c->call);
    hfi_zk_forget(c->zk, &place);
    c->leaves = false;
}

/* The node does not exist. If an earlier request's reply was lost, that request deleted it. */
static void was_gone(struct hfi_zk_call *c) {
    forget(c);
    c->call->gone = true;
    if (c->resent || c->settling)
        hfi_zk_call_finish(c, HF_OK);
    else
        hfi_zk_call_fail(c, HF_ELOST, "the hold was gone from the server when it was released");
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
    hfi_zk_remember(c->zk, place, &c->held); /* the entry exists, so this needs no memory */
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

/* This client itself enforces a lease, so the server need not be asked. */
void hfi_zk_extend(struct hfi_call *call) {
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    const struct hfi_zk_place place = hfi_zk_place_of(call);
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    if (!hfi_zk_nodes_find(c->zk->nodes, &place, &c->held) || credit.number != c->held.number) {
        call->gone = true;
        hfi_zk_call_fail(c, HF_ELOST, "the hold was gone from the server when it was extended");
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

/* Also deletes the node in the table: of a hold that was given up. If it was of another session, it
 * is gone. */
static void settle_held(struct hfi_zk_call *c) {
    const struct hfi_zk_place place = hfi_zk_place_of(c->call);
    struct hfi_zk_credit credit = hfi_zk_session_credit(c->zk->session);
    c->queue = (struct hfi_zk_queue){0};
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
        c->on_left(c);
    else
        hfi_zk_call_refused(c, err);
}

static void write_own(struct hfi_zk_call *c, struct hfi_zk_out *out) {
    char path[HFI_ZK_PATH_MAX];
    hfi_zk_queue_node_path(c, &c->queue.node, path);
    hfi_zk_put_delete(out, 0, path, HFI_ZK_ANY_VERSION);
}

static const struct hfi_zk_step own_step = {
    .frames = 1, .commits = 1, .write = write_own, .answered = settle_deleted};

static void settle_made(struct hfi_zk_call *c) {
    if (c->queue.made)
        hfi_zk_ask_for(c, &own_step);
    else
        c->on_left(c);
}

void hfi_zk_queue_leave(struct hfi_zk_call *c) {
    if (c->queue.made)
        settle_made(c);
    else
        hfi_zk_queue_recover(c, settle_made);
}

/* A nested operation leaves nothing at the server but the hold's own node, which stays. */
static bool is_nested(const struct hfi_call *call) {
    return call->settle_release ? call->count > 1 : call->count > 0;
}

void hfi_zk_settle(struct hfi_call *call) {
    const struct hfi_zk_call *before = hfi_zk_call_of(call);
    bool leaves = before->leaves;
    struct hfi_zk_call *c = hfi_zk_call_begin(call);
    c->settling = true;
    c->on_left = settle_held;
    c->session_over = settle_held; /* our node went with the session */
    c->end_ms = HFI_NEVER;         /* while the session lives, only we delete the node */
    if (is_nested(call))
        hfi_zk_call_finish(c, HF_OK);
    else if (!leaves || !c->queue.drawn || c->number == 0)
        settle_held(c);
    else
        hfi_zk_queue_leave(c);
}
