/*
 * TLS: which certificates are accepted, which are refused, and with which error.
 *
 * All servers are real, with certificates made for this run. A refusal is HF_ETLS, comes at once (a
 * retry would fail in the same way) and names the reason; by then the client has sent the server no
 * command.
 */
#include "net/scene.h"
#include "support/case.h"
#include "support/front.h"
#include "support/hostile.h"
#include "support/tls.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#define EVERY_NAME "DNS:localhost,DNS:*.example.test,IP:127.0.0.1"

static struct authority *ca, *stranger;
static struct certificate *good, *mine, *theirs;
static struct server *server; /* with `good`, no client certificates wanted */

static int begin(void **state) {
    (void)state;
    ca = authority_new("holdfast test CA");
    stranger = authority_new("somebody else's CA");
    good = authority_issue(ca, &(struct certificate_options){.names = EVERY_NAME});
    mine = authority_issue(ca, &(struct certificate_options){0});
    theirs = authority_issue(stranger, &(struct certificate_options){.names = EVERY_NAME});
    server = tls_server_start(NULL, good, NULL);
    return 0;
}

static int end(void **state) {
    (void)state;
    server_free(server);
    authority_free(ca);
    authority_free(stranger);
    return 0;
}

static hf_options trusting_options(void) {
    hf_options options = scene_options();
    options.tls_ca_file = authority_file(ca);
    return options;
}

static void format_url(char url[256], const struct server *at, const char *host,
                       const char *query) {
    snprintf(url, 256, "rediss://%s:%d%s", host, server_port(at), query);
}

/* Opens, pings, and keeps the details of a failure. */
static int try(const struct server *at, const char *host, const char *query,
               const hf_options *options, hf_error *ret_error) {
    char url[256];
    hf_client *client = NULL;
    format_url(url, at, host, query);
    memset(ret_error, 0, sizeof *ret_error);
    int err = hf_open(url, options, &client);
    if (err == HF_OK)
        err = hf_ping(client);
    if (err != HF_OK)
        *ret_error = *hf_last_error();
    hf_close(client);
    return err;
}

static void assert_accepted(const struct server *at, const char *host, const char *query,
                            const hf_options *options) {
    hf_error error;
    int err = try(at, host, query, options, &error);
    if (err != HF_OK)
        fail_msg("%s: %s", hf_error_name(err), error.text);
}

static void assert_refused(const struct server *at, const char *host, const char *query,
                           const hf_options *options, const char *words) {
    hf_error error;
    int64_t start_ms = now_ms();
    int err = try(at, host, query, options, &error);
    if (err != HF_ETLS || strstr(error.text, words) == NULL)
        fail_msg("%s: %s", hf_error_name(err), error.text);
    assert_int_equal(error.code, HF_ETLS);
    assert_string_not_equal(error.node, "");
    assert_true(now_ms() - start_ms < HANG_MS);
}

static void assert_cannot_open(const hf_options *options, const char *words) {
    hf_client *client = NULL;
    assert_int_equal(hf_open("rediss://localhost", options, &client), HF_EINVAL);
    if (strstr(hf_last_error()->text, words) == NULL)
        fail_msg("%s", hf_last_error()->text);
    assert_null(client);
}

/* A server of its own for one test, with such a certificate. */
static struct server *server_with(const struct certificate_options *options) {
    return tls_server_start(NULL, authority_issue(ca, options), NULL);
}

/* ---- Names ---- */

CASE(right_names) {
    hf_options options = trusting_options();
    assert_accepted(server, "localhost", "", &options);
    assert_accepted(server, "LOCALHOST", "", &options);
    assert_accepted(server, "127.0.0.1", "", &options);
    assert_accepted(server, "127.0.0.1", "?tls_server_name=db.example.test", &options);
}

CASE(wrong_name) {
    hf_options options = trusting_options();
    assert_refused(server, "localhost", "?tls_server_name=other.test", &options, "mismatch");
    assert_refused(server, "localhost", "?tls_server_name=a.b.example.test", &options, "mismatch");
    assert_refused(server, "127.0.0.1", "?tls_server_name=127.0.0.2", &options, "mismatch");
    own_server *other = server_with(&(struct certificate_options){.names = "DNS:other.test"});
    assert_refused(other, "localhost", "", &options, "rejected for 'localhost'");
}

/* An address has to be in the certificate as an address, a name as a name. */
CASE(address_is_no_name) {
    hf_options options = trusting_options();
    struct server *name = server_with(&(struct certificate_options){.names = "DNS:127.0.0.1"});
    assert_refused(name, "127.0.0.1", "", &options, "IP address mismatch");
    server_free(name);
    own_server *address = server_with(&(struct certificate_options){.names = "IP:127.0.0.1"});
    assert_accepted(address, "127.0.0.1", "", &options);
    assert_refused(address, "localhost", "", &options, "ostname mismatch");
}

