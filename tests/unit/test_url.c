/*
 * Connection urls: every form people write, every mistake we know of, and no password in any
 * message.
 */
#include "net/url/url.h"
#include "support/case.h"
#include "support/wait.h"

#include <sys/un.h>

#define SECRET "S3cr3tPassw0rd"
#define X20 "xxxxxxxxxxxxxxxxxxxx"
#define X100 X20 X20 X20 X20 X20

static const struct hfi_mem plain_memory;

/* ---- Good urls ------------------------------------------------------------------------------- */

struct good {
    const char *text;
    struct hfi_url expected; /* times of 0 here mean "not given" */
};

/* Tables own their strings as literals; the struct has no const. */
#define S(literal) ((char *)(uintptr_t)(literal))
#define TCP(h, p) .kind = HFI_URL_TCP, .host = S(h), .port = (p)
#define UNIX(p) .kind = HFI_URL_UNIX, .path = S(p)

static const struct good good[] = {
    {"redis://", {TCP("localhost", 6379)}},
    {"redis:///", {TCP("localhost", 6379)}},
    {"redis://host", {TCP("host", 6379)}},
    {"valkey://host", {TCP("host", 6379)}},
    {"REDIS://Host", {TCP("Host", 6379)}},
    {"redis://host:1", {TCP("host", 1)}},
    {"redis://host:65535", {TCP("host", 65535)}},
    {"redis://:7000", {TCP("localhost", 7000)}},
    {"redis://host/0", {TCP("host", 6379)}},
    {"redis://host/15", {TCP("host", 6379), .db = 15}},
    {"redis://host/", {TCP("host", 6379)}},
    {"redis://host?db=3", {TCP("host", 6379), .db = 3}},
    {"redis://host/?db=3", {TCP("host", 6379), .db = 3}},
    {"redis://?db=3", {TCP("localhost", 6379), .db = 3}},
    {"redis://10.0.0.1:7", {TCP("10.0.0.1", 7)}},
    {"redis://[::1]", {TCP("::1", 6379)}},
    {"redis://[2001:db8::1]:7/2", {TCP("2001:db8::1", 7), .db = 2}},
    {"redis://[fe80::1%25eth0]:7", {TCP("fe80::1%eth0", 7)}},
    {"redis://h%6fst", {TCP("host", 6379)}},

    {"redis://me:pw@host", {TCP("host", 6379), .user = S("me"), .password = S("pw")}},
    {"redis://:pw@host", {TCP("host", 6379), .password = S("pw")}},
    {"redis://pw@host", {TCP("host", 6379), .password = S("pw")}},
    {"redis://me:@host", {TCP("host", 6379), .user = S("me"), .password = S("")}},
    {"redis://:@host", {TCP("host", 6379)}},
    {"redis://@host", {TCP("host", 6379)}},
    {"redis://me:pw@", {TCP("localhost", 6379), .user = S("me"), .password = S("pw")}},
    {"redis://me:pw@:7/1", {TCP("localhost", 7), .user = S("me"), .password = S("pw"), .db = 1}},
    {"redis://me:pw@[::1]:7", {TCP("::1", 7), .user = S("me"), .password = S("pw")}},
    {"redis://m%40e:p%3Aw%2f%25@host",
     {TCP("host", 6379), .user = S("m@e"), .password = S("p:w/%")}},
    {"redis://me:p:w@host", {TCP("host", 6379), .user = S("me"), .password = S("p:w")}},
    {"redis://:p@w@host", {TCP("host", 6379), .password = S("p@w")}},
    {"redis://:p/w@host/1", {TCP("host", 6379), .password = S("p/w"), .db = 1}},
    {"redis://:p+w#,[]@host", {TCP("host", 6379), .password = S("p+w#,[]")}},
    {"redis://host?password=p%26w&user=me",
     {TCP("host", 6379), .user = S("me"), .password = S("p&w")}},
    {"redis://host?password=p@w=", {TCP("host", 6379), .password = S("p@w=")}},
    {"redis://host?user=me", {TCP("host", 6379), .user = S("me")}},
    {"redis://:\xc3\xa4%c3%a4@host", {TCP("host", 6379), .password = S("\xc3\xa4\xc3\xa4")}},

    {"unix:///run/redis.sock", {UNIX("/run/redis.sock")}},
    {"redis+unix:///a", {UNIX("/a")}},
    {"redis+uds:///a", {UNIX("/a")}},
    {"valkey+uds:///a", {UNIX("/a")}},
    {"redis-socket:///a", {UNIX("/a")}},
    {"unix:///a?db=4", {UNIX("/a"), .db = 4}},
    {"unix:///a%20b%3fc", {UNIX("/a b?c")}},
    {"unix:///a@b:c", {UNIX("/a@b:c")}},
    {"unix://me:pw@/a", {UNIX("/a"), .user = S("me"), .password = S("pw")}},
    {"unix://:pw@/a@/b", {UNIX("/a@/b"), .password = S("pw")}},
    {"unix://pw@/a", {UNIX("/a"), .password = S("pw")}},
    {"unix://p/w@/a", {UNIX("/a"), .password = S("p/w")}},
    {"unix:///" X100 "123456", {UNIX("/" X100 "123456")}},

    {"local:", {.kind = HFI_URL_LOCAL}},
    {"LOCAL:", {.kind = HFI_URL_LOCAL}},
    {"local:?db=1", {.kind = HFI_URL_LOCAL, .db = 1}},
    {"local:/a/b", {.kind = HFI_URL_LOCAL, .path = S("/a/b")}},
    {"local:/a%20b?ping_interval_ms=7",
     {.kind = HFI_URL_LOCAL, .path = S("/a b"), .ping_interval_ms = 7}},

    {"redis://host?cmd_timeout_ms=1&connect_timeout_ms=2&watchdog_ms=3&ping_interval_ms=4"
     "&fair_wait_ms=5&max_hold_ms=6",
     {TCP("host", 6379), .cmd_timeout_ms = 1, .connect_timeout_ms = 2, .watchdog_ms = 3,
      .ping_interval_ms = 4, .fair_wait_ms = 5, .max_hold_ms = 6}},
    {"redis://host?histogram_names=100", {TCP("host", 6379), .histogram_names = 100}},
    {"redis://host?clock_drift_ppm=83333", {TCP("host", 6379), .clock_drift_ppm = 83333}},
    {"redis://host?watchdog_ms=316224000000", {TCP("host", 6379), .watchdog_ms = HF_LEASE_MAX_MS}},
    {"redis://host?busy_poll=off", {TCP("host", 6379), .busy_poll = HFI_SWITCH_OFF}},
    {"redis://host?busy_poll=on", {TCP("host", 6379), .busy_poll = HFI_SWITCH_ON}},
    {"redis://host?name_prefix=app%3a", {TCP("host", 6379), .name_prefix = S("app:")}},
    {"redis://host?name_prefix=a@b&db=1", {TCP("host", 6379), .name_prefix = S("a@b"), .db = 1}},
    {"redis://host?", {TCP("host", 6379)}},
    {"redis://host?&db=1&&", {TCP("host", 6379), .db = 1}},

    {"rediss://", {TCP("localhost", 6379), .tls = true}},
    {"VALKEYS://me:" SECRET "@[::1]:7/2",
     {TCP("::1", 7), .tls = true, .user = S("me"), .password = S(SECRET), .db = 2}},
    {"rediss://host?tls_ca_file=/a%20b&tls_ca_dir=/c&tls_cert_file=d&tls_key_file=e"
     "&tls_server_name=f.test&tls_min_version=1.3&tls_verify=none",
     {TCP("host", 6379), .tls = true, .tls_ca_file = S("/a b"), .tls_ca_dir = S("/c"),
      .tls_cert_file = S("d"), .tls_key_file = S("e"), .tls_server_name = S("f.test"),
      .tls_min_version = HF_TLS_1_3, .tls_verify = HFI_VERIFY_NONE}},
    {"rediss://host?tls_verify=full&tls_min_version=1.2",
     {TCP("host", 6379), .tls = true, .tls_min_version = HF_TLS_1_2,
      .tls_verify = HFI_VERIFY_FULL}},
};

