/*
 * holdfast run NAME [--] COMMAND: runs a command while the lock is held; what flock(1) is for
 * files.
 *
 * This file reads the options and starts the two processes of run.h. It forks before there is any
 * thread: the holder opens the library, the guard never does.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHORTEST_TTL_MS 1000 /* below this there is no time left for TERM, KILL and a renewal */

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_NONBLOCK, 'n', "nonblock", false},
    {OPTION_FLAG, ID_NONBLOCK, 0, "nb", true},
    {OPTION_VALUE, ID_WAIT, 'w', "wait", false},
    {OPTION_VALUE, ID_BUSY_STATUS, 'E', "conflict-exit-code", false},
    {OPTION_VALUE, ID_LEASE, 0, "lease", false},
    {OPTION_FLAG, ID_PRESERVE, 0, "preserve-status", false},
    {OPTION_VALUE, ID_ON_LOST, 0, "on-lost", false},
    {OPTION_VALUE, ID_HOLD_FOR, 0, "hold-for", false},
    {OPTION_VALUE, ID_READY_FD, 0, "ready-fd", true},
    RUN_COMMAND_OPTIONS,
    CHOICE_OPTIONS,
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

static int take_duration(const struct run_line *line, const char *value, const char *shown,
                         int64_t at_least_ms, int64_t *ret) {
    int64_t ms;
    if (!parse_duration(value, &ms))
        return usage_error(line->subcommand, "%s: '%s' is no duration", shown, value);
    if (ms < at_least_ms)
        return usage_error(line->subcommand, "%s: '%s' is too short, the least is %d ms", shown,
                           value, (int)at_least_ms);
    *ret = ms;
    return 0;
}

static int take_on_lost(const struct run_line *line, const char *value, const char *shown,
                        enum on_lost *ret) {
    static const char *const names[] = {"kill", "signal", "ignore"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, names[i]) == 0) {
            *ret = (enum on_lost)i;
            return 0;
        }
    }
    return usage_error(line->subcommand, "%s: '%s' is none of kill, signal and ignore", shown,
                       value);
}

