/*
 * Permits with leases; Redisson's RPermitExpirableSemaphore.
 *
 * On the server they are two keys: the number of free ones, and a sorted set of the taken ones. A
 * taken one is an id of 16 bytes, with the time its lease ends as the score. The scripts are
 * permits_*.lua; this file has their arguments and replies. An id is never reused, so acquiring and
 * giving back are idempotent. An id in the set has been acquired, and one that is not in it has
 * been given back. A watched permit is renewed like the hold of a lock, with its id in hexadecimal
 * digits as the owner. Stateless; any thread.
 */
#include "redis/kinds/kind.h"

#include <assert.h>

#define CHANNEL "redisson_sc"

/* Numbers in the scripts' replies. */
enum {
    ANSWER_NO = 0,
    ANSWER_YES = 1,
    REPLY_WAITERS_UNNOTIFIED = 2,
    ANSWER_MISSING = -1,
    ANSWER_ENDED = -2,
    REPLY_HOLDER_UNNOTIFIED = -1 /* as the second number, of a deletion */
};

/* ---- Arguments of the scripts ---- */

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

/* The first arguments of each script. */
static void add_head(const struct hfi_redis *redis, const struct hfi_call *call,
                     int64_t not_after_ms, struct hfi_command *command) {
    hfi_command_bytes(command, "2", 1);
    hfi_name_key(&redis->names, call->name, call->name_len, command);
    hfi_name_taken_permits(&redis->names, call->name, call->name_len, command);
    hfi_command_number(command, not_after_ms);
}

static void add_ids(const struct hfi_call *call, struct hfi_command *command) {
    for (size_t i = 0; i < call->ids_len; i++)
        hfi_command_bytes(command, call->ids + i * HFI_ID_LEN, HFI_ID_LEN);
}

/* ---- Replies ---- */

/* Two integers and the time. */
static bool read_pair(const struct hfi_reply *reply, int64_t *ret_code, int64_t *ret_number) {
    if (reply->elements != 3)
        return false;
    *ret_code = reply->element[0]->integer;
    *ret_number = reply->element[1]->integer;
    return true;
}

/* {1 yes, 2 yes but the publish was refused, 0 no; a number; the time}. */
static bool read_yes_or_no(const struct hfi_reply *reply, struct hfi_object_op_reply *ret,
                           int64_t *ret_number) {
    int64_t code;
    if (!read_pair(reply, &code, ret_number) || code < ANSWER_NO || code > REPLY_WAITERS_UNNOTIFIED)
        return false;
    ret->value = code != ANSWER_NO;
    ret->waiters_unnotified = code == REPLY_WAITERS_UNNOTIFIED;
    return true;
}

static int read_done(const struct hfi_call *call, const struct hfi_reply *reply,
                     struct hfi_object_op_reply *ret) {
    int64_t number;
    (void)call;
    return read_yes_or_no(reply, ret, &number) ? HF_OK : HF_EPROTO;
}

static int no_such_permit(struct hfi_object_op_reply *ret) {
    ret->text = "there is no such permit any more";
    return HF_ENOTOWNER;
}

/* The same; 0 means that there is no such permit. */
static int read_found(const struct hfi_call *call, const struct hfi_reply *reply,
                      struct hfi_object_op_reply *ret) {
    int err = read_done(call, reply, ret);
    return err == HF_OK && ret->value == 0 ? no_such_permit(ret) : err;
}

/* ---- Acquire ---- */

static void write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    add_head(redis, call, not_after_ms, command);
    hfi_command_number(command, call->lease_ms);
    add_channel(redis, call, command);
    add_ids(call, command);
}

static int read_acquire(const struct hfi_call *call, const struct hfi_reply *reply,
                        struct hfi_acquire_answer *ret) {
    int64_t code, number;
    if (!read_pair(reply, &code, &number))
        return HF_EPROTO;
    *ret = (struct hfi_acquire_answer){.count = number};
    if (code == ANSWER_YES && number == (int64_t)call->ids_len) {
        ret->verdict = HFI_ACQUIRED;
    } else if (code == ANSWER_NO && number >= -1) {
        ret->verdict = HFI_TAKEN;
        ret->ttl_ms = number;
    } else {
        return HF_EPROTO;
    }
    return HF_OK;
}

/* ---- Release ---- */

static void write_release(const struct hfi_redis *redis, const struct hfi_call *call, bool all,
                          int64_t not_after_ms, struct hfi_command *command) {
    add_head(redis, call, not_after_ms, command);
    hfi_command_text(command, all ? "all" : "any");
    add_channel(redis, call, command);
    add_ids(call, command);
}

/* A single permit is given back even if its lease has ended; several only all together. */
static void write_put(const struct hfi_redis *redis, const struct hfi_call *call,
                      int64_t not_after_ms, struct hfi_command *command) {
    write_release(redis, call, call->ids_len > 1, not_after_ms, command);
}

