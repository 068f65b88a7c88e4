/*
 * Yielding after a release: remote waiters go first, so a plain lock, which has no queue at the
 * server, still goes round.
 *
 * A release is published to all subscribers, and its reply says how many there are. The client that
 * has just released is nearest to the server, and would have the lock again before any of them. So
 * if it acquires again at once, it yields:
 *
 *     release, n others ──▶ acquire: sleeps ──release message──▶ the same, n times ──▶ attempt
 *                                   └──no release message within yield_ms──▶ attempt
 *
 * Clients that all do this take turns, and few clients instead of all attempt after each release.
 * The cost is bounded. An attempt comes yield_ms after each message at the latest, and gets the
 * lock unless another client has it. A call lets at most n messages pass, and yields for at most a
 * quarter of its wait. A subscriber may not be waiting, since subscriptions linger. If no other
 * client used the turn, the client does not yield for a while, which doubles each time.
 *
 * A call never yields if it attempts only once, if its owner holds the lock already, or if the
 * release had no subscribers. The quota belongs to the channel (pubsub_yield.c), so to the client;
 * all else runs on the thread of the call's executor.
 */
#include "base/clock.h"
#include "redis/kinds/kind.h"
#include "redis/wait/wait_strategy.h"

#define CHANNEL_SMALL 512
#define YIELD_MIN_MS 2  /* the clock has whole milliseconds only */
#define YIELD_MAX_MS 20 /* no matter how long the server took to answer */
#define WAIT_MIN_MS 40  /* a call with a shorter wait does not yield */
#define WAIT_PART 4     /* a call yields for at most 1/WAIT_PART of its wait */

/* The message takes others as long to arrive as the reply took us, and their attempt as long
 * again. */
static int64_t yield_ms_after(const struct hfi_exchange *x) {
    return hfi_min_ms(YIELD_MIN_MS + 2 * (hfi_now_ms() - x->sent_ms), YIELD_MAX_MS);
}

/* In a cluster without sharded channels, subscribers at other servers get the message, but are not
 * counted. */
static bool are_all_counted(const struct hfi_redis *redis) {
    return !hfi_route_has_slots(redis->route) || hfi_redis_is_sharded(redis);
}

enum hfi_others hfi_yield_quota(struct hfi_call *call, int notified) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis *redis = state->exchange.redis;
    char name[CHANNEL_SMALL];
    if (notified == 0)
        return are_all_counted(redis) ? HFI_OTHERS_NONE : HFI_OTHERS_UNKNOWN;
    size_t len = state->kind->channel(redis, call, NULL);
    if (len > sizeof name)
        return HFI_OTHERS_UNKNOWN;
    state->kind->channel(redis, call, name);
    enum hfi_others others =
        hfi_pubsub_set_yield(hfi_node_learnt(state->exchange.node)->pubsub, name, len, notified,
                             state->exchange.sent_ms, yield_ms_after(&state->exchange));
    if (others == HFI_OTHERS_FIRST)
        atomic_store_explicit(&redis->yields_since_ms, hfi_now_ms(), memory_order_relaxed);
    return others;
}

/* One load from memory if no other client waits. */
static bool recently_notified(struct hfi_redis *redis) {
    int64_t since_ms = atomic_load_explicit(&redis->yields_since_ms, memory_order_relaxed);
    return since_ms != 0 && hfi_now_ms() - since_ms < YIELD_MAX_MS;
}

static bool may_yield(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    return state->kind->yields_after_release && recently_notified(state->exchange.redis) &&
           call->count == 0 && call->deadline_ms - call->start_ms >= WAIT_MIN_MS;
}

/* Subscribes before the first attempt. The message of our own release does not count. */
static bool listen_early(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    struct hfi_node *node = hfi_redis_node_for(x->redis, x->name, x->name_len);
    if (node == NULL)
        return false;
    if (call->lane == HFI_LANE_CALLER)
        hfi_pubsub_catch_up(hfi_node_learnt(node)->pubsub, call->task->exec);
    hfi_node_unref(node);
    hfi_listen_if_subscribed(call);
    return state->u.acquire.home != NULL;
}

static int64_t end_ms(const struct hfi_call *call) {
    if (call->deadline_ms == HFI_NEVER)
        return HFI_NEVER;
    return call->start_ms + (call->deadline_ms - call->start_ms) / WAIT_PART;
}

/* Cohorts yield to every notified subscriber, others to half of them. A subscriber may not be
 * waiting, and if everyone yielded to all, the lock would sit idle. */
static int yield_quota_of(const struct hfi_call *call, const struct hfi_yield *yield_quota) {
    return call->yields_to_all ? yield_quota->others : (yield_quota->others + 1) / 2;
}

bool hfi_yield_begin(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_yield yield_quota;
    if (!may_yield(call) || !listen_early(call) ||
        !hfi_pubsub_take_yield(&state->u.acquire.waiter, &yield_quota))
        return false;
    int64_t until_ms = hfi_min_ms(yield_quota.since_ms + yield_quota.yield_ms, end_ms(call));
    if (hfi_now_ms() >= until_ms)
        return false;
    state->u.acquire.yield_quota = state->u.acquire.yields_left =
        (uint16_t)yield_quota_of(call, &yield_quota);
    state->u.acquire.yield_ms = (uint16_t)yield_quota.yield_ms;
    state->u.acquire.own_message = yield_quota.own;
    hfi_exchange_sleep(&state->exchange, until_ms);
    return true;
}

bool hfi_yield_lets_pass(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->u.acquire.yields_left == 0)
        return false;
    if (state->u.acquire.own_message) {
        state->u.acquire.own_message = state->u.acquire.woken = false;
        hfi_exchange_sleep(&state->exchange, state->exchange.wake_ms);
        return true;
    }
    int64_t until_ms = hfi_min_ms(hfi_now_ms() + state->u.acquire.yield_ms, end_ms(call));
    if (--state->u.acquire.yields_left == 0 || hfi_now_ms() >= until_ms)
        return false;
    state->u.acquire.woken = false;
    hfi_exchange_sleep(&state->exchange, until_ms);
    return true;
}

void hfi_yield_end(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int passed = state->u.acquire.yield_quota - state->u.acquire.yields_left;
    if (state->u.acquire.yield_quota == 0 || state->u.acquire.home == NULL)
        return;
    bool all = state->u.acquire.yields_left == 0;
    hfi_pubsub_yielded(&state->u.acquire.waiter, passed > 0 || call->contended,
                       all || !call->yields_to_all ? 0 : passed + 1);
}
