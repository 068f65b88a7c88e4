/* Survey questions as messages. survey_responder.h has their format. */
#ifndef HFI_REDIS_FLEET_SURVEY_QUESTION_H
#define HFI_REDIS_FLEET_SURVEY_QUESTION_H

#include "redis/fleet/survey_responder.h"

#define HFI_QUESTION_MAX 512 /* prefix and pattern */

/* A question. */
struct hfi_asked {
    size_t limit;    /* the longest answer, in bytes */
    unsigned wanted; /* HF_WANT_... */
    char number[HFI_ASK_NUMBER_LEN];
    size_t prefix_len, pattern_len;
    char text[HFI_QUESTION_MAX]; /* prefix and pattern */
};

/* False: not a question, or not for this client. */
bool hfi_asked_read(const struct hfi_redis *redis, const char *message, size_t len,
                    struct hfi_asked *ret);

#endif
