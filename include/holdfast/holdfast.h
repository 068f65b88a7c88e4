/*
 * holdfast: distributed locks over the Redis or Valkey you already run.
 *
 * This header is the manual. A first lock:
 *
 *     hf_client *client;
 *     hf_lock *lock;
 *     int err = hf_open("redis://localhost", NULL, &client);
 *     if (err == HF_OK) err = hf_lock_new(client, "nightly-report", &lock);
 *     if (err == HF_OK) err = hf_lock_acquire(lock);
 *     if (err == HF_OK) {
 *         ...                                  // only one process gets here
 *         err = hf_lock_release(lock);         // HF_ELOST: it was not ours to the end
 *     }
 *
 * Words
 *   client   one connection set, one uuid, one watchdog. Thread-safe; one per process is enough.
 *   lock     a cheap handle on a named lock. Many handles, even of one client, may name the
 *            same lock.
 *   owner    who holds: the client's uuid and a number. By default each thread has its own number;
 *            it is never reused after the thread ends. A caller may pass a number of its own
 *            instead.
 *   hold     one owner's possession of one lock, with a count: acquire nests, release un-nests.
 *   lease    how long the server keeps the lock without hearing from us. Either fixed, or the
 *            watchdog's: renewed every third of it until the hold ends. ZooKeeper knows no leases: it
 *            keeps a lock for as long as the client's session, and a lease is ended by us.
 *   lost     a hold that ended without our release: it expired, was deleted or was broken.
 *
 * Rules for every function
 *   - Result: HF_OK (0) or a negative HF_E... code; hf_last_error() has the details for this
 *     thread. Outputs (`ret_...`) are written on success only, unless a function says otherwise. A
 *     `bool *` output may be NULL; any other only where its function says so.
 *   - Errors of every exchange, which any call that talks to the server may return besides its own:
 *     HF_EUNREACH, HF_ENOQUORUM (of several servers), HF_EREFUSED, HF_EOOM, HF_EPERM, HF_ETLS,
 *     HF_EPROTO, HF_ENOTSUP (the server is too old, or lacks a command), HF_EINVAL (an argument is
 *     wrong, or the server has no such database), HF_ECLOSED, HF_EFORKED, HF_EDEADLK (inside a
 *     callback), HF_ENOMEM, HF_ESYS.
 *   - Owners: hf_lock_x() is about this thread's hold, hf_lock_x_as() about that of an owner, where
 *     0 is this thread. An operation (hf_lock_x_start()) belongs to no thread: it is told the
 *     owner, and 0 is refused, except that an acquire then draws a fresh one, which its result
 *     has.
 *   - Structs with a `size` may grow; their HF_..._INIT sets it, and zeroes what has no default. A
 *     size that is 0 or too small is refused (HF_EINVAL), and so is one that is larger than this
 *     library knows, unless what it does not know is all zero. In an output `size` becomes what was
 *     written. Structs that only the library makes may grow too, so they are reached by pointers.
 *   - Descriptors: a function whose name ends in `_fd` returns one, 0 or larger, or a negative
 *     HF_E... code as any other.
 *   - Threads: any thread may call any function on any handle, with the exceptions for callbacks
 *     below. No function may be called from a signal handler. Freeing a handle that another thread
 *     is still using is the caller's bug. Functions that free something accept NULL.
 *   - Stack: a thread that calls needs 64 KiB of it. (Some 24 KiB are used, besides what a log
 *     function and an allocator take.) Threads of the library have 512 KiB, or the process' default
 *     if that is more; that is the room for callbacks, too.
 *   - Times: int64_t milliseconds, named `_ms`. A wait of HF_FOREVER (-1) never gives up; 0 is a
 *     single attempt. A lease of HF_WATCHDOG (0) is renewed; a negative one is refused.
 *   - Blocking: a function does not block unless its comment says so. None waits for a server
 *     longer than the wait it was given plus one exchange (`cmd_timeout_ms`). Even HF_FOREVER ends
 *     when no server has answered for `connect_timeout_ms` (HF_EUNREACH), or when it has refused
 *     every command for that long (HF_EREFUSED, with its words); where servers change, as long as one
 *     of them answers, `failover_timeout_ms`.
 *   - Callbacks run on the client's dispatch thread, or inside hf_dispatch() with
 *     HF_MANUAL_DISPATCH; never while the library holds a mutex. Inside one, `_start` functions may
 *     be called; synchronous verbs, hf_op_wait() and hf_close() return HF_EDEADLK.
 *   - fork: in a child every call fails with HF_EFORKED; hf_close() there only closes descriptors.
 *     The parent's locks are not touched. A child opens a client of its own.
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

#define HF_VERSION_MAJOR 0
#define HF_VERSION_MINOR 2
#define HF_VERSION_PATCH 0
#define HF_VERSION_NUM (HF_VERSION_MAJOR * 10000 + HF_VERSION_MINOR * 100 + HF_VERSION_PATCH)

/* The version of the library that is linked, as "0.2.0" and as HF_VERSION_NUM. */
HF_API const char *hf_version(void);
HF_API int hf_version_num(void);

/* ---- Errors ---------------------------------------------------------------------------------- */

/* X(name, number, what it means). A server without TLS says nothing at all to a client that tries TLS: that is HF_EUNREACH, and
 * hf_last_error() has the hint. */
#define HF_ERRORS(X)                                                                               \
    X(HF_EBUSY, -1, "another owner holds the lock")                                                \
    X(HF_ETIMEDOUT, -2, "the wait ended before the lock was free")                                 \
    X(HF_ENOTOWNER, -3, "this owner does not hold the lock")                                       \
    X(HF_ELOST, -4, "the hold ended before it was released")                                       \
    X(HF_EUNKNOWN, -5, "the server did not answer; the command may or may not have run")           \
    X(HF_ECANCELED, -6, "the wait was cancelled")                                                  \
    X(HF_ECLOSED, -7, "the client is closed")                                                      \
    X(HF_EFORKED, -8, "this client belongs to the parent process")                                 \
    X(HF_EDEADLK, -9, "the call would wait for itself")                                            \
    X(HF_EWRONGTYPE, -10, "the name is in use for something else")                                 \
    X(HF_EPERM, -11, "the server refused: password, user or access list")                          \
    X(HF_EUNREACH, -12, "the server cannot be reached")                                            \
    X(HF_ENOQUORUM, -13, "too few of the servers answered")                                        \
    X(HF_ENOREPLICA, -14, "too few replicas confirmed")                                            \
    X(HF_ENOMEM, -15, "out of memory")                                                             \
    X(HF_EPROTO, -16, "the server sent something that is no valid answer")                         \
    X(HF_EINVAL, -17, "invalid argument")                                                          \
    X(HF_ENOTSUP, -18, "not supported here")                                                       \
    X(HF_EREFUSED, -19, "the server cannot take commands now")                                     \
    X(HF_EOOM, -20, "the server is out of memory")                                                 \
    X(HF_ESYS, -21, "the operating system refused")                                                \
    X(HF_ETLS, -22, "TLS failed: a certificate was not accepted, or what answers is not TLS")      \
    X(HF_EPENDING, -23, "the operation is not complete yet")

enum {
    HF_OK = 0,
#define HF_ERROR_ENUM(name, number, text) name = (number),
    HF_ERRORS(HF_ERROR_ENUM)
#undef HF_ERROR_ENUM
};

/* A sentence for a code; never NULL. */
HF_API const char *hf_strerror(int err);

/* "HF_EBUSY" for a code; never NULL. */
HF_API const char *hf_error_name(int err);

/* Does not grow: it is a part of other structs. */
typedef struct hf_error {
    int code;       /* HF_OK or HF_E... */
    int sys_errno;  /* errno behind it, or 0 */
    char node[108]; /* which server, or "" */
    char text[256]; /* the server's own words, or ours; never a password */
} hf_error;

/* Details of this thread's last failed call. Valid until this thread's next call. */
HF_API const hf_error *hf_last_error(void);

/* ---- Client ---------------------------------------------------------------------------------- */

typedef struct hf_client hf_client;

#define HF_FOREVER (-INT64_C(1)) /* a wait that never gives up */
#define HF_WATCHDOG INT64_C(0)   /* a lease that is renewed for as long as it is held */
#define HF_MANUAL_DISPATCH 0x1u  /* callbacks run in hf_dispatch() instead of a thread of ours */
#define HF_TLS_INSECURE 0x2u /* accept any certificate: anyone in between can pose as the server */
/* Calls never look for the server's answer before they sleep. They do, for at most 0.1 ms, where that is
 * faster and nobody else wants the processor; this is for those who count every bit of power. */
#define HF_SLEEP_AT_ONCE 0x4u
#define HF_TLS_1_2 12 /* for tls_min_version */
#define HF_TLS_1_3 13
#define HF_SENTINEL_TLS_ON 1
#define HF_SENTINEL_TLS_OFF 2
#define HF_ACKS_ALL                                                                                \
    (-1) /* every replica that those who watch over the servers say is up, one at least */
#define HF_ACKS_REPORT (-2) /* waits for them, and only tells how many confirmed */
#define HF_ACKS_OFF (-3)    /* nobody is asked */
#define HF_ACKS_MAX 100

/* The initialisers, `hf_options options = HF_OPTIONS_INIT;`, are made from lists X(field, default),
 * which are the one place for a default: C++, which before C++20 cannot name fields, reads them,
 * too. */
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
/* May be called on any thread, at any time; must not call back into the library, and must not
 * block: the thread that renews leases calls it too, and renews nothing until it returns. */
typedef void (*hf_log_fn)(hf_log_level level, const char *message, void *user);

/* Where a server or a sentinel is reached from here of which others say that it is at `host` and `port`. True: at what
 * was written to the other two, of which the first has room for HF_HOST_SIZE bytes; false: just there. May be
 * called on any thread, also that which renews leases: it must not block, nor call back into the library. */
#define HF_HOST_SIZE 256
typedef bool (*hf_map_fn)(const char *host, uint16_t port, char *ret_host, uint16_t *ret_port,
                          void *user);

/* All three set, or none. `resize` takes NULL like realloc. Called on any thread. Does not grow. */
typedef struct hf_allocator {
    void *(*allocate)(size_t size, void *user);
    void *(*resize)(void *ptr, size_t size, void *user);
    void (*release)(void *ptr, void *user);
    void *user;
} hf_allocator;

