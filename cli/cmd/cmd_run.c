/* holdfast run NAME [--] COMMAND: runs a command while the lock is held, as flock(1) does with
 * files.
 *
 * This file parses the options and starts the two processes of run.h. It forks before any thread
 * exists: the holder opens the library, the guard never does. */
#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHORTEST_TTL_MS 1000 /* less leaves no time for TERM, KILL and a renewal */

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

static int take_duration(const struct run_args *args, const char *value, const char *shown,
                         int64_t at_least_ms, int64_t *ret) {
    int64_t ms;
    if (!parse_duration(value, &ms))
        return duration_error(args->subcommand, shown, value);
    if (ms < at_least_ms)
        return usage_error(args->subcommand, "%s: '%s' is too short: give at least %d ms", shown,
                           value, (int)at_least_ms);
    *ret = ms;
    return 0;
}

static int take_on_lost(const struct run_args *args, const char *value, const char *shown,
                        enum on_lost *ret) {
    static const char *const names[] = {"kill", "signal", "ignore"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, names[i]) == 0) {
            *ret = (enum on_lost)i;
            return 0;
        }
    }
    return usage_error(args->subcommand, "%s: '%s' is not one of kill, signal, ignore", shown,
                       value);
}

static int take_ready_fd(const struct run_args *args, const char *value, const char *shown,
                         int *ret) {
    long fd;
    if (!parse_number(value, 1, 1000000, &fd) || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
        return usage_error(args->subcommand, "%s: '%s' is not an open descriptor", shown, value);
    *ret = (int)fd;
    return 0;
}

static int take_env(const struct run_args *args, char *value, const char *shown, const char **ret) {
    if (*value == '\0' || strchr(value, '=') != NULL)
        return usage_error(args->subcommand, "%s: '%s' is not a prefix for variable names", shown,
                           value);
    *ret = value;
    return 0;
}

/* The lease: renewed by the watchdog, or fixed. */
static int take_lease(struct run_args *args, int id, const char *value, const char *shown) {
    int64_t ms = 0;
    bool none = id == ID_LEASE && parse_lease(value, &ms) && ms == HF_NO_LEASE;
    int status = none ? 0 : take_duration(args, value, shown, SHORTEST_TTL_MS, &ms);
    if (status == 0)
        status = either_take(&args->leasing, args->subcommand, id, shown, EXCLUSIVE_LEASES);
    if (status != 0)
        return status;
    args->options.lease_ms = id == ID_LEASE ? ms : 0;
    if (id == ID_TTL)
        args->options.ttl_ms = ms;
    return 0;
}

static int take_value(struct run_args *args, int id, char *value, const char *shown) {
    struct run_options *options = &args->options;
    long number;
    switch (id) {
    case ID_WAIT:
        return take_wait(&args->waiting, args->subcommand, value, shown, &options->wait_ms);
    case ID_LEASE:
    case ID_TTL:
        return take_lease(args, id, value, shown);
    case ID_LABEL:
        return take_label(args->subcommand, value, shown, &options->label);
    case ID_TIMEOUT:
        return take_duration(args, value, shown, 0, &options->timeout_ms);
    case ID_KILL_AFTER:
        return take_duration(args, value, shown, 0, &options->kill_after_ms);
    case ID_HOLD_FOR:
        return take_duration(args, value, shown, 0, &options->hold_for_ms);
    case ID_BUSY_STATUS:
        if (!parse_number(value, 0, 255, &number))
            return usage_error(args->subcommand, "%s: '%s' is not an exit status (0 to 255)", shown,
                               value);
        options->busy_status = (int)number;
        return 0;
    case ID_SIGNAL:
        if (!parse_signal(value, &options->signal))
            return usage_error(args->subcommand,
                               "%s: '%s' is not a signal: give a name such as TERM, or a number",
                               shown, value);
        return 0;
    case ID_ON_LOST:
        return take_on_lost(args, value, shown, &options->on_lost);
    case ID_ENV:
        return take_env(args, value, shown, &options->env_prefix);
    case ID_READY_FD:
        return take_ready_fd(args, value, shown, &options->ready_fd);
    default:
        options->shell_command = value;
        return 0;
    }
}

int run_take(void *user, int id, char *value, const char *shown) {
    struct run_args *args = user;
    struct run_options *options = &args->options;
    int status;
    if (choice_option(&args->choice, args->subcommand, id, value, shown, &status))
        return status;
    if (value != NULL)
        return take_value(args, id, value, shown);
    if (id == ID_NONBLOCK)
        return take_wait(&args->waiting, args->subcommand, NULL, shown, &options->wait_ms);
    if (id == ID_FOREGROUND)
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
        common_option(args->connection, id);
    return 0;
}

static bool ends_names(const char *word) {
    return strcmp(word, "--") == 0 || strcmp(word, "-c") == 0 || strcmp(word, "--command") == 0;
}

/* Takes one NAME, or with -m all words up to `--` or -c. Returns how many, or minus an exit
 * status. */
static int take_names(struct run_args *args, int argc, char **argv) {
    struct run_options *options = &args->options;
    if (argc < 1 || argv[0][0] == '\0')
        return -usage_error(args->subcommand, "a NAME is needed");
    options->name = argv[0];
    if (!args->choice.several)
        return 1;
    int len = 0;
    while (len < argc && !ends_names(argv[len]))
        len++;
    if (len == argc && options->shell_command == NULL)
        return -usage_error(args->subcommand,
                            "-m takes every word up to '--' as a NAME: put '--' before the "
                            "COMMAND");
    if (len == 0)
        return -usage_error(args->subcommand, "a NAME is needed");
    int status = names_take(&options->names, args->subcommand, argv, (size_t)len);
    options->name = options->names.joined;
    return status == 0 ? len : -status;
}

/* The command: the rest of the line, or a string for the shell. `NAME -c STRING` is flock's
 * syntax. */
static int take_command(struct run_args *args, int argc, char **argv) {
    struct run_options *options = &args->options;
    if (argc > 0 && (strcmp(argv[0], "-c") == 0 || strcmp(argv[0], "--command") == 0)) {
        if (argc != 2 || options->shell_command != NULL)
            return usage_error(args->subcommand, "-c takes one string, and can be given only once");
        options->shell_command = argv[1];
        argc = 0;
    } else if (argc > 0 && strcmp(argv[0], "--") == 0) {
        argc--;
        argv++;
    } else if (argc > 0 && argv[0][0] == '-') {
        return usage_error(args->subcommand,
                           "options go before the NAME; a command that begins with '-' "
                           "goes after '--'");
    }

    if (options->shell_command == NULL) {
        options->argv = argv;
        return argc > 0 ? 0 : usage_error(args->subcommand, "a COMMAND is needed");
    }
    if (argc > 0)
        return usage_error(args->subcommand, "give a COMMAND or -c, not both");
    const char *shell = getenv("SHELL");
    char **words = args->shell;
    words[0] = strdup(shell != NULL && *shell != '\0' ? shell : _PATH_BSHELL);
    words[1] = strdup("-c");
    words[2] = strdup(options->shell_command);
    words[3] = NULL;
    options->argv = words;
    return words[0] != NULL && words[1] != NULL && words[2] != NULL ? 0 : STATUS_OS;
}

/* Whether we are part of a foreground pipeline. Its other members are in our process group and need
 * the terminal too (`holdfast run ... | less`), so the command must stay in that group. */
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

/* ---- The command line, and the command ------------------------------------------------------- */

void run_args_init(struct run_args *args, const char *subcommand, struct connection *connection) {
    *args = (struct run_args){.subcommand = subcommand,
                              .connection = connection,
                              .options = {.wait_ms = HF_FOREVER,
                                          .ttl_ms = 30000,
                                          .kill_after_ms = 5000,
                                          .busy_status = STATUS_BUSY,
                                          .signal = SIGTERM,
                                          .env_prefix = "HOLDFAST_",
                                          .ready_fd = -1}};
}

void run_args_free(struct run_args *args) {
    for (int i = 0; i < 3; i++)
        free(args->shell[i]);
    names_free(&args->options.names);
}

int run_args_finish(struct run_args *args, int argc, char **argv) {
    int status = choice_settle(&args->choice, args->subcommand);
    if (status == 0)
        status = choice_check_lease(&args->choice, args->subcommand, args->options.lease_ms);
    if (status != 0)
        return status;
    args->options.kind = args->choice.kind;
    args->options.slots = args->choice.slots;
    int names = take_names(args, argc, argv);
    if (names < 0)
        return -names;
    status = take_command(args, argc - names, argv + names);
    if (status == 0 && args->options.label == NULL) {
        label_of_command(&args->options, args->label);
        args->options.label = args->label;
    }
    if (status == 0)
        message_lock(args->options.name);
    if (status == 0)
        status = connection_resolve(args->connection);
    if (status == 0)
        status = choice_check_servers(&args->choice, args->connection, args->subcommand);
    return status;
}

/* Without /proc, descendants of the command cannot be found. */
static void warn_without_proc(const struct run_options *options) {
    if (options->on_lost != ON_LOST_IGNORE && process_state(getpid()) == 0)
        say(LEVEL_NOTICE,
            "/proc cannot be read: if the lock is lost, processes outside the command's process "
            "group are not killed; mount /proc");
}

int run_args_run(const struct run_args *args) {
    struct run run = {.options = &args->options, .connection = args->connection};
    warn_without_proc(&args->options);
    tree_filter_setup(&run.filter, args->connection->target);
    int status = run_pair(&run);
    tree_filter_free(&run.filter);
    return status;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct run_args args;
    run_args_init(&args, "run", connection);
    int first = command_options(&command_run, specs, argc, argv, run_take, &args);
    int status = first > 0 ? run_args_finish(&args, argc - first, argv + first) : -first;
    if (first > 0 && status == 0)
        status = run_args_run(&args);
    run_args_free(&args);
    return status;
}

const struct command command_run = {
    .name = "run",
    .options = specs,
    .summary = "run a command while holding a lock",
    .usage =
        "[OPTIONS] NAME [--] COMMAND [ARGUMENTS]\n"
        "       holdfast [CONNECTION OPTIONS] run [OPTIONS] NAME -c STRING\n"
        "       holdfast [CONNECTION OPTIONS] run [OPTIONS] -m NAME... -- COMMAND [ARGUMENTS]\n"
        "Runs COMMAND while holding the lock NAME, and exits with its status.\n\n"
        "Which lock:\n"
        "  -x, -e, --exclusive         exclusively (the default)\n"
        "  -s, --shared                as a reader: beside other readers, without a writer\n"
        "  -W, --write                 as the writer beside -s: exclusively\n"
        "      --fair                  first come, first served\n"
        "      --fenced                with a fencing token, in HOLDFAST_TOKEN\n"
        "      --spin                  wait by retrying: for very short commands\n"
        "      --string                as SET NX, shared with redis-py, redsync and others\n"
        "  -N, --slots N               one of N slots: at most N commands at once\n"
        "  -m, --multi                 several locks, all or none: every word up to -- (or -c) is a NAME\n"
        "Getting it:\n"
        "  -n, --nonblock, --nb        do not wait for the lock\n"
        "  -w, --wait DUR              wait at most this long; 0 is -n (default: for ever)\n"
        "  -E, --conflict-exit-code N  exit status if the lock was not free (75)\n"
        "      --ttl DUR               lease, renewed while the command runs (30s)\n"
        "      --lease DUR             fixed lease, not renewed: the command ends before it does\n"
        "                              (with --string, `none`: no lease; the lock stays held if\n"
        "                              holdfast dies)\n"
        "      --hold-for DUR          keep the lock for at least this long\n"
        "Running the command:\n"
        "  -c, --command STRING        run STRING with the shell\n"
        "  -t, --timeout DUR           end the command after this time, exit with 124\n"
        "                              (flock's --timeout, which limits the wait, is --wait)\n"
        "      --signal SIGNAL         with this signal (TERM)\n"
        "  -k, --kill-after DUR        and send KILL if it still runs after this (5s; 0: never)\n"
        "      --on-lost WHAT          when the lock is lost: kill, signal (TERM only) or ignore\n"
        "      --preserve-status       exit with the command's status also when the lock was lost\n"
        "      --only-command          ignore daemons that the command leaves: neither wait nor kill\n"
        "      --foreground            keep the command in this process group\n"
        "      --no-stdin              standard input from /dev/null\n"
        "      --close-fds             close descriptors above 2\n"
        "      --env PREFIX            prefix of the command's variables (HOLDFAST_)\n"
        "      --label TEXT            the holder's name, as others see it (the program, and files\n"
        "                              it is given)\n"
        "      --ready-fd N            write a newline to descriptor N when the lock is held\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nExit status: the command's; 128+n signal n; 75 not acquired; 79 lock lost; 124 timed out;\n"
        "126 not executable; 127 not found; 64 usage; 65 not a lock; 69 unreachable; 77 denied.\n",
    .run = run,
};
