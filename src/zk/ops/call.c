/*
 * A call: its life cycle and its steps.
 *
 * Called by the operations, and by src/core through the engine's tables (step, cancel); always on
 * the thread of the call's executor. Invariant: done() runs exactly once, last, when nothing of the
 * call is left anywhere: no request or watch that could post to its task, no alarm.
 *
 * A step is sent when there is a connection, in the call's session. Its timeout is one exchange
 * from its start, or the call's own deadline if that is later. A waiter for a lock retries
 * unreachable servers, but no longer than `connect_timeout_ms`, and not at all if no host name of
 * the url exists. Other calls fail at the first connect error, unless a request of theirs is in
 * flight.
 */
#include "zk/ops/call.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/jitter.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define STATUS_EVERY_MS 1000 /* a waiting call wakes at least this often to report its status */

/* ---- Life ---- */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_task_post(HFI_CONTAINER(alarm, struct hfi_zk_call, alarm)->call->task, HFI_ZK_EVENT_TIMER);
}

static void wake_at(struct hfi_zk_call *c, int64_t at_ms) {
    struct hfi_exec *exec = c->call->task->exec;
    if (c->alarm_exec != NULL && c->alarm_exec != exec)
        hfi_alarm_clear(c->alarm_exec, &c->alarm); /* the task has moved to another executor */
    c->alarm_exec = exec;
    c->alarm.fire = alarm_fired;
    c->wake_ms = at_ms;
    atomic_store_explicit(&c->call->call_status->due_ms, at_ms, memory_order_relaxed);
    hfi_alarm_set(exec, &c->alarm, at_ms);
}

struct hfi_zk_call *hfi_zk_call_begin(struct hfi_call *call) {
    struct hfi_zk_call *c = call->state;
    c->call = call;
    c->zk = hfi_zk_of(call->engine);
    c->kind = call->kind->engine_private;
    c->phase = HFI_ZK_PAUSED;
    c->asks = c->few_asks;
    c->answers = c->few_answers;
    c->room = HFI_ZK_ASKS;
    c->end_ms = call->deadline_ms;
    call->err = HF_OK;
    call->value = call->token = call->notified_us = 0;
    call->proof = (struct hfi_proof){0};
    call->contended = call->unsettled = call->gone = call->queued = false;
    call->no_server = call->hopeless = false;
    hfi_error_clear(&call->error);
    hfi_zk_session_keep(c->zk->session, true);
    return c;
}

static void drop_asks(struct hfi_zk_call *c) {
    for (size_t i = 0; i < c->room; i++)
        hfi_zk_session_drop(c->zk->session, &c->asks[i]);
}

static void drop_want(struct hfi_zk_call *c) {
    if (c->phase == HFI_ZK_CONNECTING && !hfi_zk_session_stopped(c->zk->session))
        hfi_conn_unwant(hfi_zk_session_conn(c->zk->session), &c->want);
}

static void back_off(struct hfi_zk_call *c);
static void stalled(struct hfi_zk_call *c, int err);

/* Our node would stay as long as the session, so a settlement retries until it succeeds. */
static bool goes_on(struct hfi_zk_call *c, int err) {
    if (!c->settling || err == HF_OK || err == HF_ECLOSED || c->step == NULL)
        return false;
    stalled(c, err == HF_EUNREACH ? err : HF_EUNAVAILABLE);
    back_off(c);
    return true;
}

/* Counts a commit whose reply is lost. */
static void note_unknown(struct hfi_zk_call *c) {
    if (c->step->commits != 0)
        atomic_fetch_add_explicit(c->zk->in_doubt, 1, memory_order_relaxed);
}

