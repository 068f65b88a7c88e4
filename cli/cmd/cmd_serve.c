/* holdfast serve: the fleet over HTTP as a live page, as metrics, and as JSON.
 *
 * This file has the options; cli/serve serves. If the tool was built without libmicrohttpd,
 * without_serve.c says so. */
#include "fleet/fleet.h"
#include "serve/serve.h"

#include <string.h>

#define ON_EVENT_LIMIT_MS 30000
#define EVERY_MAX_MS (60 * 60 * 1000)
#define SIZE_NUMBER_MAX 1073741824 /* with or without a unit */
#define SIZE_MAX_BYTES (INT64_C(1024) << 30)

enum {
    ID_LISTEN = 1,
    ID_HOST_NAME,
    ID_TOKEN_FILE,
    ID_ALLOW_BREAK,
    ID_METRICS_LOCKS,
    ID_HISTORY,
    ID_HISTORY_SIZE,
    ID_ON_EVENT,
    ID_ON_EVENT_LIMIT,
    ID_LONG_WAIT,
    ID_EVERY
};

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_LISTEN, 0, "listen", false},
    {OPTION_VALUE, ID_HOST_NAME, 0, "allowed-host", true},
    {OPTION_VALUE, ID_TOKEN_FILE, 0, "token-file", false},
    {OPTION_FLAG, ID_ALLOW_BREAK, 0, "allow-break", true},
    {OPTION_VALUE, ID_METRICS_LOCKS, 0, "metrics-locks", false},
    {OPTION_VALUE, ID_HISTORY, 0, "history", false},
    {OPTION_VALUE, ID_HISTORY_SIZE, 0, "history-size", false},
    {OPTION_VALUE, ID_ON_EVENT, 0, "on-event", true},
    {OPTION_VALUE, ID_ON_EVENT_LIMIT, 0, "on-event-limit", false},
    {OPTION_VALUE, ID_LONG_WAIT, 0, "long-wait", false},
    {OPTION_VALUE, ID_EVERY, 0, "every", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct serving {
    struct connection *connection;
    struct serve_settings settings;
};

/* A number of bytes, or with k, M or G of 1024, 1024^2 or 1024^3. */
static bool parse_size(char *text, int64_t *ret) {
    static const char units[] = "kMG";
    size_t len = strlen(text);
    const char *unit = len > 0 ? strchr(units, text[len - 1]) : NULL;
    int shift = unit != NULL ? 10 * (int)(unit - units + 1) : 0;
    long number;
    if (unit != NULL)
        text[len - 1] = '\0';
    bool valid = parse_number(text, 1, SIZE_NUMBER_MAX, &number);
    if (unit != NULL)
        text[len - 1] = *unit;
    *ret = valid ? (int64_t)number << shift : 0;
    return valid && *ret >= HISTORY_FILE_SIZE_MIN && *ret <= SIZE_MAX_BYTES;
}

static int take_history(struct serve_settings *settings, int id, char *value, const char *shown) {
    if (id == ID_HISTORY)
        settings->history_file = value;
    else if (id == ID_ON_EVENT)
        settings->on_event = value;
    else if (id == ID_HISTORY_SIZE && !parse_size(value, &settings->history_size))
        return usage_error("serve", "%s: '%s' is not a size from 4k to 1024G", shown, value);
    else if (id == ID_LONG_WAIT || id == ID_ON_EVENT_LIMIT) {
        int64_t *ms = id == ID_LONG_WAIT ? &settings->long_wait_ms : &settings->on_event_limit_ms;
        if (!parse_duration(value, ms) || *ms == 0)
            return duration_error("serve", shown, value);
    }
    return 0;
}

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
    } else if (id == ID_EVERY) {
        if (!parse_duration(value, &settings->every_ms) || settings->every_ms < VIEW_PERIOD_MS ||
            settings->every_ms > EVERY_MAX_MS)
            return usage_error("serve", "%s: '%s' is not a duration from 1s to 1h", shown, value);
    } else if (id >= ID_HISTORY && id <= ID_LONG_WAIT) {
        return take_history(settings, id, value, shown);
    } else {
        common_option(serving->connection, id);
    }
    return 0;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct serving serving = {.connection = connection,
                              .settings = {.listen = SERVE_DEFAULT_LISTEN,
                                           .metrics_locks = FLEET_PROMETHEUS_NAMES_MAX,
                                           .history_size = HISTORY_FILE_SIZE,
                                           .on_event_limit_ms = ON_EVENT_LIMIT_MS,
                                           .long_wait_ms = FLEET_OVER_MS,
                                           .every_ms = VIEW_PERIOD_MS}};
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
        "[--listen HOST:PORT] [--allowed-host NAME]... [--token-file FILE [--allow-break]]\n"
        "                      [--metrics-locks N] [--history FILE [--history-size SIZE]]\n"
        "                      [--on-event COMMAND [--on-event-limit DUR]] [--long-wait DUR]\n"
        "                      [--every DUR]\n"
        "Serves holders and waiters over HTTP: a live page (/), metrics for Prometheus (/metrics),\n"
        "and JSON (/api/locks, /api/locks/NAME, /api/clients, /api/history, /api/history/NAME). It\n"
        "surveys the fleet once a second; also when a holdfast client announces a loss or a break, at\n"
        "most four times a second. It surveys only while a page or request is open, or always with\n"
        "--history or --on-event. For TLS, put a proxy in front.\n\n"
        "      --listen HOST:PORT  where to listen (127.0.0.1:7380); port 0: any free one\n"
        "      --allowed-host NAME another name for this host, such as a proxy's\n"
        "      --token-file FILE   a secret in the first line of a file that only you can read;\n"
        "                          required of every request, except on loopback\n"
        "      --allow-break       allow the page to break locks, with the token\n"
        "      --metrics-locks N   how many locks have metrics of their own (1000)\n"
        "      --history FILE      append what happens to locks, for `log` and the next start\n"
        "      --history-size SIZE at this size FILE is renamed to FILE.1 (16M)\n"
        "      --on-event COMMAND  run it with the shell for each lost, broken, deadlock and long_wait\n"
        "                          event, with the event as JSON on its standard input\n"
        "      --on-event-limit DUR  kill it after this time (30s)\n"
        "      --long-wait DUR     a wait as long as this is an event (1m)\n"
        "      --every DUR         how often to survey when nothing is announced (1s)\n"
        "\nExit status: 0 after SIGINT or SIGTERM; 71 cannot listen there.\n",
    .run = run,
};