typedef struct hf_options {
    size_t size;                /* sizeof(hf_options): set by HF_OPTIONS_INIT */
    const char *user;           /* overrides the url's; copied, like every string here */
    const char *password;       /* overrides the url's; a user without one has an empty one */
    const char *name_prefix;    /* put in front of every name, as a Redisson NameMapper would */
    int64_t cmd_timeout_ms;     /* one exchange with the server, connect and handshake included */
    int64_t connect_timeout_ms; /* give up waiting when no server was of help for this long */
    /* the lease of watchdog holds; renewed every third of it. ZooKeeper: the session timeout to ask
     * for; the server has the last word, and a hold is proved anew every quarter of it */
    int64_t watchdog_ms;
    int64_t max_hold_ms; /* watchdog holds are not renewed past this age; 0: no limit */
    int64_t ping_ms;     /* how often an idle connection is checked */
    unsigned flags;      /* HF_MANUAL_DISPATCH, HF_TLS_INSECURE, HF_SLEEP_AT_ONCE */
    hf_log_fn log;       /* NULL: silent */
    void *log_user;
    hf_allocator allocator; /* all zero: malloc */

    /* TLS, for rediss:// and valkeys:// only. Files are PEM, and read by hf_open(). The server's
     * certificate must chain to a trusted CA and name the host (or the address) in the url. */
    const char *tls_ca_file;   /* the CAs to trust, with tls_ca_dir; neither given: the system's */
    const char *tls_ca_dir;    /* a directory prepared by `openssl rehash` */
    const char *tls_cert_file; /* our own certificate and its chain, for servers that ask for one */
    const char *tls_key_file;  /* its key, not encrypted; NULL: it is in tls_cert_file */
    const char *tls_server_name; /* asked for (SNI) and verified instead of the url's host */
    int tls_min_version;         /* HF_TLS_1_2 (also 0) or HF_TLS_1_3 */

    int64_t fair_wait_ms; /* fair locks shared with Java: its `fairLockWaitTimeout` */
    /* Of a quorum: a server that started less than this ago has no vote, since it may have forgotten
     * a lock. -1: watchdog_ms. 0: off, for servers that forget nothing (appendfsync always). At
     * least the longest lease in use. */
    int64_t restart_guard_ms;

    /* Servers that are found by sentinels, redis-sentinel:// only. A sentinel has users and passwords of its own: what
     * is given for the servers is never sent to one. */
    const char *master;        /* the name of the primary, unless the url has it */
    const char *sentinel_user; /* these two override the url's */
    const char *sentinel_password;
    int sentinel_tls; /* HF_SENTINEL_TLS_ON or _OFF; 0: as the url says, or else like the servers */
    const char *sentinel_tls_server_name; /* as tls_server_name, for the sentinels */
    /* A wait gives up when no server has been of help for this long, although sentinels answer: a failover takes
     * its time. */
    int64_t failover_timeout_ms;
    hf_map_fn map; /* asked for each address that the url's `map` does not have; NULL: nobody */
    void *map_user;

    /* How many replicas must have confirmed an acquire before it is one: 1 to HF_ACKS_MAX, or HF_ACKS_...; 0 is
     * HF_ACKS_OFF. Fewer: it is undone, and fails with HF_ENOREPLICA. A renewal or extension that fewer confirm
     * does not count, so a hold whose server has lost its replicas ends at its deadline, after a warning. A
     * release never waits for them. Of semaphores and permits the number is only told. docs/guarantees.md says
     * what this is worth. Not offered by a quorum; HF_ACKS_ALL needs servers that sentinels or a cluster watch
     * over, since nobody else knows how many there are. */
    int acks;
    int ack_disk; /* 1: confirmed is what is on disk, there and at the primary (Redis 7.2, `appendonly yes`) */
    /* Wait so long for them; never more than a third of cmd_timeout_ms, or a ninth of watchdog_ms. */
    int64_t ack_timeout_ms;

    /* Who has held something or waited for so long tells whoever asks (hf_survey()) what it holds and waits
     * for. 0: at once. -1: never. */
    int64_t report_after_ms;

    /* For so many names it is kept how long acquires, holds and hand-overs took: see hf_client_metrics() and
     * HF_WANT_TIMES. 0 to 10000; 0: for none. Some 1 KiB each, when a name is first acquired. If there are more,
     * a name makes room for another when nobody has had a handle on it for five minutes; a handle looks for room once, when
     * it first acquires. */
    int64_t timed_names;
} hf_options;

#define HF_OPTIONS_DEFAULTS(X)                                                                     \
    X(cmd_timeout_ms, 3000)                                                                        \
    X(connect_timeout_ms, 10000)                                                                   \
    X(watchdog_ms, 30000)                                                                          \
    X(ping_ms, 10000)                                                                              \
    X(fair_wait_ms, 300000)                                                                        \
    X(restart_guard_ms, -1)                                                                        \
    X(failover_timeout_ms, 60000)                                                                  \
    X(ack_timeout_ms, 1000)                                                                        \
    X(report_after_ms, 1000)                                                                       \
    X(timed_names, 64)
#define HF_OPTIONS_INIT HF_INIT(hf_options, HF_OPTIONS_DEFAULTS)

/* Makes a client. Nothing is sent yet: connections open when they are first needed.
 *   url      redis://[user:password@]host[:port][/db][?option=value&...] or valkey://...; with TLS
 *            rediss://... or valkeys://...; unix://path; redis-sentinel://host[:port],.../name[/db]
 *            for a primary that sentinels name, which is followed when it changes;
 *            redis-cluster://host[:port],... for a cluster, of which any nodes may be named;
 *            zk://[user:password@]host[:port],...[/chroot] for an ensemble of ZooKeeper, with TLS zks://
 *            (docs/curator.md); or local:
 *            for a private server of this user on this machine, which needs redis-server or
 *            valkey-server installed. NULL:
 *            HOLDFAST_URL from the environment, or if that is not set REDIS_URL; HF_EINVAL if
 *            neither is, or if it is empty. docs/guide.md has every form. Several urls, separated by
 *            blanks, are a quorum of three to nine independent servers: a lock of such a client is
 *            held when more than half of them have granted it, and for as long as that is certain.
 *            The others may be down. Give every process the same servers, in any order. Only plain
 *            locks, reentrant or not, and fenced ones are offered then, else HF_ENOTSUP.
 *            HF_ENOQUORUM: fewer than a majority answered. docs/quorum.md says when that helps.
 *   options  NULL: the defaults above. Options in the url override them.
 * Blocks:  no, but with TLS it reads the files.
 * Errors:  HF_EINVAL (hf_last_error() names the bad part, or the file), HF_ENOTSUP, HF_ENOMEM,
 *          HF_ESYS. */
HF_API int hf_open(const char *url, const hf_options *options, hf_client **ret_client);

/* Ends a client. Waiting calls return HF_ECLOSED, and callbacks still due run with that code. Holds
 * are not released, since the work they protect may still be going on: their leases run out. (In
 * ZooKeeper they end when the session has timed out; if there are none, it is ended at once.)
 * Afterwards lock handles may only be freed. NULL is fine.
 * Blocks:  until running callbacks have returned. It waits for the network only if an acquire was
 *          just abandoned or a release has not been answered: up to `cmd_timeout_ms`, so as not to
 *          leave behind a lock that nobody owns. (A name lookup that hangs in the resolver may
 *          outlive the client in a thread of its own; it touches nothing of yours.)
 * Errors:  HF_EDEADLK inside a callback. */
HF_API int hf_close(hf_client *client);

/* One exchange with the server: is it there, does it accept us, is it new enough?
 * Blocks:  up to `cmd_timeout_ms`.   Errors: those of every exchange. */
HF_API int hf_ping(hf_client *client);

/* The client's uuid, 36 characters and a NUL: the first part of its owners' names on the server.
 * Valid until hf_close(). */
HF_API const char *hf_client_id(const hf_client *client);

/* Runs callbacks that are due, on this thread, about a thousand at most: if there are more, the next call has
 * work to do. Returns how many ran (0: the wait is over), or an error.
 * Blocks:  until at least one has run, for up to `wait_ms`; and for as long as the callbacks take.
 * Errors:  HF_EINVAL without HF_MANUAL_DISPATCH; HF_EBUSY another thread is inside this function;
 *          HF_EDEADLK inside a callback; HF_ECLOSED; HF_EFORKED. */
HF_API int hf_dispatch(hf_client *client, int64_t wait_ms);

/* A descriptor that polls readable when hf_dispatch(client, 0) has work to do; that may be internal
 * work which runs no callback. Owned by the client, closed by hf_close().
 * Errors:  HF_EINVAL without HF_MANUAL_DISPATCH; HF_EFORKED. */
HF_API int hf_dispatch_fd(hf_client *client);

/* ---- Owners ---------------------------------------------------------------------------------- */

/* A caller's own numbers are 1 .. 4294967295; larger ones are handed out by the library and are
 * unique in the process. 0 is no owner: it stands for this thread's number, and in the options of
 * an asynchronous acquire for a fresh one. */
typedef uint64_t hf_owner;

/* A number that nobody has used yet. */
HF_API hf_owner hf_owner_new(void);

/* This thread's number. 0 when out of memory. */
HF_API hf_owner hf_owner_self(void);

/* ---- Locks ----------------------------------------------------------------------------------- */

typedef struct hf_lock hf_lock;
typedef struct hf_op hf_op;
typedef struct hf_cancel hf_cancel;

/* What kind of lock: a base, and flags. The plain ones, with whatever flags, are the same lock on
 * the server: under one name they exclude and wake each other, and what an owner holds through
 * several of them is one hold. The same goes for the fair ones, and the two sides of a read/write
 * lock belong together. Apart from that, use a name for one kind only: another kind is refused with
 * HF_EWRONGTYPE wherever the server can tell. */
