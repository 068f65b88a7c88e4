/*
 * The fair lock: first come, first served, across all processes; Redisson's RFairLock. And its
 * non-reentrant form.
 *
 * On the server it is the plain lock's hash, the fair queue as a list, and a sorted set of
 * deadlines, as in Redisson. Until its deadline a waiter counts as alive. Beside these we keep a
 * hash with records of our own waiters. A release grants the lock directly to the head of the
 * queue, if that is one of ours and is subscribed. The scripts are fair_*.lua, the waiter is in
 * wait_fair_queue.c; this file has the scripts' arguments and replies. As for plain locks, the
 * second acquire of a non-reentrant one is refused before anything is sent. Stateless; any thread.
 */
#include "redis/kinds/plain.h"
#include "redis/wait/fair_queue.h"

#include <string.h>

#define QUEUE "redisson_lock_queue"
#define DEADLINES "redisson_lock_timeout"
#define RECORDS "holdfast_fair"
/* suffix of the records' key, so that rights to that key cover this one */
#define UNHEARD ":unheard"

enum {
    ANSWER_WAIT = 0,
    ANSWER_WAIT_LEN = 7,
    ANSWER_UNDONE_MAX = 2,
    REPLY_WAITERS_UNNOTIFIED = 2,
    ANSWER_MORE = 1,
    ANSWER_GONE_AND_MORE = 2
};

/* ---- Arguments of all its scripts ---- */

static void add_named(const struct hfi_redis *redis, const char *what, const struct hfi_call *call,
                      struct hfi_command *command) {
    size_t len = hfi_name_prefixed(&redis->names, what, call->name, call->name_len, NULL);
    char *room = hfi_command_room(command, len);
    if (room != NULL)
        hfi_name_prefixed(&redis->names, what, call->name, call->name_len, room);
}

/* The only key that version 0.1 did not have. A user whose ACL names each key does without it. */
static void add_unheard(const struct hfi_redis *redis, const struct hfi_call *call,
                        struct hfi_command *command) {
    static const size_t suffix_len = sizeof UNHEARD - 1;
    size_t len = hfi_name_prefixed(&redis->names, RECORDS, call->name, call->name_len, NULL);
    char *room = hfi_command_room(command, len + suffix_len);
    if (room == NULL)
        return;
    hfi_name_prefixed(&redis->names, RECORDS, call->name, call->name_len, room);
    memcpy(room + len, UNHEARD, suffix_len);
}

/* Keys, not-after, owner, and the publish command. */
static void add_common(const struct hfi_redis *redis, const struct hfi_call *call,
                       const char *owner, size_t owner_len, int64_t not_after_ms,
                       struct hfi_command *command) {
    const struct hfi_call_state *state = call->state;
    bool remembers = !atomic_load(&hfi_node_learnt(state->exchange.node)->no_unheard);
    hfi_command_bytes(command, remembers ? "5" : "4", 1);
    hfi_name_key(&redis->names, call->name, call->name_len, command);
    add_named(redis, QUEUE, call, command);
    add_named(redis, DEADLINES, call, command);
    add_named(redis, RECORDS, call, command);
    if (remembers)
        add_unheard(redis, call, command);
    hfi_fair_waiter_note_keys(call, remembers);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, owner, owner_len);
    hfi_redis_write_publish(redis, command);
}

static int64_t lease_of(const struct hfi_call *call) {
    return call->lease_ms > 0 ? call->lease_ms : 1;
}

/* ---- Acquire ---- */

/* Trailing arguments with default values are left out, as for the plain lock. */
static void write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_fair_waiter_report report = hfi_fair_waiter_build_report(call);
    const int64_t last[] = {report.arrival, report.waits ? 1 : 0, lease_of(call), call->count,
                            redis->fair_wait_ms};
    static const int64_t usual[] = {0, 1, 30000, 0, 300000}; /* as fair_acquire.lua has them */
    size_t len = sizeof last / sizeof *last;
    while (len > 0 && last[len - 1] == usual[len - 1])
        len--;
    add_common(redis, call, call->owner, call->owner_len, not_after_ms, command);
    hfi_command_number(command, report.horizon_ms);
    hfi_command_number(command, report.confirm_ms);
    for (size_t i = 0; i < len; i++)
        hfi_command_number(command, last[i]);
}

/* If we are queued: zero, the holder's lease, the position, our arrival number, the time in us,
 * when to attempt again, and the time. All other replies are the plain lock's. */
static int read_acquire(const struct hfi_call *call, const struct hfi_reply *reply,
                        struct hfi_acquire_answer *ret) {
    if (reply->elements != ANSWER_WAIT_LEN) {
        int err = hfi_plain_read_acquire(call, reply, ret);
        return err == HF_OK && ret->verdict == HFI_TAKEN ? HF_EPROTO : err;
    }
    *ret = (struct hfi_acquire_answer){.verdict = HFI_TAKEN,
                                       .ttl_ms = reply->element[1]->integer,
                                       .position = reply->element[2]->integer,
                                       .arrival = reply->element[3]->integer,
                                       .server_us = reply->element[4]->integer,
                                       .again_ms = reply->element[5]->integer};
    bool sound = reply->element[0]->integer == ANSWER_WAIT && call->count == 0 &&
                 ret->ttl_ms >= -2 && ret->position >= 0 && ret->arrival >= 0 &&
                 ret->server_us > 0 && ret->again_ms >= 0 &&
                 ret->server_us / 1000 == reply->element[6]->integer;
    return sound ? HF_OK : HF_EPROTO;
}

