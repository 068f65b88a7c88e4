/*
 * The core: what is true of every lock on every engine.
 *
 *   core.c        the core of one client: making it, ending it, statistics
 *   hold.c        the state of a hold: every transition there is (hold.h has the picture)
 *   hold_table.c  holds: one record per place on the server and owner
 *   report.c      telling the listeners of trouble with a hold
 *   gate.c        one remote waiter per process and name; the others queue here
 *   op_new.c, op.c, result.c
 *                 operations: the task behind every verb, from start to callback
 *   park.c        those that wait, as small as can be
 *   settle.c      operations that are over for their callers, but not at the server
 *   op_lost.c     what a verb does when its hold is lost
 *   line_up.c     operations that wait in line, behind another on their hold or at a gate
 *   acquire.c, release.c, extend.c, adopt.c, break.c, questions.c
 *                 the verbs of locks
 *   alias.c       owners of other clients that were adopted
 *   actions.c     the verbs of things that nobody holds
 *   permits.c     the verbs of permits, which are holds by their ids
 *   cancel.c      switches that end waits from another thread
 *   watchdog.c    a hold's alarm: deadlines, warnings, when to renew; threads that ended
 *   renewals.c    renewals in batches, a node's each, and their answers
 *   news.c        what the engine says of holds without having been asked
 *   listen.c      whether the engine is to listen for such news, and for questions
 *   standing.c    answering them: what is held and waited for
 *   let_go.c      ending at the server what was given up without a release
 *   parts.c       locks of several: what their holds have at each of them
 *   diary.c       how long it all took, by name
 *
 * Lock order: a shard, then (inside hfi_task_post) a task, then its executor. Under a shard the
 * engine is only asked where something is (node_of).
 */
#ifndef HFI_CORE_CORE_H
#define HFI_CORE_CORE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/self.h"
#include "base/table.h"
#include "base/task.h"
#include "core/diary.h"
#include "engine/engine.h"

#define HASH_NONFATAL_OOM 1
#define uthash_malloc(size) hfi_alloc(mem, size) /* a `mem` is in scope wherever a table changes */
#define uthash_free(ptr, size) hfi_free(mem, ptr)
#include <uthash.h>

#include <sys/types.h>

#define HFI_SHARDS 16
#define HFI_OWNER_MAX 64 /* "uuid:number" and a NUL */

struct hfi_core;
struct hfi_alias;
struct hfi_hold;
struct hfi_verb;

/* Something for the dispatcher to run: a completed operation, or trouble with a hold. */
struct hfi_notice {
    struct hfi_link link;
    void (*run)(struct hfi_notice *notice);
};

struct hfi_counters {
    atomic_ullong acquired, contended, timed_out, cancelled, released, renewals, renew_failures,
        losses, unknowns, notify_failures, reconnects, commands, holds, switches, redirects,
        ack_failures;
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
    /* Between these the client is not closed, and operations may be started from outside. enter: false
     * if it is closing; then leave must not follow. Any thread. */
    bool (*enter)(void *arg);
    void (*leave)(void *arg);
    /* Holds in this scope were proved anew, or lost: whoever counts on them looks again. Any thread,
     * no mutex held. NULL: nobody does. */
    void (*changed)(void *arg, const struct hfi_scope *scope);
    void (*idle)(void *arg); /* closing: the last operation of a shard has ended */
    void *arg;
};

struct hfi_shard {
    pthread_mutex_t mtx;
    struct hfi_table holds; /* by place */
    char *long_place;       /* room for the place of any hold here */
    size_t long_place_room;
    struct hfi_table gates; /* by name */
    struct hfi_link ops;    /* everything that is not finished */
    /* memory of an operation that has ended, and of the work of one, for the next; not guarded */
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
    int64_t report_after_ms; /* as hf_options has it, like the next */
    int acks;
    int64_t since_ms;          /* it was made then */
    char under[HFI_OWNER_MAX]; /* the owner for whom this process runs; "": nobody is known */
    atomic_bool closing;
    atomic_bool abandoning; /* closing, and even what is not settled must end now */
    /* operations that give back, posted and not begun yet; and what may have to be given back */
    atomic_size_t returns;
    struct hfi_shard shards[HFI_SHARDS];
    struct hfi_counters counters;
    struct hfi_times wait, hold, hand_over;
    struct hfi_diaries *diaries; /* the same by name; NULL: it keeps none, and has no handles */

    struct {
        pthread_mutex_t mtx;
        struct hfi_table by_number;
        atomic_size_t len;
    } aliases;

    struct hfi_news news;      /* for the engine */
    struct hfi_task *watchdog; /* gathers renewals; told when threads end */
    struct hfi_link due;       /* holds to renew, on the keeper's thread */

    struct {
        struct hfi_link holds; /* to be let go; on the keeper's thread, like the rest */
        unsigned running;      /* operations that do it */
        struct hfi_alarm alarm;
    } let_go;

