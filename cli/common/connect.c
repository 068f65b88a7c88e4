/* The server and the credentials: from the options before the subcommand and the environment.
 *
 * A flag overrides HOLDFAST_*, which overrides REDIS_URL; a password in the url overrides
 * REDISCLI_AUTH. The default is `local:`, unless that is forbidden. A url and a host are never
 * mixed: one from the command line replaces the other kind from the environment; both from the same
 * source are an error.
 *
 * --tls, even from the environment, turns redis:// into rediss://, so that no user takes a plain
 * connection for an encrypted one. For the same reason, other TLS flags are an error for a server
 * without TLS; from the environment they apply only to servers with TLS.
 *
 * main() fills the connection. Each subcommand resolves it, before it forks because that may prompt
 * for a password, and opens it. All of this happens before other threads exist. */
#include "cli.h"
#include "common/password.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CMD_TIMEOUT_MS 3000 /* request timeout, unless -t is shorter */

enum { ID_URL = 1, ID_HOST, ID_PORT, ID_SOCKET, ID_DB, ID_USER, ID_PASSWORD, ID_PASSWORD_FILE };
enum { ID_ASKPASS = 20, ID_LIMIT, ID_NO_LOCAL };
enum { ID_SENTINEL = 25, ID_SENTINEL_PASSWORD_FILE, ID_SENTINEL_CONFIRM, ID_CLUSTER };
enum { ID_ACKS = 40, ID_ACK_TIMEOUT };
enum { ID_TLS = 30, ID_INSECURE, ID_CACERT, ID_CACERTDIR, ID_CERT, ID_KEY, ID_SNI };

const struct option_spec connection_options[] = {
    {OPTION_VALUE, ID_HOST, 'h', "host", false},
    {OPTION_VALUE, ID_PORT, 'p', "port", false},
    {OPTION_VALUE, ID_SOCKET, 's', "socket", false},
    {OPTION_VALUE, ID_URL, 'u', "url", false},
    {OPTION_VALUE, ID_DB, 'n', "db", false},
    {OPTION_VALUE, ID_USER, 0, "user", false},
    {OPTION_VALUE, ID_PASSWORD, 'a', "password", false},
    {OPTION_VALUE, ID_PASSWORD, 0, "pass", false},
    {OPTION_VALUE, ID_PASSWORD_FILE, 0, "password-file", false},
    {OPTION_FLAG, ID_ASKPASS, 0, "askpass", false},
    {OPTION_VALUE, ID_SENTINEL, 0, "sentinel", false},
    {OPTION_VALUE, ID_SENTINEL_PASSWORD_FILE, 0, "sentinel-password-file", false},
    {OPTION_FLAG, ID_SENTINEL_CONFIRM, 0, "sentinel-confirm", false},
    {OPTION_FLAG, ID_CLUSTER, 0, "cluster", false},
    {OPTION_VALUE, ID_ACKS, 0, "acks", false},
    {OPTION_VALUE, ID_ACK_TIMEOUT, 0, "ack-timeout", false},
    {OPTION_FLAG, ID_NO_LOCAL, 0, "no-local", false},
    {OPTION_FLAG, ID_NO_LOCAL, 0, "require-url", false},
    {OPTION_VALUE, ID_LIMIT, 't', "connect-timeout", false},
    COMMON_OPTIONS,
    {OPTION_FLAG, OPTION_ID_VERSION, 0, "version", true},
    {OPTION_FLAG, ID_TLS, 0, "tls", false},
    {OPTION_FLAG, ID_INSECURE, 0, "insecure", false},
    {OPTION_VALUE, ID_CACERT, 0, "cacert", false},
    {OPTION_VALUE, ID_CACERTDIR, 0, "cacertdir", false},
    {OPTION_VALUE, ID_CERT, 0, "cert", false},
    {OPTION_VALUE, ID_KEY, 0, "key", false},
    {OPTION_VALUE, ID_SNI, 0, "sni", false},
    {OPTION_END, 0, 0, NULL, false},
};

