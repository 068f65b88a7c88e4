/* A kind of lock on Redis: its scripts, their arguments and their replies. One const table per
 * kind, each in a file of its own; nothing else in the engine knows the kind of a lock. */
#ifndef HFI_REDIS_KINDS_KIND_H
#define HFI_REDIS_KINDS_KIND_H

#include "base/clock.h"
#include "redis/ops/call.h"
#include "redis/wait/wait_strategy.h"

struct hfi_acquire_answer {
    enum { HFI_ACQUIRED, HFI_TAKEN, HFI_ACQUIRE_GONE, HFI_ACQUIRE_MISMATCH } verdict;
    int64_t count; /* acquired: the new count; mismatch: the count on the server */
    /* taken: what is left of the holder's lease; -1: it never ends; -2: the lock is free, but not
     * for us */
    int64_t ttl_ms;
    int64_t token;
    int64_t proof; /* taken, a latch: proof of when it was last open; 0: none */
    int64_t position, arrival, server_us; /* taken, and in the fair queue: see fair_queue.h */
    bool foreign; /* taken, a string lock: by an owner whose token is not of our form */
    bool tracked; /* taken: the server reports the next change of the lock */
    /* taken, a string lock: by a token of this owner that is being released */
    bool given_up;
    /* taken, but free: in so many ms it may be ours. A single attempt: not decided yet */
    int64_t again_ms;
};

struct hfi_release_answer {
    enum { HFI_RELEASED, HFI_STILL_HELD, HFI_RELEASE_GONE, HFI_RELEASE_MISMATCH } verdict;
    int64_t count;               /* still held: the count; mismatch: the count on the server */
    bool waiters_unnotified;     /* released, but the server refused to notify waiters */
    bool waiters_notified_known; /* waiters_notified is set: so many subscribers got the message */
    int waiters_notified;
    bool more; /* the fair queue has more dead waiters to sweep: see fair_queue.h */
};

struct hfi_break_reply {
    bool broken;
    bool waiters_unnotified; /* the server refused to notify waiters */
    bool holder_unnotified;  /* the server refused to notify the holder */
    bool more;               /* the fair queue has more dead waiters to sweep: see fair_queue.h */
};

/* How holds are renewed. Kinds with the same renewer can be renewed in one script. */
struct hfi_renewer {
    const struct hfi_script *script;
    bool undeclared_keys; /* as in struct hfi_redis_kind */
    /* Adds keys and arguments for `len` holds. The reply is 1, 0 or -1 (no lock) for each, and the
     * time. */
    void (*write)(const struct hfi_redis *redis, const struct hfi_renewal_item *const *items,
                  size_t len, int64_t not_after_ms, struct hfi_command *command);
    /* The same for one hold, as a command for servers without scripts; its reply is OK, or nil if
     * the hold is gone. It sets the lease, and a late copy might shorten a longer one: so it sets at
     * least the watchdog's lease, and no proof reaches further. NULL: there is none. */
    void (*write_native)(const struct hfi_redis *redis, const struct hfi_renewal_item *item,
                         struct hfi_command *command);
    /* Writes a command that reads the hold's key, so that it can be tracked, and tells by its reply
     * whether the hold is there. NULL: it is not tracked. */
    void (*write_probe)(const struct hfi_redis *redis, const struct hfi_renewal_item *item,
                        struct hfi_command *command);
    bool (*is_there)(const struct hfi_renewal_item *item, const struct hfi_reply *reply);
    /* The same for `len` holds in one command, whose reply has an element for each. NULL: there is
     * none, so each has a command of its own. */
    void (*write_probes)(const struct hfi_redis *redis, const struct hfi_renewal_item *const *items,
                         size_t len, struct hfi_command *command);
};

struct hfi_object_op_reply {
    int64_t value;
    bool waiters_unnotified; /* done, but the server refused to notify waiters */
    bool holder_unnotified;  /* done, but it refused to notify the holders */
    const char *text;        /* why it was not done; NULL: the text of hf_strerror() */
};

