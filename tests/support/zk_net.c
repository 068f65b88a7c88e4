/*
 * ZooKeeper servers with a network each; see zk_net.h, the manual.
 *
 * Called by tests. A member's namespace belongs to a process that sleeps (unshare --net), a child
 * of the supervisor as the servers are. Packets are lost by a wrong entry among the sender's
 * neighbours: they go to an Ethernet address that nobody has. Nothing tells the sender.
 */
#include "support/zk_net.h"

#include "support/server_internal.h"
#include "support/supervisor.h"
#include "support/wait.h"
#include "support/zk_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MEMBERS_MAX = 5, PORT = 2181, QUORUM_PORT = 2888, WHOLE_LIMIT_MS = 180000 };
enum { ESTABLISHED = 1 }; /* as /proc/net/tcp6 numbers it */

struct zk_net {
    int members_len;
    struct zk *members[MEMBERS_MAX];
    pid_t sleepers[MEMBERS_MAX];
    bool stopped[MEMBERS_MAX];
};

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (system(line) != 0) /* NOLINT(cert-env33-c): lines of our own */
        support_die("failed: %s", line);
}

/* ---- Namespaces ------------------------------------------------------------------------------ */

static bool write_file(const char *path, const char *text) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* As root, or as what a user is in a namespace of its own. */
static bool leave(void) {
    char uids[64], gids[64];
    snprintf(uids, sizeof uids, "0 %u 1", (unsigned)geteuid());
    snprintf(gids, sizeof gids, "0 %u 1", (unsigned)getegid());
    if (unshare(CLONE_NEWNET) == 0)
        return true;
    return unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 &&
           write_file("/proc/self/setgroups", "deny") && write_file("/proc/self/uid_map", uids) &&
           write_file("/proc/self/gid_map", gids);
}

static const char make_bridge[] = "ip link set lo up && ip link add zkbr type bridge && "
                                  "ip addr add 10.77.0.254/24 dev zkbr && ip link set zkbr up";

void zk_net_need(void) {
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, STDERR_FILENO);
        _exit(leave() && system(make_bridge) == 0 && /* NOLINT(cert-env33-c) */
                      system("unshare --net nsenter --version >/dev/null") == 0 /* NOLINT */
                  ? 0
                  : EXIT_SKIPPED);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        support_die("fork: %s", strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    printf("skipped: no network namespaces and bridges here\n");
    exit(EXIT_SKIPPED);
}

void zk_net_enter(void) {
    if (!leave())
        support_die("no network of our own: %s", strerror(errno));
    run("%s", make_bridge);
}

static bool has_left(void *arg) {
    const pid_t *pid = arg;
    char path[64];
    struct stat ours, theirs;
    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)*pid);
    return stat("/proc/self/ns/net", &ours) == 0 && stat(path, &theirs) == 0 &&
           ours.st_ino != theirs.st_ino;
}

/* The same address on the wire for all of a member's life. */
static void connect_member(struct zk_net *net, int member) {
    static const char *const sleeper[] = {"unshare", "--net", "sleep", "infinity", NULL};
    struct zk *zk = net->members[member];
    int n = member + 1;
    net->sleepers[member] = supervisor_spawn(zk->log, sleeper);
    if (!wait_until(has_left, &net->sleepers[member], WHOLE_LIMIT_MS))
        support_die("no network for a member");
    zk->network = text_of("--net=/proc/%d/ns/net", (int)net->sleepers[member]);
    snprintf(zk->host, sizeof zk->host, "10.77.0.%d", n);
    zk->port = PORT;
    zk->url = text_of("zk://%s:%d", zk->host, zk->port);
    run("ip link add zkm%d type veth peer name eth0 netns %d && ip link set zkm%d master zkbr up",
        n, (int)net->sleepers[member], n);
    run("nsenter %s sh -c 'ip link set lo up && ip link set eth0 address 02:00:00:00:00:0%d && "
        "ip addr add %s/24 dev eth0 && ip link set eth0 up'",
        zk->network, n, zk->host);
}

