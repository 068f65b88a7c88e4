/*
 * The operations that are one exchange, or a few in a row: release, extend, break, questions,
 * settlement.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor, which owns
 * the state. Each starts with hfi_call_begin(), sends with hfi_call_send(), and ends with
 * hfi_call_finish() or _fail() in the function that reads the answer.
 */
#include "base/clock.h"
#include "redis/internal.h"
#include "redis/kind.h"
#include "redis/line.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BREAK_ROUNDS_MAX 10
#define SETTLE_PAUSE_MS 500

static struct hfi_call_state *state_of(struct hfi_exchange *x) {
    return HFI_CONTAINER(x, struct hfi_call_state, exchange);
}

static const redisReply *reply_of(struct hfi_call *call) {
    return hfi_exchange_reply(&hfi_state_of(call)->exchange);
}

static void add_key(struct hfi_exchange *x, struct hfi_command *command) {
    const struct hfi_call *call = state_of(x)->call;
    hfi_name_key(&x->redis->names, call->name, call->name_len, command);
}

/* ---- Release ---- */

static void write_release(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    struct hfi_call_state *state = state_of(x);
    state->kind->write_release(x->redis, state->call, state->call->count, not_after_ms, command);
}

/* Nothing of ours was there. If an earlier copy went unanswered, that one has released it, unless
 * it was to leave something behind. */
static void release_found_nothing(struct hfi_call *call, bool more) {
    call->gone = true;
    if (hfi_state_of(call)->exchange.resent && call->count == 1) {
        /* the core knows if the lease had run out by then */
        hfi_line_finish(call, HF_OK, NULL, more);
        return;
    }
    hfi_line_finish(call, HF_ELOST, "the lock was not held any more when it was released", more);
}

static void released(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_release_answer answer;
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    if (state->kind->read_release(call->count, reply_of(call), &answer) != HF_OK) {
        hfi_call_fail_proto(call);
        return;
    }
    if (answer.verdict == HFI_RELEASE_GONE) {
        release_found_nothing(call, answer.more);
        return;
    }
    if (answer.verdict == HFI_RELEASE_MISMATCH) {
        hfi_call_fail(call, HF_ELOST, "the server counts this owner's holds differently");
        return;
    }
    if (answer.not_notified)
        hfi_redis_notify_failed(state->exchange.redis);
    call->value = answer.verdict == HFI_STILL_HELD ? answer.count : 0;
    hfi_line_finish(call, HF_OK, NULL, answer.more);
}

void hfi_release(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    state->settles = true;
    hfi_call_send(call, state->kind->release, write_release, released);
}

/* ---- Extend ---- */

static void write_extend(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    struct hfi_call_state *state = state_of(x);
    const struct hfi_call *call = state->call;
    const struct hfi_renewal_item item = {.kind = call->kind,
                                          .name = call->name,
                                          .name_len = call->name_len,
                                          .owner = call->owner,
                                          .owner_len = call->owner_len,
                                          .lease_ms = call->lease_ms};
    const struct hfi_renewal_item *const items[] = {&item};
    state->kind->renewer->write(x->redis, items, 1, not_after_ms, command);
}

static void extended(struct hfi_call *call) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    const redisReply *reply = reply_of(call);
    long long answer = reply->elements == 2 ? reply->element[0]->integer : INT64_MIN;
    if (answer == 1) {
        call->value = 1;
        call->proof = hfi_proof_of(x->redis, call->kind, x->sent_ms, call->lease_ms);
        hfi_call_finish(call, HF_OK);
    } else if (answer == 0) {
        call->gone = true;
        hfi_call_fail(call, HF_ELOST, "the lock was not held any more when it was extended");
    } else if (answer == -1) {
        hfi_call_fail(call, HF_EWRONGTYPE, "what has this name now is no lock");
    } else {
        hfi_call_fail_proto(call);
    }
}

void hfi_extend(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    hfi_call_send(call, state->kind->renewer->script, write_extend, extended);
}

/* ---- Break ---- */

static void look_at_holder(struct hfi_call *call);

static void drop_seen(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_req_unref(state->u.force.seen);
    state->u.force.seen = NULL;
}

static void write_force(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_call_state *state = state_of(x);
    const redisReply *owner = NULL;
    int err = state->kind->find_holder(state->u.force.seen->reply, &owner);
    assert(err == HF_OK && owner != NULL); /* it was found in this very reply before */
    (void)err;
    state->kind->write_force(x->redis, state->call, owner->str, owner->len, not_after_ms, command);
}

