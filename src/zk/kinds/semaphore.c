/*
 * The semaphore: a number of permits without owners; Curator's SharedCount.
 *
 * On the server it is a persistent node with the number in four bytes. This file decides the
 * changes; counter.c makes them. Stateless; any thread.
 */
#include "zk/kinds/counter.h"

#define NOT_A_NUMBER "the name is used for something else: its node is not a 4-byte number"

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
        return hfi_zk_refuse(HF_ENOTSUP, "in ZooKeeper, a semaphore cannot have a TTL");
    return found->there ? hfi_zk_leave(0) : hfi_zk_store(call->amount, 1);
}

static struct hfi_zk_change object_op(const struct hfi_call *call,
                                      const struct hfi_zk_count *found) {
    if (found->there && !found->is_number)
        return hfi_zk_refuse(HF_EWRONGTYPE, NOT_A_NUMBER);
    int64_t number = found->there ? found->number : 0;
    switch (call->object_op) {
    case HFI_OBJECT_SET:
        return set(call, found);
    case HFI_OBJECT_PUT_IF_EXISTS:
        if (!found->there)
            return hfi_zk_leave(0);
        return hfi_zk_store(number + call->amount, 1);
    case HFI_OBJECT_ADD:
    case HFI_OBJECT_PUT:
        return hfi_zk_store(number + call->amount, 1);
    case HFI_OBJECT_DRAIN:
        return number == 0 ? hfi_zk_leave(0) : hfi_zk_store(0, number);
    case HFI_OBJECT_DELETE:
        return found->there ? hfi_zk_remove() : hfi_zk_leave(0);
    case HFI_OBJECT_AVAILABLE:
        return hfi_zk_leave(number);
    default:
        return hfi_zk_refuse(HF_ENOTSUP, "a semaphore does not support the operation");
    }
}

static const struct hfi_zk_counter semaphore = {
    .acquire = acquire,
    .object_op = object_op,
    .busy = "too few permits are available",
};

const struct hfi_kind hfi_zk_semaphore = {
    .name = "semaphore",
    .ops = &hfi_zk_counter_ops,
    .engine_private = &semaphore,
};
