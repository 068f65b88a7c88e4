/* One operation of the Redis engine: its state, and what kinds, ops, wait and fleet share. */
#ifndef HFI_REDIS_OPS_CALL_H
#define HFI_REDIS_OPS_CALL_H

#include "redis/exchange/env.h"
#include "redis/exchange/exchange.h"
#include "redis/ops/break_channel.h"
#include "redis/ops/lost_conns.h"
#include "redis/pubsub/pubsub.h"

struct hfi_redis_kind;
struct hfi_redis_object_op;

/* A waiter in the fair queue, as wait_fair_queue.c knows it. */
struct hfi_fair_waiter {
    int64_t arrival;    /* its arrival number in the queue; 0: none yet */
    int64_t position;   /* 1 is the head of the queue; 0: far behind */
    int64_t confirm_ms; /* how long a grant shall wait for us */
    /* the shortest that the server was sent in this wait; 0: none yet */
    int64_t least_confirm_ms;
    int64_t answered_us;            /* the server's time in its last reply */
    int64_t newest_us;              /* the newest server time known then */
    int64_t asked_ms;               /* when that attempt was sent */
    int64_t again_ms;               /* the lock is free, and may be ours after this; 0: it is not */
    unsigned behind;                /* sleeps so far while the lock was free, but not for us */
    bool queued;                    /* we may have an entry in the queue */
    bool granted;                   /* a grant message came, and the lock was not ours yet */
    struct hfi_grant_message grant; /* the time in grant messages: since when */
};

/* What a waiter for a latch has seen of it, as wait_latch.c knows it. */
struct hfi_latch_view {
    int64_t count; /* at the last attempt; 0: none yet */
    int64_t proof; /* when it was last open, as of the first attempt */
};

/* An acquire of a string lock, as string.c knows it: the token that was last drawn. */
struct hfi_string_attempt {
    int64_t first_ms; /* when its first copy was written; 0: none was */
    int64_t ends_ms;  /* when its lease ends, by the server's clock: the same in all copies */
    int64_t until_ms; /* by then its lease has ended for certain, on our clock */
    const void *node; /* whose clock that is */
    unsigned copies;  /* so many were written */
    bool lost;        /* one of them was lost, and may still act */
    struct hfi_lost_conns lost_conns; /* with which that happened */
    bool ends_conns;                  /* the last copy has the server end them first */
    bool asks_time, asks_ttl;         /* the last copy has TIME, or PTTL, in front */
    /* the last copy has the key tracked: changes are reported to this id; 0: it has not */
    int64_t track_target;
    bool foreign;      /* the token there is not of our form */
    bool tracked;      /* and the server reports its change */
    uint64_t own_bits; /* of a token of this owner that was there; 0: none was */
};

