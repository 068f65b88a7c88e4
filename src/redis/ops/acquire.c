/*
 * Acquiring a lock, with or without waiting.
 *
 *   attempt -> held                                          done
 *           -> another's: subscribe   -> confirmed           attempt
 *                         otherwise   -> sleep -> woken      attempt
 *
 * The second attempt comes after the confirmation, because a release between the first attempt and
 * the subscription sends us no message. The kind's wait strategy (wait_strategy.h) knows which
 * messages come, how long to sleep and what else ends a wait. This file is the same for all kinds.
 *
 * All of it runs on the thread of the call's executor; wake-ups come as events of its task.
 */
#include "base/clock.h"
#include "engine/observe.h"
#include "redis/kinds/lease_validity.h"
#include "redis/ops/call.h"
#include "redis/wait/fair_queue.h"

#define FLOOD_AFTER 16 /* after this many futile wake-ups in a row, space attempts */
#define FLOOD_GAP_MS 2 /* at least one, on a clock of whole milliseconds */
#define UNDONE_MS 2    /* until what this owner has given up may be released */

static void attempt(struct hfi_call *call);

void hfi_acquire_on_events(struct hfi_call_state *state, unsigned events) {
    if ((events & HFI_EVENT_REFUSED) != 0)
        state->u.acquire.subscribed = false;
    if ((events & HFI_EVENT_SUBSCRIBED) != 0)
        state->u.acquire.subscribed = true;
    /* If one connection is lost, the others may be next. So a command that must not be sent twice
     * waits for a moment. But not if the connection is up again, since messages may have been
     * missed in between. */
    bool hurry = (events & HFI_EVENT_REFUSED) == 0 || (events & HFI_EVENT_SUBSCRIBED) != 0 ||
                 !state->exchange.once;
    if ((events & (HFI_EVENT_SUBSCRIBED | HFI_EVENT_MESSAGE)) != 0 && hurry)
        state->u.acquire.woken = true;
}

static void timed_out(struct hfi_call *call) {
    const char *busy = hfi_state_of(call)->kind->busy;
    hfi_call_fail(call, HF_ETIMEDOUT,
                  busy != NULL ? busy : "another owner held the lock for the whole wait");
}

/* ---- Asleep ---- */

static void sleep_or_attempt(struct hfi_call *call);

static void step_asleep(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    bool was_woken = state->u.acquire.woken;
    hfi_acquire_on_events(state, events);
    if ((events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange)) {
        if (!state->u.acquire.woken)
            state->u.acquire.fruitless = call->notified_us = 0;
        attempt(call);
    } else if ((state->u.acquire.woken && !was_woken) || (events & HFI_EVENT_REFUSED) != 0) {
        sleep_or_attempt(call); /* or to poll, from now on */
    }
}

/* After a failed attempt, or a wake-up. */
static void sleep_or_attempt(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int64_t now_ms = hfi_now_ms(), until_ms;
    if (state->u.acquire.woken)
        call->notified_us = hfi_now_us();
    if (state->u.acquire.woken && hfi_yield_lets_pass(call)) {
        state->step = step_asleep;
        return;
    }
    if (state->u.acquire.woken && state->kind->waiting->woken != NULL &&
        state->kind->waiting->woken(call))
        return;
    if (state->u.acquire.woken) {
        until_ms = state->u.acquire.attempted_ms + FLOOD_GAP_MS;
        if (++state->u.acquire.fruitless <= FLOOD_AFTER || now_ms >= until_ms) {
            attempt(call);
            return;
        }
    } else {
        until_ms = hfi_after_ms(now_ms, state->kind->waiting->sleep_ms(call));
    }
    state->step = step_asleep;
    hfi_exchange_sleep(&state->exchange, hfi_min_ms(until_ms, call->deadline_ms));
}

bool hfi_acquire_sleeps(struct hfi_call *call) {
    return hfi_state_of(call)->step == step_asleep;
}

void hfi_acquire_sleep_on(struct hfi_call *call, int64_t until_ms, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->step = step_asleep;
    hfi_exchange_sleep(&state->exchange, until_ms);
    step_asleep(call, events | (hfi_now_ms() >= until_ms ? HFI_EVENT_TIMER : 0));
}

/* ---- Subscribing ---- */

static void step_subscribing(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_acquire_on_events(state, events);
    bool waited = (events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange);
    if (state->u.acquire.woken || waited || (events & HFI_EVENT_REFUSED) != 0)
        attempt(call);
}

