/*
 * Setting the lease of a hold, or adding to it: one exchange, which is sent once.
 *
 * Called by src/core through the engine's table, on the thread of the call's executor, which owns
 * the state. Only a script can do it, since a command has no `not-after`: a late copy of a command
 * would take back a later extension.
 */
#include "redis/kinds/lease_validity.h"
#include "redis/ops/call.h"

/* The arguments of the renewer's script for one hold, and the mode. */
static void write_lease(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command) {
    const struct hfi_call_state *state = hfi_state_around(x);
    const struct hfi_call *call = state->call;
    const struct hfi_renewal_item item = {.kind = call->kind,
                                          .name = call->name,
                                          .name_len = call->name_len,
                                          .owner = call->owner,
                                          .owner_len = call->owner_len,
                                          .stamp = call->stamp,
                                          .lease_ms = call->lease_ms};
    const struct hfi_renewal_item *const items[] = {&item};
    state->kind->renewer->write(x->redis, items, 1, not_after_ms, command);
    hfi_command_text(command, call->extend_mode == HF_EXTEND_ADD ? "add" : "set");
}

static void lease_is_set(struct hfi_call *call, int64_t lease_ms) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    call->acked = x->acks.got;
    call->lease_ms = lease_ms;
    call->proof = hfi_proof_of(x->redis, call->kind, x->sent_ms, lease_ms);
    hfi_confirm_extension(call);
}

static void answered(struct hfi_call *call) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    const struct hfi_reply *reply = hfi_answer_of(call);
    int64_t answer = reply->elements == 3 ? reply->element[0]->integer : INT64_MIN;
    bool is_set = answer == 1 && reply->element[1]->integer >= call->lease_ms;
    if (!is_set && answer != 0 && answer != -1) {
        hfi_call_fail_proto(call);
    } else if (is_set && !hfi_acks_suffice(x)) {
        hfi_call_finish(call, hfi_acks_fail(x, &call->error));
    } else if (is_set) {
        lease_is_set(call, reply->element[1]->integer);
    } else {
        call->gone = true;
        hfi_call_fail(call, HF_ELOST,
                      answer == 0 ? "the hold was gone from the server when it was extended"
                                  : "the lock's name is now used for something else");
    }
}

void hfi_set_lease(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    struct hfi_exchange *x = &state->exchange;
    if (state->kind->lease == NULL) {
        hfi_call_fail(call, HF_ENOTSUP,
                      "this kind of lock cannot be given a shorter lease, nor more of one");
        return;
    }
    x->once = true;
    x->acks.asked = call->acks;
    x->acks.needs_them = hfi_acks_of_one;
    hfi_call_send(call, state->kind->lease, write_lease, answered);
}
