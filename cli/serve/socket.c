/* The listening socket of `holdfast serve`. It is made here and not by libmicrohttpd, for better
 * error messages. Called once, before serving. */
#include "serve/serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define DEFAULT_HOST "127.0.0.1"
#define DEFAULT_PORT "7380"
#define BACKLOG 64

static bool all_digits(const char *text) {
    return *text != '\0' && strspn(text, "0123456789") == strlen(text);
}

/* Splits an address into host and port; false: invalid. Both buffers can hold any text that fits
 * into the first. */
static bool split(const char *text, char *host, size_t size, char *port, size_t port_size) {
    const char *colon = strrchr(text, ':');
    const char *end = text + strlen(text);
    snprintf(port, port_size, "%s", DEFAULT_PORT);
    if (text[0] == '[') {
        end = strchr(text, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return false;
        colon = end[1] == ':' ? end + 1 : NULL;
        text++;
    } else if (all_digits(text)) {
        snprintf(port, port_size, "%s", text);
        end = text;
    } else if (colon != NULL && strchr(text, ':') == colon) {
        end = colon;
    } else if (colon != NULL) {
        colon = NULL; /* an IPv6 address without brackets and port */
    }
    size_t len = (size_t)(end - text);
    if (len >= size || (colon != NULL && !all_digits(colon + 1)))
        return false;
    if (colon != NULL && *colon == ':')
        snprintf(port, port_size, "%s", colon + 1);
    long number;
    snprintf(host, size, "%.*s", len > 0 ? (int)len : (int)strlen(DEFAULT_HOST),
             len > 0 ? text : DEFAULT_HOST);
    return parse_number(port, 0, 65535, &number);
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool is_loopback(const union address *address) {
    if (address->any.sa_family == AF_INET)
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
    return address->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

/* Returns a listening socket, or -1 with errno. */
static int listen_at(const struct addrinfo *info) {
    const int on = 1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* Fills in the url and `loopback`; the kernel may have chosen the port. */
static int describe(struct listener *listener) {
    union address address = {.v6 = {0}};
    socklen_t len = sizeof address;
    char port[NI_MAXSERV] = "";
    if (getsockname(listener->fd, &address.any, &len) != 0 ||
        getnameinfo(&address.any, len, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0)
        return -1;
    listener->loopback = is_loopback(&address);
    bool v6 = strchr(listener->host, ':') != NULL;
    snprintf(listener->url, sizeof listener->url, "http://%s%s%s:%s/", v6 ? "[" : "",
             listener->host, v6 ? "]" : "", port);
    return 0;
}

int listener_open(const char *text, struct listener *ret) {
    struct listener listener = {.fd = -1};
    char port[8];
    if (!split(text, listener.host, sizeof listener.host, port, sizeof port))
        return usage_error("serve", "--listen: '%s' is not HOST:PORT", text);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *all = NULL;
    int code = getaddrinfo(listener.host, port, &hints, &all);
    if (code != 0) {
        say(LEVEL_ERROR, "cannot listen on %s: %s", text, gai_strerror(code));
        return STATUS_OS;
    }
    for (const struct addrinfo *info = all; info != NULL && listener.fd < 0; info = info->ai_next)
        listener.fd = listen_at(info);
    int saved = errno;
    freeaddrinfo(all);
    if (listener.fd < 0) {
        say(LEVEL_ERROR, "cannot listen on %s: %s", text, strerror(saved));
        return STATUS_OS;
    }
    if (describe(&listener) != 0) {
        say(LEVEL_ERROR, "cannot listen on %s: %s", text, strerror(errno));
        close(listener.fd);
        return STATUS_OS;
    }
    *ret = listener;
    return 0;
}
