/*
 * TLS, with OpenSSL over memory BIOs (see tls.h).
 *
 * connect.c (handshake), receive.c and send.c call this, always under the connection's mutex; the
 * node makes and frees contexts. There is no state besides the two structs.
 *
 * - A certificate is verified, chain and name, unless that was explicitly switched off.
 * - OpenSSL keeps errors in a queue per thread, which may be a thread of the application. The queue
 *   is cleared before every call whose result is checked, and left empty.
 * - OpenSSL must not ask for a passphrase on the terminal.
 * - Renegotiation is refused: it would let a read wait for a write.
 * - Sessions are not resumed, so session tickets are ignored.
 */
#include "net/tls.h"

#include "base/error.h"

#include <arpa/inet.h>
#include <assert.h>
#include <dirent.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct hfi_tls_context {
    const struct hfi_mem *mem;
    SSL_CTX *ctx;
    char *name; /* the expected host name or address */
    bool is_address;
    bool insecure;
};

struct hfi_tls {
    const struct hfi_tls_context *context;
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
};

/* ---- Errors ---- */

/* OpenSSL's text for an error. Clears the queue. */
static const char *text_of(unsigned long code, char *buffer, size_t size) {
    char system[96];
    const char *text = NULL;
    if (code != 0 && ERR_GET_LIB(code) == ERR_LIB_SYS)
        text = hfi_errno_text(ERR_GET_REASON(code), system, sizeof system);
    else if (code != 0)
        text = ERR_reason_error_string(code);
    if (text != NULL)
        snprintf(buffer, size, "%s", text);
    else if (code != 0)
        ERR_error_string_n(code, buffer, size);
    else
        snprintf(buffer, size, "unknown reason");
    ERR_clear_error();
    return buffer;
}

static bool is_memory(unsigned long code) {
    return ERR_GET_REASON(code) == ERR_R_MALLOC_FAILURE;
}

/* The first error says what is wrong with the file; later ones only name OpenSSL's callers. */
static int bad_file(hf_error *error, const char *what, const char *path) {
    char text[128];
    text_of(ERR_peek_error(), text, sizeof text);
    return hfi_fail(error, HF_EINVAL, "TLS: cannot use %s %.80s: %s", what, path, text);
}

/* ---- Contexts ---- */

/* Without this OpenSSL would ask on the terminal. */
static int refuse_passphrase(char *buffer, int size, int writing, void *arg) {
    bool *asked = arg;
    (void)buffer;
    (void)size;
    (void)writing;
    if (asked != NULL)
        *asked = true;
    return -1;
}

/* Has it a certificate under the name by which OpenSSL looks for one, such as 5ad8a5d6.0? */
static bool is_hashed(const char *path) {
    DIR *dir = opendir(path);
    bool hashed = false;
    for (struct dirent *entry; !hashed && dir != NULL && (entry = readdir(dir)) != NULL;)
        hashed = strspn(entry->d_name, "0123456789abcdef") == 8 && entry->d_name[8] == '.';
    if (dir != NULL)
        closedir(dir);
    return hashed;
}

/* The system's CAs: where OpenSSL was built to look, or its variables say. A static program comes to systems that keep
 * them elsewhere; then the first bundle that is there. */
static void trust_the_system(SSL_CTX *ctx) {
    static const char *const bundles[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Arch, Gentoo */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, RHEL */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* the same, newer */
        "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
        "/etc/ssl/cert.pem",                                 /* Alpine */
    };
    SSL_CTX_set_default_verify_paths(ctx);
    if (getenv(X509_get_default_cert_file_env()) != NULL ||
        getenv(X509_get_default_cert_dir_env()) != NULL ||
        access(X509_get_default_cert_file(), R_OK) == 0 || is_hashed(X509_get_default_cert_dir()))
        return;
    for (size_t i = 0; i < sizeof bundles / sizeof *bundles; i++)
        if (SSL_CTX_load_verify_locations(ctx, bundles[i], NULL) == 1)
            return;
}

