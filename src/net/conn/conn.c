/*
 * A connection: creating and freeing it, abandoning requests, losing it.
 *
 * Exchanges call this on any thread (abandon and the queries). The driver calls hfi_conn_lose().
 * Invariants: a request completes exactly once, by a reply or by the loss of the connection. Its
 * event is posted under the connection's mutex, so none comes after hfi_req_abandon() has returned.
 */
#include "net/conn/conn_impl.h"

#include <assert.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define STALL_MS 100 /* few servers and networks take this long for a command */
#define CLOCK_STEPPED_MS 60000
#define CLOCK_ROUNDING_MS 2 /* both clocks are read in whole milliseconds */

static void alarm_fired(struct hfi_alarm *alarm) {
    hfi_conn_maintain(HFI_CONTAINER(alarm, struct hfi_conn, alarm));
}

void hfi_conn_break_locked(struct hfi_conn *conn) {
    atomic_store(&conn->broken, true);
    hfi_exec_wake(conn->driver != NULL ? conn->driver : hfi_keeper_exec(conn->target->keeper));
    hfi_driver_watch_locked(conn);
}

/* A caller has stopped waiting for a reply, perhaps long before it was overdue. If the reply
 * becomes overdue and nothing at all has arrived, the connection is closed, so that it does not
 * swallow the next command. */
static void doubt_locked(struct hfi_conn *conn) {
    if (conn->is_doubted || conn->state != CONN_READY || atomic_load(&conn->broken) ||
        hfi_list_empty(&conn->fifo))
        return;
    int64_t sent_ms = HFI_CONTAINER(conn->fifo.next, struct hfi_req, link)->sent_ms;
    int64_t received_ms = atomic_load(&conn->last_rx_ms);
    int64_t overdue_ms =
        (received_ms > sent_ms ? received_ms : sent_ms) + conn->target->cmd_timeout_ms;
    if (hfi_now_ms() >= overdue_ms) {
        hfi_conn_break_locked(conn);
        return;
    }
    conn->is_doubted = true;
    hfi_alarm_set(hfi_keeper_exec(conn->target->keeper), &conn->doubt, overdue_ms);
}

static void doubt_fired(struct hfi_alarm *alarm) {
    struct hfi_conn *conn = HFI_CONTAINER(alarm, struct hfi_conn, doubt);
    pthread_mutex_lock(&conn->mtx);
    conn->is_doubted = false;
    doubt_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
}

struct hfi_conn *hfi_conn_new(struct hfi_target *target, enum hfi_driver_policy driver_policy,
                              hfi_push_fn push, hfi_state_fn state, void *arg) {
    struct hfi_conn *conn = hfi_zalloc(target->mem, sizeof *conn);
    if (conn == NULL)
        return NULL;
    conn->target = target;
    conn->driver_policy = driver_policy;
    conn->push = push;
    conn->on_state = state;
    conn->arg = arg;
    conn->fd = conn->receive_fd = conn->poll_set = conn->wake_fd = -1;
    conn->alarm.fire = alarm_fired;
    conn->doubt.fire = doubt_fired;
    conn->adopt.fire = hfi_driver_adopt_fired;
    conn->stall_check.fire = hfi_driver_stall_fired;
    pthread_mutex_init(&conn->mtx, NULL);
    hfi_list_init(&conn->followers);
    hfi_list_init(&conn->fifo);
    hfi_list_init(&conn->wants);
    if (hfi_keeper_add(target->keeper, conn))
        return conn;
    pthread_mutex_destroy(&conn->mtx);
    hfi_free(target->mem, conn);
    return NULL;
}

