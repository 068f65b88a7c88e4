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
 *   lock     a cheap handle on a named lock. Many handles, also of one client, may name the same lock.
 *   owner    who holds: the client's uuid and a number. By default each thread has its own number; it
 *            is never used again after the thread's end. A caller may pass its own number instead.
 *   hold     one owner's possession of one lock, with a count: acquire nests, release un-nests.
 *   lease    how long the server keeps the lock without hearing from us. Either fixed, or the
 *            watchdog's: renewed every third of it until the hold ends.
 *   lost     a hold that ended without our release: it expired, was deleted or was broken.
 *
 * Rules for every function
 *   - Result: HF_OK (0) or a negative HF_E... code; hf_last_error() has the details for this thread.
 *     Outputs (`ret_...`) are written on success only, unless a function says otherwise. One that is a
 *     `bool *` may be NULL; any other only where its function says so.
 *   - Errors of every exchange, which a call that speaks to the server may return beside its own:
 *     HF_EUNREACH, HF_EREFUSED, HF_EOOM, HF_EPERM, HF_ETLS, HF_EPROTO, HF_ENOTSUP (the server is too
 *     old), HF_EINVAL (an argument is wrong, or the server has no such database), HF_ECLOSED,
 *     HF_EFORKED, HF_EDEADLK (inside a callback), HF_ENOMEM, HF_ESYS.
 *   - Threads: any thread may call any function on any handle, but for the notes on callbacks below;
 *     none from a signal handler. Freeing a handle while another thread still uses it is the caller's
 *     bug. What frees takes NULL.
 *   - Times: int64_t milliseconds, named `_ms`. A wait of HF_FOREVER (-1) never gives up, 0 is one
 *     attempt. A lease of HF_WATCHDOG (0) is renewed; a negative one is refused.
 *   - Blocking: a function that says nothing of it does not block. None waits for a server longer than
 *     the wait it was given plus one exchange (`cmd_timeout_ms`). Waiting for ever still ends with
 *     HF_EUNREACH when no server has answered for `connect_timeout_ms`.
 *   - Callbacks run on the client's dispatch thread, or inside hf_dispatch() with HF_MANUAL_DISPATCH;
 *     never under a lock of ours. Inside one, `_start` functions are welcome; synchronous verbs,
 *     hf_op_wait() and hf_close() return HF_EDEADLK.
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
#define HF_VERSION_MINOR 1
#define HF_VERSION_PATCH 0
#define HF_VERSION_NUM (HF_VERSION_MAJOR * 10000 + HF_VERSION_MINOR * 100 + HF_VERSION_PATCH)

/* The version of the library that is linked, as "0.1.0" and as HF_VERSION_NUM. */
HF_API const char *hf_version(void);
HF_API int hf_version_num(void);

/* ---- Errors ------------------------------------------------------------------------------------ */

/* X(name, number, what it means). HF_ENOQUORUM and HF_ENOREPLICA are reserved: this version does not return them. A
 * server without TLS says nothing at all to one who tries it: that is HF_EUNREACH, and hf_last_error() has the hint. */
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
    X(HF_ENOQUORUM, -13, "too few servers granted the lock")                                       \
    X(HF_ENOREPLICA, -14, "too few replicas confirmed")                                            \
    X(HF_ENOMEM, -15, "out of memory")                                                             \
    X(HF_EPROTO, -16, "the server sent something that is no valid answer")                         \
    X(HF_EINVAL, -17, "invalid argument")                                                          \
    X(HF_ENOTSUP, -18, "not supported here")                                                       \
    X(HF_EREFUSED, -19, "the server cannot take commands now")                                     \
    X(HF_EOOM, -20, "the server is out of memory")                                                 \
    X(HF_ESYS, -21, "the operating system refused")                                                \
    X(HF_ETLS, -22, "TLS failed: a certificate was not accepted, or what answers is not TLS")

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

typedef struct hf_error {
    int code;       /* HF_OK or HF_E... */
    int sys_errno;  /* errno behind it, or 0 */
    char node[108]; /* which server, or "" */
    char text[256]; /* the server's own words, or ours; never a password */
} hf_error;

/* Details of the last call of this thread that failed. Valid until this thread's next call. */
HF_API const hf_error *hf_last_error(void);

/* ---- Client ------------------------------------------------------------------------------------ */

typedef struct hf_client hf_client;

#define HF_FOREVER (-INT64_C(1)) /* a wait that never gives up */
#define HF_WATCHDOG INT64_C(0)   /* a lease that is renewed for as long as it is held */
#define HF_MANUAL_DISPATCH 0x1u  /* callbacks run in hf_dispatch() instead of a thread of ours */
#define HF_TLS_INSECURE 0x2u /* TLS with any certificate: whoever is in between can be the server */
#define HF_TLS_1_2 12        /* for tls_min_version */
#define HF_TLS_1_3 13

typedef enum hf_log_level { HF_LOG_ERROR, HF_LOG_WARN, HF_LOG_INFO, HF_LOG_DEBUG } hf_log_level;
/* May be called on any thread, at any time; must not call back into the library. */
typedef void (*hf_log_fn)(hf_log_level level, const char *message, void *user);

