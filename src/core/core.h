/*
 * The core: what is true of every lock on every engine.
 *
 *   core.c      the core of one client: making it, ending it, statistics
 *   hold.c      holds: one record per place on the server, whose turn it is, losing one
 *   gate.c      one remote waiter per process and name; the others queue here
 *   scope.c     locks that are a part of something, and may have something in common
 *   op.c        operations: the task behind every verb, from start to callback
 *   line_up.c   operations that wait in line, behind another on their hold or at a gate
 *   acquire.c   the verb acquire
 *   verbs.c     the other verbs of locks: release, extend, break, questions
 *   loss.c      what a verb does when its hold is lost
 *   actions.c   the verbs of things that nobody holds
 *   permits.c   the verbs of permits, which are holds by their ids
 *   cancel.c    switches that end waits from another thread
 *   watchdog.c  renewals, deadlines, warnings, threads that ended
 *   verify.c    news of holds that may be gone: listening for it, asking the server
 *   let_go.c    ending at the server what was given up without a release
 *
 * Lock order: a shard, then (inside hfi_task_post) a task, then its executor. The engine is never
 * called under a shard.
 */
#ifndef HFI_CORE_CORE_H
#define HFI_CORE_CORE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/self.h"
#include "base/task.h"
#include "engine/engine.h"

#define HASH_NONFATAL_OOM 1
#define uthash_malloc(size) hfi_alloc(mem, size) /* a `mem` is in scope wherever a table changes */
#define uthash_free(ptr, size) hfi_free(mem, ptr)
#include <uthash.h>

#include <sys/types.h>

#define HFI_SHARDS 16
#define HFI_OWNER_MAX 64 /* "uuid:number" and a NUL */

struct hfi_core;
struct hfi_verb;

/* Something for the dispatcher to run: a completed operation, or trouble with a hold. */
struct hfi_notice {
    struct hfi_link link;
    void (*run)(struct hfi_notice *notice);
};

struct hfi_counters {
    atomic_ullong acquired, contended, timed_out, cancelled, released, renewals, renew_failures,
        losses, unknowns, notify_failures, reconnects, commands, holds;
};

struct hfi_times {
    atomic_ullong count, sum_us, max_us, buckets[32];
};

/* What core needs of the layer above it. */
struct hfi_core_hooks {
    /* Runs the notice on the dispatcher. Any thread. */
    void (*dispatch)(void *arg, struct hfi_notice *notice);
    /* Trouble with a hold: any thread, no mutex held. True: somebody wants a callback, so dispatch
     * the notice. */
    bool (*trouble)(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                    hf_event_kind event);
    /* On the dispatcher: call the callbacks. */
    void (*tell)(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                 const char *owner, const hf_event *event);
    /* An operation begins (retain) or ceases (forget) to need the client's memory; it may outlive
     * the client. */
    void (*retain)(void *arg);
    void (*forget)(void *arg);
    void (*idle)(void *arg); /* closing: the last operation of a shard has ended */
    void *arg;
};

struct hfi_shard {
    pthread_mutex_t mtx;
    struct hfi_hold *holds; /* by place */
    char *long_place;       /* room for the place of any hold here */
    size_t long_place_room;
    struct hfi_gate *gates; /* by name */
    struct hfi_link ops;    /* everything that is not finished */
    /* memory of an operation that has ended, for the next one; not guarded */
    void *_Atomic spare_op;
};

struct hfi_core {
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_engine *engine;
    struct hfi_exec *keeper;
    struct hfi_core_hooks hooks;
    char id[37];
    pid_t pid; /* a child of fork() must not touch anything */
    int64_t cmd_timeout_ms, watchdog_ms, max_hold_ms;
    atomic_bool closing;
    atomic_bool abandoning; /* closing, and even what is not settled must end now */
    struct hfi_shard shards[HFI_SHARDS];
    struct hfi_counters counters;
    struct hfi_times wait, hold;

    struct hfi_task *watchdog; /* gathers renewals; told when threads end */
    struct hfi_link due;       /* holds to renew, on the keeper's thread */

    struct {
        struct hfi_link holds; /* to be let go; on the keeper's thread, like the rest */
        unsigned running;      /* operations that do it */
        struct hfi_alarm alarm;
    } let_go;

    /* Some hold is old enough for its loss to be worth hearing of at once. Written on the keeper's
     * thread. */
    atomic_bool listening;
    struct hfi_alarm listen_alarm;
    bool has_old_hold; /* found while looking, on the keeper's thread */
};

/* ---- Holds ---- */

enum hfi_trouble { HFI_WARNING, HFI_LOST, HFI_ORPHANED, HFI_TROUBLES };

struct hfi_trouble_notice {
    struct hfi_notice notice;
    struct hfi_hold *hold; /* referenced while queued */
    enum hfi_trouble kind;
    bool queued;
    int64_t remaining_ms;
};

