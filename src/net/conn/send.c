/*
 * Bytes out of a connection: submitting requests, and the output buffer.
 *
 * Exchanges call this on any thread. The driver flushes what was gathered. Submits append to `out`
 * under the mutex; one thread at a time writes from `writing`, without the mutex. A thread that
 * finds a writer at work leaves its bytes to that writer. So the commands of many threads share one
 * send(), and no thread waits for the socket with the mutex held. Invariant: requests in `fifo` are
 * in the order in which their bytes were appended.
 *
 * TLS: `out` is plain text; a writer encrypts it into `writing`, under the mutex.
 */
#include "net/conn/conn_impl.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* With this many commands in flight the server is busy; further ones are gathered and written
 * together. */
#define HOLD_BACK 8
/* A driver that writes once per round gathers at most this many: the server can start on them
 * while we make the next. */
#define GATHER_MAX 16
#define PEEK_AFTER_IDLE_MS 50

/* ---- The output ---- */

static bool reserve(const struct hfi_mem *mem, struct buffer *buffer, size_t len) {
    if (len <= buffer->cap - buffer->len)
        return true;
    size_t cap = buffer->cap == 0 ? 512 : buffer->cap;
    while (cap - buffer->len < len)
        cap *= 2;
    char *grown = hfi_realloc(mem, buffer->bytes, cap);
    if (grown == NULL)
        return false;
    buffer->bytes = grown;
    buffer->cap = cap;
    return true;
}

bool hfi_buffer_append(const struct hfi_mem *mem, struct buffer *buffer, const char *bytes,
                       size_t len) {
    if (!reserve(mem, buffer, len))
        return false;
    memcpy(buffer->bytes + buffer->len, bytes, len);
    buffer->len += len;
    return true;
}

void hfi_conn_discard_output(struct hfi_conn *conn) {
    assert(conn->writer == NULL); /* its socket has been closed */
    conn->out.len = 0;
    conn->writing.len = conn->write_pos = 0;
    atomic_store(&conn->blocked, false);
}

/* take_output() for TLS, which may also have records of its own to send. */
static bool take_encrypted(struct hfi_conn *conn) {
    conn->writing.len = conn->write_pos = 0;
    bool ok = conn->out.len == 0 || hfi_tls_write(conn->tls, conn->out.bytes, conn->out.len);
    conn->out.len = 0;
    conn->unsent = 0;
    size_t pending = hfi_tls_pending(conn->tls);
    ok = ok && reserve(conn->target->mem, &conn->writing, pending);
    if (!ok) {
        hfi_conn_break_locked(conn);
        return false;
    }
    if (pending > 0)
        conn->writing.len = hfi_tls_take(conn->tls, conn->writing.bytes, pending);
    return conn->writing.len > 0;
}

/* Nothing is being written: takes what was gathered. */
static bool take_output(struct hfi_conn *conn) {
    if (conn->write_pos < conn->writing.len)
        return true; /* the rest of an earlier send */
    if (conn->tls != NULL)
        return take_encrypted(conn);
    struct buffer empty = conn->writing;
    empty.len = 0;
    conn->writing = conn->out;
    conn->out = empty;
    conn->write_pos = 0;
    conn->unsent = 0;
    return conn->writing.len > 0;
}

