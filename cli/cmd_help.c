/*
 * holdfast help [SUBCOMMAND]: the same text as --help, on stdout. No connection is needed.
 */
#include "cli.h"

#include <stdio.h>

static int run(struct connection *connection, int argc, char **argv) {
    (void)connection;
    const struct command *command = NULL;
    if (argc > 2)
        return usage_error("help", "one subcommand at a time");
    if (argc == 2) {
        command = command_find(argv[1]);
        if (command == NULL)
            return usage_error(NULL, "'%s' is no subcommand", argv[1]);
    }
    print_help(command);
    return fflush(stdout) == 0 ? STATUS_OK : STATUS_OS;
}

const struct command command_help = {
    .name = "help",
    .summary = "tell about the tool or a subcommand",
    .usage = "[SUBCOMMAND]\n"
             "Tells about the tool, or about one subcommand.\n",
    .run = run,
};
