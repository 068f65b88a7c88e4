/*
 * Listening to a name (hf_listen()): what each kind of lock and thing tells, who else may listen beside it, and what is done
 * about connections that are lost and servers that refuse.
 *
 * How listeners end, and callbacks that are slow, is in test_listen_life.c.
 */
#include "lock/surveys.h"
#include "support/heard.h"
#include "support/new_lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID "5c4dd3c1-6b2f-4c55-9c6a-3a7a0f0b1c2d"

/* So many, and nothing else that is news of the name. */
static void assert_heard(struct ear *ear, hf_news_kind kind, int count) {
    assert_true(heard_wait(ear->heard, kind, count, HANG_MS));
    for (int i = HF_NEWS_MISSED; i <= HF_NEWS_CHANGED; i++)
        if (i != (int)kind)
            assert_int_equal(heard_count(ear->heard, i), 0);
    assert_int_equal(heard_count(ear->heard, kind), count);
}

/* ---- What each kind tells ---- */

static void acquire_and_release(hf_client *client, any_kind kind) {
    hf_lock *lock;
    assert_int_equal(new_lock(client, kind, WORLD_NAME, strlen(WORLD_NAME), &lock), HF_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    hf_lock_free(lock);
}

static void each_lock_tells_of_its_release(void **state) {
    static const struct {
        any_kind kind;
        hf_news_kind news;
    } rows[] = {
        {HF_PLAIN, HF_NEWS_RELEASED},           {HF_PLAIN | HF_NONREENTRANT, HF_NEWS_RELEASED},
        {HF_PLAIN | HF_SPIN, HF_NEWS_RELEASED}, {HF_PLAIN | HF_FENCED, HF_NEWS_RELEASED},
        {HF_READ, HF_NEWS_READ_RELEASED},       {HF_WRITE, HF_NEWS_WRITE_RELEASED}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct world w;
        world_begin(&w, NULL);
        struct ear ear = ear_new(w.client, WORLD_NAME);
        acquire_and_release(w.rival, rows[i].kind);
        assert_heard(&ear, rows[i].news, 3);
        struct heard_news last = heard_last(ear.heard, rows[i].news);
        assert_string_equal(last.name, WORLD_NAME);
        assert_int_equal(last.server, 0);
        assert_int_equal(last.servers, 1);
        ear_free(&ear);
        world_end(&w);
    }
}

static void a_break_and_a_group_tell_of_a_release(void **state) {
    struct world w;
    hf_lock *group;
    const hf_bytes values[] = {{"a", 1}, {"b", 1}};
    (void)state;
    world_begin(&w, NULL);
    struct ear ear = ear_new(w.client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_break(w.rival_lock, NULL), HF_OK);
    assert_heard(&ear, HF_NEWS_RELEASED, 1);
    assert_int_equal(hf_lock_new_group(w.rival, WORLD_NAME, strlen(WORLD_NAME), values, 2, &group),
                     HF_OK);
    assert_int_equal(hf_lock_acquire(group), HF_OK);
    assert_int_equal(hf_lock_release(group), HF_OK);
    assert_heard(&ear, HF_NEWS_RELEASED, 2);
    hf_lock_free(group);
    ear_free(&ear);
    world_end(&w);
}

static void a_semaphore_and_permits_tell_numbers(void **state) {
    struct world w;
    hf_sem *sem;
    bool set;
    (void)state;
    world_begin(&w, NULL);
    struct ear ear = ear_new(w.client, WORLD_NAME);
    assert_int_equal(hf_sem_new(w.rival, WORLD_NAME, &sem), HF_OK);
    assert_int_equal(hf_sem_try_set(sem, 7, 0, &set), HF_OK);
    assert_heard(&ear, HF_NEWS_PERMITS, 1);
    assert_int_equal(heard_last(ear.heard, HF_NEWS_PERMITS).number, 7);
    assert_int_equal(hf_sem_acquire(sem, 2), HF_OK);
    assert_int_equal(hf_sem_release(sem, 2), HF_OK);
    assert_heard(&ear, HF_NEWS_PERMITS, 2);
    assert_true(heard_last(ear.heard, HF_NEWS_PERMITS).number > 0);
    hf_sem_free(sem);
    ear_free(&ear);
    world_end(&w);
}

static void a_latch_tells_that_it_is_open(void **state) {
    struct world w;
    hf_latch *latch;
    bool set;
    (void)state;
    world_begin(&w, NULL);
    struct ear ear = ear_new(w.client, WORLD_NAME);
    assert_int_equal(hf_latch_new(w.rival, WORLD_NAME, &latch), HF_OK);
    assert_int_equal(hf_latch_try_set(latch, 2, &set), HF_OK);
    assert_heard(&ear, HF_NEWS_CLOSED, 1);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_int_equal(hf_latch_count_down(latch), HF_OK);
    assert_true(heard_wait(ear.heard, HF_NEWS_OPENED, 1, HANG_MS));
    hf_latch_free(latch);
    ear_free(&ear);
    world_end(&w);
}

/* How many hear a waiter in line decides who gets the lock: so nobody listens there in its place, nor by a pattern. */
static void whoever_is_in_line_is_left_alone(void **state) {
    struct world w;
    (void)state;
    world_begin(&w, NULL);
    struct ear ear = ear_new(w.client, WORLD_NAME);
    acquire_and_release(w.rival, HF_FAIR);
    assert_int_equal(cmd_int(w.server, "PUBLISH " WORLD_CHANNEL ":" UUID ":1 0"), 0);
    assert_int_equal(cmd_int(w.server, "PUBSUB NUMPAT"), 0);
    assert_int_equal(world_channels(w.server), 4);
    ear_free(&ear);
    world_end(&w);
}

/* ---- What others publish ---- */

static void publish(struct world *w, const char *channel, const char *message) {
    cmd_ok(w->server, "PUBLISH %s %s", channel, message);
}

static void what_java_publishes_is_heard(void **state) {
    struct world w;
    (void)state;
    world_begin(&w, NULL);
    struct ear ear = ear_new(w.client, WORLD_NAME);
    publish(&w, WORLD_CHANNEL, "0");
    assert_heard(&ear, HF_NEWS_RELEASED, 1);
    ear_free(&ear);
    world_end(&w);
}

/* Other names, what means nothing, and what looks like the channel of a waiter. */
static void what_means_nothing_is_not_told(void **state) {
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
    struct world w;
    (void)state;
    world_begin(&w, NULL);
    struct ear ear = ear_new(w.client, WORLD_NAME);
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++)
        publish(&w, said[i][0], said[i][1]);
    publish(&w, WORLD_CHANNEL, "0"); /* and is behind all of these */
    assert_heard(&ear, HF_NEWS_RELEASED, 1);
    ear_free(&ear);
    world_end(&w);
}

