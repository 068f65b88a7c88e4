/*
 * RESP: the reader, and the protocol's table. The greeting is in resp_greet.c.
 *
 * hiredis' reader parses the messages, within bounds set here: a server cannot make us buffer more
 * than MAX_REPLY_BYTES for one reply, nor allocate for elements it has not sent. Messages of
 * integers only are parsed as they come (resp_numbers.c), as long as hiredis has no bytes before
 * them.
 *
 * The driver of its connection owns a reader; the table never changes.
 */
#include "net/resp/resp.h"

#include "base/error.h"

#include <hiredis/hiredis.h>
#include <string.h>

#define MAX_REPLY_BYTES ((size_t)4 << 20)
#define MAX_REPLY_ELEMENTS 65536
#define MAX_REPLY_DEPTH 7 /* hiredis 1.x has no limit, but frees a reply by recursion */
#define MAX_LINE_BYTES 65536
#define MAX_READY 64 /* one batch of receive.c */

/* hiredis would allocate for as many elements as the server announces, and since 1.0 as deep as
 * it nests them. */
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
    bool refused;       /* too big for us: hiredis reports that as out of memory */
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

/* The parser has no unread bytes. */
static bool is_idle(const redisReader *parser) {
    return parser->ridx == -1 && parser->pos == parser->len;
}

/* Parses messages of integers. Returns how many bytes they took. */
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
        return hfi_fail(error, HF_ENOMEM, "out of memory for a reply");
    return HF_OK;
}

/* The reply cannot be read: the server's fault, or out of memory. */
static int fail_unread(const struct reader *reader, hf_error *error) {
    if (reader->refused)
        return hfi_fail(error, HF_EPROTO, "a reply has too many elements or nesting levels");
    if (reader->parser->err == REDIS_ERR_OOM)
        return hfi_fail(error, HF_ENOMEM, "out of memory for a reply");
    return hfi_fail(error, HF_EPROTO, "not a valid reply: %s", reader->parser->errstr);
}

/* hiredis searches an unfinished line again from its start whenever more arrives: do not let it
 * for megabytes. */
static bool is_endless_line(const redisReader *parser) {
    return parser->len - parser->pos > MAX_LINE_BYTES &&
           memchr(parser->buf + parser->pos, '\n', MAX_LINE_BYTES) == NULL;
}

/* The reply is incomplete: is it still within bounds? */
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

static const char ping[] = "*1\r\n$4\r\nPING\r\n", time_query[] = "*1\r\n$4\r\nTIME\r\n";

#define RESP                                                                                       \
    .reader_new = reader_new, .reader_free = reader_free, .feed = feed, .next = next,              \
    .message_free = hfi_resp_free, .greet = hfi_resp_greet, .greeted = hfi_resp_greeted,           \
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
