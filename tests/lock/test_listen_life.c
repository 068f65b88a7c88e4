/*
 * The life of listeners (hf_listen()): how they end, inside their callback and outside, with their
 * client and in a forked child; callbacks that are slow, dispatch by hand, arguments, and memory
 * that runs out.
 *
 * What they hear is in test_listen.c.
 */
#include "support/crowd.h"
#include "support/memory.h"
#include "support/notification_log.h"
#include "support/world.h"

#include <limits.h>
#include <poll.h>

static void publish(struct server *server, int times) {
    for (int i = 0; i < times; i++)
        cmd_ok(server, "PUBLISH " WORLD_CHANNEL " 0");
}

static bool is_set(void *flag) {
    return atomic_load((atomic_bool *)flag);
}

/* ---- A callback that waits until it may return ---- */

struct slow {
    struct notification_log *notification_log;
    atomic_int calls, allowed; /* of releases; the next one waits inside */
    atomic_int before_missed;  /* how many had been reported then */
    atomic_bool inside;
};

static bool may_return(void *arg) {
    struct slow *slow = arg;
    return atomic_load(&slow->calls) <= atomic_load(&slow->allowed);
}

static void wait_inside(hf_listener *listener, const hf_notification *notification, void *user) {
    struct slow *slow = user;
    notification_log_add(listener, notification, slow->notification_log);
    if (notification->kind == HF_NOTIFY_MISSED)
        atomic_store(&slow->before_missed, atomic_load(&slow->calls));
    if (notification->kind != HF_NOTIFY_RELEASED)
        return;
    atomic_fetch_add(&slow->calls, 1);
    atomic_store(&slow->inside, true);
    wait_until(may_return, slow, HANG_MS);
}

static hf_listener *listen_slowly(hf_client *client, struct slow *slow) {
    hf_listener *listener;
    *slow = (struct slow){.notification_log = notification_log_new()};
    assert_int_equal(hf_listen(client, WORLD_NAME, wait_inside, slow, &listener), HF_OK);
    assert_true(notification_log_wait(slow->notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    return listener;
}

/* Whatever was published before this call has been heard: another connection has been made since. */
static void let_all_be_received(struct world *w) {
    uint64_t before = world_stats(w->client).reconnects;
    cmd_ok(w->server, "CLIENT KILL TYPE pubsub");
    assert_true(WAIT_FOR(
        world_stats(w->client).reconnects != before && world_channels(w->server) >= 4, HANG_MS));
}

/* No more than so many are kept; that others were not is said once, after those. */
WORLD_CASE(surplus_names_are_counted) {
    struct slow slow;
    enum { ALL = 3 * HF_NOTIFY_MAX, LATE = 50 };
    hf_listener *listener = listen_slowly(w->client, &slow);
    publish(w->server, 1);
    assert_true(wait_until(is_set, &slow.inside, HANG_MS));
    publish(w->server, ALL - 1);
    let_all_be_received(w);
    atomic_store(&slow.allowed,
                 100); /* there is room again, but what comes now is behind what is missing */
    assert_true(notification_log_wait(slow.notification_log, HF_NOTIFY_RELEASED, 101, HANG_MS));
    publish(w->server, LATE);
    let_all_be_received(w);
    atomic_store(&slow.allowed, INT_MAX);
    assert_true(notification_log_wait(slow.notification_log, HF_NOTIFY_MISSED, 1, HANG_MS));
    /* what it is now was missed, too, and is said once more */
    assert_true(notification_log_wait(slow.notification_log, HF_NOTIFY_SUBSCRIBED, 2, HANG_MS));
    int notified = notification_log_count(slow.notification_log, HF_NOTIFY_RELEASED);
    int64_t missed = notification_log_last(slow.notification_log, HF_NOTIFY_MISSED).number;
    assert_in_range(atomic_load(&slow.before_missed), 1, HF_NOTIFY_MAX + 1);
    assert_int_equal(notified, atomic_load(&slow.before_missed));
    assert_in_range(notified + missed, ALL + LATE, ALL + LATE + 8); /* and how it stood */
    publish(w->server, 1);
    assert_true(
        notification_log_wait(slow.notification_log, HF_NOTIFY_RELEASED, notified + 1, HANG_MS));
    assert_int_equal(notification_log_count(slow.notification_log, HF_NOTIFY_MISSED), 1);
    hf_listener_free(listener);
    notification_log_free(slow.notification_log);
}

/* ---- The end ---- */

struct freeing {
    hf_listener *listener;
    atomic_bool done;
};

static void *free_listener(void *arg) {
    struct freeing *freeing = arg;
    hf_listener_free(freeing->listener);
    atomic_store(&freeing->done, true);
    return NULL;
}

/* Nothing is reported any more once it is freed, and what it uses may go. */
WORLD_CASE(freeing_waits_for_the_callback) {
    struct slow slow;
    struct freeing freeing = {.listener = listen_slowly(w->client, &slow)};
    publish(w->server, 5);
    assert_true(wait_until(is_set, &slow.inside, HANG_MS));
    pthread_t thread = started(free_listener, &freeing);
    assert_true(world_wait_no_channels(w->server, HANG_MS)); /* it has begun */
    assert_true(HOLDS_FOR(!atomic_load(&freeing.done),
                          50)); /* in which it would be done, if it did not wait */
    atomic_store(&slow.allowed, INT_MAX);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(notification_log_count(slow.notification_log, HF_NOTIFY_RELEASED), 1);
    notification_log_free(slow.notification_log);
    publish(w->server, 5);
    assert_true(world_wait_no_channels(w->server, HANG_MS));
}

struct once {
    atomic_int calls;
};

static void free_itself(hf_listener *listener, const hf_notification *notification, void *user) {
    struct once *once = user;
    if (notification->kind == HF_NOTIFY_RELEASED && atomic_fetch_add(&once->calls, 1) == 0)
        hf_listener_free(listener);
}

CASE(a_callback_may_free_its_listener) {
    OWN(world_end) struct world w;
    struct once once = {0};
    struct notification_log *notification_log = notification_log_new();
    hf_listener *mortal, *listener;
    world_begin(&w, NULL);
    assert_int_equal(hf_listen(w.client, WORLD_NAME, free_itself, &once, &mortal), HF_OK);
    assert_int_equal(
        hf_listen(w.client, WORLD_NAME, notification_log_add, notification_log, &listener), HF_OK);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    publish(w.server, 10);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_RELEASED, 10, HANG_MS));
    assert_int_equal(atomic_load(&once.calls), 1);
    hf_listener_free(listener);
    notification_log_free(notification_log);
}