/* One operation on an object that is not a lock (enum hfi_object_op). */
struct hfi_redis_object_op {
    const struct hfi_script *script; /* NULL: a command that only reads */
    /* Not idempotent: a lost copy is not sent again, and its outcome is unknown. */
    bool once;
    /* If its outcome is unknown, the call ends unsettled, and the core may have the kind settle
     * it. */
    bool settles;
    /* Adds the arguments: for a script the number of keys and all that follows, else the whole
     * command. */
    void (*write)(const struct hfi_redis *redis, const struct hfi_call *call, int64_t not_after_ms,
                  struct hfi_command *command);
    /* HF_OK, HF_EPROTO for a malformed reply, or the error it stands for: HF_EWRONGTYPE,
     * HF_ENOTOWNER... */
    int (*read)(const struct hfi_call *call, const struct hfi_reply *reply,
                struct hfi_object_op_reply *ret);
};

/* The read functions return HF_OK, or HF_EPROTO for a reply that the script cannot have sent.
 * read_acquire also returns HF_EWRONGTYPE for a value that something else has written. */
struct hfi_redis_kind {
    const char *field_suffix; /* of the owner's field in the lock's hash */
    /* Its scripts use keys that they cannot declare, so a cluster node does not know when some of
     * them are elsewhere. Such scripts must not follow an ASK redirect while the lock's slot is
     * migrated. */
    bool undeclared_keys;
    /* It is held for as long as its key exists, so a poll can check it without an attempt. */
    bool key_means_held;

    /* Its commands may be repeated (exchange.h), and these choose them; NULL: they may not. Its
     * scripts below are what is chosen first. */
    void (*choose_acquire)(struct hfi_exchange *x);
    void (*choose_release)(struct hfi_exchange *x);
    void (*choose_break)(struct hfi_exchange *x);
    /* As in struct hfi_exchange, for an acquire. NULL: nothing to note. */
    void (*copy_lost)(struct hfi_exchange *x);
    /* An exchange that was chosen has ended: notes what its node can do. True: begin it again. */
    bool (*learn)(struct hfi_exchange *x);
    /* Corrects what a grant proves. NULL: nothing to correct. */
    void (*prove)(struct hfi_call *call, struct hfi_proof *proof);
    /* A call has ended: call->err, `unsettled` and the like are set. NULL: nothing to do. */
    void (*ended)(struct hfi_call *call);
    const struct hfi_script *acquire, *release, *break_holds;
    void (*write_acquire)(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command);
    int (*read_acquire)(const struct hfi_call *call, const struct hfi_reply *reply,
                        struct hfi_acquire_answer *ret);
    void (*write_release)(const struct hfi_redis *redis, const struct hfi_call *call, int64_t count,
                          int64_t not_after_ms, struct hfi_command *command);
    int (*read_release)(int64_t count, const struct hfi_reply *reply,
                        struct hfi_release_answer *ret);
    /* Instead, if the release is chosen. */
    int (*read_chosen_release)(const struct hfi_exchange *x, struct hfi_release_answer *ret);

    /* Break: finds the holder among all fields of the hash (HF_EWRONGTYPE: this is not such a
     * lock), then breaks that holder's hold. */
    int (*find_holder)(const struct hfi_reply *fields, const struct hfi_reply **ret_owner);
    const char *holder_query; /* its reply is given to find_holder; NULL: HGETALL */
    void (*write_break)(const struct hfi_redis *redis, const struct hfi_call *call,
                        const char *owner, size_t owner_len, int64_t not_after_ms,
                        struct hfi_command *command);
    int (*read_break)(const struct hfi_reply *reply, struct hfi_break_reply *ret);
    /* Instead, if the break is chosen. */
    int (*read_chosen_break)(const struct hfi_exchange *x, struct hfi_break_reply *ret);

    /* Writes the name of the channel on which releases are published, unless `to` is NULL; returns
     * its length. */
    size_t (*channel)(const struct hfi_redis *redis, const struct hfi_call *call, char *to);

    /* Asks whether it is locked. NULL: it is if its key exists. */
    void (*ask_locked)(struct hfi_call *call);

    const struct hfi_wait_strategy *waiting; /* how its waiters wait */
    /* its release reports how many subscribers were notified, and the client yields to them
     * (yield_to_waiters.c) */
    bool yields_after_release;

