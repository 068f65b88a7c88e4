/*
 * What no server of ZooKeeper says: its answers cut off at each byte, with each byte changed, with lengths
 * that lie, and mixed at random. Whatever comes is read within its frame, or refused.
 *
 * The fuzzing prints its seed; HF_SEED plays it again.
 */
#include "support/case.h"
#include "support/random.h"
#include "support/wait.h"
#include "unit/zk_frames.h"
#include "zk/session/session_impl.h"

#define STAT_OF_PARENT                                                                                \
    "00000000000000020000000000000002000001a1e57faf99000001a1e57faf990000000000000001000000000000000" \
    "000000000000000000000000000000001"

/* ---- What no server says --------------------------------------------------------------------- */

static void look_at(struct hfi_zk_text text, const unsigned char *bytes, size_t len) {
    if (text.len == 0)
        return;
    const unsigned char *at = (const unsigned char *)text.bytes;
    assert_true(at >= bytes && text.len <= len && at + text.len <= bytes + len);
}

static int read_children(struct hfi_zk_in *in, const unsigned char *bytes, size_t len) {
    struct hfi_zk_children list;
    struct hfi_zk_text name;
    size_t seen = 0;
    int err = hfi_zk_get_children(in, &list);
    for (; err == HF_OK && hfi_zk_next_child(&list, &name); seen++)
        look_at(name, bytes, len);
    assert_true(err != HF_OK || seen == list.len);
    return err;
}

static int read_results(struct hfi_zk_in *in, const unsigned char *bytes, size_t len) {
    struct hfi_zk_results results;
    struct hfi_zk_result result;
    size_t seen = 0;
    int err = hfi_zk_get_results(in, &results);
    for (; err == HF_OK && hfi_zk_next_result(&results, &result); seen++) {
        look_at(result.path, bytes, len);
        assert_true(result.op != -1 || results.err != 0); /* refused is never taken for done */
    }
    assert_true(err != HF_OK ||
                (seen == results.len && (seen == 0 || results.failed_index < seen)));
    return err;
}

/* Reads a message as one of that kind, and looks at all that it gives. */
static int read_as(enum zk_frame_kind kind, const unsigned char *bytes, size_t len) {
    struct hfi_zk_in in = hfi_zk_in(bytes, len);
    struct hfi_zk_connected greeting;
    struct hfi_zk_header header;
    struct hfi_zk_text text = {0};
    struct hfi_zk_stat found;
    struct hfi_zk_event seen = {0};
    if (kind == ZK_CONNECTED)
        return hfi_zk_get_connected(&in, &greeting);
    int err = hfi_zk_get_header(&in, &header);
    if (err != HF_OK || kind == ZK_HEADER)
        return err;
    switch (kind) {
    case ZK_STAT:
        return hfi_zk_get_stat(&in, &found);
    case ZK_CREATED:
        err = hfi_zk_get_created(&in, &text, &found);
        break;
    case ZK_DATA:
        err = hfi_zk_get_data(&in, &text, &found);
        break;
    case ZK_EVENT:
        err = hfi_zk_get_event(&in, &seen);
        text = seen.path;
        break;
    case ZK_CHILDREN:
        return read_children(&in, bytes, len);
    default:
        return read_results(&in, bytes, len);
    }
    look_at(text, bytes, len);
    return err;
}

CASE(cut_off_anywhere) {
    for (size_t i = 0; i < ZK_FRAMES; i++) {
        size_t len;
        unsigned char *whole = zk_from_hex(zk_frames[i].hex, &len);
        assert_int_equal(read_as(zk_frames[i].kind, whole, len), HF_OK);
        for (size_t cut = 0; cut < len; cut++) {
            unsigned char *part = malloc(cut > 0 ? cut : 1);
            memcpy(part, whole, cut);
            bool tells_all = zk_frames[i].kind == ZK_CONNECTED && cut == len - 1;
            assert_int_equal(read_as(zk_frames[i].kind, part, cut), tells_all ? HF_OK : HF_EPROTO);
            free(part);
        }
        free(whole);
    }
}

/* Each byte as each other byte, read as every kind of message: it may be taken for something else, but
 * never for what lies outside. */
CASE(any_byte_changed) {
    for (size_t i = 0; i < ZK_FRAMES; i++) {
        size_t len;
        unsigned char *bytes = zk_from_hex(zk_frames[i].hex, &len);
        for (size_t at = 0; at < len; at++) {
            unsigned char was = bytes[at];
            for (int value = 0; value < 256; value++) {
                bytes[at] = (unsigned char)value;
                int err = read_as(zk_frames[i].kind, bytes, len);
                assert_true(err == HF_OK || err == HF_EPROTO);
            }
            bytes[at] = was;
        }
        for (enum zk_frame_kind kind = ZK_CONNECTED; kind <= ZK_MULTI; kind++)
            read_as(kind, bytes, len);
        free(bytes);
    }
}

