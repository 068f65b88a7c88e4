/* holdfast ls [PATTERN]: one line for each lock that is held or waited for: its kind, its holder
 * and since when, the holder's presence, and the number of waiters.
 *
 * It takes one survey; with --stuck two, because only a deadlock in both is reported. No state is
 * kept. Clients report about themselves, so their text and all names are escaped. */
#include "fleet/fleet.h"

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
    const char *pattern;
    hf_fleet *earlier, *fleet; /* owned; earlier is NULL if one survey was enough */
    hf_deadlocks *deadlocks;   /* owned; NULL: not checked */
};

static int take(void *user, int id, char *value, const char *shown) {
    struct list *list = user;
    if (id == ID_STUCK) {
        list->stuck_only = true;
    } else if (id == ID_METRICS) {
        list->metrics = true;
    } else if (id == ID_OVER) {
        if (!parse_duration(value, &list->over_ms))
            return duration_error("ls", shown, value);
    } else if (id == ID_SORT) {
        list->sorting = fleet_sorting_find(value);
        if (list->sorting == NULL)
            return usage_error("ls", "%s: '%s' is not one of " FLEET_SORTINGS, shown, value);
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

static bool is_deadlocked(const struct list *list, const hf_fleet_lock *lock) {
    for (size_t i = 0; list->deadlocks != NULL && i < list->deadlocks->len; i++)
        for (size_t k = 0; k < list->deadlocks->all[i].steps_len; k++)
            if (list->deadlocks->all[i].steps[k].lock == lock)
                return true;
    return false;
}

static void fill_row(const struct list *list, const hf_fleet_lock *lock, struct row *row) {
    char holder[CELL_SIZE];
    fleet_shown_name(lock, row->cells[NAME]);
    shown_name(lock->kind, row->cells[KIND]);
    if (is_deadlocked(list, lock))
        snprintf(row->cells[STATE], CELL_SIZE, "deadlock");
    else
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

static int print_table(const struct list *list, const hf_fleet_lock *const *locks, size_t len) {
    struct row *rows = calloc(len + 1, sizeof *rows);
    int widths[COLUMNS] = {0};
    if (rows == NULL) {
        say(LEVEL_ERROR, "out of memory");
        return STATUS_OS;
    }
    for (int i = 0; i < COLUMNS; i++)
        snprintf(rows[0].cells[i], CELL_SIZE, "%s", titles[i]);
    for (size_t i = 0; i < len; i++)
        fill_row(list, locks[i], &rows[i + 1]);
    for (size_t i = 0; i <= len; i++)
        for (int k = 0; k < COLUMNS; k++) {
            int width = text_width(rows[i].cells[k]);
            widths[k] = width > widths[k] ? width : widths[k];
        }
    for (size_t i = 0; len > 0 && i <= len; i++)
        print_row(&rows[i], widths);
    free(rows);
    return finish_output();
}

/* ---- As JSON ---- */

static int print_all_json(const struct list *list, const hf_fleet_lock *const *locks, size_t len) {
    int status = STATUS_OK;
    for (size_t i = 0; i < len && status == STATUS_OK; i++) {
        json_t *object = fleet_json_lock(locks[i]);
        if (object != NULL && is_deadlocked(list, locks[i]))
            json_object_set_new(object, "deadlock", json_true());
        status = print_json(object);
    }
    return status;
}

/* ---- As metrics ---- */

static int print_metrics(const hf_fleet *fleet) {
    const struct fleet_totals none = {0};
    bool written =
        fleet_metrics_write(stdout, METRICS_TEXT, fleet, NULL, &none, FLEET_PROMETHEUS_NAMES_MAX);
    if (!written && ferror(stdout) == 0) {
        say(LEVEL_ERROR, "out of memory");
        return STATUS_OS;
    }
    return finish_output();
}

/* ---- The list ---- */

/* The requested locks, sorted; the caller frees the list. NULL: out of memory. */
static const hf_fleet_lock **choose(const struct list *list, size_t *ret_len) {
    const hf_fleet *fleet = list->fleet;
    const hf_fleet_lock **chosen = calloc(fleet->locks_len + 1, sizeof(hf_fleet_lock *));
    *ret_len = 0;
    for (size_t i = 0; chosen != NULL && i < fleet->locks_len; i++)
        if (!list->stuck_only || fleet_is_stuck(fleet->locks[i], list->over_ms) ||
            is_deadlocked(list, fleet->locks[i]))
            chosen[(*ret_len)++] = fleet->locks[i];
    if (chosen != NULL)
        fleet_sort(chosen, *ret_len, list->sorting);
    return chosen;
}

static int print_fleet(const struct list *list) {
    size_t len;
    const hf_fleet_lock **locks = choose(list, &len);
    if (locks == NULL) {
        say(LEVEL_ERROR, "out of memory");
        return STATUS_OS;
    }
    int status =
        list->connection->json ? print_all_json(list, locks, len) : print_table(list, locks, len);
    free(locks);
    if (list->fleet->missing_text[0] != '\0')
        say(LEVEL_NOTICE, "incomplete: %s", list->fleet->missing_text);
    return status == STATUS_OK && list->stuck_only && len > 0 ? STATUS_NO : status;
}

static int take_survey(const struct list *list, hf_client *client, hf_fleet **ret) {
    hf_survey_options wanted = HF_SURVEY_OPTIONS_INIT;
    wanted.pattern = list->pattern;
    if (!list->metrics)
        wanted.wanted = HF_WANT_HOLDS | HF_WANT_WAITS;
    return hf_survey(client, &wanted, ret);
}

static bool anybody_waits(const hf_fleet *fleet) {
    for (size_t i = 0; i < fleet->locks_len; i++)
        if (fleet->locks[i]->waiters_len > 0)
            return true;
    return false;
}

static int take_surveys(struct list *list, hf_client *client) {
    int code = take_survey(list, client, &list->fleet);
    if (code != HF_OK || !list->stuck_only || !anybody_waits(list->fleet))
        return code;
    list->earlier = list->fleet;
    list->fleet = NULL;
    code = take_survey(list, client, &list->fleet);
    return code == HF_OK ? hf_fleet_deadlocks(list->earlier, list->fleet, &list->deadlocks) : code;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct list list = {
        .connection = connection, .sorting = fleet_sorting_at(0), .over_ms = FLEET_OVER_MS};
    int first = command_options(&command_ls, specs, argc, argv, take, &list);
    if (first <= 0)
        return -first;
    if (argc - first > 1)
        return usage_error(
            "ls", "too many arguments: give one PATTERN after the options, quoted for the shell");
    if (list.metrics && (list.stuck_only || connection->json))
        return usage_error("ls", "--metrics cannot be combined with --stuck or --json");
    int status = connection_resolve(connection);
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    if (status == 0)
        status = connection_open(connection, &options, &client);
    if (status != 0)
        return status;
    list.pattern = argc - first == 1 ? argv[first] : NULL;
    int code = take_surveys(&list, client);
    if (code == HF_OK)
        status = list.metrics ? print_metrics(list.fleet) : print_fleet(&list);
    else
        status = library_error(code, hf_last_error(), "list", list.pattern);
    hf_deadlocks_free(list.deadlocks);
    hf_fleet_free(list.earlier);
    hf_fleet_free(list.fleet);
    hf_close(client);
    return status;
}

const struct command command_ls = {
    .name = "ls",
    .options = specs,
    .summary = "list locks with holders and waiters",
    .usage =
        "[--sort WHAT] [--stuck [--over DUR]] [--json | --metrics] [PATTERN]\n"
        "Lists all locks that have holders or waiters, or those whose names match PATTERN (* ? [a-c]):\n"
        "kind, holder and its state, how long it has held, the ttl, and the number of waiters.\n"
        "Clients are asked by a message, once they have held or waited for a second.\n\n"
        "      --sort WHAT  by name, age, ttl, wait or waiters (name)\n"
        "      --stuck      only locks whose holder is silent or gone, with a long wait, or in a deadlock\n"
        "                   (state: deadlock); surveys twice if there are waiters\n"
        "      --over DUR   how long a long wait is (1m)\n"
        "      --json       as JSON, one object per line\n"
        "      --metrics    metrics of locks and clients, in the Prometheus text format\n"
        "\nStates: alive; connected: not expected to answer; silent: did not answer; gone: its lock ends\n"
        "with the ttl; unknown: gone, or a Java client; with '!' server and clients disagree.\n"
        "Exit status: 0; 1 with --stuck: some were found.\n",
    .run = run,
};
