/*
 * Operations: the task behind every verb. A synchronous verb makes one, begins it on its own thread
 * and attends to it; an asynchronous one posts HFI_OP_BEGIN. After completion an operation may live
 * on to settle what it left behind.
 */
#ifndef HFI_CORE_OP_H
#define HFI_CORE_OP_H

#include "core/core.h"

/* Events of the task; the engine's are above HFI_ENGINE_EVENT_SHIFT. */
enum {
    HFI_OP_BEGIN = 0x01,
    HFI_OP_TURN = 0x02,    /* the hold is ours to work on */
    HFI_OP_GATE = 0x04,    /* we are the one to wait remotely */
    HFI_OP_TIMEOUT = 0x08, /* waited too long for one of these */
    HFI_OP_CANCEL = 0x10,
    HFI_OP_CLOSE = 0x20,
    HFI_OP_SETTLE = 0x40,
    /* the same owner acquires again, which takes over whatever was to be undone */
    HFI_OP_YIELD = 0x80
};

enum hfi_op_state {
    HFI_OP_NEW,
    HFI_OP_QUEUED,
    HFI_OP_GATED,
    HFI_OP_CALLING,
    HFI_OP_PARKED, /* the engine sleeps, and all that it needs to go on is in `parked` */
    HFI_OP_SETTLING,
    HFI_OP_DONE
};

/* What an operation needs while it has to do with the engine, and what came of that. */
struct hfi_work {
    struct hfi_call call;
    hf_result result;
    hf_lock_info **ret_info; /* inspect: the caller's, as ret_ids */
    hf_facts **ret_facts;    /* facts: the same */
    hf_fleet **ret_fleet;    /* survey: the same */
    struct hfi_findings **ret_findings;
    struct {
        hf_permit_id *ret_ids; /* acquire: the caller's, written before it completes */
        bool held, lost; /* release: some were holds of ours; of these some were lost before */
        int64_t end_ms;  /* release: the first of them ends then */
    } permits;
    struct hfi_self *self;   /* of a synchronous acquire for the default owner */
    struct hfi_stake *stake; /* referenced: what a lock of several has by this; or NULL */
    void (*told)(void *user, const hf_result *result);
    size_t size; /* of its memory: the engine's state is behind the struct */
    char owner_text[HFI_OWNER_MAX];
};

/* There may be a hundred thousand that wait, so those whose owner is new, and whom nobody can know
 * of until they have the lock, are **slight**: they have neither work nor a hold but while they are
 * in front of their gate and the engine does not sleep. All others have their work behind the
 * struct, for good. */
struct hf_op {
    /* First: the reference count is its. Its caller, the shard's list until it is finished, a notice
     * with its callback, and those of every task. */
    struct hfi_task task;
    struct hfi_core *core;
    struct hfi_shard *shard;
    const struct hfi_verb *verb;
    const struct hfi_kind *kind;
    const char *name; /* behind it, in the same memory */
    size_t name_len;
    struct hfi_work *work; /* NULL: it is slight, and has none now */
    struct hfi_call *call; /* the one of `work` */
    struct hfi_hold *hold; /* referenced; NULL for verbs without one */
    struct hfi_link shard_link, hold_link;
    struct hfi_gate *gate;
    union {
        struct hfi_link gate_link; /* while it is at a gate */
        struct hfi_notice notice;  /* when it is complete */
    };
    struct hfi_alarm alarm;    /* for waiting in line, or parked */
    struct hfi_signs signs;    /* of its call */
    struct hfi_parked *parked; /* the engine's */
    struct hf_cancel *cancel;
    struct hfi_link cancel_link; /* guarded by the switch */
    struct hfi_diary *diary;     /* referenced: of its name; NULL: none is kept */

    hf_owner owner;
    int64_t lease_ms; /* as asked for */
    int64_t wait_ms;
    int64_t start_us, deadline_ms;
    int acks;       /* as asked for; 0: as the core has it */
    int shared_err; /* of the one in front, which is true of this one as well; the words are kept as
                       those of the result. Guarded by the shard */
    enum hfi_lane lane;
    enum hfi_op_state state;
    bool slight;
    bool call_done; /* the engine has finished; looked at when it has returned */
    bool cancellable;
    bool cancelled_first; /* before it began: then nothing is sent */
    bool lined_up;        /* had to wait for another of this process */
    bool overtime;        /* its wait is over, but not the command in front of it that says why */
    bool outside; /* was stuck in front of a gate: waits at the server, beside whoever is there now.
                     Guarded by the shard */
    bool over;    /* for its caller; it only settles. Guarded by the shard */
    bool inner;   /* a cohort's own: counted and told of by those for whom it is done */
    bool claims;  /* an acquire of what may overlap: see overlap.c. Guarded by the shard */
    /* what it settles is not worth waiting for when the client is closed, unless the server answers
     * at once */
    bool brief;
    bool foreign;      /* its text is another client's: it was adopted, or is being so */
    bool ours_before;  /* adopt: what is adopted was a hold of ours already */
    bool yes_or_no;    /* the answer is whether it is more than 0 */
    bool handle_given; /* the caller has the op */

