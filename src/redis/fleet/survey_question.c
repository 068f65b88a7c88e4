/*
 * Survey questions as messages (survey_responder.h has the format): writes the wishes of one, and
 * parses one that any client may have sent. Called by survey_ask.c and survey_responder.c;
 * stateless.
 */
#include "redis/fleet/survey_question.h"

#include "redis/ops/call.h"

#include <string.h>

#define LIMIT_MIN 1024 /* less has no room for the client itself */

static const struct {
    char letter;
    unsigned want;
} wishes[] = {
    {'h', HF_WANT_HOLDS}, {'w', HF_WANT_WAITS}, {'n', HF_WANT_STATS}, {'t', HF_WANT_HISTOGRAMS}};
#define WISHES (sizeof wishes / sizeof wishes[0])
_Static_assert(WISHES < HFI_WISHES_SIZE, "there is room for all of them");

void hfi_wishes_write(unsigned wanted, char to[HFI_WISHES_SIZE]) {
    char *at = to;
    for (size_t i = 0; i < WISHES; i++)
        if ((wanted & wishes[i].want) != 0)
            *at++ = wishes[i].letter;
    if (at == to)
        *at++ = '-';
    *at = '\0';
}

/* A number and the blank after it. */
static bool read_number(const char **at, const char *end, long *ret) {
    *ret = 0;
    const char *from = *at;
    while (*at < end && **at >= '0' && **at <= '9' && *at - from < 9)
        *ret = *ret * 10 + (*(*at)++ - '0');
    return *at > from && *at < end && *(*at)++ == ' ';
}

/* Wishes and the blank after them. Unknown letters, of later versions, are ignored. */
static bool read_wishes(const char **at, const char *end, unsigned *ret) {
    const char *from = *at;
    *ret = 0;
    for (; *at < end && **at != ' '; ++*at)
        for (size_t i = 0; i < WISHES; i++)
            *ret |= **at == wishes[i].letter ? wishes[i].want : 0;
    return *at > from && *at < end && *(*at)++ == ' ';
}

static bool is_number(const char *at) {
    for (int i = 0; i < HFI_ASK_NUMBER_LEN; i++)
        if (!((at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'f')))
            return false;
    return at[HFI_ASK_NUMBER_LEN] == ' ';
}

bool hfi_asked_read(const struct hfi_redis *redis, const char *message, size_t len,
                    struct hfi_asked *ret) {
    const char *at = message, *end = message + len;
    size_t head = strlen(HFI_ASK);
    long limit, db, prefix_len;
    if (len < head + HFI_ASK_NUMBER_LEN + 1 || memcmp(at, HFI_ASK, head) != 0 ||
        !is_number(at + head))
        return false;
    memcpy(ret->number, at + head, HFI_ASK_NUMBER_LEN);
    at += head + HFI_ASK_NUMBER_LEN + 1;
    if (!read_number(&at, end, &limit) || !read_wishes(&at, end, &ret->wanted) ||
        !read_number(&at, end, &db) || !read_number(&at, end, &prefix_len) || db != redis->db ||
        prefix_len > end - at || end - at > HFI_QUESTION_MAX || limit < LIMIT_MIN)
        return false;
    ret->limit = limit < HFI_ANSWER_MAX ? (size_t)limit : HFI_ANSWER_MAX;
    ret->prefix_len = (size_t)prefix_len;
    ret->pattern_len = (size_t)(end - at) - ret->prefix_len;
    memcpy(ret->text, at, (size_t)(end - at));
    return true;
}
