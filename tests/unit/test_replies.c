/*
 * The reader of replies, beside hiredis': whatever comes, cut anywhere, both find the same
 * messages. Ours may be stricter, and refuse what hiredis reads; it never reads what hiredis
 * refuses. And what a server may not do is refused without memory for it.
 */
#include "base/error.h"
#include "net/resp/resp.h"
#include "support/case.h"
#include "support/memory.h"
#include "support/random.h"

#include <hiredis/hiredis.h>

/* Messages as text, so that two readers can be compared. */
#define DESCRIBE(name, reply_type)                                                                 \
    static void name(const reply_type *reply, char *to, size_t size) {                             \
        size_t len = strlen(to);                                                                   \
        bool text = reply->type == HFI_REPLY_STRING || reply->type == HFI_REPLY_ERROR ||           \
                    reply->type == HFI_REPLY_STATUS;                                               \
        snprintf(to + len, size - len, "%d(%lld,%zu,%.*s", (int)reply->type,                       \
                 (long long)reply->integer, reply->elements, text ? (int)reply->len : 0,           \
                 text ? reply->str : "");                                                          \
        for (size_t i = 0; reply->type == HFI_REPLY_ARRAY && i < reply->elements; i++)             \
            name(reply->element[i], to, size);                                                     \
        len = strlen(to);                                                                          \
        snprintf(to + len, size - len, ")");                                                       \
    }
DESCRIBE(describe_theirs, redisReply)
DESCRIBE(describe_ours, struct hfi_reply)

