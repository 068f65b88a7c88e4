/*
 * The semaphore: a count of permits without owners; Redisson's RSemaphore.
 *
 * On the server it is a count in a string under the semaphore's name. The scripts are
 * semaphore_*.lua and counter_delete.lua; this file has their arguments and replies. The server
 * does not know who took which permits, so no command that changes the count may run twice, and an
 * unknown outcome stays unknown. But an acquire leaves an idempotency key (idempotency.h), so it
 * can be sent again, or undone if it is given up.
 *
 * Without a key: if the acquire is cancelled in flight, the settlement waits for its reply. If that
 * says "taken", it gives the permits back. Stateless but for that settlement, which is the
 * keeper's.
 */
#include "redis/kinds/counter.h"

#include "base/clock.h"
#include "redis/wire/script_reply.h"

#define CHANNEL "redisson_sc"

static size_t channel(const struct hfi_redis *redis, const struct hfi_call *call, char *to) {
    return hfi_name_prefixed(&redis->names, CHANNEL, call->name, call->name_len, to);
}

/* ---- Acquire ---- */

/* The keys, with the idempotency key, if there is one. */
static void begin_with_key(const struct hfi_redis *redis, const struct hfi_call *call,
                           int64_t not_after_ms, struct hfi_command *command) {
    char key_slot[HFI_IDEMPOTENCY_SLOT_MAX];
    bool drawn = hfi_idempotency_drawn(call);
    if (drawn)
        hfi_idempotency_slot(call, key_slot);
    hfi_counter_begin_beside(redis, call, drawn ? key_slot : NULL, not_after_ms, command);
    hfi_command_number(command, call->amount);
    if (drawn)
        hfi_command_number(command, (int64_t)call->idempotency_key.number);
}

static void write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_call_state *state = call->state;
    begin_with_key(redis, call, not_after_ms, command);
    if (hfi_idempotency_drawn(call))
        hfi_command_number(command, state->exchange.unanswered);
}

static int read_acquire(const struct hfi_call *call, const struct hfi_reply *reply,
                        struct hfi_acquire_answer *ret) {
    int64_t code, number;
    (void)call;
    int err = hfi_counter_read_pair(reply, &code, &number);
    if (err != HF_OK)
        return err;
    *ret = (struct hfi_acquire_answer){
        .verdict = code != 0 ? HFI_ACQUIRED : HFI_TAKEN, .count = number, .ttl_ms = -1};
    return HF_OK;
}

/* ---- Operations ---- */

static void write_set(const struct hfi_redis *redis, const struct hfi_call *call,
                      int64_t not_after_ms, struct hfi_command *command) {
    hfi_counter_begin(redis, call, not_after_ms, command);
    hfi_command_number(command, call->amount);
    hfi_command_number(command, call->ttl_ms);
    hfi_counter_add_channel(redis, call, command);
}

static void write_change(const struct hfi_redis *redis, const struct hfi_call *call,
                         int64_t not_after_ms, bool must_exist, struct hfi_command *command) {
    hfi_counter_begin(redis, call, not_after_ms, command);
    hfi_command_number(command, call->amount);
    hfi_command_number(command, must_exist);
    hfi_counter_add_channel(redis, call, command);
}

static void write_put(const struct hfi_redis *redis, const struct hfi_call *call,
                      int64_t not_after_ms, struct hfi_command *command) {
    write_change(redis, call, not_after_ms, false, command);
}

static void write_put_if_exists(const struct hfi_redis *redis, const struct hfi_call *call,
                                int64_t not_after_ms, struct hfi_command *command) {
    write_change(redis, call, not_after_ms, true, command);
}

/* A deletion frees no permits, so waiters get no message. */
static void write_delete(const struct hfi_redis *redis, const struct hfi_call *call,
                         int64_t not_after_ms, struct hfi_command *command) {
    hfi_counter_begin(redis, call, not_after_ms, command);
    hfi_command_text(command, "");
    hfi_command_text(command, "");
}

static int read_available(const struct hfi_call *call, const struct hfi_reply *reply,
                          struct hfi_object_op_reply *ret) {
    (void)call;
    return hfi_counter_read_get(reply, &ret->value);
}

