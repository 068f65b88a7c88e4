/*
 * Waiting for a message: the channel of the lock, and sleeping until something is published there.
 *
 * Used by acquire.c through the table, and by the other manners that listen, on the thread of the
 * call's executor. A message is only ever a hint: a sleep also ends when the holder's lease does,
 * and after HFI_POLL_MAX_MS at the latest. If the server does not let us listen, or takes too long to
 * confirm, we poll instead.
 */
#include "base/backoff.h"
#include "base/chance.h"
#include "base/clock.h"
#include "redis/kind.h"
#include "redis/waiting.h"

#define CHANNEL_SMALL 512

/* For waiters that want to listen, but whose subscription is not confirmed. */
static const struct hfi_backoff deaf = {.first_ms = 20, .max_ms = 1000, .factor = 2};
/* For those who were sent after a lock while its slot moves: over there it is published, and yet they cannot
 * subscribe. (Behind ASKING they could, but a connection with subscriptions may not say that.) */
static const struct hfi_backoff astray = {.first_ms = 20, .max_ms = 250, .factor = 2};

/* Joins the channel at a node; with `heard_only` only if it is already subscribed. Takes over the
 * reference if it does. */
static int join_at(struct hfi_call *call, struct hfi_node *node, const char *name, size_t len,
                   bool heard_only) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_pubsub *pubsub = hfi_node_learnt(node)->pubsub;
    struct hfi_waiter *waiter = &state->u.acquire.waiter;
    bool *heard = &state->u.acquire.heard;
    int err = HF_OK;
    waiter->sharded = hfi_redis_is_sharded(state->exchange.redis);
    if (call->lane == HFI_LANE_CALLER)
        waiter->caller = &state->exchange.attendant;
    if (heard_only)
        *heard = hfi_pubsub_join_heard(pubsub, waiter, call->task, name, len);
    else
        err = hfi_pubsub_join(pubsub, waiter, call->task, name, len, heard);
    if (err == HF_OK && (*heard || !heard_only))
        state->u.acquire.home = node;
    return err;
}

static int join_channel(struct hfi_call *call, struct hfi_node *node, bool heard_only) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis *redis = state->exchange.redis;
    char small[CHANNEL_SMALL], *name = small;
    size_t len = state->kind->channel(redis, call, NULL);
    if (len > sizeof small)
        name = hfi_alloc(redis->mem, len);
    int err = HF_ENOMEM;
    if (name != NULL) {
        state->kind->channel(redis, call, name);
        err = join_at(call, node, name, len, heard_only);
    }
    if (name != small)
        hfi_free(redis->mem, name);
    if (state->u.acquire.home == NULL)
        hfi_node_unref(node);
    return err;
}

void hfi_listen_if_heard(struct hfi_call *call) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    struct hfi_node *node = hfi_redis_aim(x->redis, x->name, x->name_len);
    if (node != NULL)
        join_channel(call, node, true); /* without memory it joins when it has to wait */
}

enum hfi_told hfi_listen_begin(struct hfi_call *call, int64_t *ret_patience_ms) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_node *node = hfi_node_ref(state->exchange.node); /* which has just answered */
    if (call->lane == HFI_LANE_CALLER)
        hfi_pubsub_catch_up(hfi_node_learnt(node)->pubsub, call->task->exec);
    if (join_channel(call, node, false) != HF_OK)
        return HFI_TOLD_NOT; /* without memory for a subscription it can still poll */
    *ret_patience_ms = state->exchange.redis->cmd_timeout_ms;
    if (state->u.acquire.ttl_ms >= 0)
        *ret_patience_ms = hfi_min_ms(*ret_patience_ms, state->u.acquire.ttl_ms + 1);
    return state->u.acquire.heard ? HFI_TOLD : HFI_TOLD_SOON;
}

int64_t hfi_listen_poll_ms(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->u.acquire.heard)
        return HFI_POLL_MAX_MS;
    bool moves = state->u.acquire.home != NULL && hfi_pubsub_again(&state->u.acquire.waiter);
    return hfi_backoff_ms(moves ? &astray : &deaf, state->u.acquire.naps++, hfi_throw_dice(state));
}

int64_t hfi_listen_nap_ms(struct hfi_call *call) {
    int64_t nap_ms = hfi_listen_poll_ms(call);
    int64_t ttl_ms = hfi_state_of(call)->u.acquire.ttl_ms;
    return ttl_ms >= 0 ? hfi_min_ms(nap_ms, ttl_ms + 1) : nap_ms;
}

void hfi_listen_left(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->u.acquire.home == NULL)
        return;
    hfi_pubsub_leave(&state->u.acquire.waiter);
    hfi_node_unref(state->u.acquire.home);
    state->u.acquire.home = NULL;
    state->u.acquire.heard = false; /* if there is no memory to listen elsewhere, it polls */
}

const struct hfi_waiting hfi_waiting_listen = {
    .begin = hfi_listen_begin,
    .nap_ms = hfi_listen_nap_ms,
    .left = hfi_listen_left,
};
