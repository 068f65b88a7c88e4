/*
 * RESP: the reader, and the table. What is said first is in resp_greet.c.
 *
 * Messages are parsed by hiredis' reader, whose appetite is bounded here: a server cannot make us
 * hold more than MAX_REPLY_BYTES for one reply, nor allocate for elements it has not sent. Those of
 * integers alone are read as they come (resp_numbers.c), as long as hiredis has none before them.
 *
 * A reader belongs to the holder of its connection's seat; the table never changes.
 */
#include "net/resp.h"

#include "base/error.h"

#include <hiredis/hiredis.h>
#include <string.h>

#define MAX_REPLY_BYTES ((size_t)4 << 20)
#define MAX_REPLY_ELEMENTS 65536
#define MAX_REPLY_DEPTH 7 /* hiredis 1.x has no limit, but frees a reply by recursion */
#define MAX_LINE_BYTES 65536
#define MAX_READY 64 /* as many as are handed on at a time */

/* hiredis would allocate for as many elements as the server announces, and since 1.0 as deep as it
 * nests them. */
#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

struct reader {
    const struct hfi_mem *mem;
    redisReader *parser;
    redisReplyObjectFunctions functions; /* hiredis' own, but for the array */
    void *(*create_array)(const redisReadTask *task, element_count elements);
    bool refused;       /* it was too big for us: hiredis reports that as out of memory */
    size_t reply_bytes; /* fed since the last whole reply */
    /* whole messages that came before all that the parser has */
    void *ready[MAX_READY];
    size_t ready_first, ready_len;
};

static void *create_capped_array(const redisReadTask *task, element_count elements) {
    const redisReadTask *root = task;
    int depth = 1;
    for (; root->parent != NULL; root = root->parent)
        depth++;
    struct reader *reader = root->privdata;
    reader->refused = elements > MAX_REPLY_ELEMENTS || depth > MAX_REPLY_DEPTH;
    if (reader->refused)
        return NULL;
    return reader->create_array(task, elements);
}

static void reader_free(void *arg) {
    struct reader *reader = arg;
    while (reader->ready_first < reader->ready_len)
        hfi_resp_free(reader->ready[reader->ready_first++]);
    if (reader->parser != NULL)
        redisReaderFree(reader->parser);
    hfi_free(reader->mem, reader);
}

static void *reader_new(const struct hfi_mem *mem) {
    struct reader *reader = hfi_zalloc(mem, sizeof *reader);
    if (reader == NULL)
        return NULL;
    reader->mem = mem;
    reader->parser = redisReaderCreate();
    if (reader->parser == NULL) {
        reader_free(reader);
        return NULL;
    }
    reader->functions = *reader->parser->fn;
    reader->create_array = reader->functions.createArray;
    reader->functions.createArray = create_capped_array;
    reader->parser->fn = &reader->functions;
    reader->parser->privdata = reader;
    return reader;
}

/* All that the parser was given has been taken from it. */
static bool is_idle(const redisReader *parser) {
    return parser->ridx == -1 && parser->pos == parser->len;
}

/* Reads messages of integers. Returns how many bytes they were. */
static size_t take_numbers(struct reader *reader, const char *bytes, size_t len) {
    size_t used = 0, more = 0;
    if (reader->ready_first == reader->ready_len)
        reader->ready_first = reader->ready_len = 0;
    while (reader->ready_len < MAX_READY) {
        void *message = hfi_resp_numbers(bytes + used, len - used, &more);
        if (message == NULL)
            break;
        reader->ready[reader->ready_len++] = message;
        used += more;
    }
    return used;
}

static int feed(void *arg, const char *bytes, size_t len, hf_error *error) {
    struct reader *reader = arg;
    size_t used = is_idle(reader->parser) ? take_numbers(reader, bytes, len) : 0;
    bytes += used;
    len -= used;
    if (len == 0)
        return HF_OK;
    reader->reply_bytes += len;
    if (redisReaderFeed(reader->parser, bytes, len) != REDIS_OK)
        return hfi_fail(error, HF_ENOMEM, "no memory for a reply");
    return HF_OK;
}

/* What the server sent cannot be read: the fault is the server's, or our memory's. */
static int fail_unread(const struct reader *reader, hf_error *error) {
    if (reader->refused)
        return hfi_fail(error, HF_EPROTO, "a reply has too many elements, or too many levels");
    if (reader->parser->err == REDIS_ERR_OOM)
        return hfi_fail(error, HF_ENOMEM, "no memory for a reply");
    return hfi_fail(error, HF_EPROTO, "not a valid reply: %s", reader->parser->errstr);
}

/* A line without an end is searched again from its start whenever more arrives: not for
 * megabytes. */
static bool is_endless_line(const redisReader *parser) {
    return parser->len - parser->pos > MAX_LINE_BYTES &&
           memchr(parser->buf + parser->pos, '\n', MAX_LINE_BYTES) == NULL;
}

/* The reply has only begun: may it go on? */
static int check_length(const struct reader *reader, hf_error *error) {
    if (reader->reply_bytes > MAX_LINE_BYTES && is_endless_line(reader->parser))
        return hfi_fail(error, HF_EPROTO, "a line of a reply is longer than %d bytes",
                        MAX_LINE_BYTES);
    if (reader->reply_bytes > MAX_REPLY_BYTES)
        return hfi_fail(error, HF_EPROTO, "a reply is longer than %zu bytes", MAX_REPLY_BYTES);
    return HF_OK;
}

static int next(void *arg, void **ret_message, hf_error *error) {
    struct reader *reader = arg;
    *ret_message = NULL;
    if (reader->ready_first < reader->ready_len) {
        *ret_message = reader->ready[reader->ready_first++];
        return HF_OK;
    }
    if (is_idle(reader->parser))
        return HF_OK;
    if (redisReaderGetReply(reader->parser, ret_message) != REDIS_OK)
        return fail_unread(reader, error);
    if (*ret_message == NULL)
        return check_length(reader, error);
    reader->reply_bytes = 0;
    return HF_OK;
}

static const char ping[] = "*1\r\n$4\r\nPING\r\n";

#define RESP                                                                                       \
    .reader_new = reader_new, .reader_free = reader_free, .feed = feed, .next = next,              \
    .message_free = hfi_resp_free, .greet = hfi_resp_greet, .greeted = hfi_resp_greeted,           \
    .explain_end = hfi_resp_explain_end, .greeting_free = hfi_resp_greeting_free, .ping = ping,    \
    .ping_len = sizeof ping - 1

const struct hfi_protocol hfi_resp_sentinel = {
    RESP,
    .speaks_tls =
        "the sentinel speaks TLS; write rediss-sentinel://, or the option sentinel_tls=on",
    .may_want_tls = "the sentinel ended the connection without a word; does it want TLS "
                    "(rediss-sentinel://)?",
};

const struct hfi_protocol hfi_resp = {
    RESP,
    .speaks_tls = "the server speaks TLS; write rediss:// or valkeys://",
    .may_want_tls = "the server ended the connection without a word; does it want TLS (rediss://)?",
};
