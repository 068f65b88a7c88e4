/* What the files of the Redis engine share: the engine itself, and the state of a call. Nobody else
 * includes this.
 *
 *   engine.c    the table of operations; making, stopping and freeing an engine
 *   call_life.c what all calls share: beginning, stepping, ending
 *   exchange.c  one command with everything that can go wrong
 *   signs.c     what others see of an exchange while it goes on
 *   patience.c  how long it waits for servers that are of no help
 *   detour.c    what helps when a server refuses: waiting, or another server
 *   acks.c      what replicas confirm
 *   unconfirmed.c an acquire that too few have confirmed
 *   acquire.c   attempt, begin to wait, attempt, sleep
 *   waiting_listen.c, waiting_spin.c, waiting_line.c, waiting_latch.c
 *               a manner of waiting each: what is told, how long to sleep, what ends it
 *   park.c      an acquire that sleeps, as small as can be
 *   looks.c     whether what many of those wait for is still held, in one script
 *   hand_over.c what a hand-over leaves in front of a line
 *   release.c   release and extend
 *   adopt.c     making another client's hold this one's
 *   facts.c     what a server says of itself
 *   force.c     breaking a hold
 *   question.c  questions that are one command
 *   settle.c    making sure of the end of what has an unknown outcome
 *   inspect.c   who is on a lock
 *   renew.c     renewals in batches
 *   pubsub.c, pubsub_debts.c
 *               channels and who listens on them; who of them goes first
 *   hear.c      hearing what is said of a name, for hf_listen()
 *   rumour.c    the channel of holdfast clients: hearing of broken holds, and saying so
 *   answer.c    the same channel: answering who asks what is held and waited for here
 *   survey.c, survey_look.c, survey_read.c, survey_connections.c, survey_ask.c
 *               asking: a survey of all locks, and what the server and the fleet say
 *   act.c       what is done to things that are no locks
 *   ticket.c    how the server can tell whether an acquire has run
 *   plain.c, nonreentrant.c, spin.c, fenced.c, fair.c
 *               a kind each: its scripts, their arguments and answers
 *   readwrite.c both sides of the read/write lock
 *   group.c, highway.c
 *               some values of a group; what they are called on the wire
 *   semaphore.c, permits.c, latch.c, counter.c
 *               the same for things that are no locks; what their counters have in common
 *   names.c, command.c, script_reply.c, errors.c
 *               names on the wire, commands as bytes, replies of scripts, error replies as codes
 */
#ifndef HFI_REDIS_INTERNAL_H
#define HFI_REDIS_INTERNAL_H

#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "redis/answer.h"
#include "redis/exchange.h"
#include "redis/names.h"
#include "redis/pubsub.h"
#include "redis/route/route.h"
#include "redis/rumour.h"
#include "redis/ticket.h"

struct hfi_keeper;

struct hfi_redis {
    struct hfi_engine base;
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    char *prefix;
    char *client_name;
    struct hfi_names names; /* with that prefix */
    int64_t cmd_timeout_ms, connect_timeout_ms, failover_timeout_ms;
    int64_t renew_every_ms;  /* a third of the watchdog's lease */
    int64_t skew_limit_ms;   /* clocks that differ by this much are told of */
    int64_t fair_horizon_ms; /* a waiter in line that says nothing for so long is dead */
    int64_t fair_confirm_ms; /* a grant waits no longer than this for a sign of life */
    int64_t fair_wait_ms;    /* what a Java waiter adds to the deadlines behind it */
    int64_t ack_timeout_ms;  /* how long replicas have to confirm, */
    bool ack_disk;           /* that it is on disk */
    _Atomic int64_t
        owes_ms; /* when others were last owed to go first; 0: not of late (courtesy.c) */
    atomic_ullong *unknowns, *notify_failures, *switches, *redirects, *ack_failures;
    struct hfi_tickets tickets;

    struct hfi_route *route;
    int db;
    atomic_bool stopped; /* the connections are gone or about to go */

    struct hfi_looks *looks;

    /* The keeper's thread only. */
    struct hfi_link renewals;    /* running */
    struct hfi_link hearings;    /* of those who listen to a name (hear.c) */
    const struct hfi_news *news; /* whom to tell; NULL: nobody yet */
    bool listens;                /* something is held that may be broken (rumour.c) */
    int64_t answered_ms;         /* when a question was last answered, and which (answer.c) */
    char answered[HFI_ASK_NUMBER_LEN];
};

struct hfi_redis_kind;
struct hfi_redis_act;

/* A waiter in line at the server, as waiting_line.c knows it. */
struct hfi_line {
    int64_t number;           /* by which the server knows us in line; 0: none yet */
    int64_t position;         /* 1 is the first; 0: far behind */
    int64_t confirm_ms;       /* how long a grant shall wait for us */
    int64_t least_confirm_ms; /* the shortest the server was told of in this wait; 0: of none */
    int64_t answered_us;      /* the server's time in its last answer */
    int64_t newest_us;        /* and the newest one that was known then */
    int64_t asked_ms;         /* when that attempt was sent */
    int64_t again_ms;         /* the lock is free, and may be ours after so long; 0: it is not */
    unsigned behind;          /* naps so far while the lock was free, but not for us */
    bool queued;              /* there may be an entry of ours */
    bool granted;             /* there was a message of a grant, and the lock was not ours yet */
    struct hfi_heard heard;   /* what messages say of grants: since when */
};