/* All three set, or none. `resize` takes NULL like realloc. Called on any thread. */
typedef struct hf_allocator {
    void *(*allocate)(size_t size, void *user);
    void *(*resize)(void *ptr, size_t size, void *user);
    void (*release)(void *ptr, void *user);
    void *user;
} hf_allocator;

typedef struct hf_options {
    size_t size;                /* sizeof(hf_options): set by HF_OPTIONS_INIT */
    const char *user;           /* overrides the url's; copied, like every string here */
    const char *password;       /* overrides the url's; keeps it off the command line */
    const char *name_prefix;    /* put in front of every name, as a Redisson NameMapper would */
    int64_t cmd_timeout_ms;     /* one exchange with the server, connect and handshake included */
    int64_t connect_timeout_ms; /* give up waiting when no server has answered for this long */
    int64_t watchdog_ms;        /* the lease of watchdog holds; renewed every third of it */
    int64_t max_hold_ms;        /* watchdog holds are not renewed past this age; 0: no limit */
    int64_t ping_ms;            /* how often an idle connection is checked */
    unsigned flags;             /* HF_MANUAL_DISPATCH, HF_TLS_INSECURE */
    hf_log_fn log;              /* NULL: silent */
    void *log_user;
    hf_allocator allocator; /* all zero: malloc */

    /* TLS, for rediss:// and valkeys:// only. Files are PEM, and read by hf_open(). The server's certificate has to
     * lead to a CA that is trusted, and to name the host (or the address) of the url. */
    const char *tls_ca_file;   /* the CAs to trust, with tls_ca_dir; neither: the system's */
    const char *tls_ca_dir;    /* a directory as `openssl rehash` makes it */
    const char *tls_cert_file; /* our own certificate and its chain, for servers that ask for one */
    const char *tls_key_file;  /* its key, not encrypted; NULL: it is in tls_cert_file */
    const char *tls_server_name; /* asked for (SNI) and verified instead of the url's host */
    int tls_min_version;         /* HF_TLS_1_2 (also 0) or HF_TLS_1_3 */

    int64_t fair_wait_ms; /* fair locks shared with Java: its `fairLockWaitTimeout` */
} hf_options;

#define HF_OPTIONS_INIT                                                                            \
    {                                                                                              \
        .size = sizeof(hf_options), .cmd_timeout_ms = 3000, .connect_timeout_ms = 10000,           \
        .watchdog_ms = 30000, .ping_ms = 10000, .fair_wait_ms = 300000                             \
    }

/* Makes a client. Nothing is sent yet: connections open when they are first needed.
 *   url      redis://[user:password@]host[:port][/db][?option=value&...], valkey://..., the same with TLS as
 *            rediss://... or valkeys://..., unix://path,
 *            or local: for a private server of this user on this machine, which needs redis-server or
 *            valkey-server installed. NULL: HOLDFAST_URL, then
 *            REDIS_URL from the environment, else HF_EINVAL. See docs/guide.md for every form.
 *   options  NULL: the defaults above. Options in the url override them.
 * Blocks:  no; with TLS it reads the files.
 * Errors:  HF_EINVAL (hf_last_error() names the bad part, or the file), HF_ENOTSUP, HF_ENOMEM, HF_ESYS. */
HF_API int hf_open(const char *url, const hf_options *options, hf_client **ret_client);

/* Ends a client. Waiting calls return HF_ECLOSED, pending callbacks run with it. Holds are not
 * released, since their work may still go on: their leases run out. Lock handles must not be used
 * afterwards except to free them. NULL is fine.
 * Blocks:  until running callbacks have returned. For the network only if an acquire was just given up, or a release
 *          was not answered: up to `cmd_timeout_ms`, to leave nothing behind that nobody owns. (A name lookup that hangs in
 *          the resolver may outlive the client in a thread of its own; it touches nothing of yours.)
 * Errors:  HF_EDEADLK inside a callback. */
HF_API int hf_close(hf_client *client);

/* One exchange with the server: is it there, does it let us in, is it new enough?
 * Blocks:  up to `cmd_timeout_ms`.   Errors: those of every exchange. */
HF_API int hf_ping(hf_client *client);

/* The client's uuid, 36 characters and a NUL: the first part of its owners' names on the server. Valid until
 * hf_close(). */
HF_API const char *hf_client_id(const hf_client *client);

/* Runs callbacks that are due, on this thread. Returns how many ran (0: the time is over), or an error.
 * Blocks:  until at least one has run, for up to `wait_ms`; and for as long as the callbacks take.
 * Errors:  HF_EINVAL without HF_MANUAL_DISPATCH, HF_EBUSY another thread is in it, HF_EDEADLK inside a callback,
 *          HF_ECLOSED, HF_EFORKED. */
HF_API int hf_dispatch(hf_client *client, int64_t wait_ms);

/* A descriptor that polls readable when hf_dispatch(client, 0) has work; that may be of its own, and run no callback.
 * Owned by the client, closed by hf_close(). -1 without HF_MANUAL_DISPATCH, and in a forked child. */
HF_API int hf_dispatch_fd(hf_client *client);

/* ---- Owners ------------------------------------------------------------------------------------ */

/* 0 is "the default": this thread's number, and for an asynchronous acquire a fresh one. A caller's own
 * numbers are 1 .. 4294967295; larger ones are handed out by the library and are unique in the process. */
typedef uint64_t hf_owner;

