/*
 * What the replies of all scripts have in common. Pure; any thread.
 */
#include "redis/script_reply.h"

#include <stdint.h>

#define CODE_TOO_LATE (-3)

bool hfi_is_script_reply(const redisReply *reply) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0)
        return false;
    for (size_t i = 0; i < reply->elements; i++)
        if (reply->element[i]->type != REDIS_REPLY_INTEGER)
            return false;
    long long now = reply->element[reply->elements - 1]->integer;
    return now > 0 && now < INT64_MAX / 2;
}

bool hfi_is_too_late(const redisReply *reply) {
    return reply->elements == 1 || reply->element[0]->integer == CODE_TOO_LATE;
}

bool hfi_is_refusal(const redisReply *reply) {
    return reply->type == REDIS_REPLY_ERROR ||
           (hfi_is_script_reply(reply) && hfi_is_too_late(reply));
}