static int trust(SSL_CTX *ctx, const struct hfi_tls_options *options, hf_error *error) {
    struct stat dir;
    ERR_clear_error();
    if (options->ca_file != NULL && SSL_CTX_load_verify_locations(ctx, options->ca_file, NULL) != 1)
        return bad_file(error, "the CA file", options->ca_file);
    /* OpenSSL opens the directory only when it needs a certificate: too late to report a missing
     * one. */
    if (options->ca_dir != NULL && (stat(options->ca_dir, &dir) != 0 || !S_ISDIR(dir.st_mode)))
        return hfi_fail(error, HF_EINVAL, "TLS: the CA directory does not exist: %.80s",
                        options->ca_dir);
    if (options->ca_dir != NULL && SSL_CTX_load_verify_locations(ctx, NULL, options->ca_dir) != 1)
        return bad_file(error, "the CA directory", options->ca_dir);
    if (options->ca_file == NULL && options->ca_dir == NULL && !options->insecure)
        trust_the_system(ctx);
    ERR_clear_error();
    return HF_OK;
}

static int present_ourselves(SSL_CTX *ctx, const struct hfi_tls_options *options, hf_error *error) {
    if (options->cert_file == NULL && options->key_file == NULL)
        return HF_OK;
    if (options->cert_file == NULL)
        return hfi_fail(error, HF_EINVAL, "TLS: tls_key_file needs tls_cert_file");
    const char *key_file = options->key_file != NULL ? options->key_file : options->cert_file;
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ctx, options->cert_file) != 1)
        return bad_file(error, "the client certificate", options->cert_file);
    bool asked = false;
    SSL_CTX_set_default_passwd_cb_userdata(ctx, &asked);
    bool usable = SSL_CTX_use_PrivateKey_file(ctx, key_file, SSL_FILETYPE_PEM) == 1 &&
                  SSL_CTX_check_private_key(ctx) == 1;
    SSL_CTX_set_default_passwd_cb_userdata(ctx, NULL);
    if (!usable && asked) {
        ERR_clear_error();
        return hfi_fail(error, HF_EINVAL,
                        "TLS: the client certificate's key is encrypted: %.80s; decrypt it first",
                        key_file);
    }
    return usable ? HF_OK : bad_file(error, "the client certificate's key", key_file);
}

static bool is_address(const char *text) {
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, text, bytes) == 1 || inet_pton(AF_INET6, text, bytes) == 1;
}

/* Stores the name we expect. Certificates contain neither the zone of an address nor the dot
 * after a fully qualified name. A leading dot would make OpenSSL accept any name with that
 * ending, an empty name every certificate. */
