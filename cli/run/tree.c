/* All descendants of a process, in any process group or session. Used by the guard and the holder.
 * Both are subreapers, so orphans return to them instead of init. Each calls this from its main
 * thread only.
 *
 * One pass reads the parent of every process in /proc, then signals those below the root. A process
 * may end and its pid may be reused before it is signalled, unless it is our own child: we keep its
 * pid until we reap it. So the others are signalled through a pidfd, after checking that it refers
 * to the same process (pid and start time).
 *
 * A pass can miss a process that is forked while it runs. Callers repeat until tree_reap() reports
 * that none is left: a missed process is still below us, and wait(2) knows it, whatever /proc
 * shows.
 *
 * A process can evade a pass by forking and exiting before the pass reaches it. Its child is then
 * our own child. To catch it, SIGKILL goes to our own children in a separate pass, as soon as each
 * is seen. */
#include "run/tree.h"

#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* How the library starts a local server (src/redis/route/local/local_start.c): the environment
 * names its directory, this descriptor carries the lock, and the socket's path is relative. */
#define LOCAL_DIRECTORY "HOLDFAST_LOCAL_DIR="
#define LOCAL_LOCK_FD "9"
#define LOCAL_SOCKET "redis.sock"
#define LOCAL_SHELL_NAME "holdfast-local" /* argv[3] of the shell that becomes the server */

struct process {
    pid_t pid, parent, group;
    char state;
    unsigned long long started;
    signed char server; /* belongs to `local:`: 1 yes, 0 no, -1 not known yet */
};

struct table {
    struct process *processes; /* sorted by pid */
    size_t len;
};

/* Reads a small file of /proc whole; false if it is gone or unreadable. */
static bool read_proc(const char *path, char *buffer, size_t size, size_t *ret_len) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t len = 0;
    ssize_t n;
    while (len < size && (n = read(fd, buffer + len, size - len)) != 0) {
        if (n < 0 && errno != EINTR)
            break;
        if (n > 0)
            len += (size_t)n;
    }
    close(fd);
    *ret_len = len;
    return len > 0;
}

static bool read_process(pid_t pid, struct process *ret) {
    char path[64], text[1024];
    size_t len;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (!read_proc(path, text, sizeof text - 1, &len))
        return false;
    text[len] = '\0';

    /* The name, in parentheses, may contain parentheses and spaces itself. */
    const char *rest = strrchr(text, ')');
    struct process process = {.pid = pid, .server = -1};
    if (rest == NULL ||
        sscanf(rest + 1,
               " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d"
               " %*d %*d %llu",
               &process.state, &process.parent, &process.group, &process.started) != 4)
        return false;
    *ret = process;
    return true;
}

char process_state(pid_t pid) {
    struct process process;
    return read_process(pid, &process) ? process.state : 0;
}