    /* Completion. */
    atomic_uint complete; /* a futex: enum hfi_completion */
    int code;             /* of the result, if there is no work */
    hf_error *error; /* and its words; NULL: those of the code, or there was no memory for others */
    hf_callback callback;
    void *user;
    size_t size; /* of its memory */
};

enum hfi_completion {
    HFI_INCOMPLETE,
    HFI_COMPLETE,
    HFI_AWAITED /* not complete: somebody sleeps */
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
    bool acquires;   /* begins a possession, and takes over what the last one left behind */
    bool releases;   /* its caller is done with the hold, whatever comes of it */
    bool timed;      /* how long it took is kept by name */
    bool gives_back; /* goes on while the client closes, as a settlement would */
    bool lets_go;    /* the core's own: ends what was left behind, and yields to who acquires */
    /* The hold is ours to work on (or the verb needs none): call the engine, or complete. */
    void (*go)(struct hf_op *op);
    /* The engine has finished. Must complete the op. */
    void (*after)(struct hf_op *op);
    /* Nothing more will happen. May be NULL. */
    void (*finished)(struct hf_op *op);
};
extern const struct hfi_verb hfi_verb_acquire, hfi_verb_release, hfi_verb_extend, hfi_verb_adopt,
    hfi_verb_force, hfi_verb_ask, hfi_verb_inspect, hfi_verb_facts, hfi_verb_survey;
/* release.c: of a part of a lock of several, by its stake */
extern const struct hfi_verb hfi_verb_give_back, hfi_verb_run_out;
/* actions.c: of things that nobody holds */
extern const struct hfi_verb hfi_verb_act, hfi_verb_nothing, hfi_verb_take, hfi_verb_await;
/* let_go.c */
extern const struct hfi_verb hfi_verb_let_go, hfi_verb_permits_let_go;
/* permits.c */
extern const struct hfi_verb hfi_verb_permits_acquire, hfi_verb_permits_release,
    hfi_verb_permits_extend;

struct hfi_op_args {
    const struct hfi_verb *verb;
    bool slight;                 /* acquire, for an owner that is new */
    const struct hfi_kind *kind; /* NULL, for src/api only: that of the server itself */
    const char *name;
    size_t name_len;
    hf_owner owner;
    const char *handle; /* adopt: the owner's text; `owner` is what to call it. Else NULL */
    int64_t wait_ms, lease_ms;
    int acks; /* acquire */
    enum hfi_lane lane;
    enum hfi_question question;
    unsigned wanted;    /* survey */
    int64_t token_wish; /* extend */
    enum hfi_act act;
    bool yes_or_no;
    int64_t amount, ttl_ms;
    const unsigned char *ids; /* copied: `ids_len` of HFI_ID_LEN bytes each */
    size_t ids_len;
    hf_permit_id *ret_ids;          /* permits: as many */
    const struct hfi_backoff *spin; /* acquire: copied; NULL: as the kind does */
    hf_lock_info **ret_info;        /* inspect: written before it completes, on success */
    hf_facts **ret_facts;           /* facts: the same */
    hf_fleet **ret_fleet;           /* survey: the same; its `name` is the pattern */
    /* in place of that: what was found, before it is joined with what others find */
    struct hfi_findings **ret_findings;
    struct hfi_exec *exec;
    struct hfi_self *self;
    struct hfi_parts *parts; /* joint kinds: referenced; else NULL */
    struct hfi_stake *stake; /* of a part: acquire leaves it in the hold; referenced, or NULL */
    bool inner;              /* as hf_op has it */
    struct hfi_diary_slot *diary; /* where that of the name is, or will be; NULL: none is kept */
    struct hf_cancel *cancel;
    hf_callback callback;
    /* In place of a callback: called on the operation's executor when it completes. It may still
     * have something to settle then. */
    void (*told)(void *user, const hf_result *result);
    void *user;
};

struct hf_op *hfi_op_new(struct hfi_core *core, const struct hfi_op_args *args);
void hfi_op_begin(struct hf_op *op); /* on its executor's thread */
/* It was made beforehand, and does not wait: its time counts from now. Before it begins. */
void hfi_op_set_off(struct hf_op *op);

/* Adds 1, unless it is an inner one. */
void hfi_op_count(const struct hf_op *op, atomic_ullong *counter);