/* A number nobody has used yet. */
HF_API hf_owner hf_owner_new(void);

/* This thread's number. 0 when out of memory. */
HF_API hf_owner hf_owner_self(void);

/* ---- Locks ------------------------------------------------------------------------------------- */

typedef struct hf_lock hf_lock;
typedef struct hf_op hf_op;
typedef struct hf_cancel hf_cancel;

/* The first four are one lock on the server: under one name they exclude and wake each other, and an owner's holds through
 * handles of several of these kinds are one hold. So are the two fair ones; and the two sides of a read/write lock belong
 * together. Otherwise one name is for one kind: another is refused with HF_EWRONGTYPE wherever the server can tell. */
typedef enum hf_kind {
    HF_PLAIN, /* reentrant, exclusive, unfair: Redisson's RLock */
    /* the same, but an owner that holds it and acquires again gets HF_EDEADLK at once */
    HF_NONREENTRANT,
    /* as plain, but waits by trying again after 1 to 128 ms: for holds that are very short */
    HF_SPIN,
    /* as plain, and every acquire is given a token for hf_fence_check(): RFencedLock */
    HF_FENCED,
    /* first come, first served, over all processes: a release gives the lock to the first in line. RFairLock */
    HF_FAIR,
    HF_FAIR_NONREENTRANT, /* the same, but an owner that holds it and acquires again gets HF_EDEADLK */
    /* the two sides of a read/write lock: many readers or one writer. A writer may also read, and keeps reading when it
     * stops writing; a reader that wants to write gets HF_EDEADLK at once. Readers are always let in to readers, so
     * under an endless stream of them a writer waits until its wait is over. RReadWriteLock */
    HF_READ,
    HF_WRITE
} hf_kind;

/* Makes a handle; nothing is sent. The name is copied; 1 to 65535 bytes, any bytes (Java can share valid UTF-8 only). The
 * first takes a string and makes a plain lock; the second any kind, and also names with NUL bytes in them.
 * Errors:  HF_EINVAL, HF_ENOTSUP there is no such kind, HF_ECLOSED, HF_EFORKED, HF_ENOMEM. */
HF_API int hf_lock_new(hf_client *client, const char *name, hf_lock **ret_lock);
HF_API int hf_lock_new_kind(hf_client *client, hf_kind kind, const void *name, size_t name_len,
                            hf_lock **ret_lock);

/* Frees a handle, not a hold: what it acquired stays held by its owner, and can be released through
 * another handle. Its loss callback does not run any more once this returns (inside a callback:
 * the running one ends). NULL is fine.
 * Blocks:  until that callback has returned, if it is running; not inside a callback. */
HF_API void hf_lock_free(hf_lock *lock);

/* The name as given, with a NUL behind it, and its length (`ret_len` may be NULL). Valid as long as the handle. */
HF_API const char *hf_lock_name(const hf_lock *lock, size_t *ret_len);

typedef struct hf_acquire_options {
    size_t size;       /* sizeof(hf_acquire_options): set by HF_ACQUIRE_INIT */
    hf_owner owner;    /* 0: the default */
    int64_t wait_ms;   /* HF_FOREVER, 0 (one attempt), or a limit */
    int64_t lease_ms;  /* HF_WATCHDOG, or a fixed lease: 1 .. HF_LEASE_MAX_MS */
    hf_cancel *cancel; /* lets another thread end the wait; NULL: none */
} hf_acquire_options;

#define HF_LEASE_MAX_MS (INT64_C(1000) * 60 * 60 * 24 * 3660) /* ten years */
#define HF_ACQUIRE_INIT                                                                            \
    { .size = sizeof(hf_acquire_options), .wait_ms = HF_FOREVER, .lease_ms = HF_WATCHDOG }

/* What an operation found out. Fields an operation does not speak of are 0. */
typedef struct hf_result {
    size_t size;          /* sizeof(hf_result): set by HF_RESULT_INIT before a synchronous call */
    int code;             /* HF_OK or HF_E... */
    hf_owner owner;       /* who acquired, released, ... */
    int64_t count;        /* acquire, release: how often the owner holds the lock now */
    int64_t remaining_ms; /* acquire, extend: how long the hold can be trusted, as of now */
    int64_t token;        /* fenced locks: larger than every token before it; else 0 */
    /* queries: the answer (booleans as 0 and 1); break: 1 if one was broken */
    int64_t value;
    hf_error error; /* details when code is not HF_OK */
} hf_result;

#define HF_RESULT_INIT                                                                             \
    { .size = sizeof(hf_result) }

/* Acquires, for ever / once / for up to `wait_ms`, with the watchdog, for this thread. Nests.
 * Blocks:  for the wait, plus one exchange.
 * Errors:  HF_EBUSY one attempt, and another holds it; HF_ETIMEDOUT the wait ran out (nothing is held:
 *          what may still be on its way is undone in the background); HF_ELOST a nested acquire found
 *          the hold gone (it is over, count 0); HF_EWRONGTYPE; HF_EDEADLK in a callback, and where the
 *          owner would wait for itself: it holds this lock already, and the kind is HF_NONREENTRANT or
 *          HF_FAIR_NONREENTRANT; or it reads, and wants to write; and those of every exchange. On every
 *          error the hold is what it was before, except after HF_ELOST. */
