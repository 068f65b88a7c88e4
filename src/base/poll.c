/*
 * Waiting for descriptors. Any thread; no state.
 *
 * poll() refuses more descriptors than RLIMIT_NOFILE allows to open, even if they are open already.
 * select() ignores the limit, so it takes over. Its bit sets are as long as the highest descriptor
 * needs.
 */
#include "base/poll.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/select.h>
#include <time.h>

#define WORD_BITS (sizeof(unsigned long) * CHAR_BIT)
#define PAUSE_MS 10 /* so that a caller's loop does not spin if select() fails, too */

static struct timespec time_of(int timeout_ms) {
    return (struct timespec){.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
}

static void put(unsigned long *bits, int fd, bool wanted) {
    if (wanted)
        bits[(size_t)fd / WORD_BITS] |= 1UL << (size_t)fd % WORD_BITS;
}

static bool has(const unsigned long *bits, int fd) {
    return (bits[(size_t)fd / WORD_BITS] >> (size_t)fd % WORD_BITS & 1) != 0;
}

static int highest(const struct pollfd *fds, size_t len) {
    int fd = -1;
    for (size_t i = 0; i < len; i++)
        fd = fds[i].fd > fd ? fds[i].fd : fd;
    return fd;
}

/* Both sets have the same size, and are zero. */
static int select_with(struct pollfd *fds, size_t len, unsigned long *readable,
                       unsigned long *writable, const struct timespec *timeout,
                       const sigset_t *signals) {
    for (size_t i = 0; i < len; i++) {
        fds[i].revents = 0;
        if (fds[i].fd < 0)
            continue;
        put(readable, fds[i].fd, (fds[i].events & POLLIN) != 0);
        put(writable, fds[i].fd, (fds[i].events & POLLOUT) != 0);
    }
    int ready = pselect(highest(fds, len) + 1, (fd_set *)readable, (fd_set *)writable, NULL,
                        timeout, signals);
    if (ready <= 0)
        return ready;
    ready = 0;
    for (size_t i = 0; i < len; i++) {
        if (fds[i].fd < 0)
            continue;
        fds[i].revents = (short)((has(readable, fds[i].fd) ? POLLIN : 0) |
                                 (has(writable, fds[i].fd) ? POLLOUT : 0));
        ready += fds[i].revents != 0;
    }
    return ready;
}

static int select_instead(struct pollfd *fds, size_t len, const struct timespec *timeout,
                          const sigset_t *signals) {
    size_t words = (size_t)(highest(fds, len) + 1) / WORD_BITS + 1;
    unsigned long *bits = calloc(2 * words, sizeof *bits);
    int ready = -1;
    errno = ENOMEM;
    if (bits != NULL)
        ready = select_with(fds, len, bits, bits + words, timeout, signals);
    int failure = errno;
    if (ready < 0 && failure != EINTR)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
    free(bits);
    errno = failure;
    return ready;
}

int hfi_poll(struct pollfd *fds, size_t len, int timeout_ms, const sigset_t *signals) {
    struct timespec timeout = time_of(timeout_ms < 0 ? 0 : timeout_ms);
    const struct timespec *limit = timeout_ms < 0 ? NULL : &timeout;
    int ready = signals == NULL ? poll(fds, (nfds_t)len, timeout_ms)
                                : ppoll(fds, (nfds_t)len, limit, signals);
    if (ready < 0 && errno == EINVAL)
        ready = select_instead(fds, len, limit, signals);
    return ready;
}
