/* The connections that copies of a command were lost with. A copy may still be in the server's socket,
 * so the server is asked to end them (CLIENT KILL): from its answer on, none of these copies acts. */
#ifndef HFI_REDIS_OPS_LOST_CONNS_H
#define HFI_REDIS_OPS_LOST_CONNS_H

#include "net/conn/conn.h"

#include <stdbool.h>

struct hfi_command;
struct hfi_exchange;

#define HFI_LOST_CONNS_MAX 3

/* All zero: no copy was lost. */
struct hfi_lost_conns {
    unsigned len;
    bool incomplete; /* one is not among them */
    struct hfi_conn_id ids[HFI_LOST_CONNS_MAX];
};

/* Notes the connection of the copy that an exchange has just lost. */
void hfi_lost_conns_add(struct hfi_lost_conns *lost_conns, const struct hfi_exchange *x);
/* There are some, all are known, and the server of this exchange may be asked to end them: it is
 * the same process, and has not refused it before. */
bool hfi_lost_conns_can_end(const struct hfi_lost_conns *lost_conns, const struct hfi_exchange *x);
/* Writes the words of the command for one of them. */
void hfi_lost_conns_write(const struct hfi_lost_conns *lost_conns, unsigned i,
                          struct hfi_command *command);
/* Whether they have ended, by the replies of an exchange that was answered. The first of them is
 * `from_last` in front of the last command. Remembers what the server refuses for good. */
bool hfi_lost_conns_have_ended(const struct hfi_lost_conns *lost_conns,
                               const struct hfi_exchange *x, unsigned from_last);

#endif
