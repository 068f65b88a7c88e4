/*
 * Listening to a name (hf_listen()): the events of each kind of lock and object, waiters beside the
 * listener, lost connections and servers that refuse.
 *
 * test_listen_life.c has the end of listeners, and slow callbacks.
 */
#include "lock/surveys.h"
#include "support/notification_log.h"

#define UUID "5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d"

/* So many, and nothing else that is notification of the name. */
static void assert_notification(struct subscriber *subscriber, hf_notification_kind kind,
                                int count) {
    assert_true(notification_log_wait(subscriber->notification_log, kind, count, HANG_MS));
    for (int i = HF_NOTIFY_MISSED; i <= HF_NOTIFY_CHANGED; i++)
        if (i != (int)kind)
            assert_int_equal(notification_log_count(subscriber->notification_log, i), 0);
    assert_int_equal(notification_log_count(subscriber->notification_log, kind), count);
}

/* ---- What each kind tells ---- */

static void acquire_and_release(hf_client *client, any_kind kind) {
    own_lock *lock = made(new_lock, client, kind, WORLD_NAME, strlen(WORLD_NAME));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
}

CASE(each_lock_reports_its_release) {
    static const struct {
        any_kind kind;
        hf_notification_kind notification;
    } rows[] = {
        {HF_PLAIN, HF_NOTIFY_RELEASED},           {HF_PLAIN | HF_NONREENTRANT, HF_NOTIFY_RELEASED},
        {HF_PLAIN | HF_SPIN, HF_NOTIFY_RELEASED}, {HF_PLAIN | HF_FENCED, HF_NOTIFY_RELEASED},
        {HF_READ, HF_NOTIFY_READ_RELEASED},       {HF_WRITE, HF_NOTIFY_WRITE_RELEASED},
        {HF_STRING, HF_NOTIFY_RELEASED}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world w;
        world_begin(&w, NULL);
        struct subscriber subscriber = subscriber_new(w.client, WORLD_NAME);
        acquire_and_release(w.rival, rows[i].kind);
        assert_notification(&subscriber, rows[i].notification, 3);
        struct notification_item last =
            notification_log_last(subscriber.notification_log, rows[i].notification);
        assert_string_equal(last.name, WORLD_NAME);
        assert_int_equal(last.server, 0);
        assert_int_equal(last.servers, 1);
        subscriber_free(&subscriber);
        world_end(&w);
    }
}

WORLD_CASE(a_break_and_a_group_report_a_release) {
    const hf_bytes values[] = {{"a", 1}, {"b", 1}};
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_break(w->rival_lock, NULL), HF_OK);
    assert_notification(&subscriber, HF_NOTIFY_RELEASED, 1);
    hf_lock *group = made(hf_lock_new_group, w->rival, WORLD_NAME, strlen(WORLD_NAME), values, 2);
    assert_int_equal(hf_lock_acquire(group), HF_OK);
    assert_int_equal(hf_lock_release(group), HF_OK);
    assert_notification(&subscriber, HF_NOTIFY_RELEASED, 2);
    hf_lock_free(group);
    subscriber_free(&subscriber);
}

WORLD_CASE(a_semaphore_and_permits_report_numbers) {
    bool set;
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    hf_sem *sem = made(hf_sem_new, w->rival, WORLD_NAME);
    assert_int_equal(hf_sem_try_set(sem, 7, 0, &set), HF_OK);
    assert_notification(&subscriber, HF_NOTIFY_AVAILABLE, 1);
    assert_int_equal(notification_log_last(subscriber.notification_log, HF_NOTIFY_AVAILABLE).number,
                     7);
    assert_int_equal(hf_sem_acquire(sem, 2), HF_OK);
    assert_int_equal(hf_sem_release(sem, 2), HF_OK);
    assert_notification(&subscriber, HF_NOTIFY_AVAILABLE, 2);
    assert_true(notification_log_last(subscriber.notification_log, HF_NOTIFY_AVAILABLE).number > 0);
    hf_sem_free(sem);
    subscriber_free(&subscriber);
}

