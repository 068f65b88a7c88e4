/*
 * Bytes into a connection: reading, completing requests, delivering pushed messages.
 *
 * Only the driver reads. It feeds the bytes to the protocol's reader, which makes messages of them.
 * A message completes the oldest request, or is a push.
 *
 * TLS: bytes are received without the mutex, and decrypted under it before they are fed to the
 * reader. Reading goes on until TLS wants more from the socket, so no data stays inside TLS where
 * poll() cannot see it.
 */
#include "net/conn/conn_impl.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

#define MAX_TLS_ANSWERS 262144 /* TLS itself sends little, unless the server does not read */
#define MAX_TALK 4             /* chunks; idle TLS housekeeping is shorter */
#define READ_CHUNK 16384
#define DELIVER_MAX 64
#define TLS_ALERT 0x15 /* first byte of a TLS server's answer to plain text */

/* ---- Messages ---- */

/* Posts the event of a request that is off the FIFO, or whose connection is lost, unless it was
 * abandoned. */
void hfi_req_complete_locked(struct hfi_conn *conn, struct hfi_req *req, struct hfi_wakes *wakes) {
    struct hfi_task *task = req->task;
    if (req->sync_caller != NULL) {
        conn->sync_callers--;
        hfi_follower_remove_locked(req->sync_caller);
    }
    req->sync_caller = NULL;
    atomic_store(&req->complete, true);
    req->task = NULL;
    if (task != NULL) {
        hfi_task_post_gathered(task, req->event, wakes);
        hfi_task_unref(task);
    }
}

/* Completes the requests that these replies answer. Returns how many there were. */
static size_t complete_requests(struct hfi_conn *conn, void **replies, size_t len) {
    struct hfi_wakes wakes = {.len = 0};
    struct hfi_link *link;
    size_t i;
    if (conn->driver_policy == HFI_DRIVER_CALLERS)
        atomic_fetch_add_explicit(&conn->target->spin_tuner.answers, (unsigned)len,
                                  memory_order_relaxed);
    pthread_mutex_lock(&conn->mtx);
    for (i = 0; i < len && (link = hfi_list_pop_front(&conn->fifo)) != NULL; i++) {
        struct hfi_req *req = HFI_CONTAINER(link, struct hfi_req, link);
        conn->in_flight--;
        req->reply = replies[i];
        if (req->event == HFI_EVENT_QUERIED)
            conn->target->protocol->queried(conn, req->reply, req->sent_ms);
        if (conn->ack_batch != NULL && hfi_ack_batch_takes_locked(conn, req, &wakes))
            continue;
        hfi_req_complete_locked(conn, req, &wakes);
        hfi_req_unref(req);
    }
    if (atomic_load(&conn->renewing) && conn->in_flight == 0)
        hfi_conn_break_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
    hfi_wakes_flush(&wakes);
    return i;
}

static bool is_push(const struct hfi_conn *conn, const void *message) {
    const struct hfi_protocol *protocol = conn->target->protocol;
    return conn->push != NULL && (protocol->is_push == NULL || protocol->is_push(message));
}

/* Delivers messages in the order in which they came; stops at a reply without a request. */
static int hand_on(struct hfi_conn *conn, void **messages, size_t len, hf_error *error) {
    const struct hfi_protocol *protocol = conn->target->protocol;
    size_t done = 0;
    atomic_store_explicit(&conn->target->last_answer_ms,
                          atomic_load_explicit(&conn->last_rx_ms, memory_order_relaxed),
                          memory_order_relaxed);
    while (done < len) {
        size_t replies = 0;
        while (done + replies < len && !is_push(conn, messages[done + replies]))
            replies++;
        size_t used = replies > 0 ? complete_requests(conn, messages + done, replies) : 0;
        done += used;
        if (used < replies)
            break;
        if (done < len) {
            conn->push(conn->arg, messages[done]);
            protocol->message_free(messages[done++]);
        }
    }
    if (done == len)
        return HF_OK;
    while (done < len)
        protocol->message_free(messages[done++]);
    return hfi_fail(error, HF_EPROTO, "the server sent an unexpected reply");
}