static struct setting *setting_of(struct connection *connection, int id) {
    switch (id) {
    case ID_URL:
        return &connection->url;
    case ID_HOST:
        return &connection->host;
    case ID_PORT:
        return &connection->port;
    case ID_SOCKET:
        return &connection->socket;
    case ID_DB:
        return &connection->db;
    case ID_USER:
        return &connection->user;
    case ID_PASSWORD:
        return &connection->password;
    case ID_PASSWORD_FILE:
        return &connection->password_file;
    case ID_SENTINEL:
        return &connection->sentinel;
    case ID_SENTINEL_PASSWORD_FILE:
        return &connection->sentinel_password_file;
    case ID_SENTINEL_CONFIRM:
        return &connection->sentinel_confirm;
    case ID_CLUSTER:
        return &connection->cluster;
    case ID_ACKS:
        return &connection->acks;
    case ID_ACK_TIMEOUT:
        return &connection->ack_timeout;
    case ID_TLS:
        return &connection->tls;
    case ID_INSECURE:
        return &connection->insecure;
    case ID_CACERT:
        return &connection->cacert;
    case ID_CACERTDIR:
        return &connection->cacertdir;
    case ID_CERT:
        return &connection->cert;
    case ID_KEY:
        return &connection->key;
    case ID_SNI:
        return &connection->sni;
    default:
        return &connection->limit;
    }
}

/* From now on messages heed it: also those about the rest of the command line. */
bool common_option(struct connection *connection, int id) {
    switch (id) {
    case OPTION_ID_QUIET:
        connection->quiet = true;
        break;
    case OPTION_ID_VERBOSE:
        connection->verbosity++;
        break;
    case OPTION_ID_JSON:
        connection->json = true;
        break;
    default:
        return false;
    }
    message_setup(connection->quiet ? -1 : connection->verbosity, connection->json);
    return true;
}

int connection_option(void *user, int id, char *value, const char *shown) {
    struct connection *connection = user;
    if (common_option(connection, id))
        return 0;
    if (id == ID_ASKPASS || id == ID_NO_LOCAL) {
        connection->askpass |= id == ID_ASKPASS;
        connection->no_local |= id == ID_NO_LOCAL;
        return 0;
    }
    if (id == ID_PORT && !connection->from_flags && environment_is_service_link(value)) {
        connection->service_link = true;
        return 0;
    }

    long number;
    int64_t limit_ms;
    if (id == ID_PORT &&
        !parse_number(value, 1, 65535, &number)) /* it may be a password: not printed */
        return usage_error(NULL, "%s: a port must be a number from 1 to 65535", shown);
    if (id == ID_DB && !parse_number(value, 0, 1000000, &number))
        return usage_error(NULL, "%s: '%s' is not a database number", shown, value);
    if ((id == ID_LIMIT || id == ID_ACK_TIMEOUT) &&
        (!parse_duration(value, &limit_ms) || limit_ms == 0))
        return duration_error(NULL, shown, value);
    int acks;
    if (id == ID_ACKS && !parse_acks(value, &acks))
        return usage_error(NULL, "%s: '%s' is not off, report, all, or a number of replicas", shown,
                           value);
    if (id == ID_USER || id == ID_HOST || id == ID_SOCKET || id == ID_URL || id == ID_SENTINEL ||
        id >= ID_CACERT) {
        if (*value == '\0')
            return usage_error(NULL, "%s: the value is empty", shown);
    }

    struct setting *setting = setting_of(connection, id);
    char *earlier = setting->value;
    bool one_more = id == ID_URL && earlier != NULL && setting->flag && connection->from_flags;
    setting->value =
        one_more ? connection_add_server(earlier, value) : strdup(value != NULL ? value : "");
    free(earlier);
    setting->flag = connection->from_flags;
    if (connection->from_flags && id == ID_PASSWORD)
        password_hide(value);
    if (connection->from_flags && id == ID_URL)
        password_hide_in_url(value);
    return setting->value != NULL ? 0 : STATUS_OS;
}

static bool given(const struct setting *setting, bool flag) {
    return setting->value != NULL && setting->flag == flag;
}

