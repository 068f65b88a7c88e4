/*
 * Listeners (hf_listen()) whose server goes away and comes back: in the end their reported state is
 * the true one, also for a slow callback, for a user whose rights were revoked, and for a process
 * that was stopped meanwhile.
 */
#include "support/notification_log.h"
#include "support/world.h"

#include <signal.h>

/* Whatever was published before this call has been heard: another connection has been made since. */
static void connect_again(struct world *w) {
    uint64_t before = world_stats(w->client).reconnects;
    cmd_ok(w->server, "CLIENT KILL TYPE pubsub");
    assert_true(WAIT_FOR(
        world_stats(w->client).reconnects != before && world_channels(w->server) >= 4, HANG_MS));
}

static void go_away(struct world *w) {
    proxy_refuse(w->proxy, true);
    proxy_cut_connections(w->proxy, "");
}

/* ---- A callback that is slow ---- */

struct order {
    struct world *w;
    int released, missed;
    hf_notification_kind stands;
    bool twice_interrupted; /* in a row */
};

/* While it learns that some were missed, the server comes back, goes and comes back. */
static void note_order(hf_listener *listener, const hf_notification *notification, void *user) {
    struct order *order = user;
    (void)listener;
    order->released += notification->kind == HF_NOTIFY_RELEASED;
    if (notification->kind == HF_NOTIFY_SUBSCRIBED || notification->kind == HF_NOTIFY_INTERRUPTED) {
        order->twice_interrupted |=
            notification->kind == HF_NOTIFY_INTERRUPTED && order->stands == HF_NOTIFY_INTERRUPTED;
        order->stands = notification->kind;
    }
    if (notification->kind == HF_NOTIFY_MISSED && ++order->missed == 1) {
        proxy_refuse(order->w->proxy, false);
        connect_again(order->w);
        connect_again(order->w);
    }
}

/* No interruption from when messages were missed is reported after a later subscription. */
CASE(counts_are_reported_in_order) {
    struct world w;
    hf_listener *listener;
    struct order order = {.w = &w};
    hf_options options = world_options();
    options.flags = HF_MANUAL_DISPATCH;
    world_begin(&w, &options);
    assert_int_equal(hf_listen(w.client, WORLD_NAME, note_order, &order, &listener), HF_OK);
    while (order.stands == 0)
        assert_true(hf_dispatch(w.client, HANG_MS) > 0);
    for (int i = 0; i < HF_NOTIFY_MAX + 10; i++)
        cmd_ok(w.server, "PUBLISH " WORLD_CHANNEL " 0");
    connect_again(&w);
    go_away(&w);
    while (order.missed == 0)
        assert_true(hf_dispatch(w.client, HANG_MS) > 0);
    int released = order.released;
    cmd_ok(w.server, "PUBLISH " WORLD_CHANNEL " 0");
    while (order.released == released)
        assert_true(hf_dispatch(w.client, HANG_MS) > 0);
    while (hf_dispatch(w.client, 0) > 0)
        continue;
    assert_int_equal(order.stands, HF_NOTIFY_SUBSCRIBED);
    assert_false(order.twice_interrupted);
    hf_listener_free(listener);
    world_end(&w);
}

/* ---- Rights that are taken away ---- */

/* It would not go on by itself, as a lost connection does. */
CASE(a_client_refused_later_is_reported) {
    struct server *server = world_server();
    struct notification_log *notification_log = notification_log_new();
    hf_listener *listener;
    hf_options options = world_options();
    cmd_ok(server, "ACL SETUSER guest on >secret ~* &* +@all");
    options.user = "guest";
    options.password = "secret";
    hf_client *client = made(hf_open, server_url(server), &options);
    assert_int_equal(
        hf_listen(client, WORLD_NAME, notification_log_add, notification_log, &listener), HF_OK);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    cmd_ok(server, "ACL SETUSER guest resetchannels"); /* which ends the connection, too */
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_INTERRUPTED, 2, HANG_MS));
    assert_int_equal(notification_log_last(notification_log, HF_NOTIFY_INTERRUPTED).code, HF_EPERM);
    assert_int_equal(notification_log_count(notification_log, HF_NOTIFY_SUBSCRIBED), 1);
    hf_listener_free(listener);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(server, "ACL DELUSER guest");
    notification_log_free(notification_log);
}

/* ---- A process that is stopped past the lease of what it holds ---- */

#define SHORT_MS 2400 /* for a hold that is to be lost */

struct stopped {
    const char *url;
    atomic_int listening, interrupted, released, missed, losses;
    atomic_bool holds, end;
};

