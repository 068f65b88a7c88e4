/* The guard: the process of `holdfast run` that the user started. It forwards signals to the
 * command through the holder, does a shell's job control for the terminal, and produces the exit
 * status. If the holder is killed, is stopped or misses the deadline, the guard kills the command
 * itself.
 *
 * One thread, one loop, no library calls: it must work when everything else fails. Its timer runs
 * on CLOCK_BOOTTIME like the deadline, so after a suspend past the deadline it acts at once.
 *
 * Invariants: while the holder lives, only the holder reaps descendants of the command. The guard
 * takes over for good, after killing the holder, and then returns only when no process is left.
 * (With --on-lost=ignore the command is never killed, only waited for.) */
#include "run/guard.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILL_AGAIN_MS 50 /* between two rounds of SIGKILL */
#define WARN_LAG_MS 100  /* the holder warns first; this late, the guard does */
#define EXIT_MS 2000     /* for a holder to exit after NOTE_DONE */

static pid_t command_group(const struct guard *g) {
    return atomic_load(&g->shared->group);
}

/* ---- Without the holder ---------------------------------------------------------------------- */

/* Kills or signals the remaining processes, according to --on-lost. Returns when none is left. */
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
            atomic_store(&g->shared->command, 0); /* The pid may be reused. */
        struct pollfd signals = {.fd = g->signals, .events = POLLIN};
        await_fds(&signals, 1, on_lost == ON_LOST_KILL ? KILL_AGAIN_MS : -1);
        guard_forward_alone(g);
    }
    g->status = exit_status_without_holder(g->options, command_ended, wait_status);
}

/* The holder is dead or useless: kill it and continue without it. */
static void take_over(struct guard *g, const char *why) {
    char buffer[SHOWN_NAME_SIZE];
    const char *name = shown_name(g->options->name, buffer), *noun = g->options->kind->ops->noun;
    const struct subject subject = {.lock = g->options->name};
    pid_t command = atomic_load(&g->shared->command);
    /* Do not wait for it: a holder stuck in the kernel or in a debugger must not delay killing the
     * command. */
    if (!g->holder_reaped)
        kill(g->holder, SIGKILL);
    g->done = true;
    if (g->interrupted != 0 && !g->started) {
        say_of(LEVEL_ERROR, &subject,
               "'%s': %s; if it held the %s, that becomes free when its lease ends", name, why,
               noun);
    } else if (!g->started) {
        say_of(LEVEL_ERROR, &subject, "'%s': %s", name, why);
        g->status = STATUS_INTERNAL;
    } else if (g->ended) {
        say_of(LEVEL_ERROR, &subject, "'%s': %s; the %s is free when its lease ends", name, why,
               noun);
    } else {
        say_of(LEVEL_ERROR, &(struct subject){.code = HF_ELOST, .lock = g->options->name},
               "'%s': the %s is lost: %s; %s", name, noun, why, text_of_on_lost(g->options));
        end_everything(g, command);
    }
}

/* ---- The terminal ---------------------------------------------------------------------------- */

void guard_hand_over_terminal(struct guard *g) {
    if (command_group(g) != 0 && terminal_is_ours(&g->run->terminal))
        terminal_give(&g->run->terminal, command_group(g));
}

bool guard_park(struct guard *g, int signal) {
    sigset_t only, pending;
    sigemptyset(&only);
    sigaddset(&only, signal);
    terminal_take(&g->run->terminal, command_group(g), false);

    atomic_store(&g->shared->parked, true);
    kill(0, signal);
    sigprocmask(SIG_UNBLOCK, &only, NULL); /* The process stops here. */
    sigprocmask(SIG_BLOCK, &only, NULL);
    atomic_store(&g->shared->parked, false);
    return sigpending(&pending) == 0 && sigismember(&pending, SIGCONT) == 1;
}

/* The command has stopped. A shell would show its prompt now, so stop ourselves to let our shell
 * know. */
static void command_stopped(struct guard *g, int signal) {
    bool wants_terminal = signal == SIGTTIN || signal == SIGTTOU;
    const struct terminal *terminal = &g->run->terminal;
    if (wants_terminal && g->run->own_group && terminal_is_ours(terminal)) {
        guard_hand_over_terminal(g);
        note_send(g->notes, NOTE_SIGNAL, SIGCONT, 0);
        return;
    }
    bool in_front =
        g->run->own_group ? terminal_is_of(terminal, command_group(g)) : terminal_is_ours(terminal);
    if (signal != SIGTSTP && !wants_terminal && !in_front)
        return; /* Stopped by a signal from elsewhere; its sender will continue it. */

    bool stopped = guard_park(g, wants_terminal ? signal : SIGTSTP);
    if (!stopped && wants_terminal) {
        say(LEVEL_NOTICE, "the command was stopped because it wants the terminal");
        return;
    }
    guard_hand_over_terminal(g);
    note_send(g->notes, NOTE_SIGNAL, SIGCONT, 0);
}

/* ---- Notes ----------------------------------------------------------------------------------- */

static void on_note(struct guard *g, const struct note *note) {
    switch (note->kind) {
    case NOTE_ACQUIRED:
        if (g->interrupted != 0)
            return; /* The holder knows, and releases the lock. */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        g->started = true;
        connection_name_server(g->run->connection);
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
            g->kill_holder_ms = now_ms() + EXIT_MS;
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
    if (g->kill_holder_ms != 0 && (g->ended || g->interrupted != 0) && WIFEXITED(wait_status))
        g->done = true;
    else
        take_over(g, "the holder process was killed");
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

/* Warns and kills at the deadline. The holder does the same a moment earlier, if it can. So the
 * holder is killed only when the deadline has passed and a process still runs. Returns when to
 * check again; 0: never. */
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
    take_over(g, "the lease ended");
    return 0;
}

/* A stopped holder does not renew. Returns when to check again; 0: never. */
static int64_t watch_holder(struct guard *g, int64_t now) {
    if (g->holder_stopped_ms == 0 || !g->started || g->options->on_lost == ON_LOST_IGNORE)
        return 0;
    int64_t limit_ms = g->holder_stopped_ms + stall_limit(g->run);
    if (now < limit_ms)
        return limit_ms;
    take_over(g, "the holder process was stopped");
    return 0;
}

static void watch_time(struct guard *g) {
    int64_t now = now_ms(), next = g->kill_holder_ms;
    if (next != 0 && now >= next) {
        take_over(g, "the holder process does not answer");
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
        if (await_fds(fds, 3, -1) < 0 && errno != EINTR) {
            take_over(g, strerror(errno));
            return;
        }
        guard_read_signals(g);
        read_notes(g);
        if (!g->done)
            watch_time(g);
    }
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Ctrl-C must also end a calling script, and its shell stops only if it sees that we died of
 * SIGINT. If the command had the terminal, the shell did not get the signal itself. */
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
