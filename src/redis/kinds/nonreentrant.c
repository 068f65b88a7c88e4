/*
 * The non-reentrant lock: like the plain one, but its holder cannot acquire it again; Redisson's
 * getNonReentrantLock().
 *
 * On the server nothing is different. The core knows that an owner holds the lock, by any handle,
 * and refuses a second acquire before anything is sent. The script must not refuse it: a resend
 * finds the owner's own hold, which is not the caller's mistake (Redisson's script, sent twice,
 * fails there). Stateless; any thread.
 */
#include "redis/kinds/plain.h"

const struct hfi_kind hfi_kind_nonreentrant = {
    .name = "non-reentrant",
    .ops = &hfi_redis_lock_ops,
    .reentrant = false,
    .exclusive = true,
    .token = false,
    .tracked = true,
    .engine_private = &hfi_plain,
};
