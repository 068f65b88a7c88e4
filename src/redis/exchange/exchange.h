/* One command and its reply, with all retries: no connection yet, NOSCRIPT, a server that is
 * loading or read-only, a redirect, a lost reply, a server that does not answer.
 *
 * An exchange is part of its owner's task. The owner begins it, forwards the task's events to step,
 * and continues when either returns HFI_FINISHED. The result is then in `err`, `reply` and `error`.
 * Only the thread of the task's executor touches it. */
#ifndef HFI_REDIS_EXCHANGE_EXCHANGE_H
#define HFI_REDIS_EXCHANGE_EXCHANGE_H

#include "engine/engine.h"
#include "net/conn/conn.h"
#include "net/resp/wire/command.h"
#include "net/resp/wire/reply.h"
#include "redis/wire/errors.h"
#include "redis/wire/script.h"
#include "task/task.h"

/* The engine's event bits. Successive copies of a command alternate between REPLY_A and REPLY_B. So
 * a stale event of an abandoned copy is not taken for the reply to the next one. */
enum {
    HFI_EVENT_REPLY_A = 1u << HFI_ENGINE_EVENT_SHIFT,
    HFI_EVENT_REPLY_B = 2u << HFI_ENGINE_EVENT_SHIFT,
    HFI_EVENT_READY = 4u << HFI_ENGINE_EVENT_SHIFT,
    HFI_EVENT_TIMER = 8u << HFI_ENGINE_EVENT_SHIFT,
    /* the subscription is confirmed: messages on the channel arrive from now on */
    HFI_EVENT_SUBSCRIBED = 16u << HFI_ENGINE_EVENT_SHIFT,
    /* not subscribed, or no longer: the waiter has to poll */
    HFI_EVENT_REFUSED = 32u << HFI_ENGINE_EVENT_SHIFT,
    /* a message, or another reason to make an attempt */
    HFI_EVENT_MESSAGE = 64u << HFI_ENGINE_EVENT_SHIFT
};

enum hfi_progress { HFI_PENDING, HFI_FINISHED };

enum hfi_retry {
    HFI_RETRY_NONE,    /* the owner retries by itself */
    HFI_RETRY_BRIEFLY, /* a refusal is final, even while connecting; "not yet" is retried */
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
    const struct hfi_script *script; /* NULL: a read-only command, which may be sent twice */
    bool asks;                       /* the script is read-only: it may be sent twice, too */
    /* The command or script writes, but a late copy does no harm, and running twice is running
     * once: it has no `not-after`, its reply no clock, and a lost copy is resent at once. */
    bool repeatable;
    /* Before each copy, when node and connection are known: may set `script`, `fronts` and
     * `reply_at`. NULL: nothing to choose. */
    void (*choose)(struct hfi_exchange *x);
    /* There are so many commands besides the last one. `write` writes all of them; but in front of a
     * script it is `write_fronts`. */
    unsigned fronts;
    /* whose reply decides: 0 the last command's, 1 the one in front of it... A script has all other
     * commands in front of it, or all behind it. */
    unsigned reply_at;
    /* the script uses keys that it cannot declare: it does not follow ASK */
    bool undeclared_keys;
    bool once;    /* a lost copy is not resent: the outcome is HF_EINDOUBT */
    bool attempt; /* of an acquire: its reply shows that the server serves waits */
    /* a lost copy is not resent later than this after it was first sent; 0: no such limit */
    int64_t known_ms;
    struct {
        int asked; /* as in struct hfi_call; 0: no acks wanted, and the other fields mean nothing */
        bool (*needs_them)(const void *reply); /* this reply has a write to confirm */
        unsigned want;                         /* number of acks to wait for */
        int64_t got;                           /* result: number of acks received */
    } acks;
    /* Appends the arguments: for a script the key count and all that follows, else the whole
     * command. */
    void (*write)(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command);
    /* A copy was sent on x->conn, in that connection's generation x->generation, and its reply will
     * not be seen. NULL: nothing to note. */
    void (*copy_lost)(struct hfi_exchange *x);
    /* Appends the commands in front of a script. */
    void (*write_fronts)(struct hfi_exchange *x, struct hfi_command *command);
    int64_t limit_ms;       /* the deadline */
    int64_t reach_until_ms; /* HFI_RETRY_PATIENTLY: how long to retry refused connections */
    /* gives up after this long without a reply, or with refusals only; HFI_NEVER */
    int64_t silence_ms;
    struct hfi_call_status *call_status; /* progress visible to other threads; NULL: none */
    /* error if the deadline passes with a copy in flight: HF_ETIMEDOUT, HF_EINDOUBT, ... */
    int limit_err;
    hf_error *error; /* details; cleared by the owner */

