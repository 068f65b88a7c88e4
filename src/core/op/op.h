/*
 * Operations: the task behind every verb. A synchronous verb makes one, begins it on its own thread
 * and waits for it; an asynchronous verb posts HFI_OP_BEGIN. After completion an operation may live
 * on to settle what it left behind.
 */
#ifndef HFI_CORE_OP_OP_H
#define HFI_CORE_OP_OP_H

#include "core/core.h"

/* Events of the task; the engine's are above HFI_ENGINE_EVENT_SHIFT. */
enum {
    HFI_OP_BEGIN = 0x01,
    HFI_OP_TURN = 0x02,       /* it is this operation's turn on its hold */
    HFI_OP_LOCAL_TURN = 0x04, /* it is this operation's turn to wait remotely */
    HFI_OP_TIMEOUT = 0x08,    /* waited too long for one of these */
    HFI_OP_CANCEL = 0x10,
    HFI_OP_CLOSE = 0x20,
    HFI_OP_SETTLE = 0x40,
    /* the same owner acquires again, and takes over what was to be undone */
    HFI_OP_YIELD = 0x80
};

enum hfi_op_state {
    HFI_OP_NEW,
    HFI_OP_QUEUED,
    HFI_OP_QUEUED_LOCALLY,
    HFI_OP_CALLING,
    HFI_OP_PARKED, /* the engine sleeps; `parked` has all it needs to resume */
    HFI_OP_SETTLING,
    HFI_OP_DONE
};

/* What an operation needs while it uses the engine, and its result. */
struct hfi_work {
    struct hfi_call call;
    hf_result result;
    hf_lock_info **ret_info;          /* inspect: the caller's, like ret_ids */
    hf_server_info **ret_server_info; /* server_info: the same */
    hf_fleet **ret_fleet;             /* survey: the same */
    struct hfi_findings **ret_findings;
    bool written; /* one of these was. Guarded by the shard */
    struct {
        hf_permit_id *ret_ids; /* acquire: the caller's, written before it completes */
        bool held, lost;       /* release: some were our holds; some of these were lost before */
        int64_t end_ms;        /* release: the first of them ends then */
    } permits;
    struct hfi_thread_record *self; /* of a synchronous acquire for the default owner */
    struct hfi_stake *stake;        /* referenced: a joint lock's stake in this part; or NULL */
    struct hfi_stamp_text *text;    /* referenced: the stamp that the caller chose; or NULL */
    void (*on_result)(void *user, const hf_result *result);
    size_t size; /* bytes allocated: the engine's state is behind the struct */
    char owner_text[HFI_OWNER_MAX];
};

/* A hundred thousand operations may wait. So an operation whose owner is new, and cannot be known
 * to others until it has the lock, is **compact**. It has work and a hold only while it is in front
 * of its local queue and the engine does not sleep. All others have their work behind the struct,
 * permanently. */
struct hf_op {
    /* First: it has the reference count. References: its caller, the shard's list until it is
     * finished, a notice with its callback, and those of every task. */
    struct hfi_task task;
    struct hfi_core *core;
    struct hfi_shard *shard;
    const struct hfi_verb *verb;
    const struct hfi_kind *kind;
    const char *name; /* behind it, in the same memory */
    size_t name_len;
    struct hfi_work *work; /* NULL: it is compact, and has none now */
    struct hfi_call *call; /* the one of `work` */
    struct hfi_hold *hold; /* referenced; NULL for verbs without one */
    struct hfi_link shard_link, hold_link;
    struct hfi_local_queue *local_queue;
    union {
        struct hfi_link local_queue_link; /* while it is in a local queue */
        struct hfi_notice notice;         /* when it is complete */
    };
    struct hfi_alarm alarm;             /* while queued or parked */
    struct hfi_call_status call_status; /* of its call */
    struct hfi_parked *parked;          /* the engine's */
    struct hf_cancel *cancel;
    struct hfi_link cancel_link;       /* guarded by the switch */
    struct hfi_name_stats *name_stats; /* referenced: of its name; NULL: none */