/* The state of a call, in call->state. */
struct hfi_call_state {
    struct hfi_exchange exchange;
    struct hfi_call *call;
    const struct hfi_redis_kind *kind;                    /* NULL: the server itself (ping) */
    void (*step)(struct hfi_call *call, unsigned events); /* where the call is; NULL: not running */
    void (*answered)(struct hfi_call *call);              /* handles the reply */
    void (*cleanup)(struct hfi_call *call);               /* frees what is in `u`; may be NULL */
    bool settles; /* the core settles its outcome: it can end unsettled */
    /* it is an acquire: if it is cancelled, its settlement needs the reply */
    bool acquiring;
    bool settling;  /* it is a settlement: unless it succeeds, nothing is settled */
    bool unacked;   /* acquired, but not with all that was asked for: it is to be undone */
    bool yields;    /* its owner wants to acquire again: it ends after the next reply */
    bool remembers; /* its last script was given the `unheard` key (fair.c) */
    /* its result is known, and it still sweeps the head of a fair queue (fair_hand_over.c) */
    bool handing_over;
    int outcome;
    const char *outcome_text;
    /* the request of a cancelled acquire: its settlement awaits the reply */
    struct hfi_req *in_doubt;
    struct hfi_node *in_doubt_node; /* where that was sent, with a reference */
    unsigned in_doubt_event;
    bool in_doubt_alone; /* no earlier copy may have acquired */
    union {
        struct {
            struct hfi_waiter waiter;
            struct hfi_node *home; /* where it is subscribed, with a reference; NULL: nowhere */
            struct hfi_fair_waiter fair_waiter;
            struct hfi_latch_view latch;
            struct hfi_string_attempt string;
            int64_t ttl_ms;       /* what was left of the holder's lease */
            int64_t attempted_ms; /* when the last attempt started */
            /* since then too few replicas ack; 0: enough do, or it is not known */
            int64_t unacked_ms;
            unsigned unacked;   /* how often in a row */
            unsigned sleeps;    /* sleeps so far while not subscribed */
            unsigned fruitless; /* wake-ups in a row without success */
            bool woken;         /* a message came since the last attempt started */
            bool subscribed;    /* the server has confirmed the subscription */
            /* it was refused with an idempotency key, and is retried without */
            bool without_idempotency_key;
            /* the message of our own release is still to come */
            bool own_message;
            uint16_t yield_quota; /* so many releases go first (yield_to_waiters.c) */
            uint16_t yields_left; /* so many of those have not come yet */
            /* after each release, how long to wait for the next before an attempt */
            uint16_t yield_ms;
        } acquire;
        struct {
            struct hfi_req *seen; /* contains the owner that was seen */
            unsigned rounds;
        } break_holds;
        struct {
            hf_lock_info *info;   /* the result so far */
            int64_t track_target; /* where the next change is reported; 0: nowhere */
        } inspect;
        struct {
            hf_server_info *list;
            size_t step;
        } server_info;
        struct hfi_redis_survey *survey;
        const struct hfi_redis_object_op *object_op;
        bool resent;   /* release: as of before the query for what is there instead */
        int64_t count; /* extend: the count to end with; 0: 1 */
    } u;
};

static inline struct hfi_call_state *hfi_state_of(struct hfi_call *call) {
    return call->state;
}

static inline struct hfi_call_state *hfi_state_around(struct hfi_exchange *x) {
    return HFI_CONTAINER(x, struct hfi_call_state, exchange);
}

/* The reply of a call's exchange that has succeeded. */
static inline const struct hfi_reply *hfi_answer_of(struct hfi_call *call) {
    return hfi_exchange_reply(&hfi_state_of(call)->exchange);
}

/* ---- call.c ---- */

/* Initialises a call. Its exchanges end at call->deadline_ms and are retried briefly. */
struct hfi_call_state *hfi_call_begin(struct hfi_call *call);

/* Sends a command of the call; `answered` runs when its exchange has finished, perhaps at once. */
void hfi_call_send(struct hfi_call *call, const struct hfi_script *script,
                   void (*write)(struct hfi_exchange *, int64_t, struct hfi_command *),
                   void (*answered)(struct hfi_call *call));

/* The same for a command that may be repeated (exchange.h). */
void hfi_call_send_chosen(struct hfi_call *call, void (*choose)(struct hfi_exchange *x),
                          const struct hfi_script *script,
                          void (*write)(struct hfi_exchange *, int64_t, struct hfi_command *),
                          void (*answered)(struct hfi_call *call));

/* Ends a call: sets err and what follows from it, then calls done(). The call may be freed when
 * this returns. */
void hfi_call_finish(struct hfi_call *call, int err);
/* The same with an error text, for errors that the exchange does not know. */
void hfi_call_fail(struct hfi_call *call, int err, const char *text);
/* Ends a call because of a malformed reply. */
void hfi_call_fail_proto(struct hfi_call *call);

/* Drops the pending request of a cancelled acquire. */
void hfi_call_drop_in_doubt(struct hfi_call *call);

