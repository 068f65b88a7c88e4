/*
 * Acquiring a lock, with or without waiting.
 *
 *   attempt -> held                                          done
 *           -> another's: begin to listen -> confirmed       attempt
 *                         otherwise       -> sleep -> woken  attempt
 *
 * The second attempt comes after the confirmation, because nobody is told of a release between the
 * first one and the subscription. What is told, how long to sleep and what else ends a wait is the
 * business of the kind's manner of waiting (waiting.h), and this file is the same for all.
 *
 * All of it runs on the thread of the call's executor; wake-ups come as events of its task.
 */
#include "base/clock.h"
#include "redis/internal.h"
#include "redis/kind.h"
#include "redis/line.h"

#define FLOOD_AFTER 16 /* this many wake-ups in a row for nothing, and attempts keep a distance */
#define FLOOD_GAP_MS 2 /* on a clock of whole milliseconds, at least one */

static void attempt(struct hfi_call *call);

void hfi_acquire_news(struct hfi_call_state *state, unsigned events) {
    if ((events & HFI_EVENT_DEAF) != 0)
        state->u.acquire.heard = false;
    if ((events & HFI_EVENT_SUBSCRIBED) != 0)
        state->u.acquire.heard = true;
    /* If one connection is lost, the others may be next, so a command that must not be sent twice
     * waits for a moment. But not if the connection has already been made again, since messages may
     * have been missed in between. */
    bool hurry = (events & HFI_EVENT_DEAF) == 0 || (events & HFI_EVENT_SUBSCRIBED) != 0 ||
                 !state->exchange.once;
    if ((events & (HFI_EVENT_SUBSCRIBED | HFI_EVENT_MESSAGE)) != 0 && hurry)
        state->u.acquire.woken = true;
}

static void timed_out(struct hfi_call *call) {
    const char *busy = hfi_state_of(call)->kind->busy;
    hfi_call_fail(call, HF_ETIMEDOUT,
                  busy != NULL ? busy : "another owner held the lock all the time");
}

/* ---- Asleep ---- */

static void sleep_or_attempt(struct hfi_call *call);

static void step_asleep(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    bool was_woken = state->u.acquire.woken;
    hfi_acquire_news(state, events);
    if ((events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange)) {
        if (!state->u.acquire.woken)
            state->u.acquire.fruitless = call->told_us = 0;
        attempt(call);
    } else if ((state->u.acquire.woken && !was_woken) || (events & HFI_EVENT_DEAF) != 0) {
        sleep_or_attempt(call); /* or polls, from now on */
    }
}

/* After an attempt in vain, or a wake-up. */
static void sleep_or_attempt(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int64_t now_ms = hfi_now_ms(), until_ms;
    if (state->u.acquire.woken)
        call->told_us = hfi_now_us();
    if (state->u.acquire.woken && hfi_courtesy_lets_pass(call)) {
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
        until_ms = hfi_after_ms(now_ms, state->kind->waiting->nap_ms(call));
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
    hfi_acquire_news(state, events);
    bool waited = (events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange);
    if (state->u.acquire.woken || waited || (events & HFI_EVENT_DEAF) != 0)
        attempt(call);
}

/* Another server has answered than the one where it listens. */
static bool has_moved(const struct hfi_call_state *state) {
    return state->u.acquire.home != NULL && state->u.acquire.home != state->exchange.node;
}

/* The first time that another has it, there. */
static void begin_to_wait(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int64_t patience_ms = 0;
    if (has_moved(state))
        state->kind->waiting->left(call);
    enum hfi_told told = state->kind->waiting->begin(call, &patience_ms);
    if (told == HFI_TOLD) {
        attempt(call);
    } else if (told == HFI_TOLD_NOT) {
        sleep_or_attempt(call);
    } else {
        state->step = step_subscribing;
        hfi_exchange_sleep(&state->exchange,
                           hfi_min_ms(hfi_after_ms(hfi_now_ms(), patience_ms), call->deadline_ms));
    }
}

/* ---- An attempt ---- */

static void send_attempt(struct hfi_call *call);

/* One attempt, and no waiting. */
static bool tries_once(const struct hfi_call *call) {
    return call->deadline_ms <= call->start_ms;
}

static void taken(struct hfi_call *call, const struct hfi_acquire_answer *answer) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_waiting *waiting = state->kind->waiting;
    const char *busy = state->kind->busy;
    const struct hfi_news *news = state->exchange.redis->news;
    bool over = waiting->stood != NULL && waiting->stood(call, answer);
    if (tries_once(call) && answer->again_ms > 0 && hfi_now_ms() < state->exchange.limit_ms) {
        send_attempt(call); /* the dead in front of the line were not all passed over yet */
        return;
    }
    if (over) {
        hfi_call_finish(call, HF_OK);
        return;
    }
    state->u.acquire.ttl_ms = answer->ttl_ms;
    state->u.acquire.unacked_ms = 0;
    if (!call->contended && !tries_once(call) && news != NULL)
        news->waits(news->arg); /* from here on */
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
        hfi_acquire_unconfirmed(call);
        return;
    }
    hfi_courtesy_end(call);
    call->acked = x->acks.got;
    call->value = answer->count;
    call->token = answer->token;
    call->proof = hfi_proof_of(x->redis, call->kind, x->sent_ms, call->lease_ms);
    hfi_call_finish(call, HF_OK);
}

