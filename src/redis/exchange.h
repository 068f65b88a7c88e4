/* One command and its answer, with everything that can go wrong between: no connection yet, a
 * script the server does not know, a server that loads or is read-only, a reply that is lost, a
 * server that is silent.
 *
 * An exchange is part of somebody's task: begin it, forward the task's events to step, and go on
 * when either says HFI_FINISHED; the answer is then in `err`, `reply` and `error`. Only the
 * thread of the task's executor touches it. */
#ifndef HFI_REDIS_EXCHANGE_H
#define HFI_REDIS_EXCHANGE_H

#include "base/task.h"
#include "engine/engine.h"
#include "net/conn.h"
#include "redis/command.h"
#include "redis/errors.h"
#include "redis/script.h"

#include <hiredis/hiredis.h>

/* The engine's events. Copies of a command alternate between the two replies, so that the event
 * of a copy that was just given up is not taken for that of the next. */
enum {
    HFI_EVENT_REPLY_A = 1u << HFI_ENGINE_EVENT_SHIFT,
    HFI_EVENT_REPLY_B = 2u << HFI_ENGINE_EVENT_SHIFT,
    HFI_EVENT_READY = 4u << HFI_ENGINE_EVENT_SHIFT,
    HFI_EVENT_TIMER = 8u << HFI_ENGINE_EVENT_SHIFT,
    /* from now on messages on the channel arrive */
    HFI_EVENT_SUBSCRIBED = 16u << HFI_ENGINE_EVENT_SHIFT,
    /* they do not, or no longer: the waiter has to poll */
    HFI_EVENT_DEAF = 32u << HFI_ENGINE_EVENT_SHIFT,
    /* a message, or anything else that is worth an attempt */
    HFI_EVENT_MESSAGE = 64u << HFI_ENGINE_EVENT_SHIFT
};

enum hfi_progress { HFI_PENDING, HFI_FINISHED };

enum hfi_retry {
    HFI_RETRY_NONE,    /* the owner tries again by itself */
    HFI_RETRY_BRIEFLY, /* "no" is an answer, even to connecting; "not yet" is not */
    HFI_RETRY_PATIENTLY
};

enum hfi_phase { HFI_PHASE_IDLE, HFI_PHASE_CONNECTING, HFI_PHASE_ASKED, HFI_PHASE_PAUSED };

struct hfi_redis;
struct hfi_node;

struct hfi_exchange {
    /* Set by the owner before begin. */
    struct hfi_redis *redis;
    struct hfi_task *task;
    enum hfi_lane lane;
    enum hfi_retry retry;
    const char *name; /* for the route; NULL: any node */
    size_t name_len;
    const struct hfi_script *script; /* NULL: a question, which may be asked twice */
    bool asks;                       /* the script only reads: it, too, is a question */
    /* the script uses keys that it cannot declare: it does not follow a lock that is on the move */
    bool undeclared_keys;
    bool once; /* a lost copy is not sent again: the outcome is HF_EUNKNOWN */
    /* a lost copy is not sent again later than this after it was sent; 0: there is no such end */
    int64_t known_ms;
    struct {
        int asked; /* as struct hfi_call has it; 0: nobody is asked to confirm, and the rest says nothing */
        bool (*needs_them)(const void *reply); /* this answer has something to confirm */
        unsigned want;                         /* so many are waited for */
        int64_t got;                           /* the answer: so many have */
    } acks;
    /* Adds the arguments: for a script the number of keys and what follows, else the whole
     * command. */
    void (*write)(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command);
    int64_t limit_ms;       /* the end */
    int64_t reach_until_ms; /* patient ones: how long to try if connections are refused */
    /* give up when nothing has answered, or all was refused, for this long; HFI_NEVER */
    int64_t silence_ms;
    struct hfi_signs *signs; /* what others may see of it; NULL: nobody looks */
    int limit_err;   /* when the limit passes and a copy is out: HF_ETIMEDOUT, HF_EUNKNOWN, ... */
    hf_error *error; /* details; cleared by the owner */

    /* The answer. */
    int err;
    bool unanswered;     /* a copy went out, and it is not known what became of it */
    bool resent;         /* a copy went unanswered before the one that was answered */
    bool was_answered;   /* the server has answered a command of this call */
    bool gave_up;        /* it ended because the server was of no help for `silence_ms` */
    struct hfi_req *req; /* holds the reply until end or the next begin */
    int64_t sent_ms;     /* of the last copy */
    int64_t stop_ms;     /* when we stop waiting for the last copy: its `not-after` */

    /* Its own. */
    enum hfi_phase phase;
    bool send_body;
    int trouble; /* why the last try failed, if it has to be reported */
    unsigned tries;
    unsigned reply_event;
    int64_t start_ms, slice_ms, wake_ms;
    int64_t useless_since_ms;       /* no answer has helped since then; 0: all is well */
    int64_t refused_since_ms;       /* the server refuses since then; 0: it does not */
    int64_t quiet_until_ms;         /* nothing is sent before this: a lost copy may still act */
    int64_t known_until_ms;         /* nor after this: see known_ms */
    struct hfi_attendant attendant; /* the synchronous caller whose exchange it is */
    struct hfi_conn *conn;          /* of the node; NULL while it waits for a node */
    struct hfi_want *want;
    struct hfi_node *node; /* of the last try, with a reference until the end */
    struct hfi_node
        *ask_at;    /* where the next try goes, this once, with a reference; NULL: as ever */
    bool asking;    /* the last try went where it was sent by another */
    unsigned turns; /* in a row, without a pause */
    struct hfi_exec *alarm_exec;
    struct hfi_alarm alarm;
};

