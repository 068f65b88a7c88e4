/* A primary and two replicas, without anybody who watches over them.
 *
 *     struct trio *t = trio_start();
 *     hf_open(trio_url(t, "acks=2"), NULL, &client);
 *     trio_freeze(t, 1);       one replica confirms nothing
 *     trio_heal(t);            both do again, and have all there is
 *
 * Include as "route/trio.h". */
#ifndef HF_TEST_ROUTE_TRIO_H
#define HF_TEST_ROUTE_TRIO_H

#include "support/server.h"

struct trio;

struct trio *trio_start(void); /* returns when both have caught up */
void trio_free(struct trio *trio);

struct server *trio_primary(struct trio *trio);
struct server *trio_replica(struct trio *trio, int i); /* 0 or 1 */
/* Of the primary, with these options; valid until the next call. */
const char *trio_url(struct trio *trio, const char *options);

/* The first so many replicas stop. */
void trio_freeze(struct trio *trio, int replicas);
void trio_thaw(struct trio *trio); /* and go on */
/* The first replica takes over, and the second follows it: the primary is cut off, and does not know. */
void trio_take_over(struct trio *trio);
/* All go on, and confirm what is written; each is what it was at first. */
void trio_heal(struct trio *trio);

/* Waits until so many clients are in a WAIT at the primary; false after a minute. */
bool trio_wait_blocked(struct trio *trio, int clients);
/* Ends the connection of one that is. */
void trio_kill_blocked(struct trio *trio);

#endif