static int by_pid(const void *a, const void *b) {
    const struct process *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* The pids in /proc, in ascending order; NULL if it cannot be read. */
static pid_t *list_pids(size_t *ret_len) {
    DIR *proc = opendir("/proc");
    if (proc == NULL)
        return NULL;
    pid_t *pids = NULL;
    size_t len = 0, room = 0;
    for (struct dirent *entry; (entry = readdir(proc)) != NULL;) {
        long pid;
        if (!parse_number(entry->d_name, 1, 1L << 30, &pid))
            continue;
        if (len == room) {
            room = room == 0 ? 256 : room * 2;
            pid_t *grown = realloc(pids, room * sizeof *grown);
            if (grown == NULL)
                break; /* A partial list will do: callers repeat. */
            pids = grown;
        }
        pids[len++] = (pid_t)pid;
    }
    closedir(proc);
    *ret_len = len;
    return pids;
}

static bool read_table(struct table *ret) {
    struct table table = {0};
    size_t count = 0;
    pid_t *pids = list_pids(&count);
    if (pids != NULL)
        table.processes = calloc(count, sizeof *table.processes);
    if (table.processes != NULL) {
        for (size_t i = 0; i < count; i++) {
            if (read_process(pids[i], &table.processes[table.len]))
                table.len++;
        }
        qsort(table.processes, table.len, sizeof *table.processes, by_pid);
    }
    free(pids);
    *ret = table;
    return table.processes != NULL;
}

static void remember_directory(const char *path, struct tree_directory *directory) {
    struct stat status;
    if (!directory->known && path != NULL && stat(path, &status) == 0)
        *directory = (struct tree_directory){status.st_dev, status.st_ino, true};
}

void tree_filter_setup(struct tree_filter *filter, const char *url) {
    *filter = (struct tree_filter){0};
    if (asprintf(&filter->paths[0], "/tmp/holdfast-%u", (unsigned)getuid()) < 0)
        filter->paths[0] = NULL;
    if (strncmp(url, "local:/", 7) == 0)
        filter->paths[1] = strndup(url + 6, strcspn(url + 6, "?#"));
}

void tree_filter_free(struct tree_filter *filter) {
    free(filter->paths[0]);
    free(filter->paths[1]);
    free(filter->condemned);
}

/* The directory of the server that a process says it is. Any process may inherit that or say it. */
static void read_claim(pid_t pid, struct tree_directory *ret) {
    static const char key[] = LOCAL_DIRECTORY;
    char path[64], text[8192];
    size_t len;
    *ret = (struct tree_directory){0};
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (!read_proc(path, text, sizeof text - 1, &len))
        return;
    text[len] = '\0';
    for (size_t at = 0; at < len && !ret->known; at += strlen(text + at) + 1)
        if (strncmp(text + at, key, strlen(key)) == 0)
            remember_directory(text + at + strlen(key), ret);
}

/* Whether a lock was taken with flock() through this descriptor, or through one that was copied. */
static bool has_flock(pid_t pid, const char *fd) {
    char path[64], text[2048];
    size_t len;
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%s", (int)pid, fd);
    if (!read_proc(path, text, sizeof text - 1, &len))
        return false;
    text[len] = '\0';
    return strstr(text, "FLOCK") != NULL;
}

static bool is_same(const struct tree_directory *directory, const struct stat *status) {
    return directory->known && status->st_dev == directory->device &&
           status->st_ino == directory->inode;
}

/* Whether it works in the directory of a `local:` server and has the lock on it, as the library
 * starts a server: the lock is in the server's own descriptor, which flock(1) does not use. */
static bool has_lock_of_server(pid_t pid, const struct tree_filter *filter) {
    char path[64];
    struct stat locked, cwd;
    struct tree_directory claim;
    snprintf(path, sizeof path, "/proc/%d/fd/" LOCAL_LOCK_FD, (int)pid);
    if (stat(path, &locked) != 0 || !S_ISDIR(locked.st_mode) || !has_flock(pid, LOCAL_LOCK_FD))
        return false;
    snprintf(path, sizeof path, "/proc/%d/cwd", (int)pid);
    if (stat(path, &cwd) != 0 || cwd.st_dev != locked.st_dev || cwd.st_ino != locked.st_ino)
        return false;
    read_claim(pid, &claim);
    return is_same(&claim, &locked) || is_same(&filter->directories[0], &locked) ||
           is_same(&filter->directories[1], &locked);
}

static bool has_socket(pid_t pid, unsigned long inode) {
    char path[64], wanted[64], target[64];
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);
    bool found = false;
    for (struct dirent *entry; fds != NULL && !found && (entry = readdir(fds)) != NULL;) {
        ssize_t len = readlinkat(dirfd(fds), entry->d_name, target, sizeof target - 1);
        if (len > 0) {
            target[len] = '\0';
            found = strcmp(target, wanted) == 0;
        }
    }
    if (fds != NULL)
        closedir(fds);
    return found;
}

/* Whether the server's socket is its own. */
static bool is_bound(pid_t pid) {
    char path[64], name[sizeof LOCAL_SOCKET + 2], *line = NULL;
    size_t size = 0;
    unsigned long inode;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/net/unix", (int)pid);
    FILE *sockets = fopen(path, "re");
    while (sockets != NULL && !found && getline(&line, &size, sockets) >= 0)
        found = sscanf(line, "%*x: %*x %*x %*x %*x %*x %lu %12s", &inode, name) == 2 &&
                strcmp(name, LOCAL_SOCKET) == 0 && has_socket(pid, inode);
    free(line);
    if (sockets != NULL)
        fclose(sockets);
    return found;
}

/* Whether its words are those of a server or of the shell that becomes one, and there is no socket
 * yet: whatever starts a server removes the old one first. */
static bool is_starting(pid_t pid) {
    char path[64], text[16384];
    const char *words[8] = {"", "", "", "", "", "", "", ""};
    size_t len, count = 0;
    struct stat status;
    snprintf(path, sizeof path, "/proc/%d/cwd/" LOCAL_SOCKET, (int)pid);
    if (stat(path, &status) == 0)
        return false;
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    if (!read_proc(path, text, sizeof text - 1, &len))
        return false;
    text[len] = '\0';
    for (size_t at = 0; at < len && count < 8; at += strlen(text + at) + 1)
        words[count++] = text + at;
    bool starts = strcmp(words[1], "-c") == 0 && strcmp(words[3], LOCAL_SHELL_NAME) == 0;
    for (size_t i = 1; i < 7 && !starts; i++)
        starts = strcmp(words[i], "--unixsocket") == 0 && strcmp(words[i + 1], LOCAL_SOCKET) == 0;
    return starts;
}

/* A server that the library has started, by what it has, not by what its environment says: a
 * command may set that, or lock the directory. The server's monitor is its child. */
static bool is_local_server(pid_t pid, const struct tree_filter *filter) {
    return has_lock_of_server(pid, filter) && getsid(pid) == pid &&
           (is_starting(pid) || is_bound(pid));
}

static struct process *lookup(const struct table *table, pid_t pid) {
    struct process key = {.pid = pid};
    return table->len == 0 ? NULL : bsearch(&key, table->processes, table->len, sizeof key, by_pid);
}

