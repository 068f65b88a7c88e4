/*
 * What others see of an exchange while it goes on: how long the server has been of no help, and a
 * word in the log about it.
 *
 * Called by exchange.c on the thread of the exchange's task. Other threads read the signs (struct
 * hfi_signs) without a lock. Whoever waits for a lock for ever should learn that it is the server
 * it waits for; but a thousand who wait need not say so a thousand times, so it is said once for
 * each server, until an answer to any of them ends it.
 */
#include "base/clock.h"
#include "base/error.h"
#include "redis/exchange.h"
#include "redis/internal.h"

#include <stdio.h>

#define NAME_SHOWN 100 /* bytes of a name, so that the words behind it are not cut off */

void hfi_exchange_held_up(struct hfi_exchange *x, int err) {
    if (x->useless_since_ms == 0)
        x->useless_since_ms = hfi_now_ms();
    if (err == HF_EREFUSED && x->refused_since_ms == 0)
        x->refused_since_ms = hfi_now_ms();
    if (x->signs == NULL)
        return;
    atomic_store_explicit(&x->signs->held_up, err, memory_order_relaxed);
    atomic_store_explicit(&x->signs->held_up_since_ms, x->useless_since_ms, memory_order_relaxed);
}

void hfi_exchange_is_well(struct hfi_exchange *x) {
    x->useless_since_ms = x->refused_since_ms = 0;
    if (x->signs != NULL)
        atomic_store_explicit(&x->signs->held_up_since_ms, 0, memory_order_relaxed);
    atomic_bool *told = &hfi_node_learnt(x->node)->held_up_told;
    if (atomic_load_explicit(told, memory_order_relaxed))
        atomic_store(told, false);
}

void hfi_exchange_tell(struct hfi_exchange *x) {
    bool waits = x->silence_ms != HFI_NEVER;
    if (!waits || x->useless_since_ms == 0 || x->node == NULL ||
        hfi_now_ms() < x->useless_since_ms + HFI_LOOK_UP_MS)
        return;
    if (atomic_exchange(&hfi_node_learnt(x->node)->held_up_told, true))
        return;
    int name_len = (int)(x->name_len < NAME_SHOWN ? x->name_len : NAME_SHOWN);
    bool why = x->trouble != HF_OK && x->error->text[0] != '\0';
    hfi_log(x->redis->log, HF_LOG_WARN, "waiting for '%.*s' is held up: %s %s%s%s", name_len,
            x->name, hfi_node_name(x->node),
            x->trouble == HF_EREFUSED ? "refuses commands" : "does not answer", why ? ": " : "",
            why ? x->error->text : "");
}

const char *hfi_exchange_why_silent(const struct hfi_exchange *x) {
    const char *hint =
        x->phase == HFI_PHASE_CONNECTING && x->conn != NULL ? hfi_conn_hint(x->conn) : NULL;
    return hint != NULL ? hint : "the server did not answer in time";
}

void hfi_exchange_tell_caller(const struct hfi_exchange *x) {
    if (x->signs == NULL || x->signs->tell == NULL)
        return;
    bool why = x->trouble != HF_OK && x->error->text[0] != '\0';
    hf_error trouble;
    hfi_error_clear(&trouble);
    if (why)
        trouble = *x->error;
    else
        hfi_fail(&trouble, HF_EUNREACH, "%s", hfi_exchange_why_silent(x));
    if (trouble.node[0] == '\0' && x->node != NULL)
        snprintf(trouble.node, sizeof trouble.node, "%s", hfi_node_name(x->node));
    x->signs->tell(x->signs, &trouble);
}
