/*
 * The guard: the process of `holdfast run` that the user started. It passes signals on to the
 * command by way of the holder, plays the part of a shell for the terminal, and turns the end into
 * an exit status. And when the holder is killed or stopped, or sleeps through the deadline, it ends
 * the command itself.
 *
 * One thread, one loop, no library: it must work when everything else does not. Its timer runs on
 * CLOCK_BOOTTIME, as the deadline does, so that a machine that slept past it acts at once.
 *
 * Invariants: while the holder lives, only the holder reaps what came of the command; the guard
 * takes over for good, after killing the holder, and then returns only when nothing is left. (With
 * --on-lost=ignore the command is never ended, only waited for.)
 */
#include "run.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_AGAIN_MS 50   /* between two rounds of killing what is left */
#define WARN_LAG_MS 100    /* the holder warns in time; only if it did not, we do */
#define GIVE_UP_MS 10000   /* for a holder to give up waiting after a signal */
#define LAST_WORDS_MS 2000 /* for a holder to exit after it has said that it is done */

struct guard {
    struct run *run;
    const struct run_options *options;
    struct shared *shared;
    int notes, signals, timer;
    pid_t holder;
    bool holder_reaped;
    int64_t holder_stopped_ms; /* since when; 0: it is not */
    bool started;              /* the command may be running */
    bool ended;                /* nothing is left of it; status is what it was */
    bool done;
    int interrupted;          /* the signal that ended the wait */
    int64_t patience_ends_ms; /* when a holder that should go is killed; 0: no reason to */
    bool terminal_interrupt;  /* SIGINT came from the terminal, not from a kill */
    int status, killed_by;
};

static pid_t command_group(const struct guard *g) {
    return atomic_load(&g->shared->group);
}

static bool ends_processes(int signal) {
    return signal != SIGCONT && signal != SIGWINCH && signal != SIGTSTP && signal != SIGPIPE;
}

/* ---- Without the holder ---------------------------------------------------------------------- */

static void pass_on_alone(struct guard *g) {
    struct signalfd_siginfo info;
    while (read(g->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD)
            tree_signal(getpid(), (int)info.ssi_signo, &g->run->filter, false);
        if (wakes_to_end((int)info.ssi_signo))
            tree_signal(getpid(), SIGCONT, &g->run->filter, false);
    }
}

/* Ends what is left, according to --on-lost, and returns when there is nothing any more. */
static void end_everything(struct guard *g, pid_t command) {
    enum on_lost on_lost = g->options->on_lost;
    bool first = true, command_ended = false;
    int wait_status = 0, left = on_lost == ON_LOST_KILL ? 1 : 0;
    while (!tree_reap(&g->run->filter, command_ended ? 0 : command, &command_ended, &wait_status) ||
           (g->options->only_command && left > 0)) {
        if (on_lost == ON_LOST_KILL)
            left = tree_signal(getpid(), SIGKILL, &g->run->filter, first);
        if (on_lost == ON_LOST_SIGNAL && first) {
            tree_signal(getpid(), SIGTERM, &g->run->filter, true);
            tree_signal(getpid(), SIGCONT, &g->run->filter, false);
        }
        first = false;
        if (command_ended)
            atomic_store(&g->shared->command, 0); /* The pid may come to mean somebody else. */
        struct pollfd signals = {.fd = g->signals, .events = POLLIN};
        poll(&signals, 1, on_lost == ON_LOST_KILL ? KILL_AGAIN_MS : -1);
        pass_on_alone(g);
    }
    g->status = STATUS_LOST;
    if (command_ended && g->options->preserve_status)
        g->status = WIFSIGNALED(wait_status) ? STATUS_SIGNAL + WTERMSIG(wait_status)
                                             : WEXITSTATUS(wait_status);
}

/* The holder is gone or of no use: from here on the guard is alone. */
static void take_over(struct guard *g, const char *why) {
    char buffer[SHOWN_NAME_SIZE];
    const char *name = shown_name(g->options->name, buffer), *noun = g->options->kind->ops->noun;
    pid_t command = atomic_load(&g->shared->command);
    /* Not waited for here: a holder that is stuck in the kernel, or in a debugger, must not keep us
     * from ending the command. */
    if (!g->holder_reaped)
        kill(g->holder, SIGKILL);
    g->done = true;
    if (g->interrupted != 0 && !g->started) {
        say(LEVEL_ERROR, "'%s': %s; if it had the %s, that is free when its lease ends", name, why,
            noun);
    } else if (!g->started) {
        say(LEVEL_ERROR, "'%s': %s", name, why);
        g->status = STATUS_INTERNAL;
    } else if (g->ended) {
        say(LEVEL_ERROR, "'%s': %s; the %s is free when its lease ends", name, why, noun);
    } else {
        say(LEVEL_ERROR, "'%s': the %s is lost: %s; %s", name, noun, why,
            fate_of_command(g->options));
        end_everything(g, command);
    }
}