static void by_hiredis(const char *bytes, size_t len, char *to, size_t size) {
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;
    int err = REDIS_OK;
    assert_int_equal(redisReaderFeed(reader, bytes, len), REDIS_OK);
    while ((err = redisReaderGetReply(reader, &reply)) == REDIS_OK && reply != NULL) {
        describe_theirs(reply, to, size);
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
        describe_ours(message, to, size);
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

/* The same; or up to where ours has refused the rest. */
static bool agree(const char *ours, const char *theirs) {
    size_t len = strlen(ours);
    bool error = len >= 5 && strcmp(ours + len - 5, "error") == 0;
    return strcmp(ours, theirs) == 0 || (error && strncmp(ours, theirs, len - 5) == 0);
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
    "$0\r\n\r\n",
    "$3\r\na\r\n\r\n",
    "$3\r\n\0\0\0\r\n",
    "$-2\r\n",
    "*-2\r\n",
    "$\r\n",
    "*\r\n",
    "$1x\r\na\r\n",
    "*2\r\n$-1\r\n*-1\r\n",
    "*2\r\n*0\r\n*0\r\n",
    "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    "+\r\n-\r\n",
    "\r\n",
    "\n",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
};

CASE(every_stream_is_read_as_hiredis_reads_it) {
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        size_t len = strlen(streams[i]);
        char expected[1024] = "";
        by_hiredis(streams[i], len, expected, sizeof expected);
        for (size_t piece = 1; piece <= len; piece++) {
            char found[1024] = "";
            by_ours(streams[i], len, piece, false, found, sizeof found);
            assert_true(agree(found, expected));
            found[0] = '\0';
            by_ours(streams[i], len, piece, true, found, sizeof found);
            assert_true(agree(found, expected));
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
            const struct hfi_reply *reply = message;
            assert_non_null(reply);
            assert_int_equal((reply->elements > 0 ? reply->element[0] : reply)->integer, i);
            hfi_resp.message_free(message);
        }
        hfi_resp.reader_free(reader);
    }
}

/* ---- At random ---- */

struct bytes {
    char at[512];
    size_t len;
};

static void put(struct bytes *bytes, const char *text, size_t len) {
    if (len > sizeof bytes->at - bytes->len)
        len = sizeof bytes->at - bytes->len;
    memcpy(bytes->at + bytes->len, text, len);
    bytes->len += len;
}

static void put_line(struct bytes *bytes, char mark, long long number) {
    char line[32];
    put(bytes, line, (size_t)snprintf(line, sizeof line, "%c%lld\r\n", mark, number));
}

static void put_message(struct bytes *bytes, uint64_t *seed, int depth) {
    static const char text[] = "abc\0OK 012-+:$*";
    size_t len = random_next(seed) % sizeof text;
    switch (random_next(seed) % (depth < 4 ? 6 : 4)) {
    case 0:
        put_line(bytes, ':', (long long)random_next(seed) >> random_next(seed) % 64);
        break;
    case 1:
        put_line(bytes, '$', (long long)len);
        put(bytes, text, len);
        put(bytes, "\r\n", 2);
        break;
    case 2:
        if (random_next(seed) % 2 == 0)
            put(bytes, "+OK\r\n", 5);
        else
            put(bytes, "-ERR no\r\n", 9);
        break;
    case 3:
        put_line(bytes, random_next(seed) % 2 == 0 ? '$' : '*', -1);
        break;
    default:
        len = random_next(seed) % 5;
        put_line(bytes, '*', (long long)len);
        for (size_t i = 0; i < len; i++)
            put_message(bytes, seed, depth + 1);
    }
}

/* What hiredis takes for a later version of the protocol is not used. */
static void mangle(struct bytes *bytes, uint64_t *seed) {
    static const char marks[] = "+-:$*0123456789\r\nx";
    for (uint64_t i = random_next(seed) % 4; i > 0 && bytes->len > 0; i--)
        bytes->at[random_next(seed) % bytes->len] = marks[random_next(seed) % (sizeof marks - 1)];
    if (random_next(seed) % 4 == 0)
        bytes->len = random_next(seed) % (bytes->len + 1);
}

/* hiredis allocates for as many elements as are announced. */
static bool announces_too_much(const struct bytes *bytes) {
    size_t digits = 0;
    bool array = false;
    for (size_t i = 0; i < bytes->len && digits <= 5; i++) {
        bool digit = bytes->at[i] >= '0' && bytes->at[i] <= '9';
        array = bytes->at[i] == '*' || (array && digit);
        digits = array && digit ? digits + 1 : 0;
    }
    return digits > 5;
}

CASE(whatever_comes_is_read_as_hiredis_reads_it_or_refused) {
    uint64_t seed = random_seed();
    int rounds = getenv("HF_SOAK") != NULL ? 3000000 : 20000, same = 0, refused = 0;
    static char theirs[65536], ours[65536], again[65536];
    for (int i = 0; i < rounds; i++) {
        struct bytes bytes = {.len = 0};
        for (uint64_t k = random_next(&seed) % 4; k > 0; k--)
            put_message(&bytes, &seed, 0);
        if (i % 2 == 0)
            mangle(&bytes, &seed);
        if (announces_too_much(&bytes))
            continue;
        theirs[0] = ours[0] = again[0] = '\0';
        by_hiredis(bytes.at, bytes.len, theirs, sizeof theirs);
        by_ours(bytes.at, bytes.len, bytes.len + 1, true, ours, sizeof ours);
        by_ours(bytes.at, bytes.len, 1 + random_next(&seed) % 9, false, again, sizeof again);
        assert_string_equal(again, ours); /* however it was cut */
        same += strcmp(ours, theirs) == 0;
        refused += strstr(ours, "error") != NULL;
        if (!agree(ours, theirs))
            fail_msg("%.*s\nis read as %s\nand not as %s", (int)bytes.len, bytes.at, ours, theirs);
    }
    assert_true(same > rounds / 2 && refused > 0);
}

/* ---- Bounds ---- */

struct bound {
    const char *name;
    const char *begin, *more; /* `more` is sent again and again */
};
static const struct bound bounds[] = {
    {"long_line", "+", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
    {"huge_string", "$4194305\r\n", "aaaaaaaaaaaaaaaa"},
    {"impossible_string", "$9223372036854775807\r\n", "a"},
    {"huge_array", "*65537\r\n", ":1\r\n"},
    {"impossible_array", "*9223372036854775807\r\n", ":1\r\n"},
    {"deep", "", "*1\r\n"},
    {"many_large_arrays", "*65536\r\n", "*65536\r\n"},
    {"endless", "*65536\r\n",
     "$60\r\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"},
};

/* Refused before more than twice the bound is kept. */
ROW_CASES(a_server_cannot_fill_our_memory, row, bounds) {
    struct memory memory;
    memset(&memory, 0, sizeof memory);
    const struct hfi_mem mem = {.hook = memory_allocator(&memory)};
    void *reader = hfi_resp.reader_new(&mem), *message = NULL;
    hf_error error;
    int err = hfi_resp.feed(reader, row->begin, strlen(row->begin), &error);
    for (int i = 0; i < 200000 && err == HF_OK && message == NULL; i++) {
        err = hfi_resp.feed(reader, row->more, strlen(row->more), &error);
        assert_true(atomic_load(&memory.bytes) <= (long)(4 * HFI_REPLY_MAX_BYTES));
        if (err == HF_OK)
            err = hfi_resp.next(reader, &message, &error);
    }
    assert_int_equal(err, HF_EPROTO);
    hfi_resp.reader_free(reader);
    assert_int_equal(atomic_load(&memory.live), 0);
}

/* The largest that is allowed, in small pieces, is read in a time that grows with its length. */
CASE(the_longest_reply_is_read) {
    const struct hfi_mem mem = {.spares = NULL};
    void *reader = hfi_resp.reader_new(&mem), *message = NULL;
    size_t len = HFI_REPLY_MAX_BYTES - 64;
    char head[32], piece[1000];
    hf_error error;
    int head_len = snprintf(head, sizeof head, "$%zu\r\n", len);
    memset(piece, 'a', sizeof piece);
    assert_int_equal(hfi_resp.feed(reader, head, (size_t)head_len, &error), HF_OK);
    for (size_t left = len; left > 0;) {
        size_t more = left < sizeof piece ? left : sizeof piece;
        assert_int_equal(hfi_resp.feed(reader, piece, more, &error), HF_OK);
        assert_int_equal(hfi_resp.next(reader, &message, &error), HF_OK);
        assert_null(message);
        left -= more;
    }
    assert_int_equal(hfi_resp.feed(reader, "\r\n:7\r\n", 6, &error), HF_OK);
    assert_int_equal(hfi_resp.next(reader, &message, &error), HF_OK);
    assert_non_null(message);
    assert_int_equal(((struct hfi_reply *)message)->len, len);
    hfi_resp.message_free(message);
    assert_int_equal(hfi_resp.next(reader, &message, &error), HF_OK);
    assert_int_equal(((struct hfi_reply *)message)->integer, 7);
    hfi_resp.message_free(message);
    hfi_resp.reader_free(reader);
}

/* What is wrong is named, and what is not printable replaced. */
CASE(what_is_wrong_is_named) {
    const struct hfi_mem mem = {.spares = NULL};
    void *reader = hfi_resp.reader_new(&mem), *message;
    hf_error error;
    hfi_error_clear(&error);
    assert_int_equal(hfi_resp.feed(reader, "HTTP/1.1 400\r\n", 14, &error), HF_OK);
    assert_int_equal(hfi_resp.next(reader, &message, &error), HF_EPROTO);
    assert_string_equal(error.text, "not a valid reply: an unknown kind of reply (H)");
    hfi_resp.reader_free(reader);
}

RUN_CASES(NULL, NULL)