/* What a waiter for a latch has seen of it, as waiting_latch.c knows it. */
struct hfi_latch_look {
    int64_t count; /* when it was last seen; 0: not yet */
    int64_t proof; /* of when it was open, as it was at the first look */
};

/* The state of a call, in call->state. */
struct hfi_call_state {
    struct hfi_exchange exchange;
    struct hfi_call *call;
    const struct hfi_redis_kind *kind;                    /* NULL: the server itself (ping) */
    void (*step)(struct hfi_call *call, unsigned events); /* where the call is; NULL: not running */
    void (*answered)(struct hfi_call *call);              /* what to do with the answer */
    void (*cleanup)(struct hfi_call *call);               /* frees what is in `u`; may be NULL */
    bool settles; /* its outcome is the core's business: it can end unsettled */
    /* it is an acquire: if it is cancelled, its settlement wants to hear the reply */
    bool acquiring;
    bool settling;  /* it is the settlement: unless it succeeds, nothing is settled */
    bool unacked;   /* it has acquired, and too few have confirmed that: it is to be undone */
    bool yields;    /* its owner wants to acquire again: it ends after the next answer */
    bool remembers; /* its last script was given the key for who did not hear (fair.c) */
    /* it has its outcome, and goes on with what it left in front of a line (hand_over.c) */
    bool handing_over;
    int outcome;
    const char *outcome_words;
    struct hfi_req *ghost; /* what a cancelled acquire has on its way: its settlement hears of it */
    struct hfi_node *ghost_node; /* who has that, with a reference */
    unsigned ghost_event;
    bool ghost_alone; /* nothing before it may have acquired */
    union {
        struct {
            struct hfi_waiter waiter;
            struct hfi_node *home; /* where it listens, with a reference; NULL: nowhere */
            struct hfi_line line;
            struct hfi_latch_look latch;
            int64_t ttl_ms;       /* what was left of the other's lease */
            int64_t attempted_ms; /* when the last attempt started */
            int64_t unacked_ms;   /* since then too few confirm; 0: they do, or nothing is known */
            unsigned unacked;     /* how often in a row */
            unsigned naps;        /* sleeps so far while nobody told us of releases */
            unsigned fruitless;   /* wake-ups in a row that led to nothing */
            bool woken;           /* there was a message since the last attempt started */
            bool heard;           /* and the server has confirmed it */
            bool ticketless;      /* it was refused with a ticket, and is tried without */
            bool own_message;     /* that of our own release is still to come */
            uint16_t owed;        /* so many go first (courtesy.c), */
            uint16_t lets_pass;   /* and so many of them have not been there yet: a release is */
            uint16_t stand_ms;    /* followed only so long after it, if nobody else came */
        } acquire;
        struct {
            struct hfi_req *seen; /* holds the owner that was seen */
            unsigned rounds;
        } force;
        hf_lock_info *info; /* inspect: what is known so far */
        struct {
            hf_facts *list;
            size_t step;
        } facts;
        struct hfi_redis_survey *survey;
        const struct hfi_redis_act *act;
    } u;
};

static inline struct hfi_redis *hfi_redis_of(struct hfi_engine *engine) {
    return HFI_CONTAINER(engine, struct hfi_redis, base);
}

static inline struct hfi_call_state *hfi_state_of(struct hfi_call *call) {
    return call->state;
}

static inline struct hfi_call_state *hfi_state_around(struct hfi_exchange *x) {
    return HFI_CONTAINER(x, struct hfi_call_state, exchange);
}

/* The reply of a call's exchange that has succeeded. */
static inline const redisReply *hfi_answer_of(struct hfi_call *call) {
    return hfi_exchange_reply(&hfi_state_of(call)->exchange);
}

/* ---- call_life.c ---- */

/* Starts the bookkeeping of a call, with exchanges that end at call->deadline_ms and are
 * repeated briefly. */
struct hfi_call_state *hfi_call_begin(struct hfi_call *call);

/* Sends a command of the call; `answered` runs when its exchange has finished, perhaps at once. */
void hfi_call_send(struct hfi_call *call, const struct hfi_script *script,
                   void (*write)(struct hfi_exchange *, int64_t, struct hfi_command *),
                   void (*answered)(struct hfi_call *call));

/* Ends a call: err and what follows from it, then done(). The call may be gone when this
 * returns. */
void hfi_call_finish(struct hfi_call *call, int err);
/* The same with words, for what is no error of the exchange. */
void hfi_call_fail(struct hfi_call *call, int err, const char *words);
/* Ends a call because of what the server sent. */
void hfi_call_fail_proto(struct hfi_call *call);

