/* A node is one server: our connections to it, and the state learnt from it.
 *
 * It has up to four connections for commands of synchronous callers, and one each for: the keeper
 * (renewals, settlement, asynchronous operations), pub/sub messages, hf_dispatch() if that is used,
 * and acked commands of all threads. Each is opened when first needed.
 *
 * Nodes are reference-counted. References are held by the route that made the node, by each
 * exchange from its first try to its end, by the request in flight of a cancelled exchange, by each
 * renewal in progress, and by each pub/sub waiter. The connections stay until the route stops the
 * node: when no other reference is left, or when the client ends. A node that is not to be asked
 * any more is retired before that. */
#ifndef HFI_REDIS_ROUTE_NODE_H
#define HFI_REDIS_ROUTE_NODE_H

#include "engine/engine.h"
#include "net/conn/conn.h"
#include "net/url/url.h"

struct hfi_break_channel;
struct hfi_node;
struct hfi_pubsub;
struct hfi_server;
struct hfi_tracker;

/* The identity of a server's process, and its clock. */
struct hfi_server_seen {
    char run_id[48]; /* "": the server does not say */
    bool clock_known;
    int64_t ahead_ms; /* its clock's lead over ours */
};

/* State learnt from a server. Whether it has a script is not stored; EVALSHA is simply tried. The
 * server's clock is kept per connection instead: an address can lead to two processes for a moment,
 * and `not-after` by the clock of the wrong one would be useless. */
struct hfi_learnt {
    /* its channels; the same from `made` to `freed`, like the next three */
    struct hfi_pubsub *pubsub;
    struct hfi_break_channel *break_channel; /* its break notifications */
    struct hfi_survey_responder *answers;    /* its survey responder */
    struct hfi_tracker *tracker;             /* its reports of changed keys */

    /* Any thread. */
    _Atomic int64_t newest_us;  /* the newest server time seen by fair waiters */
    atomic_bool no_unheard;     /* this user may not use the `unheard` key (fair.c) */
    atomic_bool no_idempotency; /* nor idempotency keys (idempotency.c) */
    atomic_bool no_client_kill; /* nor end connections (lost_conns.c) */
    /* What it can do, for string locks (string.c): SET with NX and GET is refused; how to delete a
     * key that has a value, enum hfi_delete; scripts do not run */
    atomic_bool no_nx_get, scriptless;
    atomic_int delete_by;
    atomic_bool wake_ups_warned;      /* logged: it refuses to publish wake-ups */
    atomic_bool break_channel_warned; /* logged: it refuses to publish breaks */
    atomic_bool moving_logged;        /* logged: a slot of its is migrating */
    atomic_bool stalled_reported;     /* logged: waits get no useful reply */
    atomic_bool was_replica;          /* its address led to a replica; ROLE is checked since */

    /* The keeper's thread only. */
    int64_t took_over_ms; /* when it took over from another server; 0: it did not */
    bool in_slots;        /* it is in cluster mode: a script's keys must share a slot */
    bool control_was_up;  /* so the next time it is up is a reconnect */
    struct hfi_server_seen
        server_seen; /* its identity when its control or pub/sub connection was last up */
};

/* Events of a node, for the engine. */
struct hfi_node_hooks {
    /* Its connections are made, and nothing was sent yet. HF_ENOMEM. */
    int (*made)(void *arg, struct hfi_node *node);
    /* It is retired or stopped. On the keeper's thread, or after that has ended. */
    void (*stopping)(void *arg, struct hfi_node *node);
    void (*freed)(void *arg, struct hfi_node *node);
    /* A message, on the thread that reads the connection. */
    void (*push)(void *arg, struct hfi_node *node, const void *message);
    /* Its pub/sub connection, or the keeper's, came up or was lost. On the keeper's thread. */
    void (*pubsub_state)(void *arg, struct hfi_node *node, bool up);
    void (*control_state)(void *arg, struct hfi_node *node, bool up);
};