void hfi_zk_call_finish(struct hfi_zk_call *c, int err) {
    struct hfi_call *call = c->call;
    assert(c->phase != HFI_ZK_IDLE);
    if (goes_on(c, err))
        return;
    if (c->phase == HFI_ZK_ASKED)
        note_unknown(c);
    drop_want(c);
    drop_asks(c);
    hfi_zk_session_drop(c->zk->session, &c->kept);
    hfi_zk_unwatch(c->zk->watches, &c->queue.watch);
    if (c->alarm_exec != NULL)
        hfi_alarm_clear(c->alarm_exec, &c->alarm);
    c->alarm_exec = NULL;
    if (c->cleanup != NULL)
        c->cleanup(c);
    c->cleanup = NULL;
    c->phase = HFI_ZK_IDLE;
    c->step = NULL;
    hfi_zk_session_keep(c->zk->session, false);
    call->err = err;
    if (err == HF_OK)
        hfi_error_clear(&call->error);
    call->error.code = err;
    if (err != HF_OK && call->error.node[0] == '\0')
        snprintf(call->error.node, sizeof call->error.node, "%s",
                 hfi_zk_session_node(c->zk->session));
    call->unsettled = err != HF_OK && (c->leaves || c->settling);
    call->queued = call->unsettled && c->queue.made && !c->unanswered;
    call->done(call);
}

void hfi_zk_call_fail(struct hfi_zk_call *c, int err, const char *text) {
    hfi_error_clear(&c->call->error);
    hfi_fail(&c->call->error, err, "%s", text);
    hfi_zk_call_finish(c, err);
}

void hfi_zk_call_refused(struct hfi_zk_call *c, int32_t err) {
    enum hfi_zk_remedy remedy;
    hfi_error_clear(&c->call->error);
    int code = hfi_zk_error(err, &c->call->error, &remedy);
    if (remedy == HFI_ZK_REMEDY_DROP)
        hfi_zk_session_invalidate(c->zk->session);
    hfi_zk_call_finish(c, code);
}

void hfi_zk_call_fail_proto(struct hfi_zk_call *c) {
    hfi_zk_session_invalidate(c->zk->session);
    hfi_zk_call_fail(c, HF_EPROTO, "ZooKeeper sent an invalid reply");
}

/* ---- Timeouts ---- */

static void stalled(struct hfi_zk_call *c, int err) {
    struct hfi_call_status *call_status = c->call->call_status;
    if (c->useless_since_ms == 0)
        c->useless_since_ms = hfi_now_ms();
    atomic_store_explicit(&call_status->stalled, err, memory_order_relaxed);
    atomic_store_explicit(&call_status->stalled_since_ms, c->useless_since_ms,
                          memory_order_relaxed);
}

/* A settlement may be refused again and again, so a reply is no progress for it. */
static void is_well(struct hfi_zk_call *c) {
    c->answered = true;
    if (c->settling)
        return;
    c->useless_since_ms = 0;
    c->tries = 0;
    atomic_store_explicit(&c->call->call_status->stalled_since_ms, 0, memory_order_relaxed);
}

/* When a waiter gives up: no server has sent anything for connect_timeout_ms. */
static int64_t unreachable_at_ms(const struct hfi_zk_call *c) {
    if (!c->waits || c->settling)
        return HFI_NEVER;
    int64_t received_ms = hfi_zk_session_last_received_ms(c->zk->session);
    return hfi_after_ms(hfi_max_ms(received_ms, c->asked_ms), c->zk->connect_timeout_ms);
}

static void give_up(struct hfi_zk_call *c) {
    bool silent = hfi_now_ms() < c->limit_ms;
    bool has_text = c->call->error.text[0] != '\0';
    int err = HF_EUNREACH;
    if (!silent && c->overdue != NULL &&
        (c->answered || (c->phase == HFI_ZK_ASKED && c->tries == 0))) {
        c->overdue(c);
        return;
    }
    c->call->no_server = c->waits && silent;
    if (c->unanswered && !c->undoes && (!c->waits || c->in_doubt))
        err = HF_EINDOUBT;
    else if (c->waits && c->answered && !silent)
        err = HF_ETIMEDOUT;
    if (err == HF_EUNREACH && has_text)
        hfi_zk_call_finish(c, err);
    else
        hfi_zk_call_fail(c, err, "ZooKeeper did not answer in time");
}

/* Reports the error that the call would fail with now (struct hfi_call_status). */
static void report_stall(const struct hfi_zk_call *c) {
    struct hfi_call_status *call_status = c->call->call_status;
    hf_error reason;
    if (call_status->on_stall == NULL)
        return;
    reason = c->call->error;
    if (reason.text[0] == '\0') {
        hfi_error_clear(&reason);
        hfi_fail(&reason, HF_EUNREACH, "ZooKeeper did not answer in time");
    }
    call_status->on_stall(call_status, &reason);
}