HF_API int hf_lock_acquire(hf_lock *lock);
HF_API int hf_lock_try(hf_lock *lock);
HF_API int hf_lock_acquire_for(hf_lock *lock, int64_t wait_ms);

/* The same with every choice. `options` may be NULL: the defaults. `ret` may be NULL; it is also filled when the acquire
 * has failed, but not when it could not begin (HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM, or inside a callback).
 * A hold is renewed from the first acquire that asks for the watchdog until its full release; a fixed
 * lease given to a nested acquire can lengthen the hold, never shorten it.
 * Errors:  also HF_ECANCELED, HF_EINVAL. */
HF_API int hf_lock_acquire_with(hf_lock *lock, const hf_acquire_options *options, hf_result *ret);

/* Gives one acquire back; the last one frees the lock and wakes a waiter.
 * Blocks:  up to `cmd_timeout_ms`.
 * Errors:  HF_ENOTOWNER never held; HF_ELOST the hold had ended before (another may have held the lock:
 *          what it guarded may be damaged); HF_EUNKNOWN no answer came: the hold is over for us, the
 *          release is repeated in the background, at the latest the lease ends it. HF_ENOMEM nothing was
 *          done. Those of every exchange; after one of these the hold is over for us, too, and not
 *          renewed any more. */
HF_API int hf_lock_release(hf_lock *lock);
HF_API int hf_lock_release_as(hf_lock *lock, hf_owner owner);

/* Makes the hold last at least `lease_ms` from now (never shorter than it was).
 * `lease_ms` is 1 to HF_LEASE_MAX_MS.
 * Blocks:  up to `cmd_timeout_ms`.
 * Errors:  HF_ENOTOWNER never held; HF_ELOST it is over; HF_EUNKNOWN no answer came; those of every exchange. */
HF_API int hf_lock_extend(hf_lock *lock, int64_t lease_ms);
HF_API int hf_lock_extend_as(hf_lock *lock, hf_owner owner, int64_t lease_ms);

/* Force: frees the lock whoever holds it. The holder is told as of a loss, if it uses this library.
 * Writes whether there was one to break. Of a read/write lock: the handle's side, all readers or the writer, whose own
 * reads end with it.
 * Blocks:  up to `cmd_timeout_ms`.
 * Errors:  HF_EWRONGTYPE what is there is no lock of this kind; HF_EUNKNOWN no answer came; those of every exchange. */
HF_API int hf_lock_break(hf_lock *lock, bool *ret_broken);

/* Questions to the server. An owner of 0 is this thread.
 * ttl: ms until the lock frees itself; -1 never; -2 nobody holds it. Of a read/write lock it is of both sides; the others are
 * of the handle's side.
 * Blocks:  up to `cmd_timeout_ms`.   Errors: HF_EWRONGTYPE no lock, where the server can tell; those of every exchange. */
HF_API int hf_lock_is_locked(hf_lock *lock, bool *ret_locked);
HF_API int hf_lock_is_mine(hf_lock *lock, bool *ret_mine);
HF_API int hf_lock_is_held_by(hf_lock *lock, hf_owner owner, bool *ret_held);
HF_API int hf_lock_hold_count(hf_lock *lock, hf_owner owner, int64_t *ret_count);
HF_API int hf_lock_ttl_ms(hf_lock *lock, int64_t *ret_ttl_ms);

/* Questions answered from memory, without I/O. An owner of 0 is this thread.
 * remaining: how long this owner's hold can still be trusted; 0: it holds nothing, or lost it. Never negative.
 * token: the latest of a fenced hold.
 * Errors:  of the token: HF_ENOTOWNER without such a hold, HF_ENOTSUP for kinds without tokens, HF_EINVAL. */
HF_API int64_t hf_lock_remaining_ms(hf_lock *lock, hf_owner owner);
HF_API int hf_lock_token(hf_lock *lock, hf_owner owner, int64_t *ret_token);

/* Who is on a lock, as the server sees it. Free with hf_lock_info_free(). */
typedef struct hf_holder {
    char *owner;   /* "uuid:number" of whichever client */
    int64_t count; /* how often it holds the lock */
    /* what its connection says of itself ("host pid program"), or NULL if unknown */
    char *connection;
} hf_holder;
typedef struct hf_lock_info {
    /* "plain", "fair", "read", "write"; "free" when nobody holds it. "fair" can be told from "plain" by its line only, so while
     * nobody waits it is what the handle is. What is no lock: "permits" (of which some are taken), "counter" (a semaphore, a
     * latch, or permits of which none is taken), "other" */
    const char *kind;
    int64_t ttl_ms; /* as hf_lock_ttl_ms() */
    size_t holders_len;
    /* of a read/write lock: readers, and the writer, with ":write" behind its owner, and its write holds counted */
    hf_holder *holders;
    size_t waiters_len; /* fair locks: who waits, first in line first */
    hf_holder *waiters; /* count is 0 */
    const char *type;   /* what the server calls it: "hash", "string", "list", ...; "none" */
} hf_lock_info;
/* Blocks:  up to `cmd_timeout_ms`.   Errors: those of every exchange. What is no lock is no error, but told as the kind. */
HF_API int hf_lock_inspect(hf_lock *lock, hf_lock_info **ret_info);
HF_API void hf_lock_info_free(hf_lock_info *info);

