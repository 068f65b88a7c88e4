/*
 * The life of a private server: configuration, start, stop, freeze, restart; see server.h, the
 * manual.
 *
 * Called by tests. The process itself is a child of the supervisor (supervisor.c). `pid` and the paths
 * belong to the process that called server_start; its threads do not start and stop one server at
 * the same time.
 *
 * Invariants: the socket's path and the port stay the same over restarts. The directory is the
 * server's alone, so a PING that is answered on its socket is answered by this server. Without
 * `aof` nothing is ever written to disk, so a restarted server is empty.
 */
#include "support/server.h"

#include "support/proxy.h"
#include "support/server_internal.h"
#include "support/supervisor.h"
#include "support/wait.h"
#include "support/zk_client.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { READY_LIMIT_MS = 60000, STOP_TIMEOUT_MS = 30000, PORT_TRIES = 50, PICK_TRIES = 100 };

static char *format(const char *template, const char *a, const char *b, const char *c) {
    char *text = NULL;
    if (asprintf(&text, template, a, b, c) < 0)
        support_die("out of memory");
    return text;
}

const char *server_program(void) {
    const char *override = getenv("HF_TEST_SERVER");
    return override != NULL && override[0] != '\0' ? override : "redis-server";
}

/* 702 is 7.2. */
static int server_version(void) {
    static atomic_int known = -1;
    int major, minor;
    if (known >= 0)
        return known;
    char *line = format("'%s' --version 2>/dev/null", server_program(), NULL, NULL);
    FILE *pipe = popen(line, "r");
    free(line);
    char text[256] = "";
    if (pipe == NULL || fgets(text, sizeof text, pipe) == NULL)
        support_die("%s cannot be run; is it installed?", server_program());
    pclose(pipe);
    const char *version = strstr(text, "v=");
    if (version == NULL || sscanf(version, "v=%d.%d", &major, &minor) != 2)
        support_die("%s does not say which version it is", server_program());
    known = 100 * major + minor;
    return known;
}

bool server_is_7(void) {
    return server_version() >= 700;
}

bool server_has_shard_ids(void) {
    return server_version() >= 702;
}

static void write_config(const struct server *server, const struct server_options *options) {
    FILE *file = fopen(server->config_path, "we");
    if (file == NULL)
        support_die("%s: %s", server->config_path, strerror(errno));
    fprintf(file, "dir %s\nunixsocket %s\nunixsocketperm 700\n", server->dir, server->socket);
    fprintf(file, "bind 127.0.0.1\n%s %d\n", server->tls ? "port 0\ntls-port" : "port",
            server->port);
    fprintf(file, "daemonize no\nsave \"\"\n");
    fprintf(file, "appendonly %s\nappendfsync always\n", options->aof ? "yes" : "no");
    /* DEBUG and CONFIG SET dir must be allowed by name. */
    if (server_is_7())
        fprintf(file, "enable-debug-command yes\nenable-protected-configs yes\n"
                      "enable-module-command yes\n");
    if (options->password != NULL) {
        own_text *quoted = support_escape(options->password, "\\x");
        fprintf(file, "requirepass \"%s\"\n", quoted);
    }
    for (size_t i = 0; options->config != NULL && options->config[i] != NULL; i++)
        fprintf(file, "%s\n", options->config[i]);
    if (fclose(file) != 0)
        support_die("%s: %s", server->config_path, strerror(errno));
}

static bool is_free(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool free_port = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0)
        close(fd);
    return free_port;
}

/* Until this process ends no other test picks that port: they all bind a name for it that is nowhere but in
 * the kernel, and goes with the caller that has it. */
static bool reserve(int port) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int len = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "holdfast-test-port-%d", port);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
    bool reserved = fd >= 0 && bind(fd, (struct sockaddr *)&name, size) == 0;
    if (fd >= 0 && !reserved)
        close(fd);
    return reserved;
}

/* Below the range that the kernel hands out to outgoing connections, so that none of those can take it while
 * the server is down between stop and restart; and no other test does. */
int server_pick_port(void) {
    static atomic_uint turn;
    for (int tries = 0; tries < PICK_TRIES; tries++) {
        struct timespec ts;
        clock_gettime(CLOCK_BOOTTIME, &ts);
        unsigned seed =
            (unsigned)getpid() * 7919u + (unsigned)(ts.tv_nsec / 1000) + turn++ * 104729u;
        int port = (int)(10000 + seed % 22000);
        if (reserve(port) && is_free(port))
            return port;
    }
    support_die("no port is free");
}

static void set_urls(struct server *server) {
    own_text *quoted = server->password != NULL ? support_escape(server->password, "%") : NULL;
    own_text *userinfo = quoted != NULL ? format(":%s@", quoted, NULL, NULL) : strdup("");
    char port[16];
    snprintf(port, sizeof port, "%d", server->port);
    free(server->url);
    free(server->tcp_url);
    server->url = format("unix://%s%s", userinfo, server->socket, NULL);
    server->tcp_url = format("redis%s://%s127.0.0.1:%s", server->tls ? "s" : "", userinfo, port);
}

static void die_with_log(const struct server *server, const char *what) {
    FILE *file = fopen(server->log_path, "re");
    char line[512];
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        fprintf(stderr, "| %s", line);
    support_die("%s %s; its log is above", server_program(), what);
}

