/*
 * One command and its reply.
 *
 * Used by every operation of the engine. An exchange belongs to one task, and only the thread of
 * that task's executor runs this code, so it needs no lock; all input comes as events of the task.
 *
 * Guarantee: a script is never resent while an earlier copy can still act. Every copy carries
 * `not-after`, the server's time at which we stop waiting for it (`stop_ms` on our clock, at most
 * one slice from now). When a connection is lost with a copy unanswered, nothing is sent before its
 * stop_ms has passed. A copy that arrives too late does nothing and says so. Then the slice is
 * doubled, since the server is slower than assumed.
 *
 * The server's clock is taken from script replies: it is their last element, or the whole reply.
 */
#include "redis/exchange/exchange.h"

#include "base/clock.h"
#include "base/error.h"
#include "redis/exchange/env.h"
#include "redis/wire/errors.h"
#include "redis/wire/script_reply.h"

#include <assert.h>
#include <stdio.h>

#define SLICE_FIRST_MS 500
#define SLICE_MIN_MS 20
#define ROUNDING_MS 2 /* both clocks are read in whole milliseconds */

/* Running it twice is the same as running it once, and there is nothing to undo. */
static bool only_asks(const struct hfi_exchange *x) {
    return (x->script == NULL && !x->repeatable) || x->asks;
}

/* ---- Ending ---- */

static bool is_stopped(const struct hfi_exchange *x) {
    return atomic_load_explicit(&x->redis->stopped, memory_order_relaxed);
}

/* Once the engine has stopped, the connection is not touched: it is freed, and has completed all of
 * its requests. */
static void drop_request(struct hfi_exchange *x) {
    if (x->req == NULL)
        return;
    x->sync_caller.asked = NULL;
    if (x->phase == HFI_PHASE_ASKED && !is_stopped(x))
        hfi_req_abandon(x->req);
    else
        hfi_req_unref(x->req);
    x->req = NULL;
}

static void drop_want(struct hfi_exchange *x) {
    struct hfi_route *route = x->redis->route;
    if (x->phase != HFI_PHASE_CONNECTING || is_stopped(x))
        return;
    if (x->conn != NULL)
        hfi_conn_unwant(x->conn, x->want);
    else
        route->ops->unwant(route, x->want);
}

/* A copy is in flight, and its reply will not be seen. */
static void mark_unanswered(struct hfi_exchange *x) {
    if (only_asks(x))
        return;
    if (!x->unanswered && x->known_ms > 0)
        x->known_until_ms = hfi_after_ms(x->sent_ms, x->known_ms);
    x->unanswered = true;
    if (x->copy_lost != NULL && !is_stopped(x))
        x->copy_lost(x);
    if (x->retry != HFI_RETRY_NONE)
        atomic_fetch_add_explicit(x->redis->in_doubt, 1, memory_order_relaxed);
}

static void drop_all(struct hfi_exchange *x) {
    if (x->phase == HFI_PHASE_ASKED)
        mark_unanswered(x);
    drop_want(x);
    drop_request(x);
    hfi_free(x->redis->mem, x->want);
    x->want = NULL;
    if (x->alarm_exec != NULL)
        hfi_alarm_clear(x->alarm_exec, &x->alarm);
    x->alarm_exec = NULL;
    x->phase = HFI_PHASE_IDLE;
}

void hfi_exchange_end(struct hfi_exchange *x) {
    if (x->redis == NULL)
        return;
    drop_all(x);
    hfi_node_unref(x->node);
    hfi_node_unref(x->ask_at);
    x->node = x->ask_at = NULL;
}

struct hfi_req *hfi_exchange_leave(struct hfi_exchange *x, struct hfi_node **ret_node) {
    struct hfi_req *req = NULL;
    *ret_node = NULL;
    if (x->phase == HFI_PHASE_ASKED && !only_asks(x) && !is_stopped(x)) {
        req = x->req;
        x->req = NULL;
        x->phase = HFI_PHASE_IDLE;
        mark_unanswered(x);
        x->sync_caller.asked = NULL;
        hfi_req_detach_caller(req);
        *ret_node = hfi_node_ref(x->node);
    }
    hfi_exchange_end(x);
    return req;
}

int64_t hfi_exchange_in_doubt_until_ms(const struct hfi_exchange *x) {
    return x->stop_ms + ROUNDING_MS;
}

/* Names the node whose error text it is. */
static void name_node(struct hfi_exchange *x) {
    if (x->error->text[0] != '\0' && x->error->node[0] == '\0' && x->node != NULL)
        snprintf(x->error->node, sizeof x->error->node, "%s", hfi_node_name(x->node));
}

