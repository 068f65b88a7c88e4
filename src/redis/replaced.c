/*
 * Whether the server at an address is another than before, and how far apart the clocks of two are.
 *
 * Called by the engine on the keeper's thread when a connection has come up, or when the route has changed; what is
 * remembered is part of the node (struct hfi_learnt).
 */
#include "base/clock.h"
#include "redis/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void meet(struct hfi_node *node, struct hfi_met *ret) {
    struct hfi_conn *conns[] = {hfi_node_pick(node, HFI_LANE_KEEPER), hfi_node_listener(node)};
    struct hfi_server server;
    int64_t server_ms, received_ms;
    *ret = (struct hfi_met){0};
    if (hfi_node_identity(node, &server))
        snprintf(ret->run_id, sizeof ret->run_id, "%s", server.run_id);
    for (size_t i = 0; i < 2 && !ret->clock_known; i++) {
        ret->clock_known = conns[i] != NULL && hfi_conn_ready(conns[i], &server_ms, &received_ms);
        if (ret->clock_known)
            ret->ahead_ms = server_ms - received_ms;
    }
}

/* What has a lease at both ends there by the clock of the one that has it now. */
static void compare_clocks(const struct hfi_redis *redis, const struct hfi_met *before,
                           const struct hfi_met *now, const char *name) {
    int64_t off_ms = now->ahead_ms - before->ahead_ms;
    if (!before->clock_known || !now->clock_known || llabs(off_ms) < redis->skew_limit_ms)
        return;
    hfi_log(
        redis->log, HF_LOG_WARN,
        "the clock of %s is %lld ms %s the clock of the server before it: leases given there end so much %s, "
        "unless they are renewed",
        name, llabs(off_ms), off_ms > 0 ? "ahead of" : "behind", off_ms > 0 ? "earlier" : "later");
}

void hfi_redis_compare_clocks(struct hfi_redis *redis, struct hfi_node *from, struct hfi_node *to) {
    struct hfi_met *now = &hfi_node_learnt(to)->met;
    meet(to, now);
    compare_clocks(redis, &hfi_node_learnt(from)->met, now, hfi_node_name(to));
}

bool hfi_redis_is_another(struct hfi_redis *redis, struct hfi_node *node) {
    struct hfi_learnt *learnt = hfi_node_learnt(node);
    struct hfi_met before = learnt->met;
    bool was_replica = atomic_exchange(&learnt->was_replica, false);
    meet(node, &learnt->met);
    bool another = before.run_id[0] != '\0' && learnt->met.run_id[0] != '\0' &&
                   strcmp(before.run_id, learnt->met.run_id) != 0;
    if (hfi_route_changes(redis->route) || !hfi_node_may_change(node) || (!another && !was_replica))
        return false;
    hfi_log(redis->log, HF_LOG_WARN, "%s: there is another server now; all locks are verified",
            hfi_node_name(node));
    if (another)
        compare_clocks(redis, &before, &learnt->met, hfi_node_name(node));
    if (was_replica)
        learnt->took_over_ms = hfi_now_ms();
    return true;
}
