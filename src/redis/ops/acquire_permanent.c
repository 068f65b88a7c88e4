/*
 * An acquire without a lease (HF_NO_LEASE): it takes the lock with a lease of the watchdog's length,
 * and then takes that away.
 *
 *   attempt -> ours: make permanent -> ours   done
 *                                   -> gone   attempt
 *
 * Part of acquire.c, on the thread of the call's executor. Both steps are needed: a lost copy of a
 * command that sets a key without an end could occupy the lock at any later time, for ever. Here a
 * late copy of the first step does so for a lease at most. One of the second does nothing to a token
 * that is gone. After the first lease nothing can bring that back, so a release sent then is final
 * (late_copies.c), whatever the second step has done.
 *
 * Until the reply to the second step the call counts as one to be undone: if it fails, the core
 * settles it for as long as the client lives, since no lease would end the hold.
 */
#include "base/clock.h"
#include "redis/kinds/lease_validity.h"
#include "redis/ops/call.h"

static void send_command(struct hfi_call *call);

/* The first lease has ended, or somebody has deleted the lock. */
static void gone(struct hfi_call *call) {
    if (hfi_now_ms() < call->deadline_ms)
        hfi_acquire_again(call);
    else
        hfi_call_fail(call, HF_ETIMEDOUT, "the lock was gone before it could be made permanent");
}

static void permanent(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    if (!hfi_acks_suffice(x)) {
        hfi_acquire_unacked(call);
        return;
    }
    state->unacked = false;
    call->acked = x->acks.got;
    call->proof = hfi_proof_of(x->redis, call->kind, x->sent_ms, call->lease_ms);
    hfi_call_finish(call, HF_OK);
}

static void answered(struct hfi_call *call) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (hfi_extension_finds_no_scripts(x)) {
        send_command(call);
        return;
    }
    bool other = x->err == HF_EWRONGTYPE;
    if (x->err != HF_OK && !other) {
        hfi_call_finish(call, x->err);
        return;
    }
    long long answer = other ? -1 : hfi_extension_read(call, 2);
    if (answer == 1)
        permanent(call);
    else if (answer == 0 || answer == -1)
        gone(call);
    else
        hfi_call_fail_proto(call);
}

static void step(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_acquire_on_events(state, events);
    if (hfi_exchange_step(&state->exchange, events) == HFI_FINISHED)
        answered(call);
}

static void send_command(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    state->step = step;
    x->script = state->kind->renewer->script;
    x->write = hfi_extension_write;
    x->copy_lost = NULL; /* a copy of this does nothing to a token that is gone */
    x->acks.needs_them = hfi_acks_of_one;
    hfi_exchange_choose_by(x, state->kind->renewer->write_native != NULL ? hfi_extension_choose
                                                                         : NULL);
    if (hfi_exchange_begin(x) == HFI_FINISHED)
        answered(call);
}

void hfi_acquire_make_permanent(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    state->unacked = true;
    x->limit_ms =
        hfi_max_ms(call->deadline_ms, hfi_after_ms(hfi_now_ms(), x->redis->cmd_timeout_ms));
    send_command(call);
}
