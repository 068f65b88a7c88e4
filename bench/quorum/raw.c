/*
 * The floor of a quorum: the library's own scripts over a bare socket to each server, all sent at once,
 * back when a majority has answered. Answers that come later are read with those of the next command.
 * One thread, no deadline, no hold, no renewal.
 */
#include "bench/quorum/worker.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct pollfd fds[SERVERS_MAX];
static int lines_to_come[SERVERS_MAX]; /* of answers */
static size_t servers;
static char acquire[512], release[512];
static size_t acquire_len, release_len;

void raw_open(const struct plan *plan, const char *name) {
    const char *owner = "00000000-0000-4000-8000-000000000000:1";
    servers = plan->ports_len;
    for (size_t i = 0; i < servers; i++) {
        struct bench bench = {.port = plan->ports[i]};
        load_scripts(&bench);
        fds[i] = (struct pollfd){.fd = connect_to(&bench), .events = POLLIN};
        lines_to_come[i] = 0;
    }
    acquire_len = format_acquire(acquire, sizeof acquire, name, owner);
    release_len = format_release(release, sizeof release, name, owner);
}

void raw_close(void) {
    for (size_t i = 0; i < servers; i++)
        close(fds[i].fd);
}

static void read_answers(size_t i) {
    char bytes[512];
    ssize_t got = recv(fds[i].fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0)
        die("recv: %s", got == 0 ? "the server has closed" : strerror(errno));
    for (ssize_t at = 0; at < got; at++) {
        if (bytes[at] == '-')
            die("unexpected answer: %.*s", (int)(got - at), bytes + at);
        lines_to_come[i] -= bytes[at] == '\n';
    }
}

/* Sends it to all, and returns when more than half have answered it. */
static void ask(const char *command, size_t len) {
    size_t answered = 0;
    for (size_t i = 0; i < servers; i++) {
        if (send(fds[i].fd, command, len, MSG_NOSIGNAL) != (ssize_t)len)
            die("send: %s", strerror(errno));
        lines_to_come[i] += BENCH_REPLY_LINES;
    }
    while (answered <= servers / 2) {
        if (poll(fds, servers, -1) < 0)
            die("poll: %s", strerror(errno));
        answered = 0;
        for (size_t i = 0; i < servers; i++) {
            if (fds[i].revents != 0)
                read_answers(i);
            answered += lines_to_come[i] <= 0;
        }
    }
}

void raw_acquire(void) {
    ask(acquire, acquire_len);
}

void raw_release(void) {
    ask(release, release_len);
}
