/*
 * The fenced lock: like the plain one, but every acquire draws a fencing token, larger than all
 * before it; Redisson's RFencedLock.
 *
 * The token is a counter in a key of its own, which never expires. Only the acquire is different:
 * its script takes the counter as a second key and returns the token as a third number. A reply
 * without a token never counts as "acquired". Stateless; any thread.
 */
#include "redis/kinds/plain.h"

#define COUNTER "redisson_lock_token"
#define TOKEN_MAX ((int64_t)1 << 53) /* beyond it the script could not count exactly */

static void add_keys(const struct hfi_redis *redis, const struct hfi_call *call,
                     struct hfi_command *command) {
    const struct hfi_names *names = &redis->names;
    hfi_command_bytes(command, "2", 1);
    hfi_name_key(names, call->name, call->name_len, command);
    size_t len = hfi_name_prefixed(names, COUNTER, call->name, call->name_len, NULL);
    char *room = hfi_command_room(command, len);
    if (room != NULL)
        hfi_name_prefixed(names, COUNTER, call->name, call->name_len, room);
}

static void write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    add_keys(redis, call, command);
    hfi_plain_acquire_args(call, not_after_ms, command);
}

static void write_extend(const struct hfi_redis *redis, const struct hfi_call *call,
                         int64_t not_after_ms, struct hfi_command *command) {
    add_keys(redis, call, command);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, call->owner, call->owner_len);
    hfi_command_number(command, call->lease_ms > 0 ? call->lease_ms : 1);
    hfi_command_number(command, call->token_wish);
}

/* If acquired: one, the count, the token and the time. All other replies are the plain lock's. */
static int read_acquire(const struct hfi_call *call, const struct hfi_reply *reply,
                        struct hfi_acquire_answer *ret) {
    if (reply->elements != 4) {
        int err = hfi_plain_read_acquire(call, reply, ret);
        return err == HF_OK && ret->verdict == HFI_ACQUIRED ? HF_EPROTO : err;
    }
    int64_t count = reply->element[1]->integer, token = reply->element[2]->integer;
    if (reply->element[0]->integer != 1 || count != call->count + 1 || token < 1 ||
        token >= TOKEN_MAX)
        return HF_EPROTO;
    *ret = (struct hfi_acquire_answer){.verdict = HFI_ACQUIRED, .count = count, .token = token};
    return HF_OK;
}

static const struct hfi_redis_kind fenced = {
    .field_suffix = "",
    .key_means_held = true,
    .acquire = &hfi_script_fenced_acquire,
    .release = &hfi_script_plain_release,
    .break_holds = &hfi_script_plain_break,
    .write_acquire = write_acquire,
    .read_acquire = read_acquire,
    .write_release = hfi_plain_write_release,
    .read_release = hfi_plain_read_notified,
    .find_holder = hfi_plain_find_holder,
    .write_break = hfi_plain_write_break,
    .read_break = hfi_plain_read_break,
    .channel = hfi_plain_channel,
    .waiting = &hfi_wait_subscribe,
    .yields_after_release = true,
    .renewer = &hfi_renewer_hash,
    .lease = &hfi_script_lease,
    .extend = &hfi_script_fenced_extend,
    .write_extend = write_extend,
};

const struct hfi_kind hfi_kind_fenced = {
    .name = "fenced",
    .ops = &hfi_redis_lock_ops,
    .reentrant = true,
    .exclusive = true,
    .token = true,
    .tracked = true,
    .engine_private = &fenced,
};