/* ---- Fencing ----------------------------------------------------------------------------------- */

/* What the protected side remembers: the highest token it has seen. Start with HF_FENCE_INIT, or with the number that was
 * stored beside the data. Zero is "none yet". */
typedef struct hf_fence {
    int64_t highest;
} hf_fence;

#define HF_FENCE_INIT                                                                              \
    { 0 }

/* Lets a writer pass if nobody with a larger token has come before, and remembers its token; equal is the same holder
 * again. It decides nothing about what comes after it: check and write must be one step, under whatever guards the data
 * (see docs/fencing.md, also for the same in Redis itself).
 * Threads: any, also with one fence; atomic.   Blocks: no; needs no client.
 * Errors:  HF_ELOST stale: a later holder has been here; HF_EINVAL no token, or no fence. */
HF_API int hf_fence_check(hf_fence *fence, int64_t token);

/* ---- Loss -------------------------------------------------------------------------------------- */

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

/* Tells of trouble with any hold of this client on this name (of a read/write lock: on the handle's side of it),
 * acquired through whichever handle. Replaces the former callback; NULL ends it. Independent of the callback, the next
 * call on a lost hold returns HF_ELOST once, and hf_client_stats() counts it.
 * Blocks:  with NULL until the former callback has returned, if it is running (not inside a callback); a new one may be
 *          set while the former still runs.
 * Errors:  HF_EINVAL, HF_ESYS no thread for callbacks, HF_ECLOSED, HF_EFORKED. */
HF_API int hf_lock_on_lost(hf_lock *lock, hf_event_fn callback, void *user);

/* A descriptor that becomes readable when a hold on this name is lost, and stays so until read (8 bytes, as an eventfd). A
 * warning, or a thread that has ended, does not make it readable. Owned by the handle, and closed with it.
 * Errors:  negative: HF_EINVAL, HF_ESYS no descriptor, HF_ECLOSED, HF_EFORKED. */
HF_API int hf_lock_lost_fd(hf_lock *lock);

/* ---- Asynchronous ------------------------------------------------------------------------------ */

/* Runs exactly once for each start that returned HF_OK; never if the start failed. `op` is the one the start
 * returned (set before this can run), or NULL if the caller did not ask for it. */
typedef void (*hf_callback)(hf_op *op, const hf_result *result, void *user);

/* Start an operation and return at once; also inside a callback. `options` may be NULL: the defaults. `callback` may be
 * NULL; `ret_op` may be NULL (then it cannot be cancelled). An op from `ret_op` is freed by the caller with hf_op_free(), at any
 * time: in the callback, before that, or after hf_close(), which completes it.
 * Errors:  HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM, HF_ESYS no thread for callbacks; the rest comes in the result. */
HF_API int hf_lock_acquire_start(hf_lock *lock, const hf_acquire_options *options,
                                 hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_lock_release_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                                 hf_op **ret_op);
HF_API int hf_lock_extend_start(hf_lock *lock, hf_owner owner, int64_t lease_ms,
                                hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_lock_break_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_lock_is_locked_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_lock_is_held_by_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                                    hf_op **ret_op);
HF_API int hf_lock_hold_count_start(hf_lock *lock, hf_owner owner, hf_callback callback, void *user,
                                    hf_op **ret_op);
