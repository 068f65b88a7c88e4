/*
 * The urls of a client, merged with its options. Used by hf_open() on the caller's thread;
 * stateless.
 *
 * Times apply to the client, whichever url gives them; two that contradict each other are an error.
 * User, password, prefix and TLS are set per server.
 */
#include "api/urls.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A variable that is set but empty is an error: falling back to another server would not be what
 * was meant. */
int hfi_url_from_environment(const char **ret_url, hf_error *error) {
    const char *variable = "HOLDFAST_URL", *url = secure_getenv(variable);
    if (url == NULL)
        url = secure_getenv(variable = "REDIS_URL");
    if (url == NULL)
        return hfi_fail(error, HF_EINVAL,
                        "no url was given, and neither HOLDFAST_URL nor REDIS_URL is set");
    if (url[0] == '\0')
        return hfi_fail(error, HF_EINVAL, "no url was given, and %s is empty", variable);
    *ret_url = url;
    return HF_OK;
}

/* Values in a url apply to the client. */
static void apply_url_options(const struct hfi_url *url, hf_options *options) {
    if (url->cmd_timeout_ms >= 0)
        options->cmd_timeout_ms = url->cmd_timeout_ms;
    if (url->connect_timeout_ms >= 0)
        options->connect_timeout_ms = url->connect_timeout_ms;
    if (url->watchdog_ms >= 0)
        options->watchdog_ms = url->watchdog_ms;
    if (url->max_hold_ms >= 0)
        options->max_hold_ms = url->max_hold_ms;
    if (url->ping_interval_ms >= 0)
        options->ping_interval_ms = url->ping_interval_ms;
    if (url->fair_wait_ms >= 0)
        options->fair_wait_ms = url->fair_wait_ms;
    if (url->report_after_ms >= 0)
        options->report_after_ms = url->report_after_ms;
    if (url->histogram_names >= 0)
        options->histogram_names = url->histogram_names;
    if (url->clock_drift_ppm >= 0)
        options->clock_drift_ppm = url->clock_drift_ppm;
    if (url->restart_guard_ms >= 0)
        options->restart_guard_ms = url->restart_guard_ms;
    if (url->failover_timeout_ms >= 0)
        options->failover_timeout_ms = url->failover_timeout_ms;
    if (url->ack_timeout_ms >= 0)
        options->ack_timeout_ms = url->ack_timeout_ms;
    if (url->acks != 0)
        options->acks = url->acks;
    if (url->ack_disk != HFI_SWITCH_DEFAULT)
        options->ack_disk = url->ack_disk == HFI_SWITCH_ON;
    if (url->sentinel_confirm != HFI_SWITCH_DEFAULT)
        options->sentinel_confirm = url->sentinel_confirm == HFI_SWITCH_ON;
    if (url->busy_poll == HFI_SWITCH_OFF)
        options->flags |= HF_NO_BUSY_POLL;
    else if (url->busy_poll == HFI_SWITCH_ON)
        options->flags &= ~HF_NO_BUSY_POLL;
    if (url->track == HFI_SWITCH_OFF)
        options->flags |= HF_NO_TRACKING;
    else if (url->track == HFI_SWITCH_ON)
        options->flags &= ~HF_NO_TRACKING;
}

static int override_text(const struct hfi_mem *mem, char **text, const char *with) {
    if (with == NULL)
        return HF_OK;
    char *copy = hfi_strdup(mem, with);
    if (copy == NULL)
        return HF_ENOMEM;
    if (*text != NULL)
        explicit_bzero(*text, strlen(*text));
    hfi_free(mem, *text);
    *text = copy;
    return HF_OK;
}

/* TLS options fill in what the url leaves open. Which CA to trust is one decision, though it takes
 * two options: if the url names a CA, the options must not add another. And a key belongs to its
 * own certificate. */