static int take_ready_fd(const struct run_line *line, const char *value, const char *shown,
                         int *ret) {
    long fd;
    if (!parse_number(value, 1, 1000000, &fd) || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
        return usage_error(line->subcommand, "%s: '%s' is no open descriptor", shown, value);
    *ret = (int)fd;
    return 0;
}

static int take_env(const struct run_line *line, char *value, const char *shown, const char **ret) {
    if (*value == '\0' || strchr(value, '=') != NULL)
        return usage_error(line->subcommand, "%s: '%s' is no prefix of a variable", shown, value);
    *ret = value;
    return 0;
}

static int take_value(struct run_line *line, int id, char *value, const char *shown) {
    struct run_options *options = &line->options;
    long number;
    switch (id) {
    case ID_WAIT:
        return take_duration(line, value, shown, 0, &options->wait_ms);
    case ID_LEASE:
        return take_duration(line, value, shown, SHORTEST_TTL_MS, &options->lease_ms);
    case ID_TTL:
        return take_duration(line, value, shown, SHORTEST_TTL_MS, &options->ttl_ms);
    case ID_TIMEOUT:
        return take_duration(line, value, shown, 0, &options->timeout_ms);
    case ID_KILL_AFTER:
        return take_duration(line, value, shown, 0, &options->kill_after_ms);
    case ID_HOLD_FOR:
        return take_duration(line, value, shown, 0, &options->hold_for_ms);
    case ID_BUSY_STATUS:
        if (!parse_number(value, 0, 255, &number))
            return usage_error(line->subcommand, "%s: '%s' is no exit status", shown, value);
        options->busy_status = (int)number;
        return 0;
    case ID_SIGNAL:
        if (!parse_signal(value, &options->signal))
            return usage_error(line->subcommand, "%s: '%s' is no signal", shown, value);
        return 0;
    case ID_ON_LOST:
        return take_on_lost(line, value, shown, &options->on_lost);
    case ID_ENV:
        return take_env(line, value, shown, &options->env_prefix);
    case ID_READY_FD:
        return take_ready_fd(line, value, shown, &options->ready_fd);
    default:
        options->shell_command = value;
        return 0;
    }
}

int run_take(void *user, int id, char *value, const char *shown) {
    struct run_line *line = user;
    struct run_options *options = &line->options;
    int status;
    if (choice_option(&line->choice, line->subcommand, id, value, shown, &status))
        return status;
    if (value != NULL)
        return take_value(line, id, value, shown);
    if (id == ID_NONBLOCK)
        options->wait_ms = 0;
    else if (id == ID_FOREGROUND)
        options->foreground = true;
    else if (id == ID_PRESERVE)
        options->preserve_status = true;
    else if (id == ID_NO_STDIN)
        options->no_stdin = true;
    else if (id == ID_CLOSE_FDS)
        options->close_fds = true;
    else if (id == ID_ONLY_COMMAND)
        options->only_command = true;
    else
        common_option(line->connection, id);
    return 0;
}

static bool ends_names(const char *word) {
    return strcmp(word, "--") == 0 || strcmp(word, "-c") == 0 || strcmp(word, "--command") == 0;
}

/* How many words are NAMEs: one, or with -m all up to what must follow them; or minus an exit status. */
static int take_names(struct run_line *line, int argc, char **argv) {
    struct run_options *options = &line->options;
    if (argc < 1 || argv[0][0] == '\0')
        return -usage_error(line->subcommand, "a NAME is needed");
    options->name = argv[0];
    if (!line->choice.several)
        return 1;
    int len = 0;
    while (len < argc && !ends_names(argv[len]))
        len++;
    if (len == argc && options->shell_command == NULL)
        return -usage_error(line->subcommand,
                            "-m takes every word up to '--' as a NAME: put '--' before the "
                            "COMMAND");
    if (len == 0)
        return -usage_error(line->subcommand, "a NAME is needed");
    int status = names_take(&options->names, line->subcommand, argv, (size_t)len);
    options->name = options->names.joined;
    return status == 0 ? len : -status;
}

/* The command to run: the rest of the line, or a string for the shell. `NAME -c STRING` is flock's
 * way to write it. */
static int take_command(struct run_line *line, int argc, char **argv) {
    struct run_options *options = &line->options;
    if (argc > 0 && (strcmp(argv[0], "-c") == 0 || strcmp(argv[0], "--command") == 0)) {
        if (argc != 2 || options->shell_command != NULL)
            return usage_error(line->subcommand, "-c takes one string, and there can be only one");
        options->shell_command = argv[1];
        argc = 0;
    } else if (argc > 0 && strcmp(argv[0], "--") == 0) {
        argc--;
        argv++;
    } else if (argc > 0 && argv[0][0] == '-') {
        return usage_error(line->subcommand,
                           "options go before the NAME; a command that begins with '-' "
                           "goes after '--'");
    }

    if (options->shell_command == NULL) {
        options->argv = argv;
        return argc > 0 ? 0 : usage_error(line->subcommand, "a COMMAND is needed");
    }
    if (argc > 0)
        return usage_error(line->subcommand, "give a COMMAND or -c, not both");
    const char *shell = getenv("SHELL");
    char **words = line->shell;
    words[0] = strdup(shell != NULL && *shell != '\0' ? shell : _PATH_BSHELL);
    words[1] = strdup("-c");
    words[2] = strdup(options->shell_command);
    words[3] = NULL;
    options->argv = words;
    return words[0] != NULL && words[1] != NULL && words[2] != NULL ? 0 : STATUS_OS;
}

/* Whether we are part of a pipeline in the foreground. Its other members are in our process group
 * and want the terminal too (`holdfast run ... | less`), so the command must stay in that group
 * with them. */
static bool in_pipeline(const struct terminal *terminal) {
    if (!terminal_is_ours(terminal))
        return false;
    for (int fd = STDIN_FILENO; fd <= STDOUT_FILENO; fd++) {
        struct stat status;
        if (fstat(fd, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)))
            return true;
    }
    return false;
}

static int run_pair(struct run *run) {
    int sockets[2];
    terminal_open(&run->terminal);
    run->own_group = !run->options->foreground && !in_pipeline(&run->terminal);
    int status = pair_prepare(run, sockets);
    if (status != 0)
        return status;
    if (run->options->only_command) {
        run->filter.command = &run->shared->command;
        run->filter.group = &run->shared->group;
    }

    pid_t holder = fork();
    if (holder < 0) {
        say(LEVEL_ERROR, "cannot fork: %s", strerror(errno));
        return STATUS_OS;
    }
    if (holder == 0) {
        close(sockets[0]);
        holder_run(run, sockets[1]);
        exit(0);
    }
    close(sockets[1]);
    if (run->options->ready_fd >= 0)
        close(run->options->ready_fd);
    return guard_run(run, sockets[0], holder);
}

/* ---- The line, and the command --------------------------------------------------------------- */

