/*
 * Lifetimes: close with callers inside, forked children, callbacks, cancelled threads.
 *
 * The request timeout is 20 s where a test shows that a call does not wait for the network. A close
 * or a child that did wait would exceed the much lower hang limit.
 */
#include "net/scene.h"
#include "support/case.h"
#include "support/crowd.h"
#include "support/random.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#define CLOSE_LIMIT_MS 10000 /* half an exchange */

static hf_options slow_options(void) {
    hf_options options = scene_options();
    options.cmd_timeout_ms = 20000;
    options.connect_timeout_ms = 60000;
    return options;
}

/* ---- Close ---- */

struct pingers {
    struct crowd crowd;
    hf_client *client;
};

static void *ping_once(void *arg) {
    struct pingers *pingers = arg;
    atomic_fetch_add(&pingers->crowd.entered, 1);
    return (void *)(intptr_t)hf_ping(pingers->client);
}

struct counted {
    atomic_int calls;
    atomic_int code;
};

static void count_callback(hf_op *op, const hf_result *result, void *user) {
    struct counted *counted = user;
    (void)op;
    atomic_store(&counted->code, result->code);
    atomic_fetch_add(&counted->calls, 1);
}

/* Waiters, drivers and followers, pending operations: close ends them all. */
static void close_with_callers_inside(unsigned flags) {
    enum { WAITERS = 3, PINGERS = 6, OPS = 5 };
    struct server *server = scene_server();
    struct proxy *proxy = proxy_start(server_socket(server));
    size_t fds = scene_fds(), threads = scene_threads();
    hf_client *rival = scene_open(server_url(server), NULL);
    hf_lock *held = scene_lock(rival, "closing");
    assert_int_equal(hf_lock_acquire(held), HF_OK);

    hf_options options = slow_options();
    options.flags = flags;
    hf_client *client = scene_open(proxy_url(proxy), &options);
    hf_lock *lock = scene_lock(client, "closing");
    struct scene_call waiters[WAITERS];
    for (size_t i = 0; i < WAITERS; i++)
        scene_acquire(&waiters[i], lock, HF_FOREVER, NULL);
    /* One of them asks for all: an attempt, a subscription, an attempt. Close would wait for an
     * attempt that is on its way. The ping is answered after the last of them, since callers share
     * one connection as long as no second one can be made. */
    assert_true(proxy_wait_seen(proxy, "closing", 3, HANG_MS));
    proxy_refuse(proxy, true);
    assert_int_equal(hf_ping(client), HF_OK);
    proxy_refuse(proxy, false);
    struct counted counted[OPS];
    memset(counted, 0, sizeof counted);
    proxy_blackhole(proxy, false, true);
    for (size_t i = 0; i < OPS; i++)
        assert_int_equal(hf_ping_start(client, count_callback, &counted[i], NULL), HF_OK);
    struct pingers pingers = {.client = client};
    for (size_t i = 0; i < PINGERS; i++)
        crowd_add(&pingers.crowd, ping_once, &pingers);
    assert_true(WAIT_FOR(atomic_load(&pingers.crowd.entered) == PINGERS, HANG_MS));
    linger(30); /* most of them drive or follow now; any moment must do */

    int64_t start_ms = now_ms();
    assert_int_equal(hf_close(client), HF_OK);
    assert_true(now_ms() - start_ms < CLOSE_LIMIT_MS);
    for (size_t i = 0; i < WAITERS; i++)
        assert_int_equal(scene_join(&waiters[i]), HF_ECLOSED);
    crowd_join_with(&pingers.crowd, (void *)(intptr_t)HF_ECLOSED);
    for (size_t i = 0; i < OPS; i++) {
        assert_int_equal(atomic_load(&counted[i].calls), 1);
        assert_int_equal(atomic_load(&counted[i].code), HF_ECLOSED);
    }
    assert_int_equal(hf_lock_try(lock), HF_ECLOSED);
    assert_int_equal(hf_lock_release(lock), HF_ECLOSED);
    hf_lock_free(lock);
    assert_int_equal(hf_lock_release(held), HF_OK);
    hf_lock_free(held);
    assert_int_equal(hf_close(rival), HF_OK);
    proxy_cut_all(proxy);
    proxy_free(proxy);
    assert_true(scene_fds() <= fds);
    scene_wait_threads(threads);
}

