/*
 * Parking: an asynchronous acquire that only sleeps, kept in little memory.
 *
 * Called by src/core through the table of operations, on the thread of the call's executor. A
 * parked acquire has no call. Messages still go to its task, and the core resumes it on a message
 * or when its time has come. If it would attempt only because a message may be lost, a poll batch
 * checks the lock instead (poll_batch.c). Then the acquire sleeps to the end of its wait.
 *
 * Only for waiters on a pub/sub channel. A waiter in the fair queue has more state, and would have
 * to leave the queue if there were no memory to resume.
 */
#include "redis/wait/park.h"

#include "base/clock.h"
#include "redis/kinds/kind.h"
#include "redis/wait/wait_strategy.h"

static bool may_park(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    /* an acquire that yields before its first attempt has state that hfi_parked does not keep */
    return hfi_acquire_sleeps(call) && call->contended &&
           state->kind->waiting == &hfi_wait_subscribe && !state->kind->draws_idempotency_key &&
           call->lane != HFI_LANE_CALLER;
}

#define MOMENT_MS 500

/* The acquire sleeps for the longest interval there is, and a poll tells as much as an attempt. */
static bool may_poll(const struct hfi_call_state *state) {
    const struct hfi_redis *redis = state->exchange.redis;
    bool sleeps_long = state->exchange.wake_ms >= hfi_now_ms() + HFI_POLL_MAX_MS - MOMENT_MS;
    return sleeps_long && state->kind->key_means_held && state->u.acquire.subscribed &&
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
    parked->sleeps = narrow(state->u.acquire.sleeps);
    parked->fruitless = narrow(state->u.acquire.fruitless);
    parked->other_event = x->reply_event == HFI_EVENT_REPLY_B;
    parked->woken = state->u.acquire.woken;
    parked->subscribed = state->u.acquire.subscribed;
    parked->call_status = call->call_status;
    parked->name = call->name;
    parked->name_len = (uint32_t)call->name_len;
    if (may_poll(state)) {
        *ret_until_ms = call->deadline_ms;
        hfi_poll_batch_add(x->redis->poll_batch, parked);
    }
    hfi_exchange_end(x);
    state->step = NULL;
    return parked;
}

/* Takes it out of the poll batch. Returns when it has to attempt. */
static int64_t stop_polling(struct hfi_redis *redis, struct hfi_parked *parked,
                            int64_t deadline_ms) {
    if (!parked->in_poll_batch)
        return parked->until_ms;
    hfi_poll_batch_remove(redis->poll_batch, parked);
    return parked->due ? hfi_now_ms() : hfi_min_ms(parked->until_ms, deadline_ms);
}

void hfi_resume(struct hfi_call *call, struct hfi_parked *parked, unsigned events) {
    struct hfi_call_state *state = hfi_acquire_prepare(call);
    struct hfi_exchange *x = &state->exchange;
    int64_t until_ms = stop_polling(x->redis, parked, call->deadline_ms);
    call->contended = true;
    x->was_answered = true;
    x->reply_event = parked->other_event ? HFI_EVENT_REPLY_B : HFI_EVENT_REPLY_A;
    if (parked->home != NULL) {
        hfi_pubsub_move(&parked->waiter, &state->u.acquire.waiter);
        state->u.acquire.home = parked->home;
        x->node = hfi_node_ref(parked->home); /* the one that answered last */
    }
    state->u.acquire.ttl_ms = parked->ttl_ms;
    state->u.acquire.attempted_ms = parked->attempted_ms;
    state->u.acquire.sleeps = parked->sleeps;
    state->u.acquire.fruitless = parked->fruitless;
    state->u.acquire.woken = parked->woken;
    state->u.acquire.subscribed = parked->subscribed;
    hfi_free(x->redis->mem, parked);
    hfi_acquire_sleep_on(call, until_ms, events);
}

void hfi_unpark(struct hfi_engine *engine, struct hfi_parked *parked) {
    struct hfi_redis *redis = hfi_redis_of(engine);
    stop_polling(redis, parked, HFI_NEVER);
    if (parked->home != NULL) {
        hfi_pubsub_leave(&parked->waiter);
        hfi_node_unref(parked->home);
    }
    hfi_free(redis->mem, parked);
}