    /* The result. */
    int err;
    bool unanswered;     /* a copy was sent, and its outcome is unknown */
    bool resent;         /* an earlier copy went unanswered before the one that was answered */
    bool was_answered;   /* the server has answered a command of this call */
    bool gave_up;        /* it ended because no reply helped for `silence_ms` */
    bool hopeless;       /* it ended because no host name exists */
    bool overdue;        /* it ended at its deadline, and the server may only have been too slow */
    struct hfi_req *req; /* owns the reply until end or the next begin */
    int64_t sent_ms;     /* when the last copy was sent */
    unsigned generation; /* of its connection */
    int64_t stop_ms;     /* when we stop waiting for the last copy: its `not-after` */

    /* Private. */
    enum hfi_phase phase;
    bool send_body;
    int try_err; /* error of the last try, if it must be reported */
    unsigned tries;
    unsigned reply_event;
    int64_t start_ms, slice_ms, wake_ms;
    int64_t useless_since_ms;           /* no reply has helped since then; 0: all is well */
    int64_t refused_since_ms;           /* the server has refused since then; 0: it does not */
    int64_t quiet_until_ms;             /* nothing is sent before this: a lost copy may still act */
    int64_t known_until_ms;             /* nor after this: see known_ms */
    struct hfi_sync_caller sync_caller; /* the synchronous caller that owns this exchange */
    struct hfi_conn *conn;              /* of the node; NULL while it waits for a node */
    struct hfi_want *want;
    struct hfi_node *node; /* of the last try, with a reference until the end */
    /* node of the next try only (ASK), with a reference; NULL: the route decides */
    struct hfi_node *ask_at;
    bool asking;    /* the last try followed an ASK redirect */
    unsigned turns; /* immediate retries in a row, without a pause */
    struct hfi_exec *alarm_exec;
    struct hfi_alarm alarm;
};

/* From now on it repeats commands that `choose` chooses, or (NULL) does neither. */
static inline void hfi_exchange_choose_by(struct hfi_exchange *x,
                                          void (*choose)(struct hfi_exchange *x)) {
    x->choose = choose;
    x->repeatable = choose != NULL;
    x->fronts = x->reply_at = 0;
}

/* Sends the command. May finish at once. */
enum hfi_progress hfi_exchange_begin(struct hfi_exchange *x);
enum hfi_progress hfi_exchange_step(struct hfi_exchange *x, unsigned events);

/* Abandons the request and frees what the exchange holds. Idempotent; a zeroed exchange is fine.
 * Afterwards `unanswered` says whether the outcome of a command is unknown, and the exchange can
 * begin again. */
void hfi_exchange_end(struct hfi_exchange *x);

/* As end, but a copy in flight stays in flight, and its reply is still posted to the task as the
 * event x->reply_event. Returns its request, which the caller now owns, with a reference to its
 * node; or NULL. */
struct hfi_req *hfi_exchange_leave(struct hfi_exchange *x, struct hfi_node **ret_node);

/* The time until which the last copy may act, on our clock. */
int64_t hfi_exchange_in_doubt_until_ms(const struct hfi_exchange *x);

/* The reply to one of the commands of the last copy: the last is 0, the one in front of it 1, and
 * so on. NULL: there were fewer. */
static inline const struct hfi_reply *hfi_exchange_reply_of(const struct hfi_exchange *x,
                                                            unsigned from_last) {
    const struct hfi_req *req = x->req;
    while (req != NULL && from_last-- > 0)
        req = req->front;
    return req != NULL ? req->reply : NULL;
}

/* The reply of a finished exchange that succeeded. */
static inline const struct hfi_reply *hfi_exchange_reply(const struct hfi_exchange *x) {
    return hfi_exchange_reply_of(x, x->reply_at);
}

/* ---- exchange_status.c: progress visible to other threads, and the log ---- */

#define HFI_STATUS_EVERY_MS 1000 /* an exchange that waits wakes up this often */

/* The exchange is stalled: no reply (HF_EUNREACH) or a refusal (HF_EUNAVAILABLE). */
void hfi_exchange_stalled(struct hfi_exchange *x, int err);
/* A useful reply has come. */
void hfi_exchange_is_well(struct hfi_exchange *x);
/* If a wait is stalled for longer than HFI_STATUS_EVERY_MS, logs why: once per server, until a reply
 * comes again. */
