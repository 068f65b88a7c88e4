/*
 * Acquiring a multi-lock.
 *
 *     ask all at once, one attempt each ◀──────────┐
 *       │ all granted          │ one is busy       │ granted: ask the others
 *       ▼                      ▼                   │
 *     extend those that      give all back; wait at the first busy part, in order
 *     came first; done
 *
 * Nothing is held during a wait, so there is no deadlock. But two clients may each hold what the
 * other lacks, give way, and collide again the other way round. So a client that lost twice in a
 * row pauses for a random time before it waits: jitter of more round trips each time. An
 * unreachable or refusing server is waited out by waiting at its part, as for that lock alone. Any
 * other error is final. Then everything is given back, and the call waits for that, but no longer
 * than for a reply.
 *
 * Runs on the executor of the call.
 */
#include "base/jitter.h"
#include "joint/multi/all.h"

#define ROUND_MIN_US 500 /* alarms have millisecond resolution */
#define PAUSE_MAX_US 500000
#define DEFEATS_MAX 10    /* after that the pause gets no longer */
#define MEETING_ROUNDS 10 /* a client that gives way is gone in less */

static void end_if_returned(struct hfi_call *call);

/* ---- Time ---- */

static void alarm_fired(struct hfi_alarm *alarm) {
    struct hfi_all_state *state = HFI_CONTAINER(alarm, struct hfi_all_state, alarm);
    state->alarm_set = false;
    hfi_task_post(state->call->task, HFI_ALL_TIME);
}

static void set_alarm(struct hfi_call *call, int64_t at_ms) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    if (at_ms == HFI_NEVER)
        return;
    state->alarm.fire = alarm_fired;
    state->alarm_set = true;
    hfi_alarm_set(call->task->exec, &state->alarm, at_ms);
}

static bool is_one_attempt(struct hfi_call *call) {
    return hfi_all_op_of(call)->wait_ms == 0;
}

/* When the call has to end, whatever is still unanswered. Even a short wait has time for one
 * exchange, to tell a held lock from a silent server. */
static int64_t end_ms(struct hfi_call *call) {
    const struct hf_op *op = hfi_all_op_of(call);
    int64_t exchange_ms = hfi_after_ms(call->start_ms, op->core->cmd_timeout_ms);
    if (is_one_attempt(call))
        return op->deadline_ms;
    return hfi_all_state_of(call)->contended ? call->deadline_ms
                                             : hfi_max_ms(call->deadline_ms, exchange_ms);
}

/* ---- Failing ---- */

/* The text is in the call's error. */
static void fail(struct hfi_call *call, int err) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    state->err = err;
    if (state->bundle == NULL) {
        hfi_all_end(call, err);
        return;
    }
    state->phase = HFI_ALL_RETURNING;
    hfi_bundle_give_back(state->bundle);
    if (err == HF_ECANCELED) { /* a cancel does not wait */
        hfi_all_end(call, err);
        return;
    }
    int64_t answer_by_ms = hfi_now_ms() + hfi_all_op_of(call)->core->cmd_timeout_ms;
    set_alarm(call, hfi_min_ms(end_ms(call), answer_by_ms));
    end_if_returned(call);
}

static void end_if_returned(struct hfi_call *call) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    if (hfi_bundle_is_idle(state->bundle))
        hfi_all_end(call, state->err);
}

static void fail_for_memory(struct hfi_call *call) {
    fail(call, hfi_fail(&call->error, HF_ENOMEM, "%s", hf_strerror(HF_ENOMEM)));
}

/* ---- Asking ---- */

static int begin_at(struct hfi_call *call, size_t i, int64_t wait_ms) {
    const struct hf_op *op = hfi_all_op_of(call);
    struct hfi_op_args args = {.verb = &hfi_verb_acquire,
                               .owner = op->owner,
                               .wait_ms = wait_ms,
                               .lease_ms = op->lease_ms,
                               .self = op->work->self};
    return hfi_bundle_begin(hfi_all_state_of(call)->bundle, i, &args);
}

static void check(struct hfi_call *call);

static void ask(struct hfi_call *call) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    int err = HF_OK;
    state->phase = HFI_ALL_ASKING;
    state->asked_us = hfi_now_us();
    set_alarm(call, is_one_attempt(call) ? HFI_NEVER : end_ms(call));
    for (size_t i = 0; i < call->parts->len && err == HF_OK; i++)
        if (state->bundle->slots[i].state == HFI_SLOT_EMPTY)
            err = begin_at(call, i, 0);
    if (err != HF_OK)
        fail_for_memory(call);
    else
        check(call);
}

static bool renew_bundle(struct hfi_call *call) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    if (state->bundle != NULL) {
        hfi_bundle_give_back(state->bundle);
        hfi_bundle_leave_alone(state->bundle);
    }
    state->bundle = hfi_bundle_new(call, true);
    return state->bundle != NULL;
}

