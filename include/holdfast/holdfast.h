/*
 * holdfast: distributed locks over Redis, Valkey or ZooKeeper.
 *
 * A first lock:
 *
 *     hf_client *client;
 *     hf_lock *lock;
 *     int err = hf_open("redis://localhost", NULL, &client);
 *     if (err == HF_OK) err = hf_lock_new(client, "nightly-report", &lock);
 *     if (err == HF_OK) err = hf_lock_acquire(lock);
 *     if (err == HF_OK) {
 *         ...
 *         err = hf_lock_release(lock); // HF_ELOST: the hold ended before
 *     }
 *
 * Terms
 *   client   connections, a uuid, a watchdog. One per process is enough.
 *   lock     a cheap handle on a named lock. Several may share a name.
 *   owner    the client's uuid and a number: the thread's own, never reused, or the caller's.
 *   hold     one owner's possession of one lock, counted: acquire nests, release un-nests.
 *   lease    how long the server keeps a lock without renewal: fixed, or the watchdog's, renewed
 *            every third of its trusted part (`clock_drift_ppm`) until the hold ends.
 *   lost     a hold that ended without our release: expired, deleted, replaced or broken.
 *
 * Rules for every function, unless its comment (ZooKeeper: docs/curator.md) differs
 *   - Result: HF_OK (0; `_fd`: a descriptor) or a negative HF_E... code; hf_last_error() has this
 *     thread's details. Outputs (`ret_...`) are written on success only; only a `bool *` or
 *     `hf_result *` may be NULL. The latter is filled on failure too, unless the call could not
 *     begin (HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM, inside a callback). NULL `options` mean
 *     the defaults. Functions that free, fire, reset or cancel accept NULL.
 *   - Ownership: strings, names and ids passed in are copied. The caller frees a `char **` output
 *     with hf_text_free().
 *   - Errors: every call may return HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM; those that talk
 *     to the server also the errors of an exchange: HF_EUNREACH, HF_ENOQUORUM (quorums),
 *     HF_EUNAVAILABLE, HF_EOOM, HF_EPERM, HF_ETLS, HF_EPROTO, HF_ENOTSUP (server too old, or
 *     without a command), HF_EINVAL (no such database), HF_EDEADLK (inside a callback), HF_ESYS;
 *     those on semaphores, permits and latches also HF_EINDOUBT, HF_EWRONGTYPE.
 *   - Blocking: calls that talk to the server block for up to `cmd_timeout_ms`, one exchange; those
 *     that wait, for their wait and one exchange. Others return at once. Even HF_FOREVER ends when
 *     no server has answered for `connect_timeout_ms` (HF_EUNREACH), or every command was refused
 *     for that long (HF_EUNAVAILABLE, with the server's message); with Sentinel or Cluster the
 *     limit is `failover_timeout_ms` while any server answers.
 *   - Times: int64_t milliseconds, named `_ms`. A wait of HF_FOREVER (-1) never gives up; 0 is one
 *     attempt, as in `_try`. A lease of HF_WATCHDOG (0) is renewed; HF_NO_LEASE (-1) is for string
 *     locks and permits only.
 *   - Owners: hf_lock_x() acts for this thread, hf_lock_x_as() for an owner (0: this thread).
 *     Operations (_start) refuse owner 0, but an acquire draws a fresh one, returned in its result.
 *   - Structs with a `size` may grow; HF_..._INIT sets it and the defaults, listed in
 *     HF_..._DEFAULTS. A size of 0, too small, or too large is HF_EINVAL, unless the unknown part
 *     is zero. In an output, `size` becomes what was written. Structs made by the library may grow
 *     too: use pointers to them. Some never grow (docs/abi.md).
 *   - Threads: any thread may call any function on any handle; signal handlers none. Do not free a
 *     handle in use by another thread.
 *   - Stack: a calling thread needs 64 KiB; callbacks have at least 512 KiB.
 *   - Callbacks run on the client's dispatch thread (HF_ESYS: it cannot start), or in hf_dispatch()
 *     with HF_MANUAL_DISPATCH; never under a mutex of the library. They may call `_start`
 *     functions; synchronous verbs, hf_op_wait(), hf_dispatch() and hf_close() return HF_EDEADLK.
 *     Removing one (NULL, or its handle freed) blocks until it has returned, except inside a
 *     callback; it never runs again. Meanwhile hold no mutex that a callback takes.
 *   - fork: in a child, calls on the parent's objects return HF_EFORKED; hf_close() and functions
 *     that free only close descriptors, and cancelling does nothing. The parent's locks are
 *     untouched. A child's thread has a new number.
 *   - pthread_cancel: no function is a cancellation point; the call and its callbacks finish first.
 *     Asynchronous cancellation must be off.
 *   - The library never prints, exits, installs signal handlers or raises SIGPIPE.
 */
#ifndef HOLDFAST_HOLDFAST_H
#define HOLDFAST_HOLDFAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HF_API __attribute__((visibility("default")))
#else
#define HF_API
#endif

#define HF_VERSION_MAJOR 1
#define HF_VERSION_MINOR 0
#define HF_VERSION_PATCH 0
#define HF_VERSION_SUFFIX "-rc.1" /* "" in a release */
#define HF_VERSION_NUM (HF_VERSION_MAJOR * 10000 + HF_VERSION_MINOR * 100 + HF_VERSION_PATCH)
#define HF_VERSION_JOIN(major, minor, patch, suffix) #major "." #minor "." #patch suffix
#define HF_VERSION_OF(major, minor, patch, suffix) HF_VERSION_JOIN(major, minor, patch, suffix)
#define HF_VERSION_TEXT                                                                            \
    HF_VERSION_OF(HF_VERSION_MAJOR, HF_VERSION_MINOR, HF_VERSION_PATCH, HF_VERSION_SUFFIX)

/* The loaded library's HF_VERSION_TEXT and HF_VERSION_NUM. */
HF_API const char *hf_version(void);
HF_API int hf_version_num(void);

/* ---- Errors ---------------------------------------------------------------------------------- */

/* X(name, number, meaning). No answer to TLS is HF_EUNREACH, with a hint in hf_last_error(). */
#define HF_ERRORS(X)                                                                               \
    X(HF_EBUSY, -1, "another owner holds the lock")                                                \
    X(HF_ETIMEDOUT, -2, "the wait ended before the lock was free")                                 \
    X(HF_ENOTOWNER, -3, "this owner does not hold the lock")                                       \
    X(HF_ELOST, -4, "the hold ended before it was released")                                       \
    X(HF_EINDOUBT, -5, "the server did not answer; the command may or may not have run")           \
    X(HF_ECANCELED, -6, "the wait was cancelled")                                                  \
    X(HF_ECLOSED, -7, "the client is closed")                                                      \
    X(HF_EFORKED, -8, "this client belongs to the parent process")                                 \
    X(HF_EDEADLK, -9, "the call would wait for itself")                                            \
    X(HF_EWRONGTYPE, -10, "the name is in use for something else")                                 \
    X(HF_EPERM, -11, "the server denied access: check password, user and access list")             \
    X(HF_EUNREACH, -12, "the server cannot be reached")                                            \
    X(HF_ENOQUORUM, -13, "too few of the servers answered")                                        \
    X(HF_ENOREPLICA, -14, "too few replicas confirmed")                                            \
    X(HF_ENOMEM, -15, "out of memory")                                                             \
    X(HF_EPROTO, -16, "the server sent an invalid reply")                                          \
    X(HF_EINVAL, -17, "invalid argument")                                                          \
    X(HF_ENOTSUP, -18, "not supported here")                                                       \
    X(HF_EUNAVAILABLE, -19, "the server cannot take commands now")                                 \
    X(HF_EOOM, -20, "the server is out of memory")                                                 \
    X(HF_ESYS, -21, "a system call failed")                                                        \
    X(HF_ETLS, -22, "TLS failed: a certificate was rejected, or the peer does not speak TLS")      \
    X(HF_EPENDING, -23, "the operation is not complete yet")

enum {
    HF_OK = 0,
#define HF_ERROR_ENUM(name, number, text) name = (number),
    HF_ERRORS(HF_ERROR_ENUM)
#undef HF_ERROR_ENUM
};

/* A sentence about an error; never NULL. */
HF_API const char *hf_strerror(int err);

/* The name of an error, "HF_EBUSY"; never NULL. */
HF_API const char *hf_error_name(int err);

typedef struct hf_error {
    int code;
    int sys_errno;
    char node[108]; /* which server, or "" */
    char text[256]; /* the server's message or ours; never a password */
} hf_error;

/* Details of this thread's last failed call, valid until its next call. */
HF_API const hf_error *hf_last_error(void);

/* Writes an error (NULL: this thread's last, which stays) as one line: "HF_EUNREACH at db:6379: the
 * server cannot be reached: Connection refused". Returns `text`, cut to `size` (HF_ERROR_FORMAT_MAX
 * is enough for any). */
#define HF_ERROR_FORMAT_MAX 512
HF_API const char *hf_error_format(const hf_error *error, char *text, size_t size);

/* ---- Client ---------------------------------------------------------------------------------- */

typedef struct hf_client hf_client;

#define HF_FOREVER (-INT64_C(1))
#define HF_WATCHDOG INT64_C(0)
/* Held until released or broken, even if the holder dies. */
#define HF_NO_LEASE (-INT64_C(1))
#define HF_MANUAL_DISPATCH 0x1u
#define HF_TLS_INSECURE 0x2u /* accept any certificate, so any server in between */
/* Never spin. By default calls spin for up to 0.1 ms, where that pays. */
#define HF_NO_BUSY_POLL 0x4u
/* No client-side caching: a loss is noticed at the next renewal, not (usually) within
 * milliseconds. */