static void read_attempt(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_acquire_answer answer;
    int err = state->kind->read_acquire(call, hfi_answer_of(call), &answer);
    if (err == HF_EWRONGTYPE) {
        hfi_call_fail(call, err, "what has this name is something else");
    } else if (err != HF_OK) {
        hfi_call_fail_proto(call);
    } else if (answer.verdict == HFI_TAKEN) {
        taken(call, &answer);
    } else if (answer.verdict == HFI_ACQUIRED) {
        acquired(call, &answer);
    } else if (answer.verdict == HFI_ACQUIRE_GONE) {
        call->gone = true;
        hfi_call_fail(call, HF_ELOST, "the lock was gone when it was to be acquired again");
    } else {
        hfi_call_fail(call, HF_ELOST, "the server counts this owner's holds differently");
    }
}

static void attempted(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (hfi_line_do_without(call)) {
        send_attempt(call);
        return;
    }
    if (hfi_ticket_do_without(call)) {
        state->u.acquire.ticketless = true;
        send_attempt(call);
        return;
    }
    if (state->exchange.err != HF_OK) {
        hfi_call_finish(call, state->exchange.err);
        return;
    }
    if (state->u.acquire.ticketless)
        hfi_ticket_refused(call);
    read_attempt(call);
}

/* Forwards what concerns the exchange, and keeps wake-ups for later. */
static void step_attempt(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    hfi_acquire_news(state, events);
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
    /* tried once, it is one exchange from when the caller came */
    int64_t exchange_end_ms =
        hfi_after_ms(tries_once(call) ? call->start_ms : now_ms, x->redis->cmd_timeout_ms);
    x->limit_ms = call->deadline_ms > exchange_end_ms ? call->deadline_ms : exchange_end_ms;
    state->u.acquire.attempted_ms = now_ms;
    state->u.acquire.woken = state->u.acquire.own_message = false;
    bool control;
    if (call->count == 0)
        /* then it goes to the one that is there now */
        hfi_redis_was_replaced(x->redis, call->name, call->name_len, &control);
}

/* Of things the number is only told: what takes part of a number cannot be sent again. */
static int acks_of(struct hfi_call *call) {
    bool thing = hfi_state_of(call)->kind->acts != NULL;
    return call->acks != 0 && thing ? HF_ACKS_REPORT : call->acks;
}

static void aim_at_lock(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    state->acquiring = true;
    x->script = state->kind->acquire;
    x->write = write_attempt;
    x->acks.asked = state->kind->waiting->only_looks ? 0 : acks_of(call);
    x->acks.needs_them = hfi_acks_of_one;
}

void hfi_acquire_again(struct hfi_call *call) {
    aim_at_lock(call);
    attempt(call);
}

/* Once more, unless the time is over. */
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
    const struct hfi_waiting *waiting = state->kind->waiting;
    aim_at_lock(call);
    state->settles = !waiting->only_looks;
    x->asks = waiting->only_looks;
    state->cleanup = waiting->left;
    if (state->kind->draws_tickets) {
        hfi_ticket_draw(call);
        x->once = !hfi_ticket_drawn(call);
        x->known_ms = HFI_TICKET_MS;
    }
    x->limit_err = HF_ETIMEDOUT;
    if (call->deadline_ms > call->start_ms) {
        x->retry = HFI_RETRY_PATIENTLY;
        x->silence_ms = x->redis->connect_timeout_ms;
    }
    return state;
}

void hfi_acquire(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_acquire_prepare(call);
    const struct hfi_waiting *waiting = state->kind->waiting;
    if (waiting->prepare != NULL)
        waiting->prepare(call);
    prepare_attempt(call, hfi_now_ms());
    if (hfi_courtesy_begin(call))
        state->step = step_asleep;
    else
        send_attempt(call);
}