WORLD_CASE(a_latch_reports_that_it_is_open) {
    bool set;
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    hf_latch *latch = made(hf_latch_new, w->rival, WORLD_NAME);
    assert_int_equal(hf_latch_try_set(latch, 2, &set), HF_OK);
    assert_notification(&subscriber, HF_NOTIFY_CLOSED, 1);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_true(notification_log_wait(subscriber.notification_log, HF_NOTIFY_OPENED, 1, HANG_MS));
    hf_latch_free(latch);
    subscriber_free(&subscriber);
}

/* How many hear a waiter in the queue decides who gets the lock: so nobody listens there in its
 * place, nor by a pattern. */
WORLD_CASE(a_queued_waiter_is_left_alone) {
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    acquire_and_release(w->rival, HF_FAIR);
    assert_int_equal(cmd_int(w->server, "PUBLISH " WORLD_CHANNEL ":" UUID ":1 0"), 0);
    assert_int_equal(cmd_int(w->server, "PUBSUB NUMPAT"), 0);
    assert_int_equal(world_channels(w->server), 4);
    subscriber_free(&subscriber);
}

/* ---- What others publish ---- */

static void publish(struct world *w, const char *channel, const char *message) {
    cmd_ok(w->server, "PUBLISH %s %s", channel, message);
}

WORLD_CASE(messages_of_java_are_received) {
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    publish(w, WORLD_CHANNEL, "0");
    assert_notification(&subscriber, HF_NOTIFY_RELEASED, 1);
    subscriber_free(&subscriber);
}

/* Other names, what means nothing, and what looks like the channel of a waiter. */
WORLD_CASE(meaningless_fields_are_not_reported) {
    static const char *const said[][2] = {
        {"redisson_lock__channel:{another}", "0"},
        {"redisson_lock__channel:" WORLD_NAME, "0"},
        {WORLD_CHANNEL, "released"},
        {WORLD_CHANNEL, "-1"},
        {WORLD_CHANNEL, "99999999999999999999"},
        {WORLD_CHANNEL ":", "0"},
        {WORLD_CHANNEL ":x", "0"},
        {WORLD_CHANNEL ":" UUID, "0"},
        {WORLD_CHANNEL ":" UUID ":", "0"},
        {WORLD_CHANNEL ":" UUID ":1", "now"},
        {WORLD_CHANNEL UUID ":1", "0"},
        {"redisson_sc:{" WORLD_NAME "}", "0"},
        {"redisson_rwlock:{" WORLD_NAME "}", "2"},
        {"redisson_countdownlatch__channel__{" WORLD_NAME "}", "2"},
    };
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
        publish(w, said[i][0], said[i][1]);
    publish(w, WORLD_CHANNEL, "0"); /* and is behind all of these */
    assert_notification(&subscriber, HF_NOTIFY_RELEASED, 1);
    subscriber_free(&subscriber);
}

CASE(names_are_reported_whole_to_listeners) {
    OWN(world_end) struct world w;
    static const char name[] = "a b\0\r\n{c}*";
    hf_options options = world_options();
    struct subscriber subscriber = {.notification_log = notification_log_new()};
    world_begin(&w, NULL);
    options.name_prefix = "app x:";
    own_client *client = made(hf_open, server_url(w.server), &options);
    assert_int_equal(hf_listen_bytes(client, name, sizeof name, notification_log_add,
                                     subscriber.notification_log, &subscriber.listener),
                     HF_OK);
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    hf_lock *lock = made(hf_lock_new_bytes, client, name, sizeof name);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_notification(&subscriber, HF_NOTIFY_RELEASED, 1);
    hf_lock_free(lock);
    subscriber_free(&subscriber);
}

/* ---- Beside others ---- */