static int send_once(int fd, const char *bytes, size_t len, size_t *ret_sent) {
    ssize_t sent;
    do
        sent = send(fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    *ret_sent = sent > 0 ? (size_t)sent : 0;
    return sent < 0 ? errno : 0;
}

void hfi_conn_flush_locked(struct hfi_conn *conn) {
    struct writer self = {.disowned = false};
    if (conn->writer != NULL)
        return; /* that thread will write ours too */
    conn->writer = &self;
    while ((conn->state == CONN_READY || conn->state == CONN_GREETING || conn->state == CONN_TLS) &&
           !atomic_load(&conn->blocked) && !atomic_load(&conn->broken) && take_output(conn)) {
        int fd = conn->fd;
        char *bytes = conn->writing.bytes;
        size_t pos = conn->write_pos, len = conn->writing.len, sent;
        pthread_mutex_unlock(&conn->mtx);
        int failure = send_once(fd, bytes + pos, len - pos, &sent);
        pthread_mutex_lock(&conn->mtx);

        if (self.disowned) { /* it was lost meanwhile */
            close(fd);
            hfi_free(conn->target->mem, bytes);
            return;
        }
        conn->write_pos += sent;
        if (failure == EAGAIN || failure == EWOULDBLOCK) {
            atomic_store(&conn->blocked, true);
            /* so that it polls for POLLOUT */
            hfi_exec_wake(conn->driver != NULL ? conn->driver
                                               : hfi_keeper_exec(conn->target->keeper));
        } else if (failure != 0) {
            hfi_conn_break_locked(conn);
        }
    }
    conn->writer = NULL;
}

void hfi_conn_flush(struct hfi_conn *conn) {
    pthread_mutex_lock(&conn->mtx);
    hfi_conn_flush_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
}

/* ---- Requests ---- */

static struct hfi_req *new_request(struct hfi_conn *conn, struct hfi_task *task, unsigned event) {
    struct hfi_req *req = hfi_spare_alloc(conn->target->mem, HFI_SPARE_REQUEST, sizeof *req);
    if (req == NULL)
        return NULL;
    memset(req, 0, offsetof(struct hfi_req, error));
    hfi_error_clear(&req->error);
    atomic_init(&req->refs, 2); /* the FIFO's and the caller's */
    req->mem = conn->target->mem;
    req->protocol = conn->target->protocol;
    req->conn = conn;
    req->task = task;
    req->event = event;
    if (task != NULL)
        hfi_task_ref(task);
    return req;
}

/* Is an idle connection still open, as far as the kernel knows? */
static bool peek_is_alive(struct hfi_conn *conn) {
    char byte;
    ssize_t got = recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        /* anything readable would be taken for the reply to the next command */
        return true;
    if (got > 0 && conn->push != NULL)
        return true; /* it may be a pushed message, which is no reply */
    if (got > 0 && conn->tls != NULL && conn->driver == NULL && hfi_conn_is_tls_talk(conn))
        return true;
    hfi_conn_break_locked(conn);
    return false;
}

/* The server may have closed it long ago: find out before a command is lost in it. */
static bool is_alive_if_idle(struct hfi_conn *conn, int64_t now_ms) {
    if (conn->in_flight > 0 ||
        now_ms - atomic_load_explicit(&conn->last_rx_ms, memory_order_relaxed) < PEEK_AFTER_IDLE_MS)
        return true;
    return peek_is_alive(conn);
}

/* Has the server closed a connection with requests in flight? Replies that have arrived are read
 * first. */
static bool peek_has_ended(const struct hfi_conn *conn) {
    char byte;
    ssize_t got = recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void hfi_conn_check_alive(struct hfi_conn *conn) {
    pthread_mutex_lock(&conn->mtx);
    if (conn->state == CONN_READY && !atomic_load(&conn->broken)) {
        if (conn->in_flight == 0)
            peek_is_alive(conn);
        else if (peek_has_ended(conn))
            hfi_conn_break_locked(conn); /* before its driver has noticed */
    }
    pthread_mutex_unlock(&conn->mtx);
}

int hfi_conn_append_locked(struct hfi_conn *conn, const char *bytes, size_t len,
                           unsigned commands) {
    if (!hfi_buffer_append(conn->target->mem, &conn->out, bytes, len))
        return HF_ENOMEM;
    conn->unsent += commands;
    if (conn->target->commands != NULL)
        atomic_fetch_add_explicit(conn->target->commands, commands, memory_order_relaxed);
    return HF_OK;
}

/* The driver's own thread gathers and flushes once per round; other threads write unless enough
 * is in flight. */
static void send_or_gather_locked(struct hfi_conn *conn) {
    bool keeper =
        conn->driver_policy == HFI_DRIVER_KEEPER && hfi_keeper_is_self(conn->target->keeper);
    bool gathering = keeper || conn->driver_policy == HFI_DRIVER_DISPATCH;
    if (gathering ? conn->unsent >= GATHER_MAX : conn->in_flight - conn->unsent < HOLD_BACK)
        hfi_conn_flush_locked(conn);
    else if (keeper)
        hfi_keeper_gathers(conn->target->keeper, conn);
}

void hfi_conn_push_locked(struct hfi_conn *conn, struct hfi_req *req) {
    hfi_list_push_back(&conn->fifo, &req->link);
    conn->in_flight++;
}

void hfi_conn_push_all_locked(struct hfi_conn *conn, struct hfi_req *req) {
    if (req->front != NULL)
        hfi_conn_push_all_locked(conn, req->front);
    hfi_conn_push_locked(conn, req);
}

static int enqueue_locked(struct hfi_conn *conn, unsigned fronts, struct hfi_req *req,
                          const char *bytes, size_t len) {
    int err = hfi_conn_append_locked(conn, bytes, len, fronts + 1);
    if (err == HF_OK && req->front == NULL) /* nearly always */
        hfi_conn_push_locked(conn, req);
    else if (err == HF_OK)
        hfi_conn_push_all_locked(conn, req);
    return err;
}

/* Nothing of it was sent. */
static void drop_unsent(struct hfi_req *req) {
    while (req != NULL) {
        struct hfi_req *front = req->front;
        hfi_spare_free(req->mem, HFI_SPARE_REQUEST, req);
        req = front;
    }
}

/* The request, and those for the commands in front of it. NULL: out of memory. */
static struct hfi_req *new_requests(struct hfi_conn *conn, unsigned fronts, struct hfi_task *task,
                                    unsigned event) {
    struct hfi_req *front = NULL;
    for (unsigned i = 0; i <= fronts; i++) {
        bool last = i == fronts;
        struct hfi_req *req = new_request(conn, last ? task : NULL, last ? event : 0);
        if (req == NULL) {
            drop_unsent(front);
            return NULL;
        }
        req->front = front;
        front = req;
    }
    return front;
}

static int submit(struct hfi_conn *conn, unsigned fronts, const struct hfi_ack_request *ack_request,
                  const char *bytes, size_t len, struct hfi_task *task, unsigned event,
                  struct hfi_sync_caller *sync_caller, struct hfi_req **ret_req) {
    assert(sync_caller == NULL || (conn->driver_policy == HFI_DRIVER_CALLERS && task != NULL));
    struct hfi_req *req =
        fronts == 0 ? new_request(conn, task, event) : new_requests(conn, fronts, task, event);
    if (req == NULL)
        return HF_ENOMEM;
    int64_t now_ms = hfi_now_ms();
    int err = HF_EUNREACH;
    pthread_mutex_lock(&conn->mtx);
    bool was_idle = hfi_conn_load(conn) == 0;
    if (hfi_conn_takes(conn) && is_alive_if_idle(conn, now_ms))
        err = ack_request != NULL ? hfi_ack_batch_submit_locked(conn, req, bytes, len, ack_request)
                                  : enqueue_locked(conn, fronts, req, bytes, len);
    if (err == HF_OK) {
        if (was_idle)
            atomic_store_explicit(&conn->busy_since_ms, now_ms, memory_order_relaxed);
        atomic_store_explicit(&conn->last_submit_ms, now_ms, memory_order_relaxed);
        for (struct hfi_req *each = req; each != NULL; each = each->front)
            each->sent_ms = now_ms;
        req->generation = conn->generation;
        if (sync_caller != NULL) {
            conn->sync_callers++;
            req->sync_caller = sync_caller;
            sync_caller->asked = conn;
        }
        *ret_req = req;
        send_or_gather_locked(conn);
        if (sync_caller == NULL && conn->driver == NULL && conn->sync_callers == 0)
            hfi_exec_wake(hfi_keeper_exec(conn->target->keeper));
    }
    pthread_mutex_unlock(&conn->mtx);
    if (err != HF_OK) {
        if (task != NULL)
            hfi_task_unref(task);
        drop_unsent(req);
    }
    return err;
}

int hfi_conn_submit(struct hfi_conn *conn, const char *bytes, size_t len, struct hfi_task *task,
                    unsigned event, struct hfi_sync_caller *sync_caller, struct hfi_req **ret_req) {
    return submit(conn, 0, NULL, bytes, len, task, event, sync_caller, ret_req);
}

int hfi_conn_submit_behind(struct hfi_conn *conn, unsigned fronts, const char *bytes, size_t len,
                           struct hfi_task *task, unsigned event,
                           struct hfi_sync_caller *sync_caller, struct hfi_req **ret_req) {
    return submit(conn, fronts, NULL, bytes, len, task, event, sync_caller, ret_req);
}

int hfi_conn_submit_acked(struct hfi_conn *conn, const char *bytes, size_t len,
                          struct hfi_task *task, unsigned event,
                          struct hfi_sync_caller *sync_caller,
                          const struct hfi_ack_request *ack_request, struct hfi_req **ret_req) {
    return submit(conn, ack_request->fronts, ack_request, bytes, len, task, event, sync_caller,
                  ret_req);
}

int hfi_conn_enqueue(struct hfi_conn *conn, const char *bytes, size_t len, struct hfi_task *task,
                     unsigned event, struct hfi_req **ret_req) {
    struct hfi_req *req = new_request(conn, task, event);
    if (req == NULL)
        return HF_ENOMEM;
    int64_t now_ms = hfi_now_ms();
    int err = HF_EUNREACH;
    pthread_mutex_lock(&conn->mtx);
    if (hfi_conn_takes(conn) && is_alive_if_idle(conn, now_ms))
        err = hfi_conn_append_locked(conn, bytes, len, 1);
    if (err == HF_OK) {
        req->sent_ms = now_ms;
        hfi_conn_push_locked(conn, req);
        *ret_req = req;
    }
    pthread_mutex_unlock(&conn->mtx);
    if (err != HF_OK) {
        if (task != NULL)
            hfi_task_unref(task);
        hfi_spare_free(req->mem, HFI_SPARE_REQUEST, req);
    }
    return err;
}

int hfi_conn_send(struct hfi_conn *conn, const char *bytes, size_t len) {
    int err = HF_EUNREACH;
    pthread_mutex_lock(&conn->mtx);
    if (conn->state == CONN_READY && !atomic_load(&conn->broken))
        err = hfi_conn_append_locked(conn, bytes, len, 1);
    if (err == HF_OK) {
        conn->unsent--; /* it has no reply in the FIFO, so it must not count */
        send_or_gather_locked(conn);
    }
    pthread_mutex_unlock(&conn->mtx);
    return err;
}