/* The reply came from another server than the one where it is subscribed. */
static bool has_moved(const struct hfi_call_state *state) {
    return state->u.acquire.home != NULL && state->u.acquire.home != state->exchange.node;
}

/* The first time that another owner has the lock, at this server. */
static void begin_to_wait(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int64_t subscribe_timeout_ms = 0;
    if (has_moved(state))
        state->kind->waiting->end(call);
    enum hfi_notified_when notified = state->kind->waiting->begin(call, &subscribe_timeout_ms);
    if (notified == HFI_NOTIFIED) {
        attempt(call);
    } else if (notified == HFI_NOTIFIED_NEVER) {
        sleep_or_attempt(call);
    } else {
        state->step = step_subscribing;
        hfi_exchange_sleep(
            &state->exchange,
            hfi_min_ms(hfi_after_ms(hfi_now_ms(), subscribe_timeout_ms), call->deadline_ms));
    }
}

/* ---- An attempt ---- */

static void send_attempt(struct hfi_call *call);

/* One attempt, and no waiting. */
static bool tries_once(const struct hfi_call *call) {
    return call->deadline_ms <= call->start_ms;
}

static void step_undoing(struct hfi_call *call, unsigned events) {
    if ((events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&hfi_state_of(call)->exchange))
        send_attempt(call);
}

/* Only this owner itself is in the way. */
static void attempt_when_undone(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->step = step_undoing;
    hfi_exchange_sleep(&state->exchange, hfi_after_ms(hfi_now_ms(), UNDONE_MS));
}

static void taken(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_wait_strategy *waiting = state->kind->waiting;
    const char *busy = state->kind->busy;
    const struct hfi_engine_events *engine_events = state->exchange.redis->engine_events;
    bool over = waiting->on_busy != NULL && waiting->on_busy(call, answer);
    if (tries_once(call) && answer->again_ms > 0 && hfi_now_ms() < state->exchange.limit_ms) {
        send_attempt(call); /* not all dead waiters at the queue's head were swept yet */
        return;
    }
    if (tries_once(call) && answer->given_up) {
        if (hfi_now_ms() < state->exchange.limit_ms)
            attempt_when_undone(call);
        else
            hfi_call_fail(call, HF_ETIMEDOUT, "what this owner gave up is not released yet");
        return;
    }
    if (over) {
        hfi_call_finish(call, HF_OK);
        return;
    }
    state->u.acquire.ttl_ms = answer->ttl_ms;
    state->u.acquire.unacked_ms = 0;
    if (!call->contended && !tries_once(call) && engine_events != NULL)
        engine_events->reporter->waits(engine_events->arg);
    call->contended = true;
    if (tries_once(call))
        hfi_call_fail(call, HF_EBUSY, busy != NULL ? busy : "another owner holds the lock");
    else if (hfi_now_ms() >= call->deadline_ms)
        timed_out(call);
    else if (state->u.acquire.home == NULL || has_moved(state))
        begin_to_wait(call);
    else
        sleep_or_attempt(call);
}

static void acquired(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    const struct hfi_exchange *x = &hfi_state_of(call)->exchange;
    if (!hfi_acks_suffice(x)) {
        hfi_acquire_unacked(call);
        return;
    }
    hfi_yield_end(call);
    call->acked = x->acks.got;
    call->value = answer->count;
    call->token = answer->token;
    call->proof = hfi_proof_of(x->redis, call->kind, x->sent_ms, call->lease_ms);
    if (hfi_state_of(call)->kind->prove != NULL)
        hfi_state_of(call)->kind->prove(call, &call->proof);
    if (call->count > 0)
        hfi_confirm_extension(call); /* else it is undone */
    else if (call->lease_ms == HF_NO_LEASE && call->kind->takes_no_lease)
        hfi_acquire_make_permanent(call);
    else
        hfi_call_finish(call, HF_OK);
}

static void read_attempt(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_acquire_answer answer;
    int err = state->kind->read_acquire(call, hfi_answer_of(call), &answer);
    if (err == HF_EWRONGTYPE) {
        hfi_call_fail(call, err, "the name is used for something else");
    } else if (err != HF_OK) {
        hfi_call_fail_proto(call);
    } else if (answer.verdict == HFI_TAKEN) {
        taken(call, &answer);
    } else if (answer.verdict == HFI_ACQUIRED) {
        acquired(call, &answer);
    } else if (answer.verdict == HFI_ACQUIRE_GONE) {
        call->gone = true;
        hfi_call_fail(call, HF_ELOST,
                      "the hold was gone from the server when the lock was "
                      "re-acquired");
    } else {
        hfi_call_fail(call, HF_ELOST, "this owner's count on the server differs from the client's");
    }
}

