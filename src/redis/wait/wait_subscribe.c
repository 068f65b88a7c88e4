/*
 * The wait strategy of pub/sub: subscribe to the lock's channel, and sleep until a message.
 *
 * Used by acquire.c through the table, and by the other strategies that subscribe, on the thread of
 * the call's executor. A message is only ever a hint: a sleep also ends when the holder's lease
 * does, and after HFI_POLL_MAX_MS at the latest. If the server refuses the subscription, or takes
 * too long to confirm it, the waiter polls instead.
 */
#include "base/backoff.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "redis/kinds/kind.h"
#include "redis/wait/wait_strategy.h"

#define CHANNEL_SMALL 512

/* For waiters whose subscription is refused, or not confirmed. */
static const struct hfi_backoff refused = {.first_ms = 20, .max_ms = 1000, .factor = 2};
/* For waiters that follow a redirect of a lock whose slot is being migrated. Releases are published
 * at the new node, but we cannot subscribe there yet. (Behind ASKING we could, but a connection
 * with subscriptions may not send that.) */
static const struct hfi_backoff moved = {.first_ms = 20, .max_ms = 250, .factor = 2};

/* Joins the channel at a node; with `if_subscribed` only if it is already subscribed. If it joins, it
 * takes over the reference. */
static int join_at(struct hfi_call *call, struct hfi_node *node, const char *name, size_t len,
                   bool if_subscribed) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_pubsub *pubsub = hfi_node_learnt(node)->pubsub;
    struct hfi_waiter *waiter = &state->u.acquire.waiter;
    bool *subscribed = &state->u.acquire.subscribed;
    int err = HF_OK;
    waiter->sharded = hfi_redis_is_sharded(state->exchange.redis);
    if (call->lane == HFI_LANE_CALLER)
        waiter->caller = &state->exchange.sync_caller;
    if (if_subscribed)
        *subscribed = hfi_pubsub_join_subscribed(pubsub, waiter, call->task, name, len);
    else
        err = hfi_pubsub_join(pubsub, waiter, call->task, name, len, subscribed);
    if (err == HF_OK && (*subscribed || !if_subscribed))
        state->u.acquire.home = node;
    return err;
}

static int join_channel(struct hfi_call *call, struct hfi_node *node, bool if_subscribed) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis *redis = state->exchange.redis;
    char small[CHANNEL_SMALL], *name = small;
    size_t len = state->kind->channel(redis, call, NULL);
    if (len > sizeof small)
        name = hfi_alloc(redis->mem, len);
    int err = HF_ENOMEM;
    if (name != NULL) {
        state->kind->channel(redis, call, name);
        err = join_at(call, node, name, len, if_subscribed);
    }
    if (name != small)
        hfi_free(redis->mem, name);
    if (state->u.acquire.home == NULL)
        hfi_node_unref(node);
    return err;
}

void hfi_listen_if_subscribed(struct hfi_call *call) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    struct hfi_node *node = hfi_redis_node_for(x->redis, x->name, x->name_len);
    if (node != NULL)
        join_channel(call, node, true); /* without memory it joins when it has to wait */
}

enum hfi_notified_when hfi_listen_begin(struct hfi_call *call, int64_t *ret_subscribe_timeout_ms) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_node *node = hfi_node_ref(state->exchange.node); /* the one that has just answered */
    if (call->lane == HFI_LANE_CALLER)
        hfi_pubsub_catch_up(hfi_node_learnt(node)->pubsub, call->task->exec);
    if (join_channel(call, node, false) != HF_OK)
        return HFI_NOTIFIED_NEVER; /* without memory for a subscription it can still poll */
    *ret_subscribe_timeout_ms = state->exchange.redis->cmd_timeout_ms;
    if (state->u.acquire.ttl_ms >= 0)
        *ret_subscribe_timeout_ms =
            hfi_min_ms(*ret_subscribe_timeout_ms, state->u.acquire.ttl_ms + 1);
    return state->u.acquire.subscribed ? HFI_NOTIFIED : HFI_NOTIFIED_SOON;
}

int64_t hfi_listen_poll_ms(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->u.acquire.subscribed)
        return HFI_POLL_MAX_MS;
    bool moves = state->u.acquire.home != NULL && hfi_pubsub_again(&state->u.acquire.waiter);
    return hfi_backoff_ms(moves ? &moved : &refused, state->u.acquire.sleeps++,
                          hfi_jitter_bits(state));
}

int64_t hfi_listen_sleep_ms(struct hfi_call *call) {
    int64_t sleep_ms = hfi_listen_poll_ms(call);
    int64_t ttl_ms = hfi_state_of(call)->u.acquire.ttl_ms;
    return ttl_ms >= 0 ? hfi_min_ms(sleep_ms, ttl_ms + 1) : sleep_ms;
}

void hfi_listen_end(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->u.acquire.home == NULL)
        return;
    hfi_pubsub_leave(&state->u.acquire.waiter);
    hfi_node_unref(state->u.acquire.home);
    state->u.acquire.home = NULL;
    state->u.acquire.subscribed =
        false; /* if there is no memory to subscribe elsewhere, it polls */
}

const struct hfi_wait_strategy hfi_wait_subscribe = {
    .begin = hfi_listen_begin,
    .sleep_ms = hfi_listen_sleep_ms,
    .end = hfi_listen_end,
};
