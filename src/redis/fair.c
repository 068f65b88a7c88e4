/*
 * The fair lock: first come, first served, across all processes; Redisson's RFairLock. And its
 * non-reentrant form.
 *
 * On the server it is the plain lock's hash, a list of those who wait, and a sorted set that says
 * until when each of them is believed to be alive, all as in Redisson; and a hash of our own with
 * what our waiters say about themselves. A release gives the lock directly to the first in line, if
 * that is one of ours and is listening. What the scripts do is in fair_*.lua, how a waiter behaves
 * in waiting_line.c; here is only what the scripts are given and what they answer. As for plain locks, the
 * second acquire of a non-reentrant one is refused before anything is sent. Stateless; any thread.
 */
#include "redis/line.h"
#include "redis/plain.h"

#include <string.h>

#define QUEUE "redisson_lock_queue"
#define DEADLINES "redisson_lock_timeout"
#define RECORDS "holdfast_fair"
#define UNHEARD ":unheard" /* behind the name of the records: who may use those may use this, too */

enum {
    ANSWER_WAIT = 0,
    ANSWER_WAIT_LEN = 7,
    ANSWER_UNDONE_MAX = 2,
    ANSWER_NOT_NOTIFIED = 2,
    ANSWER_MORE = 1,
    ANSWER_GONE_AND_MORE = 2
};

/* ---- What all its scripts begin with ---- */

static void add_named(const struct hfi_redis *redis, const char *what, const struct hfi_call *call,
                      struct hfi_command *command) {
    size_t len = hfi_name_prefixed(&redis->names, what, call->name, call->name_len, NULL);
    char *room = hfi_command_room(command, len);
    if (room != NULL)
        hfi_name_prefixed(&redis->names, what, call->name, call->name_len, room);
}

/* The only key that version 0.1 did not have: a user whose access list names its keys one by one
 * does without it. */
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

/* Keys, not-after, owner, and how to publish. */
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
    hfi_line_note_keys(call, remembers);
    hfi_command_number(command, not_after_ms);
    hfi_command_bytes(command, owner, owner_len);
    hfi_redis_write_publish(redis, command);
}

static int64_t lease_of(const struct hfi_call *call) {
    return call->lease_ms > 0 ? call->lease_ms : 1;
}

/* ---- Acquire ---- */

/* What is as usual is left out from the end, as of the plain lock's. */
static void write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_line_words words = hfi_line_say(call);
    const int64_t last[] = {words.number, words.waits ? 1 : 0, lease_of(call), call->count,
                            redis->fair_wait_ms};
    static const int64_t usual[] = {0, 1, 30000, 0, 300000}; /* as fair_acquire.lua has them */
    size_t len = sizeof last / sizeof *last;
    while (len > 0 && last[len - 1] == usual[len - 1])
        len--;
    add_common(redis, call, call->owner, call->owner_len, not_after_ms, command);
    hfi_command_number(command, words.horizon_ms);
    hfi_command_number(command, words.confirm_ms);
    for (size_t i = 0; i < len; i++)
        hfi_command_number(command, last[i]);
}

/* If we are in line: zero, the holder's lease, the position, our number, the time in us, when to come
 * again, and the time. All other answers are the plain lock's. */
static int read_acquire(const struct hfi_call *call, const redisReply *reply,
                        struct hfi_acquire_answer *ret) {
    if (reply->elements != ANSWER_WAIT_LEN) {
        int err = hfi_plain_read_acquire(call, reply, ret);
        return err == HF_OK && ret->verdict == HFI_TAKEN ? HF_EPROTO : err;
    }
    *ret = (struct hfi_acquire_answer){.verdict = HFI_TAKEN,
                                       .ttl_ms = reply->element[1]->integer,
                                       .position = reply->element[2]->integer,
                                       .number = reply->element[3]->integer,
                                       .server_us = reply->element[4]->integer,
                                       .again_ms = reply->element[5]->integer};
    bool sound = reply->element[0]->integer == ANSWER_WAIT && call->count == 0 &&
                 ret->ttl_ms >= -2 && ret->position >= 0 && ret->number >= 0 &&
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

static int read_release(int64_t count, const redisReply *reply, struct hfi_release_answer *ret) {
    int err = hfi_plain_read_release(count, reply, ret);
    if (err == HF_OK && ret->verdict == HFI_RELEASED)
        ret->more = ret->count == ANSWER_MORE;
    else if (err == HF_OK && ret->verdict == HFI_RELEASE_GONE)
        ret->more = ret->count == ANSWER_GONE_AND_MORE;
    return err;
}

/* Also what fair_hand_over answers. */
static int read_give_up(const redisReply *reply, struct hfi_release_answer *ret) {
    if (reply->elements != 3 || reply->element[0]->integer < 0 ||
        reply->element[0]->integer > ANSWER_UNDONE_MAX)
        return HF_EPROTO;
    *ret = (struct hfi_release_answer){
        .verdict = HFI_RELEASED,
        .not_notified = reply->element[0]->integer == ANSWER_NOT_NOTIFIED,
        .more = reply->element[1]->integer == ANSWER_MORE,
    };
    return HF_OK;
}

static void write_force(const struct hfi_redis *redis, const struct hfi_call *call,
                        const char *owner, size_t owner_len, int64_t not_after_ms,
                        struct hfi_command *command) {
    add_common(redis, call, owner, owner_len, not_after_ms, command);
    hfi_rumours_say_broken(redis, command);
}

/* Its second number says two things: -1 or 0 as the plain lock's, and 2 more if there is more. */
static int read_force(const redisReply *reply, struct hfi_force_answer *ret) {
    int err = hfi_plain_read_force(reply, ret);
    if (err != HF_OK || !ret->broken)
        return err;
    int64_t number = reply->element[1]->integer;
    ret->more = number > 0;
    ret->not_told = number % 2 != 0;
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
    .force = &hfi_script_fair_force,
    .write_acquire = write_acquire,
    .read_acquire = read_acquire,
    .write_release = write_release,
    .read_release = read_release,
    .find_holder = hfi_plain_find_holder,
    .write_force = write_force,
    .read_force = read_force,
    .channel = channel,
    .waiting = &hfi_waiting_in_line,
    .renewer = &hfi_renewer_hash,
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
    .exclusive = false, /* every waiter stands in line itself */
    .queues = true,
    .engine_private = &fair,
};

const struct hfi_kind hfi_kind_fair_nonreentrant = {
    .name = "non-reentrant fair",
    .ops = &hfi_redis_lock_ops,
    .reentrant = false,
    .exclusive = false,
    .queues = true,
    .engine_private = &fair,
};
