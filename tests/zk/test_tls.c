/*
 * TLS between us and a ZooKeeper server: zks://.
 */
#include "support/case.h"
#include "support/server_internal.h"
#include "support/tls.h"
#include "support/tool.h"
#include "zk/scene.h"

static struct {
    struct authority *ca, *other_ca;
    struct zk *zk;
    char *url;   /* zks:// */
    char *plain; /* the same port, in clear */
} world;

/* Its clients in clear, for the helpers of zk.h, have a port of their own. */
static int start(void **state) {
    (void)state;
    int port = server_pick_port();
    world.ca = authority_new("ca");
    world.other_ca = authority_new("other");
    const struct certificate *certificate =
        authority_issue(world.ca, &(struct certificate_options){.names = "IP:127.0.0.1"});
    char *lines[] = {
        text_of("serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"),
        text_of("secureClientPort=%d", port),
        text_of("secureClientPortAddress=127.0.0.1"),
        text_of("ssl.keyStore.type=PEM"),
        text_of("ssl.keyStore.location=%s", certificate_both(certificate)),
        text_of("ssl.trustStore.type=PEM"),
        text_of("ssl.trustStore.location=%s", authority_file(world.ca)),
        text_of("ssl.clientAuth=none"),
        NULL};
    const struct zk_options options = {.config = (const char *const *)lines};
    world.zk = zk_start(&options);
    world.url = text_of("zks://127.0.0.1:%d", port);
    world.plain = text_of("zk://127.0.0.1:%d", port);
    for (size_t i = 0; lines[i] != NULL; i++)
        free(lines[i]);
    return 0;
}

static int stop(void **state) {
    (void)state;
    zk_free(world.zk);
    authority_free(world.ca);
    authority_free(world.other_ca);
    free(world.url);
    free(world.plain);
    return 0;
}

static hf_client *client_of(const char *url, const struct authority *trusted) {
    hf_options options = HF_OPTIONS_INIT;
    hf_client *client = NULL;
    options.watchdog_ms = SURVIVES_MS;
    if (trusted != NULL) { /* else there is no answer to wait for */
        options.cmd_timeout_ms = 20000;
        options.connect_timeout_ms = HANG_MS;
    }
    options.tls_ca_file = trusted != NULL ? authority_file(trusted) : NULL;
    assert_hf(HF_OK, hf_open(url, &options, &client));
    return client;
}

CASE(a_lock_over_tls) {
    hf_client *client = client_of(world.url, world.ca),
              *rival = scene_client(zk_url(world.zk), SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "secret"),
            *wanted = scene_lock(rival, HF_PLAIN, "secret");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    hf_op *op = scene_acquire_start(wanted);
    assert_hf(HF_OK, hf_lock_release(lock));
    hf_owner owner = scene_acquired(op);
    assert_hf(HF_EBUSY, hf_lock_try(lock));
    assert_hf(HF_OK, hf_lock_release_as(wanted, owner));
    hf_lock_free(lock);
    hf_lock_free(wanted);
    hf_close(client);
    hf_close(rival);
}

/* A user and password, which only TLS keeps secret: what she makes is hers. */
CASE(a_user_over_tls) {
    own_text *url = text_of("zks://ann:secret@%s", world.url + strlen("zks://"));
    hf_client *ann = client_of(url, world.ca), *anybody = client_of(world.url, world.ca);
    hf_lock *hers = scene_lock(ann, HF_PLAIN, "hers"),
            *not_theirs = scene_lock(anybody, HF_PLAIN, "hers");
    assert_hf(HF_OK, hf_lock_acquire(hers));
    assert_hf(HF_EPERM, hf_lock_acquire(not_theirs));
    assert_hf(HF_OK, hf_lock_release(hers));
    hf_lock_free(hers);
    hf_lock_free(not_theirs);
    hf_close(ann);
    hf_close(anybody);
}

CASE(a_stranger_is_not_believed) {
    own_client *client = client_of(world.url, world.other_ca);
    assert_hf(HF_ETLS, hf_ping(client));
}

CASE(in_clear_there_is_no_answer) {
    own_client *client = client_of(world.plain, NULL);
    int err = hf_ping(client);
    assert_true(err == HF_EUNREACH || err == HF_EPROTO);
    assert_non_null(strstr(hf_last_error()->text, "zks://"));
}

CASE(options_of_tls_need_tls) {
    hf_client *client = NULL;
    assert_hf(HF_EINVAL, hf_open("zk://127.0.0.1?tls_verify=none", NULL, &client));
    assert_non_null(strstr(hf_last_error()->text, "zks://"));
}

/* Words are answered over TLS, too, by whom the library trusts. */
CASE(the_doctor_asks_over_tls) {
    static const char checks[] = "doctor --skip latency --skip waking --skip deadlocks";
    char *trusting = text_of("--cacert '%s' %s", authority_file(world.ca), checks),
         *doubting = text_of("--cacert '%s' -t 2s %s 2>&1", authority_file(world.other_ca), checks),
         *careless = text_of("--insecure %s 2>/dev/null", checks);
    tool_use(world.url);
    assert_true(tool_says(trusting, "ok       version      ZooKeeper 3."));
    assert_true(tool_says(trusting, "ok       ensemble     one server"));
    assert_true(tool_says(careless, "ok       version      ZooKeeper 3."));
    char *said = tool_output(doubting, NULL);
    assert_null(strstr(said, "ZooKeeper 3."));
    free(said);

    /* What the url says of whom to trust is for both. */
    char *whole = text_of("%s?tls_ca_file=%%2F%s", world.url, authority_file(world.ca) + 1),
         *none = text_of("%s?watchdog_ms=20000&tls_verify=none", world.url);
    tool_use(whole);
    assert_true(tool_says(checks, "ok       version      ZooKeeper 3."));
    tool_use(none);
    assert_true(tool_says(checks, "ok       version      ZooKeeper 3."));
    free(whole);
    free(none);

    /* The same server by a name that its certificate does not have. */
    char *both = text_of("%s,localhost:%s", world.url, strrchr(world.url, ':') + 1);
    tool_use(both);
    assert_true(tool_says(trusting, "ok       version      ZooKeeper 3."));
    assert_true(tool_says(trusting, "warning  ensemble     localhost:"));
    free(both);
    free(trusting);
    free(doubting);
    free(careless);
}

int main(void) {
    zk_need();
    return test_cases_run(start, stop);
}
