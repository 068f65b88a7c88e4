/* The channels of one server that we listen on, and who waits for a message on each.
 *
 * A message is a hint to try again, whatever it says, so it becomes an event for each waiter's
 * task; a number in it is kept for waiters that know what it means. One subscription serves all
 * waiters of a channel; it lingers a little after the last has left, since the next is often about
 * to come. */
#ifndef HFI_REDIS_PUBSUB_H
#define HFI_REDIS_PUBSUB_H

#include "base/log.h"
#include "base/mem.h"
#include "base/task.h"
#include "engine/engine.h"
#include "net/conn.h"

#include <hiredis/hiredis.h>

struct hfi_pubsub;
struct hfi_channel;
struct hfi_waiter;

/* Whether what is said on a channel is heard. */
enum hfi_hearing_state {
    HFI_UNHEARD, /* not yet, or no more: the connection was lost, or the slot is another server's */
    HFI_HEARD,
    HFI_REFUSED /* the server does not let us */
};

/* One who hears every message itself. All of it on the thread of whoever reads, or joins, under the registry's mutex: it
 * must be brief. */
struct hfi_listener {
    void (*hear)(struct hfi_waiter *waiter, const char *message, size_t len);
    /* It is so from now on, for what is heard later; besides the events. NULL: these are enough. */
    void (*stands)(struct hfi_waiter *waiter, enum hfi_hearing_state state);
    const char *deaf; /* what to log when the server refuses it */
};

/* What was published that is a number. Guarded by the registry. */
struct hfi_heard {
    int64_t number; /* the largest; 0: none */
    int64_t at_ms;  /* when it came */
};

/* Somebody who waits. Its task gets HFI_EVENT_SUBSCRIBED once the server has confirmed (again
 * after a reconnect), HFI_EVENT_DEAF if it refused, HFI_EVENT_MESSAGE for a message, both when
 * the connection was lost or the channel's slot went to another server. */
struct hfi_waiter {
    struct hfi_link link;
    struct hfi_pubsub *pubsub; /* where it has joined */
    struct hfi_channel *channel;
    struct hfi_task *task;
    /* of a synchronous caller, who reads messages itself while it waits; NULL: the keeper does */
    struct hfi_attendant *caller;
    const struct hfi_listener *listener; /* NULL: only the event */
    struct hfi_heard *heard;             /* NULL: numbers mean nothing to it */
    int linger_ms; /* how long the subscription stays when it has left; 0: a little */
    bool sharded;  /* the channel is of a slot, and only the server of that slot has it */
    /* nobody has to read for its sake alone: the keeper does so soon enough when nobody waits */
    bool idly;
};

/* For the channels of the server to which `conn` leads. */
int hfi_pubsub_new(const struct hfi_mem *mem, const struct hfi_log *log, struct hfi_keeper *keeper,
                   struct hfi_conn *conn, struct hfi_pubsub **ret);
/* On the keeper's thread, before the connection goes: nothing is sent any more, and all waiters
 * are woken. NULL is fine. */
void hfi_pubsub_stop(struct hfi_pubsub *pubsub);
void hfi_pubsub_free(struct hfi_pubsub *pubsub); /* NULL is fine */

/* Any thread. Join: HF_ENOMEM, HF_ECLOSED; the waiter stays where it is until it leaves.
 * *ret_heard: the channel is subscribed already, and no event will say so. */
int hfi_pubsub_join(struct hfi_pubsub *pubsub, struct hfi_waiter *waiter, struct hfi_task *task,
                    const char *name, size_t len, bool *ret_heard);
/* Its channel is subscribed, now: an event may speak of an earlier one. Only while it has joined. */
bool hfi_pubsub_is_heard(const struct hfi_waiter *waiter);
/* The same, but only if the channel is subscribed already. False: it is not. */
bool hfi_pubsub_join_heard(struct hfi_pubsub *pubsub, struct hfi_waiter *waiter,
                           struct hfi_task *task, const char *name, size_t len);
void hfi_pubsub_leave(struct hfi_waiter *waiter);
/* It goes on in other memory, with all that it has heard. */
void hfi_pubsub_move(struct hfi_waiter *from, struct hfi_waiter *to);
/* It is still there, and hears nothing. True: because the server does not have the slot, or not yet; then it
 * is asked again. */
bool hfi_pubsub_again(struct hfi_waiter *waiter);

/* The largest positive number among the messages since it joined or last asked. False: none, or
 * only words. */
bool hfi_pubsub_take(struct hfi_waiter *waiter, int64_t *ret_number, int64_t *ret_heard_ms);

/* A synchronous caller is about to join: what came while nobody listened is not for it. */
void hfi_pubsub_catch_up(struct hfi_pubsub *pubsub, struct hfi_exec *caller);

/* What we owe to others who listen on a channel (courtesy.c); pubsub_debts.c has the rest. */
struct hfi_debt {
    uint16_t others, stand_ms; /* so many go first; 0: nothing is owed */
    bool own;                  /* the message of our own release has not come yet */
    int64_t since_ms;
};

/* A release that was sent then was told to so many, ourselves among them if we listen. UNKNOWN: whether we do. FIRST: the next who
 * joins is told of it. NONE also if those who listen did not come of late. */
enum hfi_others hfi_pubsub_owe(struct hfi_pubsub *pubsub, const char *name, size_t len, int told,
                               int64_t sent_ms, int64_t stand_ms);
/* False: nothing is owed, or another has taken it. */
bool hfi_pubsub_take_debt(struct hfi_waiter *waiter, struct hfi_debt *ret);
/* What came of it: whether anybody else came at all; and no more are owed from now on than `limit`. */
void hfi_pubsub_stood_back(struct hfi_waiter *waiter, bool used, int limit);

/* What the connection tells: messages on the thread of whoever reads, its state on the keeper's. True:
 * it says that a slot is not its own, or no longer. */
bool hfi_pubsub_push(struct hfi_pubsub *pubsub, const redisReply *reply);
void hfi_pubsub_state(struct hfi_pubsub *pubsub, bool up);

#endif