CASE(U59_close_with_callers_inside) {
    close_with_callers_inside(0);
}

CASE(U59_close_with_manual_dispatch) {
    close_with_callers_inside(HF_MANUAL_DISPATCH);
}

static void *dispatch_until_closed(void *arg) {
    int ran;
    while ((ran = hf_dispatch(arg, HF_FOREVER)) >= 0)
        continue;
    return (void *)(intptr_t)ran;
}

CASE(U59_close_ends_a_dispatch) {
    hf_options options = slow_options();
    options.flags = HF_MANUAL_DISPATCH;
    hf_client *client = scene_open(server_url(scene_server()), &options);
    own_lock *keep = scene_lock(client, "keep"); /* so that the late hf_dispatch has a client */
    struct counted counted = {0};
    pthread_t thread;
    pthread_create(&thread, NULL, dispatch_until_closed, client);
    assert_int_equal(hf_ping_start(client, count_callback, &counted, NULL), HF_OK);
    assert_true(WAIT_FOR(atomic_load(&counted.calls) != 0, HANG_MS));
    assert_int_equal(atomic_load(&counted.code), HF_OK);
    assert_int_equal(hf_close(client), HF_OK);
    void *result;
    pthread_join(thread, &result);
    assert_int_equal((int)(intptr_t)result, HF_ECLOSED);
}

/* Closes at any moment of the threads' work; under the sanitizers this finds memory that is freed
 * too early. */
static void *use_until_closed(void *arg) {
    hf_lock *lock = arg;
    int err;
    do {
        err = hf_lock_acquire_for(lock, 5);
        if (err == HF_OK)
            err = hf_lock_release(lock);
    } while (err == HF_OK || err == HF_ETIMEDOUT);
    return (void *)(intptr_t)err;
}

CASE(U59_close_at_any_moment) {
    enum { THREADS = 6 };
    uint64_t random = random_seed();
    for (int round = 0; round < 40; round++) {
        hf_client *client = scene_open(server_url(scene_server()), NULL);
        hf_lock *lock = scene_lock(client, "any moment");
        struct crowd crowd = {0};
        for (size_t i = 0; i < THREADS; i++)
            crowd_add(&crowd, use_until_closed, lock);
        linger((int64_t)(random_next(&random) % 8));
        assert_int_equal(hf_close(client), HF_OK);
        crowd_join_with(&crowd, (void *)(intptr_t)HF_ECLOSED);
        hf_lock_free(lock);
        cmd_ok(scene_server(), "DEL %s", "any moment"); /* a hold may be left to its lease */
    }
}

/* ---- Callbacks ---- */

struct inside {
    hf_client *client;
    hf_lock *lock;
    hf_op *other;
    int codes[8];
    int started;
    struct counted after;
    atomic_bool done;
};

static void call_everything(hf_op *op, const hf_result *result, void *user) {
    struct inside *inside = user;
    bool locked;
    (void)op, (void)result;
    inside->codes[0] = hf_ping(inside->client);
    inside->codes[1] = hf_lock_acquire(inside->lock);
    inside->codes[2] = hf_lock_try(inside->lock);
    inside->codes[3] = hf_lock_release(inside->lock);
    inside->codes[4] = hf_lock_is_locked(inside->lock, &locked);
    inside->codes[5] = hf_op_wait(inside->other, HF_FOREVER, NULL);
    inside->codes[6] = hf_close(inside->client);
    inside->codes[7] = hf_dispatch(inside->client, 0) == HF_EDEADLK ||
                               hf_last_error()->code == HF_EINVAL /* not with a thread of ours */
                           ? HF_EDEADLK
                           : HF_OK;
    inside->started = hf_ping_start(inside->client, count_callback, &inside->after, NULL);
    atomic_store(&inside->done, true);
}