WORLD_CASE(two_listeners_and_a_waiter_share_a_channel) {
    struct world_caller waiter;
    struct subscriber one = subscriber_new(w->client, WORLD_NAME),
                      other = subscriber_new(w->client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_acquire_options options = world_wait_as(5, HANG_MS, HF_WATCHDOG);
    world_call_acquire(&waiter, w->lock, options);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_notification(&one, HF_NOTIFY_RELEASED, 1);
    assert_notification(&other, HF_NOTIFY_RELEASED, 1);
    subscriber_free(&one); /* the other still hears */
    assert_int_equal(hf_lock_release_as(w->lock, 5), HF_OK);
    assert_notification(&other, HF_NOTIFY_RELEASED, 2);
    subscriber_free(&other);
    assert_true(world_wait_no_channels(w->server, HANG_MS));
}

/* A waiter is woken by a message although it is a listener's subscription, and reads for itself. */
WORLD_CASE(a_waiter_beside_a_listener_is_woken) {
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    for (int i = 0; i < 20; i++) {
        struct world_caller waiter;
        assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
        hf_acquire_options options = world_wait_as(5, HF_FOREVER, HF_WATCHDOG);
        world_call_acquire(&waiter, w->lock, options);
        (void)HOLDS_FOR(!atomic_load(&waiter.done), 5); /* in most rounds it sleeps by now */
        assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
        assert_int_equal(world_join(&waiter), HF_OK);
        assert_true(waiter.took_ms < 5000); /* a poll would come after ten */
        assert_int_equal(hf_lock_release_as(w->lock, 5), HF_OK);
    }
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_RELEASED, 40, HANG_MS));
    subscriber_free(&subscriber);
}

/* A client that is asked who waits does not count who only listens: `holdfast watch` changes
 * nothing in `holdfast ls`. */
CASE(a_listener_is_no_waiter) {
    OWN(world_end) struct world w;
    static const any_kind kinds[] = {HF_PLAIN, HF_WRITE};
    hf_options options = reporting(0);
    world_begin(&w, &options);
    own_client *listening = made(hf_open, server_url(w.server), &options);
    struct subscriber subscriber = subscriber_new(listening, WORLD_NAME);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        hf_op *op;
        own_lock *held = made(new_lock, w.client, kinds[i], WORLD_NAME, strlen(WORLD_NAME));
        own_lock *wanted = made(new_lock, w.rival, kinds[i], WORLD_NAME, strlen(WORLD_NAME));
        assert_int_equal(hf_lock_acquire(held), HF_OK);
        struct reported reported = {.client = listening, .name = WORLD_NAME, .holders = 1};
        assert_true(wait_until(is_reported, &reported, HANG_MS));
        assert_int_equal(find(reported.fleet, WORLD_NAME)->listeners, 0);
        assert_int_equal(hf_lock_acquire_start(wanted, NULL, NULL, NULL, &op), HF_OK);
        reported.waiters = reported.listeners = 1;
        assert_true(wait_until(is_reported, &reported, HANG_MS));
        assert_int_equal(find(reported.fleet, WORLD_NAME)->listeners, 1);
        hf_fleet_free(reported.fleet);
        hf_op_cancel(op);
        assert_int_equal(joined(op, NULL), HF_ECANCELED);
        assert_int_equal(hf_lock_release(held), HF_OK);
    }
    subscriber_free(&subscriber);
}

WORLD_CASE_WITH(a_listener_for_permits_is_no_waiter, reporting(0)) {
    hf_permit_id id;
    struct subscriber subscriber = subscriber_new(w->rival, WORLD_NAME);
    hf_permits *permits = made(hf_permits_new, w->client, WORLD_NAME);
    assert_int_equal(hf_permits_try_set(permits, 1, &(bool){false}), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    struct reported reported = {.client = w->rival, .name = WORLD_NAME, .holders = 1};
    assert_true(wait_until(is_reported, &reported, HANG_MS));
    assert_int_equal(find(reported.fleet, WORLD_NAME)->listeners, 0);
    hf_fleet_free(reported.fleet);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    hf_permits_free(permits);
    subscriber_free(&subscriber);
}

/* ---- Connections ---- */

WORLD_CASE(a_reconnecting_client_reports_it) {
    struct subscriber subscriber = subscriber_new(w->client, WORLD_NAME);
    cmd_ok(w->server, "CLIENT KILL TYPE pubsub");
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED, 2, HANG_MS));
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_INTERRUPTED), 1);
    assert_int_equal(notification_log_last(subscriber.notification_log, HF_NOTIFY_INTERRUPTED).code,
                     HF_EUNREACH);
    publish(w, WORLD_CHANNEL, "0");
    assert_notification(&subscriber, HF_NOTIFY_RELEASED, 1);
    subscriber_free(&subscriber);
}

