/*
 * RESP: the reader, and the protocol's table. The greeting is in resp_greet.c, what a message is in
 * net/resp/wire.
 *
 * Whole messages are made straight from the bytes that came; only the rest of them is kept. A
 * server cannot make us keep more than HFI_REPLY_MAX_BYTES.
 *
 * The driver of its connection owns a reader; the table never changes.
 */
#include "net/resp/resp.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

#define MAX_READY 64    /* one batch of receive.c */
#define KEPT_ROOM 16384 /* more is given back when nothing is left in it */

struct reader {
    const struct hfi_mem *mem;
    /* whole messages that came before all that is kept */
    struct hfi_reply *ready[MAX_READY];
    size_t ready_first, ready_len;
    /* kept: bytes from `first` on, where a message begins that is scanned so far */
    char *bytes;
    size_t first, len, room;
    struct hfi_reply_scan scan;
};

static void drop_bytes(struct reader *reader) {
    reader->first = reader->len = 0;
    if (reader->room <= KEPT_ROOM)
        return;
    hfi_free(reader->mem, reader->bytes);
    reader->bytes = NULL;
    reader->room = 0;
}

static void reader_free(void *arg) {
    struct reader *reader = arg;
    while (reader->ready_first < reader->ready_len)
        free(reader->ready[reader->ready_first++]);
    hfi_free(reader->mem, reader->bytes);
    hfi_free(reader->mem, reader);
}

static void *reader_new(const struct hfi_mem *mem) {
    struct reader *reader = hfi_zalloc(mem, sizeof *reader);
    if (reader != NULL)
        reader->mem = mem;
    return reader;
}

static void message_free(void *message) {
    free(message);
}

/* *ret_message NULL: it is not whole yet. `bytes` begin where the message does. */
static int read_message(struct reader *reader, const char *bytes, size_t len,
                        struct hfi_reply **ret_message, hf_error *error) {
    struct hfi_reply_scan *scan = &reader->scan;
    *ret_message = NULL;
    switch (hfi_reply_scan(scan, bytes, len)) {
    case HFI_SCAN_PARTIAL:
        if (len > HFI_REPLY_MAX_BYTES)
            return hfi_fail(error, HF_EPROTO, "a reply is longer than %zu bytes",
                            HFI_REPLY_MAX_BYTES);
        return HF_OK;
    case HFI_SCAN_WHOLE:
        *ret_message = hfi_reply_make(scan, bytes);
        return *ret_message != NULL ? HF_OK
                                    : hfi_fail(error, HF_ENOMEM, "out of memory for a reply");
    case HFI_SCAN_TOO_MANY:
        return hfi_fail(error, HF_EPROTO, "a reply has too many elements or nesting levels");
    default:
        hfi_fail(error, HF_EPROTO, "not a valid reply: %s", scan->why);
        if (scan->mark != '\0') {
            hfi_error_quote(error, " (", 2);
            hfi_error_quote(error, &scan->mark, 1);
            hfi_error_quote(error, ")", 1);
        }
        return HF_EPROTO;
    }
}

static void begin_next(struct reader *reader) {
    memset(&reader->scan, 0, sizeof reader->scan);
}

/* Makes whole messages from bytes that just came, with none kept. Returns how many they took; what
 * is wrong with the rest is found again when it is read. */
static size_t take_whole(struct reader *reader, const char *bytes, size_t len) {
    size_t used = 0;
    hf_error ignored;
    if (reader->ready_first == reader->ready_len)
        reader->ready_first = reader->ready_len = 0;
    while (used < len && reader->ready_len < MAX_READY) {
        size_t short_len;
        struct hfi_reply *message = hfi_reply_make_short(bytes + used, len - used, &short_len);
        if (message != NULL) {
            reader->ready[reader->ready_len++] = message;
            used += short_len;
            continue;
        }
        if (read_message(reader, bytes + used, len - used, &message, &ignored) != HF_OK)
            begin_next(reader);
        if (message == NULL)
            break;
        reader->ready[reader->ready_len++] = message;
        used += reader->scan.pos;
        begin_next(reader);
    }
    return used;
}

static bool make_room(struct reader *reader, size_t more) {
    if (reader->first > 0) {
        memmove(reader->bytes, reader->bytes + reader->first, reader->len - reader->first);
        reader->len -= reader->first;
        reader->first = 0;
    }
    if (more <= reader->room - reader->len)
        return true;
    size_t room = reader->room < 1024 ? 1024 : reader->room;
    while (room - reader->len < more)
        room *= 2;
    char *grown = hfi_realloc(reader->mem, reader->bytes, room);
    if (grown == NULL)
        return false;
    reader->bytes = grown;
    reader->room = room;
    return true;
}

static int feed(void *arg, const char *bytes, size_t len, hf_error *error) {
    struct reader *reader = arg;
    size_t used = reader->first == reader->len ? take_whole(reader, bytes, len) : 0;
    if (used == len)
        return HF_OK;
    if (!make_room(reader, len - used))
        return hfi_fail(error, HF_ENOMEM, "out of memory for a reply");
    memcpy(reader->bytes + reader->len, bytes + used, len - used);
    reader->len += len - used;
    return HF_OK;
}

static int next(void *arg, void **ret_message, hf_error *error) {
    struct reader *reader = arg;
    struct hfi_reply *message = NULL;
    *ret_message = NULL;
    if (reader->ready_first < reader->ready_len) {
        *ret_message = reader->ready[reader->ready_first++];
        return HF_OK;
    }
    if (reader->first == reader->len)
        return HF_OK;
    int err = read_message(reader, reader->bytes + reader->first, reader->len - reader->first,
                           &message, error);
    if (message != NULL) {
        reader->first += reader->scan.pos;
        begin_next(reader);
        if (reader->first == reader->len)
            drop_bytes(reader);
    }
    *ret_message = message;
    return err;
}

static const char ping[] = "*1\r\n$4\r\nPING\r\n", time_query[] = "*1\r\n$4\r\nTIME\r\n";

#define RESP                                                                                       \
    .reader_new = reader_new, .reader_free = reader_free, .feed = feed, .next = next,              \
    .message_free = message_free, .greet = hfi_resp_greet, .greeted = hfi_resp_greeted,            \
    .explain_end = hfi_resp_explain_end, .greeting_free = hfi_resp_greeting_free, .ping = ping,    \
    .ping_len = sizeof ping - 1

const struct hfi_protocol hfi_resp_sentinel = {
    RESP,
    .speaks_tls = "the sentinel speaks TLS; use rediss-sentinel://, or the option sentinel_tls=on",
    .may_want_tls = "the sentinel closed the connection without a reply; does it require TLS "
                    "(rediss-sentinel://)?",
};

const struct hfi_protocol hfi_resp = {
    RESP,
    .query = time_query,
    .query_len = sizeof time_query - 1,
    .queried = hfi_resp_queried,
    .speaks_tls = "the server speaks TLS; use rediss:// or valkeys://",
    .may_want_tls = "the server closed the connection without a reply; does it require TLS "
                    "(rediss://)?",
};