/* OpenSSL would take no name for any, and one that begins with a dot for whatever ends like it. */
CASE(names_that_are_none) {
    char long_name[300];
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    const char *const names[] = {"", ".", ".example.test", ".test", "%eth0:", long_name};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        hf_options options = trusting_options();
        options.tls_server_name = names[i];
        assert_cannot_open(&options, "name");
    }
}

/* A server of many names has to know which one is wanted (SNI). An address is no name, and is not sent. */
CASE(the_name_is_asked_for) {
    static const struct {
        const char *host, *query, *asked_for;
    } rows[] = {{"localhost", "", "localhost"},
                {"127.0.0.1", "", ""},
                {"127.0.0.1", "?tls_server_name=db.example.test", "db.example.test"},
                {"localhost", "?tls_server_name=127.0.0.1", ""}};
    static const bool old[] = {false, true};
    hf_options options = trusting_options();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] * 2; i++) {
        char url[256], name[256];
        struct front *front = front_start(good, server_socket(server), old[i % 2]);
        snprintf(url, sizeof url, "rediss://%s:%d%s", rows[i / 2].host, front_port(front),
                 rows[i / 2].query);
        hf_client *client = scene_open(url, &options);
        assert_int_equal(hf_ping(client), HF_OK);
        front_asked_for(front, name);
        assert_string_equal(name, rows[i / 2].asked_for);
        hf_close(client);
        front_free(front);
    }
}

/* ---- Chains and times ---- */

CASE(untrusted_authority) {
    hf_options options = scene_options();
    options.tls_ca_file = authority_file(stranger);
    assert_refused(server, "localhost", "", &options, "rejected for 'localhost'");
    options.tls_ca_file = NULL; /* the system's CAs do not know it either */
    assert_refused(server, "localhost", "", &options, "was rejected");
}

CASE(authorities_in_a_directory) {
    hf_options options = scene_options();
    options.tls_ca_dir = authority_dir(ca);
    assert_accepted(server, "localhost", "", &options);
    options.tls_ca_dir = authority_dir(stranger);
    assert_refused(server, "localhost", "", &options, "was rejected");
    options.tls_ca_file = authority_file(ca); /* both count */
    assert_accepted(server, "localhost", "", &options);
}

/* Those of the system count if nothing else is said, and only then. (OpenSSL finds them by this variable, too.) */
CASE(authorities_of_the_system) {
    hf_options options = scene_options();
    assert_int_equal(setenv("SSL_CERT_FILE", authority_file(ca), 1), 0);
    assert_accepted(server, "localhost", "", &options);
    options.tls_ca_file = authority_file(stranger);
    assert_refused(server, "localhost", "", &options, "was rejected");
    options.tls_ca_file = NULL;
    options.tls_ca_dir = authority_dir(stranger);
    assert_refused(server, "localhost", "", &options, "was rejected");
    assert_int_equal(unsetenv("SSL_CERT_FILE"), 0);
}

/* Options of the program do not add CAs to those that the url names. */
CASE(authorities_of_the_url) {
    char query[256];
    hf_options options = scene_options();
    options.tls_ca_dir = authority_dir(ca);
    snprintf(query, sizeof query, "?tls_ca_file=%s", authority_file(stranger));
    assert_refused(server, "localhost", query, &options, "was rejected");
    options.tls_ca_dir = NULL;
    options.tls_ca_file = authority_file(ca);
    snprintf(query, sizeof query, "?tls_ca_dir=%s", authority_dir(stranger));
    assert_refused(server, "localhost", query, &options, "was rejected");
}

CASE(expired_certificate) {
    hf_options options = trusting_options();
    struct server *old = server_with(
        &(struct certificate_options){.names = EVERY_NAME, .since_s = -7200, .until_s = -3600});
    assert_refused(old, "localhost", "", &options, "expired");
    server_free(old);
    own_server *early = server_with(
        &(struct certificate_options){.names = EVERY_NAME, .since_s = 3600, .until_s = 7200});
    assert_refused(early, "localhost", "", &options, "not yet valid");
}

