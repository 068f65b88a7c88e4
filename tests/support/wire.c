/*
 * The wire's loop and its controls; see wire.h, the manual.
 *
 * One thread polls and moves bytes; it holds the mutex except while it polls. A control changes a
 * field under the mutex, wakes the loop and waits for a whole pass, so that the change has been
 * carried out when it returns.
 */
#include "support/wire.h"

#include "support/sync.h"
#include "support/wait.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_LINKS = 256, CHUNK = 16384, PASS_LIMIT_MS = 30000 };

struct pipe_end {
    char bytes[CHUNK];
    size_t len;
};

struct wire_link {
    int client, server;
    struct pipe_end up, down; /* to the server, to the client */
    size_t delivered, limit;
    bool server_ended;
};

struct wire {
    struct sync sync;
    pthread_t thread;
    int listener, wake, port, server_port;
    struct wire_link *links[MAX_LINKS];
    size_t links_len;
    size_t cut_after, trickle, accepted, delivered;
    bool stall, flip, cut, stop;
    unsigned long pass_wanted, pass_done;
};

static int tcp_socket(int port, bool listening) {
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        support_die("wire: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    int rc = listening ? bind(fd, (struct sockaddr *)&inet, sizeof inet)
                       : connect(fd, (struct sockaddr *)&inet, sizeof inet);
    if (listening && (rc != 0 || listen(fd, 128) != 0))
        support_die("wire: %s", strerror(errno));
    if (rc != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static void free_link(struct wire_link *link) {
    if (link->client >= 0)
        close(link->client);
    if (link->server >= 0)
        close(link->server);
    free(link);
}

static void accept_all(struct wire *wire) {
    int fd;
    while ((fd = accept4(wire->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        wire->accepted++;
        struct wire_link *link = calloc(1, sizeof *link);
        if (link == NULL || wire->links_len == MAX_LINKS)
            support_die("wire: too many connections");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        link->client = fd;
        link->server = tcp_socket(wire->server_port, false);
        link->limit = wire->cut_after;
        wire->links[wire->links_len++] = link;
    }
}

/* False: that side has ended. */
static bool receive(int fd, struct pipe_end *end) {
    ssize_t got = recv(fd, end->bytes + end->len, CHUNK - end->len, MSG_DONTWAIT);
    if (got > 0)
        end->len += (size_t)got;
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

static size_t transmit(int fd, struct pipe_end *end, size_t most) {
    size_t len = end->len < most ? end->len : most;
    ssize_t sent = len > 0 ? send(fd, end->bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent <= 0)
        return 0;
    end->len -= (size_t)sent;
    memmove(end->bytes, end->bytes + sent, end->len);
    return (size_t)sent;
}

/* False: the connection has ended. */
static bool pump(struct wire *wire, struct wire_link *link) {
    size_t most = wire->trickle > 0 ? wire->trickle : CHUNK;
    if (wire->cut || link->server < 0)
        return false;
    if (wire->stall)
        return true;
    size_t before = link->down.len;
    if (link->up.len < CHUNK && !receive(link->client, &link->up))
        return false;
    if (!link->server_ended && link->down.len < CHUNK)
        link->server_ended = !receive(link->server, &link->down);
    if (wire->flip && link->down.len > before) {
        link->down.bytes[link->down.len - 1] ^= 1;
        wire->flip = false;
    }
    transmit(link->server, &link->up, most);
    if (link->limit > 0 && most > link->limit - link->delivered)
        most = link->limit - link->delivered;
    size_t sent = transmit(link->client, &link->down, most);
    link->delivered += sent;
    wire->delivered += sent;
    if (link->limit > 0 && link->delivered == link->limit)
        return false;
    return !(link->server_ended && link->down.len == 0);
}

static void make_pass(struct wire *wire) {
    accept_all(wire);
    for (size_t i = 0; i < wire->links_len;) {
        if (pump(wire, wire->links[i])) {
            i++;
            continue;
        }
        free_link(wire->links[i]);
        wire->links[i] = wire->links[--wire->links_len];
    }
    wire->cut = false;
    wire->pass_done = wire->pass_wanted;
    sync_changed(&wire->sync);
}

static nfds_t prepare_poll(const struct wire *wire, struct pollfd *fds, bool *ret_busy) {
    nfds_t n = 0;
    fds[n++] = (struct pollfd){.fd = wire->wake, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = wire->listener, .events = POLLIN};
    *ret_busy = false;
    for (size_t i = 0; i < wire->links_len && !wire->stall; i++) {
        const struct wire_link *link = wire->links[i];
        bool up = link->up.len > 0, down = link->down.len > 0;
        *ret_busy = *ret_busy || (wire->trickle > 0 && (up || down));
        fds[n++] = (struct pollfd){
            .fd = link->client,
            .events = (short)((link->up.len < CHUNK ? POLLIN : 0) | (down ? POLLOUT : 0))};
        fds[n++] = (struct pollfd){
            .fd = link->server_ended ? -1 : link->server,
            .events = (short)((link->down.len < CHUNK ? POLLIN : 0) | (up ? POLLOUT : 0))};
    }
    return n;
}

static void *loop(void *arg) {
    struct wire *wire = arg;
    struct pollfd fds[2 * MAX_LINKS + 2];
    sync_lock(&wire->sync);
    while (!wire->stop) {
        bool busy;
        make_pass(wire);
        nfds_t n = prepare_poll(wire, fds, &busy);
        sync_unlock(&wire->sync);
        if (busy)
            sched_yield(); /* so that a piece may be taken before the next one comes */
        poll(fds, n, busy ? 0 : -1);
        uint64_t wakes;
        if (read(wire->wake, &wakes, sizeof wakes) < 0 && errno != EAGAIN)
            support_die("wire: %s", strerror(errno));
        sync_lock(&wire->sync);
    }
    sync_unlock(&wire->sync);
    return NULL;
}

/* Locked, after a change. */
static void wait_for_pass(struct wire *wire) {
    unsigned long wanted = ++wire->pass_wanted;
    int64_t end_ms = now_ms() + PASS_LIMIT_MS;
    uint64_t one = 1;
    if (write(wire->wake, &one, sizeof one) < 0)
        support_die("wire: %s", strerror(errno));
    while (wire->pass_done < wanted)
        if (!sync_wait(&wire->sync, end_ms))
            support_die("wire: its thread hangs");
}

struct wire *wire_start(int port) {
    struct wire *wire = zeroed(1, sizeof *wire);
    struct sockaddr_in inet = {0};
    socklen_t size = sizeof inet;
    sync_init(&wire->sync);
    wire->server_port = port;
    wire->listener = tcp_socket(0, true);
    if (getsockname(wire->listener, (struct sockaddr *)&inet, &size) != 0)
        support_die("wire: %s", strerror(errno));
    wire->port = ntohs(inet.sin_port);
    if (fcntl(wire->listener, F_SETFL, O_NONBLOCK) != 0)
        support_die("wire: %s", strerror(errno));
    wire->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    wire->thread = sync_thread(loop, wire);
    return wire;
}

void wire_free(struct wire *wire) {
    if (wire == NULL)
        return;
    sync_lock(&wire->sync);
    wire->stop = true;
    uint64_t one = 1;
    if (write(wire->wake, &one, sizeof one) < 0)
        support_die("wire: %s", strerror(errno));
    sync_unlock(&wire->sync);
    pthread_join(wire->thread, NULL);
    for (size_t i = 0; i < wire->links_len; i++)
        free_link(wire->links[i]);
    close(wire->listener);
    close(wire->wake);
    sync_destroy(&wire->sync);
    free(wire);
}

int wire_port(const struct wire *wire) {
    return wire->port;
}

static void set_size(struct wire *wire, size_t *field, size_t value) {
    sync_lock(&wire->sync);
    *field = value;
    wait_for_pass(wire);
    sync_unlock(&wire->sync);
}

static void set_flag(struct wire *wire, bool *field, bool value) {
    sync_lock(&wire->sync);
    *field = value;
    wait_for_pass(wire);
    sync_unlock(&wire->sync);
}

void wire_cut_after(struct wire *wire, size_t bytes) {
    set_size(wire, &wire->cut_after, bytes);
}

void wire_trickle(struct wire *wire, size_t bytes) {
    set_size(wire, &wire->trickle, bytes);
}

void wire_stall(struct wire *wire, bool stall) {
    set_flag(wire, &wire->stall, stall);
}

void wire_flip_next(struct wire *wire) {
    set_flag(wire, &wire->flip, true);
}

void wire_cut_all(struct wire *wire) {
    set_flag(wire, &wire->cut, true);
}

size_t wire_connections(struct wire *wire) {
    sync_lock(&wire->sync);
    size_t accepted = wire->accepted;
    sync_unlock(&wire->sync);
    return accepted;
}

size_t wire_delivered(struct wire *wire) {
    sync_lock(&wire->sync);
    size_t delivered = wire->delivered;
    sync_unlock(&wire->sync);
    return delivered;
}
