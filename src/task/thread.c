/*
 * The library's own threads (keeper, dispatcher, lookups), and the cancel state of any thread that
 * calls in.
 *
 * The process (ulimit -s, pthread_setattr_default_np) or the C library sets the default stack size;
 * musl's is 128 KiB. A larger default is kept: callbacks are the application's code, and it may
 * have chosen the default for them.
 */
#include "task/thread.h"

#include <signal.h>

/* Virtual memory, mostly untouched. Name service modules need stack, too. */
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

int hfi_thread_cancel_disable(void) {
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

void hfi_thread_cancel_restore(int state) {
    pthread_setcancelstate(state, NULL);
}
