/*
 * Parses MOVED and ASK, the redirects of a cluster. exchange_error_reply.c follows one, and
 * cluster_map.c learns from it.
 *
 * Called with every error reply, on any thread; stateless. The reply comes from the network: unless
 * all of it is valid, it is no redirect.
 */
#include "redis/route/redirect_parse.h"

#include "redis/route/addresses.h"

#include <string.h>

struct text {
    const char *at;
    size_t len;
};

static bool skip_prefix(struct text *text, const char *prefix) {
    size_t len = strlen(prefix);
    if (text->len < len || memcmp(text->at, prefix, len) != 0)
        return false;
    *text = (struct text){text->at + len, text->len - len};
    return true;
}

/* Digits alone, no more than `max`. */
static bool read_number(struct text text, unsigned max, unsigned *ret) {
    unsigned number = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return false;
        number = number * 10 + (unsigned)(text.at[i] - '0');
        if (number > max)
            return false;
    }
    *ret = number;
    return text.len > 0;
}

/* HOST:PORT. IPv6 addresses come without brackets, so the last colon counts. */
static bool read_address(struct text text, struct hfi_slot_host *ret) {
    const char *colon = text.len > 0 ? memrchr(text.at, ':', text.len) : NULL;
    if (colon == NULL)
        return false;
    size_t host_len = (size_t)(colon - text.at);
    unsigned port;
    if (!read_number((struct text){colon + 1, text.len - host_len - 1}, UINT16_MAX, &port))
        return false;
    ret->host = text.at;
    ret->host_len = host_len;
    ret->port = (uint16_t)port;
    bool unknown = host_len == 1 && *text.at == '?';
    return port != 0 && !unknown && hfi_is_host(text.at, host_len);
}

bool hfi_redirect_read(const struct hfi_reply *reply, struct hfi_redirect *ret) {
    struct hfi_redirect redirect;
    if (reply->type != HFI_REPLY_ERROR)
        return false;
    struct text text = {reply->str, reply->len};
    redirect.ask = skip_prefix(&text, "ASK ");
    if (!redirect.ask && !skip_prefix(&text, "MOVED "))
        return false;
    const char *space = text.len > 0 ? memchr(text.at, ' ', text.len) : NULL;
    if (space == NULL)
        return false;
    size_t digits = (size_t)(space - text.at);
    if (!read_number((struct text){text.at, digits}, HFI_SLOTS - 1, &redirect.slot) ||
        !read_address((struct text){space + 1, text.len - digits - 1}, &redirect.to))
        return false;
    *ret = redirect;
    return true;
}