static bool same_text(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static bool same_time(int64_t found, int64_t expected) {
    return found == (expected == 0 ? -1 : expected);
}

static bool same_url(const struct hfi_url *found, const struct hfi_url *expected) {
    return found->kind == expected->kind && found->tls == expected->tls &&
           same_text(found->host, expected->host) && found->port == expected->port &&
           same_text(found->path, expected->path) && found->db == expected->db &&
           same_text(found->user, expected->user) &&
           same_text(found->password, expected->password) &&
           same_time(found->cmd_timeout_ms, expected->cmd_timeout_ms) &&
           same_time(found->connect_timeout_ms, expected->connect_timeout_ms) &&
           same_time(found->watchdog_ms, expected->watchdog_ms) &&
           same_time(found->max_hold_ms, expected->max_hold_ms) &&
           same_time(found->ping_interval_ms, expected->ping_interval_ms) &&
           found->busy_poll == expected->busy_poll &&
           same_time(found->fair_wait_ms, expected->fair_wait_ms) &&
           same_time(found->histogram_names, expected->histogram_names) &&
           same_time(found->clock_drift_ppm, expected->clock_drift_ppm) &&
           same_text(found->name_prefix, expected->name_prefix) &&
           same_text(found->tls_ca_file, expected->tls_ca_file) &&
           same_text(found->tls_ca_dir, expected->tls_ca_dir) &&
           same_text(found->tls_cert_file, expected->tls_cert_file) &&
           same_text(found->tls_key_file, expected->tls_key_file) &&
           same_text(found->tls_server_name, expected->tls_server_name) &&
           found->tls_min_version == expected->tls_min_version &&
           found->tls_verify == expected->tls_verify;
}

CASE(good_urls_are_taken_apart) {
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct hfi_url url;
        hf_error error = {0};
        int err = hfi_url_parse(&plain_memory, good[i].text, &url, &error);
        if (err != HF_OK)
            fail_msg("%s: %s", good[i].text, error.text);
        if (!same_url(&url, &good[i].expected))
            fail_msg("%s was taken apart into other things", good[i].text);
        hfi_url_clear(&plain_memory, &url);
    }
}

