/*
 * holdfast extend NAME HANDLE DUR, holdfast release NAME HANDLE: what is done with the handle that
 * `acquire` printed, by whoever has it.
 *
 * A handle of a lock is adopted for as long as this takes, and then extended or given back. The
 * handle of a slot is the permit's id, which anybody may use. A hold that is not there any more was
 * lost in between: that is 79, as everywhere.
 */
#include "held.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define SLOT_HANDLE_LEN 32
#define BRIEFLY_MS 10000 /* what is adopted to be released: longer than the release takes */

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
    int64_t lease_ms; /* extend */
};

int handle_check_servers(const struct connection *connection, const char *subcommand) {
    if (url_is_zk(connection->target))
        return usage_error(subcommand,
                           "handles are not offered on ZooKeeper, where a lock ends with "
                           "the session of its holder");
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
    return strlen(handle->text) == SLOT_HANDLE_LEN && strchr(handle->text, ':') == NULL;
}

/* ---- What is done ---------------------------------------------------------------------------- */

/* Gives back all of it, however often it was acquired. */
static int release_lock(const struct handle *handle, hf_lock *lock) {
    hf_result result = HF_RESULT_INIT;
    int code = hf_lock_adopt(lock, handle->text, BRIEFLY_MS, &result);
    for (int64_t left = result.count; code == HF_OK && left > 0; left--)
        code = hf_lock_release_as(lock, result.owner);
    return code;
}

static int do_lock(const struct handle *handle, hf_client *client) {
    hf_lock *lock = NULL;
    hf_lock_options options = HF_LOCK_INIT;
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

/* A lease of a permit is set; but here, as with locks, it is never made shorter. */
static int extend_slot(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms) {
    int64_t left_ms;
    int code = hf_permits_lease_ms(permits, id, &left_ms);
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

/* ---- What is said ---------------------------------------------------------------------------- */

static int tell_lost(const struct handle *handle) {
    char shown[SHOWN_NAME_SIZE];
    if (handle->connection->json)
        print_json(json_pack("{s:o, s:b}", "name", json_text(handle->name), "lost", true));
    say(LEVEL_ERROR, "'%s': the lock was lost before this: nobody holds it by this handle",
        shown_name(handle->name, shown));
    return STATUS_LOST;
}

static int tell(const struct handle *handle, hf_client *client, int code) {
    if (code == HF_OK && handle->connection->json)
        return print_json(json_pack("{s:o, s:b}", "name", json_text(handle->name), "lost", false));
    if (code == HF_OK)
        return STATUS_OK;
    if (code == HF_ENOTOWNER || code == HF_ELOST)
        return tell_lost(handle);
    if (code == HF_EINVAL)
        return usage_error(handle->command->name, "%s", hf_last_error()->text);
    int status = library_error(code, hf_last_error(), handle->command->name, handle->name);
    if (code == HF_EWRONGTYPE)
        held_explain(client, handle->name);
    return status;
}

/* ---- The two subcommands --------------------------------------------------------------------- */

static int use(struct handle *handle) {
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    int status = connection_resolve(handle->connection);
    if (status == 0)
        status = handle_check_servers(handle->connection, handle->command->name);
    if (status == 0)
        status = connection_open(handle->connection, &options, &client);
    if (status != 0)
        return status;
    int code = is_slot(handle) ? do_slot(handle, client) : do_lock(handle, client);
    status = tell(handle, client, code);
    hf_close(client);
    return status;
}

/* Returns the index of the first operand, of which there are `words`; or minus an exit status. */
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
        status = usage_error(subcommand, "-m is not offered: a handle is of one lock");
    return status == 0 ? first : -status;
}

static int run_extend(struct connection *connection, int argc, char **argv) {
    struct handle handle = {.connection = connection, .command = &command_extend};
    int first = read_words(&handle, 3, "NAME, HANDLE and a duration", argc, argv);
    if (first <= 0)
        return -first;
    if (!parse_duration(argv[first + 2], &handle.lease_ms) || handle.lease_ms == 0)
        return usage_error("extend", "'%s' is no duration", argv[first + 2]);
    return use(&handle);
}

static int run_release(struct connection *connection, int argc, char **argv) {
    struct handle handle = {.connection = connection, .command = &command_release};
    int first = read_words(&handle, 2, "NAME and HANDLE", argc, argv);
    return first <= 0 ? -first : use(&handle);
}

#define KINDS                                                                                      \
    "  -x, -e, --exclusive, -s, --shared, -W, --write, --fair, --fenced, --spin, -N, --slots\n"    \
    "              what 'acquire' was given; the handle of a slot needs nothing\n"                 \
    "  -q, --quiet   -v, --verbose   --json\n"

const struct command command_extend = {
    .name = "extend",
    .summary = "make what 'acquire' holds last longer",
    .usage =
        "[OPTIONS] NAME HANDLE DUR\n"
        "Makes what 'acquire' holds last for DUR from now at least; it never becomes shorter.\n\n" KINDS
        "\nExit status: 0; 79 it was lost meanwhile.\n",
    .run = run_extend,
};

const struct command command_release = {
    .name = "release",
    .summary = "give back what 'acquire' holds",
    .usage = "[OPTIONS] NAME HANDLE\n"
             "Gives back what 'acquire' holds, all of it.\n\n" KINDS
             "\nExit status: 0; 79 it was lost meanwhile: what it protects may be damaged.\n",
    .run = run_release,
};