static void callbacks_may_not_wait(unsigned flags) {
    hf_options options = scene_options();
    options.flags = flags;
    struct inside inside = {.client = scene_open(server_url(scene_server()), &options)};
    inside.lock = scene_lock(inside.client, "inside");
    assert_int_equal(hf_ping_start(inside.client, NULL, NULL, &inside.other), HF_OK);
    assert_int_equal(hf_ping_start(inside.client, call_everything, &inside, NULL), HF_OK);
    int64_t until_ms = now_ms() + HANG_MS;
    while (!atomic_load(&inside.done) || atomic_load(&inside.after.calls) == 0) {
        assert_true(now_ms() < until_ms);
        if ((flags & HF_MANUAL_DISPATCH) != 0)
            assert_true(hf_dispatch(inside.client, 10) >= 0);
        else
            (void)wait_a_moment();
    }
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(inside.codes[i], HF_EDEADLK);
    assert_int_equal(inside.started, HF_OK);
    assert_int_equal(atomic_load(&inside.after.code), HF_OK);
    hf_op_free(inside.other);
    hf_lock_free(inside.lock);
    assert_int_equal(hf_close(inside.client), HF_OK);
}

CASE(T07_callbacks_may_not_wait) {
    callbacks_may_not_wait(0);
    callbacks_may_not_wait(HF_MANUAL_DISPATCH);
}

static void lost_inside(hf_lock *lock, const hf_event *event, void *user) {
    struct inside *inside = user;
    if (event->kind != HF_EVENT_LOST)
        return;
    inside->codes[0] = hf_lock_release(lock);
    inside->codes[1] = hf_close(inside->client);
    atomic_store(&inside->done, true);
}

CASE(T07_loss_callbacks_may_not_wait) {
    struct inside inside = {.client = scene_open(server_url(scene_server()), NULL)};
    inside.lock = scene_lock(inside.client, "inside");
    assert_int_equal(hf_lock_on_lost(inside.lock, lost_inside, &inside), HF_OK);
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 1500; /* it is held when the call returns */
    assert_int_equal(hf_lock_acquire_with(inside.lock, &options, NULL), HF_OK);
    assert_true(WAIT_FOR(atomic_load(&inside.done), HANG_MS));
    assert_int_equal(inside.codes[0], HF_EDEADLK);
    assert_int_equal(inside.codes[1], HF_EDEADLK);
    hf_lock_free(inside.lock);
    assert_int_equal(hf_close(inside.client), HF_OK);
}

/* ---- fork ---- */

struct family {
    hf_client *client;
    hf_lock *lock, *free_lock;
    hf_op *op;
    hf_cancel *cancel;
    size_t fds_before; /* before the client was opened */
};

/* Returns the number of the first thing that was wrong. */
static int child_calls(void *arg) {
    struct family *family = arg;
    hf_stats stats = HF_STATS_INIT;
    hf_op *op = NULL;
    bool locked;
    int64_t ttl_ms;
    if (hf_ping(family->client) != HF_EFORKED)
        return 1;
    if (hf_lock_try(family->free_lock) != HF_EFORKED)
        return 2;
    if (hf_lock_acquire(family->lock) != HF_EFORKED)
        return 3;
    if (hf_lock_release(family->lock) != HF_EFORKED)
        return 4;
    if (hf_lock_is_locked(family->lock, &locked) != HF_EFORKED)
        return 5;
    if (hf_lock_acquire_start(family->free_lock, NULL, NULL, NULL, &op) != HF_EFORKED)
        return 6;
    if (hf_client_stats(family->client, &stats) != HF_EFORKED)
        return 7;
    if (hf_op_wait(family->op, HF_FOREVER, NULL) != HF_EFORKED)
        return 8;
    if (hf_lock_ttl_ms(family->lock, &ttl_ms) != HF_EFORKED)
        return 9;
    if (hf_lock_new(family->client, "from the child", &family->free_lock) != HF_EFORKED)
        return 10;
    hf_op_cancel(family->op);
    hf_op_free(family->op);
    hf_lock_free(family->lock);
    if (hf_close(family->client) != HF_OK)
        return 11;
    return scene_fds() == family->fds_before ? 0 : 12;
}

