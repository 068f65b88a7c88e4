/*
 * How long an exchange has patience with servers that are of no help; and its timer.
 *
 * Called by exchange.c on the thread of the exchange's task; no state of its own.
 */
#include "base/backoff.h"
#include "base/chance.h"
#include "base/clock.h"
#include "redis/exchange.h"
#include "redis/internal.h"

/* The same where another server may take over. As long as somebody says anything, wherever, there is
 * hope for that; but not for ever. */
static int64_t forsaken_at_ms(const struct hfi_exchange *x, int64_t answer_ms) {
    struct hfi_route *route = x->redis->route;
    int64_t since_ms = hfi_max_ms(x->start_ms, answer_ms),
            patience_ms = x->redis->failover_timeout_ms;
    int64_t heard_ms = hfi_max_ms(since_ms, route->ops->heard_ms(route));
    int64_t at_ms =
        hfi_min_ms(hfi_after_ms(heard_ms, x->silence_ms), hfi_after_ms(since_ms, patience_ms));
    if (x->refused_since_ms == 0)
        return at_ms;
    return hfi_min_ms(at_ms, hfi_after_ms(x->refused_since_ms, patience_ms));
}

int64_t hfi_exchange_silent_at_ms(const struct hfi_exchange *x) {
    if (x->silence_ms == HFI_NEVER)
        return HFI_NEVER;
    int64_t answer_ms = x->node != NULL ? hfi_node_last_answer_ms(x->node) : 0;
    if (hfi_route_changes(x->redis->route))
        return forsaken_at_ms(x, answer_ms);
    int64_t silent_ms = hfi_after_ms(hfi_max_ms(x->start_ms, answer_ms), x->silence_ms);
    if (x->refused_since_ms == 0)
        return silent_ms;
    return hfi_min_ms(silent_ms, hfi_after_ms(x->refused_since_ms, x->silence_ms));
}

/* Where another server may take over, a connection that cannot be made is not worth a long pause: it has pauses of its own, and
 * who waits for it is told at once when it is given up for another. */
int64_t hfi_exchange_pause_ms(struct hfi_exchange *x) {
    static const struct hfi_backoff backoff = {.first_ms = 20, .max_ms = 500, .factor = 2};
    static const struct hfi_backoff brief = {.first_ms = 20, .max_ms = 20, .factor = 1};
    bool unreached = x->trouble == HF_EUNREACH && hfi_exchange_may_move(x);
    return hfi_backoff_spread_ms(unreached ? &brief : &backoff, x->tries++, hfi_throw_dice(x));
}

bool hfi_exchange_may_move(const struct hfi_exchange *x) {
    const struct hfi_route *route = x->redis->route;
    return hfi_route_changes(route) && atomic_load_explicit(&route->found, memory_order_relaxed);
}

bool hfi_exchange_may_pass(const struct hfi_exchange *x, enum hfi_remedy remedy) {
    const struct hfi_route *route = x->redis->route;
    bool elsewhere = remedy == HFI_REMEDY_ELSEWHERE, moves = remedy == HFI_REMEDY_WAIT_MOVE;
    bool patient = x->retry == HFI_RETRY_PATIENTLY || (elsewhere && hfi_node_may_change(x->node)) ||
                   (moves && hfi_route_has_slots(route));
    return x->retry != HFI_RETRY_NONE &&
           (remedy == HFI_REMEDY_WAIT ||
            ((elsewhere || moves || remedy == HFI_REMEDY_WAIT_PATIENT) && patient));
}

/* ---- Timer ---- */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(HFI_CONTAINER(alarm, struct hfi_exchange, alarm)->task, HFI_EVENT_TIMER);
}

void hfi_exchange_sleep(struct hfi_exchange *x, int64_t at_ms) {
    if (x->alarm_exec != NULL && x->alarm_exec != x->task->exec)
        hfi_alarm_clear(x->alarm_exec, &x->alarm); /* the task has moved */
    x->alarm_exec = x->task->exec;
    x->alarm.fire = alarm_fired;
    x->wake_ms = at_ms;
    if (x->signs != NULL)
        atomic_store_explicit(&x->signs->due_ms, at_ms, memory_order_relaxed);
    hfi_alarm_set(x->alarm_exec, &x->alarm, at_ms);
}

bool hfi_exchange_woken(const struct hfi_exchange *x) {
    return hfi_now_ms() >= x->wake_ms;
}
