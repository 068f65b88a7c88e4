/* Everything that came of a process, found by parentage in /proc. */
#ifndef CLI_TREE_H
#define CLI_TREE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Who is none of the command's, though it may be below us: a server that the library started for
 * `local:` is adopted by the nearest subreaper, and that is us. It serves others too, so it is left
 * alone.
 *
 * With --only-command that is also everything but the command, what still descends from it, and its
 * process group. A daemon is none of these: it has a group of its own, and since its parent has
 * ended, it is our child. One that was sent a KILL looks the same while it dies, if its parent was
 * faster; so these are remembered. */
struct tree_filter {
    struct tree_directory {
        dev_t device;
        ino_t inode;
        bool known;
    } directories[2];
    char *paths[2];                       /* owned; NULL: unused */
    const _Atomic pid_t *command, *group; /* of --only-command; NULL: everything is the command's */
    struct tree_condemned {
        pid_t pid;
        unsigned long long started;
    } * condemned; /* owned */
    size_t condemned_len;
};

/* For a url, and for the default directory of `local:`. */
void tree_filter_setup(struct tree_filter *filter, const char *url);
void tree_filter_free(struct tree_filter *filter);

/* Sends a signal to everything below `root` that is the command's, not to root itself; 0 sends
 * nothing. Returns how
 * many processes there are that have not ended, or -1 when /proc cannot be read. Never hits a
 * process that took over the pid of one that has ended. Says so when it may not signal one, if
 * `complain`. */
int tree_signal(pid_t root, int signal, struct tree_filter *filter, bool complain);

/* Reaps whatever has ended below the calling process. Writes the wait status of `watched` if it was
 * among them, and then true to *ret_ended; 0: watches nobody. Returns true when nothing is left to
 * wait for: with --only-command, when `watched` has ended. */
bool tree_reap(struct tree_filter *filter, pid_t watched, bool *ret_ended, int *ret_status);

/* The state letter of a process in /proc (R, S, D, T, t, Z, ...); 0 if it cannot be seen. */
char process_state(pid_t pid);

#endif
