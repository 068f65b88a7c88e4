/*
 * Refusals, and handshakes with another session: the caller's error, no node of its own left in the
 * queue, and a client that continues.
 *
 * The proxy gives the answers, in place of a server that would have to be old, full, without a
 * quorum or another product.
 */
#include "support/case.h"
#include "support/notification_log.h"
#include "zk/scene.h"

/* ---- Refusals -------------------------------------------------------------------------------- */

enum { NO_AUTH = -102, THROTTLED = -127 };

/* The next such request does not reach the server, and is answered with this error. */
static void refuse_next(const char *matcher, int32_t error) {
    unsigned char frame[20] = {[3] = 16};
    for (int i = 0; i < 4; i++)
        frame[16 + i] = (unsigned char)((uint32_t)error >> (24 - 8 * i));
    proxy_answer_instead(scene.proxy, matcher, frame, sizeof frame);
}

static const struct {
    int32_t server;
    int code;
    const char *words; /* NULL: it is overcome */
} refusals[] = {
    {-6, HF_ENOTSUP, "3.5"},
    {-13, HF_EUNAVAILABLE, "NewConfigNoQuorum"},
    {NO_AUTH, HF_EPERM, "NoAuth"},
    {-108, HF_EWRONGTYPE, "NoChildrenForEphemerals"},
    {-114, HF_EPERM, "InvalidACL"},
    {-115, HF_EPERM, "AuthFailed"},
    {-119, HF_EUNAVAILABLE, "NotReadOnly"},
    {-120, HF_EUNAVAILABLE, "EphemeralOnLocalSession"},
    {-124, HF_EPERM, "SASL"},
    {-125, HF_EOOM, "QuotaExceeded"},
    {THROTTLED, HF_EUNAVAILABLE, "ThrottledOp"},
    {-9999, HF_EPROTO, "-9999"},
    {-4, HF_OK, NULL},   /* ConnectionLoss */
    {-7, HF_OK, NULL},   /* OperationTimeout */
    {-112, HF_OK, NULL}, /* SessionExpired: what the handshake says counts */
    {-118, HF_OK, NULL}, /* SessionMoved */
};

CASE_AROUND(acquire_outcome, scene_heal, NULL) {
    scene_warm("refused");
    own_client *client = scene_proxied(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "refused");
    assert_hf(HF_OK, hf_ping(client));
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        refuse_next("create2 /refused/", refusals[i].server);
        assert_hf(refusals[i].code, hf_lock_acquire(lock));
        if (refusals[i].words != NULL)
            assert_non_null(strstr(hf_last_error()->text, refusals[i].words));
        else
            assert_hf(HF_OK, hf_lock_release(lock));
        assert_nodes("refused", 0);
        assert_hf(HF_OK, hf_lock_acquire(lock));
        assert_int_equal(zk_count(scene.eyes, "/refused"), 1);
        assert_hf(HF_OK, hf_lock_release(lock));
    }
    assert_int_equal(scene_stats(client).losses, 0);
}

/* The reply to another request, in place of the next such one: a server that has old requests of
 * the session skips replies when the client connects again. Java's client takes that for the end of
 * the connection, too. */
static void skip_next(const char *matcher) {
    static const unsigned char frame[20] = {[3] = 16, [4] = 0x70, [5] = 1};
    proxy_forge_reply(scene.proxy, matcher, frame, sizeof frame);
}

CASE_AROUND(C395_replies_out_of_order, scene_heal, NULL) {
    scene_warm("order");
    hf_client *client = scene_proxied(SURVIVES_MS);
    hf_lock *lock = scene_lock(client, HF_PLAIN, "order");
    hf_sem *sem = NULL;
    assert_hf(HF_OK, hf_sem_new(client, "order-sem", &sem));
    assert_hf(HF_OK, hf_sem_try_set(sem, 3, 0, NULL));
    skip_next("create2 /order/");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_int_equal(zk_count(scene.eyes, "/order"), 1);
    skip_next("delete /order/");
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_nodes("order", 0);
    skip_next("multi");
    assert_hf(HF_EINDOUBT, hf_sem_acquire(sem, 1));
    assert_int_equal(scene_stats(client).losses, 0);
    hf_sem_free(sem);
    hf_lock_free(lock);
    hf_close(client);
}

/* Without an answer there is no watch: it asks again before it says that it listens. */
CASE_AROUND(a_listener_asks_again, scene_heal, NULL) {
    struct notification_log *notification_log = notification_log_new();
    hf_listener *listener;
    assert_int_equal(zk_make(scene.eyes, "/busy", "", 0), 0);
    hf_client *client = scene_proxied(SURVIVES_MS);
    assert_hf(HF_OK, hf_ping(client));
    refuse_next("getChildren2 /busy", THROTTLED);
    assert_hf(HF_OK, hf_listen(client, "busy", notification_log_add, notification_log, &listener));
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    assert_int_equal(zk_make(scene.eyes, "/busy/child", "", 0), 0);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_CHANGED, 1, HANG_MS));
    hf_listener_free(listener);
    hf_close(client);
    notification_log_free(notification_log);
}

