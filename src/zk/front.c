/*
 * Who is first in a line: what is asked of every node in it, found in one look, however long the line is.
 *
 * Called wherever a list was read, on the thread of the call's executor. No state.
 */
#include "zk/kind.h"

static void note(struct hfi_zk_first *first, int32_t number) {
    if (!first->there || hfi_zk_before(number, first->number))
        *first = (struct hfi_zk_first){.there = true, .number = number};
}

struct hfi_zk_front hfi_zk_front_of(struct hfi_zk_children line) {
    struct hfi_zk_front front = {.lock = {.there = false}};
    struct hfi_zk_text name;
    while (hfi_zk_next_child(&line, &name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        if (node.label == HFI_ZK_LOCK)
            note(&front.lock, node.number);
        if (node.label == HFI_ZK_WRITE)
            note(&front.writer, node.number);
        if (node.label == HFI_ZK_READ || node.label == HFI_ZK_WRITE)
            note(&front.either, node.number);
    }
    return front;
}