struct hfi_node_config {
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    struct hfi_exec *dispatch;         /* NULL: without manual dispatch */
    const struct hfi_url *url;         /* copied from */
    bool primary;                      /* ROLE must say that it is a primary */
    const struct hfi_tls_context *tls; /* template; NULL: one is made from the url */
    const char *client_name;           /* copied */
    int64_t cmd_timeout_ms, ping_interval_ms;
    bool sleeps_at_once;
    hf_address_map_fn address_map; /* see addresses.h */
    void *address_map_user;
    atomic_ullong *commands, *reconnects;
    const struct hfi_node_hooks *hooks;
    void *arg;                            /* of all hooks, and of `acks` */
    const struct hfi_ack_batch_ops *acks; /* writes and reads WAIT */
    /* For the route: connecting has failed, and why, or a connection was lost (HF_OK). On the
     * keeper's thread. May be NULL. */
    void (*on_failure)(void *arg, const struct hfi_node *node, int err, const hf_error *error);
    void *on_failure_arg;
};

/* A TLS context from the url, as a template for others. *ret is NULL without TLS. */
int hfi_node_tls(const struct hfi_mem *mem, const struct hfi_url *url, const char *host,
                 struct hfi_tls_context **ret, hf_error *error);

/* With one reference. */
int hfi_node_new(const struct hfi_node_config *config, struct hfi_node **ret, hf_error *error);
struct hfi_node *hfi_node_ref(struct hfi_node *node); /* returns it */
void hfi_node_unref(struct hfi_node *node);           /* NULL is fine */
/* Closes the connections: requests in flight complete with HF_ECLOSED. On the keeper's thread, or
 * after that has ended, and while no other thread can be in hfi_node_pick(). Idempotent; the maker
 * of the node calls it before the last reference goes. */
void hfi_node_stop(struct hfi_node *node);
/* It is not to be asked any more: see hfi_conn_retire(). On the keeper's thread. Idempotent. */
void hfi_node_retire(struct hfi_node *node);
bool hfi_node_is_retired(const struct hfi_node *node); /* any thread */
/* Closes its connections; they reconnect when wanted. Any thread. */
void hfi_node_hang_up(struct hfi_node *node);
/* As hang_up, and none of them reconnects before it is wanted. */
void hfi_node_rest(struct hfi_node *node);
/* From now on its connections require ROLE to say primary. Any thread. */
void hfi_node_insist_on_primary(struct hfi_node *node);
/* Whether another server may come to be at its address: it is a network address. */
bool hfi_node_may_change(const struct hfi_node *node);
/* Whether there is a reference besides the caller's. */
bool hfi_node_is_shared(const struct hfi_node *node);
void hfi_node_close_fds(struct hfi_node *node);

/* The connection for a call of this lane. NULL: stopped, or (dispatch only) out of memory. */
struct hfi_conn *hfi_node_pick(struct hfi_node *node, enum hfi_lane lane);
/* The number of requests in flight, without pub/sub and acked ones. On the keeper's thread. */
unsigned hfi_node_load(struct hfi_node *node);
/* Whether acked requests are in flight. hfi_node_load() leaves them out, since they take as long as
 * the replicas do. */
bool hfi_node_confirms(struct hfi_node *node);
struct hfi_conn *hfi_node_listener(struct hfi_node *node); /* the pub/sub connection */
/* Whether it has subscriptions, so waiters. On the keeper's thread. */
bool hfi_node_is_listened(struct hfi_node *node);
/* The ack connection; requests on it may join an ack batch. NULL as above. */
struct hfi_conn *hfi_node_acks(struct hfi_node *node);
struct hfi_learnt *hfi_node_learnt(struct hfi_node *node);
/* As in struct hfi_observe_ops. */
bool hfi_node_identity(const struct hfi_node *node, struct hfi_server *ret);

/* Whether connections lead to a server that is not at its path any more: its socket was removed, or
 * another server's is there. These are closed, and new ones go to the server that is there.
 * *ret_control: the keeper's is among them. Only for local: urls. Any thread. */
bool hfi_node_was_replaced(struct hfi_node *node, bool *ret_control);

const char *hfi_node_name(const struct hfi_node *node);
int64_t hfi_node_last_answer_ms(const struct hfi_node *node); /* 0: it never replied */

#endif
