/* Those who wait for a node of a route whose nodes change. Each route has a list of them, under its own mutex, and calls
 * these with that taken. */
#ifndef HFI_REDIS_ROUTE_WANTS_H
#define HFI_REDIS_ROUTE_WANTS_H

#include "redis/route/node.h"

/* Tells the task at once if what it wants is `known`, else it waits in the list. */
void hfi_wants_add(struct hfi_link *wants, struct hfi_want *want, struct hfi_task *task,
                   unsigned event, bool known);
/* It waits no longer, if it still did. True: a reference to its task is to be given back, without the mutex. */
bool hfi_wants_remove(struct hfi_want *want);
/* Tells one, or all. `error` may be NULL. */
void hfi_wants_tell(struct hfi_want *want, int err, const hf_error *error);
void hfi_wants_tell_all(struct hfi_link *wants, int err, const hf_error *error);

#endif