static int expect(struct hfi_tls_context *context, const char *name, hf_error *error) {
    context->name = hfi_strdup(context->mem, name);
    if (context->name == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    size_t len = strlen(context->name);
    char *zone = strchr(context->name, ':') != NULL ? strchr(context->name, '%') : NULL;
    if (zone != NULL)
        *zone = '\0';
    else if (len > 1 && context->name[len - 1] == '.')
        context->name[len - 1] = '\0';
    context->is_address = is_address(context->name);
    len = strlen(context->name);
    if (len == 0 || len > TLSEXT_MAXLEN_host_name || context->name[0] == '.')
        return hfi_fail(error, HF_EINVAL, "TLS: not a valid server name: '%.80s'", name);
    return HF_OK;
}

static bool set_rules(SSL_CTX *ctx, const struct hfi_tls_options *options) {
    int lowest = options->min_version == HF_TLS_1_3 ? TLS1_3_VERSION : TLS1_2_VERSION;
    if (SSL_CTX_get_min_proto_version(ctx) < lowest && /* the system's policy may be stricter */
        SSL_CTX_set_min_proto_version(ctx, lowest) != 1)
        return false;
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_default_passwd_cb(ctx, refuse_passphrase);
    SSL_CTX_set_verify(ctx, options->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    return true;
}

/* The system's OpenSSL configuration may forbid it. */
static int make_ctx(struct hfi_tls_context *context, const struct hfi_tls_options *options,
                    hf_error *error) {
    char text[128];
    ERR_clear_error();
    context->ctx = SSL_CTX_new(TLS_client_method());
    if (context->ctx != NULL && set_rules(context->ctx, options))
        return HF_OK;
    unsigned long code = ERR_peek_error();
    text_of(code, text, sizeof text);
    return hfi_fail(error, is_memory(code) ? HF_ENOMEM : HF_ESYS,
                    "TLS: cannot initialize OpenSSL: %s", text);
}

int hfi_tls_context_new(const struct hfi_mem *mem, const struct hfi_tls_options *options,
                        const char *host, struct hfi_tls_context **ret, hf_error *error) {
    /* The process may exit while a keeper still runs: OpenSSL must not tear down its state. */
    OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL);
    struct hfi_tls_context *context = hfi_zalloc(mem, sizeof *context);
    if (context == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    context->mem = mem;
    context->insecure = options->insecure;
    int err = expect(context, options->server_name != NULL ? options->server_name : host, error);
    if (err == HF_OK)
        err = make_ctx(context, options, error);
    if (err == HF_OK)
        err = trust(context->ctx, options, error);
    if (err == HF_OK)
        err = present_ourselves(context->ctx, options, error);
    if (err != HF_OK) {
        hfi_tls_context_free(context);
        return err;
    }
    *ret = context;
    return HF_OK;
}

int hfi_tls_context_like(const struct hfi_tls_context *other, const char *host,
                         struct hfi_tls_context **ret, hf_error *error) {
    struct hfi_tls_context *context = hfi_zalloc(other->mem, sizeof *context);
    if (context == NULL)
        return hfi_fail(error, HF_ENOMEM, "out of memory");
    context->mem = other->mem;
    context->insecure = other->insecure;
    SSL_CTX_up_ref(other->ctx);
    context->ctx = other->ctx;
    int err = expect(context, host, error);
    if (err != HF_OK) {
        hfi_tls_context_free(context);
        return err;
    }
    *ret = context;
    return HF_OK;
}

void hfi_tls_context_free(struct hfi_tls_context *context) {
    if (context == NULL)
        return;
    SSL_CTX_free(context->ctx);
    hfi_free(context->mem, context->name);
    hfi_free(context->mem, context);
}

/* ---- Filters ---- */

static bool set_expectations(struct hfi_tls *tls) {
    const struct hfi_tls_context *context = tls->context;
    X509_VERIFY_PARAM *param = SSL_get0_param(tls->ssl);
    if (context->is_address) /* an address is not a server name, so there is no SNI */
        return X509_VERIFY_PARAM_set1_ip_asc(param, context->name) == 1;
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(tls->ssl, context->name) == 1 &&
           SSL_set_tlsext_host_name(tls->ssl, context->name) == 1;
}

struct hfi_tls *hfi_tls_new(const struct hfi_tls_context *context) {
    struct hfi_tls *tls = hfi_zalloc(context->mem, sizeof *tls);
    if (tls == NULL)
        return NULL;
    tls->context = context;
    tls->ssl = SSL_new(context->ctx);
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    if (tls->ssl == NULL || in == NULL || out == NULL) {
        BIO_free(in);
        BIO_free(out);
        hfi_tls_free(tls);
        ERR_clear_error();
        return NULL;
    }
    SSL_set_bio(tls->ssl, in, out);
    tls->in = in;
    tls->out = out;
    SSL_set_connect_state(tls->ssl);
    if (!set_expectations(tls)) {
        ERR_clear_error();
        hfi_tls_free(tls);
        return NULL;
    }
    return tls;
}

void hfi_tls_free(struct hfi_tls *tls) {
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    hfi_free(tls->context->mem, tls);
}

bool hfi_tls_feed(struct hfi_tls *tls, const char *bytes, size_t len) {
    assert(len <= INT_MAX);
    bool whole = BIO_write(tls->in, bytes, (int)len) == (int)len;
    if (!whole)
        ERR_clear_error();
    return whole;
}

/* An alert from the server. Reasons common to all of OpenSSL have still larger numbers. */
static bool is_alert(unsigned long code) {
    int why = ERR_GET_REASON(code);
    return why > SSL_AD_REASON_OFFSET && why <= SSL_AD_REASON_OFFSET + UINT8_MAX;
}

/* An alert whose cause may be temporary. */
static bool is_passing_alert(unsigned long code) {
    int why = ERR_GET_REASON(code);
    return why == SSL_AD_REASON_OFFSET + SSL_AD_INTERNAL_ERROR ||
           why == SSL_AD_REASON_OFFSET + SSL_AD_USER_CANCELLED;
}

static int explain_failure(struct hfi_tls *tls, hf_error *error) {
    char text[128];
    unsigned long code = ERR_peek_last_error();
    long verdict = SSL_get_verify_result(tls->ssl);
    if (verdict != X509_V_OK && !tls->context->insecure) {
        ERR_clear_error();
        return hfi_fail(error, HF_ETLS, "the server's certificate was rejected for '%.80s': %s",
                        tls->context->name, X509_verify_cert_error_string(verdict));
    }
    text_of(code, text, sizeof text);
    if (is_memory(code))
        return hfi_fail(error, HF_ENOMEM, "out of memory for TLS");
    if (ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
        return hfi_fail(error, HF_ETLS, "the server does not seem to speak TLS: %s", text);
    return hfi_fail(error, is_passing_alert(code) ? HF_EUNREACH : HF_ETLS, "TLS: %s%s",
                    is_alert(code) ? "the server refused: " : "", text);
}

/* OpenSSL verifies the certificate it gets. But where the system's configuration allows ciphers
 * without certificates, it accepts none at all. */
static int demand_certificate(struct hfi_tls *tls, hf_error *error) {
    X509 *cert = SSL_get_peer_certificate(tls->ssl);
    X509_free(cert);
    if (!tls->context->insecure && (cert == NULL || SSL_get_verify_result(tls->ssl) != X509_V_OK))
        return hfi_fail(error, HF_ETLS, "the server sent no certificate for '%.80s'",
                        tls->context->name);
    return HF_OK;
}

int hfi_tls_handshake(struct hfi_tls *tls, bool *ret_done, hf_error *error) {
    ERR_clear_error();
    int rc = SSL_do_handshake(tls->ssl);
    if (rc == 1) {
        *ret_done = true;
        return demand_certificate(tls, error);
    }
    int status = SSL_get_error(tls->ssl, rc);
    if (status == SSL_ERROR_WANT_READ || status == SSL_ERROR_WANT_WRITE) {
        *ret_done = false;
        return HF_OK;
    }
    return explain_failure(tls, error);
}

int hfi_tls_read(struct hfi_tls *tls, bool joining, char *bytes, size_t size, size_t *ret_len,
                 hf_error *error) {
    ERR_clear_error();
    *ret_len = 0;
    int rc = SSL_read_ex(tls->ssl, bytes, size, ret_len);
    if (rc == 1)
        return HF_OK;
    *ret_len = 0;
    int status = SSL_get_error(tls->ssl, rc);
    if (status == SSL_ERROR_WANT_READ || status == SSL_ERROR_WANT_WRITE)
        return HF_OK;
    if (status == SSL_ERROR_ZERO_RETURN)
        return hfi_fail(error, HF_EUNREACH, "the server closed the connection");
    char text[128];
    if (joining)
        return explain_failure(tls, error);
    /* After the greeting a broken stream is a lost connection like any other: reconnect. */
    text_of(ERR_peek_last_error(), text, sizeof text);
    return hfi_fail(error, HF_EUNREACH, "the connection was lost: TLS error: %s", text);
}

bool hfi_tls_has_more(const struct hfi_tls *tls) {
    return SSL_pending(tls->ssl) > 0 || BIO_ctrl_pending(tls->in) > 0;
}

bool hfi_tls_write(struct hfi_tls *tls, const char *bytes, size_t len) {
    size_t written;
    ERR_clear_error();
    bool whole = SSL_write_ex(tls->ssl, bytes, len, &written) == 1 && written == len;
    ERR_clear_error();
    return whole;
}

size_t hfi_tls_pending(struct hfi_tls *tls) {
    return BIO_ctrl_pending(tls->out);
}

size_t hfi_tls_take(struct hfi_tls *tls, char *bytes, size_t size) {
    int taken = BIO_read(tls->out, bytes, size > INT_MAX ? INT_MAX : (int)size);
    return taken > 0 ? (size_t)taken : 0;
}

static int64_t end_of(const X509 *cert) {
    struct tm end;
    return ASN1_TIME_to_tm(X509_get0_notAfter(cert), &end) == 1 ? (int64_t)timegm(&end) : 0;
}

int64_t hfi_tls_until_s(const struct hfi_tls *tls) {
    STACK_OF(X509) *chain = SSL_get_peer_cert_chain(tls->ssl);
    int64_t until_s = 0;
    for (int i = 0; i < sk_X509_num(chain); i++) {
        int64_t end_s = end_of(sk_X509_value(chain, i));
        if (until_s == 0 || (end_s != 0 && end_s < until_s))
            until_s = end_s;
    }
    return until_s;
}
