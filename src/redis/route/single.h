/* The route of one server, which serves every key. */
#ifndef HFI_REDIS_ROUTE_SINGLE_H
#define HFI_REDIS_ROUTE_SINGLE_H

#include "redis/route/route.h"

int hfi_single_new(const struct hfi_node_config *config, struct hfi_route **ret, hf_error *error);

#endif
