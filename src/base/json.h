/* JSON, as far as clients need it to tell each other what they hold and wait for.
 *
 * A writer puts one text into a buffer that grows up to a limit; what does not fit is left out as a
 * whole, element by element. A reader walks over a text that anybody may have written: it never reads
 * behind the end, nests no deeper than HFI_JSON_DEPTH, and once something is wrong it stays so. Both
 * are plain structs of their owner's. */
#ifndef HFI_BASE_JSON_H
#define HFI_BASE_JSON_H

#include "base/mem.h"

#define HFI_JSON_DEPTH 8

/* ---- Writing ---- */

struct hfi_json {
    const struct hfi_mem *mem;
    char *text; /* not terminated; the owner's to free */
    size_t len, cap;
    size_t limit; /* no longer than this */
    bool comma;   /* something is in front of what comes next */
    bool full; /* it did not fit, or there is no memory: the text is worth nothing beyond a mark */
};

void hfi_json_begin(struct hfi_json *json, const struct hfi_mem *mem, size_t limit);
/* '{', '}', '[' or ']'. */
void hfi_json_open(struct hfi_json *json, char bracket);
void hfi_json_close(struct hfi_json *json, char bracket);
void hfi_json_key(struct hfi_json *json, const char *key);
/* Text in UTF-8. */
void hfi_json_text(struct hfi_json *json, const char *text, size_t len);
void hfi_json_number(struct hfi_json *json, int64_t number);
/* A key and its value. One that is not UTF-8 is written in hex, under the key and "_hex". */
void hfi_json_bytes(struct hfi_json *json, const char *key, const char *bytes, size_t len);
void hfi_json_pair(struct hfi_json *json, const char *key, int64_t number);

/* Where it is now; and back there, as if what followed had not been written. */
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
    bool first; /* nothing of what was entered last has been read */
    bool bad;
};

void hfi_json_read(struct hfi_json_reader *reader, const char *text, size_t len);
/* Enters what is next, if that is an object ('{') or an array ('['). False: it is not. */
bool hfi_json_enter(struct hfi_json_reader *reader, char bracket);
/* Whether there is one more in what was entered; if not, it is left. */
bool hfi_json_next(struct hfi_json_reader *reader);
/* The same in an object: the key is read, cut to `size` and terminated. */
bool hfi_json_next_key(struct hfi_json_reader *reader, char *key, size_t size);
/* A text is cut to `size` and terminated. False, and then it is passed over: it is something else. */
bool hfi_json_read_text(struct hfi_json_reader *reader, char *text, size_t size, size_t *ret_len);
bool hfi_json_read_number(struct hfi_json_reader *reader, int64_t *ret);
void hfi_json_skip(struct hfi_json_reader *reader);
/* The text is over, and was well formed as far as it was read. */
bool hfi_json_is_over(struct hfi_json_reader *reader);

#endif
