/* Addresses that servers tell of each other, and where that is from here: behind a container's network or a translating
 * router it is somewhere else. The url's options map=ANNOUNCED:PORT=REAL:PORT say so, and for what they do not
 * have, the application (hf_options). */
#ifndef HFI_REDIS_ROUTE_ADDRESSES_H
#define HFI_REDIS_ROUTE_ADDRESSES_H

#include "redis/route/node.h"

struct hfi_address {
    const char *host;
    uint16_t port;
    char room[HF_HOST_SIZE]; /* `host` may point to it */
};

/* Turns what was announced into where that is reached; may ask the application. Any thread. */
void hfi_address_map(const struct hfi_node_config *config, struct hfi_address *address);

/* Whether two are the same: host names have no case. */
bool hfi_address_is(const char *host, uint16_t port, const char *other, uint16_t other_port);

#endif
