/*
 * The two sides of the read/write lock: many readers, or one writer that may also read; Redisson's
 * RReadWriteLock.
 *
 * On the server it is a hash under the lock's name: `mode`, and a field for each reader and for the
 * writer. The writer's field ends in ":write". Beside the hash is a key for each level of each
 * reader (readwrite_common.lua). Both sides share one channel. The scripts are read_*.lua,
 * write_*.lua and readwrite_break.lua; this file has their arguments, and the queries that differ
 * between the sides. The replies of the scripts are the plain lock's. Stateless; any thread.
 */
#include "redis/kinds/plain.h"

#include <string.h>

#define CHANNEL "redisson_rwlock"
#define WRITER ":write" /* suffix of the owner: the field of its write holds */
#define FIELDS_OF_A_MERE_WRITER 2

static size_t channel(const struct hfi_redis *redis, const struct hfi_call *call, char *to) {
    return hfi_name_prefixed(&redis->names, CHANNEL, call->name, call->name_len, to);
}

static void add_channel(const struct hfi_redis *redis, const struct hfi_call *call,
                        struct hfi_command *command) {
    hfi_redis_write_publish(redis, command);
    char *room = hfi_command_room(command, channel(redis, call, NULL));
    if (room != NULL)
        channel(redis, call, room);
}

static void add_key(const struct hfi_redis *redis, const struct hfi_call *call,
                    struct hfi_command *command) {
    hfi_command_text(command, "1");
    hfi_name_key(&redis->names, call->name, call->name_len, command);
}

/* The scripts need a positive lease, even if it is not used. */
static int64_t positive(int64_t lease_ms) {
    return lease_ms > 0 ? lease_ms : 1;
}

static void add_writer(const struct hfi_call *call, struct hfi_command *command) {
    hfi_command_pair(command, call->owner, call->owner_len, WRITER, strlen(WRITER));
}

/* ---- Acquire and release ---- */

static void write_read_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                               int64_t not_after_ms, struct hfi_command *command) {
    add_key(redis, call, command);
    hfi_plain_acquire_args(call, not_after_ms, command);
    add_channel(redis, call, command);
}

static void write_read_release(const struct hfi_redis *redis, const struct hfi_call *call,
                               int64_t count, int64_t not_after_ms, struct hfi_command *command) {
    add_key(redis, call, command);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, call->owner, call->owner_len);
    hfi_command_number(command, count);
    add_channel(redis, call, command);
}

static void write_write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                                int64_t not_after_ms, struct hfi_command *command) {
    add_key(redis, call, command);
    hfi_command_number(command, not_after_ms);
    add_writer(call, command);
    hfi_command_number(command, positive(call->lease_ms));
    hfi_command_number(command, call->count);
}

static void write_write_release(const struct hfi_redis *redis, const struct hfi_call *call,
                                int64_t count, int64_t not_after_ms, struct hfi_command *command) {
    add_key(redis, call, command);
    hfi_command_number(command, not_after_ms);
    add_writer(call, command);
    hfi_command_number(command, positive(call->lease_ms));
    hfi_command_number(command, count);
    add_channel(redis, call, command);
}

/* ---- Renewal ---- */

static void write_read_renewal(const struct hfi_redis *redis,
                               const struct hfi_renewal_item *const *items, size_t len,
                               int64_t not_after_ms, struct hfi_command *command) {
    hfi_command_number(command, (int64_t)len);
    for (size_t i = 0; i < len; i++)
        hfi_name_key(&redis->names, items[i]->name, items[i]->name_len, command);
    hfi_command_number(command, not_after_ms);
    for (size_t i = 0; i < len; i++) {
        hfi_command_number(command, positive(items[i]->lease_ms));
        hfi_command_bytes(command, items[i]->owner, items[i]->owner_len);
    }
}

static const struct hfi_renewer read_renewer = {
    .undeclared_keys = true,
    .script = &hfi_script_read_renew,
    .write_probe = hfi_renewer_hash_write_probe,
    .is_there = hfi_renewer_hash_is_there,
    .write = write_read_renewal,
};

/* ---- Break ---- */

static bool is_text(const struct hfi_reply *reply, const char *text) {
    return reply->type == HFI_REPLY_STRING && reply->len == strlen(text) &&
           memcmp(reply->str, text, reply->len) == 0;
}

/* Anywhere in the field: the owners of Redisson's transactions have a suffix behind it. */
static bool is_writer(const struct hfi_reply *field) {
    return memmem(field->str, field->len, WRITER, strlen(WRITER)) != NULL;
}

static const struct hfi_reply *find_mode(const struct hfi_reply *fields) {
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (is_text(fields->element[i], "mode"))
            return fields->element[i + 1];
    return NULL;
}

/* Returns the first holder of one side. In a small hash that is the oldest, so the least likely to
 * release soon. The side that `mode` does not name has no holders, except for a writer that also
 * reads: it keeps the lock until it stops writing. */
static int find_holder(const struct hfi_reply *fields, const char *side, bool writer,
                       const struct hfi_reply **ret_owner) {
    *ret_owner = NULL;
    const struct hfi_reply *mode = find_mode(fields);
    if (mode == NULL)
        return fields->elements == 0 ? HF_OK : HF_EWRONGTYPE;
    if (!is_text(mode, side))
        return HF_OK;
    for (size_t i = 0; i + 1 < fields->elements && *ret_owner == NULL; i += 2) {
        const struct hfi_reply *field = fields->element[i];
        if (field->type != HFI_REPLY_STRING)
            return HF_EWRONGTYPE;
        if (!is_text(field, "mode") && is_writer(field) == writer)
            *ret_owner = field;
    }
    return HF_OK;
}

