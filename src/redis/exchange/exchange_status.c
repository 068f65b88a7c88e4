/*
 * The progress of an exchange as other threads see it, and the warning when it stalls.
 *
 * Called by exchange.c on the thread of the exchange's task. Other threads read struct
 * hfi_call_status without a lock. A caller that waits for a lock without limit should learn that
 * the server is the problem. A thousand waiters need not log it a thousand times, so it is logged
 * once per server, until an attempt is answered. Replies to queries and settlements do not count: a
 * server that refuses writes answers these.
 */
#include "base/clock.h"
#include "base/error.h"
#include "redis/exchange/env.h"
#include "redis/exchange/exchange.h"

#include <stdio.h>

#define NAME_SHOWN 100 /* bytes of a name, so that the text behind it is not cut off */

void hfi_exchange_stalled(struct hfi_exchange *x, int err) {
    if (x->useless_since_ms == 0)
        x->useless_since_ms = hfi_now_ms();
    if (err == HF_EUNAVAILABLE && x->refused_since_ms == 0)
        x->refused_since_ms = hfi_now_ms();
    if (x->call_status == NULL)
        return;
    atomic_store_explicit(&x->call_status->stalled, err, memory_order_relaxed);
    atomic_store_explicit(&x->call_status->stalled_since_ms, x->useless_since_ms,
                          memory_order_relaxed);
}

void hfi_exchange_is_well(struct hfi_exchange *x) {
    x->useless_since_ms = x->refused_since_ms = 0;
    if (x->call_status != NULL)
        atomic_store_explicit(&x->call_status->stalled_since_ms, 0, memory_order_relaxed);
    if (!x->attempt)
        return;
    atomic_bool *logged = &hfi_node_learnt(x->node)->stalled_reported;
    if (atomic_load_explicit(logged, memory_order_relaxed))
        atomic_store(logged, false);
}

/* The server has answered since, so only the acks are missing. */
static bool waits_for_replicas(const struct hfi_exchange *x) {
    return x->phase == HFI_PHASE_ASKED && hfi_exchange_is_acked(x) &&
           hfi_node_last_answer_ms(x->node) >= x->sent_ms;
}

static const char *state_of(const struct hfi_exchange *x) {
    if (x->try_err == HF_EUNAVAILABLE)
        return "refuses commands";
    return waits_for_replicas(x) ? "answers, but too few of its replicas confirm"
                                 : "does not answer";
}

void hfi_exchange_log_stall(struct hfi_exchange *x) {
    bool waits = x->silence_ms != HFI_NEVER;
    if (!waits || x->useless_since_ms == 0 || x->node == NULL ||
        hfi_now_ms() < x->useless_since_ms + HFI_STATUS_EVERY_MS)
        return;
    if (atomic_exchange(&hfi_node_learnt(x->node)->stalled_reported, true))
        return;
    int name_len = (int)(x->name_len < NAME_SHOWN ? x->name_len : NAME_SHOWN);
    bool why = x->try_err != HF_OK && x->error->text[0] != '\0';
    /* The error may be of the server that was in use before this one. */
    const char *node = why && x->error->node[0] != '\0' ? x->error->node : hfi_node_name(x->node);
    hfi_log(x->redis->log, HF_LOG_WARN,
            HFI_ABOUT(.code = x->try_err != HF_OK ? x->try_err : HF_EUNREACH, .server = node,
                      .name = x->name, .name_len = x->name_len),
            "waiting for '%.*s' is held up: %s %s%s%s", name_len, x->name, node, state_of(x),
            why ? ": " : "", why ? x->error->text : "");
}

const char *hfi_exchange_why_silent(const struct hfi_exchange *x) {
    const char *hint =
        x->phase == HFI_PHASE_CONNECTING && x->conn != NULL ? hfi_conn_hint(x->conn) : NULL;
    if (hint == NULL && waits_for_replicas(x))
        hint = "too few replicas confirmed";
    return hint != NULL ? hint : "the server did not answer in time";
}

void hfi_exchange_report_stall(const struct hfi_exchange *x) {
    if (x->call_status == NULL || x->call_status->on_stall == NULL)
        return;
    bool why = x->try_err != HF_OK && x->error->text[0] != '\0';
    hf_error reason;
    hfi_error_clear(&reason);
    if (why)
        reason = *x->error;
    else
        hfi_fail(&reason, HF_EUNREACH, "%s", hfi_exchange_why_silent(x));
    if (reason.node[0] == '\0' && x->node != NULL)
        snprintf(reason.node, sizeof reason.node, "%s", hfi_node_name(x->node));
    x->call_status->on_stall(x->call_status, &reason);
}
