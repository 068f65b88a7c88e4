/* holdfast log [NAME]: prints the history that `serve --history FILE` has written: who acquired,
 * released and lost a lock, and when. It reads the file and needs no server. */
#include "cli.h"
#include "history/history.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ID_HISTORY = 1, ID_SINCE };

#define WORD_WIDTH 9
#define EXACT_MS 2000 /* a time that is less certain is printed with its limits */

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_HISTORY, 0, "history", false},
    {OPTION_VALUE, ID_SINCE, 0, "since", true},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct log {
    struct connection *connection;
    const char *file, *name; /* `name` NULL: of all locks */
    int64_t since_ms;        /* Unix time */
    bool found, failed;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct log *log = user;
    struct timespec now;
    int64_t ago_ms;
    if (id == ID_HISTORY) {
        log->file = value;
    } else if (id == ID_SINCE) {
        if (!parse_duration(value, &ago_ms))
            return duration_error("log", shown, value);
        clock_gettime(CLOCK_REALTIME, &now);
        log->since_ms = (int64_t)now.tv_sec * 1000 - ago_ms;
    } else {
        common_option(log->connection, id);
    }
    return 0;
}

/* ---- Text ---- */

/* Seconds, minutes or hours. */
static void print_span(const char *before, int64_t ms) {
    if (ms < 60000)
        printf("%s%" PRId64 ".%" PRId64 "s", before, ms / 1000, ms % 1000 / 100);
    else if (ms < 3600000)
        printf("%s%" PRId64 "m%02" PRId64 "s", before, ms / 60000, ms / 1000 % 60);
    else
        printf("%s%" PRId64 "h%02" PRId64 "m", before, ms / 3600000, ms / 60000 % 60);
}

static const char *shown_party(const char *who, const char *owner, char text[SHOWN_NAME_SIZE]) {
    return shown_name(who != NULL ? who : owner != NULL ? owner : "?", text);
}

static void print_text(const struct log *log, const struct history_event *event) {
    char text[SHOWN_NAME_SIZE];
    time_t seconds = (time_t)(event->at_ms / 1000);
    struct tm day;
    localtime_r(&seconds, &day);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &day);
    bool alone = event->who == NULL && event->owner == NULL && event->name == NULL;
    printf("%s.%03d  %-*s", text, (int)(event->at_ms % 1000), alone ? 0 : WORD_WIDTH, event->event);
    if (log->name == NULL && event->name != NULL)
        printf("  %s", shown_name(event->name, text));
    if (event->who != NULL || event->owner != NULL)
        printf("  %s", shown_party(event->who, event->owner, text));
    bool waits = strcmp(event->event, "long_wait") == 0 || strcmp(event->event, "deadlock") == 0;
    if (event->from_owner != NULL)
        printf(", %s %s", waits ? "held by" : "from",
               shown_party(event->from_who, event->from_owner, text));
    if (event->for_ms >= 0)
        print_span(", for ", event->for_ms);
    if (event->count > 1)
        printf(", %" PRId64 " %s", event->count, waits ? "locks" : "times");
    if (event->text != NULL && event->name == NULL)
        printf("  %s", shown_name(event->text, text));
    if (event->within_ms > EXACT_MS)
        print_span(", or earlier by up to ", event->within_ms);
    putchar('\n');
}

/* ---- The command ---- */

static bool print_event(void *user, const struct history_event *event) {
    struct log *log = user;
    if (event->at_ms < log->since_ms ||
        (log->name != NULL && !history_event_is_about(event, log->name, strlen(log->name))))
        return true;
    log->found = log->found || log->name == NULL || event->name != NULL;
    if (!log->connection->json) {
        print_text(log, event);
        return !ferror(stdout);
    }
    char *line = history_event_line(event);
    log->failed = line == NULL;
    if (line != NULL)
        printf("%s\n", line);
    free(line);
    return line != NULL && !ferror(stdout);
}

static int run(struct connection *connection, int argc, char **argv) {
    struct log log = {.connection = connection};
    int first = command_options(&command_log, specs, argc, argv, take, &log);
    if (first <= 0)
        return -first;
    if (argc - first > 1 || (argc > first && argv[first][0] == '\0'))
        return usage_error("log", "one NAME at most, after the options");
    if (log.file == NULL || log.file[0] == '\0')
        return usage_error("log", "--history FILE or HOLDFAST_HISTORY is needed: the file that "
                                  "`serve --history FILE` writes");
    log.name = argc > first ? argv[first] : NULL;
    int code = history_file_read(log.file, print_event, &log);
    if (code != 0 || log.failed) {
        say(LEVEL_ERROR, "cannot read the history file %s: %s", log.file,
            strerror(code != 0 ? code : ENOMEM));
        return STATUS_OS;
    }
    int status = finish_output();
    return status != STATUS_OK ? status : log.found ? STATUS_OK : STATUS_NO;
}

const struct command command_log = {
    .name = "log",
    .options = specs,
    .summary = "print what has happened to a lock",
    .usage =
        "--history FILE [--since DUR] [--json] [NAME]\n"
        "Prints what has happened to NAME, or to all locks: the history that `serve --history FILE`\n"
        "writes, with FILE.1 before it. No server is asked. `serve` surveys once a second: a hold\n"
        "between two surveys is not recorded. Breaks and losses are announced, so none is missed\n"
        "while it runs.\n\n"
        "      --history FILE  the file; HOLDFAST_HISTORY names it, too\n"
        "      --since DUR     only the last DUR, such as 90s, 2h or 1d\n"
        "      --json          as JSON, one object per line\n"
        "\nEvents: held: at the start of `serve`; acquired; released; ended: cause unknown; expired;\n"
        "broken; lost; long_wait; deadlock; away, back: the server; started, stopped: `serve`; missed:\n"
        "events that could not be written.\n"
        "Exit status: 0; 1 nothing is recorded; 71 the file cannot be read.\n",
    .run = run,
};
