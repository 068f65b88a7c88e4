/*
 * The same over TLS: the library, and beside it what a program would do without it, one connection per thread with
 * OpenSSL on a blocking socket (hiredis 0.14 knows no TLS). Each thread owns its connection; the context is shared.
 *
 * Both verify the server's certificate, which bench/run has made. The comparison is fair in what it sends: the same
 * scripts, formatted once.
 */
#include "bench.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>
#include <unistd.h>

#define COMMAND_MAX 512

void run_holdfast_tls(const struct bench *bench, int n, struct sample *ret) {
    struct bench secure = *bench;
    snprintf(secure.url, sizeof secure.url, "rediss://127.0.0.1:%d?tls_ca_file=%s", bench->tls_port,
             bench->tls_ca);
    run_holdfast(&secure, n, ret);
}

static SSL *connect_tls(const struct bench *bench, SSL_CTX *ctx, int *ret_fd) {
    struct bench secure = *bench;
    secure.path = NULL;
    secure.port = bench->tls_port;
    *ret_fd = connect_to(&secure);
    SSL *ssl = SSL_new(ctx);
    if (ssl == NULL || SSL_set_fd(ssl, *ret_fd) != 1 || SSL_connect(ssl) != 1)
        die("TLS: %s", ERR_reason_error_string(ERR_peek_last_error()));
    return ssl;
}

static void exchange(SSL *ssl, const char *command, size_t len) {
    char reply[256];
    int have = 0, lines = 0;
    if (SSL_write(ssl, command, (int)len) != (int)len)
        die("TLS: cannot write");
    while (lines < BENCH_REPLY_LINES) {
        int got = SSL_read(ssl, reply + have, (int)sizeof reply - have);
        if (got <= 0)
            die("TLS: cannot read");
        for (int i = have; i < have + got; i++)
            lines += reply[i] == '\n';
        have += got;
    }
    if (reply[0] != ':')
        die("unexpected answer: %.*s", have, reply);
}

static void work(struct worker *worker) {
    char name[64], owner[64], acquire[COMMAND_MAX], release[COMMAND_MAX];
    snprintf(name, sizeof name, "bench-%d", worker->index);
    snprintf(owner, sizeof owner, "00000000-0000-4000-8000-000000000000:%d", worker->index);
    size_t acquire_len = format_acquire(acquire, sizeof acquire, name, owner);
    size_t release_len = format_release(release, sizeof release, name, owner);
    int fd;
    SSL *ssl = connect_tls(worker->bench, worker->shared, &fd);
    worker_ready(worker);
    while (worker_goes_on(worker)) {
        exchange(ssl, acquire, acquire_len);
        exchange(ssl, release, release_len);
        worker_count(worker);
    }
    SSL_free(ssl);
    close(fd);
}

void run_openssl(const struct bench *bench, int n, struct sample *ret) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (ctx == NULL || SSL_CTX_load_verify_locations(ctx, bench->tls_ca, NULL) != 1)
        die("TLS: cannot read %s", bench->tls_ca);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    run_workers(bench, n, work, ctx, ret);
    SSL_CTX_free(ctx);
}
