/*
 * The spin lock: like the plain one, but its waiters do not subscribe; Redisson's getSpinLock().
 *
 * They retry with exponential back-off, without a subscription. A short hold is taken over within a
 * millisecond or two; a long one costs up to eight attempts a second. Releases publish all the
 * same, for waiters of the other kinds under the same name. (Redisson's spin lock leaves those
 * asleep until the lease would have ended.) Stateless; any thread.
 */
#include "redis/kinds/plain.h"

static const struct hfi_redis_kind spin = {
    .field_suffix = "",
    .acquire = &hfi_script_plain_acquire,
    .release = &hfi_script_plain_release,
    .break_holds = &hfi_script_plain_break,
    .write_acquire = hfi_plain_write_acquire,
    .read_acquire = hfi_plain_read_acquire,
    .write_release = hfi_plain_write_release,
    .read_release = hfi_plain_read_notified,
    .find_holder = hfi_plain_find_holder,
    .write_break = hfi_plain_write_break,
    .read_break = hfi_plain_read_break,
    .channel = hfi_plain_channel,
    .waiting = &hfi_wait_spin,
    .renewer = &hfi_renewer_hash,
    .lease = &hfi_script_lease,
};

const struct hfi_kind hfi_kind_spin = {
    .name = "spin",
    .ops = &hfi_redis_lock_ops,
    .reentrant = true,
    .exclusive = true,
    .token = false,
    .spins = true,
    .tracked = true,
    .engine_private = &spin,
};
