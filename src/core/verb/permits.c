/*
 * The verbs of permits with leases: acquire, release, extend. Other operations on permits are in
 * counter_ops.c.
 *
 * A permit with a lease is a hold like a lock's, with its id as the owner. So the watchdog renews
 * it, warns, and reports its loss. But one operation covers many permits, so it takes no hold's
 * turn. A release ends the holds before anything is sent; from then on nothing renews them,
 * whatever the outcome. A permit without a lease is not remembered at all.
 *
 * Holds are accessed with the shard of their name locked, which is also the operation's; the rest
 * belongs to the operation's executor.
 */
#include "core/op/op.h"

#include <string.h>

#define TEXT_LEN (2 * HFI_ID_LEN)
#define OVERWRITTEN "the name of the permits is now used for something else"

static void write_text(const unsigned char *id, char text[TEXT_LEN + 1]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < HFI_ID_LEN; i++) {
        text[2 * i] = digits[id[i] >> 4];
        text[2 * i + 1] = digits[id[i] & 15];
    }
    text[TEXT_LEN] = '\0';
}

static void text_of(const struct hf_op *op, size_t i, char text[TEXT_LEN + 1]) {
    write_text(op->call->ids + i * HFI_ID_LEN, text);
}

static struct hfi_hold *find_locked(struct hf_op *op, size_t i) {
    char text[TEXT_LEN + 1];
    text_of(op, i, text);
    return hfi_hold_of_locked(op->core, op->shard, op->call->kind, op->call->name,
                              op->call->name_len, text, TEXT_LEN, false);
}

/* ---- Acquire ---- */

static void acquire_go(struct hf_op *op) {
    if (op->lease_ms != HF_NO_LEASE && hfi_op_refuses_lease(op))
        return;
    op->call->lease_ms = op->lease_ms == HF_WATCHDOG ? op->core->watchdog_ms : op->lease_ms;
    op->call->acks = op->core->acks == HF_ACKS_OFF ? 0 : op->core->acks;
    op->call->deadline_ms = op->wait_ms == 0 ? op->call->start_ms : op->deadline_ms;
    hfi_op_call(op, op->call->kind->ops->acquire);
}

static bool begin_hold_locked(struct hf_op *op, size_t i) {
    const struct hfi_call *call = op->call;
    char text[TEXT_LEN + 1];
    text_of(op, i, text);
    struct hfi_hold *hold = hfi_hold_of_locked(op->core, op->shard, call->kind, op->call->name,
                                               op->call->name_len, text, TEXT_LEN, true);
    if (hold == NULL)
        return false;
    const struct hfi_grant grant = {.kind = call->kind,
                                    .count = 1,
                                    .lease_ms = call->lease_ms,
                                    .watched = op->lease_ms == HF_WATCHDOG,
                                    .proof = call->proof,
                                    .name_stats = op->name_stats};
    hfi_hold_granted_locked(hold, &grant);
    return true;
}