struct hfi_hold {
    UT_hash_handle hh;
    atomic_int refs; /* the table, an armed alarm, queued notices, a renewal, operations */
    struct hfi_core *core;
    struct hfi_shard *shard;
    const struct hfi_kind *kind;

    /* Guarded by the shard. */
    int64_t count;
    uint64_t generation; /* of the possession: changes when it begins and ends */
    int64_t deadline_ms; /* trust it no longer than this */
    int64_t lease_ms;    /* the longest lease given so far */
    int64_t token;
    int64_t since_us;
    bool watchdog; /* is renewed */
    /* its owner is never used again, so a loss that nobody asks about is forgotten in the end */
    bool ephemeral;
    int64_t forget_ms; /* when */
    bool kept_fresh;   /* its fixed lease is set again now and then, up to its end */
    /* Granted for this long only: the first renewal gives it its lease, which then lasts until
     * promised_until_ms. 0: it has its lease. */
    int64_t provisional_ms, promised_until_ms;
    bool lost; /* ended without our release; the next call reports it */
    bool warned, renewing, orphaned;
    /* `active` is over for its caller, but the server has not answered yet */
    bool settling;
    int64_t renew_at_ms;
    bool renews_exactly;           /* then, and not a little earlier with others: it was refused */
    int64_t renewal_until_ms;      /* a renewal was sent that may still act until then; 0: none */
    int64_t lost_renewal_until_ms; /* the same of one that was given up */
    /* The server is to be asked then if the hold is still there; 0: not. */
    int64_t verify_at_ms;
    int64_t verified_ms;  /* when it was last asked for that reason */
    bool verifying;       /* the renewal under way is such a question */
    bool renewal_awaited; /* by `active`, which must not begin a possession before that */
    /* Something of a former possession, or of a wait for one, may still be there: a settlement was
     * broken off, or the hold was given up without a release. */
    bool leftover;
    bool ran_out;                   /* the last possession did, at its deadline */
    bool letting_go;                /* the keeper is to end it, or is about to */
    int64_t let_go_at_ms;           /* and when it begins with that */
    const struct hfi_kind *held_as; /* the kind of the handle by which it was acquired last */
    bool silent;            /* the server did not answer (it is not that we stopped listening) */
    int64_t quiet_until_ms; /* a copy of a former command may act until then: send nothing before */
    const char *reason;
    /* releases in `queue` that nobody waits for any more: for their callers they are done */
    int64_t leaving;
    struct hf_op *active; /* one command per hold at a time */
    struct hfi_link queue;
    struct hfi_self *self; /* the thread whose default owner this is, or NULL */

    struct hfi_alarm alarm;   /* on the keeper */
    struct hfi_link due_link; /* in core->due */
    struct hfi_link let_go_link;
    struct hfi_trouble_notice troubles[HFI_TROUBLES];

    hf_owner number;
    size_t name_len, owner_len, place_len;
    char *name; /* all three in one allocation behind the struct */
    char *owner;
    char *place;
};

/* Finds or makes the record. Shard locked. NULL: out of memory. */
struct hfi_hold *hfi_hold_get_locked(struct hfi_core *core, struct hfi_shard *shard,
                                     const struct hfi_kind *kind, const char *name, size_t name_len,
                                     hf_owner number);
/* Finds it only. */
struct hfi_hold *hfi_hold_find_locked(struct hfi_core *core, struct hfi_shard *shard,
                                      const struct hfi_kind *kind, const char *name,
                                      size_t name_len, hf_owner number);
/* The same for an owner that is not a number: a permit, by its id. Makes the record only if
 * `make`. */
struct hfi_hold *hfi_hold_of_locked(struct hfi_core *core, struct hfi_shard *shard,
                                    const struct hfi_kind *kind, const char *name, size_t name_len,
                                    const char *owner, size_t owner_len, bool make);
/* Removes the record from the table if nothing needs it any more. */
void hfi_hold_tidy_locked(struct hfi_hold *hold);
void hfi_hold_ref(struct hfi_hold *hold);
void hfi_hold_unref(struct hfi_hold *hold);

/* The possession ends without our release. Returns true if that is news: then call
 * hfi_hold_report() unlocked. */
bool hfi_hold_lose_locked(struct hfi_hold *hold, const char *reason);
/* Its deadline has passed, but the keeper has not noticed yet. */
bool hfi_hold_expired_locked(const struct hfi_hold *hold);
/* Its deadline has passed: it is lost, and what the server may still have of it is to be ended. */
bool hfi_hold_run_out_locked(struct hfi_hold *hold);
/* The possession ends by our release. */
void hfi_hold_end_locked(struct hfi_hold *hold);
/* Tells the listeners. No mutex may be held; it keeps the record alive by itself. */
void hfi_hold_report(struct hfi_hold *hold, enum hfi_trouble kind);

