/* The route of a cluster: each name is in one of its slots, and each slot is served by one of its
 * primaries. */
#ifndef HFI_REDIS_ROUTE_CLUSTER_H
#define HFI_REDIS_ROUTE_CLUSTER_H

#include "redis/route/route.h"

/* Some of the slots. */
struct hfi_slot_set {
    uint64_t bits[HFI_SLOTS / 64];
};

static inline bool hfi_slot_set_has(const struct hfi_slot_set *set, unsigned slot) {
    return (set->bits[slot / 64] >> (slot % 64) & 1) != 0;
}

/* What the route tells the engine, on the keeper's thread. */
struct hfi_cluster_hooks {
    /* `to` serves these from now on, and another did before. `took_over`: it has served none until then. */
    void (*moved)(void *arg, struct hfi_node *to, const struct hfi_slot_set *slots, bool took_over);
    void *arg;
};

/* `config` is what its nodes are made from; those of its url are asked for the others. `prefix`, in front
 * of every key, lives as long as the route. */
int hfi_cluster_new(const struct hfi_node_config *config, const char *prefix,
                    const struct hfi_cluster_hooks *hooks, struct hfi_route **ret, hf_error *error);

#endif