void hfi_exchange_log_stall(struct hfi_exchange *x);
/* Reports through struct hfi_call_status the error with which the exchange would end now. */
void hfi_exchange_report_stall(const struct hfi_exchange *x);
/* The error text if the caller's deadline passes before the connection's timeout. */
const char *hfi_exchange_why_silent(const struct hfi_exchange *x);

/* ---- exchange_error_reply.c: redirect or retry after an error reply ---- */

enum hfi_retry_when { HFI_RETRY_NEVER, HFI_RETRY_AT_ONCE, HFI_RETRY_LATER };

/* Handles an error reply: whether to resend the command, to x->ask_at or to the node that the route
 * names. Without a retry, *ret_err is the error, and its text is in x->error. */
enum hfi_retry_when hfi_exchange_on_error(struct hfi_exchange *x, const struct hfi_reply *reply,
                                          int *ret_err);
/* A server could not be reached: if it never was, adds the likely reason to the error. */
void hfi_exchange_advise(struct hfi_exchange *x);
/* The node that replied is no longer the one to ask, and perhaps was not when it replied. */
bool hfi_exchange_was_left(const struct hfi_exchange *x);

/* ---- exchange_timeout.c: timeouts and back-off ---- */

/* When to give up because there was no reply, or only refusals, as far as is known now. */
int64_t hfi_exchange_silent_at_ms(const struct hfi_exchange *x);
/* Whether to give up now: the caller's deadline has passed, or the silence lasts too long. */
bool hfi_exchange_is_timed_out(const struct hfi_exchange *x, int64_t now_ms);
/* Whether the copy in flight has been unanswered for cmd_timeout_ms. Its connection is then
 * suspect. */
bool hfi_exchange_reply_is_late(const struct hfi_exchange *x, int64_t now_ms);
/* Sleeps until `at_ms`, but for HFI_STATUS_EVERY_MS at most. */
void hfi_exchange_await(struct hfi_exchange *x, int64_t at_ms);
/* Sleeps until the reply of the copy in flight is late. */
void hfi_exchange_await_reply(struct hfi_exchange *x);
/* The next back-off, with jitter. */
int64_t hfi_exchange_pause_ms(struct hfi_exchange *x);
/* Failover is possible: another server may replace the unreachable one. Never before a first one
 * was found. */
bool hfi_exchange_may_move(const struct hfi_exchange *x);
/* The refusal is transient, and this exchange has time to retry. */
bool hfi_exchange_is_transient(const struct hfi_exchange *x, enum hfi_remedy remedy);

/* ---- acks.c: acks of replicas ---- */

struct hfi_engine_config;
/* As in struct hfi_engine_ops. */
int hfi_acks_check(struct hfi_engine *engine, int acks, hf_error *error);
int64_t hfi_acks_timeout_ms(const struct hfi_engine_config *config);

extern const struct hfi_ack_batch_ops hfi_acks_batch; /* its argument is the engine */

/* Whether a reply has something to confirm: of a command about one lock, and about many. */
bool hfi_acks_of_one(const void *reply);
bool hfi_acks_of_many(const void *reply);
static inline bool hfi_exchange_is_acked(const struct hfi_exchange *x) {
    return x->acks.asked != 0;
}
/* As hfi_node_pick() and hfi_conn_submit(), for an acked exchange. */
struct hfi_conn *hfi_acks_pick(struct hfi_exchange *x);
int hfi_acks_submit(struct hfi_exchange *x, struct hfi_conn *conn,
                    const struct hfi_command *command, unsigned fronts);
/* The request has ended: with a reply, with an error, or with both. Stores the number of acks. */
enum hfi_acks_verdict {
    HFI_ACKS_FINE,   /* go on as without acks */
    HFI_ACKS_AGAIN,  /* resend at once: it was not sent, or its acks are unknown */
    HFI_ACKS_REFUSED /* it has run, but the server refuses WAIT */
} hfi_acks_note(struct hfi_exchange *x, int *err);
/* Enough acks have come, or none are required. */
bool hfi_acks_suffice(const struct hfi_exchange *x);
/* Fills in HF_ENOREPLICA. */
int hfi_acks_fail(const struct hfi_exchange *x, hf_error *error);

/* A timer for the owner between exchanges: HFI_EVENT_TIMER comes at `at_ms` or later. If
 * hfi_exchange_woken() is then false, the event is stale. */
void hfi_exchange_sleep(struct hfi_exchange *x, int64_t at_ms);
bool hfi_exchange_woken(const struct hfi_exchange *x);

#endif
