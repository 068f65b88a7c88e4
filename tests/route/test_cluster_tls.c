/*
 * A cluster with TLS: which certificates are accepted, under which name, and the errors for others.
 * Certificates and servers are real: two primaries, which also use TLS between them; from Redis 7.0
 * on.
 */
#include "route/scene.h"

#include "support/server_internal.h"
#include "support/tls.h"

#define SERVERS 2
#define LOCALHOST "127.0.0.1"

static struct authority *ca;
static struct certificate *by_address, *by_name;
static struct server *servers[SERVERS];

/* ---- The cluster ---- */

static void start_server(int i, int *ret_bus) {
    char bus[48];
    *ret_bus = server_pick_port();
    snprintf(bus, sizeof bus, "cluster-port %d", *ret_bus);
    const char *config[] = {"cluster-enabled yes",
                            "cluster-config-file nodes.conf",
                            "cluster-node-timeout 5000",
                            "tls-cluster yes",
                            "tls-auth-clients no",
                            bus,
                            NULL};
    servers[i] = tls_server_start(ca, by_address, &(struct server_options){.config = config});
}

static bool is_whole(void *arg) {
    (void)arg;
    for (int i = 0; i < SERVERS; i++) {
        redisReply *slots = cmd(servers[i], "CLUSTER SLOTS");
        bool both = slots != NULL && slots->type == REDIS_REPLY_ARRAY && slots->elements == SERVERS;
        freeReplyObject(slots);
        redisReply *info = cmd(servers[i], "CLUSTER INFO");
        bool ok = info != NULL && info->type == REDIS_REPLY_STRING &&
                  strstr(info->str, "cluster_state:ok") != NULL;
        freeReplyObject(info);
        if (!both || !ok)
            return false;
    }
    return true;
}

static int start(void **state) {
    int bus[SERVERS];
    (void)state;
    ca = authority_new("holdfast test CA");
    by_address = authority_issue(ca, &(struct certificate_options){.names = "IP:" LOCALHOST});
    by_name = authority_issue(ca, &(struct certificate_options){.names = "DNS:localhost"});
    for (int i = 0; i < SERVERS; i++)
        start_server(i, &bus[i]);
    cmd_ok(servers[0], "CLUSTER ADDSLOTSRANGE 0 8191");
    cmd_ok(servers[1], "CLUSTER ADDSLOTSRANGE 8192 16383");
    cmd_ok(servers[1], "CLUSTER SET-CONFIG-EPOCH 2");
    cmd_ok(servers[0], "CLUSTER MEET " LOCALHOST " %d %d", server_port(servers[1]), bus[1]);
    assert_true(wait_until(is_whole, NULL, HANG_MS));
    return 0;
}

static int stop(void **state) {
    (void)state;
    for (int i = 0; i < SERVERS; i++)
        server_free(servers[i]);
    authority_free(ca);
    return 0;
}

static void show(const struct certificate *certificate) {
    for (int i = 0; i < SERVERS; i++)
        cmd_ok(servers[i], "CONFIG SET tls-cert-file %s tls-key-file %s",
               certificate_file(certificate), certificate_key(certificate));
}

/* ---- Clients ---- */

static hf_options trusting(void) {
    hf_options options = scene_options();
    options.tls_ca_file = authority_file(ca);
    return options;
}

/* Locks at both, and the first error. */
static int use_both(const char *host, const char *query, const hf_options *options) {
    static const char *const names[SERVERS] = {"two", "one"}; /* in this order */
    char url[256];
    hf_client *client;
    snprintf(url, sizeof url, "rediss-cluster://%s:%d%s", host, server_port(servers[0]), query);
    int err = hf_open(url, options, &client);
    if (err != HF_OK)
        return err;
    for (int i = 0; i < SERVERS && err == HF_OK; i++) {
        own_lock *lock = scene_lock(client, HF_PLAIN, names[i]);
        err = hf_lock_try(lock);
        if (err == HF_OK)
            err = hf_lock_release(lock);
    }
    hf_close(client); /* which succeeds, and leaves the words alone */
    return err;
}

static void expect(int found, int err, const char *words) {
    const char *text = hf_last_error()->text;
    if (found != err || (words != NULL && strstr(text, words) == NULL))
        fail_msg("%s, '%s'", hf_error_name(found), text);
}

CASE(names_are_at_both) {
    assert_true(cmd_int(servers[0], "CLUSTER KEYSLOT two") <= 8191);
    assert_true(cmd_int(servers[0], "CLUSTER KEYSLOT one") > 8191);
}

CASE(known_by_their_addresses) {
    hf_options options = trusting();
    show(by_address);
    expect(use_both(LOCALHOST, "", &options), HF_OK, NULL);
}

CASE(strangers_are_refused) {
    hf_options options = scene_options(); /* which trusts those that the system does */
    show(by_address);
    expect(use_both(LOCALHOST, "", &options), HF_ETLS, "certificate");
}

/* The map has addresses, and the certificates have names: the url's is not enough. */
CASE(names_that_the_map_has_not) {
    hf_options options = trusting();
    show(by_name);
    expect(use_both("localhost", "", &options), HF_ETLS, "or set tls_server_name");
    expect(use_both("localhost", "?tls_server_name=localhost", &options), HF_OK, NULL);
    expect(use_both(LOCALHOST, "?tls_server_name=localhost", &options), HF_OK, NULL);
}

static bool says_names(void *arg) {
    (void)arg;
    for (int i = 0; i < SERVERS; i++) {
        redisReply *reply = cmd(servers[i], "CLUSTER SLOTS");
        for (int k = 0; k < SERVERS; k++) {
            const redisReply *host = reply->element[k]->element[2]->element[0];
            if (host->type != REDIS_REPLY_STRING || strcmp(host->str, "localhost") != 0) {
                freeReplyObject(reply);
                return false;
            }
        }
        freeReplyObject(reply);
    }
    return true;
}

CASE(known_by_their_names) {
    hf_options options = trusting();
    show(by_name);
    for (int i = 0; i < SERVERS; i++) {
        cmd_ok(servers[i], "CONFIG SET cluster-announce-hostname localhost");
        cmd_ok(servers[i], "CONFIG SET cluster-preferred-endpoint-type hostname");
    }
    assert_true(wait_until(says_names, NULL, HANG_MS));
    expect(use_both("localhost", "", &options), HF_OK, NULL);
}

int main(void) {
    if (!server_is_7())
        return 77;
    return test_cases_run(start, stop);
}
