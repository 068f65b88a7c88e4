/* Byte buffers, and where one RESP message ends. For the proxy and the hostile server; not for
 * tests. */
#ifndef HF_TEST_RESP_H
#define HF_TEST_RESP_H

#include <stdbool.h>
#include <stddef.h>

struct bytes {
    char *data; /* where they begin, `consumed` bytes into a block of `room` */
    size_t length, consumed, room;
};

void bytes_append(struct bytes *bytes, const void *data, size_t length);
void bytes_consume(struct bytes *bytes, size_t length); /* drops that much at the front */
void bytes_clear(struct bytes *bytes);                  /* frees it; it can be used again */

#define RESP_BROKEN ((size_t)-1)

/* The length of the first message (RESP2 or RESP3, nested or not), 0 when there is more of it to
 * come, RESP_BROKEN when it is none. */
size_t resp_reply_length(const char *data, size_t length);

/* The same for what clients send: a message, or a line of words without RESP. */
size_t resp_command_length(const char *data, size_t length);

/* Whether the first word of a complete command is `name`, whatever the case. */
bool resp_command_is(const char *data, size_t length, const char *name);

/* Whether `needle` occurs in the bytes, whatever the case. "" always does. */
bool resp_contains(const char *data, size_t length, const char *needle);

#endif
