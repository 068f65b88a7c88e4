/*
 * Threads of our own: the keeper, the dispatcher, lookups.
 *
 * The default size of a stack belongs to the process (ulimit -s, pthread_setattr_default_np) or to
 * the C library, musl's being 128 KiB. A larger one is taken as it is: callbacks are the
 * application's code, and it may have chosen the default for them.
 */
#include "base/thread.h"

#include <signal.h>

/* Virtual memory, mostly untouched. Name service modules, too, are other people's code. */
#define LEAST_STACK ((size_t)512 * 1024)

int hfi_thread_start(pthread_t *ret_thread, void *(*body)(void *arg), void *arg) {
    pthread_attr_t attr;
    pthread_t detached;
    size_t size = 0;
    int failure = pthread_attr_init(&attr);
    if (failure != 0)
        return failure;
    pthread_attr_getstacksize(&attr, &size);
    if (size < LEAST_STACK)
        pthread_attr_setstacksize(&attr, LEAST_STACK);
    if (ret_thread == NULL)
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);

    sigset_t all, before; /* a thread inherits the mask */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failure = pthread_create(ret_thread != NULL ? ret_thread : &detached, &attr, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return failure;
}
