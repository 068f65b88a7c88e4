/*
 * The nodes that this client has: what a hold needs to be released, by its place. The core knows
 * nothing of it. Any thread.
 */
#ifndef HFI_ZK_NODES_H
#define HFI_ZK_NODES_H

#include "engine/engine.h"
#include "zk/names.h"

struct hfi_zk_nodes;

/* Whose it is. */
struct hfi_zk_place {
    const struct hfi_kind *kind;
    const char *name;
    size_t name_len;
    const char *owner;
    size_t owner_len;
};

struct hfi_zk_held {
    uint64_t number; /* of the session that has it */
    int64_t token;   /* the transaction that made it */
    int64_t count;
    int64_t promised_until_ms; /* of its lease */
    struct hfi_zk_node node;
    const char *beneath; /* between the lock's path and the node: "/", or a constant text */
};

int hfi_zk_nodes_new(const struct hfi_mem *mem, struct hfi_zk_nodes **ret); /* HF_ENOMEM */
void hfi_zk_nodes_free(struct hfi_zk_nodes *nodes);                         /* NULL is fine */

/* In place of what is there. *ret_new: nothing was. HF_ENOMEM. */
int hfi_zk_nodes_put(struct hfi_zk_nodes *nodes, const struct hfi_zk_place *place,
                     const struct hfi_zk_held *held, bool *ret_new);
bool hfi_zk_nodes_find(struct hfi_zk_nodes *nodes, const struct hfi_zk_place *place,
                       struct hfi_zk_held *ret);
/* With a token only if it is that one; 0: whichever. Whether it was there. */
bool hfi_zk_nodes_remove(struct hfi_zk_nodes *nodes, const struct hfi_zk_place *place,
                         int64_t token);
/* Removes all that belong to sessions before this one; returns how many. */
size_t hfi_zk_nodes_end(struct hfi_zk_nodes *nodes, uint64_t number);
size_t hfi_zk_nodes_len(struct hfi_zk_nodes *nodes);

#endif
