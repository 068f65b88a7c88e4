/*
 * The table of this client's nodes: what the engine needs to release a hold, by name, owner and
 * kind. The core does not know it. Any thread; a mutex of its own.
 */
#ifndef HFI_ZK_WIRE_NODES_H
#define HFI_ZK_WIRE_NODES_H

#include "engine/engine.h"
#include "zk/wire/names.h"

struct hfi_zk_nodes;

/* The key: which hold. */
struct hfi_zk_place {
    const struct hfi_kind *kind;
    const char *name;
    size_t name_len;
    const char *owner;
    size_t owner_len;
};

struct hfi_zk_held {
    uint64_t number; /* of the session that the node belongs to */
    int64_t token;   /* the zxid that created it */
    int64_t count;
    int64_t promised_until_ms; /* when its lease ends */
    struct hfi_zk_node node;
    /* between the lock's path and the node's name: "/", or a constant string */
    const char *beneath;
};

int hfi_zk_nodes_new(const struct hfi_mem *mem, struct hfi_zk_nodes **ret); /* HF_ENOMEM */
void hfi_zk_nodes_free(struct hfi_zk_nodes *nodes);                         /* NULL is fine */

/* Inserts or replaces an entry. *ret_new: there was none. HF_ENOMEM. */
int hfi_zk_nodes_put(struct hfi_zk_nodes *nodes, const struct hfi_zk_place *place,
                     const struct hfi_zk_held *held, bool *ret_new);
bool hfi_zk_nodes_find(struct hfi_zk_nodes *nodes, const struct hfi_zk_place *place,
                       struct hfi_zk_held *ret);
/* Removes an entry; with a token other than 0 only if it has that token. Whether it was removed. */
bool hfi_zk_nodes_remove(struct hfi_zk_nodes *nodes, const struct hfi_zk_place *place,
                         int64_t token);
/* Removes the entries of all sessions before this one; returns how many. */
size_t hfi_zk_nodes_end(struct hfi_zk_nodes *nodes, uint64_t number);
size_t hfi_zk_nodes_len(struct hfi_zk_nodes *nodes);

#endif