/* And may begin to listen, but must not wait. */
struct chain {
    hf_client *client;
    struct notification_log *notification_log;
    hf_listener *next;
    atomic_int err;
    atomic_bool begun;
};

static void listen_on(hf_listener *listener, const hf_notification *notification, void *user) {
    struct chain *chain = user;
    (void)listener;
    if (notification->kind != HF_NOTIFY_SUBSCRIBED || atomic_load(&chain->begun))
        return;
    atomic_store(&chain->err, hf_listen(chain->client, "another", notification_log_add,
                                        chain->notification_log, &chain->next));
    if (hf_close(chain->client) != HF_EDEADLK || hf_ping(chain->client) != HF_EDEADLK)
        atomic_store(&chain->err, HF_ESYS);
    atomic_store(&chain->begun, true);
}

WORLD_CASE(a_callback_may_begin_to_listen) {
    hf_listener *listener;
    struct chain chain = {.client = w->client, .notification_log = notification_log_new()};
    assert_int_equal(hf_listen(w->client, WORLD_NAME, listen_on, &chain, &listener), HF_OK);
    assert_true(wait_until(is_set, &chain.begun, HANG_MS));
    assert_int_equal(atomic_load(&chain.err), HF_OK);
    assert_true(notification_log_wait(chain.notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    hf_listener_free(listener);
    hf_listener_free(chain.next);
    notification_log_free(chain.notification_log);
}

static void *close_client(void *arg) {
    hf_close(arg);
    return NULL;
}

/* The client goes first, while it tells and has more to tell. When it has gone nothing is reported. */
WORLD_CASE(closing_ends_it) {
    struct slow slow;
    hf_listener *listener = listen_slowly(w->client, &slow);
    publish(w->server, 20);
    assert_true(wait_until(is_set, &slow.inside, HANG_MS));
    pthread_t thread = started(close_client, w->client);
    hf_listener *late;
    int err = HF_OK;
    while (err != HF_ECLOSED) { /* until that has begun */
        err = hf_listen(w->client, "another", notification_log_add, slow.notification_log, &late);
        if (err == HF_OK)
            hf_listener_free(late);
    }
    atomic_store(&slow.allowed, INT_MAX);
    assert_int_equal(pthread_join(thread, NULL), 0);
    size_t notified = notification_log_count(slow.notification_log, HF_NOTIFY_RELEASED);
    assert_int_equal(hf_open(proxy_url(w->proxy), NULL, &w->client), HF_OK);
    publish(w->server, 20);
    assert_int_equal(notification_log_count(slow.notification_log, HF_NOTIFY_RELEASED), notified);
    hf_listener_free(listener);
    notification_log_free(slow.notification_log);
}

/* Messages stream in while listeners come and go, on several threads. */
struct storm {
    struct crowd crowd;
    hf_client *client;
    struct notification_log *notification_log;
};

static void *come_and_go(void *arg) {
    struct storm *storm = arg;
    while (!atomic_load(&storm->crowd.over)) {
        hf_listener *listener;
        int err = hf_listen(storm->client, WORLD_NAME, notification_log_add,
                            storm->notification_log, &listener);
        if (crowd_expect(&storm->crowd, err == HF_OK))
            hf_listener_free(listener);
    }
    return NULL;
}

CASE(listeners_come_and_go_in_a_storm) {
    struct world w;
    enum { THREADS = 3 };
    world_begin(&w, NULL);
    struct storm storm = {.client = w.client, .notification_log = notification_log_new()};
    for (int i = 0; i < THREADS; i++)
        crowd_add(&storm.crowd, come_and_go, &storm);
    for (int i = 0; i < 20; i++) {
        publish(w.server, 50);
        cmd_ok(w.server, "CLIENT KILL TYPE pubsub");
    }
    crowd_end(&storm.crowd);
    assert_int_equal(atomic_load(&storm.crowd.failures), 0);
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    world_end(&w);
    notification_log_free(storm.notification_log);
}

/* ---- fork ---- */

struct family {
    hf_client *client;
    hf_listener *listener;
};

static int child_lets_go(void *arg) {
    struct family *family = arg;
    hf_listener *another;
    if (hf_listen(family->client, WORLD_NAME, notification_log_add, NULL, &another) != HF_EFORKED)
        return 10;
    hf_listener_free(family->listener);
    return hf_close(family->client) == HF_OK ? 0 : 11;
}

CASE(a_forked_child_only_lets_go) {
    OWN(world_end) struct world w;
    struct family family;
    struct notification_log *notification_log = notification_log_new();
    world_begin(&w, NULL);
    family.client = w.client;
    assert_int_equal(
        hf_listen(w.client, WORLD_NAME, notification_log_add, notification_log, &family.listener),
        HF_OK);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    assert_true(expect_exit(run_child(child_lets_go, &family), 0, HANG_MS));
    publish(w.server, 1);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_RELEASED, 1, HANG_MS));
    assert_int_equal(notification_log_count(notification_log, HF_NOTIFY_SUBSCRIBED), 1);
    hf_listener_free(family.listener);
    notification_log_free(notification_log);
}