static void await_answer(struct hfi_zk_call *c, int64_t at_ms) {
    report_stall(c);
    at_ms = hfi_min_ms(at_ms, hfi_now_ms() + STATUS_EVERY_MS);
    wake_at(c, hfi_min_ms(hfi_min_ms(at_ms, c->limit_ms), unreachable_at_ms(c)));
}

/* ---- Sending ---- */

static void connect_first(struct hfi_zk_call *c) {
    c->phase = HFI_ZK_CONNECTING;
    await_answer(c, HFI_NEVER);
    hfi_conn_want(hfi_zk_session_conn(c->zk->session), &c->want, c->call->task, HFI_ZK_EVENT_READY);
}

static int submit(struct hfi_zk_call *c) {
    unsigned events[HFI_ZK_ASKS_MANY];
    struct hfi_zk_out out;
    assert(c->step->frames <= c->room && c->room <= HFI_ZK_ASKS_MANY);
    for (size_t i = 0; i < c->step->frames; i++)
        events[i] = HFI_ZK_EVENT_ANSWER;
    hfi_zk_out_init(&out, c->zk->mem);
    c->step->write(c, &out);
    int err = hfi_zk_session_submit(c->zk->session, &out, c->step->frames, c->step->commits,
                                    c->call->task, events, c->asks, &c->number);
    hfi_zk_out_clear(&out);
    return err;
}

static void send_step(struct hfi_zk_call *c) {
    int64_t now_ms = hfi_now_ms();
    if (now_ms >= c->limit_ms || now_ms >= unreachable_at_ms(c)) {
        give_up(c);
        return;
    }
    int err = submit(c);
    if (err == HF_OK || err == HF_ENOMEM)
        c->leaves = c->leaves || c->step->leaves;
    if (err == HF_OK) {
        c->phase = HFI_ZK_ASKED;
        c->unanswered = c->unanswered || c->step->commits != 0;
        await_answer(c, hfi_after_ms(now_ms, c->zk->cmd_timeout_ms));
    } else if (err == HF_EUNREACH) {
        connect_first(c);
    } else if (err == HF_ELOST) {
        c->unanswered = false; /* it went with the session */
        c->session_over(c);
    } else if (err == HF_ECLOSED) {
        hfi_zk_call_fail(c, err, "the client is closed");
    } else {
        hfi_zk_call_fail(c, err, "out of memory");
    }
}

void hfi_zk_ask_for(struct hfi_zk_call *c, const struct hfi_zk_step *step) {
    int64_t now_ms = hfi_now_ms();
    drop_asks(c);
    if (c->alarm_exec != NULL)
        hfi_alarm_clear(c->alarm_exec, &c->alarm);
    c->phase = HFI_ZK_PAUSED;
    c->step = step;
    c->asked_ms = now_ms;
    c->limit_ms = c->end_ms;
    if (c->waits && !c->settling) /* an exchange that has begun may finish */
        c->limit_ms = hfi_max_ms(c->end_ms, hfi_after_ms(now_ms, c->zk->cmd_timeout_ms));
    stalled(c, HF_EUNREACH); /* until a reply comes */
    send_step(c);
}

void hfi_zk_sleep(struct hfi_zk_call *c, int64_t until_ms) {
    drop_asks(c);
    c->phase = HFI_ZK_ASLEEP;
    wake_at(c, until_ms);
}

void hfi_zk_keep_answer(struct hfi_zk_call *c, size_t which) {
    hfi_zk_session_drop(c->zk->session, &c->kept);
    c->kept = c->asks[which];
    c->asks[which].req = NULL;
}

/* ---- Replies ---- */

static void back_off(struct hfi_zk_call *c) {
    static const struct hfi_backoff backoff = {.first_ms = 20, .max_ms = 500, .factor = 2};
    int64_t pause_ms = hfi_backoff_spread_ms(&backoff, c->tries++, hfi_jitter_bits(c));
    drop_want(c);
    drop_asks(c);
    c->phase = HFI_ZK_PAUSED;
    await_answer(c, hfi_now_ms() + pause_ms);
}

