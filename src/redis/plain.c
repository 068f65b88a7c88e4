/*
 * The plain lock: reentrant, exclusive, unfair; Redisson's RLock.
 *
 * On the server it is a hash under the lock's name with one field: the owner, and how many times it
 * holds the lock. What the scripts do is in plain_*.lua; here is only what they are given and what
 * they answer. The non-reentrant, spin and fenced locks are the same hash, and share what they have
 * in common with this one (plain.h). Stateless; any thread.
 */
#include "redis/plain.h"
#include "redis/script_reply.h"

#include <stdlib.h>

#define CHANNEL "redisson_lock__channel"
#define TOLD_DIGITS 1000     /* of the time that a release answers: how many it has told */
#define USUAL_LEASE_MS 30000 /* what plain_acquire.lua takes if it is given none */

/* Numbers that the scripts answer. */
enum {
    ANSWER_NO = 0,
    ANSWER_YES = 1,
    ANSWER_NOT_NOTIFIED = 2,
    ANSWER_GONE = -1,
    ANSWER_NOT_TOLD = -1, /* as the second number, of a break */
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

/* The script's lease must be positive, even where it does not matter. */
static int64_t lease_of(const struct hfi_call *call) {
    return call->lease_ms > 0 ? call->lease_ms : 1;
}

/* Two integers and the time. */
static bool read_pair(const redisReply *reply, int64_t *ret_code, int64_t *ret_value) {
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

/* An argument costs the server a tenth of what its script does: what is as usual is left out. */
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

int hfi_plain_read_acquire(const struct hfi_call *call, const redisReply *reply,
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

int hfi_plain_read_release(int64_t count, const redisReply *reply, struct hfi_release_answer *ret) {
    int64_t code = ANSWER_YES, value = 0;
    if (!hfi_is_done(reply) && !read_pair(reply, &code, &value))
        return HF_EPROTO;
    *ret = (struct hfi_release_answer){.count = value};
    if ((code == ANSWER_YES || code == ANSWER_NOT_NOTIFIED) && count == 1) {
        ret->verdict = HFI_RELEASED;
        ret->not_notified = code == ANSWER_NOT_NOTIFIED;
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

int hfi_plain_read_told(int64_t count, const redisReply *reply, struct hfi_release_answer *ret) {
    int err = hfi_plain_read_release(count, reply, ret);
    if (err == HF_OK && hfi_is_done(reply)) {
        ret->told_known = true;
        ret->told = (int)(reply->integer % TOLD_DIGITS);
    }
    return err;
}

/* ---- Break ---- */

static bool is_count(const redisReply *reply) {
    if (reply->type != REDIS_REPLY_STRING || reply->len == 0 || reply->str[0] < '0' ||
        reply->str[0] > '9')
        return false;
    char *end;
    strtoll(reply->str, &end, 10);
    return end == reply->str + reply->len;
}

/* A hash that contains anything but owners and counts is not a lock of this kind, and not ours to
 * delete. */
int hfi_plain_find_holder(const redisReply *fields, const redisReply **ret_owner) {
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (fields->element[i]->type != REDIS_REPLY_STRING || !is_count(fields->element[i + 1]))
            return HF_EWRONGTYPE;
    *ret_owner = fields->elements >= 2 ? fields->element[0] : NULL;
    return HF_OK;
}

void hfi_plain_write_force(const struct hfi_redis *redis, const struct hfi_call *call,
                           const char *owner, size_t owner_len, int64_t not_after_ms,
                           struct hfi_command *command) {
    add_key(redis, call, command);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, owner, owner_len);
    add_channel(redis, call, command);
    hfi_rumours_say_broken(redis, command);
}

int hfi_plain_read_force(const redisReply *reply, struct hfi_force_answer *ret) {
    int64_t code, value;
    if (!read_pair(reply, &code, &value) || code < ANSWER_NO || code > ANSWER_NOT_NOTIFIED)
        return HF_EPROTO;
    ret->broken = code != ANSWER_NO;
    ret->not_notified = code == ANSWER_NOT_NOTIFIED;
    ret->not_told = value == ANSWER_NOT_TOLD;
    return HF_OK;
}

/* ---- The table ---- */

const struct hfi_redis_kind hfi_plain = {
    .field_suffix = "",
    .key_tells = true,
    .acquire = &hfi_script_plain_acquire,
    .release = &hfi_script_plain_release,
    .force = &hfi_script_plain_force,
    .write_acquire = hfi_plain_write_acquire,
    .read_acquire = hfi_plain_read_acquire,
    .write_release = hfi_plain_write_release,
    .read_release = hfi_plain_read_told,
    .find_holder = hfi_plain_find_holder,
    .write_force = hfi_plain_write_force,
    .read_force = hfi_plain_read_force,
    .channel = hfi_plain_channel,
    .waiting = &hfi_waiting_listen,
    .goes_round = true,
    .renewer = &hfi_renewer_hash,
};

const struct hfi_kind hfi_kind_plain = {
    .name = "plain",
    .ops = &hfi_redis_lock_ops,
    .reentrant = true,
    .exclusive = true,
    .token = false,
    .engine_private = &hfi_plain,
};
