/* Mapping of announced addresses. Behind a container network or NAT, a server is reached at another
 * address than the one that servers announce. The url's options address_map=ANNOUNCED:PORT=REAL:PORT give
 * the mapping, and for other addresses the application's callback does (hf_options). */
#ifndef HFI_REDIS_ROUTE_ADDRESSES_H
#define HFI_REDIS_ROUTE_ADDRESSES_H

#include "redis/route/node.h"

struct hfi_address {
    const char *host;
    uint16_t port;
    char room[HF_HOST_SIZE]; /* `host` may point to it */
};

/* Maps an announced address to the real one; may call the application. Any thread. */
void hfi_address_map(const struct hfi_node_config *config, struct hfi_address *address);

/* Whether text from the network can be a host: no control characters (so no NUL) and no spaces. It
 * will be resolved, compared and logged. */
bool hfi_is_host(const char *host, size_t len);

/* Whether two addresses are the same: host names are case-insensitive. */
bool hfi_address_is(const char *host, uint16_t port, const char *other, uint16_t other_port);

#endif