/* If the command line names no server, the environment must be valid. */
static int check_environment(const struct connection *connection) {
    static const char *const variables[] = {"HOLDFAST_URL",  "HOLDFAST_HOST",
                                            "HOLDFAST_PORT", "HOLDFAST_SOCKET",
                                            "HOLDFAST_DB",   "HOLDFAST_SENTINEL"};
    if (given(&connection->url, true) || given(&connection->host, true) ||
        given(&connection->port, true) || given(&connection->socket, true) ||
        given(&connection->sentinel, true) || given(&connection->cluster, true))
        return 0;
    int status = 0;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0] && status == 0; i++)
        status = environment_check_empty(variables[i]);
    if (status != 0 || connection->url.value != NULL || connection->host.value != NULL ||
        connection->port.value != NULL || connection->socket.value != NULL ||
        connection->sentinel.value != NULL)
        return status;
    status = environment_check_typos(getenv("REDIS_URL") != NULL);
    return status != 0 ? status : environment_check_empty("REDIS_URL");
}

/* Neither the command line nor the environment names a server. */
static int choose_default(struct connection *connection) {
    if (connection->no_local)
        return usage_error(NULL, "no server is configured, and --require-url is set: give -u, or "
                                 "set HOLDFAST_URL, such as redis://HOST:6379");
    connection->by_default = true;
    connection->target = strdup("local:");
    return connection->target != NULL ? 0 : STATUS_OS;
}

/* Chooses between a url and host, port and socket; see the top of this file. */
static int choose_target(struct connection *connection) {
    int status = check_environment(connection);
    if (status != 0)
        return status;
    bool parts = false;
    for (int flag = 1; flag >= 0 && !parts; flag--) {
        bool url = given(&connection->url, flag);
        parts = given(&connection->host, flag) || given(&connection->port, flag) ||
                given(&connection->socket, flag) || given(&connection->sentinel, flag) ||
                given(&connection->cluster, flag);
        if (url && parts)
            return usage_error(NULL,
                               "give either a url, or host, port, socket, --sentinel or --cluster");
        if (url)
            break;
    }
    if (parts && connection->sentinel.value != NULL && connection->socket.value != NULL)
        return usage_error(NULL, "--sentinel needs a host and a port, not a socket");
    if (parts && connection->cluster.value != NULL && connection->socket.value != NULL)
        return usage_error(NULL, "--cluster needs hosts and a port, not a socket");
    if (parts && connection->cluster.value != NULL && connection->sentinel.value != NULL)
        return usage_error(NULL, "--cluster and --sentinel exclude each other");
    if (parts) {
        connection->target = connection_url_of_parts(connection);
        return connection->target != NULL ? 0 : STATUS_OS;
    }

    const char *url = connection->url.value;
    if (url == NULL)
        url = getenv("REDIS_URL");
    bool configured = url != NULL && *url != '\0';
    if (configured)
        connection->url_source = given(&connection->url, true)   ? "-u"
                                 : connection->url.value != NULL ? "HOLDFAST_URL"
                                                                 : "REDIS_URL";
    if (connection->db.value != NULL && configured)
        return usage_error(NULL,
                           "-n cannot be combined with a url: write the database into the url");
    bool address = connection->db.value != NULL || connection->tls.value != NULL;
    if (!configured && (!address || connection->no_local))
        return choose_default(connection);
    connection->target = configured ? strdup(url) : connection_url_of_parts(connection);
    return connection->target != NULL ? 0 : STATUS_OS;
}

static bool all_servers(const struct connection *connection, bool (*what)(const char *url)) {
    const char *list = connection->target;
    struct connection one;
    bool all = true;
    while (all && connection_next_server(&list, &one)) {
        all = what(one.target);
        explicit_bzero(one.target, strlen(one.target)); /* the url may contain a password */
        free(one.target);
    }
    return all;
}

/* Turns redis:// into rediss://, and valkey:// likewise. */
static int add_tls(struct connection *connection) {
    char *urls = NULL;
    size_t size;
    FILE *out = open_memstream(&urls, &size);
    if (out == NULL)
        return STATUS_OS;
    const char *list = connection->target;
    struct connection one;
    while (connection_next_server(&list, &one)) {
        const char *colon = strchr(one.target, ':');
        fprintf(out, "%s%.*s%s%s", ftell(out) > 0 ? " " : "", (int)(colon - one.target), one.target,
                url_has_tls(one.target) ? "" : "s", colon);
        explicit_bzero(one.target, strlen(one.target));
        free(one.target);
    }
    if (fclose(out) != 0)
        return STATUS_OS;
    explicit_bzero(connection->target,
                   strlen(connection->target)); /* the url may contain a password */
    free(connection->target);
    connection->target = urls;
    return 0;
}

