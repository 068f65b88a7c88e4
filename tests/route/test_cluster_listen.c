/*
 * Listening to names of a cluster (hf_listen()): at the server that has the name, by sharded
 * channels and by others, while its slot moves and when its primary dies. With real servers.
 */
#include "route/ring.h"
#include "support/notification_log.h"

static void take_and_release(hf_client *client, any_kind kind, const char *name) {
    own_lock *lock = scene_lock(client, kind, name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
}

/* Names at all three servers, some with a tag of their own. */
static void receive_all(hf_client *client, hf_client *rival) {
    enum { NAMES = 8 };
    struct subscriber subscribers[NAMES];
    char names[NAMES][32];
    for (int i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof names[i], i % 2 == 0 ? "heard-%d" : "heard-{%d}", i);
        subscribers[i] = subscriber_new(client, names[i]);
    }
    for (int i = 0; i < NAMES; i++) {
        take_and_release(rival, i % 4 < 2 ? HF_PLAIN : HF_WRITE, names[i]);
        hf_notification_kind notification =
            i % 4 < 2 ? HF_NOTIFY_RELEASED : HF_NOTIFY_WRITE_RELEASED;
        assert_true(
            notification_log_wait(subscribers[i].notification_log, notification, 1, HANG_MS));
        assert_int_equal(
            notification_log_count(subscribers[i].notification_log, HF_NOTIFY_SUBSCRIBED), 1);
        assert_int_equal(
            notification_log_count(subscribers[i].notification_log, HF_NOTIFY_INTERRUPTED), 0);
    }
    for (int i = 0; i < NAMES; i++)
        subscriber_free(&subscribers[i]);
}

RING_CASE(names_are_listened_to_on_their_node) {
    receive_all(r->client, r->rival);
}

/* The message of a break is no sharded one: it comes at every server. */
CASE(breaks_are_heard_everywhere) {
    OWN(ring_end) struct ring r;
    enum { NAMES = 6 };
    struct notification_log *all = notification_log_new();
    hf_listener *breaks;
    ring_begin(&r, NULL);
    assert_int_equal(hf_listen_breaks(r.client, notification_log_add, all, &breaks), HF_OK);
    assert_true(notification_log_wait(all, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        bool broken;
        snprintf(name, sizeof name, "broken-%d", i);
        struct subscriber subscriber = subscriber_new(r.client, name);
        hf_lock *held = scene_lock(r.rival, HF_PLAIN, name);
        hf_lock *breaking = scene_lock(r.client, HF_PLAIN, name);
        assert_int_equal(hf_lock_acquire(held), HF_OK);
        assert_int_equal(hf_lock_break(breaking, &broken), HF_OK);
        assert_true(
            notification_log_wait(subscriber.notification_log, HF_NOTIFY_RELEASED, 1, HANG_MS));
        assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_BROKEN), 1);
        assert_true(notification_log_wait(all, HF_NOTIFY_BROKEN, i + 1, HANG_MS));
        assert_string_equal(notification_log_last(all, HF_NOTIFY_BROKEN).name, name);
        hf_lock_free(held);
        hf_lock_free(breaking);
        subscriber_free(&subscriber);
    }
    hf_listener_free(breaks);
    notification_log_free(all);
}

static hf_client *open_unsharded(struct ring *r) {
    char url[512];
    hf_options options = scene_options();
    snprintf(url, sizeof url, "%s?pubsub=classic", shards_url(r->shards));
    return made(hf_open, url, &options);
}

RING_CASE(without_sharded_channels_too) {
    hf_client *client = open_unsharded(r), *rival = open_unsharded(r);
    receive_all(client, rival);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(hf_close(rival), HF_OK);
}

/* It says that it listens again, since something may have been missed. */
RING_CASE(a_name_that_moves_is_followed) {
    struct subscriber subscriber = subscriber_new(r->client, "moved");
    unsigned slot = shards_slot(r->shards, "moved");
    for (int i = 0; i < 2; i++) { /* there, and on to another */
        struct server *from = shards_owner(r->shards, slot), *to = shards_other(r->shards, from);
        int before = notification_log_count(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED);
        shards_move_slot(r->shards, slot, from, to);
        assert_true(notification_log_wait(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED,
                                          before + 1, HANG_MS));
        assert_true(ring_wait_listened(to, "moved"));
        int released = notification_log_count(subscriber.notification_log, HF_NOTIFY_RELEASED);
        take_and_release(r->rival, HF_PLAIN, "moved");
        assert_true(notification_log_wait(subscriber.notification_log, HF_NOTIFY_RELEASED,
                                          released + 1, HANG_MS));
    }
    assert_true(notification_log_count(subscriber.notification_log, HF_NOTIFY_INTERRUPTED) >= 2);
    subscriber_free(&subscriber);
}

/* Nobody here sends a command: it is the listening that finds the new server. */
RING_CASE(a_successor_is_listened_to) {
    char name[32];
    struct server *old = shards_owner(r->shards, 0);
    ring_name_at(r, old, "taken-over", name);
    struct subscriber subscriber = subscriber_new(r->client, name);
    struct server *new = shards_kill(r->shards, old);
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED, 2, HANG_MS));
    assert_true(ring_wait_listened(new, name));
    int released = notification_log_count(subscriber.notification_log, HF_NOTIFY_RELEASED);
    take_and_release(r->rival, HF_PLAIN, name);
    assert_true(notification_log_wait(subscriber.notification_log, HF_NOTIFY_RELEASED, released + 1,
                                      HANG_MS));
    subscriber_free(&subscriber);
}

/* What belongs to such a name is in several slots, and so are its channels. */
RING_CASE(names_whose_braces_are_no_pair_are_refused) {
    hf_listener *none = NULL;
    assert_int_equal(hf_listen(r->client, "a}b", notification_log_add, NULL, &none), HF_EINVAL);
    assert_null(none);
}

RUN_CASES(ring_start_with_replicas, ring_stop)