/* Forgets what a cancelled acquire has on its way. */
void hfi_call_drop_ghost(struct hfi_call *call);

void hfi_call_step(struct hfi_call *call, unsigned events);
void hfi_call_attend(struct hfi_call *call);
void hfi_call_cancel(struct hfi_call *call, int err);

/* ---- engine.c ---- */

/* The node that serves a name now, with a reference; NULL: none is known. Any thread. */
static inline struct hfi_node *hfi_redis_aim(struct hfi_redis *redis, const char *name,
                                             size_t len) {
    return redis->route->ops->aim(redis->route, name, len);
}

/* Messages of locks go only to those who listen at the server of the slot. Known before anything is
 * sent. Any thread. */
static inline bool hfi_redis_is_sharded(const struct hfi_redis *redis) {
    return atomic_load_explicit(&redis->route->sharded, memory_order_relaxed);
}

/* Adds the command by which scripts tell of releases. */
static inline void hfi_redis_write_publish(const struct hfi_redis *redis,
                                           struct hfi_command *command) {
    if (hfi_redis_is_sharded(redis))
        hfi_command_bytes(command, "spublish", 8);
    else
        hfi_command_bytes(command, "publish", 7);
}

/* Something is held for a while, or listened to, or no longer: the route has an eye on the servers, if they can
 * change. On the keeper's thread. */
void hfi_redis_watch_route(struct hfi_redis *redis);

/* A release or break whose wake-up the server refused: counts it, and logs the first. */
void hfi_redis_notify_failed(struct hfi_exchange *x);

/* The server that this name's connections lead to is not where it was, so what we hold there
 * protects nothing any more: the core is told. *ret_control: renewals would still have gone there.
 * Any thread. */
bool hfi_redis_was_replaced(struct hfi_redis *redis, const char *name, size_t len,
                            bool *ret_control);

/* ---- replaced.c, on the keeper's thread ---- */

/* A connection of a node has come up: whether another server is at its address now, on a route that does not change by
 * itself. */
bool hfi_redis_is_another(struct hfi_redis *redis, struct hfi_node *node);
/* Warns if the clocks of two differ by too much. */
void hfi_redis_compare_clocks(struct hfi_redis *redis, struct hfi_node *from, struct hfi_node *to);

/* ---- courtesy.c: those who wait elsewhere go first ---- */

/* A release has told so many, ourselves among them if we listen. */
enum hfi_others hfi_courtesy_owed(struct hfi_call *call, int told);
/* An acquire begins. True: it sleeps first, so that others can come. */
bool hfi_courtesy_begin(struct hfi_call *call);
/* There was a message of a release. True: it is let pass, and the call sleeps. */
bool hfi_courtesy_lets_pass(struct hfi_call *call);
/* It has acquired. */
void hfi_courtesy_end(struct hfi_call *call);

/* ---- The operations ---- */

void hfi_acquire(struct hfi_call *call);
/* Parts of it, for unconfirmed.c: one more attempt, which is also what it sends from then on; and what
 * there is to know of messages, in any step. */
void hfi_acquire_again(struct hfi_call *call);
void hfi_acquire_news(struct hfi_call_state *state, unsigned events);
/* For park.c: begins, and sends nothing; sleeps between two attempts; goes on with such a sleep. */
struct hfi_call_state *hfi_acquire_prepare(struct hfi_call *call);
bool hfi_acquire_sleeps(struct hfi_call *call);
void hfi_acquire_sleep_on(struct hfi_call *call, int64_t until_ms, unsigned events);
/* park.c: as struct hfi_call_ops has them */
struct hfi_parked *hfi_park(struct hfi_call *call, int64_t *ret_until_ms);
void hfi_resume(struct hfi_call *call, struct hfi_parked *parked, unsigned events);
void hfi_unpark(struct hfi_engine *engine, struct hfi_parked *parked);
/* Too few have confirmed what it has acquired. */
void hfi_acquire_unconfirmed(struct hfi_call *call);
void hfi_release(struct hfi_call *call);
void hfi_extend(struct hfi_call *call);
void hfi_adopt(struct hfi_call *call);
void hfi_force(struct hfi_call *call);
void hfi_ask(struct hfi_call *call);
void hfi_settle(struct hfi_call *call);
/* What undoes an acquire: its script and arguments, and whether the answer says that it is undone. */
const struct hfi_script *hfi_undo_script(struct hfi_call *call);
void hfi_undo_write(struct hfi_exchange *x, int64_t not_after_ms, struct hfi_command *command);
int hfi_undo_read(struct hfi_call *call, bool *ret_more);
void hfi_act(struct hfi_call *call);
/* The same as a part of another operation. */
void hfi_act_send(struct hfi_call *call, const struct hfi_redis_act *act,
                  void (*answered)(struct hfi_call *call));
void hfi_inspect(struct hfi_call *call);
void hfi_facts(struct hfi_call *call);
void hfi_survey(struct hfi_call *call);
void hfi_renew(struct hfi_engine *engine, struct hfi_renewal *renewal);
void hfi_renewals_stop(struct hfi_redis *redis);

#endif
