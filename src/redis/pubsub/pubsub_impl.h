/* Shared by pubsub.c and pubsub_yield.c; not for other files. */
#ifndef HFI_REDIS_PUBSUB_PUBSUB_IMPL_H
#define HFI_REDIS_PUBSUB_PUBSUB_IMPL_H

#include "base/table.h"
#include "redis/pubsub/pubsub.h"

enum channel_state {
    CHANNEL_NEW,
    CHANNEL_SUBSCRIBING,
    CHANNEL_SUBSCRIBED,
    CHANNEL_REFUSED,
    CHANNEL_MOVED
};

struct hfi_channel {
    struct hfi_keyed keyed; /* in the registry, by its name */
    struct hfi_link waiters;
    struct hfi_link todo;  /* in the registry's list when a SUBSCRIBE may have to be sent */
    struct hfi_link asked; /* in the registry's list while a SUBSCRIBE is in flight */
    enum channel_state state;
    bool sharded;
    int64_t leave_ms;   /* without waiters: when to unsubscribe */
    int64_t moved_ms;   /* since when it is MOVED */
    int64_t message_ms; /* when the last message came */
    struct hfi_yield yield_quota;
    int64_t no_yield_ms;  /* no quota is set before this: the last yields were in vain, */
    uint8_t in_vain;      /* this many times in a row */
    uint16_t yield_limit; /* at most this many waiters came in a yield; 0: not known */
    char name[];
};

#define LOGGED_MAX 5 /* one text for releases, and one for each struct hfi_listener */

struct hfi_pubsub {
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_exec *exec; /* the keeper's */
    struct hfi_conn *conn;
    struct hfi_task task; /* on the keeper: update() */
    struct hfi_alarm alarm;

    pthread_mutex_t mtx; /* guards below */
    struct hfi_table channels;
    struct hfi_link todo, asked;
    int64_t alarm_ms;               /* when `alarm` is set to fire; HFI_NEVER */
    const char *logged[LOGGED_MAX]; /* warnings about refused channels, each logged once */
    bool up, stopped;
};

/* NULL: there is none. */
struct hfi_channel *hfi_pubsub_find_locked(struct hfi_pubsub *pubsub, const char *name, size_t len);

#endif