    hf_owner owner;
    int64_t lease_ms; /* as requested */
    int64_t wait_ms;
    int64_t start_us, deadline_ms;
    int acks; /* as requested; 0: the core's default */
    /* failure of the operation in front, which applies to this one as well; the error text is kept
     * like the result's. Guarded by the shard */
    int shared_err;
    enum hfi_lane lane;
    enum hfi_op_state state;
    bool compact;
    bool call_done; /* the engine has finished; checked when the engine has returned */
    bool cancellable;
    bool cancelled_first; /* before it began: then nothing is sent */
    bool lined_up;        /* had to wait for another operation of this process */
    /* its wait is over, but the unanswered command in front of it may still explain why */
    bool overtime;
    /* was stuck in front of a local queue: waits at the server, beside the new front. Guarded by
     * the shard */
    bool outside;
    bool answered; /* its command was answered, too late: it settles that */
    bool over;     /* complete for its caller; it only settles. Guarded by the shard */
    bool inner;    /* a cohort's own: its threads' operations are counted and reported instead */
    bool claims;   /* an acquire that has claimed its lock: see overlap.c. Guarded by the shard */
    /* when the client closes, do not wait for this settlement, unless the server answers at once */
    bool brief;
    bool foreign;      /* its owner text is another client's: adopted, or being adopted */
    bool ours_before;  /* adopt: the adopted hold was already ours */
    bool yes_or_no;    /* the answer is whether the value is more than 0 */
    bool handle_given; /* the caller has the op */

    atomic_uint complete; /* a futex: enum hfi_completion */
    atomic_int claim;     /* enum hfi_claim */
    int code;             /* of the result, if there is no work */
    hf_error *error;      /* the error text; NULL: the code's text, or there was no memory */
    hf_op_fn callback;
    void *user;
    size_t size; /* bytes allocated */
};

enum hfi_completion {
    HFI_INCOMPLETE,
    HFI_COMPLETE,
    HFI_AWAITED /* not complete, and a thread sleeps */
};

/* Who takes its result. */
enum hfi_claim {
    HFI_OP_UNSEEN,
    HFI_OP_SEEN,      /* its callback, or hf_op_wait() */
    HFI_OP_ABANDONED, /* nobody, and what it acquires is to be undone */
    HFI_OP_UNDONE     /* nobody, and nothing is left to undo */
};

static inline bool hfi_op_is_complete(const struct hf_op *op) {
    return atomic_load_explicit(&op->complete, memory_order_acquire) == HFI_COMPLETE;
}

/* The operation that a call belongs to. */
static inline struct hf_op *hfi_op_of_call(const struct hfi_call *call) {
    return HFI_CONTAINER(call->task, struct hf_op, task);
}

static inline int64_t hfi_op_start_ms(const struct hf_op *op) {
    return op->start_us / 1000;
}

/* What a verb does; a const table each. */
struct hfi_verb {
    const char *name;
    bool takes_turn; /* one at a time per hold */
    bool waits;      /* for up to wait_ms, and can be cancelled */
    bool acquires;   /* begins a possession, and takes over the residue of the last one */
    bool releases;   /* its caller is done with the hold, whatever the outcome */
    bool timed;      /* its latency is kept by name */
    bool gets;       /* on success its owner has something that can be given back */
    bool gives_back; /* runs while the client closes, as a settlement does */
    bool lets_go;    /* the core's own: releases a residue, and yields to an acquire */
    /* It is the operation's turn on the hold (or the verb needs none): call the engine, or
     * complete. */
    void (*go)(struct hf_op *op);
    /* The engine has finished. Must complete the op. */
    void (*after)(struct hf_op *op);
    /* Nothing more will happen. May be NULL. */
    void (*finished)(struct hf_op *op);
};
extern const struct hfi_verb hfi_verb_acquire, hfi_verb_release, hfi_verb_extend, hfi_verb_adopt,
    hfi_verb_break, hfi_verb_query, hfi_verb_inspect, hfi_verb_server_info, hfi_verb_survey;
/* release.c: of a part of a joint lock, by its stake */
extern const struct hfi_verb hfi_verb_give_back, hfi_verb_run_out;
/* counter_ops.c: of ownerless objects */
extern const struct hfi_verb hfi_verb_object_op, hfi_verb_noop, hfi_verb_take, hfi_verb_await;
/* the same for what an abandoned operation has got, in release.c, counter_ops.c, permits.c */
extern const struct hfi_verb hfi_verb_undo_acquire, hfi_verb_undo_take, hfi_verb_undo_permits;
/* expired_release.c */
extern const struct hfi_verb hfi_verb_expired_release, hfi_verb_permits_expired_release;
/* permits.c */
extern const struct hfi_verb hfi_verb_permits_acquire, hfi_verb_permits_release,
    hfi_verb_permits_extend;

