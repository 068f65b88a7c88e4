/*
 * In place of tls.c when the library is built with HF_TLS=OFF: no context can be made, so nothing
 * else is ever called.
 */
#include "net/tls.h"

#include "base/error.h"

#include <stdlib.h>

static int refuse(hf_error *error) {
    return hfi_fail(error, HF_ENOTSUP,
                    "this library was built without TLS: use a url without it, or a library that "
                    "was built with HF_TLS=ON");
}

int hfi_tls_context_new(const struct hfi_mem *mem, const struct hfi_tls_options *options,
                        const char *host, struct hfi_tls_context **ret, hf_error *error) {
    (void)mem, (void)options, (void)host, (void)ret;
    return refuse(error);
}

int hfi_tls_context_like(const struct hfi_tls_context *other, const char *host,
                         struct hfi_tls_context **ret, hf_error *error) {
    (void)other, (void)host, (void)ret;
    return refuse(error);
}

void hfi_tls_context_free(struct hfi_tls_context *context) {
    (void)context; /* always NULL */
}

void hfi_tls_free(struct hfi_tls *tls) {
    (void)tls; /* the same */
}

struct hfi_tls *hfi_tls_new(const struct hfi_tls_context *context) {
    (void)context;
    abort();
}

bool hfi_tls_feed(struct hfi_tls *tls, const char *bytes, size_t len) {
    (void)tls, (void)bytes, (void)len;
    abort();
}

int hfi_tls_handshake(struct hfi_tls *tls, bool *ret_done, hf_error *error) {
    (void)tls, (void)ret_done, (void)error;
    abort();
}

int hfi_tls_read(struct hfi_tls *tls, bool joining, char *bytes, size_t size, size_t *ret_len,
                 hf_error *error) {
    (void)tls, (void)joining, (void)bytes, (void)size, (void)ret_len, (void)error;
    abort();
}

int64_t hfi_tls_until_s(const struct hfi_tls *tls) {
    (void)tls;
    abort();
}

bool hfi_tls_has_more(const struct hfi_tls *tls) {
    (void)tls;
    abort();
}

bool hfi_tls_write(struct hfi_tls *tls, const char *bytes, size_t len) {
    (void)tls, (void)bytes, (void)len;
    abort();
}

size_t hfi_tls_pending(struct hfi_tls *tls) {
    (void)tls;
    abort();
}

size_t hfi_tls_take(struct hfi_tls *tls, char *bytes, size_t size) {
    (void)tls, (void)bytes, (void)size;
    abort();
}
