/*
 * The common form of script replies. Pure; any thread.
 */
#include "redis/wire/script_reply.h"

#define CODE_TOO_LATE (-3)
#define CLOCK_MAX (INT64_MAX / 2)
/* guard.lua: a clock before 2001 is not sent alone */
#define BRIEF_MIN_US INT64_C(1000000000000000)

bool hfi_is_done(const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_INTEGER && reply->integer >= BRIEF_MIN_US &&
           reply->integer < CLOCK_MAX;
}

bool hfi_is_script_reply(const struct hfi_reply *reply) {
    if (reply->type == HFI_REPLY_INTEGER)
        return hfi_is_done(reply);
    if (reply->type != HFI_REPLY_ARRAY || reply->elements == 0)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->type != HFI_REPLY_INTEGER)
            return false;
    int64_t now_ms = hfi_script_reply_ms(reply);
    return now_ms > 0 && now_ms < CLOCK_MAX;
}

int64_t hfi_script_reply_ms(const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_INTEGER ? reply->integer / 1000
                                            : reply->element[reply->elements - 1]->integer;
}

bool hfi_is_too_late(const struct hfi_reply *reply) {
    if (reply->type != HFI_REPLY_ARRAY)
        return false;
    return reply->elements == 1 || reply->element[0]->integer == CODE_TOO_LATE;
}

bool hfi_is_refusal(const struct hfi_reply *reply) {
    return reply->type == HFI_REPLY_ERROR || (hfi_is_script_reply(reply) && hfi_is_too_late(reply));
}
