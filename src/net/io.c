/*
 * Bytes in and out of a connection.
 *
 * Output: submits append to `out` under the mutex; one thread at a time writes, without the mutex,
 * from `writing`. Whoever finds a writer at work leaves its bytes to it. So commands of many
 * threads share a send(), and nobody waits for the socket with the mutex held.
 *
 * Input: only the holder of the seat reads. Replies are parsed by hiredis' reader, whose appetite
 * is bounded here: a server cannot make us hold more than MAX_REPLY_BYTES for one reply, nor
 * allocate for elements it has not sent.
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

#define MAX_REPLY_BYTES ((size_t)4 << 20)
#define MAX_REPLY_ELEMENTS 65536
#define MAX_REPLY_DEPTH 7 /* hiredis 1.x has no limit, but frees a reply by recursion */
#define MAX_LINE_BYTES 65536
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
    while (
        (conn->state == CONN_READY || conn->state == CONN_HANDSHAKE || conn->state == CONN_TLS) &&
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

/* hiredis would allocate for as many elements as the server announces, and since 1.0 as deep as it
 * nests them. */
#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

struct capped_reader {
    redisReplyObjectFunctions functions; /* hiredis' own, but for the array */
    void *(*create_array)(const redisReadTask *task, element_count elements);
    bool refused; /* it was too big for us: hiredis reports that as out of memory */
};

static void *create_capped_array(const redisReadTask *task, element_count elements) {
    const redisReadTask *root = task;
    int depth = 1;
    for (; root->parent != NULL; root = root->parent)
        depth++;
    struct capped_reader *capped = root->privdata;
    capped->refused = elements > MAX_REPLY_ELEMENTS || depth > MAX_REPLY_DEPTH;
    if (capped->refused)
        return NULL;
    return capped->create_array(task, elements);
}

bool hfi_conn_new_reader(struct hfi_conn *conn) {
    if (conn->reader != NULL) {
        hfi_free(conn->target->mem, conn->reader->privdata);
        redisReaderFree(conn->reader);
    }
    conn->reply_bytes = 0;
    conn->reader = redisReaderCreate();
    if (conn->reader == NULL)
        return false;
    struct capped_reader *capped = hfi_zalloc(conn->target->mem, sizeof *capped);
    if (capped == NULL) {
        redisReaderFree(conn->reader);
        conn->reader = NULL;
        return false;
    }
    capped->functions = *conn->reader->fn;
    capped->create_array = capped->functions.createArray;
    capped->functions.createArray = create_capped_array;
    conn->reader->fn = &capped->functions;
    conn->reader->privdata = capped;
    return true;
}

/* A line without an end is searched again from its start whenever more arrives: not for
 * megabytes. */
static bool is_endless_line(const redisReader *reader) {
    return reader->len - reader->pos > MAX_LINE_BYTES &&
           memchr(reader->buf + reader->pos, '\n', MAX_LINE_BYTES) == NULL;
}

/* What the server sent cannot be read: the fault is the server's, or our memory's. */
static int fail_unread(struct hfi_conn *conn, hf_error *error) {
    const struct capped_reader *capped = conn->reader->privdata;
    if (capped->refused)
        return hfi_fail(error, HF_EPROTO, "a reply has too many elements, or too many levels");
    if (conn->reader->err == REDIS_ERR_OOM)
        return hfi_fail(error, HF_ENOMEM, "no memory for a reply");
    return hfi_fail(error, HF_EPROTO, "not a valid reply: %s", conn->reader->errstr);
}

/* Takes whole replies out of the reader and hands them on, many at a time: what came in one packet
 * wakes its waiters together. During the handshake a reply can change what the next one means, so
 * they go one by one. */
static int deliver_replies(struct hfi_conn *conn, hf_error *error) {
    redisReply *replies[DELIVER_MAX];
    size_t len, max = conn->state == CONN_HANDSHAKE ? 1 : DELIVER_MAX;
    do {
        int status = REDIS_OK;
        for (len = 0; len < max; len++) {
            void *reply = NULL;
            status = redisReaderGetReply(conn->reader, &reply);
            if (status != REDIS_OK || reply == NULL)
                break;
            replies[len] = reply;
            conn->reply_bytes = 0;
        }
        int err = len > 0 ? hfi_conn_deliver(conn, replies, len, error) : HF_OK;
        if (err != HF_OK)
            return err;
        if (status != REDIS_OK)
            return fail_unread(conn, error);
    } while (len == max);
    if (conn->reply_bytes > MAX_LINE_BYTES && is_endless_line(conn->reader))
        return hfi_fail(error, HF_EPROTO, "a line of a reply is longer than %d bytes",
                        MAX_LINE_BYTES);
    if (conn->reply_bytes > MAX_REPLY_BYTES)
        return hfi_fail(error, HF_EPROTO, "a reply is longer than %zu bytes", MAX_REPLY_BYTES);
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
    conn->reply_bytes += len;
    if (redisReaderFeed(conn->reader, bytes, len) != REDIS_OK)
        return hfi_fail(error, HF_ENOMEM, "no memory for a reply");
    return HF_OK;
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
        end_err = hfi_tls_read(conn->tls, conn->state == CONN_HANDSHAKE, chunk, size, &len, &end);
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
        err = deliver_replies(conn, error);
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
    if (conn->state == CONN_HANDSHAKE && chunk[0] == TLS_ALERT)
        return hfi_fail(error, HF_EPROTO, "the server speaks TLS; write rediss:// or valkeys://");
    err = feed_reader(conn, chunk, len, error);
    return err == HF_OK ? deliver_replies(conn, error) : err;
}

int hfi_conn_read_tls_handshake(struct hfi_conn *conn, hf_error *error) {
    char chunk[READ_CHUNK];
    size_t len;
    int err = receive(conn, chunk, sizeof chunk, &len, error);
    if (err != HF_OK || len == 0)
        return err;
    pthread_mutex_lock(&conn->mtx);
    conn->tls_answered = true;
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
