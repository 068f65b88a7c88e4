/* The parts of the plain lock that other kinds of the same hash reuse. They share its field, its
 * channel and all scripts but perhaps the acquire, so that they exclude and wake each other. */
#ifndef HFI_REDIS_KINDS_PLAIN_H
#define HFI_REDIS_KINDS_PLAIN_H

#include "redis/kinds/kind.h"

extern const struct hfi_redis_kind hfi_plain;

/* not-after, owner, lease and count: the arguments of an acquire, after the keys. */
void hfi_plain_acquire_args(const struct hfi_call *call, int64_t not_after_ms,
                            struct hfi_command *command);

/* The operations of the table; see kind.h. */
void hfi_plain_write_acquire(const struct hfi_redis *redis, const struct hfi_call *call,
                             int64_t not_after_ms, struct hfi_command *command);
int hfi_plain_read_acquire(const struct hfi_call *call, const struct hfi_reply *reply,
                           struct hfi_acquire_answer *ret);
void hfi_plain_write_release(const struct hfi_redis *redis, const struct hfi_call *call,
                             int64_t count, int64_t not_after_ms, struct hfi_command *command);
int hfi_plain_read_release(int64_t count, const struct hfi_reply *reply,
                           struct hfi_release_answer *ret);
/* The reply of plain_release.lua itself, which also counts the subscribers that were notified. */
int hfi_plain_read_notified(int64_t count, const struct hfi_reply *reply,
                            struct hfi_release_answer *ret);
int hfi_plain_find_holder(const struct hfi_reply *fields, const struct hfi_reply **ret_owner);
void hfi_plain_write_break(const struct hfi_redis *redis, const struct hfi_call *call,
                           const char *owner, size_t owner_len, int64_t not_after_ms,
                           struct hfi_command *command);
int hfi_plain_read_break(const struct hfi_reply *reply, struct hfi_break_reply *ret);
size_t hfi_plain_channel(const struct hfi_redis *redis, const struct hfi_call *call, char *to);

#endif