static void lost(struct hfi_zk_call *c) {
    drop_asks(c);
    c->phase = HFI_ZK_PAUSED;
    c->resent = true;
    note_unknown(c);
    if (c->step->lost != NULL)
        c->step->lost(c);
    else
        send_step(c);
}

/* Errors that mean the same for every step end the call. True: it is over. */
static bool is_refused(struct hfi_zk_call *c, int32_t server_err) {
    enum hfi_zk_remedy remedy = HFI_ZK_REMEDY_ASKER;
    hf_error ignored;
    hfi_error_clear(&ignored);
    if (server_err != HFI_ZK_OK)
        hfi_zk_error(server_err, &ignored, &remedy);
    if (remedy == HFI_ZK_REMEDY_ASKER || (remedy == HFI_ZK_REMEDY_NONE && c->step->tolerant))
        return false;
    hfi_zk_call_refused(c, server_err);
    return true;
}

static void on_answers(struct hfi_zk_call *c) {
    for (size_t i = 0; i < c->step->frames; i++)
        if (!atomic_load(&c->asks[i].req->complete))
            return;
    int err = HF_OK;
    for (size_t i = 0; i < c->step->frames && err == HF_OK; i++) {
        struct hfi_zk_header header;
        err = hfi_zk_session_answer(c->zk->session, &c->asks[i], &header, &c->answers[i].body,
                                    &c->call->error);
        if (err == HF_OK)
            c->answers[i].err = header.err;
    }
    c->phase = HFI_ZK_PAUSED;
    if (err == HF_EUNREACH) {
        lost(c);
        return;
    }
    if (err != HF_OK) {
        hfi_zk_call_finish(c, err);
        return;
    }
    is_well(c);
    hfi_error_clear(&c->call->error);
    c->unanswered = false;
    if (c->step->leaves && c->answers[0].err != HFI_ZK_OK)
        c->leaves = false;
    for (size_t i = 0; i < c->step->frames; i++)
        if (is_refused(c, c->answers[i].err))
            return;
    c->step->answered(c);
}

static void on_ready(struct hfi_zk_call *c) {
    drop_want(c); /* takes the connection's mutex, so `err` is final */
    c->phase = HFI_ZK_PAUSED;
    if (c->want.err == HF_OK) {
        send_step(c);
        return;
    }
    c->call->error = c->want.error;
    bool is_transient = c->want.err == HF_EUNREACH || c->want.err == HF_ESYS;
    bool worth_it = c->waits || c->settling || c->unanswered || c->leaves ||
                    hfi_zk_session_begins_anew(c->zk->session);
    c->call->hopeless = c->want.hopeless;
    if (is_transient && worth_it && !c->want.hopeless)
        back_off(c);
    else
        hfi_zk_call_finish(c, c->want.err);
}

static void on_timer(struct hfi_zk_call *c) {
    int64_t now_ms = hfi_now_ms();
    if (now_ms < c->wake_ms)
        return; /* a stale alarm */
    if (c->phase == HFI_ZK_ASLEEP) {
        c->woken(c);
        return;
    }
    if (now_ms >= c->limit_ms || now_ms >= unreachable_at_ms(c)) {
        if (c->phase == HFI_ZK_ASKED && now_ms - c->asks[0].req->sent_ms >= c->zk->cmd_timeout_ms)
            hfi_conn_suspect(hfi_zk_session_conn(c->zk->session), c->asks[0].req->sent_ms);
        give_up(c);
        return;
    }
    if (c->phase == HFI_ZK_PAUSED) {
        send_step(c);
        return;
    }
    int64_t at_ms = HFI_NEVER;
    if (c->phase == HFI_ZK_ASKED) {
        int64_t sent_ms = c->asks[0].req->sent_ms;
        at_ms = hfi_after_ms(sent_ms, c->zk->cmd_timeout_ms);
        if (now_ms >= at_ms) {
            hfi_conn_suspect(hfi_zk_session_conn(c->zk->session), sent_ms);
            at_ms = HFI_NEVER;
        }
    }
    await_answer(c, at_ms);
}

