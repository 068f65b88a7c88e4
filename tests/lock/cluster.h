/* A cluster as far as one server can show it, and two clients on it.
 *
 * The server is in cluster mode and has all slots, so it never sends anybody elsewhere: finding the
 * node of a slot is not part of this version, and not of these tests. But it refuses a command
 * whose keys are in more than one slot (CROSSSLOT), as any other cluster does. Keys that a script
 * does not declare it lets pass: so whatever is on the server at some stage of a test, channels
 * too, is asked for its slot (pair_assert_one_slot).
 *
 * Include as "lock/cluster.h". One server serves all tests of a program. */
#ifndef HF_TEST_LOCK_CLUSTER_H
#define HF_TEST_LOCK_CLUSTER_H

#include "support/world.h"

/* For cmocka's group functions. */
int cluster_start(void **state);
int cluster_stop(void **state);
struct server *cluster_server(void);

/* How many commands it has refused because of their slots since the last pair_begin(). */
long long cluster_refusals(void);

/* Two clients whose objects are all named WORLD_NAME. */
struct pair {
    hf_client *one, *two;
    char full_name[32]; /* with the prefix */
    struct monitor *monitor;
    uint64_t losses; /* that `one` is to have at the end */
};

/* The server is empty then; `prefix` may be NULL. */
void pair_begin(struct pair *pair, const char *prefix);
void pair_end(struct pair *pair);   /* nothing has gone wrong, and no command was refused */
void pair_close(struct pair *pair); /* without a look at what happened */

/* Runs a test without a prefix and with one, as Redisson's name mapper makes it. */
void cluster_play(void (*test)(struct pair *pair, void *arg), void *arg);

/* All keys, of which there must be some, and all channels are in the slot of the name. */
void pair_assert_one_slot(const struct pair *pair, size_t channels);

void cluster_wait_renewed(hf_client *client, uint64_t times); /* so often from now on */
void cluster_wait_listeners(void);                            /* somebody is subscribed */

#endif
