/*
 * The proxy's sockets: the way to its server, a Unix socket or a port of the loopback interface;
 * and what comes and goes.
 *
 * Called by proxy_link.c, on the proxy's loop.
 */
#include "support/proxy_internal.h"
#include "support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* `flags` of the socket until it is connected. */
static int connect_to(const struct sockaddr *address, socklen_t size, int flags) {
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd < 0)
        support_die("socket: %s", strerror(errno));
    if (connect(fd, address, size) == 0 && fcntl(fd, F_SETFL, O_NONBLOCK) == 0)
        return fd;
    close(fd);
    return -1;
}

int proxy_reach(const struct proxy *proxy) {
    if (proxy->server_path == NULL) {
        struct sockaddr_in inet = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)proxy->server_port)};
        inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int fd = connect_to((struct sockaddr *)&inet, sizeof inet, 0);
        if (fd >= 0)
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        return fd;
    }
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    memcpy(local.sun_path, proxy->server_path, strlen(proxy->server_path) + 1);
    return connect_to((struct sockaddr *)&local, sizeof local, SOCK_NONBLOCK);
}

enum flow proxy_receive(int fd, struct bytes *into) {
    for (;;) {
        char chunk[65536];
        ssize_t n = recv(fd, chunk, sizeof chunk, 0);
        if (n > 0)
            bytes_append(into, chunk, (size_t)n);
        else if (n == 0)
            return FLOW_ENDED;
        else if (errno != EINTR)
            return errno == EAGAIN ? FLOW_OPEN : FLOW_RESET;
    }
}

enum flow proxy_transmit(int fd, struct bytes *from, size_t limit) {
    while (from->length > 0 && limit > 0) {
        ssize_t n = send(fd, from->data, from->length < limit ? from->length : limit, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? FLOW_OPEN : FLOW_RESET;
        bytes_consume(from, (size_t)n);
        limit -= (size_t)n;
    }
    return FLOW_OPEN;
}