static void names_are_heard_whole(void **state) {
    static const char name[] = "a b\0\r\n{c}*";
    struct world w;
    hf_options options = world_options();
    hf_client *client;
    hf_lock *lock;
    struct ear ear = {.heard = heard_new()};
    (void)state;
    world_begin(&w, NULL);
    options.name_prefix = "app x:";
    assert_int_equal(hf_open(server_url(w.server), &options, &client), HF_OK);
    assert_int_equal(
        hf_listen_bytes(client, name, sizeof name, heard_note, ear.heard, &ear.listener), HF_OK);
    assert_true(heard_wait(ear.heard, HF_NEWS_LISTENING, 1, HANG_MS));
    assert_int_equal(hf_lock_new_bytes(client, name, sizeof name, &lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_heard(&ear, HF_NEWS_RELEASED, 1);
    hf_lock_free(lock);
    ear_free(&ear);
    assert_int_equal(hf_close(client), HF_OK);
    world_end(&w);
}

/* ---- Beside others ---- */

static void two_listeners_and_a_waiter_share_a_channel(void **state) {
    struct world w;
    struct world_caller waiter;
    (void)state;
    world_begin(&w, NULL);
    struct ear one = ear_new(w.client, WORLD_NAME), other = ear_new(w.client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    hf_acquire_options options = world_wait_for(HANG_MS, HF_WATCHDOG);
    options.owner = 5;
    world_call_acquire(&waiter, w.lock, options);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_heard(&one, HF_NEWS_RELEASED, 1);
    assert_heard(&other, HF_NEWS_RELEASED, 1);
    ear_free(&one); /* the other still hears */
    assert_int_equal(hf_lock_release_as(w.lock, 5), HF_OK);
    assert_heard(&other, HF_NEWS_RELEASED, 2);
    ear_free(&other);
    assert_true(world_wait_no_channels(w.server, HANG_MS));
    world_end(&w);
}

/* A waiter is woken by a message although it is a listener's subscription, and reads for itself. */
static void a_waiter_beside_a_listener_is_woken(void **state) {
    struct world w;
    (void)state;
    world_begin(&w, NULL);
    struct ear ear = ear_new(w.client, WORLD_NAME);
    for (int i = 0; i < 20; i++) {
        struct world_caller waiter;
        assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
        hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
        options.owner = 5;
        world_call_acquire(&waiter, w.lock, options);
        sleep_ms(5); /* in most rounds it sleeps by now */
        assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
        assert_int_equal(world_join(&waiter), HF_OK);
        assert_true(waiter.took_ms < 5000); /* a poll would come after ten */
        assert_int_equal(hf_lock_release_as(w.lock, 5), HF_OK);
    }
    assert_true(heard_wait(ear.heard, HF_NEWS_RELEASED, 40, HANG_MS));
    ear_free(&ear);
    world_end(&w);
}

/* Whoever is asked who waits does not count who only listens: `holdfast watch` changes nothing in `holdfast ls`. */
static void who_only_listens_is_not_counted(void **state) {
    static const any_kind kinds[] = {HF_PLAIN, HF_WRITE};
    hf_client *listening;
    struct world w;
    (void)state;
    hf_options options = reporting(0);
    world_begin(&w, &options);
    assert_int_equal(hf_open(server_url(w.server), &options, &listening), HF_OK);
    struct ear ear = ear_new(listening, WORLD_NAME);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        hf_lock *held, *wanted;
        hf_op *op;
        assert_int_equal(new_lock(w.client, kinds[i], WORLD_NAME, strlen(WORLD_NAME), &held),
                         HF_OK);
        assert_int_equal(new_lock(w.rival, kinds[i], WORLD_NAME, strlen(WORLD_NAME), &wanted),
                         HF_OK);
        assert_int_equal(hf_lock_acquire(held), HF_OK);
        struct told told = {.client = listening, .name = WORLD_NAME, .holders = 1};
        assert_true(wait_until(is_told, &told, HANG_MS));
        assert_int_equal(find(told.fleet, WORLD_NAME)->listeners, 0);
        assert_int_equal(hf_lock_acquire_start(wanted, NULL, NULL, NULL, &op), HF_OK);
        told.waiters = told.listeners = 1;
        assert_true(wait_until(is_told, &told, HANG_MS));
        assert_int_equal(find(told.fleet, WORLD_NAME)->listeners, 1);
        hf_fleet_free(told.fleet);
        hf_op_cancel(op);
        assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_ECANCELED);
        hf_op_free(op);
        assert_int_equal(hf_lock_release(held), HF_OK);
        hf_lock_free(wanted);
        hf_lock_free(held);
    }
    ear_free(&ear);
    assert_int_equal(hf_close(listening), HF_OK);
    world_end(&w);
}

static void who_only_listens_for_permits_is_not_counted(void **state) {
    hf_permits *permits;
    hf_permit_id id;
    struct world w;
    (void)state;
    hf_options options = reporting(0);
    world_begin(&w, &options);
    struct ear ear = ear_new(w.rival, WORLD_NAME);
    assert_int_equal(hf_permits_new(w.client, WORLD_NAME, &permits), HF_OK);
    assert_int_equal(hf_permits_try_set(permits, 1, &(bool){false}), HF_OK);
    assert_int_equal(hf_permits_acquire(permits, &id), HF_OK);
    struct told told = {.client = w.rival, .name = WORLD_NAME, .holders = 1};
    assert_true(wait_until(is_told, &told, HANG_MS));
    assert_int_equal(find(told.fleet, WORLD_NAME)->listeners, 0);
    hf_fleet_free(told.fleet);
    assert_int_equal(hf_permits_release(permits, &id), HF_OK);
    hf_permits_free(permits);
    ear_free(&ear);
    world_end(&w);
}

/* ---- Connections ---- */

static void whoever_connects_again_says_so(void **state) {
    struct world w;
    (void)state;
    world_begin(&w, NULL);
    struct ear ear = ear_new(w.client, WORLD_NAME);
    cmd_ok(w.server, "CLIENT KILL TYPE pubsub");
    assert_true(heard_wait(ear.heard, HF_NEWS_LISTENING, 2, HANG_MS));
    assert_int_equal(heard_count(ear.heard, HF_NEWS_DEAF), 1);
    assert_int_equal(heard_last(ear.heard, HF_NEWS_DEAF).code, HF_EUNREACH);
    publish(&w, WORLD_CHANNEL, "0");
    assert_heard(&ear, HF_NEWS_RELEASED, 1);
    ear_free(&ear);
    world_end(&w);
}

static void a_server_that_starts_again_is_heard(void **state) {
    struct world w;
    struct server *server = server_start(NULL);
    (void)state;
    world_begin_on(&w, server, NULL);
    struct ear ear = ear_new(w.rival, WORLD_NAME);
    server_restart(server);
    assert_true(heard_wait(ear.heard, HF_NEWS_LISTENING, 2, HANG_MS));
    publish(&w, WORLD_CHANNEL, "0");
    assert_heard(&ear, HF_NEWS_RELEASED, 1);
    ear_free(&ear);
    world_end(&w);
    server_free(server);
}

/* It begins when there is a server, however late that is. */
static void a_server_that_comes_late_is_heard(void **state) {
    struct world w;
    struct ear ear = {.heard = heard_new()};
    (void)state;
    world_begin(&w, NULL);
    proxy_refuse(w.proxy, true);
    proxy_cut_connections(w.proxy, "");
    assert_int_equal(hf_listen(w.client, WORLD_NAME, heard_note, ear.heard, &ear.listener), HF_OK);
    sleep_ms(100);
    assert_int_equal(heard_count(ear.heard, HF_NEWS_LISTENING), 0);
    proxy_refuse(w.proxy, false);
    assert_true(heard_wait(ear.heard, HF_NEWS_LISTENING, 1, HANG_MS));
    ear_free(&ear);
    world_end(&w);
}

/* ---- Rights ---- */

static atomic_int warnings;

static void count_warnings(hf_log_level level, const char *message, void *user) {
    (void)user;
    if (level <= HF_LOG_WARN && strstr(message, "the server refuses to tell") != NULL)
        atomic_fetch_add(&warnings, 1);
}

static hf_client *open_as_guest(struct server *server, const char *channels) {
    hf_client *client;
    hf_options options = world_options();
    cmd_ok(server, "ACL SETUSER guest reset on >secret +@all ~* resetchannels");
    if (channels != NULL)
        cmd_ok(server, "ACL SETUSER guest %s", channels);
    options.user = "guest";
    options.password = "secret";
    options.log = count_warnings;
    atomic_store(&warnings, 0);
    assert_int_equal(hf_open(server_url(server), &options, &client), HF_OK);
    return client;
}

static void whoever_may_hear_nothing_is_told(void **state) {
    struct server *server = world_server();
    struct ear ear = {.heard = heard_new()}, other = {.heard = heard_new()};
    (void)state;
    hf_client *client = open_as_guest(server, NULL);
    assert_int_equal(hf_listen(client, WORLD_NAME, heard_note, ear.heard, &ear.listener), HF_OK);
    assert_int_equal(hf_listen(client, WORLD_NAME, heard_note, other.heard, &other.listener),
                     HF_OK);
    assert_true(heard_wait(ear.heard, HF_NEWS_DEAF, 1, HANG_MS));
    assert_true(heard_wait(other.heard, HF_NEWS_DEAF, 1, HANG_MS));
    assert_int_equal(heard_last(ear.heard, HF_NEWS_DEAF).code, HF_EPERM);
    assert_int_equal(heard_count(ear.heard, HF_NEWS_LISTENING), 0);
    assert_int_equal(atomic_load(&warnings), 1);
    ear_free(&ear);
    ear_free(&other);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(server, "ACL DELUSER guest");
}

/* What the access list of a waiter has is enough for releases. */
static void whoever_may_hear_something_listens(void **state) {
    struct server *server = world_server();
    (void)state;
    hf_client *client = open_as_guest(server, "&" WORLD_CHANNEL);
    struct ear ear = ear_new(client, WORLD_NAME);
    cmd_ok(server, "PUBLISH " WORLD_CHANNEL " 0");
    cmd_ok(server, "PUBLISH redisson_sc:{" WORLD_NAME "} 1");
    cmd_ok(server, "PUBLISH " WORLD_CHANNEL " 0");
    assert_heard(&ear, HF_NEWS_RELEASED, 2);
    assert_int_equal(heard_count(ear.heard, HF_NEWS_DEAF), 0);
    ear_free(&ear);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(server, "ACL DELUSER guest");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_lock_tells_of_its_release),
        cmocka_unit_test(a_break_and_a_group_tell_of_a_release),
        cmocka_unit_test(a_semaphore_and_permits_tell_numbers),
        cmocka_unit_test(a_latch_tells_that_it_is_open),
        cmocka_unit_test(whoever_is_in_line_is_left_alone),
        cmocka_unit_test(what_java_publishes_is_heard),
        cmocka_unit_test(what_means_nothing_is_not_told),
        cmocka_unit_test(names_are_heard_whole),
        cmocka_unit_test(two_listeners_and_a_waiter_share_a_channel),
        cmocka_unit_test(a_waiter_beside_a_listener_is_woken),
        cmocka_unit_test(who_only_listens_is_not_counted),
        cmocka_unit_test(who_only_listens_for_permits_is_not_counted),
        cmocka_unit_test(whoever_connects_again_says_so),
        cmocka_unit_test(a_server_that_starts_again_is_heard),
        cmocka_unit_test(a_server_that_comes_late_is_heard),
        cmocka_unit_test(whoever_may_hear_nothing_is_told),
        cmocka_unit_test(whoever_may_hear_something_listens),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
