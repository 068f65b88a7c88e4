/* The engine's state that every room of src/redis shares: configuration, the route, and the state
 * that the keeper's thread owns. */
#ifndef HFI_REDIS_EXCHANGE_ENV_H
#define HFI_REDIS_EXCHANGE_ENV_H

#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "net/resp/wire/command.h"
#include "redis/exchange/idempotency.h"
#include "redis/route/route.h"
#include "redis/wire/names.h"

#define HFI_ASK_NUMBER_LEN 32 /* length of a survey's id */

struct hfi_exchange;
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
    int64_t clock_drift_ppm; /* bound on the rate difference between a server's clock and ours */
    int64_t renew_every_ms;  /* a third of the trusted part of the watchdog's lease */
    int64_t watchdog_ms;     /* the lease of most holds */
    int64_t skew_limit_ms;   /* clocks that differ by this much are reported */
    int64_t fair_horizon_ms; /* a waiter in the fair queue that is silent for this long is dead */
    int64_t fair_confirm_ms; /* how long a grant waits for the waiter's sign of life */
    int64_t fair_wait_ms;    /* what a Java waiter adds to the deadlines behind it */
    int64_t ack_timeout_ms;  /* how long to wait for acks */
    bool ack_disk;           /* WAITAOF: acks mean that the write is on disk */
    bool confirms;           /* a majority of sentinels must confirm the primary after a renewal */
    /* when a yield quota was last set; 0: never (yield_to_waiters.c) */
    _Atomic int64_t yields_since_ms;
    atomic_ullong *in_doubt, *notify_failures, *failovers, *redirects, *ack_failures, *track_events;
    struct hfi_idempotency idempotency;

    struct hfi_route *route;
    int db;
    atomic_bool stopped; /* the connections are gone or about to go */
    atomic_uint
        names_subscribed; /* how many name listeners there are: an inspection may be for one */

    struct hfi_poll_batch *poll_batch;
    struct hfi_late_copies *late_copies;
    struct hfi_announcements *announcements; /* of losses: ours, and those of others */

    /* The keeper's thread only. */
    struct hfi_link renewals;                      /* in progress */
    struct hfi_link name_listeners;                /* see name_listener.c */
    const struct hfi_engine_events *engine_events; /* where events go; NULL: nowhere yet */
    /* A server reports that a key has changed, or (NULL) that any may have. */
    void (*key_changed)(struct hfi_redis *redis, const struct hfi_node *node, const char *name,
                        size_t name_len);
    bool listens;        /* something is held that may be broken (break_channel.c) */
    int64_t answered_ms; /* when a survey was last answered, and its id (survey_responder.c) */
    char answered[HFI_ASK_NUMBER_LEN];
};

static inline struct hfi_redis *hfi_redis_of(struct hfi_engine *engine) {
    return HFI_CONTAINER(engine, struct hfi_redis, base);
}

/* ---- engine.c ---- */

/* The node that serves a name now, with a reference; NULL: none is known. Any thread. */
static inline struct hfi_node *hfi_redis_node_for(struct hfi_redis *redis, const char *name,
                                                  size_t len) {
    return redis->route->ops->node_for(redis->route, name, len);
}

/* Lock messages are sharded: only subscribers at the node of the slot get them. Settled before
 * anything is sent. Any thread. */
static inline bool hfi_redis_is_sharded(const struct hfi_redis *redis) {
    return atomic_load_explicit(&redis->route->sharded, memory_order_relaxed);
}

/* Appends the command with which scripts publish releases. */
static inline void hfi_redis_write_publish(const struct hfi_redis *redis,
                                           struct hfi_command *command) {
    if (hfi_redis_is_sharded(redis))
        hfi_command_bytes(command, "spublish", 8);
    else
        hfi_command_bytes(command, "publish", 7);
}

/* Starts or stops watching the servers for changes, if the route can change: while something is
 * held for long, or a name has a listener. On the keeper's thread. */
void hfi_redis_watch_route(struct hfi_redis *redis);

/* The server refused to publish a release or break: counts it, and logs the first. */
void hfi_redis_notify_failed(struct hfi_exchange *x);

/* The server behind this name's connections was replaced, so our holds there protect nothing any
 * more. Has the core verify them. *ret_control: renewals would still have gone there. Any
 * thread. */
bool hfi_redis_was_replaced(struct hfi_redis *redis, const char *name, size_t len,
                            bool *ret_control);

/* ---- replaced.c, on the keeper's thread ---- */

/* A connection of a node has come up: whether another server is at its address now. Only for a
 * route that does not change by itself. */
bool hfi_redis_is_another(struct hfi_redis *redis, struct hfi_node *node);
/* Warns if the clocks of the two differ by too much. */
void hfi_redis_compare_clocks(struct hfi_redis *redis, struct hfi_node *from, struct hfi_node *to);

#endif
