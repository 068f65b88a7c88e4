/*
 * The life of a private ZooKeeper server: classes, configuration, start, kill, freeze; see zk.h, the
 * manual.
 *
 * Called by tests, and by zk_ensemble.c for three of them. The process itself is a child of the
 * supervisor (supervisor.c).
 *
 * Invariants: the port stays the same over restarts. "srvr" is answered with a mode only by a server
 * that serves clients; one that has no quorum says so instead.
 */
#include "support/zk.h"

#include "support/java.h"
#include "support/server_internal.h"
#include "support/supervisor.h"
#include "support/wait.h"
#include "support/zk_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY_LIMIT_MS = 60000, WORD_LIMIT_S = 5, PORT_TRIES = 20 };

/* ---- Classes --------------------------------------------------------------------------------- */

static char classpath[4096];

const char *zk_classpath(void) {
    if (classpath[0] == '\0')
        support_die("zk_need() comes before the first server");
    return classpath;
}

void zk_need(void) {
    int status = java_build(JAVA_SERVER);
    if (status != 0)
        exit(status);

    char *path = text_of("%s/servers", java_dir());
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(classpath, sizeof classpath, file) == NULL)
        support_die("%s: %s", path, strerror(errno));
    fclose(file);
    free(path);
    classpath[strcspn(classpath, "\n")] = '\0';
}

static int connect_to(const struct zk *zk) {
    struct sockaddr_in inet = {.sin_family = AF_INET, .sin_port = htons((uint16_t)zk->port)};
    inet_pton(AF_INET, zk->host, &inet.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = WORD_LIMIT_S};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0)
        support_die("socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&inet, sizeof inet) == 0)
        return fd;
    close(fd);
    return -1;
}

/* A server that does not serve yet says so and leaves the connection open. */
static bool is_refusal(const char *text, size_t length) {
    static const char refusal[] = "This ZooKeeper instance is not currently serving requests";
    return length >= sizeof refusal - 1 && memcmp(text, refusal, sizeof refusal - 1) == 0;
}

char *zk_word(const struct zk *zk, const char *word) {
    int fd = connect_to(zk);
    if (fd < 0)
        return NULL;
    size_t length = 0, room = 65536;
    char *text = malloc(room);
    ssize_t got = send(fd, word, strlen(word), MSG_NOSIGNAL);
    while (text != NULL && got > 0 && !is_refusal(text, length) &&
           (got = recv(fd, text + length, room - length - 1, 0)) > 0) {
        length += (size_t)got;
        if (room - length < 4096)
            text = realloc(text, room *= 2);
    }
    close(fd);
    if (text == NULL)
        support_die("out of memory");
    text[length] = '\0';
    return text;
}

long long zk_number(const struct zk *zk, const char *name) {
    own_text *text = zk_word(zk, "mntr");
    own_text *line = text_of("\n%s\t", name);
    const char *found = text != NULL ? strstr(text, line) : NULL;
    return found != NULL ? atoll(found + strlen(line)) : -1;
}

