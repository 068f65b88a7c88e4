/*
 * holdfast ls [PATTERN]: one line for each lock that is held or waited for: what kind it is, who holds it
 * and since when, whether that holder is there, and how many wait.
 *
 * One survey and out; nothing is kept. What clients say of themselves is their word, and is shown
 * disarmed, like every name.
 */
#include "cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_SORT = 1, ID_STUCK, ID_OVER };

#define OVER_MS 60000 /* a wait that is longer is stuck, unless --over says otherwise */
#define CELL_SIZE SHOWN_NAME_SIZE

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_SORT, 0, "sort", false}, {OPTION_FLAG, ID_STUCK, 0, "stuck", false},
    {OPTION_VALUE, ID_OVER, 0, "over", false}, COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

/* What a list can be sorted by: the largest first, but for names. */
static int64_t age_of(const hf_fleet_lock *lock) {
    return lock->holders_len > 0 ? lock->holders[0]->for_ms : -1;
}

static int64_t ttl_of(const hf_fleet_lock *lock) {
    return lock->ttl_ms;
}

static int64_t wait_of(const hf_fleet_lock *lock) {
    int64_t longest_ms = -1;
    for (size_t i = 0; i < lock->waiters_len; i++)
        if (lock->waiters[i]->for_ms > longest_ms)
            longest_ms = lock->waiters[i]->for_ms;
    return longest_ms;
}

/* Those who say so, or at least those who listen at the server. */
static int64_t waiters_of(const hf_fleet_lock *lock) {
    int64_t told = (int64_t)lock->waiters_len;
    return lock->listeners > told ? lock->listeners : told;
}

static const struct sorting {
    const char *name;
    int64_t (*value)(const hf_fleet_lock *lock); /* NULL: as they come, by name */
} sortings[] = {
    {"name", NULL}, {"age", age_of}, {"ttl", ttl_of}, {"wait", wait_of}, {"waiters", waiters_of}};

struct list {
    struct connection *connection;
    const struct sorting *sorting;
    int64_t over_ms;
    bool stuck_only;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct list *list = user;
    if (id == ID_STUCK) {
        list->stuck_only = true;
    } else if (id == ID_OVER) {
        if (!parse_duration(value, &list->over_ms))
            return usage_error("ls", "%s: '%s' is no duration", shown, value);
    } else if (id == ID_SORT) {
        for (size_t i = 0; i < sizeof sortings / sizeof sortings[0]; i++)
            if (strcmp(sortings[i].name, value) == 0) {
                list->sorting = &sortings[i];
                return 0;
            }
        return usage_error("ls", "%s is name, age, ttl, wait or waiters", shown);
    } else {
        common_option(list->connection, id);
    }
    return 0;
}

/* ---- What is told of a lock ---- */

static const char *presence_word(hf_presence presence) {
    switch (presence) {
    case HF_ALIVE:
        return "alive";
    case HF_CONNECTED:
        return "connected";
    case HF_SILENT:
        return "silent";
    case HF_GONE:
        return "gone";
    case HF_PRESENCE_UNKNOWN:
        break;
    }
    return "unknown";
}

static bool is_stuck(const struct list *list, const hf_fleet_lock *lock) {
    for (size_t i = 0; i < lock->holders_len; i++)
        if (lock->holders[i]->presence == HF_SILENT || lock->holders[i]->presence == HF_GONE)
            return true;
    return wait_of(lock) >= list->over_ms;
}

/* The server's word counts: one of which it knows nothing comes last. */
static const hf_fleet_party *holder_of(const hf_fleet_lock *lock) {
    for (size_t i = 0; i < lock->holders_len; i++)
        if ((lock->holders[i]->seen_by & HF_SEEN_BY_SERVER) != 0)
            return lock->holders[i];
    return lock->holders_len > 0 ? lock->holders[0] : NULL;
}

static void describe_party(const hf_fleet_party *party, char *text, size_t size) {
    const hf_fleet_client *client = party->client;
    if (client != NULL && client->host[0] != '\0')
        snprintf(text, size, "%s %" PRId64 " %s", client->host, client->pid, client->program);
    else
        snprintf(text, size, "%s", party->owner);
}

static void describe_holder(const hf_fleet_lock *lock, char *text, size_t size) {
    const hf_fleet_party *holder = holder_of(lock);
    snprintf(text, size, "-");
    if (holder == NULL)
        return;
    describe_party(holder, text, size);
    size_t len = strlen(text);
    if (lock->holders_len > 1)
        snprintf(text + len, size - len, " +%zu", lock->holders_len - 1);
}

static void write_time(int64_t ms, char *text, size_t size) {
    if (ms < 0)
        snprintf(text, size, "-");
    else if (ms < 60 * 1000)
        snprintf(text, size, "%" PRId64 ".%ds", ms / 1000, (int)(ms % 1000 / 100));
    else if (ms < 3600 * 1000)
        snprintf(text, size, "%" PRId64 "m%02ds", ms / 60000, (int)(ms / 1000 % 60));
    else
        snprintf(text, size, "%" PRId64 "h%02dm", ms / 3600000, (int)(ms / 60000 % 60));
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
    const hf_fleet_party *party = holder_of(lock);
    shown_name(lock->name, row->cells[NAME]);
    shown_name(lock->kind, row->cells[KIND]);
    snprintf(row->cells[STATE], CELL_SIZE, "%s%s",
             party != NULL ? presence_word(party->presence) : "free", lock->disputed ? "!" : "");
    describe_holder(lock, holder, sizeof holder);
    shown_name(holder, row->cells[HOLDER]);
    write_time(party != NULL ? party->for_ms : -1, row->cells[HELD], CELL_SIZE);
    write_time(lock->ttl_ms, row->cells[TTL], CELL_SIZE);
    snprintf(row->cells[WAITERS], CELL_SIZE, "%" PRId64, waiters_of(lock));
    write_time(wait_of(lock), row->cells[WAITED], CELL_SIZE);
}

