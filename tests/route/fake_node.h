/* A server that says it is one of a cluster, and answers scripts as a test wants: for what real ones say only
 * by misfortune.
 *
 *     struct fake_node *p = fake_node_start();
 *     fake_node_says(p, 2, "-CLUSTERDOWN The cluster is down\r\n");
 *     snprintf(url, sizeof url, "redis-cluster://127.0.0.1:%d", fake_node_port(p));
 *
 * Include as "route/fake_node.h". It serves all slots, unless the test says otherwise, and grants
 * every lock. Any thread may call anything but fake_node_free. */
#ifndef HF_TEST_ROUTE_FAKE_NODE_H
#define HF_TEST_ROUTE_FAKE_NODE_H

#include <stddef.h>

struct fake_node;

struct fake_node *fake_node_start(void);
void fake_node_free(struct fake_node *node); /* NULL is fine */
int fake_node_port(const struct fake_node *node);

#define FAKE_NODE_ALWAYS (-1)

/* The next so many scripts are answered with these bytes. */
void fake_node_says(struct fake_node *node, int times, const char *bytes);
/* The same: it says MOVED or ASK, to a port of this host. */
void fake_node_sends(struct fake_node *node, int times, const char *word, int port);
/* It answers CLUSTER SLOTS with these bytes. */
void fake_node_maps(struct fake_node *node, const char *bytes);

size_t fake_node_scripts(struct fake_node *node); /* it was sent */
size_t fake_node_askings(struct fake_node *node); /* of these, how many behind ASKING */

#endif