/* Nothing but a certificate that is trusted gets to see the password. */
CASE(refused_server_learns_nothing) {
    OWN(scene_log_end) struct scene_log log;
    char url[256];
    hf_options options = scene_options();
    hf_client *client = NULL;
    options.tls_ca_file = authority_file(stranger);
    options.password = "open-sesame";
    scene_log_start(&log, &options);
    long long before = server_commands(server);
    format_url(url, server, "localhost", "");
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    assert_int_equal(hf_ping(client), HF_ETLS);
    assert_int_equal(scene_ping_async(client), HF_ETLS);
    hf_close(client);
    assert_int_equal(server_commands(server), before);
    assert_true(scene_log_contains(&log, "was rejected"));
    assert_false(scene_log_contains(&log, "sesame"));
}

/* ---- The opt-out ---- */

CASE(without_verification) {
    struct scene_log log;
    hf_options options = scene_options();
    options.tls_ca_file = authority_file(stranger);
    scene_log_start(&log, &options);
    assert_accepted(server, "localhost", "?tls_verify=none&tls_server_name=other.test", &options);
    assert_true(scene_log_contains(&log, "without verification"));
    scene_log_end(&log);

    options = scene_options();
    options.flags = HF_TLS_INSECURE;
    assert_accepted(server, "localhost", "", &options);
    assert_refused(server, "localhost", "?tls_verify=full", &options, "was rejected");
}

/* ---- Certificates of clients ---- */

CASE(client_certificate_required) {
    static const char *const versions[] = {"tls-protocols TLSv1.2", "tls-protocols TLSv1.3"};
    for (size_t i = 0; i < 2; i++) {
        const char *config[] = {versions[i], NULL};
        struct server *strict =
            tls_server_start(ca, good, &(struct server_options){.config = config});
        hf_options options = trusting_options();
        assert_refused(strict, "localhost", "", &options, "the server refused");

        options.tls_cert_file = certificate_file(theirs);
        options.tls_key_file = certificate_key(theirs);
        assert_refused(strict, "localhost", "", &options, "the server refused");

        options.tls_cert_file = certificate_file(mine);
        options.tls_key_file = certificate_key(mine);
        assert_accepted(strict, "localhost", "", &options);

        options.tls_cert_file = certificate_both(mine);
        options.tls_key_file = NULL;
        assert_accepted(strict, "localhost", "", &options);

        /* The key in the options is that of the certificate in the options. */
        char query[256];
        options.tls_cert_file = certificate_file(theirs);
        options.tls_key_file = certificate_key(theirs);
        snprintf(query, sizeof query, "?tls_cert_file=%s", certificate_both(mine));
        assert_accepted(strict, "localhost", query, &options);
        server_free(strict);
    }
}

/* ---- Versions ---- */

CASE(lowest_version) {
    hf_options options = trusting_options();
    const char *old_config[] = {"tls-protocols TLSv1.2", NULL};
    struct server *old =
        tls_server_start(NULL, good, &(struct server_options){.config = old_config});
    assert_accepted(old, "localhost", "", &options);
    assert_accepted(old, "localhost", "?tls_min_version=1.2", &options);
    options.tls_min_version = HF_TLS_1_3;
    assert_refused(old, "localhost", "", &options, "TLS");
    assert_accepted(old, "localhost", "?tls_min_version=1.2", &options); /* the url wins */
    assert_accepted(server, "localhost", "", &options);
    server_free(old);
}

/* ---- The other side of the mistake ---- */

/* A server without TLS takes our greeting for the beginning of a command, and waits for the rest of
 * it. A caller that gives up first, the caller or the connection, the words are the same. */
CASE(server_without_tls) {
    hf_options options = trusting_options();
    /* Longer than the machine may pause: before our greeting is out there is nothing to be said about TLS. */
    options.cmd_timeout_ms = 1000;
    options.connect_timeout_ms = 3000;
    own_server *clear = server_start(&(struct server_options){.tcp = true});
    char url[256];
    format_url(url, clear, "127.0.0.1", "");
    /* one attempt; one that is longer than the whole wait; several attempts */
    static const int64_t waits_ms[] = {0, 200, HF_FOREVER};
    for (size_t i = 0; i < sizeof waits_ms / sizeof waits_ms[0]; i++) {
        own_client *client = NULL;
        assert_int_equal(hf_open(url, &options, &client), HF_OK);
        own_lock *lock = scene_lock(client, "clear");
        int err = hf_lock_acquire_for(lock, waits_ms[i]);
        if (err != HF_EUNREACH ||
            strstr(hf_last_error()->text, "no answer to the TLS handshake") == NULL)
            fail_msg("%zu: %s: %s", i, hf_error_name(err), hf_last_error()->text);
        assert_int_equal(hf_ping(client), HF_EUNREACH);
        assert_non_null(strstr(hf_last_error()->text, "no answer to the TLS handshake"));
    }
}

