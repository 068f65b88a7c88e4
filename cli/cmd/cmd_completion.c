/* holdfast completion [SUBCOMMAND [OPTION]]: the words that may come next, one per line, for shell
 * completion (completions/). Without a subcommand: the subcommands and the global options. With
 * one: its options. With an option that has a few fixed values: those values. A tab separates a
 * word from its description.
 *
 * Options are parsed from the help text, so there is only one list: an option missing in the help
 * is not offered. No connection is needed, except for --names, which lists the locks that are
 * currently held or waited for. */
#include "cli.h"

#include <ctype.h>
#include <string.h>

#define NAMES_MS 1000 /* a completion must not take long */

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

/* Other names would need quoting, or cannot be typed at all. */
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

/* Fails silently, never prompts for a password, and never starts a server. */
static int complete_names(struct connection *connection) {
    hf_client *client;
    hf_options options = HF_OPTIONS_INIT;
    hf_survey_options survey = HF_SURVEY_OPTIONS_INIT;
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

/* The length of the option at `text`: --word, or a dash and a letter. 0: none. */
static size_t option_len(const char *text) {
    if (text[0] != '-')
        return 0;
    if (text[1] == '-' && islower((unsigned char)text[2]))
        return 2 + strspn(text + 2, "abcdefghijklmnopqrstuvwxyz-");
    bool letter = isalpha((unsigned char)text[1]) && strchr(" ,\n]", text[2]) != NULL;
    return letter ? 2 : 0;
}

/* A line that lists options begins with blanks and an option. */
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

/* ---- Values ---------------------------------------------------------------------------------- */

static const struct option_spec *find_option(const struct command *command, const char *word) {
    bool is_long = strncmp(word, "--", 2) == 0;
    const struct option_spec *spec = command->options;
    for (; spec != NULL && spec->kind != OPTION_END; spec++) {
        if (is_long
                ? spec->name != NULL && strcmp(spec->name, word + 2) == 0
                : word[0] == '-' && word[1] == spec->letter && word[1] != '\0' && word[2] == '\0')
            return spec;
    }
    return NULL;
}

/* STATUS_NO: not an option, or it takes no value. If nothing is printed, any value is allowed. */
static int print_values(const struct command *command, const char *word) {
    static const struct {
        const char *name, *values;
    } all[] = {{"on-lost", "kill\nsignal\nignore\n"},
               {"signal", "TERM\nINT\nHUP\nQUIT\nKILL\nUSR1\nUSR2\n"}};
    const struct option_spec *spec = find_option(command, word);
    if (spec == NULL || spec->kind != OPTION_VALUE)
        return STATUS_NO;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (spec->name != NULL && strcmp(spec->name, all[i].name) == 0)
            fputs(all[i].values, stdout);
    }
    return finish_output();
}

static int run(struct connection *connection, int argc, char **argv) {
    struct completion completion = {.connection = connection};
    int first = command_options(&command_completion, specs, argc, argv, take, &completion);
    if (first <= 0)
        return -first;
    if (completion.names)
        return complete_names(connection);
    if (argc - first > 2)
        return usage_error("completion",
                           "too many arguments: give a SUBCOMMAND and one OPTION of it");
    const struct command *command = argc > first ? command_find(argv[first]) : NULL;
    if (argc > first && command == NULL)
        return usage_error("completion", "unknown subcommand '%s'", argv[first]);
    if (command != NULL && argc - first == 2)
        return print_values(command, argv[first + 1]);
    if (command == NULL)
        print_words();
    else
        print_options(command->usage);
    return finish_output();
}

const struct command command_completion = {
    .name = "completion",
    .options = specs,
    .summary = "print completions for a shell",
    .usage =
        "[--names | SUBCOMMAND [OPTION]]\n"
        "Prints possible next words, for the bash, zsh and fish completions that are installed with\n"
        "the tool.\n\n"
        "      --names  the names of locks that are held or waited for\n",
    .run = run,
};
