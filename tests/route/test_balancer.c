/*
 * Addresses behind which the primary changes: a load balancer, or a name. It is one address to the
 * client, so no message announces a change. The old primary reveals it by refusing a write, or the
 * new one by its run id. Also wrong servers behind an address: a replica, or a proxy that does not
 * pass all commands. With real servers behind a forwarder.
 */
#include "route/scene.h"
#include "support/proxy.h"

struct balanced {
    struct server *servers[2]; /* the second is a replica of the first, and then the reverse */
    struct proxy *balancer;
    hf_client *client;
};

static bool replicates(void *arg) {
    struct balanced *balanced = arg;
    cmd_ok(balanced->servers[0], "SET replicated 1");
    return cmd_int(balanced->servers[0], "WAIT 1 1000") == 1;
}

static void begin(struct balanced *balanced) {
    const struct server_options options = {.tcp = true};
    char port[16];
    hf_options client = scene_options();
    for (int i = 0; i < 2; i++)
        balanced->servers[i] = server_start(&options);
    snprintf(port, sizeof port, "%d", server_port(balanced->servers[0]));
    cmd_ok(balanced->servers[1], "CONFIG SET repl-diskless-sync-delay 0");
    cmd_ok(balanced->servers[0], "CONFIG SET repl-diskless-sync-delay 0");
    cmd_ok(balanced->servers[1], "REPLICAOF 127.0.0.1 %s", port);
    assert_true(wait_until(replicates, balanced, HANG_MS));
    balanced->balancer = proxy_start(server_socket(balanced->servers[0]));
    assert_int_equal(hf_open(proxy_tcp_url(balanced->balancer), &client, &balanced->client), HF_OK);
}

static void end(struct balanced *balanced) {
    hf_close(balanced->client);
    proxy_free(balanced->balancer);
    for (int i = 0; i < 2; i++)
        server_free(balanced->servers[i]);
}

/* The replica becomes the primary, and the primary its replica, without having closed a connection. */
static void change(struct balanced *balanced) {
    char port[16];
    assert_true(wait_until(replicates, balanced, HANG_MS));
    cmd_ok(balanced->servers[1], "REPLICAOF NO ONE");
    snprintf(port, sizeof port, "%d", server_port(balanced->servers[1]));
    cmd_ok(balanced->servers[0], "REPLICAOF 127.0.0.1 %s", port);
    proxy_lead_to(balanced->balancer, server_socket(balanced->servers[1]));
}

/* ---- The primary changes ---- */

/* A call that is refused goes to the new primary; then what is held is verified there, with leases or without. */
CASE_IN(a_refusal_leads_to_the_new_primary, struct balanced, balanced, begin, end) {
    struct scene_events lost = {0}, none = {0};
    own_lock *kept = scene_lock(balanced->client, HF_PLAIN, "kept");
    own_lock *gone = scene_lock(balanced->client, HF_PLAIN, "gone");
    own_lock *next = scene_lock(balanced->client, HF_PLAIN, "next");
    assert_int_equal(hf_lock_on_lost(kept, scene_on_event, &none), HF_OK);
    assert_int_equal(hf_lock_on_lost(gone, scene_on_event, &lost), HF_OK);
    scene_acquire(kept, HF_WATCHDOG, NULL);
    scene_acquire(gone, LONG_MS, NULL);
    change(balanced);
    cmd_ok(balanced->servers[1], "DEL gone");
    assert_int_equal(hf_lock_try(next), HF_OK);
    assert_true(key_exists(balanced->servers[1], "next"));
    assert_true(scene_wait_losses(&lost, 1));
    /* the old primary may have reported first that replication replaces its data */
    if (strstr(lost.reason, "it is gone from the server") == NULL)
        assert_string_equal(lost.reason, "the primary changed, and the new one does not have it");
    assert_int_equal(hf_lock_release(gone), HF_ELOST);
    assert_int_equal(hf_lock_release(kept), HF_OK);
    assert_int_equal(hf_lock_release(next), HF_OK);
    assert_false(key_exists(balanced->servers[1], "kept"));
    assert_int_equal(atomic_load(&none.losses), 0);
}