HF_API int hf_lock_ttl_ms_start(hf_lock *lock, hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_ping_start(hf_client *client, hf_callback callback, void *user, hf_op **ret_op);

/* Asks an operation to end. It still completes exactly once: with HF_ECANCELED, or with what had already
 * happened. A cancelled acquire leaves nothing behind. Operations that need no waiting are not undone. Not after hf_close().
 * NULL is fine. */
HF_API void hf_op_cancel(hf_op *op);

/* Waits until the operation is complete (its callback may still be running), for up to `wait_ms`.
 * Returns its result code, and fills `ret` if it is not NULL. With HF_MANUAL_DISPATCH somebody must be calling
 * hf_dispatch().
 * HF_EBUSY: not complete yet. That is also the result of an attempt that found the lock taken; to tell, set `ret->code` to 1
 * before: `ret` is written only when the operation is complete.
 * Blocks:  for up to `wait_ms`.   Errors of its own: HF_EINVAL, HF_EFORKED, HF_EDEADLK inside a callback. */
HF_API int hf_op_wait(hf_op *op, int64_t wait_ms, hf_result *ret);

/* Gives the handle back; the operation itself goes on, and its callback still runs. NULL is fine. */
HF_API void hf_op_free(hf_op *op);

/* A switch that ends waits from another thread (not from a signal handler): those of synchronous calls, and of operations
 * that were started with it. Fired, it stays fired until reset: waits that start with it end at once. Firing does not wait
 * for anything. It belongs to no client; one may serve many waits.
 * Errors:  of hf_cancel_new(): HF_ENOMEM, HF_EINVAL. The others take NULL. */
HF_API int hf_cancel_new(hf_cancel **ret_cancel);
HF_API void hf_cancel_fire(hf_cancel *cancel);
HF_API void hf_cancel_reset(hf_cancel *cancel);
HF_API void hf_cancel_free(hf_cancel *cancel); /* not while a wait or an operation uses it */

/* ---- Waiting for other things than locks ------------------------------------------------------- */

typedef struct hf_wait_options {
    size_t size;       /* sizeof(hf_wait_options): set by HF_WAIT_INIT */
    int64_t wait_ms;   /* HF_FOREVER, 0 (one attempt), or a limit */
    hf_cancel *cancel; /* lets another thread end the wait; NULL: none */
} hf_wait_options;

#define HF_WAIT_INIT                                                                               \
    { .size = sizeof(hf_wait_options), .wait_ms = HF_FOREVER }

#define HF_PERMITS_MAX INT64_C(2147483647) /* what Java can count */

/* ---- Semaphores -------------------------------------------------------------------------------- */

/* A number of permits under a name; nobody's in particular: Redisson's RSemaphore. A process that dies with permits keeps
 * them for ever. If that matters, use hf_permits. The handle is cheap, like a lock's. */
typedef struct hf_sem hf_sem;

/* Makes and frees a handle; nothing is sent. Names are as for hf_lock_new_kind().
 * Errors:  HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM. */
HF_API int hf_sem_new(hf_client *client, const void *name, size_t name_len, hf_sem **ret_sem);
HF_API void hf_sem_free(hf_sem *sem);

/* Sets the number of permits if the semaphore does not exist yet, to expire after `ttl_ms` (0: never). Writes whether it
 * was set. `permits` is 0 to HF_PERMITS_MAX.
 * Blocks, as all below unless they say otherwise: up to `cmd_timeout_ms`.
 * Errors, as all below: HF_EUNKNOWN no answer came, and it may or may not have been done; HF_EWRONGTYPE the name is no
 * semaphore; HF_EINVAL; and those of every exchange with the server. */
HF_API int hf_sem_set(hf_sem *sem, int64_t permits, int64_t ttl_ms, bool *ret_set);

/* Takes `permits` (0 to HF_PERMITS_MAX) at once, or waits until there are so many: for ever / once / for up to `wait_ms`. 0
 * permits: HF_OK, and nothing is sent. `options` may be NULL: the defaults.
 * Blocks:  for the wait, plus one exchange.
 * Errors:  HF_EBUSY one attempt, and there were too few; HF_ETIMEDOUT, HF_ECANCELED nothing was taken (or what was taken is
 *          given back in the background); HF_EUNKNOWN as above. */
HF_API int hf_sem_acquire(hf_sem *sem, int64_t permits);
HF_API int hf_sem_try(hf_sem *sem, int64_t permits);
HF_API int hf_sem_acquire_for(hf_sem *sem, int64_t permits, int64_t wait_ms);
HF_API int hf_sem_acquire_with(hf_sem *sem, int64_t permits, const hf_wait_options *options);

/* Puts permits back (0 to HF_PERMITS_MAX in one call; 0: HF_OK, and nothing is sent), and makes the semaphore if it does not
 * exist (any more); the second only if it does, and writes whether it did. Nobody knows how many were taken, so the number
 * may become larger than it was ever set to, and also than HF_PERMITS_MAX, which Java cannot count any more. */
HF_API int hf_sem_release(hf_sem *sem, int64_t permits);
HF_API int hf_sem_release_if_exists(hf_sem *sem, int64_t permits, bool *ret_released);

/* Changes the number of permits by `delta`, which may be negative; so may the number then. Its TTL stays. `delta` is
 * -HF_PERMITS_MAX to HF_PERMITS_MAX; the number itself is not limited. */
HF_API int hf_sem_add(hf_sem *sem, int64_t delta);
/* Takes all there are, and writes how many that was. */
HF_API int hf_sem_drain(hf_sem *sem, int64_t *ret_permits);
HF_API int hf_sem_available(hf_sem *sem, int64_t *ret_permits); /* 0 if it does not exist */
/* Forgets the number. Those who wait go on waiting, for a semaphore that is set or released to anew. */
HF_API int hf_sem_delete(hf_sem *sem, bool *ret_deleted);

/* The same as operations; see hf_lock_acquire_start(). The number, or whether it was done, is in the result's `value`. */
HF_API int hf_sem_set_start(hf_sem *sem, int64_t permits, int64_t ttl_ms, hf_callback callback,
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

/* ---- Permits with leases ----------------------------------------------------------------------- */

/* A semaphore whose every permit has an id and a lease, so that those of a process that died come back by themselves:
 * Redisson's RPermitExpirableSemaphore. Whoever knows an id may release or extend it. */
typedef struct hf_permits hf_permits;

/* 16 random bytes as 32 lower-case hexadecimal digits, and a NUL. */
typedef struct hf_permit_id {
    char text[33];
} hf_permit_id;

#define HF_NO_LEASE (-INT64_C(1)) /* a permit that never expires, as Redisson's acquire() gives */

typedef struct hf_permits_options {
    size_t size;       /* sizeof(hf_permits_options): set by HF_PERMITS_INIT */
    int64_t count;     /* how many at once, all or none: 1 to 1000 */
    int64_t wait_ms;   /* HF_FOREVER, 0 (one attempt), or a limit */
    int64_t lease_ms;  /* HF_WATCHDOG: renewed until released; a fixed one; HF_NO_LEASE */
    hf_cancel *cancel; /* lets another thread end the wait; NULL: none */
} hf_permits_options;

#define HF_PERMITS_INIT                                                                            \
    {                                                                                              \
        .size = sizeof(hf_permits_options), .count = 1, .wait_ms = HF_FOREVER,                     \
        .lease_ms = HF_WATCHDOG                                                                    \
    }

/* Makes and frees a handle; nothing is sent. Names are as for hf_lock_new_kind(). Permits that were acquired stay acquired
 * (and renewed) without it; its loss callback does not run any more.
 * Blocks:  free: until that callback has returned, if it is running; not inside a callback.
 * Errors:  HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM. */
HF_API int hf_permits_new(hf_client *client, const void *name, size_t name_len,
                          hf_permits **ret_permits);
HF_API void hf_permits_free(hf_permits *permits);

/* The number of permits, taken ones included: set it if the object does not exist yet (writes whether it was set); set it in
 * any case; change it. What is available becomes negative if more are taken. A TTL of the object stays. `number` is 0 to
 * HF_PERMITS_MAX, `delta` -HF_PERMITS_MAX to HF_PERMITS_MAX.
 * Blocks and errors, as all below: see hf_sem_set(). */
HF_API int hf_permits_try_set(hf_permits *permits, int64_t number, bool *ret_set);
HF_API int hf_permits_set(hf_permits *permits, int64_t number);
HF_API int hf_permits_add(hf_permits *permits, int64_t delta);

/* Takes permits, all or none, and writes their ids to `ret_ids`, which has room for `count`. The short forms take one, with
 * the watchdog: for ever / once / for up to `wait_ms`. `options` may be NULL: the defaults.
 * Blocks:  for the wait, plus one exchange.
 * Errors:  HF_EBUSY one attempt, and there were too few; HF_ETIMEDOUT, HF_ECANCELED: nothing is held, as for a lock;
 *          HF_EWRONGTYPE; HF_EINVAL; those of every exchange. */
HF_API int hf_permits_acquire(hf_permits *permits, hf_permit_id *ret_id);
HF_API int hf_permits_try(hf_permits *permits, hf_permit_id *ret_id);
HF_API int hf_permits_acquire_for(hf_permits *permits, int64_t wait_ms, hf_permit_id *ret_id);
HF_API int hf_permits_acquire_with(hf_permits *permits, const hf_permits_options *options,
                                   hf_permit_id *ret_ids);

/* Gives permits back: one; or many, all or none. They are not renewed any more, whatever the outcome.
 * Errors:  HF_ELOST its lease had run out (then it goes back all the same), or it was ours and is gone; HF_ENOTOWNER no such
 *          permit, or (many) one of them has run out, and none was released; HF_EINVAL not an id; HF_EUNKNOWN no answer
 *          came: it is repeated in the background until the lease is over. */
HF_API int hf_permits_release(hf_permits *permits, const hf_permit_id *id);
HF_API int hf_permits_release_many(hf_permits *permits, const hf_permit_id *ids, size_t ids_len);

/* Gives a permit a lease from now (1 ms to HF_LEASE_MAX_MS, also a shorter one, also HF_NO_LEASE), which is not renewed any
 * more; asks the server how much is left of it: -1 without an end.
 * Errors:  HF_ENOTOWNER no such permit, or it has run out. */
HF_API int hf_permits_extend(hf_permits *permits, const hf_permit_id *id, int64_t lease_ms);
HF_API int hf_permits_lease_ms(hf_permits *permits, const hf_permit_id *id, int64_t *ret_lease_ms);

/* How long a permit of this client can still be trusted, from memory and without I/O; 0: it holds no such permit, or lost it.
 * Permits without a lease are not remembered, since anybody may release them: 0 for them, too; ask hf_permits_lease_ms(). */
HF_API int64_t hf_permits_remaining_ms(hf_permits *permits, const hf_permit_id *id);

/* How many are free, how many there are, how many are taken. 0 if the object does not exist. */
HF_API int hf_permits_available(hf_permits *permits, int64_t *ret_number);
HF_API int hf_permits_total(hf_permits *permits, int64_t *ret_number);
HF_API int hf_permits_taken(hf_permits *permits, int64_t *ret_number);

/* Lets the whole object expire, after 1 ms to HF_LEASE_MAX_MS; deletes it. Write whether it existed. Permits that are taken
 * end with it, and are lost. Those who wait go on waiting, for an object that is set anew. */
HF_API int hf_permits_expire(hf_permits *permits, int64_t ttl_ms, bool *ret_existed);
HF_API int hf_permits_delete(hf_permits *permits, bool *ret_deleted);

/* Tells of a permit of this client on this name that was lost, or whose renewal is failing; a fixed lease that runs out is a
 * loss, too. Of permits without a lease nothing is told. The event's owner is 0. Replaces the former callback;
 * NULL ends it. `id` is text with a NUL behind it, valid during the call. Blocks and errors: see hf_lock_on_lost(). */
typedef void (*hf_permit_event_fn)(hf_permits *permits, const char *id, const hf_event *event,
                                   void *user);
HF_API int hf_permits_on_lost(hf_permits *permits, hf_permit_event_fn callback, void *user);

/* The same as operations; see hf_lock_acquire_start(). `ret_ids` is written before the callback runs, if the acquire
 * succeeded, and must live until then. Ids that are given are copied. Numbers, or whether it was done, are in the result's
 * `value`. */
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

/* ---- Count-down latch -------------------------------------------------------------------------- */

/* A number that is counted down to zero, and those who wait for that: Redisson's RCountDownLatch. A latch that does not exist
 * is open. */
typedef struct hf_latch hf_latch;

/* Makes and frees a handle; nothing is sent. Names are as for hf_lock_new_kind().
 * Errors:  HF_EINVAL, HF_ECLOSED, HF_EFORKED, HF_ENOMEM. */
HF_API int hf_latch_new(hf_client *client, const void *name, size_t name_len, hf_latch **ret_latch);
HF_API void hf_latch_free(hf_latch *latch);

/* Closes the latch with a count of 1 to 2^53 - 1, if it is open. Writes whether it was.
 * Blocks and errors, as all below: see hf_sem_set(). */
HF_API int hf_latch_set(hf_latch *latch, int64_t count, bool *ret_set);

/* Counts down by one; at zero all who wait return. An open latch stays open. */
HF_API int hf_latch_count_down(hf_latch *latch);

/* Waits until the latch is open or was deleted: for ever / for up to `wait_ms`. One that was closed anew meanwhile has been
 * open, and the wait is over. `options` may be NULL: the defaults.
 * Blocks:  for the wait, plus one exchange.
 * Errors:  HF_EBUSY one attempt, and it is closed; HF_ETIMEDOUT, HF_ECANCELED; HF_EWRONGTYPE; those of every exchange. */
HF_API int hf_latch_await(hf_latch *latch);
HF_API int hf_latch_await_for(hf_latch *latch, int64_t wait_ms);
HF_API int hf_latch_await_with(hf_latch *latch, const hf_wait_options *options);

HF_API int hf_latch_count(hf_latch *latch, int64_t *ret_count); /* 0: open */
HF_API int hf_latch_delete(hf_latch *latch, bool *ret_deleted); /* those who wait return */

/* The same as operations; see hf_lock_acquire_start(). The number, or whether it was done, is in the result's `value`. */
HF_API int hf_latch_set_start(hf_latch *latch, int64_t count, hf_callback callback, void *user,
                              hf_op **ret_op);
HF_API int hf_latch_count_down_start(hf_latch *latch, hf_callback callback, void *user,
                                     hf_op **ret_op);
HF_API int hf_latch_await_start(hf_latch *latch, const hf_wait_options *options,
                                hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_latch_count_start(hf_latch *latch, hf_callback callback, void *user, hf_op **ret_op);
HF_API int hf_latch_delete_start(hf_latch *latch, hf_callback callback, void *user, hf_op **ret_op);

/* ---- Statistics -------------------------------------------------------------------------------- */

typedef struct hf_times {
    uint64_t count;
    uint64_t sum_us;
    uint64_t max_us;
    /* [i]: how many took less than 2^i microseconds and not less than 2^(i-1) */
    uint64_t buckets[32];
} hf_times;

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
} hf_stats;

#define HF_STATS_INIT                                                                              \
    { .size = sizeof(hf_stats) }

/* What this client has done since it was opened. Each number is exact, but they are read one after the other.
 * Blocks:  no.   Errors: HF_EINVAL, HF_ECLOSED, HF_EFORKED. */
HF_API int hf_client_stats(hf_client *client, hf_stats *ret_stats);

#ifdef __cplusplus
}

/* `hf_options options = HF_OPTIONS_INIT;` in C++ too, which before C++20 cannot name the fields. */
static inline hf_options hf_options_init(void) {
    hf_options options = {};
    options.size = sizeof options;
    options.cmd_timeout_ms = 3000;
    options.connect_timeout_ms = 10000;
    options.watchdog_ms = 30000;
    options.ping_ms = 10000;
    options.fair_wait_ms = 300000;
    return options;
}
static inline hf_acquire_options hf_acquire_init(void) {
    hf_acquire_options options = {};
    options.size = sizeof options;
    options.wait_ms = HF_FOREVER;
    options.lease_ms = HF_WATCHDOG;
    return options;
}
static inline hf_result hf_result_init(void) {
    hf_result result = {};
    result.size = sizeof result;
    return result;
}
static inline hf_wait_options hf_wait_init(void) {
    hf_wait_options options = {};
    options.size = sizeof options;
    options.wait_ms = HF_FOREVER;
    return options;
}
static inline hf_permits_options hf_permits_init(void) {
    hf_permits_options options = {};
    options.size = sizeof options;
    options.count = 1;
    options.wait_ms = HF_FOREVER;
    options.lease_ms = HF_WATCHDOG;
    return options;
}
static inline hf_stats hf_stats_init(void) {
    hf_stats stats = {};
    stats.size = sizeof stats;
    return stats;
}
#undef HF_OPTIONS_INIT
#undef HF_ACQUIRE_INIT
#undef HF_RESULT_INIT
#undef HF_WAIT_INIT
#undef HF_PERMITS_INIT
#undef HF_STATS_INIT
#define HF_OPTIONS_INIT hf_options_init()
#define HF_ACQUIRE_INIT hf_acquire_init()
#define HF_RESULT_INIT hf_result_init()
#define HF_WAIT_INIT hf_wait_init()
#define HF_PERMITS_INIT hf_permits_init()
#define HF_STATS_INIT hf_stats_init()
#endif
#endif