static bool has_verified(void *client) {
    return scene_stats(client).renewals >= 1;
}

CASE(U53_fork_while_holding) {
    struct server *server = scene_server();
    char owner[64];
    struct monitor *monitor = monitor_start(server);
    assert_int_equal(monitor_count(monitor, ""), 0);
    struct family family = {.fds_before = scene_fds()};
    hf_options options = scene_options();
    options.ping_interval_ms = 10 * HANG_MS; /* an idle client sends nothing */
    family.client = scene_open(server_url(server), &options);
    family.lock = scene_lock(family.client, "family");
    family.free_lock = scene_lock(family.client, "family, free");
    scene_owner(family.client, hf_owner_self(), owner);
    assert_int_equal(hf_lock_acquire(family.lock), HF_OK);
    assert_int_equal(scene_ping_async(family.client), HF_OK);
    assert_int_equal(hf_ping_start(family.client, NULL, NULL, &family.op), HF_OK);
    assert_int_equal(hf_op_wait(family.op, HANG_MS, NULL), HF_OK);
    long long before[SCENE_CONNS], after[SCENE_CONNS];
    /* after a second it listens, and asks for what it holds once; from then on it has nothing to say */
    assert_true(wait_until(has_verified, family.client, HANG_MS));
    size_t conns = scene_conns(server, family.client, before);
    assert_int_equal(conns, 3);

    monitor_clear(monitor);
    assert_true(expect_exit(run_child(child_calls, &family), 0, HANG_MS));
    assert_int_equal(monitor_count(monitor, ""), 0); /* the child sent nothing, nor did its end */
    monitor_stop(monitor);
    assert_int_equal(scene_conns(server, family.client, after), conns);
    assert_memory_equal(before, after, conns * sizeof before[0]);
    assert_int_equal(cmd_int(server, "HGET family %s", owner), 1);
    assert_int_equal(hf_lock_release(family.lock), HF_OK);
    assert_int_equal(scene_stats(family.client).reconnects, 0);
    hf_op_free(family.op);
    hf_lock_free(family.lock);
    hf_lock_free(family.free_lock);
    assert_int_equal(hf_close(family.client), HF_OK);
}

static int child_ends(void *arg) {
    struct family *family = arg;
    if (hf_lock_try(family->lock) != HF_EFORKED)
        return 1;
    return hf_close(family->client) == HF_OK ? 0 : 2;
}

static bool has_renewed_twice(void *arg) {
    return scene_stats(arg).renewals >= 2;
}

CASE(U53_the_parents_renewals_go_on) {
    hf_options options = scene_options();
    options.watchdog_ms = ENDURING_MS;
    struct family family = {.client = scene_open(server_url(scene_server()), &options)};
    family.lock = scene_lock(family.client, "family");
    assert_int_equal(hf_lock_acquire(family.lock), HF_OK);
    pid_t child = run_child(child_ends, &family);
    assert_true(expect_exit(child, 0, HANG_MS));
    assert_true(wait_until(has_renewed_twice, family.client, HANG_MS));
    assert_int_equal(hf_lock_release(family.lock), HF_OK);
    assert_int_equal(scene_stats(family.client).losses, 0);
    hf_lock_free(family.lock);
    assert_int_equal(hf_close(family.client), HF_OK);
}

struct busy {
    struct crowd crowd;
    hf_lock *lock;
};

static void *lock_and_unlock(void *arg) {
    struct busy *busy = arg;
    int err = HF_OK;
    while (!atomic_load(&busy->crowd.over) && err == HF_OK) {
        err = hf_lock_acquire(busy->lock);
        if (err == HF_OK)
            err = hf_lock_release(busy->lock);
    }
    return (void *)(intptr_t)err;
}

