/* MOVED and ASK: the redirects of a cluster. */
#ifndef HFI_REDIS_ROUTE_REDIRECT_PARSE_H
#define HFI_REDIS_ROUTE_REDIRECT_PARSE_H

#include "redis/route/slots.h"

struct hfi_redirect {
    bool ask; /* ASK: this once, behind ASKING; else MOVED */
    unsigned slot;
    struct hfi_slot_host to;
};

/* Whether a reply is a redirect, and to where; *ret is untouched if not. */
bool hfi_redirect_read(const struct hfi_reply *reply, struct hfi_redirect *ret);

#endif
