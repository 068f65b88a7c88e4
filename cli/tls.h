/* A word to a server over TLS, and its answer: for what is asked of servers beside the library. */
#ifndef CLI_TLS_H
#define CLI_TLS_H

#include <holdfast/holdfast.h>

/* The options for a server, with what its url says of TLS in place of them, as the library takes it. */
struct tls_options {
    hf_options options;
    char *from_url[5];
};
void tls_options_of(struct tls_options *ret, const hf_options *options, const char *url);
void tls_options_clear(struct tls_options *options);

/* On a socket that is connected and does not block. The server is trusted, and has to be called, as `options` tell the library;
 * `host` is the url's. Returns how much of the answer is in `text`, which has a NUL behind it, when the server has closed the
 * connection or the time is over; 0: there is none. */
size_t tls_ask_word(int fd, const hf_options *options, const char *host, const char *word,
                    char *text, size_t size, int64_t end_ms);

#endif
