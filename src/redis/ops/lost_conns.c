/*
 * Ending connections that copies of a command were lost with (lost_conns.h).
 *
 * Used by string locks, whose commands have no `not-after`: string.c in front of a resend, and
 * late_copies.c. The functions run on the thread of their exchange's task; the state is theirs. What
 * a node refuses is remembered there.
 *
 * A connection is named by its id and its address, as the server sees them. Ids begin anew when the
 * server restarts, and all clients of a Unix socket have one address: so the connection that carries
 * the command must lead to the process that gave the id. A reply of 0 is as good as 1: the
 * connection is gone.
 */
#include "redis/ops/lost_conns.h"

#include "redis/exchange/exchange.h"
#include "redis/route/node.h"

#include <string.h>

void hfi_lost_conns_add(struct hfi_lost_conns *lost_conns, const struct hfi_exchange *x) {
    if (lost_conns->len < HFI_LOST_CONNS_MAX &&
        hfi_conn_ended_id(x->conn, x->generation, &lost_conns->ids[lost_conns->len]))
        lost_conns->len++;
    else
        lost_conns->incomplete = true;
}

bool hfi_lost_conns_can_end(const struct hfi_lost_conns *lost_conns, const struct hfi_exchange *x) {
    if (lost_conns->len == 0 || lost_conns->incomplete || x->asking ||
        atomic_load_explicit(&hfi_node_learnt(x->node)->no_client_kill, memory_order_relaxed))
        return false;
    uint64_t run = hfi_conn_run(x->conn);
    for (unsigned i = 0; i < lost_conns->len; i++)
        if (lost_conns->ids[i].run != run)
            return false;
    return true;
}

void hfi_lost_conns_write(const struct hfi_lost_conns *lost_conns, unsigned i,
                          struct hfi_command *command) {
    hfi_command_text(command, "CLIENT");
    hfi_command_text(command, "KILL");
    hfi_command_text(command, "ID");
    hfi_command_number(command, lost_conns->ids[i].id);
    hfi_command_text(command, "ADDR");
    hfi_command_text(command, lost_conns->ids[i].addr);
}

/* Unless the server cannot do it just now: LOADING, BUSY and the like. */
static void refused(const struct hfi_exchange *x, const struct hfi_reply *reply) {
    if (strncmp(reply->str, "NOPERM", 6) == 0 || strncmp(reply->str, "ERR", 3) == 0)
        atomic_store_explicit(&hfi_node_learnt(x->node)->no_client_kill, true,
                              memory_order_relaxed);
}

bool hfi_lost_conns_have_ended(const struct hfi_lost_conns *lost_conns,
                               const struct hfi_exchange *x, unsigned from_last) {
    bool ended = true;
    for (unsigned i = 0; i < lost_conns->len; i++) {
        const struct hfi_reply *reply = hfi_exchange_reply_of(x, from_last - i);
        if (reply != NULL && reply->type == HFI_REPLY_ERROR)
            refused(x, reply);
        ended = ended && reply != NULL && reply->type == HFI_REPLY_INTEGER;
    }
    return ended;
}