/* ---- By hand ---- */

CASE(losses_are_reported_by_dispatch) {
    OWN(world_end) struct world w;
    hf_listener *listener;
    hf_options options = world_options();
    struct notification_log *notification_log = notification_log_new();
    world_begin(&w, NULL);
    options.flags = HF_MANUAL_DISPATCH;
    hf_client *client = made(hf_open, server_url(w.server), &options);
    assert_int_equal(
        hf_listen(client, WORLD_NAME, notification_log_add, notification_log, &listener), HF_OK);
    while (notification_log_count(notification_log, HF_NOTIFY_SUBSCRIBED) == 0)
        assert_true(hf_dispatch(client, HANG_MS) > 0);
    publish(w.server, 100);
    struct pollfd fd = {.fd = hf_dispatch_fd(client), .events = POLLIN};
    while (notification_log_count(notification_log, HF_NOTIFY_RELEASED) < 100) {
        assert_int_equal(poll(&fd, 1, HANG_MS), 1);
        assert_true(hf_dispatch(client, 0) >= 0);
    }
    publish(w.server, 1); /* is not asked for any more */
    hf_listener_free(listener);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(notification_log_count(notification_log, HF_NOTIFY_RELEASED), 100);
    notification_log_free(notification_log);
}

struct flood {
    struct server *server;
    struct notification_log *notification_log;
    atomic_int notified;
    atomic_bool over;
};

static void *publish_on(void *arg) {
    struct flood *flood = arg;
    while (!atomic_load(&flood->over))
        cmd_ok(flood->server, "EVAL %s 0 " WORLD_CHANNEL,
               "for _ = 1, 100 do redis.call('publish', ARGV[1], '0') end return 1");
    return NULL;
}

