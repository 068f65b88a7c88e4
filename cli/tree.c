/*
 * Everything that came of a process: its children, their children, and so on, whatever group or
 * session they went to. Used by the guard and the holder, which are subreapers, so that an orphan
 * comes back to them instead of vanishing to init; each of them calls this from its main thread
 * only.
 *
 * One pass reads the parent of every process in /proc, then signals those below the root. A process
 * found there may end and its pid may be used again before it is signalled, unless it is our own
 * child, whose pid is ours until we reap it. So the others are signalled through a pidfd, after
 * checking that it refers to the process that was seen (pid and start time).
 *
 * What forks while a pass runs can be missed by it. Callers repeat until nothing is left, which
 * tree_reap() tells: what is missed is still below us, and wait(2) knows it, whatever /proc shows.
 * A process that runs away, by leaving a child behind and exiting before a pass comes to it, is our
 * own child all the time; to catch it, KILL goes to our own children in a pass of its own, at the
 * moment they are seen.
 */
#include "tree.h"

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

#define LOCAL_SERVER_MARK                                                                          \
    "HOLDFAST_LOCAL_SERVER=1" /* in the environment of a local server's processes */

struct process {
    pid_t pid, parent, group;
    char state;
    unsigned long long started;
    signed char server; /* of `local:`: 1 yes, 0 no, -1 not known yet */
};

struct table {
    struct process *processes; /* sorted by pid */
    size_t len;
};

/* Reads a small file of /proc whole; false if it is gone or may not be read. */
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

    /* The name, in brackets, may hold anything, also brackets and spaces. */
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
                break; /* What is there must do: callers repeat. */
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

static void remember_directory(struct tree_filter *filter, size_t i) {
    struct stat status;
    if (filter->directories[i].known || filter->paths[i] == NULL ||
        stat(filter->paths[i], &status) != 0)
        return;
    filter->directories[i] = (struct tree_directory){status.st_dev, status.st_ino, true};
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

/* The server of a `local:` directory has that directory open, since it holds a lock on it. */
static bool has_local_directory_open(pid_t pid, const struct tree_filter *filter) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);
    if (fds == NULL)
        return false;
    bool found = false;
    for (struct dirent *entry; !found && (entry = readdir(fds)) != NULL;) {
        struct stat status;
        if (entry->d_name[0] == '.' || fstatat(dirfd(fds), entry->d_name, &status, 0) != 0)
            continue;
        for (size_t i = 0; i < 2; i++) {
            const struct tree_directory *directory = &filter->directories[i];
            found |= directory->known && status.st_dev == directory->device &&
                     status.st_ino == directory->inode;
        }
    }
    closedir(fds);
    return found;
}

/* Its monitor has not, but has a mark in its environment. (The server had too, and then wrote its
 * title over it.) */
static bool has_local_mark(pid_t pid) {
    char path[64], text[4096];
    size_t len;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (!read_proc(path, text, sizeof text - 1, &len))
        return false;
    text[len] = '\0';
    for (size_t at = 0; at < len; at += strlen(text + at) + 1) {
        if (strcmp(text + at, LOCAL_SERVER_MARK) == 0)
            return true;
    }
    return false;
}

static bool is_local_server(pid_t pid, const struct tree_filter *filter) {
    return has_local_mark(pid) || has_local_directory_open(pid, filter);
}

static struct process *lookup(const struct table *table, pid_t pid) {
    struct process key = {.pid = pid};
    return table->len == 0 ? NULL : bsearch(&key, table->processes, table->len, sizeof key, by_pid);
}

/* Whether a process came of the root, and not by way of a local server. A snapshot of /proc may
 * hold anything, even a ring, so this takes no more steps than there are processes. */
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

/* With --only-command: whether a process belongs to the command, as tree.h defines it. The pid is 0
 * when the command is about to be reaped; that of its group cannot become another's while anybody
 * is in it. */
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

/* Without memory it is not waited for. */
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

/* Sends a signal to the process that was seen, and to no later one of that pid. */
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

/* KILL for our own children, each at once; the newest first, since it may be gone soon. */
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
        remember_directory(filter, i);
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
            say(LEVEL_ERROR, "may not signal process %d, which the command has started",
                (int)process->pid);
    }
    free(table.processes);
    return count;
}

/* Whether all children that live are the library's. A pass over /proc shows every process that was
 * there from its beginning to its end; so it shows all our children, unless one ended meanwhile,
 * and then that one is still to be reaped. */
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
