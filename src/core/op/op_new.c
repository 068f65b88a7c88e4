/*
 * Making and freeing operations.
 *
 * Most have their work, the engine's state, the name and the ids behind them, in one allocation. A
 * compact one (op.h) has only its name there; its work is allocated and freed as needed. Made on
 * the thread that starts the operation; freed on any thread, when the last reference goes. Its work
 * belongs to its executor's thread.
 */
#include "core/op/op.h"

#include <stddef.h>
#include <string.h>

static void alarm_fired(struct hfi_alarm *alarm) {
    struct hf_op *op = HFI_CONTAINER(alarm, struct hf_op, alarm);
    hfi_task_post(&op->task, HFI_OP_TIMEOUT);
}

/* ---- Memory ---- */

/* An operation is larger than what malloc caches. So each shard keeps the memory of one operation,
 * and of one work. A thread that locks and releases in a loop reuses the same memory. Operations on
 * long names, or with many ids, are allocated each time. */
#define SMALL_ROOM 64

static size_t aligned(size_t size) {
    return (size + 15) & ~(size_t)15;
}

static size_t work_size(const struct hfi_kind *kind) {
    return aligned(sizeof(struct hfi_work)) + aligned(kind->ops->call_size);
}

/* Offset of the operation's name. */
static size_t head_size(const struct hfi_kind *kind) {
    return aligned(sizeof(struct hf_op)) + work_size(kind);
}

/* All but the error texts, which are a third of it. */
static void clear_work(struct hfi_work *work, size_t size) {
    char *bytes = (char *)work;
    size_t call_error = offsetof(struct hfi_work, call.error);
    size_t result_error = offsetof(struct hfi_work, result.error);
    size_t behind_call = call_error + sizeof(hf_error);
    size_t behind_result = result_error + sizeof(hf_error);
    memset(bytes, 0, call_error);
    memset(bytes + behind_call, 0, result_error - behind_call);
    memset(bytes + behind_result, 0, size - behind_result);
    hfi_error_clear(&work->call.error);
    hfi_error_clear(&work->result.error);
    work->size = size;
}

/* A kept one may have been made for another engine's state. */
static void *take_spare(const struct hfi_mem *mem, void *_Atomic *spare, size_t size,
                        size_t offset) {
    char *kept = atomic_exchange(spare, NULL);
    if (kept == NULL || *(const size_t *)(const void *)(kept + offset) == size)
        return kept;
    hfi_free(mem, kept);
    return NULL;
}

static void put_spare(struct hfi_core *core, void *_Atomic *spare, void *memory) {
    void *none = NULL;
    if (atomic_load(&core->closing) || !atomic_compare_exchange_strong(spare, &none, memory))
        hfi_free(core->mem, memory);
}

/* `room`: bytes for the name and the ids. */
static struct hf_op *allocate(struct hfi_core *core, struct hfi_shard *shard,
                              const struct hfi_kind *kind, size_t room) {
    size_t size = head_size(kind) + (room < SMALL_ROOM ? SMALL_ROOM : room) + 1;
    struct hf_op *op = NULL;
    if (room <= SMALL_ROOM)
        op = take_spare(core->mem, &shard->spare_op, size, offsetof(struct hf_op, size));
    if (op == NULL)
        op = hfi_alloc(core->mem, size);
    if (op == NULL)
        return NULL;
    memset(op, 0, sizeof *op);
    op->size = size;
    op->name = (char *)op + head_size(kind);
    op->work = (struct hfi_work *)(void *)((char *)op + aligned(sizeof *op));
    clear_work(op->work, work_size(kind));
    return op;
}

static struct hf_op *allocate_compact(struct hfi_core *core, size_t room) {
    size_t size = sizeof(struct hf_op) + room + 1;
    struct hf_op *op = hfi_zalloc(core->mem, size);
    if (op == NULL)
        return NULL;
    op->size = size;
    op->name = (char *)(op + 1);
    op->compact = true;
    return op;
}

