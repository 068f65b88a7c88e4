/*
 * Parsing connection urls (see url.h): scheme, userinfo, host, path. url_options.c has the part
 * after the `?`, url_hosts.c, url_sentinel.c and url_zk.c the other topologies.
 *
 * The API calls this when a client is opened, on the caller's thread; stateless. One pass over the
 * text from left to right, in slices; only what the url owns in the end is decoded and copied.
 *
 * Invariant: no message can contain a password, so no message quotes the text. The exceptions are
 * an unknown scheme and an unknown option (url_options.c), if that cannot be a password. For the
 * same reason userinfo extends to the *last* `@` before the options: no valid host or database contains
 * one, but an unescaped password may.
 */
#include "net/url/url_parser.h"

#include <assert.h>
#include <stdio.h>
#include <strings.h>

#define DEFAULT_HOST "localhost"
#define DEFAULT_PORT 6379
#define HOST_MAX 255 /* roughly what DNS allows */

static bool slice_is_nocase(struct slice s, const char *text) {
    return s.len == strlen(text) && strncasecmp(s.at, text, s.len) == 0;
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

/* The byte that `%XX` at `at` stands for; -1: not an escape, -2: NUL. */
static int unescape(const char *at, size_t len) {
    int high = len >= 3 ? hex_digit(at[1]) : -1;
    int low = len >= 3 ? hex_digit(at[2]) : -1;
    if (high < 0 || low < 0)
        return -1;
    return high == 0 && low == 0 ? -2 : high * 16 + low;
}

int hfi_url_decode(const struct url_parser *p, struct slice raw, const char *what, char **ret) {
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
                                  "url: in %s a '%%' is not followed by two hex digits; write a "
                                  "percent sign as %%25",
                                  what);
        }
        copy[len++] = (char)byte;
    }
    copy[len] = '\0';
    *ret = copy;
    return HF_OK;
}

