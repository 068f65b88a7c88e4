/* A route says which node serves a name. One implementation per topology: single.c for one server,
 * sentinel.c for a primary that changes, cluster.c for the primaries of a cluster. */
#ifndef HFI_REDIS_ROUTE_ROUTE_H
#define HFI_REDIS_ROUTE_ROUTE_H

#include "redis/route/node.h"
#include "redis/route/redirect_parse.h"

struct hfi_route;

/* Where to send a command after a redirect. */
struct hfi_redirects {
    enum hfi_turn {
        HFI_TURN_AGAIN, /* to the node that serves the key now */
        HFI_TURN_ASK,   /* to `node`, this once, behind ASKING */
        HFI_TURN_LATER  /* that node is not known yet, but will be in a moment */
    } turn;
    struct hfi_node *node; /* with a reference; else NULL */
};

struct hfi_route_ops {
    /* The node that serves a key now, or any node if there is no key; with a reference. NULL: none
     * is known. Any thread, does not block. Ask again before each attempt, since another node may
     * serve the key by then. */
    struct hfi_node *(*node_for)(struct hfi_route *route, const char *key, size_t len);
    /* The same without a reference, for comparing: the node may be gone. Any thread, under any
     * mutex but the route's own. */
    const struct hfi_node *(*node)(struct hfi_route *route, const char *key, size_t len);
    /* Visits all nodes, in a stable order, including retired ones that are still referenced. Any
     * thread; `visit` calls nothing of the route. */
    void (*each)(struct hfi_route *route, void (*visit)(struct hfi_node *node, void *arg),
                 void *arg);
    void (*stop)(struct hfi_route *route); /* on the keeper's thread: closes all connections */
    void (*free)(struct hfi_route *route); /* after the keeper has ended */
    void (*close_fds)(struct hfi_route *route);
    /* How many replicas of a node are up, as the sentinels or the cluster know; 0: none, or not
     * known yet. With a node of NULL it announces that this will be asked. Any thread, does not
     * block. NULL: the topology cannot know. */
    unsigned (*replicas)(struct hfi_route *route, const struct hfi_node *node);
    /* Fewer replicas have acked than that: refresh the number. Any thread. NULL as above. */
    void (*too_few)(struct hfi_route *route);
    /* The node has replied with an error that shows it is not the one to ask. The route ends its
     * connections, or checks the map, and searches for the right node. Any thread. */
    void (*refused)(struct hfi_route *route, struct hfi_node *node);

    /* ---- For a route whose nodes change; else all NULL ---- */

    /* No node is known: posts `event` when one is, or with the reason why none was found. As
     * hfi_conn_want(). */
    void (*want)(struct hfi_route *route, const char *key, size_t len, struct hfi_want *want,
                 struct hfi_task *task, unsigned event);
    void (*unwant)(struct hfi_route *route, struct hfi_want *want);
    /* Starts or stops watching the servers for changes, while something is held for long. On the
     * keeper's thread. */
    void (*watch)(struct hfi_route *route, bool on);
    /* Asks the sentinels whether the node is still the primary. Posts `event` when a majority has
     * said so, or with the reason why not (HF_EUNREACH). Replies to earlier queries do not count.
     * As `want`, and ended by `unwant`. NULL: the route has no sentinels. */
    void (*confirm)(struct hfi_route *route, const struct hfi_node *node, struct hfi_want *want,
                    struct hfi_task *task, unsigned event);
    /* When a server or sentinel of this route last replied; 0: never. Any thread. */
    int64_t (*last_answer_ms)(struct hfi_route *route);

    /* ---- For a route with slots; else both NULL ---- */

    /* The slot of a key. Any thread, under any mutex but the route's own. */
    unsigned (*slot)(struct hfi_route *route, const char *key, size_t len);
    /* The node has replied MOVED or ASK. Any thread. */
    struct hfi_redirects (*redirected)(struct hfi_route *route, struct hfi_node *node,
                                       const struct hfi_redirect *redirect);
};

struct hfi_route {
    const struct hfi_route_ops *ops;
    /* of a route whose nodes change: a node was found before, so one may be found again */
    atomic_bool found;
    /* of a cluster: messages are sharded, so only subscribers at the slot's node get them. Settled
     * before the first node is found */
    atomic_bool sharded;
};

/* Whether another server may serve a key soon, so that it is worth waiting for. */
static inline bool hfi_route_changes(const struct hfi_route *route) {
    return route->ops->want != NULL;
}

static inline bool hfi_route_has_slots(const struct hfi_route *route) {
    return route->ops->slot != NULL;
}

/* Called by such a route on the keeper's thread: `to` now serves in place of `from`, which is
 * retired; NULL: `to` is the first. */
typedef void (*hfi_changed_fn)(void *arg, struct hfi_node *from, struct hfi_node *to);

#endif
