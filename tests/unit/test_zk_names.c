/*
 * Names of ZooKeeper's nodes: which the server takes, the path of a lock, the nodes beneath it and their
 * order, what a node says of its owner; and that every error of the server has a meaning.
 */
#include "support/case.h"
#include "support/wait.h"
#include "zk/wire/errors.h"
#include "zk/wire/names.h"

#include <limits.h>

static const struct {
    const char *chroot, *prefix, *name, *path;
} good[] = {
    {"", "", "x", "/x"},
    {"", "", "app/x", "/app/x"},
    {"/c/d", "", "x", "/c/d/x"},
    {"/c", "p-", "x", "/c/p-x"},
    {"/c", "p/", "x", "/c/p/x"},
    {"/c", "/p-", "x", "/c/p-x"},
    {"/c", "", "zookeeper", "/c/zookeeper"},
    {"", "", "zookeepers", "/zookeepers"},
    {"", "", "a/zookeeper", "/a/zookeeper"},
    {"", "", "...", "/..."},
    {"", "", ".x/x.", "/.x/x."},
    {"", "", ".holdfast-", "/.holdfast-"},
    {"", "", ".holdfast-g", "/.holdfast-g"},
    {"", "", ".holdfast-00", "/.holdfast-00"},
    {"", "", "x/.holdfast-0", "/x/.holdfast-0"},
    {"", "", "a b:c{d}", "/a b:c{d}"},
    {"", "", "\xc3\xa4\xe2\x82\xac", "/\xc3\xa4\xe2\x82\xac"},
    {"", "", "\xef\xa4\x80", "/\xef\xa4\x80"}, /* U+F900 */
    {"", "", "\xef\xbf\xaf", "/\xef\xbf\xaf"}, /* U+FFEF */
    {"", "", "\xed\x9f\xbf", "/\xed\x9f\xbf"}, /* U+D7FF */
    {"", "", "\xc2\xa0", "/\xc2\xa0"},         /* U+00A0 */
};

CASE(names_become_paths) {
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct hfi_zk_names names = {.chroot = good[i].chroot, .prefix = good[i].prefix};
        hf_error error = {0};
        size_t len = strlen(good[i].name);
        if (hfi_zk_check_name(&names, good[i].name, len, &error) != HF_OK)
            fail_msg("%s: %s", good[i].name, error.text);
        size_t expected = strlen(good[i].path);
        assert_int_equal(hfi_zk_path(&names, good[i].name, len, NULL), expected);
        own_text *path = malloc(expected + 1);
        assert_int_equal(hfi_zk_path(&names, good[i].name, len, path), expected);
        assert_string_equal(path, good[i].path);
    }
}

static const struct {
    const char *prefix, *name, *words;
} bad[] = {
    {"", "", "empty"},
    {"p", "", "empty"},
    {"", "/", "begins with a '/'"},
    {"p/", "/", "begins with a '/'"},
    {"", "//x", "begins with a '/'"},
    {"", "/app/x", "write app/x"},
    {"p-", "/x", "begins with a '/'"},
    {"", "x/", "empty part before or after"},
    {"", "a//b", "empty part before or after"},
    {"p//", "x", "empty part before or after"},
    {"", ".", "'.' or '..'"},
    {"", "a/../b", "'.' or '..'"},
    {"", "a/.", "'.' or '..'"},
    {".", ".", "'.' or '..'"}, /* together they are one */
    {"", "zookeeper", "reserved by the server"},
    {"", "zookeeper/x", "reserved by the server"},
    {"zoo", "keeper", "reserved by the server"},
    {"", ".holdfast-0", ".holdfast-f are reserved"},
    {"", ".holdfast-f/x", ".holdfast-f are reserved"},
    {"/.hold", "fast-a", ".holdfast-f are reserved"},
    {"", "a\x01", "U+0001"},
    {"", "a\x1f", "U+001F"},
    {"", "a\x7f", "U+007F"},
    {"", "\xc2\x80", "U+0080"},
    {"", "\xc2\x9f", "U+009F"},
    {"", "\xed\xa0\x80", "U+D800"},
    {"", "\xee\x80\x80", "U+E000"},
    {"", "\xef\xa3\xbf", "U+F8FF"},
    {"", "\xef\xbf\xb0", "U+FFF0"},
    {"", "\xef\xbf\xbf", "U+FFFF"},
    {"", "\xf0\x9f\x94\x92", "U+1F512"},
    {"", "\xff", "UTF-8"},
    {"", "\x80", "UTF-8"},
    {"", "\xc3", "UTF-8"},
    {"", "\xc3x", "UTF-8"},
    {"", "\xc0\xaf", "UTF-8"},         /* a slash, the long way round */
    {"", "\xe0\x80\xaf", "UTF-8"},     /* the same */
    {"", "\xf0\x80\x80\xaf", "UTF-8"}, /* the same */
    {"", "\xf8\x88\x80\x80\x80", "UTF-8"},
    {"", "\xe2\x82", "UTF-8"},
};

