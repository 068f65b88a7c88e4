/* Servers that lose their power: what they had not synced is gone, though they had written it.
 *
 *     bool can = power_preload(HF_TEST_SYNCED); // before the first server of the program
 *     struct server *s = server_start(&(struct server_options){.aof = true, .config = power_everysec});
 *     power_loss(s);
 *     server_wait_ready(s);
 *
 * Include as "support/power.h". A library that is preloaded into the servers notes what they sync (power/synced.c). */
#ifndef HF_TEST_POWER_H
#define HF_TEST_POWER_H

#include "support/server.h"

/* More lines of a server's configuration: with `aof` it syncs once a second; without, it keeps
 * snapshots alone, one a second. */
extern const char *const power_everysec[], *const power_snapshots[];

/* Every server that is started from now on notes what it syncs. False: it cannot. */
bool power_preload(const char *library);

/* Its power is gone and comes back: it starts with what it had synced. Returns how many bytes were lost. */
int64_t power_loss(struct server *server);

#endif
