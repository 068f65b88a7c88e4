/* The registry of nodes of a route whose servers change. An address leads to one node until that is
 * retired. A retired node stays here until its last reference is gone. The same address then gets a
 * new node, since state learnt by the first may be wrong for the second. */
#ifndef HFI_REDIS_ROUTE_NODES_H
#define HFI_REDIS_ROUTE_NODES_H

#include "base/list.h"
#include "redis/route/node.h"

struct hfi_nodes {
    struct hfi_node_config config; /* of each node, but for the address */
    struct hfi_url url;            /* `config` points to this and the next two */
    char *client_name;
    struct hfi_tls_context *tls;

    pthread_mutex_t mtx; /* guards below */
    struct hfi_link entries;
    uint64_t last_number;
};

/* Copies everything that `config` points to. `config->url` gives credentials and options, not the
 * address. `host` is one host of the url, for checking the TLS files. */
int hfi_nodes_init(struct hfi_nodes *nodes, const struct hfi_node_config *config, const char *host,
                   hf_error *error);
void hfi_nodes_clear(struct hfi_nodes *nodes); /* after the keeper has ended; all zero is fine */
/* On the keeper's thread: closes all connections. */
void hfi_nodes_stop(struct hfi_nodes *nodes);
void hfi_nodes_close_fds(struct hfi_nodes *nodes);

/* The node at an address as servers announce it, made if there is none; with a reference. On the
 * keeper's thread. */
int hfi_nodes_get(struct hfi_nodes *nodes, const char *host, uint16_t port, struct hfi_node **ret,
                  hf_error *error);
/* The same for an address that is already mapped. */
int hfi_nodes_reach(struct hfi_nodes *nodes, const char *host, uint16_t port, struct hfi_node **ret,
                    hf_error *error);
/* Retires it, and forgets its address. On the keeper's thread. */
void hfi_nodes_retire(struct hfi_nodes *nodes, struct hfi_node *node);
/* Frees the retired nodes without other references. True: there are retired nodes left. On the
 * keeper's thread. */
bool hfi_nodes_sweep(struct hfi_nodes *nodes);
/* As in struct hfi_route_ops. */
void hfi_nodes_each(struct hfi_nodes *nodes, void (*visit)(struct hfi_node *node, void *arg),
                    void *arg);

#endif
