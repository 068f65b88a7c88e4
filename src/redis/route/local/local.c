/*
 * `local:`: finds this user's private server, and has it started if there is none.
 *
 * hfi_resolve_local() is run by lookups, on their threads, in any number of processes at once; it
 * keeps no state. They coordinate through the directory: the lock on it says whether a server
 * lives, and the socket in it leads there. Starting is in local_start.c.
 *
 * Invariants: a directory is used only after it was opened without following a link and found to be
 * ours alone, and then only through that descriptor. An address is returned only after a server of
 * our own uid has answered on it. No socket is removed here.
 */
#include "redis/route/local/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/poll.h"
#include "net/url/url.h"
#include "redis/route/local/local_impl.h"

#define DEFAULT_IDLE_MS 30000
#define WAIT_MAX_MS 30000   /* upper limit of any wait; an abandoned lookup must end */
#define PAUSE_MAX_MS 20     /* between two tries of the socket */
#define SOCKET_TRIES_MAX 40 /* tries for a socket that has one of two names */
/* between the first two attempts to start, then doubling: each clones us */
#define START_AGAIN_MS 100
#define START_AGAIN_MAX_MS 1000
#define STARTS_MAX 3 /* a server that failed to come up this often never will */
/* shutting down takes some ten milliseconds; after this its monitor is dead */
#define RENAME_BACK_MS 1000

/* ---- The directory --------------------------------------------------------------------------- */

static int directory_path(const char *wanted, char *ret, size_t size, hf_error *error) {
    if (*wanted == '\0') {
        snprintf(ret, size, "/tmp/holdfast-%u", (unsigned)geteuid());
        return HF_OK;
    }
    size_t len = strlen(wanted);
    while (len > 1 && wanted[len - 1] == '/') /* or O_NOFOLLOW would follow */
        len--;
    if (*wanted != '/' || len == 1)
        return hfi_fail(error, HF_EINVAL, "local: needs the absolute path of a directory");
    if (len > HFI_URL_LOCAL_DIR_MAX || len >= size)
        return hfi_fail(error, HF_EINVAL, "local: the directory's path is longer than %d bytes",
                        HFI_URL_LOCAL_DIR_MAX);
    memcpy(ret, wanted, len);
    ret[len] = '\0';
    return HF_OK;
}

/* Why an open directory is not to be trusted; NULL: it is ours alone. */
static const char *distrust(const struct stat *st) {
    if (st->st_uid != geteuid())
        return "belongs to another user";
    if ((st->st_mode & 0777) != 0700)
        return "has the wrong mode (it must be 0700)";
    return NULL;
}

static int open_directory(const char *path, int *ret_fd, hf_error *error) {
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return hfi_fail_errno(error, HF_ESYS, errno, "cannot create the directory %s", path);

    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return hfi_fail(error, HF_EPERM, "%s is not a directory; name another one, or remove it",
                        path);
    if (fd < 0)
        return hfi_fail_errno(error, errno == EACCES ? HF_EPERM : HF_ESYS, errno,
                              "cannot open the directory %s", path);

    struct stat st;
    const char *reason = fstat(fd, &st) < 0 ? "cannot be examined" : distrust(&st);
    if (reason != NULL) {
        close(fd);
        return hfi_fail(error, HF_EPERM, "%s %s; local: does not use it", path, reason);
    }
    *ret_fd = fd;
    return HF_OK;
}

/* ---- Probing a server ------------------------------------------------------------------------ */

static int wait_readable(int fd, int64_t deadline_ms) {
    for (;;) {
        int64_t left_ms = deadline_ms - hfi_now_ms();
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        int ready = hfi_poll(&poll_fd, 1, left_ms > 0 ? (int)left_ms : 0, NULL);
        if (ready > 0 || (ready == 0 && left_ms <= 0))
            return ready;
        if (ready < 0 && errno != EINTR)
            return -1;
    }
}

/* A connection in the listen queue is no proof of life: a server that is shutting down never
 * accepts it. So it must answer PING; the content does not matter. */
static int converse(int fd, int64_t deadline_ms, bool *ret_alive, hf_error *error) {
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return hfi_fail_errno(error, HF_ESYS, errno, "cannot find the owner of the local: server");
    if (peer.uid != geteuid())
        return hfi_fail(error, HF_EPERM, "the local: server belongs to another user");

    static const char ping[] = "PING\r\n";
    char byte;
    *ret_alive = false;
    if (send(fd, ping, sizeof ping - 1, MSG_NOSIGNAL) < 0)
        return HF_OK;
    if (wait_readable(fd, deadline_ms) == 0)
        return hfi_fail(error, HF_EUNREACH, "the local: server runs, but does not answer");
    *ret_alive = recv(fd, &byte, 1, MSG_DONTWAIT) == 1;
    return HF_OK;
}

/* Whether a server answers at the address. An error is final. */
static int probe(const struct hfi_addr *addr, int64_t deadline_ms, bool *ret_alive,
                 hf_error *error) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return hfi_fail_errno(error, HF_ESYS, errno, "cannot create a socket");
    int err = HF_OK;
    *ret_alive = false;
    if (connect(fd, (const struct sockaddr *)&addr->sa, addr->len) == 0)
        err = converse(fd, deadline_ms, ret_alive, error);
    close(fd);
    return err;
}

/* ---- Waiting for a server -------------------------------------------------------------------- */

struct wait {
    struct local_start start;
    struct hfi_addr addr, idle_addr;
    int64_t began_ms, deadline_ms;
    int64_t start_at_ms, start_again_ms; /* the next attempt, and how long until the one after it */
    int64_t pause_ms;
    int starts;
};

