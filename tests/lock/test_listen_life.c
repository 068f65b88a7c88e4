/*
 * The life of listeners (hf_listen()): how they end, inside their callback and outside, with their client and in a forked child;
 * callbacks that are slow, dispatch by hand, arguments, and memory that runs out.
 *
 * What they hear is in test_listen.c.
 */
#include "lock/world.h"
#include "support/heard.h"
#include "support/memory.h"

#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static void publish(struct server *server, int times) {
    for (int i = 0; i < times; i++)
        cmd_ok(server, "PUBLISH " WORLD_CHANNEL " 0");
}

static bool is_set(void *flag) {
    return atomic_load((atomic_bool *)flag);
}

/* ---- A callback that waits until it may return ---- */

struct slow {
    struct heard *heard;
    atomic_int calls, allowed; /* of releases; the next one waits inside */
    atomic_int before_missed;  /* how many had been told then */
    atomic_bool inside;
};

static bool may_return(void *arg) {
    struct slow *slow = arg;
    return atomic_load(&slow->calls) <= atomic_load(&slow->allowed);
}

static void wait_inside(hf_listener *listener, const hf_news *news, void *user) {
    struct slow *slow = user;
    heard_note(listener, news, slow->heard);
    if (news->kind == HF_NEWS_MISSED)
        atomic_store(&slow->before_missed, atomic_load(&slow->calls));
    if (news->kind != HF_NEWS_RELEASED)
        return;
    atomic_fetch_add(&slow->calls, 1);
    atomic_store(&slow->inside, true);
    wait_until(may_return, slow, HANG_MS);
}

static hf_listener *listen_slowly(hf_client *client, struct slow *slow) {
    hf_listener *listener;
    *slow = (struct slow){.heard = heard_new()};
    assert_int_equal(hf_listen(client, WORLD_NAME, wait_inside, slow, &listener), HF_OK);
    assert_true(heard_wait(slow->heard, HF_NEWS_LISTENING, 1, HANG_MS));
    return listener;
}

/* Whatever was published before this call has been heard: another connection has been made since. */
static void let_all_be_heard(struct world *w) {
    uint64_t before = world_stats(w->client).reconnects;
    cmd_ok(w->server, "CLIENT KILL TYPE pubsub");
    for (int64_t start_ms = now_ms();
         world_stats(w->client).reconnects == before || world_channels(w->server) < 4; sleep_ms(1))
        assert_true(now_ms() - start_ms < HANG_MS);
}