/* Characters, not bytes: names are UTF-8 when they are shown. */
static int width_of(const char *text) {
    int width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void print_row(const struct row *row, const int *widths) {
    for (int i = 0; i < COLUMNS; i++) {
        int gap = i + 1 < COLUMNS ? widths[i] - width_of(row->cells[i]) + 2 : 0;
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
            int width = width_of(rows[i].cells[k]);
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

static void set_time(json_t *object, const char *key, int64_t ms) {
    if (ms >= 0)
        json_object_set_new(object, key, json_integer(ms));
}

static json_t *json_party(const hf_fleet_party *party) {
    const hf_fleet_client *client = party->client;
    json_t *object =
        json_pack("{s:o, s:s, s:o, s:b, s:b}", "owner", json_text(party->owner), "state",
                  presence_word(party->presence), "kind", json_text(party->kind), "seen_by_server",
                  (party->seen_by & HF_SEEN_BY_SERVER) != 0, "seen_by_client",
                  (party->seen_by & HF_SEEN_BY_CLIENT) != 0);
    set_time(object, "for_ms", party->for_ms);
    set_time(object, "left_ms", party->left_ms);
    if (party->count > 0) {
        json_object_set_new(object, "count", json_integer(party->count));
        json_object_set_new(object, "renewed", json_boolean(party->renewed));
    }
    if (party->place > 0)
        json_object_set_new(object, "place", json_integer(party->place));
    if (party->thread[0] != '\0')
        json_object_set_new(object, "thread", json_text(party->thread));
    if (client != NULL && client->host[0] != '\0') {
        json_object_set_new(object, "host", json_text(client->host));
        json_object_set_new(object, "pid", json_integer(client->pid));
        json_object_set_new(object, "program", json_text(client->program));
    }
    return object;
}

static json_t *json_parties(const hf_fleet_party *const *parties, size_t len) {
    json_t *list = json_array();
    for (size_t i = 0; i < len; i++)
        json_array_append_new(list, json_party(parties[i]));
    return list;
}

static int print_lock_json(const hf_fleet_lock *lock) {
    json_t *object = json_pack("{s:o, s:o, s:b, s:I, s:o, s:o}", "name", json_text(lock->name),
                               "kind", json_text(lock->kind), "disputed", lock->disputed, "waiting",
                               (json_int_t)waiters_of(lock), "holders",
                               json_parties(lock->holders, lock->holders_len), "waiters",
                               json_parties(lock->waiters, lock->waiters_len));
    set_time(object, "ttl_ms", lock->ttl_ms);
    return print_json(object);
}

static int print_all_json(const hf_fleet_lock *const *locks, size_t len) {
    int status = STATUS_OK;
    for (size_t i = 0; i < len && status == STATUS_OK; i++)
        status = print_lock_json(locks[i]);
    return status;
}

/* ---- The list ---- */

static int compare(const void *a, const void *b, void *user) {
    const struct sorting *sorting = user;
    int64_t first = sorting->value(*(const hf_fleet_lock *const *)a);
    int64_t second = sorting->value(*(const hf_fleet_lock *const *)b);
    return (first < second) - (first > second);
}

/* Those that are asked for, in order; the caller frees it. NULL: out of memory. */
static const hf_fleet_lock **choose(const struct list *list, const hf_fleet *fleet,
                                    size_t *ret_len) {
    const hf_fleet_lock **chosen = calloc(fleet->locks_len + 1, sizeof(hf_fleet_lock *));
    *ret_len = 0;
    for (size_t i = 0; chosen != NULL && i < fleet->locks_len; i++)
        if (!list->stuck_only || is_stuck(list, fleet->locks[i]))
            chosen[(*ret_len)++] = fleet->locks[i];
    struct sorting sorting = *list->sorting;
    if (chosen != NULL && sorting.value != NULL)
        qsort_r(chosen, *ret_len, sizeof(hf_fleet_lock *), compare, &sorting);
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
    struct list list = {.connection = connection, .sorting = &sortings[0], .over_ms = OVER_MS};
    int first = command_options(&command_ls, specs, argc, argv, take, &list);
    if (first <= 0)
        return -first;
    if (argc - first > 1)
        return usage_error("ls", "one PATTERN at most, after the options; quote it for the shell");
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
    int code = hf_survey(client, &wanted, &fleet);
    if (code == HF_OK)
        status = print_fleet(&list, fleet);
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
        "[--sort WHAT] [--stuck [--over DUR]] [--json] [PATTERN]\n"
        "Lists all locks that are held or waited for, or those whose names match PATTERN (* ? [a-c]):\n"
        "kind, whether the holder is there, who it is, since when, what is left, and how many wait.\n"
        "Clients are asked by a message; one that has held or waited for less than a second is not.\n\n"
        "      --sort WHAT  by name, age, ttl, wait or waiters (name)\n"
        "      --stuck      only those whose holder is silent or gone, or with a wait that is long\n"
        "      --over DUR   such a wait (1m)\n"
        "      --json       as JSON, one object for each\n"
        "\nStates: alive; connected: it was not to answer; silent: it did not; gone: its lock ends with\n"
        "the ttl; unknown: gone, or a Java client; with a '!' server and clients do not agree.\n"
        "Exit status: 0; 1 with --stuck: there are some.\n",
    .run = run,
};
