/*
 * The interface between src/core, which implements what is common to all locks, and an engine,
 * which implements it on one kind of server (src/redis, src/zk).
 *
 * An engine offers synchronizers, not key-value operations: acquire, release, renew, break,
 * queries. Every operation is asynchronous and runs as part of a task. The core fills in a `struct
 * hfi_call` and passes it to one of the operations below, on the task's executor. It forwards the
 * task's engine events to `step`. The engine calls `done` exactly once, on that executor, possibly
 * before the operation has returned. The core knows nothing of keys, scripts or replies; the engine
 * knows nothing of handles or callbacks.
 *
 * The engine says how long a hold is proved: with each grant, extension and renewal (struct
 * hfi_proof), and by unsolicited events (struct hfi_engine_events). The core decides whether a hold
 * lasts.
 *
 * kind.h     what an engine offers, as const tables
 * renewal.h  renewals and proofs
 * observe.h  the fleet view's door: inspect, server info, surveys, name listeners, reports
 * config.h   what an engine is made from
 */
#ifndef HFI_ENGINE_ENGINE_H
#define HFI_ENGINE_ENGINE_H

#include "base/backoff.h"
#include "engine/kind.h"
#include "engine/renewal.h"
#include "task/task.h"

#include <holdfast/holdfast.h>

/* Task events from this bit on belong to the engine. */
#define HFI_ENGINE_EVENT_SHIFT 8
#define HFI_ENGINE_EVENTS (~0u << HFI_ENGINE_EVENT_SHIFT)

struct hfi_engine;
struct hfi_findings;
struct hfi_observe_ops;
struct hfi_parked;
struct hfi_parts;
struct hfi_reporter;
struct hfi_share;
struct pollfd;

/* Which thread drives the connection that a call uses. */
enum hfi_lane {
    HFI_LANE_CALLER,  /* the calling thread: a synchronous verb */
    HFI_LANE_KEEPER,  /* the keeper: background work and asynchronous operations */
    HFI_LANE_DISPATCH /* the thread inside hf_dispatch() */
};

#define HFI_TOKEN_DRAW (-1)

enum hfi_query { HFI_QUERY_LOCKED, HFI_QUERY_COUNT, HFI_QUERY_TTL, HFI_QUERY_PING };

/* Progress of a running call, visible to other threads. The engine writes it on the call's
 * executor. The core reads it without a lock, so each field is right by itself, but not together
 * with the others. */
struct hfi_call_status {
    /* next activity of the call, at most 10 s after it was set; later than this its thread is
     * stuck */
    _Atomic int64_t due_ms;
    /* since when the server has not answered the command, or has refused it; 0: no problem */
    _Atomic int64_t stalled_since_ms;
    atomic_int stalled; /* HF_EUNREACH or HF_EUNAVAILABLE */
    /* In: the engine calls it now and then, on the call's thread, with the reason of the stall.
     * NULL: not wanted. */
    void (*on_stall)(struct hfi_call_status *call_status, const hf_error *reason);
};

/* Whether other clients wait for the lock that was released. */
enum hfi_others {
    HFI_OTHERS_UNKNOWN,
    HFI_OTHERS_NONE, /* no subscriber was notified, or notified subscribers do not come */
    HFI_OTHERS_FIRST /* some wait; the engine yields to them if this client re-acquires soon */
};

