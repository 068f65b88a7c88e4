/* What the replies of all scripts have in common: they are integers, of which the last is the
 * server's clock, and one of them says that the script came too late and did nothing. A script of a
 * lock that did what it is mostly asked for answers its clock alone, in microseconds. */
#ifndef HFI_REDIS_SCRIPT_REPLY_H
#define HFI_REDIS_SCRIPT_REPLY_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>

/* A script can have answered this. */
bool hfi_is_script_reply(const redisReply *reply);

/* What such a reply says of the server's clock. */
int64_t hfi_script_reply_ms(const redisReply *reply);

/* The clock alone: done. Whatever else is a single number is not. */
bool hfi_is_done(const redisReply *reply);

/* A script's reply says: it is past `not-after`. */
bool hfi_is_too_late(const redisReply *reply);

/* A reply that says: the script did nothing. */
bool hfi_is_refusal(const redisReply *reply);

#endif
