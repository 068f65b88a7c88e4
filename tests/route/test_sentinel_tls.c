/*
 * Sentinels with TLS: which certificates are accepted, under which name, and the errors for others.
 * Certificates and servers are real; so is one sentinel. The others are scripted, behind a TLS
 * proxy of the test.
 */
#include "route/scripted.h"

#include "route/scene.h"
#include "support/front.h"
#include "support/server_internal.h"
#include "support/supervisor.h"
#include "support/tls.h"

#include <signal.h>

#define LOCALHOST "127.0.0.1"

static struct authority *ca;
static struct certificate *by_address, *by_name;
static struct server *server, *named; /* with the one and with the other */
static struct scripted *sentinel;
static struct front *addressed_front, *named_front; /* of the sentinel, the same */

static int start(void **state) {
    (void)state;
    ca = authority_new("holdfast test CA");
    by_address = authority_issue(ca, &(struct certificate_options){.names = "IP:" LOCALHOST});
    by_name = authority_issue(ca, &(struct certificate_options){.names = "DNS:node.example.test"});
    server = tls_server_start(NULL, by_address, NULL);
    named = tls_server_start(NULL, by_name, NULL);
    sentinel = scripted_start();
    addressed_front = front_start(by_address, scripted_socket(sentinel), false);
    named_front = front_start(by_name, scripted_socket(sentinel), false);
    return 0;
}

static int stop(void **state) {
    (void)state;
    front_free(addressed_front);
    front_free(named_front);
    scripted_free(sentinel);
    server_free(server);
    server_free(named);
    authority_free(ca);
    return 0;
}

static hf_options trusting(void) {
    hf_options options = scene_options();
    options.tls_ca_file = authority_file(ca);
    return options;
}

static int ping(const char *scheme, int port, const char *query, const hf_options *options) {
    char url[256];
    hf_client *client;
    snprintf(url, sizeof url, "%s://" LOCALHOST ":%d/" SCRIPTED_NAME "%s", scheme, port, query);
    int err = hf_open(url, options, &client);
    if (err != HF_OK)
        return err;
    err = hf_ping(client);
    hf_close(client); /* which succeeds, and leaves the words alone */
    return err;
}

static void expect(int found, int err, const char *words) {
    const char *text = hf_last_error()->text;
    if (found != err || (words != NULL && strstr(text, words) == NULL))
        fail_msg("%s, '%s'", hf_error_name(found), text);
}

/* Both sides, or one of them. */
CASE(on_either_side) {
    const struct server_options tcp = {.tcp = true};
    own_server *clear = server_start(&tcp);
    hf_options options = trusting();
    int with = front_port(addressed_front), without = scripted_port(sentinel);
    scripted_name(sentinel, LOCALHOST, server_port(server), 1);
    expect(ping("rediss-sentinel", with, "", &options), HF_OK, NULL);
    expect(ping("redis-sentinels", with, "", &options), HF_OK, NULL);
    expect(ping("rediss-sentinel", without, "?sentinel_tls=off", &options), HF_OK, NULL);
    scripted_name(sentinel, LOCALHOST, server_port(clear), 1);
    expect(ping("redis-sentinel", with, "?sentinel_tls=on", &options), HF_OK, NULL);
    options.sentinel_tls = HF_SENTINEL_TLS_ON;
    expect(ping("redis-sentinel", with, "", &options), HF_OK, NULL);
}

CASE(strangers_are_refused) {
    hf_options options = scene_options(); /* which trusts those that the system does */
    scripted_name(sentinel, LOCALHOST, server_port(server), 1);
    size_t before = scripted_asked(sentinel);
    expect(ping("rediss-sentinel", front_port(addressed_front), "", &options), HF_ETLS,
           "certificate");
    assert_int_equal(scripted_asked(sentinel), before);
}

/* Sentinels and servers are known by addresses, and certificates have names: each side has an option for that. */
CASE(names_of_either_side) {
    hf_options options = trusting();
    char asked[256];
    scripted_name(sentinel, LOCALHOST, server_port(server), 1);
    expect(ping("rediss-sentinel", front_port(named_front), "", &options), HF_ETLS, "mismatch");
    expect(ping("rediss-sentinel", front_port(named_front),
                "?sentinel_tls_server_name=node.example.test", &options),
           HF_OK, NULL);
    front_asked_for(named_front, asked);
    assert_string_equal(asked, "node.example.test");
    options.sentinel_tls_server_name = "node.example.test";
    expect(ping("rediss-sentinel", front_port(named_front), "", &options), HF_OK, NULL);
    options.sentinel_tls_server_name = NULL;

    scripted_name(sentinel, LOCALHOST, server_port(named), 1);
    expect(ping("rediss-sentinel", front_port(addressed_front), "", &options), HF_ETLS,
           "or set tls_server_name");
    expect(ping("rediss-sentinel", front_port(addressed_front),
                "?tls_server_name=node.example.test", &options),
           HF_OK, NULL);
}

/* ---- A real one ---- */

struct real {
    char *dir, config[256], log[256];
    int port;
    pid_t pid;
};

static void write_config(struct real *real) {
    FILE *file = fopen(real->config, "we");
    assert_non_null(file);
    fprintf(file,
            "bind " LOCALHOST
            "\nport 0\ntls-port %d\ndir %s\ntls-replication yes\ntls-auth-clients no\n"
            "tls-cert-file %s\ntls-key-file %s\ntls-ca-cert-file %s\n"
            "sentinel monitor " SCRIPTED_NAME " " LOCALHOST " %d 1\n",
            real->port, real->dir, certificate_file(by_address), certificate_key(by_address),
            authority_file(ca), server_port(server));
    assert_int_equal(fclose(file), 0);
}

static bool is_found(void *arg) {
    const struct real *real = arg;
    hf_options options = trusting();
    return ping("rediss-sentinel", real->port, "", &options) == HF_OK;
}

static bool is_found_or_ended(void *arg) {
    return is_found(arg) || !supervisor_running(((const struct real *)arg)->pid);
}

/* At a port that nobody else has taken meanwhile. */
static void start_real(struct real *real) {
    const char *argv[] = {server_program(), real->config, "--sentinel", NULL};
    do {
        real->port = server_pick_port();
        write_config(real);
        real->pid = supervisor_spawn(real->log, argv);
        assert_true(wait_until(is_found_or_ended, real, HANG_MS));
    } while (!supervisor_running(real->pid));
}

CASE(a_real_sentinel) {
    struct real real = {.dir = temp_dir()};
    snprintf(real.config, sizeof real.config, "%s/sentinel.conf", real.dir);
    snprintf(real.log, sizeof real.log, "%s/log", real.dir);
    start_real(&real);
    assert_true(is_found(&real));
    supervisor_end(real.pid, SIGKILL, HANG_MS);
    temp_dir_remove(real.dir);
    free(real.dir);
}

RUN_CASES(start, stop)