void hfi_call_step(struct hfi_call *call, unsigned events);
void hfi_call_drive(struct hfi_call *call);
void hfi_call_cancel(struct hfi_call *call, int err);

/* ---- yield_to_waiters.c: remote waiters go first ---- */

/* A release was delivered to so many subscribers, ourselves among them if we subscribe. */
enum hfi_others hfi_yield_quota(struct hfi_call *call, int notified);
/* An acquire begins. True: it sleeps first, so that remote waiters can attempt. */
bool hfi_yield_begin(struct hfi_call *call);
/* A release message came. True: it is for another waiter, and the call sleeps on. */
bool hfi_yield_lets_pass(struct hfi_call *call);
/* The call has acquired. */
void hfi_yield_end(struct hfi_call *call);

/* ---- The operations ---- */

void hfi_acquire(struct hfi_call *call);
/* Parts of it, for acquire_unacked.c. again: makes one more attempt, and sends attempts from then
 * on. on_events: takes note of pub/sub events, in any step. */
void hfi_acquire_again(struct hfi_call *call);
void hfi_acquire_on_events(struct hfi_call_state *state, unsigned events);
/* For park.c. prepare: begins, and sends nothing. sleeps: whether it is between two attempts.
 * sleep_on: continues such a sleep. */
struct hfi_call_state *hfi_acquire_prepare(struct hfi_call *call);
bool hfi_acquire_sleeps(struct hfi_call *call);
void hfi_acquire_sleep_on(struct hfi_call *call, int64_t until_ms, unsigned events);
/* park.c: as in struct hfi_call_ops */
struct hfi_parked *hfi_park(struct hfi_call *call, int64_t *ret_until_ms);
void hfi_resume(struct hfi_call *call, struct hfi_parked *parked, unsigned events);
void hfi_unpark(struct hfi_engine *engine, struct hfi_parked *parked);
/* It has acquired, with too few replica acks. */
void hfi_acquire_unacked(struct hfi_call *call);
/* It has acquired, and the hold is to have no lease. */
void hfi_acquire_make_permanent(struct hfi_call *call);
void hfi_release(struct hfi_call *call);
/* The server has extended the lease. Ends the call, with HF_OK if sentinels confirm the primary or
 * need not be asked. */
void hfi_confirm_extension(struct hfi_call *call);
void hfi_extend(struct hfi_call *call);
/* Parts of it, for acquire_permanent.c: choosing and writing the command, which raises the lease to
 * call->lease_ms; its node runs no scripts, so send it again; its reply of so many numbers: 1 held, 0
 * gone, -1 something else is there, others malformed. */
void hfi_extension_choose(struct hfi_exchange *x);
void hfi_extension_write(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command);
bool hfi_extension_finds_no_scripts(struct hfi_exchange *x);
long long hfi_extension_read(struct hfi_call *call, size_t numbers);
void hfi_set_lease(struct hfi_call *call);
/* Renews the hold in one exchange, and ends with this count. */
void hfi_extend_to(struct hfi_call *call, int64_t count);
void hfi_adopt(struct hfi_call *call);
void hfi_break(struct hfi_call *call);
void hfi_ask(struct hfi_call *call);
void hfi_settle(struct hfi_call *call);
/* What undoes an acquire: its script and arguments, and whether the reply says that it is
 * undone. */
const struct hfi_script *hfi_undo_script(struct hfi_call *call);
void hfi_undo_write(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command);
int hfi_undo_read(struct hfi_call *call, bool *ret_more);
void hfi_object_op(struct hfi_call *call);
/* The same as a part of another operation. */
void hfi_object_op_send(struct hfi_call *call, const struct hfi_redis_object_op *object_op,
                        void (*answered)(struct hfi_call *call));
void hfi_renew(struct hfi_engine *engine, struct hfi_renewal *renewal);
void hfi_renewals_stop(struct hfi_redis *redis);

#endif