/* ---- Bad urls -------------------------------------------------------------------------------- */

struct bad {
    const char *text;
    int code;
    const char *words; /* what the message must name */
};

static const struct bad bad[] = {
    {"", HF_EINVAL, "the scheme"},
    {"host", HF_EINVAL, "the scheme"},
    {"host:6379", HF_EINVAL, "the scheme"},
    {"redis:host", HF_EINVAL, "the scheme"},
    {"redis:/host", HF_EINVAL, "the scheme"},
    {"http://host", HF_EINVAL, "'http' is not a known scheme; use redis, "},
    {"http://me:" SECRET "@host", HF_EINVAL, "'http' is not a known scheme"},
    {"re\001d\033is://host", HF_EINVAL, "'re\\x01d\\x1bis' is not a known scheme"},
    {"r\303\251dis://host", HF_EINVAL, "'r\\xc3\\xa9dis' is not a known scheme"},
    {"postgresql-behind-a-very-long-tunnel://host", HF_EINVAL,
     "'postgresql-behind-a-very-long-tu...' is not a known scheme"},
    {"me:" SECRET "@http://host", HF_EINVAL, "the scheme is unknown; use redis, "},
    {"://host", HF_EINVAL, "the scheme"},
    {" redis://host", HF_EINVAL, "the scheme"},
    {SECRET "@host", HF_EINVAL, "the scheme"},
    {"me:" SECRET "@host", HF_EINVAL, "the scheme"},
    {SECRET "://host", HF_EINVAL, "the scheme"},

    {"redis://:" SECRET "@host?tls_verify=full", HF_EINVAL, "rediss://"},
    {"unix:///a?tls_ca_file=b", HF_EINVAL, "rediss://"},
    {"local:?tls_min_version=1.3", HF_EINVAL, "rediss://"},
    {"rediss://host?tls_verify=no", HF_EINVAL, "tls_verify must be full or none"},
    {"rediss://host?tls_verify=none&tls_verify=full", HF_EINVAL, "tls_verify is given twice"},
    {"rediss://host?tls_min_version=1.1", HF_EINVAL, "tls_min_version must be 1.2 or 1.3"},
    {"rediss://host?tls_min_version=1.2&tls_min_version=1.2", HF_EINVAL, "given twice"},
    {"rediss://host?tls_ca_file=", HF_EINVAL, "tls_ca_file is empty"},
    {"rediss://host?tls_ca_file=a&tls_ca_file=a", HF_EINVAL, "tls_ca_file is given twice"},
    {"rediss://host?tls_key_file=%00", HF_EINVAL, "tls_key_file"},
    {"rediss://host?tls_password=" SECRET, HF_EINVAL, "tls_password"},
    {"redis://h1,h2", HF_EINVAL, "several hosts"},
    {"redis://:" SECRET "@h1:1,h2:2/3", HF_EINVAL, "redis-cluster://"},

    {"redis://host:", HF_EINVAL, "the port"},
    {"redis://host:0", HF_EINVAL, "the port"},
    {"redis://host:65536", HF_EINVAL, "the port"},
    {"redis://host:99999999999999999999", HF_EINVAL, "the port"},
    {"redis://host:-1", HF_EINVAL, "the port"},
    {"redis://host:+1", HF_EINVAL, "the port"},
    {"redis://host: 1", HF_EINVAL, "the port"},
    {"redis://host:1a", HF_EINVAL, "the port"},
    {"redis://me:" SECRET, HF_EINVAL, "the port"}, /* the host was forgotten */
    {"redis://[::1]:x", HF_EINVAL, "the port"},

    {"redis://::1", HF_EINVAL, "brackets"},
    {"redis://me:" SECRET ":6379", HF_EINVAL, "the host"},
    {"redis://[::1", HF_EINVAL, "bracket"},
    {"redis://[]", HF_EINVAL, "bracket"},
    {"redis://[host]", HF_EINVAL, "bracket"},
    {"redis://[::1]x", HF_EINVAL, "bracket"},
    {"redis://ho st", HF_EINVAL, "the host"},
    {"redis://ho%20st", HF_EINVAL, "the host"},
    {"redis://ho%0ast", HF_EINVAL, "the host"},
    {"redis://ho%3ast", HF_EINVAL, "the host"},
    {"redis://ho%2Fst", HF_EINVAL, "the host"},
    {"redis://host#master", HF_EINVAL, "the host"},
    {"redis://" X100 X100 X100, HF_EINVAL, "the host"},
    {"redis://h%00", HF_EINVAL, "the host"},
    {"redis://h%zz", HF_EINVAL, "the host"},
    {"redis://h%2", HF_EINVAL, "the host"},
    {"redis://h%", HF_EINVAL, "the host"},

    {"redis://host/x", HF_EINVAL, "the database"},
    {"redis://host/1x", HF_EINVAL, "the database"},
    {"redis://host/-1", HF_EINVAL, "the database"},
    {"redis://host/1/", HF_EINVAL, "the database"},
    {"redis://host//1", HF_EINVAL, "the database"},
    {"redis://host/2147483648", HF_EINVAL, "the database"},
    {"redis://host?db=", HF_EINVAL, "the database"},
    {"redis://host?db", HF_EINVAL, "the database"},
    {"redis://host?db=%31", HF_EINVAL, "the database"},
    {"redis://host/1?db=1", HF_EINVAL, "twice"},
    {"redis://host?db=1&db=1", HF_EINVAL, "twice"},
    {"redis://" SECRET "/x@host/" SECRET, HF_EINVAL, "the database"},

    {"redis://me%00:" SECRET "@host", HF_EINVAL, "the user"},
    {"redis://m%e:" SECRET "@host", HF_EINVAL, "the user"},
    {"redis://me:" SECRET "%@host", HF_EINVAL, "the password"},
    {"redis://me:" SECRET "%0@host", HF_EINVAL, "the password"},
    {"redis://" SECRET "%00@host", HF_EINVAL, "the password"},
    {"redis://:50%" SECRET "@host", HF_EINVAL, "the password"},
    {"redis://:" SECRET "@host?password=x", HF_EINVAL, "the password is given twice"},
    {"redis://host?password=" SECRET "&password=" SECRET, HF_EINVAL, "twice"},
    {"redis://me:" SECRET "@host?user=me", HF_EINVAL, "the user is given twice"},
    {"redis://host?password=%" SECRET, HF_EINVAL, "the password"},

    {"redis://host?colour=red", HF_EINVAL, "'colour'"},
    {"redis://host?colour", HF_EINVAL, "'colour'"},
    {"redis://host?DB=1", HF_EINVAL, "'DB'"},
    {"redis://host?=1", HF_EINVAL, "option"},
    {"redis://a?" SECRET "@host", HF_EINVAL, "%3F"}, /* an unescaped password */
    {"redis://a?b&" SECRET "=c@host", HF_EINVAL, "%3F"},
    {"redis://:a?" SECRET "@host", HF_EINVAL, "the port"},
    {"redis://host?busy_poll=maybe", HF_EINVAL, "busy_poll must be on or off"},
    {"redis://host?busy_poll=on&busy_poll=on", HF_EINVAL, "busy_poll is given twice"},
    {"zk://host?busy_poll=off", HF_EINVAL, "busy_poll cannot be used with ZooKeeper"},
    {"redis://host?ping_interval_ms=", HF_EINVAL, "ping_interval_ms"},
    {"redis://host?ping_interval_ms=-1", HF_EINVAL, "ping_interval_ms"},
    {"redis://host?ping_interval_ms=1s", HF_EINVAL, "ping_interval_ms"},
    {"redis://host?ping_interval_ms=1&ping_interval_ms=2", HF_EINVAL,
     "ping_interval_ms is given twice"},
    {"redis://host?fair_wait_ms=5m", HF_EINVAL, "fair_wait_ms"},
    {"redis://host?fair_wait_ms=1&fair_wait_ms=1", HF_EINVAL, "fair_wait_ms is given twice"},
    {"redis://host?histogram_names=all", HF_EINVAL, "histogram_names is not a number"},
    {"redis://host?histogram_names=1&histogram_names=1", HF_EINVAL,
     "histogram_names is given twice"},
    {"redis://host?clock_drift_ppm=1%25", HF_EINVAL, "clock_drift_ppm is not a number"},
    {"redis://host?watchdog_ms=316224000001", HF_EINVAL, "watchdog_ms"},
    {"redis://host?cmd_timeout_ms=99999999999999999999999", HF_EINVAL, "cmd_timeout_ms"},
    {"redis://host?name_prefix=%", HF_EINVAL, "name_prefix"},
    {"redis://host?name_prefix=a&name_prefix=b", HF_EINVAL, "name_prefix is given twice"},

    {"unix://", HF_EINVAL, "the socket's path is missing"},
    {"unix:///", HF_EINVAL, "the socket's path is missing"},
    {"unix://me:" SECRET "@/", HF_EINVAL, "the socket's path is missing"},
    {"unix://relative/path", HF_EINVAL, "not absolute"},
    {"unix://" SECRET "@relative", HF_EINVAL, "not absolute"},
    {"unix:/a", HF_EINVAL, "the scheme"},
    {"unix:///a%00b", HF_EINVAL, "the socket's path"},
    {"unix:///a%", HF_EINVAL, "the socket's path"},
    {"unix:///" X100 "1234567", HF_EINVAL, "the socket's path is longer than 107"},

    {"local:dir", HF_EINVAL, "the directory"},
    {"local://dir", HF_EINVAL, "the directory"},
    {"local:///dir", HF_EINVAL, "the directory"},
    {"local:/%00", HF_EINVAL, "the directory"},
    {"local:/" X100, HF_EINVAL, "the directory is longer"},
    {"local:?password=" SECRET, HF_EINVAL, "takes no user or password"},
    {"local:?user=me", HF_EINVAL, "takes no user or password"},
};

