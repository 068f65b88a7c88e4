/* Which node serves a name. One implementation per topology: single.c for one server, sentinel.c for a
 * primary that changes, cluster.c for several that share the slots of a cluster. */
#ifndef HFI_REDIS_ROUTE_ROUTE_H
#define HFI_REDIS_ROUTE_ROUTE_H

#include "redis/route/node.h"
#include "redis/route/slots.h"

struct hfi_route;

/* Where to go with a command that a node has sent elsewhere. */
struct hfi_detour {
    enum hfi_turn {
        HFI_TURN_AGAIN, /* to whoever serves the key now */
        HFI_TURN_ASK,   /* to `node`, this once, behind ASKING */
        HFI_TURN_LATER  /* that node is not known yet, but will be in a moment */
    } turn;
    struct hfi_node *node; /* with a reference; else NULL */
};

struct hfi_route_ops {
    /* The node that serves a key now, or any if there is no key; with a reference. NULL: none is
     * known. Any thread, no waiting. Ask again before each attempt, since another may serve the key
     * by then. */
    struct hfi_node *(*aim)(struct hfi_route *route, const char *key, size_t len);
    /* The same without a reference, for comparing: the node may be gone. Any thread, under any
     * mutex of another's. */
    const struct hfi_node *(*node)(struct hfi_route *route, const char *key, size_t len);
    /* Visits all nodes that there are, in an order that stays; those that are retired, too, as long
     * as somebody has to do with them. Any thread; `visit` calls nothing of the route. */
    void (*each)(struct hfi_route *route, void (*visit)(struct hfi_node *node, void *arg),
                 void *arg);
    void (*stop)(struct hfi_route *route); /* on the keeper's thread: closes all connections */
    void (*free)(struct hfi_route *route); /* after the keeper has ended */
    void (*close_fds)(struct hfi_route *route);
    /* How many replicas of a node are up, as far as those know who watch over it; 0: none, or nobody
     * knows yet. A node of NULL: this will be asked. Any thread, no waiting. NULL: nobody watches. */
    unsigned (*replicas)(struct hfi_route *route, const struct hfi_node *node);
    /* Fewer have confirmed something than that: it may be known by now why. Any thread. NULL as above. */
    void (*too_few)(struct hfi_route *route);
    /* The node has refused a command in a way that only one does that is not to be asked: its
     * connections are ended, and the route looks for the right one. Any thread. */
    void (*refused)(struct hfi_route *route, struct hfi_node *node);

    /* ---- Of a route whose nodes change. NULL, all of these: they do not ---- */

    /* No node is known: tells when one is, or why none was found. As hfi_conn_want(). */
    void (*want)(struct hfi_route *route, const char *key, size_t len, struct hfi_want *want,
                 struct hfi_task *task, unsigned event);
    void (*unwant)(struct hfi_route *route, struct hfi_want *want);
    /* Something is held for a while, or no longer: the route has an eye on the servers. On the
     * keeper's thread. */
    void (*watch)(struct hfi_route *route, bool on);
    /* When anybody who could tell where to go, or is there, last said anything; 0: nobody ever
     * has. Any thread. */
    int64_t (*heard_ms)(struct hfi_route *route);

    /* ---- Of a route with slots. NULL, both: it has none ---- */

    /* The slot of a key. Any thread, under any mutex of another's. */
    unsigned (*slot)(struct hfi_route *route, const char *key, size_t len);
    /* The node has said that another serves the slot. Any thread. */
    struct hfi_detour (*redirected)(struct hfi_route *route, struct hfi_node *node,
                                    const struct hfi_redirect *redirect);
};

struct hfi_route {
    const struct hfi_route_ops *ops;
    atomic_bool found; /* of one whose nodes change: there was one, so there may be one again */
    /* of a cluster: messages go only to those who listen at the node of the slot. Settled before the first
     * node is found */
    atomic_bool sharded;
};

/* Whether another server may serve a key soon, so that it is worth waiting for. */
static inline bool hfi_route_changes(const struct hfi_route *route) {
    return route->ops->want != NULL;
}

static inline bool hfi_route_has_slots(const struct hfi_route *route) {
    return route->ops->slot != NULL;
}

/* What such a route tells the engine, on the keeper's thread: `to` serves from now on what `from` did,
 * which is retired, or NULL: this is the first. */
typedef void (*hfi_changed_fn)(void *arg, struct hfi_node *from, struct hfi_node *to);

#endif