struct readiness {
    struct server *server;
    bool ended, ready;
};

static bool is_ready_or_ended(void *arg) {
    struct readiness *state = arg;
    if (!supervisor_running(state->server->pid)) {
        state->ended = true;
        return true;
    }
    redisReply *reply = cmd(state->server, "PING");
    state->ready = reply != NULL && reply->type == REDIS_REPLY_STATUS; /* else LOADING */
    if (reply != NULL)
        freeReplyObject(reply);
    return state->ready;
}

/* False when the server has ended by itself, as it does when its port is taken. */
static bool becomes_ready(struct server *server) {
    struct readiness state = {.server = server};
    if (!wait_until(is_ready_or_ended, &state, READY_LIMIT_MS))
        die_with_log(server, "does not get ready");
    return !state.ended;
}

static void launch(struct server *server) {
    const char *argv[] = {server_program(), server->config_path, NULL};
    server_forget_connection(server);
    server->pid = supervisor_spawn(server->log_path, argv);
}

static void start_on_some_port(struct server *server, const struct server_options *options) {
    for (int tries = 0; tries < PORT_TRIES; tries++) {
        server->port = options->tcp ? server_pick_port() : 0;
        set_urls(server);
        write_config(server, options);
        launch(server);
        if (becomes_ready(server))
            return;
        if (!options->tcp)
            break;
    }
    die_with_log(server, "ended instead of getting ready");
}

static bool wants_zookeeper(void) {
    const char *engine = getenv("HF_TEST_ENGINE");
    return engine != NULL && strcmp(engine, "zk") == 0;
}

struct server *server_start(const struct server_options *options) {
    static const struct server_options defaults;
    if (options == NULL)
        options = &defaults;
    struct server *server = zeroed(1, sizeof *server);
    sync_init(&server->helper);
    server->owner = server->helper_pid = getpid();
    server->dir = temp_dir();
    server->config_path = format("%s/redis.conf", server->dir, NULL, NULL);
    server->log_path = format("%s/log", server->dir, NULL, NULL);
    server->socket = format("%s/s", server->dir, NULL, NULL);
    server->tls = options->tls;
    server->keeps_data = options->aof;
    server->password = options->password != NULL ? strdup(options->password) : NULL;
    start_on_some_port(server, options);
    if (wants_zookeeper()) {
        static const char *const config[] = {"maxSessionTimeout=60000", NULL};
        zk_need();
        server->zk = zk_start(&(struct zk_options){.config = config});
    }
    return server;
}

static void check_owner(const struct server *server) {
    if (server->owner != getpid())
        support_die("only the process that started a server may stop, start or free it");
}

static void end(struct server *server, int signal_number) {
    check_owner(server);
    if (server->pid == 0)
        return;
    supervisor_end(server->pid, signal_number, STOP_TIMEOUT_MS);
    server->pid = 0;
    server_forget_connection(server);
}

static void end_zookeeper(struct server *server) {
    if (server->zk == NULL)
        return;
    zk_kill(server->zk);
    zk_client_close(server->eyes);
    server->eyes = NULL;
}

void server_kill(struct server *server) {
    end(server, SIGKILL);
    end_zookeeper(server);
}

void server_stop(struct server *server) {
    end(server, SIGTERM);
    end_zookeeper(server);
}

void server_relaunch(struct server *server) {
    server_kill(server);
    launch(server);
}

void server_wait_ready(struct server *server) {
    if (!becomes_ready(server))
        die_with_log(server, "ended instead of getting ready");
}

void server_restart(struct server *server) {
    server_relaunch(server);
    server_wait_ready(server);
    if (server->zk != NULL && server->keeps_data)
        zk_restart(server->zk);
    else if (server->zk != NULL)
        zk_restart_empty(server->zk);
}

void server_freeze(struct server *server) {
    check_owner(server);
    stop_process(server->pid);
    if (server->zk != NULL)
        zk_freeze(server->zk);
}

void server_unfreeze(struct server *server) {
    check_owner(server);
    supervisor_signal(server->pid, SIGCONT);
    if (server->zk != NULL)
        zk_unfreeze(server->zk);
}

void server_free(struct server *server) {
    if (server == NULL)
        return;
    server_kill(server);
    zk_free(server->zk);
    temp_dir_remove(server->dir);
    sync_destroy(&server->helper);
    free(server->dir);
    free(server->config_path);
    free(server->log_path);
    free(server->socket);
    free(server->password);
    free(server->url);
    free(server->tcp_url);
    free(server);
}

const char *server_url(const struct server *server) {
    return server->zk != NULL ? zk_url(server->zk) : server->url;
}

struct proxy *server_proxy(const struct server *server) {
    return server->zk != NULL ? proxy_start_tcp(zk_port(server->zk), PROXY_ZOOKEEPER)
                              : proxy_start(server->socket);
}

const char *server_tcp_url(const struct server *server) {
    if (server->port == 0)
        support_die("server_tcp_url needs a server that was started with .tcp");
    return server->tcp_url;
}

const char *server_socket(const struct server *server) {
    return server->socket;
}

const char *server_dir(const struct server *server) {
    return server->dir;
}

bool server_is_other(const struct server *server) {
    return server != NULL ? server->zk != NULL : wants_zookeeper();
}

int server_port(const struct server *server) {
    return server->port;
}

pid_t server_pid(const struct server *server) {
    return server->pid;
}
