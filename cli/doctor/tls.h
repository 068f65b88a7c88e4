/* One request to a server over TLS, outside of the library. */
#ifndef CLI_TLS_H
#define CLI_TLS_H

#include <holdfast/holdfast.h>

/* The library's options, overridden by the TLS settings of the url, as in the library. */
struct tls_options {
    hf_options options;
    char *from_url[5];
};
void tls_options_of(struct tls_options *ret, const hf_options *options, const char *url);
void tls_options_clear(struct tls_options *options);

/* Sends a word on a connected, non-blocking socket. Trust and server name come from `options`;
 * `host` is the url's. Reads until the server closes the connection or until end_ms. Returns the
 * length of the answer, which is NUL-terminated in `text`; 0: none. */
size_t tls_ask_word(int fd, const hf_options *options, const char *host, const char *word,
                    char *text, size_t size, int64_t end_ms);

#endif
