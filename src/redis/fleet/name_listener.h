/* Name listeners (engine/observe.h): subscriptions to all channels of one name, of each kind of
 * lock and object. */
#ifndef HFI_REDIS_FLEET_NAME_LISTENER_H
#define HFI_REDIS_FLEET_NAME_LISTENER_H

#include "engine/observe.h"

struct hfi_node;
struct hfi_redis;

/* As in struct hfi_observe_ops. */
int hfi_subscribe(struct hfi_engine *engine, const char *name, size_t name_len,
                  struct hfi_name_subscriber *subscriber, struct hfi_name_listener **ret);

/* ---- On the keeper's thread ---- */

/* The route has changed: names may be served by other nodes now. */
void hfi_name_listeners_check(struct hfi_redis *redis);
/* A server reports that a key has changed, or (NULL) that any may have. */
void hfi_name_listeners_changed(struct hfi_redis *redis, const struct hfi_node *node,
                                const char *name, size_t name_len);
/* Before the connections are closed. */
void hfi_name_listeners_stop(struct hfi_redis *redis);

#endif
