/* The checks of `holdfast doctor` for ZooKeeper: from the session and the ensemble's configuration
 * (hf_server_info), and from each server's answer to the four-letter word "srvr". Servers answer it
 * unless their 4lw.commands.whitelist forbids it.
 *
 * Called on the main thread. A four-letter word takes one connection, which the server closes; it
 * sends no password. The TLS port answers it over TLS. */
#include "doctor/doctor.h"
#include "doctor/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT "2181"
#define SERVERS_MAX 32

/* ---- Four-letter words ----------------------------------------------------------------------- */

static bool await(int fd, short events, int64_t end_ms) {
    struct pollfd one = {.fd = fd, .events = events};
    int64_t left_ms = end_ms - now_ms();
    return left_ms > 0 && poll(&one, 1, (int)left_ms) == 1;
}

/* Returns a descriptor, or -1. */
static int connect_to(const struct addrinfo *address, int64_t end_ms) {
    int failed = 0;
    socklen_t len = sizeof failed;
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    bool open = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ||
                (errno == EINPROGRESS && await(fd, POLLOUT, end_ms) &&
                 getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) == 0 && failed == 0);
    if (open)
        return fd;
    close(fd);
    return -1;
}

static size_t read_all(int fd, char *text, size_t size, int64_t end_ms) {
    size_t len = 0;
    while (len + 1 < size && await(fd, POLLIN, end_ms)) {
        ssize_t more = recv(fd, text + len, size - 1 - len, 0);
        if (more <= 0 && !(more < 0 && (errno == EAGAIN || errno == EINTR)))
            break;
        len += more > 0 ? (size_t)more : 0;
    }
    text[len] = '\0';
    return len;
}

/* Gets a server's answer by `end_ms`; false: none. If `options` is not NULL, over TLS. */
static bool ask_word(const char *host, const char *port, const hf_options *options, int64_t end_ms,
                     char *text, size_t size) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    int fd = -1;
    if (getaddrinfo(host, port, &hints, &all) != 0)
        return false;
    for (const struct addrinfo *one = all; one != NULL && fd < 0; one = one->ai_next)
        fd = connect_to(one, end_ms);
    freeaddrinfo(all);
    if (fd < 0)
        return false;
    bool answered =
        options != NULL
            ? tls_ask_word(fd, options, host, "srvr", text, size, end_ms) > 0
            : send(fd, "srvr", 4, MSG_NOSIGNAL) == 4 && read_all(fd, text, size, end_ms) > 0;
    close(fd);
    return answered;
}

/* ---- The servers ----------------------------------------------------------------------------- */

struct ensemble {
    int64_t limit_ms; /* for one server's answer, perhaps including a TLS handshake */
    int asked, answered;
    int serving, leading, standalone, closed; /* closed: the word is not allowed there */
    char version[32];                         /* the oldest */
};

/* Extracts "3.9.4" from "Zookeeper version: 3.9.4-7246445..., built on". */
static void note_version(struct ensemble *ensemble, const char *text) {
    static const char mark[] = "version: ";
    const char *at = strstr(text, mark);
    if (at == NULL)
        return;
    at += strlen(mark);
    char version[sizeof ensemble->version];
    snprintf(version, sizeof version, "%.*s", (int)strspn(at, "0123456789."), at);
    if (ensemble->version[0] == '\0' || strverscmp(version, ensemble->version) < 0)
        snprintf(ensemble->version, sizeof ensemble->version, "%s", version);
}

static void check_server(struct findings *findings, struct ensemble *ensemble, const char *host,
                         const char *port, const hf_options *options) {
    char text[4096];
    ensemble->asked++;
    if (!ask_word(host, port, options, now_ms() + ensemble->limit_ms, text, sizeof text)) {
        finding_add(findings, VERDICT_WARNING, "ensemble",
                    "the others suffice while they are more than half", "%s:%s does not answer",
                    host, port);
        return;
    }
    ensemble->answered++;
    note_version(ensemble, text);
    bool leads = strstr(text, "Mode: leader") != NULL,
         alone = strstr(text, "Mode: standalone") != NULL;
    ensemble->leading += leads;
    ensemble->standalone += alone;
    ensemble->serving += strstr(text, "Mode: ") != NULL;
    ensemble->closed += strstr(text, "whitelist") != NULL;
    if (strstr(text, "not currently serving") != NULL)
        finding_add(findings, VERDICT_BAD, "ensemble",
                    "check its log, and whether it reaches the others",
                    "%s:%s has no quorum, and serves no clients", host, port);
}