static int add_tls_options(const struct hfi_mem *mem, const hf_options *options,
                           struct hfi_url *url) {
    bool ca = url->tls_ca_file == NULL && url->tls_ca_dir == NULL;
    bool cert = url->tls_cert_file == NULL;
    const struct {
        char **text;
        const char *given;
        bool wanted;
    } texts[] = {{&url->tls_ca_file, options->tls_ca_file, ca},
                 {&url->tls_ca_dir, options->tls_ca_dir, ca},
                 {&url->tls_cert_file, options->tls_cert_file, cert},
                 {&url->tls_key_file, options->tls_key_file,
                  url->tls_key_file == NULL && (cert || options->tls_cert_file == NULL)},
                 {&url->tls_server_name, options->tls_server_name, url->tls_server_name == NULL}};
    bool tls = url->tls || url->sentinel_tls == HFI_SWITCH_ON;
    int err = HF_OK;
    for (size_t i = 0; tls && err == HF_OK && i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].wanted)
            err = override_text(mem, texts[i].text, texts[i].given);
    if (url->tls_min_version == 0)
        url->tls_min_version = options->tls_min_version;
    if (url->tls_verify == HFI_VERIFY_DEFAULT && (options->flags & HF_TLS_INSECURE) != 0)
        url->tls_verify = HFI_VERIFY_NONE;
    return err;
}

/* ---- Several ---- */

static bool differ(int64_t a_ms, int64_t b_ms) {
    return a_ms >= 0 && b_ms >= 0 && a_ms != b_ms;
}

static bool contradict(const struct hfi_url *a, const struct hfi_url *b) {
    return differ(a->cmd_timeout_ms, b->cmd_timeout_ms) ||
           differ(a->connect_timeout_ms, b->connect_timeout_ms) ||
           differ(a->watchdog_ms, b->watchdog_ms) || differ(a->max_hold_ms, b->max_hold_ms) ||
           differ(a->ping_interval_ms, b->ping_interval_ms) ||
           differ(a->fair_wait_ms, b->fair_wait_ms) ||
           differ(a->restart_guard_ms, b->restart_guard_ms) ||
           differ(a->report_after_ms, b->report_after_ms) ||
           differ(a->histogram_names, b->histogram_names) ||
           differ(a->clock_drift_ppm, b->clock_drift_ppm) ||
           differ(a->failover_timeout_ms, b->failover_timeout_ms);
}

void hfi_url_node(const struct hfi_url *url, char *text, size_t size) {
    if (url->kind == HFI_URL_TCP)
        snprintf(text, size, "%s:%u", url->host, (unsigned)url->port);
    else if (url->kind == HFI_URL_SENTINEL)
        snprintf(text, size, "%s at %s:%u", url->master != NULL ? url->master : "",
                 url->hosts[0].host, (unsigned)url->hosts[0].port);
    else if (url->kind == HFI_URL_CLUSTER || url->kind == HFI_URL_ZK)
        snprintf(text, size, "%s:%u", url->hosts[0].host, (unsigned)url->hosts[0].port);
    else
        snprintf(text, size, "%s", url->path != NULL ? url->path : "local:");
}

static bool same_server(const struct hfi_url *a, const struct hfi_url *b) {
    char a_node[512], b_node[512];
    hfi_url_node(a, a_node, sizeof a_node);
    hfi_url_node(b, b_node, sizeof b_node);
    return strcmp(a_node, b_node) == 0;
}

static int check_quorum(const struct hfi_urls *urls, hf_error *error) {
    if (urls->len == 2)
        return hfi_fail(
            error, HF_EINVAL,
            "two urls given: a quorum needs three to nine servers, since a majority of two is "
            "both");
    for (size_t i = 0; i < urls->len && urls->len > 1; i++) {
        const struct hfi_url *url = &urls->of[i];
        if (url->kind == HFI_URL_LOCAL)
            return hfi_fail(error, HF_EINVAL, "local: cannot be one server of a quorum");
        if (url->kind == HFI_URL_SENTINEL)
            return hfi_fail(
                error, HF_EINVAL,
                "a url for Sentinel cannot be one server of a quorum: a failover forgets "
                "locks, and the quorum would not know");
        if (url->kind == HFI_URL_CLUSTER)
            return hfi_fail(
                error, HF_EINVAL,
                "a url for a cluster cannot be one server of a quorum: a failover forgets "
                "locks, and the quorum would not know");
        if (url->kind == HFI_URL_ZK)
            return hfi_fail(
                error, HF_ENOTSUP,
                "a url for ZooKeeper cannot be one server of a quorum: an ensemble is a "
                "quorum by itself");
        for (size_t j = 0; j < i; j++) {
            if (same_server(url, &urls->of[j]))
                return hfi_fail(error, HF_EINVAL, "two urls of the quorum lead to the same server");
            if (contradict(url, &urls->of[j]))
                return hfi_fail(error, HF_EINVAL,
                                "the urls of a quorum have different timeouts or numbers; give "
                                "all of them the same options");
        }
    }
    return HF_OK;
}