/* One engine operation in progress, embedded in the core's operation. */
struct hfi_call {
    /* In. `name` and `owner` stay valid until `done`. */
    struct hfi_engine *engine;
    struct hfi_task *task;
    enum hfi_lane lane;
    const struct hfi_kind *kind;
    const char *name;
    size_t name_len;
    const char *owner; /* "uuid:number" */
    size_t owner_len;
    /* Kinds that are `stamped`: that of the hold, if there is one; its text belongs to the core.
     * Output of a first acquire, which may begin with a text. */
    struct hfi_stamp stamp;
    int64_t count; /* how many times this owner holds the lock, as far as we know */
    /* acquire, release (for what remains), extend; HF_NO_LEASE for permits and kinds with
     * `takes_no_lease` */
    int64_t lease_ms;
    /* acquire, extend: how many replica acks are required, as in hf_options; 0: none */
    int acks;
    /* extend, of kinds with tokens: the smallest token that the server is to store. HFI_TOKEN_DRAW:
     * the server draws a new one. 0: neither. */
    int64_t token_wish;
    hf_extend_mode extend_mode;   /* set_lease: HF_EXTEND_SET or HF_EXTEND_ADD */
    enum hfi_query query;         /* ask */
    unsigned wanted;              /* a survey: what clients report, HF_WANT_... */
    enum hfi_object_op object_op; /* object_op, and its settlement */
    int64_t amount;               /* objects: how many */
    int64_t ttl_ms;               /* objects: expiry of the whole object; 0: never */
    /* permits: `ids_len` ids of HFI_ID_LEN bytes each; valid until `done` */
    const unsigned char *ids;
    size_t ids_len;
    struct hfi_backoff spin; /* acquire, kinds that spin; all 0: the kind's default */
    struct hfi_parts *parts; /* joint kinds: the locks it is made of; else NULL */
    /* joint kinds: output of an acquire, its stakes in the parts; input of the release */
    struct hfi_share *share;
    int64_t start_ms; /* when the caller entered */
    /* acquire: wait for the lock no longer than this; HFI_NEVER. One attempt: start_ms. Other
     * operations: the end of the exchange. */
    int64_t deadline_ms;
    /* acquire soon after a release by the same client: yield to all remote waiters, not only to
     * some */
    bool yields_to_all;
    /* settle: true after a release from `count`, false after an acquire from `count` */
    bool settle_release;
    /* settle: the owner may also have a residue at the server from before this call */
    bool residue;
    void (*done)(struct hfi_call *call);

    /* Output of a call that ends unsettled, and input of settle: a copy of its command may act
     * until then. */
    int64_t in_doubt_until_ms;

    /* The same for an acquire that must not run twice: its idempotency key at the server. */
    struct {
        uint64_t number; /* 0: none */
        int key_slot;
    } idempotency_key;

    struct hfi_call_status *call_status; /* out, while it runs */

    /* Out, valid in `done`. */
    int err;
    hf_error error;
    int64_t value; /* new count; the answer to a query; 1 if a hold was broken */
    /* of a grant; of an extension with token_wish: the token that the server stores */
    int64_t token;
    struct hfi_proof proof; /* of a grant or extension */
    bool contended;         /* acquire: another owner held it at first */
    /* acquire: when the message came that triggered the last attempt, by hfi_now_us(); 0: no
     * message, or a later attempt was made without one */
    int64_t notified_us;
    int64_t votes, servers; /* of a quorum's grant or extension: votes out of servers */
    int64_t acked;          /* the same with `acks`: how many replicas have confirmed */
    /* acquire: unsettled, because the owner may still be in the server's fair queue */
    bool queued;
    /* acquire: err is set, because the server has not helped since call_status.stalled_since_ms,
     * which is as long as a caller waits for a server */
    bool no_server;
    /* acquire: err is set, because no host name of the url exists; waiting does not help */
    bool hopeless;
    /* err is set, and the command may have run or may still run: call settle() */
    bool unsettled;
    /* err is set, and the command may have run, whatever err is */
    bool may_have_run;
    enum hfi_others others; /* release: of the last count, on success */
    bool gone;              /* release, extend: the hold did not exist (err is HF_ELOST) */
    union {                 /* out of an observation (observe.h): malloc'ed, set on HF_OK */
        hf_lock_info *info;
        hf_server_info *server_info;
        struct hfi_findings *findings;
    };

    void *state; /* the engine's, `call_size` bytes, aligned, zeroed before each operation */
};

/* The operations of a kind. All but `step` and `cancel` may be NULL: not supported. `park`,
 * `resume` and `unpark` go together. */
struct hfi_call_ops {
    size_t call_size;  /* bytes of state that a call needs */
    unsigned observes; /* which observations it offers, HFI_OBSERVES_... (observe.h) */

