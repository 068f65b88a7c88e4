/*
 * An acquire that too few replicas have acknowledged: it is undone, and attempted again.
 *
 *   attempt -> ours, but too few acks: undo -> pause -> attempt
 *
 * Part of acquire.c, on the thread of the call's executor. Between two attempts the lock is free
 * for others, some of which need no acks. If there is no time for another attempt, or the undo is
 * not answered, the call ends unsettled. The core then settles it like any acquire with an unknown
 * outcome.
 */
#include "base/backoff.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "redis/kinds/kind.h"
#include "redis/ops/call.h"

static const struct hfi_backoff backoff = {.first_ms = 50, .max_ms = 1000, .factor = 2};

static void fail(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_call_finish(call, hfi_acks_fail(&state->exchange, &call->error));
}

/* Even an unlimited wait ends when acks have been missing for as long as a server may be
 * unreachable. */
static int64_t ack_deadline_ms(const struct hfi_call_state *state) {
    const struct hfi_redis *redis = state->exchange.redis;
    return hfi_after_ms(state->u.acquire.unacked_ms, hfi_route_changes(redis->route)
                                                         ? redis->failover_timeout_ms
                                                         : redis->connect_timeout_ms);
}

static int64_t pause_ends_ms(const struct hfi_call_state *state) {
    unsigned before = state->u.acquire.unacked - 1;
    return hfi_now_ms() + hfi_backoff_spread_ms(&backoff, before, hfi_jitter_bits(state));
}

static void step_paused(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_acquire_on_events(state, events);
    if ((events & HFI_EVENT_TIMER) == 0 || !hfi_exchange_woken(&state->exchange))
        return;
    /* the alarm came late: the reason is still missing acks, not another holder */
    if (hfi_now_ms() >= call->deadline_ms)
        fail(call);
    else
        hfi_acquire_again(call);
}

static void undone(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    /* not used: waiters behind dead ones sweep those themselves */
    bool more;
    int err = hfi_undo_read(call, &more);
    if (err == HF_ECLOSED) {
        hfi_call_finish(call, err);
        return;
    }
    if (err != HF_OK) {
        fail(call);
        return;
    }
    state->unacked = false;
    state->u.acquire.fair_waiter.queued = state->u.acquire.fair_waiter.granted = false;
    state->u.acquire.fair_waiter.arrival = state->u.acquire.fair_waiter.position = 0;
    int64_t until_ms = pause_ends_ms(state);
    if (until_ms >= call->deadline_ms || until_ms >= ack_deadline_ms(state)) {
        fail(call);
        return;
    }
    state->step = step_paused;
    hfi_exchange_sleep(&state->exchange, until_ms);
}

static void step_undoing(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_acquire_on_events(state, events);
    if (hfi_exchange_step(&state->exchange, events) == HFI_FINISHED)
        undone(call);
}

static void undo(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    state->acquiring = false; /* if it is cancelled, its reply is not that of an acquire */
    state->step = step_undoing;
    x->script = hfi_undo_script(call);
    x->write = hfi_undo_write;
    x->acks.asked = 0;
    x->copy_lost = NULL;
    hfi_exchange_choose_by(x, state->kind->choose_release);
    x->limit_ms = hfi_after_ms(hfi_now_ms(), x->redis->cmd_timeout_ms);
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        undone(call);
}

void hfi_acquire_unacked(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int64_t now_ms = hfi_now_ms();
    state->unacked = true;
    if (state->u.acquire.unacked_ms == 0) {
        state->u.acquire.unacked_ms = now_ms;
        state->u.acquire.unacked = 0;
    }
    state->u.acquire.unacked++;
    if (now_ms >= call->deadline_ms || now_ms >= ack_deadline_ms(state))
        fail(call);
    else
        undo(call);
}
