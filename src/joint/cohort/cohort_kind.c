/*
 * The cohort kinds: their operations. cohort.c has the cohort itself.
 *
 * Runs on the executor of the call, which gets an event when its phase has changed. A thread's own
 * lease is enforced here: at the server the hold is the process', renewed as long as a thread is
 * inside.
 */
#include "joint/cohort/cohort.h"

#include <string.h>

#define OVERTIME_MS 20 /* retry interval after the deadline, until the cause is known */

static struct hf_op *op_of(struct hfi_call *call) {
    return hfi_op_of_call(call);
}

static struct hfi_cohort *cohort_of(const struct hfi_call *call) {
    return call->parts->cohort;
}

/* ---- The end of a call ---- */

static void alarm_fired(struct hfi_alarm *alarm) {
    struct hfi_cohort_call *state = HFI_CONTAINER(alarm, struct hfi_cohort_call, alarm);
    state->alarm_set = false;
    hfi_task_post(state->call->task, HFI_COHORT_TIME);
}

static void set_alarm(struct hfi_call *call, int64_t at_ms) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    if (at_ms == HFI_NEVER)
        return;
    state->alarm.fire = alarm_fired;
    state->alarm_set = true;
    hfi_alarm_set(call->task->exec, &state->alarm, at_ms);
}

static void finish(struct hfi_call *call, int err) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    if (state->alarm_set)
        hfi_alarm_clear(call->task->exec, &state->alarm);
    state->alarm_set = false;
    state->phase = HFI_COHORT_OVER;
    if (state->bundle != NULL)
        hfi_bundle_leave_alone(state->bundle);
    state->bundle = NULL;
    state->call = NULL;
    call->err = err;
    call->done(call);
}

/* `error` NULL: the code's own text. */
static void fail(struct hfi_call *call, int err, const hf_error *error) {
    hfi_cohort_share_free(hfi_cohort_call_of(call)->share);
    hfi_cohort_call_of(call)->share = NULL;
    if (error != NULL && error->text[0] != '\0')
        call->error = *error;
    else
        hfi_fail(&call->error, err, "%s", hf_strerror(err));
    finish(call, err);
}

/* ---- Acquire ---- */

static void give_back(struct hfi_share *share) {
    hfi_cohort_leave(HFI_CONTAINER(share, struct hfi_cohort_share, share), NULL);
}

static void let_run_out(struct hfi_share *share) {
    hfi_cohort_run_out(HFI_CONTAINER(share, struct hfi_cohort_share, share));
}

static struct hfi_cohort_share *new_share(struct hfi_parts *parts) {
    struct hfi_cohort_share *share = hfi_zalloc(parts->mem, sizeof *share);
    if (share == NULL)
        return NULL;
    share->share.give_back = give_back;
    share->share.let_run_out = let_run_out;
    share->parts = parts;
    hfi_parts_ref(parts);
    return share;
}

/* The stake says until when it is proved. */
static struct hfi_proof proof_of_lease(int64_t lease_ms) {
    return (struct hfi_proof){.valid_until_ms = HFI_NEVER,
                              .renew_at_ms = HFI_NEVER,
                              .promised_until_ms = hfi_after_ms(hfi_now_ms(), lease_ms)};
}

static void succeed(struct hfi_call *call) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    bool watched = op_of(call)->lease_ms == HF_WATCHDOG;
    call->value = call->count + 1;
    call->contended = state->contended;
    call->proof = proof_of_lease(watched ? HF_FOREVER : call->lease_ms);
    call->share = &state->share->share;
    state->share = NULL; /* the call owns it now */
    finish(call, HF_OK);
}

static void released(struct hfi_call *call);

static void check(struct hfi_call *call) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    switch (hfi_cohort_check(cohort_of(call), call)) {
    case HFI_COHORT_GRANTED:
        succeed(call);
        break;
    case HFI_COHORT_FAILED:
        fail(call, state->err, &state->error);
        break;
    case HFI_COHORT_LEFT:
        released(call);
        break;
    default:
        break;
    }
}

/* A single attempt has one exchange, whatever is ahead of it. */
static int64_t end_ms(const struct hfi_call *call) {
    if (!hfi_cohort_call_of(call)->one_attempt)
        return call->deadline_ms;
    return hfi_after_ms(call->start_ms, call->parts->of[0].core->cmd_timeout_ms);
}

static void acquire(struct hfi_call *call) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    state->call = call;
    state->one_attempt = op_of(call)->wait_ms == 0;
    state->share = new_share(call->parts);
    if (state->share == NULL) {
        fail(call, HF_ENOMEM, NULL);
        return;
    }
    set_alarm(call, end_ms(call));
    hfi_cohort_come(cohort_of(call), call);
    check(call);
}

