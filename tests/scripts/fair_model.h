/* A world of clients of one fair lock, for random schedules: holdfast's own as docs/scripts.md tells
 * them to behave, with everything that can happen to their commands and subscriptions; and Redisson's,
 * by the scripts of its wire contract. */
#ifndef HF_TEST_FAIR_MODEL_H
#define HF_TEST_FAIR_MODEL_H

#include "play.h"

/* Which rule our clients leave out. */
enum fair_discipline {
    FAIR_CAREFUL,
    FAIR_NO_NOT_AFTER,    /* scripts run however late they come */
    FAIR_OLD_GRANTS,      /* enters on a message that may be older than the last answer */
    FAIR_GRANT_FROM_NOW,  /* trusts a grant from when it heard of it */
    FAIR_HEARD_IS_UNHEARD /* takes Java clients for dead that do hear */
};

struct fair_model;

struct fair_model *fair_model_open(struct server *server);
void fair_model_close(struct fair_model *m);

/* To be played with a discipline. */
struct play *fair_model_play(struct fair_model *m);

/* How often each of these happened since the model was opened. */
struct fair_tally {
    uint64_t scripts, held, queued, entered, missed, confirmed, released, given_up, lost, late,
        resent, crashed, java_held, java_died, java_hurried, java_passed_over, expired;
};
const struct fair_tally *fair_model_tally(const struct fair_model *model);

#endif
