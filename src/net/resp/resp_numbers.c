/*
 * RESP messages of integers only: an integer, or a short array of them. Scripts answer so when all
 * is well. They are parsed here into one allocation, where hiredis would make five. Everything
 * else, and any unusual spelling, is left to hiredis, so that nothing is understood differently
 * here.
 *
 * resp.c calls this on the driver's thread; any thread may free a message. Stateless.
 */
#include "net/resp/resp.h"

#include <hiredis/hiredis.h>
#include <stdlib.h>

#define MAX_ELEMENTS 8
#define MAX_DIGITS 18 /* always fits into a long long */

struct numbers {
    redisReply reply; /* first: it is the message */
    redisReply *elements[MAX_ELEMENTS];
    redisReply element[];
};

/* Its address marks our messages: hiredis' arrays and integers have no `str`. */
static char ours;

/* A line of `mark` and a number. NULL: it is none, or incomplete. */
static const char *read_line(const char *at, const char *end, char mark, long long *ret_number) {
    if (at == end || *at++ != mark)
        return NULL;
    bool negative = at != end && *at == '-';
    at += negative;
    const char *digits = at;
    long long number = 0;
    for (; at != end && *at >= '0' && *at <= '9'; at++) {
        if (at - digits == MAX_DIGITS)
            return NULL;
        number = number * 10 + (*at - '0');
    }
    if (at == digits || end - at < 2 || at[0] != '\r' || at[1] != '\n')
        return NULL;
    if (*digits == '0' && (negative || at - digits > 1))
        return NULL;
    *ret_number = negative ? -number : number;
    return at + 2;
}

static void fill(redisReply *reply, int type, long long integer) {
    *reply = (redisReply){.type = type, .integer = integer};
}

static void *make(bool array, const long long *numbers, size_t len) {
    struct numbers *message = malloc(sizeof *message + (array ? len : 0) * sizeof(redisReply));
    if (message == NULL)
        return NULL;
    fill(&message->reply, array ? REDIS_REPLY_ARRAY : REDIS_REPLY_INTEGER, array ? 0 : numbers[0]);
    message->reply.str = &ours;
    if (!array)
        return message;
    message->reply.elements = len;
    message->reply.element = message->elements;
    for (size_t i = 0; i < len; i++) {
        fill(&message->element[i], REDIS_REPLY_INTEGER, numbers[i]);
        message->elements[i] = &message->element[i];
    }
    return message;
}

void *hfi_resp_numbers(const char *bytes, size_t len, size_t *ret_used) {
    const char *at = bytes, *end = bytes + len;
    long long count = 1, numbers[MAX_ELEMENTS];
    bool array = len > 0 && *bytes == '*';
    if (array)
        at = read_line(at, end, '*', &count);
    if (at == NULL || count < 1 || count > MAX_ELEMENTS)
        return NULL;
    for (long long i = 0; i < count && at != NULL; i++)
        at = read_line(at, end, ':', &numbers[i]);
    if (at == NULL)
        return NULL;
    *ret_used = (size_t)(at - bytes);
    return make(array, numbers, (size_t)count);
}

void hfi_resp_free(void *message) {
    redisReply *reply = message;
    bool numbers = reply->type == REDIS_REPLY_ARRAY || reply->type == REDIS_REPLY_INTEGER;
    if (numbers && reply->str == &ours)
        free(message);
    else
        freeReplyObject(message);
}
