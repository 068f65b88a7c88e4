/* The nodes of a route whose servers change: an address leads to one node, for as long as that is to be
 * asked. One that is retired stays here until nobody has a reference any more; the same address then
 * gets a new one, since nothing that was learnt in the first life need be true in the second. */
#ifndef HFI_REDIS_ROUTE_NODES_H
#define HFI_REDIS_ROUTE_NODES_H

#include "base/list.h"
#include "redis/route/node.h"

struct hfi_nodes {
    struct hfi_node_config config; /* of each, but for the address */
    struct hfi_url url;            /* what that points to, like the next two */
    char *client_name;
    struct hfi_tls_context *tls;

    pthread_mutex_t mtx; /* guards below */
    struct hfi_link entries;
    uint64_t last_number;
};

/* Copies what `config` points to. `config->url` says how to get in, not where. `host` is somebody that the url
 * names, for checking the files of TLS. */
int hfi_nodes_init(struct hfi_nodes *nodes, const struct hfi_node_config *config, const char *host,
                   hf_error *error);
void hfi_nodes_clear(struct hfi_nodes *nodes); /* after the keeper has ended; all zero is fine */
/* On the keeper's thread: closes all connections. */
void hfi_nodes_stop(struct hfi_nodes *nodes);
void hfi_nodes_close_fds(struct hfi_nodes *nodes);

/* The node at an address as servers announce it, made if there is none; with a reference. On the keeper's
 * thread. */
int hfi_nodes_get(struct hfi_nodes *nodes, const char *host, uint16_t port, struct hfi_node **ret,
                  hf_error *error);
/* The same at the address where it is reached. */
int hfi_nodes_reach(struct hfi_nodes *nodes, const char *host, uint16_t port, struct hfi_node **ret,
                    hf_error *error);
/* Retires it, and forgets its address. On the keeper's thread. */
void hfi_nodes_retire(struct hfi_nodes *nodes, struct hfi_node *node);
/* Frees those retired ones that nobody has to do with any more. True: there are others. On the keeper's
 * thread. */
bool hfi_nodes_sweep(struct hfi_nodes *nodes);
/* As struct hfi_route_ops has it. */
void hfi_nodes_each(struct hfi_nodes *nodes, void (*visit)(struct hfi_node *node, void *arg),
                    void *arg);

#endif
