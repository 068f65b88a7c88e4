/*
 * holdfast show NAME: who is on a lock, as the server sees it, and who waits in line; with --held
 * only whether anybody holds it. Of a semaphore, a latch or slots, which have no owners, the
 * numbers.
 *
 * A few questions to the server and out; nothing is kept. The answers are of different moments.
 */
#include "cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_HELD = 1 };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_HELD, 0, "held", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct show {
    struct connection *connection;
    const char *server; /* one of several, or NULL */
    bool held_only;
};

static int take(void *user, int id, char *value, const char *shown) {
    (void)value;
    (void)shown;
    struct show *show = user;
    if (id == ID_HELD)
        show->held_only = true;
    else
        common_option(show->connection, id);
    return 0;
}

static bool is_held(const hf_lock_info *info, const struct numbers *numbers) {
    bool slots_taken = info->kind == HF_FOUND_PERMITS && numbers->all[2].value > 0;
    return info->holders_len > 0 || slots_taken;
}

static json_t *json_owner(const hf_holder *owner) {
    json_t *entry = json_pack("{s:o}", "owner", json_text(owner->owner));
    if (owner->count > 0)
        json_object_set_new(entry, "count", json_integer(owner->count));
    if (owner->connection != NULL)
        json_object_set_new(entry, "connection", json_text(owner->connection));
    return entry;
}

static json_t *json_owners(hf_holder *const *owners, size_t len) {
    json_t *list = json_array();
    for (size_t i = 0; i < len; i++)
        json_array_append_new(list, json_owner(owners[i]));
    return list;
}

static int show_json(const char *server, const char *name, const hf_lock_info *info,
                     const struct numbers *numbers) {
    json_t *object = json_pack("{s:o, s:s, s:b, s:o}", "name", json_text(name), "kind",
                               found_word(info->kind), "held", is_held(info, numbers), "holders",
                               json_owners(info->holders, info->holders_len));
    if (object != NULL && server != NULL)
        json_object_set_new(object, "server", json_text(server));
    if (object != NULL && info->waiters_len > 0)
        json_object_set_new(object, "waiters", json_owners(info->waiters, info->waiters_len));
    if (object != NULL && info->kind == HF_FOUND_OTHER)
        json_object_set_new(object, "type", json_string(info->words));
    for (size_t i = 0; object != NULL && i < numbers->len; i++)
        json_object_set_new(object, numbers->all[i].name, json_integer(numbers->all[i].value));
    if (object != NULL && info->ttl_ms >= 0)
        json_object_set_new(object, "ttl_ms", json_integer(info->ttl_ms));
    return print_json(object);
}

/* A value in its line; what others wrote (names, owners) must not reach a terminal as it is. */
static void show_line(const char *title, const char *value) {
    char shown[SHOWN_NAME_SIZE];
    printf("%-8s%s\n", title, shown_name(value, shown));
}

static void show_connection(const hf_holder *owner) {
    show_line("  who", owner->connection != NULL ? owner->connection : "unknown");
}

static int show_plain(const char *name, const hf_lock_info *info, const struct numbers *numbers) {
    show_line("name", name);
    show_line("kind", found_word(info->kind));
    if (info->kind == HF_FOUND_OTHER)
        show_line("type", info->words);
    if (info->ttl_ms >= 0)
        printf("%-8s%" PRId64 ".%03d s\n", "ttl", info->ttl_ms / 1000, (int)(info->ttl_ms % 1000));
    else if (info->holders_len > 0)
        show_line("ttl", "never ends by itself");
    for (size_t i = 0; i < info->holders_len; i++) {
        const hf_holder *holder = info->holders[i];
        show_line("holder", holder->owner);
        printf("%-8s%" PRId64 "\n", "  count", holder->count);
        show_connection(holder);
    }
    for (size_t i = 0; i < info->waiters_len; i++) {
        show_line("waiter", info->waiters[i]->owner);
        show_connection(info->waiters[i]);
    }
    for (size_t i = 0; i < numbers->len; i++)
        printf("%-8s%" PRId64 "\n", numbers->all[i].name, numbers->all[i].value);
    if (fflush(stdout) == 0)
        return STATUS_OK;
    say(LEVEL_ERROR, "cannot write to the standard output");
    return STATUS_OS;
}

/* The exit status, when everything has been shown. */
static int judge(const struct show *show, const char *name, const hf_lock_info *info,
                 const struct numbers *numbers) {
    char shown[SHOWN_NAME_SIZE];
    if (info->kind == HF_FOUND_OTHER) {
        say_other(name, "lock", info->words);
        return STATUS_DATA;
    }
    if (!show->held_only || is_held(info, numbers))
        return STATUS_OK;
    if (info->kind != HF_FOUND_COUNTER)
        return STATUS_NO;
    say(LEVEL_ERROR, "'%s' is no lock, but a number: a semaphore, a latch, or slots that are free",
        shown_name(name, shown));
    return STATUS_DATA;
}

static int inspect(const struct show *show, hf_client *client, const char *name) {
    hf_lock *lock = NULL;
    hf_lock_info *info = NULL;
    struct numbers numbers = {0};
    int code = hf_lock_new(client, name, &lock);
    if (code == HF_OK)
        code = hf_lock_inspect(lock, &info);
    if (code == HF_OK)
        code = numbers_count(client, name, info->kind, &numbers);
    hf_error error = *hf_last_error();
    hf_lock_free(lock);
    if (code != HF_OK) {
        hf_lock_info_free(info);
        return library_error(code, &error, "look at", name);
    }

    int status = STATUS_OK;
    if (show->connection->json)
        status = show_json(show->server, name, info, &numbers);
    else if (!show->held_only)
        status = show_plain(name, info, &numbers);
    if (status == STATUS_OK)
        status = judge(show, name, info, &numbers);
    hf_lock_info_free(info);
    return status;
}

/* One of several servers. */
static int show_server(struct connection *one, const char *name) {
    char server[256];
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    struct show of_one = {.connection = one, .server = server};
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

/* Each server for itself. It has worked if more than half of them have answered. */
static int show_servers(const struct show *show, const char *name) {
    const char *list = show->connection->target;
    struct connection one = *show->connection;
    int servers = 0, shown = 0, failure = STATUS_OK;
    while (connection_next_server(&list, &one)) {
        int status = show_server(&one, name);
        explicit_bzero(one.target, strlen(one.target)); /* it may have a password in it */
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
    .summary = "tell who holds a lock",
    .usage =
        "[--held] [--json] NAME\n"
        "Tells what kind of lock NAME is, until when it is held, by whom, how often, and who waits\n"
        "in line for it (fair locks). Of a semaphore, a latch or slots it tells the numbers. Of a quorum\n"
        "it tells what each server says.\n\n"
        "      --held  print nothing; exit with 0 if somebody holds it, with 1 if not\n"
        "      --json  as JSON\n"
        "\nExit status: 0; 1 with --held: nobody holds it; 65 what is there is no lock.\n",
    .run = run,
};