static int take_greeting(struct hfi_conn *conn, void *message, hf_error *error) {
    int err = hfi_conn_greeted(conn, message, error);
    conn->target->protocol->message_free(message);
    return err;
}

/* Takes whole messages out of the reader and delivers them in batches: replies from one packet
 * wake their callers together. During the greeting a message can change what the next one means,
 * so they go one by one. */
static int deliver_messages(struct hfi_conn *conn, hf_error *error) {
    const struct hfi_protocol *protocol = conn->target->protocol;
    void *messages[DELIVER_MAX];
    size_t len, max = conn->state == CONN_GREETING ? 1 : DELIVER_MAX;
    do {
        int err = HF_OK, delivered = HF_OK;
        for (len = 0; len < max; len++) {
            err = protocol->next(conn->reader, &messages[len], error);
            if (err != HF_OK || messages[len] == NULL)
                break;
        }
        if (len > 0 && conn->state == CONN_GREETING)
            delivered = take_greeting(conn, messages[0], error);
        else if (len > 0)
            delivered = hand_on(conn, messages, len, error);
        if (delivered != HF_OK || err != HF_OK)
            return delivered != HF_OK ? delivered : err;
    } while (len == max);
    return HF_OK;
}

/* ---- Bytes ---- */

/* Handles the result of a recv() that did not end with EAGAIN. */
static int note_received(struct hfi_conn *conn, ssize_t got, int sys_errno, hf_error *error) {
    if (got < 0)
        return hfi_fail_errno(error, HF_EUNREACH, sys_errno, "the connection was lost");
    if (got == 0)
        return hfi_fail(error, HF_EUNREACH, "the server closed the connection");
    atomic_store_explicit(&conn->last_rx_ms, hfi_now_ms(), memory_order_relaxed);
    return HF_OK;
}