static const struct hfi_redis_object_op object_ops[HFI_OBJECT_OPS] = {
    [HFI_OBJECT_SET] = {.script = &hfi_script_semaphore_set,
                        .once = true,
                        .write = write_set,
                        .read = hfi_counter_read_done},
    [HFI_OBJECT_ADD] = {.script = &hfi_script_semaphore_change,
                        .once = true,
                        .write = write_put,
                        .read = hfi_counter_read_done},
    [HFI_OBJECT_PUT] = {.script = &hfi_script_semaphore_change,
                        .once = true,
                        .write = write_put,
                        .read = hfi_counter_read_done},
    [HFI_OBJECT_PUT_IF_EXISTS] = {.script = &hfi_script_semaphore_change,
                                  .once = true,
                                  .write = write_put_if_exists,
                                  .read = hfi_counter_read_done},
    [HFI_OBJECT_DRAIN] = {.script = &hfi_script_semaphore_drain,
                          .once = true,
                          .write = hfi_counter_begin,
                          .read = hfi_counter_read_number},
    [HFI_OBJECT_DELETE] = {.script = &hfi_script_counter_delete,
                           .once = true,
                           .write = write_delete,
                           .read = hfi_counter_read_done},
    [HFI_OBJECT_AVAILABLE] = {.write = hfi_counter_write_get, .read = read_available},
};

/* ---- Settlement ---- */

/* With an idempotency key: as a release undoes the acquire of a lock. */
static void write_undo(const struct hfi_redis *redis, const struct hfi_call *call, int64_t count,
                       int64_t not_after_ms, struct hfi_command *command) {
    (void)count;
    begin_with_key(redis, call, not_after_ms, command);
    hfi_counter_add_channel(redis, call, command);
}

static int read_undo(int64_t count, const struct hfi_reply *reply, struct hfi_release_answer *ret) {
    struct hfi_object_op_reply answer = {0};
    (void)count;
    int err = hfi_counter_read_done(NULL, reply, &answer);
    if (err != HF_OK)
        return err;
    *ret = (struct hfi_release_answer){
        .verdict = answer.value > 0 ? HFI_RELEASED : HFI_RELEASE_GONE,
        .waiters_unnotified = answer.waiters_unnotified,
    };
    return HF_OK;
}

/* Without an idempotency key, as far as the reply tells. */

/* Given back or not, it cannot be tried again. */
static void given_back(struct hfi_call *call) {
    hfi_call_finish(call, HF_OK);
}

static void in_doubt_answered(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_req *in_doubt = state->in_doubt;
    struct hfi_acquire_answer answer;
    bool taken = in_doubt->err == HF_OK && !hfi_is_refusal(in_doubt->reply) &&
                 read_acquire(call, in_doubt->reply, &answer) == HF_OK &&
                 answer.verdict == HFI_ACQUIRED;
    hfi_call_drop_in_doubt(call);
    if (taken)
        hfi_object_op_send(call, &object_ops[HFI_OBJECT_PUT_IF_EXISTS], given_back);
    else
        hfi_call_finish(call, HF_OK);
}

static void step_settle(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    if ((events & state->in_doubt_event) != 0 && atomic_load(&state->in_doubt->complete))
        in_doubt_answered(call);
    else if ((events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange))
        hfi_call_finish(call, HF_OK); /* the outcome is unknown, and was counted as such */
}

static void settle(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->in_doubt == NULL) {
        hfi_call_finish(call, HF_OK);
        return;
    }
    state->step = step_settle;
    hfi_exchange_sleep(&state->exchange, call->deadline_ms);
    if (atomic_load(&state->in_doubt->complete))
        in_doubt_answered(call); /* it came before the step was set */
}

/* ---- The table ---- */

static const struct hfi_redis_kind semaphore = {
    .field_suffix = "",
    .acquire = &hfi_script_semaphore_acquire,
    .release = &hfi_script_semaphore_undo,
    .write_acquire = write_acquire,
    .read_acquire = read_acquire,
    .write_release = write_undo,
    .read_release = read_undo,
    .channel = channel,
    .waiting = &hfi_wait_subscribe,
    .object_ops = object_ops,
    .busy = "too few permits are available",
    .draws_idempotency_key = true,
    .settle = settle,
};

const struct hfi_kind hfi_object_semaphore = {
    .name = "semaphore",
    .ops = &hfi_redis_object_ops,
    .engine_private = &semaphore,
};
