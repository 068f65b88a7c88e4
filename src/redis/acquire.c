/*
 * Acquiring a lock, with or without waiting.
 *
 *   attempt -> held                                       done
 *           -> another's: subscribe -> confirmed          attempt
 *                         otherwise  -> sleep -> woken    attempt
 *
 * The second attempt comes after the confirmation, because nobody is told of a release between the
 * first one and the subscription. A wake-up is only ever a hint: a sleep also ends when the
 * holder's lease does, and after POLL_MAX_MS at the latest. If the server does not let us listen,
 * or takes too long to confirm, we poll instead; a kind may want that from the start.
 *
 * A latch counts down to being open for everybody. So its wait is also ended by a proof that it was
 * open which was not there at the first look, or by a count that has grown: it was open in between.
 * A message is no proof, but a reason to look.
 *
 * All of it runs on the thread of the call's executor; wake-ups come as events of its task.
 */
#include "base/clock.h"
#include "redis/internal.h"
#include "redis/kind.h"
#include "redis/line.h"

#define POLL_MAX_MS 10000
#define FLOOD_AFTER 16 /* this many wake-ups in a row for nothing, and attempts keep a distance */
#define FLOOD_GAP_MS 2 /* on a clock of whole milliseconds, at least one */
#define CHANNEL_SMALL 512

/* For waiters that want to listen, but whose subscription is not confirmed. */
static const struct hfi_backoff deaf = {.first_ms = 20, .max_ms = 1000, .factor = 2};

static void attempt(struct hfi_call *call);

static int64_t earlier(int64_t a_ms, int64_t b_ms) {
    return a_ms < b_ms ? a_ms : b_ms;
}

static void note_news(struct hfi_call_state *state, unsigned events) {
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

static void leave_channel(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (state->u.acquire.listening)
        hfi_pubsub_leave(state->exchange.redis->pubsub, &state->u.acquire.waiter);
    state->u.acquire.listening = false;
}

/* ---- Asleep ---- */

static void sleep_or_attempt(struct hfi_call *call);

static void step_asleep(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    bool was_woken = state->u.acquire.woken;
    note_news(state, events);
    if ((events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange)) {
        if (!state->u.acquire.woken)
            state->u.acquire.fruitless = 0;
        attempt(call);
    } else if ((state->u.acquire.woken && !was_woken) || (events & HFI_EVENT_DEAF) != 0) {
        sleep_or_attempt(call); /* or polls, from now on */
    }
}

static uint64_t throw_dice(const void *salt) {
    uint64_t dice = (uint64_t)hfi_now_us() ^ (uint64_t)(uintptr_t)salt;
    return ((dice ^ (dice >> 33)) * 0xff51afd7ed558ccdu) >> 33;
}

/* Between attempts of a kind that spins, as its handle wants it; or of a waiter that cannot
 * listen. */
static struct hfi_backoff backoff_of(const struct hfi_call_state *state) {
    const struct hfi_spin *spin = &state->call->spin;
    if (state->kind->backoff == NULL)
        return deaf;
    if (spin->first_ms == 0)
        return *state->kind->backoff;
    return (struct hfi_backoff){spin->first_ms, spin->max_ms, spin->factor};
}

/* How long to sleep when nothing has happened. */
static int64_t longest_nap_ms(struct hfi_call_state *state) {
    int64_t nap_ms = POLL_MAX_MS;
    if (!state->u.acquire.heard) {
        const struct hfi_backoff backoff = backoff_of(state);
        nap_ms = hfi_backoff_ms(&backoff, state->u.acquire.naps++, throw_dice(state));
    }
    if (state->kind->give_up != NULL)
        return hfi_line_nap_ms(state, nap_ms);
    if (state->u.acquire.ttl_ms >= 0)
        nap_ms = earlier(nap_ms, state->u.acquire.ttl_ms + 1);
    return nap_ms;
}

/* After an attempt in vain, or a wake-up. */
static void sleep_or_attempt(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    int64_t now_ms = hfi_now_ms(), until_ms;
    if (state->u.acquire.woken && state->kind->give_up != NULL && hfi_line_enter(call))
        return;
    if (state->u.acquire.woken) {
        until_ms = state->u.acquire.attempted_ms + FLOOD_GAP_MS;
        if (++state->u.acquire.fruitless <= FLOOD_AFTER || now_ms >= until_ms) {
            attempt(call);
            return;
        }
    } else {
        until_ms = hfi_after_ms(now_ms, longest_nap_ms(state));
    }
    state->step = step_asleep;
    hfi_exchange_sleep(&state->exchange, earlier(until_ms, call->deadline_ms));
}

/* ---- Subscribing ---- */

static void step_subscribing(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    note_news(state, events);
    bool waited = (events & HFI_EVENT_TIMER) != 0 && hfi_exchange_woken(&state->exchange);
    if (state->u.acquire.woken || waited || (events & HFI_EVENT_DEAF) != 0)
        attempt(call);
}

/* Joins the channel; with `heard_only` only if it is already subscribed. */
static int join_channel(struct hfi_call *call, bool heard_only) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_redis *redis = state->exchange.redis;
    char small[CHANNEL_SMALL], *name = small;
    size_t len = state->kind->channel(redis, call, NULL);
    if (len > sizeof small)
        name = hfi_alloc(redis->mem, len);
    if (name == NULL)
        return HF_ENOMEM;
    state->kind->channel(redis, call, name);
    int err = HF_OK;
    struct hfi_waiter *waiter = &state->u.acquire.waiter;
    if (call->lane == HFI_LANE_CALLER)
        waiter->caller = &state->exchange.attendant;
    if (heard_only)
        state->u.acquire.heard = state->u.acquire.listening =
            hfi_pubsub_join_heard(redis->pubsub, waiter, call->task, name, len);
    else
        err =
            hfi_pubsub_join(redis->pubsub, waiter, call->task, name, len, &state->u.acquire.heard);
    if (name != small)
        hfi_free(redis->mem, name);
    return err;
}

