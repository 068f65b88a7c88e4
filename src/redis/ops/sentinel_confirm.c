/*
 * Confirmation of an extension by sentinels: that its server is still the primary
 * (`sentinel_confirm`). A nested acquire extends, too. Renewals do this themselves (renew.c).
 *
 * Called by the operations when the server has answered, on the thread of the call's executor,
 * which owns the state. It reuses the exchange's `want`, which the exchange does not need any more.
 */
#include "base/clock.h"
#include "redis/ops/call.h"

/* Also once the engine has stopped: the route may still be about to complete the want. */
static void stop(struct hfi_call *call) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    x->redis->route->ops->unwant(x->redis->route, x->want);
}

static void step(struct hfi_call *call, unsigned events) {
    struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    bool answered = (events & HFI_EVENT_READY) != 0 && !hfi_linked(&x->want->link);
    bool late = (events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(x);
    if (!answered && !late)
        return;
    stop(call); /* settles `err` */
    if (answered && x->want->err != HF_OK)
        call->error = x->want->error;
    if (answered)
        hfi_call_finish(call, x->want->err);
    else
        hfi_call_fail(call, HF_EUNREACH, "too few sentinels have confirmed the primary in time");
}

void hfi_confirm_extension(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    if (!x->redis->confirms) {
        hfi_call_finish(call, HF_OK);
        return;
    }
    x->unanswered = true; /* it has run, but does not count yet */
    if (x->want == NULL)
        x->want = hfi_zalloc(x->redis->mem, sizeof *x->want);
    if (x->want == NULL) {
        hfi_call_fail(call, HF_ENOMEM, "out of memory");
        return;
    }
    if (state->cleanup != NULL)
        state->cleanup(call); /* it does not wait for the lock any more */
    state->step = step;
    state->cleanup = stop;
    hfi_exchange_sleep(
        x, hfi_min_ms(x->limit_ms, hfi_after_ms(hfi_now_ms(), x->redis->cmd_timeout_ms)));
    x->redis->route->ops->confirm(x->redis->route, x->node, x->want, call->task, HFI_EVENT_READY);
}
