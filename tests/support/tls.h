/* Certificates for tests, made when they run, and servers that use them.
 *
 *     struct authority *ca = authority_new("ca");
 *     struct certificate *cert = authority_issue(ca, &(struct certificate_options){.names = "DNS:localhost"});
 *     struct server *s = tls_server_start(ca, cert, NULL);
 *     hf_open(server_tcp_url(s), &options_with_ca_file, &client);    // rediss://127.0.0.1:port
 *
 * Include as "support/tls.h". Keys are P-256: made in a moment. Files lie in a private directory of
 * the authority and go with it. A fixture that breaks prints why and aborts. */
#ifndef HF_TEST_TLS_H
#define HF_TEST_TLS_H

#include "support/server.h"

struct authority;
struct certificate;

struct authority *authority_new(const char *name);
void authority_free(struct authority *authority); /* with all it has issued. NULL is fine */
const char *authority_file(const struct authority *authority); /* its own certificate, PEM */
const char *authority_dir(const struct authority *authority);  /* where that is found by its hash */

struct certificate_options {
    const char *names;        /* as openssl writes them: "DNS:localhost,IP:127.0.0.1"; NULL: none */
    int64_t since_s, until_s; /* from now; both 0: an hour ago until in an hour */
    const char *passphrase;   /* of the key; NULL: not encrypted */
};

struct certificate *authority_issue(struct authority *authority,
                                    const struct certificate_options *options);
const char *certificate_file(const struct certificate *certificate);
const char *certificate_key(const struct certificate *certificate);
const char *certificate_both(const struct certificate *certificate); /* in one file */

/* A server whose port speaks TLS; its Unix socket, for the helpers of server.h, does not. `trusts`:
 * whose clients it lets in, NULL: it does not ask them for certificates. `options` may be NULL; its
 * `config` is kept. */
struct server *tls_server_start(const struct authority *trusts,
                                const struct certificate *certificate,
                                const struct server_options *options);

#endif
