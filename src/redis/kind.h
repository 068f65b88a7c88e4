/* A kind of lock on Redis: which scripts, what they are given and what they answer. One const
 * table per kind, each in a file of its own; nothing else in the engine knows what kind of lock
 * it works on. */
#ifndef HFI_REDIS_KIND_H
#define HFI_REDIS_KIND_H

#include "base/clock.h"
#include "redis/internal.h"
#include "redis/waiting.h"

struct hfi_acquire_answer {
    enum { HFI_ACQUIRED, HFI_TAKEN, HFI_ACQUIRE_GONE, HFI_ACQUIRE_MISMATCH } verdict;
    int64_t count; /* acquired: the count now; mismatch: what is there */
    int64_t
        ttl_ms; /* taken: when the other's lease ends; -1 never, -2 it is free, but not for us */
    int64_t token;
    int64_t proof; /* taken, a latch: of the last time that it was open; 0: none */
    int64_t position, number, server_us; /* taken, and in line for it: see line.h */
    /* taken, but free: in so many ms it may be ours; tried once: there is no answer yet */
    int64_t again_ms;
};

struct hfi_release_answer {
    enum { HFI_RELEASED, HFI_STILL_HELD, HFI_RELEASE_GONE, HFI_RELEASE_MISMATCH } verdict;
    int64_t count;     /* still held: the count; mismatch: what is there */
    bool not_notified; /* released, but the server refused to wake anybody */
    bool told_known;   /* released, and the server has told so many who listen: */
    int told;
    bool more; /* and there is more to pass over in its line: see line.h */
};

struct hfi_force_answer {
    bool broken;
    bool not_notified; /* those who wait were not told */
    bool not_told;     /* the holder was not */
    bool more;         /* there is more to pass over in its line: see line.h */
};

/* How holds are renewed. Kinds that share one can be renewed in one script. */
struct hfi_renewer {
    const struct hfi_script *script;
    bool undeclared_keys; /* as struct hfi_redis_kind has it */
    /* Adds keys and arguments for `len` holds. The answer is 1, 0 or -1 (no lock) for each, and
     * the time. */
    void (*write)(const struct hfi_redis *redis, const struct hfi_renewal_item *const *items,
                  size_t len, int64_t not_after_ms, struct hfi_command *command);
};

struct hfi_act_answer {
    int64_t value;
    bool not_notified; /* done, but the server refused to wake anybody */
    bool not_told;     /* done, but it refused to tell those who hold it */
    const char *words; /* why it was not done; NULL: as hf_strerror() says */
};

/* One thing that can be done to what is not a lock (enum hfi_act). */
struct hfi_redis_act {
    const struct hfi_script *script; /* NULL: a command that only reads */
    /* Running it twice differs from running it once, so a lost copy is not sent again, and its
     * outcome is unknown. */
    bool once;
    /* If its outcome is unknown, the core is told, and may ask the kind to settle it. */
    bool settles;
    /* Adds the arguments: for a script the number of keys and what follows, else the whole
     * command. */
    void (*write)(const struct hfi_redis *redis, const struct hfi_call *call, int64_t not_after_ms,
                  struct hfi_command *command);
    /* HF_OK, HF_EPROTO for nonsense, or what the answer says: HF_EWRONGTYPE, HF_ENOTOWNER, ... */
    int (*read)(const struct hfi_call *call, const redisReply *reply, struct hfi_act_answer *ret);
};

/* Functions that read return HF_OK, or HF_EPROTO for what the script cannot have answered;
 * read_acquire also HF_EWRONGTYPE for what was written by something else. */
struct hfi_redis_kind {
    const char *field_suffix; /* of the owner's field in the lock's hash */
    /* Its scripts use keys that they cannot declare, so that a server of a cluster does not know when some
     * of them are elsewhere: they must not be sent after a lock that is on the move. */
    bool undeclared_keys;
    /* It is held for as long as its key is there, so whoever waits need not attempt to find out. */
    bool key_tells;

    const struct hfi_script *acquire, *release, *force;
    void (*write_acquire)(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command);
    int (*read_acquire)(const struct hfi_call *call, const redisReply *reply,
                        struct hfi_acquire_answer *ret);
    void (*write_release)(const struct hfi_redis *redis, const struct hfi_call *call, int64_t count,
                          int64_t not_after_ms, struct hfi_command *command);
    int (*read_release)(int64_t count, const redisReply *reply, struct hfi_release_answer *ret);

