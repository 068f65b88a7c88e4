/*
 * holdfast ls [PATTERN]: one line for each lock that is held or waited for: what kind it is, who holds it
 * and since when, whether that holder is there, and how many wait.
 *
 * One survey and out; nothing is kept. What clients say of themselves is their word, and is shown
 * disarmed, like every name.
 */
#include "fleet.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_SORT = 1, ID_STUCK, ID_OVER, ID_METRICS };

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_SORT, 0, "sort", false},
    {OPTION_FLAG, ID_STUCK, 0, "stuck", false},
    {OPTION_VALUE, ID_OVER, 0, "over", false},
    {OPTION_FLAG, ID_METRICS, 0, "metrics", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct list {
    struct connection *connection;
    const struct fleet_sorting *sorting;
    int64_t over_ms;
    bool stuck_only, metrics;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct list *list = user;
    if (id == ID_STUCK) {
        list->stuck_only = true;
    } else if (id == ID_METRICS) {
        list->metrics = true;
    } else if (id == ID_OVER) {
        if (!parse_duration(value, &list->over_ms))
            return usage_error("ls", "%s: '%s' is no duration", shown, value);
    } else if (id == ID_SORT) {
        list->sorting = fleet_sorting_find(value);
        if (list->sorting == NULL)
            return usage_error("ls", "%s is " FLEET_SORTINGS, shown);
    } else {
        common_option(list->connection, id);
    }
    return 0;
}

/* ---- As a table ---- */

enum column { NAME, KIND, STATE, HOLDER, HELD, TTL, WAITERS, WAITED, COLUMNS };

struct row {
    char cells[COLUMNS][CELL_SIZE];
};

static const char *const titles[COLUMNS] = {"NAME",     "KIND", "STATE",   "HOLDER",
                                            "HELD FOR", "TTL",  "WAITERS", "LONGEST"};

static void fill_row(const hf_fleet_lock *lock, struct row *row) {
    char holder[CELL_SIZE];
    fleet_shown_name(lock, row->cells[NAME]);
    shown_name(lock->kind, row->cells[KIND]);
    fleet_describe_state(lock, row->cells[STATE], CELL_SIZE);
    fleet_describe_holder(lock, holder, sizeof holder);
    shown_name(holder, row->cells[HOLDER]);
    fleet_write_time(fleet_age(lock), row->cells[HELD], CELL_SIZE);
    fleet_write_time(lock->ttl_ms, row->cells[TTL], CELL_SIZE);
    snprintf(row->cells[WAITERS], CELL_SIZE, "%" PRId64, fleet_waiters(lock));
    fleet_write_time(fleet_wait(lock), row->cells[WAITED], CELL_SIZE);
}

static void print_row(const struct row *row, const int *widths) {
    for (int i = 0; i < COLUMNS; i++) {
        int gap = i + 1 < COLUMNS ? widths[i] - text_width(row->cells[i]) + 2 : 0;
        printf("%s%*s", row->cells[i], gap, "");
    }
    putchar('\n');
}

static int print_table(const hf_fleet_lock *const *locks, size_t len) {
    struct row *rows = calloc(len + 1, sizeof *rows);
    int widths[COLUMNS] = {0};
    if (rows == NULL) {
        say(LEVEL_ERROR, "out of memory");
        return STATUS_OS;
    }
    for (int i = 0; i < COLUMNS; i++)
        snprintf(rows[0].cells[i], CELL_SIZE, "%s", titles[i]);
    for (size_t i = 0; i < len; i++)
        fill_row(locks[i], &rows[i + 1]);
    for (size_t i = 0; i <= len; i++)
        for (int k = 0; k < COLUMNS; k++) {
            int width = text_width(rows[i].cells[k]);
            widths[k] = width > widths[k] ? width : widths[k];
        }
    for (size_t i = 0; len > 0 && i <= len; i++)
        print_row(&rows[i], widths);
    free(rows);
    if (fflush(stdout) == 0)
        return STATUS_OK;
    say(LEVEL_ERROR, "cannot write to the standard output");
    return STATUS_OS;
}

/* ---- As JSON ---- */

static int print_all_json(const hf_fleet_lock *const *locks, size_t len) {
    int status = STATUS_OK;
    for (size_t i = 0; i < len && status == STATUS_OK; i++)
        status = print_json(fleet_json_lock(locks[i]));
    return status;
}

/* ---- As metrics ---- */

static int print_metrics(const hf_fleet *fleet) {
    bool written = openmetrics_write(stdout, fleet, NULL, NULL, OPENMETRICS_NAMES_MAX);
    if (fflush(stdout) == 0 && written)
        return STATUS_OK;
    say(LEVEL_ERROR, "cannot write to the standard output, or out of memory");
    return STATUS_OS;
}

/* ---- The list ---- */

/* Those that are asked for, in order; the caller frees it. NULL: out of memory. */
static const hf_fleet_lock **choose(const struct list *list, const hf_fleet *fleet,
                                    size_t *ret_len) {
    const hf_fleet_lock **chosen = calloc(fleet->locks_len + 1, sizeof(hf_fleet_lock *));
    *ret_len = 0;
    for (size_t i = 0; chosen != NULL && i < fleet->locks_len; i++)
        if (!list->stuck_only || fleet_is_stuck(fleet->locks[i], list->over_ms))
            chosen[(*ret_len)++] = fleet->locks[i];
    if (chosen != NULL)
        fleet_sort(chosen, *ret_len, list->sorting);
    return chosen;
}

static int print_fleet(const struct list *list, const hf_fleet *fleet) {
    size_t len;
    const hf_fleet_lock **locks = choose(list, fleet, &len);
    if (locks == NULL) {
        say(LEVEL_ERROR, "out of memory");
        return STATUS_OS;
    }
    int status = list->connection->json ? print_all_json(locks, len) : print_table(locks, len);
    free(locks);
    if (fleet->words[0] != '\0')
        say(LEVEL_NOTICE, "not all is told: %s", fleet->words);
    return status == STATUS_OK && list->stuck_only && len > 0 ? STATUS_NO : status;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct list list = {
        .connection = connection, .sorting = fleet_sorting_at(0), .over_ms = FLEET_OVER_MS};
    int first = command_options(&command_ls, specs, argc, argv, take, &list);
    if (first <= 0)
        return -first;
    if (argc - first > 1)
        return usage_error("ls", "one PATTERN at most, after the options; quote it for the shell");
    if (list.metrics && (list.stuck_only || connection->json))
        return usage_error("ls", "--metrics is without --stuck and --json");
    int status = connection_resolve(connection);
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    if (status == 0)
        status = connection_open(connection, &options, &client);
    if (status != 0)
        return status;
    hf_survey_options wanted = HF_SURVEY_INIT;
    hf_fleet *fleet = NULL;
    wanted.pattern = argc - first == 1 ? argv[first] : NULL;
    if (!list.metrics)
        wanted.wanted = HF_WANT_HOLDS | HF_WANT_WAITS;
    int code = hf_survey(client, &wanted, &fleet);
    if (code == HF_OK)
        status = list.metrics ? print_metrics(fleet) : print_fleet(&list, fleet);
    else
        status = library_error(code, hf_last_error(), "list", wanted.pattern);
    hf_fleet_free(fleet);
    hf_close(client);
    return status;
}

const struct command command_ls = {
    .name = "ls",
    .summary = "list who holds what, and who waits",
    .usage =
        "[--sort WHAT] [--stuck [--over DUR]] [--json | --metrics] [PATTERN]\n"
        "Lists all locks that are held or waited for, or those whose names match PATTERN (* ? [a-c]):\n"
        "kind, whether the holder is there, who it is, since when, what is left, and how many wait.\n"
        "Clients are asked by a message; one that has held or waited for less than a second is not.\n\n"
        "      --sort WHAT  by name, age, ttl, wait or waiters (name)\n"
        "      --stuck      only those whose holder is silent or gone, or with a wait that is long\n"
        "      --over DUR   such a wait (1m)\n"
        "      --json       as JSON, one object for each\n"
        "      --metrics    of locks and clients, in the format of OpenMetrics\n"
        "\nStates: alive; connected: it was not to answer; silent: it did not; gone: its lock ends with\n"
        "the ttl; unknown: gone, or a Java client; with a '!' server and clients do not agree.\n"
        "Exit status: 0; 1 with --stuck: there are some.\n",
    .run = run,
};
