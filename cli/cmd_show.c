/*
 * holdfast show NAME: who is on a lock, as the server sees it; with --held only whether anybody is.
 *
 * One question to the server and out; nothing is kept.
 */
#include "cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { ID_HELD = 1 };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_HELD, 0, "held", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct show {
    struct connection *connection;
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

static int show_json(const char *name, const hf_lock_info *info) {
    json_t *holders = json_array();
    for (size_t i = 0; i < info->holders_len; i++) {
        const hf_holder *holder = &info->holders[i];
        json_t *entry = json_pack("{s:o, s:I}", "owner", json_text(holder->owner), "count",
                                  (json_int_t)holder->count);
        if (holder->connection != NULL)
            json_object_set_new(entry, "connection", json_text(holder->connection));
        json_array_append_new(holders, entry);
    }
    json_t *object = json_pack("{s:o, s:s, s:b, s:o}", "name", json_text(name), "kind", info->kind,
                               "held", info->holders_len > 0, "holders", holders);
    if (object != NULL && info->ttl_ms >= 0)
        json_object_set_new(object, "ttl_ms", json_integer(info->ttl_ms));
    return print_json(object);
}

/* A value in its line; what others wrote (names, owners) must not reach a terminal as it is. */
static void show_line(const char *title, const char *value) {
    char shown[SHOWN_NAME_SIZE];
    printf("%-8s%s\n", title, shown_name(value, shown));
}

static int show_plain(const char *name, const hf_lock_info *info) {
    show_line("name", name);
    show_line("kind", info->kind);
    if (info->ttl_ms >= 0)
        printf("%-8s%" PRId64 ".%03d s\n", "ttl", info->ttl_ms / 1000, (int)(info->ttl_ms % 1000));
    else if (info->holders_len > 0)
        show_line("ttl", "never ends by itself");
    for (size_t i = 0; i < info->holders_len; i++) {
        const hf_holder *holder = &info->holders[i];
        show_line("holder", holder->owner);
        printf("%-8s%" PRId64 "\n", "  count", holder->count);
        show_line("  who", holder->connection != NULL ? holder->connection : "unknown");
    }
    if (fflush(stdout) == 0)
        return STATUS_OK;
    say(LEVEL_ERROR, "cannot write to the standard output");
    return STATUS_OS;
}

static int inspect(const struct show *show, hf_client *client, const char *name) {
    hf_lock *lock = NULL;
    hf_lock_info *info = NULL;
    int code = hf_lock_new(client, name, &lock);
    if (code == HF_OK)
        code = hf_lock_inspect(lock, &info);
    hf_error error = *hf_last_error();
    hf_lock_free(lock);
    if (code != HF_OK)
        return library_error(code, &error, "look at", name);

    int status = STATUS_OK;
    if (show->connection->json)
        status = show_json(name, info);
    else if (!show->held_only)
        status = show_plain(name, info);
    if (status == STATUS_OK && strcmp(info->kind, "other") == 0)
        status = library_error(HF_EWRONGTYPE, NULL, "read as a lock", name);
    else if (status == STATUS_OK && show->held_only && info->holders_len == 0)
        status = STATUS_NO;
    hf_lock_info_free(info);
    return status;
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
    if (status == 0)
        status = connection_open(connection, &options, &client);
    if (status != 0)
        return status;
    status = inspect(&show, client, argv[first]);
    hf_close(client);
    return status;
}

const struct command command_show = {
    .name = "show",
    .summary = "tell who holds a lock",
    .usage = "[--held] [--json] NAME\n"
             "Tells what kind of lock NAME is, who holds it, how often, and until when.\n\n"
             "      --held  print nothing; exit with 0 if somebody holds it, with 1 if not\n"
             "      --json  as JSON\n",
    .run = run,
};
