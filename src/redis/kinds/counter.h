/* What a semaphore and a latch share: on the server each is a count in a string. */
#ifndef HFI_REDIS_KINDS_COUNTER_H
#define HFI_REDIS_KINDS_COUNTER_H

#include "redis/kinds/kind.h"

/* Adds the keys and the not-after, with which the arguments of each of these scripts begin. The
 * keys are the count, and the set of leases that permits of this name would have. */
void hfi_counter_begin(const struct hfi_redis *redis, const struct hfi_call *call,
                       int64_t not_after_ms, struct hfi_command *command);

/* The same with one more key, {name}:what. */
void hfi_counter_begin_beside(const struct hfi_redis *redis, const struct hfi_call *call,
                              const char *what, int64_t not_after_ms, struct hfi_command *command);

/* Adds the publish command and the kind's channel. */
void hfi_counter_add_channel(const struct hfi_redis *redis, const struct hfi_call *call,
                             struct hfi_command *command);

/* The count itself: GET, which may be sent twice. A missing key is 0; a value that is not a number
 * is HF_EWRONGTYPE. */
void hfi_counter_write_get(const struct hfi_redis *redis, const struct hfi_call *call,
                           int64_t not_after_ms, struct hfi_command *command);
int hfi_counter_read_get(const struct hfi_reply *reply, int64_t *ret_value);

/* Replies of scripts: {1 done, 2 done but the publish was refused, 0 not done; a number; the time}.
 * `_done` returns the first, `_number` the second. */
int hfi_counter_read_pair(const struct hfi_reply *reply, int64_t *ret_code, int64_t *ret_number);
int hfi_counter_read_done(const struct hfi_call *call, const struct hfi_reply *reply,
                          struct hfi_object_op_reply *ret);
int hfi_counter_read_number(const struct hfi_call *call, const struct hfi_reply *reply,
                            struct hfi_object_op_reply *ret);

#endif