typedef enum hf_kind {
    /* reentrant, exclusive, unfair: Redisson's RLock. Whoever has released it and comes again at once, with a wait of
     * 40 ms at least, leaves some of those who wait elsewhere a moment to be first; never longer than they take,
     * 20 ms if nobody comes, and a quarter of its own wait. */
    HF_PLAIN,
    /* first come, first served, across all processes: a release hands the lock to the first in
     * line. RFairLock. A waiter that was handed the lock can at first trust it for a few seconds
     * only, whatever its lease (`remaining_ms` says for how long), since nobody knew whether it
     * lived; its first renewal, a third of that later, gives it its lease. */
    HF_FAIR,
    /* the two sides of a read/write lock: many readers or one writer. A writer may also read, and
     * may keep reading when it stops writing; a reader that wants to write gets HF_EDEADLK at once.
     * Readers are always let in beside readers, so an endless stream of them keeps a writer out
     * until its wait is over. RReadWriteLock */
    HF_READ,
    HF_WRITE
} hf_kind;

/* Not every combination is offered: the constructor answers the others with HF_ENOTSUP. Offered are
 * HF_PLAIN with one of the first three, HF_FAIR with HF_NONREENTRANT, and what HF_COHORT says. No flag is also the number of a
 * kind. */
#define HF_NONREENTRANT 0x100u /* an owner that acquires again gets HF_EDEADLK at once */
#define HF_SPIN 0x200u         /* waits by retrying: for very short holds */
#define HF_FENCED 0x400u       /* every acquire draws a token for hf_fence_check(): RFencedLock */
/* Threads of this process that want the lock pass it on among themselves, in the order in which they came,
 * without asking the server: many times faster where many threads want one lock. On the server the client
 * is one owner, which others see, Java included; hf_lock_is_mine() is true for the thread inside only. When
 * it was passed on `cohort_passes` times, or `cohort_ms` after the server granted it, it is released, and
 * those who wait elsewhere are let in: with HF_FAIR in their turn, else the client stands back until as many others
 * have had it as were told of the release, or nobody came for some milliseconds. So one who waits elsewhere is kept
 * waiting by each client that was before it for `cohort_ms` and one hold longer: n clients take turns. (Those who are
 * not told, since they only try again and again, as with HF_SPIN, have a pause now and then, and no such bound.)
 *   - A release that passes the lock on asks nobody: HF_OK means that no loss was known. What is lost is told
 *     to whoever is inside then, as always, and nobody is let in any more.
 *   - A hold of which so little is left that its end would be warned of is not passed on.
 *   - A lease is kept by the client: on the server it is `watchdog_ms`, whatever it is here, until
 *     nobody is inside. An extension asks nobody.
 *   - With one attempt (a wait of 0) another thread that waits is as good as one that has it: HF_EBUSY. Until a release
 *     is answered the lock is as good as held by whoever had it: a wait that ends before is HF_ETIMEDOUT.
 *   - To handles without HF_COHORT, even of the same client, it is another owner's.
 *   - hf_survey() tells of the owner on the server, and beside it of the thread inside and of those who wait here,
 *     by their own owners and as of the kind "cohort": so deadlocks are found. `max_hold_ms` and the statistics are about
 *     the threads' holds, not about how long the client keeps the lock.
 * Offered are HF_PLAIN and HF_FAIR, also with HF_NONREENTRANT. Not with HF_FENCED, since whoever is passed the
 * lock gets no token of its own; and no member of hf_lock_new_all(). hf_lock_adopt() is HF_ENOTSUP. `acks` of an
 * acquire are refused; those of the client count for the hold on the server. */
#define HF_COHORT 0x800u

typedef struct hf_lock_options {
    size_t size;    /* sizeof(hf_lock_options): set by HF_LOCK_INIT */
    hf_kind kind;   /* the base */
    unsigned flags; /* HF_NONREENTRANT, HF_SPIN, HF_FENCED, HF_COHORT */
    /* HF_SPIN: the sleep between two attempts is first this long, then each time so many times
     * longer, with some chance in it, and never longer than that. As with Redisson's LockOptions:
     * initialDelay, multiplier, maxDelay. Times are 1 ms to one day, the factor is 1 to 1000. */
    int64_t spin_first_ms;
    int64_t spin_factor;
    int64_t spin_max_ms;
    /* HF_COHORT: how often in a row, and for how long, threads of this process may pass the lock on while
     * others may be waiting: 1 to 1000000, and 1 ms to a minute. Of several handles the strictest count. */
    int64_t cohort_passes;
    int64_t cohort_ms;
} hf_lock_options;

#define HF_LOCK_DEFAULTS(X)                                                                        \
    X(spin_first_ms, 1)                                                                            \
    X(spin_factor, 2)                                                                              \
    X(spin_max_ms, 128)                                                                            \
    X(cohort_passes, 1000)                                                                         \
    X(cohort_ms, 5)
#define HF_LOCK_INIT HF_INIT(hf_lock_options, HF_LOCK_DEFAULTS)

/* Makes a handle; nothing is sent. The name is copied: 1 to 65535 bytes of any value, the client's
 * `name_prefix` included (only valid UTF-8 can be shared with Java). As for every handle, there is
 * a form for a name that is a string, and one for bytes, which may be NUL; both make a plain lock.
 * The third makes any kind; NULL `options` means the defaults.
 * Errors:  HF_EINVAL, HF_ENOTSUP there is no such kind, HF_ECLOSED, HF_EFORKED, HF_ENOMEM. */
HF_API int hf_lock_new(hf_client *client, const char *name, hf_lock **ret_lock);
HF_API int hf_lock_new_bytes(hf_client *client, const void *name, size_t name_len,
                             hf_lock **ret_lock);
HF_API int hf_lock_new_with(hf_client *client, const void *name, size_t name_len,
                            const hf_lock_options *options, hf_lock **ret_lock);

/* Some values of a group as one lock: all of them or none, in one step on one server. Whoever wants
 * any of the same values has to wait; others of the group are free for others. Redisson's
 * getMultiLock(group, values), if Java encodes values as these bytes: with StringCodec.
 *
 * The group is a name as above, and no lock of another kind may have it. A value is any bytes, even
 * none; one that comes twice counts once, and the order means nothing: two handles of the same
 * values are the same lock, and nest. But an owner that holds some of these values together with
 * others gets HF_EDEADLK at once. hf_lock_name() is the group. hf_lock_inspect() is HF_ENOTSUP.
 * hf_lock_is_locked() is true if anybody holds any of the values, hf_lock_ttl_ms() is how long
 * until all are free, hf_lock_hold_count() is 0 unless the owner holds all; hf_lock_break() breaks
 * whatever hold any of the values belongs to.
 *
 * Leases of values end by the server's clock. Redisson looks at its own instead, so the clocks of
 * Java's machines must agree with the server's to much less than a lease.
 * Errors:  as for hf_lock_new(); HF_EINVAL also for no values, or more than HF_VALUES_MAX. */
#define HF_VALUES_MAX 1000
typedef struct hf_bytes {
    const void *bytes;
    size_t len;
} hf_bytes;
HF_API int hf_lock_new_group(hf_client *client, const void *group, size_t group_len,
                             const hf_bytes *values, size_t values_len, hf_lock **ret_lock);

/* One lock out of many: all of them or none. Members are of any kind, of one client or of several,
 * quorums and groups included, and each comes once; one that is such a lock itself counts as its
 * members. Their handles may be freed. For the order in which it is acquired their order means nothing.
 *
 * It never waits while it holds anything, so it is in no deadlock with anybody, whatever the order in
 * which others take the same locks: if a member is busy, it gives back what it has, waits for that one
 * and asks for the others again. (What its owner held before is its owner's affair.) It is lost as soon
 * as one member is; the others are then released. Each member is held like any lock, by the same owner
 * number in every client, so whoever holds a member already nests.
 *
 * hf_lock_name() is the members' names, joined by spaces. hf_lock_is_locked() is true if anybody
 * holds any member, hf_lock_is_mine() if the owner holds all; hf_lock_hold_count() is the smallest of
 * their counts, hf_lock_ttl_ms() the smallest time of those that are held. hf_lock_break(),
 * hf_lock_inspect() and hf_lock_token() are HF_ENOTSUP: ask the members. An error is the failing
 * member's, and its text begins with that member's name. A release goes to all members whatever comes of
 * the others, and tells the worst: HF_ELOST, then HF_ENOTOWNER, HF_EUNKNOWN, any other. Callbacks run on
 * the client of the first member. If a member's client is closed, acquiring fails with HF_ECLOSED, and a
 * hold ends with that member's lease. Statistics count it beside its members.
 * Errors:  HF_EINVAL no members, more than HF_MEMBERS_MAX, or one that comes twice; HF_ECLOSED,
 *          HF_EFORKED, HF_ENOMEM. */
#define HF_MEMBERS_MAX 64
HF_API int hf_lock_new_all(hf_lock *const *members, size_t members_len, hf_lock **ret_lock);

/* Frees a handle, not a hold: what it acquired stays held by its owner, and can be released through
 * another handle. Its loss callback does not run any more once this has returned (when called
 * inside that callback: once the callback has returned). NULL is fine.
 * Blocks:  until that callback has returned, if it is running; not inside a callback. */
HF_API void hf_lock_free(hf_lock *lock);

/* The name as given, followed by a NUL, and its length (`ret_len` may be NULL). Valid as long as
 * the handle is. */
HF_API const char *hf_lock_name(const hf_lock *lock, size_t *ret_len);

typedef struct hf_acquire_options {
    size_t size;     /* sizeof(hf_acquire_options): set by HF_ACQUIRE_INIT */
    hf_owner owner;  /* 0: this thread; of an operation: a fresh one */
    int64_t wait_ms; /* HF_FOREVER, 0 (one attempt), or a limit */
    /* HF_WATCHDOG, or a fixed lease: 1 .. HF_LEASE_MAX_MS. In ZooKeeper a process that dies keeps its
     * lock until its session has timed out, however short the lease */
    int64_t lease_ms;
    hf_cancel *cancel; /* lets another thread end the wait; NULL: none */
    int acks; /* as hf_options has it, for this hold; 0: as the client's. Of nested ones the strictest */
} hf_acquire_options;

#define HF_LEASE_MAX_MS (INT64_C(1000) * 60 * 60 * 24 * 3660) /* ten years */
#define HF_ACQUIRE_DEFAULTS(X)                                                                     \
    X(wait_ms, HF_FOREVER)                                                                         \
    X(lease_ms, HF_WATCHDOG)
#define HF_ACQUIRE_INIT HF_INIT(hf_acquire_options, HF_ACQUIRE_DEFAULTS)

