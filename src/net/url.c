/*
 * Connection urls, taken apart (the forms are in url.h).
 *
 * Called by the API when a client is opened, on the caller's thread; stateless. One pass from left
 * to right over the text, with the pieces as slices of it; only what the url owns in the end is
 * copied, decoded.
 *
 * Invariant: no message can contain a password. So no message quotes any of the text, except the
 * name of an unknown option, and that only when nothing behind the `?` looks like the end of a
 * userinfo: people write unescaped passwords, and `redis://:a?b@host` must not be answered with
 * "unknown option 'b@host'". For the same reason userinfo reaches to the *last* `@` in front of the
 * options: no valid host or database contains one, but a careless password may.
 */
#include "net/url.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

#define DEFAULT_HOST "localhost"
#define DEFAULT_PORT 6379
#define HOST_MAX 255 /* what DNS allows, roughly */

struct slice {
    const char *at;
    size_t len;
};

struct parser {
    const struct hfi_mem *mem;
    hf_error *error;
    struct hfi_url url; /* what has been found so far */
    bool db_given;
};

static bool slice_is(struct slice s, const char *text) {
    return s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

static bool slice_is_nocase(struct slice s, const char *text) {
    return s.len == strlen(text) && strncasecmp(s.at, text, s.len) == 0;
}

/* What is in front of `at`, which points into the slice. */
static struct slice before(struct slice s, const char *at) {
    return (struct slice){s.at, (size_t)(at - s.at)};
}

/* What is behind the `skip` bytes at `at`. */
static struct slice behind(struct slice s, const char *at, size_t skip) {
    return (struct slice){at + skip, s.len - (size_t)(at - s.at) - skip};
}

static const char *find(struct slice s, char wanted) {
    return s.len > 0 ? memchr(s.at, wanted, s.len) : NULL;
}

static const char *find_last(struct slice s, char wanted) {
    return s.len > 0 ? memrchr(s.at, wanted, s.len) : NULL;
}

static const char *find_text(struct slice s, const char *wanted) {
    return s.len > 0 ? memmem(s.at, s.len, wanted, strlen(wanted)) : NULL;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The byte that `%XX` at `at` stands for; -1: it is none, -2: NUL. */
static int unescape(const char *at, size_t len) {
    int high = len >= 3 ? hex_digit(at[1]) : -1;
    int low = len >= 3 ? hex_digit(at[2]) : -1;
    if (high < 0 || low < 0)
        return -1;
    return high == 0 && low == 0 ? -2 : high * 16 + low;
}

/* A decoded copy. `what` is the name of the part in messages. The copy may be a password, so it is
 * wiped when it is given up. */
static int decode(const struct parser *p, struct slice raw, const char *what, char **ret) {
    char *copy = hfi_alloc(p->mem, raw.len + 1);
    if (copy == NULL)
        return hfi_fail(p->error, HF_ENOMEM, "out of memory");

    size_t len = 0;
    for (size_t i = 0; i < raw.len; i++) {
        int byte = (unsigned char)raw.at[i];
        if (byte == '%') {
            byte = unescape(raw.at + i, raw.len - i);
            i += 2;
        }
        if (byte < 0) {
            explicit_bzero(copy, len);
            hfi_free(p->mem, copy);
            return byte == -2
                       ? hfi_fail(p->error, HF_EINVAL, "url: %s contains a NUL (%%00)", what)
                       : hfi_fail(p->error, HF_EINVAL,
                                  "url: in %s a '%%' is not followed by two hex digits; a percent "
                                  "sign is written %%25",
                                  what);
        }
        copy[len++] = (char)byte;
    }
    copy[len] = '\0';
    *ret = copy;
    return HF_OK;
}

/* A number of digits only, up to `max`. */
static bool parse_number(struct slice text, int64_t max, int64_t *ret) {
    int64_t value = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
        int digit = text.at[i] - '0';
        if (value > (max - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    if (text.len == 0)
        return false;
    *ret = value;
    return true;
}

/* ---- Userinfo -------------------------------------------------------------------------------- */

static int set_user(struct parser *p, struct slice text) {
    if (p->url.user != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the user is given twice");
    return decode(p, text, "the user", &p->url.user);
}

static int set_password(struct parser *p, struct slice text) {
    if (p->url.password != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the password is given twice");
    return decode(p, text, "the password", &p->url.password);
}

static int parse_userinfo(struct parser *p, struct slice text) {
    const char *colon = find(text, ':');
    if (colon == NULL) /* redis-cli's reading; redis-py would take it for a user */
        return text.len > 0 ? set_password(p, text) : HF_OK;

    struct slice user = before(text, colon), password = behind(text, colon, 1);
    if (user.len == 0) /* the default user; and with no password either: nobody in particular */
        return password.len > 0 ? set_password(p, password) : HF_OK;
    int err = set_user(p, user);
    return err == HF_OK ? set_password(p, password) : err;
}

/* ---- Options --------------------------------------------------------------------------------- */

static int set_db(struct parser *p, struct slice text) {
    int64_t db;
    if (!parse_number(text, INT32_MAX, &db))
        return hfi_fail(p->error, HF_EINVAL, "url: the database is not a number");
    if (p->db_given)
        return hfi_fail(p->error, HF_EINVAL, "url: the database is given twice");
    p->url.db = (int)db;
    p->db_given = true;
    return HF_OK;
}

static int set_name_prefix(struct parser *p, struct slice text) {
    if (p->url.name_prefix != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the option name_prefix is given twice");
    return decode(p, text, "the option name_prefix", &p->url.name_prefix);
}

static int set_time(struct parser *p, struct slice text, const char *name, int64_t *time_ms) {
    int64_t value;
    if (!parse_number(text, HF_LEASE_MAX_MS, &value))
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the option %s is not a number of milliseconds (0 .. %lld)", name,
                        (long long)HF_LEASE_MAX_MS);
    if (*time_ms != -1)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is given twice", name);
    *time_ms = value;
    return HF_OK;
}

static int set_tls_version(struct parser *p, struct slice text) {
    if (p->url.tls_min_version != 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the option tls_min_version is given twice");
    p->url.tls_min_version = slice_is(text, "1.2") ? HF_TLS_1_2 : HF_TLS_1_3;
    if (!slice_is(text, "1.2") && !slice_is(text, "1.3"))
        return hfi_fail(p->error, HF_EINVAL, "url: the option tls_min_version is 1.2 or 1.3");
    return HF_OK;
}

static int set_tls_verify(struct parser *p, struct slice text) {
    if (p->url.tls_verify != HFI_VERIFY_DEFAULT)
        return hfi_fail(p->error, HF_EINVAL, "url: the option tls_verify is given twice");
    p->url.tls_verify = slice_is(text, "none") ? HFI_VERIFY_NONE : HFI_VERIFY_FULL;
    if (!slice_is(text, "none") && !slice_is(text, "full"))
        return hfi_fail(p->error, HF_EINVAL, "url: the option tls_verify is full or none");
    return HF_OK;
}

/* *ret_known tells whether it is an option of TLS at all. */
static int set_tls_option(struct parser *p, struct slice name, struct slice value,
                          bool *ret_known) {
    const struct {
        const char *name;
        char **text;
    } texts[] = {
        {"tls_ca_file", &p->url.tls_ca_file},         {"tls_ca_dir", &p->url.tls_ca_dir},
        {"tls_cert_file", &p->url.tls_cert_file},     {"tls_key_file", &p->url.tls_key_file},
        {"tls_server_name", &p->url.tls_server_name},
    };
    const size_t len = sizeof texts / sizeof texts[0];
    bool is_version = slice_is(name, "tls_min_version"), is_verify = slice_is(name, "tls_verify");
    size_t i = 0;
    while (i < len && !slice_is(name, texts[i].name))
        i++;
    *ret_known = i < len || is_version || is_verify;
    if (!*ret_known)
        return HF_OK;
    if (!p->url.tls)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: options of TLS need TLS; write rediss:// or valkeys://");
    if (is_version)
        return set_tls_version(p, value);
    if (is_verify)
        return set_tls_verify(p, value);
    if (*texts[i].text != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is given twice", texts[i].name);
    if (value.len == 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is empty", texts[i].name);
    return decode(p, value, texts[i].name, texts[i].text);
}

static int unknown_option(const struct parser *p, struct slice name, bool may_quote) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    bool is_plain = name.len > 0 && name.len <= 40;
    for (size_t i = 0; is_plain && i < name.len; i++)
        is_plain = memchr(plain, name.at[i], sizeof plain - 1) != NULL;
    if (may_quote && is_plain)
        return hfi_fail(p->error, HF_EINVAL, "url: unknown option '%.*s'", (int)name.len, name.at);
    return hfi_fail(
        p->error, HF_EINVAL,
        "url: unknown option behind the '?' (in a password, '?' is written %%3F and '@' "
        "is written %%40)");
}

static int set_option(struct parser *p, struct slice option, bool may_quote) {
    const char *equals = find(option, '=');
    struct slice name = equals != NULL ? before(option, equals) : option;
    struct slice value = equals != NULL ? behind(option, equals, 1) : (struct slice){"", 0};

    const struct {
        const char *name;
        int64_t *time_ms;
    } times[] = {
        {"cmd_timeout_ms", &p->url.cmd_timeout_ms},
        {"connect_timeout_ms", &p->url.connect_timeout_ms},
        {"watchdog_ms", &p->url.watchdog_ms},
        {"ping_ms", &p->url.ping_ms},
        {"fair_wait_ms", &p->url.fair_wait_ms},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (slice_is(name, times[i].name))
            return set_time(p, value, times[i].name, times[i].time_ms);

    if (slice_is(name, "db"))
        return set_db(p, value);
    if (slice_is(name, "name_prefix"))
        return set_name_prefix(p, value);
    bool is_user = slice_is(name, "user"), is_password = slice_is(name, "password");
    if ((is_user || is_password) && p->url.kind == HFI_URL_LOCAL)
        return hfi_fail(p->error, HF_EINVAL, "url: local: has neither user nor password");
    if (is_user)
        return set_user(p, value);
    if (is_password)
        return set_password(p, value);
    bool known;
    int err = set_tls_option(p, name, value, &known);
    return known ? err : unknown_option(p, name, may_quote);
}

static int parse_options(struct parser *p, struct slice text) {
    bool may_quote = find(text, '@') == NULL;
    while (text.len > 0) {
        const char *ampersand = find(text, '&');
        struct slice option = ampersand != NULL ? before(text, ampersand) : text;
        text = ampersand != NULL ? behind(text, ampersand, 1) : (struct slice){"", 0};
        int err = option.len > 0 ? set_option(p, option, may_quote) : HF_OK;
        if (err != HF_OK)
            return err;
    }
    return HF_OK;
}

/* ---- redis://, valkey://, with and without TLS --------------------------------------------------------------------- */

static int set_host(struct parser *p, struct slice text, bool brackets) {
    if (text.len == 0)
        text = (struct slice){DEFAULT_HOST, strlen(DEFAULT_HOST)};
    int err = decode(p, text, "the host", &p->url.host);
    if (err != HF_OK)
        return err;

    const char *host = p->url.host;
    if (strlen(host) > HOST_MAX)
        return hfi_fail(p->error, HF_EINVAL, "url: the host is longer than %d bytes", HOST_MAX);
    for (const char *c = host; *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || strchr("/?#@[],", *c) != NULL)
            return hfi_fail(p->error, HF_EINVAL, "url: the host contains a character no host has");
    if (!brackets && strchr(host, ':') != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the host contains a colon");
    if (brackets && strchr(host, ':') == NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the host in brackets is no IPv6 address");
    return HF_OK;
}

static int set_port(struct parser *p, struct slice text) {
    int64_t port;
    if (!parse_number(text, UINT16_MAX, &port) || port == 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the port is not a number from 1 to 65535");
    p->url.port = (uint16_t)port;
    return HF_OK;
}

static int parse_bracketed_host(struct parser *p, struct slice text) {
    const char *close = find(text, ']');
    if (close == NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the host lacks a closing bracket");
    struct slice inside = behind(before(text, close), text.at, 1), rest = behind(text, close, 1);
    if (inside.len == 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the host in brackets is no IPv6 address");
    if (rest.len > 0 && rest.at[0] != ':')
        return hfi_fail(p->error, HF_EINVAL,
                        "url: behind the host in brackets there is something that is no port");
    int err = set_host(p, inside, true);
    if (err != HF_OK || rest.len == 0)
        return err;
    return set_port(p, behind(rest, rest.at, 1));
}

static int parse_host_and_port(struct parser *p, struct slice text) {
    p->url.port = DEFAULT_PORT;
    if (find(text, ',') != NULL)
        return hfi_fail(p->error, HF_ENOTSUP,
                        "url: several hosts (Sentinel, Cluster) are not supported by this version");
    if (text.len > 0 && text.at[0] == '[')
        return parse_bracketed_host(p, text);

    const char *colon = find(text, ':');
    if (colon == NULL)
        return set_host(p, text, false);
    if (find_last(text, ':') != colon)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the host contains colons; an IPv6 address is written in brackets");
    int err = set_host(p, before(text, colon), false);
    return err == HF_OK ? set_port(p, behind(text, colon, 1)) : err;
}

static int parse_tcp(struct parser *p, struct slice text) {
    const char *at = find_last(text, '@');
    if (at != NULL) {
        int err = parse_userinfo(p, before(text, at));
        if (err != HF_OK)
            return err;
        text = behind(text, at, 1);
    }

    const char *slash = find(text, '/');
    int err = parse_host_and_port(p, slash != NULL ? before(text, slash) : text);
    if (err != HF_OK || slash == NULL)
        return err;
    struct slice db = behind(text, slash, 1);
    return db.len > 0 ? set_db(p, db) : HF_OK;
}

static int parse_tls(struct parser *p, struct slice text) {
    p->url.tls = true;
    return parse_tcp(p, text);
}

/* ---- unix://, local: ------------------------------------------------------------------------- */

static int set_path(struct parser *p, struct slice text, const char *what, size_t max) {
    int err = decode(p, text, what, &p->url.path);
    if (err != HF_OK)
        return err;
    if (strlen(p->url.path) > max)
        return hfi_fail(p->error, HF_EINVAL, "url: %s is longer than %zu bytes", what, max);
    return HF_OK;
}

static int parse_unix(struct parser *p, struct slice text) {
    if (text.len > 0 && text.at[0] != '/') {
        const char *end = find_text(text, "@/");
        if (end == NULL)
            return hfi_fail(p->error, HF_EINVAL,
                            "url: the socket's path is not absolute; write unix:///path/to/socket");
        int err = parse_userinfo(p, before(text, end));
        if (err != HF_OK)
            return err;
        text = behind(text, end, 1);
    }
    if (text.len <= 1)
        return hfi_fail(p->error, HF_EINVAL, "url: the socket's path is missing");
    return set_path(p, text, "the socket's path", HFI_URL_SOCKET_MAX);
}

static int parse_local(struct parser *p, struct slice text) {
    if (text.len == 0)
        return HF_OK;
    if (text.at[0] != '/' || (text.len > 1 && text.at[1] == '/'))
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the directory is not absolute; write local: or local:/directory");
    return set_path(p, text, "the directory", HFI_URL_LOCAL_DIR_MAX);
}

/* ---- The whole ------------------------------------------------------------------------------- */

struct scheme {
    const char *name;
    enum hfi_url_kind kind;
    int (*parse)(struct parser *p, struct slice text); /* NULL: not yet */
    const char *refusal;                               /* what is not supported yet */
};

static const struct scheme schemes[] = {
    {"redis", HFI_URL_TCP, parse_tcp, NULL},
    {"valkey", HFI_URL_TCP, parse_tcp, NULL},
    {"unix", HFI_URL_UNIX, parse_unix, NULL},
    {"redis+unix", HFI_URL_UNIX, parse_unix, NULL},
    {"redis+uds", HFI_URL_UNIX, parse_unix, NULL},
    {"valkey+uds", HFI_URL_UNIX, parse_unix, NULL},
    {"redis-socket", HFI_URL_UNIX, parse_unix, NULL},
    {"rediss", HFI_URL_TCP, parse_tls, NULL},
    {"valkeys", HFI_URL_TCP, parse_tls, NULL},
    {"redis-sentinel", HFI_URL_TCP, NULL, "Sentinel"},
    {"rediss-sentinel", HFI_URL_TCP, NULL, "Sentinel"},
    {"redis-sentinels", HFI_URL_TCP, NULL, "Sentinel"},
    {"valkey-sentinel", HFI_URL_TCP, NULL, "Sentinel"},
    {"redis-cluster", HFI_URL_TCP, NULL, "Cluster"},
    {"rediss-cluster", HFI_URL_TCP, NULL, "Cluster"},
    {"valkey-cluster", HFI_URL_TCP, NULL, "Cluster"},
};

static const struct scheme local_scheme = {"local", HFI_URL_LOCAL, parse_local, NULL};

/* Finds the scheme and takes it, with its `:` or `://`, off the text. */
static int parse_scheme(const struct parser *p, struct slice *text, const struct scheme **ret) {
    const char *colon = find(*text, ':');
    if (colon != NULL && slice_is_nocase(before(*text, colon), local_scheme.name)) {
        *ret = &local_scheme;
        *text = behind(*text, colon, 1);
        return HF_OK;
    }

    const char *mark = find_text(*text, "://");
    if (mark == NULL)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the scheme is missing; write redis://host, unix:///path or local:");
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (!slice_is_nocase(before(*text, mark), schemes[i].name))
            continue;
        if (schemes[i].parse == NULL)
            return hfi_fail(p->error, HF_ENOTSUP, "url: %s is not supported by this version",
                            schemes[i].refusal);
        *ret = &schemes[i];
        *text = behind(*text, mark, strlen("://"));
        return HF_OK;
    }
    return hfi_fail(
        p->error, HF_EINVAL,
        "url: the scheme is unknown; it is one of redis, rediss, valkey, valkeys, unix, local");
}

static int parse_all(struct parser *p, struct slice text) {
    const struct scheme *scheme = NULL;
    int err = parse_scheme(p, &text, &scheme);
    if (err != HF_OK)
        return err;
    assert(scheme != NULL);
    p->url.kind = scheme->kind;

    const char *question = find(text, '?');
    err = scheme->parse(p, question != NULL ? before(text, question) : text);
    if (err == HF_OK && question != NULL)
        err = parse_options(p, behind(text, question, 1));
    return err;
}

int hfi_url_parse(const struct hfi_mem *mem, const char *text, struct hfi_url *ret,
                  hf_error *error) {
    struct parser p = {
        .mem = mem,
        .error = error,
        .url = {.cmd_timeout_ms = -1,
                .connect_timeout_ms = -1,
                .watchdog_ms = -1,
                .ping_ms = -1,
                .fair_wait_ms = -1},
    };
    int err = parse_all(&p, (struct slice){text, strlen(text)});
    if (err != HF_OK) {
        hfi_url_clear(mem, &p.url);
        return err;
    }
    *ret = p.url;
    return HF_OK;
}

void hfi_url_clear(const struct hfi_mem *mem, struct hfi_url *url) {
    if (url == NULL)
        return;
    if (url->password != NULL)
        explicit_bzero(url->password, strlen(url->password));
    hfi_free(mem, url->host);
    hfi_free(mem, url->path);
    hfi_free(mem, url->user);
    hfi_free(mem, url->password);
    hfi_free(mem, url->name_prefix);
    hfi_free(mem, url->tls_ca_file);
    hfi_free(mem, url->tls_ca_dir);
    hfi_free(mem, url->tls_cert_file);
    hfi_free(mem, url->tls_key_file);
    hfi_free(mem, url->tls_server_name);
    memset(url, 0, sizeof *url);
}
