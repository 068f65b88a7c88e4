/*
 * The fleet view's door of the Redis engine: its table. Stateless.
 */
#include "redis/fleet/observe.h"

#include "redis/fleet/announcements.h"
#include "redis/fleet/name_listener.h"
#include "redis/ops/break_channel.h"
#include "redis/ops/call.h"

static bool identity(struct hfi_engine *engine, struct hfi_server *ret) {
    struct hfi_route *route = hfi_redis_of(engine)->route;
    const struct hfi_node *node = route->ops->node(route, NULL, 0);
    return node != NULL && hfi_node_identity(node, ret);
}

const struct hfi_observe_ops hfi_redis_observe = {
    .read = {[HFI_OBSERVE_LOCK] = hfi_inspect,
             [HFI_OBSERVE_SERVER] = hfi_server_info,
             [HFI_OBSERVE_FLEET] = hfi_survey},
    .subscribe = hfi_subscribe,
    .listen = hfi_break_channel_subscribe,
    .announce = hfi_announce,
    .is_announcing = hfi_is_announcing,
    .identity = identity,
};