void run_line_init(struct run_line *line, const char *subcommand, struct connection *connection) {
    *line = (struct run_line){.subcommand = subcommand,
                              .connection = connection,
                              .options = {.wait_ms = HF_FOREVER,
                                          .ttl_ms = 30000,
                                          .kill_after_ms = 5000,
                                          .busy_status = STATUS_BUSY,
                                          .signal = SIGTERM,
                                          .env_prefix = "HOLDFAST_",
                                          .ready_fd = -1}};
}

void run_line_free(struct run_line *line) {
    for (int i = 0; i < 3; i++)
        free(line->shell[i]);
    names_free(&line->options.names);
}

int run_line_finish(struct run_line *line, int argc, char **argv) {
    int status = choice_settle(&line->choice, line->subcommand);
    if (status != 0)
        return status;
    line->options.kind = line->choice.kind;
    line->options.slots = line->choice.slots;
    int names = take_names(line, argc, argv);
    if (names < 0)
        return -names;
    status = take_command(line, argc - names, argv + names);
    if (status == 0)
        status = connection_resolve(line->connection);
    if (status == 0)
        status = choice_check_servers(&line->choice, line->connection, line->subcommand);
    return status;
}

int run_line_run(const struct run_line *line) {
    struct run run = {.options = &line->options, .connection = line->connection};
    tree_filter_setup(&run.filter, line->connection->target);
    int status = run_pair(&run);
    tree_filter_free(&run.filter);
    return status;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct run_line line;
    run_line_init(&line, "run", connection);
    int first = command_options(&command_run, specs, argc, argv, run_take, &line);
    int status = first > 0 ? run_line_finish(&line, argc - first, argv + first) : -first;
    if (first > 0 && status == 0)
        status = run_line_run(&line);
    run_line_free(&line);
    return status;
}

const struct command command_run = {
    .name = "run",
    .summary = "run a command while holding a lock",
    .usage =
        "[OPTIONS] NAME [--] COMMAND [ARGUMENTS]\n"
        "       holdfast [CONNECTION OPTIONS] run [OPTIONS] NAME -c STRING\n"
        "       holdfast [CONNECTION OPTIONS] run [OPTIONS] -m NAME... -- COMMAND [ARGUMENTS]\n"
        "Runs COMMAND while the lock NAME is held, and exits with its status.\n\n"
        "Which lock:\n"
        "  -x, -e, --exclusive         alone, which is the default\n"
        "  -s, --shared                together with others that say so, and with no writer\n"
        "  -W, --write                 the other side of -s: alone\n"
        "      --fair                  first come, first served\n"
        "      --fenced                with a token that grows, in HOLDFAST_TOKEN\n"
        "      --spin                  wait by trying again and again: for very short commands\n"
        "  -N, --slots N               one of N slots: at most N commands at once\n"
        "  -m, --multi                 several: every word up to -- (or -c) is a NAME; all or none\n"
        "Getting it:\n"
        "  -n, --nonblock, --nb        do not wait for the lock\n"
        "  -w, --wait DUR              wait no longer than this; 0 is -n (default: for ever)\n"
        "  -E, --conflict-exit-code N  exit with this when the lock was not free (75)\n"
        "      --ttl DUR               lease, renewed for as long as the command runs (30s)\n"
        "      --lease DUR             fixed lease, not renewed: the command ends before it does\n"
        "      --hold-for DUR          keep the lock for at least this long\n"
        "Running the command:\n"
        "  -c, --command STRING        run STRING with the shell\n"
        "  -t, --timeout DUR           end the command after this time, exit with 124\n"
        "                              (to wait no longer than that, as flock does: --wait)\n"
        "      --signal SIGNAL         with this signal (TERM)\n"
        "  -k, --kill-after DUR        and with KILL if it still runs after this (5s; 0: never)\n"
        "      --on-lost WHAT          when the lock is lost: kill, signal (TERM only) or ignore\n"
        "      --preserve-status       exit with the command's status also when the lock was lost\n"
        "      --only-command          do not wait for, nor kill, daemons that the command leaves\n"
        "      --foreground            no process group of its own for the command\n"
        "      --no-stdin              standard input from /dev/null\n"
        "      --close-fds             close descriptors above 2\n"
        "      --env PREFIX            of the variables for the command (HOLDFAST_)\n"
        "      --ready-fd N            write a newline to descriptor N when the lock is held\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nExit status: the command's; 128+n signal n; 75 not acquired; 79 lock lost; 124 timed out;\n"
        "126 not executable; 127 not found; 64 usage; 65 no lock; 69 unreachable; 77 denied.\n",
    .run = run,
};
