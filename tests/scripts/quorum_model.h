/* A world of clients that share one lock of five servers, played on real ones.
 *
 * Every machine has a clock of its own. Servers crash and come back empty, connections break, networks
 * are cut; commands are slow, lost, or arrive long after their sender has given them up; clients are
 * paused, or die. Three clients keep to the rules of a quorum, whose arithmetic is the library's own
 * (joint/quorum/quorum_validity.h). After every event the world is judged: one holder, whose token is
 * larger than all before it, and a holder learns when its hold was broken. */
#ifndef HF_TEST_QUORUM_MODEL_H
#define HF_TEST_QUORUM_MODEL_H

#include "play.h"

enum { QUORUM_SERVERS = 5 };

/* What the clients keep to, or what is not as they assume. */
enum quorum_discipline {
    CAREFUL, /* all rules */

    WITHOUT_GUARD,        /* a server that has just been started votes */
    FROM_THE_REPLY,       /* a lease counts from when its grant was heard of */
    WITHOUT_NOT_AFTER,    /* scripts run however late they come */
    HASTY,                /* sends the next command while copies of the last may still act */
    WITHOUT_ALLOWANCE,    /* a lease counts in full, as if all clocks ran alike */
    OF_THOSE_THAT_ANSWER, /* a majority of the servers that answered, not of all */
    MADE_UP,              /* a server that is filled up makes up for one that has lost it */
    BEYOND_THE_GUARD,     /* a proof counts for its lease, of which the guard is half */
    CLOCKS_OFF,           /* clocks that run at speeds 4 in a hundred apart */
    STEPPED, /* the clock of one server, always the same, is stepped forward by a lease */

    LARGEST_OF_VOTES, /* the token is the largest that was drawn; nothing is written back */
    BY_ONE,           /* tokens are drawn one after the other; only a lost counter takes the time */
    DRAWN_YOUNG,      /* what a server gave when it had just been started counts later on */
    CLOCKS_APART,     /* server clocks that are further apart than the guard is long */
};

struct quorum_model;

struct quorum_model *quorum_model_open(struct server *const servers[QUORUM_SERVERS]);
void quorum_model_close(struct quorum_model *model);

/* To be played with a discipline. */
struct play *quorum_model_play(struct quorum_model *model);

/* How many scripts ran, and how often each of these happened, since the model was opened. */
struct quorum_tally {
    uint64_t scripts;
    uint64_t held, refilled, probed, busy, lost, released, aged, raised, drawn_again;
    uint64_t late, settled, crashed, cut, paused, died, deleted, stolen;
};
const struct quorum_tally *quorum_model_tally(const struct quorum_model *model);

#endif
