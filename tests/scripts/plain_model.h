/* A world of clients that share one plain lock over a bad network, played on a real server.
 *
 * Three holdfast owners, two clients that do what Redisson does, and somebody who breaks holds by
 * force take random steps. Replies get lost, requests are delayed, connections break and their
 * last requests arrive much later. After every script the world is compared with what its clients
 * believe. */
#ifndef HF_TEST_PLAIN_MODEL_H
#define HF_TEST_PLAIN_MODEL_H

#include "play.h"

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

/* To be played with a discipline. */
struct play *model_play(struct model *model);

/* How many scripts ran, and how often each of these happened, since the model was opened. */
struct model_tally {
    uint64_t scripts;
    uint64_t held, reentered, busy, lost, released, resent, late, settled, forced, expired,
        java_held;
};
const struct model_tally *model_tally(const struct model *model);

#endif
