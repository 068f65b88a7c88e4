/*
 * Those who wait elsewhere go first: how a plain lock, for which the server keeps no line, goes round.
 *
 * A release is told to all who listen, and the answer says how many those are. Whoever has just released is
 * nearest to the server, and would have the lock again before any of them. So if it comes again at once, it
 * stands back:
 *
 *     release, told to n others ──▶ acquire: sleeps ──message of a release──▶ the same, n times ──▶ attempt
 *                                             └──nobody else took it within stand_ms──▶ attempt
 *
 * Clients that all do this take turns, and each release is followed by few attempts instead of one of every
 * client. What it may cost is bounded: an attempt comes stand_ms after each message at the latest, and then has the
 * lock unless somebody else does; n messages are let pass at most, and a quarter of the wait. Who listens need
 * not wait: a subscription lingers. If standing back was in vain, it is not done again for a while, which
 * doubles each time.
 *
 * Never for a single attempt, for whoever holds the lock already, or when nobody was told. What is owed is a property of the
 * channel (pubsub.c), so of the client; the rest runs on the thread of the call's executor.
 */
#include "base/clock.h"
#include "redis/kind.h"
#include "redis/waiting.h"

#define CHANNEL_SMALL 512
#define STAND_MIN_MS 2  /* the clock knows whole milliseconds only */
#define STAND_MAX_MS 20 /* however long the server took to answer */
#define WAIT_MIN_MS 40  /* who waits less than this makes the most of it */
#define WAIT_PART 4     /* of its wait a call stands back for no more than one of so many parts */

/* Others need as long as we did to hear of it, and as long again to ask. */
static int64_t stand_ms_after(const struct hfi_exchange *x) {
    return hfi_min_ms(STAND_MIN_MS + 2 * (hfi_now_ms() - x->sent_ms), STAND_MAX_MS);
}

/* In a cluster without sharded channels those who listen at another server are told as well, and not counted. */
static bool are_all_counted(const struct hfi_redis *redis) {
    return !hfi_route_has_slots(redis->route) || hfi_redis_is_sharded(redis);
}

enum hfi_others hfi_courtesy_owed(struct hfi_call *call, int told) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis *redis = state->exchange.redis;
    char name[CHANNEL_SMALL];
    if (told == 0)
        return are_all_counted(redis) ? HFI_OTHERS_NONE : HFI_OTHERS_UNKNOWN;
    size_t len = state->kind->channel(redis, call, NULL);
    if (len > sizeof name)
        return HFI_OTHERS_UNKNOWN;
    state->kind->channel(redis, call, name);
    enum hfi_others others =
        hfi_pubsub_owe(hfi_node_learnt(state->exchange.node)->pubsub, name, len, told,
                       state->exchange.sent_ms, stand_ms_after(&state->exchange));
    if (others == HFI_OTHERS_FIRST)
        atomic_store_explicit(&redis->owes_ms, hfi_now_ms(), memory_order_relaxed);
    return others;
}

/* One reading of memory, where nobody else wants anything. */
static bool owes_somebody(struct hfi_redis *redis) {
    int64_t since_ms = atomic_load_explicit(&redis->owes_ms, memory_order_relaxed);
    return since_ms != 0 && hfi_now_ms() - since_ms < STAND_MAX_MS;
}

static bool may_stand_back(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    return state->kind->goes_round && owes_somebody(state->exchange.redis) && call->count == 0 &&
           call->deadline_ms - call->start_ms >= WAIT_MIN_MS;
}

/* It listens from the beginning. The message of our own release is not for it. */
static bool listen_early(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    struct hfi_node *node = hfi_redis_aim(x->redis, x->name, x->name_len);
    if (node == NULL)
        return false;
    if (call->lane == HFI_LANE_CALLER)
        hfi_pubsub_catch_up(hfi_node_learnt(node)->pubsub, call->task->exec);
    hfi_node_unref(node);
    hfi_listen_if_heard(call);
    return state->u.acquire.home != NULL;
}

static int64_t end_ms(const struct hfi_call *call) {
    if (call->deadline_ms == HFI_NEVER)
        return HFI_NEVER;
    return call->start_ms + (call->deadline_ms - call->start_ms) / WAIT_PART;
}

/* All of those who were told, or every second: whoever listens need not wait, and where all stood back for too many nobody
 * would come at once. */
static int owed_of(const struct hfi_call *call, const struct hfi_debt *debt) {
    return call->goes_last ? debt->others : (debt->others + 1) / 2;
}

bool hfi_courtesy_begin(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_debt debt;
    if (!may_stand_back(call) || !listen_early(call) ||
        !hfi_pubsub_take_debt(&state->u.acquire.waiter, &debt))
        return false;
    int64_t until_ms = hfi_min_ms(debt.since_ms + debt.stand_ms, end_ms(call));
    if (hfi_now_ms() >= until_ms)
        return false;
    state->u.acquire.owed = state->u.acquire.lets_pass = (uint16_t)owed_of(call, &debt);
    state->u.acquire.stand_ms = (uint16_t)debt.stand_ms;
    state->u.acquire.own_message = debt.own;
    hfi_exchange_sleep(&state->exchange, until_ms);
    return true;
}

bool hfi_courtesy_lets_pass(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->u.acquire.lets_pass == 0)
        return false;
    if (state->u.acquire.own_message) {
        state->u.acquire.own_message = state->u.acquire.woken = false;
        hfi_exchange_sleep(&state->exchange, state->exchange.wake_ms);
        return true;
    }
    int64_t until_ms = hfi_min_ms(hfi_now_ms() + state->u.acquire.stand_ms, end_ms(call));
    if (--state->u.acquire.lets_pass == 0 || hfi_now_ms() >= until_ms)
        return false;
    state->u.acquire.woken = false;
    hfi_exchange_sleep(&state->exchange, until_ms);
    return true;
}

void hfi_courtesy_end(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int passed = state->u.acquire.owed - state->u.acquire.lets_pass;
    if (state->u.acquire.owed == 0 || state->u.acquire.home == NULL)
        return;
    bool all = state->u.acquire.lets_pass == 0;
    hfi_pubsub_stood_back(&state->u.acquire.waiter, passed > 0 || call->contended,
                          all || !call->goes_last ? 0 : passed + 1);
}