/* What an operation found out. Fields that do not apply to it are 0. */
typedef struct hf_result {
    size_t size;          /* sizeof(hf_result): set by HF_RESULT_INIT before a synchronous call */
    int code;             /* HF_OK or HF_E... */
    hf_owner owner;       /* who acquired, released, ... */
    int64_t count;        /* acquire, release: how many times the owner now holds the lock */
    int64_t remaining_ms; /* acquire, extend: how long the hold can be trusted, as of now */
    int64_t token;        /* fenced locks: larger than every token before it; else 0 */
    /* queries: the answer (booleans as 0 and 1); break: 1 if one was broken */
    int64_t value;
    hf_error error;  /* details when code is not HF_OK */
    int64_t votes;   /* acquire, extend on a quorum: how many servers have granted it; else 0 */
    int64_t servers; /* and of how many */
    int64_t acked;   /* acquire, extend with `acks`: how many replicas have confirmed it; else 0 */
} hf_result;

#define HF_RESULT_INIT HF_INIT(hf_result, HF_NO_DEFAULTS)

/* Acquires for this thread, with the watchdog: waiting for ever / with one attempt / for up to
 * `wait_ms`. Nests.
 * Blocks:  for the wait, plus one exchange.
 * Errors:  HF_EBUSY the one attempt found another holder; HF_ETIMEDOUT the wait ran out, and another
 *          holder had been found, or what this owner gave up just before was not undone yet, or the
 *          answer came when the lease was over (if the server has said nothing at all, it is
 *          HF_EUNREACH). In any case nothing is held: whatever may still be under way is undone in
 *          the background. HF_ELOST a nested
 *          acquire found the hold gone (it is over, count 0); HF_EWRONGTYPE; HF_EDEADLK in a
 *          callback, or the owner would wait for itself: it already holds an HF_NONREENTRANT lock,
 *          or it reads and wants to write; HF_ENOREPLICA fewer replicas have confirmed it than `acks` asks
 *          for (tried again while wait is left, but not longer than `connect_timeout_ms` if it fails for nothing
 *          else); and those of every exchange. After any error but HF_ELOST the hold is what it was before. */
HF_API int hf_lock_acquire(hf_lock *lock);
HF_API int hf_lock_try(hf_lock *lock);
HF_API int hf_lock_acquire_for(hf_lock *lock, int64_t wait_ms);

/* The same with all options; NULL `options` means the defaults. `ret` may be NULL. It is also
 * filled when the acquire fails, but not when it could not begin (HF_EINVAL, HF_ECLOSED,
 * HF_EFORKED, HF_ENOMEM, or inside a callback). A hold is renewed from the first acquire that asks
 * for the watchdog until its full release; a fixed lease given to a nested acquire can lengthen the
 * hold, never shorten it.
 * Errors:  also HF_ECANCELED, HF_EINVAL. */
HF_API int hf_lock_acquire_with(hf_lock *lock, const hf_acquire_options *options, hf_result *ret);

/* Undoes one acquire; the last release frees the lock and wakes a waiter.
 * Blocks:  up to `cmd_timeout_ms`.
 * Errors:  HF_ENOTOWNER not held; HF_ELOST the hold had already ended (another may have held the
 *          lock since, and what it protects may be damaged); HF_EUNKNOWN no answer came: the last
 *          release ends the hold for us all the same, is repeated in the background, and at the
 *          latest the lease ends it; that of a nested acquire undoes this acquire, and what was
 *          acquired before is still held and renewed; HF_ENOMEM nothing was done; those of every
 *          exchange, which mean the same as HF_EUNKNOWN. */
HF_API int hf_lock_release(hf_lock *lock);
HF_API int hf_lock_release_as(hf_lock *lock, hf_owner owner);

/* Makes the hold last at least `lease_ms` (1 to HF_LEASE_MAX_MS) from now; it never shortens it.
 * Blocks:  up to `cmd_timeout_ms`.
 * Errors:  HF_ENOTOWNER not held; HF_ELOST the hold had already ended; HF_EUNKNOWN no answer came;
 *          HF_ENOREPLICA fewer replicas have confirmed it than the hold's `acks` asks for, and it lasts as long
 *          as before; those of every exchange. */
HF_API int hf_lock_extend(hf_lock *lock, int64_t lease_ms);
HF_API int hf_lock_extend_as(hf_lock *lock, hf_owner owner, int64_t lease_ms);

/* Makes a hold that another client has acquired this client's own. It is known by its handle, which
 * is "uuid:number": hf_client_id(), a colon and the owner; `holdfast acquire` prints one, and
 * hf_lock_inspect() shows those of all holders. So what one process acquired another can keep and
 * give back, even if the first has ended. From then on it is renewed here, or has a fixed lease of
 * `lease_ms`, which never shortens it; a loss is told here, too. At the server its owner stays who it
 * was, with the same count; here it has a number, `owner` of the result, for hf_lock_release_as()
 * and whatever else takes one, until it is released or its loss was told. A fenced hold draws a new
 * token. To adopt what this client has adopted already, or has acquired itself, only lengthens it.
 *
 * A handle is for one at a time: whoever knows it may release, and a client that acquired it and
 * still lives goes on renewing it, and is told of a loss when this one releases it. The handle of
 * a Java thread is "id:threadId".
 *
 * Offered for plain, fair and read/write locks with any flags. HF_ENOTSUP: groups, locks of several,
 * a quorum; and ZooKeeper, where a hold ends with the session that has it. `ret` may be NULL.
 * Blocks:  up to `cmd_timeout_ms`.
 * Errors:  HF_EINVAL it is no handle; HF_ENOTOWNER nobody holds the lock by it, or not any more;
 *          HF_EWRONGTYPE another kind of lock has the name, where the server can tell; HF_ELOST this
 *          client had adopted it, and it has ended since; HF_ETIMEDOUT the lease was over before the
 *          answer came; HF_ENOREPLICA, HF_EUNKNOWN as for an extension: nothing is this client's
 *          then; those of every exchange. */
HF_API int hf_lock_adopt(hf_lock *lock, const char *handle, int64_t lease_ms, hf_result *ret);

/* Forces the lock free, whoever holds it, and whoever waits may enter at once. A holder that uses
 * this library and has held for a second is told by message, and reports the loss as any other; one
 * that hears nothing finds out at its next renewal. Writes whether there was a hold to break. Of a
 * read/write lock it breaks the handle's side: all readers, or the writer, whose own reads end with
 * it. In ZooKeeper nobody is told: a holder of this library finds out within a quarter of its session,
 * one of Curator never.
 * Blocks:  up to `cmd_timeout_ms`.
 * Errors:  HF_EWRONGTYPE the name is not a lock of this kind; HF_EUNKNOWN no answer came; those of
 *          every exchange. */
HF_API int hf_lock_break(hf_lock *lock, bool *ret_broken);

/* Questions to the server: whether anybody holds it; whether this thread, or that owner, does, and
 * how many times.
 * ttl: ms until the lock frees itself; -1 never; -2 nobody holds it. For a read/write lock this
 * covers both sides; the other questions are about the handle's side. In ZooKeeper only what is left
 * of this thread's own hold is known: another's is -1, and its count 1.
 * Blocks:  up to `cmd_timeout_ms`.   Errors: HF_EWRONGTYPE not a lock, where the server can tell;
 *          those of every exchange. */
HF_API int hf_lock_is_locked(hf_lock *lock, bool *ret_locked);
HF_API int hf_lock_is_mine(hf_lock *lock, bool *ret_mine);
HF_API int hf_lock_is_mine_as(hf_lock *lock, hf_owner owner, bool *ret_mine);
HF_API int hf_lock_hold_count(hf_lock *lock, int64_t *ret_count);
HF_API int hf_lock_hold_count_as(hf_lock *lock, hf_owner owner, int64_t *ret_count);
HF_API int hf_lock_ttl_ms(hf_lock *lock, int64_t *ret_ttl_ms);

/* Questions answered from memory, without I/O.
 * remaining: how long this owner's hold can still be trusted, in whole milliseconds, rounded down;
 * 0: less than one is left, it holds nothing, or lost it. Never negative.
 * token: the latest one of a fenced hold; in ZooKeeper of any.
 * Errors:  token only: HF_ENOTOWNER without such a hold, HF_ENOTSUP for kinds without tokens,
 *          HF_EINVAL. */
HF_API int64_t hf_lock_remaining_ms(hf_lock *lock);
HF_API int64_t hf_lock_remaining_ms_as(hf_lock *lock, hf_owner owner);
HF_API int hf_lock_token(hf_lock *lock, int64_t *ret_token);
HF_API int hf_lock_token_as(hf_lock *lock, hf_owner owner, int64_t *ret_token);

/* What there is under a name. Only its queue tells a fair lock from a plain one, so while nobody
 * waits it is what the handle is. */
typedef enum hf_found {
    HF_FOUND_FREE, /* nobody holds it */
    HF_FOUND_PLAIN,
    HF_FOUND_FAIR,
    HF_FOUND_READ,
    HF_FOUND_WRITE,
    HF_FOUND_PERMITS, /* no lock, but permits, some of them taken; in ZooKeeper perhaps none */
    HF_FOUND_COUNTER, /* no lock, but a semaphore, a latch, or permits with none taken */
    HF_FOUND_OTHER    /* nothing of ours */
} hf_found;

/* Who holds a lock and who waits for it, as the server sees it. Free with hf_lock_info_free(). */
typedef struct hf_holder {
    char *owner;   /* "uuid:number"; may belong to any client */
    int64_t count; /* how many times it holds the lock */
    /* what its connection says of itself ("host pid program"), or NULL if unknown */
    char *connection;
} hf_holder;
typedef struct hf_lock_info {
    hf_found kind;
    int64_t ttl_ms; /* as hf_lock_ttl_ms() */
    /* of a read/write lock: the readers, and the writer with ":write" after its owner and the count
     * of its write holds */
    size_t holders_len;
    hf_holder **holders;
    size_t waiters_len; /* fair locks: who waits, in order; their count is 0 */
    hf_holder **waiters;
    const char *words; /* HF_FOUND_OTHER: what the server calls it, for people; else NULL */
} hf_lock_info;
/* Blocks:  up to `cmd_timeout_ms`.   Errors: those of every exchange. A name that is not a lock is
 *          not an error; `kind` says what it is. */
