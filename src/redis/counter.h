/* What a semaphore and a latch have in common: on the server each is a number in a string. */
#ifndef HFI_REDIS_COUNTER_H
#define HFI_REDIS_COUNTER_H

#include "redis/kind.h"

/* Adds the keys (the number, and where permits with leases of that name would be seen) and the
 * not-after: how the arguments of each of these scripts begin. */
void hfi_counter_begin(const struct hfi_redis *redis, const struct hfi_call *call,
                       int64_t not_after_ms, struct hfi_command *command);

/* The same with one more key, {name}:what. */
void hfi_counter_begin_beside(const struct hfi_redis *redis, const struct hfi_call *call,
                              const char *what, int64_t not_after_ms, struct hfi_command *command);

/* Adds how to publish, and the kind's channel. */
void hfi_counter_add_channel(const struct hfi_redis *redis, const struct hfi_call *call,
                             struct hfi_command *command);

/* The number itself: GET, which may be sent twice. A missing key is 0; what is not a number is
 * HF_EWRONGTYPE. */
void hfi_counter_write_get(const struct hfi_redis *redis, const struct hfi_call *call,
                           int64_t not_after_ms, struct hfi_command *command);
int hfi_counter_read_get(const redisReply *reply, int64_t *ret_value);

/* Answers of scripts: {1 done, 2 done but the publish was refused, 0 not done; a number; the time}.
 * `_done` wants the first, `_number` the second. */
int hfi_counter_read_pair(const redisReply *reply, int64_t *ret_code, int64_t *ret_number);
int hfi_counter_read_done(const struct hfi_call *call, const redisReply *reply,
                          struct hfi_act_answer *ret);
int hfi_counter_read_number(const struct hfi_call *call, const redisReply *reply,
                            struct hfi_act_answer *ret);

#endif