CASE(a_value_no_server_takes_is_refused) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct hfi_zk_names names = {.chroot = "", .prefix = bad[i].prefix};
        hf_error error = {0};
        if (hfi_zk_check_name(&names, bad[i].name, strlen(bad[i].name), &error) != HF_EINVAL)
            fail_msg("'%s' is accepted", bad[i].name);
        if (strstr(error.text, bad[i].words) == NULL)
            fail_msg("'%s': %s", bad[i].name, error.text);
    }
    struct hfi_zk_names names = {.chroot = "", .prefix = ""};
    hf_error error = {0};
    assert_int_equal(hfi_zk_check_name(&names, "a\0b", 3, &error), HF_EINVAL);
}

CASE(there_is_an_end_to_names) {
    char name[HFI_ZK_NAME_MAX + 2];
    memset(name, 'n', sizeof name);
    struct hfi_zk_names names = {.chroot = "", .prefix = ""};
    hf_error error = {0};
    assert_int_equal(hfi_zk_check_name(&names, name, HFI_ZK_NAME_MAX, &error), HF_OK);
    assert_int_equal(hfi_zk_check_name(&names, name, HFI_ZK_NAME_MAX + 1, &error), HF_EINVAL);
    names.prefix = "p";
    assert_int_equal(hfi_zk_check_name(&names, name, HFI_ZK_NAME_MAX, &error), HF_EINVAL);
    names.prefix = "/";
    assert_int_equal(hfi_zk_check_name(&names, name, HFI_ZK_NAME_MAX, &error), HF_OK);
}

