/*
 * A server that is far away: whatever arrives at one port goes on to another so much later, in both
 * directions. One thread; what is on its way waits in a list in the order of its coming.
 */
#include "bench/quorum/worker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS_MAX 256

struct packet {
    struct packet *next;
    int64_t due_us;
    size_t pair;
    unsigned age; /* of the pair's place, which may be another's by then */
    int side;     /* where it goes to */
    size_t len;
    char bytes[];
};

static struct pollfd fds[1 + 2 * PAIRS_MAX]; /* the listener, then both ends of each pair */
static unsigned ages[PAIRS_MAX];
static size_t pairs;
static struct packet *first, **last = &first;

static int *end_of(size_t pair, int side) {
    return &fds[1 + 2 * pair + (size_t)side].fd;
}

static void close_pair(size_t pair) {
    for (int side = 0; side < 2; side++) {
        if (*end_of(pair, side) >= 0)
            close(*end_of(pair, side));
        *end_of(pair, side) = -1;
    }
}

static int listen_at(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 64) != 0)
        die("port %d: %s", port, strerror(errno));
    return fd;
}

/* One whose connections are closed, or one more. */
static size_t free_pair(void) {
    for (size_t pair = 0; pair < pairs; pair++)
        if (*end_of(pair, 0) < 0)
            return pair;
    if (pairs == PAIRS_MAX)
        die("too many connections");
    return pairs++;
}

static void add_pair(int to_port) {
    struct bench bench = {.port = to_port};
    int fd = accept(fds[0].fd, NULL, NULL), on = 1;
    if (fd < 0)
        return;
    size_t pair = free_pair();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ages[pair]++;
    fds[1 + 2 * pair] = (struct pollfd){.fd = fd, .events = POLLIN};
    fds[2 + 2 * pair] = (struct pollfd){.fd = connect_to(&bench), .events = POLLIN};
}

static void take(size_t pair, int side, int ms) {
    char bytes[16384];
    ssize_t got = recv(*end_of(pair, side), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0) {
        close_pair(pair);
        return;
    }
    struct packet *packet = malloc(sizeof *packet + (size_t)got);
    if (packet == NULL)
        die("out of memory");
    *packet = (struct packet){.due_us = now_ns() / 1000 + (int64_t)ms * 1000,
                              .pair = pair,
                              .age = ages[pair],
                              .side = 1 - side,
                              .len = (size_t)got};
    memcpy(packet->bytes, bytes, (size_t)got);
    *last = packet;
    last = &packet->next;
}

static void deliver_due(void) {
    while (first != NULL && first->due_us <= now_ns() / 1000) {
        struct packet *packet = first;
        first = packet->next;
        if (first == NULL)
            last = &first;
        int fd = *end_of(packet->pair, packet->side);
        bool same = fd >= 0 && packet->age == ages[packet->pair];
        if (same && send(fd, packet->bytes, packet->len, MSG_NOSIGNAL) != (ssize_t)packet->len)
            close_pair(packet->pair);
        free(packet);
    }
}

static void wait_for_notification(void) {
    int64_t wait_us = first != NULL ? first->due_us - now_ns() / 1000 : 1000000;
    struct timespec timeout = {.tv_nsec = (wait_us > 0 ? wait_us : 0) % 1000000 * 1000};
    timeout.tv_sec = wait_us >= 1000000 ? 1 : 0;
    ppoll(fds, 1 + 2 * pairs, &timeout, NULL);
}

_Noreturn void relay(int from_port, int to_port, int ms) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fds[0] = (struct pollfd){.fd = listen_at(from_port), .events = POLLIN};
    for (;;) {
        wait_for_notification();
        size_t old = pairs;
        for (size_t i = 0; i < 2 * old; i++)
            if (fds[1 + i].fd >= 0 && fds[1 + i].revents != 0)
                take(i / 2, (int)(i % 2), ms);
        if (fds[0].revents != 0)
            add_pair(to_port);
        deliver_due();
    }
}
