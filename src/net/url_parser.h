/*
 * What url.c and url_options.c share: pieces of the text, and the parser's state. Nobody else
 * includes this.
 *
 * All functions that return an int return HF_OK or an error that has been written to `p->error`.
 */
#ifndef HFI_NET_URL_PARSER_H
#define HFI_NET_URL_PARSER_H

#include "net/url.h"

#include "base/error.h"

#include <string.h>

/* A piece of the text. */
struct slice {
    const char *at;
    size_t len;
};

struct url_parser {
    const struct hfi_mem *mem;
    hf_error *error;
    struct hfi_url url; /* what has been found so far */
    bool db_given;
};

static inline bool slice_is(struct slice s, const char *text) {
    return s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

/* What comes before `at`, which points into the slice. */
static inline struct slice before(struct slice s, const char *at) {
    return (struct slice){s.at, (size_t)(at - s.at)};
}

/* What comes after the `skip` bytes at `at`. */
static inline struct slice behind(struct slice s, const char *at, size_t skip) {
    return (struct slice){at + skip, s.len - (size_t)(at - s.at) - skip};
}

static inline const char *find(struct slice s, char wanted) {
    return s.len > 0 ? memchr(s.at, wanted, s.len) : NULL;
}

/* A decoded copy. `what` is the name of the part in messages. The copy may be a password, so it is
 * wiped on failure. */
int hfi_url_decode(const struct url_parser *p, struct slice raw, const char *what, char **ret);

/* A number from 0 to `max`, in digits only. */
bool hfi_url_number(struct slice text, int64_t max, int64_t *ret);

/* These refuse what has already been given. */
int hfi_url_set_user(struct url_parser *p, struct slice text);
int hfi_url_set_password(struct url_parser *p, struct slice text);
int hfi_url_set_db(struct url_parser *p, struct slice text);

/* url_options.c: `text` is what comes after the `?`. */
int hfi_url_parse_options(struct url_parser *p, struct slice text);

#endif