/* The next of "host[:port],[v6]:port/..."; false: no more. */
static bool next_host(const char **list, char *host, size_t host_size, char *port,
                      size_t port_size) {
    if (**list == '\0' || **list == '/' || **list == '?')
        return false;
    const char *at = *list;
    size_t len = strcspn(at, ",/?");
    bool bracketed = *at == '[' && memchr(at, ']', len) != NULL;
    size_t host_len = bracketed ? strcspn(at, "]") - 1 : strcspn(at, ":,/?");
    const char *behind = at + host_len + (bracketed ? 2 : 0);
    snprintf(host, host_size, "%.*s", (int)host_len, at + bracketed);
    snprintf(port, port_size, "%s", PORT);
    if (*behind == ':')
        snprintf(port, port_size, "%.*s", (int)strcspn(behind + 1, ",/?"), behind + 1);
    *list += len + (at[len] == ',');
    return true;
}

static void ask_servers(struct findings *findings, const char *url, const hf_options *options,
                        struct ensemble *ensemble) {
    char host[256], port[8];
    struct tls_options own;
    const char *list = strstr(url, "://") + 3;
    const char *at = memrchr(list, '@', strcspn(list, "/?"));
    list = at != NULL ? at + 1 : list;
    tls_options_of(&own, options, url);
    while (ensemble->asked < SERVERS_MAX && next_host(&list, host, sizeof host, port, sizeof port))
        check_server(findings, ensemble, host, port, url_has_tls(url) ? &own.options : NULL);
    tls_options_clear(&own);
}

/* ---- The checks ------------------------------------------------------------------------------ */

static void check_version(struct findings *findings, const struct ensemble *ensemble) {
    const char *version = ensemble->version;
    if (version[0] == '\0')
        finding_add(findings, VERDICT_UNKNOWN, "version", NULL,
                    ensemble->asked > 0 && ensemble->answered == 0
                        ? "ZooKeeper; no server answered"
                        : "ZooKeeper; the servers hide their version");
    else if (strverscmp(version, "3.5") < 0)
        finding_add(findings, VERDICT_BAD, "version", "3.5 or newer is needed: update the servers",
                    "ZooKeeper %s", version);
    else
        finding_add(findings, VERDICT_OK, "version", NULL, "ZooKeeper %s", version);
}

/* Voting members of a configuration, with lines like "server.1=host:2888:3888:participant;2181". */
static int count_voters(const char *config) {
    int voters = 0;
    for (const char *line = config; line != NULL && *line != '\0';
         line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
        size_t len = strcspn(line, "\n");
        voters += strncmp(line, "server.", 7) == 0 && memmem(line, len, ":observer", 9) == NULL;
    }
    return voters;
}

/* `voters` is 0 if the configuration is unknown or has a single server. */
static void check_ensemble(struct findings *findings, const struct ensemble *ensemble, int voters) {
    bool known = ensemble->asked > ensemble->closed;
    bool alone = voters <= 1 && (ensemble->standalone > 0 || !known);
    bool weak = voters > 1 && ensemble->asked >= voters && ensemble->serving < voters &&
                ensemble->serving <= voters / 2 + 1;
    if (alone)
        finding_add(findings, VERDICT_OK, "ensemble", NULL,
                    "one server: while it is down, nothing can be locked");
    else if (!known)
        finding_add(findings, VERDICT_UNKNOWN, "ensemble", NULL,
                    "%d vote; the servers hide their state (4lw.commands.whitelist)", voters);
    else
        finding_add(findings, weak ? VERDICT_WARNING : VERDICT_OK, "ensemble",
                    weak ? "restart the missing servers: with one more down, nothing can be locked"
                         : NULL,
                    "%d of %d servers are up, %d of them leads; %d vote", ensemble->serving,
                    ensemble->asked, ensemble->leading, voters);
}

static void check_session(struct findings *findings, const hf_server_info *facts) {
    const hf_options options = HF_OPTIONS_INIT;
    int64_t granted_ms;
    if (!doctor_number(facts, "zk.session_ms", &granted_ms))
        return;
    bool less = granted_ms < options.watchdog_ms;
    finding_add(findings, less ? VERDICT_WARNING : VERDICT_OK, "session",
                less ? "raise maxSessionTimeout, or holds are lost that much sooner while "
                       "servers are down"
                     : NULL,
                "%" PRId64 ".%03d s are granted of %" PRId64 " s", granted_ms / 1000,
                (int)(granted_ms % 1000), options.watchdog_ms / 1000);
}

void doctor_judge_zk(struct findings *findings, const hf_server_info *facts, const char *url,
                     const hf_options *options) {
    struct ensemble ensemble = {.limit_ms = options->connect_timeout_ms};
    const char *config = doctor_fact(facts, "zk.config");
    if (!findings_skip(findings, "ensemble"))
        ask_servers(findings, url, options, &ensemble);
    check_version(findings, &ensemble);
    check_ensemble(findings, &ensemble, config != NULL ? count_voters(config) : 0);
    check_session(findings, facts);
    doctor_check_tls(findings, facts);
    finding_add(findings, VERDICT_OK, "others", NULL,
                "not checked on ZooKeeper: eviction, persistence, replicas, clock, buffers, "
                "timeout, clients, rights");
}
