/* Which server a Unix socket leads to, identified by the file it is bound to. A socket that is
 * removed and made again is another file; a renamed one is the same. */
#ifndef HFI_NET_SERVER_IDENTITY_H
#define HFI_NET_SERVER_IDENTITY_H

#include "net/lookup.h"

#include <stdbool.h>
#include <stdint.h>

/* All zero: not known. */
struct hfi_identity {
    uint64_t device, inode;
    int64_t made_s, made_ns; /* an inode number may be reused, but not at the same time */
};

/* The file at a path now. False: there is none, or stat() fails. */
bool hfi_identity_at(const char *path, struct hfi_identity *ret);
/* The same for an address; false if it is no path. */
bool hfi_identity_of(const struct hfi_addr *addr, struct hfi_identity *ret);
bool hfi_identity_known(const struct hfi_identity *identity);
bool hfi_identity_same(const struct hfi_identity *a, const struct hfi_identity *b);

#endif