/* Its caller gets the refusal; the node goes all the same, in the background. */
CASE_AROUND(release_outcome, scene_heal, NULL) {
    own_client *client = scene_proxied(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "kept");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    refuse_next("delete /kept/", NO_AUTH);
    assert_hf(HF_EPERM, hf_lock_release(lock));
    assert_nodes("kept", 0);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    refuse_next("delete /kept/", THROTTLED);
    assert_hf(HF_EUNAVAILABLE, hf_lock_release(lock));
    assert_nodes("kept", 0);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
}

CASE_AROUND(query_outcome, scene_heal, NULL) {
    bool flag;
    hf_lock_info *info = NULL;
    scene_warm("asked");
    own_client *client = scene_proxied(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "asked");
    refuse_next("getChildren2 /asked", NO_AUTH);
    assert_hf(HF_EPERM, hf_lock_is_locked(lock, &flag));
    refuse_next("getChildren2 /asked", NO_AUTH);
    assert_hf(HF_EPERM, hf_lock_inspect(lock, &info));
    assert_null(info);
    refuse_next("getChildren2 /asked", NO_AUTH);
    assert_hf(HF_EPERM, hf_lock_break(lock, &flag));
    assert_hf(HF_OK, hf_lock_is_locked(lock, &flag));
    assert_false(flag);
}

static bool has_failed(void *client) {
    return scene_stats(client).renew_failures >= 1;
}

/* A heartbeat that is refused is sent again, and nothing is lost as long as there is time. */
CASE_AROUND(a_heartbeat_that_is_refused, scene_heal, NULL) {
    own_client *client = scene_proxied(ENDURING_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "beats-on");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    refuse_next(
        "multi",
        THROTTLED); /* not before: an acquire on a session that is a while old begins with one */
    assert_true(wait_until(has_failed, client, HANG_MS));
    uint64_t renewals = scene_stats(client).renewals;
    assert_true(WAIT_FOR(scene_stats(client).renewals > renewals, HANG_MS));
    assert_int_equal(scene_stats(client).losses, 0);
    assert_hf(HF_OK, hf_lock_release(lock));
}

/* ---- Handshakes ------------------------------------------------------------------------------ */

/* As a server that has forgotten the session and gives another, without a word (ClickHouse Keeper
 * does), or one that has lost its ensemble and offers to be read. */
static void forge_next_handshake(int64_t session, bool read_only) {
    unsigned char frame[41] = {
        [3] = 37, [10] = ENDURING_MS >> 8, [11] = ENDURING_MS & 0xff, [23] = 16, [40] = read_only};
    for (int i = 0; i < 8; i++)
        frame[12 + i] = (unsigned char)((uint64_t)session >> (56 - 8 * i));
    proxy_forge_reply(scene.proxy, "connect", frame, sizeof frame);
}

/* Whatever was held is lost at once, although the connection is there. */
CASE_AROUND(a_handshake_with_another_id, scene_heal, NULL) {
    struct scene_events events = {0};
    own_client *client = scene_proxied(ENDURING_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "another-id");
    assert_hf(HF_OK, hf_lock_on_lost(lock, scene_on_event, &events));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    size_t fired = proxy_fired(scene.proxy);
    forge_next_handshake(0x7777, false);
    assert_true(proxy_cut_all(scene.proxy) > 0);
    assert_true(proxy_wait_fired(scene.proxy, fired + 1, HANG_MS));
    assert_true(scene_wait_losses(&events, 1));
    assert_hf(HF_ELOST, hf_lock_release(lock));
    /* Nobody knows the one that it was given, so the next server gives it a third. */
    proxy_cut_all(scene.proxy);
    assert_hf(HF_OK, hf_lock_acquire(lock)); /* when the first has ended */
    assert_int_equal(zk_count(scene.eyes, "/another-id"), 1);
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_int_equal(atomic_load(&events.losses), 1);
}

CASE_AROUND(a_server_that_can_only_be_read, scene_heal, NULL) {
    size_t fired = proxy_fired(scene.proxy);
    forge_next_handshake(0x7777, true);
    own_client *client = scene_proxied(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "read-only");
    assert_hf(HF_OK, hf_lock_acquire(lock)); /* the next handshake is the server's own */
    assert_int_equal(proxy_fired(scene.proxy), fired + 1);
    assert_hf(HF_OK, hf_lock_release(lock));
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
