/*
 * Waiting for descriptors when the process may open none: as poll() does it otherwise.
 */
#include "base/poll.h"

#include "support/case.h"
#include "support/wait.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define HIGH 1500 /* more than a fd_set has room for */

static struct rlimit before;

static void limit_to(rlim_t most) {
    struct rlimit limit = {.rlim_cur = most, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static int remember_limit(void **state) {
    (void)state;
    return getrlimit(RLIMIT_NOFILE, &before);
}

static void try_pair(int near, int far, rlim_t most) {
    struct pollfd fds[] = {{.fd = -1, .events = POLLIN},
                           {.fd = near, .events = POLLIN},
                           {.fd = far, .events = POLLIN | POLLOUT}};
    sigset_t none;
    sigemptyset(&none);
    limit_to(most);
    assert_int_equal(hfi_poll(fds, 3, 0, NULL), 1); /* it can be written to */
    assert_int_equal(fds[1].revents, 0);
    assert_int_equal(fds[2].revents, POLLOUT);
    int64_t start_ms = now_ms();
    fds[2].events = POLLIN;
    assert_int_equal(hfi_poll(fds, 3, 50, NULL), 0);
    assert_int_equal(hfi_poll(fds, 3, 50, &none), 0);
    assert_true(now_ms() - start_ms >= 99); /* on another clock */
    assert_int_equal(write(far, "x", 1), 1);
    assert_int_equal(hfi_poll(fds, 3, -1, &none), 1);
    assert_int_equal(fds[0].revents, 0);
    assert_int_equal(fds[1].revents, POLLIN);
    assert_int_equal(fds[2].revents, 0);
    char byte;
    assert_int_equal(read(near, &byte, 1), 1);
    limit_to(before.rlim_cur);
}

CASE(the_limit_does_not_matter) {
    static const rlim_t limits[] = {0, 1, 2, 3};
    int pair[2], high = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    if (before.rlim_cur > HIGH)
        high = fcntl(pair[1], F_DUPFD_CLOEXEC, HIGH);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        try_pair(pair[0], pair[1], limits[i]);
        if (high >= 0)
            try_pair(pair[0], high, limits[i]);
    }
    close(pair[0]);
    close(pair[1]);
    close(high);
}

/* It fails, but not at once. */
CASE(a_bad_descriptor_is_no_reason_to_spin) {
    struct pollfd fd = {.fd = 1000, .events = POLLIN};
    int64_t start_ms = now_ms();
    limit_to(0);
    int rounds = 0;
    for (; now_ms() < start_ms + 100; rounds++)
        if (hfi_poll(&fd, 1, -1, NULL) >= 0)
            break;
    limit_to(before.rlim_cur);
    assert_true(rounds <= 11);
}

RUN_CASES(remember_limit, NULL)
