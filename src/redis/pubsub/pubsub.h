/* The channels of one server that we subscribe to, and the waiters of each.
 *
 * A message is a hint to try again, whatever it says, so it becomes an event for each waiter's
 * task. If it is a number, it is kept for the waiters that understand it. One subscription serves
 * all waiters of a channel. It lingers after the last waiter has left, since the next one often
 * comes soon. */
#ifndef HFI_REDIS_PUBSUB_PUBSUB_H
#define HFI_REDIS_PUBSUB_PUBSUB_H

#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "net/conn/conn.h"
#include "net/resp/wire/reply.h"
#include "task/task.h"

struct hfi_pubsub;
struct hfi_channel;
struct hfi_waiter;

/* State of a channel's subscription, as a listener sees it. */
enum hfi_name_listener_state {
    HFI_UNSUBSCRIBED, /* not subscribed: not yet, the connection was lost, or the slot has moved */
    HFI_SUBSCRIBED,
    HFI_REFUSED /* the server refuses the subscription */
};

/* A waiter that gets every message itself. Called under the registry's mutex, on the thread that
 * reads the connection or joins the channel: it must be brief. */
struct hfi_listener {
    void (*on_message)(struct hfi_waiter *waiter, const char *message, size_t len);
    /* The state has changed; in order with the messages, and besides the events. NULL: the events
     * are enough. */
    void (*on_state)(struct hfi_waiter *waiter, enum hfi_name_listener_state state);
    const char *refused; /* log text for a refused subscription */
};

/* The number in a published message. Guarded by the registry. */
struct hfi_grant_message {
    int64_t number; /* the largest; 0: none */
    int64_t at_ms;  /* when it came */
};

/* A waiter of a channel. Its task gets HFI_EVENT_SUBSCRIBED when the server has confirmed (again
 * after a reconnect), HFI_EVENT_REFUSED if it refused, and HFI_EVENT_MESSAGE for a message. It gets
 * both of the latter when the connection was lost or the channel's slot moved to another server. */
struct hfi_waiter {
    struct hfi_link link;
    struct hfi_pubsub *pubsub; /* where it has joined */
    struct hfi_channel *channel;
    struct hfi_task *task;
    /* the sync caller that reads messages itself while it waits; NULL: the keeper reads */
    struct hfi_sync_caller *caller;
    const struct hfi_listener *listener; /* NULL: only the event */
    struct hfi_grant_message *grant;     /* NULL: it ignores numbers */
    int linger_ms; /* how long the subscription stays after it has left; 0: LINGER_MS */
    bool sharded;  /* the channel belongs to a slot, and only the server of that slot has it */
    /* a lazy listener: it needs no driver of its own, since the keeper reads when no waiter does */
    bool lazy;
};

/* For the channels of the server behind `conn`. */
int hfi_pubsub_new(const struct hfi_mem *mem, const struct hfi_log *log, struct hfi_keeper *keeper,
                   struct hfi_conn *conn, struct hfi_pubsub **ret);
/* On the keeper's thread, before the connection is freed: nothing is sent any more, and all waiters
 * are woken. NULL is fine. */
void hfi_pubsub_stop(struct hfi_pubsub *pubsub);
void hfi_pubsub_free(struct hfi_pubsub *pubsub); /* NULL is fine */

/* Any thread. Join: HF_ENOMEM, HF_ECLOSED; the waiter stays in place until it leaves or moves.
 * *ret_subscribed: the channel is subscribed already, and no event will say so. */
int hfi_pubsub_join(struct hfi_pubsub *pubsub, struct hfi_waiter *waiter, struct hfi_task *task,
                    const char *name, size_t len, bool *ret_subscribed);
/* Its channel is subscribed now: an event may be about an earlier subscription. Only while
 * joined. */
bool hfi_pubsub_is_subscribed(const struct hfi_waiter *waiter);
/* As join, but only if the channel is subscribed already. False: it is not. */
bool hfi_pubsub_join_subscribed(struct hfi_pubsub *pubsub, struct hfi_waiter *waiter,
                                struct hfi_task *task, const char *name, size_t len);
void hfi_pubsub_leave(struct hfi_waiter *waiter);
/* Moves a waiter to other memory, with everything it has received. */
void hfi_pubsub_move(struct hfi_waiter *from, struct hfi_waiter *to);
/* The waiter has joined, but its channel is not subscribed. True: because the server does not have
 * the slot, or not yet. Then SUBSCRIBE is sent again. */
bool hfi_pubsub_again(struct hfi_waiter *waiter);

/* Wakes the waiters of a channel, or (all) of every channel, as a message without content does. Not
 * those that listen to messages. Any thread. */
void hfi_pubsub_wake(struct hfi_pubsub *pubsub, const char *name, size_t len);
void hfi_pubsub_wake_all(struct hfi_pubsub *pubsub);

/* The largest positive number among the messages since it joined or last called this. False: there
 * was none. */
bool hfi_pubsub_take(struct hfi_waiter *waiter, int64_t *ret_number, int64_t *ret_received_ms);

/* A sync caller is about to join: reads the messages that came before, which are not for it. */
void hfi_pubsub_catch_up(struct hfi_pubsub *pubsub, struct hfi_exec *caller);

/* The yield quota of a channel: how many remote waiters may go first (yield_to_waiters.c). The
 * functions are in pubsub_yield.c. */
struct hfi_yield {
    uint16_t others, yield_ms; /* how many may go first, and for how long; 0: no quota */
    bool own;                  /* the message of our own release has not come yet */
    int64_t since_ms;
};

/* Sets the quota after a release sent at `sent_ms`, which reached `subscribers` clients, ourselves
 * among them if we are subscribed. UNKNOWN: we may not be. FIRST: the next call that joins takes
 * the quota. NONE: there are no others, or the last yields were in vain. */
enum hfi_others hfi_pubsub_set_yield(struct hfi_pubsub *pubsub, const char *name, size_t len,
                                     int subscribers, int64_t sent_ms, int64_t yield_ms);
/* False: there is no quota, or another call has taken it. */
bool hfi_pubsub_take_yield(struct hfi_waiter *waiter, struct hfi_yield *ret);
/* The result of a yield: whether any other client took the lock, and the upper limit for later
 * quotas. */
void hfi_pubsub_yielded(struct hfi_waiter *waiter, bool used, int limit);

/* Called by the connection: messages on the thread that reads, its state on the keeper's. True: the
 * server has said that a slot is not its own, or no longer. */
bool hfi_pubsub_push(struct hfi_pubsub *pubsub, const struct hfi_reply *reply);
void hfi_pubsub_state(struct hfi_pubsub *pubsub, bool up);

#endif