/* All or none. False: not enough memory for all of them. */
static bool begin_holds(struct hf_op *op) {
    size_t begun = 0, len = op->call->ids_len;
    pthread_mutex_lock(&op->shard->mtx);
    while (begun < len && begin_hold_locked(op, begun))
        begun++;
    for (size_t i = 0; begun < len && i < begun; i++) {
        struct hfi_hold *hold = find_locked(op, i);
        hfi_hold_end_locked(hold);
        hfi_hold_tidy_locked(hold);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    return begun == len;
}

/* It was acquired and cannot be kept. */
static void undo(struct hf_op *op, int err, const char *why) {
    struct hfi_call *call = op->call;
    hfi_fail(&call->error, err, "%s", why);
    hfi_op_complete_unsettled(op, err, &call->error, call->lease_ms);
}

static void acquired(struct hf_op *op) {
    const struct hfi_call *call = op->call;
    if (hfi_proof_is_over(&call->proof)) {
        hfi_count(&op->core->counters.timed_out);
        undo(op, HF_ETIMEDOUT, "the lease ended before the server answered");
        return;
    }
    if (op->lease_ms != HF_NO_LEASE && !begin_holds(op)) {
        undo(op, HF_ENOMEM, "out of memory");
        return;
    }
    pthread_mutex_lock(&op->shard->mtx);
    for (size_t i = 0; i < call->ids_len && hfi_op_may_write_locked(op); i++)
        text_of(op, i, op->work->permits.ret_ids[i].text);
    pthread_mutex_unlock(&op->shard->mtx);
    hfi_count_taken(op);
    op->work->result.count = op->work->result.value = (int64_t)call->ids_len;
    op->work->result.acked = call->acked;
    if (op->lease_ms != HF_NO_LEASE)
        op->work->result.remaining_ms = hfi_left_ms(call->proof.valid_until_ms);
    hfi_op_complete(op, HF_OK, NULL);
}

static void acquire_after(struct hf_op *op) {
    if (op->call->err == HF_OK)
        acquired(op);
    else
        hfi_take_failed(op);
}

const struct hfi_verb hfi_verb_permits_acquire = {.name = "acquire permits",
                                                  .waits = true,
                                                  .timed = true,
                                                  .gets = true,
                                                  .go = acquire_go,
                                                  .after = acquire_after};

/* ---- Release ---- */

/* Ends the hold of one permit, and notes what was known about it. */
static void end_hold(struct hf_op *op, size_t i) {
    bool engine_events = false;
    pthread_mutex_lock(&op->shard->mtx);
    struct hfi_hold *hold = find_locked(op, i);
    if (hold != NULL) {
        hfi_hold_ref(hold);
        if (hfi_hold_expired_locked(hold))
            engine_events = hfi_hold_run_out_locked(hold);
        op->work->permits.lost |= hold->possession == HFI_HOLD_LOST;
        hfi_hold_loss_reported_locked(hold); /* this very call reports it */
        if (hold->count > 0) {
            op->work->permits.held = true;
            if (hfi_hold_deadline_ms(hold) < op->work->permits.end_ms)
                op->work->permits.end_ms = hfi_hold_deadline_ms(hold);
            hfi_hold_end_by_locked(hold, op);
        } else {
            hfi_hold_tidy_locked(hold);
        }
    }
    pthread_mutex_unlock(&op->shard->mtx);
    if (engine_events)
        hfi_hold_report(hold, HFI_LOST);
    hfi_hold_unref(hold);
}

/* The release has ended these holds. `lost` not NULL: they had ended before, which is reported to
 * their listeners. */
static void close_holds(struct hf_op *op, const char *lost) {
    for (size_t i = 0; i < op->call->ids_len; i++) {
        pthread_mutex_lock(&op->shard->mtx);
        struct hfi_hold *hold = find_locked(op, i);
        bool ours = hold != NULL && hfi_hold_ended_by_locked(hold, op, lost);
        if (ours) {
            hfi_hold_ref(hold);
            hfi_hold_tidy_locked(hold);
        }
        pthread_mutex_unlock(&op->shard->mtx);
        if (ours && lost != NULL)
            hfi_hold_report(hold, HFI_LOST);
        if (ours)
            hfi_hold_unref(hold);
    }
}

static void release_go(struct hf_op *op) {
    op->work->permits.end_ms = HFI_NEVER;
    for (size_t i = 0; i < op->call->ids_len; i++)
        end_hold(op, i);
    hfi_verb_object_op.go(op);
}

static void fail_lost(struct hf_op *op, const char *why) {
    close_holds(op, why);
    hfi_error_clear(&op->call->error);
    hfi_fail(&op->call->error, HF_ELOST, "%s", why);
    hfi_op_complete(op, HF_ELOST, &op->call->error);
}

/* The server has answered. */
static void released(struct hf_op *op) {
    const struct hfi_call *call = op->call;
    bool one = call->ids_len == 1;
    /* A repeated release that finds nothing succeeded the first time, unless the lease may have run
     * out by then. */
    bool late = call->err == HF_OK && call->value == 0 && hfi_now_ms() >= op->work->permits.end_ms;
    bool ours = op->work->permits.held || op->work->permits.lost;
    if (call->err == HF_OK && !late)
        close_holds(op, NULL); /* also if one of them had been lost */
    if (late || (call->err == HF_OK && op->work->permits.lost) || call->err == HF_ELOST) {
        fail_lost(op, "the lease had run out when the permit was released");
    } else if (call->err == HF_ENOTOWNER && one && ours) {
        fail_lost(op, "the permit was gone when it was released");
    } else if (call->err == HF_EWRONGTYPE && ours) {
        fail_lost(op, OVERWRITTEN);
    } else {
        close_holds(op, NULL);
        if (call->err == HF_OK)
            hfi_count(&op->core->counters.released);
        op->work->result.value = (int64_t)call->ids_len;
        hfi_op_complete(op, call->err, &call->error);
    }
}

static void release_after(struct hf_op *op) {
    struct hfi_call *call = op->call;
    bool answered = call->err == HF_OK || call->err == HF_ELOST || call->err == HF_ENOTOWNER ||
                    call->err == HF_EWRONGTYPE;
    if (answered) {
        released(op);
        return;
    }
    close_holds(op, NULL);
    if (call->unsettled || op->work->permits.held) {
        /* The caller is done with them, whether the server knows or not. */
        call->settle_release = true;
        /* out of memory means: nothing has begun */
        int err = call->err == HF_ENOMEM ? HF_EINDOUBT : call->err;
        hfi_op_complete_unsettled_until(op, err, &call->error, op->work->permits.end_ms);
    } else {
        hfi_op_complete(op, call->err, &call->error);
    }
}

const struct hfi_verb hfi_verb_permits_release = {
    .name = "release permits", .go = release_go, .after = release_after};

const struct hfi_verb hfi_verb_undo_permits = {
    .name = "release permits", .gives_back = true, .go = release_go, .after = release_after};

/* ---- Extend ---- */

static void extended_locked(struct hf_op *op, struct hfi_hold *hold) {
    const struct hfi_call *call = op->call;
    if (call->lease_ms == HF_NO_LEASE)
        hfi_hold_end_locked(hold);
    else
        hfi_hold_set_lease_locked(hold, call->lease_ms, &call->proof);
}

/* The loss of the permit was reported while its extension was in flight, so the extension came too
 * late. What the server still has is given back. */
static void undo_extension(struct hf_op *op) {
    hfi_fail(&op->call->error, HF_ENOTOWNER, "the lease ended before the server answered");
    op->call->settle_release = true;
    hfi_op_complete_unsettled(op, HF_ENOTOWNER, &op->call->error, op->call->lease_ms);
}

/* The server may have shortened the lease, whether the extension counts or not. */
static bool may_be_shorter(const struct hfi_call *call) {
    bool unknown = call->err == HF_EINDOUBT || call->err == HF_EPROTO || call->may_have_run;
    return unknown && call->lease_ms != HF_NO_LEASE;
}

static void extend_after(struct hf_op *op) {
    struct hfi_call *call = op->call;
    bool engine_events = false, ended = false;
    pthread_mutex_lock(&op->shard->mtx);
    struct hfi_hold *hold = find_locked(op, 0);
    if (hold != NULL) {
        hfi_hold_ref(hold);
        ended = hold->possession == HFI_HOLD_LOST && call->err == HF_OK;
        if (hold->count > 0 && call->err == HF_OK)
            extended_locked(op, hold);
        else if (hold->count > 0 && call->err == HF_ENOTOWNER)
            engine_events = hfi_hold_lose_locked(hold, "the permit was gone when it was extended");
        else if (hold->count > 0 && call->err == HF_EWRONGTYPE)
            engine_events = hfi_hold_lose_locked(hold, OVERWRITTEN);
        else if (hold->count > 0 && may_be_shorter(call))
            hfi_hold_may_end_locked(
                hold, hfi_after_ms(call->start_ms,
                                   hfi_trusted_ms(call->lease_ms, op->core->clock_drift_ppm)));
        hfi_hold_tidy_locked(hold);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    if (engine_events)
        hfi_hold_report(hold, HFI_LOST);
    hfi_hold_unref(hold);
    if (ended) {
        undo_extension(op);
        return;
    }
    if (engine_events && call->err == HF_EWRONGTYPE)
        call->err = hfi_fail(&call->error, HF_ELOST, OVERWRITTEN);
    if (call->err == HF_OK && call->lease_ms != HF_NO_LEASE)
        op->work->result.remaining_ms = hfi_left_ms(call->proof.valid_until_ms);
    op->work->result.value = call->value;
    hfi_op_complete(op, call->err, &call->error);
}

/* A reported loss stays a loss, even if the server has not expired it yet. */
static void extend_go(struct hf_op *op) {
    bool engine_events = false, lost = false;
    pthread_mutex_lock(&op->shard->mtx);
    struct hfi_hold *hold = find_locked(op, 0);
    if (hold != NULL) {
        hfi_hold_ref(hold);
        if (hfi_hold_expired_locked(hold))
            engine_events = hfi_hold_run_out_locked(hold);
        lost = hold->possession == HFI_HOLD_LOST;
        hfi_hold_tidy_locked(hold);
    }
    pthread_mutex_unlock(&op->shard->mtx);
    if (engine_events)
        hfi_hold_report(hold, HFI_LOST);
    hfi_hold_unref(hold);
    if (!lost) {
        hfi_verb_object_op.go(op);
        return;
    }
    hfi_fail(&op->call->error, HF_ENOTOWNER, "the permit was lost before it could be extended");
    if (engine_events) { /* else the keeper has noticed it before, and releases it */
        op->call->settle_release = true;
        hfi_op_complete_unsettled(op, HF_ENOTOWNER, &op->call->error, op->call->lease_ms);
    } else {
        hfi_op_complete(op, HF_ENOTOWNER, &op->call->error);
    }
}

const struct hfi_verb hfi_verb_permits_extend = {
    .name = "extend a permit", .go = extend_go, .after = extend_after};
