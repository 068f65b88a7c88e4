/*
 * Drawing idempotency keys, and the key slots that store them.
 *
 * Called by acquire.c and call.c on the thread of the call's executor; the state shared by a
 * client's calls is atomic. Invariant: a key slot is not reused while a copy of its last acquire
 * can still act, for that copy would overwrite the new idempotency key. If this is not certain, the
 * key slot stays taken for good. When all key slots are taken, an acquire gets a redis key of its
 * own.
 */
#include "redis/exchange/idempotency.h"

#include "redis/exchange/env.h"
#include "redis/exchange/exchange.h"

#include <stdio.h>
#include <string.h>

#define KEY_SLOTS 64
#define NO_KEY_SLOT KEY_SLOTS

static int take_key_slot(struct hfi_idempotency *idempotency) {
    unsigned long long busy = atomic_load_explicit(&idempotency->busy, memory_order_relaxed);
    while (~busy != 0) {
        int key_slot = __builtin_ctzll(~busy);
        if (atomic_compare_exchange_weak(&idempotency->busy, &busy, busy | 1ull << key_slot))
            return key_slot;
    }
    return NO_KEY_SLOT;
}

/* The node that serves the name has refused this user access to idempotency keys. */
static bool are_refused(struct hfi_redis *redis, const struct hfi_call *call) {
    struct hfi_node *node = hfi_redis_node_for(redis, call->name, call->name_len);
    bool refused = node != NULL && atomic_load_explicit(&hfi_node_learnt(node)->no_idempotency,
                                                        memory_order_relaxed);
    hfi_node_unref(node);
    return refused;
}

void hfi_idempotency_draw(struct hfi_call *call) {
    struct hfi_redis *redis = hfi_redis_of(call->engine);
    struct hfi_idempotency *idempotency = &redis->idempotency;
    call->idempotency_key.number = 0;
    if (are_refused(redis, call) || !hfi_name_keeps_slot(&redis->names, call->name, call->name_len))
        return;
    call->idempotency_key.key_slot = take_key_slot(idempotency);
    call->idempotency_key.number =
        1 + atomic_fetch_add_explicit(&idempotency->last, 1, memory_order_relaxed);
}

/* The owner is "uuid:number", and the uuid is the client's. */
void hfi_idempotency_slot(const struct hfi_call *call, char key_slot[HFI_IDEMPOTENCY_SLOT_MAX]) {
    const char *colon = memchr(call->owner, ':', call->owner_len);
    int uuid_len = (int)(colon != NULL ? (size_t)(colon - call->owner) : call->owner_len);
    bool shared = call->idempotency_key.key_slot != NO_KEY_SLOT;
    snprintf(key_slot, HFI_IDEMPOTENCY_SLOT_MAX, "holdfast_took:%.*s:%s%llu", uuid_len, call->owner,
             shared ? "" : "only",
             shared ? (unsigned long long)call->idempotency_key.key_slot
                    : (unsigned long long)call->idempotency_key.number);
}

void hfi_idempotency_end(struct hfi_call *call, bool known) {
    struct hfi_idempotency *idempotency = &hfi_redis_of(call->engine)->idempotency;
    if (!hfi_idempotency_drawn(call))
        return;
    if (known && call->idempotency_key.key_slot != NO_KEY_SLOT)
        atomic_fetch_and(&idempotency->busy, ~(1ull << call->idempotency_key.key_slot));
    call->idempotency_key.number = 0;
}

bool hfi_idempotency_do_without(struct hfi_call *call, struct hfi_exchange *x) {
    if (!hfi_idempotency_drawn(call) || x->err != HF_EPERM || x->unanswered)
        return false;
    hfi_idempotency_end(call, true);
    x->once = true;
    return true;
}

void hfi_idempotency_refused(const struct hfi_exchange *x) {
    if (!atomic_exchange(&hfi_node_learnt(x->node)->no_idempotency, true))
        hfi_log(x->redis->log, HF_LOG_WARN,
                HFI_ABOUT(.code = HF_EPERM, .server = hfi_node_name(x->node), .name = x->name,
                          .name_len = x->name_len),
                "this user may not use a semaphore's {name}:holdfast_took:* keys; without them, "
                "an acquire whose reply is lost is not retried, and its permits may stay taken; "
                "allow them");
}
