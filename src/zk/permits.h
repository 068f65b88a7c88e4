/* Permits with leases, as Curator's InterProcessSemaphoreV2; what permits.c and permit_acts.c share. */
#ifndef HFI_ZK_PERMITS_H
#define HFI_ZK_PERMITS_H

#include "zk/counter.h"
#include "zk/line.h"

#define HFI_ZK_LEASES "/leases"
#define HFI_ZK_TOTAL "/permits"

extern const struct hfi_kind hfi_zk_permits;

/* The path of something beneath the name. */
void hfi_zk_permits_path(const struct hfi_zk_call *c, const char *beneath,
                         char to[HFI_ZK_PATH_MAX]);

/* A lease is remembered by its id as an owner, as the core knows it. */
struct hfi_zk_permit_owner {
    char text[2 * HFI_ID_LEN];
};
struct hfi_zk_place hfi_zk_permit_place(const struct hfi_call *call, size_t id,
                                        struct hfi_zk_permit_owner *owner);

/* Whether the node is the lease of one of the call's ids; *ret is which. */
bool hfi_zk_permit_is_of(const struct hfi_call *call, const struct hfi_zk_node *node, size_t *ret);
/* How many of the call's ids have a lease among these. */
size_t hfi_zk_permits_found(const struct hfi_call *call, struct hfi_zk_children leases);

/* The leases beneath the name, as an answer has them; none if there is no such node. HF_EPROTO. */
int hfi_zk_permits_leases(struct hfi_zk_answer *answer, struct hfi_zk_children *ret);

/* None of the call's ids is ours any more. */
void hfi_zk_permits_forget(struct hfi_zk_call *c);

/* ---- permit_acts.c ---- */

void hfi_zk_permits_act(struct hfi_call *call);
/* Makes sure that there is no lease of the call's ids. */
void hfi_zk_permits_give_back(struct hfi_zk_call *c);

#endif
