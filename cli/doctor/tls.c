/* One request and its answer over TLS, with OpenSSL on the caller's socket.
 *
 * Called on the main thread by `holdfast doctor`. It uses the library's trust settings (hf_options
 * and the url), so a server that the library refuses is refused here, too. */
#include "doctor/tls.h"

#include "cli.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Trust ---- */

/* The two CA options are replaced together, and a key goes with its own certificate. */
static void override(hf_options *options, char *const from_url[5]) {
    const char *ca_file = from_url[0], *ca_dir = from_url[1], *cert = from_url[2],
               *key = from_url[3], *name = from_url[4];
    if (ca_file != NULL || ca_dir != NULL) {
        options->tls_ca_file = ca_file;
        options->tls_ca_dir = ca_dir;
    }
    if (key != NULL || (cert != NULL && options->tls_cert_file != NULL))
        options->tls_key_file = key;
    if (cert != NULL)
        options->tls_cert_file = cert;
    if (name != NULL)
        options->tls_server_name = name;
}

void tls_options_of(struct tls_options *ret, const hf_options *options, const char *url) {
    static const char *const names[] = {"tls_ca_file", "tls_ca_dir", "tls_cert_file",
                                        "tls_key_file", "tls_server_name"};
    ret->options = *options;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        ret->from_url[i] = url_option(url, names[i]);
    override(&ret->options, ret->from_url);
    char *verify = url_option(url, "tls_verify"), *version = url_option(url, "tls_min_version");
    if (verify != NULL)
        ret->options.flags &= ~HF_TLS_INSECURE;
    if (verify != NULL && strcmp(verify, "none") == 0)
        ret->options.flags |= HF_TLS_INSECURE;
    if (version != NULL)
        ret->options.tls_min_version = strcmp(version, "1.3") == 0 ? HF_TLS_1_3 : HF_TLS_1_2;
    free(verify);
    free(version);
}

void tls_options_clear(struct tls_options *options) {
    for (size_t i = 0; i < sizeof options->from_url / sizeof *options->from_url; i++)
        free(options->from_url[i]);
}

static bool load_trust(SSL_CTX *context, const hf_options *options) {
    if (options->tls_ca_file == NULL && options->tls_ca_dir == NULL)
        return SSL_CTX_set_default_verify_paths(context) == 1;
    return SSL_CTX_load_verify_locations(context, options->tls_ca_file, options->tls_ca_dir) == 1;
}

static bool load_certificate(SSL_CTX *context, const hf_options *options) {
    const char *key =
        options->tls_key_file != NULL ? options->tls_key_file : options->tls_cert_file;
    return options->tls_cert_file == NULL ||
           (SSL_CTX_use_certificate_chain_file(context, options->tls_cert_file) == 1 &&
            SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1);
}

static SSL_CTX *context_new(const hf_options *options) {
    int version = options->tls_min_version == HF_TLS_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL)
        return NULL;
    if ((options->flags & HF_TLS_INSECURE) == 0)
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (SSL_CTX_set_min_proto_version(context, version) == 1 && load_trust(context, options) &&
        load_certificate(context, options))
        return context;
    SSL_CTX_free(context);
    return NULL;
}

/* The certificate must be for that host name or address. */
static bool expect_host(SSL *tls, const char *host) {
    char name[TLSEXT_MAXLEN_host_name + 1]; /* OpenSSL needs a writable string */
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host) == 1)
        return true;
    ERR_clear_error(); /* not an address but a name */
    size_t len = strlen(host);
    if (len >= sizeof name)
        return false;
    memcpy(name, host, len + 1);
    return SSL_set1_host(tls, name) == 1 && SSL_set_tlsext_host_name(tls, name) == 1;
}

/* ---- The exchange ---- */

/* After SSL_ERROR_WANT_*: waits until the socket is ready. True: repeat the call. */
static bool is_ready(SSL *tls, int result, int64_t end_ms) {
    int why = SSL_get_error(tls, result);
    struct pollfd one = {.fd = SSL_get_fd(tls),
                         .events = why == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN};
    int64_t left_ms = end_ms - now_ms();
    return (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) && left_ms > 0 &&
           poll(&one, 1, (int)left_ms) == 1;
}

static bool send_word(SSL *tls, const char *word, int64_t end_ms) {
    int result;
    while ((result = SSL_connect(tls)) != 1)
        if (!is_ready(tls, result, end_ms))
            return false;
    while ((result = SSL_write(tls, word, (int)strlen(word))) <= 0)
        if (!is_ready(tls, result, end_ms))
            return false;
    return true;
}

static size_t read_answer(SSL *tls, char *text, size_t size, int64_t end_ms) {
    size_t len = 0;
    while (len + 1 < size) {
        int result = SSL_read(tls, text + len, (int)(size - 1 - len));
        if (result <= 0 && !is_ready(tls, result, end_ms))
            break;
        len += result > 0 ? (size_t)result : 0;
    }
    text[len] = '\0';
    return len;
}

static size_t exchange(int fd, const hf_options *options, const char *host, const char *word,
                       char *text, size_t size, int64_t end_ms) {
    SSL_CTX *context = context_new(options);
    SSL *tls = context != NULL ? SSL_new(context) : NULL;
    size_t len = 0;
    if (tls != NULL && expect_host(tls, host) && SSL_set_fd(tls, fd) == 1 &&
        send_word(tls, word, end_ms))
        len = read_answer(tls, text, size, end_ms);
    SSL_free(tls);
    SSL_CTX_free(context);
    ERR_clear_error();
    return len;
}

/* OpenSSL writes with write(2), so a closed connection would raise SIGPIPE; block and discard
 * it. */
size_t tls_ask_word(int fd, const hf_options *options, const char *host, const char *word,
                    char *text, size_t size, int64_t end_ms) {
    static const struct timespec at_once = {0};
    const char *name = options->tls_server_name != NULL ? options->tls_server_name : host;
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    size_t len = exchange(fd, options, name, word, text, size, end_ms);
    if (sigismember(&pending, SIGPIPE) == 0)
        while (sigtimedwait(&pipe, NULL, &at_once) == SIGPIPE)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return len;
}
