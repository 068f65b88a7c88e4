/*
 * ZooKeeper's wire protocol for a connection (net/protocol.h): frames, handshake, pushed messages.
 *
 * Runs on the keeper's thread, which drives the connection; only message_free() may run on any
 * thread. The reader records the latest zxid of a reply before a caller can act on that reply. A
 * server that lags behind this zxid must not be asked.
 */
#include "base/clock.h"
#include "base/error.h"
#include "zk/session/session_impl.h"

#include <string.h>

#define HEADER_LEN 16

/* ---- Reading ---- */

struct reader {
    const struct hfi_mem *mem;
    char *bytes;
    size_t at, len, cap; /* unread: from `at` to `len` */
    bool greeted;        /* the handshake's reply, which has no header, was read */
    size_t to_skip;      /* bytes of a message that is too long */
};

static void *reader_new(const struct hfi_mem *mem) {
    struct reader *reader = hfi_zalloc(mem, sizeof *reader);
    if (reader != NULL)
        reader->mem = mem;
    return reader;
}

static void reader_free(void *arg) {
    struct reader *reader = arg;
    hfi_free(reader->mem, reader->bytes);
    hfi_free(reader->mem, reader);
}

/* The buffer is bounded: `next` refuses a frame that is too long before more of it is fed. */
static int feed(void *arg, const char *bytes, size_t len, hf_error *error) {
    struct reader *reader = arg;
    if (reader->at > 0) {
        memmove(reader->bytes, reader->bytes + reader->at, reader->len - reader->at);
        reader->len -= reader->at;
        reader->at = 0;
    }
    if (reader->cap - reader->len < len) {
        size_t cap = reader->cap > 0 ? reader->cap : 4096;
        while (cap - reader->len < len)
            cap *= 2;
        char *more = hfi_realloc(reader->mem, reader->bytes, cap);
        if (more == NULL)
            return hfi_fail(error, HF_ENOMEM, "out of memory for a reply");
        reader->bytes = more;
        reader->cap = cap;
    }
    memcpy(reader->bytes + reader->len, bytes, len);
    reader->len += len;
    return HF_OK;
}

/* The connection's allocator is the session's `mem` member (session_impl.h). */
static struct hfi_zk_session *session_of(const struct reader *reader) {
    char *mem = (char *)(uintptr_t)reader->mem;
    return HFI_CONTAINER(mem, struct hfi_zk_session, mem);
}

static void note_zxid(const struct reader *reader, const struct hfi_zk_message *message) {
    struct hfi_zk_in in = hfi_zk_in(message->bytes, message->len);
    struct hfi_zk_header header;
    if (hfi_zk_get_header(&in, &header) == HF_OK)
        hfi_zk_session_saw(session_of(reader), header.zxid);
}

/* The next `len` bytes behind the length. */
static struct hfi_zk_message *take_message(struct reader *reader, size_t len, hf_error *error) {
    struct hfi_zk_message *message = hfi_alloc(reader->mem, sizeof *message + len);
    if (message == NULL) {
        hfi_fail(error, HF_ENOMEM, "out of memory for a reply");
        return NULL;
    }
    message->mem = reader->mem;
    message->len = len;
    memcpy(message->bytes, reader->bytes + reader->at + 4, len);
    reader->at += 4 + len;
    if (reader->greeted)
        note_zxid(reader, message);
    reader->greeted = true;
    return message;
}

/* False: incomplete, more bytes have to come. */
static bool skip(struct reader *reader) {
    size_t have = reader->len - reader->at;
    size_t skipped = have < reader->to_skip ? have : reader->to_skip;
    reader->at += skipped;
    reader->to_skip -= skipped;
    return reader->to_skip == 0;
}

/* Of a message that is too long, only the header is delivered, with an error code of our own. The
 * call that asked fails, and the connection, which other calls use, stays. */
static int next_of_long(struct reader *reader, size_t len, void **ret_message, hf_error *error) {
    if (reader->len - reader->at < 4 + HEADER_LEN)
        return HF_OK;
    struct hfi_zk_message *message = take_message(reader, HEADER_LEN, error);
    if (message == NULL)
        return HF_ENOMEM;
    for (int i = 0; i < 4; i++)
        message->bytes[HEADER_LEN - 4 + i] =
            (unsigned char)((uint32_t)HFI_ZK_TOO_LONG >> (24 - 8 * i));
    reader->to_skip = len - HEADER_LEN;
    *ret_message = message;
    return HF_OK;
}

