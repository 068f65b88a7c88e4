/*
 * Slots of a cluster: which one a name is in, as servers say it; and what is made of their maps and
 * redirections, whatever they contain.
 */
#include "redis/route/redirect_parse.h"
#include "support/case.h"

#include <holdfast/holdfast.h>

/* ---- Which slot ---- */

/* As CLUSTER KEYSLOT of Redis 7.0 answers. */
static const struct {
    const char *key;
    unsigned slot;
} known[] = {
    {"", 0},
    {"a", 15495},
    {"foo", 12182},
    {"bar", 5061},
    {"123456789", 12739}, /* 0x31c3, the check value of CRC16/XMODEM */
    {"\xff\xfe", 3374},
    {"job", 2906},
    {"redisson_lock__channel:{job}", 2906},
    {"{user1000}.following", 3443},
    {"foo{bar}{zap}", 5061},
    {"foo{}{bar}", 8363},
    {"foo{{bar}}zap", 4015},
    {"{}", 15257},
    {"x{", 3596},
    {"x}", 11978},
    {"a{b", 13340},
    {"a}{b}", 3300},
    {"app:{job", 5862},
};

CASE(test_names_have_their_slot_wherever_the_prefix_ends) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const char *key = known[i].key;
        size_t len = strlen(key);
        for (size_t split = 0; split <= len; split++) {
            unsigned slot = hfi_slot_of(key, split, key + split, len - split);
            if (slot != known[i].slot)
                fail_msg("'%s' split at %zu is in %u, not %u", key, split, slot, known[i].slot);
        }
    }
}

/* ---- Maps ---- */

static struct hfi_reply *parse(const char *text, size_t len) {
    struct hfi_reply_scan scan = {.pos = 0};
    assert_int_equal(hfi_reply_scan(&scan, text, len), HFI_SCAN_WHOLE);
    struct hfi_reply *reply = hfi_reply_make(&scan, text);
    assert_non_null(reply);
    return reply;
}

static void note_range(const struct hfi_slot_range *range, void *arg) {
    fprintf(arg, "%u-%u ", range->first, range->last);
    if (range->known)
        fprintf(arg, "'%.*s':%u", (int)range->primary.host_len, range->primary.host,
                (unsigned)range->primary.port);
    else
        fputs("unknown", arg);
    fprintf(arg, " +%u;", range->replicas);
}

/* The ranges that are found in it, or the error. */
static void read_map(const char *text, size_t len, char *ret, size_t size) {
    struct hfi_reply *reply = parse(text, len);
    FILE *out = fmemopen(ret, size, "w");
    int err = hfi_slots_read(reply, note_range, out);
    if (err != HF_OK)
        fputs(hf_strerror(err), out);
    fclose(out);
    free(reply);
}

#define SERVER(host, port) "*3\r\n" host ":" port "\r\n$2\r\nid\r\n"
#define A "$9\r\n127.0.0.1\r\n"

static const struct {
    const char *reply, *found;
} maps[] = {
    {"*0\r\n", ""},
    {"*1\r\n*3\r\n:0\r\n:16383\r\n" SERVER(A, "7000"), "0-16383 '127.0.0.1':7000 +0;"},
    {"*2\r\n*4\r\n:0\r\n:5\r\n" SERVER(A, "1") SERVER(A, "2") "*3\r\n:7\r\n:7\r\n" SERVER(A, "3"),
     "0-5 '127.0.0.1':1 +1;7-7 '127.0.0.1':3 +0;"},
    {"*1\r\n*3\r\n:1\r\n:2\r\n" SERVER("$0\r\n\r\n", "9"), "1-2 '':9 +0;"},
    {"*1\r\n*3\r\n:1\r\n:2\r\n" SERVER("$-1\r\n", "9"), "1-2 '':9 +0;"},
    {"*1\r\n*3\r\n:1\r\n:2\r\n" SERVER("$1\r\n?\r\n", "9"), "1-2 unknown +0;"},
    {"*1\r\n*3\r\n:1\r\n:2\r\n" SERVER(A, "0"), "1-2 unknown +0;"},
    /* 6.2 has an id, 7.0 a list of host names behind it */
    {"*1\r\n*3\r\n:1\r\n:2\r\n*4\r\n" A ":9\r\n$2\r\nid\r\n*2\r\n$8\r\nhostname\r\n$1\r\nh\r\n",
     "1-2 '127.0.0.1':9 +0;"},
    {"*1\r\n*3\r\n:1\r\n:2\r\n*2\r\n" A ":9\r\n", "1-2 '127.0.0.1':9 +0;"},
};

CASE(test_maps_are_read) {
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        char found[256] = "";
        read_map(maps[i].reply, strlen(maps[i].reply), found, sizeof found);
        assert_string_equal(found, maps[i].found);
    }
}

#define GOOD "*3\r\n:0\r\n:1\r\n" SERVER(A, "1")