/* The value is how many were given back: 0 if an earlier copy that went unanswered has done it. */
static int read_put(const struct hfi_call *call, const struct hfi_reply *reply,
                    struct hfi_object_op_reply *ret) {
    const struct hfi_call_state *state = call->state;
    int64_t code, number;
    if (!read_pair(reply, &code, &number) || number < 0 || number > (int64_t)call->ids_len)
        return HF_EPROTO;
    if (code == ANSWER_YES || code == REPLY_WAITERS_UNNOTIFIED) {
        ret->value = number;
        ret->waiters_unnotified = code == REPLY_WAITERS_UNNOTIFIED;
        return HF_OK;
    }
    if (code == ANSWER_NO)
        return HF_ELOST;
    if (code == ANSWER_MISSING && number == (int64_t)call->ids_len && state->exchange.resent)
        return HF_OK;
    return code == ANSWER_MISSING || code == ANSWER_ENDED ? no_such_permit(ret) : HF_EPROTO;
}

/* Settlement: of an acquire, gives back all permits that are there; of a release, repeats it as it
 * was asked for. */
static void write_settle(const struct hfi_redis *redis, const struct hfi_call *call, int64_t count,
                         int64_t not_after_ms, struct hfi_command *command) {
    (void)count;
    write_release(redis, call, call->settle_release && call->ids_len > 1, not_after_ms, command);
}

static int read_settle(int64_t count, const struct hfi_reply *reply,
                       struct hfi_release_answer *ret) {
    int64_t code, number;
    (void)count;
    if (!read_pair(reply, &code, &number) || code < ANSWER_ENDED || code > REPLY_WAITERS_UNNOTIFIED)
        return HF_EPROTO;
    *ret = (struct hfi_release_answer){
        .verdict = code >= ANSWER_NO ? HFI_RELEASED : HFI_RELEASE_GONE,
        .waiters_unnotified = code == REPLY_WAITERS_UNNOTIFIED,
    };
    return HF_OK;
}

/* ---- One permit ---- */

static void write_extend(const struct hfi_redis *redis, const struct hfi_call *call,
                         int64_t not_after_ms, struct hfi_command *command) {
    add_head(redis, call, not_after_ms, command);
    hfi_command_number(command, call->lease_ms);
    add_channel(redis, call, command);
    add_ids(call, command);
}

static void write_lease(const struct hfi_redis *redis, const struct hfi_call *call,
                        int64_t not_after_ms, struct hfi_command *command) {
    add_head(redis, call, not_after_ms, command);
    add_channel(redis, call, command);
    add_ids(call, command);
}

static int read_lease(const struct hfi_call *call, const struct hfi_reply *reply,
                      struct hfi_object_op_reply *ret) {
    int64_t lease_ms;
    (void)call;
    if (!read_yes_or_no(reply, ret, &lease_ms) || ret->waiters_unnotified || lease_ms < -1)
        return HF_EPROTO;
    if (ret->value == 0)
        return no_such_permit(ret);
    ret->value = lease_ms;
    return HF_OK;
}

/* ---- The object ---- */

static void write_count(const struct hfi_redis *redis, const struct hfi_call *call,
                        int64_t not_after_ms, struct hfi_command *command) {
    add_head(redis, call, not_after_ms, command);
    add_channel(redis, call, command);
}

/* Free and taken; both 0 if there is no such object. */
static int read_counts(const struct hfi_reply *reply, int64_t *ret_free, int64_t *ret_taken) {
    if (reply->elements != 4)
        return HF_EPROTO;
    int64_t code = reply->element[0]->integer, taken = reply->element[2]->integer;
    if (code < ANSWER_NO || code > ANSWER_YES || taken < 0)
        return HF_EPROTO;
    *ret_free = code == ANSWER_YES ? reply->element[1]->integer : 0;
    *ret_taken = code == ANSWER_YES ? taken : 0;
    return HF_OK;
}

static int read_available(const struct hfi_call *call, const struct hfi_reply *reply,
                          struct hfi_object_op_reply *ret) {
    int64_t taken;
    (void)call;
    return read_counts(reply, &ret->value, &taken);
}

static int read_taken(const struct hfi_call *call, const struct hfi_reply *reply,
                      struct hfi_object_op_reply *ret) {
    int64_t available;
    (void)call;
    return read_counts(reply, &available, &ret->value);
}

static int read_total(const struct hfi_call *call, const struct hfi_reply *reply,
                      struct hfi_object_op_reply *ret) {
    int64_t available, taken;
    (void)call;
    int err = read_counts(reply, &available, &taken);
    if (err == HF_OK)
        ret->value = available + taken;
    return err;
}

static void write_set(const struct hfi_redis *redis, const struct hfi_call *call,
                      int64_t not_after_ms, const char *how, struct hfi_command *command) {
    add_head(redis, call, not_after_ms, command);
    hfi_command_text(command, how);
    hfi_command_number(command, call->amount);
    add_channel(redis, call, command);
}

static void write_set_new(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    write_set(redis, call, not_after_ms, "new", command);
}