static void count_in_child(hf_listener *listener, const hf_notification *notification, void *user) {
    struct stopped *stopped = user;
    (void)listener;
    if (notification->kind == HF_NOTIFY_SUBSCRIBED)
        atomic_fetch_add(&stopped->listening, 1);
    else if (notification->kind == HF_NOTIFY_INTERRUPTED)
        atomic_fetch_add(&stopped->interrupted, 1);
    else if (notification->kind == HF_NOTIFY_RELEASED)
        atomic_fetch_add(&stopped->released, 1);
    else if (notification->kind == HF_NOTIFY_MISSED)
        atomic_fetch_add(&stopped->missed, (int)notification->number);
}

static void count_loss_in_child(hf_lock *lock, const hf_event *event, void *arg) {
    struct stopped *stopped = arg;
    (void)lock;
    if (event->kind == HF_EVENT_LOST)
        atomic_fetch_add(&stopped->losses, 1);
}

static bool is_set(void *flag) {
    return atomic_load((atomic_bool *)flag);
}

/* Holds a lock and listens to it, until it is asked to end. */
static int hold_and_listen(void *arg) {
    struct stopped *stopped = arg;
    hf_options options = world_options();
    hf_client *client;
    hf_lock *lock;
    hf_listener *listener;
    options.watchdog_ms = SHORT_MS;
    if (hf_open(stopped->url, &options, &client) != HF_OK ||
        hf_lock_new(client, WORLD_NAME, &lock) != HF_OK ||
        hf_lock_on_lost(lock, count_loss_in_child, stopped) != HF_OK ||
        hf_listen(client, WORLD_NAME, count_in_child, stopped, &listener) != HF_OK ||
        hf_lock_acquire(lock) != HF_OK)
        return 10;
    atomic_store(&stopped->holds, true);
    if (!wait_until(is_set, &stopped->end, HANG_MS))
        return 11;
    int err = hf_lock_release(lock);
    hf_listener_free(listener);
    hf_lock_free(lock);
    if (hf_close(client) != HF_OK)
        return 12;
    return err == HF_ELOST ? 0 : 100 - err;
}

/* What was said while it was stopped is reported afterwards, or that something may have been missed; it
 * knows that its lock is lost, and it hears on. `dropped`: the server has ended its connection
 * meanwhile, as it does with one that does not read. */
static void stopped_past_its_lease(bool dropped) {
    enum { SAID = 5 };
    struct server *server = world_server();
    struct world w = {.server = server};
    struct stopped *stopped = shared_new(sizeof *stopped);
    stopped->url = server_url(server);
    cmd_ok(server, "FLUSHALL");
    pid_t pid = run_child(hold_and_listen, stopped);
    assert_true(world_wait_atomic(&stopped->listening, 1, HANG_MS));
    assert_true(wait_until(is_set, &stopped->holds, HANG_MS));
    stop_process(pid);
    int before = atomic_load(&stopped->released);
    if (dropped)
        cmd_ok(server, "CLIENT KILL TYPE pubsub");
    for (int i = 0; i < SAID; i++)
        cmd_ok(server, "PUBLISH " WORLD_CHANNEL " 0");
    assert_true(world_wait_free(&w, HANG_MS)); /* nobody renews it */
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_true(world_wait_atomic(&stopped->losses, 1, HANG_MS));
    if (dropped) {
        assert_true(world_wait_atomic(&stopped->listening, 2, HANG_MS));
        assert_int_equal(atomic_load(&stopped->released), before);
        assert_int_equal(atomic_load(&stopped->interrupted), 1);
    } else {
        assert_true(world_wait_atomic(&stopped->released, before + SAID, HANG_MS));
    }
    int notification_log = atomic_load(&stopped->released);
    cmd_ok(server, "PUBLISH " WORLD_CHANNEL " 0");
    assert_true(world_wait_atomic(&stopped->released, notification_log + 1, HANG_MS));
    atomic_store(&stopped->end, true);
    assert_true(expect_exit(pid, 0, HANG_MS));
    assert_int_equal(atomic_load(&stopped->losses), 1);
    assert_int_equal(atomic_load(&stopped->missed), 0);
    shared_free(stopped, sizeof *stopped);
}

CASE(a_stopped_process_is_notified_late) {
    stopped_past_its_lease(false);
}

CASE(a_process_that_was_stopped_and_dropped_says_so) {
    stopped_past_its_lease(true);
}

RUN_CASES(world_start_server, world_stop_server)
