/*
 * Bytes in and out of a connection.
 *
 * Output: submits append to `out` under the mutex; one thread at a time writes, without the mutex,
 * from `writing`. Whoever finds a writer at work leaves its bytes to it. So commands of many
 * threads share a send(), and nobody waits for the socket with the mutex held.
 *
 * Input: only the holder of the seat reads. What came is fed to the protocol's reader, which makes
 * messages of it.
 *
 * TLS: `out` is in clear and is encrypted into `writing` when a writer takes it; what was received
 * is decrypted before it is fed to the reader. Both happen under the mutex, sending and receiving
 * do not. Reading goes on until TLS wants more from the socket, so nothing that poll() cannot see
 * is ever left inside.
 */
#include "net/impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_TLS_ANSWERS 262144 /* TLS by itself says little, unless nobody reads it */
#define MAX_TALK 4             /* chunks; nobody has more than that to say on an idle connection */
#define READ_CHUNK 16384
#define DELIVER_MAX 64
#define TLS_ALERT 0x15 /* how a TLS server begins its answer to a client that speaks in clear */

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

/* The same as take_output() for TLS, which may also have something to say of its own. */
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

/* Nothing is being written: take what was gathered. */
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
            hfi_exec_nudge(conn->driver != NULL ? conn->driver
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

/* Takes whole messages out of the reader and hands them on, many at a time: what came in one packet
 * wakes its waiters together. During the greeting a message can change what the next one means, so
 * they go one by one. */
static int deliver_messages(struct hfi_conn *conn, hf_error *error) {
    const struct hfi_protocol *protocol = conn->target->protocol;
    void *messages[DELIVER_MAX];
    size_t len, max = conn->state == CONN_GREETING ? 1 : DELIVER_MAX;
    do {
        int err = HF_OK;
        for (len = 0; len < max; len++) {
            err = protocol->next(conn->reader, &messages[len], error);
            if (err != HF_OK || messages[len] == NULL)
                break;
        }
        int delivered = len > 0 ? hfi_conn_deliver(conn, messages, len, error) : HF_OK;
        if (delivered != HF_OK || err != HF_OK)
            return delivered != HF_OK ? delivered : err;
    } while (len == max);
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
    if (got < 0)
        return hfi_fail_errno(error, HF_EUNREACH, errno, "the connection was lost");
    if (got == 0)
        return hfi_fail(error, HF_EUNREACH, "the server closed the connection");
    atomic_store_explicit(&conn->last_rx_ms, hfi_now_ms(), memory_order_relaxed);
    *ret_len = (size_t)got;
    return HF_OK;
}

static int feed_reader(struct hfi_conn *conn, const char *bytes, size_t len, hf_error *error) {
    return conn->target->protocol->feed(conn->reader, bytes, len, error);
}

/* Decrypts what was received (into the same place) and feeds it to the reader. What came before an
 * end is delivered before the end is reported, as it would be without TLS. */
static int read_encrypted(struct hfi_conn *conn, char *chunk, size_t size, size_t len,
                          hf_error *error) {
    hf_error end;
    bool any = false;
    int err = HF_OK, end_err = HF_OK;
    hfi_error_clear(&end);
    pthread_mutex_lock(&conn->mtx);
    if (!hfi_tls_feed(conn->tls, chunk, len))
        err = hfi_fail(error, HF_ENOMEM, "no memory for a reply");
    while (err == HF_OK && end_err == HF_OK) {
        end_err = hfi_tls_read(conn->tls, conn->state == CONN_GREETING, chunk, size, &len, &end);
        if (end_err == HF_OK && len == 0)
            break;
        if (end_err == HF_OK) {
            err = feed_reader(conn, chunk, len, error);
            any = true;
        }
        if (!hfi_tls_has_more(conn->tls))
            break; /* the usual case: one record, and what it holds has been read */
    }
    if (hfi_tls_pending(conn->tls) > 0)
        hfi_conn_flush_locked(conn); /* it has something to answer, or its last words */
    if (err == HF_OK && hfi_tls_pending(conn->tls) > MAX_TLS_ANSWERS)
        err = hfi_fail(error, HF_EPROTO, "the server asks for new keys but does not read");
    pthread_mutex_unlock(&conn->mtx);
    if (err == HF_OK && any)
        err = deliver_messages(conn, error);
    if (err == HF_OK && end_err != HF_OK) {
        *error = end;
        err = end_err;
    }
    return err;
}

int hfi_conn_read(struct hfi_conn *conn, hf_error *error) {
    char chunk[READ_CHUNK];
    size_t len;
    int err = receive(conn, chunk, sizeof chunk, &len, error);
    if (err != HF_OK || len == 0)
        return err;
    if (conn->tls != NULL)
        return read_encrypted(conn, chunk, sizeof chunk, len, error);
    const char *speaks_tls = conn->target->protocol->speaks_tls;
    if (conn->state == CONN_GREETING && chunk[0] == TLS_ALERT && speaks_tls != NULL)
        return hfi_fail(error, HF_EPROTO, "%s", speaks_tls);
    err = feed_reader(conn, chunk, len, error);
    return err == HF_OK ? deliver_messages(conn, error) : err;
}

int hfi_conn_read_tls_handshake(struct hfi_conn *conn, hf_error *error) {
    char chunk[READ_CHUNK];
    size_t len;
    int err = receive(conn, chunk, sizeof chunk, &len, error);
    if (err != HF_OK || len == 0)
        return err;
    pthread_mutex_lock(&conn->mtx);
    if (!hfi_tls_feed(conn->tls, chunk, len))
        err = hfi_fail(error, HF_ENOMEM, "no memory for TLS");
    pthread_mutex_unlock(&conn->mtx);
    return err;
}

bool hfi_conn_is_tls_talk(struct hfi_conn *conn) {
    char chunk[READ_CHUNK];
    for (int i = 0; i < MAX_TALK; i++) {
        size_t len;
        int err = receive(conn, chunk, sizeof chunk, &len, NULL);
        if (err == HF_OK && len == 0)
            return true; /* what it answers goes out with the command */
        if (err == HF_OK && !hfi_tls_feed(conn->tls, chunk, len))
            err = HF_ENOMEM;
        if (err == HF_OK)
            err = hfi_tls_read(conn->tls, false, chunk, sizeof chunk, &len, NULL);
        if (err != HF_OK || len > 0)
            return false;
    }
    return false;
}