    const struct hfi_renewer *renewer;
    /* Sets a lease or adds to it; its arguments are those of the renewer's script for one hold, and
     * the mode. NULL: not offered. */
    const struct hfi_script *lease;

    /* If it has tokens: extends one hold, with a wished token. */
    const struct hfi_script *extend;
    void (*write_extend)(const struct hfi_redis *redis, const struct hfi_call *call,
                         int64_t not_after_ms, struct hfi_command *command);

    /* A hold may end this much earlier than a lease after it was acquired. The server reads its
     * clock in whole milliseconds; a key outlives its last one, but a time in a set does not. */
    int64_t ends_early_ms;

    /* If waiters queue at the server: a waiter that gives up leaves the queue by this script, which
     * also undoes an acquire. */
    const struct hfi_script *give_up;
    void (*write_give_up)(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command);
    int (*read_give_up)(const struct hfi_reply *reply, struct hfi_release_answer *ret);
    /* Goes on sweeping after a release, a break or a give-up whose reply had `more`. */
    const struct hfi_script *hand_over;
    void (*write_hand_over)(const struct hfi_redis *redis, const struct hfi_call *call,
                            int64_t not_after_ms, struct hfi_command *command);
    int (*read_hand_over)(const struct hfi_reply *reply, struct hfi_release_answer *ret);

    /* ---- Objects only; a lock leaves these out ---- */

    /* HFI_OBJECT_OPS of them; one without `write` is not supported */
    const struct hfi_redis_object_op *object_ops;
    const char *busy;          /* error text if it cannot be acquired now */
    const char *not_inspected; /* error text of inspect; NULL: it can be inspected */
    /* Acquiring is not idempotent, unless the server can tell by an idempotency key
     * (idempotency.h). Without a key it is as hfi_redis_object_op.once. */
    bool draws_idempotency_key;
    /* Undoes what an unsettled call without an idempotency key may have done, as far as its reply
     * tells. It stands in for the release that undoes an acquire of a lock. The call has begun; the
     * request that a cancelled acquire left in flight is state->in_doubt. */
    void (*settle)(struct hfi_call *call);
};

static inline const struct hfi_redis_kind *hfi_redis_kind_of(const struct hfi_kind *kind) {
    return kind->engine_private;
}

/* Holds at this node are renewed by the renewer's command: it runs no scripts. */
static inline bool hfi_renotification_natively(struct hfi_node *node,
                                               const struct hfi_renewer *renewer) {
    return renewer->write_native != NULL &&
           atomic_load_explicit(&hfi_node_learnt(node)->scriptless, memory_order_relaxed);
}

/* The reply to a renewal by command: 1 held, 0 gone, -1 malformed. */
static inline int hfi_native_renewal_read(const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_STATUS ? 1 : reply->type == HFI_REPLY_NIL ? 0 : -1;
}

/* It has something to confirm. */
static inline bool hfi_native_renewal_acks(const void *reply) {
    return hfi_native_renewal_read(reply) == 1;
}

extern const struct hfi_call_ops hfi_redis_lock_ops, hfi_redis_object_ops; /* engine.c */
extern const struct hfi_kind hfi_object_semaphore, hfi_object_permits, hfi_object_latch;
extern const struct hfi_kind hfi_kind_plain, hfi_kind_nonreentrant, hfi_kind_spin, hfi_kind_fenced;
extern const struct hfi_kind hfi_kind_fair, hfi_kind_fair_nonreentrant;
extern const struct hfi_kind hfi_kind_read, hfi_kind_write;
extern const struct hfi_kind hfi_kind_group;
extern const struct hfi_kind hfi_kind_string, hfi_kind_string_nonreentrant, hfi_kind_string_spin;
/* renew.c: any lock that is one field of a hash */
extern const struct hfi_renewer hfi_renewer_hash;
void hfi_renewer_hash_write_probe(const struct hfi_redis *redis,
                                  const struct hfi_renewal_item *item, struct hfi_command *command);
bool hfi_renewer_hash_is_there(const struct hfi_renewal_item *item, const struct hfi_reply *reply);

#endif
