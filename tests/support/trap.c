/*
 * A signal handler that blocks, see trap.h. What it uses is async-signal-safe.
 */
#include "support/trap.h"

#include "support/wait.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static sem_t caught;
static int gate[2];
static atomic_int awaited; /* the number of the call that is to be heard; 0: none */

/* A repeated call counts once. A thread that signals itself has no number. */
static void stay(int signal, siginfo_t *info, void *context) {
    int before = errno, number = info->si_code == SI_QUEUE ? info->si_value.sival_int : 0;
    char byte;
    (void)signal;
    (void)context;
    if (number != 0 && !atomic_compare_exchange_strong(&awaited, &number, 0))
        return;
    sem_post(&caught);
    while (read(gate[0], &byte, 1) < 0 && errno == EINTR)
        continue;
    errno = before;
}

void trap_set(void) {
    struct sigaction action = {.sa_sigaction = stay, .sa_flags = SA_SIGINFO};
    if (sem_init(&caught, 0, 0) != 0 || pipe(gate) != 0 || sigaction(SIGUSR1, &action, NULL) != 0)
        support_die("no trap");
}

/* ThreadSanitizer keeps a signal that comes just before a thread blocks until that has ended: so it is
 * called until it comes. */
void trap_catch(pthread_t thread) {
    static int number;
    union sigval value = {.sival_int = ++number};
    struct timespec until;
    atomic_store(&awaited, number);
    do {
        if (pthread_sigqueue(thread, SIGUSR1, value) != 0)
            support_die("nobody to catch");
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
    } while (sem_timedwait(&caught, &until) != 0);
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
