/*
 * What the files of src/net/url share: slices of the text, and the parser's state. No other file
 * includes this.
 *
 * Every function that returns an int returns HF_OK, or an error that it has written to `p->error`.
 */
#ifndef HFI_NET_URL_URL_PARSER_H
#define HFI_NET_URL_URL_PARSER_H

#include "net/url/url.h"

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
    struct hfi_url url; /* parsed so far */
    bool db_given;
    struct slice path;      /* SENTINEL, CLUSTER, ZK: what follows the hosts */
    bool tls_options_given; /* some TLS option */
};

static inline bool slice_is(struct slice s, const char *text) {
    return s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

/* The part before `at`, which points into the slice. */
static inline struct slice before(struct slice s, const char *at) {
    return (struct slice){s.at, (size_t)(at - s.at)};
}

/* The part after the `skip` bytes at `at`. */
static inline struct slice behind(struct slice s, const char *at, size_t skip) {
    return (struct slice){at + skip, s.len - (size_t)(at - s.at) - skip};
}

static inline const char *find(struct slice s, char wanted) {
    return s.len > 0 ? memchr(s.at, wanted, s.len) : NULL;
}

static inline const char *find_last(struct slice s, char wanted) {
    return s.len > 0 ? memrchr(s.at, wanted, s.len) : NULL;
}

/* A decoded copy. `what` is the name of the part in messages. The copy may be a password, so it
 * is wiped on failure. */
int hfi_url_decode(const struct url_parser *p, struct slice raw, const char *what, char **ret);

/* A number from 0 to `max`, in digits only. */
bool hfi_url_number(struct slice text, int64_t max, int64_t *ret);

/* These refuse a value that was given before. */
int hfi_url_set_user(struct url_parser *p, struct slice text);
int hfi_url_set_password(struct url_parser *p, struct slice text);
int hfi_url_set_db(struct url_parser *p, struct slice text);
int hfi_url_set_switch(const struct url_parser *p, struct slice text, const char *name,
                       enum hfi_url_switch *ret);

/* A host with or without a port, IPv6 addresses in brackets. A missing host is localhost. */
int hfi_url_set_host(const struct url_parser *p, struct slice text, uint16_t default_port,
                     struct hfi_url_host *ret);
int hfi_url_parse_userinfo(struct url_parser *p, struct slice text);
/* Frees it and leaves it empty. */
void hfi_url_host_clear(const struct hfi_mem *mem, struct hfi_url_host *host);

/* url_hosts.c: userinfo and hosts, before the `?`, leaving `p->path`; the same for a cluster,
 * with its path; and an option of urls with several hosts (*ret_known: it is one). */
int hfi_url_parse_hosts(struct url_parser *p, struct slice text, uint16_t default_port);
int hfi_url_parse_cluster(struct url_parser *p, struct slice text);
int hfi_url_parse_cluster_tls(struct url_parser *p, struct slice text);
int hfi_url_set_hosts_option(struct url_parser *p, struct slice name, struct slice value,
                             bool *ret_known);

/* url_sentinel.c: the part before the `?`; an option (*ret_known: it is one of Sentinel's); and
 * the final step, after the options. */
int hfi_url_parse_sentinel(struct url_parser *p, struct slice text);
int hfi_url_parse_sentinel_tls(struct url_parser *p, struct slice text);
int hfi_url_set_sentinel_option(struct url_parser *p, struct slice name, struct slice value,
                                bool *ret_known);
int hfi_url_finish_sentinel(struct url_parser *p);

/* url_zk.c: the same. */
int hfi_url_parse_zk(struct url_parser *p, struct slice text);
int hfi_url_parse_zk_tls(struct url_parser *p, struct slice text);
int hfi_url_set_zk_option(struct url_parser *p, struct slice name, struct slice value,
                          bool *ret_known);

/* url_options.c: `text` is the part after the `?`. */
int hfi_url_parse_options(struct url_parser *p, struct slice text);

#endif