bool hfi_url_number(struct slice text, int64_t max, int64_t *ret) {
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

int hfi_url_set_user(struct url_parser *p, struct slice text) {
    if (p->url.user != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the user is given twice");
    return hfi_url_decode(p, text, "the user", &p->url.user);
}

int hfi_url_set_password(struct url_parser *p, struct slice text) {
    if (p->url.password != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the password is given twice");
    return hfi_url_decode(p, text, "the password", &p->url.password);
}

int hfi_url_parse_userinfo(struct url_parser *p, struct slice text) {
    const char *colon = find(text, ':');
    if (colon == NULL) /* as redis-cli reads it; redis-py would take it for a user */
        return text.len > 0 ? hfi_url_set_password(p, text) : HF_OK;

    struct slice user = before(text, colon), password = behind(text, colon, 1);
    if (user.len == 0) /* the default user; no AUTH without a password */
        return password.len > 0 ? hfi_url_set_password(p, password) : HF_OK;
    int err = hfi_url_set_user(p, user);
    return err == HF_OK ? hfi_url_set_password(p, password) : err;
}

int hfi_url_set_db(struct url_parser *p, struct slice text) {
    int64_t db;
    if (!hfi_url_number(text, INT32_MAX, &db))
        return hfi_fail(p->error, HF_EINVAL, "url: the database is not a number");
    if (p->db_given)
        return hfi_fail(p->error, HF_EINVAL, "url: the database is given twice");
    p->url.db = (int)db;
    p->db_given = true;
    return HF_OK;
}

/* ---- redis://, valkey://, with and without TLS ----------------------------------------------- */

static int check_host(const struct url_parser *p, const char *host, bool brackets) {
    if (strlen(host) > HOST_MAX)
        return hfi_fail(p->error, HF_EINVAL, "url: the host is longer than %d bytes", HOST_MAX);
    for (const char *c = host; *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || strchr("/?#@[],", *c) != NULL)
            return hfi_fail(p->error, HF_EINVAL, "url: the host contains an invalid character");
    if (!brackets && strchr(host, ':') != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the host contains a colon");
    if (brackets && strchr(host, ':') == NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the host in brackets is not an IPv6 address");
    return HF_OK;
}

static int set_name(const struct url_parser *p, struct slice text, bool brackets,
                    struct hfi_url_host *ret) {
    if (text.len == 0)
        text = (struct slice){DEFAULT_HOST, strlen(DEFAULT_HOST)};
    int err = hfi_url_decode(p, text, "the host", &ret->host);
    return err == HF_OK ? check_host(p, ret->host, brackets) : err;
}

static int set_port(const struct url_parser *p, struct slice text, struct hfi_url_host *ret) {
    int64_t port;
    if (!hfi_url_number(text, UINT16_MAX, &port) || port == 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the port is not a number from 1 to 65535");
    ret->port = (uint16_t)port;
    return HF_OK;
}

static int set_bracketed_host(const struct url_parser *p, struct slice text,
                              struct hfi_url_host *ret) {
    const char *close = find(text, ']');
    if (close == NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the host lacks a closing bracket");
    struct slice inside = behind(before(text, close), text.at, 1), rest = behind(text, close, 1);
    if (inside.len == 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the host in brackets is not an IPv6 address");
    if (rest.len > 0 && rest.at[0] != ':')
        return hfi_fail(p->error, HF_EINVAL, "url: only a port may follow the host in brackets");
    int err = set_name(p, inside, true, ret);
    if (err != HF_OK || rest.len == 0)
        return err;
    return set_port(p, behind(rest, rest.at, 1), ret);
}

void hfi_url_host_clear(const struct hfi_mem *mem, struct hfi_url_host *host) {
    hfi_free(mem, host->host);
    host->host = NULL;
}

static int set_host_and_port(const struct url_parser *p, struct slice text,
                             struct hfi_url_host *ret) {
    if (text.len > 0 && text.at[0] == '[')
        return set_bracketed_host(p, text, ret);

    const char *colon = find(text, ':');
    if (colon == NULL)
        return set_name(p, text, false, ret);
    if (find_last(text, ':') != colon)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the host contains colons; write an IPv6 address in brackets");
    int err = set_name(p, before(text, colon), false, ret);
    return err == HF_OK ? set_port(p, behind(text, colon, 1), ret) : err;
}

int hfi_url_set_host(const struct url_parser *p, struct slice text, uint16_t default_port,
                     struct hfi_url_host *ret) {
    *ret = (struct hfi_url_host){.port = default_port};
    int err = set_host_and_port(p, text, ret);
    if (err != HF_OK)
        hfi_url_host_clear(p->mem, ret);
    return err;
}

static int parse_host_and_port(struct url_parser *p, struct slice text) {
    if (find(text, ',') != NULL)
        return hfi_fail(
            p->error, HF_EINVAL,
            "url: several hosts: use redis-sentinel:// for sentinels, redis-cluster:// for "
            "cluster nodes");
    struct hfi_url_host host;
    int err = hfi_url_set_host(p, text, DEFAULT_PORT, &host);
    if (err != HF_OK)
        return err;
    p->url.host = host.host;
    p->url.port = host.port;
    return HF_OK;
}

static int parse_tcp(struct url_parser *p, struct slice text) {
    const char *at = find_last(text, '@');
    if (at != NULL) {
        int err = hfi_url_parse_userinfo(p, before(text, at));
        if (err != HF_OK)
            return err;
        text = behind(text, at, 1);
    }

    const char *slash = find(text, '/');
    int err = parse_host_and_port(p, slash != NULL ? before(text, slash) : text);
    if (err != HF_OK || slash == NULL)
        return err;
    struct slice db = behind(text, slash, 1);
    return db.len > 0 ? hfi_url_set_db(p, db) : HF_OK;
}

static int parse_tls(struct url_parser *p, struct slice text) {
    p->url.tls = true;
    return parse_tcp(p, text);
}

/* ---- unix://, local: ------------------------------------------------------------------------- */

static int set_path(struct url_parser *p, struct slice text, const char *what, size_t max) {
    int err = hfi_url_decode(p, text, what, &p->url.path);
    if (err != HF_OK)
        return err;
    if (strlen(p->url.path) > max)
        return hfi_fail(p->error, HF_EINVAL, "url: %s is longer than %zu bytes", what, max);
    return HF_OK;
}

static int parse_unix(struct url_parser *p, struct slice text) {
    if (text.len > 0 && text.at[0] != '/') {
        const char *end = find_text(text, "@/");
        if (end == NULL)
            return hfi_fail(p->error, HF_EINVAL,
                            "url: the socket's path is not absolute; write unix:///path/to/socket");
        int err = hfi_url_parse_userinfo(p, before(text, end));
        if (err != HF_OK)
            return err;
        text = behind(text, end, 1);
    }
    if (text.len <= 1)
        return hfi_fail(p->error, HF_EINVAL, "url: the socket's path is missing");
    return set_path(p, text, "the socket's path", HFI_URL_SOCKET_MAX);
}

static int parse_local(struct url_parser *p, struct slice text) {
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
    int (*parse)(struct url_parser *p, struct slice text);
};

static const struct scheme schemes[] = {
    {"redis", HFI_URL_TCP, parse_tcp},
    {"valkey", HFI_URL_TCP, parse_tcp},
    {"unix", HFI_URL_UNIX, parse_unix},
    {"redis+unix", HFI_URL_UNIX, parse_unix},
    {"redis+uds", HFI_URL_UNIX, parse_unix},
    {"valkey+uds", HFI_URL_UNIX, parse_unix},
    {"redis-socket", HFI_URL_UNIX, parse_unix},
    {"rediss", HFI_URL_TCP, parse_tls},
    {"valkeys", HFI_URL_TCP, parse_tls},
    {"redis-sentinel", HFI_URL_SENTINEL, hfi_url_parse_sentinel},
    {"redis+sentinel", HFI_URL_SENTINEL, hfi_url_parse_sentinel},
    {"valkey-sentinel", HFI_URL_SENTINEL, hfi_url_parse_sentinel},
    {"valkey+sentinel", HFI_URL_SENTINEL, hfi_url_parse_sentinel},
    {"rediss-sentinel", HFI_URL_SENTINEL, hfi_url_parse_sentinel_tls},
    {"rediss+sentinel", HFI_URL_SENTINEL, hfi_url_parse_sentinel_tls},
    {"valkeys-sentinel", HFI_URL_SENTINEL, hfi_url_parse_sentinel_tls},
    {"valkeys+sentinel", HFI_URL_SENTINEL, hfi_url_parse_sentinel_tls},
    {"redis-sentinels", HFI_URL_SENTINEL, hfi_url_parse_sentinel_tls},
    {"redis+sentinels", HFI_URL_SENTINEL, hfi_url_parse_sentinel_tls},
    {"valkey-sentinels", HFI_URL_SENTINEL, hfi_url_parse_sentinel_tls},
    {"valkey+sentinels", HFI_URL_SENTINEL, hfi_url_parse_sentinel_tls},
    {"redis-cluster", HFI_URL_CLUSTER, hfi_url_parse_cluster},
    {"redis+cluster", HFI_URL_CLUSTER, hfi_url_parse_cluster},
    {"valkey-cluster", HFI_URL_CLUSTER, hfi_url_parse_cluster},
    {"valkey+cluster", HFI_URL_CLUSTER, hfi_url_parse_cluster},
    {"rediss-cluster", HFI_URL_CLUSTER, hfi_url_parse_cluster_tls},
    {"rediss+cluster", HFI_URL_CLUSTER, hfi_url_parse_cluster_tls},
    {"valkeys-cluster", HFI_URL_CLUSTER, hfi_url_parse_cluster_tls},
    {"valkeys+cluster", HFI_URL_CLUSTER, hfi_url_parse_cluster_tls},
    {"redis-clusters", HFI_URL_CLUSTER, hfi_url_parse_cluster_tls},
    {"redis+clusters", HFI_URL_CLUSTER, hfi_url_parse_cluster_tls},
    {"valkey-clusters", HFI_URL_CLUSTER, hfi_url_parse_cluster_tls},
    {"valkey+clusters", HFI_URL_CLUSTER, hfi_url_parse_cluster_tls},
    {"zk", HFI_URL_ZK, hfi_url_parse_zk},
    {"zks", HFI_URL_ZK, hfi_url_parse_zk_tls},
};

static const struct scheme local_scheme = {"local", HFI_URL_LOCAL, parse_local};

#define KNOWN_SCHEMES                                                                              \
    "redis, rediss, valkey, valkeys, redis-sentinel, redis-cluster, zk, zks, unix or local"
#define SHOWN_SCHEME_MAX 32 /* in bytes, after escaping */

/* Whether a message may name it: a scheme has small letters. Anything else may be a password that
 * stands in the wrong place. */
static bool may_be_scheme(struct slice name) {
    for (size_t i = 0; i < name.len; i++) {
        char c = name.at[i];
        if (c >= ' ' && c <= '~' && (c < 'a' || c > 'z') && strchr("+-.", c) == NULL)
            return false;
    }
    return true;
}

/* Escapes what is no ASCII text, and shortens. Returns the length. */
static size_t show_scheme(struct slice name, char shown[SHOWN_SCHEME_MAX + sizeof "..."]) {
    size_t len = 0;
    for (size_t i = 0; i < name.len; i++) {
        char escaped[] = "\\x00";
        unsigned char byte = (unsigned char)name.at[i];
        if (byte > ' ' && byte < 0x7f)
            snprintf(escaped, sizeof escaped, "%c", byte);
        else
            snprintf(escaped, sizeof escaped, "\\x%02x", byte);
        if (len + strlen(escaped) > SHOWN_SCHEME_MAX) {
            memcpy(shown + len, "...", sizeof "...");
            return len + strlen("...");
        }
        memcpy(shown + len, escaped, strlen(escaped) + 1);
        len += strlen(escaped);
    }
    return len;
}

static int unknown_scheme(const struct url_parser *p, struct slice name) {
    char shown[SHOWN_SCHEME_MAX + sizeof "..."];
    if (!may_be_scheme(name))
        return hfi_fail(p->error, HF_EINVAL, "url: the scheme is unknown; use " KNOWN_SCHEMES);
    size_t len = show_scheme(name, shown);
    return hfi_fail(p->error, HF_EINVAL, "url: '%.*s' is not a known scheme; use " KNOWN_SCHEMES,
                    (int)len, shown);
}

/* Finds the scheme and removes it from the text, with its `:` or `://`. */
static int parse_scheme(const struct url_parser *p, struct slice *text, const struct scheme **ret) {
    const char *colon = find(*text, ':');
    if (colon != NULL && slice_is_nocase(before(*text, colon), local_scheme.name)) {
        *ret = &local_scheme;
        *text = behind(*text, colon, 1);
        return HF_OK;
    }

    const char *mark = find_text(*text, "://");
    if (mark == NULL || mark == text->at)
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the scheme is missing; write redis://host, unix:///path or local:");
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        if (!slice_is_nocase(before(*text, mark), schemes[i].name))
            continue;
        *ret = &schemes[i];
        *text = behind(*text, mark, strlen("://"));
        return HF_OK;
    }
    return unknown_scheme(p, before(*text, mark));
}

static int parse_all(struct url_parser *p, struct slice text) {
    const struct scheme *scheme = NULL;
    int err = parse_scheme(p, &text, &scheme);
    if (err != HF_OK)
        return err;
    assert(scheme != NULL);
    p->url.kind = scheme->kind;

    const char *question = find(text, '?');
    err = scheme->parse(p, question != NULL ? before(text, question) : text);
    if (err == HF_OK && question != NULL)
        err = hfi_url_parse_options(p, behind(text, question, 1));
    if (err == HF_OK && scheme->kind == HFI_URL_SENTINEL)
        err = hfi_url_finish_sentinel(p);
    return err;
}

int hfi_url_parse(const struct hfi_mem *mem, const char *text, struct hfi_url *ret,
                  hf_error *error) {
    struct url_parser p = {
        .mem = mem,
        .error = error,
        .url = {.cmd_timeout_ms = -1,
                .connect_timeout_ms = -1,
                .watchdog_ms = -1,
                .max_hold_ms = -1,
                .ping_interval_ms = -1,
                .fair_wait_ms = -1,
                .restart_guard_ms = -1,
                .report_after_ms = -1,
                .failover_timeout_ms = -1,
                .ack_timeout_ms = -1,
                .histogram_names = -1,
                .clock_drift_ppm = -1},
    };
    int err = parse_all(&p, (struct slice){text, strlen(text)});
    if (err != HF_OK) {
        hfi_url_clear(mem, &p.url);
        return err;
    }
    *ret = p.url;
    return HF_OK;
}