CASE(bad_urls_are_refused_by_part) {
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct hfi_url url, untouched;
        memset(&url, 0x5a, sizeof url);
        memset(&untouched, 0x5a, sizeof untouched);
        hf_error error = {0};
        int err = hfi_url_parse(&plain_memory, bad[i].text, &url, &error);
        if (err != bad[i].code || error.code != err)
            fail_msg("%s: %s, %s", bad[i].text, hf_error_name(err), error.text);
        if (strstr(error.text, bad[i].words) == NULL)
            fail_msg("%s: '%s' does not say '%s'", bad[i].text, error.text, bad[i].words);
        if (strstr(error.text, SECRET) != NULL)
            fail_msg("a message contains the password: %s", error.text);
        assert_memory_equal(&url, &untouched, sizeof url);
        assert_int_equal(hfi_url_parse(&plain_memory, bad[i].text, &url, NULL), bad[i].code);
    }
}

CASE(socket_limit_is_the_systems) {
    struct sockaddr_un un;
    assert_int_equal(HFI_URL_SOCKET_MAX, sizeof un.sun_path - 1);
}

/* ---- Memory ---------------------------------------------------------------------------------- */

/* An allocator that fails at a chosen allocation and looks at what is given back. */
struct allocator {
    int failing; /* the allocation that fails, counted from 0; -1: none */
    int count, living;
    bool leaked_secret;
};

