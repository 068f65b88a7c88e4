/* A node's connections for commands of synchronous callers, and which of them a caller uses. A part
 * of struct hfi_node. */
#ifndef HFI_REDIS_ROUTE_COMMANDS_H
#define HFI_REDIS_ROUTE_COMMANDS_H

#include "net/conn/conn.h"

#define HFI_COMMANDS_MAX 4

struct hfi_commands {
    struct hfi_conn *conns[HFI_COMMANDS_MAX]; /* the same until the node is stopped */
    atomic_uint used;                         /* this many are in use, from the first on */
    /* how often callers have met on a connection since the last one was added */
    atomic_uint meetings;
};

/* Makes them, not connected yet. False: no memory or descriptors; some may have been made. */
bool hfi_commands_make(struct hfi_commands *commands, struct hfi_target *target);
/* The connection for the calling thread. */
struct hfi_conn *hfi_commands_pick(struct hfi_commands *commands);
/* Stops keeping them up. The first serves all callers until two meet again. */
void hfi_commands_rest(struct hfi_commands *commands);

#endif
