/*
 * An acquire that only sleeps, as small as can be.
 *
 * Called by src/core through the table of operations, on the thread of the call's executor. While it
 * is parked there is no call: messages still come to its task, and the core resumes it then, or when
 * its time has come.
 *
 * Only for those who wait for a message: who stands in line at the server has more to remember, and
 * would have to leave the line if there were no memory to go on.
 */
#include "base/clock.h"
#include "redis/kind.h"
#include "redis/waiting.h"

struct hfi_parked {
    struct hfi_waiter waiter;
    struct hfi_redis *redis;
    struct hfi_node *home; /* where it listens, with a reference; NULL: nowhere */
    int64_t until_ms;
    int64_t ttl_ms, attempted_ms; /* as struct hfi_call_state has them, like the rest */
    unsigned naps, fruitless, reply_event;
    bool woken, heard;
};

static bool may_park(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    return hfi_acquire_sleeps(call) && state->kind->waiting == &hfi_waiting_listen &&
           !state->kind->draws_tickets && call->lane != HFI_LANE_CALLER;
}

struct hfi_parked *hfi_park(struct hfi_call *call, int64_t *ret_until_ms) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    struct hfi_parked *parked = may_park(call) ? hfi_zalloc(x->redis->mem, sizeof *parked) : NULL;
    if (parked == NULL)
        return NULL;
    parked->redis = x->redis;
    parked->home = state->u.acquire.home;
    if (parked->home != NULL)
        hfi_pubsub_move(&state->u.acquire.waiter, &parked->waiter);
    parked->until_ms = *ret_until_ms = x->wake_ms;
    parked->ttl_ms = state->u.acquire.ttl_ms;
    parked->attempted_ms = state->u.acquire.attempted_ms;
    parked->naps = state->u.acquire.naps;
    parked->fruitless = state->u.acquire.fruitless;
    parked->reply_event = x->reply_event;
    parked->woken = state->u.acquire.woken;
    parked->heard = state->u.acquire.heard;
    hfi_exchange_end(x);
    state->step = NULL;
    return parked;
}

void hfi_resume(struct hfi_call *call, struct hfi_parked *parked, unsigned events) {
    struct hfi_call_state *state = hfi_acquire_prepare(call);
    struct hfi_exchange *x = &state->exchange;
    int64_t until_ms = parked->until_ms;
    call->contended = true;
    x->was_answered = true;
    x->reply_event = parked->reply_event;
    if (parked->home != NULL) {
        hfi_pubsub_move(&parked->waiter, &state->u.acquire.waiter);
        state->u.acquire.home = parked->home;
        x->node = hfi_node_ref(parked->home); /* which has answered last */
    }
    state->u.acquire.ttl_ms = parked->ttl_ms;
    state->u.acquire.attempted_ms = parked->attempted_ms;
    state->u.acquire.naps = parked->naps;
    state->u.acquire.fruitless = parked->fruitless;
    state->u.acquire.woken = parked->woken;
    state->u.acquire.heard = parked->heard;
    hfi_free(parked->redis->mem, parked);
    hfi_acquire_sleep_on(call, until_ms, events);
}

void hfi_unpark(struct hfi_parked *parked) {
    if (parked->home != NULL) {
        hfi_pubsub_leave(&parked->waiter);
        hfi_node_unref(parked->home);
    }
    hfi_free(parked->redis->mem, parked);
}
