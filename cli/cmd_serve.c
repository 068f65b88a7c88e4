/*
 * holdfast serve: the fleet as a page that is alive, as metrics, and as JSON, over HTTP.
 *
 * Here are its options; serve_*.c serves. Where libmicrohttpd was missing when the tool was built,
 * without_serve.c says so.
 */
#include "fleet.h"
#include "serve.h"

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
            return usage_error("serve", "%s: %d names are the most", shown, SERVE_MAX_HOST_NAMES);
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
        .settings = {.listen = SERVE_DEFAULT_LISTEN, .metrics_locks = OPENMETRICS_NAMES_MAX}};
    int first = command_options(&command_serve, specs, argc, argv, take, &serving);
    if (first <= 0)
        return -first;
    if (argc > first)
        return usage_error("serve", "there are no operands");
    if (serving.settings.allow_break && serving.settings.token_file == NULL)
        return usage_error("serve", "--allow-break needs --token-file: without a token anybody who "
                                    "reaches the page could break locks");
    /* A break is told whatever was said about being quiet. */
    if (serving.settings.allow_break)
        connection->quiet = false;
    int status = connection_resolve(connection);
    return status == 0 ? serve_run(connection, &serving.settings) : status;
}

const struct command command_serve = {
    .name = "serve",
    .summary = "show the fleet in a browser, as metrics, and as JSON",
    .usage =
        "[--listen HOST:PORT] [--host-name NAME]... [--token-file FILE [--allow-break]]\n"
        "[--metrics-locks N]\n"
        "Serves, over HTTP, who holds what and who waits: a page that is alive (/), metrics for\n"
        "Prometheus (/metrics), and JSON (/api/locks, /api/locks/NAME, /api/clients). The fleet is\n"
        "asked once a second at most, and only while somebody looks. It has no TLS: a proxy has.\n\n"
        "      --listen HOST:PORT  where (127.0.0.1:7380); port 0: any that is free\n"
        "      --host-name NAME    a name by which it may be called, as behind a proxy\n"
        "      --token-file FILE   a secret, in the first line of a file that is yours alone; beyond\n"
        "                          this machine it is asked of everybody who wants to see anything\n"
        "      --allow-break       locks may be broken on the page, by who has the token\n"
        "      --metrics-locks N   so many names have metrics of their own (1000)\n"
        "\nExit status: 0 after SIGINT or SIGTERM; 71: it cannot listen there.\n",
    .run = run,
};
