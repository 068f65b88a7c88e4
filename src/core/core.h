/*
 * The core: what is common to all locks on all engines.
 *
 * core.c                       the core of one client: making it, ending it, statistics
 * hold.c                       the state of a hold, with all transitions (hold.h has the diagram)
 * hold_table.c                 holds: one record per place on the server and owner
 * loss_report.c                loss notifications of a hold
 * overlap.c                    locks that overlap: no owner may hold both
 * alias.c                      adopted owners of other clients
 * parts.c                      joint locks: the stakes of their holds in each part
 * watchdog.c                   a hold's alarm: deadlines, warnings, renewals; threads that ended
 * renewal_batches.c            renewals, batched by node, and their answers
 * engine_events.c              unsolicited events of the engine about holds
 * op_new.c, op.c, op_result.c  operations: the task behind every verb, from start to callback
 * op_queue.c                   operations queued behind another on their hold or name
 * op_settle.c                  operations that completed for their callers, but not at the server
 * op_lost.c                    what a verb does when its hold is lost
 * local_queue.c                one remote waiter per process and name; other waiters queue here
 * park.c                       waiting operations in as little memory as possible
 * cancel.c                     cancel switches: end waits from another thread
 * acquire.c, release.c, extend.c, adopt.c, break.c, queries.c   the verbs of locks
 * counter_ops.c                the verbs of ownerless objects
 * permits.c                    the verbs of permits, which are holds by their ids
 * forget.c                     holds whose owners cannot release them any more
 * abandon.c                    operations whose results nobody will see: undone
 * expired_release.c            releases at the server what was given up without a release
 * break_subscription.c         when the engine subscribes to breaks and surveys
 * survey_report.c              answers surveys: what this client holds and waits for
 * name_stats.c                 latencies by name
 *
 * Lock order: a shard, then (inside hfi_task_post) a task, then its executor. With a shard locked
 * the only engine call is node_of.
 */
#ifndef HFI_CORE_CORE_H
#define HFI_CORE_CORE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/table.h"
#include "core/observe/name_stats.h"
#include "engine/engine.h"
#include "task/task.h"
#include "task/thread_record.h"

#include <sys/types.h>

#define HFI_SHARDS 16
#define HFI_FAILED_NODES_MAX 64
#define HFI_OWNER_MAX 64 /* "uuid:number" and a NUL */

struct hfi_core;
struct hfi_alias;
struct hfi_hold;
struct hfi_verb;

/* Work for the dispatcher: a completed operation, or a loss notification. */
struct hfi_notice {
    struct hfi_link link;
    void (*run)(struct hfi_notice *notice);
};

struct hfi_counters {
    atomic_ullong acquired, contended, timed_out, cancelled, released, renewals, renew_failures,
        losses, in_doubt, notify_failures, reconnects, commands, holds, failovers, redirects,
        ack_failures, tracked, track_events, track_false;
};

/* What the core needs of the layer above it. */
struct hfi_core_hooks {
    /* Runs the notice on the dispatcher. Any thread. */
    void (*dispatch)(void *arg, struct hfi_notice *notice);
    /* A loss or a warning: any thread, no mutex held. True: a handle has a callback, so dispatch
     * the notice. */
    bool (*loss_event)(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                       hf_event_kind event);
    /* On the dispatcher: call the callbacks. */
    void (*run_callbacks)(void *arg, const struct hfi_kind *kind, const char *name, size_t name_len,
                          const char *owner, const hf_event *event);
    /* An operation begins (retain) or ceases (forget) to need the client's memory; it may outlive
     * the client. */
    void (*retain)(void *arg);
    void (*forget)(void *arg);
    /* Between these the client is not closed, and operations may be started from outside. enter:
     * false if it is closing; then leave must not follow. Any thread. */
    bool (*enter)(void *arg);
    void (*leave)(void *arg);
    /* Holds in this scope were proved again, or lost: joint locks that depend on them check again.
     * Any thread, no mutex held. NULL: none. */
    void (*changed)(void *arg, const struct hfi_scope *scope);
    /* The server has answered that it has this hold; it was asked at `sent_ms` or later. On the
     * keeper's thread, no mutex held. NULL: none. */
    void (*found)(void *arg, const struct hfi_hold *hold, int64_t sent_ms);
    /* closing: the last operation of a shard has ended, or the last announcement */
    void (*idle)(void *arg);
    void *arg;
};