static void *tell_allocate(size_t size, void *user) {
    struct allocator *allocator = user;
    if (allocator->count++ == allocator->failing)
        return NULL;
    size_t *block = calloc(1, sizeof(size_t) + size);
    *block = size;
    allocator->living++;
    return block + 1;
}

static void *tell_resize(void *ptr, size_t size, void *user) {
    (void)ptr;
    (void)size;
    (void)user;
    abort();
}

static void report_release(void *ptr, void *user) {
    struct allocator *allocator = user;
    size_t *block = (size_t *)ptr - 1;
    if (memmem(ptr, *block, "S3cr", 4) != NULL)
        allocator->leaked_secret = true;
    allocator->living--;
    free(block);
}

static struct hfi_mem telling_memory(struct allocator *allocator) {
    return (struct hfi_mem){.hook = {tell_allocate, tell_resize, report_release, allocator}};
}

CASE(every_allocation_may_fail) {
    const char *text = "redis://me:" SECRET "@host?name_prefix=p";
    for (int failing = 0;; failing++) {
        struct allocator allocator = {.failing = failing};
        struct hfi_mem mem = telling_memory(&allocator);
        struct hfi_url url;
        int err = hfi_url_parse(&mem, text, &url, NULL);
        if (err == HF_OK) {
            hfi_url_clear(&mem, &url);
            assert_int_equal(failing, 4);
        } else {
            assert_int_equal(err, HF_ENOMEM);
        }
        assert_int_equal(allocator.living, 0);
        assert_false(allocator.leaked_secret);
        if (err == HF_OK)
            return;
    }
}