static int parse_one(const struct hfi_mem *mem, const char *text, size_t len, struct hfi_urls *urls,
                     hf_error *error) {
    if (urls->len == HFI_URLS_MAX)
        return hfi_fail(error, HF_EINVAL, "a quorum can have at most %d servers", HFI_URLS_MAX);
    char *copy = hfi_alloc(mem, len + 1);
    if (copy == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    memcpy(copy, text, len);
    copy[len] = '\0';
    int err = hfi_url_parse(mem, copy, &urls->of[urls->len], error);
    explicit_bzero(copy, len); /* it may contain a password */
    hfi_free(mem, copy);
    urls->len += err == HF_OK;
    return err;
}

/* Blanks and line breaks separate urls; a url contains none. */
static int parse_all(const struct hfi_mem *mem, const char *text, struct hfi_urls *urls,
                     hf_error *error) {
    static const char blanks[] = " \t\r\n";
    int err = HF_OK;
    text += strspn(text, blanks);
    while (err == HF_OK && (*text != '\0' || urls->len == 0)) {
        size_t len = strcspn(text, blanks);
        err = parse_one(mem, text, len, urls, error);
        text += len;
        text += strspn(text, blanks);
    }
    return err;
}

static int add_sentinel_options(const struct hfi_mem *mem, const hf_options *options,
                                struct hfi_url *url, hf_error *error) {
    int err = HF_OK;
    if (url->kind != HFI_URL_SENTINEL && options->sentinel_confirm != 0)
        return hfi_fail(error, HF_EINVAL,
                        "sentinel_confirm needs Sentinel; write redis-sentinel://HOST,.../NAME");
    if (url->kind != HFI_URL_SENTINEL)
        return HF_OK;
    if (url->master == NULL)
        err = override_text(mem, &url->master, options->master);
    if (err == HF_OK)
        err = override_text(mem, &url->sentinel_user, options->sentinel_user);
    if (err == HF_OK)
        err = override_text(mem, &url->sentinel_password, options->sentinel_password);
    if (err == HF_OK && url->sentinel_tls_server_name == NULL)
        err = override_text(mem, &url->sentinel_tls_server_name, options->sentinel_tls_server_name);
    if (url->sentinel_tls == HFI_SWITCH_DEFAULT && options->sentinel_tls != 0)
        url->sentinel_tls =
            options->sentinel_tls == HF_SENTINEL_TLS_ON ? HFI_SWITCH_ON : HFI_SWITCH_OFF;
    if (err == HF_OK && (url->master == NULL || url->master[0] == '\0'))
        return hfi_fail(
            error, HF_EINVAL,
            "url: the name of the primary is missing; write redis-sentinel://HOST,.../NAME");
    return err;
}

static int complete(const struct hfi_mem *mem, hf_options *options, struct hfi_url *url,
                    hf_error *error) {
    apply_url_options(url, options);
    int err = override_text(mem, &url->user, options->user);
    if (err == HF_OK)
        err = override_text(mem, &url->password, options->password);
    if (err == HF_OK)
        err = add_sentinel_options(mem, options, url, error);
    return err == HF_OK ? add_tls_options(mem, options, url) : err;
}

int hfi_urls_parse(const struct hfi_mem *mem, const char *text, hf_options *options,
                   struct hfi_urls *ret, hf_error *error) {
    ret->len = 0;
    int err = parse_all(mem, text, ret, error);
    if (err == HF_OK)
        err = check_quorum(ret, error);
    for (size_t i = 0; i < ret->len && err == HF_OK; i++)
        err = complete(mem, options, &ret->of[i], error);
    if (err != HF_OK)
        hfi_urls_clear(mem, ret);
    return err;
}

void hfi_urls_clear(const struct hfi_mem *mem, struct hfi_urls *urls) {
    for (size_t i = 0; i < urls->len; i++)
        hfi_url_clear(mem, &urls->of[i]);
    urls->len = 0;
}
