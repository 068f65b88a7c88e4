/* TLS between a connection's buffers and its socket, with OpenSSL over memory BIOs.
 *
 * Nothing here touches a socket. Received bytes are fed in and read out as plain text; output is
 * written as plain text and taken out encrypted. Reading can produce output (a KeyUpdate is
 * answered, a failure sends an alert), so after a read check for pending output.
 *
 * A context belongs to a node and is shared by its connections; it never changes. A filter
 * (struct hfi_tls) belongs to one connection, for one life of its socket, and is used under that
 * connection's mutex only. */
#ifndef HFI_NET_TLS_H
#define HFI_NET_TLS_H

#include "base/log.h"
#include "base/mem.h"

#include <holdfast/holdfast.h>

struct hfi_tls_context;
struct hfi_tls;

struct hfi_tls_options {
    const char *ca_file, *ca_dir;     /* PEM; both NULL: the system's */
    const char *cert_file, *key_file; /* PEM; without a key file the key is in cert_file */
    const char *server_name;          /* NULL: the host of the url */
    int min_version;                  /* HF_TLS_1_2, HF_TLS_1_3 or 0 for the default */
    bool insecure;                    /* accept any certificate */
};

/* Reads the files. Errors: HF_EINVAL names the file and what is wrong with it; HF_ENOMEM. `host`
 * is the url's host name or address. Everything is copied. */
int hfi_tls_context_new(const struct hfi_mem *mem, const struct hfi_tls_options *options,
                        const char *host, struct hfi_tls_context **ret, hf_error *error);
/* A context with the same trust settings that expects another host. Reads no files. Errors:
 * HF_EINVAL this is no host; HF_ENOMEM. */
int hfi_tls_context_like(const struct hfi_tls_context *other, const char *host,
                         struct hfi_tls_context **ret, hf_error *error);
void hfi_tls_context_free(struct hfi_tls_context *context); /* NULL is fine */

struct hfi_tls *hfi_tls_new(const struct hfi_tls_context *context); /* NULL: out of memory */
void hfi_tls_free(struct hfi_tls *tls); /* NULL is fine. Sends nothing */

/* Bytes from the socket. False: out of memory. */
bool hfi_tls_feed(struct hfi_tls *tls, const char *bytes, size_t len);

/* Continues the handshake. HF_OK: *ret_done tells whether it is complete; if not, feed more.
 * HF_ETLS: it failed, and would fail again. HF_EUNREACH: it failed for a reason that may be
 * temporary. */
int hfi_tls_handshake(struct hfi_tls *tls, bool *ret_done, hf_error *error);

/* Decrypts. HF_OK with *ret_len 0: feed more. Otherwise no more will come, and `error` says why.
 * HF_ETLS only while `joining`: then it can still be the server's verdict on our certificate. */
int hfi_tls_read(struct hfi_tls *tls, bool joining, char *bytes, size_t size, size_t *ret_len,
                 hf_error *error);

/* Unix time at which the first certificate in the server's chain expires; 0: there are none. */
int64_t hfi_tls_until_s(const struct hfi_tls *tls);

/* Might there be more to read without feeding? False is certain, true is not. */
bool hfi_tls_has_more(const struct hfi_tls *tls);

/* Encrypts. False: the connection cannot go on. */
bool hfi_tls_write(struct hfi_tls *tls, const char *bytes, size_t len);

/* Encrypted bytes to be sent: how many there are, and how to take them. */
size_t hfi_tls_pending(struct hfi_tls *tls);
size_t hfi_tls_take(struct hfi_tls *tls, char *bytes, size_t size);

#endif