static void write_set_total(const struct hfi_redis *redis, const struct hfi_call *call,
                            int64_t not_after_ms, struct hfi_command *command) {
    write_set(redis, call, not_after_ms, "total", command);
}

static void write_add(const struct hfi_redis *redis, const struct hfi_call *call,
                      int64_t not_after_ms, struct hfi_command *command) {
    write_set(redis, call, not_after_ms, "add", command);
}

static void write_expire(const struct hfi_redis *redis, const struct hfi_call *call,
                         int64_t not_after_ms, struct hfi_command *command) {
    add_head(redis, call, not_after_ms, command);
    hfi_command_number(command, call->ttl_ms);
}

/* Holders of permits lose them by this, as by a break of a lock. */
static void write_delete(const struct hfi_redis *redis, const struct hfi_call *call,
                         int64_t not_after_ms, struct hfi_command *command) {
    add_head(redis, call, not_after_ms, command);
    hfi_break_channel_publish(redis, command);
}

static int read_deleted(const struct hfi_call *call, const struct hfi_reply *reply,
                        struct hfi_object_op_reply *ret) {
    int64_t holder_notified;
    (void)call;
    if (!read_yes_or_no(reply, ret, &holder_notified))
        return HF_EPROTO;
    ret->holder_unnotified = holder_notified == REPLY_HOLDER_UNNOTIFIED;
    return HF_OK;
}

/* ---- Renewal ---- */

static unsigned char digit(char hex) {
    return (unsigned char)(hex <= '9' ? hex - '0' : hex - 'a' + 10);
}

static void write_renewal(const struct hfi_redis *redis,
                          const struct hfi_renewal_item *const *items, size_t len,
                          int64_t not_after_ms, struct hfi_command *command) {
    hfi_command_number(command, (int64_t)len);
    for (size_t i = 0; i < len; i++)
        hfi_name_taken_permits(&redis->names, items[i]->name, items[i]->name_len, command);
    hfi_command_number(command, not_after_ms);
    for (size_t i = 0; i < len; i++) {
        const char *hex = items[i]->owner;
        unsigned char id[HFI_ID_LEN];
        assert(items[i]->owner_len == 2 * sizeof id);
        for (size_t j = 0; j < sizeof id; j++)
            id[j] = (unsigned char)(digit(hex[2 * j]) << 4 | digit(hex[2 * j + 1]));
        hfi_command_number(command, items[i]->lease_ms > 0 ? items[i]->lease_ms : 1);
        hfi_command_bytes(command, id, sizeof id);
    }
}

static const struct hfi_renewer renewer = {
    .script = &hfi_script_permits_renew,
    .write = write_renewal,
};

/* ---- The tables ---- */

static const struct hfi_redis_object_op object_ops[HFI_OBJECT_OPS] = {
    [HFI_OBJECT_SET] = {.script = &hfi_script_permits_set,
                        .once = true,
                        .write = write_set_new,
                        .read = read_done},
    [HFI_OBJECT_RESET] = {.script = &hfi_script_permits_set,
                          .write = write_set_total,
                          .read = read_done},
    [HFI_OBJECT_ADD] = {.script = &hfi_script_permits_set,
                        .once = true,
                        .write = write_add,
                        .read = read_done},
    [HFI_OBJECT_PUT] = {.script = &hfi_script_permits_release,
                        .settles = true,
                        .write = write_put,
                        .read = read_put},
    [HFI_OBJECT_AVAILABLE] = {.script = &hfi_script_permits_count,
                              .write = write_count,
                              .read = read_available},
    [HFI_OBJECT_TOTAL] = {.script = &hfi_script_permits_count,
                          .write = write_count,
                          .read = read_total},
    [HFI_OBJECT_TAKEN] = {.script = &hfi_script_permits_count,
                          .write = write_count,
                          .read = read_taken},
    [HFI_OBJECT_EXTEND] = {.script = &hfi_script_permits_extend,
                           .write = write_extend,
                           .read = read_found},
    [HFI_OBJECT_LEASE] = {.script = &hfi_script_permits_lease,
                          .write = write_lease,
                          .read = read_lease},
    [HFI_OBJECT_EXPIRE] = {.script = &hfi_script_permits_expire,
                           .write = write_expire,
                           .read = read_done},
    [HFI_OBJECT_DELETE] = {.script = &hfi_script_permits_delete,
                           .once = true,
                           .write = write_delete,
                           .read = read_deleted},
};

static const struct hfi_redis_kind permits = {
    .field_suffix = "",
    .acquire = &hfi_script_permits_acquire,
    .release = &hfi_script_permits_release,
    .write_acquire = write_acquire,
    .read_acquire = read_acquire,
    .write_release = write_settle,
    .read_release = read_settle,
    .channel = channel,
    .waiting = &hfi_wait_subscribe,
    .renewer = &renewer,
    .ends_early_ms = 1,
    .object_ops = object_ops,
    .busy = "too few permits are available",
};

const struct hfi_kind hfi_object_permits = {
    .name = "permits",
    .ops = &hfi_redis_object_ops,
    .part = "permits",
    .engine_private = &permits,
};