/* Sends the command. May finish at once. */
enum hfi_progress hfi_exchange_begin(struct hfi_exchange *x);
enum hfi_progress hfi_exchange_step(struct hfi_exchange *x, unsigned events);

/* Gives up whatever is under way and frees what the exchange holds. Idempotent; a zeroed one is
 * fine. Afterwards `unanswered` says whether the outcome of a command is unknown, and the exchange
 * can begin again. */
void hfi_exchange_end(struct hfi_exchange *x);

/* The same, but a copy that is out stays out, and its reply will still be posted to the task as the
 * event x->reply_event. Returns its request, which is now the caller's, with a reference to the node
 * that has it; or NULL. */
struct hfi_req *hfi_exchange_leave(struct hfi_exchange *x, struct hfi_node **ret_node);

/* The time until which the last copy may act, on our clock. */
int64_t hfi_exchange_ghost_until_ms(const struct hfi_exchange *x);

/* The reply of a finished exchange that succeeded. */
static inline const redisReply *hfi_exchange_reply(const struct hfi_exchange *x) {
    return x->req->reply;
}

/* ---- signs.c: what becomes of an exchange, as far as others care ---- */

#define HFI_LOOK_UP_MS 1000 /* who waits for an answer looks up that often */

/* From now on, or still, nothing helps: no answer (HF_EUNREACH) or a refusal (HF_EREFUSED). */
void hfi_exchange_held_up(struct hfi_exchange *x, int err);
/* There is an answer. */
void hfi_exchange_is_well(struct hfi_exchange *x);
/* If a wait is held up for longer than a moment, logs why; once until there is an answer again. */
void hfi_exchange_tell(struct hfi_exchange *x);
/* Whoever wants to know (struct hfi_signs) hears what would be said if it ended now. */
void hfi_exchange_tell_caller(const struct hfi_exchange *x);
/* What to say when the caller's time is over before the connection's. */
const char *hfi_exchange_why_silent(const struct hfi_exchange *x);

/* ---- detour.c: what helps when a server refuses ---- */

enum hfi_help { HFI_HELP_NONE, HFI_HELP_AT_ONCE, HFI_HELP_LATER };

/* An error reply: whether to send the command again, where x->ask_at or the route says. *ret_err: what it
 * is if not, with the words in x->error. */
enum hfi_help hfi_exchange_detour(struct hfi_exchange *x, const redisReply *reply, int *ret_err);
/* A server could not be reached: adds what may be the reason, if it never was. */
void hfi_exchange_advise(struct hfi_exchange *x);
/* Who has answered is not the one to ask any more, and perhaps was not when it did. */
bool hfi_exchange_was_left(const struct hfi_exchange *x);

/* ---- patience.c: how long it is worth waiting ---- */

/* When to give up because nothing has answered, or nothing but refusals, as far as we know now. */
int64_t hfi_exchange_silent_at_ms(const struct hfi_exchange *x);
/* The next pause before it tries again. */
int64_t hfi_exchange_pause_ms(struct hfi_exchange *x);
/* Another server may take over for the one that cannot be reached; unless there never was one. */
bool hfi_exchange_may_move(const struct hfi_exchange *x);
/* The server refuses, and this exchange has the time to ask again. */
bool hfi_exchange_may_pass(const struct hfi_exchange *x, enum hfi_remedy remedy);

/* ---- acks.c: what replicas confirm ---- */

struct hfi_engine_config;
/* As struct hfi_engine_ops has it; and how long they are waited for. */
int hfi_acks_check(struct hfi_engine *engine, int acks, hf_error *error);
int64_t hfi_acks_timeout_ms(const struct hfi_engine_config *config);

extern const struct hfi_seal_ops hfi_acks_seal; /* its argument is the engine */

/* Answers of a command about one lock, and of one about many. */
bool hfi_acks_of_one(const void *reply);
bool hfi_acks_of_many(const void *reply);
/* Replicas are asked to confirm it. */
static inline bool hfi_exchange_is_sealed(const struct hfi_exchange *x) {
    return x->acks.asked != 0;
}
/* As hfi_node_pick() and hfi_conn_submit(), for such an exchange. */
struct hfi_conn *hfi_acks_pick(struct hfi_exchange *x);
int hfi_acks_submit(struct hfi_exchange *x, struct hfi_conn *conn,
                    const struct hfi_command *command, bool prefaced);
/* The request has ended, perhaps with an error, and perhaps with an answer all the same. Notes how many
 * have confirmed it. */
enum hfi_acks_verdict {
    HFI_ACKS_FINE, /* as if nobody had been asked */
    HFI_ACKS_AGAIN, /* send it again, at once: either it was not sent, or nobody can say who has it */
    HFI_ACKS_REFUSED /* it has run, but the server does not ask its replicas */
} hfi_acks_note(struct hfi_exchange *x, int *err);
/* The answer is there, and as many have confirmed it as have to. */
bool hfi_acks_suffice(const struct hfi_exchange *x);
/* Says so if not. */
int hfi_acks_fail(const struct hfi_exchange *x, hf_error *error);

/* A timer for the owner between exchanges: HFI_EVENT_TIMER comes at `at_ms` or later. Then
 * hfi_exchange_woken() is true; if it is false, the TIMER event is stale. */
void hfi_exchange_sleep(struct hfi_exchange *x, int64_t at_ms);
bool hfi_exchange_woken(const struct hfi_exchange *x);

#endif
