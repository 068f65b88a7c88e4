/*
 * holdfast unlock --force NAME: frees a lock whoever holds it.
 *
 * Without --force there is nothing this can do: a hold belongs to a client's uuid, the client lives in the
 * process that acquired, and only that process may give the hold back. It says so and exits with 1, as for
 * a lock that is not held, so a script that meant a lock of its own notices.
 */
#include "cli.h"

#include <jansson.h>

enum { ID_FORCE = 1 };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_FORCE, 0, "force", true},
    {OPTION_LATER_VALUE, 0, 0, "owner", true},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct unlock {
    struct connection *connection;
    bool force;
};

static int take(void *user, int id, char *value, const char *shown) {
    (void)value;
    (void)shown;
    struct unlock *unlock = user;
    if (id == ID_FORCE)
        unlock->force = true;
    else
        common_option(unlock->connection, id);
    return 0;
}

static int break_lock(struct connection *connection, hf_client *client, const char *name) {
    char shown[SHOWN_NAME_SIZE];
    hf_lock *lock = NULL;
    bool broken = false;
    int code = hf_lock_new(client, name, &lock);
    if (code == HF_OK)
        code = hf_lock_break(lock, &broken);
    hf_error error = *hf_last_error();
    hf_lock_free(lock);
    if (code != HF_OK)
        return library_error(code, &error, "unlock", name);

    if (connection->json) {
        int status = print_json(json_pack("{s:o, s:b}", "name", json_text(name), "broken", broken));
        if (status != STATUS_OK)
            return status;
    } else if (!broken) {
        say(LEVEL_NOTICE, "nobody holds '%s'", shown_name(name, shown));
    }
    return broken ? STATUS_OK : STATUS_NO;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct unlock unlock = {.connection = connection};
    int first = command_options(&command_unlock, specs, argc, argv, take, &unlock);
    if (first <= 0)
        return -first;
    if (argc - first != 1 || argv[first][0] == '\0')
        return usage_error("unlock", "one NAME is needed, after the options");
    if (!unlock.force) {
        say(LEVEL_ERROR,
            "a lock can be given back only by the process that holds it; end that one, "
            "or use --force");
        return STATUS_NO;
    }

    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    int status = connection_resolve(connection);
    if (status == 0)
        status = connection_open(connection, &options, &client);
    if (status != 0)
        return status;
    status = break_lock(connection, client, argv[first]);
    hf_close(client);
    return status;
}

const struct command command_unlock = {
    .name = "unlock",
    .summary = "free a lock, whoever holds it",
    .usage = "--force [--json] NAME\n"
             "Frees a lock whoever holds it. Its holder is told that the lock is lost.\n\n"
             "      --force  yes, I mean it; without this nothing is done\n"
             "      --json   tell what was done as JSON\n"
             "\nExit status: 0 freed, 1 nobody held it.\n",
    .run = run,
};