void zk_net_lose(struct zk_net *net, int from, int to, bool lost) {
    run("nsenter %s ip neigh replace %s lladdr 02:00:00:00:00:%s%d dev eth0 nud permanent",
        net->members[from]->network, net->members[to]->host, lost ? "f" : "0", to + 1);
}

/* Addresses are hexadecimal and in network order, behind what makes them longer (Java's sockets are IPv6). */
int64_t zk_net_unread(struct zk_net *net, int leader, int follower) {
    char path[64], line[512], local[64], remote[64], address[16];
    unsigned state, queued;
    int64_t unread = -1;
    snprintf(path, sizeof path, "/proc/%d/net/tcp6", (int)net->sleepers[leader]);
    snprintf(address, sizeof address, "%02X004D0A:", follower + 1);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%*s %63s %63s %x %*x:%x", local, remote, &state, &queued) != 4)
            continue;
        const char *port = strchr(local, ':');
        bool quorum = port != NULL && strtol(port + 1, NULL, 16) == QUORUM_PORT;
        if (quorum && strstr(remote, address) != NULL && state == ESTABLISHED)
            unread = queued;
    }
    if (file != NULL)
        fclose(file);
    return unread;
}

/* ---- The ensemble ---------------------------------------------------------------------------- */

struct zk *zk_net_member(struct zk_net *net, int member) {
    return net->members[member];
}

static int count(struct zk_net *net, const char *mode, int *ret_last) {
    int found = 0;
    for (int i = 0; i < net->members_len; i++) {
        if (net->stopped[i] || !zk_has_mode(net->members[i], mode))
            continue;
        found++;
        *ret_last = i;
    }
    return found;
}

int zk_net_leader(struct zk_net *net) {
    int leader = -1;
    return count(net, "leader", &leader) == 1 ? leader : -1;
}

static bool is_whole(void *arg) {
    struct zk_net *net = arg;
    int last;
    bool serve = true;
    for (int i = 0; serve && i < net->members_len; i++)
        serve = zk_serves(net->members[i]);
    return serve && count(net, "leader", &last) == 1 &&
           count(net, "follower", &last) == net->members_len - 1;
}

int zk_net_wait_whole(struct zk_net *net) {
    if (!wait_until(is_whole, net, WHOLE_LIMIT_MS))
        zk_die_with_log(net->members[0], "gets no whole ensemble");
    return zk_net_leader(net);
}

void zk_net_stop(struct zk_net *net, int member) {
    net->stopped[member] = true;
    zk_freeze(net->members[member]);
}

void zk_net_go_on(struct zk_net *net, int member) {
    zk_unfreeze(net->members[member]);
    net->stopped[member] = false;
}

struct zk_net *zk_net_start(int members, const struct zk_options *options) {
    struct zk_net *net = calloc(1, sizeof *net);
    char lines[512] = "";
    if (net == NULL || members > MEMBERS_MAX)
        support_die("no such ensemble");
    net->members_len = members;
    for (int i = 0; i < members; i++) {
        size_t len = strlen(lines);
        net->members[i] = zk_new(i + 1);
        connect_member(net, i);
        snprintf(lines + len, sizeof lines - len, "server.%d=%s:%d:3888\n", i + 1,
                 net->members[i]->host, QUORUM_PORT);
    }
    for (int i = 0; i < members; i++) {
        zk_write_config(net->members[i], options, lines);
        zk_launch(net->members[i]);
    }
    zk_net_wait_whole(net);
    return net;
}

void zk_net_free(struct zk_net *net) {
    if (net == NULL)
        return;
    for (int i = 0; i < net->members_len; i++) {
        zk_free(net->members[i]);
        supervisor_end(net->sleepers[i], SIGKILL, 0);
    }
    free(net);
}