static void wait_at(struct hfi_call *call, size_t i) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    int64_t left_ms = HF_FOREVER;
    if (call->deadline_ms != HFI_NEVER)
        left_ms = hfi_max_ms(call->deadline_ms - hfi_now_ms(), 1);
    state->phase = HFI_ALL_WAITING;
    state->waits_at = i;
    state->waiting_us = hfi_now_us();
    if (!renew_bundle(call) || begin_at(call, i, left_ms) != HF_OK)
        fail_for_memory(call);
    else
        check(call);
}

/* After a long wait the winner was a holder, not a client that gives way as well. */
static void note_defeat(struct hfi_all_state *state, int64_t round_us) {
    int64_t waited_us = state->waiting_us != 0 ? state->asked_us - state->waiting_us : 0;
    state->contended = true;
    if (waited_us > PAUSE_MAX_US + MEETING_ROUNDS * round_us)
        state->defeats = 0;
    if (state->defeats < DEFEATS_MAX)
        state->defeats++;
}

static int64_t random_pause_us(const struct hfi_all_state *state, int64_t round_us) {
    int64_t most_us = hfi_min_ms(round_us << state->defeats, PAUSE_MAX_US);
    return (int64_t)(hfi_jitter_bits(state) % (uint64_t)most_us);
}

/* No pause the first time: there is no client to be in step with yet. */
static void give_way(struct hfi_call *call, size_t i) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    int64_t round_us = hfi_max_ms(hfi_now_us() - state->asked_us, ROUND_MIN_US);
    note_defeat(state, round_us);
    if (state->defeats < 2) {
        wait_at(call, i);
        return;
    }
    state->phase = HFI_ALL_PAUSING;
    state->waits_at = i;
    hfi_bundle_give_back(state->bundle);
    int64_t until_ms = (hfi_now_us() + random_pause_us(state, round_us)) / 1000;
    set_alarm(call, hfi_min_ms(until_ms, call->deadline_ms));
}

/* No time is left to wait at this part. */
static void fail_for_time(struct hfi_call *call, size_t i) {
    int err = hfi_bundle_error(hfi_all_state_of(call)->bundle, i, &call->error);
    fail(call, err == HF_EBUSY ? HF_ETIMEDOUT : err);
}

static void paused(struct hfi_call *call) {
    size_t i = hfi_all_state_of(call)->waits_at;
    if (hfi_now_ms() >= call->deadline_ms)
        fail_for_time(call, i);
    else
        wait_at(call, i);
}

/* ---- All are held ---- */

static void succeed(struct hfi_call *call) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    struct hfi_bundle *bundle = state->bundle;
    int64_t deadline_ms = HFI_NEVER;
    bool lost = false; /* not a loss of the whole: it was not held yet */
    for (size_t i = 0; i < call->parts->len; i++) {
        state->contended |= bundle->slots[i].contended;
        deadline_ms = hfi_min_ms(deadline_ms, atomic_load(&bundle->stakes[i]->deadline_ms));
        lost |= atomic_load(&bundle->stakes[i]->lost) != NULL;
    }
    if (lost || deadline_ms <= hfi_now_ms()) {
        fail(call, hfi_fail(&call->error, HF_ETIMEDOUT, "%s",
                            lost ? "a member was lost before all of them were acquired"
                                 : "a member's lease ended before all of them were acquired"));
        return;
    }
    call->value = call->count + 1;
    call->contended = state->contended;
    call->proof = (struct hfi_proof){HFI_NEVER, HFI_NEVER, HFI_NEVER};
    call->share = &bundle->share;
    hfi_bundle_report(bundle, NULL);
    state->bundle = NULL; /* the call owns it now */
    hfi_all_end(call, HF_OK);
}

/* More than a tenth of its lease has passed since it was acquired. */
static bool is_stale(struct hfi_call *call, size_t i) {
    const struct hf_op *op = hfi_all_op_of(call);
    const struct hfi_stake *stake = hfi_all_state_of(call)->bundle->stakes[i];
    return op->lease_ms != HF_WATCHDOG &&
           atomic_load(&stake->deadline_ms) <
               hfi_now_ms() + hfi_trusted_ms(op->lease_ms, op->core->clock_drift_ppm) -
                   op->lease_ms / 10;
}

static void extend_stale(struct hfi_call *call) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    const struct hf_op *op = hfi_all_op_of(call);
    bool any = false;
    int err = HF_OK;
    for (size_t i = 0; i < call->parts->len && err == HF_OK; i++) {
        struct hfi_op_args args = {
            .verb = &hfi_verb_extend, .owner = op->owner, .lease_ms = op->lease_ms};
        if (!is_stale(call, i))
            continue;
        any = true;
        err = hfi_bundle_begin(state->bundle, i, &args);
    }
    state->phase = HFI_ALL_EXTENDING;
    if (err != HF_OK)
        fail_for_memory(call);
    else if (any)
        check(call);
    else
        succeed(call);
}