HF_API int hf_lock_inspect(hf_lock *lock, hf_lock_info **ret_info);
HF_API void hf_lock_info_free(hf_lock_info *info);

/* What the server of a name says of itself: for checks, as `holdfast doctor` makes them, and for
 * people. Facts have names:
 *   info.<field>         whatever INFO tells, e.g. "info.redis_version"
 *   config.<parameter>   of those that matter to locks, e.g. "config.maxmemory-policy"
 *   may.<command>        "yes", if this user may: of what the library calls;
 *   may.script.<command> the same of what its scripts call
 *   clock.ahead_ms       how far the server's clock is ahead of this machine's, give or take
 *   clock.uncertain_ms   so much
 *   tls.until_s          Unix time at which the first certificate of its chain ends; not without TLS
 * and in ZooKeeper
 *   zk.session_ms        the session timeout that was granted
 *   zk.config            the configuration of the ensemble; empty: it is one server
 * Which there are depends on the server, and may grow. */
typedef struct hf_fact {
    char *name;
    char *value; /* NULL: the server does not say */
    char *why;   /* and why not, in its words; else NULL */
} hf_fact;
typedef struct hf_facts {
    char *node; /* which server */
    size_t facts_len;
    hf_fact **facts;
} hf_facts;
/* To find out what this user may write, the handle's name is used, if nothing has it, and left as it
 * was: take one that nobody uses. Of plain, fair and read/write locks; of a quorum HF_ENOTSUP. In ZooKeeper
 * nothing is written. Free with hf_facts_free().
 * Blocks:  up to `cmd_timeout_ms`.   Errors: those of every exchange. What is refused is a fact. */
HF_API int hf_lock_facts(hf_lock *lock, hf_facts **ret_facts);
HF_API void hf_facts_free(hf_facts *facts);

/* ---- Fencing --------------------------------------------------------------------------------- */

/* What the protected side remembers: the highest token it has seen. Start with HF_FENCE_INIT, or
 * with the number stored beside the data. Zero means "none yet". */
typedef struct hf_fence {
    int64_t highest;
} hf_fence;

#define HF_FENCE_INIT                                                                              \
    { 0 }

/* Lets a writer pass if nobody with a larger token has come before it, and remembers its token; an
 * equal token is the same holder again. The check says nothing about what happens after it: check
 * and write must be one step, under whatever guards the data (see docs/fencing.md, which also shows
 * how to do this in Redis itself).
 * Threads: any, even on the same fence; atomic.   Blocks: no; needs no client.
 * Errors:  HF_ELOST stale: a later holder has been here; HF_EINVAL not a token, or no fence. */
HF_API int hf_fence_check(hf_fence *fence, int64_t token);

/* ---- Loss ------------------------------------------------------------------------------------ */

typedef enum hf_event_kind {
    HF_EVENT_WARNING, /* renewal is failing: `remaining_ms` is what is left. Stop work in time. */
    HF_EVENT_LOST,    /* the hold is over, though it was not released */
    HF_EVENT_ORPHANED /* the thread that acquired it has ended; it is not renewed any more */
} hf_event_kind;

typedef struct hf_event {
    hf_event_kind kind;
    hf_owner owner;
    int64_t remaining_ms;
    const char *reason; /* a sentence for a log */
} hf_event;

typedef void (*hf_event_fn)(hf_lock *lock, const hf_event *event, void *user);

/* Sets the callback for trouble with any hold of this client on this name (of a read/write lock: on
 * the handle's side), through whichever handle it was acquired. Replaces the previous callback;
 * NULL removes it. Whether or not there is a callback, the next call on a lost hold returns
 * HF_ELOST once, and hf_client_stats() counts it.
 * Blocks:  with NULL until the previous callback has returned, if it is running (not inside a
 *          callback); a new one may be set while the previous one still runs.
 * Errors:  HF_EINVAL, HF_ESYS no thread for callbacks, HF_ECLOSED, HF_EFORKED. */
HF_API int hf_lock_on_lost(hf_lock *lock, hf_event_fn callback, void *user);

/* A descriptor that becomes readable when a hold on this name is lost, and stays so until it is
 * read (8 bytes, like an eventfd). Warnings and orphaned holds do not make it readable. Owned by
 * the handle and closed with it.
 * Errors:  negative: HF_EINVAL, HF_ESYS no descriptor, HF_ECLOSED, HF_EFORKED. */
HF_API int hf_lock_lost_fd(hf_lock *lock);

/* ---- Asynchronous ---------------------------------------------------------------------------- */

/* Runs exactly once for each start that returned HF_OK, and never if the start failed. `op` is what
 * the start returned (it is set before the callback can run), or NULL if the caller did not ask for
 * it. */
typedef void (*hf_callback)(hf_op *op, const hf_result *result, void *user);

/* Start an operation and return at once; allowed inside a callback. NULL `options` means the
 * defaults. `callback` may be NULL, and so may `ret_op` (then the operation cannot be cancelled).
 * The caller frees an op from `ret_op` with hf_op_free(), at any time: in the callback, before it,
 * or after hf_close(), which completes it.
 * Errors:  HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM, HF_ESYS no thread for callbacks;
 *          everything else is in the result. */
HF_API int hf_lock_acquire_start(hf_lock *lock, const hf_acquire_options *options,
                                 hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_lock_release_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                                 hf_op **ret_op);
HF_API int hf_lock_extend_start(hf_lock *lock, hf_owner owner, int64_t lease_ms,
                                hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_lock_adopt_start(hf_lock *lock, const char *handle, int64_t lease_ms,
                               hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_lock_break_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_lock_is_locked_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_lock_is_mine_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                                 hf_op **ret_op);
HF_API int hf_lock_hold_count_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                                    hf_op **ret_op);
HF_API int hf_lock_ttl_ms_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op);
/* `ret_info` is written before the callback runs, if it succeeded, and must stay valid until then;
 * the caller frees what it then points to. */
HF_API int hf_lock_inspect_start(hf_lock *lock, hf_lock_info **ret_info, hf_callback callback,
                                 void *user, hf_op **ret_op);
HF_API int hf_lock_facts_start(hf_lock *lock, hf_facts **ret_facts, hf_callback callback,
                               void *user, hf_op **ret_op); /* the same */
HF_API int hf_ping_start(hf_client *client, hf_callback callback, void *user, hf_op **ret_op);

/* Asks an operation to end. It still completes exactly once: with HF_ECANCELED, or with what had
 * already happened. A cancelled acquire leaves nothing behind. Operations that do not wait are not
 * undone. Must not be called after hf_close(). NULL is fine. */
HF_API void hf_op_cancel(hf_op *op);

/* Waits until the operation is complete (its callback may still be running), for up to `wait_ms`.
 * Returns its result code, and fills `ret` if it is not NULL. With HF_MANUAL_DISPATCH somebody must
 * be calling hf_dispatch().
 * Blocks:  for up to `wait_ms`.   Errors of its own: HF_EPENDING it is not complete yet; HF_EINVAL,
 *          HF_EFORKED, HF_EDEADLK inside a callback. `ret` is not written then. */
HF_API int hf_op_wait(hf_op *op, int64_t wait_ms, hf_result *ret);

/* Gives the handle back; the operation itself goes on, and its callback still runs. NULL is
 * fine. */
HF_API void hf_op_free(hf_op *op);

/* A switch that lets another thread (but not a signal handler) end waits: those of synchronous
 * calls and of operations that were given it. Once fired it stays fired until it is reset, and
 * waits that start with it end at once. Firing does not wait for anything. A switch belongs to no
 * client, and one may serve many waits.
 * Errors:  of hf_cancel_new(): HF_ENOMEM, HF_EINVAL. The others take NULL. */
HF_API int hf_cancel_new(hf_cancel **ret_cancel);
HF_API void hf_cancel_fire(hf_cancel *cancel);
HF_API void hf_cancel_reset(hf_cancel *cancel);
HF_API void hf_cancel_free(hf_cancel *cancel); /* not while a wait or an operation uses it */

/* ---- Waiting for things other than locks ----------------------------------------------------- */

typedef struct hf_wait_options {
    size_t size;       /* sizeof(hf_wait_options): set by HF_WAIT_INIT */
    int64_t wait_ms;   /* HF_FOREVER, 0 (one attempt), or a limit */
    hf_cancel *cancel; /* lets another thread end the wait; NULL: none */
} hf_wait_options;

#define HF_WAIT_DEFAULTS(X) X(wait_ms, HF_FOREVER)
#define HF_WAIT_INIT HF_INIT(hf_wait_options, HF_WAIT_DEFAULTS)

#define HF_PERMITS_MAX INT64_C(2147483647) /* what Java can count */

/* ---- Semaphores ------------------------------------------------------------------------------ */

/* A number of permits under a name, which belong to nobody in particular: Redisson's RSemaphore.
 * The permits of a process that dies are gone for good. If that matters, use hf_permits. Handles
 * are cheap, as for locks. */
typedef struct hf_sem hf_sem;

/* Makes and frees a handle; nothing is sent. Names are as for hf_lock_new() and hf_lock_name().
 * Errors:  HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM. */
HF_API int hf_sem_new(hf_client *client, const char *name, hf_sem **ret_sem);
HF_API int hf_sem_new_bytes(hf_client *client, const void *name, size_t name_len, hf_sem **ret_sem);
HF_API void hf_sem_free(hf_sem *sem);
HF_API const char *hf_sem_name(const hf_sem *sem, size_t *ret_len);

/* Sets the number of permits (0 to HF_PERMITS_MAX) if the semaphore does not exist yet, to expire
 * after `ttl_ms` (0: never; ZooKeeper takes nothing else: HF_ENOTSUP). Writes whether it was set.
 * What follows is true of all functions below, unless they say otherwise.
 * Blocks:  up to `cmd_timeout_ms`.
 * Errors:  HF_EUNKNOWN no answer came, and it may or may not have been done; HF_EWRONGTYPE the name
 *          is not a semaphore; HF_EINVAL; those of every exchange. */
HF_API int hf_sem_try_set(hf_sem *sem, int64_t permits, int64_t ttl_ms, bool *ret_set);

