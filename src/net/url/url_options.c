/*
 * The options of a connection url: the part after the `?` (listed in url.h).
 *
 * url.c calls this after everything before the options, on the caller's thread; stateless.
 *
 * Invariant: no message can contain a password. The name of an unknown option is quoted only if the
 * part after the `?` has no `@`: people write unescaped passwords, and `redis://:a?b@host` must not
 * be answered with "unknown option 'b@host'".
 */
#include "net/url/url_parser.h"

static int set_name_prefix(struct url_parser *p, struct slice text) {
    if (p->url.name_prefix != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the option name_prefix is given twice");
    return hfi_url_decode(p, text, "the option name_prefix", &p->url.name_prefix);
}

static int set_time(struct url_parser *p, struct slice text, const char *name, int64_t *time_ms) {
    int64_t value;
    if (!hfi_url_number(text, HF_LEASE_MAX_MS, &value))
        return hfi_fail(p->error, HF_EINVAL,
                        "url: the option %s is not a number of milliseconds (0 .. %lld)", name,
                        (long long)HF_LEASE_MAX_MS);
    if (*time_ms != -1)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is given twice", name);
    *time_ms = value;
    return HF_OK;
}

static int set_count(struct url_parser *p, struct slice text, const char *name, int64_t *count) {
    int64_t value;
    if (!hfi_url_number(text, INT32_MAX, &value))
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is not a number", name);
    if (*count != -1)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is given twice", name);
    *count = value;
    return HF_OK;
}

static int set_tls_version(struct url_parser *p, struct slice text) {
    if (p->url.tls_min_version != 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the option tls_min_version is given twice");
    p->url.tls_min_version = slice_is(text, "1.2") ? HF_TLS_1_2 : HF_TLS_1_3;
    if (!slice_is(text, "1.2") && !slice_is(text, "1.3"))
        return hfi_fail(p->error, HF_EINVAL, "url: the option tls_min_version must be 1.2 or 1.3");
    return HF_OK;
}

static int set_tls_verify(struct url_parser *p, struct slice text) {
    if (p->url.tls_verify != HFI_VERIFY_DEFAULT)
        return hfi_fail(p->error, HF_EINVAL, "url: the option tls_verify is given twice");
    p->url.tls_verify = slice_is(text, "none") ? HFI_VERIFY_NONE : HFI_VERIFY_FULL;
    if (!slice_is(text, "none") && !slice_is(text, "full"))
        return hfi_fail(p->error, HF_EINVAL, "url: the option tls_verify must be full or none");
    return HF_OK;
}

static int set_acks(struct url_parser *p, struct slice text) {
    static const struct {
        const char *word;
        int acks;
    } words[] = {{"off", HF_ACKS_OFF}, {"report", HF_ACKS_REPORT}, {"all", HF_ACKS_ALL}};
    int64_t number;
    if (p->url.acks != 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the option acks is given twice");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (slice_is(text, words[i].word))
            p->url.acks = words[i].acks;
    if (p->url.acks == 0 && hfi_url_number(text, HF_ACKS_MAX, &number) && number > 0)
        p->url.acks = (int)number;
    if (p->url.acks == 0)
        return hfi_fail(
            p->error, HF_EINVAL,
            "url: the option acks must be off, report, all, or a number of replicas (1 .. %d)",
            HF_ACKS_MAX);
    return HF_OK;
}

int hfi_url_set_switch(const struct url_parser *p, struct slice text, const char *name,
                       enum hfi_url_switch *ret) {
    if (*ret != HFI_SWITCH_DEFAULT)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is given twice", name);
    *ret = slice_is(text, "on") ? HFI_SWITCH_ON : HFI_SWITCH_OFF;
    if (!slice_is(text, "on") && !slice_is(text, "off"))
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s must be on or off", name);
    return HF_OK;
}

/* *ret_known tells whether it is a TLS option at all. */
static int set_tls_option(struct url_parser *p, struct slice name, struct slice value,
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
    p->tls_options_given = true;
    if (!p->url.tls && p->url.kind == HFI_URL_CLUSTER)
        return hfi_fail(p->error, HF_EINVAL, "url: TLS options need rediss-cluster://");
    if (!p->url.tls && p->url.kind == HFI_URL_ZK)
        return hfi_fail(p->error, HF_EINVAL, "url: TLS options need zks://");
    if (!p->url.tls && p->url.kind != HFI_URL_SENTINEL)
        return hfi_fail(p->error, HF_EINVAL, "url: TLS options need rediss:// or valkeys://");
    if (is_version)
        return set_tls_version(p, value);
    if (is_verify)
        return set_tls_verify(p, value);
    if (*texts[i].text != NULL)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is given twice", texts[i].name);
    if (value.len == 0)
        return hfi_fail(p->error, HF_EINVAL, "url: the option %s is empty", texts[i].name);
    return hfi_url_decode(p, value, texts[i].name, texts[i].text);
}

static int unknown_option(const struct url_parser *p, struct slice name, bool may_quote) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    bool is_plain = name.len > 0 && name.len <= 40;
    for (size_t i = 0; is_plain && i < name.len; i++)
        is_plain = memchr(plain, name.at[i], sizeof plain - 1) != NULL;
    if (may_quote && is_plain)
        return hfi_fail(p->error, HF_EINVAL, "url: unknown option '%.*s'", (int)name.len, name.at);
    return hfi_fail(
        p->error, HF_EINVAL,
        "url: unknown option after the '?' (in a password, write '?' as %%3F and '@' as %%40)");
}

static int set_option(struct url_parser *p, struct slice option, bool may_quote) {
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
        {"max_hold_ms", &p->url.max_hold_ms},
        {"ping_interval_ms", &p->url.ping_interval_ms},
        {"fair_wait_ms", &p->url.fair_wait_ms},
        {"restart_guard_ms", &p->url.restart_guard_ms},
        {"report_after_ms", &p->url.report_after_ms},
        {"failover_timeout_ms", &p->url.failover_timeout_ms},
        {"ack_timeout_ms", &p->url.ack_timeout_ms},
    };
    bool known;
    int err = hfi_url_set_zk_option(p, name, value, &known);
    if (known)
        return err;
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (slice_is(name, times[i].name))
            return set_time(p, value, times[i].name, times[i].time_ms);

    if (slice_is(name, "db"))
        return hfi_url_set_db(p, value);
    if (slice_is(name, "histogram_names"))
        return set_count(p, value, "histogram_names", &p->url.histogram_names);
    if (slice_is(name, "clock_drift_ppm"))
        return set_count(p, value, "clock_drift_ppm", &p->url.clock_drift_ppm);
    if (slice_is(name, "acks"))
        return set_acks(p, value);
    if (slice_is(name, "ack_disk"))
        return hfi_url_set_switch(p, value, "ack_disk", &p->url.ack_disk);
    if (slice_is(name, "busy_poll"))
        return hfi_url_set_switch(p, value, "busy_poll", &p->url.busy_poll);
    if (slice_is(name, "track"))
        return hfi_url_set_switch(p, value, "track", &p->url.track);
    if (slice_is(name, "name_prefix"))
        return set_name_prefix(p, value);
    bool is_user = slice_is(name, "user"), is_password = slice_is(name, "password");
    if ((is_user || is_password) && p->url.kind == HFI_URL_LOCAL)
        return hfi_fail(p->error, HF_EINVAL, "url: local: takes no user or password");
    if (is_user)
        return hfi_url_set_user(p, value);
    if (is_password)
        return hfi_url_set_password(p, value);
    err = hfi_url_set_hosts_option(p, name, value, &known);
    if (!known)
        err = hfi_url_set_sentinel_option(p, name, value, &known);
    if (!known)
        err = set_tls_option(p, name, value, &known);
    return known ? err : unknown_option(p, name, may_quote);
}

int hfi_url_parse_options(struct url_parser *p, struct slice text) {
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
