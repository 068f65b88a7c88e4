/* Which node serves a name. One implementation per topology: single.c now; Sentinel and Cluster
 * will be siblings that follow a primary or a slot map behind the same functions. */
#ifndef HFI_REDIS_ROUTE_ROUTE_H
#define HFI_REDIS_ROUTE_ROUTE_H

#include "redis/route/node.h"

struct hfi_route;

struct hfi_route_ops {
    /* The node that serves a key now, or any if there is no key; with a reference. NULL: none is
     * known. Any thread, no waiting. Ask again before each attempt, since another may serve the key
     * by then. */
    struct hfi_node *(*aim)(struct hfi_route *route, const char *key, size_t len);
    /* The same without a reference, for comparing: the node may be gone. Any thread, under any
     * mutex of another's. */
    const struct hfi_node *(*node)(struct hfi_route *route, const char *key, size_t len);
    /* Visits all nodes that there are, in an order that stays. Any thread; `visit` calls nothing
     * of the route. */
    void (*each)(struct hfi_route *route, void (*visit)(struct hfi_node *node, void *arg),
                 void *arg);
    void (*stop)(struct hfi_route *route); /* on the keeper's thread: closes all connections */
    void (*free)(struct hfi_route *route); /* after the keeper has ended */
    void (*close_fds)(struct hfi_route *route);
};

struct hfi_route {
    const struct hfi_route_ops *ops;
};

#endif
