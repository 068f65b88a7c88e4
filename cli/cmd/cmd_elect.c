/* holdfast elect NAME [--] COMMAND: leader election for a daemon with standbys. The lock's holder
 * leads and runs the command. When the command ends or the lock is lost, it stands by again.
 *
 * A term is one `run` in a child process. This process never opens the library, so it can fork for
 * each term. It forwards signals to the current term; between two terms a signal ends it. One
 * thread, one loop. */
#include "run/run.h"

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

#define AT_ONCE_MS 10000 /* a shorter term counts as failed, whatever its status */
#define MOST_PAUSE_MS 60000

enum { ID_ONCE = ID_RUN_END, ID_BACKOFF, ID_ON_START, ID_ON_STOP };

static const struct option_spec specs[] = {
    {OPTION_FLAG, ID_ONCE, 0, "once", false},
    {OPTION_VALUE, ID_BACKOFF, 0, "backoff", false},
    {OPTION_VALUE, ID_ON_START, 0, "on-start-leading", false},
    {OPTION_VALUE, ID_ON_STOP, 0, "on-stop-leading", false},
    RUN_COMMAND_OPTIONS,
    CHOICE_OPTIONS,
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

struct elect {
    struct run_args args; /* must be first: run_take() gets a pointer to it */
    bool once;
    int64_t backoff_ms;
    const char *start_hook, *stop_hook; /* shell commands; NULL: none */
    sigset_t original_mask;
    int signals;
    int ended_by;         /* the signal that ends us; 0: none yet */
    unsigned short_terms; /* consecutive */
};

struct term {
    pid_t pid;
    int ready;        /* pipe: readable when the lock is held; -1: already read */
    pid_t start_hook; /* pid of the hook; 0: none */
    int64_t led_ms;   /* when it began to lead; 0: it does not */
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
        return duration_error("elect", shown, value);
    case ID_ON_START:
        elect->start_hook = value;
        return 0;
    case ID_ON_STOP:
        elect->stop_hook = value;
        return 0;
    default:
        return run_take(&elect->args, id, value, shown);
    }
}

/* ---- Processes ------------------------------------------------------------------------------- */

/* In the child: restores the inherited signal mask; the child gets SIGTERM if we die. */
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

/* Returns 0 or less if there is no hook or fork failed. The hook has its own process group, so that
 * all its processes can be signalled. */
static pid_t run_hook(const struct elect *elect, const char *command) {
    pid_t pid = command != NULL ? fork_child(elect) : -1;
    if (pid != 0) {
        if (pid > 0)
            setpgid(pid, pid); /* also here: the child may do it only after we signal it */
        return pid;
    }
    setpgid(0, 0);
    setenv("HOLDFAST_NAME", elect->args.options.name, 1);
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

/* The terminal signals the whole group, so the term already has those signals. */
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

/* A signal also ends the hook. `known` is a signal that came before the hook started and does not
 * end it. The hook is killed after --kill-after. */
static void wait_for_hook(struct elect *elect, pid_t hook, int known) {
    int status;
    int64_t kill_ms = 0;
    struct pollfd signals = {.fd = elect->signals, .events = POLLIN};
    while (!is_over(hook, &status)) {
        int64_t kill_after_ms = elect->args.options.kill_after_ms, now = now_ms();
        if (elect->ended_by != known) {
            known = elect->ended_by;
            kill_ms = kill_after_ms > 0 ? now + kill_after_ms : 0;
            kill(-hook, known);
            kill(-hook, SIGCONT);
        } else if (kill_ms != 0 && now >= kill_ms) {
            kill_ms = 0;
            kill(-hook, SIGKILL);
        }
        await_fds(&signals, 1, kill_ms != 0 ? (int)(kill_ms - now) : -1);
        pass_on(elect, 0);
    }
}

/* ---- A term ---------------------------------------------------------------------------------- */

static int begin_term(const struct elect *elect, struct term *term) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        say(LEVEL_ERROR, "cannot set up the processes: %s", strerror(errno));
        return STATUS_OS;
    }
    fflush(NULL);
    term->pid = fork_child(elect);
    if (term->pid == 0) {
        struct run_args args = elect->args;
        close(ends[0]);
        args.options.ready_fd = ends[1];
        int status = run_args_run(&args);
        fflush(NULL);
        _exit(status);
    }
    close(ends[1]);
    term->ready = ends[0];
    return term->pid > 0 ? 0 : STATUS_OS;
}

static void check_leadership(const struct elect *elect, struct term *term) {
    char word;
    if (read(term->ready, &word, 1) == 1) {
        term->led_ms = now_ms();
        connection_name_server(elect->args.connection);
        say(LEVEL_INFO, "leads");
        term->start_hook = run_hook(elect, elect->start_hook);
    }
    close(term->ready);
    term->ready = -1;
}

