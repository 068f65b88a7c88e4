/*
 * Looking after a connection: who wants it, when to try again, and noticing when it is dead.
 *
 * hfi_conn_want() and its like are called by any thread; the rest runs on the keeper's. After a
 * failure the next attempt waits: 20 ms at first, doubling up to a second, with jitter so that a
 * fleet does not come back in step. An idle connection is pinged every `ping_ms`; one that is still
 * silent `cmd_timeout_ms` later is closed.
 */
#include "base/backoff.h"
#include "base/chance.h"
#include "net/impl.h"

#include <errno.h>
#include <stdio.h>

static const struct hfi_backoff backoff = {.first_ms = 20, .max_ms = 1000, .factor = 2};

int64_t hfi_conn_backoff_ms(const struct hfi_conn *conn, unsigned failures) {
    return hfi_backoff_spread_ms(&backoff, failures, hfi_throw_dice(conn));
}

/* ---- Who wants it ---- */

void hfi_conn_tell_wants_locked(struct hfi_conn *conn, int err, const hf_error *error) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&conn->wants)) != NULL) {
        struct hfi_want *want = HFI_CONTAINER(link, struct hfi_want, link);
        struct hfi_task *task = want->task;
        want->err = err;
        if (error != NULL) {
            want->error = *error;
            snprintf(want->error.node, sizeof want->error.node, "%s", conn->target->node);
        }
        hfi_task_post(task, want->event); /* after this the want may be gone */
        hfi_task_unref(task);
    }
}

void hfi_conn_want(struct hfi_conn *conn, struct hfi_want *want, struct hfi_task *task,
                   unsigned event) {
    pthread_mutex_lock(&conn->mtx);
    want->task = task;
    want->event = event;
    want->err = HF_OK;
    bool ready = conn->state == CONN_READY && !atomic_load(&conn->broken);
    if (conn->state == CONN_CLOSED)
        want->err = hfi_fail(&want->error, HF_ECLOSED, "the client is closed");
    else if (conn->retired)
        want->err = hfi_fail(&want->error, HF_EUNREACH, "this is not the server to ask any more");
    if (ready || want->err != HF_OK) {
        hfi_task_post(task, event);
    } else {
        hfi_task_ref(task);
        hfi_list_push_back(&conn->wants, &want->link);
        hfi_exec_nudge(hfi_keeper_exec(conn->target->keeper));
    }
    pthread_mutex_unlock(&conn->mtx);
}

void hfi_conn_unwant(struct hfi_conn *conn, struct hfi_want *want) {
    pthread_mutex_lock(&conn->mtx);
    bool linked = hfi_linked(&want->link);
    hfi_list_remove(&want->link);
    pthread_mutex_unlock(&conn->mtx);
    if (linked)
        hfi_task_unref(want->task);
}

void hfi_conn_keep_up(struct hfi_conn *conn, bool up) {
    pthread_mutex_lock(&conn->mtx);
    bool changed = conn->keep_up != up;
    conn->keep_up = up;
    pthread_mutex_unlock(&conn->mtx);
    if (changed && up)
        hfi_exec_nudge(hfi_keeper_exec(conn->target->keeper));
}

/* ---- Tending ---- */

static int ping(struct hfi_conn *conn) {
    const struct hfi_protocol *protocol = conn->target->protocol;
    struct hfi_req *req = NULL;
    if (conn->push != NULL && protocol->is_push == NULL)
        return hfi_conn_send(conn, protocol->ping, protocol->ping_len);
    int err = hfi_conn_submit(conn, protocol->ping, protocol->ping_len, NULL, 0, NULL, &req);
    hfi_req_unref(req);
    return err;
}

/* Pings a connection that has been silent, and gives up on one that stays so. */
static void check_alive(struct hfi_conn *conn, int64_t now_ms) {
    const struct hfi_target *target = conn->target;
    int64_t heard_ms = atomic_load(&conn->last_rx_ms), next_ms = heard_ms + target->ping_ms;
    if (conn->ping_sent_ms != 0 && heard_ms >= conn->ping_sent_ms)
        conn->ping_sent_ms = 0;
    if (conn->ping_sent_ms != 0) {
        next_ms = conn->ping_sent_ms + target->cmd_timeout_ms;
        if (now_ms >= next_ms) {
            if (conn->push != NULL) /* the answer may be here, and nobody has read it */
                hfi_conn_catch_up(conn, hfi_keeper_exec(target->keeper));
            hfi_conn_suspect(conn, conn->ping_sent_ms);
            next_ms = now_ms + target->cmd_timeout_ms;
        }
    } else if (now_ms >= next_ms && conn->seat == HFI_SEAT_DISPATCH) {
        /* there may be nobody to read the answer; the next command will find out */
        next_ms = now_ms + target->ping_ms;
    } else if (now_ms >= next_ms) {
        conn->ping_sent_ms = ping(conn) == HF_OK ? now_ms : 0;
        next_ms = now_ms + target->cmd_timeout_ms;
    }
    hfi_alarm_set(hfi_keeper_exec(target->keeper), &conn->alarm, next_ms);
}

/* The first attempt after a loss is made at once, but we must not hammer a server that lets us in
 * only to close again. */
static int64_t after_loss_ms(struct hfi_conn *conn, int64_t now_ms) {
    if (now_ms - conn->ready_since_ms >= backoff.max_ms)
        conn->short_lives = 0;
    unsigned before = conn->short_lives++;
    return before == 0 ? now_ms : now_ms + hfi_conn_backoff_ms(conn, before - 1);
}

static void begin_if_wanted(struct hfi_conn *conn, int64_t now_ms) {
    pthread_mutex_lock(&conn->mtx);
    bool wanted = !conn->retired && (conn->keep_up || !hfi_list_empty(&conn->wants));
    pthread_mutex_unlock(&conn->mtx);
    if (!wanted)
        return;
    if (now_ms >= conn->retry_at_ms)
        hfi_conn_start_connecting(conn);
    else
        hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->alarm, conn->retry_at_ms);
}

void hfi_conn_tend(struct hfi_conn *conn) {
    int64_t now_ms = hfi_now_ms();
    pthread_mutex_lock(&conn->mtx);
    enum conn_state state = conn->state;
    bool lost = conn->lost;
    conn->lost = false;
    bool adopted = hfi_seat_adopt_locked(conn);
    bool ours = conn->driver == hfi_keeper_exec(conn->target->keeper);
    pthread_mutex_unlock(&conn->mtx);

    if (lost) {
        conn->retry_at_ms = after_loss_ms(conn, now_ms);
        conn->ping_sent_ms = 0;
        if (conn->on_state != NULL)
            conn->on_state(conn->arg, false);
        if (conn->target->trouble != NULL && !conn->retired)
            conn->target->trouble(conn->target->trouble_arg, HF_OK, NULL);
    }
    if (state == CONN_RESOLVING)
        hfi_conn_look_at_lookup(conn);
    if ((state == CONN_TLS || state == CONN_GREETING) && atomic_load(&conn->broken))
        hfi_conn_give_up_greeting(conn);
    if ((conn->state == CONN_RESOLVING || conn->state == CONN_CONNECTING ||
         conn->state == CONN_TLS || conn->state == CONN_GREETING) &&
        now_ms >= conn->host_deadline_ms)
        hfi_conn_host_is_silent(conn);
    if (state == CONN_DOWN)
        begin_if_wanted(conn, now_ms);
    if (state == CONN_READY && ours && atomic_load(&conn->broken))
        hfi_conn_service(conn, 0);
    else if (state == CONN_READY && !adopted && !conn->alarm.timer.set)
        check_alive(conn, now_ms);
}