    /* Break: finds the holder among all fields of the hash (HF_EWRONGTYPE: this is not such a
     * lock), then names it. */
    int (*find_holder)(const redisReply *fields, const redisReply **ret_owner);
    void (*write_force)(const struct hfi_redis *redis, const struct hfi_call *call,
                        const char *owner, size_t owner_len, int64_t not_after_ms,
                        struct hfi_command *command);
    int (*read_force)(const redisReply *reply, struct hfi_force_answer *ret);

    /* Writes the name of the channel on which releases are published, unless `to` is NULL; returns
     * its length. */
    size_t (*channel)(const struct hfi_redis *redis, const struct hfi_call *call, char *to);

    /* Asks whether it is locked. NULL: it is if its key exists. */
    void (*ask_locked)(struct hfi_call *call);

    const struct hfi_waiting *waiting; /* how its waiters wait */
    /* its release says how many were told, and whoever comes again lets them go first (courtesy.c) */
    bool goes_round;

    const struct hfi_renewer *renewer;

    /* If it has tokens: extends one hold, with a wish. */
    const struct hfi_script *extend;
    void (*write_extend)(const struct hfi_redis *redis, const struct hfi_call *call,
                         int64_t not_after_ms, struct hfi_command *command);

    /* So much earlier than a lease after it was taken a hold may be over: the server reads its
     * clock in whole milliseconds, and a key outlives its last one, but a time in a set does
     * not. */
    int64_t ends_early_ms;

    /* If waiters stand in line at the server: whoever gives up leaves the line by this script, which
     * also undoes an acquire. */
    const struct hfi_script *give_up;
    void (*write_give_up)(const struct hfi_redis *redis, const struct hfi_call *call,
                          int64_t not_after_ms, struct hfi_command *command);
    int (*read_give_up)(const redisReply *reply, struct hfi_release_answer *ret);
    /* Goes on where a release, a break or a give-up said that there is more. */
    const struct hfi_script *hand_over;
    void (*write_hand_over)(const struct hfi_redis *redis, const struct hfi_call *call,
                            int64_t not_after_ms, struct hfi_command *command);
    int (*read_hand_over)(const redisReply *reply, struct hfi_release_answer *ret);

    /* ---- Things only; a lock leaves these out ---- */

    const struct hfi_redis_act *acts; /* HFI_ACTS of them; one without `write` is not offered */
    const char *busy;                 /* what to say when it cannot be had now */
    /* Acquiring twice differs from acquiring once, unless the server can tell by a ticket
     * (ticket.h); where there can be none, it is as hfi_redis_act.once. */
    bool draws_tickets;
    /* Undoes what an unsettled call without a ticket may have done, as far as its answer tells, in
     * place of the release that undoes an acquire of a lock. The call has begun; what a cancelled
     * acquire left under way is state->ghost. */
    void (*settle)(struct hfi_call *call);
};

static inline const struct hfi_redis_kind *hfi_redis_kind_of(const struct hfi_kind *kind) {
    return kind->engine_private;
}

/* How long what was sent then can be trusted, on our clock: the server began to count later. */
static inline int64_t hfi_valid_until_ms(const struct hfi_kind *kind, int64_t sent_ms,
                                         int64_t lease_ms) {
    int64_t until_ms = hfi_after_ms(sent_ms, lease_ms);
    return until_ms == HFI_NEVER ? until_ms : until_ms - hfi_redis_kind_of(kind)->ends_early_ms;
}

/* What the server's answer to a command that was sent then proves. The next renewal is planned from
 * there, too: what the answer took is gone from the lease. */
static inline struct hfi_proof hfi_proof_of(const struct hfi_redis *redis,
                                            const struct hfi_kind *kind, int64_t sent_ms,
                                            int64_t lease_ms) {
    int64_t until_ms = hfi_valid_until_ms(kind, sent_ms, lease_ms);
    return (struct hfi_proof){.valid_until_ms = until_ms,
                              .renew_at_ms = sent_ms + redis->renew_every_ms,
                              .promised_until_ms = until_ms};
}

extern const struct hfi_call_ops hfi_redis_lock_ops, hfi_redis_thing_ops; /* engine.c */
extern const struct hfi_kind hfi_thing_semaphore, hfi_thing_permits, hfi_thing_latch;
extern const struct hfi_kind hfi_kind_plain, hfi_kind_nonreentrant, hfi_kind_spin, hfi_kind_fenced;
extern const struct hfi_kind hfi_kind_fair, hfi_kind_fair_nonreentrant;
extern const struct hfi_kind hfi_kind_read, hfi_kind_write;
extern const struct hfi_kind hfi_kind_group;
extern const struct hfi_renewer
    hfi_renewer_hash; /* renew.c: any lock that is one field of a hash */

#endif
