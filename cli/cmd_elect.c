/*
 * holdfast elect NAME [--] COMMAND: a daemon with standbys. Whoever has the lock leads, and runs the
 * command; when that ends, or the lock is lost, it stands by again.
 *
 * A term is what `run` does once, in a child: this process never opens the library, so it can fork for
 * each of them. It passes signals on to the term that is under way, and between two terms it is ended by
 * them. One thread, one loop.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT_ONCE_MS 10000 /* a term that ends sooner has failed, whatever its status */
#define MOST_PAUSE_MS 60000

enum { ID_ONCE = ID_RUN_END, ID_BACKOFF, ID_ON_GAIN, ID_ON_LOSE };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_ONCE, 0, "once", false},
    {OPTION_VALUE, ID_BACKOFF, 0, "backoff", false},
    {OPTION_VALUE, ID_ON_GAIN, 0, "on-gain", false},
    {OPTION_VALUE, ID_ON_LOSE, 0, "on-lose", false},
    RUN_COMMAND_OPTIONS,
    CHOICE_OPTIONS,
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct elect {
    struct run_line line; /* first, so that run_take() can have it */
    bool once;
    int64_t backoff_ms;
    const char *on_gain, *on_lose; /* for the shell; NULL: none */
    sigset_t original_mask;
    int signals;
    int ended_by;         /* the signal that ends it; 0: none yet */
    unsigned short_terms; /* in a row */
};

struct term {
    pid_t pid;
    int ready;      /* says when the lock is held; -1: it is, or never will be */
    pid_t gaining;  /* the hook; 0: none */
    int64_t led_ms; /* since when; 0: it does not lead */
    bool over;
    int status;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct elect *elect = user;
    switch (id) {
    case ID_ONCE:
        elect->once = true;
        return 0;
    case ID_BACKOFF:
        if (parse_duration(value, &elect->backoff_ms))
            return 0;
        return usage_error("elect", "%s: '%s' is no duration", shown, value);
    case ID_ON_GAIN:
        elect->on_gain = value;
        return 0;
    case ID_ON_LOSE:
        elect->on_lose = value;
        return 0;
    default:
        return run_take(&elect->line, id, value, shown);
    }
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* In a child: as if it had been started by our parent, but that it ends with us. */
static void become_child(const struct elect *elect, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, &elect->original_mask, NULL);
    close(elect->signals);
    if (getppid() != parent)
        _exit(STATUS_OS);
}

static pid_t fork_child(const struct elect *elect) {
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        say(LEVEL_ERROR, "cannot fork: %s", strerror(errno));
    else if (pid == 0)
        become_child(elect, parent);
    return pid;
}

/* 0 or less: there is no such hook, or it could not be started. */
static pid_t start_hook(const struct elect *elect, const char *command) {
    pid_t pid = command != NULL ? fork_child(elect) : -1;
    if (pid != 0)
        return pid;
    setenv("HOLDFAST_NAME", elect->line.options.name, 1);
    execl(_PATH_BSHELL, "sh", "-c", command, (char *)NULL);
    _exit(STATUS_NOT_RUNNABLE);
}

static bool is_over(pid_t pid, int *ret_status) {
    return pid <= 0 || waitpid(pid, ret_status, WNOHANG) != 0;
}

static int exit_status(int wait_status) {
    return WIFSIGNALED(wait_status) ? STATUS_SIGNAL + WTERMSIG(wait_status)
                                    : WEXITSTATUS(wait_status);
}

/* What the terminal sends, it sends to the whole group: the child has it already. */
static void pass_on(struct elect *elect, pid_t pid) {
    struct signalfd_siginfo info;
    while (read(elect->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        elect->ended_by = (int)info.ssi_signo;
        if (pid > 0 && info.ssi_code != SI_KERNEL)
            kill(pid, (int)info.ssi_signo);
    }
}

static void wait_for_hook(struct elect *elect, pid_t hook) {
    int status;
    struct pollfd signals = {.fd = elect->signals, .events = POLLIN};
    while (!is_over(hook, &status)) {
        poll(&signals, 1, -1);
        pass_on(elect, hook);
    }
}

/* ---- A term ---------------------------------------------------------------------------------- */

static int begin_term(const struct elect *elect, struct term *term) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        say(LEVEL_ERROR, "cannot prepare: %s", strerror(errno));
        return STATUS_OS;
    }
    fflush(NULL);
    term->pid = fork_child(elect);
    if (term->pid == 0) {
        struct run_line line = elect->line;
        close(ends[0]);
        line.options.ready_fd = ends[1];
        int status = run_line_run(&line);
        fflush(NULL);
        _exit(status);
    }
    close(ends[1]);
    term->ready = ends[0];
    return term->pid > 0 ? 0 : STATUS_OS;
}

static void look_if_it_leads(const struct elect *elect, struct term *term) {
    char word;
    if (read(term->ready, &word, 1) == 1) {
        term->led_ms = now_ms();
        say(LEVEL_INFO, "leads");
        term->gaining = start_hook(elect, elect->on_gain);
    }
    close(term->ready);
    term->ready = -1;
}

static void follow_term(struct elect *elect, struct term *term) {
    struct pollfd fds[2] = {{.fd = elect->signals, .events = POLLIN}, {.events = POLLIN}};
    int wait_status = 0;
    while (!(term->over = is_over(term->pid, &wait_status))) {
        fds[1].fd = term->ready; /* -1 is passed over */
        if (poll(fds, 2, -1) < 0)
            continue;
        pass_on(elect, term->pid);
        if (term->ready >= 0 && fds[1].revents != 0)
            look_if_it_leads(elect, term);
    }
    if (term->ready >= 0)
        look_if_it_leads(elect, term);
    term->status = exit_status(wait_status);
}

