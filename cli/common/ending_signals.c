/* A signalfd for the signals that end a subcommand, so that its loop can clean up. It is for
 * subcommands that wait or hold in one process (`hold`, `sem`, `latch`). `run` has its own signals,
 * see forward_signals.c.
 *
 * Called once, before other threads exist, because they inherit the mask. */
#include "cli.h"

#include <signal.h>
#include <sys/signalfd.h>

int ending_signals(void) {
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++) {
        struct sigaction action;
        if (sigaction(ending[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&set, ending[i]);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGTTIN, &ignore, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}
