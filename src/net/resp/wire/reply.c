/*
 * Reading replies (reply.h).
 *
 * net/resp calls this on the thread that drives a connection. Stateless: the scan is the caller's.
 * What a server sends is not trusted: each length is checked before it is used, and nothing that
 * is announced is allocated. Numbers are spelled as RESP wants them, or the message is invalid.
 *
 * Nearly all replies are a number, nil or a few numbers. Those are made in one pass, without a scan.
 */
#include "net/resp/wire/reply.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SHORT_MAX 8   /* numbers of an array that is made without a scan */
#define MAX_DIGITS 19 /* of an int64_t; as many never overflow a uint64_t */

/* How many of the first bytes belong to a number; 0: there is none, or it is too large, or spelled
 * otherwise. */
static size_t read_number(const char *text, size_t len, int64_t *ret_number) {
    bool negative = len > 0 && text[0] == '-';
    size_t first = negative, at = first;
    size_t end = len - first < MAX_DIGITS ? len : first + MAX_DIGITS;
    uint64_t number = 0;
    for (unsigned digit; at < end && (digit = (unsigned)(text[at] - '0')) <= 9; at++)
        number = number * 10 + digit;
    if (at == first || (text[first] == '0' && (negative || at - first > 1)) ||
        number > (uint64_t)INT64_MAX + negative)
        return 0;
    *ret_number = negative ? (int64_t)(0 - number) : (int64_t)number;
    return at;
}

/* ---- Finding the end ---- */

static enum hfi_scanned invalid(struct hfi_reply_scan *scan, const char *why) {
    scan->why = why;
    return HFI_SCAN_INVALID;
}

/* The line that begins at `pos`. *ret_len: without its mark and its end. */
static enum hfi_scanned find_line(struct hfi_reply_scan *scan, const char *bytes, size_t len,
                                  size_t *ret_len) {
    const char *line = bytes + scan->pos;
    size_t from = scan->line_at > scan->pos ? scan->line_at : scan->pos;
    const char *end = memchr(bytes + from, '\n', len - from);
    size_t seen = (end != NULL ? (size_t)(end - bytes) : len) - scan->pos;
    scan->line_at = scan->pos + seen;
    if (seen > HFI_REPLY_MAX_LINE)
        return invalid(scan, "a line is too long");
    if (end == NULL)
        return HFI_SCAN_PARTIAL;
    if (seen < 2 || end[-1] != '\r' || memchr(line, '\r', seen - 1) != NULL)
        return invalid(scan, "a line does not end as it should");
    *ret_len = seen - 2;
    return HFI_SCAN_WHOLE;
}

/* One part is complete, and so may be the arrays around it. True: the message is. */
static bool complete_part(struct hfi_reply_scan *scan) {
    while (scan->depth > 0 && --scan->left[scan->depth - 1] == 0)
        scan->depth--;
    return scan->depth == 0;
}

/* A string of that many bytes follows its line, which ends before `at`. */
static enum hfi_scanned scan_string(struct hfi_reply_scan *scan, const char *bytes, size_t len,
                                    size_t *at, int64_t wanted) {
    if (wanted < -1 || wanted > (int64_t)HFI_REPLY_MAX_BYTES)
        return invalid(scan, "a string has an impossible length");
    if (wanted == -1)
        return HFI_SCAN_WHOLE;
    if (len - *at < (size_t)wanted + 2)
        return HFI_SCAN_PARTIAL;
    *at += (size_t)wanted + 2;
    if (bytes[*at - 2] != '\r' || bytes[*at - 1] != '\n')
        return invalid(scan, "a string does not end where it should");
    scan->text += (size_t)wanted + 1;
    return HFI_SCAN_WHOLE;
}

/* *ret_opens: elements follow. */
static enum hfi_scanned scan_array(struct hfi_reply_scan *scan, int64_t wanted, bool *ret_opens) {
    if (wanted < -1)
        return invalid(scan, "an array has an impossible length");
    if (wanted >= 0 && scan->depth == HFI_REPLY_MAX_DEPTH)
        return HFI_SCAN_TOO_MANY;
    if (wanted > HFI_REPLY_MAX_ELEMENTS)
        return HFI_SCAN_TOO_MANY;
    *ret_opens = wanted > 0;
    if (wanted > 0) {
        scan->left[scan->depth++] = (size_t)wanted;
        scan->pointers += (size_t)wanted;
    }
    return HFI_SCAN_WHOLE;
}

/* The next part, up to the elements of an array. WHOLE: there was one. */
static enum hfi_scanned scan_part(struct hfi_reply_scan *scan, const char *bytes, size_t len,
                                  bool *ret_opens) {
    static const char marks[] = {'+', '-', ':', '$', '*'};
    char mark = bytes[scan->pos];
    size_t line_len = 0;
    int64_t number = 0;
    if (memchr(marks, mark, sizeof marks) == NULL) {
        scan->mark = mark;
        return invalid(scan, "an unknown kind of reply");
    }
    enum hfi_scanned scanned = find_line(scan, bytes, len, &line_len);
    if (scanned != HFI_SCAN_WHOLE)
        return scanned;
    size_t at = scan->pos + 1 + line_len + 2;
    bool is_text = mark == '+' || mark == '-';
    if (!is_text &&
        (line_len == 0 || read_number(bytes + scan->pos + 1, line_len, &number) != line_len))
        return invalid(scan, "not a number");
    if (is_text)
        scan->text += line_len + 1;
    else if (mark == '$')
        scanned = scan_string(scan, bytes, len, &at, number);
    else if (mark == '*')
        scanned = scan_array(scan, number, ret_opens);
    if (scanned != HFI_SCAN_WHOLE)
        return scanned;
    scan->nodes++;
    scan->pos = scan->line_at = at;
    return HFI_SCAN_WHOLE;
}