struct hfi_op_args {
    const struct hfi_verb *verb;
    bool compact;                /* acquire, for a new owner */
    const struct hfi_kind *kind; /* NULL, for src/api only: that of the server itself */
    const char *name;
    size_t name_len;
    hf_owner owner;
    const char *handle; /* adopt: the owner's text; `owner` is its number here. Else NULL */
    uint64_t bits;      /* adopt: of its stamp; 0: it has none */
    /* acquire, of stamped kinds: the stamp that the caller chose; or NULL */
    struct hfi_stamp_text *text;
    int64_t wait_ms, lease_ms;
    int acks; /* acquire */
    enum hfi_lane lane;
    enum hfi_query query;
    unsigned wanted;    /* survey */
    int64_t token_wish; /* extend */
    hf_extend_mode extend_mode;
    enum hfi_object_op object_op;
    bool yes_or_no;
    int64_t amount, ttl_ms;
    const unsigned char *ids; /* copied: `ids_len` of HFI_ID_LEN bytes each */
    size_t ids_len;
    hf_permit_id *ret_ids;            /* permits: as many */
    const struct hfi_backoff *spin;   /* acquire: copied; NULL: the kind's default */
    hf_lock_info **ret_info;          /* inspect: written before it completes, on success */
    hf_server_info **ret_server_info; /* server_info: the same */
    hf_fleet **ret_fleet;             /* survey: the same; its `name` is the pattern */
    /* instead: the findings of this engine, not joined yet */
    struct hfi_findings **ret_findings;
    struct hfi_exec *exec;
    struct hfi_thread_record *self;
    struct hfi_parts *parts; /* joint kinds: referenced; else NULL */
    struct hfi_stake *stake; /* of a part: acquire links it into the hold; referenced, or NULL */
    bool inner;              /* as in hf_op */
    /* where the name's statistics are, or will be; NULL: none */
    struct hfi_name_stats_ref *name_stats;
    struct hf_cancel *cancel;
    hf_check_fn check; /* synchronous, of a verb that waits: may end the wait; or NULL */
    void *check_user;
    hf_op_fn callback;
    /* Instead of a callback: called on the operation's executor when it completes. It may still
     * have something to settle then. */
    void (*on_result)(void *user, const hf_result *result);
    void *user;
};

struct hf_op *hfi_op_new(struct hfi_core *core, const struct hfi_op_args *args);
void hfi_op_begin(struct hf_op *op); /* on its executor's thread */
/* For an operation that was made beforehand, and does not wait: its time starts now. Before it
 * begins. */
void hfi_op_set_off(struct hf_op *op);

/* Adds 1, unless it is an inner one. */
void hfi_op_count(const struct hf_op *op, atomic_ullong *counter);

/* For verbs. */
/* True: a lease was requested, and its kind has none. Then the op is complete. */
bool hfi_op_refuses_lease(struct hf_op *op);
void hfi_op_call(struct hf_op *op, void (*engine_op)(struct hfi_call *call));
/* After any of these the op must not be touched any more. */
void hfi_op_complete(struct hf_op *op, int err, const hf_error *error);
/* Completes, and then settles what its command has done or may still do. Settles as long as this
 * lease may exist at the server, or until `until_ms`. */
void hfi_op_complete_unsettled(struct hf_op *op, int err, const hf_error *error, int64_t lease_ms);
void hfi_op_complete_unsettled_until(struct hf_op *op, int err, const hf_error *error,
                                     int64_t until_ms);
/* Its caller gets the result; the op may live on to settle. */
void hfi_op_publish(struct hf_op *op, int err, const hf_error *error);

/* The result, once it is complete: in place, or in `room`. */
const hf_result *hfi_op_result(const struct hf_op *op, hf_result *room);
/* Waits until it is complete. False: it was not by then. Any thread but its executor's. */
bool hfi_op_await(struct hf_op *op, int64_t until_ms);
/* The error text of its result, before it is complete. Dropped if there is no memory. */
void hfi_op_keep_error(struct hf_op *op, const hf_error *error);
const hf_error *hfi_op_kept_error(const struct hf_op *op); /* NULL: none was kept */

