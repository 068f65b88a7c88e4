/*
 * Finds the lowest numbers of a queue in one pass over the list.
 *
 * Called after a list was read, on the thread of the call's executor. No state.
 */
#include "zk/kinds/kind.h"

static void note(struct hfi_zk_first *first, int32_t number) {
    if (!first->there || hfi_zk_before(number, first->number))
        *first = (struct hfi_zk_first){.there = true, .number = number};
}

struct hfi_zk_queue_head hfi_zk_queue_head_of(struct hfi_zk_children queue) {
    struct hfi_zk_queue_head queue_head = {.lock = {.there = false}};
    struct hfi_zk_text name;
    while (hfi_zk_next_child(&queue, &name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        if (node.label == HFI_ZK_LOCK)
            note(&queue_head.lock, node.number);
        if (node.label == HFI_ZK_WRITE)
            note(&queue_head.writer, node.number);
        if (node.label == HFI_ZK_READ || node.label == HFI_ZK_WRITE)
            note(&queue_head.either, node.number);
    }
    return queue_head;
}