/* No more than so many are kept; that others were not is said once, after those. */
static void what_is_too_much_is_counted(void **state) {
    struct world w;
    struct slow slow;
    enum { ALL = 3 * HF_NEWS_MAX, LATE = 50 };
    (void)state;
    world_begin(&w, NULL);
    hf_listener *listener = listen_slowly(w.client, &slow);
    publish(w.server, 1);
    assert_true(wait_until(is_set, &slow.inside, HANG_MS));
    publish(w.server, ALL - 1);
    let_all_be_heard(&w);
    atomic_store(&slow.allowed,
                 100); /* there is room again, but what comes now is behind what is missing */
    assert_true(heard_wait(slow.heard, HF_NEWS_RELEASED, 101, HANG_MS));
    publish(w.server, LATE);
    let_all_be_heard(&w);
    atomic_store(&slow.allowed, INT_MAX);
    assert_true(heard_wait(slow.heard, HF_NEWS_MISSED, 1, HANG_MS));
    /* what it is now was missed, too, and is said once more */
    assert_true(heard_wait(slow.heard, HF_NEWS_LISTENING, 2, HANG_MS));
    int told = heard_count(slow.heard, HF_NEWS_RELEASED);
    int64_t missed = heard_last(slow.heard, HF_NEWS_MISSED).number;
    assert_in_range(atomic_load(&slow.before_missed), 1, HF_NEWS_MAX + 1);
    assert_int_equal(told, atomic_load(&slow.before_missed));
    assert_in_range(told + missed, ALL + LATE, ALL + LATE + 8); /* and how it stood */
    publish(w.server, 1);
    assert_true(heard_wait(slow.heard, HF_NEWS_RELEASED, told + 1, HANG_MS));
    assert_int_equal(heard_count(slow.heard, HF_NEWS_MISSED), 1);
    hf_listener_free(listener);
    heard_free(slow.heard);
    world_end(&w);
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

/* Nothing is told any more once it is freed, and what it uses may go. */
static void freeing_waits_for_the_callback(void **state) {
    struct world w;
    struct slow slow;
    pthread_t thread;
    (void)state;
    world_begin(&w, NULL);
    struct freeing freeing = {.listener = listen_slowly(w.client, &slow)};
    publish(w.server, 5);
    assert_true(wait_until(is_set, &slow.inside, HANG_MS));
    assert_int_equal(pthread_create(&thread, NULL, free_listener, &freeing), 0);
    sleep_ms(50); /* in which it would be done, if it did not wait */
    assert_false(atomic_load(&freeing.done));
    atomic_store(&slow.allowed, INT_MAX);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(heard_count(slow.heard, HF_NEWS_RELEASED), 1);
    heard_free(slow.heard);
    publish(w.server, 5);
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    world_end(&w);
}

struct once {
    atomic_int calls;
};

static void free_itself(hf_listener *listener, const hf_news *news, void *user) {
    struct once *once = user;
    if (news->kind == HF_NEWS_RELEASED && atomic_fetch_add(&once->calls, 1) == 0)
        hf_listener_free(listener);
}

static void a_callback_may_free_its_listener(void **state) {
    struct world w;
    struct once once = {0};
    struct heard *heard = heard_new();
    hf_listener *mortal, *listener;
    (void)state;
    world_begin(&w, NULL);
    assert_int_equal(hf_listen(w.client, WORLD_NAME, free_itself, &once, &mortal), HF_OK);
    assert_int_equal(hf_listen(w.client, WORLD_NAME, heard_note, heard, &listener), HF_OK);
    assert_true(heard_wait(heard, HF_NEWS_LISTENING, 1, HANG_MS));
    publish(w.server, 10);
    assert_true(heard_wait(heard, HF_NEWS_RELEASED, 10, HANG_MS));
    assert_int_equal(atomic_load(&once.calls), 1);
    hf_listener_free(listener);
    heard_free(heard);
    world_end(&w);
}

/* And may begin to listen, but must not wait. */
struct chain {
    hf_client *client;
    struct heard *heard;
    hf_listener *next;
    atomic_int err;
    atomic_bool begun;
};

static void listen_on(hf_listener *listener, const hf_news *news, void *user) {
    struct chain *chain = user;
    (void)listener;
    if (news->kind != HF_NEWS_LISTENING || atomic_load(&chain->begun))
        return;
    atomic_store(&chain->err,
                 hf_listen(chain->client, "another", heard_note, chain->heard, &chain->next));
    if (hf_close(chain->client) != HF_EDEADLK || hf_ping(chain->client) != HF_EDEADLK)
        atomic_store(&chain->err, HF_ESYS);
    atomic_store(&chain->begun, true);
}

static void a_callback_may_begin_to_listen(void **state) {
    struct world w;
    hf_listener *listener;
    (void)state;
    world_begin(&w, NULL);
    struct chain chain = {.client = w.client, .heard = heard_new()};
    assert_int_equal(hf_listen(w.client, WORLD_NAME, listen_on, &chain, &listener), HF_OK);
    assert_true(wait_until(is_set, &chain.begun, HANG_MS));
    assert_int_equal(atomic_load(&chain.err), HF_OK);
    assert_true(heard_wait(chain.heard, HF_NEWS_LISTENING, 1, HANG_MS));
    hf_listener_free(listener);
    hf_listener_free(chain.next);
    heard_free(chain.heard);
    world_end(&w);
}

static void *close_client(void *arg) {
    hf_close(arg);
    return NULL;
}

/* The client goes first, while it tells and has more to tell. When it has gone nothing is told. */
static void closing_ends_it(void **state) {
    struct world w;
    struct slow slow;
    pthread_t thread;
    (void)state;
    world_begin(&w, NULL);
    hf_listener *listener = listen_slowly(w.client, &slow);
    publish(w.server, 20);
    assert_true(wait_until(is_set, &slow.inside, HANG_MS));
    assert_int_equal(pthread_create(&thread, NULL, close_client, w.client), 0);
    hf_listener *late;
    int err = HF_OK;
    while (err != HF_ECLOSED) { /* until that has begun */
        err = hf_listen(w.client, "another", heard_note, slow.heard, &late);
        if (err == HF_OK)
            hf_listener_free(late);
    }
    atomic_store(&slow.allowed, INT_MAX);
    assert_int_equal(pthread_join(thread, NULL), 0);
    size_t told = heard_count(slow.heard, HF_NEWS_RELEASED);
    assert_int_equal(hf_open(proxy_url(w.proxy), NULL, &w.client), HF_OK);
    publish(w.server, 20);
    assert_int_equal(heard_count(slow.heard, HF_NEWS_RELEASED), told);
    hf_listener_free(listener);
    heard_free(slow.heard);
    world_end(&w);
}

/* Messages stream in while listeners come and go, on several threads. */
struct storm {
    hf_client *client;
    struct heard *heard;
    atomic_bool over;
    atomic_int failures;
};

static void *come_and_go(void *arg) {
    struct storm *storm = arg;
    while (!atomic_load(&storm->over)) {
        hf_listener *listener;
        if (hf_listen(storm->client, WORLD_NAME, heard_note, storm->heard, &listener) != HF_OK)
            atomic_fetch_add(&storm->failures, 1);
        else
            hf_listener_free(listener);
    }
    return NULL;
}

static void listeners_come_and_go_in_a_storm(void **state) {
    struct world w;
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    (void)state;
    world_begin(&w, NULL);
    struct storm storm = {.client = w.client, .heard = heard_new()};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, &storm), 0);
    for (int i = 0; i < 20; i++) {
        publish(w.server, 50);
        cmd_ok(w.server, "CLIENT KILL TYPE pubsub");
    }
    atomic_store(&storm.over, true);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&storm.failures), 0);
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    world_end(&w);
    heard_free(storm.heard);
}