#define HF_NO_TRACKING 0x8u
#define HF_TLS_1_2 12
#define HF_TLS_1_3 13
#define HF_SENTINEL_TLS_ON 1
#define HF_SENTINEL_TLS_OFF 2
#define HF_ACKS_ALL (-1)    /* every replica reported up by sentinels or cluster, one at least */
#define HF_ACKS_REPORT (-2) /* wait, and only report acks */
#define HF_ACKS_OFF (-3)
#define HF_ACKS_MAX 100

#ifndef __cplusplus
#define HF_INIT(type, defaults)                                                                    \
    { .size = sizeof(type), defaults(HF_INIT_FIELD) }
#define HF_INIT_FIELD(field, value) .field = (value),
#else
#define HF_INIT(type, defaults) type##_init()
#define HF_INIT_FIELD(field, value) made.field = (value);
#endif
#define HF_NO_DEFAULTS(X)

typedef enum hf_log_level { HF_LOG_ERROR, HF_LOG_WARN, HF_LOG_INFO, HF_LOG_DEBUG } hf_log_level;
/* Called on any thread, perhaps with mutexes of the library held; no lease is renewed meanwhile.
 * Must not call the library, block, or take a mutex held during a call of the library. */
typedef void (*hf_log_fn)(hf_log_level level, const char *message, void *user);

/* The message and what it is about. Valid during the call. */
typedef struct hf_log_record {
    hf_log_level level;
    const char *message;
    int code;           /* HF_E...; HF_OK: no error */
    const char *server; /* host:port or a path; "": no single one */
    const char *name;   /* of a lock or object, as its handle has it, perhaps without a NUL */
    size_t name_len;    /* 0: no single one */
} hf_log_record;
/* Replaces hf_log_fn; the same restrictions apply. */
typedef void (*hf_log_record_fn)(const hf_log_record *record, void *user);

/* Can end a synchronous wait. Called on the waiting thread, under no mutex of the library, after a
 * signal, and every HF_CHECK_MS while it waits or connects. True ends the wait: HF_ECANCELED, or
 * HF_OK if a grant came at that moment. Inside, synchronous functions return HF_EDEADLK. Return
 * soon: other threads may depend on it. Operations (_start) refuse one: HF_EINVAL. */
#define HF_CHECK_MS 50
typedef bool (*hf_check_fn)(void *user);

/* Maps the address that a server or sentinel announces to one that reaches it. True: it wrote the
 * outputs (`ret_host`: HF_HOST_SIZE bytes); false: use `host` and `port`. Threads and limits: as
 * hf_log_fn. */
#define HF_HOST_SIZE 256
typedef bool (*hf_address_map_fn)(const char *host, uint16_t port, char *ret_host,
                                  uint16_t *ret_port, void *user);

/* Set all three functions, or leave all zero. `resize` takes NULL. Called on any thread. */
typedef struct hf_allocator {
    void *(*allocate)(size_t size, void *user);
    void *(*resize)(void *ptr, size_t size, void *user);
    void (*release)(void *ptr, void *user);
    void *user;
} hf_allocator;

typedef struct hf_options {
    size_t size;
    const char *user;           /* these two override the url's */
    const char *password;       /* NULL beside a user: empty */
    const char *name_prefix;    /* prepended to every name (Redisson: NameMapper) */
    int64_t cmd_timeout_ms;     /* one exchange, connect and handshake included */
    int64_t connect_timeout_ms; /* ends waits: see Blocking */
    /* Lease of watchdog holds; ZooKeeper: the session timeout to ask for. */
    int64_t watchdog_ms;
    int64_t max_hold_ms;      /* watchdog holds are not renewed past this age; 0: no limit */
    int64_t ping_interval_ms; /* check interval of idle connections */
    unsigned flags; /* HF_MANUAL_DISPATCH, HF_TLS_INSECURE, HF_NO_BUSY_POLL, HF_NO_TRACKING */
    hf_log_fn log;  /* NULL: silent */
    void *log_user;
    hf_allocator allocator; /* all zero: malloc */

    /* With TLS only; PEM files, read by hf_open(). The server's certificate must chain to a trusted
     * CA and name the url's host (or address). */
    const char *tls_ca_file;     /* trusted CAs; with neither: the system's */
    const char *tls_ca_dir;      /* a directory prepared by `openssl rehash` */
    const char *tls_cert_file;   /* client certificate and chain */
    const char *tls_key_file;    /* its unencrypted key; NULL: in tls_cert_file */
    const char *tls_server_name; /* SNI, and verified instead of the url's host */
    int tls_min_version;         /* HF_TLS_1_2 (also 0) or HF_TLS_1_3 */

    int64_t fair_wait_ms; /* Java's `fairLockWaitTimeout` */
    /* Quorum: a server that started less than this ago has no vote. -1: watchdog_ms. 0: off, for
     * servers that forget nothing. The same for all clients (docs/quorum.md). */
    int64_t restart_guard_ms;

    /* redis-sentinel:// only. Sentinels are never sent the servers' user and password. */
    const char *master;        /* name of the primary, unless in the url */
    const char *sentinel_user; /* these two override the url's */
    const char *sentinel_password;
    int sentinel_tls; /* HF_SENTINEL_TLS_ON or _OFF; 0: as the url says, else as the servers */
    const char *sentinel_tls_server_name;
    int64_t failover_timeout_ms;
    hf_address_map_fn
        address_map; /* for addresses missing in the url's `address_map`; NULL: none */
    void *address_map_user;

    /* Replicas that must confirm an acquire: 1 to HF_ACKS_MAX, or HF_ACKS_...; 0 is HF_ACKS_OFF.
     * With fewer an acquire is undone (HF_ENOREPLICA), and a renewal or extension does not count:
     * the hold ends at its deadline, after a warning. Semaphores and permits only report acks;
     * releases do not wait. Not for quorums; HF_ACKS_ALL needs Sentinel or a cluster. */
    int acks;
    int ack_disk; /* 1: acks mean on disk, at the primary too (Redis 7.2, `appendonly yes`) */
    /* At most a third of cmd_timeout_ms and a ninth of watchdog_ms. */
    int64_t ack_timeout_ms;

    /* A client that has held or waited this long answers hf_survey(). -1: never. */
    int64_t report_after_ms;

    /* Names with histograms: 0 to 10000, 1 KiB each. If full, a name without a handle for five
     * minutes makes room. */
    int64_t histogram_names;

    /* The client's name on its server, readable by every user, and in surveys. Default: the
     * program's. Cut after 64 bytes; anything but printable ASCII becomes `_`. */
    const char *label;

    /* How far the rates of a server's clock and ours may differ, in ppm: 0 to 500000. A hold is
     * trusted for its lease minus this fraction. */
    int64_t clock_drift_ppm;

    /* redis-sentinel:// only. 1: a renewal, extension or nested acquire counts only if most
     * sentinels then still name its server as the primary; else the latter two are HF_EUNREACH
     * (docs/topologies.md). */
    int sentinel_confirm;

    hf_log_record_fn log_record; /* with `log_user`, in place of `log` */
} hf_options;

/* For generators of bindings: X(type, field) of every field but `size`, in order. */
#define HF_OPTIONS_FIELDS(X)                                                                       \
    X(const char *, user)                                                                          \
    X(const char *, password)                                                                      \
    X(const char *, name_prefix)                                                                   \
    X(int64_t, cmd_timeout_ms)                                                                     \
    X(int64_t, connect_timeout_ms)                                                                 \
    X(int64_t, watchdog_ms)                                                                        \
    X(int64_t, max_hold_ms)                                                                        \
    X(int64_t, ping_interval_ms)                                                                   \
    X(unsigned, flags)                                                                             \
    X(hf_log_fn, log)                                                                              \
    X(void *, log_user)                                                                            \
    X(hf_allocator, allocator)                                                                     \
    X(const char *, tls_ca_file)                                                                   \
    X(const char *, tls_ca_dir)                                                                    \
    X(const char *, tls_cert_file)                                                                 \
    X(const char *, tls_key_file)                                                                  \
    X(const char *, tls_server_name)                                                               \
    X(int, tls_min_version)                                                                        \
    X(int64_t, fair_wait_ms)                                                                       \
    X(int64_t, restart_guard_ms)                                                                   \
    X(const char *, master)                                                                        \
    X(const char *, sentinel_user)                                                                 \
    X(const char *, sentinel_password)                                                             \
    X(int, sentinel_tls)                                                                           \
    X(const char *, sentinel_tls_server_name)                                                      \
    X(int64_t, failover_timeout_ms)                                                                \
    X(hf_address_map_fn, address_map)                                                              \
    X(void *, address_map_user)                                                                    \
    X(int, acks)                                                                                   \
    X(int, ack_disk)                                                                               \
    X(int64_t, ack_timeout_ms)                                                                     \
    X(int64_t, report_after_ms)                                                                    \
    X(int64_t, histogram_names)                                                                    \
    X(const char *, label)                                                                         \
    X(int64_t, clock_drift_ppm)                                                                    \
    X(int, sentinel_confirm)                                                                       \
    X(hf_log_record_fn, log_record)

#define HF_OPTIONS_DEFAULTS(X)                                                                     \
    X(cmd_timeout_ms, 3000)                                                                        \
    X(connect_timeout_ms, 10000)                                                                   \
    X(watchdog_ms, 30000)                                                                          \
    X(ping_interval_ms, 10000)                                                                     \
    X(fair_wait_ms, 300000)                                                                        \
    X(restart_guard_ms, -1)                                                                        \
    X(failover_timeout_ms, 60000)                                                                  \
    X(ack_timeout_ms, 1000)                                                                        \
    X(report_after_ms, 1000)                                                                       \
    X(histogram_names, 64)                                                                         \
    X(clock_drift_ppm, 10000)
#define HF_OPTIONS_INIT HF_INIT(hf_options, HF_OPTIONS_DEFAULTS)

