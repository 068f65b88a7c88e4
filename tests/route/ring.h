/* What the tests of clusters share: two clients on a cluster of three primaries.
 *
 *     struct ring r;
 *     ring_begin(&r, NULL);
 *     ...
 *     ring_end(&r);
 *
 * Include as "route/ring.h". One cluster serves all tests of a program (ring_start, or
 * ring_start_with_replicas); each test finds it whole and empty. */
#ifndef HF_TEST_ROUTE_RING_H
#define HF_TEST_ROUTE_RING_H

#include "route/scene.h"
#include "support/case.h"
#include "support/shards.h"

struct ring {
    struct shards *shards;
    hf_client *client, *rival;
};

/* For cmocka's group functions. */
int ring_start(void **state);
int ring_start_with_replicas(void **state);
int ring_start_by_hand(void **state); /* the same; no replica takes over by itself */
int ring_start_steady(void **state);  /* the same, with an ordinary cluster's timeout */
int ring_start_partial(
    void **state); /* with replicas, and without a failed shard the others go on */
int ring_stop(void **state);

/* The options are those of scene_options() unless given. */
void ring_begin(struct ring *ring, const hf_options *given);
void ring_end(struct ring *ring);
#define RING_CASE(name) CASE_IN(name, struct ring, r, ring_begin, ring_end, NULL)
#define RING_CASE_WITH(name, ...) CASE_WITH(name, struct ring, r, ring_begin, ring_end, __VA_ARGS__)

/* The slot of a name, and where it goes. */
struct ring_move {
    struct ring *ring;
    unsigned slot;
    struct server *from, *to;
};
struct ring_move ring_move_of(struct ring *ring, const char *name);
void ring_open_slot(const struct ring_move *move);
void ring_move_key(const struct ring_move *move, const char *key);
void ring_close_slot(const struct ring_move *move); /* with what is still in it */

/* A name that this server, or one that is served by another, has the slot of. `name` has room for 32. */
void ring_name_at(struct ring *ring, const struct server *server, const char *stem, char *name);

/* Everything that was written at a primary is at its replica, too. */
void ring_replicate(struct ring *ring, struct server *primary);

/* Whether somebody listens for a lock at a server. */
bool ring_wait_listened(struct server *server, const char *name);

#endif
