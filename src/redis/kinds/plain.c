/*
 * The plain lock: reentrant, exclusive, unfair; Redisson's RLock.
 *
 * On the server it is a hash under the lock's name with one field: the owner, and its hold count.
 * The scripts are plain_*.lua; this file has their arguments and replies. The non-reentrant, spin
 * and fenced locks use the same hash, and share code with this one (plain.h). Stateless; any
 * thread.
 */
#include "redis/kinds/plain.h"
#include "redis/wire/script_reply.h"

#include <stdlib.h>

#define CHANNEL "redisson_lock__channel"
/* the last digits of the time in a release's reply: how many subscribers were notified */
#define NOTIFIED_DIGITS 1000
#define USUAL_LEASE_MS 30000 /* the default lease of plain_acquire.lua */

/* Numbers in the scripts' replies. */
enum {
    ANSWER_NO = 0,
    ANSWER_YES = 1,
    REPLY_WAITERS_UNNOTIFIED = 2,
    ANSWER_GONE = -1,
    REPLY_HOLDER_UNNOTIFIED = -1, /* as the second number, of a break */
    ANSWER_MISMATCH = -2
};

size_t hfi_plain_channel(const struct hfi_redis *redis, const struct hfi_call *call, char *to) {
    return hfi_name_prefixed(&redis->names, CHANNEL, call->name, call->name_len, to);
}

static void add_channel(const struct hfi_redis *redis, const struct hfi_call *call,
                        struct hfi_command *command) {
    hfi_redis_write_publish(redis, command);
    char *room = hfi_command_room(command, hfi_plain_channel(redis, call, NULL));
    if (room != NULL)
        hfi_plain_channel(redis, call, room);
}

static void add_key(const struct hfi_redis *redis, const struct hfi_call *call,
                    struct hfi_command *command) {
    hfi_command_bytes(command, "1", 1);
    hfi_name_key(&redis->names, call->name, call->name_len, command);
}

/* The scripts need a positive lease, even if it is not used. */
static int64_t lease_of(const struct hfi_call *call) {
    return call->lease_ms > 0 ? call->lease_ms : 1;
}

/* Two integers and the time. */
static bool read_pair(const struct hfi_reply *reply, int64_t *ret_code, int64_t *ret_value) {
    if (reply->elements != 3)
        return false;
    *ret_code = reply->element[0]->integer;
    *ret_value = reply->element[1]->integer;
    return true;
}

/* ---- Acquire ---- */

void hfi_plain_acquire_args(const struct hfi_call *call, int64_t not_after_ms,
                            struct hfi_command *command) {
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, call->owner, call->owner_len);
    hfi_command_number(command, lease_of(call));
    hfi_command_number(command, call->count);
}

/* An argument costs the server a tenth of the script's time: defaults are left out. */
void hfi_plain_write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                             int64_t not_after_ms, struct hfi_command *command) {
    add_key(redis, call, command);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, call->owner, call->owner_len);
    if (call->count > 0 || lease_of(call) != USUAL_LEASE_MS)
        hfi_command_number(command, lease_of(call));
    if (call->count > 0)
        hfi_command_number(command, call->count);
}

int hfi_plain_read_acquire(const struct hfi_call *call, const struct hfi_reply *reply,
                           struct hfi_acquire_answer *ret) {
    int64_t code = ANSWER_YES, value = 1;
    if (!hfi_is_done(reply) && !read_pair(reply, &code, &value))
        return HF_EPROTO;
    *ret = (struct hfi_acquire_answer){.count = value};
    if (code == ANSWER_YES && value == call->count + 1) {
        ret->verdict = HFI_ACQUIRED;
    } else if (code == ANSWER_NO && value >= -1 && call->count == 0) {
        ret->verdict = HFI_TAKEN;
        ret->ttl_ms = value;
    } else if (code == ANSWER_GONE && call->count > 0) {
        ret->verdict = HFI_ACQUIRE_GONE;
    } else if (code == ANSWER_MISMATCH && call->count > 0) {
        ret->verdict = HFI_ACQUIRE_MISMATCH;
    } else {
        return HF_EPROTO;
    }
    return HF_OK;
}

/* ---- Release ---- */

