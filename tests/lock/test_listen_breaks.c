/*
 * Breaks, as listeners hear them: of one name (hf_listen()) before the release, and of all names (hf_listen_breaks()),
 * which also reports losses.
 */
#include "lock/surveys.h"
#include "support/notification_log.h"

/* The kinds of notification in the order in which they came. */
struct order {
    struct notification_log *notification_log;
    hf_notification_kind all[16];
    size_t len;
};

static void note_order(hf_listener *listener, const hf_notification *notification, void *user) {
    struct order *order = user;
    if (order->len < sizeof order->all / sizeof order->all[0])
        order->all[order->len++] = notification->kind;
    notification_log_add(listener, notification, order->notification_log);
}

/* A hold of the kind, which another client breaks. */
static void acquire_and_break(struct world *w, any_kind kind) {
    bool broken = false;
    own_lock *held = made(new_lock, w->rival, kind, WORLD_NAME, strlen(WORLD_NAME));
    own_lock *breaking = made(new_lock, w->client, kind, WORLD_NAME, strlen(WORLD_NAME));
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    assert_int_equal(hf_lock_break(breaking, &broken), HF_OK);
    assert_true(broken);
}

CASE(a_break_is_reported_before_the_release) {
    static const struct {
        any_kind kind;
        hf_notification_kind notification; /* 0: a fair lock tells only its next waiter */
    } rows[] = {{HF_PLAIN, HF_NOTIFY_RELEASED},
                {HF_PLAIN | HF_NONREENTRANT, HF_NOTIFY_RELEASED},
                {HF_PLAIN | HF_SPIN, HF_NOTIFY_RELEASED},
                {HF_PLAIN | HF_FENCED, HF_NOTIFY_RELEASED},
                {HF_READ, HF_NOTIFY_READ_RELEASED},
                {HF_WRITE, HF_NOTIFY_WRITE_RELEASED},
                {HF_FAIR, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world w;
        struct order order = {.notification_log = notification_log_new()};
        hf_listener *listener;
        world_begin(&w, NULL);
        assert_int_equal(hf_listen(w.client, WORLD_NAME, note_order, &order, &listener), HF_OK);
        assert_true(
            notification_log_wait(order.notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
        acquire_and_break(&w, rows[i].kind);
        assert_true(notification_log_wait(
            order.notification_log,
            rows[i].notification != 0 ? rows[i].notification : HF_NOTIFY_BROKEN, 1, HANG_MS));
        hf_listener_free(listener);
        assert_int_equal(order.all[0], HF_NOTIFY_SUBSCRIBED);
        assert_int_equal(order.all[1], HF_NOTIFY_BROKEN);
        if (rows[i].notification != 0)
            assert_int_equal(order.all[2], rows[i].notification);
        assert_int_equal(order.len, rows[i].notification != 0 ? 3 : 2);
        notification_log_free(order.notification_log);
        world_end(&w);
    }
}

WORLD_CASE(breaks_of_another_name_database_and_prefix_are_not_reported) {
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    cmd_ok(w->server, "PUBLISH holdfast_ask %b", "broken 1 0 another", (size_t)18);
    cmd_ok(w->server, "PUBLISH holdfast_ask %b", "broken 1 1 " WORLD_NAME,
           strlen("broken 1 1 " WORLD_NAME));
    cmd_ok(w->server, "PUBLISH holdfast_ask %b", "broken 1 0 a:" WORLD_NAME,
           strlen("broken 1 0 a:" WORLD_NAME));
    cmd_ok(w->server, "PUBLISH holdfast_ask %b", "broken 2 0 " WORLD_NAME,
           strlen("broken 2 0 " WORLD_NAME));
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(notification_log_wait(subscriber.notification_log, HF_NOTIFY_RELEASED, 1, HANG_MS));
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_BROKEN), 0);
    subscriber_free(&subscriber);
}

/* Not even the name's own channels are needed, and one subscription is enough. */
CASE(breaks_of_all_names_are_reported_with_the_name) {
    OWN(world_end) struct world w;
    struct notification_log *notification_log = notification_log_new();
    hf_listener *listener;
    bool done;
    world_begin(&w, NULL);
    assert_int_equal(hf_listen_breaks(w.client, notification_log_add, notification_log, &listener),
                     HF_OK);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    assert_int_equal(world_channels(w.server), 0);
    acquire_and_break(&w, HF_PLAIN);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_BROKEN, 1, HANG_MS));
    assert_string_equal(notification_log_last(notification_log, HF_NOTIFY_BROKEN).name, WORLD_NAME);
    hf_permits *permits = made(hf_permits_new, w.rival, "another");
    assert_int_equal(hf_permits_try_set(permits, 2, &done), HF_OK);
    assert_int_equal(hf_permits_delete(permits, &done), HF_OK);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_BROKEN, 2, HANG_MS));
    assert_string_equal(notification_log_last(notification_log, HF_NOTIFY_BROKEN).name, "another");
    assert_int_equal(notification_log_count(notification_log, HF_NOTIFY_RELEASED), 0);
    assert_int_equal(notification_log_count(notification_log, HF_NOTIFY_AVAILABLE), 0);
    hf_permits_free(permits);
    hf_listener_free(listener);
    notification_log_free(notification_log);
}

/* Only a listener for all names is notified of it: the announcement does not say which hold it was. */
CASE(C396_losses_of_all_names_are_reported) {
    struct world w;
    struct notification_log *notification_log = notification_log_new();
    hf_listener *listener;
    hf_lock *held;
    world_begin(&w, NULL);
    struct subscriber subscriber = subscriber_new(w.client, WORLD_NAME);
    assert_int_equal(hf_listen_breaks(w.client, notification_log_add, notification_log, &listener),
                     HF_OK);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    assert_int_equal(hf_lock_new(w.rival, WORLD_NAME, &held), HF_OK);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(hf_lock_acquire(held), HF_OK);
        cmd_ok(w.server, "DEL " WORLD_NAME);
        assert_int_equal(hf_lock_release(held), HF_ELOST);
        assert_true(notification_log_wait(notification_log, HF_NOTIFY_LOST, i, HANG_MS));
    }
    assert_string_equal(notification_log_last(notification_log, HF_NOTIFY_LOST).name, "");
    assert_int_equal(notification_log_count(notification_log, HF_NOTIFY_LOST), 2);
    assert_int_equal(notification_log_count(notification_log, HF_NOTIFY_BROKEN), 0);
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_LOST), 0);
    subscriber_free(&subscriber);
    hf_lock_free(held);
    hf_listener_free(listener);
    notification_log_free(notification_log);
    world_end(&w);
}

RUN_CASES(world_start_server, world_stop_server)
