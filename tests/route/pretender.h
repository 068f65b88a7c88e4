/* A server that says it is one of a cluster, and answers scripts as a test wants: for what real ones say only
 * by misfortune.
 *
 *     struct pretender *p = pretender_start();
 *     pretender_says(p, 2, "-CLUSTERDOWN The cluster is down\r\n");
 *     snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", pretender_port(p));
 *
 * Include as "route/pretender.h". It serves all slots, unless told otherwise, and grants every lock. Any thread
 * may call anything but pretender_free. */
#ifndef HF_TEST_ROUTE_PRETENDER_H
#define HF_TEST_ROUTE_PRETENDER_H

#include <stddef.h>

struct pretender;

struct pretender *pretender_start(void);
void pretender_free(struct pretender *pretender); /* NULL is fine */
int pretender_port(const struct pretender *pretender);

#define PRETENDER_ALWAYS (-1)

/* The next so many scripts are answered with these bytes. */
void pretender_says(struct pretender *pretender, int times, const char *bytes);
/* The same: it says MOVED or ASK, to a port of this host. */
void pretender_sends(struct pretender *pretender, int times, const char *word, int port);
/* It answers CLUSTER SLOTS with these bytes. */
void pretender_maps(struct pretender *pretender, const char *bytes);

size_t pretender_scripts(struct pretender *pretender); /* it was sent */
size_t pretender_askings(struct pretender *pretender); /* of these, how many behind ASKING */

#endif
