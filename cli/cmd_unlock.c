/*
 * holdfast unlock --force NAME: frees a lock whoever holds it, of whichever kind it is; slots all
 * at once.
 *
 * The server is asked first what is there, since kinds are freed in different ways: the next in
 * line of a fair lock has to be told. If it becomes another kind between the two steps, nothing is
 * freed.
 *
 * Without --force there is nothing this can do: a hold belongs to a client's uuid, the client lives
 * in the process that acquired, and only that process may give the hold back. It says so and exits
 * with 1, as for a lock that is not held, so a script that meant a lock of its own notices.
 */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { ID_FORCE = 1 };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_FORCE, 0, "force", true},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

static const struct explanation nothing_else[] = {{HF_FOUND_FREE, NULL}};

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

static int find_kind(hf_client *client, const char *name, hf_found *ret_kind) {
    hf_lock *lock = NULL;
    hf_lock_info *info = NULL;
    int code = hf_lock_new(client, name, &lock);
    if (code == HF_OK)
        code = hf_lock_inspect(lock, &info);
    if (code == HF_OK)
        *ret_kind = info->kind;
    hf_lock_info_free(info);
    hf_lock_free(lock);
    return code;
}

static int break_lock(hf_client *client, hf_kind kind, const char *name, bool *ret_broken) {
    hf_lock *lock = NULL;
    hf_lock_options options = HF_LOCK_INIT;
    options.kind = kind;
    int code = hf_lock_new_with(client, name, strlen(name), &options, &lock);
    if (code == HF_OK)
        code = hf_lock_break(lock, ret_broken);
    hf_lock_free(lock);
    return code;
}

/* Their number is left alone if nobody has one of them. */
static int free_slots(hf_client *client, const char *name, bool *ret_broken) {
    hf_permits *permits = NULL;
    int64_t taken = 0;
    int code = hf_permits_new(client, name, &permits);
    if (code == HF_OK)
        code = hf_permits_taken(permits, &taken);
    if (code == HF_OK && taken > 0)
        code = hf_permits_delete(permits, ret_broken);
    hf_permits_free(permits);
    return code;
}

static int free_it(hf_client *client, const char *name, bool *ret_broken, bool *ret_number) {
    static const struct {
        hf_found found;
        hf_kind kind;
    } kinds[] = {{HF_FOUND_FAIR, HF_FAIR}, {HF_FOUND_READ, HF_READ}, {HF_FOUND_WRITE, HF_WRITE}};
    hf_found found;
    int code = find_kind(client, name, &found);
    if (code != HF_OK)
        return code;
    if (found == HF_FOUND_PERMITS)
        return free_slots(client, name, ret_broken);
    *ret_number = found == HF_FOUND_COUNTER;
    if (*ret_number)
        return HF_OK;
    hf_kind kind = HF_PLAIN; /* also for what is no lock, which is then refused */
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (found == kinds[i].found)
            kind = kinds[i].kind;
    }
    return break_lock(client, kind, name, ret_broken);
}

/* Nothing was freed. A number may be what is left of slots, but only somebody who knows can decide
 * that. */
static void tell_free(const char *name, bool number) {
    char shown[SHOWN_NAME_SIZE];
    shown_name(name, shown);
    if (number)
        say(LEVEL_NOTICE,
            "nobody holds a slot of '%s'; 'holdfast sem %s delete' forgets its number "
            "('holdfast latch %s delete' if it is a latch)",
            shown, shown, shown);
    else
        say(LEVEL_NOTICE, "nobody holds '%s'", shown);
}

static int unlock_it(struct connection *connection, hf_client *client, const char *name) {
    bool broken = false, number = false;
    int code = free_it(client, name, &broken, &number);
    if (code != HF_OK) {
        int status = library_error(code, hf_last_error(), "unlock", name);
        if (code == HF_EWRONGTYPE)
            explain_name(client, name, "lock of any kind", nothing_else);
        return status;
    }

    if (connection->json) {
        int status = print_json(json_pack("{s:o, s:b}", "name", json_text(name), "broken", broken));
        if (status != STATUS_OK)
            return status;
    } else if (!broken) {
        tell_free(name, number);
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
    status = unlock_it(connection, client, argv[first]);
    hf_close(client);
    return status;
}

const struct command command_unlock = {
    .name = "unlock",
    .summary = "free a lock, whoever holds it",
    .usage = "--force [--json] NAME\n"
             "Frees a lock whoever holds it, of any kind; slots all at once, and their number is\n"
             "forgotten. Those who held it are told that it is lost.\n\n"
             "      --force  yes, I mean it; without this nothing is done\n"
             "      --json   tell what was done as JSON\n"
             "\nExit status: 0 freed, 1 nobody held it, 65 what is there is no lock.\n",
    .run = run,
};
