/*
 * Local queues: of the operations of this process that wait for one exclusive lock, one waits at
 * the server and the others wait here. When the front leaves, whatever its result, the next takes
 * its place and makes its own attempt. So a wake-up that a leaving waiter has consumed is not lost.
 *
 * The front may be stuck: its application does not call hf_dispatch(), or its thread does not
 * return from a signal handler. So each queued operation checks now and then whether the front is
 * overdue, and the first to find it so takes its place. The stuck one continues outside the queue
 * when it can. A waiter that gets the front and does not react is overdue at once. So any number of
 * stuck waiters delays the rest no more than one does. While the front makes progress, the others
 * send nothing.
 *
 * A local queue exists while an operation is in it. Guarded by the shard of its name.
 */
#include "core/core.h"
#include "core/op/op.h"

#define GRACE_MS 500  /* a thread may be this late without being stuck */
#define SPREAD_MS 500 /* spreads the checks of queued operations over this time */

struct hfi_local_queue {
    struct hfi_keyed keyed; /* in the shard, by its name */
    /* its name is the key: an operation that leaves the front takes the key along */
    struct hf_op *active;
    struct hfi_link queue;
};

/* From now on it has to show progress. */
static void put_in_front(struct hfi_local_queue *local_queue, struct hf_op *op) {
    local_queue->active = op;
    if (hfi_keyed_is_in_table(&local_queue->keyed))
        local_queue->keyed.key = op->name; /* the same bytes */
    atomic_store(&op->call_status.due_ms, hfi_now_ms());
}

bool hfi_local_queue_enter_locked(struct hfi_shard *shard, struct hf_op *op) {
    const struct hfi_mem *mem = op->core->mem;
    struct hfi_keyed *found = hfi_table_find(&shard->local_queues, op->name, op->name_len);
    if (found != NULL) {
        struct hfi_local_queue *local_queue = HFI_CONTAINER(found, struct hfi_local_queue, keyed);
        op->local_queue = local_queue;
        hfi_list_push_back(&local_queue->queue, &op->local_queue_link);
        return false;
    }
    struct hfi_local_queue *local_queue =
        hfi_spare_alloc(mem, HFI_SPARE_LOCAL_QUEUE, sizeof *local_queue);
    if (local_queue == NULL)
        return true;
    *local_queue = (struct hfi_local_queue){0};
    hfi_list_init(&local_queue->queue);
    hfi_table_add(mem, &shard->local_queues, &local_queue->keyed, op->name, op->name_len);
    put_in_front(local_queue, op);
    op->local_queue = local_queue;
    return true;
}

void hfi_local_queue_leave_locked(struct hfi_shard *shard, struct hf_op *op) {
    const struct hfi_mem *mem = op->core->mem;
    struct hfi_local_queue *local_queue = op->local_queue;
    if (local_queue == NULL)
        return;
    op->local_queue = NULL;
    hfi_list_remove(&op->local_queue_link);
    if (local_queue->active != op)
        return;
    local_queue->active = NULL;
    struct hfi_link *next = hfi_list_pop_front(&local_queue->queue);
    if (next != NULL) {
        put_in_front(local_queue, HFI_CONTAINER(next, struct hf_op, local_queue_link));
        hfi_task_post(&local_queue->active->task, HFI_OP_LOCAL_TURN);
        return;
    }
    hfi_table_remove(mem, &shard->local_queues, &local_queue->keyed);
    hfi_spare_free(mem, HFI_SPARE_LOCAL_QUEUE, local_queue);
}

int64_t hfi_local_queue_check_at_ms_locked(const struct hf_op *op) {
    int64_t spread_ms = (int64_t)(((uintptr_t)op >> 6) % SPREAD_MS);
    if (op->local_queue == NULL || op->local_queue->active == op)
        return HFI_NEVER;
    return hfi_after_ms(atomic_load(&op->local_queue->active->call_status.due_ms),
                        GRACE_MS + spread_ms);
}

bool hfi_local_queue_take_over_locked(struct hf_op *op) {
    if (hfi_now_ms() < hfi_local_queue_check_at_ms_locked(op))
        return false;
    struct hf_op *stuck = op->local_queue->active;
    stuck->local_queue = NULL;
    stuck->outside = true;
    hfi_list_remove(&op->local_queue_link);
    put_in_front(op->local_queue, op);
    return true;
}

const struct hf_op *hfi_local_queue_front_locked(const struct hf_op *op) {
    return op->local_queue != NULL ? op->local_queue->active : NULL;
}

void hfi_local_queue_share_failure_locked(const struct hf_op *op) {
    int64_t since_ms = atomic_load(&op->call_status.stalled_since_ms);
    if (op->local_queue == NULL || op->local_queue->active != op || since_ms == 0)
        return;
    struct hfi_link *next, *queue = &op->local_queue->queue;
    for (struct hfi_link *link = queue->next; link != queue; link = next) {
        next = link->next;
        struct hf_op *behind = HFI_CONTAINER(link, struct hf_op, local_queue_link);
        if (hfi_op_start_ms(behind) > since_ms)
            continue;
        hfi_list_remove(link);
        behind->local_queue = NULL;
        behind->shared_err = op->call->err;
        hfi_op_keep_error(behind, &op->call->error);
        hfi_task_post(&behind->task, HFI_OP_TIMEOUT);
    }
}
