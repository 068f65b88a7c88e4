/*
 * An acquire that only sleeps, as small as can be.
 *
 * Called by src/core through the table of operations, on the thread of the call's executor. While it
 * is parked there is no call: messages still come to its task, and the core resumes it then, or when
 * its time has come. If there is no other reason to ask than that messages may be lost, others ask
 * in its place (looks.c), and it sleeps to the end of its wait.
 *
 * Only for those who wait for a message: who stands in line at the server has more to remember, and
 * would have to leave the line if there were no memory to go on.
 */
#include "redis/park.h"

#include "base/clock.h"
#include "redis/kind.h"
#include "redis/waiting.h"

static bool may_park(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    /* before its first attempt it stands back for others, and has that to remember */
    return hfi_acquire_sleeps(call) && call->contended &&
           state->kind->waiting == &hfi_waiting_listen && !state->kind->draws_tickets &&
           call->lane != HFI_LANE_CALLER;
}

#define MOMENT_MS 500

/* It sleeps for as long as anybody may, and a look tells as much as an attempt would. */
static bool may_look(const struct hfi_call_state *state) {
    const struct hfi_redis *redis = state->exchange.redis;
    bool sleeps_long = state->exchange.wake_ms >= hfi_now_ms() + HFI_POLL_MAX_MS - MOMENT_MS;
    return sleeps_long && state->kind->key_tells && state->u.acquire.heard &&
           !state->u.acquire.woken && state->u.acquire.ttl_ms >= HFI_POLL_MAX_MS &&
           state->u.acquire.home != NULL && !hfi_route_has_slots(redis->route) &&
           !hfi_node_learnt(state->u.acquire.home)->in_slots && !atomic_load(&redis->stopped);
}

static uint16_t narrow(unsigned number) {
    return number < UINT16_MAX ? (uint16_t)number : UINT16_MAX;
}

struct hfi_parked *hfi_park(struct hfi_call *call, int64_t *ret_until_ms) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    struct hfi_parked *parked = may_park(call) ? hfi_zalloc(x->redis->mem, sizeof *parked) : NULL;
    if (parked == NULL)
        return NULL;
    parked->home = state->u.acquire.home;
    if (parked->home != NULL)
        hfi_pubsub_move(&state->u.acquire.waiter, &parked->waiter);
    parked->until_ms = *ret_until_ms = x->wake_ms;
    parked->ttl_ms = state->u.acquire.ttl_ms;
    parked->attempted_ms = state->u.acquire.attempted_ms;
    parked->naps = narrow(state->u.acquire.naps);
    parked->fruitless = narrow(state->u.acquire.fruitless);
    parked->other_event = x->reply_event == HFI_EVENT_REPLY_B;
    parked->woken = state->u.acquire.woken;
    parked->heard = state->u.acquire.heard;
    parked->signs = call->signs;
    parked->name = call->name;
    parked->name_len = (uint32_t)call->name_len;
    if (may_look(state)) {
        *ret_until_ms = call->deadline_ms;
        hfi_looks_add(x->redis->looks, parked);
    }
    hfi_exchange_end(x);
    state->step = NULL;
    return parked;
}

/* Nobody looks in its place any more. When it has to attempt. */
static int64_t stop_looking(struct hfi_redis *redis, struct hfi_parked *parked,
                            int64_t deadline_ms) {
    if (!parked->looks)
        return parked->until_ms;
    hfi_looks_remove(redis->looks, parked);
    return parked->due ? hfi_now_ms() : hfi_min_ms(parked->until_ms, deadline_ms);
}

void hfi_resume(struct hfi_call *call, struct hfi_parked *parked, unsigned events) {
    struct hfi_call_state *state = hfi_acquire_prepare(call);
    struct hfi_exchange *x = &state->exchange;
    int64_t until_ms = stop_looking(x->redis, parked, call->deadline_ms);
    call->contended = true;
    x->was_answered = true;
    x->reply_event = parked->other_event ? HFI_EVENT_REPLY_B : HFI_EVENT_REPLY_A;
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
    hfi_free(x->redis->mem, parked);
    hfi_acquire_sleep_on(call, until_ms, events);
}

void hfi_unpark(struct hfi_engine *engine, struct hfi_parked *parked) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    stop_looking(redis, parked, HFI_NEVER);
    if (parked->home != NULL) {
        hfi_pubsub_leave(&parked->waiter);
        hfi_node_unref(parked->home);
    }
    hfi_free(redis->mem, parked);
}
