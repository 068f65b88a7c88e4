/* Questions to the fleet, and the answers to them, as texts. answer.h has their forms. */
#ifndef HFI_REDIS_ANSWER_TEXT_H
#define HFI_REDIS_ANSWER_TEXT_H

#include "base/json.h"
#include "redis/answer.h"

#define HFI_QUESTION_MAX 512 /* prefix and pattern */

/* What somebody wants to know. */
struct hfi_asked {
    size_t limit;    /* no more bytes than this */
    unsigned wanted; /* HF_WANT_... */
    char number[HFI_ASK_NUMBER_LEN];
    size_t prefix_len, pattern_len;
    char text[HFI_QUESTION_MAX]; /* prefix and pattern */
};

/* False: it is no question, or none for us. */
bool hfi_asked_read(const struct hfi_redis *redis, const char *message, size_t len,
                    struct hfi_asked *ret);

/* Writes the answer. False: there is nothing to send. The text is the caller's to free in any case. On the
 * keeper's thread. */
bool hfi_answer_write(const struct hfi_redis *redis, const struct hfi_asked *asked,
                      struct hfi_json *json);

#endif
