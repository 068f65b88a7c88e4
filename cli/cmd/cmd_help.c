/*
 * holdfast help [SUBCOMMAND]: the same text as --help, on stdout. No connection is needed.
 */
#include "cli.h"

#include <string.h>

static int run(struct connection *connection, int argc, char **argv) {
    (void)connection;
    const struct command *command = NULL;
    if (argc > 2)
        return usage_error("help", "too many arguments: give one subcommand");
    if (argc == 2) {
        command = strcmp(argv[1], "--help") == 0 ? &command_help : command_find(argv[1]);
        if (command == NULL)
            return no_subcommand(argv[1]);
    }
    print_help(command);
    return finish_output();
}

const struct command command_help = {
    .name = "help",
    .summary = "show the help of the tool or of a subcommand",
    .usage = "[SUBCOMMAND]\n"
             "Shows the help of the tool, or of one subcommand.\n",
    .run = run,
};
