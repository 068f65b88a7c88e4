/*
 * Settlement: makes sure how a call with an unknown outcome has ended.
 *
 * Called by src/core through the engine's table, on the keeper's thread, which owns the state. It
 * sends the script that undoes an acquire, or repeats a release. It resends until the server has
 * answered and no copy of the former command can act any more.
 */
#include "base/clock.h"
#include "redis/kinds/kind.h"
#include "redis/ops/call.h"
#include "redis/wait/fair_queue.h"
#include "redis/wire/script_reply.h"

#include <string.h>

#define SETTLE_PAUSE_MS 500

static void settle_now(struct hfi_call *call);

/* The count from which one release leads to the count that the core believes in. */
static int64_t settled_from(const struct hfi_call *call) {
    return call->settle_release ? call->count : call->count + 1;
}

/* An acquire that may have left its owner in the fair queue. */
static bool gives_up(struct hfi_call *call) {
    return !call->settle_release && hfi_state_of(call)->kind->waiting->has_queue;
}

const struct hfi_script *hfi_undo_script(struct hfi_call *call) {
    const struct hfi_redis_kind *kind = hfi_state_of(call)->kind;
    return gives_up(call) ? kind->give_up : kind->release;
}

void hfi_undo_write(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    if (gives_up(state->call))
        state->kind->write_give_up(x->redis, state->call, not_after_ms, command);
    else
        state->kind->write_release(x->redis, state->call, settled_from(state->call), not_after_ms,
                                   command);
}

/* The reply proves that the owner has nothing: the lock was another's; or this copy did not run,
 * and no other copy may have run. */
static bool means_nothing(struct hfi_call *call, const struct hfi_reply *reply) {
    const struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_acquire_answer answer;
    if (gives_up(call) || call->kind->stamped)
        return false;
    if (hfi_is_refusal(reply))
        return state->in_doubt_alone;
    return state->kind->read_acquire(call, reply, &answer) == HF_OK &&
           answer.verdict != HFI_ACQUIRED;
}

/* The cancelled command has been answered after all, so there is nothing to wait for. */
static void in_doubt_answered(struct hfi_call *call) {
    bool nothing = means_nothing(call, hfi_state_of(call)->in_doubt->reply);
    hfi_call_drop_in_doubt(call);
    if (nothing)
        hfi_call_finish(call, HF_OK);
    else
        settle_now(call);
}

/* False: it has not been answered; if its connection was lost, it never will be. Then the alarm is
 * set to when no copy can act any more. */
static bool in_doubt_replied(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->in_doubt == NULL || !atomic_load(&state->in_doubt->complete))
        return false;
    if (state->in_doubt->err == HF_OK)
        return true;
    hfi_call_drop_in_doubt(call);
    return false;
}

/* The loss of a connection and the alarm may come in one call, and neither comes again. */
static void step_settle_later(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    if ((events & state->in_doubt_event) != 0 && in_doubt_replied(call)) {
        in_doubt_answered(call);
    } else if ((events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange)) {
        hfi_call_drop_in_doubt(call);
        settle_now(call);
    }
}

static void settle_at(struct hfi_call *call, int64_t at_ms) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->step = step_settle_later;
    hfi_exchange_sleep(&state->exchange, at_ms);
}

int hfi_undo_read(struct hfi_call *call, bool *ret_more) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_release_answer answer = {0};
    int err = state->exchange.err;
    if (err == HF_OK && gives_up(call))
        err = state->kind->read_give_up(hfi_answer_of(call), &answer);
    else if (err == HF_OK && state->kind->read_chosen_release != NULL)
        err = state->kind->read_chosen_release(&state->exchange, &answer);
    else if (err == HF_OK)
        err = state->kind->read_release(settled_from(call), hfi_answer_of(call), &answer);
    if (err == HF_OK && answer.waiters_unnotified)
        hfi_redis_notify_failed(&state->exchange);
    *ret_more = err == HF_OK && answer.more;
    return err == HF_EWRONGTYPE ? HF_OK : err; /* wrong type: no hold of ours is there */
}

static void settled(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    bool more;
    if (state->kind->learn != NULL && state->kind->learn(&state->exchange)) {
        settle_now(call);
        return;
    }
    int err = hfi_undo_read(call, &more);
    if (err == HF_OK) {
        hfi_fair_waiter_finish(call, HF_OK, NULL, more);
        return;
    }
    int64_t again_ms = hfi_now_ms() + SETTLE_PAUSE_MS;
    if (err == HF_ECLOSED || again_ms >= call->deadline_ms)
        hfi_call_finish(call, err);
    else
        settle_at(call, again_ms);
}

static void settle_now(struct hfi_call *call) {
    hfi_call_send_chosen(call, hfi_state_of(call)->kind->choose_release, hfi_undo_script(call),
                         hfi_undo_write, settled);
}

/* The state is as the failed call has left it, perhaps with a request in flight. */
void hfi_settle(struct hfi_call *call) {
    struct hfi_call_state *state = call->state;
    struct hfi_req *in_doubt = state->in_doubt;
    struct hfi_node *in_doubt_node = state->in_doubt_node;
    unsigned in_doubt_event = state->in_doubt_event;
    bool alone = !call->residue && !state->exchange.resent;
    memset(state, 0, sizeof *state);
    hfi_call_begin(call);
    state->settles = state->settling = true;
    state->cleanup = hfi_call_drop_in_doubt;
    state->exchange.retry = HFI_RETRY_PATIENTLY;
    state->in_doubt = in_doubt;
    state->in_doubt_node = in_doubt_node;
    state->in_doubt_event = in_doubt_event;
    state->in_doubt_alone = alone;
    if (state->kind->settle != NULL && !hfi_idempotency_drawn(call)) {
        state->kind->settle(call);
        return;
    }
    if (in_doubt != NULL || hfi_now_ms() < call->in_doubt_until_ms)
        settle_at(call, call->in_doubt_until_ms);
    else
        settle_now(call);
    if (in_doubt != NULL && in_doubt_replied(call))
        in_doubt_answered(call); /* it came before the step was set */
}