static void deallocate(struct hf_op *op) {
    struct hfi_core *core = op->core;
    if (!op->compact && op->size == head_size(op->kind) + SMALL_ROOM + 1)
        put_spare(core, &op->shard->spare_op, op);
    else
        hfi_free(core->mem, op);
}

/* ---- Work ---- */

static size_t write_owner(struct hf_op *op, const char *handle) {
    char *text = op->work->owner_text;
    size_t len = handle != NULL ? strlen(handle) : 0;
    if (handle == NULL)
        len = hfi_owner_text(op->core, op->owner, text);
    else
        memcpy(text, handle, len + 1);
    op->foreign =
        atomic_load_explicit(&op->core->aliases.len, memory_order_relaxed) > 0 || handle != NULL;
    if (op->foreign)
        op->foreign = hfi_owner_is_foreign(op->core, text);
    return len;
}

/* What every call needs; the rest is zero. `handle`: as in struct hfi_op_args. */
static void begin_call(struct hf_op *op, const char *handle) {
    struct hfi_call *call = op->call = &op->work->call;
    call->engine = op->core->engine;
    call->task = &op->task;
    call->call_status = &op->call_status;
    call->lane = op->lane;
    call->kind = op->kind;
    call->name = op->name;
    call->name_len = op->name_len;
    call->owner = op->work->owner_text;
    call->owner_len = write_owner(op, handle);
    call->start_ms = hfi_op_start_ms(op);
    call->deadline_ms = op->deadline_ms;
    call->done = hfi_op_call_is_done;
    call->state = (char *)op->work + aligned(sizeof *op->work);
}

bool hfi_work_new(struct hf_op *op) {
    size_t size = work_size(op->kind);
    const struct hfi_mem *mem = op->core->mem;
    op->work = take_spare(mem, &op->shard->spare_work, size, offsetof(struct hfi_work, size));
    if (op->work == NULL)
        op->work = hfi_alloc(mem, size);
    if (op->work == NULL)
        return false;
    clear_work(op->work, size);
    begin_call(op, NULL);
    return true;
}

void hfi_work_free(struct hf_op *op) {
    if (op->compact && op->work != NULL)
        put_spare(op->core, &op->shard->spare_work, op->work);
    op->work = NULL;
    op->call = NULL;
}

void hfi_op_take_stamp_locked(struct hf_op *op) {
    if (!op->kind->stamped)
        return;
    struct hfi_stamp stamp = hfi_hold_stamp(op->hold);
    hfi_stamp_text_unref(op->work->text);
    op->work->text = stamp.text;
    op->call->stamp = stamp;
}

/* ---- Lifetime ---- */

static void destroy(struct hfi_task *task) {
    struct hf_op *op = HFI_CONTAINER(task, struct hf_op, task);
    struct hfi_core *core = op->core;
    hfi_hold_unref(op->hold);
    hfi_name_stats_unref(op->name_stats);
    if (op->work != NULL) {
        hfi_thread_record_unref(op->work->self);
        hfi_stake_unref(op->work->stake);
        hfi_stamp_text_unref(op->work->text);
        hfi_parts_unref(op->call->parts);
    }
    hfi_work_free(op);
    hfi_free(core->mem, op->error);
    deallocate(op);
    core->hooks.forget(core->hooks.arg);
}

/* When it ends at the latest. */
static int64_t end_ms(const struct hf_op *op, const struct hfi_op_args *args) {
    int64_t start_ms = hfi_op_start_ms(op);
    if (!args->verb->waits || args->wait_ms == 0)
        return hfi_after_ms(start_ms, op->core->cmd_timeout_ms);
    /* the clock is read in whole milliseconds, and a wait must not be too short by a fraction of
     * one */
    return hfi_after_ms(start_ms + 1, args->wait_ms);
}