    /* Waits until held, deadline or cancel. Objects: until `amount` (or `ids`) are taken, or the
     * latch is open. */
    void (*acquire)(struct hfi_call *call);
    void (*release)(struct hfi_call *call); /* from call->count to one less */
    void (*extend)(struct hfi_call *call);  /* raise the lease */
    /* Sets the lease to call->lease_ms, or adds that to it (call->extend_mode). Sent once: if
     * call->may_have_run, a copy can act until the call's deadline. lease_ms becomes the lease. */
    void (*set_lease)(struct hfi_call *call);
    /* The same for a hold that only the server knows; call->count becomes its owner's count.
     * HF_ENOTOWNER: there is no such hold. */
    void (*adopt)(struct hfi_call *call);
    /* break any owner's hold; value 1 if there was one */
    void (*break_holds)(struct hfi_call *call);
    void (*ask)(struct hfi_call *call); /* call->query */
    /* call->object_op. HF_EINDOUBT: it may or may not have been done, or may still be. */
    void (*object_op)(struct hfi_call *call);

    /* After an unsettled acquire from `count`: make sure that the owner holds no more than `count`.
     * After an unsettled release from `count`: make sure that it holds one less. Retries until the
     * server has answered and no copy of an earlier command can act any more, or until
     * `deadline_ms`. Objects: give back what an unsettled acquire has taken, if that can be known;
     * repeat an unsettled object_op. Keeper lane. `state` is as the failed call left it. */
    void (*settle)(struct hfi_call *call);

    /* engine events of the task, already masked */
    void (*step)(struct hfi_call *call, unsigned events);

    /* Asks a running call to finish now: it calls `done` soon, with `err` (unsettled if need be)
     * unless it had finished. `err` is HF_ECANCELED or HF_ECLOSED. On the call's executor. */
    void (*cancel)(struct hfi_call *call, int err);

    /* For an acquire that only sleeps, until an event or *ret_until_ms, with no command in flight.
     * Returns the state needed to resume, as small as possible. The call is over without `done`,
     * and its memory may be freed; the task and its call_status stay. NULL: the call does not only
     * sleep, or out of memory. On the call's executor, as is `resume`. */
    struct hfi_parked *(*park)(struct hfi_call *call, int64_t *ret_until_ms);
    /* Continues with the events received, in a call that has been filled in like the first. */
    void (*resume)(struct hfi_call *call, struct hfi_parked *parked, unsigned events);
    /* The parked call will not be resumed. */
    void (*unpark)(struct hfi_engine *engine, struct hfi_parked *parked);

    /* How a synchronous caller waits: returns when the executor of the call's task, which is the
     * caller's own, has something to run. It may drive a connection until then. The call may have
     * ended, or not begun. NULL: the keeper does all the work, and the caller may borrow its loop
     * meanwhile. */
    void (*drive)(struct hfi_call *call);
};

/* Selects holds: those that match every field given. */
struct hfi_scope {
    const void *node; /* the holds' node; NULL: any */
    const char *name; /* a stem; with `kind` a lock's name: it, and what overlaps it. NULL: any */
    size_t name_len;
    const char *owner; /* NULL: any owner; else with `name` and `kind` */
    size_t owner_len;
    const struct hfi_kind *kind;
    /* Whether a lock is in the scope; NULL: every lock is. Called with a shard locked: no call back
     * into the core. */
    bool (*among)(const void *arg, const struct hfi_kind *kind, const char *name, size_t name_len);
    const void *among_arg;
};

/* Unsolicited events about holds, engine to core. The core passes this table to the engine, which
 * calls it on the keeper's thread, with no mutex held. */
struct hfi_engine_events {
    /* There is a connection again: every hold in scope that has renewals is renewed now. */
    void (*reconnected)(void *arg, const struct hfi_scope *scope);
    /* They may be gone: a hint, from any source. The core verifies them by renewals. At most some
     * ten times a second per scope. */
    void (*doubted)(void *arg, const struct hfi_scope *scope);
    /* The server reports that something has changed them, perhaps their end: a hint. The core probes
     * them by renewals that change nothing, at most ten times a second each. */
    void (*touched)(void *arg, const struct hfi_scope *scope);
    /* Changes of them may not be reported any more: the same, but nothing indicates a change. */
    void (*untracked)(void *arg, const struct hfi_scope *scope);
    /* They exist, and are proved as given: possibly for less than before. promised_until_ms is
     * ignored. */
    void (*proved)(void *arg, const struct hfi_scope *scope, const struct hfi_proof *proof);
    /* They are gone for certain. `reason` is a constant string. */
    void (*lost)(void *arg, const struct hfi_scope *scope, const char *reason);
    /* No announcement is on its way any more (observe.h). On the keeper's thread. */
    void (*announced)(void *arg);
    const struct hfi_reporter *reporter; /* the client's part of the fleet view (observe.h) */
    void *arg;
};

