/*
 * Which connection carries a synchronous caller's commands.
 *
 * Called by node.c, on any thread. A thread keeps to one connection, so the same few threads share
 * it: they are answered together, continue together, and their next commands go out in one write.
 * If each command took the least loaded connection, all threads would meet on all connections, and
 * each driver would wake fewer followers at a time.
 *
 * The first connection serves all callers until two meet on it; then the second is opened in the
 * background. More are added only if three or more callers keep meeting, since two on a connection
 * are served better than each on its own. So a process with one thread never has a second
 * connection. A caller whose connection is lost, or silent with commands in flight (its driver may
 * be stuck), takes the next.
 *
 * No locks: the connections stay, and the two counters are hints.
 */
#include "redis/route/commands.h"

#include "task/thread_record.h"

/* A third or fourth connection pays after this many meetings with this many others. */
#define CROWD 2
#define MEETINGS_MANY 100

bool hfi_commands_make(struct hfi_commands *commands, struct hfi_target *target) {
    bool all = true;
    atomic_init(&commands->used, 1);
    for (size_t i = 0; i < HFI_COMMANDS_MAX; i++) {
        commands->conns[i] = hfi_conn_new(target, HFI_DRIVER_CALLERS, NULL, NULL, NULL);
        all = all && commands->conns[i] != NULL;
    }
    return all;
}

static bool is_ready(struct hfi_conn *conn) {
    int64_t server_ms, received_ms;
    return hfi_conn_ready(conn, &server_ms, &received_ms);
}

/* A caller has found `others` commands of other callers on its connection. */
static void server_seen(struct hfi_commands *commands, unsigned used, unsigned others) {
    if (used == HFI_COMMANDS_MAX)
        return;
    if (used > 1 && (others < CROWD || !is_ready(commands->conns[used - 1])))
        return; /* few, or the last one added is not up yet */
    unsigned meetings = atomic_fetch_add_explicit(&commands->meetings, 1, memory_order_relaxed);
    if (used > 1 && meetings < MEETINGS_MANY)
        return;
    if (!atomic_compare_exchange_strong_explicit(&commands->used, &used, used + 1,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    atomic_store_explicit(&commands->meetings, 0, memory_order_relaxed);
    hfi_conn_keep_up(commands->conns[0], true); /* its callers can switch to others from now on */
    hfi_conn_keep_up(commands->conns[used], true);
}

struct hfi_conn *hfi_commands_pick(struct hfi_commands *commands) {
    unsigned used = atomic_load_explicit(&commands->used, memory_order_relaxed);
    const struct hfi_thread_record *self = hfi_thread_record();
    unsigned home = self != NULL ? (unsigned)(self->owner % used) : 0;
    unsigned others = hfi_conn_load(commands->conns[home]);
    if (others > 0)
        server_seen(commands, used, others);
    for (unsigned i = 0; i < used; i++) {
        struct hfi_conn *conn = commands->conns[(home + i) % used];
        if (is_ready(conn) && !hfi_conn_stalls(conn))
            return conn;
    }
    /* The first connection is the one that connects for waiting callers. */
    return commands->conns[is_ready(commands->conns[home]) ? home : 0];
}

void hfi_commands_rest(struct hfi_commands *commands) {
    for (size_t i = 0; i < HFI_COMMANDS_MAX; i++)
        hfi_conn_keep_up(commands->conns[i], false);
    atomic_store_explicit(&commands->used, 1, memory_order_relaxed);
    atomic_store_explicit(&commands->meetings, 0, memory_order_relaxed);
}
