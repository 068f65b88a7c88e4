/* The Sentinel route: asks sentinels for the primary, and follows failovers. */
#ifndef HFI_REDIS_ROUTE_SENTINEL_SENTINEL_H
#define HFI_REDIS_ROUTE_SENTINEL_SENTINEL_H

#include "redis/route/route.h"

/* `config` is the template of its nodes; the sentinels are the hosts of its url. */
int hfi_sentinel_new(const struct hfi_node_config *config, hfi_changed_fn changed, void *arg,
                     struct hfi_route **ret, hf_error *error);

#endif
