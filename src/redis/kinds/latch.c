/*
 * The count-down latch: some clients count it down to zero while others wait for that; Redisson's
 * RCountDownLatch.
 *
 * On the server it is a count in a string under the latch's name; without one the latch is open.
 * The scripts are latch_*.lua and counter_delete.lua; this file has their arguments and replies.
 * Waiting means reading the count again and again, so it changes nothing and may be repeated. A
 * message on the latch's channel is only a reason to read it.
 *
 * Beside the count is a proof that the latch was open. Our scripts that open or close the latch
 * leave it for a while. So a waiter that finds the latch closed anew still learns that it was open
 * (wait_latch.c). Java clients leave no proof. Stateless; any thread.
 */
#include "redis/kinds/counter.h"

#include <string.h>

#define CHANNEL_START "redisson_countdownlatch__channel__{"
#define CHANNEL_END "}"
#define PROOF "holdfast_latch"

/* The channel always adds braces of its own, even if the name has some. */
static size_t channel(const struct hfi_redis *redis, const struct hfi_call *call, char *to) {
    const struct hfi_names *names = &redis->names;
    const struct {
        const char *bytes;
        size_t len;
    } parts[] = {{CHANNEL_START, strlen(CHANNEL_START)},
                 {names->prefix, names->prefix_len},
                 {call->name, call->name_len},
                 {CHANNEL_END, strlen(CHANNEL_END)}};
    size_t len = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (to != NULL)
            memcpy(to + len, parts[i].bytes, parts[i].len);
        len += parts[i].len;
    }
    return len;
}

/* ---- Await ---- */

static void write_await(const struct hfi_redis *redis, const struct hfi_call *call,
                        int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_names *names = &redis->names;
    bool proof = hfi_name_keeps_slot(names, call->name, call->name_len);
    (void)not_after_ms;
    hfi_command_number(command, proof ? 2 : 1);
    hfi_name_key(names, call->name, call->name_len, command);
    if (proof)
        hfi_name_beside(names, PROOF, call->name, call->name_len, command);
    hfi_command_number(command, 0);
}

static int read_await(const struct hfi_call *call, const struct hfi_reply *reply,
                      struct hfi_acquire_answer *ret) {
    (void)call;
    if (reply->elements != 3)
        return HF_EPROTO;
    int64_t count = reply->element[0]->integer, proof = reply->element[1]->integer;
    if (count < 0 || proof < 0)
        return HF_EPROTO;
    *ret = (struct hfi_acquire_answer){.verdict = count == 0 ? HFI_ACQUIRED : HFI_TAKEN,
                                       .count = count,
                                       .ttl_ms = -1,
                                       .proof = proof};
    return HF_OK;
}

/* ---- Operations ---- */

static void write_set(const struct hfi_redis *redis, const struct hfi_call *call,
                      int64_t not_after_ms, struct hfi_command *command) {
    hfi_counter_begin_beside(redis, call, PROOF, not_after_ms, command);
    hfi_command_number(command, call->amount);
    hfi_counter_add_channel(redis, call, command);
}

static void write_open(const struct hfi_redis *redis, const struct hfi_call *call,
                       int64_t not_after_ms, struct hfi_command *command) {
    hfi_counter_begin_beside(redis, call, PROOF, not_after_ms, command);
    hfi_counter_add_channel(redis, call, command);
}

/* Old Redisson clients may have counted below zero: that is open, too. */
static int read_count(const struct hfi_call *call, const struct hfi_reply *reply,
                      struct hfi_object_op_reply *ret) {
    int64_t count;
    (void)call;
    int err = hfi_counter_read_get(reply, &count);
    if (err == HF_OK)
        ret->value = count > 0 ? count : 0;
    return err;
}

static const struct hfi_redis_object_op object_ops[HFI_OBJECT_OPS] = {
    [HFI_OBJECT_SET] = {.script = &hfi_script_latch_set,
                        .once = true,
                        .write = write_set,
                        .read = hfi_counter_read_done},
    [HFI_OBJECT_COUNT_DOWN] = {.script = &hfi_script_latch_count_down,
                               .once = true,
                               .write = write_open,
                               .read = hfi_counter_read_done},
    [HFI_OBJECT_DELETE] = {.script = &hfi_script_counter_delete,
                           .once = true,
                           .write = write_open,
                           .read = hfi_counter_read_done},
    [HFI_OBJECT_AVAILABLE] = {.write = hfi_counter_write_get, .read = read_count},
};

/* ---- The table ---- */

static const struct hfi_redis_kind latch = {
    .field_suffix = "",
    .acquire = &hfi_script_latch_read,
    .write_acquire = write_await,
    .read_acquire = read_await,
    .channel = channel,
    .waiting = &hfi_wait_latch,
    .object_ops = object_ops,
    .busy = "the latch is closed",
};

const struct hfi_kind hfi_object_latch = {
    .name = "latch",
    .ops = &hfi_redis_object_ops,
    .engine_private = &latch,
};