/* Makes a client. Nothing is sent: connections open when first needed.
 *   url      redis://[user:password@]host[:port][/db][?option=value&...], valkey://, with TLS
 *            rediss://, valkeys://; unix://path; local:
 *            redis-sentinel://host[:port],.../name[/db]
 *            redis-cluster://host[:port],...[/db]
 *            zk://[user:password@]host[:port],...[/chroot], with TLS zks://
 *            NULL: HOLDFAST_URL, or if unset REDIS_URL; HF_EINVAL if unset or empty
 *   urls     separated by blanks: a quorum (docs/quorum.md) of three to nine independent servers,
 *            of which more than half must grant a lock. Give every process the same servers. Plain,
 *            string and fenced locks only.
 *   options  overridden by those in the url; docs/guide.md has all.
 * Errors:  HF_EINVAL (hf_last_error() names the bad part or file), HF_ENOTSUP, HF_ESYS. */
HF_API int hf_open(const char *url, const hf_options *options, hf_client **ret_client);

/* Ends a client. Waiting calls return HF_ECLOSED, and callbacks still due run with that code. Holds
 * are not released: their leases run out; those without one stay. Afterwards handles may only be
 * freed.
 * Blocks:  until running callbacks have returned; also, up to `cmd_timeout_ms`, to undo an
 *          abandoned acquire, finish an unanswered release or announce a loss. A hanging name
 *          lookup may outlive the client in its own thread. */
HF_API int hf_close(hf_client *client);

/* Like hf_close(), but does not block, and may be called inside a callback. `callback` runs last,
 * when the client is gone, and may call any function. With HF_MANUAL_DISPATCH one thread must keep
 * calling hf_dispatch() until it has run there; that call returns 1. Otherwise it runs on a thread
 * of its own, and may be NULL.
 * Errors:  HF_ESYS no thread, HF_ECLOSED it closes already: nothing was done. */
typedef void (*hf_close_fn)(void *user);
HF_API int hf_close_start(hf_client *client, hf_close_fn callback, void *user);

/* Checks that the server is reachable, accepts our credentials and is new enough. */
HF_API int hf_ping(hf_client *client);

/* The client's uuid, with which its owners' names begin. Valid until hf_close(). */
HF_API const char *hf_client_id(const hf_client *client);

/* Runs due callbacks, about a thousand at most. Returns how many ran (0: the wait is over).
 * Blocks:  up to `wait_ms` until one has run, and while callbacks run.
 * Errors:  HF_EINVAL without HF_MANUAL_DISPATCH; HF_EBUSY another thread is in this function. */
HF_API int hf_dispatch(hf_client *client, int64_t wait_ms);

/* Polls readable when hf_dispatch(client, 0) has work, with or without a callback. Closed by
 * hf_close().
 * Errors:  HF_EINVAL without HF_MANUAL_DISPATCH. */
HF_API int hf_dispatch_fd(hf_client *client);

/* ---- Owners ---------------------------------------------------------------------------------- */

/* A caller chooses 1 to 4294967295; the library draws larger ones, unique in the process. */
typedef uint64_t hf_owner;

HF_API hf_owner hf_owner_new(void);

/* This thread's number; 0: out of memory. */
HF_API hf_owner hf_owner_self(void);

/* ---- Locks ----------------------------------------------------------------------------------- */

typedef struct hf_lock hf_lock;
typedef struct hf_op hf_op;
typedef struct hf_cancel hf_cancel;

/* Use a name for one kind only: another is HF_EWRONGTYPE wherever the server can tell. Handles with
 * different flags share the lock; the two sides of a read/write lock share the name. */
typedef enum hf_kind {
    /* Reentrant, exclusive, unfair: Redisson's RLock. A client that re-acquires right after a
     * release first yields to some remote waiters (docs/guide.md). */
    HF_PLAIN,
    /* First come, first served, across processes: RFairLock. After a hand-over the new holder can
     * trust the lock for a few seconds only (`remaining_ms`), until its first renewal, a third of
     * that later. */
    HF_FAIR,
    /* Many readers or one writer: RReadWriteLock. A writer may also read, and keep reading when it
     * stops writing; a reader that wants to write gets HF_EDEADLK. Readers can starve a writer. */
    HF_READ,
    HF_WRITE,
    /* `SET name token NX` with a lease, freed by compare-and-delete: shares a lock with redis-py,
     * redsync, node-redlock and most others (docs/strings.md). Reentrant, exclusive, unfair. Redis
     * only.
     *   - Each hold has a token of its own as the value: "uuid:number:" and 16 digits.
     *   - The server has no count: hf_lock_hold_count() is 0 for other clients' holds.
     *   - hf_lock_break() deletes whatever string has the name. */
    HF_STRING
} hf_kind;

/* Only HF_COHORT and HF_NONREENTRANT combine; others are HF_ENOTSUP. */
#define HF_NONREENTRANT 0x100u /* plain, fair, string: acquiring again is HF_EDEADLK */
#define HF_SPIN 0x200u         /* plain, string: waiters retry, for very short holds */
#define HF_FENCED 0x400u /* plain: every acquire draws a token for hf_fence_check(): RFencedLock */
/* Threads of this process pass the lock on in arrival order without asking the server, which sees
 * the client as one owner; hf_lock_is_mine() is true only for the thread that holds it. After
 * `cohort_passes` hand-overs, or `cohort_ms` after the grant, other clients are let in
 * (docs/guide.md).
 *   - A release that passes the lock on is HF_OK if no loss is known. A loss is reported to the
 *     thread that holds the lock; it is then no longer passed on.
 *   - On the server the lease is `watchdog_ms`; the client keeps leases and extensions.
 *   - A wait of 0 is HF_EBUSY also while another thread waits.
 * For HF_PLAIN, HF_FAIR and HF_STRING; not for hf_lock_new_multi(), hf_lock_adopt(), or an acquire
 * with `acks`. */
#define HF_COHORT 0x800u

typedef struct hf_lock_options {
    size_t size;
    hf_kind kind;
    unsigned flags;
    /* HF_SPIN: the first and the longest sleep (1 ms to one day), and its growth each time (1 to
     * 1000), with jitter. */
    int64_t spin_first_ms;
    int64_t spin_factor;
    int64_t spin_max_ms;
    /* HF_COHORT: 1 to 1000000, and 1 ms to a minute; the strictest handle counts. */
    int64_t cohort_passes;
    int64_t cohort_ms;
} hf_lock_options;

#define HF_LOCK_OPTIONS_DEFAULTS(X)                                                                \
    X(spin_first_ms, 1)                                                                            \
    X(spin_factor, 2)                                                                              \
    X(spin_max_ms, 128)                                                                            \
    X(cohort_passes, 1000)                                                                         \
    X(cohort_ms, 5)
#define HF_LOCK_OPTIONS_INIT HF_INIT(hf_lock_options, HF_LOCK_OPTIONS_DEFAULTS)

/* Makes a handle, as all `_new` do; nothing is sent. A name has 1 to 65535 bytes of any value,
 * `name_prefix` included; Java knows only valid UTF-8. Without options it is a plain lock.
 * Errors:  HF_ENOTSUP no such kind. */
HF_API int hf_lock_new(hf_client *client, const char *name, hf_lock **ret_lock);
HF_API int hf_lock_new_bytes(hf_client *client, const void *name, size_t name_len,
                             hf_lock **ret_lock);
HF_API int hf_lock_new_named(hf_client *client, const char *name, const hf_lock_options *options,
                             hf_lock **ret_lock);
HF_API int hf_lock_new_with(hf_client *client, const void *name, size_t name_len,
                            const hf_lock_options *options, hf_lock **ret_lock);

/* Some values of a group as one lock: all or none, in one step on one server. Redisson's
 * getMultiLock(group, values) with StringCodec, whose leases end by Java's clocks: they must agree
 * with the server's to much less than a lease.
 *
 * No lock of another kind may have the group's name. A value is any bytes, even none; duplicates
 * and order mean nothing: handles of the same values are one lock. An owner that holds some of the
 * values together with others gets HF_EDEADLK. hf_lock_is_locked() is true if any value is held,
 * hf_lock_ttl_ms() the time until all are free, hf_lock_hold_count() 0 unless the owner holds all;
 * hf_lock_break() breaks every hold with any of the values. hf_lock_name() is the group;
 * hf_lock_inspect() is HF_ENOTSUP.
 * Errors:  HF_EINVAL no values, or more than HF_GROUP_VALUES_MAX. */
#define HF_GROUP_VALUES_MAX 1000
typedef struct hf_bytes {
    const void *bytes;
    size_t len;
} hf_bytes;
HF_API int hf_lock_new_group(hf_client *client, const void *group, size_t group_len,
                             const hf_bytes *values, size_t values_len, hf_lock **ret_lock);

/* Many locks as one: all or none. Members are of any kind but cohorts, and of any clients; a
 * multi-lock counts as its members. Their handles may be freed.
 *
 * It cannot deadlock: if a member is busy, it releases all, waits for that one and starts again. It
 * is lost as soon as one member is; the others are then released. Members are ordinary holds, with
 * the same owner number in every client, and nest.
 *
 * hf_lock_name() is the members' names, joined by spaces. hf_lock_is_locked() is true if any member
 * is held, hf_lock_is_mine() if the owner holds all; hf_lock_hold_count() and hf_lock_ttl_ms() are
 * the smallest of (held) members. hf_lock_break(), hf_lock_inspect() and hf_lock_token() are
 * HF_ENOTSUP. An error's text begins with the failing member's name. A release goes to all members,
 * and returns the worst: HF_ELOST, then HF_ENOTOWNER, HF_EINDOUBT, any other. Callbacks run on the
 * first member's client. If a member's client is closed, an acquire returns HF_ECLOSED, and a hold
 * ends with that member's lease.
 * Errors:  HF_EINVAL no members, more than HF_MULTI_MAX, or a duplicate. */
#define HF_MULTI_MAX 64
HF_API int hf_lock_new_multi(hf_lock *const *members, size_t members_len, hf_lock **ret_lock);

