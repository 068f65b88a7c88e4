/*
 * Exclusive locks, as Curator's InterProcessMutex: the lowest number of the queue holds the lock,
 * every other node watches the one before it.
 *
 * Plain, spin, fenced, fair and non-reentrant are this one lock at the server, so they exclude each
 * other under a name. They differ in the core: of one process' waiters for a plain lock, only the
 * first joins the queue. No state; any thread.
 */
#include "zk/ops/queue.h"

#include <string.h>

/* Nodes of read/write locks and permits. */
static bool is_of_others(struct hfi_zk_text name, const struct hfi_zk_node *node) {
    static const char *const theirs[] = {"locks", "leases"};
    for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++)
        if (name.len == strlen(theirs[i]) && memcmp(name.bytes, theirs[i], name.len) == 0)
            return true;
    return node->label == HFI_ZK_READ || node->label == HFI_ZK_WRITE || node->label == HFI_ZK_LEASE;
}

struct hfi_zk_queue_state hfi_zk_read_lock_queue(struct hfi_zk_children queue,
                                                 const struct hfi_zk_node *me) {
    struct hfi_zk_queue_state state = {
        .held = true, .found = me == NULL, .wrong = hfi_zk_is_of_a_number(&queue)};
    struct hfi_zk_text name;
    int32_t last = 0;
    size_t before = 0;
    while (hfi_zk_next_child(&queue, &name)) {
        struct hfi_zk_node node = hfi_zk_node_parse(name.bytes, name.len);
        state.wrong = state.wrong || is_of_others(name, &node);
        if (node.label != HFI_ZK_LOCK)
            continue;
        if (me != NULL && node.number == me->number && node.has_uuid &&
            memcmp(node.uuid, me->uuid, sizeof node.uuid) == 0)
            state.found = true;
        else if (me == NULL || hfi_zk_before(node.number, me->number)) {
            if (before++ == 0 || hfi_zk_before(last, node.number)) {
                last = node.number;
                state.watch = name;
            }
        }
    }
    state.held = before == 0;
    state.only = before == 1;
    return state;
}

static bool holds(const struct hfi_zk_queue_head *queue_head, const struct hfi_zk_node *node) {
    return node->label == HFI_ZK_LOCK && hfi_zk_is_first(&queue_head->lock, node);
}

static const struct hfi_zk_kind plain = {.label = HFI_ZK_LOCK,
                                         .by_event = true,
                                         .read_queue = hfi_zk_read_lock_queue,
                                         .holds = holds,
                                         .found = HF_FOUND_PLAIN};
static const struct hfi_zk_kind fair = {.label = HFI_ZK_LOCK,
                                        .by_event = true,
                                        .read_queue = hfi_zk_read_lock_queue,
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
                                     .exclusive = false, /* every waiter joins the queue itself */
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
