/* `local:`, the private server of this user on this machine.
 *
 * The first process that asks starts it, all of the user's processes share it, and it shuts down
 * when it has been idle: no connections for a while, and no keys but fencing counters. All of its
 * files are in one directory:
 *
 *   redis.sock        the server's socket
 *   redis.sock.idle   the same, while the monitor checks whether the server can shut down
 *   server.log        the output of the server and its monitor, since the last start
 *
 * The server process holds a `flock` on the directory itself; other processes hold it only while
 * they start a server. So: lock held = a server lives, is starting or is shutting down; lock free =
 * a socket, if there is one, is stale.
 *
 * Two processes belong to a server: `redis-server` itself, and a monitor (a small /bin/sh script)
 * that checks now and then whether it is idle. They are in a session of their own, and have
 * HOLDFAST_LOCAL_SERVER=1 and HOLDFAST_LOCAL_DIR=<directory> in their environment, as have all
 * programs that the monitor runs. They leave no child to reap, with one exception that Linux does
 * not let us avoid: they become children of a process that is a subreaper (PR_SET_CHILD_SUBREAPER,
 * as `holdfast run` is). It must recognise the server by the directory that it has open, and the
 * monitor by that mark in /proc/<pid>/environ and its fourth argument, "holdfast-local". It must
 * neither kill them nor wait for their end. For a moment before they exec, they have the
 * subreaper's own environment; one that is killed just then is started again. */
#ifndef HFI_REDIS_ROUTE_LOCAL_LOCAL_H
#define HFI_REDIS_ROUTE_LOCAL_LOCAL_H

#include "net/lookup.h"
#include "net/server_identity.h"

#include <holdfast/holdfast.h>

#define HFI_LOCAL_MARK "HOLDFAST_LOCAL_SERVER=1"

/* An hfi_resolve_fn: makes sure that the server of directory `target` ("": /tmp/holdfast-<uid>)
 * runs, and returns the one address of its socket. Any thread of any process may call it; it starts
 * no thread and keeps no state. The server may be gone again when the caller connects (killed; it
 * does not shut down by itself for `idle_ms`). A caller that fails to connect calls this again.
 * Blocks:  until the server answers, at most until the deadline or for 30 s.
 * Errors:  HF_EPERM the directory or the server in it is not ours alone (owner, mode, symlink);
 *          HF_EUNREACH it could not be started, or does not answer in time (no redis-server is
 *          installed: then the text says what to install); HF_EINVAL the directory is not absolute
 *          or too long; HF_ESYS; HF_ENOMEM. */
int hfi_resolve_local(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                      size_t cap, size_t *ret_count, hf_error *error);

/* The identity of the server that is there now; all zero if none is. `target` as above. Starts
 * nothing. */
void hfi_local_identity(const char *target, struct hfi_identity *ret);

/* The same with the settings that tests change. */
struct hfi_local_options {
    const char *directory; /* as `target` above */
    int64_t idle_ms;       /* a server shuts down when it has been idle for this long; 0: 30000 */
    /* search path for programs, like PATH; NULL: $PATH, then the usual places */
    const char *search;
};
int hfi_local_ensure(const struct hfi_local_options *options, int64_t deadline_ms,
                     struct hfi_addr *ret_addr, hf_error *error);

#endif
