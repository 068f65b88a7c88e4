/*
 * Releasing and extending what is held: one exchange each.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor, which owns
 * the state.
 */
#include "redis/internal.h"
#include "redis/kind.h"
#include "redis/line.h"

/* ---- Release ---- */

static void write_release(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
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
    if (state->kind->read_release(call->count, hfi_answer_of(call), &answer) != HF_OK) {
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
        hfi_redis_notify_failed(&state->exchange);
    if (answer.told_known && state->kind->goes_round)
        call->others = hfi_courtesy_owed(call, answer.told);
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
    struct hfi_call_state *state = hfi_state_around(x);
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

static void write_wish(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    state->kind->write_extend(x->redis, state->call, not_after_ms, command);
}

/* With a wish, the second number is the token that is stored. */
static void extended(struct hfi_call *call) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    size_t numbers = call->token_wish != 0 ? 3 : 2;
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    const redisReply *reply = hfi_answer_of(call);
    long long answer = reply->elements == numbers ? reply->element[0]->integer : INT64_MIN;
    if (answer == 1 && !hfi_acks_suffice(x)) {
        hfi_call_finish(call, hfi_acks_fail(x, &call->error));
    } else if (answer == 1) {
        call->value = 1;
        call->acked = x->acks.got;
        call->token = call->token_wish != 0 ? reply->element[1]->integer : 0;
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
    state->exchange.acks.asked = call->acks;
    state->exchange.acks.needs_them = hfi_acks_of_one;
    if (call->token_wish != 0)
        hfi_call_send(call, state->kind->extend, write_wish, extended);
    else
        hfi_call_send(call, state->kind->renewer->script, write_extend, extended);
}
