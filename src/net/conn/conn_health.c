/*
 * Connection health: wants, keep-alive PING, detection of a dead peer. reconnect.c has the back-off.
 *
 * Any thread calls hfi_conn_want() and its like; the rest runs on the keeper's thread. An idle
 * connection is pinged every `ping_interval_ms`. If it is still silent `cmd_timeout_ms` later, it is closed.
 */
#include "net/conn/conn_impl.h"

#include <errno.h>
#include <stdio.h>

/* ---- Wants ---- */

void hfi_conn_notify_wants_locked(struct hfi_conn *conn, int err, const hf_error *error) {
    struct hfi_link *link;
    while ((link = hfi_list_pop_front(&conn->wants)) != NULL) {
        struct hfi_want *want = HFI_CONTAINER(link, struct hfi_want, link);
        struct hfi_task *task = want->task;
        want->err = err;
        want->hopeless = err != HF_OK && hfi_conn_is_hopeless(conn);
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
    want->hopeless = false;
    bool ready = hfi_conn_takes(conn);
    if (conn->state == CONN_CLOSED)
        want->err = hfi_fail(&want->error, HF_ECLOSED, "the client is closed");
    else if (conn->retired)
        want->err = hfi_fail(&want->error, HF_EUNREACH, "this server is no longer the one in use");
    if (ready || want->err != HF_OK) {
        hfi_task_post(task, event);
    } else {
        hfi_task_ref(task);
        hfi_list_push_back(&conn->wants, &want->link);
        hfi_exec_wake(hfi_keeper_exec(conn->target->keeper));
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
        hfi_exec_wake(hfi_keeper_exec(conn->target->keeper));
}

bool hfi_conn_is_kept_up(struct hfi_conn *conn) {
    pthread_mutex_lock(&conn->mtx);
    bool up = conn->keep_up;
    pthread_mutex_unlock(&conn->mtx);
    return up;
}

/* ---- Maintenance ---- */

static int ping(struct hfi_conn *conn) {
    const struct hfi_protocol *protocol = conn->target->protocol;
    struct hfi_req *req = NULL;
    if (conn->push != NULL && protocol->is_push == NULL)
        return hfi_conn_send(conn, protocol->ping, protocol->ping_len);
    int err = protocol->query == NULL
                  ? hfi_conn_submit(conn, protocol->ping, protocol->ping_len, NULL, 0, NULL, &req)
                  : hfi_conn_submit(conn, protocol->query, protocol->query_len, NULL,
                                    HFI_EVENT_QUERIED, NULL, &req);
    hfi_req_unref(req);
    return err;
}

/* Pings a silent connection, and closes it if it stays silent. */
static void check_alive(struct hfi_conn *conn, int64_t now_ms) {
    const struct hfi_target *target = conn->target;
    int64_t received_ms = atomic_load(&conn->last_rx_ms),
            next_ms = received_ms + target->ping_interval_ms;
    if (conn->ping_sent_ms != 0 && received_ms >= conn->ping_sent_ms)
        conn->ping_sent_ms = 0;
    if (conn->ping_sent_ms != 0) {
        next_ms = conn->ping_sent_ms + target->cmd_timeout_ms;
        if (now_ms >= next_ms) {
            if (conn->push != NULL) /* the answer may be here, unread */
                hfi_conn_catch_up(conn, hfi_keeper_exec(target->keeper));
            hfi_conn_suspect(conn, conn->ping_sent_ms);
            next_ms = now_ms + target->cmd_timeout_ms;
        }
    } else if (now_ms >= next_ms && conn->driver_policy == HFI_DRIVER_DISPATCH) {
        /* hf_dispatch() may not be called to read the answer; the next command will find out */
        next_ms = now_ms + target->ping_interval_ms;
    } else if (now_ms >= next_ms) {
        conn->ping_sent_ms = ping(conn) == HF_OK ? now_ms : 0;
        next_ms = now_ms + target->cmd_timeout_ms;
    }
    hfi_alarm_set(hfi_keeper_exec(target->keeper), &conn->alarm, next_ms);
}

void hfi_conn_maintain(struct hfi_conn *conn) {
    int64_t now_ms = hfi_now_ms();
    pthread_mutex_lock(&conn->mtx);
    enum conn_state state = conn->state;
    bool lost = conn->lost;
    conn->lost = false;
    bool adopted = hfi_driver_adopt_locked(conn);
    bool ours = conn->driver == hfi_keeper_exec(conn->target->keeper);
    pthread_mutex_unlock(&conn->mtx);

    if (lost) {
        bool renewing = atomic_load(&conn->renewing);
        conn->retry_at_ms = renewing ? now_ms : hfi_conn_after_loss_ms(conn, now_ms);
        conn->ping_sent_ms = 0;
        if (conn->on_state != NULL)
            conn->on_state(conn->arg, false);
        if (conn->target->on_failure != NULL && !conn->retired && !renewing)
            conn->target->on_failure(conn->target->on_failure_arg, HF_OK, NULL);
    }
    if (state == CONN_RESOLVING)
        hfi_conn_poll_lookup(conn);
    if ((state == CONN_TLS || state == CONN_GREETING) && atomic_load(&conn->broken))
        hfi_conn_give_up_greeting(conn);
    if ((conn->state == CONN_RESOLVING || conn->state == CONN_CONNECTING ||
         conn->state == CONN_TLS || conn->state == CONN_GREETING) &&
        now_ms >= conn->host_deadline_ms)
        hfi_conn_host_is_silent(conn);
    if (state == CONN_DOWN)
        hfi_conn_reconnect_if_wanted(conn, now_ms);
    if (state == CONN_READY && ours && atomic_load(&conn->broken))
        hfi_conn_on_ready(conn, 0);
    else if (state == CONN_READY && !adopted && !conn->alarm.timer.set)
        check_alive(conn, now_ms);
}