/* Frees a handle and removes its loss callback. Its holds stay; another handle can release them. */
HF_API void hf_lock_free(hf_lock *lock);

/* The name as given, followed by a NUL; `ret_len` may be NULL. Valid as long as the handle. */
HF_API const char *hf_lock_name(const hf_lock *lock, size_t *ret_len);

typedef struct hf_acquire_options {
    size_t size;
    hf_owner owner;
    int64_t wait_ms;
    /* HF_WATCHDOG, 1 .. HF_LEASE_MAX_MS, or, for HF_STRING, HF_NO_LEASE: a client that cannot reach
     * the server goes on trusting such a hold. HF_NO_LEASE is HF_EINVAL for other kinds, cohorts,
     * quorums and multi-locks, and HF_ENOTSUP if nested in a hold with a lease. */
    int64_t lease_ms;
    hf_cancel *cancel;
    int acks; /* as in hf_options; 0: the client's. Nested: the strictest */
    /* HF_STRING: the value at the server, 1 to HF_STRING_TOKEN_MAX bytes; NULL: drawn. Nested
     * acquires ignore it. Never reuse a token: a delayed command of the first hold can release or
     * extend the second. If two clients use one at once, a lost reply can let both in. */
    const char *string_token;
    hf_check_fn check;
    void *check_user;
} hf_acquire_options;
#define HF_STRING_TOKEN_MAX 1024

#define HF_LEASE_MAX_MS (INT64_C(1000) * 60 * 60 * 24 * 3660)
#define HF_ACQUIRE_OPTIONS_DEFAULTS(X)                                                             \
    X(wait_ms, HF_FOREVER)                                                                         \
    X(lease_ms, HF_WATCHDOG)
#define HF_ACQUIRE_OPTIONS_INIT HF_INIT(hf_acquire_options, HF_ACQUIRE_OPTIONS_DEFAULTS)

/* An operation's outcome. Fields that do not apply are 0. */
typedef struct hf_result {
    size_t size;
    int code;
    hf_owner owner;
    int64_t count; /* acquire, release: the owner's count on this lock now */
    /* acquire, extend: how long the hold can be trusted, from now; INT64_MAX: it has no lease */
    int64_t remaining_ms;
    int64_t token; /* fenced locks: larger than every token before it */
    /* the answer or number; booleans, and whether it was done: 0 or 1 */
    int64_t value;
    hf_error error;
    int64_t votes;   /* acquire, extend on a quorum: how many servers granted it */
    int64_t servers; /* of how many */
    int64_t acked;   /* acquire, extend with `acks`: how many replicas confirmed */
} hf_result;

#define HF_RESULT_FIELDS(X)                                                                        \
    X(int, code)                                                                                   \
    X(hf_owner, owner)                                                                             \
    X(int64_t, count)                                                                              \
    X(int64_t, remaining_ms)                                                                       \
    X(int64_t, token)                                                                              \
    X(int64_t, value)                                                                              \
    X(hf_error, error)                                                                             \
    X(int64_t, votes)                                                                              \
    X(int64_t, servers)                                                                            \
    X(int64_t, acked)

#define HF_RESULT_INIT HF_INIT(hf_result, HF_NO_DEFAULTS)

/* Acquires for this thread, with the watchdog: waits for ever / one attempt / up to `wait_ms`.
 * Errors:  HF_EBUSY the one attempt found another holder; HF_ETIMEDOUT the wait ended while another
 *          held it or an earlier attempt of this owner was not settled, or the answer came after
 *          the lease. Nothing is held then: a command in flight is undone in the background.
 *          HF_ELOST a nested acquire found the hold gone (count 0); HF_EWRONGTYPE; HF_EDEADLK the
 *          owner holds it with HF_NONREENTRANT, or reads and wants to write; HF_ENOREPLICA (retried
 *          within the wait, for at most `connect_timeout_ms` if nothing else fails). After any
 *          error but HF_ELOST the hold is unchanged. */
HF_API int hf_lock_acquire(hf_lock *lock);
HF_API int hf_lock_try(hf_lock *lock);
HF_API int hf_lock_acquire_for(hf_lock *lock, int64_t wait_ms);

/* Acquires with all options. A hold is renewed from its first watchdog acquire until its full
 * release; a nested fixed lease never shortens it.
 * Errors:  also HF_ECANCELED. */
HF_API int hf_lock_acquire_with(hf_lock *lock, const hf_acquire_options *options, hf_result *ret);

/* Undoes one acquire; the last release frees the lock and wakes a waiter.
 * Errors:  HF_ENOTOWNER; HF_ELOST (another may have been inside); HF_EWRONGTYPE a key beside the
 *          hold has the wrong type: the lease ends it; HF_EINDOUBT, and errors of an exchange:
 *          after a last release this client no longer holds the lock; it retries the release in the
 *          background until the lease ends; a nested one undoes its acquire, and the rest is still
 *          held and renewed; HF_ENOMEM nothing was done. */
HF_API int hf_lock_release(hf_lock *lock);
HF_API int hf_lock_release_as(hf_lock *lock, hf_owner owner);

/* Stops renewing a hold whose owner can no longer release it, as the library does when a thread
 * ends. Unless it is released, extended or acquired again, it ends after hf_lock_remaining_ms_as()
 * and is reported lost. A fixed lease, or none, stays as it is. Nothing is sent.
 * Errors:  HF_ENOTOWNER, HF_ELOST. */
HF_API int hf_lock_forget(hf_lock *lock);
HF_API int hf_lock_forget_as(hf_lock *lock, hf_owner owner);

/* Makes the hold last at least `lease_ms` (1 to HF_LEASE_MAX_MS) from now; never shortens it. One
 * without a lease stays without.
 * Errors:  HF_ENOTOWNER, HF_ELOST, HF_EINDOUBT; HF_ENOREPLICA the hold lasts as long as before. */
HF_API int hf_lock_extend(hf_lock *lock, int64_t lease_ms);
HF_API int hf_lock_extend_as(hf_lock *lock, hf_owner owner, int64_t lease_ms);

typedef enum hf_extend_mode {
    HF_EXTEND_RAISE, /* like hf_lock_extend() */
    HF_EXTEND_SET,   /* to `lease_ms` from now, even if that is sooner; not renewed any more */
    HF_EXTEND_ADD    /* by `lease_ms`, in one step at the server */
} hf_extend_mode;

typedef struct hf_extend_options {
    size_t size;
    hf_owner owner;
    int64_t lease_ms; /* 1 to HF_LEASE_MAX_MS */
    hf_extend_mode mode;
} hf_extend_options;

#define HF_EXTEND_OPTIONS_DEFAULTS(X) X(mode, HF_EXTEND_RAISE)
#define HF_EXTEND_OPTIONS_INIT HF_INIT(hf_extend_options, HF_EXTEND_OPTIONS_DEFAULTS)

/* Extends as `mode` says. SET and ADD are sent once, and need a plain, fair or string lock without
 * HF_COHORT, one server with scripts, and a hold with a lease; else HF_ENOTSUP. If the answer to a
 * SET is lost, the hold is trusted only until the sooner of both ends, and further extensions are
 * HF_EINDOUBT while it may still arrive (`cmd_timeout_ms`). A renewal under way during a SET can
 * lengthen the lease at the server.
 * Errors:  those of hf_lock_extend(). */
HF_API int hf_lock_extend_with(hf_lock *lock, const hf_extend_options *options, hf_result *ret);

/* Takes over another client's hold, even if that client has ended: renews it, or lengthens it to a
 * fixed `lease_ms`, and reports its loss. The hold's handle is "uuid:number": hf_client_id(), a
 * colon, the owner (of a Java thread "id:threadId"); of a string lock the token, also another
 * library's. Owner and count on the server do not change. The result's `owner` is for the `_as`
 * functions, until release or reported loss. A fenced hold draws a new token. Adopting one's own
 * hold only lengthens it.
 *
 * Any client that knows the handle may release it. The client that acquired it, if alive, goes on
 * renewing it, and reports a loss when this one releases. If a string token is not unique, a
 * successor's hold may be adopted.
 *
 * For plain, fair, string and read/write locks without HF_COHORT, not on quorums or ZooKeeper.
 * Errors:  HF_EINVAL not a handle; HF_ENOTOWNER it holds nothing, or no longer; HF_EWRONGTYPE;
 *          HF_ELOST adopted before and ended since; HF_ETIMEDOUT the lease ended before the answer;
 *          HF_ENOREPLICA, HF_EINDOUBT nothing is this client's then. */
HF_API int hf_lock_adopt(hf_lock *lock, const char *handle, int64_t lease_ms, hf_result *ret);
/* Writes the handle of this client's hold (owner 0: this thread's), and a NUL: HF_HANDLE_MAX bytes
 * at most. Without I/O.
 * Errors:  HF_ENOTOWNER not held, or a lock made of others; HF_EINVAL too little room. */
#define HF_HANDLE_MAX 1025
HF_API int hf_lock_handle(hf_lock *lock, hf_owner owner, char *ret, size_t size);

/* Breaks the lock: every hold ends, and waiters may enter. A holdfast client that has held for a
 * second gets a message and reports a loss; others notice at their next renewal. Of a read/write
 * lock it breaks the handle's side: all readers, or the writer and its reads.
 * Errors:  HF_EWRONGTYPE not a lock of this kind; HF_EINDOUBT. */
HF_API int hf_lock_break(hf_lock *lock, bool *ret_broken);

/* Ask the server whether the lock is held, whether (and how often) this thread or the given owner
 * holds it, and when its lease ends (-1 never; -2 not held). Of a read/write lock ttl covers both
 * sides, the others the handle's.
 * Errors:  HF_EWRONGTYPE. */