CASE(a_restarted_server_is_listened_to) {
    OWN(world_end) struct world w;
    own_server *server = server_start(NULL);
    world_begin_on(&w, server, NULL);
    struct subscriber subscriber = subscriber_new(w.rival, WORLD_NAME);
    server_restart(server);
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED, 2, HANG_MS));
    publish(&w, WORLD_CHANNEL, "0");
    assert_notification(&subscriber, HF_NOTIFY_RELEASED, 1);
    subscriber_free(&subscriber);
}

/* It begins when there is a server, however late that is. */
CASE(a_late_server_is_listened_to) {
    OWN(world_end) struct world w;
    struct subscriber subscriber = {.notification_log = notification_log_new()};
    world_begin(&w, NULL);
    proxy_refuse(w.proxy, true);
    proxy_cut_connections(w.proxy, "");
    assert_int_equal(hf_listen(w.client, WORLD_NAME, notification_log_add,
                               subscriber.notification_log, &subscriber.listener),
                     HF_OK);
    assert_true(HOLDS_FOR(
        notification_log_count(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED) == 0, 100));
    proxy_refuse(w.proxy, false);
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    subscriber_free(&subscriber);
}

/* ---- Rights ---- */

static atomic_int warnings;

static void count_warnings(hf_log_level level, const char *message, void *user) {
    (void)user;
    if (level <= HF_LOG_WARN && strstr(message, "the server refuses the subscription") != NULL)
        atomic_fetch_add(&warnings, 1);
}

static hf_client *open_as_guest(struct server *server, const char *channels) {
    hf_options options = world_options();
    cmd_ok(server, "ACL SETUSER guest reset on >secret +@all ~* resetchannels");
    if (channels != NULL)
        cmd_ok(server, "ACL SETUSER guest %s", channels);
    options.user = "guest";
    options.password = "secret";
    options.log = count_warnings;
    atomic_store(&warnings, 0);
    return made(hf_open, server_url(server), &options);
}

CASE(a_client_without_the_right_to_subscribe_is_reported) {
    struct server *server = world_server();
    struct subscriber subscriber = {.notification_log = notification_log_new()},
                      other = {.notification_log = notification_log_new()};
    hf_client *client = open_as_guest(server, NULL);
    assert_int_equal(hf_listen(client, WORLD_NAME, notification_log_add,
                               subscriber.notification_log, &subscriber.listener),
                     HF_OK);
    assert_int_equal(hf_listen(client, WORLD_NAME, notification_log_add, other.notification_log,
                               &other.listener),
                     HF_OK);
    assert_true(
        notification_log_wait(subscriber.notification_log, HF_NOTIFY_INTERRUPTED, 1, HANG_MS));
    assert_true(notification_log_wait(other.notification_log, HF_NOTIFY_INTERRUPTED, 1, HANG_MS));
    assert_int_equal(notification_log_last(subscriber.notification_log, HF_NOTIFY_INTERRUPTED).code,
                     HF_EPERM);
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_SUBSCRIBED), 0);
    assert_int_equal(atomic_load(&warnings), 1);
    subscriber_free(&subscriber);
    subscriber_free(&other);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(server, "ACL DELUSER guest");
}

/* What the access list of a waiter has is enough for releases. */
CASE(a_client_with_a_right_subscribes) {
    struct server *server = world_server();
    hf_client *client = open_as_guest(server, "&" WORLD_CHANNEL);
    struct subscriber subscriber = subscriber_new(client, WORLD_NAME);
    cmd_ok(server, "PUBLISH " WORLD_CHANNEL " 0");
    cmd_ok(server, "PUBLISH redisson_sc:{" WORLD_NAME "} 1");
    cmd_ok(server, "PUBLISH " WORLD_CHANNEL " 0");
    assert_notification(&subscriber, HF_NOTIFY_RELEASED, 2);
    assert_int_equal(notification_log_count(subscriber.notification_log, HF_NOTIFY_INTERRUPTED), 0);
    subscriber_free(&subscriber);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(server, "ACL DELUSER guest");
}

RUN_CASES(world_start_server, world_stop_server)
