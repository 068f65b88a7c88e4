/*
 * ZooKeeper's protocol as bytes: requests as a server of 3.9.4 took them, and its answers to them.
 * What no server says is in test_zk_mangled.c.
 */
#include "support/case.h"
#include "support/memory.h"
#include "unit/zk_frames.h"
#include "zk/wire/errors.h"
#include "zk/wire/wire.h"

static const struct hfi_mem plain_memory;

/* ---- Requests -------------------------------------------------------------------------------- */

static void expect_written(struct hfi_zk_out *out, const char *hex) {
    size_t len;
    unsigned char *expected = zk_from_hex(hex, &len);
    assert_false(out->failed);
    assert_int_equal(out->len, len);
    assert_memory_equal(out->bytes, expected, len);
    free(expected);
    hfi_zk_out_clear(out);
}

CASE(requests_of_a_session) {
    struct hfi_zk_out out;
    hfi_zk_out_init(&out, &plain_memory);

    struct hfi_zk_connect connect = {.timeout_ms = 8000};
    hfi_zk_put_connect(&out, &connect);
    expect_written(&out, "0000002d000000000000000000000000"
                         "00001f40000000000000000000000010"
                         "0000000000000000000000000000000000");

    connect = (struct hfi_zk_connect){
        .last_zxid = 0x100000003, .timeout_ms = 4000, .session = -2, .read_only = true};
    memcpy(connect.password, "0123456789abcdef", sizeof connect.password);
    hfi_zk_put_connect(&out, &connect);
    expect_written(&out, "0000002d00000000"
                         "000000010000000300000fa0fffffffffffffffe"
                         "000000103031323334353637383961626364656601");

    hfi_zk_put_auth(&out, "digest", "me:pw", 5);
    expect_written(&out, "0000001ffffffffc000000640000000000000006646967657374000000056d653a7077");
    hfi_zk_put_ping(&out);
    expect_written(&out, "00000008fffffffe0000000b");
    hfi_zk_put_close(&out, 16);
    expect_written(&out, "0000000800000010fffffff5");
}

CASE(requests_for_nodes) {
    struct hfi_zk_out out;
    hfi_zk_out_init(&out, &plain_memory);

    hfi_zk_put_create(&out, 1, "/app", "", 0, HFI_ZK_CONTAINER, HFI_ZK_ACL_OPEN);
    expect_written(&out, "000000330000000100000013000000042f61707000000000"
                         "000000010000001f00000005776f726c6400000006616e796f6e6500000004");
    hfi_zk_put_create(&out, 2, ZK_NODE, "data", 4, HFI_ZK_EPHEMERAL_SEQUENTIAL, HFI_ZK_ACL_CREATOR);
    expect_written(&out, "0000005e000000020000000f00000032" ZK_NODE_HEX "0000000464617461"
                         "000000010000001f00000004617574680000000000000003");
    hfi_zk_put_get_children(&out, 3, "/app", true);
    expect_written(&out, "00000011000000030000000c000000042f61707001");
    hfi_zk_put_exists(&out, 4, "/app", false);
    expect_written(&out, "000000110000000400000003000000042f61707000");
    hfi_zk_put_get_data(&out, 5, "/app", true);
    expect_written(&out, "000000110000000500000004000000042f61707001");
    hfi_zk_put_set_data(&out, 6, "/app", "new", 3, 7);
    expect_written(&out, "0000001b0000000600000005000000042f617070000000036e657700000007");
    hfi_zk_put_sync(&out, 8, "/app");
    expect_written(&out, "000000100000000800000009000000042f617070");
    hfi_zk_put_delete(&out, 15, "/app/c", HFI_ZK_ANY_VERSION);
    expect_written(&out, "000000160000000f00000002000000062f6170702f63ffffffff");
}