HF_API int hf_lock_is_locked(hf_lock *lock, bool *ret_locked);
HF_API int hf_lock_is_mine(hf_lock *lock, bool *ret_mine);
HF_API int hf_lock_is_mine_as(hf_lock *lock, hf_owner owner, bool *ret_mine);
HF_API int hf_lock_hold_count(hf_lock *lock, int64_t *ret_count);
HF_API int hf_lock_hold_count_as(hf_lock *lock, hf_owner owner, int64_t *ret_count);
HF_API int hf_lock_ttl_ms(hf_lock *lock, int64_t *ret_ttl_ms);

/* Return how long this owner's hold can be trusted, rounded down (0: less than 1 ms, not held, or
 * lost; INT64_MAX: no lease), and a fenced hold's latest token. Without I/O.
 * Errors:  HF_ENOTOWNER no such hold; HF_ENOTSUP a kind without tokens. */
HF_API int64_t hf_lock_remaining_ms(hf_lock *lock);
HF_API int64_t hf_lock_remaining_ms_as(hf_lock *lock, hf_owner owner);
HF_API int hf_lock_token(hf_lock *lock, int64_t *ret_token);
HF_API int hf_lock_token_as(hf_lock *lock, hf_owner owner, int64_t *ret_token);

/* Without waiters a fair lock looks like a plain one on the server: the kind is then the
 * handle's. */
typedef enum hf_found {
    HF_FOUND_FREE,
    HF_FOUND_PLAIN,
    HF_FOUND_FAIR,
    HF_FOUND_READ,
    HF_FOUND_WRITE,
    HF_FOUND_PERMITS, /* permits, some taken; in ZooKeeper perhaps none */
    HF_FOUND_COUNTER, /* a semaphore, a latch, or permits with none taken */
    HF_FOUND_OTHER,   /* not holdfast's */
    /* a string with a token of ours; with a handle of HF_STRING any string. Its holder's `owner` is
     * the token, unprintable bytes as `\xNN` */
    HF_FOUND_STRING
} hf_found;

typedef struct hf_holder {
    char *owner; /* "uuid:number", of any client */
    int64_t count;
    /* its connection's name ("host pid program"); NULL: unknown */
    char *connection;
} hf_holder;
typedef struct hf_lock_info {
    hf_found kind;
    int64_t ttl_ms;
    /* read/write lock: the readers, and the writer with ":write" after its owner and its count of
     * write holds */
    size_t holders_len;
    hf_holder **holders;
    size_t waiters_len; /* fair locks: in order, with a count of 0 */
    hf_holder **waiters;
    const char *type_name; /* HF_FOUND_OTHER: its type on the server; else NULL */
} hf_lock_info;
/* Asks who holds the lock. A name that is not a lock is no error: see `kind`. */
HF_API int hf_lock_inspect(hf_lock *lock, hf_lock_info **ret_info);
HF_API void hf_lock_info_free(hf_lock_info *info);

/* What was found, and the name, as JSON with the keys of `holdfast show --json`. Bytes that are not
 * UTF-8 are replaced; such a name is also given as `name_hex`. */
HF_API int hf_lock_info_json(const hf_lock_info *info, const char *name, size_t name_len,
                             char **ret_text);

/* What a name's server says about itself; may grow:
 *   info.<field>         from INFO: "info.redis_version"
 *   config.<parameter>   that matters to locks: "config.maxmemory-policy"
 *   may.<command>        "yes" if this user may call it
 *   may.script.<command> the same for scripts
 *   has.<command>        "yes" if the server has it: delifeq, delex, set-ifeq, tracking
 *   clock.ahead_ms       the server's clock minus this machine's
 *   clock.uncertain_ms   its uncertainty
 *   tls.until_s          Unix time when the chain's first certificate expires
 *   zk.session_ms        the granted session timeout
 *   zk.config            the ensemble's configuration; empty: one server */
typedef struct hf_server_info_field {
    char *name;
    char *value;  /* NULL: the server hides it */
    char *reason; /* the server's reason; else NULL */
} hf_server_info_field;
typedef struct hf_server_info {
    char *node;
    size_t fields_len;
    hf_server_info_field **fields;
} hf_server_info;
/* Asks the server about itself. Pass an unused name: the check writes to it and then restores it
 * (not in ZooKeeper). For plain, fair and read/write locks; quorums: HF_ENOTSUP. If the server
 * refuses a query, the field has the reason; the call succeeds. */
HF_API int hf_lock_server_info(hf_lock *lock, hf_server_info **ret_info);
HF_API void hf_server_info_free(hf_server_info *info);

/* ---- Fencing --------------------------------------------------------------------------------- */

/* The highest token seen so far; 0: none. Start with HF_FENCE_INIT, or the stored number. */
typedef struct hf_fence {
    int64_t highest;
} hf_fence;

#define HF_FENCE_INIT                                                                              \
    { 0 }

/* Lets a writer pass unless a larger token has been here (an equal one is the same holder's), and
 * remembers its token. Check and write must be one step (docs/fencing.md). Needs no client; atomic.
 * Errors:  HF_ELOST a later holder has been here; HF_EINVAL not a token, or no fence. */
HF_API int hf_fence_check(hf_fence *fence, int64_t token);

/* ---- Loss ------------------------------------------------------------------------------------ */

typedef enum hf_event_kind {
    HF_EVENT_WARNING, /* renewal is failing; stop work within `remaining_ms` */
    HF_EVENT_LOST,
    HF_EVENT_ORPHANED /* its thread has ended; it is no longer renewed */
} hf_event_kind;

typedef struct hf_event {
    hf_event_kind kind;
    hf_owner owner;
    int64_t remaining_ms;
    const char *reason;
} hf_event;

typedef void (*hf_event_fn)(hf_lock *lock, const hf_event *event, void *user);

/* Sets or removes (NULL) the callback for events of this client's holds on this name (of a
 * read/write lock: on the handle's side), through any handle. A replaced one may still be running.
 * The next call on a lost hold returns HF_ELOST once. The loss of a hold whose owner is not a
 * thread is remembered for one lease, at least `watchdog_ms`; after that, when hundreds are newer,
 * the call returns HF_ENOTOWNER. */
HF_API int hf_lock_on_lost(hf_lock *lock, hf_event_fn callback, void *user);

/* Readable from the loss of a hold on this name until it is read (8 bytes); not for warnings and
 * orphaned holds. The handle closes it.
 * Errors:  HF_ESYS. */
HF_API int hf_lock_lost_fd(hf_lock *lock);

/* ---- Asynchronous ---------------------------------------------------------------------------- */

/* Runs exactly once for each start that returned HF_OK, else never. `op` is set before the callback
 * can run; NULL if `ret_op` was. */
typedef void (*hf_op_fn)(hf_op *op, const hf_result *result, void *user);

/* Start an operation and return at once. `callback` may be NULL, and so may `ret_op`. Other outputs
 * are written, on success, before the callback runs or hf_op_wait() returns, and must stay valid
 * until then. Free an op at any time, even incomplete or after hf_close(), which completes it.
 * Errors:  those of an exchange are in the result. */
