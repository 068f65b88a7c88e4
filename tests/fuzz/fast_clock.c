/*
 * A clock that runs FAST times as fast as the machine's, for the fuzzer of whole clients: timeouts
 * pass in a fraction of the time. Linked with --wrap for each function here, so the library and the
 * program see it, and no other process does.
 *
 * The wall clock is as it is: the library compares nothing with it.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define FAST 50
#define SECOND INT64_C(1000000000)

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_poll(struct pollfd *fds, nfds_t len, int timeout_ms);
int __real_ppoll(struct pollfd *fds, nfds_t len, const struct timespec *timeout,
                 const sigset_t *signals);
int __real_timerfd_settime(int fd, int flags, const struct itimerspec *spec,
                           struct itimerspec *ret_old);
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mtx,
                                  const struct timespec *until);
int __real_nanosleep(const struct timespec *time, struct timespec *ret_left);
long __real_syscall(long number, ...);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_poll(struct pollfd *fds, nfds_t len, int timeout_ms);
int __wrap_ppoll(struct pollfd *fds, nfds_t len, const struct timespec *timeout,
                 const sigset_t *signals);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *spec,
                           struct itimerspec *ret_old);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mtx,
                                  const struct timespec *until);
int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left);
long __wrap_syscall(long number, ...);

static int64_t ns_of(const struct timespec *time) {
    return (int64_t)time->tv_sec * SECOND + time->tv_nsec;
}

static struct timespec time_of(int64_t ns) {
    return (struct timespec){.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
}

/* Rounded up, so that nothing wakes up too early again and again. */
static int64_t slow(int64_t ns) {
    return (ns + FAST - 1) / FAST;
}

/* All clocks but the wall clock begin at 0 with the machine: they only are scaled. */
static int is_fast(clockid_t clock) {
    return clock == CLOCK_BOOTTIME || clock == CLOCK_MONOTONIC;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret) {
    int result = __real_clock_gettime(clock, ret);
    if (result == 0 && is_fast(clock))
        *ret = time_of(ns_of(ret) * FAST);
    return result;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t len, const struct timespec *timeout,
                 const sigset_t *signals) {
    struct timespec wait;
    if (timeout != NULL)
        wait = time_of(slow(ns_of(timeout)));
    return __real_ppoll(fds, len, timeout != NULL ? &wait : NULL, signals);
}

int __wrap_poll(struct pollfd *fds, nfds_t len, int timeout_ms) {
    const struct timespec timeout = time_of((int64_t)timeout_ms * 1000000);
    if (timeout_ms <= 0)
        return __real_poll(fds, len, timeout_ms);
    return __wrap_ppoll(fds, len, &timeout, NULL);
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *spec,
                           struct itimerspec *ret_old) {
    const struct itimerspec slowed = {.it_interval = time_of(slow(ns_of(&spec->it_interval))),
                                      .it_value = time_of(slow(ns_of(&spec->it_value)))};
    return __real_timerfd_settime(fd, flags, &slowed, ret_old);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mtx,
                                  const struct timespec *until) {
    const struct timespec slowed = time_of(slow(ns_of(until)));
    return __real_pthread_cond_timedwait(cond, mtx, &slowed);
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *ret_left) {
    const struct timespec slowed = time_of(slow(ns_of(time)));
    return __real_nanosleep(&slowed, ret_left);
}

/* Only futexes are called like this. */
long __wrap_syscall(long number, ...) {
    va_list args;
    long of[6];
    struct timespec slowed;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        of[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_futex && of[3] != 0) {
        const struct timespec *wait = (const void *)of[3];
        slowed = time_of(slow(ns_of(wait)));
        of[3] = (long)&slowed;
    }
    return __real_syscall(number, of[0], of[1], of[2], of[3], of[4], of[5]);
}