/* A key that this user may not use is done without. */
static void attempt_failed(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (hfi_fair_waiter_do_without(call)) {
        send_attempt(call);
    } else if (hfi_idempotency_do_without(call, &state->exchange)) {
        state->u.acquire.without_idempotency_key = true;
        send_attempt(call);
    } else {
        hfi_call_finish(call, state->exchange.err);
    }
}

static void attempted(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->kind->learn != NULL && state->kind->learn(&state->exchange)) {
        send_attempt(call);
        return;
    }
    if (state->exchange.err != HF_OK) {
        attempt_failed(call);
        return;
    }
    if (state->u.acquire.without_idempotency_key)
        hfi_idempotency_refused(&hfi_state_of(call)->exchange);
    read_attempt(call);
}

/* Forwards events to the exchange, and keeps wake-ups for later. */
static void step_attempt(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_acquire_on_events(state, events);
    if (hfi_exchange_step(&state->exchange, events) == HFI_FINISHED)
        attempted(call);
}

static void write_attempt(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    struct hfi_call_state *state = hfi_state_around(x);
    state->kind->write_acquire(x->redis, state->call, not_after_ms, command);
}

static void send_attempt(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->step = step_attempt;
    if (hfi_exchange_begin(&state->exchange) == HFI_FINISHED)
        attempted(call);
}

static void prepare_attempt(struct hfi_call *call, int64_t now_ms) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    /* a single attempt is one exchange, counted from when the call started */
    int64_t exchange_end_ms =
        hfi_after_ms(tries_once(call) ? call->start_ms : now_ms, x->redis->cmd_timeout_ms);
    x->limit_ms = call->deadline_ms > exchange_end_ms ? call->deadline_ms : exchange_end_ms;
    state->u.acquire.attempted_ms = now_ms;
    state->u.acquire.woken = state->u.acquire.own_message = false;
    bool control;
    if (call->count == 0)
        /* if the server was replaced, go to the new one */
        hfi_redis_was_replaced(x->redis, call->name, call->name_len, &control);
}

/* For objects acks are only reported: a command that takes part of a count cannot be sent again. */
static int acks_of(struct hfi_call *call) {
    bool object = hfi_state_of(call)->kind->object_ops != NULL;
    return call->acks != 0 && object ? HF_ACKS_REPORT : call->acks;
}

static void prepare_exchange(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    state->acquiring = true;
    x->script = state->kind->acquire;
    x->write = write_attempt;
    x->acks.asked = state->kind->waiting->read_only ? 0 : acks_of(call);
    x->acks.needs_them = hfi_acks_of_one;
    x->copy_lost = state->kind->copy_lost;
    hfi_exchange_choose_by(x, state->kind->choose_acquire);
}

void hfi_acquire_again(struct hfi_call *call) {
    prepare_exchange(call);
    attempt(call);
}

/* One more attempt, unless the deadline has passed. */
static void attempt(struct hfi_call *call) {
    int64_t now_ms = hfi_now_ms();
    if (now_ms >= call->deadline_ms) {
        timed_out(call);
        return;
    }
    prepare_attempt(call, now_ms);
    send_attempt(call);
}

struct hfi_call_state *hfi_acquire_prepare(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    struct hfi_exchange *x = &state->exchange;
    const struct hfi_wait_strategy *waiting = state->kind->waiting;
    prepare_exchange(call);
    state->settles = !waiting->read_only;
    x->asks = waiting->read_only;
    state->cleanup = waiting->end;
    if (state->kind->draws_idempotency_key) {
        hfi_idempotency_draw(call);
        x->once = !hfi_idempotency_drawn(call);
        x->known_ms = HFI_IDEMPOTENCY_MS;
    }
    x->attempt = true;
    x->limit_err = HF_ETIMEDOUT;
    if (call->deadline_ms > call->start_ms) {
        x->retry = HFI_RETRY_PATIENTLY;
        x->silence_ms = x->redis->connect_timeout_ms;
    }
    return state;
}

void hfi_acquire(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_acquire_prepare(call);
    const struct hfi_wait_strategy *waiting = state->kind->waiting;
    if (waiting->prepare != NULL)
        waiting->prepare(call);
    prepare_attempt(call, hfi_now_ms());
    if (hfi_yield_begin(call))
        state->step = step_asleep;
    else
        send_attempt(call);
}