/* ---- Release, give up, break ---- */

static void write_release(const struct hfi_redis *redis, const struct hfi_call *call, int64_t count,
                          int64_t not_after_ms, struct hfi_command *command) {
    add_common(redis, call, call->owner, call->owner_len, not_after_ms, command);
    if (count == 1)
        return;
    hfi_command_number(command, count);
    hfi_command_number(command, lease_of(call));
}

static void write_give_up(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    add_common(redis, call, call->owner, call->owner_len, not_after_ms, command);
    hfi_command_number(command, call->count);
}

static int read_release(int64_t count, const struct hfi_reply *reply,
                        struct hfi_release_answer *ret) {
    int err = hfi_plain_read_release(count, reply, ret);
    if (err == HF_OK && ret->verdict == HFI_RELEASED)
        ret->more = ret->count == ANSWER_MORE;
    else if (err == HF_OK && ret->verdict == HFI_RELEASE_GONE)
        ret->more = ret->count == ANSWER_GONE_AND_MORE;
    return err;
}

/* Also the reply of fair_hand_over.lua. */
static int read_give_up(const struct hfi_reply *reply, struct hfi_release_answer *ret) {
    if (reply->elements != 3 || reply->element[0]->integer < 0 ||
        reply->element[0]->integer > ANSWER_UNDONE_MAX)
        return HF_EPROTO;
    *ret = (struct hfi_release_answer){
        .verdict = HFI_RELEASED,
        .waiters_unnotified = reply->element[0]->integer == REPLY_WAITERS_UNNOTIFIED,
        .more = reply->element[1]->integer == ANSWER_MORE,
    };
    return HF_OK;
}

static void write_break(const struct hfi_redis *redis, const struct hfi_call *call,
                        const char *owner, size_t owner_len, int64_t not_after_ms,
                        struct hfi_command *command) {
    add_common(redis, call, owner, owner_len, not_after_ms, command);
    hfi_break_channel_publish(redis, command);
}

/* Its second number has two meanings: -1 or 0 as for the plain lock, plus 2 if there is more to
 * sweep. */
static int read_break(const struct hfi_reply *reply, struct hfi_break_reply *ret) {
    int err = hfi_plain_read_break(reply, ret);
    if (err != HF_OK || !ret->broken)
        return err;
    int64_t number = reply->element[1]->integer;
    ret->more = number > 0;
    ret->holder_unnotified = number % 2 != 0;
    return HF_OK;
}

static void write_hand_over(const struct hfi_redis *redis, const struct hfi_call *call,
                            int64_t not_after_ms, struct hfi_command *command) {
    add_common(redis, call, call->owner, call->owner_len, not_after_ms, command);
}

/* ---- The tables ---- */

/* Each waiter has a channel of its own. */
static size_t channel(const struct hfi_redis *redis, const struct hfi_call *call, char *to) {
    size_t len = hfi_plain_channel(redis, call, to);
    if (to != NULL) {
        to[len] = ':';
        memcpy(to + len + 1, call->owner, call->owner_len);
    }
    return len + 1 + call->owner_len;
}

size_t hfi_fair_queue(const struct hfi_redis *redis, const struct hfi_call *call, char *to) {
    return hfi_name_prefixed(&redis->names, QUEUE, call->name, call->name_len, to);
}

static const struct hfi_redis_kind fair = {
    .field_suffix = "",
    .acquire = &hfi_script_fair_acquire,
    .release = &hfi_script_fair_release,
    .break_holds = &hfi_script_fair_break,
    .write_acquire = write_acquire,
    .read_acquire = read_acquire,
    .write_release = write_release,
    .read_release = read_release,
    .find_holder = hfi_plain_find_holder,
    .write_break = write_break,
    .read_break = read_break,
    .channel = channel,
    .waiting = &hfi_wait_fair_queue,
    .renewer = &hfi_renewer_hash,
    .lease = &hfi_script_lease,
    .give_up = &hfi_script_fair_give_up,
    .write_give_up = write_give_up,
    .read_give_up = read_give_up,
    .hand_over = &hfi_script_fair_hand_over,
    .write_hand_over = write_hand_over,
    .read_hand_over = read_give_up,
};

const struct hfi_kind hfi_kind_fair = {
    .name = "fair",
    .ops = &hfi_redis_lock_ops,
    .reentrant = true,
    .exclusive = false, /* every waiter queues at the server itself */
    .queues = true,
    .tracked = true,
    .engine_private = &fair,
};

const struct hfi_kind hfi_kind_fair_nonreentrant = {
    .name = "non-reentrant fair",
    .ops = &hfi_redis_lock_ops,
    .reentrant = false,
    .exclusive = false,
    .queues = true,
    .tracked = true,
    .engine_private = &fair,
};
