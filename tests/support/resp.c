/*
 * Byte buffers, and where one RESP message ends; see resp.h.
 *
 * Called by the proxy and the hostile server on their own threads; it keeps no state. This is not a
 * parser of values: it only finds ends, so it stays small and takes what hiredis of some versions
 * does not know.
 *
 * Invariant: nesting costs no stack. Each message adds its members to a count of messages that are
 * still due, and the whole ends when none is.
 */
#include "support/resp.h"

#include "support/wait.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* ---- Buffers --------------------------------------------------------------------------------- */

/* Moves the bytes to the beginning of the block. It also grows, unless more was consumed than is
 * left; so each byte is moved a few times at most, however small the pieces are. */
static void make_room(struct bytes *bytes, size_t length) {
    char *block = bytes->room > 0 ? bytes->data - bytes->consumed : NULL;
    if (block != NULL && bytes->consumed > 0)
        memmove(block, bytes->data, bytes->length);
    if (block == NULL || bytes->consumed <= bytes->length || bytes->length + length > bytes->room) {
        bytes->room = (bytes->length + length) * 2;
        block = realloc(block, bytes->room);
        if (block == NULL)
            support_die("out of memory");
    }
    bytes->data = block;
    bytes->consumed = 0;
}

void bytes_append(struct bytes *bytes, const void *data, size_t length) {
    if (length == 0)
        return;
    if (bytes->consumed + bytes->length + length > bytes->room)
        make_room(bytes, length);
    memcpy(bytes->data + bytes->length, data, length);
    bytes->length += length;
}

/* A flood of small messages is consumed one by one, so the rest must not be moved each time. */
void bytes_consume(struct bytes *bytes, size_t length) {
    bytes->length -= length;
    bytes->data += length;
    bytes->consumed += length;
}

void bytes_clear(struct bytes *bytes) {
    if (bytes->room > 0)
        free(bytes->data - bytes->consumed);
    *bytes = (struct bytes){0};
}

/* ---- Ends of messages ------------------------------------------------------------------------ */

static bool is_one_of(char c, const char *set) {
    return c != '\0' && strchr(set, c) != NULL;
}

/* The number in a header line such as "$12\r\n"; false when it is none. */
static bool header_number(const char *line, const char *line_end, long long *ret_number) {
    long long number = 0;
    const char *digits = *line == '-' ? line + 1 : line;
    if (digits == line_end || line_end - digits > 12)
        return false;
    for (const char *s = digits; s < line_end; s++) {
        if (!isdigit((unsigned char)*s))
            return false;
        number = number * 10 + (*s - '0');
    }
    *ret_number = digits == line ? number : -number;
    return true;
}

/* How many bytes and how many messages follow a header of this type and number; false: no such
 * type. */
static bool what_follows(char type, long long number, size_t *ret_bytes, long long *ret_messages) {
    *ret_bytes = 0;
    *ret_messages = 0;
    if (number < -1)
        return false;
    if (number == -1)
        number = 0;
    else if (is_one_of(type, "$!="))
        *ret_bytes = (size_t)number + 2;
    if (is_one_of(type, "*~>"))
        *ret_messages = number;
    else if (type == '%')
        *ret_messages = number * 2;
    else if (type == '|') /* an attribute stands in front of the message it belongs to */
        *ret_messages = number * 2 + 1;
    return true;
}

size_t resp_reply_length(const char *data, size_t length) {
    size_t at = 0;
    for (long long due = 1; due > 0; due--) {
        const char *end = at < length ? memchr(data + at, '\n', length - at) : NULL;
        if (end == NULL)
            return at < length && !is_one_of(data[at], "+-:$*_,#!=(%~>|") ? RESP_BROKEN : 0;
        char type = data[at];
        const char *line = data + at + 1;
        if (end <= line || end[-1] != '\r')
            return RESP_BROKEN;
        at = (size_t)(end + 1 - data);
        if (is_one_of(type, "+-:_,#("))
            continue;

        long long number, messages;
        size_t bytes;
        if (!is_one_of(type, "$*!=%~>|") || !header_number(line, end - 1, &number) ||
            !what_follows(type, number, &bytes, &messages))
            return RESP_BROKEN;
        if (bytes > length - at)
            return 0;
        at += bytes;
        due += messages;
    }
    return at;
}

size_t resp_command_length(const char *data, size_t length) {
    if (length == 0)
        return 0;
    if (data[0] == '*')
        return resp_reply_length(data, length);
    const char *end = memchr(data, '\n', length);
    return end == NULL ? 0 : (size_t)(end + 1 - data);
}

bool resp_command_is(const char *data, size_t length, const char *name) {
    const char *word = data, *end = data + length;
    for (int lines = 0; length > 0 && data[0] == '*' && lines < 2; lines++) {
        const char *newline = memchr(word, '\n', (size_t)(end - word));
        if (newline == NULL)
            return false;
        word = newline + 1;
    }
    size_t size = strlen(name);
    return (size_t)(end - word) > size && strncasecmp(word, name, size) == 0 &&
           isspace((unsigned char)word[size]);
}

bool resp_contains(const char *data, size_t length, const char *needle) {
    size_t size = strlen(needle);
    if (size == 0)
        return true;
    for (size_t i = 0; i + size <= length; i++)
        if (tolower((unsigned char)data[i]) == tolower((unsigned char)needle[0]) &&
            strncasecmp(data + i, needle, size) == 0)
            return true;
    return false;
}
