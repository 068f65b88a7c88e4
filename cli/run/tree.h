/* All descendants of a process, found by parent pid in /proc. */
#ifndef CLI_TREE_H
#define CLI_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Which of our descendants do not belong to the command.
 *
 * A server that the library started for `local:` is adopted by the nearest subreaper, which is us.
 * It serves other clients too, so it is left alone.
 *
 * With --only-command, the command owns only its process, its current descendants and its process
 * group. A daemon is excluded: it has its own group, and as its parent has ended, it is our child.
 * A killed process looks the same while it dies, if its parent died first; so killed processes are
 * remembered. */
struct tree_filter {
    struct tree_directory {
        dev_t device;
        ino_t inode;
        bool known;
    } directories[2];
    char *paths[2];                       /* owned; NULL: unused */
    const _Atomic pid_t *command, *group; /* with --only-command; NULL: no such limit */
    struct tree_condemned {
        pid_t pid;
        unsigned long long started;
    } * condemned; /* owned */
    size_t condemned_len;
};

/* Excludes the servers of the url's and of the default `local:` directory. */
void tree_filter_setup(struct tree_filter *filter, const char *url);
void tree_filter_free(struct tree_filter *filter);

/* Signals all descendants of `root` that belong to the command, not root itself; signal 0 sends
 * nothing. Returns how many are still alive, or -1 if /proc cannot be read. Never signals a process
 * that reuses a pid. `complain`: reports a process that we may not signal. */
int tree_signal(pid_t root, int signal, struct tree_filter *filter, bool complain);

/* Reaps all children that have ended. If `watched` (0: none) was among them, sets *ret_status and
 * *ret_ended. Returns true when no process is left to wait for; with --only-command, when `watched`
 * has ended. */
bool tree_reap(struct tree_filter *filter, pid_t watched, bool *ret_ended, int *ret_status);

/* The state letter of a process in /proc (R, S, D, T, t, Z, ...); 0 if it cannot be read. */
char process_state(pid_t pid);

#endif