static void time_is_up(struct hfi_call *call) {
    int err = hfi_cohort_give_up(cohort_of(call), call);
    if (err == HF_EPENDING)
        set_alarm(call, hfi_now_ms() + OVERTIME_MS);
    else if (err == HF_OK)
        check(call);
    else
        fail(call, err, &hfi_cohort_call_of(call)->error);
}

/* ---- Release, extend ---- */

static void release(struct hfi_call *call) {
    struct hfi_share *share = call->share;
    call->share = NULL;
    hfi_cohort_call_of(call)->call = call;
    hfi_cohort_leave(HFI_CONTAINER(share, struct hfi_cohort_share, share), call);
    check(call);
}

static void released(struct hfi_call *call) {
    const struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    call->value = call->count - 1;
    if (state->err != HF_OK)
        fail(call, state->err, &state->error);
    else
        finish(call, HF_OK);
}

/* The lease is local: the server need not know. */
static void extend(struct hfi_call *call) {
    call->proof = proof_of_lease(call->lease_ms);
    finish(call, HF_OK);
}

/* ---- Queries ---- */

/* Only HFI_QUERY_COUNT comes here: the other queries go to the lock itself. */
static void ask(struct hfi_call *call) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    struct hfi_op_args args = {
        .verb = &hfi_verb_query, .owner = cohort_of(call)->owner, .query = HFI_QUERY_COUNT};
    state->call = call;
    call->value = hfi_cohort_count(cohort_of(call), op_of(call)->owner);
    if (call->value == 0) {
        finish(call, HF_OK);
        return;
    }
    state->phase = HFI_COHORT_ASKING;
    state->bundle = hfi_bundle_new(call, false);
    if (state->bundle == NULL || hfi_bundle_begin(state->bundle, 0, &args) != HF_OK)
        fail(call, HF_ENOMEM, NULL);
}

static void answered(struct hfi_call *call) {
    const struct hfi_bundle *bundle = hfi_cohort_call_of(call)->bundle;
    int err = hfi_bundle_worst(bundle, &call->error);
    if (bundle->slots[0].value == 0)
        call->value = 0;
    finish(call, err);
}

/* ---- Common to all calls ---- */

static bool is_asking(const struct hfi_call *call) {
    return hfi_cohort_call_of(call)->bundle != NULL;
}

static void step(struct hfi_call *call, unsigned events) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    if (state->call == NULL) /* it is over */
        return;
    if (is_asking(call)) {
        if (hfi_bundle_is_idle(state->bundle))
            answered(call);
        return;
    }
    if ((events & HFI_COHORT_TIME) && !state->alarm_set)
        time_is_up(call);
    else if (events & HFI_COHORT_EVENT)
        check(call);
}

/* What is at the server belongs to the cohort, and its own operations settle it. */
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

/* A release in progress is waited for: it ends with the client at the latest. A call that was
 * granted already keeps the grant despite the cancel. */
static void cancel(struct hfi_call *call, int err) {
    struct hfi_cohort_call *state = hfi_cohort_call_of(call);
    if (state->call == NULL)
        give_back_share(call);
    else if (is_asking(call) || hfi_cohort_stop(cohort_of(call), call))
        fail(call, err, NULL);
    else
        check(call);
}

/* The keeper does the work at the server. */
static void drive(struct hfi_call *call) {
    hfi_exec_sleep(call->task->exec);
}

static const struct hfi_call_ops call_ops = {
    .call_size = sizeof(struct hfi_cohort_call),
    .acquire = acquire,
    .release = release,
    .extend = extend,
    .ask = ask,
    .settle = settle,
    .step = step,
    .cancel = cancel,
    .drive = drive,
};

#define COHORT_KIND(base, nests)                                                                   \
    {                                                                                              \
        .name = "cohort", .ops = &call_ops, .part = (base), .reentrant = (nests), .joint = true,   \
        .cohort = true                                                                             \
    }

const struct hfi_kind hfi_kind_cohort = COHORT_KIND("cohort", true);
const struct hfi_kind hfi_kind_cohort_once = COHORT_KIND("cohort", false);
const struct hfi_kind hfi_kind_cohort_fair = COHORT_KIND("fair cohort", true);
const struct hfi_kind hfi_kind_cohort_fair_once = COHORT_KIND("fair cohort", false);
const struct hfi_kind hfi_kind_cohort_string = COHORT_KIND("string cohort", true);
const struct hfi_kind hfi_kind_cohort_string_once = COHORT_KIND("string cohort", false);
