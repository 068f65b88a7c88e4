/* Replies of Redis and Valkey, and how they are read from bytes: RESP2.
 *
 * A message is read in two steps. A scan finds its end, as bytes arrive, and counts what it
 * consists of; it allocates nothing. Then all of it is made in one allocation. So a server cannot
 * make us allocate for what it has only announced. */
#ifndef HFI_NET_RESP_WIRE_REPLY_H
#define HFI_NET_RESP_WIRE_REPLY_H

#include <stddef.h>
#include <stdint.h>

enum hfi_reply_type {
    HFI_REPLY_STRING = 1,
    HFI_REPLY_ARRAY,
    HFI_REPLY_INTEGER,
    HFI_REPLY_NIL,
    HFI_REPLY_STATUS,
    HFI_REPLY_ERROR
};

struct hfi_reply {
    enum hfi_reply_type type;
    int64_t integer;
    size_t len; /* of a string, status or error; a NUL follows it */
    char *str;  /* NULL for the others */
    size_t elements;
    struct hfi_reply **element;
};

/* Bounds of one message. */
#define HFI_REPLY_MAX_BYTES ((size_t)4 << 20)
#define HFI_REPLY_MAX_ELEMENTS 65536 /* per array */
#define HFI_REPLY_MAX_DEPTH 7        /* arrays within arrays */
#define HFI_REPLY_MAX_LINE 65536

enum hfi_scanned {
    HFI_SCAN_PARTIAL,
    HFI_SCAN_WHOLE,
    HFI_SCAN_INVALID, /* `why` says what is wrong */
    HFI_SCAN_TOO_MANY /* elements, or levels */
};

/* All zero at the beginning of a message. */
struct hfi_reply_scan {
    size_t pos;     /* how many of its bytes are understood; when it is whole, its length */
    size_t line_at; /* the line that begins at `pos` has no end before this */
    size_t depth;
    size_t left[HFI_REPLY_MAX_DEPTH]; /* elements still to come, by level */
    size_t nodes, pointers, text;     /* what its parts need */
    const char *why;
    char mark; /* of a message that is none: its first byte */
};

/* Goes on, with `len` bytes there from the beginning of the message. */
enum hfi_scanned hfi_reply_scan(struct hfi_reply_scan *scan, const char *bytes, size_t len);

/* Makes the message that was scanned. Freed by free(). NULL: out of memory. */
struct hfi_reply *hfi_reply_make(const struct hfi_reply_scan *scan, const char *bytes);

/* The same, without a scan, if the first message is whole and a number, nil or a few numbers. NULL:
 * it is not, or there is no memory; a scan tells. */
struct hfi_reply *hfi_reply_make_short(const char *bytes, size_t len, size_t *ret_len);

#endif
