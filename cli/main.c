/*
 * holdfast: the tool. Reads the options before the subcommand, finds the subcommand and runs it.
 *
 * Each subcommand is a file cmd_<name>.c with one const table entry; this file and cmd_help.c are
 * the only ones that know them all. Nothing here has state beyond main()'s.
 */
#include "cli.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command *const commands[] = {
    &command_run,     &command_elect,  &command_hold,       &command_acquire, &command_extend,
    &command_release, &command_unlock, &command_show,       &command_ls,      &command_watch,
    &command_top,     &command_doctor, &command_bench,      &command_serve,   &command_log,
    &command_sem,     &command_latch,  &command_completion, &command_version, &command_help};

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
           "Distributed locks over Redis, Valkey or ZooKeeper.\n\n"
           "Subcommands:\n");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
    printf(
        "\nConnection options (each long one also as HOLDFAST_<NAME> in the environment):\n"
        "  -u, --url URL              redis://[user:password@]host[:port][/db], valkey://, unix://, local:;\n"
        "                             rediss:// and valkeys:// with TLS; three or more -u: a quorum;\n"
        "                             redis-sentinel://host[:port],.../NAME[/db];\n"
        "                             redis-cluster://host[:port],...[/db];\n"
        "                             zk://[user:password@]host[:port],...[/chroot], with TLS zks://\n"
        "  -h, --host HOST            host name (127.0.0.1)\n"
        "  -p, --port PORT            port (6379)\n"
        "  -s, --socket PATH          Unix socket instead of host and port\n"
        "  -n, --db NUMBER            database\n"
        "      --user NAME            user name\n"
        "  -a, --password PASSWORD    password; better in a file or in the environment\n"
        "      --password-file FILE   password in the first line of a file\n"
        "      --sentinel NAME        -h and -p (26379) are sentinels; the primary's name\n"
        "      --sentinel-password-file FILE  the sentinels' password\n"
        "      --sentinel-confirm     a renewal counts only if most sentinels confirm the primary\n"
        "      --cluster              -h and -p are nodes of a cluster\n"
        "      --acks N|all|report|off  how many replicas must confirm a lock and its renewals (off)\n"
        "      --ack-timeout DUR      time limit for that (1s)\n"
        "      --askpass              ask for the password on the terminal\n"
        "      --tls                  TLS; the server's certificate and name are verified\n"
        "      --cacert FILE          CAs to trust instead of the system's (PEM)\n"
        "      --cacertdir DIR        the same in a directory\n"
        "      --cert FILE, --key FILE  client certificate and its key\n"
        "      --sni NAME             the server's name, if not the host\n"
        "      --insecure             do not verify: anyone may pose as the server\n"
        "      --require-url          fail if no server is configured, instead of using local:\n"
        "  -t, --connect-timeout DUR  give up if no server answers for this long (10s)\n"
        "  -q, --quiet                errors only\n"
        "  -v, --verbose              more messages; twice: all of them\n"
        "      --json                 output, and messages on stderr, as JSON\n"
        "      --help, --version\n\n"
        "Without these, REDIS_URL is used, else local:, a private server of this user.\n"
        "Durations are numbers with ms, s, m, h or d; the default is seconds.\n"
        "See also 'holdfast help SUBCOMMAND' and holdfast(1).\n");
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
    int status = environment_options(specs, command->name, take, user);
    if (status != 0)
        return -status;
    int index = options_parse(specs, command->name, argc, argv, take_or_help, &taker);
    if (index > 0 && taker.help) {
        print_help(command);
        return -finish_output();
    }
    return index;
}

/* The password has been read; unset it, so that no child inherits it. */
static void forget_secrets(void) {
    unsetenv("HOLDFAST_PASSWORD");
    unsetenv("HOLDFAST_PASS");
}

/* If a standard stream is closed, /dev/null takes its number, opened so that I/O on it still fails.
 * Otherwise a socket of ours could get our messages, or a signalfd be read as input. */
static void take_standard_descriptors(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        int mode = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", mode | O_CLOEXEC) < 0)
            return; /* There is no /dev/null here. */
    }
}

static int run(struct connection *connection, int argc, char **argv) {
    struct option_taker taker = {.take = connection_option, .user = connection};
    int status = environment_options(connection_options, NULL, connection_option, connection);
    if (status != 0)
        return status;
    forget_secrets();
    connection->from_flags = true;
    int index = options_parse(connection_options, NULL, argc, argv, take_or_help, &taker);
    if (index < 0)
        return -index;

    if (taker.help) {
        print_help(NULL);
        return finish_output();
    }
    if (taker.version)
        return command_version.run(connection, 1, argv);
    if (index >= argc)
        return usage_error(NULL, "a SUBCOMMAND is needed, such as run or ls");
    const struct command *command = command_find(argv[index]);
    if (command == NULL)
        return no_subcommand(argv[index]);
    return command->run(connection, argc - index, argv + index);
}

int main(int argc, char **argv) {
    struct connection connection = {0};
    take_standard_descriptors();
    int status = run(&connection, argc, argv);
    warning_finish(NULL);
    connection_free(&connection);
    return status;
}