enum hfi_scanned hfi_reply_scan(struct hfi_reply_scan *scan, const char *bytes, size_t len) {
    while (scan->pos < len) {
        bool opens = false;
        enum hfi_scanned scanned = scan_part(scan, bytes, len, &opens);
        if (scanned != HFI_SCAN_WHOLE)
            return scanned;
        if (!opens && complete_part(scan))
            return HFI_SCAN_WHOLE;
    }
    return HFI_SCAN_PARTIAL;
}

/* ---- Making it ---- */

/* The one allocation: all parts, then the pointers of arrays, then the texts. */
struct maker {
    struct hfi_reply *node;
    struct hfi_reply **pointer;
    char *text;
    const char *at, *end;
};

static void make_text(struct maker *maker, struct hfi_reply *reply, const char *bytes, size_t len) {
    reply->str = memcpy(maker->text, bytes, len);
    reply->len = len;
    maker->text[len] = '\0';
    maker->text += len + 1;
}

/* The message is scanned: every line is there, and every number is one. Its depth is bounded. */
static struct hfi_reply *make_part(struct maker *maker) {
    struct hfi_reply *reply = maker->node++;
    char mark = *maker->at++;
    const char *line = maker->at;
    const char *end = memchr(line, '\r', (size_t)(maker->end - line));
    int64_t number = 0;
    *reply = (struct hfi_reply){.type = HFI_REPLY_NIL};
    maker->at = end + 2;
    if (mark == '+' || mark == '-') {
        reply->type = mark == '+' ? HFI_REPLY_STATUS : HFI_REPLY_ERROR;
        make_text(maker, reply, line, (size_t)(end - line));
        return reply;
    }
    read_number(line, (size_t)(end - line), &number);
    if (mark == ':') {
        reply->type = HFI_REPLY_INTEGER;
        reply->integer = number;
    } else if (number >= 0 && mark == '$') {
        reply->type = HFI_REPLY_STRING;
        make_text(maker, reply, maker->at, (size_t)number);
        maker->at += number + 2;
    } else if (number >= 0) {
        reply->type = HFI_REPLY_ARRAY;
        reply->elements = (size_t)number;
        reply->element = maker->pointer;
        maker->pointer += number;
        for (size_t i = 0; i < reply->elements; i++)
            reply->element[i] = make_part(maker); /* NOLINT(misc-no-recursion): at most seven */
    }
    return reply;
}

struct hfi_reply *hfi_reply_make(const struct hfi_reply_scan *scan, const char *bytes) {
    size_t nodes_size = scan->nodes * sizeof(struct hfi_reply);
    size_t pointers_size = scan->pointers * sizeof(struct hfi_reply *);
    char *memory = malloc(nodes_size + pointers_size + scan->text);
    if (memory == NULL)
        return NULL;
    struct maker maker = {.node = (struct hfi_reply *)(void *)memory,
                          .pointer = (struct hfi_reply **)(void *)(memory + nodes_size),
                          .text = memory + nodes_size + pointers_size,
                          .at = bytes,
                          .end = bytes + scan->pos};
    struct hfi_reply *reply = make_part(&maker);
    assert(maker.at == bytes + scan->pos);
    return reply;
}

/* ---- Short messages ---- */

/* The line `mark`, number, CRLF at *at, which moves behind it. False: there is something else. */
static bool take_line(const char *bytes, size_t len, char mark, size_t *at, int64_t *ret_number) {
    size_t pos = *at;
    if (pos >= len || bytes[pos] != mark)
        return false;
    size_t used = read_number(bytes + pos + 1, len - pos - 1, ret_number);
    pos += 1 + used;
    if (used == 0 || len - pos < 2 || bytes[pos] != '\r' || bytes[pos + 1] != '\n')
        return false;
    *at = pos + 2;
    return true;
}

static struct hfi_reply *make_one(enum hfi_reply_type type, int64_t number) {
    struct hfi_reply *reply = malloc(sizeof *reply);
    if (reply != NULL)
        *reply = (struct hfi_reply){.type = type, .integer = number};
    return reply;
}

static struct hfi_reply *make_numbers(const int64_t *numbers, size_t count) {
    struct hfi_reply *reply;
    reply = malloc((1 + count) * sizeof *reply + count * sizeof *reply->element);
    if (reply == NULL)
        return NULL;
    *reply = (struct hfi_reply){.type = HFI_REPLY_ARRAY,
                                .elements = count,
                                .element = (struct hfi_reply **)(void *)(reply + 1 + count)};
    for (size_t i = 0; i < count; i++) {
        reply[1 + i] = (struct hfi_reply){.type = HFI_REPLY_INTEGER, .integer = numbers[i]};
        reply->element[i] = reply + 1 + i;
    }
    return reply;
}

struct hfi_reply *hfi_reply_make_short(const char *bytes, size_t len, size_t *ret_len) {
    int64_t number, numbers[SHORT_MAX];
    size_t at = 0;
    *ret_len = 0;
    struct hfi_reply *reply = NULL;
    if (take_line(bytes, len, ':', &at, &number)) {
        reply = make_one(HFI_REPLY_INTEGER, number);
    } else if (take_line(bytes, len, '$', &at, &number)) {
        if (number == -1)
            reply = make_one(HFI_REPLY_NIL, 0);
    } else if (take_line(bytes, len, '*', &at, &number) && number > 0 && number <= SHORT_MAX) {
        for (int64_t i = 0; i < number; i++)
            if (!take_line(bytes, len, ':', &at, &numbers[i]))
                return NULL;
        reply = make_numbers(numbers, (size_t)number);
    }
    if (reply != NULL)
        *ret_len = at;
    return reply;
}