/* The first time that another holds it. */
static void subscribe(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    if (call->lane == HFI_LANE_CALLER)
        hfi_pubsub_catch_up(state->exchange.redis->pubsub, call->task->exec);
    if (join_channel(call, false) != HF_OK) {
        sleep_or_attempt(call); /* without memory for a subscription it can still poll */
        return;
    }
    state->u.acquire.listening = true;
    if (state->u.acquire.heard) {
        attempt(call);
        return;
    }
    int64_t patience_ms = state->exchange.redis->cmd_timeout_ms;
    if (state->u.acquire.ttl_ms >= 0)
        patience_ms = earlier(patience_ms, state->u.acquire.ttl_ms + 1);
    if (state->kind->give_up != NULL)
        patience_ms = hfi_line_nap_ms(state, patience_ms);
    state->step = step_subscribing;
    hfi_exchange_sleep(&state->exchange,
                       earlier(hfi_after_ms(hfi_now_ms(), patience_ms), call->deadline_ms));
}

/* ---- An attempt ---- */

/* It is closed. Has it been open since the first look? */
static bool was_open(struct hfi_call_state *state, const struct hfi_acquire_answer *answer) {
    if (!state->kind->counts_down)
        return false;
    bool first = state->u.acquire.count == 0;
    bool grown = answer->count > state->u.acquire.count;
    state->u.acquire.count = answer->count;
    if (first)
        state->u.acquire.proof = answer->proof;
    return !first && (grown || (answer->proof != 0 && answer->proof != state->u.acquire.proof));
}

static void held_by_another(struct hfi_call *call, int64_t ttl_ms) {
    struct hfi_call_state *state = hfi_state_of(call);
    bool listens = state->kind->backoff == NULL;
    const char *busy = state->kind->busy;
    state->u.acquire.ttl_ms = ttl_ms;
    call->contended = true;
    if (call->deadline_ms <= call->start_ms)
        hfi_call_fail(call, HF_EBUSY, busy != NULL ? busy : "another owner holds the lock");
    else if (hfi_now_ms() >= call->deadline_ms)
        timed_out(call);
    else if (listens && !state->u.acquire.listening)
        subscribe(call);
    else
        sleep_or_attempt(call);
}

static void send_attempt(struct hfi_call *call);

