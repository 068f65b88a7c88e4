/* A world of clients that share one read/write lock over a bad network, played on a real server.
 *
 * Holdfast owners, clients that do what Redisson does, its watchdog, and somebody who breaks holds
 * take random steps. Replies get lost, and requests that were given up arrive much later. After
 * every script the world is compared with what its clients believe. */
#ifndef HF_TEST_READWRITE_MODEL_H
#define HF_TEST_READWRITE_MODEL_H

#include "support/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the holdfast owners keep to. */
enum rw_discipline {
    RW_CAREFUL,           /* all rules */
    RW_WITHOUT_NOT_AFTER, /* scripts run however late they come */
    RW_STALE,             /* fixed leases of readers are not kept fresh */
};

struct rw_model;

struct rw_model *rw_model_open(struct server *server);
void rw_model_close(struct rw_model *model);

/* Plays one schedule; the same seed plays the same one. False when a rule of the lock was broken:
 * `why` tells which, and rw_model_trace() how it came to that. */
bool rw_model_play(struct rw_model *model, uint64_t seed, enum rw_discipline discipline, char *why,
                   size_t room);
const char *rw_model_trace(const struct rw_model *model);

/* How many scripts ran, and how often each of these happened, since the model was opened. */
struct rw_tally {
    uint64_t scripts;
    uint64_t read, written, nested, busy, lost, released, resent, late, settled, broken, expired,
        java_held;
};
const struct rw_tally *rw_model_tally(const struct rw_model *model);

#endif
