/* holdfast show NAME: a lock's holders and waiters. The server names the owners; a survey adds
 * their presence, since when, and more waiters. With --held: only whether it is held. For a
 * semaphore, a latch or slots, which have no owners: the counts.
 *
 * A few queries to the server, one survey, then exit; no state is kept. The answers are not one
 * snapshot: the server decides on the holders, and the survey only adds details. */
#include "fleet/fleet.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_HELD = 1, ID_STRING };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_HELD, 0, "held", false},
    {OPTION_FLAG, ID_STRING, 0, "string", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct show {
    struct connection *connection;
    const char *server; /* one of several; NULL: the only one */
    bool held_only;
    bool string; /* any string is a lock */
};

static int take(void *user, int id, char *value, const char *shown) {
    (void)value;
    (void)shown;
    struct show *show = user;
    if (id == ID_HELD)
        show->held_only = true;
    else if (id == ID_STRING)
        show->string = true;
    else
        common_option(show->connection, id);
    return 0;
}

static bool is_held(const hf_lock_info *info, const struct numbers *numbers) {
    bool slots_taken = info->kind == HF_FOUND_PERMITS && numbers->all[2].value > 0;
    return info->holders_len > 0 || slots_taken;
}

/* The answers about one name. */
struct sight {
    const hf_lock_info *info;
    const struct numbers *numbers;
    const hf_fleet_lock *lock; /* from the survey; NULL: not found there */
};

/* ---- Parties in the survey ---- */

/* The server knows the holder of a string lock by its token: the owner, a colon and more. */
static bool is_owner(const char *at_server, const char *owner) {
    size_t len = strlen(owner);
    return strncmp(at_server, owner, len) == 0 && (at_server[len] == '\0' || at_server[len] == ':');
}

static const hf_fleet_party *find_party(const hf_fleet_party *const *parties, size_t len,
                                        const char *owner) {
    for (size_t i = 0; i < len; i++)
        if (is_owner(owner, parties[i]->owner))
            return parties[i];
    return NULL;
}

static const hf_fleet_party *find_holder(const struct sight *sight, const char *owner) {
    return sight->lock == NULL ? NULL
                               : find_party(sight->lock->holders, sight->lock->holders_len, owner);
}

static const hf_fleet_party *find_waiter(const struct sight *sight, const char *owner) {
    return sight->lock == NULL ? NULL
                               : find_party(sight->lock->waiters, sight->lock->waiters_len, owner);
}

static bool is_among(hf_holder *const *owners, size_t len, const char *owner) {
    for (size_t i = 0; i < len; i++)
        if (is_owner(owners[i]->owner, owner))
            return true;
    return false;
}

/* The next holder known only from the survey: any slot holder, or a lock holder that claims it
 * itself. NULL: no more. */
static const hf_fleet_party *next_holder(const struct sight *sight, size_t *at) {
    while (sight->lock != NULL && *at < sight->lock->holders_len) {
        const hf_fleet_party *party = sight->lock->holders[(*at)++];
        bool at_server = (party->seen_by & HF_SEEN_BY_SERVER) != 0;
        if ((!at_server || sight->info->kind == HF_FOUND_PERMITS) &&
            !is_among(sight->info->holders, sight->info->holders_len, party->owner))
            return party;
    }
    return NULL;
}

static const hf_fleet_party *next_waiter(const struct sight *sight, size_t *at) {
    while (sight->lock != NULL && *at < sight->lock->waiters_len) {
        const hf_fleet_party *party = sight->lock->waiters[(*at)++];
        if (!is_among(sight->info->waiters, sight->info->waiters_len, party->owner) &&
            !is_among(sight->info->holders, sight->info->holders_len, party->owner))
            return party;
    }
    return NULL;
}

/* ---- As JSON ---- */

/* The server's values win; the rest is formatted as in `ls --json`. */
static void add_missing(json_t *object, json_t *more) {
    if (object != NULL && more != NULL)
        json_object_update_missing(object, more);
    json_decref(more);
}

static json_t *json_owner(const hf_holder *owner, const hf_fleet_party *party) {
    json_t *entry = json_pack("{s:o}", "owner", json_text(owner->owner));
    if (owner->count > 0)
        json_object_set_new(entry, "count", json_integer(owner->count));
    if (owner->connection != NULL)
        json_object_set_new(entry, "connection", json_text(owner->connection));
    if (party != NULL)
        add_missing(entry, fleet_json_party(party));
    return entry;
}

static json_t *json_holders(const struct sight *sight) {
    json_t *list = json_array();
    const hf_fleet_party *party;
    for (size_t i = 0; i < sight->info->holders_len; i++)
        json_array_append_new(list, json_owner(sight->info->holders[i],
                                               find_holder(sight, sight->info->holders[i]->owner)));
    for (size_t i = 0; (party = next_holder(sight, &i)) != NULL;)
        json_array_append_new(list, fleet_json_party(party));
    return list;
}

static json_t *json_waiters(const struct sight *sight) {
    json_t *list = json_array();
    const hf_fleet_party *party;
    for (size_t i = 0; i < sight->info->waiters_len; i++)
        json_array_append_new(list, json_owner(sight->info->waiters[i],
                                               find_waiter(sight, sight->info->waiters[i]->owner)));
    for (size_t i = 0; (party = next_waiter(sight, &i)) != NULL;)
        json_array_append_new(list, fleet_json_party(party));
    return list;
}

static int show_json(const char *server, const char *name, const struct sight *sight) {
    const hf_lock_info *info = sight->info;
    const struct numbers *numbers = sight->numbers;
    json_t *object =
        json_pack("{s:o, s:s, s:b, s:o}", "name", json_text(name), "kind", found_text(info->kind),
                  "held", is_held(info, numbers), "holders", json_holders(sight));
    json_t *waiters = json_waiters(sight);
    if (object != NULL && server != NULL)
        json_object_set_new(object, "server", json_text(server));
    if (object != NULL && json_array_size(waiters) > 0)
        json_object_set(object, "waiters", waiters);
    json_decref(waiters);
    if (object != NULL && info->kind == HF_FOUND_OTHER)
        json_object_set_new(object, "type", json_string(info->type_name));
    for (size_t i = 0; object != NULL && i < numbers->len; i++)
        json_object_set_new(object, numbers->all[i].name, json_integer(numbers->all[i].value));
    if (object != NULL && info->ttl_ms >= 0)
        json_object_set_new(object, "ttl_ms", json_integer(info->ttl_ms));
    if (sight->lock != NULL)
        add_missing(object, fleet_json_lock(sight->lock));
    return print_json(object);
}

/* ---- As text ---- */

/* Prints one value, with untrusted text (names, owners) escaped. */
static void show_line(const char *title, const char *value) {
    char shown[SHOWN_NAME_SIZE];
    printf("%-8s%s\n", title, shown_name(value, shown));
}

static void show_time(const char *title, int64_t ms) {
    char text[CELL_SIZE];
    fleet_write_time(ms, text, sizeof text);
    if (ms >= 0)
        show_line(title, text);
}

/* Its presence, and for how long it holds or waits. */
static void show_party(const hf_fleet_party *party) {
    if (party == NULL)
        return;
    show_line("  state", presence_text(party->presence));
    show_time("  for", party->for_ms);
}

static void show_connection(const hf_holder *owner) {
    show_line("  who", owner->connection != NULL ? owner->connection : "unknown");
}

/* A party known only from the survey. */
static void show_surveyed(const char *title, const hf_fleet_party *party) {
    char who[CELL_SIZE] = "unknown";
    if (party->client != NULL && party->client->host[0] != '\0')
        fleet_describe_party(party, who, sizeof who);
    show_line(title, party->owner);
    if (party->count > 0)
        printf("%-8s%" PRId64 "\n", "  count", party->count);
    show_line("  who", who);
    show_party(party);
}

static void show_holders(const struct sight *sight) {
    const hf_fleet_party *party;
    for (size_t i = 0; i < sight->info->holders_len; i++) {
        const hf_holder *holder = sight->info->holders[i];
        show_line("holder", holder->owner);
        printf("%-8s%" PRId64 "\n", "  count", holder->count);
        show_connection(holder);
        show_party(find_holder(sight, holder->owner));
    }
    for (size_t i = 0; (party = next_holder(sight, &i)) != NULL;)
        show_surveyed("holder", party);
}

static void show_waiters(const struct sight *sight) {
    const hf_fleet_party *party;
    for (size_t i = 0; i < sight->info->waiters_len; i++) {
        show_line("waiter", sight->info->waiters[i]->owner);
        show_connection(sight->info->waiters[i]);
        show_party(find_waiter(sight, sight->info->waiters[i]->owner));
    }
    for (size_t i = 0; (party = next_waiter(sight, &i)) != NULL;)
        show_surveyed("waiter", party);
}

/* The columns of `ls`. */
static void show_survey(const hf_fleet_lock *lock) {
    char state[CELL_SIZE];
    fleet_describe_state(lock, state, sizeof state);
    show_line("state", state);
    show_time("held", fleet_age(lock));
    printf("%-8s%" PRId64 "\n", "waiting", fleet_waiters(lock));
    show_time("longest", fleet_wait(lock));
}

static int show_plain(const char *name, const struct sight *sight) {
    const hf_lock_info *info = sight->info;
    const struct numbers *numbers = sight->numbers;
    show_line("name", name);
    show_line("kind", found_text(info->kind));
    if (info->kind == HF_FOUND_OTHER)
        show_line("type", info->type_name);
    /* Slots have no ttl in one key; the survey computes the one that `ls` shows. */
    int64_t ttl_ms =
        info->ttl_ms >= 0 || sight->lock == NULL ? info->ttl_ms : fleet_ttl(sight->lock);
    if (ttl_ms >= 0)
        printf("%-8s%" PRId64 ".%03d s\n", "ttl", ttl_ms / 1000, (int)(ttl_ms % 1000));
    else if (info->holders_len > 0)
        show_line("ttl", "no expiry");
    if (sight->lock != NULL)
        show_survey(sight->lock);
    show_holders(sight);
    show_waiters(sight);
    for (size_t i = 0; i < numbers->len; i++)
        printf("%-8s%" PRId64 "\n", numbers->all[i].name, numbers->all[i].value);
    return finish_output();
}

/* ---- The command ---- */

/* NULL: the survey failed, or the name is too long for a pattern. The server's answer is shown
 * anyway. */
static hf_fleet *take_survey(hf_client *client, const char *name) {
    char pattern[FLEET_PATTERN_SIZE];
    hf_survey_options options = HF_SURVEY_OPTIONS_INIT;
    hf_fleet *fleet = NULL;
    options.pattern = pattern;
    options.wanted = HF_WANT_HOLDS | HF_WANT_WAITS;
    if (!fleet_quote_pattern(name, pattern))
        return NULL;
    int code = hf_survey(client, &options, &fleet);
    const char *text = code == HF_OK ? fleet->missing_text : hf_strerror(code);
    if (text[0] != '\0')
        say(LEVEL_NOTICE, "incomplete: %s", text);
    return code == HF_OK ? fleet : NULL;
}

/* The exit status, after everything has been printed. */
static int judge(const struct show *show, const char *name, const hf_lock_info *info,
                 const struct numbers *numbers) {
    char shown[SHOWN_NAME_SIZE];
    if (info->kind == HF_FOUND_OTHER) {
        say_other(name, "lock", info->type_name);
        return STATUS_DATA;
    }
    if (!show->held_only || is_held(info, numbers))
        return STATUS_OK;
    if (info->kind != HF_FOUND_COUNTER)
        return STATUS_NO;
    say_of(LEVEL_ERROR, &(struct subject){.code = HF_EWRONGTYPE, .lock = name},
           "'%s' is not a lock, but a number: a semaphore, a latch, or free slots",
           shown_name(name, shown));
    return STATUS_DATA;
}

static int inspect(const struct show *show, hf_client *client, const char *name) {
    hf_lock *lock = NULL;
    hf_lock_info *info = NULL;
    struct numbers numbers = {0};
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = show->string ? HF_STRING : HF_PLAIN;
    int code = hf_lock_new_with(client, name, strlen(name), &options, &lock);
    if (code == HF_OK)
        code = hf_lock_inspect(lock, &info);
    if (code == HF_OK)
        code = numbers_count(client, name, info->kind, &numbers);
    hf_error error = *hf_last_error();
    hf_lock_free(lock);
    if (code != HF_OK) {
        hf_lock_info_free(info);
        return library_error(code, &error, "inspect", name);
    }

    int status = STATUS_OK;
    bool surveyed = !show->held_only && info->kind != HF_FOUND_OTHER;
    hf_fleet *fleet = surveyed ? take_survey(client, name) : NULL;
    const struct sight sight = {
        .info = info, .numbers = &numbers, .lock = fleet != NULL ? fleet_find(fleet, name) : NULL};
    if (show->connection->json)
        status = show_json(show->server, name, &sight);
    else if (!show->held_only)
        status = show_plain(name, &sight);
    if (status == STATUS_OK)
        status = judge(show, name, info, &numbers);
    hf_fleet_free(fleet);
    hf_lock_info_free(info);
    return status;
}

/* One of several servers. */
static int show_server(struct connection *one, const struct show *show, const char *name) {
    char server[256];
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    struct show of_one = {.connection = one, .server = server, .string = show->string};
    connection_shown_server(one, server, sizeof server);
    int status = connection_open(one, &options, &client);
    if (status != 0)
        return status;
    if (!one->json)
        show_line("server", server);
    status = inspect(&of_one, client, name);
    hf_close(client);
    return status;
}

/* Each server separately. Succeeds if more than half of them have answered. */
static int show_servers(const struct show *show, const char *name) {
    const char *list = show->connection->target;
    struct connection one = *show->connection;
    int servers = 0, shown = 0, failure = STATUS_OK;
    while (connection_next_server(&list, &one)) {
        int status = show_server(&one, show, name);
        explicit_bzero(one.target, strlen(one.target)); /* the url may contain a password */
        free(one.target);
        if (status == STATUS_USAGE)
            return status;
        failure = status != STATUS_OK ? status : failure;
        shown += status == STATUS_OK;
        servers++;
    }
    return shown > servers / 2 ? STATUS_OK : failure;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct show show = {.connection = connection};
    int first = command_options(&command_show, specs, argc, argv, take, &show);
    if (first <= 0)
        return -first;
    if (argc - first != 1 || argv[first][0] == '\0')
        return usage_error("show", "one NAME is needed, after the options");

    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    message_lock(argv[first]);
    int status = connection_resolve(connection);
    if (status == 0) /* also checks the urls of a quorum */
        status = connection_open(connection, &options, &client);
    if (status != 0)
        return status;
    if (connection_has_several(connection) && !show.held_only)
        status = show_servers(&show, argv[first]);
    else
        status = inspect(&show, client, argv[first]);
    hf_close(client);
    return status;
}

const struct command command_show = {
    .name = "show",
    .options = specs,
    .summary = "show who holds a lock",
    .usage =
        "[--held] [--string] [--json] NAME\n"
        "Shows the kind of the lock NAME, its holders with their counts, times and states, its ttl, and its\n"
        "waiters; for a semaphore, a latch or slots the numbers; for a quorum what each server says. States\n"
        "are those of 'holdfast ls'.\n\n"
        "      --held    print nothing; exit with 0 if it is held, with 1 if not\n"
        "      --string  a string lock: any string of that name, also another library's\n"
        "      --json    as JSON\n"
        "\nExit status: 0; 1 with --held: not held; 65 not a lock.\n",
    .run = run,
};