void hfi_conn_free(struct hfi_conn *conn) {
    if (conn == NULL)
        return;
    const struct hfi_mem *mem = conn->target->mem;
    hf_error error = {.code = HF_ECLOSED};
    hfi_fail(&error, HF_ECLOSED, "the client is closed");
    hfi_conn_lose(conn, HF_ECLOSED, &error);
    hfi_conn_connect_failed(conn, HF_ECLOSED, &error);
    hfi_alarm_clear(hfi_keeper_exec(conn->target->keeper), &conn->alarm);
    hfi_alarm_clear(hfi_keeper_exec(conn->target->keeper), &conn->doubt);
    hfi_alarm_clear(hfi_keeper_exec(conn->target->keeper), &conn->adopt);
    hfi_alarm_clear(hfi_keeper_exec(conn->target->keeper), &conn->stall_check);
    hfi_keeper_remove(conn->target->keeper, conn);
    if (conn->reader != NULL)
        conn->target->protocol->reader_free(conn->reader);
    if (conn->wake_fd >= 0)
        close(conn->wake_fd);
    hfi_ack_batch_free(conn);
    hfi_free(mem, conn->out.bytes);
    hfi_free(mem, conn->writing.bytes);
    pthread_mutex_destroy(&conn->mtx);
    hfi_free(mem, conn);
}

void hfi_conn_close_fds(struct hfi_conn *conn) {
    if (conn == NULL)
        return;
    if (conn->fd >= 0)
        close(conn->fd);
    if (conn->receive_fd >= 0)
        close(conn->receive_fd);
    if (conn->wake_fd >= 0)
        close(conn->wake_fd);
}

const struct hfi_target *hfi_conn_target(const struct hfi_conn *conn) {
    return conn->target;
}

/* ---- Requests ---- */

static void free_requests(struct hfi_req *req) {
    do {
        struct hfi_req *front = req->front;
        if (req->reply != NULL)
            req->protocol->message_free(req->reply);
        hfi_spare_free(req->mem, HFI_SPARE_REQUEST, req);
        req = front;
    } while (req != NULL && atomic_fetch_sub_explicit(&req->refs, 1, memory_order_acq_rel) == 1);
}

void hfi_req_unref(struct hfi_req *req) {
    if (req != NULL && atomic_fetch_sub_explicit(&req->refs, 1, memory_order_acq_rel) == 1)
        free_requests(req);
}

/* If the last synchronous caller has left, the keeper reads the outstanding replies. */
static void detach_caller_locked(struct hfi_conn *conn, struct hfi_req *req) {
    if (req->sync_caller == NULL)
        return;
    req->sync_caller = NULL;
    conn->sync_callers--;
    if (conn->driver == NULL && conn->sync_callers == 0 && conn->in_flight > 0)
        hfi_exec_wake(hfi_keeper_exec(conn->target->keeper));
}

void hfi_req_detach_caller(struct hfi_req *req) {
    pthread_mutex_lock(&req->conn->mtx);
    detach_caller_locked(req->conn, req);
    doubt_locked(req->conn);
    pthread_mutex_unlock(&req->conn->mtx);
}

void hfi_req_abandon(struct hfi_req *req) {
    if (req == NULL)
        return;
    struct hfi_conn *conn = req->conn;
    pthread_mutex_lock(&conn->mtx);
    struct hfi_task *task = req->task;
    req->task = NULL;
    detach_caller_locked(conn, req);
    doubt_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
    if (task != NULL)
        hfi_task_unref(task);
    hfi_req_unref(req);
}

/* ---- Losing it ---- */

/* Ends the connection, not only our use of it. A forked child may have copies of the descriptor;
 * closing only ours would leave the server with a dead client and subscriber. (The child itself
 * uses hfi_conn_close_fds.) */
void hfi_conn_hang_up(const struct hfi_conn *conn, bool abortively) {
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    if (abortively) {
        /* Disconnecting resets at once, whatever copies there are, but only for TCP. */
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        (void)connect(conn->fd, &nowhere, sizeof nowhere);
    }
    shutdown(conn->fd, SHUT_RDWR);
}