/* Gives a compact operation its work and its hold. HF_OK or HF_ENOMEM. *ret_turn: it is its turn on
 * the hold; else it is queued for that. */
int hfi_op_inflate(struct hf_op *op, bool *ret_turn);

/* Gives the call the stamp of its hold. Shard locked. The text stays the op's until it ends. */
void hfi_op_take_stamp_locked(struct hf_op *op);

/* acquire.c: fills in the call for the engine; `count`: how often the hold is held. */
void hfi_acquire_fill(struct hf_op *op, int64_t count);

/* abandon.c: */
/* Nobody will see the result. False: it was seen. Any thread. */
bool hfi_op_abandon(struct hf_op *op);
/* It is complete: undoes it, if it is abandoned. */
void hfi_op_undo(struct hf_op *op);
/* Its callback is about to run, or hf_op_wait() to return the result. False: it is abandoned. */
bool hfi_op_see(struct hf_op *op);
/* Before an output of the caller is written. */
bool hfi_op_may_write_locked(const struct hf_op *op);

/* park.c: */
/* The engine has returned, and may sleep: then a compact operation frees what it can. */
void hfi_op_park(struct hf_op *op);
/* Events came, or the time to resume. */
void hfi_op_resume(struct hf_op *op, unsigned events);
void hfi_op_unpark(struct hf_op *op); /* it will not be resumed; one that is not parked is fine */

/* Between op.c, op_result.c, park.c and op_settle.c. */
bool hfi_work_new(struct hf_op *op);  /* false: out of memory */
void hfi_work_free(struct hf_op *op); /* of a compact one */
void hfi_op_run(struct hfi_task *task, unsigned events);
void hfi_op_call_is_done(struct hfi_call *call);
#define HFI_BRIEF_MS 250 /* a server that can be reached answers sooner */
/* Nothing more will happen: takes the op off all lists, and drops the list's reference. */
void hfi_op_finish(struct hf_op *op);
/* Gives the turn to the next operation on its hold, if it has one. */
void hfi_op_leave_turn_locked(struct hf_op *op);
void hfi_op_check_done(struct hf_op *op); /* the engine has returned */
/* The same for an operation that ends with `err`; leaves its local queue, too. False: it keeps the
 * turn, because it has to settle first what a broken-off settlement left. */
bool hfi_op_leave_turn(struct hf_op *op, int err);
void hfi_op_settle(struct hf_op *op);  /* begins */
void hfi_op_settled(struct hf_op *op); /* the engine has finished with it */
/* The next operation acquires again, and takes over what this one was to undo. */
void hfi_op_yield_turn(struct hf_op *op);
/* The client closes: hopeless, the settlement is not worth waiting for; too long, it has taken its
 * time. */
bool hfi_op_is_hopeless(const struct hf_op *op);
bool hfi_op_is_too_long(const struct hf_op *op);

/* op_queue.c: */
void hfi_op_wait_queued(struct hf_op *op, enum hfi_op_state state);
/* queued, and its alarm has fired */
void hfi_op_waited(struct hf_op *op);
void hfi_op_wait_is_over(struct hf_op *op);

/* op_lost.c */
/* Completes with the loss that was taken. */
void hfi_op_fail_lost(struct hf_op *op);
/* The server reports that the hold is gone: ends it, and completes with HF_ELOST. */
void hfi_op_found_lost(struct hf_op *op, const char *reason);
/* If the hold expired and its loss was reported while this command was in flight, the answer comes
 * too late. Then completes with HF_ELOST, and releases what the server still has. True: the op is
 * complete. */
bool hfi_op_ended_meanwhile(struct hf_op *op);

/* counter_ops.c: steps of its verbs, for similar verbs. */
void hfi_count_failure(const struct hf_op *op, int err);
void hfi_take_failed(struct hf_op *op); /* counts, and completes with the engine's error */
void hfi_count_taken(struct hf_op *op); /* one more that was acquired */
/* Records how long the acquire took, now that it is done. */
void hfi_count_times(const struct hf_op *op);

#endif