/* Takes `permits` (0 to HF_PERMITS_MAX) all at once, waiting until there are that many: for ever /
 * with one attempt / for up to `wait_ms`. For 0 permits it returns HF_OK and sends nothing. NULL
 * `options` means the defaults.
 * Blocks:  for the wait, plus one exchange.
 * Errors:  HF_EBUSY the one attempt found too few; HF_ETIMEDOUT, HF_ECANCELED, and those of every
 *          exchange: nothing was taken, or what was taken is given back in the background (if the
 *          server cannot be reached for a minute, it stays taken, and `unknowns` of
 *          hf_client_stats() counts it); HF_EUNKNOWN as above, but only if the server did not answer
 *          for a minute, or the acquire could not leave a ticket (docs/guarantees.md); in ZooKeeper
 *          if an answer was lost and the number has changed since. */
HF_API int hf_sem_acquire(hf_sem *sem, int64_t permits);
HF_API int hf_sem_try(hf_sem *sem, int64_t permits);
HF_API int hf_sem_acquire_for(hf_sem *sem, int64_t permits, int64_t wait_ms);
HF_API int hf_sem_acquire_with(hf_sem *sem, int64_t permits, const hf_wait_options *options);

/* Puts permits back (0 to HF_PERMITS_MAX in one call; for 0 it returns HF_OK and sends nothing).
 * The first creates the semaphore if it does not exist; the second does nothing then, and writes
 * whether it did exist. Nobody knows how many were taken, so the number may exceed what it was ever
 * set to, and even HF_PERMITS_MAX, beyond which Java cannot count. (In ZooKeeper it cannot exceed
 * that: HF_EINVAL.) */
HF_API int hf_sem_release(hf_sem *sem, int64_t permits);
HF_API int hf_sem_release_if_exists(hf_sem *sem, int64_t permits, bool *ret_released);

/* Changes the number of permits by `delta` (-HF_PERMITS_MAX to HF_PERMITS_MAX). The number itself
 * is not limited, and may become negative. Its TTL stays. */
HF_API int hf_sem_add(hf_sem *sem, int64_t delta);
/* Takes all there are, and writes how many that was. */
HF_API int hf_sem_drain(hf_sem *sem, int64_t *ret_permits);
HF_API int hf_sem_available(hf_sem *sem, int64_t *ret_permits); /* 0 if it does not exist */
/* Deletes the semaphore. Those who wait go on waiting until it exists again, by a set or a
 * release. */
HF_API int hf_sem_delete(hf_sem *sem, bool *ret_deleted);

/* The same as operations; see hf_lock_acquire_start(). The result's `value` has the number, or
 * whether it was done. */
HF_API int hf_sem_try_set_start(hf_sem *sem, int64_t permits, int64_t ttl_ms, hf_callback callback,
                                void *user, hf_op **ret_op);