static int settle_tls(struct connection *connection) {
    if (all_servers(connection, url_has_tls))
        return 0;
    if (connection->tls.value != NULL && all_servers(connection, url_can_have_tls))
        return add_tls(connection);
    if (connection->tls.value != NULL)
        return usage_error(NULL, "TLS needs a host and a port, not a socket or local:");
    const struct {
        const char *name;
        const struct setting *setting;
    } all[] = {{"--insecure", &connection->insecure},
               {"--cacert", &connection->cacert},
               {"--cacertdir", &connection->cacertdir},
               {"--cert", &connection->cert},
               {"--key", &connection->key},
               {"--sni", &connection->sni}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (given(all[i].setting, true))
            return usage_error(NULL, "%s needs TLS: use --tls, or a url with rediss:// or zks://",
                               all[i].name);
    return 0;
}

/* redis-cli's password variables count only if the url has no credentials. */
static int borrow_password(struct connection *connection) {
    const char *borrowed = password_of_redis_cli();
    if (borrowed == NULL || strncmp(connection->target, "local:", 6) == 0 ||
        url_is_zk(connection->target) || password_in_url(connection->target))
        return 0;
    connection->password.value = strdup(borrowed);
    const char *user = getenv("VALKEYCLI_USER");
    if (connection->user.value == NULL && user != NULL && *user != '\0')
        connection->user.value = strdup(user);
    return connection->password.value != NULL ? 0 : STATUS_OS;
}

static int find_password(struct connection *connection) {
    struct setting *password = &connection->password;
    if (given(password, true) ||
        (given(&connection->url, true) && password_in_url(connection->url.value)))
        say(LEVEL_NOTICE, "other users can see a password on the command line; use "
                          "--password-file or HOLDFAST_PASSWORD");
    if (given(password, true))
        return 0;
    if (connection->askpass) {
        free(password->value);
        password->value = NULL;
        return password_from_terminal(&password->value);
    }
    if (connection->password_file.value != NULL &&
        (password->value == NULL || connection->password_file.flag)) {
        free(password->value);
        password->value = NULL;
        return password_from_file(connection->password_file.value, &password->value);
    }
    return password->value != NULL ? 0 : borrow_password(connection);
}

static int find_sentinel_password(struct connection *connection) {
    const char *file = connection->sentinel_password_file.value;
    return file != NULL ? password_from_file(file, &connection->sentinel_password) : 0;
}

int connection_resolve(struct connection *connection) {
    int status = choose_target(connection);
    if (status == 0)
        status = settle_tls(connection);
    if (status == 0)
        status = find_password(connection);
    if (status == 0)
        status = find_sentinel_password(connection);
    if (connection->service_link)
        say(LEVEL_NOTICE, "HOLDFAST_PORT is ignored: Kubernetes set it for a service named "
                          "'holdfast'; 'enableServiceLinks: false' prevents that");
    if (status == 0 && connection->by_default)
        notice_default_server();
    return status;
}

/* A message that begins with a name is about a hold; the subcommand that holds it reports that. */
static void pass_on_log(const hf_log_record *record, void *user) {
    (void)user;
    char *name = record->name_len > 0 ? strndup(record->name, record->name_len) : NULL;
    const struct subject subject = {.code = record->code,
                                    .lock = name,
                                    .server = record->server[0] != '\0' ? record->server : NULL};
    if (record->level <= HF_LOG_WARN && record->message[0] != '\'')
        warning_take(&subject, record->message);
    else
        say_of(record->level <= HF_LOG_INFO ? LEVEL_INFO : LEVEL_DEBUG, &subject, "%s",
               record->message);
    free(name);
}

/* A longer ack timeout raises the request timeout to three times that. */
static void set_acks(const struct connection *connection, hf_options *options) {
    if (connection->acks.value != NULL)
        parse_acks(connection->acks.value, &options->acks);
    if (connection->ack_timeout.value == NULL ||
        !parse_duration(connection->ack_timeout.value, &options->ack_timeout_ms))
        return;
    if (options->cmd_timeout_ms < 3 * options->ack_timeout_ms)
        options->cmd_timeout_ms = 3 * options->ack_timeout_ms;
}

void connection_name_server(const struct connection *connection) {
    char all[256] = "";
    size_t len = 0;
    const char *list = connection->target;
    struct connection one;
    while (len < sizeof all && connection_next_server(&list, &one)) {
        char shown[sizeof all];
        connection_shown_server(&one, shown, sizeof shown);
        len += (size_t)snprintf(all + len, sizeof all - len, "%s%s", len > 0 ? " " : "", shown);
        explicit_bzero(one.target, strlen(one.target));
        free(one.target);
    }
    message_server(all);
}

/* A rejected url is not repeated, because it may contain a password. So the message names where it
 * came from. */
static int url_error(const struct connection *connection, int code, const char *text) {
    if (connection->url_source == NULL || strncmp(text, "url: ", 5) != 0)
        return usage_error_of(code, "%s", text);
    return usage_error_of(code, "%s: %s", connection->url_source, text + 5);
}

int connection_open(struct connection *connection, hf_options *options, hf_client **ret_client) {
    int64_t limit_ms = 0;
    options->user = connection->user.value;
    options->password = connection->password.value;
    options->sentinel_password = connection->sentinel_password;
    options->sentinel_confirm = connection->sentinel_confirm.value != NULL;
    if (options->log == NULL)
        options->log_record = pass_on_log;
    options->cmd_timeout_ms = CMD_TIMEOUT_MS;
    options->tls_ca_file = connection->cacert.value;
    options->tls_ca_dir = connection->cacertdir.value;
    options->tls_cert_file = connection->cert.value;
    options->tls_key_file = connection->key.value;
    options->tls_server_name = connection->sni.value;
    /* A flag for one trust store replaces the other one from the environment. */
    if (given(&connection->cacert, true) != given(&connection->cacertdir, true)) {
        if (given(&connection->cacert, true))
            options->tls_ca_dir = NULL;
        else
            options->tls_ca_file = NULL;
    }
    if (connection->insecure.value != NULL)
        options->flags |= HF_TLS_INSECURE;
    if (connection->limit.value != NULL && parse_duration(connection->limit.value, &limit_ms)) {
        options->connect_timeout_ms = limit_ms;
        if (limit_ms < CMD_TIMEOUT_MS)
            options->cmd_timeout_ms = limit_ms;
    }

    set_acks(connection, options);

    warning_begin(limit_ms);
    bool first = !connection->opened; /* a later client may open beside other threads */
    if (first)
        connection_name_server(connection);
    int code = hf_open(connection->target, options, ret_client);
    if (code != HF_OK && first) { /* A rejected url may contain a password anywhere. */
        message_server(NULL);
        message_lock(NULL);
    }
    if (code == HF_EINVAL || code == HF_ENOTSUP)
        return url_error(connection, code, hf_last_error()->text);
    if (code != HF_OK)
        return library_error(code, hf_last_error(), "open a connection", NULL);
    connection->opened = true;
    return 0;
}

void connection_free(struct connection *connection) {
    struct setting *all[] = {&connection->url,
                             &connection->host,
                             &connection->port,
                             &connection->socket,
                             &connection->db,
                             &connection->user,
                             &connection->limit,
                             &connection->password,
                             &connection->password_file,
                             &connection->tls,
                             &connection->insecure,
                             &connection->cacert,
                             &connection->cacertdir,
                             &connection->cert,
                             &connection->key,
                             &connection->sni,
                             &connection->sentinel,
                             &connection->sentinel_password_file,
                             &connection->cluster,
                             &connection->acks,
                             &connection->ack_timeout,
                             &connection->sentinel_confirm};
    if (connection->password.value != NULL)
        explicit_bzero(connection->password.value, strlen(connection->password.value));
    if (connection->sentinel_password != NULL)
        explicit_bzero(connection->sentinel_password, strlen(connection->sentinel_password));
    free(connection->sentinel_password);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]->value);
    free(connection->target);
}