static void attempted(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    const struct hfi_exchange *x = &state->exchange;
    struct hfi_acquire_answer answer;
    if (hfi_line_do_without(call)) {
        send_attempt(call);
        return;
    }
    if (hfi_ticket_do_without(call)) {
        state->u.acquire.ticketless = true;
        send_attempt(call);
        return;
    }
    if (x->err != HF_OK) {
        hfi_call_finish(call, x->err);
        return;
    }
    if (state->u.acquire.ticketless)
        hfi_ticket_refused(call);
    int err = state->kind->read_acquire(call, hfi_exchange_reply(x), &answer);
    if (err == HF_EWRONGTYPE) {
        hfi_call_fail(call, err, "what has this name is something else");
        return;
    }
    if (err != HF_OK) {
        hfi_call_fail_proto(call);
        return;
    }
    if (answer.verdict == HFI_TAKEN && state->kind->give_up != NULL)
        hfi_line_stand(call, &answer);
    bool once = call->deadline_ms <= call->start_ms;
    if (answer.verdict == HFI_TAKEN && once && answer.again_ms > 0 && hfi_now_ms() < x->limit_ms) {
        send_attempt(call); /* the dead in front of the line were not all passed over yet */
    } else if (answer.verdict == HFI_TAKEN) {
        if (was_open(state, &answer))
            hfi_call_finish(call, HF_OK);
        else
            held_by_another(call, answer.ttl_ms);
    } else if (answer.verdict == HFI_ACQUIRED) {
        call->value = answer.count;
        call->token = answer.token;
        call->proof = hfi_proof_of(x->redis, call->kind, x->sent_ms, call->lease_ms);
        hfi_call_finish(call, HF_OK);
    } else if (answer.verdict == HFI_ACQUIRE_GONE) {
        call->gone = true;
        hfi_call_fail(call, HF_ELOST, "the lock was gone when it was to be acquired again");
    } else {
        hfi_call_fail(call, HF_ELOST, "the server counts this owner's holds differently");
    }
}

/* Forwards what concerns the exchange, and keeps wake-ups for later. */
static void step_attempt(struct hfi_call *call, unsigned events) {
    struct hfi_call_state *state = hfi_state_of(call);
    note_news(state, events);
    if (hfi_exchange_step(&state->exchange, events) == HFI_FINISHED)
        attempted(call);
}

static void write_attempt(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    struct hfi_call_state *state = HFI_CONTAINER(x, struct hfi_call_state, exchange);
    state->kind->write_acquire(x->redis, state->call, not_after_ms, command);
}

static void send_attempt(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    state->step = step_attempt;
    if (hfi_exchange_begin(&state->exchange) == HFI_FINISHED)
        attempted(call);
}

static void attempt(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_state_of(call);
    struct hfi_exchange *x = &state->exchange;
    int64_t now_ms = hfi_now_ms();
    if (state->u.acquire.attempted_ms != 0 && now_ms >= call->deadline_ms) {
        timed_out(call);
        return;
    }
    /* then it is one exchange from when the caller came */
    bool once = call->deadline_ms <= call->start_ms;
    int64_t exchange_end_ms =
        hfi_after_ms(once ? call->start_ms : now_ms, x->redis->cmd_timeout_ms);
    x->limit_ms = call->deadline_ms > exchange_end_ms ? call->deadline_ms : exchange_end_ms;
    state->u.acquire.attempted_ms = now_ms;
    state->u.acquire.woken = false;
    bool control;
    if (call->count == 0)
        hfi_redis_was_replaced(x->redis, &control); /* then it goes to the one that is there now */
    send_attempt(call);
}

void hfi_acquire(struct hfi_call *call) {
    struct hfi_call_state *state = hfi_call_begin(call);
    struct hfi_exchange *x = &state->exchange;
    state->acquiring = true;
    state->settles = !state->kind->counts_down; /* who only looks has nothing to undo */
    x->asks = state->kind->counts_down;
    state->cleanup = leave_channel;
    x->script = state->kind->acquire;
    x->write = write_attempt;
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
    if (state->kind->give_up != NULL) {
        hfi_line_begin(call);
        if (call->deadline_ms > call->start_ms)
            join_channel(call, true); /* without memory for a name it joins when it has to wait */
    }
    attempt(call);
}