CASE(chroots) {
    hf_error error = {0};
    assert_int_equal(hfi_zk_check_chroot("", &error), HF_OK);
    assert_int_equal(hfi_zk_check_chroot("/a", &error), HF_OK);
    assert_int_equal(hfi_zk_check_chroot("/a/b", &error), HF_OK);
    static const char *const wrong[] = {"/", "a", "/a/", "//a", "/a/./b", "/zookeeper", "/a\x01"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(hfi_zk_check_chroot(wrong[i], &error), HF_EINVAL);
}

CASE(parents) {
    assert_int_equal(hfi_zk_parent_len("/a/bc/d", 7), 5);
    assert_int_equal(hfi_zk_parent_len("/a/bc", 5), 2);
    assert_int_equal(hfi_zk_parent_len("/a", 2), 0);
    assert_int_equal(hfi_zk_parent_len("/", 1), 0);
    assert_int_equal(hfi_zk_parent_len("", 0), 0);
}

/* On the wire: clients of all versions must agree. */
CASE(generations) {
    static const struct {
        const char *chroot, *path, *expected;
    } rows[] = {{"", "/latch", "/.holdfast-3"},
                {"/app", "/app/latch", "/app/.holdfast-b"},
                {"/app", "/app/jobs/ready", "/app/.holdfast-f"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct hfi_zk_names names = {.chroot = rows[i].chroot, .prefix = ""};
        char path[64];
        size_t len = hfi_zk_generation_path(&names, rows[i].path, strlen(rows[i].path), path);
        assert_string_equal(path, rows[i].expected);
        assert_int_equal(len, strlen(rows[i].expected));
    }
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

#define UUID "11223344-5566-4788-99aa-bbccddeeff01"
static const unsigned char uuid[HFI_ZK_UUID_LEN] = {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x47, 0x88,
                                                    0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x01};

static const struct {
    const char *name;
    enum hfi_zk_label label;
    int number;
    bool has_uuid;
} nodes[] = {
    {"_c_" UUID "-lock-0000000000", HFI_ZK_LOCK, 0, true},
    {"_c_" UUID "-lock-2147483647", HFI_ZK_LOCK, INT32_MAX, true},
    {"_c_" UUID "-lock--2147483648", HFI_ZK_LOCK, INT32_MIN, true},
    {"_c_" UUID "-lock--000000001", HFI_ZK_LOCK, -1, true},
    {"_c_" UUID "-__READ__0000000012", HFI_ZK_READ, 12, true},
    {"_c_" UUID "-__WRIT__0000000013", HFI_ZK_WRITE, 13, true},
    {"_c_" UUID "-lease-0000000014", HFI_ZK_LEASE, 14, true},
    {"_c_11223344-5566-4788-99AA-BBCCDDEEFF01-lock-0000000001", HFI_ZK_LOCK, 1, true},
    {"lock-0000000005", HFI_ZK_LOCK, 5, false},
    {"x-lock-lock-0000000005", HFI_ZK_LOCK, 5, false},
    {"_c_1122334-55566-4788-99aa-bbccddeeff01-lock-0000000005", HFI_ZK_LOCK, 5, false},
    {"_c_" UUID "lock-0000000005", HFI_ZK_LOCK, 5, false},
    {"_c_" UUID "-lock-", HFI_ZK_NO_LABEL, 0, false},
    {"_c_" UUID "-lock-000000000", HFI_ZK_NO_LABEL, 0, false},
    {"_c_" UUID "-lock-2147483648", HFI_ZK_NO_LABEL, 0, false},
    {"_c_" UUID "-lock--2147483649", HFI_ZK_NO_LABEL, 0, false},
    {"_c_" UUID "-lock-000000000x", HFI_ZK_NO_LABEL, 0, false},
    {"_c_" UUID "-lock-99999999999999999999", HFI_ZK_NO_LABEL, 0, false},
    {"0123456789abcdef0123456789abcdef__lock__0000000000", HFI_ZK_NO_LABEL, 0, false}, /* Kazoo */
    {"locks", HFI_ZK_NO_LABEL, 0, false},
    {"leases", HFI_ZK_NO_LABEL, 0, false},
    {"x", HFI_ZK_NO_LABEL, 0, false},
};

CASE(nodes_are_taken_apart) {
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        size_t len = strlen(nodes[i].name);
        own_text *name = malloc(len); /* without an end, as it is in a frame */
        memcpy(name, nodes[i].name, len);
        struct hfi_zk_node node = hfi_zk_node_parse(name, len);
        if (node.label != nodes[i].label || node.has_uuid != nodes[i].has_uuid ||
            (node.label != HFI_ZK_NO_LABEL && node.number != nodes[i].number))
            fail_msg("%s: label %d, number %d", nodes[i].name, (int)node.label, (int)node.number);
        if (node.has_uuid)
            assert_memory_equal(node.uuid, uuid, sizeof uuid);
    }
}

CASE(nodes_are_named_as_they_are_read) {
    static const int numbers[] = {0, 1, 12345, INT32_MAX, -1, -999999999, INT32_MIN};
    char name[HFI_ZK_NODE_TEXT];
    for (enum hfi_zk_label label = HFI_ZK_LOCK; label <= HFI_ZK_LEASE; label++)
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
            struct hfi_zk_node node = {.label = label, .number = numbers[i]};
            memcpy(node.uuid, uuid, sizeof uuid);
            size_t len = hfi_zk_node_name(&node, name);
            assert_int_equal(len, strlen(name));
            struct hfi_zk_node found = hfi_zk_node_parse(name, len);
            assert_int_equal(found.label, label);
            assert_int_equal(found.number, numbers[i]);
            assert_true(found.has_uuid && memcmp(found.uuid, uuid, sizeof uuid) == 0);
        }
    assert_int_equal(hfi_zk_node_stem(HFI_ZK_WRITE, uuid, name), strlen("_c_" UUID "-__WRIT__"));
    assert_string_equal(name, "_c_" UUID "-__WRIT__");
}

CASE(the_order_continues_below_zero) {
    assert_true(hfi_zk_before(1, 2));
    assert_false(hfi_zk_before(2, 1));
    assert_false(hfi_zk_before(2, 2));
    assert_true(hfi_zk_before(9, 10));
    assert_true(hfi_zk_before(-1, 0));
    assert_true(hfi_zk_before(-2, -1));
    assert_true(hfi_zk_before(INT32_MAX, INT32_MIN)); /* who came before the turn is still before */
    assert_false(hfi_zk_before(INT32_MIN, INT32_MAX));
    assert_true(hfi_zk_before(INT32_MAX - 3, INT32_MIN + 3));
}

/* ---- Data ------------------------------------------------------------------------------------ */

CASE(owners_are_written_and_read) {
    char data[HFI_ZK_DATA_MAX];
    struct hfi_zk_data found;
    size_t len = hfi_zk_data_write(UUID ":77", 39, "host 12 prog name", data);
    static const char expected[] = "holdfast:" UUID ":77 host 12 prog name";
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(data, expected, len);
    assert_true(hfi_zk_data_parse((struct hfi_zk_text){data, len}, &found));
    assert_int_equal(found.owner.len, 39);
    assert_memory_equal(found.owner.bytes, UUID ":77", 39);
    assert_int_equal(found.who.len, 17);
    assert_memory_equal(found.who.bytes, "host 12 prog name", 17);

    char host[400];
    memset(host, 'h', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    assert_int_equal(hfi_zk_data_write(UUID ":77", 39, host, data), HFI_ZK_DATA_MAX);
    assert_true(hfi_zk_data_parse((struct hfi_zk_text){data, HFI_ZK_DATA_MAX}, &found));
    assert_int_equal(found.who.len, HFI_ZK_DATA_MAX - 9 - 39 - 1);

    len = hfi_zk_data_write(UUID ":77", 39, "", data);
    assert_true(hfi_zk_data_parse((struct hfi_zk_text){data, len}, &found));
    assert_int_equal(found.who.len, 0);
    assert_int_equal(found.under.len, 0);
}

CASE(the_user_is_behind_the_program) {
    static const struct {
        const char *who, *program, *under;
    } rows[] = {{"host 12 prog under=" UUID ":5", "host 12 prog", UUID ":5"},
                {"host 12 under=x under=" UUID ":5", "host 12 under=x", UUID ":5"},
                {"host 12 under=" UUID, "host 12 under=" UUID, ""},
                {"host 12 under=", "host 12 under=", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char data[HFI_ZK_DATA_MAX];
        struct hfi_zk_data found;
        size_t len = hfi_zk_data_write(UUID ":77", 39, rows[i].who, data);
        assert_true(hfi_zk_data_parse((struct hfi_zk_text){data, len}, &found));
        assert_int_equal(found.who.len, strlen(rows[i].program));
        assert_memory_equal(found.who.bytes, rows[i].program, found.who.len);
        assert_int_equal(found.under.len, strlen(rows[i].under));
        assert_memory_equal(found.under.bytes, rows[i].under, found.under.len);
    }
}

CASE(foreign_fields_name_no_owner) {
    static const char *const others[] = {"",
                                         "127.0.0.1",
                                         "__REVOKE__",
                                         "holdfast:",
                                         "holdfast: x",
                                         "holdfast:" UUID,
                                         "holdfast:" UUID ":",
                                         "holdfast:" UUID ":x",
                                         "holdfast:" UUID ":7x host",
                                         "holdfast:1122334-55566-4788-99aa-bbccddeeff01:7",
                                         "holdfas:" UUID ":7"};
    struct hfi_zk_data found;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(hfi_zk_data_parse((struct hfi_zk_text){others[i], strlen(others[i])}, &found));
    assert_false(hfi_zk_data_parse((struct hfi_zk_text){NULL, 0}, &found));
}

/* ---- Errors ---------------------------------------------------------------------------------- */

static const struct {
    int err, code;
    enum hfi_zk_remedy remedy;
    const char *words;
} errors[] = {
    {HFI_ZK_TOO_LONG, HF_EPROTO, HFI_ZK_REMEDY_ASKER, "over 4 MiB"},
    {-4, HF_EUNREACH, HFI_ZK_REMEDY_RECONNECT, "ConnectionLoss"},
    {-6, HF_ENOTSUP, HFI_ZK_REMEDY_NONE, "3.5"},
    {-13, HF_EUNAVAILABLE, HFI_ZK_REMEDY_WAIT, "NewConfigNoQuorum"},
    {-101, HF_ELOST, HFI_ZK_REMEDY_ASKER, "NoNode"},
    {-102, HF_EPERM, HFI_ZK_REMEDY_NONE, "NoAuth"},
    {-103, HF_EUNAVAILABLE, HFI_ZK_REMEDY_ASKER, "BadVersion"},
    {-108, HF_EWRONGTYPE, HFI_ZK_REMEDY_NONE, "NoChildrenForEphemerals"},
    {-110, HF_EUNAVAILABLE, HFI_ZK_REMEDY_ASKER, "NodeExists"},
    {-112, HF_ELOST, HFI_ZK_REMEDY_SESSION, "SessionExpired"},
    {-114, HF_EPERM, HFI_ZK_REMEDY_NONE, "InvalidACL"},
    {-115, HF_EPERM, HFI_ZK_REMEDY_NONE, "AuthFailed"},
    {-118, HF_EUNREACH, HFI_ZK_REMEDY_RECONNECT, "SessionMoved"},
    {-119, HF_EUNAVAILABLE, HFI_ZK_REMEDY_WAIT, "NotReadOnly"},
    {-120, HF_EUNAVAILABLE, HFI_ZK_REMEDY_WAIT, "EphemeralOnLocalSession"},
    {-124, HF_EPERM, HFI_ZK_REMEDY_NONE, "SASL"},
    {-125, HF_EOOM, HFI_ZK_REMEDY_NONE, "QuotaExceeded"},
    {-127, HF_EUNAVAILABLE, HFI_ZK_REMEDY_WAIT, "ThrottledOp"},
    {-9999, HF_EPROTO, HFI_ZK_REMEDY_DROP, "-9999"},
    {1, HF_EPROTO, HFI_ZK_REMEDY_DROP, "1"},
};

CASE(errors_have_a_meaning) {
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        hf_error error = {0};
        enum hfi_zk_remedy remedy;
        assert_int_equal(hfi_zk_error(errors[i].err, &error, &remedy), errors[i].code);
        assert_int_equal(error.code, errors[i].code);
        assert_int_equal(remedy, errors[i].remedy);
        assert_non_null(strstr(error.text, errors[i].words));
    }
}

RUN_CASES(NULL, NULL)
