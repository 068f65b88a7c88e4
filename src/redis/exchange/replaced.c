/*
 * Whether another server is at an address now, and how far the clocks of two servers differ.
 *
 * Called by the engine on the keeper's thread, when a connection has come up or the route has
 * changed. Its state is part of the node (struct hfi_learnt).
 */
#include "base/clock.h"
#include "engine/observe.h"
#include "redis/exchange/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void find_server(struct hfi_node *node, struct hfi_server_seen *ret) {
    struct hfi_conn *conns[] = {hfi_node_pick(node, HFI_LANE_KEEPER), hfi_node_listener(node)};
    struct hfi_server server;
    int64_t server_ms, received_ms;
    *ret = (struct hfi_server_seen){0};
    if (hfi_node_identity(node, &server))
        snprintf(ret->run_id, sizeof ret->run_id, "%s", server.run_id);
    for (size_t i = 0; i < 2 && !ret->clock_known; i++) {
        ret->clock_known = conns[i] != NULL && hfi_conn_ready(conns[i], &server_ms, &received_ms);
        if (ret->clock_known)
            ret->ahead_ms = server_ms - received_ms;
    }
}

/* A lease granted by the old server ends by the clock of the new one. */
static void compare_clocks(const struct hfi_redis *redis, const struct hfi_server_seen *before,
                           const struct hfi_server_seen *now, const char *name) {
    int64_t off_ms = now->ahead_ms - before->ahead_ms;
    if (!before->clock_known || !now->clock_known || llabs(off_ms) < redis->skew_limit_ms)
        return;
    hfi_log(redis->log, HF_LOG_WARN, HFI_ABOUT(.server = name),
            "the clock of %s is %lld ms %s its predecessor's: leases granted before end that much "
            "%s, unless renewed",
            name, llabs(off_ms), off_ms > 0 ? "ahead of" : "behind",
            off_ms > 0 ? "earlier" : "later");
}

void hfi_redis_compare_clocks(struct hfi_redis *redis, struct hfi_node *from, struct hfi_node *to) {
    struct hfi_server_seen *now = &hfi_node_learnt(to)->server_seen;
    find_server(to, now);
    compare_clocks(redis, &hfi_node_learnt(from)->server_seen, now, hfi_node_name(to));
}

bool hfi_redis_is_another(struct hfi_redis *redis, struct hfi_node *node) {
    struct hfi_learnt *learnt = hfi_node_learnt(node);
    struct hfi_server_seen before = learnt->server_seen;
    bool was_replica = atomic_exchange(&learnt->was_replica, false);
    find_server(node, &learnt->server_seen);
    bool another = before.run_id[0] != '\0' && learnt->server_seen.run_id[0] != '\0' &&
                   strcmp(before.run_id, learnt->server_seen.run_id) != 0;
    if (hfi_route_changes(redis->route) || !hfi_node_may_change(node) || (!another && !was_replica))
        return false;
    hfi_log(redis->log, HF_LOG_WARN, HFI_ABOUT(.server = hfi_node_name(node)),
            "%s: another server answers here now; all holds are verified", hfi_node_name(node));
    if (another)
        compare_clocks(redis, &before, &learnt->server_seen, hfi_node_name(node));
    if (was_replica)
        learnt->took_over_ms = hfi_now_ms();
    return true;
}