void hfi_conn_close_socket(struct hfi_conn *conn) {
    if (conn->fd < 0)
        return;
    if (conn->poll_set >= 0)
        epoll_ctl(conn->poll_set, EPOLL_CTL_DEL, conn->fd, NULL);
    conn->poll_set = -1;
    hfi_conn_hang_up(conn, conn->in_flight > 0 || conn->retired);
    if (conn->writer != NULL) { /* it may be in send() for a while */
        conn->writer->disowned = true;
        conn->writer = NULL;
        conn->writing = (struct buffer){.len = 0};
    } else {
        close(conn->fd);
    }
    if (conn->receive_fd >= 0)
        close(conn->receive_fd);
    conn->fd = conn->receive_fd = -1;
    hfi_tls_free(conn->tls);
    conn->tls = NULL;
}

void hfi_conn_lose(struct hfi_conn *conn, int err, const hf_error *error) {
    struct hfi_link orphans;
    struct hfi_wakes wakes = {.len = 0};
    hfi_list_init(&orphans);
    pthread_mutex_lock(&conn->mtx);
    if (conn->state == CONN_READY) {
        conn->state = CONN_DOWN;
        conn->lost = true;
        conn->last_id = conn->id;
        conn->last_generation = conn->generation;
        conn->id.id = 0;
        conn->generation++;
        hfi_conn_close_socket(conn);
        hfi_conn_discard_output(conn);
        conn->unsent = 0;
        atomic_store(&conn->broken, false);
        hfi_list_splice(&orphans, &conn->fifo);
        conn->in_flight = 0;
        if (conn->ack_batch != NULL)
            hfi_ack_batch_lose_locked(conn, &orphans);
        conn->driver = NULL;
        struct hfi_link *link;
        while ((link = hfi_list_pop_front(&orphans)) != NULL) {
            struct hfi_req *req = HFI_CONTAINER(link, struct hfi_req, link);
            req->err = err;
            req->error = *error;
            snprintf(req->error.node, sizeof req->error.node, "%s", conn->target->node);
            hfi_req_complete_locked(conn, req, &wakes);
            hfi_req_unref(req);
        }
        assert(conn->sync_callers == 0);
    }
    pthread_mutex_unlock(&conn->mtx);
    hfi_wakes_flush(&wakes);
    hfi_exec_wake(hfi_keeper_exec(conn->target->keeper));
}

/* ---- Queries ---- */

bool hfi_conn_ready(struct hfi_conn *conn, int64_t *ret_server_ms, int64_t *ret_received_ms) {
    if (!hfi_conn_takes(conn))
        return false; /* a hint, as it would be with the mutex: submitting checks again */
    /* in the reverse order of writing, so a value is never taken for newer than it is */
    *ret_received_ms = atomic_load_explicit(&conn->clock_read_ms, memory_order_acquire);
    *ret_server_ms =
        *ret_received_ms + atomic_load_explicit(&conn->clock_ahead_ms, memory_order_relaxed);
    return true;
}

/* The difference of the clocks lies between two bounds, by each reading. Without a step, they have
 * one in common: clocks drift by far less than 1 ms in a second. */
static bool contradicts(const struct hfi_conn *conn, int64_t ahead_ms, int64_t limit_ms,
                        int64_t received_ms) {
    int64_t read_ms = atomic_load_explicit(&conn->clock_read_ms, memory_order_acquire);
    int64_t stray_ms = CLOCK_ROUNDING_MS + (received_ms - read_ms) / 1000;
    return read_ms != 0 &&
           (ahead_ms >
                atomic_load_explicit(&conn->clock_limit_ms, memory_order_relaxed) + stray_ms ||
            limit_ms <
                atomic_load_explicit(&conn->clock_ahead_ms, memory_order_relaxed) - stray_ms);
}

bool hfi_conn_clock_is_stepped(const struct hfi_conn *conn, int64_t now_ms) {
    int64_t stepped_ms = atomic_load_explicit(&conn->clock_stepped_ms, memory_order_relaxed);
    return stepped_ms != 0 && now_ms - stepped_ms < CLOCK_STEPPED_MS;
}

