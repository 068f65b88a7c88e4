/* Idempotency keys: how the server can tell whether an acquire that must not run twice has run.
 *
 * The acquire script stores a number, the idempotency key, under a key of its own beside the
 * object, in the same step as it takes. If the reply is lost, the caller can resend the acquire or
 * undo it: both scripts check the idempotency key. It expires, so this works for HFI_IDEMPOTENCY_MS
 * after the first copy was sent. Later the outcome stays unknown.
 *
 * A client has a fixed number of key slots, each used by one acquire at a time. So the number of
 * keys on the server is bounded by the acquires in flight, not by their rate. */
#ifndef HFI_REDIS_EXCHANGE_IDEMPOTENCY_H
#define HFI_REDIS_EXCHANGE_IDEMPOTENCY_H

#include "engine/engine.h"

#include <stdatomic.h>

struct hfi_exchange;

#define HFI_IDEMPOTENCY_MS 60000    /* the key lasts longer, to allow for clock differences */
#define HFI_IDEMPOTENCY_SLOT_MAX 96 /* bytes of a key's last part, with a NUL */

/* Per client; any thread. */
struct hfi_idempotency {
    atomic_ullong last; /* the last number drawn */
    atomic_ullong busy; /* one bit per key slot */
};

/* Draws an idempotency key for an acquire, if it can be in the same cluster slot as the name. */
void hfi_idempotency_draw(struct hfi_call *call);

static inline bool hfi_idempotency_drawn(const struct hfi_call *call) {
    return call->idempotency_key.number != 0;
}

/* The last part of the redis key that stores it: S(key_slot). */
void hfi_idempotency_slot(const struct hfi_call *call, char key_slot[HFI_IDEMPOTENCY_SLOT_MAX]);

/* The idempotency key is not needed any more. `known`: no copy of its command can still act, so the
 * key slot is free for another acquire. */
void hfi_idempotency_end(struct hfi_call *call, bool known);

/* An acquire was refused, perhaps because of its idempotency key. True: the key is dropped, and the
 * acquire is worth another try. If that try succeeds, call hfi_idempotency_refused(). */
bool hfi_idempotency_do_without(struct hfi_call *call, struct hfi_exchange *x);
void hfi_idempotency_refused(const struct hfi_exchange *x);

#endif