/* Says one thing to every client, until the listening socket is shut down. */
static void *say_in_clear(void *arg) {
    static const char words[] = "-ERR Protocol error: unbalanced quotes in request\r\n";
    int listener = *(const int *)arg, fd;
    while ((fd = accept(listener, NULL, NULL)) >= 0) {
        char greeting[4096];
        if (recv(fd, greeting, sizeof greeting, 0) > 0) /* so that the end does not overtake it */
            send(fd, words, sizeof words - 1, MSG_NOSIGNAL);
        close(fd);
    }
    return NULL;
}

/* A server that answers without TLS is reported at once. */
CASE(answer_in_clear) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, len), 0);
    assert_int_equal(listen(listener, 8), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    pthread_t thread = started(say_in_clear, &listener);

    char url[256];
    hf_options options = trusting_options();
    hf_client *client = NULL;
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d", ntohs(at.sin_port));
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    int err = hf_ping(client);
    if (err != HF_ETLS || strstr(hf_last_error()->text, "does not seem to speak TLS") == NULL)
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
    hf_close(client);
    shutdown(listener, SHUT_RDWR);
    pthread_join(thread, NULL);
    close(listener);
}

CASE(tls_server_asked_in_clear) {
    char url[256];
    hf_options options = scene_options();
    own_client *client = NULL;
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", server_port(server));
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    int err = hf_ping(client);
    const hf_error *error = hf_last_error();
    if (err != HF_EUNREACH || strstr(error->text, "rediss://") == NULL)
        fail_msg("%s: %s", hf_error_name(err), error->text);
}

/* Not every implementation ends it without a word. */
CASE(tls_alert_in_clear) {
    static const struct hostile_reply alert = {"\x15\x03\x03\x00\x02\x02\x46", 7};
    struct hostile *hostile = hostile_start_script(&alert, 1);
    hf_client *client = scene_open(hostile_url(hostile), NULL);
    assert_int_equal(hf_ping(client), HF_EPROTO);
    assert_non_null(strstr(hf_last_error()->text, "rediss://"));
    hf_close(client);
    hostile_free(hostile);
}

/* ---- Files ---- */

CASE(bad_files) {
    struct certificate *locked =
        authority_issue(ca, &(struct certificate_options){.passphrase = "secret"});
    hf_options options = scene_options();
    options.tls_ca_file = "/nonexistent/ca.pem";
    assert_cannot_open(&options, "/nonexistent/ca.pem: No such file or directory");
    options.tls_ca_file = certificate_key(mine); /* no certificate in it */
    assert_cannot_open(&options, "the CA ");
    options.tls_ca_file = NULL;
    options.tls_ca_dir = "/nonexistent";
    assert_cannot_open(&options, "does not exist");
    options.tls_ca_dir = NULL;

    options.tls_key_file = certificate_key(mine);
    assert_cannot_open(&options, "tls_key_file needs tls_cert_file");
    options.tls_cert_file = certificate_file(mine);
    options.tls_key_file = certificate_key(theirs);
    assert_cannot_open(&options, "the client certificate's key");
    options.tls_key_file = NULL; /* there is no key in the file of the certificate */
    assert_cannot_open(&options, "the client certificate's key");
    options.tls_cert_file = certificate_file(locked);
    options.tls_key_file = certificate_key(locked); /* nobody is asked for the passphrase */
    assert_cannot_open(&options, "the client certificate's key");
    assert_non_null(strstr(hf_last_error()->text, "is encrypted"));

    options = scene_options();
    options.tls_min_version = 11;
    assert_cannot_open(&options, "tls_min_version");
}

/* For a url without TLS they mean nothing: a program may set them always. */
CASE(options_without_tls) {
    hf_options options = scene_options();
    options.tls_ca_file = "/nonexistent/ca.pem";
    own_client *client = scene_open(server_url(server), &options);
    assert_int_equal(hf_ping(client), HF_OK);
}

/* An application may be in the middle of something with OpenSSL: we neither leave errors in its thread's queue nor
 * stumble over what it left there. */
CASE(leaves_no_openssl_errors) {
    hf_options options = trusting_options();
    char url[256];
    own_client *client = NULL;
    format_url(url, server, "localhost", "");
    assert_int_equal(hf_open(url, &options, &client), HF_OK);
    own_lock *lock = scene_lock(client, "openssl");
    for (int i = 0; i < 10; i++) {
        assert_null(SSL_CTX_new(NULL)); /* leaves one */
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    assert_int_equal(scene_stats(client).reconnects, 0);
}

RUN_CASES(begin, end)