/* By the scope of a name, so that all holds of one scope are in one shard. */
struct hfi_shard *hfi_core_shard(struct hfi_core *core, const char *scope, size_t scope_len);

/* ---- Scopes: locks that are a part of something (scope.c) ---- */

/* Under a name that others know, e.g. one that was broken. */
bool hfi_hold_is_in_scope(const struct hfi_hold *hold, const char *scope, size_t scope_len);
/* It is of this kind, and has something in common with the lock of this name. */
bool hfi_hold_overlaps(const struct hfi_hold *hold, const struct hfi_kind *kind, const char *name,
                       size_t name_len);

enum hfi_entanglement {
    HFI_APART,
    HFI_ENDING, /* something of another hold may still be there, but not for long */
    HFI_HELD    /* another one is held, or is being acquired */
};
/* Whether another hold of the operation's owner, in the same scope, has something in common with
 * the one that it wants. If not, no other acquire of this owner's gets in its way from now on. */
enum hfi_entanglement hfi_scope_claim_locked(struct hf_op *op);

/* ---- Gates ---- */

/* Lines up for a name. True: it is this operation's turn (or there was no memory for a gate, and
 * then everybody goes). */
bool hfi_gate_enter_locked(struct hfi_shard *shard, struct hf_op *op);
/* in line, active or neither */
void hfi_gate_leave_locked(struct hfi_shard *shard, struct hf_op *op);
/* In line: when to look whether the one in front is stuck. HFI_NEVER: it is in front itself. */
int64_t hfi_gate_look_at_ms_locked(const struct hf_op *op);
/* Looks. True: it was, and now this operation is in front. */
bool hfi_gate_take_over_locked(struct hf_op *op);
/* The one in front has waited for the server in vain. Those in line who have waited as long would
 * hear the same, each after waiting again: they are told now. */
void hfi_gate_share_failure_locked(const struct hf_op *op);
/* Who waits at the server meanwhile; NULL: nobody that we know of. */
const struct hf_op *hfi_gate_front_locked(const struct hf_op *op);

/* ---- Cancel switches ---- */

void hfi_cancel_attach(struct hf_cancel *cancel, struct hf_op *op);
void hfi_cancel_detach(struct hf_op *op); /* one that has no switch is fine */

/* ---- Watchdog ---- */

int hfi_watchdog_init(struct hfi_core *core);
void hfi_watchdog_stop(struct hfi_core *core);
/* (Re)arms the hold's alarm after its times have changed. */
void hfi_watchdog_arm_locked(struct hfi_hold *hold);
void hfi_watchdog_disarm_locked(struct hfi_hold *hold);
/* For a hold that nobody has any more: tidies it up at that time, when no renewal can act any more
 * or its loss is to be forgotten. */
void hfi_watchdog_look_later_locked(struct hfi_hold *hold, int64_t at_ms);
/* Visits every hold, shard by shard. `visit` runs under the shard's mutex. */
void hfi_for_each_hold(struct hfi_core *core, void (*visit)(struct hfi_hold *hold));

/* ---- Verification (verify.c) ---- */

/* A hold of this age is worth listening for, since whoever breaks it wants to be noticed. */
#define HFI_REPORT_AFTER_MS 1000

void hfi_verify_init(struct hfi_core *core);
/* Some hold has reached that age. On the keeper's thread. */
void hfi_listen(struct hfi_core *core);
/* Asks the server at once if it still has the hold, and at most ten times a second. Keeper. */
void hfi_verify_locked(struct hfi_hold *hold);

/* ---- Letting go (let_go.c), on the keeper's thread ---- */

void hfi_let_go_init(struct hfi_core *core);
/* There may be something left of a hold that is over: has it ended. */
void hfi_let_go_locked(struct hfi_hold *hold);
/* The same when a settlement has ended: the hold may have run out meanwhile. */
void hfi_let_go_rest_locked(struct hfi_hold *hold);
/* Begins with what was listed; no mutex may be held. */
void hfi_let_go_begin(struct hfi_core *core);
void hfi_let_go_stop(struct hfi_core *core); /* after the keeper has ended */

/* ---- The core ---- */

int hfi_core_init(struct hfi_core *core);
void hfi_core_clear(struct hfi_core *core);     /* after everything has ended */
bool hfi_core_is_idle(struct hfi_core *core);   /* no operation is unfinished */
void hfi_core_close_ops(struct hfi_core *core); /* asks every operation to end with HF_ECLOSED */
void hfi_times_add(struct hfi_times *times, int64_t us);
void hfi_count(atomic_ullong *counter);
/* Writes "uuid:number" and a NUL to HFI_OWNER_MAX bytes; returns its length. Hand-written, since
 * every operation needs it. */
size_t hfi_owner_text(const struct hfi_core *core, hf_owner number, char *text);

#endif
