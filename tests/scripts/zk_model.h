/* A world of clients that share one lock of a ZooKeeper ensemble, in memory: a leader, two followers,
 * and messages between them that take their time.
 *
 * A follower answers pings and reads by itself, from what it has applied so far, and reports to the
 * leader whom it has heard: every half tick, unless the leader stands still. The leader ends a
 * session it has not heard of for T. Followers lag, are cut off from the leader without a sign, or
 * die; connections break with requests and answers in them; packets are held up; clients are
 * paused. Three clients keep to the rules of the engine; how long they trust a hold is the
 * library's own arithmetic (zk/session/session_validity.h). After every event the world is judged:
 * one holder, and never two nodes of one acquire. */
#ifndef HF_TEST_ZK_MODEL_H
#define HF_TEST_ZK_MODEL_H

#include "play.h"

/* What the clients keep to. */
enum zk_discipline {
    ZK_CAREFUL, /* all rules */

    ZK_PINGS_AS_PROOF, /* whatever was answered proves that the session lives */
    ZK_FROM_HEARTBEAT, /* three quarters of T from the last committed heartbeat */
    ZK_FROM_PACKETS, /* the latest packet a quarter of T before what was committed has been reported */
    ZK_WITHOUT_SYNC, /* looks for what a lost answer has left wherever it comes back to */
};

struct zk_model;

struct zk_model *zk_model_open(void);
void zk_model_close(struct zk_model *model);

/* To be played with a discipline. */
struct play *zk_model_play(struct zk_model *model);

/* How often each of these happened since the model was opened. */
struct zk_tally {
    uint64_t held, by_event, proved_first, released, lost, renewed, ran_out;
    uint64_t expired, moved, reconnected, found, created_again, paused, cut, died, held_up;
};
const struct zk_tally *zk_model_tally(const struct zk_model *model);

#endif
