/*
 * Settlement: making sure of the end of a call whose outcome is unknown.
 *
 * Called by src/core through the engine's table, on the keeper's thread, which owns the state. The
 * script that undoes an acquire, or repeats a release, is sent again and again until the server has
 * answered and no copy of the former command can act any more.
 */
#include "base/clock.h"
#include "redis/internal.h"
#include "redis/kind.h"
#include "redis/line.h"
#include "redis/script_reply.h"

#include <string.h>

#define SETTLE_PAUSE_MS 500

static void settle_now(struct hfi_call *call);

/* The count whose release leaves what the core believes to hold. */
static int64_t settled_from(const struct hfi_call *call) {
    return call->settle_release ? call->count : call->count + 1;
}

/* An acquire that may have left the owner in line. */
static bool gives_up(struct hfi_call *call) {
    return !call->settle_release && hfi_state_of(call)->kind->waiting->in_line;
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

/* The answer proves that the owner has nothing: it was another's; or this copy did not run, and there is no
 * other that may have. */
static bool means_nothing(struct hfi_call *call, const redisReply *reply) {
    const struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_acquire_answer answer;
    if (gives_up(call))
        return false;
    if (hfi_is_refusal(reply))
        return state->ghost_alone;
    return state->kind->read_acquire(call, reply, &answer) == HF_OK &&
           answer.verdict != HFI_ACQUIRED;
}

/* The cancelled command has been answered after all, so there is nothing to wait for. */
static void ghost_answered(struct hfi_call *call) {
    bool nothing = means_nothing(call, hfi_state_of(call)->ghost->reply);
    hfi_call_drop_ghost(call);
    if (nothing)
        hfi_call_finish(call, HF_OK);
    else
        settle_now(call);
}

/* False: it has not been answered, and if its connection was lost it never will be. Then the alarm is set to when no copy can
 * act any more. */
static bool heard_of_ghost(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->ghost == NULL || !atomic_load(&state->ghost->complete))
        return false;
    if (state->ghost->err == HF_OK)
        return true;
    hfi_call_drop_ghost(call);
    return false;
}

/* The loss of a connection and the alarm may come together, and neither comes again. */
static void step_settle_later(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    if ((events & state->ghost_event) != 0 && heard_of_ghost(call)) {
        ghost_answered(call);
    } else if ((events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange)) {
        hfi_call_drop_ghost(call);
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
    else if (err == HF_OK)
        err = state->kind->read_release(settled_from(call), hfi_answer_of(call), &answer);
    if (err == HF_OK && answer.not_notified)
        hfi_redis_notify_failed(&state->exchange);
    *ret_more = err == HF_OK && answer.more;
    return err == HF_EWRONGTYPE ? HF_OK : err; /* another type: nothing of ours is there */
}

static void settled(struct hfi_call *call) {
    bool more;
    int err = hfi_undo_read(call, &more);
    if (err == HF_OK) {
        hfi_line_finish(call, HF_OK, NULL, more);
        return;
    }
    int64_t again_ms = hfi_now_ms() + SETTLE_PAUSE_MS;
    if (err == HF_ECLOSED || again_ms >= call->deadline_ms)
        hfi_call_finish(call, err);
    else
        settle_at(call, again_ms);
}

static void settle_now(struct hfi_call *call) {
    hfi_call_send(call, hfi_undo_script(call), hfi_undo_write, settled);
}

/* The state is as the failed call has left it: with a request in it, perhaps. */
void hfi_settle(struct hfi_call *call) {
    struct hfi_call_state *state = call->state;
    struct hfi_req *ghost = state->ghost;
    struct hfi_node *ghost_node = state->ghost_node;
    unsigned ghost_event = state->ghost_event;
    bool alone = !call->leftover && !state->exchange.resent;
    memset(state, 0, sizeof *state);
    hfi_call_begin(call);
    state->settles = state->settling = true;
    state->cleanup = hfi_call_drop_ghost;
    state->exchange.retry = HFI_RETRY_PATIENTLY;
    state->ghost = ghost;
    state->ghost_node = ghost_node;
    state->ghost_event = ghost_event;
    state->ghost_alone = alone;
    if (state->kind->settle != NULL && !hfi_ticket_drawn(call)) {
        state->kind->settle(call);
        return;
    }
    if (ghost != NULL || hfi_now_ms() < call->ghost_until_ms)
        settle_at(call, call->ghost_until_ms);
    else
        settle_now(call);
    if (ghost != NULL && heard_of_ghost(call))
        ghost_answered(call); /* while nobody was looking */
}
