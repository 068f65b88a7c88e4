/* JSON, as far as surveys need it: what clients hold and wait for.
 *
 * A writer puts one text into a buffer that grows up to a limit; an element that does not fit is
 * left out as a whole. A reader walks over untrusted text: it never reads past the end, nests no
 * deeper than HFI_JSON_DEPTH, and stays bad after the first error. Both are plain structs, owned
 * by the caller. */
#ifndef HFI_BASE_JSON_H
#define HFI_BASE_JSON_H

#include "base/mem.h"

#define HFI_JSON_DEPTH 8

/* ---- Writing ---- */

struct hfi_json {
    const struct hfi_mem *mem;
    char *text; /* not terminated; the owner frees it */
    size_t len, cap;
    size_t limit; /* maximum of `len` */
    bool comma;   /* the next element needs a comma */
    /* It did not fit, or out of memory: the text is valid only up to a mark. */
    bool full;
};

void hfi_json_begin(struct hfi_json *json, const struct hfi_mem *mem, size_t limit);
/* '{', '}', '[' or ']'. */
void hfi_json_open(struct hfi_json *json, char bracket);
void hfi_json_close(struct hfi_json *json, char bracket);
void hfi_json_key(struct hfi_json *json, const char *key);
/* Text in UTF-8. */
void hfi_json_text(struct hfi_json *json, const char *text, size_t len);
void hfi_json_number(struct hfi_json *json, int64_t number);
void hfi_json_flag(struct hfi_json *json, bool on); /* true or false */
/* A key and its value. Bytes that are not UTF-8 are written in hex, under the key with "_hex"
 * appended. */
void hfi_json_bytes(struct hfi_json *json, const char *key, const char *bytes, size_t len);
void hfi_json_pair(struct hfi_json *json, const char *key, int64_t number);

/* The current position; and back to it, as if nothing had been written since. */
struct hfi_json_mark {
    size_t len;
    bool comma;
};
struct hfi_json_mark hfi_json_mark(const struct hfi_json *json);
void hfi_json_back(struct hfi_json *json, struct hfi_json_mark mark);

bool hfi_is_utf8(const char *text, size_t len);

/* ---- Reading ---- */

struct hfi_json_reader {
    const char *at, *end;
    unsigned depth;
    bool first; /* no element read yet of what was entered last */
    bool bad;
};

void hfi_json_read(struct hfi_json_reader *reader, const char *text, size_t len);
/* Enters an object ('{') or array ('['). False: the next value is none. */
bool hfi_json_enter(struct hfi_json_reader *reader, char bracket);
/* Is there another element in what was entered? If not, leaves it. */
bool hfi_json_next(struct hfi_json_reader *reader);
/* The same in an object: reads the key, cut to `size` and terminated. */
bool hfi_json_next_key(struct hfi_json_reader *reader, char *key, size_t size);
/* Reads a value; text is cut to `size` and terminated. False: it has another type, and was
 * skipped. */
bool hfi_json_read_text(struct hfi_json_reader *reader, char *text, size_t size, size_t *ret_len);
bool hfi_json_read_number(struct hfi_json_reader *reader, int64_t *ret);
void hfi_json_skip(struct hfi_json_reader *reader);
/* The text is over, and was well formed as far as it was read. */
bool hfi_json_is_over(struct hfi_json_reader *reader);

#endif