bool zk_has_mode(const struct zk *zk, const char *mode) {
    own_text *text = zk_word(zk, "srvr");
    own_text *line = text_of("Mode: %s", mode);
    return text != NULL && strstr(text, line) != NULL;
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* Ended as text; on a taken port the server ends by itself. */
void zk_write_config(struct zk *zk, const struct zk_options *options, const char *members) {
    FILE *file = fopen(zk->config, "we");
    if (file == NULL)
        support_die("%s: %s", zk->config, strerror(errno));
    fprintf(file, "dataDir=%s/data\nclientPort=%d\nclientPortAddress=%s\n", zk->dir, zk->port,
            zk->host);
    fprintf(file, "tickTime=%d\ninitLimit=20\nsyncLimit=%d\n",
            options->tick_ms != 0 ? options->tick_ms : 500,
            options->sync_limit != 0 ? options->sync_limit : 20);
    fprintf(file, "admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\n");
    fprintf(file, "forceSync=%s\n%s", options->fsync ? "yes" : "no", members);
    for (size_t i = 0; options->config != NULL && options->config[i] != NULL; i++)
        fprintf(file, "%s\n", options->config[i]);
    if (fclose(file) != 0)
        support_die("%s: %s", zk->config, strerror(errno));
    zk->keeps_containers = options->keeps_containers; /* set when it is launched */
}

static void empty_data(const struct zk *zk) {
    own_text *line = text_of("rm -rf '%s/data' && mkdir '%s/data' && echo %d >'%s/data/myid'",
                             zk->dir, zk->dir, zk->id, zk->dir);
    if (system(line) != 0) /* NOLINT(cert-env33-c): a path of our own */
        support_die("%s failed", line);
}

struct zk *zk_new(int id) {
    struct zk *zk = zeroed(1, sizeof *zk);
    zk->id = id;
    snprintf(zk->host, sizeof zk->host, "127.0.0.1");
    zk->dir = temp_dir();
    zk->config = text_of("%s/zoo.cfg", zk->dir);
    zk->log = text_of("%s/log", zk->dir);
    empty_data(zk);
    return zk;
}

void zk_take_port(struct zk *zk) {
    zk->port = server_pick_port();
    free(zk->url);
    zk->url = text_of("zk://127.0.0.1:%d", zk->port);
}

void zk_launch(struct zk *zk) {
    /* Small and quick to start: it shares two cores with everything else that is being tested. A hundred thousand nodes
     * need more. */
    const char *memory = getenv("HF_SOAK") != NULL ? "-Xmx1g" : "-Xmx128m";
    const char *containers = zk->keeps_containers ? "-Dznode.container.checkIntervalMs=86400000"
                                                  : "-Dznode.container.checkIntervalMs=60000";
    const char *argv[] = {"nsenter",
                          zk->network,
                          "java",
                          "-XX:+UseSerialGC",
                          "-XX:TieredStopAtLevel=1",
                          memory,
                          "-Xshare:auto",
                          "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                          "-Dzookeeper.jmx.log4j.disable=true",
                          containers,
                          "-cp",
                          zk_classpath(),
                          "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                          zk->config,
                          NULL};
    if (zk->pid != 0)
        support_die("this server runs already");
    zk->pid = supervisor_spawn(zk->log, zk->network != NULL ? argv : argv + 2);
}

void zk_die_with_log(const struct zk *zk, const char *what) {
    FILE *file = fopen(zk->log, "re");
    char line[512];
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        fprintf(stderr, "| %s", line);
    support_die("ZooKeeper's server %s; its log is above", what);
}

/* Asks for a session and ends it again. An ensemble's member has to have that committed, so one that is about to
 * find out that it has lost the others does not answer. */
static bool takes_a_session(const struct zk *zk) {
    static const unsigned char hello[4 + 44] = {0, 0, 0, 44, [18] = 0x0f, 0xa0, [31] = 16};
    static const unsigned char close_session[12] = {0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xf5};
    unsigned char answer[8];
    int fd = connect_to(zk);
    if (fd < 0)
        return false;
    bool taken = send(fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello &&
                 recv(fd, answer, sizeof answer, MSG_WAITALL) == (ssize_t)sizeof answer &&
                 send(fd, close_session, sizeof close_session, MSG_NOSIGNAL) > 0;
    close(fd);
    return taken;
}

bool zk_serves(const struct zk *zk) {
    return zk_has_mode(zk, "") && takes_a_session(zk);
}

static bool serves_or_ended(void *arg) {
    struct zk *zk = arg;
    return !supervisor_running(zk->pid) || zk_serves(zk);
}

/* False when it has ended by itself. */
static bool comes_up(struct zk *zk) {
    if (!wait_until(serves_or_ended, zk, READY_LIMIT_MS))
        zk_die_with_log(zk, "does not get ready");
    return supervisor_running(zk->pid);
}

void zk_wait_serving(struct zk *zk) {
    if (!comes_up(zk))
        zk_die_with_log(zk, "ended instead of getting ready");
}

struct zk *zk_start(const struct zk_options *options) {
    static const struct zk_options defaults;
    struct zk *zk = zk_new(1);
    for (int tries = 0; tries < PORT_TRIES; tries++) {
        zk_take_port(zk);
        zk_write_config(zk, options != NULL ? options : &defaults, "");
        zk_launch(zk);
        if (comes_up(zk))
            return zk;
        zk->pid = 0;
    }
    zk_die_with_log(zk, "ended instead of getting ready");
    return NULL;
}

void zk_kill(struct zk *zk) {
    if (zk->pid != 0)
        supervisor_end(zk->pid, SIGKILL, 0);
    zk->pid = 0;
}

void zk_restart(struct zk *zk) {
    zk_kill(zk);
    zk_launch(zk);
    zk_wait_serving(zk);
}

void zk_restart_empty(struct zk *zk) {
    zk_kill(zk);
    empty_data(zk);
    zk_launch(zk);
    zk_wait_serving(zk);
}

void zk_freeze(struct zk *zk) {
    stop_process(zk->pid);
}

void zk_unfreeze(struct zk *zk) {
    supervisor_signal(zk->pid, SIGCONT);
}

void zk_free(struct zk *zk) {
    if (zk == NULL)
        return;
    zk_kill(zk);
    temp_dir_remove(zk->dir);
    free(zk->dir);
    free(zk->config);
    free(zk->log);
    free(zk->url);
    free(zk->network);
    free(zk);
}

const char *zk_url(const struct zk *zk) {
    return zk->url;
}

int zk_port(const struct zk *zk) {
    return zk->port;
}

pid_t zk_pid(const struct zk *zk) {
    return zk->pid;
}