void hfi_conn_clock(struct hfi_conn *conn, int64_t server_ms, int64_t sent_ms,
                    int64_t received_ms) {
    if (contradicts(conn, server_ms - received_ms, server_ms - sent_ms, received_ms))
        atomic_store_explicit(&conn->clock_stepped_ms, received_ms, memory_order_relaxed);
    atomic_store_explicit(&conn->clock_ahead_ms, server_ms - received_ms, memory_order_relaxed);
    atomic_store_explicit(&conn->clock_limit_ms, server_ms - sent_ms, memory_order_relaxed);
    atomic_store_explicit(&conn->clock_read_ms, received_ms, memory_order_release);
}

int64_t hfi_conn_clock_limit(struct hfi_conn *conn, int64_t *ret_ahead_ms) {
    int64_t read_ms = atomic_load_explicit(&conn->clock_read_ms, memory_order_acquire);
    *ret_ahead_ms = atomic_load_explicit(&conn->clock_limit_ms, memory_order_relaxed);
    return read_ms;
}

void hfi_conn_identify(struct hfi_conn *conn, const struct hfi_conn_id *id) {
    pthread_mutex_lock(&conn->mtx);
    conn->id = *id;
    pthread_mutex_unlock(&conn->mtx);
}

bool hfi_conn_ended_id(struct hfi_conn *conn, unsigned generation, struct hfi_conn_id *ret) {
    pthread_mutex_lock(&conn->mtx);
    bool ends =
        conn->state == CONN_READY && conn->generation == generation && atomic_load(&conn->broken);
    if (ends)
        *ret = conn->id;
    else if (conn->generation != generation && conn->last_generation == generation)
        *ret = conn->last_id;
    else
        ret->id = 0;
    pthread_mutex_unlock(&conn->mtx);
    return ret->id != 0;
}

uint64_t hfi_conn_run(struct hfi_conn *conn) {
    pthread_mutex_lock(&conn->mtx);
    uint64_t run = conn->id.id != 0 ? conn->id.run : 0;
    pthread_mutex_unlock(&conn->mtx);
    return run;
}

unsigned hfi_conn_load(struct hfi_conn *conn) {
    return atomic_load_explicit(&conn->in_flight, memory_order_relaxed);
}

bool hfi_conn_stalls(const struct hfi_conn *conn) {
    int64_t received_ms = atomic_load_explicit(&conn->last_rx_ms, memory_order_relaxed);
    int64_t busy_ms = atomic_load_explicit(&conn->busy_since_ms, memory_order_relaxed);
    return atomic_load_explicit(&conn->in_flight, memory_order_relaxed) > 0 &&
           atomic_load_explicit(&conn->last_submit_ms, memory_order_relaxed) -
                   (received_ms > busy_ms ? received_ms : busy_ms) >
               STALL_MS;
}

bool hfi_conn_leave_unless(struct hfi_conn *conn, const struct hfi_identity *there) {
    pthread_mutex_lock(&conn->mtx);
    bool leave = conn->state == CONN_READY && !atomic_load(&conn->broken) &&
                 hfi_identity_known(&conn->identity) && !hfi_identity_same(&conn->identity, there);
    if (leave)
        hfi_conn_break_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
    return leave;
}

void hfi_conn_suspect(struct hfi_conn *conn, int64_t since_ms) {
    pthread_mutex_lock(&conn->mtx);
    if (conn->state == CONN_READY && atomic_load(&conn->last_rx_ms) <= since_ms) {
        atomic_store(&conn->renewing, false);
        hfi_conn_break_locked(conn);
    }
    pthread_mutex_unlock(&conn->mtx);
}

bool hfi_conn_renew(struct hfi_conn *conn) {
    assert(conn->driver_policy == HFI_DRIVER_KEEPER);
    pthread_mutex_lock(&conn->mtx);
    bool renews = hfi_conn_takes(conn);
    if (renews)
        atomic_store(&conn->renewing, true);
    if (renews && conn->in_flight == 0)
        hfi_conn_break_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
    return renews;
}

int64_t hfi_conn_tls_until_s(struct hfi_conn *conn) {
    pthread_mutex_lock(&conn->mtx);
    int64_t until_s = conn->tls != NULL ? hfi_tls_until_s(conn->tls) : 0;
    pthread_mutex_unlock(&conn->mtx);
    return until_s;
}
