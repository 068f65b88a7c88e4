/*
 * A mutex with a condition on a steady clock, and threads that get no signals; see sync.h.
 *
 * Called by the monitor, the proxy and the hostile server, from their threads and from the test's.
 * It has no state but what the caller's struct holds. pthread_cond_timedwait is used with the clock
 * in the condition's attributes, since the race detectors do not know pthread_cond_clockwait.
 */
#include "support/sync.h"

#include "support/wait.h"

#include <signal.h>
#include <string.h>
#include <time.h>

void sync_init(struct sync *sync) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&sync->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&sync->mutex, NULL);
}

void sync_destroy(struct sync *sync) {
    pthread_cond_destroy(&sync->changed);
    pthread_mutex_destroy(&sync->mutex);
}

void sync_lock(struct sync *sync) {
    pthread_mutex_lock(&sync->mutex);
}

void sync_unlock(struct sync *sync) {
    pthread_mutex_unlock(&sync->mutex);
}

bool sync_wait(struct sync *sync, int64_t end_ms) {
    int64_t left_ms = end_ms - now_ms();
    if (left_ms <= 0)
        return false;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    int64_t ns = ts.tv_nsec + left_ms % 1000 * 1000000;
    ts.tv_sec += left_ms / 1000 + ns / 1000000000;
    ts.tv_nsec = ns % 1000000000;
    pthread_cond_timedwait(&sync->changed, &sync->mutex, &ts);
    return true;
}

void sync_changed(struct sync *sync) {
    pthread_cond_broadcast(&sync->changed);
}

pthread_t sync_thread(void *(*body)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int err = pthread_create(&thread, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err != 0)
        support_die("pthread_create: %s", strerror(err));
    return thread;
}