HF_API int hf_sem_acquire_start(hf_sem *sem, int64_t permits, const hf_wait_options *options,
                                hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_sem_release_start(hf_sem *sem, int64_t permits, hf_callback callback, void *user,
                                hf_op **ret_op);
HF_API int hf_sem_release_if_exists_start(hf_sem *sem, int64_t permits, hf_callback callback,
                                          void *user, hf_op **ret_op);
HF_API int hf_sem_add_start(hf_sem *sem, int64_t delta, hf_callback callback, void *user,
                            hf_op **ret_op);
HF_API int hf_sem_drain_start(hf_sem *sem, hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_sem_available_start(hf_sem *sem, hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_sem_delete_start(hf_sem *sem, hf_callback callback, void *user, hf_op **ret_op);

/* ---- Permits with leases --------------------------------------------------------------------- */

/* A semaphore in which every permit has an id and a lease, so that the permits of a dead process
 * come back by themselves: Redisson's RPermitExpirableSemaphore. Whoever knows an id may release or
 * extend that permit. */
typedef struct hf_permits hf_permits;

/* 16 random bytes as 32 lower-case hexadecimal digits, and a NUL. Does not grow: it comes in
 * arrays. */
typedef struct hf_permit_id {
    char text[33];
} hf_permit_id;

#define HF_NO_LEASE (-INT64_C(1)) /* a permit that never expires, as Redisson's acquire() gives */

typedef struct hf_permits_options {
    size_t size;       /* sizeof(hf_permits_options): set by HF_PERMITS_INIT */
    int64_t count;     /* how many at once, all or none: 1 to 1000 */
    int64_t wait_ms;   /* HF_FOREVER, 0 (one attempt), or a limit */
    int64_t lease_ms;  /* HF_WATCHDOG (renewed until released), a fixed one, or HF_NO_LEASE */
    hf_cancel *cancel; /* lets another thread end the wait; NULL: none */
} hf_permits_options;

#define HF_PERMITS_DEFAULTS(X)                                                                     \
    X(count, 1)                                                                                    \
    X(wait_ms, HF_FOREVER)                                                                         \
    X(lease_ms, HF_WATCHDOG)
#define HF_PERMITS_INIT HF_INIT(hf_permits_options, HF_PERMITS_DEFAULTS)

/* Makes and frees a handle; nothing is sent. Names are as for hf_lock_new() and hf_lock_name().
 * Permits acquired through it stay acquired (and renewed) when it is freed; its loss callback no
 * longer runs.
 * Blocks:  free: until that callback has returned, if it is running; not inside a callback.
 * Errors:  HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM. */
HF_API int hf_permits_new(hf_client *client, const char *name, hf_permits **ret_permits);
HF_API int hf_permits_new_bytes(hf_client *client, const void *name, size_t name_len,
                                hf_permits **ret_permits);
HF_API void hf_permits_free(hf_permits *permits);
HF_API const char *hf_permits_name(const hf_permits *permits, size_t *ret_len);

/* The number of permits, including those that are taken: set it if the object does not exist yet
 * (and write whether it was set); set it in any case; change it. If more are taken than the new
 * number, the number available becomes negative. A TTL of the object stays. `number` is 0 to
 * HF_PERMITS_MAX, `delta` is -HF_PERMITS_MAX to HF_PERMITS_MAX.
 * Blocks and errors, here and below: as for hf_sem_try_set(). */
HF_API int hf_permits_try_set(hf_permits *permits, int64_t number, bool *ret_set);
HF_API int hf_permits_set(hf_permits *permits, int64_t number);
HF_API int hf_permits_add(hf_permits *permits, int64_t delta);

/* Takes permits, all or none, and writes their ids to `ret_ids`, which has room for `count`. The
 * short forms take one, with the watchdog, waiting for ever / with one attempt / for up to
 * `wait_ms`. NULL `options` means the defaults.
 * Blocks:  for the wait, plus one exchange.
 * Errors:  HF_EBUSY the one attempt found too few; HF_ETIMEDOUT, HF_ECANCELED nothing is held, as
 *          for a lock; HF_EWRONGTYPE; HF_EINVAL; those of every exchange. */
HF_API int hf_permits_acquire(hf_permits *permits, hf_permit_id *ret_id);
HF_API int hf_permits_try(hf_permits *permits, hf_permit_id *ret_id);
HF_API int hf_permits_acquire_for(hf_permits *permits, int64_t wait_ms, hf_permit_id *ret_id);
HF_API int hf_permits_acquire_with(hf_permits *permits, const hf_permits_options *options,
                                   hf_permit_id *ret_ids);

/* Gives back one permit; or many, all or none. They are no longer renewed, whatever the outcome.
 * Errors:  HF_ELOST its lease had run out (it is given back all the same), or it was ours and is
 *          gone; HF_ENOTOWNER no such permit, or (many) one of them has run out and none was
 *          released; HF_EINVAL not an id; HF_EUNKNOWN no answer came: the release is repeated in
 *          the background until the lease is over. */
HF_API int hf_permits_release(hf_permits *permits, const hf_permit_id *id);
HF_API int hf_permits_release_many(hf_permits *permits, const hf_permit_id *ids, size_t ids_len);

/* The first gives a permit a new lease from now: 1 ms to HF_LEASE_MAX_MS, even if that is shorter,
 * or HF_NO_LEASE. It is no longer renewed then. The second asks the server how much of the lease is
 * left; -1 if it has no end. ZooKeeper tells and changes that only of permits of this client that
 * have one, and not to HF_NO_LEASE: HF_ENOTSUP.
 * Errors:  HF_ENOTOWNER no such permit, or it has run out. */
HF_API int hf_permits_extend(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms);
HF_API int hf_permits_lease_ms(hf_permits *permits, const hf_permit_id *id, int64_t *ret_lease_ms);

/* How long a permit of this client can still be trusted, from memory and without I/O; 0 if the
 * client holds no such permit or has lost it. Also 0 for permits without a lease, which are not
 * remembered since anybody may release them: ask hf_permits_lease_ms(). */
HF_API int64_t hf_permits_remaining_ms(hf_permits *permits, const hf_permit_id *id);

/* How many are free, how many there are, how many are taken. 0 if the object does not exist. */
HF_API int hf_permits_available(hf_permits *permits, int64_t *ret_number);
HF_API int hf_permits_total(hf_permits *permits, int64_t *ret_number);
HF_API int hf_permits_taken(hf_permits *permits, int64_t *ret_number);

/* The first lets the whole object expire, after 1 ms to HF_LEASE_MAX_MS (in ZooKeeper: HF_ENOTSUP);
 * the second deletes it. Both write whether it existed. Permits that are taken end with it, and are lost. Those who wait
 * go on waiting until the object is set again. */
HF_API int hf_permits_expire(hf_permits *permits, int64_t ttl_ms, bool *ret_existed);
HF_API int hf_permits_delete(hf_permits *permits, bool *ret_deleted);

/* Sets the callback for permits of this client on this name that are lost or whose renewal is
 * failing; a fixed lease that runs out is a loss, too. Nothing is reported for permits without a
 * lease. The event's owner is 0. Replaces the previous callback; NULL removes it. `id` is a string,
 * valid during the call. Blocks and errors: as for hf_lock_on_lost(). */
typedef void (*hf_permit_event_fn)(hf_permits *permits, const char *id, const hf_event *event,
                                   void *user);
HF_API int hf_permits_on_lost(hf_permits *permits, hf_permit_event_fn callback, void *user);

/* As hf_lock_lost_fd(): readable when a permit of this client on this name is lost. */
HF_API int hf_permits_lost_fd(hf_permits *permits);

/* The same as operations; see hf_lock_acquire_start(). `ret_ids` is written before the callback
 * runs, if the acquire succeeded, and must stay valid until then. Ids passed in are copied. The
 * result's `value` has the number, or whether it was done. */
HF_API int hf_permits_try_set_start(hf_permits *permits, int64_t number, hf_callback callback,
                                    void *user, hf_op **ret_op);
HF_API int hf_permits_set_start(hf_permits *permits, int64_t number, hf_callback callback,
                                void *user, hf_op **ret_op);
HF_API int hf_permits_add_start(hf_permits *permits, int64_t delta, hf_callback callback,
                                void *user, hf_op **ret_op);
HF_API int hf_permits_acquire_start(hf_permits *permits, const hf_permits_options *options,
                                    hf_permit_id *ret_ids, hf_callback callback, void *user,
                                    hf_op **ret_op);
HF_API int hf_permits_release_start(hf_permits *permits, const hf_permit_id *ids, size_t ids_len,
                                    hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_permits_extend_start(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms,
                                   hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_permits_lease_ms_start(hf_permits *permits, const hf_permit_id *id,
                                     hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_permits_available_start(hf_permits *permits, hf_callback callback, void *user,
                                      hf_op **ret_op);
HF_API int hf_permits_total_start(hf_permits *permits, hf_callback callback, void *user,
                                  hf_op **ret_op);
HF_API int hf_permits_taken_start(hf_permits *permits, hf_callback callback, void *user,
                                  hf_op **ret_op);
HF_API int hf_permits_expire_start(hf_permits *permits, int64_t ttl_ms, hf_callback callback,
                                   void *user, hf_op **ret_op);
HF_API int hf_permits_delete_start(hf_permits *permits, hf_callback callback, void *user,
                                   hf_op **ret_op);

/* ---- Count-down latch ------------------------------------------------------------------------ */

/* A number that is counted down to zero while others wait for that: Redisson's RCountDownLatch. A
 * latch that does not exist is open. */
typedef struct hf_latch hf_latch;

/* Makes and frees a handle; nothing is sent. Names are as for hf_lock_new() and hf_lock_name().
 * Errors:  HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM. */
HF_API int hf_latch_new(hf_client *client, const char *name, hf_latch **ret_latch);
HF_API int hf_latch_new_bytes(hf_client *client, const void *name, size_t name_len,
                              hf_latch **ret_latch);
HF_API void hf_latch_free(hf_latch *latch);
HF_API const char *hf_latch_name(const hf_latch *latch, size_t *ret_len);

/* Closes the latch with a count of 1 to 2^53 - 1 (in ZooKeeper: to 2^31 - 1), if it is open. Writes
 * whether it was.
 * Blocks and errors, here and below: as for hf_sem_try_set(). */
HF_API int hf_latch_try_set(hf_latch *latch, int64_t count, bool *ret_set);

/* Counts down by one; at zero everyone who waits returns. An open latch stays open. */
HF_API int hf_latch_count_down(hf_latch *latch);

/* Waits until the latch is open or deleted: for ever / for up to `wait_ms`. If it was opened and
 * closed again meanwhile, it has been open, and the wait is over. This can be missed only if both
 * were done by Java or by version 0.1, and the new count is not larger than the last one that was
 * seen. NULL `options` means the defaults.
 * Blocks:  for the wait, plus one exchange.
 * Errors:  HF_EBUSY the one attempt found it closed; HF_ETIMEDOUT, HF_ECANCELED; HF_EWRONGTYPE;
 *          those of every exchange. */
HF_API int hf_latch_await(hf_latch *latch);
HF_API int hf_latch_await_for(hf_latch *latch, int64_t wait_ms);
HF_API int hf_latch_await_with(hf_latch *latch, const hf_wait_options *options);

HF_API int hf_latch_count(hf_latch *latch, int64_t *ret_count); /* 0: open */
HF_API int hf_latch_delete(hf_latch *latch, bool *ret_deleted); /* those who wait return */

/* The same as operations; see hf_lock_acquire_start(). The result's `value` has the number, or
 * whether it was done. */
HF_API int hf_latch_try_set_start(hf_latch *latch, int64_t count, hf_callback callback, void *user,
                                  hf_op **ret_op);
HF_API int hf_latch_count_down_start(hf_latch *latch, hf_callback callback, void *user,
                                     hf_op **ret_op);
HF_API int hf_latch_await_start(hf_latch *latch, const hf_wait_options *options,
                                hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_latch_count_start(hf_latch *latch, hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_latch_delete_start(hf_latch *latch, hf_callback callback, void *user, hf_op **ret_op);

/* ---- Listening ------------------------------------------------------------------------------- */

/* Hears what the server says of a name, whatever kind of lock or thing has it: the messages by which those who wait are
 * told, Java's included. So a release is heard of that nobody who looks now and then would see.
 *
 * News are hints, never proof. Anybody who may publish can say anything; channels do not know databases, so the same name
 * in another one is heard, too; a message may be lost with its connection, and what has happened since is not in it. Whoever
 * decides something asks the server. And not everything is told: an acquire of a lock that is free is not, nor the end of a
 * lease. Of a fair lock nothing is, except in ZooKeeper: its messages are for one waiter each, and a second who hears them
 * would keep alive those in line who have died.
 *
 * It costs the server four subscriptions for each name. hf_survey() does not count it among the `listeners`; but to whoever
 * releases a plain lock and comes again at once it is one who may be waiting, and is left a moment to be first (HF_PLAIN). */
typedef struct hf_listener hf_listener;

typedef enum hf_news_kind {
    /* From now on what is said is heard. It is told again whenever that had an end: the connection was lost, or the name
     * has moved to another server. What was said before, may have been missed. */
    HF_NEWS_LISTENING = 1,
    /* Nothing is heard for now: `code` is HF_EUNREACH, and it goes on by itself (HF_NEWS_LISTENING), or HF_EPERM: the
     * server refuses. */
    HF_NEWS_DEAF,
    /* The callback was slow, and `number` of them could not be kept: more than HF_NEWS_MAX, or there was no memory. */
    HF_NEWS_MISSED,
    HF_NEWS_RELEASED,       /* a lock was released, or broken, to the end: it was free */
    HF_NEWS_READ_RELEASED,  /* of a read/write lock: the last reader has */
    HF_NEWS_WRITE_RELEASED, /* the writer has */
    HF_NEWS_PERMITS, /* of a semaphore or permits: there may be `number` to be had, or as many more */
    HF_NEWS_OPENED, /* a latch: it was counted down to zero, or deleted */
    HF_NEWS_CLOSED, /* a latch: it was set anew, or deleted by Java, whose waiters do not go on then */
    /* Something about the name is not as it was. In ZooKeeper, which tells no more, that is all there is; much at once may
     * be told once. */
    HF_NEWS_CHANGED
} hf_news_kind;

/* Valid during the callback. May grow. */
typedef struct hf_news {
    hf_news_kind kind;
    int code;
    int64_t number;
    int64_t age_ms;   /* so long ago it was heard */
    const char *name; /* as it was given, followed by a NUL */
    size_t name_len;
    /* Which of the client's servers says so, from 0, and how many there are: of a quorum each speaks for itself, and gives
     * back what was no majority, so that what one says need not be true of the lock. Else 0 of 1. */
    size_t server;
    size_t servers;
} hf_news;

#define HF_NEWS_MAX 256 /* so many are kept for a callback that is slow */

typedef void (*hf_news_fn)(hf_listener *listener, const hf_news *news, void *user);

/* Begins to listen, and returns before it does: HF_NEWS_LISTENING tells when. Names are as for hf_lock_new(). The callback
 * is called for one after the other, in the order in which they were heard; it may have been when this returns.
 * Blocks:  no.
 * Errors:  HF_EINVAL, HF_ENOTSUP, HF_ECLOSED, HF_EFORKED, HF_ENOMEM, HF_ESYS no thread for callbacks. */
HF_API int hf_listen(hf_client *client, const char *name, hf_news_fn callback, void *user,
                     hf_listener **ret_listener);
HF_API int hf_listen_bytes(hf_client *client, const void *name, size_t name_len,
                           hf_news_fn callback, void *user, hf_listener **ret_listener);

/* Ends it; hf_close() does, too, and then this only frees. What was not told yet is not told any more: the callback
 * does not run once this has returned (inside it: once it has returned). NULL is fine.
 * Blocks:  until the callback has returned, if it is running; not inside a callback. */
HF_API void hf_listener_free(hf_listener *listener);

/* ---- The whole fleet ------------------------------------------------------------------------- */

/* Who holds what, who waits, and is anybody stuck? A survey asks the server, which knows who holds each lock, and by a
 * message all clients, each of which knows what it holds and waits for (`report_after_ms`). Nothing is recorded for it:
 * it costs nothing while nobody asks. What clients answer are claims of whoever may publish there; where the two differ,
 * the server's view is told, with a mark.
 *
 * Everything in it is read-only, valid until hf_fleet_free(), and reached by pointers, since these structs may grow. A
 * time of -1 is not known, or has no end. */

typedef enum hf_presence {
    HF_PRESENCE_UNKNOWN, /* it is not connected under a name that says so: gone, or a Java client */
    HF_ALIVE,            /* it has answered */
    HF_CONNECTED,        /* and is none of those who would answer: it is new, or not to tell */
    HF_SILENT,           /* it is connected, should have answered, and did not: stopped or hung */
    HF_GONE              /* not connected: what it holds ends with its lease */
} hf_presence;

/* How long something took. Does not grow: it is a part of others. */
typedef struct hf_times {
    uint64_t count;
    uint64_t sum_us;
    uint64_t max_us;
    /* [i]: how many took at least 2^(i-1) and less than 2^i microseconds */
    uint64_t buckets[32];
} hf_times;

/* What a client has counted under one name (`timed_names`). */
typedef struct hf_fleet_times {
    const char *name; /* followed by a NUL */
    size_t name_len;
    uint64_t begun;                 /* another whenever the client has begun to count it anew */
    hf_times wait, hold, hand_over; /* as in hf_stats; semaphores are not held */
} hf_fleet_times;

/* A client, as it describes itself or its connection. Texts are "" where nothing is known. */
typedef struct hf_fleet_client {
    const char *id; /* its uuid */
    const char *host;
    int64_t pid;
    const char *program;
    const char *version;
    const char *under; /* the owner for whom its process was started (HOLDFAST_OWNER) */
    hf_presence presence;
    int64_t up_ms;
    int64_t left_out; /* so many holds and waits did not fit into its answer */
    /* of its hf_stats; 0 if it has not answered, or was not asked for them (HF_WANT_NUMBERS) */
    uint64_t acquired, contended, timed_out, losses, renew_failures;
    uint64_t released, renewals;
    hf_times wait, hold, hand_over; /* all 0 if it is too old to tell */
    /* By name, if that was wanted (HF_WANT_TIMES): names that somebody holds or not, in no order. */
    size_t names_len;
    const hf_fleet_times *const *names;
    int64_t names_left_out; /* so many more did not fit into its answer */
} hf_fleet_client;

#define HF_SEEN_BY_SERVER 0x1u
#define HF_SEEN_BY_CLIENT 0x2u

/* An owner that holds a lock or waits for it. */
typedef struct hf_fleet_party {
    const char *owner;             /* "uuid:number"; in Redis, of a permit: its id */
    const hf_fleet_client *client; /* its own, or who has adopted the hold; NULL: not known */
    hf_presence presence;
    unsigned seen_by;   /* HF_SEEN_BY_... */
    const char *kind;   /* how it holds or wants it: "plain", "fair", "read", "cohort", ... */
    int64_t count;      /* how often it holds the lock; 0: it waits */
    int64_t for_ms;     /* how long it has held it, or waited */
    int64_t left_ms;    /* how long the hold can be trusted, or the wait goes on */
    bool renewed;       /* a hold that its client renews */
    int64_t place;      /* of those in line (fair locks) 1 is the first; 0: there is no line */
    const char *thread; /* the name of the thread that called, if it has one of its own; else "" */
} hf_fleet_party;

typedef struct hf_fleet_lock {
    const char *name; /* followed by a NUL */
    size_t name_len;
    const char *kind;
    int64_t ttl_ms; /* until nobody holds it, as the server says; -2: the server does not have it */
    int64_t
        listeners; /* how many processes wait for it at the server, Java's included, as far as it is told; else -1 */
    bool disputed;    /* server and clients do not agree on who holds it */
    int64_t left_out; /* so many more hold it or wait in line; of a group: values */
    size_t holders_len;
    const hf_fleet_party *const *holders;
    size_t waiters_len;
    const hf_fleet_party *const *waiters;
    int64_t available; /* of permits: so many are free; -1: not known, or these are none */
} hf_fleet_lock;

#define HF_MISSING_ANSWERS 0x1u /* the clients could not be asked */
#define HF_MISSING_CONNECTIONS                                                                     \
    0x2u                      /* nobody knows who is connected, so nobody is known to be gone */
#define HF_MISSING_LOCKS 0x4u /* there were more, or no time for all */

typedef struct hf_fleet {
    int64_t taken_ms; /* on a clock of this machine, for comparing two of them */
    int64_t took_ms;
    unsigned missing;  /* HF_MISSING_... */
    const char *words; /* what is missing, for people; "": nothing is */
    size_t locks_len;  /* by name */
    const hf_fleet_lock *const *locks;
    size_t clients_len; /* by id */
    const hf_fleet_client *const *clients;
} hf_fleet;

#define HF_WANT_HOLDS 0x1u   /* what they hold, and since when */
#define HF_WANT_WAITS 0x2u   /* what they wait for */
#define HF_WANT_NUMBERS 0x4u /* of their hf_stats */
#define HF_WANT_TIMES 0x8u   /* how long it took, by name */

typedef struct hf_survey_options {
    size_t size; /* sizeof(hf_survey_options): set by HF_SURVEY_INIT */
    const char
        *pattern; /* of names, as for Redis's KEYS: * ? [a-c] [^a]; up to 256 bytes. NULL: all */
    int64_t limit_ms; /* what was not found by then is missing; 1 ms to one hour */
    /* HF_WANT_...: what clients are asked for; 0: only who is there. Who wants less is answered sooner. What
     * the server says is told in any case. */
    unsigned wanted;
} hf_survey_options;

#define HF_SURVEY_DEFAULTS(X)                                                                      \
    X(limit_ms, 10000)                                                                             \
    X(wanted, HF_WANT_HOLDS | HF_WANT_WAITS | HF_WANT_NUMBERS)
#define HF_SURVEY_INIT HF_INIT(hf_survey_options, HF_SURVEY_DEFAULTS)

/* Takes a survey. NULL `options` means the defaults. Names are those under the client's `name_prefix`, without it. Semaphores and
 * latches are numbers at the server, like many others, and belong to nobody: they are in it only as far as clients tell that they wait for
 * them. Permits are in it as long as somebody has one; whose it is only its client can tell.
 * Blocks:  as long as it takes: some 0.1 s, or 0.5 s if somebody is silent; up to `limit_ms`.
 * In ZooKeeper everybody who waits is in line at the server, Java's clients too, and so nobody is asked: clients are HF_CONNECTED
 * as long as their session is, holders are there since they came into line, permits are told, and what no session has is HF_GONE, and
 * stays. Owners of others are "session 0x... address": their threads cannot be told apart. Nothing that is `wanted` of clients but their
 * holds and waits is told there.
 * Errors:  those of every exchange. */
HF_API int hf_survey(hf_client *client, const hf_survey_options *options, hf_fleet **ret_fleet);
/* The same as an operation; *ret_fleet is written before the callback runs or hf_op_wait() returns HF_OK. */
HF_API int hf_survey_start(hf_client *client, const hf_survey_options *options,
                           hf_fleet **ret_fleet, hf_callback callback, void *user, hf_op **ret_op);
HF_API void hf_fleet_free(hf_fleet *fleet);

/* Who waits for each other in a circle: `waiter` wants `lock`, which `holder` has, who is the next waiter, or for whose
 * process the next waiter works (`under`). */
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

/* Finds deadlocks in the later of two surveys, of which it points to parts: circles that both show, whose waits have lasted for
 * twice the time between them and do not end by themselves within as much. Nothing is ever broken by itself.
 * Blocks:  no.   Errors: HF_EINVAL, HF_ENOMEM. */
HF_API int hf_fleet_deadlocks(const hf_fleet *earlier, const hf_fleet *later,
                              hf_deadlocks **ret_deadlocks);
HF_API void hf_deadlocks_free(hf_deadlocks *deadlocks);

/* ---- Statistics ------------------------------------------------------------------------------ */

typedef struct hf_stats {
    size_t size;              /* sizeof(hf_stats): set by HF_STATS_INIT */
    uint64_t acquired;        /* acquires that succeeded, nested ones included */
    uint64_t contended;       /* of these, how many had to wait for another */
    uint64_t timed_out;       /* HF_EBUSY and HF_ETIMEDOUT */
    uint64_t cancelled;       /* HF_ECANCELED */
    uint64_t released;        /* releases that succeeded */
    uint64_t renewals;        /* hold renewals confirmed by the server */
    uint64_t renew_failures;  /* renewals that failed or were not answered in time */
    uint64_t losses;          /* holds lost */
    uint64_t unknowns;        /* commands whose outcome had to be settled later */
    uint64_t notify_failures; /* releases that could not wake anybody: the user may not publish */
    uint64_t reconnects;      /* connections that were lost and made again */
    uint64_t commands;        /* commands sent */
    uint64_t holds;           /* holds right now */
    hf_times wait;            /* from call to acquired */
    hf_times hold;            /* from acquired to fully released */
    uint64_t switches;        /* how often another server took over as the primary */
    uint64_t redirects;       /* commands that a server of a cluster sent elsewhere */
    uint64_t ack_failures; /* acquires and renewals that fewer replicas confirmed than asked for */
    uint64_t waits; /* calls that wait right now, or ask for what they will be given at once */
    uint64_t oldest_wait_ms; /* of these, how long the first has waited */
    /* acquires that were told while they waited that it is their turn, or may be: from then to acquired.
     * Not counted where nothing is told, or more than one server has to: kinds that spin, quorums. */
    hf_times hand_over;
} hf_stats;

#define HF_STATS_INIT HF_INIT(hf_stats, HF_NO_DEFAULTS)

/* What this client has done since it was opened. Each number is exact, but they are not read at one
 * instant.
 * Blocks:  no.   Errors: HF_EINVAL, HF_ECLOSED, HF_EFORKED. */
HF_API int hf_client_stats(hf_client *client, hf_stats *ret_stats);

/* The same as a text in the format of OpenMetrics, for Prometheus and its like: holdfast_client_..., with "# EOF" at
 * its end. What is known by name (`timed_names`) is in holdfast_client_lock_..., with the label `lock`, and `lock_hex` if
 * that is no text; there are no other labels but for holdfast_client_info, so a program that shows several clients adds its own.
 * Owns:    *ret_text, written on HF_OK only, is the caller's: hf_text_free().
 * Blocks:  no.   Errors: those of hf_client_stats(); HF_ENOMEM. */
HF_API int hf_client_metrics(hf_client *client, char **ret_text);
HF_API void hf_text_free(char *text); /* NULL is fine */

#ifdef __cplusplus
}

#define HF_INIT_FUNCTION(type, defaults)                                                           \
    static inline type type##_init(void) {                                                         \
        type made = {};                                                                            \
        made.size = sizeof made;                                                                   \
        defaults(HF_INIT_FIELD) return made;                                                       \
    }
HF_INIT_FUNCTION(hf_options, HF_OPTIONS_DEFAULTS)
HF_INIT_FUNCTION(hf_lock_options, HF_LOCK_DEFAULTS)
HF_INIT_FUNCTION(hf_acquire_options, HF_ACQUIRE_DEFAULTS)
HF_INIT_FUNCTION(hf_result, HF_NO_DEFAULTS)
HF_INIT_FUNCTION(hf_wait_options, HF_WAIT_DEFAULTS)
HF_INIT_FUNCTION(hf_permits_options, HF_PERMITS_DEFAULTS)
HF_INIT_FUNCTION(hf_stats, HF_NO_DEFAULTS)
HF_INIT_FUNCTION(hf_survey_options, HF_SURVEY_DEFAULTS)
#undef HF_INIT_FUNCTION
#endif
#endif