/* Threads drive, wait in queues and hold mutexes: the child must not run into any of them. */
CASE(U53_fork_while_threads_are_inside) {
    enum { THREADS = 4 };
    struct family family = {.client = scene_open(server_url(scene_server()), NULL)};
    family.lock = scene_lock(family.client, "family");
    struct busy busy = {.lock = family.lock};
    for (size_t i = 0; i < THREADS; i++)
        crowd_add(&busy.crowd, lock_and_unlock, &busy);
    for (int i = 0; i < 25; i++)
        assert_true(expect_exit(run_child(child_ends, &family), 0, HANG_MS));
    crowd_end(&busy.crowd);
    hf_lock_free(family.lock);
    assert_int_equal(hf_close(family.client), HF_OK);
}

static int child_opens_its_own(void *arg) {
    struct family *family = arg;
    hf_client *client = NULL;
    hf_lock *lock = NULL;
    if (hf_close(family->client) != HF_OK)
        return 1;
    if (hf_open(server_url(scene_server()), NULL, &client) != HF_OK)
        return 2;
    if (hf_lock_new(client, "family", &lock) != HF_OK)
        return 3;
    if (hf_lock_try(lock) != HF_EBUSY) /* the parent's, not ours */
        return 4;
    hf_lock_free(lock);
    return hf_close(client) == HF_OK ? 0 : 5;
}

CASE(U53_a_child_opens_a_client_of_its_own) {
    const char *sanitizer = getenv("HF_SANITIZE");
    if (sanitizer != NULL && strcmp(sanitizer, "thread") == 0)
        skip(); /* TSan does not start threads in a child of a program with threads */
    struct family family = {.client = scene_open(server_url(scene_server()), NULL)};
    family.lock = scene_lock(family.client, "family");
    assert_int_equal(hf_lock_acquire(family.lock), HF_OK);
    assert_true(expect_exit(run_child(child_opens_its_own, &family), 0, HANG_MS));
    assert_int_equal(hf_lock_release(family.lock), HF_OK);
    hf_lock_free(family.lock);
    assert_int_equal(hf_close(family.client), HF_OK);
}

/* ---- pthread_cancel ---- */

struct cancelled {
    hf_lock *lock;
    atomic_bool entered, returned;
    atomic_int result;
};

static void *acquire_and_be_cancelled(void *arg) {
    struct cancelled *cancelled = arg;
    atomic_store(&cancelled->entered, true);
    atomic_store(&cancelled->result, hf_lock_acquire(cancelled->lock));
    atomic_store(&cancelled->result, hf_lock_release(cancelled->lock));
    atomic_store(&cancelled->returned, true);
    pthread_testcancel();
    return NULL;
}

CASE(T05_pthread_cancel_waits_until_the_call_is_over) {
    struct server *server = scene_server();
    own_client *rival = scene_open(server_url(server), NULL);
    own_client *client = scene_open(server_url(server), NULL);
    hf_lock *held = scene_lock(rival, "cancelled");
    struct cancelled cancelled = {.lock = scene_lock(client, "cancelled")};
    assert_int_equal(hf_lock_acquire(held), HF_OK);
    pthread_t thread;
    pthread_create(&thread, NULL, acquire_and_be_cancelled, &cancelled);
    scene_wait_subscribed(server, "cancelled");
    assert_int_equal(pthread_cancel(thread), 0);
    assert_true(HOLDS_FOR(pthread_tryjoin_np(thread, NULL) == EBUSY, 50)); /* it must not end now */
    assert_int_equal(hf_lock_release(held), HF_OK);
    void *result = NULL;
    pthread_join(thread, &result);
    assert_ptr_equal(result, PTHREAD_CANCELED);
    assert_true(atomic_load(&cancelled.returned));
    assert_int_equal(atomic_load(&cancelled.result), HF_OK);
    assert_false(key_exists(server, "cancelled"));
    hf_lock_free(held);
    hf_lock_free(cancelled.lock);
}

RUN_CASES(scene_start_server, scene_stop_server)
