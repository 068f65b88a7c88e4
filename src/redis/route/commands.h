/* The connections of a node for commands of synchronous callers, and which of them a caller uses. A part
 * of struct hfi_node. */
#ifndef HFI_REDIS_ROUTE_COMMANDS_H
#define HFI_REDIS_ROUTE_COMMANDS_H

#include "net/conn.h"

#define HFI_COMMANDS_MAX 4

struct hfi_commands {
    struct hfi_conn *conns[HFI_COMMANDS_MAX]; /* the same until the node is stopped */
    atomic_uint used;                         /* so many of them, from the first on */
    atomic_uint meetings; /* how often callers have met since the last was brought up */
};

/* Makes them, not connected yet. False: no memory or descriptors; those that were made are there. */
bool hfi_commands_make(struct hfi_commands *commands, struct hfi_target *target);
/* The one for the calling thread. */
struct hfi_conn *hfi_commands_pick(struct hfi_commands *commands);
/* None of them is kept up any more, and the first serves everybody, until callers meet again. */
void hfi_commands_rest(struct hfi_commands *commands);

#endif
