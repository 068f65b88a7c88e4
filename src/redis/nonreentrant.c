/*
 * The non-reentrant lock: like the plain one, but whoever holds it cannot acquire it again;
 * Redisson's getNonReentrantLock().
 *
 * On the server nothing is different. That an owner holds the lock is known here, whichever handle
 * it used, so the core refuses a second acquire before anything is sent. The script must not: a
 * resend finds the owner's own hold there, which is no mistake of the caller's (Redisson's script,
 * sent twice, treats it as one). Stateless; any thread.
 */
#include "redis/plain.h"

const struct hfi_kind hfi_kind_nonreentrant = {
    .name = "non-reentrant",
    .ops = &hfi_redis_lock_ops,
    .reentrant = false,
    .exclusive = true,
    .token = false,
    .engine_private = &hfi_plain,
};
