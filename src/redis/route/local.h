/* `local:`, the private server of this user on this machine.
 *
 * It is started by the first process that asks, shared by all of the user's processes, and goes
 * away when it has been idle: no connections for a while, and no keys but fencing counters. All of
 * it is in one directory:
 *
 *   redis.sock        the server's socket
 *   redis.sock.idle   the same, while the server finds out whether it can leave
 *   server.log        what the server and its monitor had to say, since the last start
 *
 * A `flock` on the directory itself is held by the server process, and by no other for longer than
 * it takes to start one. So: lock held = a server lives, is starting or is leaving; lock free = a
 * socket, if there is one, is stale.
 *
 * Two processes belong to a server: `redis-server` itself, and a monitor (a small /bin/sh script)
 * that asks it now and then whether it is idle. They are in a session of their own, and have
 * HOLDFAST_LOCAL_SERVER=1 and HOLDFAST_LOCAL_DIR=<directory> in their environment, as has all that
 * the monitor runs. They leave no child to reap, with one exception that Linux does not let us
 * avoid: to a process that is a subreaper (PR_SET_CHILD_SUBREAPER, as `holdfast run` is) they
 * become children. It must recognise them by that mark in /proc/<pid>/environ, and neither kill
 * them nor wait for their end. For a moment before they exec they have the subreaper's own
 * environment; one that is killed just then is started again. */
#ifndef HFI_REDIS_ROUTE_LOCAL_H
#define HFI_REDIS_ROUTE_LOCAL_H

#include "net/identity.h"
#include "net/lookup.h"

#include <holdfast/holdfast.h>

#define HFI_LOCAL_MARK "HOLDFAST_LOCAL_SERVER=1"

/* An hfi_resolve_fn: makes sure that the server of directory `target` ("": /tmp/holdfast-<uid>)
 * runs, and returns the one address of its socket. Any thread of any process may call it; it starts
 * no thread and keeps no state. The server may be gone again when the caller connects (killed; it
 * does not leave by itself for `idle_ms`), so whoever fails to connect asks again.
 * Blocks:  until the server answers, at most until the deadline or for 30 s.
 * Errors:  HF_EPERM the directory or the server in it is not ours alone (owner, mode, symlink);
 *          HF_EUNREACH it could not be started, or does not answer in time (no redis-server is
 *          installed: then the text says what to install); HF_EINVAL the directory is not absolute
 *          or too long; HF_ESYS; HF_ENOMEM. */
int hfi_resolve_local(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                      size_t cap, size_t *ret_count, hf_error *error);

/* Which server is there now; all zero if none is. `target` as above. Starts nothing. */
void hfi_local_identity(const char *target, struct hfi_identity *ret);

/* The same with what tests want to change. */
struct hfi_local_options {
    const char *directory; /* as `target` above */
    int64_t idle_ms;       /* a server leaves when it has been idle for this long; 0: 30000 */
    const char
        *search; /* where programs are looked for, like PATH; NULL: $PATH, then the usual places */
};
int hfi_local_ensure(const struct hfi_local_options *options, int64_t deadline_ms,
                     struct hfi_addr *ret_addr, hf_error *error);

#endif