/* Hooks come one after the other, however short a term is. */
static void end_term(struct elect *elect, const struct term *term) {
    if (term->led_ms == 0)
        return;
    say(LEVEL_INFO, "leads no more: %s",
        term->status == STATUS_LOST ? "the lock was lost" : "the command has ended");
    wait_for_hook(elect, term->gaining);
    wait_for_hook(elect, start_hook(elect, elect->on_lose));
}

/* ---- One after the other --------------------------------------------------------------------- */

/* Whether the next term could be another: not if the line, the rights or the command are wrong. */
static bool is_worth_another(const struct term *term) {
    if (term->led_ms == 0)
        return term->status == STATUS_UNAVAILABLE || term->status == STATUS_BUSY;
    return term->status != STATUS_NOT_FOUND && term->status != STATUS_NOT_RUNNABLE;
}

static int64_t pause_after(struct elect *elect, const struct term *term) {
    if (term->led_ms != 0 && now_ms() - term->led_ms >= AT_ONCE_MS) {
        elect->short_terms = 0;
        return 0;
    }
    int64_t pause_ms = elect->backoff_ms;
    for (unsigned i = 0; i < elect->short_terms && pause_ms < MOST_PAUSE_MS; i++)
        pause_ms *= 2;
    elect->short_terms++;
    return pause_ms < MOST_PAUSE_MS ? pause_ms : MOST_PAUSE_MS;
}

static void pause_for(struct elect *elect, int64_t pause_ms) {
    struct pollfd signals = {.fd = elect->signals, .events = POLLIN};
    int64_t end_ms = now_ms() + pause_ms;
    if (pause_ms > 0)
        say(LEVEL_NOTICE, "it ended at once; stands by again in %.3g s", (double)pause_ms / 1000);
    for (int64_t left_ms = pause_ms; left_ms > 0 && elect->ended_by == 0;
         left_ms = end_ms - now_ms()) {
        poll(&signals, 1, (int)left_ms);
        pass_on(elect, 0);
    }
}

static int lead(struct elect *elect) {
    for (;;) {
        struct term term = {.ready = -1};
        int status = begin_term(elect, &term);
        if (status != 0)
            return status;
        follow_term(elect, &term);
        end_term(elect, &term);
        if (elect->once || elect->ended_by != 0 || !is_worth_another(&term))
            return term.status;
        pause_for(elect, pause_after(elect, &term));
        if (elect->ended_by != 0)
            return STATUS_SIGNAL + elect->ended_by;
    }
}

/* What ends it, and the end of its children, from one descriptor. */
static int watch_signals(struct elect *elect) {
    struct sigaction defaults = {.sa_handler = SIG_DFL}; /* ignored, children would just vanish */
    sigset_t children, blocked, wanted;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    wanted = children;
    sigprocmask(SIG_SETMASK, NULL, &elect->original_mask);
    sigaction(SIGCHLD, &defaults, NULL);
    elect->signals = ending_signals();
    sigprocmask(SIG_BLOCK, &children, NULL);
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int signal = 1; signal < NSIG; signal++)
        if (sigismember(&blocked, signal) == 1 && sigismember(&elect->original_mask, signal) == 0)
            sigaddset(&wanted, signal);
    if (elect->signals < 0 || signalfd(elect->signals, &wanted, 0) < 0) {
        say(LEVEL_ERROR, "cannot prepare: %s", strerror(errno));
        return STATUS_OS;
    }
    return 0;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct elect elect = {.backoff_ms = 1000};
    run_line_init(&elect.line, "elect", connection);
    int first = command_options(&command_elect, specs, argc, argv, take, &elect);
    int status = first > 0 ? run_line_finish(&elect.line, argc - first, argv + first) : -first;
    if (first > 0 && status == 0)
        status = watch_signals(&elect);
    if (first > 0 && status == 0)
        status = lead(&elect);
    run_line_free(&elect.line);
    return status;
}

const struct command command_elect = {
    .name = "elect",
    .summary = "run a command as the leader, for good: a daemon with standbys",
    .usage =
        "[OPTIONS] NAME [--] COMMAND [ARGUMENTS]\n"
        "Stands by until the lock NAME is free, runs COMMAND while it is held, and when COMMAND ends\n"
        "or the lock is lost, stands by again. Start it on each machine: one of them leads.\n\n"
        "      --once                  lead once, and exit with the command's status\n"
        "      --backoff DUR           pause after a command that ended within 10 s (1s); doubled\n"
        "                              each time in a row, up to a minute\n"
        "      --on-gain STRING        run STRING with the shell, beside COMMAND, when it leads\n"
        "      --on-lose STRING        and when it leads no more, before it stands by again\n"
        "Which lock, and how the command runs, as for 'run':\n"
        "  -x, -e, --exclusive, -s, --shared, -W, --write, --fair, --fenced, --spin\n"
        "  -N, --slots, -m, --multi, -c, --command, -t, --timeout, --ttl, --signal, -k, --kill-after\n"
        "  --foreground, --no-stdin, --close-fds, --env, --only-command\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nEnds when it is told to (TERM, INT, HUP, QUIT), which ends the command first, and for what\n"
        "would only go wrong again: 126 not executable; 127 not found; 64 usage; 65 no lock; 77 denied.\n",
    .run = run,
};
