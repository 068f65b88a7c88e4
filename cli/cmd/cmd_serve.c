/* holdfast serve: the fleet over HTTP as a live page, as metrics, and as JSON.
 *
 * This file has the options; cli/serve serves. If the tool was built without libmicrohttpd,
 * without_serve.c says so. */
#include "fleet/fleet.h"
#include "serve/serve.h"

enum { ID_LISTEN = 1, ID_HOST_NAME, ID_TOKEN_FILE, ID_ALLOW_BREAK, ID_METRICS_LOCKS };

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_LISTEN, 0, "listen", false},
    {OPTION_VALUE, ID_HOST_NAME, 0, "host-name", true},
    {OPTION_VALUE, ID_TOKEN_FILE, 0, "token-file", false},
    {OPTION_FLAG, ID_ALLOW_BREAK, 0, "allow-break", true},
    {OPTION_VALUE, ID_METRICS_LOCKS, 0, "metrics-locks", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct serving {
    struct connection *connection;
    struct serve_settings settings;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct serving *serving = user;
    struct serve_settings *settings = &serving->settings;
    if (id == ID_LISTEN) {
        settings->listen = value;
    } else if (id == ID_TOKEN_FILE) {
        settings->token_file = value;
    } else if (id == ID_ALLOW_BREAK) {
        settings->allow_break = true;
    } else if (id == ID_HOST_NAME) {
        if (settings->host_names_len == SERVE_MAX_HOST_NAMES)
            return usage_error("serve", "%s: at most %d names", shown, SERVE_MAX_HOST_NAMES);
        settings->host_names[settings->host_names_len++] = value;
    } else if (id == ID_METRICS_LOCKS) {
        long number;
        if (!parse_number(value, 0, SERVE_MAX_METRICS_LOCKS, &number))
            return usage_error("serve", "%s: 0 to %d names", shown, SERVE_MAX_METRICS_LOCKS);
        settings->metrics_locks = (size_t)number;
    } else {
        common_option(serving->connection, id);
    }
    return 0;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct serving serving = {
        .connection = connection,
        .settings = {.listen = SERVE_DEFAULT_LISTEN, .metrics_locks = FLEET_PROMETHEUS_NAMES_MAX}};
    int first = command_options(&command_serve, specs, argc, argv, take, &serving);
    if (first <= 0)
        return -first;
    if (argc > first)
        return usage_error("serve", "unexpected argument: this subcommand takes options only");
    if (serving.settings.allow_break && serving.settings.token_file == NULL)
        return usage_error("serve", "--allow-break needs --token-file: without a token, anyone "
                                    "who reaches the page could break locks");
    /* A break is logged even with --quiet. */
    if (serving.settings.allow_break)
        connection->quiet = false;
    int status = connection_resolve(connection);
    return status == 0 ? serve_run(connection, &serving.settings) : status;
}

const struct command command_serve = {
    .name = "serve",
    .options = specs,
    .summary = "serve the fleet as a web page, metrics and JSON",
    .usage =
        "[--listen HOST:PORT] [--host-name NAME]... [--token-file FILE [--allow-break]]\n"
        "[--metrics-locks N]\n"
        "Serves holders and waiters over HTTP: a live page (/), metrics for Prometheus (/metrics),\n"
        "and JSON (/api/locks, /api/locks/NAME, /api/clients). It surveys the fleet at most once a\n"
        "second, and only while a page or request is open. For TLS, put a proxy in front.\n\n"
        "      --listen HOST:PORT  where to listen (127.0.0.1:7380); port 0: any free one\n"
        "      --host-name NAME    another name for this host, such as a proxy's\n"
        "      --token-file FILE   a secret in the first line of a file that only you can read;\n"
        "                          required of every request, except on loopback\n"
        "      --allow-break       allow the page to break locks, with the token\n"
        "      --metrics-locks N   how many locks have metrics of their own (1000)\n"
        "\nExit status: 0 after SIGINT or SIGTERM; 71 it cannot listen there.\n",
    .run = run,
};
