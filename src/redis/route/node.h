/* One server: our connections to it, and what is learnt from it.
 *
 * There are up to four connections for commands of synchronous callers, one for the keeper (renewals,
 * settlement, asynchronous operations), one for messages, one for hf_dispatch() if that is used, and one
 * for whatever replicas are to confirm, whoever sends it.
 * None is opened before somebody needs it.
 *
 * Nodes are reference-counted: by the route that made them, by each exchange from its first try to
 * its end, by what a cancelled one has on its way, by each renewal under way, and by whoever listens
 * to messages. The connections stay until the route stops the node, which it does when nobody else has
 * a reference, or at the end of the client. One that is not to be asked any more is retired before. */
#ifndef HFI_REDIS_ROUTE_NODE_H
#define HFI_REDIS_ROUTE_NODE_H

#include "engine/engine.h"
#include "net/conn.h"
#include "net/url.h"

struct hfi_node;
struct hfi_pubsub;
struct hfi_rumours;

/* Which process it is, and what its clock says. */
struct hfi_met {
    char run_id[48]; /* "": it does not tell */
    bool clock_known;
    int64_t ahead_ms; /* its clock's lead over ours */
};

/* What the engine has learnt from a server, beside its scripts, which it simply tries. The clock is
 * not here but with each connection: an address can lead to two processes for a moment, and
 * `not-after` would be worth nothing if it were by the clock of the other. */
struct hfi_learnt {
    struct hfi_pubsub *pubsub;   /* its channels; the same from `made` to `freed`, like the next */
    struct hfi_rumours *rumours; /* what is said there of broken holds */
    struct hfi_answers *answers; /* and what is asked */

    /* Any thread. */
    _Atomic int64_t newest_us;   /* the newest time of its clock seen by those in line */
    atomic_bool no_unheard;      /* this user may not use the key for who did not hear (fair.c) */
    atomic_bool no_tickets;      /* nor leave tickets (ticket.c) */
    atomic_bool wake_ups_warned; /* that it refuses to wake those who wait was logged */
    atomic_bool rumours_warned;  /* that it refuses to tell of a break was logged */
    atomic_bool moving_told;     /* that a slot of its is on the move was logged */
    atomic_bool held_up_told;    /* that waits get no useful answer was logged */
    atomic_bool was_replica;     /* its address led to one; it is asked for its role since */

    /* The keeper's thread only. */
    int64_t took_over_ms; /* when it followed another; 0: it did not */
    bool in_slots;        /* it is a cluster's: the keys of a script must share a slot */
    bool control_was_up;  /* so when it is up again, that is a reconnect */
    struct hfi_met met;   /* who it was when a connection that tells of it was last up */
};

/* What a node tells the engine. */
struct hfi_node_hooks {
    /* Its connections are made, and nothing was sent yet. HF_ENOMEM. */
    int (*made)(void *arg, struct hfi_node *node);
    /* It is retired or stopped. On the keeper's thread, or that has ended. */
    void (*stopping)(void *arg, struct hfi_node *node);
    void (*freed)(void *arg, struct hfi_node *node);
    /* A message, on the thread of whoever reads. */
    void (*push)(void *arg, struct hfi_node *node, const void *message);
    /* Its connection for messages, or the keeper's, came up or was lost. On the keeper's thread. */
    void (*pubsub_state)(void *arg, struct hfi_node *node, bool up);
    void (*control_state)(void *arg, struct hfi_node *node, bool up);
};

struct hfi_node_config {
    const struct hfi_mem *mem;
    const struct hfi_log *log;
    struct hfi_keeper *keeper;
    struct hfi_exec *dispatch;         /* NULL: without manual dispatch */
    const struct hfi_url *url;         /* copied from */
    bool primary;                      /* it is of use only while it says that it is no replica */
    const struct hfi_tls_context *tls; /* to be like; NULL: one is made from the url */
    const char *client_name;           /* copied */
    int64_t cmd_timeout_ms, ping_ms;
    bool sleeps_at_once;
    hf_map_fn map; /* see addresses.h */
    void *map_user;
    atomic_ullong *commands, *reconnects;
    const struct hfi_node_hooks *hooks;
    void *arg;                       /* of all of these, and of the next */
    const struct hfi_seal_ops *acks; /* how replicas are asked to confirm */
    /* For the route: a connection could not be made, and why, or was lost (HF_OK). On the keeper's
     * thread. NULL: nobody cares. */
    void (*trouble)(void *arg, const struct hfi_node *node, int err, const hf_error *error);
    void *trouble_arg;
};

/* What its url says of TLS, to make others like it. *ret is NULL without TLS. */
int hfi_node_tls(const struct hfi_mem *mem, const struct hfi_url *url, const char *host,
                 struct hfi_tls_context **ret, hf_error *error);

/* With one reference. */
int hfi_node_new(const struct hfi_node_config *config, struct hfi_node **ret, hf_error *error);
struct hfi_node *hfi_node_ref(struct hfi_node *node); /* returns it */
void hfi_node_unref(struct hfi_node *node);           /* NULL is fine */
/* Closes the connections: requests in flight complete with HF_ECLOSED. On the keeper's thread,
 * or when it has ended, and when nobody can be in hfi_node_pick() on another. Idempotent; whoever
 * made it does so before its last reference goes. */
void hfi_node_stop(struct hfi_node *node);
/* It is not to be asked any more: see hfi_conn_retire(). On the keeper's thread. Idempotent. */
void hfi_node_retire(struct hfi_node *node);
bool hfi_node_is_retired(const struct hfi_node *node); /* any thread */
/* Ends its connections; whoever wants one connects again. Any thread. */
void hfi_node_hang_up(struct hfi_node *node);
/* The same, and none of them is made again before somebody wants it. */
void hfi_node_rest(struct hfi_node *node);
/* From now on only a primary is of use there. Any thread. */
void hfi_node_insist_on_primary(struct hfi_node *node);
/* Whether another server may be there some day: its address is that of a network. */
bool hfi_node_may_change(const struct hfi_node *node);
/* Whether somebody other than the one who asks has a reference. */
bool hfi_node_is_shared(const struct hfi_node *node);
void hfi_node_close_fds(struct hfi_node *node);

/* The connection for a call of this lane. NULL: stopped, or (dispatch only) out of memory. */
struct hfi_conn *hfi_node_pick(struct hfi_node *node, enum hfi_lane lane);
/* How many requests are under way; messages are none. On the keeper's thread. */
unsigned hfi_node_load(struct hfi_node *node);
/* Whether something is under way that replicas are to confirm, which is not in that number: it takes as long as they do. */
bool hfi_node_confirms(struct hfi_node *node);
struct hfi_conn *hfi_node_listener(struct hfi_node *node); /* that for messages */
/* That for what replicas are to confirm; requests on it may be sealed. NULL as above. */
struct hfi_conn *hfi_node_acks(struct hfi_node *node);
struct hfi_learnt *hfi_node_learnt(struct hfi_node *node);
/* As struct hfi_engine_ops has it. */
bool hfi_node_identity(const struct hfi_node *node, struct hfi_server *ret);

/* Whether connections lead to a server that is not where it was: its socket was removed, or another
 * one is there now. These are closed, and the next go to what is there. *ret_control: the keeper's
 * is among them. Never for a server that is not found by a path of ours (local:). Any thread. */
bool hfi_node_was_replaced(struct hfi_node *node, bool *ret_control);

const char *hfi_node_name(const struct hfi_node *node);
int64_t hfi_node_last_answer_ms(const struct hfi_node *node); /* 0: it never said anything */

#endif
