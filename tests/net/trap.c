/*
 * A signal handler that blocks, see trap.h. What it uses is async-signal-safe.
 */
#include "net/trap.h"

#include "support/wait.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <unistd.h>

static sem_t caught;
static int gate[2];

static void stay(int signal) {
    int before = errno;
    char byte;
    (void)signal;
    sem_post(&caught);
    while (read(gate[0], &byte, 1) < 0 && errno == EINTR)
        continue;
    errno = before;
}

void trap_set(void) {
    struct sigaction action = {.sa_handler = stay};
    if (sem_init(&caught, 0, 0) != 0 || pipe(gate) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        support_die("no trap");
}

void trap_catch(pthread_t thread) {
    if (pthread_kill(thread, SIGUSR1) != 0)
        support_die("nobody to catch");
    trap_wait();
}

void trap_wait(void) {
    while (sem_wait(&caught) != 0)
        if (errno != EINTR)
            support_die("nobody was caught");
}

void trap_release(void) {
    if (write(gate[1], "", 1) != 1)
        support_die("nobody can be released");
}