    /* Some hold is old enough for its loss to be worth hearing of at once, or it or some wait for being
     * asked about. Written on the keeper's thread. */
    atomic_bool listening;
    struct hfi_alarm listen_alarm;
    bool has_old_hold;         /* found while looking, on the keeper's thread */
    atomic_bool watches_waits; /* wait_alarm is set, or about to be */
    struct hfi_alarm wait_alarm;
};

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

/* Events of its task. */
#define HFI_WATCHDOG_GATHER 0x01u

int hfi_watchdog_init(struct hfi_core *core);
void hfi_watchdog_stop(struct hfi_core *core);
/* (Re)arms the hold's alarm after its times have changed. */
void hfi_watchdog_arm_locked(struct hfi_hold *hold);
void hfi_watchdog_disarm_locked(struct hfi_hold *hold);
/* For a hold that nobody has any more: tidies it up at that time, when no renewal can act any more
 * or its loss is to be forgotten. */
void hfi_watchdog_look_later_locked(struct hfi_hold *hold, int64_t at_ms);
/* The hold's alarm has fired. */
void hfi_watchdog_fired(struct hfi_alarm *alarm);

/* ---- Renewals (renewals.c), on the keeper's thread ---- */

/* It is due: it goes with the next batch of its node. */
void hfi_renewals_add_locked(struct hfi_hold *hold);
/* Sends those that are due. */
void hfi_renewals_send(struct hfi_core *core);

/* ---- News (news.c), on the keeper's thread ---- */

void hfi_news_init(struct hfi_core *core);
/* What the engine says; NULL: there is only one. */
const void *hfi_node_of(struct hfi_core *core, const struct hfi_hold *hold);

struct hfi_losing {
    struct hfi_scope scope;
    int64_t since_before_us; /* only those that are older; HFI_NEVER: all */
    bool only_idle;          /* one with a command under way will be told by the answer */
    const char *reason;
};
/* They end, and that is told. Any thread, no mutex held. */
void hfi_lose_holds(struct hfi_core *core, const struct hfi_losing *losing);

/* ---- Listening (listen.c) ---- */

/* A hold of this age is worth listening for, since whoever breaks it wants to be noticed; and what a
 * client has to tell if it is asked. */
int64_t hfi_listen_after_ms(const struct hfi_core *core);

void hfi_listen_init(struct hfi_core *core);
/* Some hold has reached that age. On the keeper's thread. */
void hfi_listen(struct hfi_core *core);
/* Somebody has begun to wait. Any thread. */
void hfi_listen_for_waits(struct hfi_core *core);

/* ---- Answering (standing.c), on the keeper's thread ---- */

/* As struct hfi_news has it. */
bool hfi_standing_tell(void *arg, struct hfi_bearing *ret,
                       void (*visit)(void *visit_arg, const struct hfi_standing *standing),
                       void *visit_arg);
/* Those who wait here, and since when, of those who have waited the longest; HFI_NEVER: nobody does. Any
 * thread, no mutex held. */
struct hfi_waits {
    uint64_t len;
    int64_t since_ms;
};
/* As struct hfi_news has it, too. */
void hfi_standing_tell_times(void *arg,
                             void (*visit)(void *visit_arg, const struct hfi_named_times *times),
                             void *visit_arg);
struct hfi_waits hfi_standing_waits(struct hfi_core *core);
int64_t hfi_standing_oldest_wait_ms(struct hfi_core *core); /* the same, without counting them */

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
void hfi_core_clear(struct hfi_core *core);   /* after everything has ended */
bool hfi_core_is_idle(struct hfi_core *core); /* no operation is unfinished */
/* One of `returns` is on its way; no mutex may be held. */
void hfi_note_return(struct hfi_core *core);
void hfi_core_close_ops(struct hfi_core *core); /* asks every operation to end with HF_ECLOSED */
void hfi_count(atomic_ullong *counter);
/* Writes "uuid:number" and a NUL to HFI_OWNER_MAX bytes; returns its length. Hand-written, since
 * every operation needs it. Of an alias the text is another client's. */
size_t hfi_owner_text(struct hfi_core *core, hf_owner number, char *text);
/* Reads such a text, which may come from anybody: the uuid in lower case, and a number without
 * leading zeros. */
bool hfi_owner_parse(const char *text, hf_owner *ret_number);
/* Whether it is an owner of another client. */
bool hfi_owner_is_foreign(const struct hfi_core *core, const char *text);

/* ---- Aliases (alias.c) ---- */

void hfi_aliases_init(struct hfi_core *core);
void hfi_aliases_clear(struct hfi_core *core); /* when there are no holds any more */
/* As hfi_owner_text(); 0: the number is no alias. */
size_t hfi_alias_text(struct hfi_core *core, hf_owner number, char *text);
/* From now on the number stands for this text. NULL: out of memory. */
struct hfi_alias *hfi_alias_ref(struct hfi_core *core, hf_owner number, const char *text,
                                size_t len);
void hfi_alias_unref(struct hfi_core *core, struct hfi_alias *alias); /* NULL is fine */

#include "core/hold.h"

#endif
