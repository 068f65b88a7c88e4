/* Which server a Unix socket leads to, told by the file that it is bound to. A socket that is
 * removed and made again, by whomever, is another file; one that is renamed is the same. */
#ifndef HFI_NET_IDENTITY_H
#define HFI_NET_IDENTITY_H

#include "net/lookup.h"

#include <stdbool.h>
#include <stdint.h>

/* All zero: not known. */
struct hfi_identity {
    uint64_t device, inode;
    int64_t made_s, made_ns; /* an inode's number may be used again, but not at the same time */
};

/* What is at a path now. False: nothing, or it cannot be examined. */
bool hfi_identity_at(const char *path, struct hfi_identity *ret);
/* The same for an address; false for one that is no path. */
bool hfi_identity_of(const struct hfi_addr *addr, struct hfi_identity *ret);
bool hfi_identity_known(const struct hfi_identity *identity);
bool hfi_identity_same(const struct hfi_identity *a, const struct hfi_identity *b);

#endif