/* Finished, with x->error filled in unless err is HF_OK. The reply is kept. */
static enum hfi_progress finish(struct hfi_exchange *x, int err) {
    assert(x->phase != HFI_PHASE_ASKED);
    if (err == HF_OK && x->try_err != HF_OK)
        hfi_error_clear(x->error);
    if (err != HF_OK) {
        x->error->code = err;
        name_node(x);
    }
    x->phase = HFI_PHASE_IDLE;
    x->err = err;
    return HFI_FINISHED;
}

static enum hfi_progress fail(struct hfi_exchange *x, int err, const char *text) {
    hfi_error_clear(x->error);
    hfi_fail(x->error, err, "%s", text);
    return finish(x, err);
}

static enum hfi_progress closed(struct hfi_exchange *x) {
    return fail(x, HF_ECLOSED, "the client is closed");
}

/* The connection may have failed at the same moment; then its error text is better. */
static void note_failure(struct hfi_exchange *x) {
    if (x->phase != HFI_PHASE_CONNECTING || is_stopped(x))
        return;
    drop_want(x); /* takes the connection's mutex, so that `err` is settled */
    if (x->want->err == HF_OK && x->conn != NULL)
        x->want->err = hfi_conn_failure(x->conn, &x->want->error); /* it was about to reconnect */
    if (x->want->err == HF_OK)
        return;
    *x->error = x->want->error;
    hfi_exchange_advise(x);
    x->try_err = x->want->err == HF_EUNAVAILABLE ? HF_EUNAVAILABLE : HF_EUNREACH;
}

/* The deadline has passed, in whatever phase, or there was no useful reply for too long. */
static enum hfi_progress give_up(struct hfi_exchange *x) {
    bool in_flight = x->phase == HFI_PHASE_ASKED;
    const char *why = hfi_exchange_why_silent(x);
    note_failure(x);
    if (in_flight) {
        if (hfi_exchange_reply_is_late(x, hfi_now_ms()))
            hfi_conn_suspect(x->conn, x->sent_ms);
        mark_unanswered(x);
    }
    drop_want(x);
    drop_request(x);
    x->phase = HFI_PHASE_IDLE;

    bool silent = hfi_now_ms() < x->limit_ms; /* else the deadline */
    x->gave_up = silent;
    x->overdue = !silent && (x->was_answered || (in_flight && x->try_err == HF_OK));
    if (x->unanswered && x->once)
        return fail(x, HF_EINDOUBT, "the server did not answer in time");
    if (x->unanswered && !silent && x->limit_err != HF_ETIMEDOUT)
        return fail(x, x->limit_err, "the server did not answer in time");
    if (x->try_err == HF_EUNAVAILABLE)
        return finish(x, HF_EUNAVAILABLE);
    /* Report a timed-out wait only if a reply has shown that another owner holds the lock. */
    if (x->was_answered && x->limit_err == HF_ETIMEDOUT && !silent)
        return fail(x, HF_ETIMEDOUT, "the server did not answer in time");
    if (x->try_err != HF_OK && !in_flight)
        return finish(x, HF_EUNREACH);
    return fail(x, HF_EUNREACH, why);
}

/* ---- Retrying ---- */

static enum hfi_progress pause_until(struct hfi_exchange *x, int64_t at_ms) {
    x->phase = HFI_PHASE_PAUSED;
    hfi_exchange_log_stall(x);
    hfi_exchange_report_stall(x);
    hfi_exchange_sleep(x, hfi_min_ms(hfi_min_ms(at_ms, x->limit_ms), hfi_exchange_silent_at_ms(x)));
    return HFI_PENDING;
}

static enum hfi_progress back_off(struct hfi_exchange *x) {
    return pause_until(x, hfi_now_ms() + hfi_exchange_pause_ms(x));
}

/* Connecting has failed; x->error says why. */
static enum hfi_progress not_connected(struct hfi_exchange *x, int err) {
    if (err != HF_EUNREACH && err != HF_ESYS && err != HF_EUNAVAILABLE)
        return finish(x, err);
    x->try_err = err;
    x->hopeless = x->want->hopeless;
    if (x->retry == HFI_RETRY_NONE || x->hopeless)
        return finish(x, err);
    if (hfi_now_ms() >= x->limit_ms)
        return give_up(x); /* both times are over, and give_up() picks the error */
    if (err == HF_EUNAVAILABLE)
        hfi_exchange_stalled(x, err);
    bool worth_waiting = err == HF_EUNAVAILABLE || x->unanswered || hfi_exchange_may_move(x) ||
                         (x->retry == HFI_RETRY_PATIENTLY && hfi_now_ms() < x->reach_until_ms);
    return worth_waiting ? back_off(x) : finish(x, err);
}

