/* What guard and holder share: the page and the notes.
 *
 * cmd_run.c prepares it before the fork; then both processes use it, each from its main thread. A
 * note is one packet, so it arrives whole or not at all. Sending never blocks: if the other process
 * does not read, it is stopped and will be handled as stalled. */
#include "run/run.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

int pair_prepare(struct run *run, int ret_sockets[2]) {
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_sockets) != 0) {
        say(LEVEL_ERROR, "cannot set up the processes: %s", strerror(errno));
        return STATUS_OS;
    }
    run->shared = shared;
    run->guard = getpid();
    run->guard_group = getpgrp();

    /* If SIGCHLD were ignored, the kernel would reap our children. */
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

const char *text_of_on_lost(const struct run_options *options) {
    static const char *const texts[] = {[ON_LOST_KILL] = "the command is killed",
                                        [ON_LOST_SIGNAL] = "the command was asked to end",
                                        [ON_LOST_IGNORE] = "the command goes on"};
    return texts[options->on_lost];
}