static int find_reader(const struct hfi_reply *fields, const struct hfi_reply **ret_owner) {
    return find_holder(fields, "read", false, ret_owner);
}

static int find_writer(const struct hfi_reply *fields, const struct hfi_reply **ret_owner) {
    return find_holder(fields, "write", true, ret_owner);
}

static void write_break(const struct hfi_redis *redis, const struct hfi_call *call,
                        const char *owner, size_t owner_len, const char *side, int64_t not_after_ms,
                        struct hfi_command *command) {
    add_key(redis, call, command);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, owner, owner_len);
    hfi_command_text(command, side);
    add_channel(redis, call, command);
    hfi_break_channel_publish(redis, command);
}

static void write_read_break(const struct hfi_redis *redis, const struct hfi_call *call,
                             const char *owner, size_t owner_len, int64_t not_after_ms,
                             struct hfi_command *command) {
    write_break(redis, call, owner, owner_len, "read", not_after_ms, command);
}

static void write_write_break(const struct hfi_redis *redis, const struct hfi_call *call,
                              const char *owner, size_t owner_len, int64_t not_after_ms,
                              struct hfi_command *command) {
    write_break(redis, call, owner, owner_len, "write", not_after_ms, command);
}

/* ---- Is it locked? ---- */

static void write_question(struct hfi_exchange *x, const char *verb, struct hfi_command *command) {
    const struct hfi_call *call = hfi_state_around(x)->call;
    hfi_command_text(command, verb);
    hfi_name_key(&x->redis->names, call->name, call->name_len, command);
}

static void write_mode_question(struct hfi_exchange *x, int64_t not_after_ms,
                                struct hfi_command *command) {
    (void)not_after_ms;
    write_question(x, "HGET", command);
    hfi_command_text(command, "mode");
}

static void write_fields_question(struct hfi_exchange *x, int64_t not_after_ms,
                                  struct hfi_command *command) {
    (void)not_after_ms;
    write_question(x, "HGETALL", command);
}

static void answer(struct hfi_call *call, bool locked) {
    call->value = locked;
    hfi_call_finish(call, HF_OK);
}

/* NULL: the call is over. */
static const struct hfi_reply *reply_of(struct hfi_call *call) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (x->err == HF_OK)
        return hfi_exchange_reply(x);
    hfi_call_finish(call, x->err);
    return NULL;
}

/* Reads all fields at one moment: the writer may have released since `mode` was read, and a reader
 * that stays would be missed. A lock in write mode is also being read if it has one more field. */
static void got_fields(struct hfi_call *call) {
    const struct hfi_reply *reply = reply_of(call);
    if (reply == NULL)
        return;
    if (reply->type != HFI_REPLY_ARRAY) {
        hfi_call_fail_proto(call);
        return;
    }
    const struct hfi_reply *mode = find_mode(reply);
    answer(call, mode != NULL &&
                     (is_text(mode, "read") || reply->elements / 2 > FIELDS_OF_A_MERE_WRITER));
}

static void got_mode_for_reader(struct hfi_call *call) {
    const struct hfi_reply *reply = reply_of(call);
    if (reply == NULL)
        return;
    if (is_text(reply, "write"))
        hfi_call_send(call, NULL, write_fields_question, got_fields);
    else
        answer(call, is_text(reply, "read"));
}

static void got_mode_for_writer(struct hfi_call *call) {
    const struct hfi_reply *reply = reply_of(call);
    if (reply != NULL)
        answer(call, is_text(reply, "write"));
}

static void ask_read_locked(struct hfi_call *call) {
    hfi_call_send(call, NULL, write_mode_question, got_mode_for_reader);
}

static void ask_write_locked(struct hfi_call *call) {
    hfi_call_send(call, NULL, write_mode_question, got_mode_for_writer);
}

/* ---- The tables ---- */

static const struct hfi_redis_kind read_side = {
    .field_suffix = "",
    .undeclared_keys = true,
    .acquire = &hfi_script_read_acquire,
    .release = &hfi_script_read_release,
    .break_holds = &hfi_script_readwrite_break,
    .write_acquire = write_read_acquire,
    .read_acquire = hfi_plain_read_acquire,
    .write_release = write_read_release,
    .read_release = hfi_plain_read_release,
    .find_holder = find_reader,
    .write_break = write_read_break,
    .read_break = hfi_plain_read_break,
    .channel = channel,
    .waiting = &hfi_wait_subscribe,
    .ask_locked = ask_read_locked,
    .renewer = &read_renewer,
};

static const struct hfi_redis_kind write_side = {
    .field_suffix = WRITER,
    .undeclared_keys = true,
    .acquire = &hfi_script_write_acquire,
    .release = &hfi_script_write_release,
    .break_holds = &hfi_script_readwrite_break,
    .write_acquire = write_write_acquire,
    .read_acquire = hfi_plain_read_acquire,
    .write_release = write_write_release,
    .read_release = hfi_plain_read_release,
    .find_holder = find_writer,
    .write_break = write_write_break,
    .read_break = hfi_plain_read_break,
    .channel = channel,
    .waiting = &hfi_wait_subscribe,
    .ask_locked = ask_write_locked,
    .renewer = &hfi_renewer_hash,
};

const struct hfi_kind hfi_kind_read = {
    .name = "read",
    .ops = &hfi_redis_lock_ops,
    .part = "read",
    .reentrant = true,
    .exclusive = false,
    .keeps_fresh = true,
    .leaves_traces = true,
    .tracked = true,
    .engine_private = &read_side,
};

const struct hfi_kind hfi_kind_write = {
    .name = "write",
    .ops = &hfi_redis_lock_ops,
    .part = "write",
    .reentrant = true,
    .exclusive = true,
    .never_beside = &hfi_kind_read,
    .tracked = true,
    .engine_private = &write_side,
};