static const char head[] = "00000001000000000000000100000000";

static void expect_refused(enum zk_frame_kind kind, const char *hex) {
    own_text *text = text_of("%s%s", kind == ZK_CONNECTED ? "" : head, hex);
    size_t len;
    unsigned char *bytes = zk_from_hex(text, &len);
    assert_int_equal(read_as(kind, bytes, len), HF_EPROTO);
    free(bytes);
}

CASE(lengths_and_counts_that_lie) {
    static const char *const lies[] = {"7fffffff", "80000000", "fffffffe", "00400000", "00000100"};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s" STAT_OF_PARENT, lies[i]);
        expect_refused(ZK_CHILDREN, text);
        expect_refused(ZK_CREATED, text);
        expect_refused(ZK_DATA, text);
        snprintf(text, sizeof text, "00000001%s" STAT_OF_PARENT, lies[i]);
        expect_refused(ZK_CHILDREN, text);
        snprintf(text, sizeof text, "0000000f0000000000%s" STAT_OF_PARENT, lies[i]);
        expect_refused(ZK_MULTI, text);
        snprintf(text, sizeof text, "0000000000001f4001000161eb9a0000%s0011223344", lies[i]);
        expect_refused(ZK_CONNECTED, text);
    }
    expect_refused(ZK_CREATED, "00000000" STAT_OF_PARENT);          /* a node without a name */
    expect_refused(ZK_CHILDREN, "0000000100000000" STAT_OF_PARENT); /* the same */
    expect_refused(ZK_CONNECTED, "00000000ffffffff01000161eb9a0000"
                                 "00000010b4998e9b315b54f0b2a5055562c1fff700");
    expect_refused(ZK_MULTI, "0000006300000000000000000000"); /* nobody knows such an operation */
    expect_refused(ZK_MULTI, "0000000d01ffffffff");           /* an end that is none */
    /* errors, and all of them 0: nothing may be taken for done */
    expect_refused(ZK_MULTI, "ffffffff000000000000000000ffffffff01ffffffff");
}

CASE(frames_and_their_lengths) {
    size_t len;
    static const unsigned char two[] = {0, 0, 0, 2, 7, 8, 9};
    for (size_t have = 0; have < 6; have++) {
        assert_int_equal(hfi_zk_frame_len(two, have, &len), HF_OK);
        assert_true(len == SIZE_MAX);
    }
    assert_int_equal(hfi_zk_frame_len(two, 6, &len), HF_OK);
    assert_int_equal(len, 2);
    assert_int_equal(hfi_zk_frame_len(two, 7, &len), HF_OK);
    assert_int_equal(len, 2);
    static const unsigned char most[] = {0, 0x40, 0, 0}, over[] = {0, 0x40, 0, 1};
    static const unsigned char negative[] = {0xff, 0xff, 0xff, 0xff}, http[] = "HTTP";
    assert_int_equal(hfi_zk_frame_len(most, 4, &len), HF_OK);
    assert_int_equal(hfi_zk_frame_len(over, 4, &len), HF_EPROTO);
    assert_int_equal(hfi_zk_frame_len(negative, 4, &len), HF_EPROTO);
    assert_int_equal(hfi_zk_frame_len(http, 4, &len), HF_EPROTO);
}

CASE(frames_that_are_to_be_skipped) {
    size_t len;
    static const unsigned char most[] = {0, 0x40, 0, 0}, over[] = {0, 0x40, 0, 1};
    static const unsigned char longest[] = {4, 0, 0, 0}, none[] = {4, 0, 0, 1}, http[] = "HTTP";
    assert_false(hfi_zk_frame_is_long(most, 4, &len));
    assert_false(hfi_zk_frame_is_long(over, 3, &len));
    assert_true(hfi_zk_frame_is_long(over, 4, &len));
    assert_int_equal(len, HFI_ZK_FRAME_MAX + 1);
    assert_true(hfi_zk_frame_is_long(longest, 4, &len));
    assert_false(hfi_zk_frame_is_long(none, 4, &len));
    assert_false(hfi_zk_frame_is_long(http, 4, &len));
}

/* ---- Chance ---------------------------------------------------------------------------------- */

