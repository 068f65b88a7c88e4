/*
 * Certificates for tests, made with libcrypto; see tls.h, the manual.
 *
 * Called by tests, on their main thread. An authority owns its directory and what it has issued;
 * nothing here is shared between threads.
 */
#include "support/tls.h"

#include "support/wait.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct certificate {
    struct certificate *next;
    char *file, *key, *both;
};

struct authority {
    char *dir, *file, *hashed;
    EVP_PKEY *key;
    X509 *cert;
    long serial;
    struct certificate *issued;
};

static void must(bool ok, const char *what) {
    if (ok)
        return;
    ERR_print_errors_fp(stderr);
    support_die("certificates: %s failed", what);
}

static char *path_of(const struct authority *authority, const char *stem, const char *end) {
    return text_of("%s/%s%s", authority->dir, stem, end);
}

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value) {
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    must(extension != NULL && X509_add_ext(cert, extension, -1) == 1, value);
    X509_EXTENSION_free(extension);
}

static X509 *certify(struct authority *authority, EVP_PKEY *key, const char *name,
                     const struct certificate_options *options) {
    X509 *cert = X509_new();
    must(cert != NULL && X509_set_version(cert, 2) == 1, "X509_new");
    int64_t since_s = options->since_s, until_s = options->until_s;
    if (since_s == 0 && until_s == 0) {
        since_s = -3600;
        until_s = 3600;
    }
    ASN1_INTEGER_set(X509_get_serialNumber(cert), ++authority->serial);
    time_t now = time(NULL);
    must(ASN1_TIME_set(X509_getm_notBefore(cert), now + since_s) != NULL &&
             ASN1_TIME_set(X509_getm_notAfter(cert), now + until_s) != NULL,
         "times");
    X509_NAME *subject = X509_get_subject_name(cert);
    must(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
                                    -1, 0) == 1,
         "CN");
    bool own = authority->cert == NULL;
    X509 *issuer = own ? cert : authority->cert;
    X509_set_issuer_name(cert, X509_get_subject_name(issuer));
    X509_set_pubkey(cert, key);
    add_extension(cert, issuer, NID_basic_constraints, own ? "critical,CA:TRUE" : "CA:FALSE");
    add_extension(cert, issuer, NID_subject_key_identifier, "hash");
    if (own)
        add_extension(cert, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
    if (options->names != NULL)
        add_extension(cert, issuer, NID_subject_alt_name, options->names);
    must(X509_sign(cert, authority->key, EVP_sha256()) > 0, "X509_sign");
    return cert;
}

static void write_pem(const char *path, X509 *cert, EVP_PKEY *key, const char *passphrase) {
    FILE *file = fopen(path, "we");
    must(file != NULL, path);
    if (cert != NULL)
        must(PEM_write_X509(file, cert) == 1, path);
    if (key != NULL)
        must(PEM_write_PrivateKey(file, key, passphrase != NULL ? EVP_aes_128_cbc() : NULL,
                                  (const unsigned char *)passphrase,
                                  passphrase != NULL ? (int)strlen(passphrase) : 0, NULL,
                                  NULL) == 1,
             path);
    must(fclose(file) == 0, path);
}

struct authority *authority_new(const char *name) {
    struct authority *authority = calloc(1, sizeof *authority);
    must(authority != NULL, "calloc");
    authority->dir = temp_dir();
    authority->key = EVP_EC_gen("P-256");
    must(authority->key != NULL, "EVP_EC_gen");
    authority->cert = certify(authority, authority->key, name, &(struct certificate_options){0});
    authority->file = path_of(authority, "ca", ".pem");
    write_pem(authority->file, authority->cert, NULL, NULL);

    char link[32]; /* as `openssl rehash` would */
    authority->hashed = temp_dir();
    snprintf(link, sizeof link, "/%08lx.0", X509_subject_name_hash(authority->cert));
    own_text *path = NULL;
    must(asprintf(&path, "%s%s", authority->hashed, link) > 0, "asprintf");
    must(symlink(authority->file, path) == 0, path);
    return authority;
}

void authority_free(struct authority *authority) {
    if (authority == NULL)
        return;
    while (authority->issued != NULL) {
        struct certificate *certificate = authority->issued;
        authority->issued = certificate->next;
        free(certificate->file);
        free(certificate->key);
        free(certificate->both);
        free(certificate);
    }
    X509_free(authority->cert);
    EVP_PKEY_free(authority->key);
    temp_dir_remove(authority->dir);
    temp_dir_remove(authority->hashed);
    free(authority->dir);
    free(authority->hashed);
    free(authority->file);
    free(authority);
}

const char *authority_file(const struct authority *authority) {
    return authority->file;
}

const char *authority_dir(const struct authority *authority) {
    return authority->hashed;
}

struct certificate *authority_issue(struct authority *authority,
                                    const struct certificate_options *options) {
    struct certificate *certificate = calloc(1, sizeof *certificate);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    must(certificate != NULL && key != NULL, "EVP_EC_gen");
    X509 *cert = certify(authority, key, "holdfast test", options);
    char stem[32];
    snprintf(stem, sizeof stem, "%ld", authority->serial);
    certificate->file = path_of(authority, stem, ".crt");
    certificate->key = path_of(authority, stem, ".key");
    certificate->both = path_of(authority, stem, ".pem");
    write_pem(certificate->file, cert, NULL, NULL);
    write_pem(certificate->key, NULL, key, options->passphrase);
    write_pem(certificate->both, cert, key, options->passphrase);
    X509_free(cert);
    EVP_PKEY_free(key);
    certificate->next = authority->issued;
    authority->issued = certificate;
    return certificate;
}

const char *certificate_file(const struct certificate *certificate) {
    return certificate->file;
}

const char *certificate_key(const struct certificate *certificate) {
    return certificate->key;
}

const char *certificate_both(const struct certificate *certificate) {
    return certificate->both;
}

struct server *tls_server_start(const struct authority *trusts,
                                const struct certificate *certificate,
                                const struct server_options *options) {
    enum { OURS = 4, MAX = 16 };
    struct server_options all = options != NULL ? *options : (struct server_options){0};
    const char *lines[OURS + MAX + 1] = {NULL};
    char text[OURS][512];
    snprintf(text[0], sizeof text[0], "tls-cert-file %s", certificate->file);
    snprintf(text[1], sizeof text[1], "tls-key-file %s", certificate->key);
    snprintf(text[2], sizeof text[2], "tls-auth-clients %s", trusts != NULL ? "yes" : "no");
    /* A server wants some CAs in any case. */
    snprintf(text[3], sizeof text[3], "tls-ca-cert-file %s",
             trusts != NULL ? trusts->file : certificate->file);
    for (size_t i = 0; i < OURS; i++)
        lines[i] = text[i];
    for (size_t i = 0; all.config != NULL && all.config[i] != NULL; i++) {
        must(i < MAX, "so many lines of configuration");
        lines[OURS + i] = all.config[i];
    }
    all.config = lines;
    all.tcp = all.tls = true;
    return server_start(&all);
}
