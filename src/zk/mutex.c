/*
 * Locks with one holder, as Curator's InterProcessMutex: the lowest number of a line holds it, everybody
 * else watches the one before.
 *
 * Plain, spin, fenced, fair and non-reentrant are this one lock, so they exclude each other under a name.
 * They differ in what the core does: of those of one process that want a plain one, only the first
 * stands in line.
 */
#include "zk/line.h"

#include <string.h>

/* What read/write locks and permits have beneath their names. */
static bool is_of_others(struct hfi_zk_text name, const struct hfi_zk_node *node) {
    static const char *const theirs[] = {"locks", "leases"};
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++)
        if (name.len == strlen(theirs[i]) && memcmp(name.bytes, theirs[i], name.len) == 0)
            return true;
    return node->label == HFI_ZK_READ || node->label == HFI_ZK_WRITE || node->label == HFI_ZK_LEASE;
}

struct hfi_zk_look hfi_zk_look_at_locks(struct hfi_zk_children line, const struct hfi_zk_node *me) {
    struct hfi_zk_look look = {
        .held = true, .found = me == NULL, .wrong = hfi_zk_is_of_a_number(&line)};
    struct hfi_zk_text name;
    int32_t last = 0;
    size_t before = 0;
    while (hfi_zk_next_child(&line, &name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        look.wrong = look.wrong || is_of_others(name, &node);
        if (node.label != HFI_ZK_LOCK)
            continue;
        if (me != NULL && node.number == me->number && node.has_uuid &&
            memcmp(node.uuid, me->uuid, sizeof node.uuid) == 0)
            look.found = true;
        else if (me == NULL || hfi_zk_before(node.number, me->number)) {
            if (before++ == 0 || hfi_zk_before(last, node.number)) {
                last = node.number;
                look.watch = name;
            }
        }
    }
    look.held = before == 0;
    look.only = before == 1;
    return look;
}

static bool holds(const struct hfi_zk_front *front, const struct hfi_zk_node *node) {
    return node->label == HFI_ZK_LOCK && hfi_zk_is_first(&front->lock, node);
}

static const struct hfi_zk_kind plain = {.label = HFI_ZK_LOCK,
                                         .by_event = true,
                                         .look = hfi_zk_look_at_locks,
                                         .holds = holds,
                                         .found = HF_FOUND_PLAIN};
static const struct hfi_zk_kind fair = {.label = HFI_ZK_LOCK,
                                        .by_event = true,
                                        .look = hfi_zk_look_at_locks,
                                        .holds = holds,
                                        .found = HF_FOUND_FAIR};

const struct hfi_kind hfi_zk_plain = {.name = "plain",
                                      .ops = &hfi_zk_lock_ops,
                                      .reentrant = true,
                                      .exclusive = true,
                                      .token = true,
                                      .queues = true,
                                      .ends_with_session = true,
                                      .engine_private = &plain};

const struct hfi_kind hfi_zk_nonreentrant = {.name = "non-reentrant",
                                             .ops = &hfi_zk_lock_ops,
                                             .exclusive = true,
                                             .token = true,
                                             .queues = true,
                                             .ends_with_session = true,
                                             .engine_private = &plain};

const struct hfi_kind hfi_zk_spin = {.name = "spin",
                                     .ops = &hfi_zk_lock_ops,
                                     .reentrant = true,
                                     .exclusive = true,
                                     .token = true,
                                     .queues = true,
                                     .ends_with_session = true,
                                     .engine_private = &plain};

const struct hfi_kind hfi_zk_fenced = {.name = "fenced",
                                       .ops = &hfi_zk_lock_ops,
                                       .reentrant = true,
                                       .exclusive = true,
                                       .token = true,
                                       .queues = true,
                                       .ends_with_session = true,
                                       .engine_private = &plain};

const struct hfi_kind hfi_zk_fair = {.name = "fair",
                                     .ops = &hfi_zk_lock_ops,
                                     .reentrant = true,
                                     .exclusive = false, /* every waiter stands in line itself */
                                     .token = true,
                                     .queues = true,
                                     .ends_with_session = true,
                                     .engine_private = &fair};

const struct hfi_kind hfi_zk_fair_nonreentrant = {.name = "non-reentrant fair",
                                                  .ops = &hfi_zk_lock_ops,
                                                  .token = true,
                                                  .queues = true,
                                                  .ends_with_session = true,
                                                  .engine_private = &fair};
