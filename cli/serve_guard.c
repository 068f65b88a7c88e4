/*
 * Who may ask `holdfast serve` what: the Host a request is for, the Origin it comes from, and the token.
 *
 * A browser can be made to send requests to this machine by any page it shows. Two things keep such a page
 * from reading anything here: it is of another origin, so it does not get the answers; and a name of its own
 * that it lets point to this machine ("DNS rebinding") would be in Host, where only our own names are taken.
 * An address needs no name server and cannot be rebound.
 *
 * Stateless.
 */
#include "serve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOKEN_LEAST 16
#define TOKEN_MOST 1024

/* ---- The token ------------------------------------------------------------------------------------ */

/* What speaks against the file; NULL: nothing. */
static const char *not_private(int fd) {
    struct stat about;
    if (fstat(fd, &about) != 0)
        return strerror(errno);
    if (!S_ISREG(about.st_mode))
        return "it is no regular file";
    if (about.st_uid != geteuid() && about.st_uid != 0)
        return "it belongs to somebody else";
    if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        return "others may read or write it: chmod 600";
    return NULL;
}

static const char *unfit(const char *token) {
    size_t len = strlen(token);
    if (len < TOKEN_LEAST)
        return "its first line is too short for a secret: 16 characters at least";
    for (size_t i = 0; i < len; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return "its first line has blanks, or what is no ASCII, in it";
    return NULL;
}

/* Whole or not at all: a token that was cut would be a weaker one. */
static const char *read_line(int fd, char *line, size_t size) {
    size_t len = 0;
    ssize_t n;
    while (len < size - 1 && (n = read(fd, line + len, size - 1 - len)) != 0) {
        if (n < 0 && errno != EINTR)
            return strerror(errno);
        len += n > 0 ? (size_t)n : 0;
    }
    line[len] = '\0';
    size_t end = strcspn(line, "\r\n");
    if (end == size - 1)
        return "its first line is too long";
    line[end] = '\0';
    return unfit(line);
}

int token_read(const char *path, char **ret_token) {
    char line[TOKEN_MOST + 2];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const char *wrong = fd < 0 ? strerror(errno) : not_private(fd);
    if (wrong == NULL)
        wrong = read_line(fd, line, sizeof line);
    if (fd >= 0)
        close(fd);
    if (wrong != NULL)
        return usage_error("serve", "the token file %s cannot be used: %s", path, wrong);
    *ret_token = strdup(line);
    explicit_bzero(line, sizeof line);
    return *ret_token != NULL ? 0 : STATUS_OS;
}

bool token_matches(const char *token, const char *authorization) {
    static const char scheme[] = "Bearer ";
    if (authorization == NULL || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *given = authorization + sizeof scheme - 1;
    size_t len = strlen(given), wanted = strlen(token);
    volatile unsigned char differs = len != wanted;
    for (size_t i = 0; i < len; i++)
        differs |= (unsigned char)(given[i] ^ token[i % wanted]);
    return differs == 0;
}

/* ---- Host and Origin -------------------------------------------------------------------------------- */

/* The host without port and brackets; false: that is none. */
static bool host_part(const char *text, char *host, size_t size) {
    const char *end = text + strcspn(text, ":");
    if (text[0] == '[') {
        end = strchr(++text, ']');
        if (end == NULL)
            return false;
    }
    size_t len = (size_t)(end - text);
    if (len == 0 || len >= size)
        return false;
    snprintf(host, size, "%.*s", (int)len, text);
    return true;
}

static bool is_address(const char *host, bool *ret_loopback) {
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, host, &v4) == 1) {
        *ret_loopback = ntohl(v4.s_addr) >> 24 == 127;
        return true;
    }
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        *ret_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
        return true;
    }
    return false;
}

bool host_is_ours(const struct listener *listener, const struct serve_settings *settings,
                  const char *host) {
    char name[256];
    bool loopback = false;
    if (host == NULL || !host_part(host, name, sizeof name))
        return false;
    if (is_address(name, &loopback) && (loopback || !listener->loopback))
        return true;
    if (strcasecmp(name, "localhost") == 0 || strcasecmp(name, listener->host) == 0)
        return true;
    for (size_t i = 0; i < settings->host_names_len; i++)
        if (strcasecmp(name, settings->host_names[i]) == 0)
            return true;
    return false;
}

bool origin_is_host(const char *origin, const char *host) {
    const char *mark = origin != NULL ? strstr(origin, "://") : NULL;
    return mark != NULL && host != NULL && strcasecmp(mark + 3, host) == 0;
}

/* ---- Names in paths ------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

long percent_decode(char *text) {
    char *out = text;
    for (const char *in = text; *in != '\0'; in++) {
        if (*in != '%') {
            *out++ = *in;
            continue;
        }
        int high = hex_digit(in[1]), low = high >= 0 ? hex_digit(in[2]) : -1;
        if (low < 0 || high + low == 0)
            return -1;
        *out++ = (char)(high << 4 | low);
        in += 2;
    }
    *out = '\0';
    return out - text;
}
