/*
 * Mapping of announced addresses (addresses.h). Used by the routes whose servers change, on any
 * thread; no state.
 */
#include "redis/route/addresses.h"

#include <string.h>
#include <strings.h>

bool hfi_is_host(const char *host, size_t len) {
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)host[i] <= ' ' || host[i] == 0x7f)
            return false;
    return len < HF_HOST_SIZE;
}

bool hfi_address_is(const char *host, uint16_t port, const char *other, uint16_t other_port) {
    return port == other_port && strcasecmp(host, other) == 0;
}

static bool is_in_url(const struct hfi_url *url, struct hfi_address *address) {
    for (size_t i = 0; i < url->map_len; i++) {
        const struct hfi_url_map *map = &url->map[i];
        if (!hfi_address_is(map->announced.host, map->announced.port, address->host, address->port))
            continue;
        address->host = map->real.host;
        address->port = map->real.port;
        return true;
    }
    return false;
}

void hfi_address_map(const struct hfi_node_config *config, struct hfi_address *address) {
    uint16_t port = 0;
    if (is_in_url(config->url, address) || config->address_map == NULL ||
        !config->address_map(address->host, address->port, address->room, &port,
                             config->address_map_user))
        return;
    address->room[sizeof address->room - 1] = '\0';
    if (address->room[0] == '\0' || port == 0)
        return; /* no address */
    address->host = address->room;
    address->port = port;
}