struct hfi_shard {
    pthread_mutex_t mtx;
    struct hfi_table holds; /* by place */
    char *long_place;       /* room for the place of any hold here */
    size_t long_place_room;
    struct hfi_table local_queues; /* by name */
    struct hfi_link ops;           /* all unfinished operations */
    struct hfi_link lost;          /* lost holds whose owners are not threads, and may never ask */
    size_t lost_len;
    /* memory of an ended operation, and of an ended operation's work, for reuse; not guarded */
    void *_Atomic spare_op, *_Atomic spare_work;
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
    int64_t clock_drift_ppm;
    int64_t watchdog_trusted_ms; /* the part of watchdog_ms that we can trust */
    int64_t report_after_ms;     /* as in hf_options, like the next */
    int acks;
    int64_t since_ms;          /* when it was made */
    char under[HFI_OWNER_MAX]; /* the owner for whom this process runs; "": unknown */
    atomic_bool closing;
    atomic_bool abandoning; /* closing, and even unsettled operations must end now */
    /* give-back operations posted but not begun, and possessions that may have to be given back */
    atomic_size_t returns;
    struct hfi_shard shards[HFI_SHARDS];
    struct hfi_counters counters;
    struct hfi_times wait, hold, hand_over;
    /* the same by name; NULL: this core keeps none, and has no handles */
    struct hfi_name_stats_table *stats_table;

    struct {
        pthread_mutex_t mtx;
        struct hfi_table by_number;
        atomic_size_t len;
    } aliases;

    struct hfi_engine_events engine_events; /* for the engine */
    struct hfi_task *watchdog;              /* batches renewals; is notified when threads end */
    struct hfi_link due;                    /* holds to renew, on the keeper's thread */

    struct {
        struct hfi_link holds; /* to be released; on the keeper's thread, like the rest */
        unsigned running;      /* operations doing that */
        struct hfi_alarm alarm;
    } expired_release;

    /* Some hold is old enough to listen for its break, or some hold or wait for surveys. Written on
     * the keeper's thread. */
    atomic_bool listening;
    struct hfi_alarm listen_alarm;
    bool has_old_hold; /* found by the last check, on the keeper's thread */
    /* nodes at which the last renewal failed, which was logged; the keeper's, too */
    const void *renewals_fail_at[HFI_FAILED_NODES_MAX];
    size_t renewals_fail_len;
    atomic_bool watches_waits; /* wait_alarm is set, or about to be */
    struct hfi_alarm wait_alarm;
};

/* ---- Local queues ---- */

/* Queues for a name. True: it is this operation's turn (or there was no memory for a queue: then
 * every operation goes). */
bool hfi_local_queue_enter_locked(struct hfi_shard *shard, struct hf_op *op);
/* queued, active or neither */
void hfi_local_queue_leave_locked(struct hfi_shard *shard, struct hf_op *op);
/* Queued: when to check whether the operation in front is stuck. HFI_NEVER: it is in front
 * itself. */
int64_t hfi_local_queue_check_at_ms_locked(const struct hf_op *op);
/* Checks. True: the front was stuck, and now this operation is in front. */
bool hfi_local_queue_take_over_locked(struct hf_op *op);
/* The front operation has waited for the server in vain. Queued operations that have waited as long
 * would get the same result after another wait, so they get it now. */
void hfi_local_queue_share_failure_locked(const struct hf_op *op);
/* The operation that waits at the server; NULL: none that we know of. */
const struct hf_op *hfi_local_queue_front_locked(const struct hf_op *op);

/* ---- Cancel switches ---- */

/* Made by the parent of this process: it must not be used here. NULL is fine. */
bool hfi_cancel_is_forked(const struct hf_cancel *cancel);
void hfi_cancel_attach(struct hf_cancel *cancel, struct hf_op *op);
void hfi_cancel_detach(struct hf_op *op); /* one without a switch is fine */

/* ---- Watchdog ---- */

/* Events of its task. */
#define HFI_WATCHDOG_GATHER 0x01u
#define HFI_WATCHDOG_EXPIRED_RELEASE 0x08u /* another thread has left a residue of a hold behind */
#define HFI_WATCHDOG_RELEASE_AWAITED 0x10u /* an acquire waits for such a release */

int hfi_watchdog_init(struct hfi_core *core);
void hfi_watchdog_stop(struct hfi_core *core);
/* (Re)arms the hold's alarm after its times have changed. */
void hfi_watchdog_arm_locked(struct hfi_hold *hold);
void hfi_watchdog_disarm_locked(struct hfi_hold *hold);
/* For a hold that is not held: tidies it up at `at_ms`. By then no renewal can act any more, or its
 * loss can be forgotten. */
void hfi_watchdog_check_at_locked(struct hfi_hold *hold, int64_t at_ms);
/* The hold's alarm has fired. */
void hfi_watchdog_fired(struct hfi_alarm *alarm);

/* ---- Renewals (renewal_batches.c), on the keeper's thread ---- */

/* It is due: it goes with the next batch of its node. */
void hfi_renewals_add_locked(struct hfi_hold *hold);
/* Sends those that are due. */
void hfi_renewals_send(struct hfi_core *core);

/* ---- Engine events (engine_events.c), on the keeper's thread ---- */

void hfi_engine_events_init(struct hfi_core *core);
/* The engine's answer; NULL: there is only one node. */
const void *hfi_node_of(struct hfi_core *core, const struct hfi_hold *hold);

