/* Slots of a cluster: which one a name is in, what a node says of who serves which, and where it sends
 * us. Pure: no state, no memory, any thread. What is read came from the network: it is checked as a whole
 * before any of it is believed. */
#ifndef HFI_REDIS_ROUTE_SLOTS_H
#define HFI_REDIS_ROUTE_SLOTS_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HFI_SLOTS 16384

/* The slot of the key that is `prefix` and `name`. Only what is in the first braces counts, unless
 * nothing is. */
unsigned hfi_slot_of(const char *prefix, size_t prefix_len, const char *name, size_t len);

/* A server as a node announces it. It points into the reply. */
struct hfi_slot_host {
    const char *host; /* not terminated */
    size_t host_len;  /* 0: the host of the node that says so */
    uint16_t port;
};

struct hfi_slot_range {
    unsigned first, last;
    bool known; /* the node knows where its primary is; else `primary` says nothing */
    struct hfi_slot_host primary;
    unsigned replicas; /* that are up, as far as the node knows */
};

/* Calls `visit` for each range of the answer to CLUSTER SLOTS, in its order. HF_EPROTO: it is none,
 * and nobody was called. Slots that it does not name have no primary. */
int hfi_slots_read(const redisReply *reply,
                   void (*visit)(const struct hfi_slot_range *range, void *arg), void *arg);

struct hfi_redirect {
    bool ask; /* ASK: this once, after ASKING; else MOVED */
    unsigned slot;
    struct hfi_slot_host to;
};

/* Whether a reply says that somebody else serves the slot, and where; *ret is untouched if not. */
bool hfi_redirect_read(const redisReply *reply, struct hfi_redirect *ret);

#endif