static const char *const no_maps[] = {
    "$2\r\nOK\r\n",
    ":1\r\n",
    "$-1\r\n",
    "*-1\r\n",
    "-ERR This instance has cluster support disabled\r\n",
    "*1\r\n:1\r\n",
    "*1\r\n*0\r\n",
    "*1\r\n*2\r\n:0\r\n:1\r\n",
    "*1\r\n*3\r\n:-1\r\n:1\r\n" SERVER(A, "1"),
    "*1\r\n*3\r\n:0\r\n:16384\r\n" SERVER(A, "1"),
    "*1\r\n*3\r\n:0\r\n:9223372036854775807\r\n" SERVER(A, "1"),
    "*1\r\n*3\r\n:2\r\n:1\r\n" SERVER(A, "1"),
    "*1\r\n*3\r\n$1\r\n0\r\n:1\r\n" SERVER(A, "1"),
    "*1\r\n*3\r\n:0\r\n:1\r\n" A,
    "*1\r\n*3\r\n:0\r\n:1\r\n*1\r\n" A,
    "*1\r\n*3\r\n:0\r\n:1\r\n" SERVER(":1\r\n", "1"),
    "*1\r\n*3\r\n:0\r\n:1\r\n" SERVER(A, "65536"),
    "*1\r\n*3\r\n:0\r\n:1\r\n" SERVER(A, "-1"),
    "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n" A "$1\r\n1\r\n",
    "*1\r\n*3\r\n:0\r\n:1\r\n" SERVER("$3\r\na\nb\r\n", "1"),
    "*1\r\n*3\r\n:0\r\n:1\r\n" SERVER("$3\r\na b\r\n", "1"),
    "*1\r\n*4\r\n:0\r\n:1\r\n" SERVER(A, "1") ":1\r\n",
    /* a good range does not save a bad one behind it, nor may two have the same slot */
    "*2\r\n" GOOD "*3\r\n:5\r\n:4\r\n" SERVER(A, "1"),
    "*2\r\n" GOOD GOOD,
    "*2\r\n" GOOD "*3\r\n:1\r\n:3\r\n" SERVER(A, "1"),
};

CASE(test_a_bad_map_is_refused_as_a_whole) {
    for (size_t i = 0; i < sizeof no_maps / sizeof no_maps[0]; i++) {
        char found[256] = "";
        read_map(no_maps[i], strlen(no_maps[i]), found, sizeof found);
        if (strcmp(found, hf_strerror(HF_EPROTO)) != 0)
            fail_msg("case %zu is read as '%s'", i, found);
    }
}

CASE(test_a_host_with_a_zero_or_too_long_is_none) {
    static const char zero[] = "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$3\r\na\0b\r\n:1\r\n";
    char found[512], text[400];
    read_map(zero, sizeof zero - 1, found, sizeof found);
    assert_string_equal(found, hf_strerror(HF_EPROTO));

    for (int len = 255; len <= 256; len++) {
        int written = snprintf(text, sizeof text,
                               "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$%d\r\n%0*d\r\n:1\r\n", len, len, 0);
        read_map(text, (size_t)written, found, sizeof found);
        assert_int_equal(strcmp(found, hf_strerror(HF_EPROTO)) == 0, len == 256);
    }
}

/* Every byte of a good map once replaced by others: read or refused, and never beyond its end. */
CASE(test_a_mangled_map_does_no_harm) {
    static const char good[] = "*2\r\n*4\r\n:0\r\n:5\r\n" SERVER(A, "1") SERVER(A, "2") GOOD;
    static const char bytes[] = {0, '-', '9', ':', '*', '$', (char)0xff};
    for (size_t i = 0; i < sizeof good - 1; i++)
        for (size_t k = 0; k < sizeof bytes; k++) {
            char text[sizeof good], found[512];
            memcpy(text, good, sizeof good);
            text[i] = bytes[k];
            struct hfi_reply_scan scan = {.pos = 0};
            struct hfi_reply *reply = NULL;
            if (hfi_reply_scan(&scan, text, sizeof text - 1) == HFI_SCAN_WHOLE &&
                (reply = hfi_reply_make(&scan, text)) != NULL) {
                FILE *out = fmemopen(found, sizeof found, "w");
                hfi_slots_read(reply, note_range, out);
                fclose(out);
                free(reply);
            }
        }
}

/* ---- Redirections ---- */

static const struct {
    const char *text, *found;
} redirects[] = {
    {"-MOVED 3999 127.0.0.1:6381\r\n", "moved 3999 '127.0.0.1':6381"},
    {"-ASK 0 h.example:1\r\n", "ask 0 'h.example':1"},
    {"-MOVED 16383 :65535\r\n", "moved 16383 '':65535"},
    {"-MOVED 1 ::1:7000\r\n", "moved 1 '::1':7000"},
    {"-MOVED 16384 h:1\r\n", "none"},
    {"-MOVED -1 h:1\r\n", "none"},
    {"-MOVED 99999999999999999999 h:1\r\n", "none"},
    {"-MOVED 1 h:0\r\n", "none"},
    {"-MOVED 1 h:65536\r\n", "none"},
    {"-MOVED 1 h:\r\n", "none"},
    {"-MOVED 1 h\r\n", "none"},
    {"-MOVED 1 ?:1\r\n", "none"},
    {"-MOVED 1 a b:1\r\n", "none"},
    {"-MOVED 1 h:1 \r\n", "none"},
    {"-MOVED  h:1\r\n", "none"},
    {"-MOVED 1\r\n", "none"},
    {"-MOVED\r\n", "none"},
    {"-MOVED \r\n", "none"},
    {"-ASKING 1 h:1\r\n", "none"},
    {"-moved 1 h:1\r\n", "none"},
    {"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "none"},
    {"$16\r\nMOVED 1 h:1     \r\n", "none"},
    {"+MOVED 1 h:1\r\n", "none"},
    {"*0\r\n", "none"},
};

CASE(test_redirections_are_read) {
    for (size_t i = 0; i < sizeof redirects / sizeof redirects[0]; i++) {
        struct hfi_reply *reply = parse(redirects[i].text, strlen(redirects[i].text));
        struct hfi_redirect to;
        char found[128] = "none";
        if (hfi_redirect_read(reply, &to))
            snprintf(found, sizeof found, "%s %u '%.*s':%u", to.ask ? "ask" : "moved", to.slot,
                     (int)to.to.host_len, to.to.host, (unsigned)to.to.port);
        assert_string_equal(found, redirects[i].found);
        free(reply);
    }
}

RUN_CASES(NULL, NULL)