/* Longer than the next one takes to come. It ends some time, if nobody else ends it. */
static void take_time(hf_listener *listener, const hf_notification *notification, void *user) {
    struct flood *flood = user;
    notification_log_add(listener, notification, flood->notification_log);
    (void)wait_a_moment();
    if (atomic_fetch_add(&flood->notified, 1) == 4000)
        atomic_store(&flood->over, true);
}

/* News that do not end do not keep hf_dispatch() from returning, and the descriptor says that there is more. */
WORLD_CASE(news_without_end_leave_time_for_others) {
    hf_listener *listener;
    hf_options options = world_options();
    options.flags = HF_MANUAL_DISPATCH;
    struct notification_log *notification_log = notification_log_new();
    struct flood flood = {.server = w->server, .notification_log = notification_log};
    hf_client *client = made(hf_open, server_url(w->server), &options);
    assert_int_equal(hf_listen(client, WORLD_NAME, take_time, &flood, &listener), HF_OK);
    while (notification_log_count(notification_log, HF_NOTIFY_SUBSCRIBED) == 0)
        assert_true(hf_dispatch(client, HANG_MS) > 0);
    pthread_t thread = started(publish_on, &flood);
    struct pollfd fd = {.fd = hf_dispatch_fd(client), .events = POLLIN};
    int most = 0;
    for (int i = 0; i < 2; i++) { /* of which the second finds the queue full */
        assert_int_equal(poll(&fd, 1, HANG_MS), 1);
        int ran = hf_dispatch(client, 0);
        most = ran > most ? ran : most;
    }
    assert_in_range(most, 1, 1100);
    assert_false(atomic_load(&flood.over));
    atomic_store(&flood.over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    hf_listener_free(listener);
    assert_int_equal(hf_close(client), HF_OK);
    notification_log_free(notification_log);
}

/* ---- Arguments ---- */

CASE(wrong_arguments_are_refused) {
    OWN(world_end) struct world w;
    hf_listener *none = NULL;
    static char long_name[70000];
    memset(long_name, 'x', sizeof long_name);
    world_begin(&w, NULL);
    assert_int_equal(hf_listen(NULL, "a", notification_log_add, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen(w.client, NULL, notification_log_add, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen(w.client, "", notification_log_add, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen(w.client, "a", NULL, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen(w.client, "a", notification_log_add, NULL, NULL), HF_EINVAL);
    assert_int_equal(
        hf_listen_bytes(w.client, long_name, sizeof long_name, notification_log_add, NULL, &none),
        HF_EINVAL);
    assert_null(none);
    assert_int_equal(hf_listen_breaks(NULL, notification_log_add, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen_breaks(w.client, NULL, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen_breaks(w.client, notification_log_add, NULL, NULL), HF_EINVAL);
    hf_listener_free(NULL);
}

/* ---- Memory ---- */

static bool has_heard(void *arg) {
    struct notification_log *notification_log = arg;
    return notification_log_count(notification_log, HF_NOTIFY_RELEASED) > 0 ||
           notification_log_count(notification_log, HF_NOTIFY_MISSED) > 0;
}

/* Whichever allocation fails, it is refused, or heard a little later; and all is given back. False: none failed. */
static bool play_with_memory(struct server *server, long fail_at) {
    struct memory memory = {0};
    struct notification_log *notification_log = notification_log_new();
    hf_listener *listener = NULL;
    hf_options options = world_options();
    options.allocator = memory_allocator(&memory);
    hf_client *client = made(hf_open, server_url(server), &options);
    atomic_store(&memory.fail_at, atomic_load(&memory.calls) + fail_at);
    int err = hf_listen(client, WORLD_NAME, notification_log_add, notification_log, &listener);
    if (err == HF_OK) {
        /* notification of its beginning may be among those that were missed */
        assert_true(WAIT_FOR(notification_log_count(notification_log, HF_NOTIFY_SUBSCRIBED) != 0 ||
                                 has_heard(notification_log),
                             HANG_MS));
        publish(server, 1);
        assert_true(wait_until(has_heard, notification_log, HANG_MS));
    } else {
        assert_int_equal(err, HF_ENOMEM);
        assert_null(listener);
    }
    bool came_to_it = atomic_load(&memory.calls) >= atomic_load(&memory.fail_at);
    hf_listener_free(listener);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
    notification_log_free(notification_log);
    return came_to_it;
}

WORLD_CASE(memory_runs_out_at_each_step) {
    long n = 1;
    while (play_with_memory(w->server, n))
        assert_true(++n < 1000);
    assert_true(n > 5);
}

RUN_CASES(world_start_server, world_stop_server)