/* ---- fork ---- */

struct family {
    hf_client *client;
    hf_listener *listener;
};

static int child_lets_go(void *arg) {
    struct family *family = arg;
    hf_listener *another;
    if (hf_listen(family->client, WORLD_NAME, heard_note, NULL, &another) != HF_EFORKED)
        return 10;
    hf_listener_free(family->listener);
    return hf_close(family->client) == HF_OK ? 0 : 11;
}

static void a_forked_child_only_lets_go(void **state) {
    struct world w;
    struct family family;
    struct heard *heard = heard_new();
    (void)state;
    world_begin(&w, NULL);
    family.client = w.client;
    assert_int_equal(hf_listen(w.client, WORLD_NAME, heard_note, heard, &family.listener), HF_OK);
    assert_true(heard_wait(heard, HF_NEWS_LISTENING, 1, HANG_MS));
    assert_true(expect_exit(run_child(child_lets_go, &family), 0, HANG_MS));
    publish(w.server, 1);
    assert_true(heard_wait(heard, HF_NEWS_RELEASED, 1, HANG_MS));
    assert_int_equal(heard_count(heard, HF_NEWS_LISTENING), 1);
    hf_listener_free(family.listener);
    heard_free(heard);
    world_end(&w);
}

/* ---- By hand ---- */

static void it_is_told_by_hand(void **state) {
    struct world w;
    hf_client *client;
    hf_listener *listener;
    hf_options options = world_options();
    struct heard *heard = heard_new();
    (void)state;
    world_begin(&w, NULL);
    options.flags = HF_MANUAL_DISPATCH;
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
    assert_int_equal(hf_listen(client, WORLD_NAME, heard_note, heard, &listener), HF_OK);
    while (heard_count(heard, HF_NEWS_LISTENING) == 0)
        assert_true(hf_dispatch(client, HANG_MS) > 0);
    publish(w.server, 100);
    struct pollfd fd = {.fd = hf_dispatch_fd(client), .events = POLLIN};
    while (heard_count(heard, HF_NEWS_RELEASED) < 100) {
        assert_int_equal(poll(&fd, 1, HANG_MS), 1);
        assert_true(hf_dispatch(client, 0) >= 0);
    }
    publish(w.server, 1); /* is not asked for any more */
    hf_listener_free(listener);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(heard_count(heard, HF_NEWS_RELEASED), 100);
    heard_free(heard);
    world_end(&w);
}

