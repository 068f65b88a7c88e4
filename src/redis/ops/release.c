/*
 * Releasing and extending a hold: one exchange each; one more for a release that finds a value of
 * the wrong type.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor, which owns
 * the state.
 */
#include "base/clock.h"
#include "redis/kinds/lease_validity.h"
#include "redis/ops/call.h"
#include "redis/wait/fair_queue.h"

/* ---- Release ---- */

static void write_release(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    state->kind->write_release(x->redis, state->call, state->call->count, not_after_ms, command);
}

#define OVERWRITTEN "the lock's name is now used for something else"

/* The arguments of the renewal script for this one hold. */
static void write_renewal(struct hfi_exchange *x, int64_t lease_ms, int64_t not_after_ms,
                          struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    const struct hfi_call *call = state->call;
    const struct hfi_renewal_item item = {.kind = call->kind,
                                          .name = call->name,
                                          .name_len = call->name_len,
                                          .owner = call->owner,
                                          .owner_len = call->owner_len,
                                          .stamp = call->stamp,
                                          .lease_ms = lease_ms,
                                          .acks = call->acks};
    const struct hfi_renewal_item *const items[] = {&item};
    if (x->script == NULL)
        state->kind->renewer->write_native(x->redis, &item, command);
    else
        state->kind->renewer->write(x->redis, items, 1, not_after_ms, command);
}

/* 1 held, 0 gone, -1 something else is there. Any other number or reply is malformed. */
static long long read_renewal(const struct hfi_reply *reply, size_t numbers) {
    return reply->elements == numbers ? reply->element[0]->integer : INT64_MIN;
}

/* The server has no hold of ours. If an earlier copy went unanswered, that one has released it,
 * unless it was to leave a count behind. */
static void release_found_nothing(struct hfi_call *call, bool resent, bool more, const char *text) {
    call->gone = true;
    if (resent && call->count == 1) {
        /* the core knows if the lease had expired by then */
        hfi_fair_waiter_finish(call, HF_OK, NULL, more);
        return;
    }
    hfi_fair_waiter_finish(call, HF_ELOST, text, more);
}

static void write_question(struct hfi_exchange *x, int64_t not_after_ms,
                           struct hfi_command *command) {
    write_renewal(x, 0, not_after_ms, command);
}

/* If the hold is there, something stored beside it has the wrong type: the queue of a fair lock,
 * the count of another reader. */
static void asked_what_is_there(struct hfi_call *call) {
    const struct hfi_call_state *state = hfi_state_of(call);
    if (state->exchange.err != HF_OK)
        hfi_call_finish(call, state->exchange.err);
    else if (read_renewal(hfi_answer_of(call), 2) == 1)
        hfi_call_fail(call, HF_EWRONGTYPE,
                      "a key beside this lock has the wrong type, so it cannot be released; its "
                      "lease ends it");
    else
        release_found_nothing(call, state->u.resent, false, OVERWRITTEN);
}

static void ask_what_is_there(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->u.resent = state->exchange.resent;
    hfi_call_send(call, state->kind->renewer->script, write_question, asked_what_is_there);
}

static void send_release(struct hfi_call *call);

static void released(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_release_answer answer;
    if (state->kind->learn != NULL && state->kind->learn(&state->exchange)) {
        send_release(call);
        return;
    }
    if (state->exchange.err == HF_EWRONGTYPE && call->kind->stamped) { /* nothing is beside it */
        release_found_nothing(call, state->exchange.resent, false, OVERWRITTEN);
        return;
    }
    if (state->exchange.err == HF_EWRONGTYPE) {
        ask_what_is_there(call);
        return;
    }
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    int err = state->kind->read_chosen_release != NULL
                  ? state->kind->read_chosen_release(&state->exchange, &answer)
                  : state->kind->read_release(call->count, hfi_answer_of(call), &answer);
    if (err != HF_OK) {
        hfi_call_fail_proto(call);
        return;
    }
    if (answer.verdict == HFI_RELEASE_GONE) {
        release_found_nothing(call, state->exchange.resent, answer.more,
                              "the hold was gone from the server when it was released");
        return;
    }
    if (answer.verdict == HFI_RELEASE_MISMATCH) {
        hfi_call_fail(call, HF_ELOST, "this owner's count on the server differs from the client's");
        return;
    }
    if (answer.waiters_unnotified)
        hfi_redis_notify_failed(&state->exchange);
    if (answer.waiters_notified_known && state->kind->yields_after_release)
        call->others = hfi_yield_quota(call, answer.waiters_notified);
    call->value = answer.verdict == HFI_STILL_HELD ? answer.count : 0;
    hfi_fair_waiter_finish(call, HF_OK, NULL, answer.more);
}

