/* HTTP authorisation of `holdfast serve`: the Host and Origin headers, the token, and which requests
 * need it: on loopback, reading does not.
 *
 * Any page in a browser can make it send requests to this machine. Two things keep such a page from
 * reading the answers. It has another origin, so the browser withholds them. And a hostile name
 * that resolves to this machine (DNS rebinding) appears in Host, where only our own names are
 * accepted. An address needs no resolver, so it cannot be rebound.
 *
 * Stateless. */
#include "serve/http.h"

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

/* ---- The token ------------------------------------------------------------------------------- */

/* Why the file is not private; NULL: it is. */
static const char *not_private(int fd) {
    struct stat about;
    if (fstat(fd, &about) != 0)
        return strerror(errno);
    if (!S_ISREG(about.st_mode))
        return "it is not a regular file";
    if (about.st_uid != geteuid() && about.st_uid != 0)
        return "it belongs to another user";
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
            return "its first line contains blanks or non-ASCII characters";
    return NULL;
}

/* Reads the whole first line or fails: a truncated token would be weaker. */
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
        return usage_error("serve", "cannot use the token file %s: %s", path, wrong);
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

/* ---- Host and Origin ------------------------------------------------------------------------- */

/* Whether the rest after a host is empty or a port. */
static bool is_port(const char *text) {
    size_t digits = text[0] == ':' ? strspn(text + 1, "0123456789") : 0;
    return text[0] == '\0' ||
           (digits > 0 && text[digits + 1] == '\0' && digits <= 5 && atoi(text + 1) <= UINT16_MAX);
}

/* Extracts the host, without port and brackets; false: invalid. Only a port may follow it, and
 * nothing may precede it: in a URL "127.0.0.1:1@evil" names another host. */
static bool host_part(const char *text, char *host, size_t size, bool *ret_bracketed) {
    const char *end = text + strcspn(text, ":"), *rest = end;
    *ret_bracketed = text[0] == '[';
    if (*ret_bracketed) {
        end = strchr(++text, ']');
        if (end == NULL)
            return false;
        rest = end + 1;
    }
    size_t len = (size_t)(end - text);
    if (len == 0 || len >= size || !is_port(rest))
        return false;
    snprintf(host, size, "%.*s", (int)len, text);
    return true;
}

static bool is_address(const char *host, bool bracketed, bool *ret_loopback) {
    struct in_addr v4;
    struct in6_addr v6;
    if (!bracketed && inet_pton(AF_INET, host, &v4) == 1) {
        *ret_loopback = ntohl(v4.s_addr) >> 24 == 127;
        return true;
    }
    if (bracketed && inet_pton(AF_INET6, host, &v6) == 1) {
        *ret_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
        return true;
    }
    return false;
}

bool host_is_ours(const struct listener *listener, const struct serve_settings *settings,
                  const char *host) {
    char name[256];
    bool loopback = false, bracketed;
    if (host == NULL || !host_part(host, name, sizeof name, &bracketed))
        return false;
    if (is_address(name, bracketed, &loopback) && (loopback || !listener->loopback))
        return true;
    if (bracketed) /* only an address may have brackets */
        return strchr(name, ':') != NULL && strcasecmp(name, listener->host) == 0;
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

/* ---- Requests -------------------------------------------------------------------------------- */

/* If we listen beyond loopback, everything except the static page files needs the token. */
bool request_may_read(const struct request *request) {
    const struct serve *serve = request->serve;
    return serve->token == NULL || serve->listener.loopback ||
           token_matches(serve->token, request_header(request, MHD_HTTP_HEADER_AUTHORIZATION));
}

/* Browsers mark requests that a page of another site caused. Such a page would not get the answer,
 * but we would still run a survey for it, and its timing leaks information. */
bool request_is_foreign(const struct request *request) {
    const char *site = request_header(request, "Sec-Fetch-Site");
    return site != NULL && (strcmp(site, "cross-site") == 0 || strcmp(site, "same-site") == 0);
}

/* Besides the token, a break needs our own Origin and a custom header, so that only our page can
 * request it. */
const char *request_may_not_break(const struct request *request, unsigned *ret_status) {
    const char *mark = request_header(request, "X-Holdfast-Break");
    *ret_status = MHD_HTTP_UNAUTHORIZED;
    if (!token_matches(request->serve->token,
                       request_header(request, MHD_HTTP_HEADER_AUTHORIZATION)))
        return "breaking a lock requires the token";
    *ret_status = MHD_HTTP_FORBIDDEN;
    if (!origin_is_host(request_header(request, MHD_HTTP_HEADER_ORIGIN),
                        request_header(request, MHD_HTTP_HEADER_HOST)))
        return "breaks are accepted from this server's own page only";
    if (mark == NULL || strcmp(mark, "yes") != 0)
        return "breaking a lock requires the header X-Holdfast-Break: yes";
    return NULL;
}

/* ---- Names in paths -------------------------------------------------------------------------- */

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