static int make_address(const char *directory, const char *name, struct hfi_addr *ret,
                        hf_error *error) {
    char path[HFI_URL_SOCKET_MAX + 1];
    int len = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (len < 0 || (size_t)len >= sizeof path || hfi_addr_unix(path, ret) != HF_OK)
        return hfi_fail(error, HF_EINVAL, "local: the directory's path is too long");
    return HF_OK;
}

/* A monitor that died during a shutdown has left the socket hidden. The server itself decides
 * whether it stays, so renaming the socket back is safe at any time. */
static int show_hidden_socket(const struct wait *w, hf_error *error) {
    bool alive = false;
    int err = probe(&w->idle_addr, w->deadline_ms, &alive, error);
    if (err == HF_OK && alive)
        renameat(w->start.dir_fd, LOCAL_SOCKET_IDLE, w->start.dir_fd, LOCAL_SOCKET);
    return err;
}

static int start_again(struct wait *w, int64_t now_ms, hf_error *error) {
    bool started = false;
    int err = hfi_local_start(&w->start, &started, error);
    if (err != HF_OK)
        return err;
    w->start_at_ms = now_ms + w->start_again_ms;
    w->start_again_ms *= w->start_again_ms * 2 <= START_AGAIN_MAX_MS ? 2 : 1;
    if (started && ++w->starts > STARTS_MAX)
        return hfi_fail(error, HF_EUNREACH, "the local: server does not start; see %s/" LOCAL_LOG,
                        w->start.directory);
    return HF_OK;
}

/* One step while no server answers. */
static int bring_up(struct wait *w, hf_error *error) {
    int64_t now_ms = hfi_now_ms();
    if (now_ms >= w->deadline_ms)
        return hfi_fail(error, HF_EUNREACH,
                        "the local: server did not start in time; see %s/" LOCAL_LOG,
                        w->start.directory);
    int err = HF_OK;
    if (now_ms >= w->start_at_ms)
        err = start_again(w, now_ms, error);
    if (err == HF_OK && now_ms - w->began_ms >= RENAME_BACK_MS)
        err = show_hidden_socket(w, error);
    if (err != HF_OK)
        return err;

    const struct timespec pause = {.tv_nsec = w->pause_ms * 1000000};
    nanosleep(&pause, NULL);
    w->pause_ms = w->pause_ms * 2 < PAUSE_MAX_MS ? w->pause_ms * 2 : PAUSE_MAX_MS;
    return HF_OK;
}

static int ensure_in(struct wait *w, hf_error *error) {
    for (;;) {
        bool alive = false;
        int err = probe(&w->addr, w->deadline_ms, &alive, error);
        if (err != HF_OK || alive)
            return err;
        err = bring_up(w, error);
        if (err != HF_OK)
            return err;
    }
}

int hfi_local_ensure(const struct hfi_local_options *options, int64_t deadline_ms,
                     struct hfi_addr *ret_addr, hf_error *error) {
    char directory[HFI_URL_LOCAL_DIR_MAX + 1];
    int64_t now_ms = hfi_now_ms();
    struct wait w = {
        .start = {.dir_fd = -1,
                  .directory = directory,
                  .idle_ms = options->idle_ms > 0 ? options->idle_ms : DEFAULT_IDLE_MS,
                  .search = options->search},
        .began_ms = now_ms,
        .deadline_ms = deadline_ms < now_ms + WAIT_MAX_MS ? deadline_ms : now_ms + WAIT_MAX_MS,
        .start_again_ms = START_AGAIN_MS,
        .pause_ms = 2,
    };
    int err = directory_path(options->directory, directory, sizeof directory, error);
    if (err == HF_OK)
        err = make_address(directory, LOCAL_SOCKET, &w.addr, error);
    if (err == HF_OK)
        err = make_address(directory, LOCAL_SOCKET_IDLE, &w.idle_addr, error);
    if (err == HF_OK)
        err = open_directory(directory, &w.start.dir_fd, error);
    if (err != HF_OK)
        return err;

    err = ensure_in(&w, error);
    close(w.start.dir_fd);
    if (err == HF_OK)
        *ret_addr = w.addr;
    return err;
}

void hfi_local_identity(const char *target, struct hfi_identity *ret) {
    char directory[HFI_URL_LOCAL_DIR_MAX + 1], path[HFI_URL_SOCKET_MAX + 1];
    /* While the monitor checks whether the server can shut down, its socket has another name. It
     * may be renamed between two tries, but not again and again. */
    static const char *const names[] = {LOCAL_SOCKET, LOCAL_SOCKET_IDLE};
    hf_error error;
    *ret = (struct hfi_identity){0};
    if (directory_path(target, directory, sizeof directory, &error) != HF_OK)
        return;
    for (size_t i = 0; i < SOCKET_TRIES_MAX; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i % 2]);
        if (hfi_identity_at(path, ret))
            return;
        if (i % 2 == 1) /* not always between the same two renames */
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

int hfi_resolve_local(const char *target, int64_t deadline_ms, struct hfi_addr *ret_addrs,
                      size_t cap, size_t *ret_count, hf_error *error) {
    if (cap == 0)
        return hfi_fail(error, HF_EINVAL, "out of memory for an address");
    const struct hfi_local_options options = {.directory = target};
    int err = hfi_local_ensure(&options, deadline_ms, &ret_addrs[0], error);
    if (err == HF_OK)
        *ret_count = 1;
    return err;
}