void hfi_plain_write_release(const struct hfi_redis *redis, const struct hfi_call *call,
                             int64_t count, int64_t not_after_ms, struct hfi_command *command) {
    add_key(redis, call, command);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, call->owner, call->owner_len);
    bool usual_channel = !hfi_redis_is_sharded(redis) &&
                         !hfi_name_has_brace(&redis->names, call->name, call->name_len);
    if (count == 1 && usual_channel)
        return;
    hfi_command_number(command, lease_of(call));
    hfi_command_number(command, count);
    add_channel(redis, call, command);
}

int hfi_plain_read_release(int64_t count, const struct hfi_reply *reply,
                           struct hfi_release_answer *ret) {
    int64_t code = ANSWER_YES, value = 0;
    if (!hfi_is_done(reply) && !read_pair(reply, &code, &value))
        return HF_EPROTO;
    *ret = (struct hfi_release_answer){.count = value};
    if ((code == ANSWER_YES || code == REPLY_WAITERS_UNNOTIFIED) && count == 1) {
        ret->verdict = HFI_RELEASED;
        ret->waiters_unnotified = code == REPLY_WAITERS_UNNOTIFIED;
    } else if (code == ANSWER_NO && count > 1 && value == count - 1) {
        ret->verdict = HFI_STILL_HELD;
    } else if (code == ANSWER_GONE) {
        ret->verdict = HFI_RELEASE_GONE;
    } else if (code == ANSWER_MISMATCH) {
        ret->verdict = HFI_RELEASE_MISMATCH;
    } else {
        return HF_EPROTO;
    }
    return HF_OK;
}

int hfi_plain_read_notified(int64_t count, const struct hfi_reply *reply,
                            struct hfi_release_answer *ret) {
    int err = hfi_plain_read_release(count, reply, ret);
    if (err == HF_OK && hfi_is_done(reply)) {
        ret->waiters_notified_known = true;
        ret->waiters_notified = (int)(reply->integer % NOTIFIED_DIGITS);
    }
    return err;
}

/* ---- Break ---- */

static bool is_count(const struct hfi_reply *reply) {
    if (reply->type != HFI_REPLY_STRING || reply->len == 0 || reply->str[0] < '0' ||
        reply->str[0] > '9')
        return false;
    char *end;
    strtoll(reply->str, &end, 10);
    return end == reply->str + reply->len;
}

/* A hash that contains anything but owners and counts is not a lock of this kind, and not ours to
 * delete. */
int hfi_plain_find_holder(const struct hfi_reply *fields, const struct hfi_reply **ret_owner) {
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (fields->element[i]->type != HFI_REPLY_STRING || !is_count(fields->element[i + 1]))
            return HF_EWRONGTYPE;
    *ret_owner = fields->elements >= 2 ? fields->element[0] : NULL;
    return HF_OK;
}

void hfi_plain_write_break(const struct hfi_redis *redis, const struct hfi_call *call,
                           const char *owner, size_t owner_len, int64_t not_after_ms,
                           struct hfi_command *command) {
    add_key(redis, call, command);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, owner, owner_len);
    add_channel(redis, call, command);
    hfi_break_channel_publish(redis, command);
}

int hfi_plain_read_break(const struct hfi_reply *reply, struct hfi_break_reply *ret) {
    int64_t code, value;
    if (!read_pair(reply, &code, &value) || code < ANSWER_NO || code > REPLY_WAITERS_UNNOTIFIED)
        return HF_EPROTO;
    ret->broken = code != ANSWER_NO;
    ret->waiters_unnotified = code == REPLY_WAITERS_UNNOTIFIED;
    ret->holder_unnotified = value == REPLY_HOLDER_UNNOTIFIED;
    return HF_OK;
}

/* ---- The table ---- */

const struct hfi_redis_kind hfi_plain = {
    .field_suffix = "",
    .key_means_held = true,
    .acquire = &hfi_script_plain_acquire,
    .release = &hfi_script_plain_release,
    .break_holds = &hfi_script_plain_break,
    .write_acquire = hfi_plain_write_acquire,
    .read_acquire = hfi_plain_read_acquire,
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
};

const struct hfi_kind hfi_kind_plain = {
    .name = "plain",
    .ops = &hfi_redis_lock_ops,
    .reentrant = true,
    .exclusive = true,
    .token = false,
    .tracked = true,
    .engine_private = &hfi_plain,
};
