/*
 * Request timeout, retry back-off and the timer of an exchange.
 *
 * Called by exchange.c on the thread of the exchange's task; no state of its own.
 */
#include "base/backoff.h"
#include "base/clock.h"
#include "base/jitter.h"
#include "redis/exchange/env.h"
#include "redis/exchange/exchange.h"

/* The silence timeout where failover is possible. While any server or sentinel answers, wait
 * longer, but not beyond failover_timeout_ms. */
static int64_t failover_deadline_ms(const struct hfi_exchange *x, int64_t answer_ms) {
    struct hfi_route *route = x->redis->route;
    int64_t since_ms = hfi_max_ms(x->start_ms, answer_ms),
            timeout_ms = x->redis->failover_timeout_ms;
    int64_t last_answer_ms = hfi_max_ms(since_ms, route->ops->last_answer_ms(route));
    int64_t at_ms =
        hfi_min_ms(hfi_after_ms(last_answer_ms, x->silence_ms), hfi_after_ms(since_ms, timeout_ms));
    if (x->refused_since_ms == 0)
        return at_ms;
    return hfi_min_ms(at_ms, hfi_after_ms(x->refused_since_ms, timeout_ms));
}

int64_t hfi_exchange_silent_at_ms(const struct hfi_exchange *x) {
    if (x->silence_ms == HFI_NEVER)
        return HFI_NEVER;
    int64_t answer_ms = x->node != NULL ? hfi_node_last_answer_ms(x->node) : 0;
    if (hfi_route_changes(x->redis->route))
        return failover_deadline_ms(x, answer_ms);
    int64_t silent_ms = hfi_after_ms(hfi_max_ms(x->start_ms, answer_ms), x->silence_ms);
    if (x->refused_since_ms == 0)
        return silent_ms;
    return hfi_min_ms(silent_ms, hfi_after_ms(x->refused_since_ms, x->silence_ms));
}

/* Where failover is possible, an unreachable node is not worth a long pause: connecting has its own
 * back-off, and the route wakes the exchange when another node takes over. */
int64_t hfi_exchange_pause_ms(struct hfi_exchange *x) {
    static const struct hfi_backoff backoff = {.first_ms = 20, .max_ms = 500, .factor = 2};
    static const struct hfi_backoff brief = {.first_ms = 20, .max_ms = 20, .factor = 1};
    bool unreached = x->try_err == HF_EUNREACH && hfi_exchange_may_move(x);
    return hfi_backoff_spread_ms(unreached ? &brief : &backoff, x->tries++, hfi_jitter_bits(x));
}

bool hfi_exchange_may_move(const struct hfi_exchange *x) {
    const struct hfi_route *route = x->redis->route;
    return hfi_route_changes(route) && atomic_load_explicit(&route->found, memory_order_relaxed);
}

bool hfi_exchange_is_transient(const struct hfi_exchange *x, enum hfi_remedy remedy) {
    const struct hfi_route *route = x->redis->route;
    bool elsewhere = remedy == HFI_REMEDY_ELSEWHERE, moves = remedy == HFI_REMEDY_WAIT_MOVE;
    bool patient = x->retry == HFI_RETRY_PATIENTLY || (elsewhere && hfi_node_may_change(x->node)) ||
                   (moves && hfi_route_has_slots(route));
    return x->retry != HFI_RETRY_NONE &&
           (remedy == HFI_REMEDY_WAIT ||
            ((elsewhere || moves || remedy == HFI_REMEDY_WAIT_PATIENT) && patient));
}

/* ---- Timeout ---- */

bool hfi_exchange_is_timed_out(const struct hfi_exchange *x, int64_t now_ms) {
    return now_ms >= x->limit_ms || now_ms >= hfi_exchange_silent_at_ms(x);
}

bool hfi_exchange_reply_is_late(const struct hfi_exchange *x, int64_t now_ms) {
    return now_ms - x->sent_ms >= x->redis->cmd_timeout_ms;
}

void hfi_exchange_await(struct hfi_exchange *x, int64_t at_ms) {
    at_ms = hfi_min_ms(at_ms, hfi_now_ms() + HFI_STATUS_EVERY_MS);
    hfi_exchange_report_stall(x);
    hfi_exchange_sleep(x, hfi_min_ms(hfi_min_ms(x->limit_ms, at_ms), hfi_exchange_silent_at_ms(x)));
}

void hfi_exchange_await_reply(struct hfi_exchange *x) {
    hfi_exchange_await(x, hfi_after_ms(x->sent_ms, x->redis->cmd_timeout_ms));
}

/* ---- Timer ---- */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(HFI_CONTAINER(alarm, struct hfi_exchange, alarm)->task, HFI_EVENT_TIMER);
}

void hfi_exchange_sleep(struct hfi_exchange *x, int64_t at_ms) {
    if (x->alarm_exec != NULL && x->alarm_exec != x->task->exec)
        hfi_alarm_clear(x->alarm_exec, &x->alarm); /* the task has moved to another executor */
    x->alarm_exec = x->task->exec;
    x->alarm.fire = alarm_fired;
    x->wake_ms = at_ms;
    if (x->call_status != NULL)
        atomic_store_explicit(&x->call_status->due_ms, at_ms, memory_order_relaxed);
    hfi_alarm_set(x->alarm_exec, &x->alarm, at_ms);
}

bool hfi_exchange_woken(const struct hfi_exchange *x) {
    return hfi_now_ms() >= x->wake_ms;
}
