/* What the replies of all scripts have in common: they are integers, of which the last is the
 * server's clock, and one of them says that the script came too late and did nothing. */
#ifndef HFI_REDIS_SCRIPT_REPLY_H
#define HFI_REDIS_SCRIPT_REPLY_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

/* A script can have answered this. */
bool hfi_is_script_reply(const redisReply *reply);

/* Such a reply says: it is past `not-after`. */
bool hfi_is_too_late(const redisReply *reply);

/* A reply that says: the script did nothing. */
bool hfi_is_refusal(const redisReply *reply);

#endif
