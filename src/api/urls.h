/* The servers that hf_open() was given: one url, or several, which form a quorum. */
#ifndef HFI_API_URLS_H
#define HFI_API_URLS_H

#include "net/url/url.h"

#define HFI_URLS_MAX 9

struct hfi_urls {
    size_t len;
    struct hfi_url of[HFI_URLS_MAX];
};

/* If the caller gives none: HOLDFAST_URL, or REDIS_URL. HF_EINVAL. */
int hfi_url_from_environment(const char **ret_url, hf_error *error);

/* Parses the text. Values in the urls override `options`; options fill in what the urls leave open.
 * On failure `ret` is empty. `options` then points into the urls. */
int hfi_urls_parse(const struct hfi_mem *mem, const char *text, hf_options *options,
                   struct hfi_urls *ret, hf_error *error);
void hfi_urls_clear(const struct hfi_mem *mem, struct hfi_urls *urls);

/* Its name in error texts: "host:port", or the path of a socket. */
void hfi_url_node(const struct hfi_url *url, char *text, size_t size);

#endif
