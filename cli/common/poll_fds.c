/* poll() for the loops of all subcommands. Called on their main threads; stateless. */
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <sys/select.h>

/* Invalid descriptors, and those beyond FD_SETSIZE, are never ready. */
static int select_instead(struct pollfd *fds, size_t len, int timeout_ms) {
    struct timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000L};
    fd_set readable, writable;
    int most = -1;
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    for (size_t i = 0; i < len; i++) {
        fds[i].revents = 0;
        if (fds[i].fd < 0 || fds[i].fd >= FD_SETSIZE)
            continue;
        most = fds[i].fd > most ? fds[i].fd : most;
        if ((fds[i].events & POLLIN) != 0)
            FD_SET(fds[i].fd, &readable);
        if ((fds[i].events & POLLOUT) != 0)
            FD_SET(fds[i].fd, &writable);
    }
    int ready = select(most + 1, &readable, &writable, NULL, timeout_ms < 0 ? NULL : &timeout);
    for (size_t i = 0; i < len && ready > 0; i++)
        if (fds[i].fd >= 0 && fds[i].fd < FD_SETSIZE)
            fds[i].revents = (short)((FD_ISSET(fds[i].fd, &readable) ? POLLIN : 0) |
                                     (FD_ISSET(fds[i].fd, &writable) ? POLLOUT : 0));
    return ready;
}

int await_fds(struct pollfd *fds, size_t len, int timeout_ms) {
    int ready = poll(fds, (nfds_t)len, timeout_ms);
    return ready < 0 && errno == EINVAL ? select_instead(fds, len, timeout_ms) : ready;
}
