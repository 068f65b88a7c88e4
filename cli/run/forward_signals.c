/* Forwards signals to the command of `holdfast run`: which signals guard and holder watch, and what
 * the guard does with each.
 *
 * The guard's one thread calls it, except for watched_signals(), which runs before the fork, and
 * wakes_to_end(). While the holder lives, a signal goes to it as a note, and it signals the command
 * (command_signal()). Afterwards the guard signals all remaining processes itself. */
#include "run/guard.h"

#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define GIVE_UP_MS 10000 /* for a holder to stop waiting after a signal */

void watched_signals(sigset_t *ret) {
    static const int left_alone[] = {SIGKILL, SIGSTOP, SIGILL,  SIGTRAP, SIGABRT, SIGBUS,
                                     SIGFPE,  SIGSEGV, SIGXCPU, SIGXFSZ, SIGSYS,  SIGURG};
    sigfillset(ret);
    for (size_t i = 0; i < sizeof left_alone / sizeof left_alone[0]; i++)
        sigdelset(ret, left_alone[i]);
    for (int signal = 1; signal <= SIGRTMAX; signal++) {
        struct sigaction action;
        bool ours = signal == SIGCHLD || signal == SIGTTOU || signal == SIGTTIN;
        if (!ours && sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigdelset(ret, signal);
    }
}

bool wakes_to_end(int signal) {
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

static bool ends_processes(int signal) {
    return signal != SIGCONT && signal != SIGWINCH && signal != SIGTSTP && signal != SIGPIPE;
}

void guard_forward_alone(struct guard *g) {
    struct signalfd_siginfo info;
    while (read(g->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo != SIGCHLD)
            tree_signal(getpid(), (int)info.ssi_signo, &g->run->filter, false);
        if (wakes_to_end((int)info.ssi_signo))
            tree_signal(getpid(), SIGCONT, &g->run->filter, false);
    }
}

static void check_holder(struct guard *g) {
    siginfo_t info = {0};
    while (waitid(P_PID, (id_t)g->holder, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
           info.si_pid != 0) {
        g->holder_stopped_ms = info.si_code == CLD_STOPPED ? now_ms() : 0;
        info.si_pid = 0;
    }
}

static void interrupt_wait(struct guard *g, int signal) {
    if (signal == SIGTSTP) {
        guard_park(g, signal);
    } else if (ends_processes(signal) && g->interrupted == 0) {
        g->interrupted = signal;
        g->status = STATUS_SIGNAL + signal;
        g->killed_by = signal;
        g->kill_holder_ms = now_ms() + GIVE_UP_MS;
        note_send(g->notes, NOTE_SIGNAL, signal, 0);
    }
}

static void on_signal(struct guard *g, const struct signalfd_siginfo *info) {
    int signal = (int)info->ssi_signo;
    bool by_terminal = info->ssi_code == SI_KERNEL;
    if (signal == SIGCHLD) {
        check_holder(g);
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
        guard_hand_over_terminal(g);
    if (g->ended && ends_processes(signal) && g->kill_holder_ms == 0)
        g->kill_holder_ms = now_ms() + GIVE_UP_MS; /* The holder is releasing, or stuck. */
    /* A command in our own process group got the terminal's signal already. */
    if (g->run->own_group || !by_terminal)
        note_send(g->notes, NOTE_SIGNAL, signal, 0);
}

void guard_read_signals(struct guard *g) {
    struct signalfd_siginfo info;
    while (!g->done && read(g->signals, &info, sizeof info) == (ssize_t)sizeof info)
        on_signal(g, &info);
}
