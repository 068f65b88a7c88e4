/*
 * The two sides of the read/write lock, as Curator's InterProcessReadWriteLock: readers and writers stand
 * in one line. A writer holds it who is the first of all, a reader who has no writer before it.
 *
 * A writer that reads as well takes the number of its write node, so that its reading is as old as its
 * writing, and whoever comes next waits for both. That number is worth something only as long as the
 * write node is there: if it was broken, another may be writing, who does not wait for those before it
 * any more.
 *
 * An event alone never makes it ours: when the one that we watch ends, a writer may have become a reader
 * with its number. So there is always another look. Stateless; any thread.
 */
#include "zk/line.h"

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

/* Whether `other` keeps a reader, or a writer, out as long as it is before it. */
static bool excludes(const struct hfi_zk_node *other, enum hfi_zk_label side) {
    return other->label == HFI_ZK_WRITE || (other->label == HFI_ZK_READ && side == HFI_ZK_WRITE);
}

static struct hfi_zk_look look_as(enum hfi_zk_label side, struct hfi_zk_children line,
                                  const struct hfi_zk_node *me) {
    struct hfi_zk_look look = {
        .held = true, .found = me == NULL, .wrong = hfi_zk_is_of_a_number(&line)};
    bool lender = false;
    int32_t last = 0;
    struct hfi_zk_text name;
    while (hfi_zk_next_child(&line, &name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        look.wrong = look.wrong || is_of_others(name, &node);
        if (me != NULL && is_same(&node, me))
            look.found = true;
        if (me != NULL && node.label == HFI_ZK_WRITE && node.number == me->number)
            lender = true;
        if (!excludes(&node, side) || (me != NULL && !hfi_zk_before(node.number, me->number)))
            continue;
        if (look.held || hfi_zk_before(last, node.number)) {
            last = node.number;
            look.watch = name;
        }
        look.held = false;
    }
    look.robbed = me != NULL && me->borrowed && look.found && !lender;
    return look;
}

static struct hfi_zk_look look_as_reader(struct hfi_zk_children line,
                                         const struct hfi_zk_node *me) {
    return look_as(HFI_ZK_READ, line, me);
}

static struct hfi_zk_look look_as_writer(struct hfi_zk_children line,
                                         const struct hfi_zk_node *me) {
    return look_as(HFI_ZK_WRITE, line, me);
}

static bool reader_holds(const struct hfi_zk_front *front, const struct hfi_zk_node *node) {
    return node->label == HFI_ZK_READ && hfi_zk_is_first(&front->writer, node);
}

static bool writer_holds(const struct hfi_zk_front *front, const struct hfi_zk_node *node) {
    return node->label == HFI_ZK_WRITE && hfi_zk_is_first(&front->either, node);
}

static const struct hfi_zk_kind read_side = {.label = HFI_ZK_READ,
                                             .look = look_as_reader,
                                             .holds = reader_holds,
                                             .borrows_from = &hfi_zk_write,
                                             .found = HF_FOUND_READ};
static const struct hfi_zk_kind write_side = {
    .label = HFI_ZK_WRITE, .look = look_as_writer, .holds = writer_holds, .found = HF_FOUND_WRITE};

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