static void broken(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_force_answer answer = {0};
    if (hfi_line_do_without(call)) {
        hfi_call_send(call, state->kind->force, write_force, broken);
        return;
    }
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    if (state->kind->read_force(reply_of(call), &answer) != HF_OK) {
        hfi_call_fail_proto(call);
        return;
    }
    if (answer.not_notified)
        hfi_redis_notify_failed(state->exchange.redis);
    if (answer.not_told)
        hfi_ask_refused(state->exchange.redis);
    if (answer.broken || state->exchange.resent) {
        call->value = 1;
        hfi_line_finish(call, HF_OK, NULL, answer.more);
        return;
    }
    drop_seen(call);
    if (++state->u.force.rounds >= BREAK_ROUNDS_MAX)
        hfi_call_fail(call, HF_EBUSY,
                      "the lock passed from hand to hand faster than it was broken");
    else
        look_at_holder(call);
}

static void seen_holder(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    const redisReply *owner = NULL;
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    const redisReply *fields = reply_of(call);
    if (fields->type != REDIS_REPLY_ARRAY || fields->elements % 2 != 0) {
        hfi_call_fail_proto(call);
    } else if (state->kind->find_holder(fields, &owner) != HF_OK) {
        hfi_call_fail(call, HF_EWRONGTYPE, "what has this name is no lock of this kind");
    } else if (owner == NULL) {
        hfi_call_finish(call, HF_OK); /* value 0: there was nothing to break */
    } else {
        state->u.force.seen = x->req; /* the reply is where the owner's name is */
        x->req = NULL;
        hfi_call_send(call, state->kind->force, write_force, broken);
    }
}

static void write_fields(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    (void)not_after_ms;
    hfi_command_text(command, "HGETALL");
    add_key(x, command);
}

static void look_at_holder(struct hfi_call *call) {
    hfi_call_send(call, NULL, write_fields, seen_holder);
}

void hfi_force(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    state->cleanup = drop_seen;
    look_at_holder(call);
}

/* ---- Questions ---- */

static bool read_integer(const redisReply *reply, int64_t min, int64_t *ret) {
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < min)
        return false;
    *ret = reply->integer;
    return true;
}

/* HGET: nothing is 0; text that is not a number was not written by a lock. */
static int read_count(const redisReply *reply, int64_t *ret) {
    if (reply->type == REDIS_REPLY_NIL) {
        *ret = 0;
        return HF_OK;
    }
    if (reply->type != REDIS_REPLY_STRING)
        return HF_EPROTO;
    char *end;
    errno = 0;
    long long count = strtoll(reply->str, &end, 10);
    if (errno != 0 || end == reply->str || end != reply->str + reply->len || count < 0)
        return HF_EWRONGTYPE;
    *ret = count;
    return HF_OK;
}

static int read_locked(const redisReply *reply, int64_t *ret) {
    return read_integer(reply, 0, ret) && *ret <= 1 ? HF_OK : HF_EPROTO;
}

static int read_ttl(const redisReply *reply, int64_t *ret) {
    return read_integer(reply, -2, ret) ? HF_OK : HF_EPROTO;
}

static int read_pong(const redisReply *reply, int64_t *ret) {
    *ret = 0;
    return reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "PONG") == 0 ? HF_OK : HF_EPROTO;
}

static const struct {
    const char *verb;
    bool key, field;
    int (*read)(const redisReply *reply, int64_t *ret);
} questions[] = {
    [HFI_ASK_LOCKED] = {"EXISTS", true, false, read_locked},
    [HFI_ASK_COUNT] = {"HGET", true, true, read_count},
    [HFI_ASK_TTL] = {"PTTL", true, false, read_ttl},
    [HFI_ASK_PING] = {"PING", false, false, read_pong},
};

static void write_question(struct hfi_exchange *x, int64_t not_after_ms,
                           struct hfi_command *command) {
    struct hfi_call_state *state = state_of(x);
    (void)not_after_ms;
    hfi_command_text(command, questions[state->call->question].verb);
    if (questions[state->call->question].key)
        add_key(x, command);
    if (questions[state->call->question].field)
        hfi_command_pair(command, state->call->owner, state->call->owner_len,
                         state->kind->field_suffix, strlen(state->kind->field_suffix));
}

