/* The route of a primary that sentinels name: it is found by asking them, and followed when it changes. */
#ifndef HFI_REDIS_ROUTE_SENTINEL_H
#define HFI_REDIS_ROUTE_SENTINEL_H

#include "redis/route/route.h"

/* `config` is what its nodes are made from; the sentinels are those of its url. */
int hfi_sentinel_new(const struct hfi_node_config *config, hfi_changed_fn changed, void *arg,
                     struct hfi_route **ret, hf_error *error);

#endif
