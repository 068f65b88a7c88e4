/*
 * Answers of integers alone are read apart from all others. Whatever comes, cut anywhere, the reader
 * gives what hiredis by itself would give.
 */
#include "net/resp/resp.h"
#include "support/case.h"

#include <hiredis/hiredis.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A message as text, so that two can be compared. */
static void describe(const redisReply *reply, char *to, size_t size) {
    size_t len = strlen(to);
    snprintf(to + len, size - len, "%d(%lld,%zu,%.*s", reply->type, reply->integer, reply->elements,
             reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_ERROR ||
                     reply->type == REDIS_REPLY_STATUS
                 ? (int)reply->len
                 : 0,
             reply->str != NULL ? reply->str : "");
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
        describe(reply->element[i], to, size);
    len = strlen(to);
    snprintf(to + len, size - len, ")");
}

static void by_hiredis(const char *bytes, size_t len, char *to, size_t size) {
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    int err = REDIS_OK;
    assert_int_equal(redisReaderFeed(reader, bytes, len), REDIS_OK);
    while ((err = redisReaderGetReply(reader, &reply)) == REDIS_OK && reply != NULL) {
        describe(reply, to, size);
        freeReplyObject(reply);
        reply = NULL;
    }
    if (err != REDIS_OK)
        strncat(to, "error", size - strlen(to) - 1);
    redisReaderFree(reader);
}

static int take_all(void *reader, char *to, size_t size) {
    void *message = NULL;
    int err;
    hf_error error;
    while ((err = hfi_resp.next(reader, &message, &error)) == HF_OK && message != NULL) {
        describe(message, to, size);
        hfi_resp.message_free(message);
    }
    return err;
}

/* In pieces of `piece` bytes, taking what is whole after each; or only at the end. */
static void by_ours(const char *bytes, size_t len, size_t piece, bool at_once, char *to,
                    size_t size) {
    const struct hfi_mem mem = {.spares = NULL};
    void *reader = hfi_resp.reader_new(&mem);
    int err = HF_OK;
    hf_error error;
    for (size_t at = 0; at < len && err == HF_OK; at += piece) {
        size_t more = len - at < piece ? len - at : piece;
        assert_int_equal(hfi_resp.feed(reader, bytes + at, more, &error), HF_OK);
        if (!at_once)
            err = take_all(reader, to, size);
    }
    if (at_once)
        err = take_all(reader, to, size);
    if (err != HF_OK)
        strncat(to, "error", size - strlen(to) - 1);
    hfi_resp.reader_free(reader);
}

static const char *const streams[] = {
    ":1\r\n",
    ":-1\r\n:0\r\n",
    ":999999999999999999\r\n",
    ":9223372036854775807\r\n",
    ":-9223372036854775808\r\n",
    ":9223372036854775808\r\n",
    ":007\r\n",
    ":-0\r\n",
    ":+5\r\n",
    ":\r\n",
    ":-\r\n",
    ":1x\r\n",
    ":1\n",
    ":1\r",
    "*3\r\n:1\r\n:-7\r\n:1763330000123\r\n",
    "*3\r\n:1\r\n:1\r\n:1763330000123\r\n*3\r\n:0\r\n:29999\r\n:1763330000124\r\n",
    "*0\r\n:1\r\n",
    "*-1\r\n:1\r\n",
    "*1\r\n:5\r\n+OK\r\n:6\r\n",
    "+OK\r\n*2\r\n:1\r\n:2\r\n",
    "-NOSCRIPT no\r\n:1\r\n:2\r\n",
    "*2\r\n:1\r\n$2\r\nab\r\n:3\r\n",
    "*2\r\n*1\r\n:1\r\n:2\r\n",
    "$-1\r\n:4\r\n",
    "$4\r\n:1\r\n\r\n:2\r\n",
    "*8\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n",
    "*9\r\n:1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n:10\r\n",
    "*01\r\n:1\r\n",
    "*2\r\n:1\r\n",
    "?\r\n",
    ":1\r\n?\r\n",
};

CASE(every_stream_is_read_as_hiredis_reads_it) {
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        size_t len = strlen(streams[i]);
        char expected[1024] = "";
        by_hiredis(streams[i], len, expected, sizeof expected);
        for (size_t piece = 1; piece <= len; piece++) {
            char found[1024] = "";
            by_ours(streams[i], len, piece, false, found, sizeof found);
            assert_string_equal(found, expected);
            found[0] = '\0';
            by_ours(streams[i], len, piece, true, found, sizeof found);
            assert_string_equal(found, expected);
        }
    }
}

/* More than are kept at a time, in one go, and what is left over is freed with the reader. */
CASE(many_are_read_in_order) {
    const struct hfi_mem mem = {.spares = NULL};
    char bytes[4096];
    size_t len = 0;
    hf_error error;
    for (int i = 0; i < 200; i++)
        len += (size_t)snprintf(bytes + len, sizeof bytes - len,
                                i % 7 == 0 ? "*1\r\n:%d\r\n" : ":%d\r\n", i);
    for (int taken = 0; taken <= 200; taken += 40) {
        void *reader = hfi_resp.reader_new(&mem);
        assert_int_equal(hfi_resp.feed(reader, bytes, len, &error), HF_OK);
        for (int i = 0; i < taken; i++) {
            void *message = NULL;
            assert_int_equal(hfi_resp.next(reader, &message, &error), HF_OK);
            const redisReply *reply = message;
            assert_non_null(reply);
            assert_int_equal((reply->elements > 0 ? reply->element[0] : reply)->integer, i);
            hfi_resp.message_free(message);
        }
        hfi_resp.reader_free(reader);
    }
}

RUN_CASES(NULL, NULL)