static void extended(struct hfi_call *call) {
    int err = hfi_bundle_worst(hfi_all_state_of(call)->bundle, &call->error);
    if (err == HF_OK)
        succeed(call);
    else /* one part was lost before the whole was held: not a loss of the whole */
        fail(call, err == HF_ELOST || err == HF_ENOTOWNER ? HF_ETIMEDOUT : err);
}

/* ---- Answers ---- */

static bool can_be_waited_out(int code) {
    return code == HF_EBUSY || code == HF_EUNREACH || code == HF_EUNAVAILABLE;
}

/* The part whose error counts: one that cannot be waited out, else the first in order. No failure:
 * the number of parts. */
static size_t find_failure(const struct hfi_bundle *bundle) {
    const struct hfi_parts *parts = bundle->parts;
    size_t first = parts->len;
    for (size_t at = 0; at < parts->len; at++) {
        size_t i = parts->order[at];
        if (bundle->slots[i].state != HFI_SLOT_FAILED)
            continue;
        if (!can_be_waited_out(bundle->slots[i].code))
            return i;
        if (first == parts->len)
            first = i;
    }
    return first;
}

static void asked(struct hfi_call *call) {
    const struct hfi_bundle *bundle = hfi_all_state_of(call)->bundle;
    size_t i = find_failure(bundle);
    if (i == call->parts->len) {
        extend_stale(call);
        return;
    }
    int err = hfi_bundle_error(bundle, i, &call->error);
    if (!can_be_waited_out(err) || is_one_attempt(call))
        fail(call, err);
    else if (hfi_now_ms() >= call->deadline_ms)
        fail_for_time(call, i);
    else
        give_way(call, i);
}

static void waited(struct hfi_call *call) {
    const struct hfi_all_state *state = hfi_all_state_of(call);
    if (state->bundle->slots[state->waits_at].state == HFI_SLOT_HELD)
        ask(call);
    else
        fail(call, hfi_bundle_error(state->bundle, state->waits_at, &call->error));
}

static void check(struct hfi_call *call) {
    const struct hfi_all_state *state = hfi_all_state_of(call);
    if (!hfi_bundle_is_idle(state->bundle))
        return;
    if (state->phase == HFI_ALL_ASKING)
        asked(call);
    else if (state->phase == HFI_ALL_WAITING)
        waited(call);
    else if (state->phase == HFI_ALL_EXTENDING)
        extended(call);
    else if (state->phase == HFI_ALL_RETURNING)
        end_if_returned(call);
}

/* The wait is over, and some parts have not answered. */
static void time_is_up(struct hfi_call *call) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    if (state->phase == HFI_ALL_PAUSING) {
        paused(call);
        return;
    }
    if (hfi_now_ms() < end_ms(call) && state->phase != HFI_ALL_RETURNING)
        return;
    if (state->phase == HFI_ALL_RETURNING)
        hfi_all_end(call, state->err);
    else if (state->phase == HFI_ALL_ASKING || state->phase == HFI_ALL_EXTENDING)
        fail(call, state->contended
                       ? hfi_fail(&call->error, HF_ETIMEDOUT, "%s", hf_strerror(HF_ETIMEDOUT))
                       : hfi_fail(&call->error, HF_EUNREACH,
                                  "not all servers of its members have answered"));
}

/* ---- For all.c ---- */

void hfi_all_acquire(struct hfi_call *call) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    state->call = call;
    if (renew_bundle(call))
        ask(call);
    else
        fail_for_memory(call);
}

void hfi_all_acquire_step(struct hfi_call *call, unsigned events) {
    const struct hfi_all_state *state = hfi_all_state_of(call);
    if (events & HFI_BUNDLE_EVENT)
        check(call);
    if ((events & HFI_ALL_TIME) && state->phase != HFI_ALL_OVER && !state->alarm_set)
        time_is_up(call);
}

/* A closing client waits once for what is given back, not twice. */
void hfi_all_acquire_cancel(struct hfi_call *call, int err) {
    struct hfi_all_state *state = hfi_all_state_of(call);
    bool again = state->closing;
    state->closing = err == HF_ECLOSED;
    if (again || (state->phase == HFI_ALL_RETURNING && err == HF_ECANCELED))
        hfi_all_end(call, again ? HF_ECLOSED : state->err);
    else if (state->phase != HFI_ALL_RETURNING)
        fail(call, hfi_fail(&call->error, err, "%s", hf_strerror(err)));
}