CASE(password_is_wiped) {
    static const char *const texts[] = {
        "redis://me:" SECRET "@host",          /* cleared by us */
        "redis://me:" SECRET "@host:x",        /* given up after it was copied */
        "redis://me:" SECRET "%@host",         /* given up while it was copied */
        "redis://host?password=" SECRET "&x=", /* given up after the option */
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct allocator allocator = {.failing = -1};
        struct hfi_mem mem = telling_memory(&allocator);
        struct hfi_url url;
        if (hfi_url_parse(&mem, texts[i], &url, NULL) == HF_OK) {
            assert_non_null(strstr(url.password, SECRET)); /* the test can see it */
            hfi_url_clear(&mem, &url);
            assert_null(url.password);
        }
        assert_int_equal(allocator.living, 0);
        assert_false(allocator.leaked_secret);
    }
    hfi_url_clear(&plain_memory, NULL);
    hfi_url_clear(&plain_memory, &(struct hfi_url){0});
}

/* ---- Random mutations ------------------------------------------------------------------------ */

/* Changes, removes, doubles or inserts something at a random place, but never within the password.
 */
static void mutate(char *text, size_t size, unsigned *seed) {
    static const char spice[] = ":/@?&=%#[],.0aZ \x01\xff";
    size_t len = strlen(text), at = len > 0 ? (size_t)rand_r(seed) % (len + 1) : 0;
    const char *secret = strstr(text, SECRET);
    size_t secret_at = secret != NULL ? (size_t)(secret - text) : len + 1;
    if (at > secret_at && at < secret_at + strlen(SECRET))
        return;
    int what = rand_r(seed) % 4;
    if (what == 0 && at < len && at != secret_at)
        text[at] = spice[(size_t)rand_r(seed) % (sizeof spice - 1)];
    else if (what == 1 && at < len && at != secret_at)
        memmove(text + at, text + at + 1, len - at);
    else if (what == 2 && len + 2 < size) {
        memmove(text + at + 1, text + at, len - at + 1);
        text[at] = spice[(size_t)rand_r(seed) % (sizeof spice - 1)];
    } else if (what == 3 && at <= secret_at)
        memmove(text, text + at, len - at + 1); /* cut the front off */
}

