/* A world of clients that share one plain lock over a bad network, played on a real server.
 *
 * Three holdfast owners, two clients that do what Redisson does, and somebody who breaks holds by
 * force take random steps. Replies get lost, requests are delayed, connections break and their
 * last requests arrive much later. After every script the world is compared with what its clients
 * believe. */
#ifndef HF_TEST_PLAIN_MODEL_H
#define HF_TEST_PLAIN_MODEL_H

#include "support/server.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the holdfast owners keep to. */
enum discipline {
    CAREFUL,           /* all rules */
    WITHOUT_NOT_AFTER, /* scripts run however late they come */
    HASTY,             /* sends its next operation while copies of the last may still act */
    UNSETTLED, /* leaves it at that when it ends up with nothing while copies may still act */
};

struct model;

struct model *model_open(struct server *server);
void model_close(struct model *model);

/* Plays one schedule; the same seed plays the same one. False when a rule of the lock was broken:
 * `why` tells which, and model_trace() how it came to that. */
bool model_play(struct model *model, uint64_t seed, enum discipline discipline, char *why,
                size_t room);
const char *model_trace(const struct model *model);

/* How many scripts ran, and how often each of these happened, since the model was opened. */
struct model_tally {
    uint64_t scripts;
    uint64_t held, reentered, busy, lost, released, resent, late, settled, forced, expired,
        java_held;
};
const struct model_tally *model_tally(const struct model *model);

#endif
