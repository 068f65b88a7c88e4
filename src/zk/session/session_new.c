/*
 * Creates and frees a session: server addresses, TLS contexts, credentials. Called by the engine,
 * on the thread that opens or closes a client.
 */
#include "base/clock.h"
#include "base/error.h"
#include "net/url/url.h"
#include "zk/session/session_impl.h"

#include <stdio.h>
#include <string.h>

#define NEVER_MS (INT64_C(1) << 40) /* session.c sends the pings, not the connection */

static char *format_text(const struct hfi_mem *mem, const char *format, const char *text,
                         unsigned port) {
    size_t size = strlen(text) + 16;
    char *made = hfi_alloc(mem, size);
    if (made != NULL)
        snprintf(made, size, format, text, port);
    return made;
}

static int prepare_tls(struct hfi_zk_session *session, const struct hfi_url *url, size_t i,
                       hf_error *error) {
    const char *host = url->hosts[i].host;
    if (!url->tls)
        return HF_OK;
    int err;
    if (i > 0) {
        const char *name = url->tls_server_name != NULL ? url->tls_server_name : host;
        err = hfi_tls_context_like(session->tls[0], name, &session->tls[i], error);
    } else {
        const struct hfi_tls_options options = {.ca_file = url->tls_ca_file,
                                                .ca_dir = url->tls_ca_dir,
                                                .cert_file = url->tls_cert_file,
                                                .key_file = url->tls_key_file,
                                                .server_name = url->tls_server_name,
                                                .min_version = url->tls_min_version,
                                                .insecure = url->tls_verify == HFI_VERIFY_NONE};
        err = hfi_tls_context_new(&session->mem, &options, host, &session->tls[i], error);
    }
    session->hosts[i].tls = session->tls[i];
    return err;
}

static int add_host(struct hfi_zk_session *session, const struct hfi_url *url, size_t i,
                    hf_error *error) {
    const struct hfi_url_host *from = &url->hosts[i];
    struct hfi_host *host = &session->hosts[i];
    bool colons = strchr(from->host, ':') != NULL;
    char **texts = &session->texts[2 * i];
    texts[0] = format_text(&session->mem, "%s %u", from->host, from->port);
    texts[1] = format_text(&session->mem, colons ? "[%s]:%u" : "%s:%u", from->host, from->port);
    if (texts[0] == NULL || texts[1] == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    host->resolve_arg = texts[0];
    host->name = texts[1];
    if (!hfi_addr_numeric(from->host, from->port, &host->address))
        host->resolve = hfi_resolve_host;
    return prepare_tls(session, url, i, error);
}

/* "a:2181,b:2181", for messages. */
static char *name_all(const struct hfi_zk_session *session) {
    size_t size = 1, len = 0;
    for (size_t i = 0; i < session->hosts_len; i++)
        size += strlen(session->hosts[i].name) + 1;
    char *node = hfi_alloc(&session->mem, size);
    for (size_t i = 0; node != NULL && i < session->hosts_len; i++)
        len += (size_t)snprintf(node + len, size - len, "%s%s", i > 0 ? "," : "",
                                session->hosts[i].name);
    return node;
}

static int set_target(struct hfi_zk_session *session, const struct hfi_url *url, hf_error *error) {
    session->hosts = hfi_zalloc(&session->mem, url->hosts_len * sizeof *session->hosts);
    session->texts = hfi_zalloc(&session->mem, 2 * url->hosts_len * sizeof *session->texts);
    session->tls = hfi_zalloc(&session->mem, url->hosts_len * sizeof(struct hfi_tls_context *));
    if (session->hosts == NULL || session->texts == NULL || session->tls == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    session->hosts_len = url->hosts_len;
    int err = HF_OK;
    for (size_t i = 0; i < url->hosts_len && err == HF_OK; i++)
        err = add_host(session, url, i, error);
    if (err != HF_OK)
        return err;
    session->node = name_all(session);
    return session->node != NULL ? HF_OK : hfi_fail(error, HF_ENOMEM, "out of memory");
}

static int describe_us(struct hfi_zk_session *session, const struct hfi_url *url, hf_error *error) {
    if (url->user == NULL && url->password == NULL)
        return HF_OK;
    if (url->user == NULL || url->user[0] == '\0' || strchr(url->user, ':') != NULL)
        return hfi_fail(error, HF_EINVAL,
                        "a ZooKeeper password needs a user, whose name has no colon");
    const char *password = url->password != NULL ? url->password : "";
    size_t size = strlen(url->user) + strlen(password) + 2;
    session->secret = hfi_alloc(&session->mem, size);
    if (session->secret == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    snprintf(session->secret, size, "%s:%s", url->user, password);
    if (!url->tls)
        hfi_log(session->log, HF_LOG_WARN, HFI_ABOUT(.server = session->node),
                "%s: the password is sent unencrypted; use zks://", session->node);
    return HF_OK;
}

static void fill_target(struct hfi_zk_session *session, const struct hfi_engine_config *config) {
    session->target = (struct hfi_target){.mem = &session->mem,
                                          .log = session->log,
                                          .keeper = session->keeper,
                                          .hosts = session->hosts,
                                          .hosts_len = session->hosts_len,
                                          .node = session->node,
                                          .protocol = &hfi_zk_protocol,
                                          .login = session,
                                          .cmd_timeout_ms = config->cmd_timeout_ms,
                                          .ping_interval_ms = NEVER_MS,
                                          .commands = config->commands,
                                          .reconnects = config->reconnects};
}

int hfi_zk_session_new(const struct hfi_engine_config *config,
                       const struct hfi_zk_session_hooks *hooks, void *arg,
                       struct hfi_zk_session **ret, hf_error *error) {
    struct hfi_zk_session *session = hfi_zalloc(config->mem, sizeof *session);
    if (session == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    session->mem = *config->mem;
    session->log = config->log;
    session->keeper = config->keeper;
    session->hooks = hooks;
    session->arg = arg;
    session->wish_ms = (int32_t)hfi_min_ms(config->watchdog_ms, INT32_MAX);
    session->cmd_timeout_ms = config->cmd_timeout_ms;
    session->clock_drift_ppm = config->clock_drift_ppm;
    pthread_mutex_init(&session->mtx, NULL);
    int err = set_target(session, config->url, error);
    if (err == HF_OK)
        err = describe_us(session, config->url, error);
    if (err == HF_OK) {
        fill_target(session, config);
        err = hfi_zk_session_open(session, error);
    }
    if (err != HF_OK) {
        hfi_zk_session_free(session);
        return err;
    }
    if (config->url->tls && config->url->tls_verify == HFI_VERIFY_NONE)
        hfi_log(session->log, HF_LOG_WARN, HFI_ABOUT(.server = session->node),
                "%s: TLS without verification: anyone may pose as the server", session->node);
    *ret = session;
    return HF_OK;
}

void hfi_zk_session_free(struct hfi_zk_session *session) {
    if (session == NULL)
        return;
    struct hfi_mem mem = session->mem;
    if (session->secret != NULL)
        explicit_bzero(session->secret, strlen(session->secret));
    hfi_free(&mem, session->secret);
    for (size_t i = 0; i < session->hosts_len; i++) {
        hfi_tls_context_free(session->tls[i]);
        hfi_free(&mem, session->texts[2 * i]);
        hfi_free(&mem, session->texts[2 * i + 1]);
    }
    hfi_free(&mem, session->tls);
    hfi_free(&mem, session->texts);
    hfi_free(&mem, session->hosts);
    hfi_free(&mem, session->node);
    pthread_mutex_destroy(&session->mtx);
    hfi_free(&mem, session);
}
