/*
 * holdfast: the tool. Reads the options before the subcommand, finds the subcommand and runs it.
 *
 * Each subcommand is a file cmd_<name>.c with one const table entry; this file and cmd_help.c are
 * the only ones that know them all. Nothing here has state beyond main()'s.
 */
#include "cli.h"

#include <stdio.h>
#include <string.h>

static const struct command *const commands[] = {
    &command_run,     &command_elect,      &command_hold,    &command_acquire, &command_extend,
    &command_release, &command_unlock,     &command_show,    &command_ls,      &command_watch,
    &command_top,     &command_doctor,     &command_bench,   &command_serve,   &command_sem,
    &command_latch,   &command_completion, &command_version, &command_help};

const struct command *command_find(const char *name) {
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    }
    return NULL;
}

const struct command *command_at(size_t index) {
    return index < sizeof commands / sizeof commands[0] ? commands[index] : NULL;
}

static void print_overview(void) {
    printf("Usage: holdfast [CONNECTION OPTIONS] SUBCOMMAND [OPTIONS] ARGUMENTS\n"
           "Locks that many processes on many machines share through Redis or Valkey.\n\n"
           "Subcommands:\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf(
        "\nConnection options (each long one also as HOLDFAST_<NAME> in the environment):\n"
        "  -u, --url URL              redis://[user:password@]host[:port][/db], valkey://, unix://, local:;\n"
        "                             rediss:// and valkeys:// with TLS; three or more -u: a quorum;\n"
        "                             redis-sentinel://host[:port],.../NAME[/db];\n"
        "                             redis-cluster://host[:port],...;\n"
        "                             zk://[user:password@]host[:port],...[/chroot], with TLS zks://\n"
        "  -h, --host HOST            host name (127.0.0.1)\n"
        "  -p, --port PORT            port (6379)\n"
        "  -s, --socket PATH          Unix socket instead of host and port\n"
        "  -n, --db NUMBER            database\n"
        "      --user NAME            user name\n"
        "  -a, --password PASSWORD    password; better in a file or in the environment\n"
        "      --password-file FILE   password in the first line of a file\n"
        "      --sentinel NAME        -h and -p (26379) are sentinels, who know the primary by this name\n"
        "      --sentinel-password-file FILE  the sentinels' password\n"
        "      --cluster              -h and -p are nodes of a cluster, who know the others\n"
        "      --acks N|all|report|off  so many replicas must confirm a lock, and its renewals (off)\n"
        "      --ack-timeout DUR      how long they have for that (1s)\n"
        "      --askpass              ask for the password on the terminal\n"
        "      --tls                  TLS; the server's certificate and name are verified\n"
        "      --cacert FILE          CAs to trust instead of the system's (PEM)\n"
        "      --cacertdir DIR        the same in a directory\n"
        "      --cert FILE, --key FILE  our own certificate and its key\n"
        "      --sni NAME             the server's name, if it is not the host\n"
        "      --insecure             do not verify: anybody may pose as the server\n"
        "      --no-local             an error, not local:, when no server is configured\n"
        "  -t, --connect-timeout DUR  give up when no server has answered for this long (10s)\n"
        "  -q, --quiet                errors only\n"
        "  -v, --verbose              say what is going on; twice: everything\n"
        "      --json                 output, and messages on stderr, as JSON\n"
        "      --help, --version\n\n"
        "With nothing configured, REDIS_URL is used, else local:, a private server on this machine.\n"
        "Durations are numbers with ms, s, m, h or d; without a unit they are seconds.\n"
        "'holdfast help SUBCOMMAND' tells about one of them; holdfast(1) has it all.\n");
}

void print_help(const struct command *command) {
    if (command == NULL)
        print_overview();
    else
        printf("Usage: holdfast [CONNECTION OPTIONS] %s %s", command->name, command->usage);
}

struct option_taker {
    option_fn take;
    void *user;
    bool help;
    bool version;
};

static int take_or_help(void *user, int id, char *value, const char *shown) {
    struct option_taker *taker = user;
    if (id == OPTION_ID_HELP)
        taker->help = true;
    else if (id == OPTION_ID_VERSION)
        taker->version = true;
    else
        return taker->take(taker->user, id, value, shown);
    return 0;
}

int command_options(const struct command *command, const struct option_spec *specs, int argc,
                    char **argv, option_fn take, void *user) {
    struct option_taker taker = {.take = take, .user = user};
    int status = options_environment(specs, command->name, take, user);
    if (status != 0)
        return -status;
    int index = options_parse(specs, command->name, argc, argv, take_or_help, &taker);
    if (index > 0 && taker.help) {
        print_help(command);
        return 0;
    }
    return index;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct option_taker taker = {.take = connection_option, .user = connection};
    int status = options_environment(connection_options, NULL, connection_option, connection);
    if (status != 0)
        return status;
    connection->from_flags = true;
    int index = options_parse(connection_options, NULL, argc, argv, take_or_help, &taker);
    if (index < 0)
        return -index;
    message_setup(connection->quiet ? -1 : connection->verbosity, connection->json);

    if (taker.help) {
        print_help(NULL);
        return fflush(stdout) == 0 ? STATUS_OK : STATUS_OS;
    }
    if (taker.version)
        return command_version.run(connection, 1, argv);
    if (index >= argc)
        return usage_error(NULL, "no subcommand");
    const struct command *command = command_find(argv[index]);
    if (command == NULL)
        return usage_error(NULL, "'%s' is no subcommand", argv[index]);
    return command->run(connection, argc - index, argv + index);
}

int main(int argc, char **argv) {
    struct connection connection = {0};
    int status = run(&connection, argc, argv);
    warning_finish(NULL);
    connection_free(&connection);
    return status;
}
