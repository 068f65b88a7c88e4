/*
 * holdfast completion [SUBCOMMAND]: the words that may come next, one in a line, for the completion
 * of shells (completions/). Without a subcommand those are the subcommands and the options before
 * them; with one, its options. What is behind a tab tells about a word.
 *
 * The options are read out of the help text, so that there is one list: what is not in the help is
 * not offered. No connection is needed.
 */
#include "cli.h"

#include <ctype.h>
#include <string.h>

static const struct option_spec specs[] = {COMMON_OPTIONS, {OPTION_END, 0, 0, NULL, false}};

static int take(void *user, int id, char *value, const char *shown) {
    (void)value;
    (void)shown;
    common_option(user, id);
    return 0;
}

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
    int first = command_options(&command_completion, specs, argc, argv, take, connection);
    if (first <= 0)
        return -first;
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
        "[SUBCOMMAND]\n"
        "Prints the words that may come next, for the completion of bash, zsh and fish, which is\n"
        "installed with the tool.\n",
    .run = run,
};
