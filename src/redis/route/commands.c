/*
 * Which connection carries a synchronous caller's commands.
 *
 * Called by node.c, on any thread. A thread keeps to one connection, so the same few threads share one:
 * they are answered together, go on together, and what they say next goes out together. If each command
 * took the connection with the least to do, all threads would meet on all of them, and each would be
 * woken for fewer answers at a time.
 *
 * The first serves everybody until two callers meet on it; then the second is brought up in the
 * background. Further ones come if three and more go on meeting, since two on a connection are served better than
 * each on its own. So a process with one thread never has a second. Whoever finds its own connection lost, or
 * silent with commands on it (the thread that reads it may be stuck), takes the next.
 *
 * Nothing here needs a lock: the connections stay, and the two numbers are hints.
 */
#include "redis/route/commands.h"

#include "base/self.h"

/* Callers have met so many others so often on what there is: a third or fourth connection pays. */
#define CROWD 2
#define MEETINGS_MANY 100

bool hfi_commands_make(struct hfi_commands *commands, struct hfi_target *target) {
    bool all = true;
    atomic_init(&commands->used, 1);
    for (size_t i = 0; i < HFI_COMMANDS_MAX; i++) {
        commands->conns[i] = hfi_conn_new(target, HFI_SEAT_CALLERS, NULL, NULL, NULL);
        all = all && commands->conns[i] != NULL;
    }
    return all;
}

static bool is_ready(struct hfi_conn *conn) {
    int64_t server_ms, received_ms;
    return hfi_conn_ready(conn, &server_ms, &received_ms);
}

/* A caller has found so many commands of others on its connection. */
static void met(struct hfi_commands *commands, unsigned used, unsigned others) {
    if (used == HFI_COMMANDS_MAX)
        return;
    if (used > 1 && (others < CROWD || !is_ready(commands->conns[used - 1])))
        return; /* few, or the last has not helped yet */
    unsigned meetings = atomic_fetch_add_explicit(&commands->meetings, 1, memory_order_relaxed);
    if (used > 1 && meetings < MEETINGS_MANY)
        return;
    if (!atomic_compare_exchange_strong_explicit(&commands->used, &used, used + 1,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    atomic_store_explicit(&commands->meetings, 0, memory_order_relaxed);
    hfi_conn_keep_up(commands->conns[0], true); /* whose callers can turn to others from now on */
    hfi_conn_keep_up(commands->conns[used], true);
}

struct hfi_conn *hfi_commands_pick(struct hfi_commands *commands) {
    unsigned used = atomic_load_explicit(&commands->used, memory_order_relaxed);
    const struct hfi_self *self = hfi_self();
    unsigned home = self != NULL ? (unsigned)(self->owner % used) : 0;
    unsigned others = hfi_conn_load(commands->conns[home]);
    if (others > 0)
        met(commands, used, others);
    for (unsigned i = 0; i < used; i++) {
        struct hfi_conn *conn = commands->conns[(home + i) % used];
        if (is_ready(conn) && !hfi_conn_stalls(conn))
            return conn;
    }
    /* The first is the one that is connected for whoever waits. */
    return commands->conns[is_ready(commands->conns[home]) ? home : 0];
}

void hfi_commands_rest(struct hfi_commands *commands) {
    for (size_t i = 0; i < HFI_COMMANDS_MAX; i++)
        hfi_conn_keep_up(commands->conns[i], false);
    atomic_store_explicit(&commands->used, 1, memory_order_relaxed);
    atomic_store_explicit(&commands->meetings, 0, memory_order_relaxed);
}
