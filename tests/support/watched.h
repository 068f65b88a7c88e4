/* A primary, two replicas of it and three sentinels that watch them: all real, on loopback.
 *
 *     struct watched *w = watched_start(NULL);
 *     hf_open(watched_url(w), NULL, &client);
 *     struct server *old = watched_primary(w);
 *     server_kill(old);
 *     struct server *new = watched_wait_switch(w, old);
 *     watched_heal(w);
 *     watched_free(w);
 *
 * Include as "support/watched.h". Ready in about a second. A failover takes one to three, on a busy
 * machine more. Which server is the primary is looked up, never assumed. One thread at a time may use
 * it. As with server.h, a fixture that breaks prints why and aborts. */
#ifndef HF_TEST_WATCHED_H
#define HF_TEST_WATCHED_H

#include "support/server.h"

#define WATCHED_SERVERS 3
#define WATCHED_SENTINELS 3
#define WATCHED_NAME "guards"

struct watched;

struct watched_options {
    const char *password;          /* of the servers */
    const char *sentinel_password; /* of the sentinels */
    /* So long without an answer, and a server is down for a sentinel; 0: half a second. A busy machine
     * may keep a primary silent for that long. Where a failover that nobody asked for would be wrong, it is
     * longer, and one by a death is begun by watched_fail_over() as well. */
    int down_after_ms;
};

struct watched *watched_start(const struct watched_options *options);
void watched_free(struct watched *watched); /* NULL is fine */

/* redis-sentinel://[:password@]127.0.0.1:port,.../guards[?sentinel_password=...] */
const char *watched_url(const struct watched *watched);
int watched_sentinel_port(const struct watched *watched, int i);

struct server *watched_server(struct watched *watched, int i);
/* The server at which all sentinels that run say the primary is. Waits until they agree. */
struct server *watched_primary(struct watched *watched);
/* The same, when it is another than that one, and says so itself. */
struct server *watched_wait_switch(struct watched *watched, const struct server *old);

/* A failover by hand, begun, though the primary may be dead; it is repeated if the sentinels are not ready
 * for one. */
void watched_fail_over(struct watched *watched);

/* Every server and sentinel runs again, the replicas follow the primary, the sentinels know all of
 * it. */
void watched_heal(struct watched *watched);

void watched_kill_sentinel(struct watched *watched, int i);
void watched_start_sentinel(struct watched *watched, int i);

#endif