struct hfi_losing {
    struct hfi_scope scope;
    int64_t since_before_us; /* only possessions older than this; HFI_NEVER: all */
    bool only_idle;          /* skip holds with a command in flight: its answer will tell */
    const char *reason;
};
/* They are lost, and the losses are reported. Any thread, no mutex held. */
void hfi_lose_holds(struct hfi_core *core, const struct hfi_losing *losing);

/* ---- Listening (break_subscription.c) ---- */

/* The age at which the client listens for breaks of a hold, and reports holds and waits to
 * surveys. */
int64_t hfi_listen_after_ms(const struct hfi_core *core);

void hfi_listen_init(struct hfi_core *core);
/* Some hold has reached that age. On the keeper's thread. */
void hfi_listen(struct hfi_core *core);
/* An operation has begun to wait. Any thread. */
void hfi_listen_for_waits(struct hfi_core *core);

/* ---- Survey reports (survey_report.c), on the keeper's thread ---- */

/* Its `arg` is the core. */
extern const struct hfi_reporter hfi_core_reporter;
/* Tells surveyors of a loss of this client. Any thread, no mutex held. */
void hfi_announce_loss(struct hfi_core *core);
bool hfi_is_announcing_loss(const struct hfi_core *core);
/* How many operations wait here, and since when the longest has waited; HFI_NEVER: none. Any
 * thread, no mutex held. */
struct hfi_waits {
    uint64_t len;
    int64_t since_ms;
};
struct hfi_waits hfi_survey_entry_waits(struct hfi_core *core);
int64_t hfi_survey_entry_oldest_wait_ms(struct hfi_core *core); /* the same, without counting */

/* Renewals due within this time go together. */
static inline int64_t hfi_renewal_slot_ms(const struct hfi_core *core) {
    return core->watchdog_ms / 3 / 16;
}

/* ---- Expired releases (expired_release.c), on the keeper's thread ---- */

void hfi_expired_release_init(struct hfi_core *core);
/* A hold that is over may have a residue: plans to release it. */
void hfi_expired_release_locked(struct hfi_hold *hold);
/* The same when a settlement has ended: the hold may have expired meanwhile. */
void hfi_expired_release_rest_locked(struct hfi_hold *hold);
/* Lists all holds with a residue, and begins. */
void hfi_expired_release_check(struct hfi_core *core);
/* Puts those holds first whose release an acquire waits for, and begins. */
void hfi_expired_release_hasten(struct hfi_core *core);
/* Begins with the list; no mutex may be held. */
void hfi_expired_release_begin(struct hfi_core *core);
void hfi_expired_release_stop(struct hfi_core *core); /* after the keeper has ended */

/* ---- Forgetting (forget.c) ---- */

/* The hold is not renewed any more. HF_OK, HF_ENOTOWNER, or HF_ELOST with a text. Any thread. */
int hfi_forget(struct hfi_core *core, const struct hfi_kind *kind, const char *name,
               size_t name_len, hf_owner owner, hf_error *error);

/* ---- The core ---- */

int hfi_core_init(struct hfi_core *core);
void hfi_core_clear(struct hfi_core *core);   /* after everything has ended */
bool hfi_core_is_idle(struct hfi_core *core); /* no operation is unfinished */
/* One of `returns` has begun or is gone; no mutex may be held. */
void hfi_note_return(struct hfi_core *core);
void hfi_core_close_ops(struct hfi_core *core); /* asks every operation to end with HF_ECLOSED */
void hfi_count(atomic_ullong *counter);
/* Writes "uuid:number" and a NUL to HFI_OWNER_MAX bytes; returns its length. Hand-written, since
 * every operation needs it. The text of an alias is another client's. */
size_t hfi_owner_text(struct hfi_core *core, hf_owner number, char *text);
/* Parses such a text, from any source: the uuid in lower case, the number without leading zeros. */
bool hfi_owner_parse(const char *text, hf_owner *ret_number);
/* Whether it is an owner of another client. */
bool hfi_owner_is_foreign(const struct hfi_core *core, const char *text);
/* Reads a token of a stamped hold, "uuid:number:bits". False: it is none. */
bool hfi_stamped_parse(const char *token, hf_owner *ret_number, uint64_t *ret_bits);

/* ---- Aliases (alias.c) ---- */

void hfi_aliases_init(struct hfi_core *core);
void hfi_aliases_clear(struct hfi_core *core); /* when there are no holds any more */
/* As hfi_owner_text(); 0: the number is no alias. */
size_t hfi_alias_text(struct hfi_core *core, hf_owner number, char *text);
/* From now on the number stands for this text. NULL: out of memory. */
struct hfi_alias *hfi_alias_ref(struct hfi_core *core, hf_owner number, const char *text,
                                size_t len);
void hfi_alias_unref(struct hfi_core *core, struct hfi_alias *alias); /* NULL is fine */

#include "core/hold/hold.h"

#endif
