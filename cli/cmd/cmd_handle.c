/* holdfast extend NAME HANDLE DUR, holdfast release NAME HANDLE: use the handle that `acquire`
 * printed, from any process.
 *
 * A lock's handle is adopted, then extended or released. A slot's handle is the permit's id, which
 * any client may use. If the hold no longer exists, it was lost: exit status 79, as everywhere.
 *
 * Other libraries store one token at all servers of a quorum (--string): each server is asked, one
 * after the other, and a majority decides. Our own holds have a token of each server's own. */
#include "hold/held.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_HANDLE_LEN 32
#define BRIEFLY_MS 10000 /* lease while it is adopted for release: longer than that takes */

static const struct option_spec specs[] = {
    CHOICE_OPTIONS,
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct handle {
    struct connection *connection;
    const struct command *command;
    struct choice choice;
    const char *name, *text;
    int64_t lease_ms; /* for extend */
};

int handle_check_servers(const struct connection *connection, const char *subcommand) {
    if (url_is_zk(connection->target))
        return usage_error(subcommand,
                           "ZooKeeper has no handles: a lock ends with its holder's session");
    return connection_refuse_several(connection, subcommand, "a handle");
}

static int take(void *user, int id, char *value, const char *shown) {
    struct handle *handle = user;
    int status;
    if (choice_option(&handle->choice, handle->command->name, id, value, shown, &status))
        return status;
    common_option(handle->connection, id);
    return 0;
}

static bool is_slot(const struct handle *handle) {
    return handle->choice.kind->lock != HF_STRING && strlen(handle->text) == SLOT_HANDLE_LEN &&
           strchr(handle->text, ':') == NULL;
}

/* ---- Operations ------------------------------------------------------------------------------ */

/* Releases the hold completely, whatever its reentrancy count. */
static int release_lock(const struct handle *handle, hf_lock *lock) {
    hf_result result = HF_RESULT_INIT;
    int code = hf_lock_adopt(lock, handle->text, BRIEFLY_MS, &result);
    for (int64_t left = result.count; code == HF_OK && left > 0; left--)
        code = hf_lock_release_as(lock, result.owner);
    return code;
}

static int do_lock(const struct handle *handle, hf_client *client) {
    hf_lock *lock = NULL;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = handle->choice.kind->lock;
    options.flags = handle->choice.kind->flags;
    int code = hf_lock_new_with(client, handle->name, strlen(handle->name), &options, &lock);
    if (code == HF_OK && handle->lease_ms > 0)
        code = hf_lock_adopt(lock, handle->text, handle->lease_ms, NULL);
    else if (code == HF_OK)
        code = release_lock(handle, lock);
    hf_lock_free(lock);
    return code;
}

/* The library sets a permit's lease to any value; here, as with locks, it is never shortened. */
static int extend_slot(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms) {
    int64_t left_ms;
    int code = hf_permits_ttl_ms(permits, id, &left_ms);
    if (code == HF_OK && left_ms >= 0 && left_ms < lease_ms)
        code = hf_permits_extend(permits, id, lease_ms);
    return code;
}

static int do_slot(const struct handle *handle, hf_client *client) {
    hf_permits *permits = NULL;
    hf_permit_id id;
    snprintf(id.text, sizeof id.text, "%s", handle->text);
    int code = hf_permits_new(client, handle->name, &permits);
    if (code == HF_OK && handle->lease_ms > 0)
        code = extend_slot(permits, &id, handle->lease_ms);
    else if (code == HF_OK)
        code = hf_permits_release(permits, &id);
    hf_permits_free(permits);
    return code;
}

/* ---- Printing -------------------------------------------------------------------------------- */

static int report_lost(const struct handle *handle) {
    char shown[SHOWN_NAME_SIZE];
    if (handle->connection->json)
        print_json(json_pack("{s:o, s:b}", "name", json_text(handle->name), "lost", true));
    say_of(LEVEL_ERROR, &(struct subject){.code = HF_ELOST, .lock = handle->name},
           "'%s': the lock was lost: nobody holds it by this handle any more",
           shown_name(handle->name, shown));
    return STATUS_LOST;
}

static int print_result(const struct handle *handle, hf_client *client, int code) {
    if (code == HF_OK && handle->connection->json)
        return print_json(json_pack("{s:o, s:b}", "name", json_text(handle->name), "lost", false));
    if (code == HF_OK)
        return STATUS_OK;
    if (code == HF_ENOTOWNER || code == HF_ELOST)
        return report_lost(handle);
    if (code == HF_EINVAL)
        return usage_error(handle->command->name, "%s", hf_last_error()->text);
    int status = library_error(code, hf_last_error(), handle->command->name, handle->name);
    if (code == HF_EWRONGTYPE)
        held_explain(client, handle->name);
    return status;
}

/* ---- A quorum of another library ------------------------------------------------------------- */

static bool is_of_several(const struct handle *handle) {
    return handle->choice.kind->lock == HF_STRING && connection_has_several(handle->connection);
}

/* HF_OK or HF_ELOST; else *ret_status is the exit status of an error that was printed. */
static int use_one(const struct handle *handle, struct connection *one, int *ret_status) {
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    *ret_status = connection_open(one, &options, &client);
    if (*ret_status != 0)
        return HF_EUNREACH;
    int code = do_lock(handle, client);
    if (code == HF_ENOTOWNER || code == HF_ELOST)
        code = HF_ELOST;
    else if (code != HF_OK)
        *ret_status = library_error(code, hf_last_error(), handle->command->name, handle->name);
    hf_close(client);
    return code;
}

/* At every server, also if the majority is clear: what is left at a minority is in the way. */
static int use_each(const struct handle *handle) {
    const char *list = handle->connection->target;
    struct connection one = *handle->connection;
    int servers = 0, done = 0, lost = 0, failure = STATUS_OK;
    for (; connection_next_server(&list, &one); servers++) {
        int status;
        int code = use_one(handle, &one, &status);
        explicit_bzero(one.target, strlen(one.target)); /* the url may contain a password */
        free(one.target);
        if (status == STATUS_USAGE)
            return status;
        done += code == HF_OK;
        lost += code == HF_ELOST;
        failure = status != STATUS_OK ? status : failure;
    }
    if (done > servers / 2)
        return print_result(handle, NULL, HF_OK);
    return failure != STATUS_OK && lost <= servers / 2 ? failure : report_lost(handle);
}

/* ---- The two subcommands --------------------------------------------------------------------- */

static int use(struct handle *handle) {
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    message_lock(handle->name);
    int status = connection_resolve(handle->connection);
    if (status == 0 && is_of_several(handle))
        return use_each(handle);
    if (status == 0)
        status = handle_check_servers(handle->connection, handle->command->name);
    if (status == 0)
        status = connection_open(handle->connection, &options, &client);
    if (status != 0)
        return status;
    int code = is_slot(handle) ? do_slot(handle, client) : do_lock(handle, client);
    status = print_result(handle, client, code);
    hf_close(client);
    return status;
}

/* Parses options and `words` operands. Returns the index of the first operand, or minus an exit
 * status. */
static int read_words(struct handle *handle, int words, const char *what, int argc, char **argv) {
    int first = command_options(handle->command, specs, argc, argv, take, handle);
    if (first <= 0)
        return first;
    const char *subcommand = handle->command->name;
    if (argc - first != words || argv[first][0] == '\0')
        return -usage_error(subcommand, "%s are needed, after the options", what);
    handle->name = argv[first];
    handle->text = argv[first + 1];
    int status = choice_settle(&handle->choice, subcommand);
    if (status == 0 && handle->choice.several)
        status = usage_error(subcommand, "-m cannot be used here: a handle belongs to one lock");
    return status == 0 ? first : -status;
}

static int run_extend(struct connection *connection, int argc, char **argv) {
    struct handle handle = {.connection = connection, .command = &command_extend};
    int first = read_words(&handle, 3, "NAME, HANDLE and a duration", argc, argv);
    if (first <= 0)
        return -first;
    if (!parse_duration(argv[first + 2], &handle.lease_ms) || handle.lease_ms == 0)
        return usage_error("extend", "'%s' is not a duration", argv[first + 2]);
    return use(&handle);
}

static int run_release(struct connection *connection, int argc, char **argv) {
    struct handle handle = {.connection = connection, .command = &command_release};
    int first = read_words(&handle, 2, "NAME and HANDLE", argc, argv);
    return first <= 0 ? -first : use(&handle);
}

#define KINDS                                                                                      \
    "  -x, -e, --exclusive, -s, --shared, -W, --write, --fair, --fenced, --spin, -N, --slots\n"    \
    "  --string    as given to 'acquire'; not needed for the handle of a slot.\n"                  \
    "              With --string the handle may be any token, including another library's;\n"      \
    "              this also works on a quorum.\n"                                                 \
    "  -q, --quiet   -v, --verbose   --json\n"

const struct command command_extend = {
    .name = "extend",
    .options = specs,
    .summary = "extend a lock that 'acquire' holds",
    .usage =
        "[OPTIONS] NAME HANDLE DUR\n"
        "Makes a lock that 'acquire' holds last at least DUR from now; never shortens it.\n\n" KINDS
        "\nExit status: 0; 79 the lock was lost before.\n",
    .run = run_extend,
};

const struct command command_release = {
    .name = "release",
    .options = specs,
    .summary = "release a lock that 'acquire' holds",
    .usage = "[OPTIONS] NAME HANDLE\n"
             "Releases a lock that 'acquire' holds, fully.\n\n" KINDS
             "\nExit status: 0; 79 the lock was lost before: what it protects may be damaged.\n",
    .run = run_release,
};