HF_API int hf_lock_acquire_start(hf_lock *lock, const hf_acquire_options *options,
                                 hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_lock_release_start(hf_lock *lock, hf_owner owner, hf_op_fn callback, void *user,
                                 hf_op **ret_op);
HF_API int hf_lock_extend_start(hf_lock *lock, hf_owner owner, int64_t lease_ms, hf_op_fn callback,
                                void *user, hf_op **ret_op);
HF_API int hf_lock_extend_with_start(hf_lock *lock, const hf_extend_options *options,
                                     hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_lock_adopt_start(hf_lock *lock, const char *handle, int64_t lease_ms,
                               hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_lock_break_start(hf_lock *lock, hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_lock_is_locked_start(hf_lock *lock, hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_lock_is_mine_start(hf_lock *lock, hf_owner owner, hf_op_fn callback, void *user,
                                 hf_op **ret_op);
HF_API int hf_lock_hold_count_start(hf_lock *lock, hf_owner owner, hf_op_fn callback, void *user,
                                    hf_op **ret_op);
HF_API int hf_lock_ttl_ms_start(hf_lock *lock, hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_lock_inspect_start(hf_lock *lock, hf_lock_info **ret_info, hf_op_fn callback,
                                 void *user, hf_op **ret_op);
HF_API int hf_lock_server_info_start(hf_lock *lock, hf_server_info **ret_info, hf_op_fn callback,
                                     void *user, hf_op **ret_op);
HF_API int hf_ping_start(hf_client *client, hf_op_fn callback, void *user, hf_op **ret_op);

/* Asks an operation to end. It still completes exactly once: with HF_ECANCELED or its result. A
 * cancelled acquire leaves nothing behind; operations that do not wait are not undone. Not after
 * hf_close(). */
HF_API void hf_op_cancel(hf_op *op);

/* Waits until the operation is complete (its callback may still be running), fills `ret`, and
 * returns its code. With HF_MANUAL_DISPATCH another thread must call hf_dispatch().
 * Errors:  HF_EPENDING not complete yet; `ret` is not filled. */
HF_API int hf_op_wait(hf_op *op, int64_t wait_ms, hf_result *ret);

/* Gives up an operation and frees its handle; never blocks. Returns true (also for NULL) if the
 * callback will never run. Then no output is written any more; those already written are freed. A
 * wait ends. What it acquired (one count of a lock, or permits) is released in the background, even
 * if hf_close() follows; an adopted hold is forgotten (hf_lock_forget()). Releases, extensions and
 * count-downs are not undone. False: the callback has begun, or hf_op_wait() has returned the
 * result, which is the caller's; the call was hf_op_free(). */
HF_API bool hf_op_abandon(hf_op *op);

/* Frees the handle; the operation goes on, with its callback. */
HF_API void hf_op_free(hf_op *op);

/* A switch that ends every wait it was passed to, of any client. It stays fired until reset: waits
 * that start with it end at once. Firing never blocks. */
HF_API int hf_cancel_new(hf_cancel **ret_cancel);
HF_API void hf_cancel_fire(hf_cancel *cancel);
HF_API void hf_cancel_reset(hf_cancel *cancel);
HF_API void hf_cancel_free(hf_cancel *cancel);

/* ---- Waiting for semaphores and latches ------------------------------------------------------ */

typedef struct hf_wait_options {
    size_t size;
    int64_t wait_ms;
    hf_cancel *cancel;
    hf_check_fn check;
    void *check_user;
} hf_wait_options;

#define HF_WAIT_OPTIONS_DEFAULTS(X) X(wait_ms, HF_FOREVER)
#define HF_WAIT_OPTIONS_INIT HF_INIT(hf_wait_options, HF_WAIT_OPTIONS_DEFAULTS)

#define HF_PERMITS_MAX INT64_C(2147483647) /* limit of `permits` and `number`: Java's */

/* ---- Semaphores ------------------------------------------------------------------------------ */

/* Permits without owners under a name: Redisson's RSemaphore. Those of a dead process are gone for
 * good; if that matters, use hf_permits. */
typedef struct hf_sem hf_sem;

HF_API int hf_sem_new(hf_client *client, const char *name, hf_sem **ret_sem);
HF_API int hf_sem_new_bytes(hf_client *client, const void *name, size_t name_len, hf_sem **ret_sem);
HF_API void hf_sem_free(hf_sem *sem);
HF_API const char *hf_sem_name(const hf_sem *sem, size_t *ret_len);

/* Sets the number of permits if the semaphore does not exist, to expire after `ttl_ms` (0:
 * never). */
HF_API int hf_sem_try_set(hf_sem *sem, int64_t permits, int64_t ttl_ms, bool *ret_set);

/* Takes `permits`, all or none; 0 sends nothing.
 * Errors:  HF_EBUSY too few; HF_ETIMEDOUT, HF_ECANCELED, those of an exchange: nothing was taken,
 *          or it is given back in the background, unless the server is unreachable for a minute
 *          (`in_doubt` of hf_stats); HF_EINDOUBT the server did not answer for a minute, or the
 *          acquire could not leave an idempotency key (docs/guarantees.md). */
HF_API int hf_sem_acquire(hf_sem *sem, int64_t permits);
HF_API int hf_sem_try(hf_sem *sem, int64_t permits);
HF_API int hf_sem_acquire_for(hf_sem *sem, int64_t permits, int64_t wait_ms);
HF_API int hf_sem_acquire_with(hf_sem *sem, int64_t permits, const hf_wait_options *options);

/* Puts back permits, even ones never taken; 0 sends nothing. If the semaphore does not exist,
 * hf_sem_release() creates it; the other does nothing. The sum may exceed HF_PERMITS_MAX, beyond
 * which Java cannot count. */
HF_API int hf_sem_release(hf_sem *sem, int64_t permits);
HF_API int hf_sem_release_if_exists(hf_sem *sem, int64_t permits, bool *ret_released);

/* Changes the number of permits by `delta` (up to HF_PERMITS_MAX either way); it is not limited,
 * and may become negative. Its TTL stays. */
HF_API int hf_sem_add(hf_sem *sem, int64_t delta);
/* Takes all permits, and writes how many. */
HF_API int hf_sem_drain(hf_sem *sem, int64_t *ret_permits);
/* The number of permits; 0 if it does not exist. */
HF_API int hf_sem_available(hf_sem *sem, int64_t *ret_permits);
/* Deletes the semaphore. Waits go on until it exists again. */
HF_API int hf_sem_delete(hf_sem *sem, bool *ret_deleted);

HF_API int hf_sem_try_set_start(hf_sem *sem, int64_t permits, int64_t ttl_ms, hf_op_fn callback,
                                void *user, hf_op **ret_op);
HF_API int hf_sem_acquire_start(hf_sem *sem, int64_t permits, const hf_wait_options *options,
                                hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_sem_release_start(hf_sem *sem, int64_t permits, hf_op_fn callback, void *user,
                                hf_op **ret_op);
HF_API int hf_sem_release_if_exists_start(hf_sem *sem, int64_t permits, hf_op_fn callback,
                                          void *user, hf_op **ret_op);
HF_API int hf_sem_add_start(hf_sem *sem, int64_t delta, hf_op_fn callback, void *user,
                            hf_op **ret_op);
HF_API int hf_sem_drain_start(hf_sem *sem, hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_sem_available_start(hf_sem *sem, hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_sem_delete_start(hf_sem *sem, hf_op_fn callback, void *user, hf_op **ret_op);

/* ---- Permits with leases --------------------------------------------------------------------- */

/* Permits with an id and a lease each, so that those of a dead process come back: Redisson's
 * RPermitExpirableSemaphore. Any client that knows an id may release or extend it. */
typedef struct hf_permits hf_permits;

/* 32 lower-case hexadecimal digits, and a NUL. */
typedef struct hf_permit_id {
    char text[33];
} hf_permit_id;

typedef struct hf_permits_options {
    size_t size;
    int64_t count; /* 1 to 1000 */
    int64_t wait_ms;
    int64_t lease_ms; /* HF_WATCHDOG, fixed, or HF_NO_LEASE */
    hf_cancel *cancel;
    hf_check_fn check;
    void *check_user;
} hf_permits_options;

#define HF_PERMITS_OPTIONS_DEFAULTS(X)                                                             \
    X(count, 1)                                                                                    \
    X(wait_ms, HF_FOREVER)                                                                         \
    X(lease_ms, HF_WATCHDOG)
#define HF_PERMITS_OPTIONS_INIT HF_INIT(hf_permits_options, HF_PERMITS_OPTIONS_DEFAULTS)

/* Permits stay acquired, and renewed, when the handle is freed. */
HF_API int hf_permits_new(hf_client *client, const char *name, hf_permits **ret_permits);
HF_API int hf_permits_new_bytes(hf_client *client, const void *name, size_t name_len,
                                hf_permits **ret_permits);
HF_API void hf_permits_free(hf_permits *permits);
HF_API const char *hf_permits_name(const hf_permits *permits, size_t *ret_len);

/* The number of permits, taken ones included: set it if the object does not exist; set it; change
 * it by `delta` (up to HF_PERMITS_MAX either way). If more are taken, the number available becomes
 * negative. A TTL stays. */
HF_API int hf_permits_try_set(hf_permits *permits, int64_t number, bool *ret_set);
HF_API int hf_permits_set(hf_permits *permits, int64_t number);
HF_API int hf_permits_add(hf_permits *permits, int64_t delta);

/* Takes permits, all or none, and writes their ids to `ret_ids`, with room for `count`. The short
 * forms take one, with the watchdog.
 * Errors:  HF_EBUSY too few; HF_ETIMEDOUT, HF_ECANCELED. */
HF_API int hf_permits_acquire(hf_permits *permits, hf_permit_id *ret_id);
HF_API int hf_permits_try(hf_permits *permits, hf_permit_id *ret_id);
HF_API int hf_permits_acquire_for(hf_permits *permits, int64_t wait_ms, hf_permit_id *ret_id);
HF_API int hf_permits_acquire_with(hf_permits *permits, const hf_permits_options *options,
                                   hf_permit_id *ret_ids);

/* Releases one permit, or several (all or none). Renewal stops, whatever the result.
 * Errors:  HF_ELOST its lease had run out (it is given back all the same), or it was ours and is
 *          gone; HF_ENOTOWNER no such permit, or (many) one has run out and none was released;
 *          HF_EINDOUBT: repeated in the background until the lease is over. */
HF_API int hf_permits_release(hf_permits *permits, const hf_permit_id *id);
HF_API int hf_permits_release_many(hf_permits *permits, const hf_permit_id *ids, size_t ids_len);

/* The first gives a permit a new lease from now, even a shorter one (1 ms to HF_LEASE_MAX_MS, or
 * HF_NO_LEASE), and stops renewing it. The second asks the server for the rest of the lease; -1: no
 * end.
 * Errors:  HF_ENOTOWNER no such permit, or it has run out; HF_ELOST (the first) it was ours. */
HF_API int hf_permits_extend(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms);
HF_API int hf_permits_ttl_ms(hf_permits *permits, const hf_permit_id *id, int64_t *ret_lease_ms);

/* How long this client's permit can be trusted, without I/O; 0: none, lost, or without a lease: use
 * hf_permits_ttl_ms(). */
HF_API int64_t hf_permits_remaining_ms(hf_permits *permits, const hf_permit_id *id);

/* How many are free, exist, are taken. 0 if the object does not exist. */
HF_API int hf_permits_available(hf_permits *permits, int64_t *ret_number);
HF_API int hf_permits_total(hf_permits *permits, int64_t *ret_number);
HF_API int hf_permits_taken(hf_permits *permits, int64_t *ret_number);

/* Lets the object expire after 1 ms to HF_LEASE_MAX_MS; deletes it. Taken permits are lost with it.
 * Waits go on until it is set again. */
HF_API int hf_permits_expire(hf_permits *permits, int64_t ttl_ms, bool *ret_existed);
HF_API int hf_permits_delete(hf_permits *permits, bool *ret_deleted);

/* As hf_lock_on_lost() and hf_lock_lost_fd(), for this client's permits on this name with a lease;
 * a fixed one that runs out is a loss, too. The event's owner is 0. `id` is valid during the
 * call. */
typedef void (*hf_permit_event_fn)(hf_permits *permits, const char *id, const hf_event *event,
                                   void *user);
HF_API int hf_permits_on_lost(hf_permits *permits, hf_permit_event_fn callback, void *user);
HF_API int hf_permits_lost_fd(hf_permits *permits);

HF_API int hf_permits_try_set_start(hf_permits *permits, int64_t number, hf_op_fn callback,
                                    void *user, hf_op **ret_op);
HF_API int hf_permits_set_start(hf_permits *permits, int64_t number, hf_op_fn callback, void *user,
                                hf_op **ret_op);
HF_API int hf_permits_add_start(hf_permits *permits, int64_t delta, hf_op_fn callback, void *user,
                                hf_op **ret_op);
HF_API int hf_permits_acquire_start(hf_permits *permits, const hf_permits_options *options,
                                    hf_permit_id *ret_ids, hf_op_fn callback, void *user,
                                    hf_op **ret_op);
HF_API int hf_permits_release_start(hf_permits *permits, const hf_permit_id *ids, size_t ids_len,
                                    hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_permits_extend_start(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms,
                                   hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_permits_ttl_ms_start(hf_permits *permits, const hf_permit_id *id, hf_op_fn callback,
                                   void *user, hf_op **ret_op);
HF_API int hf_permits_available_start(hf_permits *permits, hf_op_fn callback, void *user,
                                      hf_op **ret_op);
HF_API int hf_permits_total_start(hf_permits *permits, hf_op_fn callback, void *user,
                                  hf_op **ret_op);
HF_API int hf_permits_taken_start(hf_permits *permits, hf_op_fn callback, void *user,
                                  hf_op **ret_op);
HF_API int hf_permits_expire_start(hf_permits *permits, int64_t ttl_ms, hf_op_fn callback,
                                   void *user, hf_op **ret_op);
HF_API int hf_permits_delete_start(hf_permits *permits, hf_op_fn callback, void *user,
                                   hf_op **ret_op);

/* ---- Count-down latch ------------------------------------------------------------------------ */

/* A number that opens the latch at zero: Redisson's RCountDownLatch. A latch that does not exist is
 * open. */
typedef struct hf_latch hf_latch;

HF_API int hf_latch_new(hf_client *client, const char *name, hf_latch **ret_latch);
HF_API int hf_latch_new_bytes(hf_client *client, const void *name, size_t name_len,
                              hf_latch **ret_latch);
HF_API void hf_latch_free(hf_latch *latch);
HF_API const char *hf_latch_name(const hf_latch *latch, size_t *ret_len);

/* Closes an open latch with a count of 1 to 2^53 - 1 (ZooKeeper: 2^31 - 1). */
HF_API int hf_latch_try_set(hf_latch *latch, int64_t count, bool *ret_set);

/* Counts down by one; at zero all waits end. An open latch stays open. */
HF_API int hf_latch_count_down(hf_latch *latch);

/* Waits until the latch is open. A latch that opened and closed again meanwhile ends the wait, too,
 * unless Java or version 0.1 both opened and closed it, with a count no larger than the last one
 * seen.
 * Errors:  HF_EBUSY, HF_ETIMEDOUT, HF_ECANCELED. */
HF_API int hf_latch_await(hf_latch *latch);
HF_API int hf_latch_await_for(hf_latch *latch, int64_t wait_ms);
HF_API int hf_latch_await_with(hf_latch *latch, const hf_wait_options *options);

/* The count; 0: open. */
HF_API int hf_latch_count(hf_latch *latch, int64_t *ret_count);
/* Opens the latch, which ends all waits. */
HF_API int hf_latch_delete(hf_latch *latch, bool *ret_deleted);

HF_API int hf_latch_try_set_start(hf_latch *latch, int64_t count, hf_op_fn callback, void *user,
                                  hf_op **ret_op);
HF_API int hf_latch_count_down_start(hf_latch *latch, hf_op_fn callback, void *user,
                                     hf_op **ret_op);
HF_API int hf_latch_await_start(hf_latch *latch, const hf_wait_options *options, hf_op_fn callback,
                                void *user, hf_op **ret_op);
HF_API int hf_latch_count_start(hf_latch *latch, hf_op_fn callback, void *user, hf_op **ret_op);
HF_API int hf_latch_delete_start(hf_latch *latch, hf_op_fn callback, void *user, hf_op **ret_op);

/* ---- Listening ------------------------------------------------------------------------------- */

/* Receives the messages that wake waiters of a name of any kind, Java's included.
 *
 * Events are hints: ask the server before you decide. Any client that may publish can send them,
 * and so does the same name in another database. They age, and can be lost with a connection. Not
 * published: the acquire of a free lock, the end of a lease, a deleted key, the release of a fair
 * lock (but see HF_NOTIFY_CHANGED).
 *
 * A listener costs the server six subscriptions per name. */
typedef struct hf_listener hf_listener;

typedef enum hf_notification_kind {
    /* Messages arrive from now on; earlier ones may be missed. Again after a reconnection, or when
     * the name moved to another server. */
    HF_NOTIFY_SUBSCRIBED = 1,
    /* No messages for now. `code` is HF_EUNREACH: resumes by itself (HF_NOTIFY_SUBSCRIBED); or
     * HF_EPERM: the server refuses. */
    HF_NOTIFY_INTERRUPTED,
    /* `number` events were dropped: slow callback (over HF_NOTIFY_MAX), or no memory. */
    HF_NOTIFY_MISSED,
    HF_NOTIFY_RELEASED,       /* a lock was fully released or broken */
    HF_NOTIFY_READ_RELEASED,  /* read/write lock: by the last reader */
    HF_NOTIFY_WRITE_RELEASED, /* by the writer */
    HF_NOTIFY_AVAILABLE,      /* semaphore, permits: about `number`, or as many more, available */
    HF_NOTIFY_OPENED,         /* a latch reached zero or was deleted */
    HF_NOTIFY_CLOSED,         /* a latch was set anew, or deleted by Java, whose waits go on */
    /* The name changed; several changes may be one. On Redis: since the client's last
     * hf_lock_inspect() of it, once, if the server tracks keys. */
    HF_NOTIFY_CHANGED,
    /* A holdfast client broke the lock, or deleted the permits; the release event follows, if any.
     * Redisson's forceUnlock() and breaks on ZooKeeper look like a release. */
    HF_NOTIFY_BROKEN,
    /* A holdfast client lost a hold in this database, of any name. From hf_listen_breaks() only. */
    HF_NOTIFY_LOST
} hf_notification_kind;

/* Valid during the callback. */
typedef struct hf_notification {
    hf_notification_kind kind;
    int code;
    int64_t number;
    int64_t age_ms;   /* since it was received */
    const char *name; /* as given, followed by a NUL */
    size_t name_len;
    /* Which server sent it, of how many: 0 and 1 except on a quorum, where one server cannot speak
     * for the lock. */
    size_t server;
    size_t servers;
} hf_notification;

#define HF_NOTIFY_MAX 256 /* events kept for a slow callback */

typedef void (*hf_notification_fn)(hf_listener *listener, const hf_notification *notification,
                                   void *user);

/* Begins to listen. The callback runs for one event at a time, in order, perhaps before this
 * returns.
 * Errors:  HF_ENOTSUP. */
HF_API int hf_listen(hf_client *client, const char *name, hf_notification_fn callback, void *user,
                     hf_listener **ret_listener);
HF_API int hf_listen_bytes(hf_client *client, const void *name, size_t name_len,
                           hf_notification_fn callback, void *user, hf_listener **ret_listener);

/* HF_NOTIFY_BROKEN for all names under the client's prefix in its database, and HF_NOTIFY_LOST, for
 * two subscriptions. HF_ENOTSUP: ZooKeeper. */
HF_API int hf_listen_breaks(hf_client *client, hf_notification_fn callback, void *user,
                            hf_listener **ret_listener);

/* Ends it and removes its callback; pending events are dropped. After hf_close() it only frees. */
HF_API void hf_listener_free(hf_listener *listener);

/* ---- The whole fleet ------------------------------------------------------------------------- */

/* A survey asks the server for each lock's holders, and by a message all clients for their holds
 * and waits. Any client that may publish can forge an answer. Where answers and server differ, the
 * server's view is used, and the lock is `disputed`.
 *
 * All is read-only, valid until hf_fleet_free(). A time of -1 is unknown, or has no end. */

typedef enum hf_presence {
    HF_PRESENCE_UNKNOWN,   /* not connected under a name of ours: gone, or Java */
    HF_PRESENCE_ALIVE,     /* answered */
    HF_PRESENCE_CONNECTED, /* not expected to answer: too new, disabled, or asked too often */
    HF_PRESENCE_SILENT,    /* connected, should have answered, did not: stopped or hung */
    HF_PRESENCE_GONE       /* not connected: its holds end with their leases */
} hf_presence;

typedef struct hf_histogram {
    uint64_t count;
    uint64_t sum_us;
    uint64_t max_us;
    /* [i]: how many took at least 2^(i-1) and less than 2^i microseconds */
    uint64_t buckets[32];
} hf_histogram;

/* A client's counts for one name. */
typedef struct hf_fleet_name_stats {
    const char *name;
    size_t name_len;
    uint64_t begun;                     /* changes when the client starts counting anew */
    hf_histogram wait, hold, hand_over; /* as in hf_stats; semaphores have no holds */
} hf_fleet_name_stats;

/* A client, as it or its connection describes it. Texts are "" if unknown. */
typedef struct hf_fleet_client {
    const char *id;
    const char *host;
    int64_t pid;
    const char *program; /* or its label (hf_options) */
    const char *version;
    const char *under; /* the owner for which its process was started (HOLDFAST_OWNER) */
    hf_presence presence;
    int64_t up_ms;
    int64_t left_out; /* holds and waits that did not fit into its answer */
    /* from its hf_stats; 0: not answered, or not asked (HF_WANT_STATS) */
    uint64_t acquired, contended, timed_out, losses, renew_failures;
    uint64_t released, renewals;
    hf_histogram wait, hold, hand_over; /* 0 from old versions */
    /* with HF_WANT_HISTOGRAMS, in no order */
    size_t names_len;
    const hf_fleet_name_stats *const *names;
    int64_t names_left_out; /* names that did not fit */
} hf_fleet_client;

#define HF_SEEN_BY_SERVER 0x1u
#define HF_SEEN_BY_CLIENT 0x2u

/* An owner that holds a lock or waits for it. */
typedef struct hf_fleet_party {
    const char *owner;             /* "uuid:number"; in Redis a permit's is its id */
    const hf_fleet_client *client; /* its own, or the one that adopted the hold; NULL: unknown */
    hf_presence presence;
    unsigned seen_by;
    const char *kind;     /* "plain", "fair", "read", "cohort", ... */
    int64_t count;        /* 0: it waits */
    int64_t for_ms;       /* held or waited so long */
    int64_t remaining_ms; /* how long the hold can be trusted, or the wait lasts */
    bool renewed;
    int64_t place;      /* in a fair queue, from 1; 0: none */
    const char *thread; /* the calling thread's own name, or "" */
} hf_fleet_party;

typedef struct hf_fleet_lock {
    const char *name;
    size_t name_len;
    const char *kind;
    int64_t ttl_ms;    /* until it is free, as the server says; -2: not there */
    int64_t listeners; /* processes subscribed to it as waiters, Java's included; -1: unknown */
    bool disputed;
    int64_t left_out; /* holders and queued waiters not listed; of a group: values */
    size_t holders_len;
    const hf_fleet_party *const *holders;
    size_t waiters_len;
    const hf_fleet_party *const *waiters;
    int64_t available; /* free permits; -1: unknown, or not permits */
} hf_fleet_lock;

/* Clients were not asked, or answers were lost: no client is known to be silent. */
#define HF_MISSING_ANSWERS 0x1u
#define HF_MISSING_CONNECTIONS 0x2u /* connections are unknown: nobody is known to be gone */
#define HF_MISSING_LOCKS 0x4u       /* there were more, or time ran out */

typedef struct hf_fleet {
    int64_t taken_ms; /* on this machine's clock */
    int64_t took_ms;
    unsigned missing;
    const char *missing_text; /* in words; "": nothing is */
    size_t locks_len;
    const hf_fleet_lock *const *locks;
    size_t clients_len;
    const hf_fleet_client *const *clients;
    /* With HF_WANT_HISTOGRAMS or HF_WANT_LOSSES: clients that announced a loss since this client's
     * first such survey, with their numbers then; the last 1024. On ZooKeeper none. */
    size_t announced_len;
    const hf_fleet_client *const *announced;
} hf_fleet;

#define HF_WANT_HOLDS 0x1u
#define HF_WANT_WAITS 0x2u
#define HF_WANT_STATS 0x4u
#define HF_WANT_HISTOGRAMS 0x8u
#define HF_WANT_LOSSES 0x10u /* `announced`; asks clients for nothing more */

typedef struct hf_survey_options {
    size_t size;
    const char *pattern; /* of names, as in KEYS: * ? [a-c] [^a]; up to 256 bytes. NULL: all */
    /* 1 ms to one hour; then the survey returns what it has, perhaps nothing; HF_EUNREACH if no
     * server was reached. */
    int64_t limit_ms;
    /* HF_WANT_...: what to ask clients for; 0: only which clients are connected. The server's view
     * is always included. */
    unsigned wanted;
} hf_survey_options;

#define HF_SURVEY_OPTIONS_DEFAULTS(X)                                                              \
    X(limit_ms, 10000)                                                                             \
    X(wanted, HF_WANT_HOLDS | HF_WANT_WAITS | HF_WANT_STATS)
#define HF_SURVEY_OPTIONS_INIT HF_INIT(hf_survey_options, HF_SURVEY_OPTIONS_DEFAULTS)

/* Surveys the names under the client's `name_prefix`, without it. Semaphores and latches appear
 * only if clients report waiting for them; permits appear while any is taken; only the client that
 * took one knows its owner.
 * Blocks:  some 0.1 s, or 0.5 s if a client is silent; up to `limit_ms`. */
HF_API int hf_survey(hf_client *client, const hf_survey_options *options, hf_fleet **ret_fleet);
HF_API int hf_survey_start(hf_client *client, const hf_survey_options *options,
                           hf_fleet **ret_fleet, hf_op_fn callback, void *user, hf_op **ret_op);
HF_API void hf_fleet_free(hf_fleet *fleet);

/* A survey as JSON: {"took_ms":..., "missing": `missing_text`, if any, "locks":[...],
 * "clients":[...]}; locks have the keys of `holdfast ls --json`. */
HF_API int hf_fleet_json(const hf_fleet *fleet, char **ret_text);

/* One step of a cycle: `waiter` waits for `lock`, which `holder` holds. `holder` is the next
 * waiter, or the next waiter's process runs `under` it. */
typedef struct hf_deadlock_step {
    const hf_fleet_lock *lock;
    const hf_fleet_party *waiter, *holder;
} hf_deadlock_step;
typedef struct hf_deadlock {
    size_t steps_len;
    const hf_deadlock_step *steps;
} hf_deadlock;
typedef struct hf_deadlocks {
    size_t len;
    const hf_deadlock *all;
} hf_deadlocks;

/* Finds deadlocks in the later of two surveys, and points into it: cycles in both, whose waits have
 * lasted twice the time between them and do not time out within as much. */
HF_API int hf_fleet_deadlocks(const hf_fleet *earlier, const hf_fleet *later,
                              hf_deadlocks **ret_deadlocks);
HF_API void hf_deadlocks_free(hf_deadlocks *deadlocks);

/* ---- Statistics ------------------------------------------------------------------------------ */

typedef struct hf_stats {
    size_t size;
    uint64_t acquired;  /* nested ones included */
    uint64_t contended; /* of these: after a wait */
    uint64_t timed_out; /* HF_EBUSY and HF_ETIMEDOUT */
    uint64_t cancelled;
    uint64_t released;
    uint64_t renewals;
    uint64_t renew_failures; /* failed or late */
    uint64_t losses;
    uint64_t in_doubt;        /* commands whose outcome was settled later */
    uint64_t notify_failures; /* releases that woke nobody: the user may not publish */
    uint64_t reconnects;
    uint64_t commands;
    uint64_t holds;
    hf_histogram wait; /* from call to acquired */
    hf_histogram hold; /* from acquired to fully released */
    uint64_t failovers;
    uint64_t redirects;
    uint64_t ack_failures;   /* acquires and renewals with too few acks */
    uint64_t waits;          /* calls waiting now, or about to be granted */
    uint64_t oldest_wait_ms; /* of these, the longest */
    /* From the message that wakes a waiter to its acquire; not when spinning, nor on a quorum. */
    hf_histogram hand_over;
    uint64_t tracked; /* holds whose next change a server will report (on a quorum: per server) */
    uint64_t track_events; /* changes that servers reported */
    uint64_t track_false;  /* of these, holds that were still there */
} hf_stats;

#define HF_STATS_FIELDS(X)                                                                         \
    X(uint64_t, acquired)                                                                          \
    X(uint64_t, contended)                                                                         \
    X(uint64_t, timed_out)                                                                         \
    X(uint64_t, cancelled)                                                                         \
    X(uint64_t, released)                                                                          \
    X(uint64_t, renewals)                                                                          \
    X(uint64_t, renew_failures)                                                                    \
    X(uint64_t, losses)                                                                            \
    X(uint64_t, in_doubt)                                                                          \
    X(uint64_t, notify_failures)                                                                   \
    X(uint64_t, reconnects)                                                                        \
    X(uint64_t, commands)                                                                          \
    X(uint64_t, holds)                                                                             \
    X(hf_histogram, wait)                                                                          \
    X(hf_histogram, hold)                                                                          \
    X(uint64_t, failovers)                                                                         \
    X(uint64_t, redirects)                                                                         \
    X(uint64_t, ack_failures)                                                                      \
    X(uint64_t, waits)                                                                             \
    X(uint64_t, oldest_wait_ms)                                                                    \
    X(hf_histogram, hand_over)                                                                     \
    X(uint64_t, tracked)                                                                           \
    X(uint64_t, track_events)                                                                      \
    X(uint64_t, track_false)

#define HF_STATS_INIT HF_INIT(hf_stats, HF_NO_DEFAULTS)

/* Counts since hf_open(), each exact, but not of one instant. */
HF_API int hf_client_stats(hf_client *client, hf_stats *ret_stats);

/* The statistics as OpenMetrics text: holdfast_client_..., and by name (`histogram_names`)
 * holdfast_client_lock_..., labelled `lock`, and `lock_hex` if that is not text. Only
 * holdfast_client_info has other labels: a program with several clients adds its own. */
HF_API int hf_client_metrics(hf_client *client, char **ret_text);
HF_API void hf_text_free(char *text);

#ifdef __cplusplus
}

#define HF_INIT_FUNCTION(type, defaults)                                                           \
    static inline type type##_init(void) {                                                         \
        type made = {};                                                                            \
        made.size = sizeof made;                                                                   \
        defaults(HF_INIT_FIELD) return made;                                                       \
    }
HF_INIT_FUNCTION(hf_options, HF_OPTIONS_DEFAULTS)
HF_INIT_FUNCTION(hf_lock_options, HF_LOCK_OPTIONS_DEFAULTS)
HF_INIT_FUNCTION(hf_acquire_options, HF_ACQUIRE_OPTIONS_DEFAULTS)
HF_INIT_FUNCTION(hf_extend_options, HF_EXTEND_OPTIONS_DEFAULTS)
HF_INIT_FUNCTION(hf_result, HF_NO_DEFAULTS)
HF_INIT_FUNCTION(hf_wait_options, HF_WAIT_OPTIONS_DEFAULTS)
HF_INIT_FUNCTION(hf_permits_options, HF_PERMITS_OPTIONS_DEFAULTS)
HF_INIT_FUNCTION(hf_stats, HF_NO_DEFAULTS)
HF_INIT_FUNCTION(hf_survey_options, HF_SURVEY_OPTIONS_DEFAULTS)
#undef HF_INIT_FUNCTION
#endif
#endif