static void send_release(struct hfi_call *call) {
    const struct hfi_redis_kind *kind = hfi_state_of(call)->kind;
    hfi_call_send_chosen(call, kind->choose_release, kind->release, write_release, released);
}

void hfi_release(struct hfi_call *call) {
    hfi_call_begin(call)->settles = true;
    send_release(call);
}

/* ---- Extend ---- */

void hfi_extension_write(struct hfi_exchange *x, int64_t not_after_ms,
                         struct hfi_command *command) {
    write_renewal(x, hfi_state_around(x)->call->lease_ms, not_after_ms, command);
}

static void write_wish(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    state->kind->write_extend(x->redis, state->call, not_after_ms, command);
}

/* Malformed is none of the numbers of read_renewal(). */
static long long read_native(const struct hfi_reply *reply) {
    int answer = hfi_native_renewal_read(reply);
    return answer >= 0 ? answer : INT64_MIN;
}

/* Its node runs no scripts, and this is how that is known. True: the command will do instead. */
bool hfi_extension_finds_no_scripts(struct hfi_exchange *x) {
    if (x->err != HF_ENOTSUP || x->script == NULL || x->choose == NULL)
        return false;
    atomic_store_explicit(&hfi_node_learnt(x->node)->scriptless, true, memory_order_relaxed);
    return true;
}

/* A script has a `not-after`; the command can do without. */
void hfi_extension_choose(struct hfi_exchange *x) {
    const struct hfi_renewer *renewer = hfi_state_around(x)->kind->renewer;
    bool native = hfi_renotification_natively(x->node, renewer);
    x->script = native ? NULL : renewer->script;
    x->repeatable = native;
    x->acks.needs_them = native ? hfi_native_renewal_acks : hfi_acks_of_one;
}

long long hfi_extension_read(struct hfi_call *call, size_t numbers) {
    const struct hfi_reply *reply = hfi_answer_of(call);
    bool by_script = hfi_state_of(call)->exchange.script != NULL;
    return by_script ? read_renewal(reply, numbers) : read_native(reply);
}

static void extended(struct hfi_call *call);

static void send_extend(struct hfi_call *call) {
    const struct hfi_renewer *renewer = hfi_state_of(call)->kind->renewer;
    hfi_call_send_chosen(call, renewer->write_native != NULL ? hfi_extension_choose : NULL,
                         renewer->script, hfi_extension_write, extended);
}

/* With token_wish, the second number is the token that is stored. */
static void extended(struct hfi_call *call) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    size_t numbers = call->token_wish != 0 ? 3 : 2;
    if (hfi_extension_finds_no_scripts(x)) {
        send_extend(call);
        return;
    }
    if (x->err == HF_EWRONGTYPE && x->script == NULL) {
        call->gone = true;
        hfi_call_fail(call, HF_ELOST, OVERWRITTEN);
        return;
    }
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    const struct hfi_reply *reply = hfi_answer_of(call);
    long long answer = hfi_extension_read(call, numbers);
    if (answer == 1 && !hfi_acks_suffice(x)) {
        hfi_call_finish(call, hfi_acks_fail(x, &call->error));
    } else if (answer == 1) {
        call->value = hfi_state_of(call)->u.count > 0 ? hfi_state_of(call)->u.count : 1;
        call->acked = x->acks.got;
        call->token = call->token_wish != 0 ? reply->element[1]->integer : 0;
        call->proof = (x->script != NULL ? hfi_proof_of : hfi_native_proof_of)(
            x->redis, call->kind, x->sent_ms, call->lease_ms);
        hfi_confirm_extension(call);
    } else if (answer == 0) {
        call->gone = true;
        hfi_call_fail(call, HF_ELOST, "the hold was gone from the server when it was extended");
    } else if (answer == -1) {
        call->gone = true;
        hfi_call_fail(call, HF_ELOST, OVERWRITTEN);
    } else {
        hfi_call_fail_proto(call);
    }
}

void hfi_extend_to(struct hfi_call *call, int64_t count) {
    struct hfi_call_state *state = hfi_call_begin(call);
    struct hfi_exchange *x = &state->exchange;
    x->limit_ms = x->reach_until_ms = hfi_after_ms(hfi_now_ms(), x->redis->cmd_timeout_ms);
    x->acks.asked = call->acks;
    x->acks.needs_them = hfi_acks_of_one;
    state->u.count = count;
    send_extend(call);
}

void hfi_extend(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    state->u.count = 0;
    state->exchange.acks.asked = call->acks;
    state->exchange.acks.needs_them = hfi_acks_of_one;
    if (call->token_wish != 0)
        hfi_call_send(call, state->kind->extend, write_wish, extended);
    else
        send_extend(call);
}