static void follow_term(struct elect *elect, struct term *term) {
    struct pollfd fds[2] = {{.fd = elect->signals, .events = POLLIN}, {.events = POLLIN}};
    int wait_status = 0;
    while (!(term->over = is_over(term->pid, &wait_status))) {
        fds[1].fd = term->ready; /* -1 is ignored */
        if (await_fds(fds, 2, -1) < 0)
            continue;
        pass_on(elect, term->pid);
        if (term->ready >= 0 && fds[1].revents != 0)
            check_leadership(elect, term);
    }
    if (term->ready >= 0)
        check_leadership(elect, term);
    term->status = exit_status(wait_status);
}

/* Hooks run one after the other, however short a term is. The on-stop-leading hook also runs when a signal
 * ended the term: that is its purpose. */
static void end_term(struct elect *elect, const struct term *term) {
    if (term->led_ms == 0)
        return;
    bool lost = term->status == STATUS_LOST;
    say_of(LEVEL_INFO, &(struct subject){.code = lost ? HF_ELOST : HF_OK},
           "no longer the leader: %s", lost ? "the lock was lost" : "the command has ended");
    wait_for_hook(elect, term->start_hook, 0);
    wait_for_hook(elect, run_hook(elect, elect->stop_hook), elect->ended_by);
}

/* ---- Successive terms ------------------------------------------------------------------------ */

/* Whether another term may succeed: not if the command line, the permissions or the command are
 * wrong. */
static bool may_run_again(const struct term *term) {
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

static void pause_for(struct elect *elect, const struct term *term, int64_t pause_ms) {
    struct pollfd signals = {.fd = elect->signals, .events = POLLIN};
    int64_t end_ms = now_ms() + pause_ms;
    connection_name_server(elect->args.connection); /* its url is valid, or no term would follow */
    if (pause_ms > 0)
        say(LEVEL_NOTICE, "%s in %.3g s",
            term->led_ms != 0 ? "the command ended early; standing by again"
                              : "the lock was not acquired; trying again",
            (double)pause_ms / 1000);
    for (int64_t left_ms = pause_ms; left_ms > 0 && elect->ended_by == 0;
         left_ms = end_ms - now_ms()) {
        await_fds(&signals, 1, (int)left_ms);
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
        bool ended = elect->once || elect->ended_by != 0 || !may_run_again(&term);
        end_term(elect, &term);
        if (ended)
            return term.status;
        if (elect->ended_by == 0)
            pause_for(elect, &term, pause_after(elect, &term));
        if (elect->ended_by != 0)
            return STATUS_SIGNAL + elect->ended_by;
    }
}

/* One signalfd for ending signals and SIGCHLD. */
static int watch_signals(struct elect *elect) {
    struct sigaction defaults = {.sa_handler = SIG_DFL}; /* if ignored, the kernel would reap */
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
        say(LEVEL_ERROR, "cannot set up the processes: %s", strerror(errno));
        return STATUS_OS;
    }
    return 0;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct elect elect = {.backoff_ms = 1000};
    run_args_init(&elect.args, "elect", connection);
    int first = command_options(&command_elect, specs, argc, argv, take, &elect);
    int status = first > 0 ? run_args_finish(&elect.args, argc - first, argv + first) : -first;
    if (first > 0 && status == 0)
        status = watch_signals(&elect);
    if (first > 0 && status == 0)
        status = lead(&elect);
    run_args_free(&elect.args);
    return status;
}

const struct command command_elect = {
    .name = "elect",
    .options = specs,
    .summary = "run a command as the elected leader: a daemon with standbys",
    .usage =
        "[OPTIONS] NAME [--] COMMAND [ARGUMENTS]\n"
        "Waits until the lock NAME is free, runs COMMAND while holding it, and when COMMAND ends or\n"
        "the lock is lost, waits again. Start it on each machine: one of them leads.\n\n"
        "      --once                  lead once, and exit with the command's status\n"
        "      --backoff DUR           pause after a command that ended within 10 s (1s); doubled\n"
        "                              each time in a row, up to a minute\n"
        "      --on-start-leading STRING  run STRING with the shell, beside COMMAND, when leading\n"
        "      --on-stop-leading STRING   the same when no longer leading, before it waits again\n"
        "Which lock, and how the command runs, as for 'run':\n"
        "  -x, -e, --exclusive, -s, --shared, -W, --write, --fair, --fenced, --spin, --string\n"
        "  -N, --slots, -m, --multi, -c, --command, -t, --timeout, --ttl, --signal, -k, --kill-after\n"
        "  --foreground, --no-stdin, --close-fds, --env, --only-command, --label\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nTERM, INT, HUP or QUIT end the command, then 'elect' itself. It also exits on errors that would\n"
        "only repeat: 126 not executable; 127 not found; 64 usage; 65 not a lock; 77 denied.\n",
    .run = run,
};
