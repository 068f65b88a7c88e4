/*
 * Gates: of the operations of this process that wait for one exclusive lock, one waits at the
 * server and the others wait here. When it leaves, whatever its result, the next takes its place
 * and makes an attempt of its own, so a wake-up that a leaving waiter has consumed is not lost.
 *
 * The one in front may be stuck: its application does not call hf_dispatch(), or its thread does
 * not come back from a signal handler. So those in line look now and then whether it is overdue,
 * each by itself, and the first to find it so takes its place. The other goes on outside the gate,
 * whenever it can. A waiter that is handed the place and does not take it up is overdue at once, so
 * any number of stuck ones costs whoever waits no more than one. While the one in front is well,
 * the others send nothing.
 *
 * A gate exists while somebody is in it. Guarded by the shard of its name.
 */
#include "core/core.h"
#include "core/op.h"

#define GRACE_MS 500  /* a thread may be this late, and is not stuck */
#define SPREAD_MS 500 /* those in line look within so long of each other, and not all at once */

struct hfi_gate {
    struct hfi_keyed keyed; /* in the shard, by its name */
    struct hf_op *active;   /* whose name is the key: whoever leaves the front takes that along */
    struct hfi_link queue;
};

/* It has to show a sign of life from now on. */
static void put_in_front(struct hfi_gate *gate, struct hf_op *op) {
    gate->active = op;
    if (hfi_keyed_is_in_table(&gate->keyed))
        gate->keyed.key = op->name; /* the same bytes */
    atomic_store(&op->signs.due_ms, hfi_now_ms());
}

bool hfi_gate_enter_locked(struct hfi_shard *shard, struct hf_op *op) {
    const struct hfi_mem *mem = op->core->mem;
    struct hfi_keyed *found = hfi_table_find(&shard->gates, op->name, op->name_len);
    if (found != NULL) {
        struct hfi_gate *gate = HFI_CONTAINER(found, struct hfi_gate, keyed);
        op->gate = gate;
        hfi_list_push_back(&gate->queue, &op->gate_link);
        return false;
    }
    struct hfi_gate *gate = hfi_spare_alloc(mem, HFI_SPARE_GATE, sizeof *gate);
    if (gate == NULL)
        return true;
    *gate = (struct hfi_gate){0};
    hfi_list_init(&gate->queue);
    hfi_table_add(mem, &shard->gates, &gate->keyed, op->name, op->name_len);
    put_in_front(gate, op);
    op->gate = gate;
    return true;
}

void hfi_gate_leave_locked(struct hfi_shard *shard, struct hf_op *op) {
    const struct hfi_mem *mem = op->core->mem;
    struct hfi_gate *gate = op->gate;
    if (gate == NULL)
        return;
    op->gate = NULL;
    hfi_list_remove(&op->gate_link);
    if (gate->active != op)
        return;
    gate->active = NULL;
    struct hfi_link *next = hfi_list_pop_front(&gate->queue);
    if (next != NULL) {
        put_in_front(gate, HFI_CONTAINER(next, struct hf_op, gate_link));
        hfi_task_post(&gate->active->task, HFI_OP_GATE);
        return;
    }
    hfi_table_remove(mem, &shard->gates, &gate->keyed);
    hfi_spare_free(mem, HFI_SPARE_GATE, gate);
}

int64_t hfi_gate_look_at_ms_locked(const struct hf_op *op) {
    int64_t spread_ms = (int64_t)(((uintptr_t)op >> 6) % SPREAD_MS);
    if (op->gate == NULL || op->gate->active == op)
        return HFI_NEVER;
    return hfi_after_ms(atomic_load(&op->gate->active->signs.due_ms), GRACE_MS + spread_ms);
}

bool hfi_gate_take_over_locked(struct hf_op *op) {
    if (hfi_now_ms() < hfi_gate_look_at_ms_locked(op))
        return false;
    struct hf_op *stuck = op->gate->active;
    stuck->gate = NULL;
    stuck->outside = true;
    hfi_list_remove(&op->gate_link);
    put_in_front(op->gate, op);
    return true;
}

const struct hf_op *hfi_gate_front_locked(const struct hf_op *op) {
    return op->gate != NULL ? op->gate->active : NULL;
}

void hfi_gate_share_failure_locked(const struct hf_op *op) {
    int64_t since_ms = atomic_load(&op->signs.held_up_since_ms);
    if (op->gate == NULL || op->gate->active != op || since_ms == 0)
        return;
    struct hfi_link *next, *queue = &op->gate->queue;
    for (struct hfi_link *link = queue->next; link != queue; link = next) {
        next = link->next;
        struct hf_op *behind = HFI_CONTAINER(link, struct hf_op, gate_link);
        if (hfi_op_start_ms(behind) > since_ms)
            continue;
        hfi_list_remove(link);
        behind->gate = NULL;
        behind->shared_err = op->call->err;
        hfi_op_keep_words(behind, &op->call->error);
        hfi_task_post(&behind->task, HFI_OP_TIMEOUT);
    }
}