/* What an engine does for a client as a whole. */
struct hfi_engine_ops {
    /* The table of a kind with these flags; NULL: not offered by this engine. */
    const struct hfi_kind *(*kind)(struct hfi_engine *engine, hf_kind kind, unsigned flags);

    /* The same for locks on some values of a group; it has `name_values`. */
    const struct hfi_kind *(*group)(struct hfi_engine *engine);

    /* The same for an ownerless object. */
    const struct hfi_kind *(*object)(struct hfi_engine *engine, enum hfi_object object);

    /* The same for the server itself: only `ask` (HFI_QUERY_PING) and HFI_OBSERVE_FLEET. */
    const struct hfi_kind *(*server)(struct hfi_engine *engine);

    /* Refuses names that this engine cannot use. HF_OK, or HF_EINVAL with a text. */
    int (*check_name)(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                      size_t len, hf_error *error);

    /* Whether its servers support this many acks (hfi_call.acks). HF_OK, or HF_EINVAL with a text.
     * NULL: no acks. */
    int (*check_acks)(struct hfi_engine *engine, int acks, hf_error *error);

    /* How long settling can be necessary. By then whatever has this lease has expired, or its
     * outcome cannot be known. HFI_NEVER: it never expires. */
    int64_t (*settle_until_ms)(struct hfi_engine *engine, const struct hfi_kind *kind,
                               int64_t lease_ms);

    /* on the keeper's thread */
    void (*renew)(struct hfi_engine *engine, struct hfi_renewal *renewal);

    /* Kinds that are `stamped`: releases in the background what may be left of a hold that is over
     * for the core, for as long as this lease may last. Any thread, also with a shard locked. */
    void (*release_expired)(struct hfi_engine *engine, const struct hfi_kind *kind,
                            const char *name, size_t name_len, const char *owner, size_t owner_len,
                            const struct hfi_stamp *stamp, int64_t lease_ms);

    /* Where a name is stored: a distinct pointer for each server, session etc. that can fail alone.
     * Renewals for one node never wait for another node. The function may be NULL, or return NULL:
     * there is only one node. Called with a shard locked: no call back into the core. */
    const void *(*node_of)(struct hfi_engine *engine, const struct hfi_kind *kind, const char *name,
                           size_t name_len);

    /* Sets the receiver of unsolicited events, which lives as long as the engine. */
    void (*set_engine_events)(struct hfi_engine *engine,
                              const struct hfi_engine_events *engine_events);

    /* The fleet view's door (observe.h); not NULL */
    const struct hfi_observe_ops *observe;

    /* ---- Manual dispatch: driven by hf_dispatch(), on its thread ---- */

    /* Sends the commands that calls of the dispatch lane have queued. */
    void (*flush)(struct hfi_engine *engine);
    /* Writes what to poll now to `fds`, at most `cap`; returns how many there are. */
    size_t (*poll)(struct hfi_engine *engine, struct pollfd *fds, size_t cap);
    /* Handles the readiness that a poll of those has found. */
    void (*service)(struct hfi_engine *engine, const struct pollfd *fds, size_t len);
    /* Adds the same descriptors to the application's epoll set, which outlives the engine. */
    void (*enlist)(struct hfi_engine *engine, int epoll_fd);

    /* ---- Lifetime. src/scheme makes engines ---- */

    /* Ends everything in flight with HF_ECLOSED and closes the connections. The last thing that the
     * keeper's thread does, when no call of another thread is running: src/api has cancelled them
     * and waited. A remaining call of the keeper's lane completes when its task runs next. */
    void (*stop)(struct hfi_engine *engine);
    void (*free)(struct hfi_engine *engine); /* after stop, and after the keeper has ended */
    /* In a forked child: closes descriptors, touches nothing else. */
    void (*close_fds)(struct hfi_engine *engine);
};

struct hfi_engine {
    const struct hfi_engine_ops *ops;
    bool tracks; /* some servers report changes of holds: struct hfi_engine_events, `touched` */
};

#endif