/* Without a connection: wants one, or a node first if none is known. */
static enum hfi_progress connect_first(struct hfi_exchange *x, struct hfi_conn *conn) {
    struct hfi_route *route = x->redis->route;
    if (x->want == NULL)
        x->want = hfi_zalloc(x->redis->mem, sizeof *x->want);
    if (x->want == NULL)
        return fail(x, HF_ENOMEM, "out of memory");
    x->conn = conn;
    x->phase = HFI_PHASE_CONNECTING;
    hfi_exchange_log_stall(x);
    hfi_exchange_await(x, HFI_NEVER);
    if (conn != NULL)
        hfi_conn_want(conn, x->want, x->task, HFI_EVENT_READY);
    else
        route->ops->want(route, x->name, x->name_len, x->want, x->task, HFI_EVENT_READY);
    return HFI_PENDING;
}

/* ---- Sending ---- */

static void write_command(struct hfi_exchange *x, int64_t not_after_ms,
                          struct hfi_command *command) {
    if (x->asking) {
        hfi_command_open(command);
        hfi_command_text(command, "ASKING");
        hfi_command_close(command);
    }
    if (x->fronts > x->reply_at && x->script != NULL)
        x->write_fronts(x, command);
    hfi_command_open(command);
    if (x->script != NULL && x->send_body) {
        hfi_command_bytes(command, "EVAL", 4);
        hfi_command_bytes(command, x->script->body, x->script->len);
    } else if (x->script != NULL) {
        hfi_command_bytes(command, "EVALSHA", 7);
        hfi_command_bytes(command, x->script->sha1, HFI_SHA1_LEN);
    }
    x->write(x, not_after_ms, command);
    hfi_command_close(command);
}

/* The copy was given to the connection, or failed to be. */
static enum hfi_progress sent(struct hfi_exchange *x, struct hfi_conn *conn, int err) {
    if (err == HF_EUNREACH)
        return connect_first(x, conn); /* it was lost just now; nothing was sent */
    if (err != HF_OK)
        return fail(x, err, "out of memory");

    x->conn = conn;
    x->sent_ms = x->req->sent_ms;
    x->generation = x->req->generation;
    x->phase = HFI_PHASE_ASKED;
    hfi_exchange_await_reply(x);
    return HFI_PENDING;
}

/* Asks the route again: another node may serve the name by now. */
static void pick_node(struct hfi_exchange *x) {
    struct hfi_node *before = x->node;
    x->asking = x->ask_at != NULL;
    name_node(x); /* the error's text is the last node's, not the next one's */
    x->node = x->asking ? x->ask_at : hfi_redis_node_for(x->redis, x->name, x->name_len);
    x->ask_at = NULL;
    if (x->node != before)
        x->conn = NULL; /* it belongs to its node */
    hfi_node_unref(before);
}

/* The server's time at which we stop waiting, at the latest. Its clock was `server_ms` at
 * `received_ms`, and may have run slower than ours since. */
static int64_t not_after_ms(const struct hfi_exchange *x, int64_t server_ms, int64_t received_ms) {
    return server_ms + hfi_trusted_ms(x->stop_ms - received_ms, x->redis->clock_drift_ppm);
}

