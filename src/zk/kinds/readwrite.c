/*
 * The read/write lock, as Curator's InterProcessReadWriteLock: readers and writers share one queue.
 * A writer holds the lock if it is the first of all, a reader if no writer is before it.
 *
 * A writer that also reads borrows the number of its write node for its read node. So its read lock
 * is as old as its write lock, and the next in the queue waits for both. The borrowed number is
 * valid only while the write node exists. If that was broken, another owner may be writing, which
 * no longer waits for nodes before it.
 *
 * A watch event alone never makes the lock ours: when the watched node goes, a writer may have
 * become a reader with its number. So the queue is always listed again. Stateless; any thread.
 */
#include "zk/ops/queue.h"

#include <string.h>

static bool is_same(const struct hfi_zk_node *a, const struct hfi_zk_node *b) {
    return a->label == b->label && a->number == b->number && a->has_uuid && b->has_uuid &&
           memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

static bool is_text(struct hfi_zk_text name, const char *text) {
    return name.len == strlen(text) && memcmp(name.bytes, text, name.len) == 0;
}

static bool is_of_others(struct hfi_zk_text name, const struct hfi_zk_node *node) {
    return node->label == HFI_ZK_LOCK || node->label == HFI_ZK_LEASE || is_text(name, "locks") ||
           is_text(name, "leases");
}

/* Whether `other`, if it is before a node of that side, keeps it out. */
static bool excludes(const struct hfi_zk_node *other, enum hfi_zk_label side) {
    return other->label == HFI_ZK_WRITE || (other->label == HFI_ZK_READ && side == HFI_ZK_WRITE);
}

static struct hfi_zk_queue_state read_queue_as(enum hfi_zk_label side, struct hfi_zk_children queue,
                                               const struct hfi_zk_node *me) {
    struct hfi_zk_queue_state state = {
        .held = true, .found = me == NULL, .wrong = hfi_zk_is_of_a_number(&queue)};
    bool lender = false;
    int32_t last = 0;
    struct hfi_zk_text name;
    while (hfi_zk_next_child(&queue, &name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        state.wrong = state.wrong || is_of_others(name, &node);
        if (me != NULL && is_same(&node, me))
            state.found = true;
        if (me != NULL && node.label == HFI_ZK_WRITE && node.number == me->number)
            lender = true;
        if (!excludes(&node, side) || (me != NULL && !hfi_zk_before(node.number, me->number)))
            continue;
        if (state.held || hfi_zk_before(last, node.number)) {
            last = node.number;
            state.watch = name;
        }
        state.held = false;
    }
    state.lender_gone = me != NULL && me->borrowed && state.found && !lender;
    return state;
}

static struct hfi_zk_queue_state read_queue_as_reader(struct hfi_zk_children queue,
                                                      const struct hfi_zk_node *me) {
    return read_queue_as(HFI_ZK_READ, queue, me);
}

static struct hfi_zk_queue_state read_queue_as_writer(struct hfi_zk_children queue,
                                                      const struct hfi_zk_node *me) {
    return read_queue_as(HFI_ZK_WRITE, queue, me);
}

static bool reader_holds(const struct hfi_zk_queue_head *queue_head,
                         const struct hfi_zk_node *node) {
    return node->label == HFI_ZK_READ && hfi_zk_is_first(&queue_head->writer, node);
}

static bool writer_holds(const struct hfi_zk_queue_head *queue_head,
                         const struct hfi_zk_node *node) {
    return node->label == HFI_ZK_WRITE && hfi_zk_is_first(&queue_head->either, node);
}

static const struct hfi_zk_kind read_side = {.label = HFI_ZK_READ,
                                             .read_queue = read_queue_as_reader,
                                             .holds = reader_holds,
                                             .borrows_from = &hfi_zk_write,
                                             .found = HF_FOUND_READ};
static const struct hfi_zk_kind write_side = {.label = HFI_ZK_WRITE,
                                              .read_queue = read_queue_as_writer,
                                              .holds = writer_holds,
                                              .found = HF_FOUND_WRITE};

const struct hfi_kind hfi_zk_read = {.name = "read",
                                     .ops = &hfi_zk_lock_ops,
                                     .part = "read",
                                     .reentrant = true,
                                     .token = true,
                                     .queues = true,
                                     .ends_with_session = true,
                                     .engine_private = &read_side};

const struct hfi_kind hfi_zk_write = {.name = "write",
                                      .ops = &hfi_zk_lock_ops,
                                      .part = "write",
                                      .reentrant = true,
                                      .exclusive = true,
                                      .token = true,
                                      .queues = true,
                                      .ends_with_session = true,
                                      .never_beside = &hfi_zk_read,
                                      .engine_private = &write_side};