CASE(a_multi_of_each_sort) {
    struct hfi_zk_out out;
    hfi_zk_out_init(&out, &plain_memory);
    hfi_zk_multi_begin(&out, 9);
    hfi_zk_multi_check(&out, ZK_NODE "0000000000", HFI_ZK_ANY_VERSION);
    hfi_zk_multi_create(&out, "/app/x", "d", 1, HFI_ZK_PERSISTENT, HFI_ZK_ACL_OPEN);
    hfi_zk_multi_set_data(&out, "/app/x", "dd", 2, 0);
    hfi_zk_multi_create(&out, "/app/c", "", 0, HFI_ZK_CONTAINER, HFI_ZK_ACL_OPEN);
    hfi_zk_multi_delete(&out, "/app/x", HFI_ZK_ANY_VERSION);
    hfi_zk_multi_end(&out);
    expect_written(&out, "000000ff000000090000000e"
                         "0000000d00ffffffff0000003c" ZK_NODE_HEX ZK_ZEROES "ffffffff"
                         "0000000f00ffffffff000000062f6170702f780000000164"
                         "000000010000001f00000005776f726c6400000006616e796f6e6500000000"
                         "0000000500ffffffff000000062f6170702f7800000002646400000000"
                         "0000001300ffffffff000000062f6170702f6300000000"
                         "000000010000001f00000005776f726c6400000006616e796f6e6500000004"
                         "0000000200ffffffff000000062f6170702f78ffffffff"
                         "ffffffff01ffffffff");
}

/* A hundred checks need room: it is had, or the buffer says that it failed, and nothing else. */
CASE(many_frames_and_no_memory) {
    struct memory memory = {0};
    struct hfi_mem mem = {.hook = memory_allocator(&memory)};
    for (long fail_at = 0; fail_at < 8; fail_at++) {
        memory.fail_at = fail_at > 0 ? memory.calls + fail_at : 0;
        struct hfi_zk_out out;
        hfi_zk_out_init(&out, &mem);
        for (int i = 0; i < 3; i++) {
            hfi_zk_multi_begin(&out, i);
            for (int k = 0; k < 100; k++)
                hfi_zk_multi_check(&out, ZK_NODE "0000000000", k);
            hfi_zk_multi_end(&out);
        }
        size_t expected = 3 * (4 + 8 + 100 * (9 + 4 + 60 + 4) + 9);
        assert_true(out.failed || out.len == expected);
        assert_true(fail_at > 0 || !out.failed);
        assert_true(fail_at != 1 || out.failed);
        hfi_zk_out_clear(&out);
        assert_int_equal(memory.live, 0);
    }
}

/* ---- Answers ------------------------------------------------------------------------------------ */

static void expect_text(struct hfi_zk_text text, const char *expected) {
    assert_int_equal(text.len, strlen(expected));
    assert_memory_equal(text.bytes, expected, text.len);
}

/* The bytes of a frame behind its header, which is looked at, too. */
static unsigned char *open_frame(const char *hex, int32_t xid, int64_t zxid, int32_t err,
                                 struct hfi_zk_in *ret_in) {
    size_t len;
    unsigned char *bytes = zk_from_hex(hex, &len);
    struct hfi_zk_header header;
    *ret_in = hfi_zk_in(bytes, len);
    assert_int_equal(hfi_zk_get_header(ret_in, &header), HF_OK);
    assert_int_equal(header.xid, xid);
    assert_int_equal(header.zxid, zxid);
    assert_int_equal(header.err, err);
    return bytes;
}

CASE(answers_of_a_session) {
    size_t len;
    unsigned char *bytes = zk_from_hex(frame_connected, &len);
    struct hfi_zk_in in = hfi_zk_in(bytes, len);
    struct hfi_zk_connected found;
    assert_int_equal(hfi_zk_get_connected(&in, &found), HF_OK);
    assert_int_equal(found.timeout_ms, 8000);
    assert_int_equal(found.session, 0x01000161eb9a0000);
    assert_memory_equal(found.password, bytes + 20, HFI_ZK_PASSWORD_LEN);
    assert_false(found.read_only);

    bytes[len - 1] = 1;
    in = hfi_zk_in(bytes, len);
    assert_int_equal(hfi_zk_get_connected(&in, &found), HF_OK);
    assert_true(found.read_only);
    in = hfi_zk_in(bytes, len - 1); /* an old server does not say */
    assert_int_equal(hfi_zk_get_connected(&in, &found), HF_OK);
    assert_false(found.read_only);
    free(bytes);

    free(open_frame(frame_pong, HFI_ZK_XID_PING, 1, 0, &in));
    free(open_frame(frame_bad_version, 7, 5, HFI_ZK_BAD_VERSION, &in));

    bytes = open_frame(frame_event, HFI_ZK_XID_EVENT, 4, 0, &in);
    struct hfi_zk_event seen;
    assert_int_equal(hfi_zk_get_event(&in, &seen), HF_OK);
    assert_int_equal(seen.type, HFI_ZK_EVENT_CHANGED);
    expect_text(seen.path, ZK_NODE "0000000000");
    free(bytes);
}