/* The one place whose text a message may show: behind a `?`, as the name of an option. */
static bool secret_is_an_option(const char *text) {
    const char *question = strchr(text, '?'), *secret = strstr(text, SECRET);
    return question != NULL && secret > question && strchr(question, '@') == NULL;
}

CASE(mutated_urls_do_no_harm) {
    const char *given = getenv("HF_TEST_SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid();
    print_message("HF_TEST_SEED=%u\n", seed);
    static const char *const starts[] = {
        "redis://me:" SECRET "@[::1]:6379/1?ping_interval_ms=1&name_prefix=a",
        "redis://" SECRET "@host:6379/1?watchdog_ms=10",
        "unix://:" SECRET "@/run/redis.sock?db=1",
        ("redis://h1?user=me&password=" SECRET),
    };
    int rounds = getenv("HF_SOAK") != NULL ? 3000000 : 100000, good_count = 0, bad_count = 0;
    for (int i = 0; i < rounds; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s", starts[(size_t)i % (sizeof starts / sizeof starts[0])]);
        for (int changes = 1 + rand_r(&seed) % 6; changes > 0; changes--)
            mutate(text, sizeof text, &seed);
        own_text *exact = strdup(text); /* so that a read behind its end is seen */
        struct hfi_url url;
        hf_error error = {0};
        if (hfi_url_parse(&plain_memory, exact, &url, &error) == HF_OK) {
            hfi_url_clear(&plain_memory, &url);
            good_count++;
        } else {
            bad_count++;
            assert_true(error.text[0] != '\0');
            if (strstr(error.text, SECRET) != NULL && !secret_is_an_option(text))
                fail_msg("%s: the message contains the password: %s", text, error.text);
        }
    }
    assert_true(good_count > 0 && bad_count > 0);
}

RUN_CASES(NULL, NULL)
