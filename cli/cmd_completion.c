/*
 * holdfast completion [SUBCOMMAND]: the words that may come next, one in a line, for the completion
 * of shells (completions/). Without a subcommand those are the subcommands and the options before
 * them; with one, its options. What is behind a tab tells about a word.
 *
 * The options are read out of the help text, so that there is one list: what is not in the help is
 * not offered. No connection is needed, but for --names: these are of the locks that are held or
 * waited for just now.
 */
#include "cli.h"

#include <ctype.h>
#include <string.h>

#define NAMES_MS 1000 /* whoever waits for a completion does not wait for long */

enum { ID_NAMES = 1 };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_NAMES, 0, "names", true},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct completion {
    struct connection *connection;
    bool names;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct completion *completion = user;
    (void)value;
    (void)shown;
    if (id == ID_NAMES)
        completion->names = true;
    else
        common_option(completion->connection, id);
    return 0;
}

/* ---- Names of locks -------------------------------------------------------------------------- */

/* Others would have to be quoted, and some cannot be typed at all. */
static bool is_plain(const char *name, size_t len) {
    return len > 0 && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                        "-_.:/@%+,=") == len;
}

static void print_names(const hf_fleet *fleet) {
    for (size_t i = 0; i < fleet->locks_len; i++)
        if (is_plain(fleet->locks[i]->name, fleet->locks[i]->name_len))
            printf("%s\n", fleet->locks[i]->name);
}

/* Nothing is said if it does not work out, no password asked for, and no server started. */
static int complete_names(struct connection *connection) {
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    hf_survey_options survey = HF_SURVEY_INIT;
    hf_fleet *fleet = NULL;
    connection->quiet = connection->no_local = true;
    connection->verbosity = 0;
    if (connection->askpass || connection_resolve(connection) != 0)
        return STATUS_NO;
    survey.wanted = HF_WANT_HOLDS | HF_WANT_WAITS;
    options.connect_timeout_ms = options.cmd_timeout_ms = survey.limit_ms = NAMES_MS;
    if (connection_open(connection, &options, &client) != 0)
        return STATUS_NO;
    int code = hf_survey(client, &survey, &fleet);
    if (code == HF_OK)
        print_names(fleet);
    hf_fleet_free(fleet);
    hf_close(client);
    return code == HF_OK ? STATUS_OK : STATUS_NO;
}

/* ---- Words ----------------------------------------------------------------------------------- */

/* The length of the option that begins here: --word, or a dash and a letter. 0: none does. */
static size_t option_len(const char *text) {
    if (text[0] != '-')
        return 0;
    if (text[1] == '-' && islower((unsigned char)text[2]))
        return 2 + strspn(text + 2, "abcdefghijklmnopqrstuvwxyz-");
    bool letter = isalpha((unsigned char)text[1]) && strchr(" ,\n]", text[2]) != NULL;
    return letter ? 2 : 0;
}

/* A line that lists options begins with blanks and the first of them. */
static void print_options(const char *help) {
    for (const char *line = help; *line != '\0';) {
        const char *at = line + strspn(line, " ");
        const char *end = strchr(line, '\n');
        while (at > line && option_len(at) > 0) {
            size_t len = option_len(at);
            printf("%.*s\n", (int)len, at);
            at += len;
            at += strspn(at, " ,");
        }
        line = end != NULL ? end + 1 : line + strlen(line);
    }
}

static void print_words(void) {
    const struct command *command;
    for (size_t i = 0; (command = command_at(i)) != NULL; i++)
        printf("%s\t%s\n", command->name, command->summary);
    for (const struct option_spec *spec = connection_options; spec->kind != OPTION_END; spec++) {
        if (spec->letter != 0)
            printf("-%c\n", spec->letter);
        if (spec->name != NULL)
            printf("--%s\n", spec->name);
    }
}

static int run(struct connection *connection, int argc, char **argv) {
    struct completion completion = {.connection = connection};
    int first = command_options(&command_completion, specs, argc, argv, take, &completion);
    if (first <= 0)
        return -first;
    if (completion.names)
        return complete_names(connection);
    if (argc - first > 1)
        return usage_error("completion", "one SUBCOMMAND at most");
    const struct command *command = argc > first ? command_find(argv[first]) : NULL;
    if (argc > first && command == NULL)
        return usage_error("completion", "'%s' is no subcommand", argv[first]);
    if (command == NULL)
        print_words();
    else
        print_options(command->usage);
    return fflush(stdout) == 0 ? STATUS_OK : STATUS_OS;
}

const struct command command_completion = {
    .name = "completion",
    .summary = "tell shells which words may come next",
    .usage =
        "[--names | SUBCOMMAND]\n"
        "Prints the words that may come next, for the completion of bash, zsh and fish, which is\n"
        "installed with the tool.\n\n"
        "      --names  the names of locks that are held or waited for\n",
    .run = run,
};