CASE(answers_about_nodes) {
    struct hfi_zk_in in;
    struct hfi_zk_text text;
    struct hfi_zk_stat found;

    unsigned char *bytes = open_frame(frame_created, 2, 3, 0, &in);
    assert_int_equal(hfi_zk_get_created(&in, &text, &found), HF_OK);
    expect_text(text, ZK_NODE "0000000000");
    assert_int_equal(found.czxid, 3);
    assert_int_equal(found.ephemeral_owner, 0x01000161eb9a0000);
    assert_int_equal(in.left, 0);
    free(bytes);

    bytes = open_frame(frame_data, 5, 3, 0, &in);
    assert_int_equal(hfi_zk_get_data(&in, &text, &found), HF_OK);
    expect_text(text, "data");
    assert_int_equal(found.data_len, 4);
    free(bytes);

    bytes = open_frame(frame_stat, 6, 4, 0, &in);
    assert_int_equal(hfi_zk_get_stat(&in, &found), HF_OK);
    assert_int_equal(found.version, 1);
    assert_int_equal(found.mzxid, 4);
    assert_int_equal(found.mtime_ms - found.ctime_ms, 13);
    free(bytes);

    bytes = open_frame(frame_children, 3, 3, 0, &in);
    struct hfi_zk_children list;
    assert_int_equal(hfi_zk_get_children(&in, &list), HF_OK);
    assert_int_equal(list.len, 1);
    assert_int_equal(list.stat.children_len, 1);
    assert_int_equal(list.stat.cversion, 1);
    assert_true(hfi_zk_next_child(&list, &text));
    expect_text(text, "_c_11223344-5566-4788-99aa-bbccddeeff01-lock-0000000000");
    assert_false(hfi_zk_next_child(&list, &text));
    free(bytes);
}

CASE(answers_to_a_multi) {
    static const int ops[] = {HFI_ZK_OP_CHECK, HFI_ZK_OP_CREATE2, HFI_ZK_OP_SET_DATA,
                              HFI_ZK_OP_CREATE2, HFI_ZK_OP_DELETE};
    struct hfi_zk_in in;
    struct hfi_zk_results results;
    struct hfi_zk_result result;
    unsigned char *bytes = open_frame(frame_multi, 9, 6, 0, &in);
    assert_int_equal(hfi_zk_get_results(&in, &results), HF_OK);
    assert_int_equal(results.err, 0);
    assert_int_equal(results.len, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_true(hfi_zk_next_result(&results, &result));
        assert_int_equal(result.op, ops[i]);
        assert_int_equal(result.err, 0);
        if (i == 1)
            expect_text(result.path, "/app/x");
        if (i == 2)
            assert_int_equal(result.stat.version, 1);
        if (i == 3)
            assert_int_equal(result.stat.czxid, 6);
    }
    assert_false(hfi_zk_next_result(&results, &result));
    free(bytes);

    bytes = open_frame(frame_refused, 10, 7, 0, &in);
    assert_int_equal(hfi_zk_get_results(&in, &results), HF_OK);
    assert_int_equal(results.len, 3);
    assert_int_equal(results.err, HFI_ZK_NO_NODE);
    assert_int_equal(results.failed_index, 1);
    free(bytes);

    bytes = open_frame(frame_empty_multi, 11, 8, 0, &in);
    assert_int_equal(hfi_zk_get_results(&in, &results), HF_OK);
    assert_int_equal(results.len, 0);
    assert_int_equal(results.err, 0);
    free(bytes);
}

RUN_CASES(NULL, NULL)