/* For verbs. */
/* True: it was to have a lease, and its kind has none. Then the op is complete. */
bool hfi_op_refuses_lease(struct hf_op *op);
void hfi_op_call(struct hf_op *op, void (*engine_op)(struct hfi_call *call));
/* After any of these the op must not be touched any more. */
void hfi_op_complete(struct hf_op *op, int err, const hf_error *error);
/* What its command has done, or may still do, is settled: for as long as something with this lease
 * may be at the server, or until then. */
void hfi_op_complete_unsettled(struct hf_op *op, int err, const hf_error *error, int64_t lease_ms);
void hfi_op_complete_unsettled_until(struct hf_op *op, int err, const hf_error *error,
                                     int64_t until_ms);
/* Its caller has the result; the op may go on for its own sake. */
void hfi_op_publish(struct hf_op *op, int err, const hf_error *error);

/* What came of it, once it is complete: where that is, or in `room`. */
const hf_result *hfi_op_result(const struct hf_op *op, hf_result *room);
/* Waits until it is complete. False: it was not by then. Any thread but its executor's. */
bool hfi_op_await(struct hf_op *op, int64_t until_ms);
/* Words for its result, before it is complete. Without memory there are none. */
void hfi_op_keep_words(struct hf_op *op, const hf_error *error);
const hf_error *hfi_op_words(const struct hf_op *op); /* NULL: none were kept */

/* Gives a slight one its work and its hold. HF_OK or HF_ENOMEM. *ret_turn: the hold is its to work
 * on; else it is in line for that. */
int hfi_op_equip(struct hf_op *op, bool *ret_turn);

/* acquire.c: all that the engine has to know, when the hold has been taken so many times. */
void hfi_acquire_fill(struct hf_op *op, int64_t count);

/* park.c: */
/* The engine has returned, and perhaps sleeps: then a slight operation keeps no more than it must. */
void hfi_op_park(struct hf_op *op);
/* Something has happened, or it is time to go on. */
void hfi_op_resume(struct hf_op *op, unsigned events);
void hfi_op_unpark(struct hf_op *op); /* it will not go on; one that is not parked is fine */

/* Between op.c, result.c, park.c and settle.c. */
bool hfi_work_new(struct hf_op *op);  /* false: out of memory */
void hfi_work_free(struct hf_op *op); /* of one that is slight */
void hfi_op_run(struct hfi_task *task, unsigned events);
void hfi_op_call_is_done(struct hfi_call *call);
#define HFI_BRIEF_MS 250 /* a server that can be reached answers sooner */
/* Nothing more will happen: takes the op off all lists, and drops the list's reference. */
void hfi_op_finish(struct hf_op *op);
/* Gives the turn to the next operation on its hold, if it has one. */
void hfi_op_leave_turn_locked(struct hf_op *op);
void hfi_op_look_if_done(struct hf_op *op); /* the engine has returned */
/* The same for one that ends with `err`, and for its gate. False: it has the turn, and was handed what a settlement had
 * not finished, which it has to settle first. */
bool hfi_op_leave_turn(struct hf_op *op, int err);
void hfi_op_settle(struct hf_op *op);  /* begins */
void hfi_op_settled(struct hf_op *op); /* the engine has finished with it */
/* The next operation acquires again, and so takes over what this one was to undo. */
void hfi_op_yield_turn(struct hf_op *op);
/* The client closes, and the settlement is not worth waiting for. */
bool hfi_op_is_hopeless(const struct hf_op *op);
bool hfi_op_is_too_long(const struct hf_op *op);

/* line_up.c: */
void hfi_op_wait_in_line(struct hf_op *op, enum hfi_op_state state);
/* in line, and its alarm has fired */
void hfi_op_waited(struct hf_op *op);
void hfi_op_wait_is_over(struct hf_op *op);

/* op_lost.c */
/* Completes with the loss that was taken. */
void hfi_op_fail_lost(struct hf_op *op);
/* The server says that the hold is gone: ends it, and completes with HF_ELOST. */
void hfi_op_found_lost(struct hf_op *op, const char *reason);
/* If the deadline passed and the hold's end was told while this command was under way, its answer
 * comes too late: completes with HF_ELOST, and what the server still has of it is released. True:
 * the op is complete. */
bool hfi_op_ended_meanwhile(struct hf_op *op);

/* actions.c: the steps of its verbs, for others like them. */
void hfi_count_failure(const struct hf_op *op, int err);
void hfi_take_failed(struct hf_op *op); /* counts, and completes with what the engine said */
void hfi_count_taken(struct hf_op *op); /* one more that was acquired */
/* It has been acquired now: how long that took. */
void hfi_count_times(const struct hf_op *op);

#endif
