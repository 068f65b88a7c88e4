/*
 * The semaphore: a number of permits that belong to nobody in particular; Redisson's RSemaphore.
 *
 * On the server it is a number in a string under the semaphore's name. What the scripts do is in
 * semaphore_*.lua and counter_delete.lua; here is what they are given and what they answer. The
 * server does not know who took what, so nothing that changes the number may run twice, and an
 * unknown outcome stays unknown. But an acquire leaves a ticket (ticket.h), by which it can be sent
 * again, or undone if it is given up. Where it may not leave one, there is still this: if it is
 * cancelled while it is under way, its answer is waited for, and if it says "taken", the permits are
 * given back. Stateless but for that settlement, which is the keeper's.
 */
#include "redis/counter.h"

#include "base/clock.h"
#include "redis/script_reply.h"

#define CHANNEL "redisson_sc"

static size_t channel(const struct hfi_redis *redis, const struct hfi_call *call, char *to) {
    return hfi_name_prefixed(&redis->names, CHANNEL, call->name, call->name_len, to);
}

/* ---- Acquire ---- */

/* The keys, with that of the ticket, if there is one. */
static void begin_with_ticket(const struct hfi_redis *redis, const struct hfi_call *call,
                              int64_t not_after_ms, struct hfi_command *command) {
    char peg[HFI_TICKET_PEG_MAX];
    bool drawn = hfi_ticket_drawn(call);
    if (drawn)
        hfi_ticket_peg(call, peg);
    hfi_counter_begin_beside(redis, call, drawn ? peg : NULL, not_after_ms, command);
    hfi_command_number(command, call->amount);
    if (drawn)
        hfi_command_number(command, (int64_t)call->ticket.number);
}

static void write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_call_state *state = call->state;
    begin_with_ticket(redis, call, not_after_ms, command);
    if (hfi_ticket_drawn(call))
        hfi_command_number(command, state->exchange.unanswered);
}

static int read_acquire(const struct hfi_call *call, const redisReply *reply,
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

/* ---- Acts ---- */

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

/* Who waits for permits that are gone has nothing to be told. */
static void write_delete(const struct hfi_redis *redis, const struct hfi_call *call,
                         int64_t not_after_ms, struct hfi_command *command) {
    hfi_counter_begin(redis, call, not_after_ms, command);
    hfi_command_text(command, "");
    hfi_command_text(command, "");
}

static int read_available(const struct hfi_call *call, const redisReply *reply,
                          struct hfi_act_answer *ret) {
    (void)call;
    return hfi_counter_read_get(reply, &ret->value);
}

static const struct hfi_redis_act acts[HFI_ACTS] = {
    [HFI_ACT_SET] = {.script = &hfi_script_semaphore_set,
                     .once = true,
                     .write = write_set,
                     .read = hfi_counter_read_done},
    [HFI_ACT_ADD] = {.script = &hfi_script_semaphore_change,
                     .once = true,
                     .write = write_put,
                     .read = hfi_counter_read_done},
    [HFI_ACT_PUT] = {.script = &hfi_script_semaphore_change,
                     .once = true,
                     .write = write_put,
                     .read = hfi_counter_read_done},
    [HFI_ACT_PUT_IF_EXISTS] = {.script = &hfi_script_semaphore_change,
                               .once = true,
                               .write = write_put_if_exists,
                               .read = hfi_counter_read_done},
    [HFI_ACT_DRAIN] = {.script = &hfi_script_semaphore_drain,
                       .once = true,
                       .write = hfi_counter_begin,
                       .read = hfi_counter_read_number},
    [HFI_ACT_DELETE] = {.script = &hfi_script_counter_delete,
                        .once = true,
                        .write = write_delete,
                        .read = hfi_counter_read_done},
    [HFI_ACT_AVAILABLE] = {.write = hfi_counter_write_get, .read = read_available},
};

/* ---- Settlement ---- */

/* By ticket: as a release undoes the acquire of a lock. */
static void write_undo(const struct hfi_redis *redis, const struct hfi_call *call, int64_t count,
                       int64_t not_after_ms, struct hfi_command *command) {
    (void)count;
    begin_with_ticket(redis, call, not_after_ms, command);
    hfi_counter_add_channel(redis, call, command);
}

static int read_undo(int64_t count, const redisReply *reply, struct hfi_release_answer *ret) {
    struct hfi_act_answer answer = {0};
    (void)count;
    int err = hfi_counter_read_done(NULL, reply, &answer);
    if (err != HF_OK)
        return err;
    *ret = (struct hfi_release_answer){
        .verdict = answer.value > 0 ? HFI_RELEASED : HFI_RELEASE_GONE,
        .not_notified = answer.not_notified,
    };
    return HF_OK;
}

/* Without a ticket, as far as its answer tells. */

/* Given back or not: whatever came of it, it cannot be tried again. */
static void given_back(struct hfi_call *call) {
    hfi_call_finish(call, HF_OK);
}

static void ghost_answered(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_req *ghost = state->ghost;
    struct hfi_acquire_answer answer;
    bool taken = ghost->err == HF_OK && !hfi_is_refusal(ghost->reply) &&
                 read_acquire(call, ghost->reply, &answer) == HF_OK &&
                 answer.verdict == HFI_ACQUIRED;
    hfi_call_drop_ghost(call);
    if (taken)
        hfi_act_send(call, &acts[HFI_ACT_PUT_IF_EXISTS], given_back);
    else
        hfi_call_finish(call, HF_OK);
}

static void step_settle(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    if ((events & state->ghost_event) != 0 && atomic_load(&state->ghost->complete))
        ghost_answered(call);
    else if ((events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange))
        hfi_call_finish(call, HF_OK); /* it is unknown, and was counted as such */
}

static void settle(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->ghost == NULL) {
        hfi_call_finish(call, HF_OK);
        return;
    }
    state->step = step_settle;
    hfi_exchange_sleep(&state->exchange, call->deadline_ms);
    if (atomic_load(&state->ghost->complete))
        ghost_answered(call); /* while nobody was looking */
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
    .waiting = &hfi_waiting_listen,
    .acts = acts,
    .busy = "there are too few permits",
    .draws_tickets = true,
    .settle = settle,
};

const struct hfi_kind hfi_thing_semaphore = {
    .name = "semaphore",
    .ops = &hfi_redis_thing_ops,
    .engine_private = &semaphore,
};