struct flood {
    struct server *server;
    struct heard *heard;
    atomic_int told;
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
static void take_time(hf_listener *listener, const hf_news *news, void *user) {
    struct flood *flood = user;
    heard_note(listener, news, flood->heard);
    sleep_ms(1);
    if (atomic_fetch_add(&flood->told, 1) == 4000)
        atomic_store(&flood->over, true);
}

/* News that do not end do not keep hf_dispatch() from returning, and the descriptor says that there is more. */
static void news_without_end_leave_time_for_others(void **state) {
    struct world w;
    hf_client *client;
    hf_listener *listener;
    pthread_t thread;
    hf_options options = world_options();
    (void)state;
    world_begin(&w, NULL);
    options.flags = HF_MANUAL_DISPATCH;
    struct heard *heard = heard_new();
    struct flood flood = {.server = w.server, .heard = heard};
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
    assert_int_equal(hf_listen(client, WORLD_NAME, take_time, &flood, &listener), HF_OK);
    while (heard_count(heard, HF_NEWS_LISTENING) == 0)
        assert_true(hf_dispatch(client, HANG_MS) > 0);
    assert_int_equal(pthread_create(&thread, NULL, publish_on, &flood), 0);
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
    heard_free(heard);
    world_end(&w);
}

/* ---- Arguments ---- */

static void wrong_arguments_are_refused(void **state) {
    struct world w;
    hf_listener *none = NULL;
    static char long_name[70000];
    (void)state;
    memset(long_name, 'x', sizeof long_name);
    world_begin(&w, NULL);
    assert_int_equal(hf_listen(NULL, "a", heard_note, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen(w.client, NULL, heard_note, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen(w.client, "", heard_note, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen(w.client, "a", NULL, NULL, &none), HF_EINVAL);
    assert_int_equal(hf_listen(w.client, "a", heard_note, NULL, NULL), HF_EINVAL);
    assert_int_equal(
        hf_listen_bytes(w.client, long_name, sizeof long_name, heard_note, NULL, &none), HF_EINVAL);
    assert_null(none);
    hf_listener_free(NULL);
    world_end(&w);
}

/* ---- Memory ---- */

static bool has_heard(void *arg) {
    struct heard *heard = arg;
    return heard_count(heard, HF_NEWS_RELEASED) > 0 || heard_count(heard, HF_NEWS_MISSED) > 0;
}

/* Whichever allocation fails, it is refused, or heard a little later; and all is given back. False: none failed. */
static bool play_with_memory(struct server *server, long fail_at) {
    struct memory memory = {0};
    struct heard *heard = heard_new();
    hf_client *client;
    hf_listener *listener = NULL;
    hf_options options = world_options();
    options.allocator = memory_allocator(&memory);
    assert_int_equal(hf_open(server_url(server), &options, &client), HF_OK);
    atomic_store(&memory.fail_at, atomic_load(&memory.calls) + fail_at);
    int err = hf_listen(client, WORLD_NAME, heard_note, heard, &listener);
    if (err == HF_OK) {
        /* news of its beginning may be among those that were missed */
        while (heard_count(heard, HF_NEWS_LISTENING) == 0 && !has_heard(heard))
            sleep_ms(1);
        publish(server, 1);
        assert_true(wait_until(has_heard, heard, HANG_MS));
    } else {
        assert_int_equal(err, HF_ENOMEM);
        assert_null(listener);
    }
    bool came_to_it = atomic_load(&memory.calls) >= atomic_load(&memory.fail_at);
    hf_listener_free(listener);
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(atomic_load(&memory.live), 0);
    heard_free(heard);
    return came_to_it;
}

static void memory_runs_out_at_each_step(void **state) {
    struct world w;
    long n = 1;
    (void)state;
    world_begin(&w, NULL);
    while (play_with_memory(w.server, n))
        assert_true(++n < 1000);
    assert_true(n > 5);
    world_end(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_too_much_is_counted),
        cmocka_unit_test(freeing_waits_for_the_callback),
        cmocka_unit_test(a_callback_may_free_its_listener),
        cmocka_unit_test(a_callback_may_begin_to_listen),
        cmocka_unit_test(closing_ends_it),
        cmocka_unit_test(listeners_come_and_go_in_a_storm),
        cmocka_unit_test(a_forked_child_only_lets_go),
        cmocka_unit_test(it_is_told_by_hand),
        cmocka_unit_test(news_without_end_leave_time_for_others),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(memory_runs_out_at_each_step),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
