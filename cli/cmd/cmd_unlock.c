/* holdfast unlock --force NAME: breaks a lock of any kind and any holder; slots all at once.
 *
 * It first asks the server for the kind, because kinds are broken differently: for a fair lock the
 * next waiter must be notified. If the kind changes between the two steps, nothing is broken.
 *
 * Without --force it can do nothing: a hold belongs to a client's uuid, and only the client's
 * process can release it. It says so and exits with 1, as for a lock that is not held, so that a
 * script notices its mistake. */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { ID_FORCE = 1, ID_STRING };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_FORCE, 0, "force", true},
    {OPTION_FLAG, ID_STRING, 0, "string", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

static const struct explanation nothing_else[] = {{HF_FOUND_FREE, NULL}};

struct unlock {
    struct connection *connection;
    bool force;
    bool string; /* any string is a lock */
};

static int take(void *user, int id, char *value, const char *shown) {
    (void)value;
    (void)shown;
    struct unlock *unlock = user;
    if (id == ID_FORCE)
        unlock->force = true;
    else if (id == ID_STRING)
        unlock->string = true;
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
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = kind;
    int code = hf_lock_new_with(client, name, strlen(name), &options, &lock);
    if (code == HF_OK)
        code = hf_lock_break(lock, ret_broken);
    hf_lock_free(lock);
    return code;
}

/* If no slot is taken, the number of slots is kept. */
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

static int free_it(hf_client *client, const char *name, bool string, bool *ret_broken,
                   bool *ret_number) {
    static const struct {
        hf_found found;
        hf_kind kind;
    } kinds[] = {{HF_FOUND_FAIR, HF_FAIR},
                 {HF_FOUND_READ, HF_READ},
                 {HF_FOUND_WRITE, HF_WRITE},
                 {HF_FOUND_STRING, HF_STRING}};
    hf_found found;
    if (string)
        return break_lock(client, HF_STRING, name, ret_broken);
    int code = find_kind(client, name, &found);
    if (code != HF_OK)
        return code;
    if (found == HF_FOUND_PERMITS)
        return free_slots(client, name, ret_broken);
    *ret_number = found == HF_FOUND_COUNTER;
    if (*ret_number)
        return HF_OK;
    hf_kind kind = HF_PLAIN; /* also for an object that is not a lock, which is then refused */
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (found == kinds[i].found)
            kind = kinds[i].kind;
    }
    return break_lock(client, kind, name, ret_broken);
}

/* Nothing was broken. A bare number may be left from slots; only the user can decide that. */
static void print_free(const char *name, bool number) {
    char shown[SHOWN_NAME_SIZE];
    const struct subject subject = {.lock = name};
    shown_name(name, shown);
    if (number)
        say_of(LEVEL_NOTICE, &subject,
               "nobody holds a slot of '%s'; 'holdfast sem %s delete' deletes its number "
               "('holdfast latch %s delete' if it is a latch)",
               shown, shown, shown);
    else
        say_of(LEVEL_NOTICE, &subject, "nobody holds '%s'", shown);
}

static int unlock_it(const struct unlock *unlock, hf_client *client, const char *name) {
    const struct connection *connection = unlock->connection;
    bool broken = false, number = false;
    int code = free_it(client, name, unlock->string, &broken, &number);
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
        print_free(name, number);
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
        char buffer[SHOWN_NAME_SIZE];
        say_of(LEVEL_ERROR, &(struct subject){.lock = argv[first]},
               "'%s': only its holder can release it: end that process, or break the lock with "
               "--force",
               shown_name(argv[first], buffer));
        return STATUS_NO;
    }

    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    message_lock(argv[first]);
    int status = connection_resolve(connection);
    if (status == 0)
        status = connection_open(connection, &options, &client);
    if (status != 0)
        return status;
    status = unlock_it(&unlock, client, argv[first]);
    hf_close(client);
    return status;
}

const struct command command_unlock = {
    .name = "unlock",
    .options = specs,
    .summary = "break a lock: end every hold on it",
    .usage =
        "--force [--string] [--json] NAME\n"
        "Ends every hold on a lock of any kind; of slots all at once, and deletes their number.\n"
        "The holders report a loss.\n\n"
        "      --force   required: without it nothing is done\n"
        "      --string  a string lock: delete any string of that name, also another library's\n"
        "      --json    print the result as JSON\n"
        "\nExit status: 0 broken; 1 nobody held it; 65 not a lock.\n",
    .run = run,
};
