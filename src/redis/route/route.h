/* Which node serves a name. One implementation per topology: single.c now; Sentinel and Cluster
 * will be siblings that follow a master or a slot map behind the same four functions. */
#ifndef HFI_REDIS_ROUTE_ROUTE_H
#define HFI_REDIS_ROUTE_ROUTE_H

#include "redis/route/node.h"

struct hfi_route;

struct hfi_route_ops {
    /* The node that serves a key now. Any thread, no waiting. It stays valid until stop; ask
     * again before each attempt, since another may serve the key by then. */
    struct hfi_node *(*node)(struct hfi_route *route, const char *key, size_t len);
    void (*stop)(struct hfi_route *route); /* on the keeper's thread: closes all connections */
    void (*free)(struct hfi_route *route); /* after the keeper has ended */
    void (*close_fds)(struct hfi_route *route);
};

struct hfi_route {
    const struct hfi_route_ops *ops;
};

#endif
