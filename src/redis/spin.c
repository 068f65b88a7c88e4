/*
 * The spin lock: like the plain one, but its waiters do not listen; Redisson's getSpinLock().
 *
 * They try again after a sleep that doubles, so a short hold is taken over within a millisecond or
 * two and without a subscription; a long one costs up to eight attempts a second. Releases publish
 * all the same, for waiters of the other kinds under the same name (Redisson's spin lock leaves
 * those asleep until the lease would have ended). Stateless; any thread.
 */
#include "redis/plain.h"

static const struct hfi_redis_kind spin = {
    .field_suffix = "",
    .acquire = &hfi_script_plain_acquire,
    .release = &hfi_script_plain_release,
    .force = &hfi_script_plain_force,
    .write_acquire = hfi_plain_write_acquire,
    .read_acquire = hfi_plain_read_acquire,
    .write_release = hfi_plain_write_release,
    .read_release = hfi_plain_read_told,
    .find_holder = hfi_plain_find_holder,
    .write_force = hfi_plain_write_force,
    .read_force = hfi_plain_read_force,
    .channel = hfi_plain_channel,
    .waiting = &hfi_waiting_spin,
    .renewer = &hfi_renewer_hash,
};

const struct hfi_kind hfi_kind_spin = {
    .name = "spin",
    .ops = &hfi_redis_lock_ops,
    .reentrant = true,
    .exclusive = true,
    .token = false,
    .spins = true,
    .engine_private = &spin,
};
