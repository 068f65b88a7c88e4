/* A world of clients that share one read/write lock over a bad network, played on a real server.
 *
 * Holdfast owners, clients that do what Redisson does, its watchdog, and somebody who breaks holds
 * take random steps. Replies get lost, and requests that were given up arrive much later. After
 * every script the world is compared with what its clients believe. */
#ifndef HF_TEST_READWRITE_MODEL_H
#define HF_TEST_READWRITE_MODEL_H

#include "play.h"

/* What the holdfast owners keep to. */
enum rw_discipline {
    RW_CAREFUL,           /* all rules */
    RW_WITHOUT_NOT_AFTER, /* scripts run however late they come */
    RW_STALE,             /* fixed leases of readers are not kept fresh */
};

struct rw_model;

struct rw_model *rw_model_open(struct server *server);
void rw_model_close(struct rw_model *m);

/* To be played with a discipline. */
struct play *rw_model_play(struct rw_model *m);

/* How many scripts ran, and how often each of these happened, since the model was opened. */
struct rw_tally {
    uint64_t scripts;
    uint64_t read, written, nested, busy, lost, released, resent, late, settled, broken, expired,
        java_held;
};
const struct rw_tally *rw_model_tally(const struct rw_model *model);

#endif