/* Makes the next try: sends a copy if there is a connection, else wants one. */
static enum hfi_progress try_now(struct hfi_exchange *x) {
    int64_t now_ms = hfi_now_ms(), server_ms, received_ms;
    pick_node(x);
    if (is_stopped(x))
        return closed(x);
    if (hfi_exchange_is_timed_out(x, now_ms))
        return give_up(x);
    if (now_ms >= x->known_until_ms)
        return fail(x, HF_EINDOUBT, "the server did not answer in time for another attempt");
    if (now_ms < x->quiet_until_ms)
        return pause_until(x, x->quiet_until_ms);
    if (x->node == NULL)
        return connect_first(x, NULL);
    struct hfi_conn *conn =
        hfi_exchange_is_acked(x) ? hfi_acks_pick(x) : hfi_node_pick(x->node, x->lane);
    if (conn == NULL)
        return is_stopped(x) ? closed(x) : fail(x, HF_ENOMEM, "out of memory for a connection");
    if (!hfi_conn_ready(conn, &server_ms, &received_ms))
        return connect_first(x, conn);
    if (x->once || x->known_ms > 0)
        hfi_conn_check_alive(conn);
    x->stop_ms = hfi_min_ms(hfi_min_ms(x->limit_ms, x->known_until_ms), now_ms + x->slice_ms);
    x->conn = conn;
    if (x->choose != NULL)
        x->choose(x);
    x->reply_event ^= HFI_EVENT_REPLY_A | HFI_EVENT_REPLY_B;
    struct hfi_command command;
    hfi_command_init(&command, x->redis->mem);
    write_command(x, not_after_ms(x, server_ms, received_ms), &command);
    int err = HF_ENOMEM;
    unsigned fronts = x->fronts + x->asking;
    if (!command.failed && hfi_exchange_is_acked(x))
        err = hfi_acks_submit(x, conn, &command, fronts);
    else if (!command.failed)
        err = hfi_conn_submit_behind(conn, fronts, command.bytes, command.len, x->task,
                                     x->reply_event,
                                     x->lane == HFI_LANE_CALLER ? &x->sync_caller : NULL, &x->req);
    hfi_command_clear(&command);
    return sent(x, conn, err);
}

enum hfi_progress hfi_exchange_begin(struct hfi_exchange *x) {
    assert(x->phase == HFI_PHASE_IDLE);
    drop_request(x);
    if (x->reply_event == 0)
        x->reply_event = HFI_EVENT_REPLY_A;
    x->err = HF_OK;
    x->try_err = HF_OK;
    x->unanswered = x->resent = x->send_body = x->gave_up = x->hopeless = false;
    x->overdue = false;
    x->tries = x->turns = 0;
    x->quiet_until_ms = 0;
    x->known_until_ms = HFI_NEVER;
    x->start_ms = hfi_now_ms();
    hfi_exchange_stalled(x, HF_EUNREACH); /* until there is a reply */
    /* After a lost copy nothing is sent until its slice has passed: leave time for other copies
     * before the deadline. */
    x->slice_ms =
        hfi_max_ms(hfi_min_ms(SLICE_FIRST_MS, x->redis->cmd_timeout_ms / 4), SLICE_MIN_MS);
    if (hfi_exchange_is_acked(x)) /* it is queued behind the ack batch in flight */
        x->slice_ms += x->redis->ack_timeout_ms;
    /* there is only one copy, so its slice is all the time there is */
    if (x->retry == HFI_RETRY_NONE)
        x->slice_ms = hfi_max_ms(x->limit_ms - x->start_ms, SLICE_MIN_MS);
    return try_now(x);
}

/* ---- Replies and events ---- */

/* The connection is lost, or no longer trusted, with a copy unanswered. The request is dropped. If
 * the exchange goes on, an earlier refusal stays its error: a lost copy says nothing of the server. */
static enum hfi_progress lost(struct hfi_exchange *x, int err, const hf_error *refusal) {
    x->phase = HFI_PHASE_PAUSED;
    mark_unanswered(x);
    if (x->once && x->script != NULL)
        return fail(x, HF_EINDOUBT, "the connection was lost before the server answered");
    if (err != HF_EUNREACH || x->retry == HFI_RETRY_NONE)
        return finish(x, err);
    if (x->try_err == HF_EUNAVAILABLE)
        *x->error = *refusal;
    if (x->repeatable)
        x->resent = true;
    if (only_asks(x) || x->repeatable) {
        if (x->try_err != HF_EUNAVAILABLE)
            x->try_err = HF_EUNREACH;
        return x->tries++ == 0 ? try_now(x) : back_off(x);
    }
    x->resent = true;
    x->quiet_until_ms = hfi_exchange_in_doubt_until_ms(x);
    return pause_until(x, x->quiet_until_ms);
}

static enum hfi_progress refused(struct hfi_exchange *x, const struct hfi_reply *reply) {
    int err;
    enum hfi_retry_when help = hfi_exchange_on_error(x, reply, &err);
    if (help == HFI_RETRY_NEVER)
        return finish(x, err);
    drop_request(x);
    if (help == HFI_RETRY_AT_ONCE)
        return try_now(x);
    x->try_err = err;
    return back_off(x);
}