static int next(void *arg, void **ret_message, hf_error *error) {
    struct reader *reader = arg;
    size_t len;
    *ret_message = NULL;
    if (!skip(reader) || reader->len == reader->at)
        return HF_OK;
    if (reader->greeted &&
        hfi_zk_frame_is_long(reader->bytes + reader->at, reader->len - reader->at, &len))
        return next_of_long(reader, len, ret_message, error);
    if (hfi_zk_frame_len(reader->bytes + reader->at, reader->len - reader->at, &len) != HF_OK)
        return hfi_fail(error, HF_EPROTO, "not a ZooKeeper reply");
    if (len == SIZE_MAX)
        return HF_OK;
    if (reader->greeted && len < HEADER_LEN)
        return hfi_fail(error, HF_EPROTO, "a ZooKeeper reply is too short");
    *ret_message = take_message(reader, len, error);
    return *ret_message != NULL ? HF_OK : HF_ENOMEM;
}

static void message_free(void *arg) {
    struct hfi_zk_message *message = arg;
    hfi_free(message->mem, message);
}

/* Watch events, and replies to requests without an xid of their own. */
static bool is_push(const void *arg) {
    const struct hfi_zk_message *message = arg;
    return (message->bytes[0] & 0x80) != 0;
}

/* ---- The handshake ---- */

struct greeting {
    struct hfi_zk_session *session;
    struct hfi_conn *conn;
    int64_t sent_ms;
    bool connected; /* the session is open; authentication comes next */
};

static int say(struct greeting *greeting, struct hfi_zk_out *out, hf_error *error) {
    bool ok = !out->failed && hfi_conn_send_greeting(greeting->conn, out->bytes, out->len);
    hfi_zk_out_clear(out);
    return ok ? HF_OK : hfi_fail(error, HF_ENOMEM, "out of memory");
}

static int greet(struct hfi_conn *conn, void **ret_greeting, hf_error *error) {
    struct hfi_zk_session *session = hfi_conn_target(conn)->login;
    struct greeting *greeting = hfi_zalloc(&session->mem, sizeof *greeting);
    if (greeting == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    *ret_greeting = greeting;
    greeting->session = session;
    greeting->conn = conn;
    greeting->sent_ms = hfi_now_ms();
    struct hfi_zk_out out;
    struct hfi_zk_connect connect = {0};
    hfi_zk_session_greet(session, &connect);
    hfi_zk_out_init(&out, &session->mem);
    hfi_zk_put_connect(&out, &connect);
    return say(greeting, &out, error);
}

static int authenticate(struct greeting *greeting, hf_error *error) {
    const char *secret = greeting->session->secret;
    struct hfi_zk_out out;
    hfi_zk_out_init(&out, &greeting->session->mem);
    hfi_zk_put_auth(&out, "digest", secret, strlen(secret));
    return say(greeting, &out, error);
}

static int connected(struct greeting *greeting, struct hfi_zk_in in, bool *ret_done,
                     hf_error *error) {
    struct hfi_zk_connected connected;
    if (hfi_zk_get_connected(&in, &connected) != HF_OK)
        return hfi_fail(error, HF_EPROTO, "not a reply to a ZooKeeper handshake");
    int err = hfi_zk_session_greeted(greeting->session, greeting->sent_ms, &connected, error);
    if (err != HF_OK)
        return err;
    greeting->connected = true;
    *ret_done = greeting->session->secret == NULL;
    return *ret_done ? HF_OK : authenticate(greeting, error);
}

static int greeted(void *arg, const void *answer, bool *ret_done, hf_error *error) {
    struct greeting *greeting = arg;
    const struct hfi_zk_message *message = answer;
    struct hfi_zk_in in = hfi_zk_in(message->bytes, message->len);
    if (!greeting->connected)
        return connected(greeting, in, ret_done, error);
    struct hfi_zk_header header;
    enum hfi_zk_remedy remedy;
    if (hfi_zk_get_header(&in, &header) != HF_OK || header.xid != HFI_ZK_XID_AUTH)
        return hfi_fail(error, HF_EPROTO, "ZooKeeper sent an unexpected reply");
    *ret_done = true;
    return header.err == 0 ? HF_OK : hfi_zk_error(header.err, error, &remedy);
}

static bool explain_end(const void *arg, hf_error *error) {
    const struct greeting *greeting = arg;
    if (!greeting->connected)
        return false;
    hfi_fail(error, HF_EPERM, "the server closed the connection after the login");
    return true;
}

static void greeting_free(void *arg) {
    struct greeting *greeting = arg;
    hfi_free(&greeting->session->mem, greeting);
}

static const char ping[] = "\0\0\0\x08\xff\xff\xff\xfe\0\0\0\x0b";

const struct hfi_protocol hfi_zk_protocol = {
    .reader_new = reader_new,
    .reader_free = reader_free,
    .feed = feed,
    .next = next,
    .message_free = message_free,
    .is_push = is_push,
    .greet = greet,
    .greeted = greeted,
    .explain_end = explain_end,
    .greeting_free = greeting_free,
    .ping = ping,
    .ping_len = sizeof ping - 1,
    .speaks_tls = "the server speaks TLS: use zks://",
    .may_want_tls = "the server closed the connection without a reply; does it require TLS "
                    "(zks://)?",
};
