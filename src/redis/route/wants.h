/* The wants of a route whose nodes change: tasks that wait for a node. Each route has a list of
 * them under its own mutex, which it holds while it calls these. */
#ifndef HFI_REDIS_ROUTE_WANTS_H
#define HFI_REDIS_ROUTE_WANTS_H

#include "redis/route/node.h"

/* If the node is `known`, posts the event at once; else adds the want to the list. */
void hfi_wants_add(struct hfi_link *wants, struct hfi_want *want, struct hfi_task *task,
                   unsigned event, bool known);
/* Removes the want, if it is still in the list. True: the caller must drop a reference to its task,
 * without the mutex. */
bool hfi_wants_remove(struct hfi_want *want);
/* Sets whether the next error will last, as far as is known: then retries are useless. */
void hfi_wants_are_hopeless(struct hfi_link *wants, bool hopeless);
/* Completes one want, or all. `error` may be NULL. */
void hfi_want_notify(struct hfi_want *want, int err, const hf_error *error);
void hfi_wants_notify_all(struct hfi_link *wants, int err, const hf_error *error);

#endif