static enum hfi_progress answered(struct hfi_exchange *x, const struct hfi_reply *reply) {
    if (reply->type == HFI_REPLY_ERROR)
        return refused(x, reply);
    x->tries = x->turns = 0;
    if (x->script == NULL || x->repeatable) {
        x->unanswered = false;
        x->was_answered = true;
        hfi_exchange_is_well(x);
        return finish(x, HF_OK);
    }
    if (!hfi_is_script_reply(reply)) {
        x->unanswered = !only_asks(x); /* it may have run */
        return fail(x, HF_EPROTO, "a script returned an invalid reply");
    }
    hfi_conn_clock(x->conn, hfi_script_reply_ms(reply), x->sent_ms, hfi_now_ms());
    if (hfi_is_too_late(reply)) {
        int64_t slice_max_ms = hfi_max_ms(x->redis->cmd_timeout_ms, SLICE_FIRST_MS);
        bool longest = x->slice_ms >= slice_max_ms;
        drop_request(x);
        x->slice_ms = hfi_min_ms(2 * x->slice_ms, slice_max_ms);
        return longest ? back_off(x) : try_now(x);
    }
    x->unanswered = false;
    x->was_answered = true;
    hfi_exchange_is_well(x);
    return finish(x, HF_OK);
}

/* A reply of a node that has been left since counts for nothing: a hold that began with it would
 * not be verified. */
static enum hfi_progress on_reply(struct hfi_exchange *x) {
    int err = x->req->err;
    x->phase = HFI_PHASE_PAUSED; /* nothing is in flight any more */
    x->sync_caller.asked = NULL;
    hf_error refusal;
    if (x->try_err == HF_EUNAVAILABLE)
        refusal = *x->error;
    *x->error = x->req->error;
    if (err == HF_OK && is_stopped(x))
        err = HF_ECLOSED;
    else if (err == HF_OK && hfi_exchange_was_left(x))
        err = hfi_fail(x->error, HF_EUNREACH, "this server is no longer the one in use");
    enum hfi_acks_verdict verdict =
        hfi_exchange_is_acked(x) ? hfi_acks_note(x, &err) : HFI_ACKS_FINE;
    if (verdict == HFI_ACKS_REFUSED) {
        x->unanswered = true; /* it has run, and must be undone */
        return finish(x, err);
    }
    if (err == HF_OK)
        return answered(x, hfi_exchange_reply(x));
    drop_request(x);
    if (verdict == HFI_ACKS_AGAIN) {
        x->try_err = HF_EUNREACH;
        return x->tries++ == 0 ? try_now(x) : back_off(x);
    }
    return lost(x, err, &refusal);
}

static enum hfi_progress on_ready(struct hfi_exchange *x) {
    if (is_stopped(x)) {
        x->phase = HFI_PHASE_PAUSED;
        return closed(x);
    }
    drop_want(x); /* takes the connection's mutex, so that `err` is settled */
    x->phase = HFI_PHASE_PAUSED;
    if (x->want->err == HF_OK || (x->conn != NULL && hfi_node_is_retired(x->node)))
        return try_now(x); /* possibly on another node */
    *x->error = x->want->error;
    hfi_exchange_advise(x);
    return not_connected(x, x->want->err);
}

static enum hfi_progress on_timer(struct hfi_exchange *x) {
    int64_t now_ms = hfi_now_ms();
    if (is_stopped(x)) {
        drop_all(x);
        return closed(x);
    }
    if (now_ms < x->wake_ms)
        return HFI_PENDING; /* from an earlier alarm */
    if (x->phase == HFI_PHASE_PAUSED)
        return try_now(x);
    if (hfi_exchange_is_timed_out(x, now_ms))
        return give_up(x);
    if (x->phase == HFI_PHASE_CONNECTING) {
        hfi_exchange_log_stall(x);
        hfi_exchange_await(x, HFI_NEVER);
        return HFI_PENDING;
    }
    hfi_exchange_log_stall(x);
    if (!hfi_exchange_reply_is_late(x, now_ms)) {
        hfi_exchange_await_reply(x);
        return HFI_PENDING;
    }
    hfi_conn_suspect(x->conn, x->sent_ms);
    drop_request(x);
    hf_error refusal = *x->error;
    hfi_error_clear(x->error);
    return lost(x, hfi_fail(x->error, HF_EUNREACH, "the server did not answer in time"), &refusal);
}

enum hfi_progress hfi_exchange_step(struct hfi_exchange *x, unsigned events) {
    if ((events & x->reply_event) != 0 && x->phase == HFI_PHASE_ASKED &&
        atomic_load(&x->req->complete))
        return on_reply(x);
    if ((events & HFI_EVENT_READY) != 0 && x->phase == HFI_PHASE_CONNECTING)
        return on_ready(x);
    if ((events & HFI_EVENT_TIMER) != 0 && x->phase != HFI_PHASE_IDLE)
        return on_timer(x);
    return HFI_PENDING;
}