static size_t mutate(uint64_t *random, unsigned char *bytes, size_t len) {
    static const unsigned char spice[] = {0, 1, 4, 0x0d, 0x0f, 0x7f, 0x80, 0xfe, 0xff};
    for (uint64_t edits = random_next(random) % 5; edits > 0 && len > 1; edits--) {
        size_t at = random_next(random) % len;
        switch (random_next(random) % 4) {
        case 0:
            bytes[at] = spice[random_next(random) % sizeof spice];
            break;
        case 1:
            bytes[at] = (unsigned char)random_next(random);
            break;
        case 2:
            memmove(bytes + at, bytes + at + 1, len - at - 1);
            len--;
            break;
        default:
            len = at + 1;
        }
    }
    return len;
}

CASE(fuzz_messages) {
    uint64_t random = random_seed();
    long rounds = getenv("HF_SOAK") != NULL ? 20000000 : 200000;
    for (long round = 0; round < rounds; round++) {
        size_t len;
        size_t which = random_next(&random) % ZK_FRAMES;
        unsigned char *model = zk_from_hex(zk_frames[which].hex, &len);
        len = mutate(&random, model, len);
        unsigned char *bytes = malloc(len);
        memcpy(bytes, model, len);
        bool as_it_is = random_next(&random) % 4 != 0;
        read_as(as_it_is ? zk_frames[which].kind
                         : (enum zk_frame_kind)(random_next(&random) % ZK_FRAME_KINDS),
                bytes, len);
        free(bytes);
        free(model);
    }
}

/* A stream of messages, of which some are too long, that comes in pieces of any size. */
struct stream {
    unsigned char *bytes;
    size_t len;
};

static void append_frame(struct stream *stream, uint32_t len, int32_t xid) {
    unsigned char *more = realloc(stream->bytes, stream->len + 4 + len);
    assert_non_null(more);
    stream->bytes = more;
    memset(more + stream->len, 0x5a, 4 + (size_t)len);
    for (int i = 0; i < 4; i++) {
        more[stream->len + (size_t)i] = (unsigned char)(len >> (24 - 8 * i));
        more[stream->len + 4 + (size_t)i] = (unsigned char)((uint32_t)xid >> (24 - 8 * i));
    }
    stream->len += 4 + len;
}

/* Returns how many have come. */
static int32_t read_on(void *reader, const uint32_t *lens, int32_t seen) {
    hf_error error = {0};
    void *given = NULL;
    while (hfi_zk_protocol.next(reader, &given, &error) == HF_OK && given != NULL) {
        const struct hfi_zk_message *message = given;
        struct hfi_zk_in in = hfi_zk_in(message->bytes, message->len);
        struct hfi_zk_header header = {0};
        bool is_long = lens[seen] > HFI_ZK_FRAME_MAX;
        if (seen > 0) { /* the first has no header */
            assert_int_equal(hfi_zk_get_header(&in, &header), HF_OK);
            assert_int_equal(header.xid, seen);
            assert_int_equal(header.err == HFI_ZK_TOO_LONG, is_long);
        }
        assert_int_equal(message->len, is_long ? 16 : lens[seen]);
        hfi_zk_protocol.message_free(given);
        seen++;
    }
    assert_int_equal(error.code, HF_OK);
    return seen;
}

CASE(messages_in_pieces) {
    static const uint32_t lens[] = {41, 16,      HFI_ZK_FRAME_MAX, HFI_ZK_FRAME_MAX + 1,
                                    20, 5000000, 6000000,          16};
    enum { FRAMES = sizeof lens / sizeof lens[0] };
    struct stream stream = {0};
    for (int32_t i = 0; i < FRAMES; i++)
        append_frame(&stream, lens[i], i);
    uint64_t random = random_seed();
    static struct hfi_zk_session session; /* the reader finds it by its memory */
    for (int round = 0; round < 20; round++) {
        void *reader = hfi_zk_protocol.reader_new(&session.mem);
        assert_non_null(reader);
        int32_t seen = 0;
        for (size_t at = 0, piece; at < stream.len; at += piece) {
            hf_error error;
            piece = 1 + random_next(&random) % (round % 2 == 0 ? 100000 : 30);
            piece += at > 100 && round % 2 == 1 ? 65536 : 0;
            piece = piece < stream.len - at ? piece : stream.len - at;
            assert_int_equal(
                hfi_zk_protocol.feed(reader, (const char *)stream.bytes + at, piece, &error),
                HF_OK);
            seen = read_on(reader, lens, seen);
        }
        assert_int_equal(seen, FRAMES);
        hfi_zk_protocol.reader_free(reader);
    }
    free(stream.bytes);
}

RUN_CASES(NULL, NULL)
