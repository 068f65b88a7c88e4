/*
 * The count-down latch: closed as long as there is a node; Curator's DistributedBarrier to whoever waits,
 * and its SharedCount to whoever counts.
 *
 * A node with anything but a number in it is a barrier that Java has set: closed, and one step opens
 * it. A latch that was opened and closed again is another node, by the transaction that made it: so
 * whoever waits has always seen that it was open. What is done is decided here; how it is done is in
 * counter.c. Stateless; any thread.
 */
#include "zk/counter.h"

#define A_PARENT "there is something else under this name, with nodes beneath it"

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

static struct hfi_zk_change act(const struct hfi_call *call, const struct hfi_zk_count *found) {
    if (is_other(found))
        return hfi_zk_refuse(HF_EWRONGTYPE, A_PARENT);
    int64_t count = count_of(found);
    switch (call->act) {
    case HFI_ACT_SET:
        return count > 0 ? hfi_zk_leave(0) : hfi_zk_store(call->amount, 1);
    case HFI_ACT_COUNT_DOWN:
        if (count > 1)
            return hfi_zk_store(count - 1, 1);
        return found->there ? hfi_zk_remove() : hfi_zk_leave(0);
    case HFI_ACT_DELETE:
        return found->there ? hfi_zk_remove() : hfi_zk_leave(0);
    case HFI_ACT_AVAILABLE:
        return hfi_zk_leave(count);
    default:
        return hfi_zk_refuse(HF_ENOTSUP, "there is no such thing to be done to a latch");
    }
}

static const struct hfi_zk_counter latch = {
    .acquire = await,
    .act = act,
    .busy = "the latch is closed",
};

const struct hfi_kind hfi_zk_latch = {
    .name = "latch",
    .ops = &hfi_zk_counter_ops,
    .engine_private = &latch,
};