/* Whether a process descends from the root. A snapshot of /proc may even contain a cycle, so the
 * steps are limited to the number of processes. */
static bool is_below(const struct table *table, const struct process *process, pid_t root) {
    for (size_t steps = 0; process != NULL && steps <= table->len; steps++) {
        if (process->parent == root)
            return true;
        process = lookup(table, process->parent);
    }
    return false;
}

static bool is_of_local_server(const struct table *table, struct process *process, pid_t root,
                               const struct tree_filter *filter) {
    for (; process != NULL && process->pid != root; process = lookup(table, process->parent)) {
        if (process->server < 0)
            process->server = process->state != 'Z' && is_local_server(process->pid, filter);
        if (process->server == 1)
            return true;
    }
    return false;
}

/* With --only-command: whether a process belongs to the command, as defined in tree.h. The pid is 0
 * when the command is about to be reaped. A group id cannot be reused while the group has a
 * member. */
static bool is_of_command(const struct table *table, const struct process *process, pid_t command,
                          pid_t group) {
    return (command != 0 && (process->pid == command || is_below(table, process, command))) ||
           (group != 0 && process->group == group);
}

static bool is_condemned(const struct tree_filter *filter, const struct process *process) {
    for (size_t i = 0; i < filter->condemned_len; i++)
        if (filter->condemned[i].pid == process->pid &&
            filter->condemned[i].started == process->started)
            return true;
    return false;
}

/* If out of memory, the process is not waited for. */
static void condemn(struct tree_filter *filter, const struct process *process) {
    if (is_condemned(filter, process))
        return;
    size_t len = filter->condemned_len;
    struct tree_condemned *list = realloc(filter->condemned, (len + 1) * sizeof *list);
    if (list == NULL)
        return;
    list[len] = (struct tree_condemned){.pid = process->pid, .started = process->started};
    filter->condemned = list;
    filter->condemned_len = len + 1;
}

/* Signals exactly the process that was seen, never a later one with the same pid. */
static int signal_process(const struct process *process, int signal) {
    if (process->parent == getpid())
        return kill(process->pid, signal);
    int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    if (fd < 0 && errno == ENOSYS)
        return kill(process->pid, signal); /* Linux before 5.3 */
    if (fd < 0)
        return -1;
    struct process now;
    int result = 0;
    if (read_process(process->pid, &now) && now.started == process->started)
        result = (int)syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0);
    close(fd);
    return result;
}

/* Sends SIGKILL to our own children, each as soon as it is seen. Newest first, because it may exit
 * soon. */
static void kill_children(const struct tree_filter *filter) {
    size_t count = 0;
    pid_t *pids = list_pids(&count);
    while (pids != NULL && count-- > 0) {
        struct process process;
        if (read_process(pids[count], &process) && process.parent == getpid() &&
            !is_local_server(process.pid, filter))
            kill(process.pid, SIGKILL);
    }
    free(pids);
}

int tree_signal(pid_t root, int signal, struct tree_filter *filter, bool complain) {
    for (size_t i = 0; i < 2; i++)
        remember_directory(filter->paths[i], &filter->directories[i]);
    if (signal == SIGKILL && root == getpid() && filter->command == NULL)
        kill_children(filter);
    pid_t command = filter->command != NULL ? atomic_load(filter->command) : 0;
    pid_t group = filter->group != NULL ? atomic_load(filter->group) : 0;
    struct table table;
    if (!read_table(&table))
        return -1;
    int count = 0;
    for (size_t i = 0; i < table.len; i++) {
        struct process *process = &table.processes[i];
        if (process->pid == root || process->state == 'Z' || process->state == 'X' ||
            !is_below(&table, process, root) ||
            (filter->command != NULL && !is_of_command(&table, process, command, group) &&
             !is_condemned(filter, process)) ||
            is_of_local_server(&table, process, root, filter))
            continue;
        count++;
        if (signal == SIGKILL && filter->command != NULL)
            condemn(filter, process);
        if (signal != 0 && signal_process(process, signal) != 0 && errno == EPERM && complain)
            say(LEVEL_ERROR, "not permitted to signal process %d, which the command started",
                (int)process->pid);
    }
    free(table.processes);
    return count;
}

/* Whether all living children are servers of `local:`. A pass over /proc shows every process that
 * lives throughout the pass. So it shows all our children, except one that ended meanwhile, and
 * that one is still to be reaped. */
static bool only_servers_live(struct tree_filter *filter) {
    siginfo_t info = {0};
    return tree_signal(getpid(), 0, filter, false) == 0 &&
           waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

bool tree_reap(struct tree_filter *filter, pid_t watched, bool *ret_ended, int *ret_status) {
    bool running = watched != 0;
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            return true;
        if (pid == 0)
            return !running && (filter->command != NULL || only_servers_live(filter));
        if (pid == watched) {
            *ret_status = status;
            *ret_ended = true;
            running = false;
        }
    }
}
