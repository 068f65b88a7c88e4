/*
 * Gates: of the operations of this process that wait for one exclusive lock, one waits at the
 * server and the others wait here. When it leaves, whatever its result, the next takes its place
 * and makes an attempt of its own, so a wake-up that a leaving waiter has consumed is not lost.
 *
 * A gate exists while somebody is in it. Guarded by the shard of its name.
 */
#include "core/core.h"
#include "core/op.h"

#include <string.h>

struct hfi_gate {
    UT_hash_handle hh;
    struct hf_op *active;
    struct hfi_link queue;
    size_t name_len;
    char name[];
};

/* NOLINTNEXTLINE(readability-function-size): the macro is what is big */
static struct hfi_gate *find_gate(struct hfi_shard *shard, const struct hf_op *op) {
    struct hfi_gate *gate = NULL;
    HASH_FIND(hh, shard->gates, op->name, op->name_len, gate);
    return gate;
}

/* False: out of memory. */
/* NOLINTNEXTLINE(readability-function-size): the macro is what is big */
static bool insert_gate(const struct hfi_mem *mem, struct hfi_shard *shard, struct hfi_gate *gate) {
    HASH_ADD_KEYPTR(hh, shard->gates, gate->name, gate->name_len, gate);
    return gate->hh.tbl != NULL;
}

bool hfi_gate_enter_locked(struct hfi_shard *shard, struct hf_op *op) {
    const struct hfi_mem *mem = op->core->mem;
    struct hfi_gate *gate = find_gate(shard, op);
    if (gate != NULL) {
        op->gate = gate;
        hfi_list_push_back(&gate->queue, &op->gate_link);
        return false;
    }
    gate = hfi_zalloc(mem, sizeof *gate + op->name_len);
    if (gate == NULL)
        return true;
    hfi_list_init(&gate->queue);
    gate->name_len = op->name_len;
    memcpy(gate->name, op->name, op->name_len);
    if (!insert_gate(mem, shard, gate)) {
        hfi_free(mem, gate);
        return true;
    }
    gate->active = op;
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
        gate->active = HFI_CONTAINER(next, struct hf_op, gate_link);
        hfi_task_post(&gate->active->task, HFI_OP_GATE);
        return;
    }
    HASH_DEL(shard->gates, gate);
    hfi_free(mem, gate);
}
