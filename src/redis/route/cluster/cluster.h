/* The cluster route: each name is in a slot, and each slot is served by one of the primaries. */
#ifndef HFI_REDIS_ROUTE_CLUSTER_CLUSTER_H
#define HFI_REDIS_ROUTE_CLUSTER_CLUSTER_H

#include "redis/route/route.h"

/* A set of slots. */
struct hfi_slot_set {
    uint64_t bits[HFI_SLOTS / 64];
};

static inline bool hfi_slot_set_has(const struct hfi_slot_set *set, unsigned slot) {
    return (set->bits[slot / 64] >> (slot % 64) & 1) != 0;
}

/* Called by the route on the keeper's thread. */
struct hfi_cluster_hooks {
    /* `to` serves these slots from now on, and another node did before. `took_over`: it had no
     * slots until then. */
    void (*moved)(void *arg, struct hfi_node *to, const struct hfi_slot_set *slots, bool took_over);
    void *arg;
};

/* `config` is the template of its nodes; the hosts of its url are asked for the others. `prefix`,
 * in front of every key, lives as long as the route. */
int hfi_cluster_new(const struct hfi_node_config *config, const char *prefix,
                    const struct hfi_cluster_hooks *hooks, struct hfi_route **ret, hf_error *error);

#endif
