/*
 * The kind "all": a multi-lock. Each operation is a bundle of operations on its parts;
 * all_acquire.c has acquire, which takes several rounds.
 *
 * Runs on the executor of the call, which gets an event when the bundle is idle.
 */
#include "joint/multi/all.h"

#include <assert.h>
#include <string.h>

void hfi_all_end(struct hfi_call *call, int err) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    if (state->alarm_set)
        hfi_alarm_clear(call->task->exec, &state->alarm);
    state->alarm_set = false;
    state->phase = HFI_ALL_OVER;
    if (state->bundle != NULL)
        hfi_bundle_leave_alone(state->bundle);
    state->bundle = NULL;
    call->err = err;
    call->done(call);
}

static void check(struct hfi_call *call);

/* ---- Release ---- */

static void release(struct hfi_call *call) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    assert(call->share != NULL);
    state->call = call;
    state->phase = HFI_ALL_RELEASING;
    state->bundle = hfi_bundle_of_share(call->share);
    call->share = NULL;
    hfi_bundle_report(state->bundle, call);
    hfi_bundle_give_back(state->bundle);
    check(call);
}

static void released(struct hfi_call *call) {
    call->value = call->count - 1;
    hfi_all_end(call, hfi_bundle_worst(hfi_all_state_of(call)->bundle, &call->error));
}

/* ---- Extend, queries ---- */

static void begin_all(struct hfi_call *call, const struct hfi_op_args *args) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    int err = HF_OK;
    state->call = call;
    state->phase = HFI_ALL_ANSWERING;
    state->bundle = hfi_bundle_new(call, false);
    for (size_t i = 0; i < call->parts->len && err == HF_OK && state->bundle != NULL; i++) {
        struct hfi_op_args of_part = *args;
        err = hfi_bundle_begin(state->bundle, i, &of_part);
    }
    if (state->bundle == NULL || err != HF_OK)
        hfi_all_end(call, hfi_fail(&call->error, HF_ENOMEM, "%s", hf_strerror(HF_ENOMEM)));
    else
        check(call);
}

static void extend(struct hfi_call *call) {
    const struct hfi_op_args args = {
        .verb = &hfi_verb_extend, .owner = hfi_all_op_of(call)->owner, .lease_ms = call->lease_ms};
    begin_all(call, &args);
}

static void ask(struct hfi_call *call) {
    const struct hfi_op_args args = {
        .verb = &hfi_verb_query, .owner = hfi_all_op_of(call)->owner, .query = call->query};
    begin_all(call, &args);
}

/* The smaller of two TTLs. Negative ones are special: a free lock has none, and a lock held for
 * ever has a longer one than any other. */
static int64_t shorter_ms(int64_t a_ms, int64_t b_ms) {
    const int64_t forever_ms = -1, free_ms = -2;
    if (a_ms == free_ms || b_ms == free_ms)
        return a_ms == free_ms ? b_ms : a_ms;
    if (a_ms == forever_ms || b_ms == forever_ms)
        return a_ms == forever_ms ? b_ms : a_ms;
    return hfi_min_ms(a_ms, b_ms);
}

/* Combines the answers of all parts. */
static int64_t sum_up(enum hfi_query query, const struct hfi_bundle *bundle) {
    int64_t sum = bundle->slots[0].value;
    for (size_t i = 1; i < bundle->parts->len; i++) {
        int64_t value = bundle->slots[i].value;
        sum = query == HFI_QUERY_TTL      ? shorter_ms(sum, value)
              : query == HFI_QUERY_LOCKED ? hfi_max_ms(sum, value)
                                          : hfi_min_ms(sum, value);
    }
    return sum;
}

/* One held part is an answer, even if another part cannot be asked. */
static bool is_known_to_be_locked(const struct hfi_bundle *bundle) {
    for (size_t i = 0; i < bundle->parts->len; i++)
        if (bundle->slots[i].code == HF_OK && bundle->slots[i].value > 0)
            return true;
    return false;
}

static void answered(struct hfi_call *call) {
    const struct hfi_bundle *bundle = hfi_all_state_of(call)->bundle;
    bool extends = hfi_all_op_of(call)->verb == &hfi_verb_extend;
    int err = hfi_bundle_worst(bundle, &call->error);
    if (extends) {
        call->proof = (struct hfi_proof){HFI_NEVER, HFI_NEVER, HFI_NEVER};
        if (err == HF_ENOTOWNER) /* it was ours as long as the whole was */
            err = HF_ELOST;
    } else if (call->query == HFI_QUERY_LOCKED && is_known_to_be_locked(bundle)) {
        err = HF_OK;
        call->value = 1;
    } else {
        call->value = sum_up(call->query, bundle);
    }
    hfi_all_end(call, err);
}

/* ---- Common to all calls ---- */

static void check(struct hfi_call *call) {
    const struct hfi_all_state *state = hfi_all_state_of(call);
    if (!hfi_bundle_is_idle(state->bundle))
        return;
    if (state->phase == HFI_ALL_RELEASING)
        released(call);
    else
        answered(call);
}

static void step(struct hfi_call *call, unsigned events) {
    const struct hfi_all_state *state = hfi_all_state_of(call);
    if (state->phase == HFI_ALL_RELEASING || state->phase == HFI_ALL_ANSWERING)
        check(call);
    else if (state->phase != HFI_ALL_OVER)
        hfi_all_acquire_step(call, events);
}

/* Each part's core settles that part; here only the share of a failed acquire is left. */
static void give_back_share(struct hfi_call *call) {
    struct hfi_share *share = call->share;
    call->share = NULL;
    if (share != NULL)
        share->give_back(share);
}

static void settle(struct hfi_call *call) {
    give_back_share(call);
    call->err = HF_OK;
    call->done(call);
}

/* A release is waited for: its parts end by themselves, the sooner if their client is the one that
 * closes. */
static void cancel(struct hfi_call *call, int err) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    if (state->phase == HFI_ALL_OVER) {
        give_back_share(call);
    } else if (state->phase == HFI_ALL_RELEASING && !state->closing) {
        state->closing = true;
    } else if (state->phase == HFI_ALL_RELEASING || state->phase == HFI_ALL_ANSWERING) {
        hfi_fail(&call->error, err, "%s", hf_strerror(err));
        hfi_all_end(call, err);
    } else {
        hfi_all_acquire_cancel(call, err);
    }
}

static const struct hfi_call_ops call_ops = {
    .call_size = sizeof(struct hfi_all_state),
    .acquire = hfi_all_acquire,
    .release = release,
    .extend = extend,
    .ask = ask,
    .settle = settle,
    .step = step,
    .cancel = cancel,
};

static size_t stem_len(const char *name, size_t name_len) {
    const char *zero = memrchr(name, '\0', name_len);
    assert(zero != NULL);
    return (size_t)(zero - name);
}

const struct hfi_kind hfi_kind_all = {
    .name = "all", .ops = &call_ops, .reentrant = true, .joint = true, .stem_len = stem_len};
