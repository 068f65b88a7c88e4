/* The common form of script replies. They are integers; the last is the server's clock, and one
 * code says that the script came too late and did nothing. A lock script whose usual case succeeded
 * replies with its clock alone, in microseconds. */
#ifndef HFI_REDIS_WIRE_SCRIPT_REPLY_H
#define HFI_REDIS_WIRE_SCRIPT_REPLY_H

#include "net/resp/wire/reply.h"

#include <stdbool.h>
#include <stdint.h>

/* A script can have replied this. */
bool hfi_is_script_reply(const struct hfi_reply *reply);

/* The server's clock in such a reply. */
int64_t hfi_script_reply_ms(const struct hfi_reply *reply);

/* The clock alone: done. Any other single number is not. */
bool hfi_is_done(const struct hfi_reply *reply);

/* The script ran past its `not-after`, and did nothing. */
bool hfi_is_too_late(const struct hfi_reply *reply);

/* The script did nothing: an error reply, or it was too late. */
bool hfi_is_refusal(const struct hfi_reply *reply);

#endif
