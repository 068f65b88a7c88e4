/*
 * What ties the guard and the holder together: the page they share, the notes they send, the
 * signals they watch, and the times they agree on.
 *
 * Prepared by cmd_run.c before it forks; used by both processes afterwards, each from its main
 * thread. A note is one packet, so it arrives whole or not at all. Sending never blocks: if the
 * other side does not read (it is stopped), it is about to be dealt with anyway.
 */
#include "run.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Every signal that can be caught and would end us, and those of job control; but not what our
 * parent has told us to ignore (nohup), and not what a bug of ours would raise. */
static void watched_signals(sigset_t *ret) {
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

int pair_prepare(struct run *run, int ret_sockets[2]) {
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_sockets) != 0) {
        say(LEVEL_ERROR, "cannot prepare: %s", strerror(errno));
        return STATUS_OS;
    }
    run->shared = shared;
    run->guard = getpid();
    run->guard_group = getpgrp();

    /* An ignored SIGCHLD would have the kernel reap what we wait for. */
    struct sigaction children, defaults = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &defaults, &children);
    run->ignored_children = children.sa_handler == SIG_IGN;
    watched_signals(&run->watched);
    sigprocmask(SIG_BLOCK, &run->watched, &run->original_mask);
    return 0;
}

int pair_signalfd(const struct run *run) {
    return signalfd(-1, &run->watched, SFD_CLOEXEC | SFD_NONBLOCK);
}

void note_send(int socket, enum note_kind kind, int value, int signal) {
    struct note note = {.kind = kind, .value = value, .signal = signal};
    while (send(socket, &note, sizeof note, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EINTR) {
    }
}

int note_receive(int socket, struct note *ret) {
    for (;;) {
        struct note note;
        ssize_t n = recv(socket, &note, sizeof note, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n != (ssize_t)sizeof note)
            return -1;
        *ret = note;
        return 1;
    }
}

int64_t hold_ttl(const struct run_options *options) {
    return options->lease_ms > 0 ? options->lease_ms : options->ttl_ms;
}

/* What a server promises in steady renewals may be less than the lease that was asked for. */
static int64_t span_of(const struct run *run) {
    int64_t span_ms = atomic_load(&run->shared->span_ms), ttl_ms = hold_ttl(run->options);
    return span_ms > 0 && span_ms < ttl_ms ? span_ms : ttl_ms;
}

int64_t kill_time(const struct run *run, int64_t deadline_ms) {
    int64_t twentieth = span_of(run) / 20;
    return deadline_ms - (twentieth > 250 ? twentieth : 250);
}

int64_t warn_time(const struct run *run, int64_t deadline_ms) {
    int64_t third = span_of(run) / 3;
    return kill_time(run, deadline_ms) - (third < 5000 ? third : 5000);
}

int64_t stall_limit(const struct run *run) {
    int64_t tenth = span_of(run) / 10;
    return tenth < 250 ? 250 : tenth > 1000 ? 1000 : tenth;
}

const char *fate_of_command(const struct run_options *options) {
    static const char *const fates[] = {[ON_LOST_KILL] = "the command is killed",
                                        [ON_LOST_SIGNAL] = "the command is told to end",
                                        [ON_LOST_IGNORE] = "the command goes on"};
    return fates[options->on_lost];
}

bool wakes_to_end(int signal) {
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}