/* HF_OK with *ret_len 0: there is nothing to read now. */
static int receive(struct hfi_conn *conn, char *bytes, size_t size, size_t *ret_len,
                   hf_error *error) {
    ssize_t got;
    *ret_len = 0;
    do
        got = recv(conn->fd, bytes, size, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return HF_OK;
    int err = note_received(conn, got, errno, error);
    if (err == HF_OK)
        *ret_len = (size_t)got;
    return err;
}

static int feed_reader(struct hfi_conn *conn, const char *bytes, size_t len, hf_error *error) {
    return conn->target->protocol->feed(conn->reader, bytes, len, error);
}

/* Decrypts what was received (in place) and feeds it to the reader. Messages before the end of
 * the stream are delivered before the end is reported, as without TLS. */
static int read_encrypted(struct hfi_conn *conn, char *chunk, size_t size, size_t len,
                          hf_error *error) {
    hf_error end;
    bool any = false;
    int err = HF_OK, end_err = HF_OK;
    hfi_error_clear(&end);
    pthread_mutex_lock(&conn->mtx);
    if (!hfi_tls_feed(conn->tls, chunk, len))
        err = hfi_fail(error, HF_ENOMEM, "out of memory for a reply");
    while (err == HF_OK && end_err == HF_OK) {
        end_err = hfi_tls_read(conn->tls, conn->state == CONN_GREETING, chunk, size, &len, &end);
        if (end_err == HF_OK && len == 0)
            break;
        if (end_err == HF_OK) {
            err = feed_reader(conn, chunk, len, error);
            any = true;
        }
        if (!hfi_tls_has_more(conn->tls))
            break; /* the usual case: one record, fully read */
    }
    if (hfi_tls_pending(conn->tls) > 0)
        hfi_conn_flush_locked(conn); /* an answer, or an alert */
    if (err == HF_OK && hfi_tls_pending(conn->tls) > MAX_TLS_ANSWERS)
        err = hfi_fail(error, HF_EPROTO, "the server renegotiates TLS keys but does not read");
    pthread_mutex_unlock(&conn->mtx);
    if (err == HF_OK && any)
        err = deliver_messages(conn, error);
    if (err == HF_OK && end_err != HF_OK) {
        *error = end;
        err = end_err;
    }
    return err;
}

/* `chunk` has `len` received bytes, and room for `size`. */
static int take(struct hfi_conn *conn, char *chunk, size_t size, size_t len, hf_error *error) {
    if (conn->tls != NULL)
        return read_encrypted(conn, chunk, size, len, error);
    const char *speaks_tls = conn->target->protocol->speaks_tls;
    if (conn->state == CONN_GREETING && chunk[0] == TLS_ALERT && speaks_tls != NULL)
        return hfi_fail(error, HF_EPROTO, "%s", speaks_tls);
    int err = feed_reader(conn, chunk, len, error);
    return err == HF_OK ? deliver_messages(conn, error) : err;
}

int hfi_conn_read(struct hfi_conn *conn, hf_error *error) {
    char chunk[READ_CHUNK];
    size_t len;
    int err = receive(conn, chunk, sizeof chunk, &len, error);
    if (err != HF_OK || len == 0)
        return err;
    return take(conn, chunk, sizeof chunk, len, error);
}

int hfi_conn_read_tls_handshake(struct hfi_conn *conn, hf_error *error) {
    char chunk[READ_CHUNK];
    size_t len;
    int err = receive(conn, chunk, sizeof chunk, &len, error);
    if (err != HF_OK || len == 0)
        return err;
    pthread_mutex_lock(&conn->mtx);
    if (!hfi_tls_feed(conn->tls, chunk, len))
        err = hfi_fail(error, HF_ENOMEM, "out of memory for TLS");
    pthread_mutex_unlock(&conn->mtx);
    return err;
}

bool hfi_conn_is_tls_talk(struct hfi_conn *conn) {
    char chunk[READ_CHUNK];
    for (int i = 0; i < MAX_TALK; i++) {
        size_t len;
        int err = receive(conn, chunk, sizeof chunk, &len, NULL);
        if (err == HF_OK && len == 0)
            return true; /* what TLS answers goes out with the command */
        if (err == HF_OK && !hfi_tls_feed(conn->tls, chunk, len))
            err = HF_ENOMEM;
        if (err == HF_OK)
            err = hfi_tls_read(conn->tls, false, chunk, sizeof chunk, &len, NULL);
        if (err != HF_OK || len > 0)
            return false;
    }
    return false;
}

/* ---- For the driver ---- */

/* After a read: loses the connection on an error; else writes what was held back. */
static bool has_read(struct hfi_conn *conn, int err, const hf_error *error) {
    if (err != HF_OK) {
        if (!atomic_load(&conn->renewing))
            hfi_log(conn->target->log, HF_LOG_INFO,
                    HFI_ABOUT(.code = err, .server = conn->target->node), "%s: %s",
                    conn->target->node, error->text);
        hfi_conn_lose(conn, err, error);
        return false;
    }
    pthread_mutex_lock(&conn->mtx);
    atomic_store(&conn->blocked, false);
    hfi_conn_flush_locked(conn);
    pthread_mutex_unlock(&conn->mtx);
    return true;
}

static int fail_broken(hf_error *error) {
    return hfi_fail(error, HF_EUNREACH, "the connection was lost");
}

bool hfi_conn_on_ready(struct hfi_conn *conn, short revents) {
    if (conn->state != CONN_READY) {
        hfi_conn_progress(conn);
        return true;
    }
    hf_error error;
    hfi_error_clear(&error);
    int err = HF_OK;
    if (atomic_load(&conn->broken))
        err = fail_broken(&error);
    else if (revents != 0)
        err = hfi_conn_read(conn, &error);
    return has_read(conn, err, &error);
}

bool hfi_conn_consume(struct hfi_conn *conn, char *chunk, size_t size, ssize_t got, int sys_errno) {
    hf_error error;
    hfi_error_clear(&error);
    int err = atomic_load(&conn->broken) ? fail_broken(&error)
                                         : note_received(conn, got, sys_errno, &error);
    if (err == HF_OK)
        err = take(conn, chunk, size, (size_t)got, &error);
    if (err == HF_OK && atomic_load(&conn->in_flight) == 0 && !atomic_load(&conn->blocked))
        return true; /* nothing was held back */
    return has_read(conn, err, &error);
}
