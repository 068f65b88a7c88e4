/* Cluster slots: the slot of a name, and CLUSTER SLOTS replies. Pure: no state, no memory, any
 * thread. Replies come from the network, so each is checked as a whole before any part
 * is used. */
#ifndef HFI_REDIS_ROUTE_SLOTS_H
#define HFI_REDIS_ROUTE_SLOTS_H

#include "net/resp/wire/reply.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HFI_SLOTS 16384

/* The slot of the key `prefix` + `name`. If there is a hash tag (text in the first braces), only
 * that counts. */
unsigned hfi_slot_of(const char *prefix, size_t prefix_len, const char *name, size_t len);

/* A server as a node announces it. It points into the reply. */
struct hfi_slot_host {
    const char *host; /* not terminated */
    size_t host_len;  /* 0: the host of the node that says so */
    uint16_t port;
};

struct hfi_slot_range {
    unsigned first, last;
    bool known; /* the node knows the primary's address; else `primary` means nothing */
    struct hfi_slot_host primary;
    unsigned replicas; /* that are up, as far as the node knows */
};

/* Calls `visit` for each range of a CLUSTER SLOTS reply, in its order. HF_EPROTO: the reply is
 * invalid, and `visit` was not called. Slots that it does not name have no primary. */
int hfi_slots_read(const struct hfi_reply *reply,
                   void (*visit)(const struct hfi_slot_range *range, void *arg), void *arg);

#endif