/* ---- The terminal ---------------------------------------------------------------------------- */

static void hand_over_terminal(struct guard *g) {
    if (command_group(g) != 0 && terminal_is_ours(&g->run->terminal))
        terminal_give(&g->run->terminal, command_group(g));
}

/* Stops this process, and with it the user's job, as the terminal would. Returns when it is
 * continued; false if there was no shell to stop for and so nothing happened. */
static bool park(struct guard *g, int signal) {
    sigset_t only, pending;
    sigemptyset(&only);
    sigaddset(&only, signal);
    terminal_take(&g->run->terminal, command_group(g), false);

    atomic_store(&g->shared->parked, true);
    kill(0, signal);
    sigprocmask(SIG_UNBLOCK, &only, NULL); /* Here it stops. */
    sigprocmask(SIG_BLOCK, &only, NULL);
    atomic_store(&g->shared->parked, false);
    return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

/* The command has stopped: a shell would now have its prompt back, so our shell must learn of
 * it. */
static void command_stopped(struct guard *g, int signal) {
    bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
    const struct terminal *terminal = &g->run->terminal;
    if (wants_terminal && g->run->own_group && terminal_is_ours(terminal)) {
        hand_over_terminal(g);
        note_send(g->notes, NOTE_SIGNAL, SIGCONT, 0);
        return;
    }
    bool in_front =
        g->run->own_group ? terminal_is_of(terminal, command_group(g)) : terminal_is_ours(terminal);
    if (signal != SIGTSTP && !wants_terminal && !in_front)
        return; /* Somebody has stopped it from elsewhere, and will continue it from there. */

    bool stopped = park(g, wants_terminal ? signal : SIGTSTP);
    if (!stopped && wants_terminal) {
        say(LEVEL_NOTICE, "the command has stopped, since it wants the terminal");
        return;
    }
    hand_over_terminal(g);
    note_send(g->notes, NOTE_SIGNAL, SIGCONT, 0);
}

/* ---- Signals --------------------------------------------------------------------------------- */

static void look_at_holder(struct guard *g) {
    siginfo_t info = {0};
    while (waitid(P_PID, (id_t)g->holder, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
           info.si_pid != 0) {
        g->holder_stopped_ms = info.si_code == CLD_STOPPED ? now_ms() : 0;
        info.si_pid = 0;
    }
}

static void interrupt_wait(struct guard *g, int signal) {
    if (signal == SIGTSTP) {
        park(g, signal);
    } else if (ends_processes(signal) && g->interrupted == 0) {
        g->interrupted = signal;
        g->status = STATUS_SIGNAL + signal;
        g->killed_by = signal;
        g->patience_ends_ms = now_ms() + GIVE_UP_MS;
        note_send(g->notes, NOTE_SIGNAL, signal, 0);
    }
}

static void on_signal(struct guard *g, const struct signalfd_siginfo *info) {
    int signal = (int)info->ssi_signo;
    bool by_terminal = info->ssi_code == SI_KERNEL;
    if (signal == SIGCHLD) {
        look_at_holder(g);
        return;
    }
    if (signal == SIGTTIN || signal == SIGTTOU || (signal == SIGPIPE && info->ssi_code != SI_USER))
        return;
    if (signal == SIGINT)
        g->terminal_interrupt |= by_terminal;
    if (!g->started) {
        interrupt_wait(g, signal);
        return;
    }
    if (signal == SIGCONT)
        hand_over_terminal(g);
    if (g->ended && ends_processes(signal) && g->patience_ends_ms == 0)
        g->patience_ends_ms = now_ms() + GIVE_UP_MS; /* It is releasing, or not even that. */
    /* What the terminal sends to our group, a command in the same group has got by itself. */
    if (g->run->own_group || !by_terminal)
        note_send(g->notes, NOTE_SIGNAL, signal, 0);
}

static void read_signals(struct guard *g) {
    struct signalfd_siginfo info;
    while (!g->done && read(g->signals, &info, sizeof info) == (ssize_t)sizeof info)
        on_signal(g, &info);
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static void on_note(struct guard *g, const struct note *note) {
    switch (note->kind) {
    case NOTE_ACQUIRED:
        if (g->interrupted != 0)
            return; /* The holder has been told, and gives the lock back. */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        g->started = true;
        note_send(g->notes, NOTE_START, g->run->own_group, 0);
        return;
    case NOTE_STOPPED:
        command_stopped(g, note->value);
        return;
    case NOTE_ENDED:
    case NOTE_DONE:
        g->ended = true;
        g->status = note->value;
        g->killed_by = note->signal;
        if (note->kind == NOTE_DONE)
            g->patience_ends_ms = now_ms() + LAST_WORDS_MS;
        return;
    default:
        return;
    }
}

/* The holder's end of the socket is closed: it has exited, or is about to. */
static void holder_gone(struct guard *g) {
    int wait_status = 0;
    while (waitpid(g->holder, &wait_status, 0) < 0 && errno == EINTR) {
    }
    g->holder_reaped = true;
    if (g->patience_ends_ms != 0 && (g->ended || g->interrupted != 0) && WIFEXITED(wait_status))
        g->done = true;
    else
        take_over(g, "the process that holds it has been killed");
}

static void read_notes(struct guard *g) {
    struct note note;
    int got;
    while (!g->done && (got = note_receive(g->notes, &note)) != 0) {
        if (got > 0)
            on_note(g, &note);
        else
            holder_gone(g);
    }
}

/* ---- Time ------------------------------------------------------------------------------------ */

static int64_t earlier(int64_t a, int64_t b) {
    return a == 0 || (b != 0 && b < a) ? b : a;
}

/* What the deadline asks for. The holder does the same a moment before, if it can; so the holder
 * itself is ended only when the deadline has come and something still runs. Returns when to look
 * again. */
static int64_t watch_deadline(struct guard *g, int64_t now) {
    const struct run_options *options = g->options;
    int64_t deadline_ms = atomic_load(&g->shared->deadline_ms);
    if (!g->started || g->ended || deadline_ms == 0 || options->on_lost == ON_LOST_IGNORE)
        return 0;
    int64_t warn_ms = warn_time(g->run, deadline_ms) + WARN_LAG_MS;
    if (now < warn_ms)
        return warn_ms;
    if (!atomic_exchange(&g->shared->warned, true)) {
        tree_signal(g->holder, SIGTERM, &g->run->filter, false);
        tree_signal(g->holder, SIGCONT, &g->run->filter, false);
    }
    if (options->on_lost != ON_LOST_KILL)
        return now + stall_limit(g->run);
    if (now < kill_time(g->run, deadline_ms))
        return kill_time(g->run, deadline_ms);
    if (now < deadline_ms) {
        tree_signal(g->holder, SIGKILL, &g->run->filter, false);
        return now + KILL_AGAIN_MS;
    }
    take_over(g, "the lease has run out");
    return 0;
}

/* A holder that is stopped does not renew. Returns when to look again. */
static int64_t watch_holder(struct guard *g, int64_t now) {
    if (g->holder_stopped_ms == 0 || !g->started || g->options->on_lost == ON_LOST_IGNORE)
        return 0;
    int64_t limit_ms = g->holder_stopped_ms + stall_limit(g->run);
    if (now < limit_ms)
        return limit_ms;
    take_over(g, "the process that holds it has been stopped");
    return 0;
}

static void watch_time(struct guard *g) {
    int64_t now = now_ms(), next = g->patience_ends_ms;
    if (next != 0 && now >= next) {
        take_over(g, "the process that holds it does not answer");
        return;
    }
    next = earlier(next, watch_holder(g, now));
    if (!g->done)
        next = earlier(next, watch_deadline(g, now));

    struct itimerspec when = {
        .it_value = {.tv_sec = next / 1000, .tv_nsec = next % 1000 * 1000000}};
    timerfd_settime(g->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

static void loop(struct guard *g) {
    watch_time(g);
    while (!g->done) {
        struct pollfd fds[] = {{.fd = g->notes, .events = POLLIN},
                               {.fd = g->signals, .events = POLLIN},
                               {.fd = g->timer, .events = POLLIN}};
        if (poll(fds, 3, -1) < 0 && errno != EINTR) {
            take_over(g, strerror(errno));
            return;
        }
        read_signals(g);
        read_notes(g);
        if (!g->done)
            watch_time(g);
    }
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Ctrl-C must end a script as well, and it does only if the script's shell sees that we died of it.
 * When the command had the terminal, the shell has not even got the signal. */
static void die_of_interrupt(const struct guard *g, bool had_terminal) {
    sigset_t only;
    struct sigaction defaults = {.sa_handler = SIG_DFL};
    if (g->killed_by != SIGINT || g->status != STATUS_SIGNAL + SIGINT ||
        !(had_terminal || g->terminal_interrupt) || !sigismember(&g->run->watched, SIGINT))
        return;
    sigemptyset(&only);
    sigaddset(&only, SIGINT);
    sigaction(SIGINT, &defaults, NULL);
    kill(had_terminal ? 0 : getpid(), SIGINT);
    sigprocmask(SIG_UNBLOCK, &only, NULL);
}

int guard_run(struct run *run, int socket, pid_t holder) {
    struct guard g = {.run = run,
                      .options = run->options,
                      .shared = run->shared,
                      .notes = socket,
                      .holder = holder};
    g.signals = pair_signalfd(run);
    g.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (g.signals < 0 || g.timer < 0)
        take_over(&g, strerror(errno));
    else
        loop(&g);

    bool had_terminal = command_group(&g) != 0 && terminal_is_of(&run->terminal, command_group(&g));
    terminal_take(&run->terminal, command_group(&g), g.killed_by != 0);
    die_of_interrupt(&g, had_terminal);
    return g.status;
}