/* A release is a write, too; and a waiter is notified of it, at whichever server it waited. */
CASE_IN(a_release_reaches_the_waiter, struct balanced, balanced, begin, end) {
    struct scene_waiter waiter;
    hf_options options = scene_options();
    own_client *rival = made(hf_open, proxy_tcp_url(balanced->balancer), &options);
    own_lock *lock = scene_lock(balanced->client, HF_PLAIN, "waited");
    own_lock *other = scene_lock(rival, HF_PLAIN, "waited");
    scene_acquire(lock, HF_WATCHDOG, NULL);
    scene_wait_for(&waiter, other);
    assert_true(proxy_wait_seen(balanced->balancer, "\r\nSUBSCRIBE\r\n", 1, HANG_MS));
    change(balanced);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_true(key_exists(balanced->servers[1], "waited"));
    assert_int_equal(hf_lock_release_as(other, waiter.owner), HF_OK);
}

/* The balancer has cut the connections, so nobody refuses anything; but it is another server, and that is enough. */
CASE_IN(another_server_is_noticed, struct balanced, balanced, begin, end) {
    struct scene_events lost = {0}, none = {0};
    own_lock *kept = scene_lock(balanced->client, HF_PLAIN, "kept");
    own_lock *gone = scene_lock(balanced->client, HF_PLAIN, "gone");
    assert_int_equal(hf_lock_on_lost(kept, scene_on_event, &none), HF_OK);
    assert_int_equal(hf_lock_on_lost(gone, scene_on_event, &lost), HF_OK);
    scene_acquire(kept, LONG_MS, NULL);
    scene_acquire(gone, LONG_MS, NULL);
    assert_true(
        proxy_wait_seen(balanced->balancer, "\r\nSUBSCRIBE\r\n", 1, HANG_MS)); /* old enough */
    change(balanced);
    cmd_ok(balanced->servers[1], "DEL gone");
    proxy_cut_all(balanced->balancer);
    assert_true(scene_wait_losses(&lost, 1));
    assert_int_equal(hf_lock_release(gone), HF_ELOST);
    assert_int_equal(hf_lock_release(kept), HF_OK);
    assert_int_equal(atomic_load(&none.losses), 0);
}

/* ---- What is there by mistake ---- */

#define GIVE_UP_MS 5000

static void expect_words(int err, int expected, const char *words) {
    const char *text = hf_last_error()->text;
    if (err != expected || strstr(text, words) == NULL)
        fail_msg("%s, '%s'", hf_error_name(err), text);
}

/* Nobody waits for ever; and when it becomes the primary after all, it is used. */
CASE_IN(a_replicas_address_is_reported, struct balanced, balanced, begin, end) {
    hf_options options = scene_options();
    options.cmd_timeout_ms = 3000;
    options.connect_timeout_ms = GIVE_UP_MS;
    own_client *client = made(hf_open, server_tcp_url(balanced->servers[1]), &options);
    own_lock *lock = scene_lock(client, HF_PLAIN, "replica");
    assert_int_equal(hf_ping(client), HF_OK); /* queries may go to a replica */
    int64_t start_ms = now_ms();
    expect_words(hf_lock_acquire(lock), HF_EUNAVAILABLE, "this is a replica, not the primary");
    assert_true(now_ms() - start_ms >= GIVE_UP_MS);
    expect_words(hf_lock_try(lock), HF_EUNAVAILABLE, "this is a replica, not the primary");
    cmd_ok(balanced->servers[1], "REPLICAOF NO ONE");
    assert_int_equal(hf_lock_acquire_for(lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

static void answer_instead(struct balanced *balanced, const char *command, const char *answer) {
    proxy_answer_instead(balanced->balancer, command, answer, strlen(answer));
}

CASE_IN(a_proxy_without_the_time_is_reported, struct balanced, balanced, begin, end) {
    static const char *const refusals[] = {
        "-ERR unknown command 'TIME', with args beginning with: \r\n",
        "-ERR unsupported command 'TIME'\r\n", "-invalid request\r\n"};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        answer_instead(balanced, "\r\nTIME\r\n", refusals[i]);
        expect_words(hf_ping(balanced->client), HF_ENOTSUP,
                     "a proxy in between does not support TIME");
    }
    answer_instead(balanced, "\r\nINFO\r\n", refusals[1]); /* twice: memory, and the version */
    answer_instead(balanced, "\r\nINFO\r\n", refusals[1]);
    answer_instead(balanced, "\r\nCLIENT\r\n", refusals[1]);
    assert_int_equal(hf_ping(balanced->client), HF_OK); /* it can be done without these */
}

RUN_CASES(NULL, NULL)
