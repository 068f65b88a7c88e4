/*
 * The count-down latch: closed while its node exists. A waiter sees Curator's DistributedBarrier, a
 * client that counts sees its SharedCount.
 *
 * A node that holds no number is a barrier set by Java: closed, and one count-down opens it. A
 * latch that was opened and closed again is a new node with another czxid, so a waiter always
 * notices that it was open. This file decides the changes; counter.c makes them. Stateless; any
 * thread.
 */
#include "zk/kinds/counter.h"

#define A_PARENT "the name is used for something else: its node has children"

static int64_t count_of(const struct hfi_zk_count *found) {
    if (!found->there)
        return 0;
    if (!found->is_number)
        return 1;
    return found->number > 0 ? found->number : 0; /* Java may have counted down to zero and below */
}

static bool is_other(const struct hfi_zk_count *found) {
    return found->there && found->stat.children_len > 0;
}

static struct hfi_zk_change await(const struct hfi_call *call, const struct hfi_zk_count *found,
                                  const struct hfi_zk_count *first) {
    (void)call;
    if (is_other(found))
        return hfi_zk_refuse(HF_EWRONGTYPE, A_PARENT);
    bool was_open = found->stat.czxid != first->stat.czxid;
    if (count_of(found) == 0 || was_open)
        return hfi_zk_leave(1);
    return (struct hfi_zk_change){.what = HFI_ZK_AWAIT};
}

static struct hfi_zk_change object_op(const struct hfi_call *call,
                                      const struct hfi_zk_count *found) {
    if (is_other(found))
        return hfi_zk_refuse(HF_EWRONGTYPE, A_PARENT);
    int64_t count = count_of(found);
    switch (call->object_op) {
    case HFI_OBJECT_SET:
        return count > 0 ? hfi_zk_leave(0) : hfi_zk_store(call->amount, 1);
    case HFI_OBJECT_COUNT_DOWN:
        if (count > 1)
            return hfi_zk_store(count - 1, 1);
        return found->there ? hfi_zk_remove() : hfi_zk_leave(0);
    case HFI_OBJECT_DELETE:
        return found->there ? hfi_zk_remove() : hfi_zk_leave(0);
    case HFI_OBJECT_AVAILABLE:
        return hfi_zk_leave(count);
    default:
        return hfi_zk_refuse(HF_ENOTSUP, "a latch does not support the operation");
    }
}

static const struct hfi_zk_counter latch = {
    .acquire = await,
    .object_op = object_op,
    .busy = "the latch is closed",
};

const struct hfi_kind hfi_zk_latch = {
    .name = "latch",
    .ops = &hfi_zk_counter_ops,
    .engine_private = &latch,
};
