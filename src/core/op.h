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
    HFI_OP_SETTLING,
    HFI_OP_DONE
};

struct hf_op {
    /* First: the reference count is its. Its caller, the shard's list until it is finished, a notice
     * with its callback, and those of every task. */
    struct hfi_task task;
    struct hfi_core *core;
    struct hfi_shard *shard;
    const struct hfi_verb *verb;
    enum hfi_op_state state;
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
    enum hfi_lane lane;

    struct hfi_hold *hold; /* referenced; NULL for verbs without one */
    struct hfi_link shard_link, hold_link;
    struct hfi_link gate_link;
    struct hfi_gate *gate;
    int shared_err; /* of the one in front, which is true of this one as well; result.error has the
                       words. Guarded by the shard */
    struct hfi_alarm alarm; /* for waiting in line */
    struct hf_cancel *cancel;
    struct hfi_link cancel_link; /* guarded by the switch */

    hf_owner owner;
    bool foreign;     /* its text is another client's: it was adopted, or is being so */
    bool ours_before; /* adopt: what is adopted was a hold of ours already */
    int64_t lease_ms; /* as asked for */
    int acks;         /* the same; 0: as the core has it */
    int64_t wait_ms;
    int64_t start_us, deadline_ms;
    bool yes_or_no;          /* the answer is whether it is more than 0 */
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

    struct hfi_call call;
    size_t size; /* of its memory: the engine's state, the name and the ids are behind the struct */
    char owner_text[HFI_OWNER_MAX];

    /* Completion. */
    pthread_mutex_t mtx;
    pthread_cond_t cond;
    bool complete;
    hf_result result;
    struct hfi_notice notice;
    hf_callback callback;
    void (*told)(void *user, const hf_result *result);
    void *user;
    bool handle_given; /* the caller has the op */
};

/* What a verb does; a const table each. */
struct hfi_verb {
    const char *name;
    bool takes_turn; /* one at a time per hold */
    bool waits;      /* for up to wait_ms, and can be cancelled */
    bool acquires;   /* begins a possession, and takes over what the last one left behind */
    bool releases;   /* its caller is done with the hold, whatever comes of it */
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
    const struct hfi_kind *kind; /* NULL, for src/api only: that of the server itself */
    const char *name;
    size_t name_len;
    hf_owner owner;
    const char *handle; /* adopt: the owner's text; `owner` is what to call it. Else NULL */
    int64_t wait_ms, lease_ms;
    int acks; /* acquire */
    enum hfi_lane lane;
    enum hfi_question question;
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

/* Between op.c and settle.c. */
#define HFI_BRIEF_MS 250 /* a server that can be reached answers sooner */
/* Nothing more will happen: takes the op off all lists, and drops the list's reference. */
void hfi_op_finish(struct hf_op *op);
/* Gives the turn to the next operation on its hold, if it has one. */
void hfi_op_leave_turn_locked(struct hf_op *op);
void hfi_op_look_if_done(struct hf_op *op); /* the engine has returned */
/* After a settlement was broken off, whoever has the turn has to finish it, unless somebody else is
 * next. */
bool hfi_op_must_settle_leftover(struct hf_op *op, int err);
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

#endif