static void answered(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    int64_t value = 0;
    int err = questions[call->question].read(reply_of(call), &value);
    if (err == HF_OK) {
        call->value = value;
        hfi_call_finish(call, HF_OK);
    } else if (err == HF_EWRONGTYPE) {
        hfi_call_fail(call, err, "the hold count is not a number");
    } else {
        hfi_call_fail_proto(call);
    }
}

void hfi_ask(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    if (call->question == HFI_ASK_LOCKED && state->kind->ask_locked != NULL)
        state->kind->ask_locked(call);
    else
        hfi_call_send(call, NULL, write_question, answered);
}

/* ---- Settlement ---- */

static void settle_now(struct hfi_call *call);

/* The count whose release leaves what the core believes to hold. */
static int64_t settled_from(const struct hfi_call *call) {
    return call->settle_release ? call->count : call->count + 1;
}

/* An acquire that may have left the owner in line. */
static bool gives_up(struct hfi_call *call) {
    return !call->settle_release && hfi_state_of(call)->kind->give_up != NULL;
}

static void write_settle(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    struct hfi_call_state *state = state_of(x);
    if (gives_up(state->call))
        state->kind->write_give_up(x->redis, state->call, not_after_ms, command);
    else
        state->kind->write_release(x->redis, state->call, settled_from(state->call), not_after_ms,
                                   command);
}

/* The cancelled command has been answered after all, so there is nothing to wait for. */
static void ghost_answered(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const redisReply *reply = state->ghost->reply;
    struct hfi_acquire_answer answer;
    if (state->ghost->err != HF_OK) {
        /* the connection was lost: the alarm is set to when no copy can act any more */
        hfi_call_drop_ghost(call);
        return;
    }
    bool nothing = !gives_up(call) && (hfi_is_refusal(reply) ||
                                       (state->kind->read_acquire(call, reply, &answer) == HF_OK &&
                                        answer.verdict != HFI_ACQUIRED));
    hfi_call_drop_ghost(call);
    if (nothing)
        hfi_call_finish(call, HF_OK);
    else
        settle_now(call);
}

static void step_settle_later(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->ghost != NULL && (events & state->ghost_event) != 0 &&
        atomic_load(&state->ghost->complete)) {
        ghost_answered(call);
    } else if ((events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange)) {
        hfi_call_drop_ghost(call);
        settle_now(call);
    }
}

static void settle_at(struct hfi_call *call, int64_t at_ms) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->step = step_settle_later;
    hfi_exchange_sleep(&state->exchange, at_ms);
}

static void settled(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_release_answer answer = {0};
    int err = state->exchange.err;
    if (err == HF_OK && gives_up(call))
        err = state->kind->read_give_up(reply_of(call), &answer);
    else if (err == HF_OK)
        err = state->kind->read_release(settled_from(call), reply_of(call), &answer);
    if (err == HF_OK || err == HF_EWRONGTYPE) { /* another type: nothing of ours is there */
        if (err == HF_OK && answer.not_notified)
            hfi_redis_notify_failed(state->exchange.redis);
        hfi_line_finish(call, HF_OK, NULL, err == HF_OK && answer.more);
        return;
    }
    int64_t again_ms = hfi_now_ms() + SETTLE_PAUSE_MS;
    if (err == HF_ECLOSED || again_ms >= call->deadline_ms)
        hfi_call_finish(call, err);
    else
        settle_at(call, again_ms);
}

static void settle_now(struct hfi_call *call) {
    const struct hfi_redis_kind *kind = hfi_state_of(call)->kind;
    hfi_call_send(call, gives_up(call) ? kind->give_up : kind->release, write_settle, settled);
}

/* The state is as the failed call has left it: with a request in it, perhaps. */
void hfi_settle(struct hfi_call *call) {
    struct hfi_call_state *state = call->state;
    struct hfi_req *ghost = state->ghost;
    unsigned ghost_event = state->ghost_event;
    memset(state, 0, sizeof *state);
    hfi_call_begin(call);
    state->settles = state->settling = true;
    state->cleanup = hfi_call_drop_ghost;
    state->exchange.retry = HFI_RETRY_PATIENTLY;
    state->ghost = ghost;
    state->ghost_event = ghost_event;
    if (state->kind->settle != NULL && !hfi_ticket_drawn(call)) {
        state->kind->settle(call);
        return;
    }
    if (ghost != NULL || hfi_now_ms() < call->ghost_until_ms)
        settle_at(call, call->ghost_until_ms);
    else
        settle_now(call);
    if (ghost != NULL && atomic_load(&ghost->complete))
        ghost_answered(call); /* while nobody was looking */
}