void hfi_zk_call_step(struct hfi_call *call, unsigned events) {
    struct hfi_zk_call *c = hfi_zk_call_of(call);
    if (c->phase == HFI_ZK_IDLE)
        return;
    if (hfi_zk_session_stopped(c->zk->session))
        hfi_zk_call_fail(c, HF_ECLOSED, "the client is closed");
    else if ((events & HFI_ZK_EVENT_ANSWER) != 0 && c->phase == HFI_ZK_ASKED)
        on_answers(c);
    else if ((events & HFI_ZK_EVENT_READY) != 0 && c->phase == HFI_ZK_CONNECTING)
        on_ready(c);
    else if ((events & HFI_ZK_EVENT_WATCH) != 0 && c->phase == HFI_ZK_ASLEEP)
        c->woken(c);
    if ((events & HFI_ZK_EVENT_TIMER) != 0 && c->phase != HFI_ZK_IDLE)
        on_timer(c); /* checks wake_ms itself */
}

/* A settlement cannot be cancelled: the next acquire would have to finish it first anyway. */
void hfi_zk_call_cancel(struct hfi_call *call, int err) {
    struct hfi_zk_call *c = hfi_zk_call_of(call);
    if (c->phase == HFI_ZK_IDLE || (c->settling && err == HF_ECANCELED))
        return;
    hfi_zk_call_fail(c, err, hf_strerror(err));
}

/* ---- Paths, places, proofs ---- */

size_t hfi_zk_call_path(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]) {
    return hfi_zk_path(&c->zk->names, c->call->name, c->call->name_len, to);
}

size_t hfi_zk_queue_path(const struct hfi_zk_call *c, char to[HFI_ZK_PATH_MAX]) {
    const char *beneath = c->kind->beneath != NULL ? c->kind->beneath : "";
    size_t len = hfi_zk_call_path(c, to);
    memcpy(to + len, beneath, strlen(beneath) + 1);
    return len + strlen(beneath);
}

void hfi_zk_queue_node_path(const struct hfi_zk_call *c, const struct hfi_zk_node *node,
                            char to[HFI_ZK_PATH_MAX]) {
    size_t len = hfi_zk_queue_path(c, to);
    to[len] = '/';
    hfi_zk_node_name(node, to + len + 1);
}

void hfi_zk_call_node_path(const struct hfi_zk_call *c, const char *beneath,
                           const struct hfi_zk_node *node, char to[HFI_ZK_PATH_MAX]) {
    size_t len = hfi_zk_call_path(c, to);
    size_t beneath_len = strlen(beneath);
    memcpy(to + len, beneath, beneath_len + 1);
    hfi_zk_node_name(node, to + len + beneath_len);
}

struct hfi_zk_place hfi_zk_place_of(const struct hfi_call *call) {
    return (struct hfi_zk_place){.kind = call->kind,
                                 .name = call->name,
                                 .name_len = call->name_len,
                                 .owner = call->owner,
                                 .owner_len = call->owner_len};
}

struct hfi_proof hfi_zk_proof(const struct hfi_zk_credit *credit, int64_t lease_ms) {
    return (struct hfi_proof){.valid_until_ms = credit->good_until_ms,
                              .renew_at_ms = credit->heartbeat_at_ms,
                              .promised_until_ms = hfi_after_ms(hfi_now_ms(), lease_ms)};
}

int hfi_zk_remember(struct hfi_zk *zk, const struct hfi_zk_place *place,
                    const struct hfi_zk_held *held) {
    bool is_new;
    int err = hfi_zk_nodes_put(zk->nodes, place, held, &is_new);
    if (err == HF_OK && is_new)
        hfi_zk_session_keep(zk->session, true);
    return err;
}

void hfi_zk_forget(struct hfi_zk *zk, const struct hfi_zk_place *place) {
    hfi_zk_forget_node(zk, place, 0);
}

void hfi_zk_forget_node(struct hfi_zk *zk, const struct hfi_zk_place *place, int64_t token) {
    if (hfi_zk_nodes_remove(zk->nodes, place, token))
        hfi_zk_session_keep(zk->session, false);
}
