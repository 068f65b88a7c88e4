/* What a test asks of its server whichever engine it is for: Redis' keys, or with HF_TEST_ENGINE=zk the nodes of the
 * ZooKeeper server beside it.
 *
 *     server_empty(server);
 *     assert_int_equal(hf_lock_acquire(lock), HF_OK);
 *     assert_true(server_has(server, "mylock"));
 *
 * Include as "support/either.h". A row that asks nothing else of its server runs on both engines; one that is about
 * keys, scripts or messages begins with server_redis_only(), which says why. */
#ifndef HF_TEST_EITHER_H
#define HF_TEST_EITHER_H

#include "support/server.h"

/* No key or node is left, whichever client it belonged to. */
void server_empty(struct server *server);

/* Something of this name: a key; nodes with data, itself or beneath it. */
bool server_has(struct server *server, const char *name);
long long server_things(struct server *server); /* how many keys, or such nodes, in all */
void server_drop(struct server *server, const char *name); /* by another hand */

/* The number under that name, which must be there: of a semaphore, a latch. */
long long server_value(struct server *server, const char *name);

/* The row ends here, skipped, on any other engine. */
void server_redis_only(const struct server *server, const char *why);

/* ---- With HF_TEST_ENGINE=zk only ------------------------------------------------------------- */

/* The head of the queue under a name is of that owner ("uuid:number"); how many there are in the queue. */
bool server_first_is(struct server *server, const char *name, const char *who);
int server_queued(struct server *server, const char *name);
/* How many watches there are. */
long long server_watches(const struct server *server);

#endif
