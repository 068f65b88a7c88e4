/*
 * The semaphore: a number of permits that belong to nobody in particular; Curator's SharedCount.
 *
 * On the server it is a persistent node with the number in four bytes. What is done to it is decided
 * here; how it is done is in counter.c. Stateless; any thread.
 */
#include "zk/counter.h"

#define NOT_A_NUMBER "there is something else under this name, not a number of four bytes"

static struct hfi_zk_change acquire(const struct hfi_call *call, const struct hfi_zk_count *found,
                                    const struct hfi_zk_count *first) {
    (void)first;
    if (found->there && !found->is_number)
        return hfi_zk_refuse(HF_EWRONGTYPE, NOT_A_NUMBER);
    if (!found->there || found->number < call->amount)
        return (struct hfi_zk_change){.what = HFI_ZK_AWAIT};
    return hfi_zk_store(found->number - call->amount, 1);
}

static struct hfi_zk_change set(const struct hfi_call *call, const struct hfi_zk_count *found) {
    if (call->ttl_ms > 0)
        return hfi_zk_refuse(HF_ENOTSUP, "a semaphore in ZooKeeper has no TTL");
    return found->there ? hfi_zk_leave(0) : hfi_zk_store(call->amount, 1);
}

static struct hfi_zk_change act(const struct hfi_call *call, const struct hfi_zk_count *found) {
    if (found->there && !found->is_number)
        return hfi_zk_refuse(HF_EWRONGTYPE, NOT_A_NUMBER);
    int64_t number = found->there ? found->number : 0;
    switch (call->act) {
    case HFI_ACT_SET:
        return set(call, found);
    case HFI_ACT_PUT_IF_EXISTS:
        if (!found->there)
            return hfi_zk_leave(0);
        return hfi_zk_store(number + call->amount, 1);
    case HFI_ACT_ADD:
    case HFI_ACT_PUT:
        return hfi_zk_store(number + call->amount, 1);
    case HFI_ACT_DRAIN:
        return number == 0 ? hfi_zk_leave(0) : hfi_zk_store(0, number);
    case HFI_ACT_DELETE:
        return found->there ? hfi_zk_remove() : hfi_zk_leave(0);
    case HFI_ACT_AVAILABLE:
        return hfi_zk_leave(number);
    default:
        return hfi_zk_refuse(HF_ENOTSUP, "there is no such thing to be done to a semaphore");
    }
}

static const struct hfi_zk_counter semaphore = {
    .acquire = acquire,
    .act = act,
    .busy = "there are too few permits",
};

const struct hfi_kind hfi_zk_semaphore = {
    .name = "semaphore",
    .ops = &hfi_zk_counter_ops,
    .engine_private = &semaphore,
};