/* The caller's arguments, beyond what all calls have. */
static void fill_call(struct hf_op *op, const struct hfi_op_args *args, char *behind_name) {
    struct hfi_call *call = op->call;
    call->query = args->query;
    call->wanted = args->wanted;
    call->token_wish = args->token_wish;
    call->extend_mode = args->extend_mode;
    call->object_op = args->object_op;
    call->amount = args->amount;
    call->ttl_ms = args->ttl_ms;
    if (args->ids_len > 0) {
        call->ids = memcpy(behind_name, args->ids, args->ids_len * HFI_ID_LEN);
        call->ids_len = args->ids_len;
    }
    if (args->spin != NULL)
        call->spin = *args->spin;
    if (args->parts != NULL) {
        hfi_parts_ref(args->parts);
        call->parts = args->parts;
    }
    if (args->self != NULL) {
        hfi_thread_record_ref(args->self);
        op->work->self = args->self;
    }
    if (args->stake != NULL) {
        hfi_stake_ref(args->stake);
        op->work->stake = args->stake;
    }
    call->stamp.bits = args->bits;
    call->stamp.text = op->work->text = hfi_stamp_text_ref(args->text);
    op->work->on_result = args->on_result;
    op->work->permits.ret_ids = args->ret_ids;
    op->work->ret_info = args->ret_info;
    op->work->ret_server_info = args->ret_server_info;
    op->work->ret_fleet = args->ret_fleet;
    op->work->ret_findings = args->ret_findings;
}

/* Writes the name; returns where the ids go behind it. */
static char *write_name(struct hf_op *op, const struct hfi_op_args *args) {
    char *name = (char *)op + (op->name - (const char *)op);
    memcpy(name, args->name, args->name_len);
    name[args->name_len + args->ids_len * HFI_ID_LEN] = '\0';
    op->name_len = args->name_len;
    return name + args->name_len;
}

static void fill(struct hf_op *op, const struct hfi_op_args *args) {
    op->verb = args->verb;
    op->kind = args->kind;
    op->lane = args->lane;
    op->owner = args->owner;
    op->wait_ms = args->wait_ms;
    op->lease_ms = args->lease_ms;
    op->acks = args->acks;
    op->yes_or_no = args->yes_or_no;
    op->inner = args->inner;
    op->callback = args->callback;
    op->user = args->user;
    op->alarm.fire = alarm_fired;
    op->start_us = hfi_now_us();
    op->cancellable = args->verb->waits;
    op->deadline_ms = end_ms(op, args);
}

/* A compact one has no room for other arguments. */
static bool may_be_compact(const struct hfi_op_args *args) {
    return args->compact && !args->kind->spins && args->parts == NULL && args->stake == NULL &&
           args->on_result == NULL && args->text == NULL && args->lane != HFI_LANE_CALLER;
}

struct hf_op *hfi_op_new(struct hfi_core *core, const struct hfi_op_args *args) {
    size_t stem_len = hfi_kind_stem_len(args->kind, args->name, args->name_len);
    struct hfi_shard *shard = hfi_core_shard(core, args->name, stem_len);
    size_t room = args->name_len + args->ids_len * HFI_ID_LEN;
    struct hf_op *op = may_be_compact(args) ? allocate_compact(core, room)
                                            : allocate(core, shard, args->kind, room);
    if (op == NULL)
        return NULL;
    hfi_task_init(&op->task, args->exec, hfi_op_run, destroy);
    op->core = core;
    op->shard = shard;
    fill(op, args);
    char *behind_name = write_name(op, args);
    if (!op->compact) {
        begin_call(op, args->handle);
        fill_call(op, args, behind_name);
    }
    if (args->verb->timed && args->name_stats != NULL && hfi_kind_is_reported(args->kind))
        op->name_stats =
            hfi_name_stats_take(core->stats_table, args->name_stats, args->name, stem_len);
    core->hooks.retain(core->hooks.arg);
    hfi_cancel_attach(args->cancel, op);
    return op;
}
