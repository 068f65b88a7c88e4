/* Permits with leases, as Curator's InterProcessSemaphoreV2: shared by permits.c and
 * permit_ops.c. */
#ifndef HFI_ZK_KINDS_PERMITS_H
#define HFI_ZK_KINDS_PERMITS_H

#include "zk/kinds/counter.h"
#include "zk/ops/queue.h"

#define HFI_ZK_LEASES "/leases"
#define HFI_ZK_TOTAL "/permits"

extern const struct hfi_kind hfi_zk_permits;

/* The name's path + `beneath`. */
void hfi_zk_permits_path(const struct hfi_zk_call *c, const char *beneath,
                         char to[HFI_ZK_PATH_MAX]);

/* A lease's id is its owner in the table of nodes, as in the core. */
struct hfi_zk_permit_owner {
    char text[2 * HFI_ID_LEN];
};
struct hfi_zk_place hfi_zk_permit_place(const struct hfi_call *call, size_t id,
                                        struct hfi_zk_permit_owner *owner);

/* Whether the node is the lease of one of the call's ids; *ret is which. */
bool hfi_zk_permit_is_of(const struct hfi_call *call, const struct hfi_zk_node *node, size_t *ret);
/* How many of the call's ids have a lease among these. */
size_t hfi_zk_permits_found(const struct hfi_call *call, struct hfi_zk_children leases);

/* The leases in a reply; none if the node does not exist. HF_EPROTO. */
int hfi_zk_permits_leases(struct hfi_zk_answer *answer, struct hfi_zk_children *ret);

/* Removes the call's ids from the table of nodes. */
void hfi_zk_permits_forget(struct hfi_zk_call *c);

/* ---- permit_ops.c ---- */

void hfi_zk_permits_object_op(struct hfi_call *call);
/* Deletes the leases of the call's ids, if there are any. */
void hfi_zk_permits_give_back(struct hfi_zk_call *c);

#endif
