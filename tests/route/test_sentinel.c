/*
 * A primary that dies, by hand or by accident: what is held stays held, who waits gets the lock, who
 * releases has released. With real servers and sentinels.
 */
#include "route/scene.h"
#include "support/heard.h"

#include <stdio.h>
#include <string.h>

/* ---- Killed ---- */

static const any_kind kinds[] = {HF_PLAIN, HF_PLAIN | HF_FENCED, HF_FAIR, HF_READ, HF_WRITE};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* Of each kind one with a watchdog and one with a lease. */
static void killed_while_held(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    hf_lock *locks[2 * KINDS], *rivals[2 * KINDS];
    for (size_t i = 0; i < 2 * KINDS; i++) {
        char name[16];
        snprintf(name, sizeof name, "held-%zu", i);
        hf_acquire_options options = HF_ACQUIRE_INIT;
        options.lease_ms = i % 2 == 0 ? HF_WATCHDOG : LONG_MS;
        locks[i] = scene_lock(s.client, kinds[i / 2], name);
        rivals[i] = scene_lock(s.rival, kinds[i / 2] == HF_READ ? HF_WRITE : kinds[i / 2], name);
        assert_int_equal(hf_lock_acquire_with(locks[i], &options, NULL), HF_OK);
    }
    scene_replicate(&s);
    scene_kill_primary(&s);
    assert_true(scene_wait_switches(s.client, 1));
    for (size_t i = 0; i < 2 * KINDS; i++) {
        assert_int_equal(hf_lock_try(rivals[i]), HF_EBUSY);
        assert_true(hf_lock_remaining_ms(locks[i]) > 0);
        assert_int_equal(hf_lock_release(locks[i]), HF_OK);
        assert_int_equal(hf_lock_try(rivals[i]), HF_OK);
        hf_lock_free(locks[i]);
        hf_lock_free(rivals[i]);
    }
    assert_int_equal(scene_stats(s.client).losses, 0);
    assert_int_equal(scene_stats(s.client).switches, 1);
    scene_end(&s);
}

/* The waiter is heard at the new primary, and then told of the release. */
static bool has_channel(void *arg) {
    redisReply *reply = cmd(arg, "PUBSUB CHANNELS *{waited}*");
    bool any = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
    if (reply != NULL)
        freeReplyObject(reply);
    return any;
}

static void killed_while_waited_for(any_kind kind) {
    struct scene s;
    struct scene_waiter waiter;
    scene_begin(&s, NULL);
    hf_lock *lock = scene_lock(s.client, kind, "waited");
    hf_lock *rival = scene_lock(s.rival, kind, "waited");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_wait_for(&waiter, rival);
    assert_true(wait_until(has_channel, watched_primary(s.watched), HANG_MS));
    scene_replicate(&s);
    struct server *primary = scene_kill_primary(&s);
    assert_true(wait_until(has_channel, primary, HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
    hf_lock_free(lock);
    hf_lock_free(rival);
    scene_end(&s);
}

/* Nobody here sends a command: it is the listening that finds the new primary. */
static void killed_while_listened_to(void **state) {
    (void)state;
    struct scene s;
    hf_listener *listener;
    struct heard *heard = heard_new();
    scene_begin(&s, NULL);
    assert_int_equal(hf_listen(s.client, "waited", heard_note, heard, &listener), HF_OK);
    assert_true(heard_wait(heard, HF_NEWS_LISTENING, 1, HANG_MS));
    struct server *primary = scene_kill_primary(&s);
    assert_true(heard_wait(heard, HF_NEWS_LISTENING, 2, HANG_MS));
    assert_true(wait_until(has_channel, primary, HANG_MS));
    cmd_ok(primary, "PUBLISH redisson_lock__channel:{waited} 0");
    assert_true(heard_wait(heard, HF_NEWS_RELEASED, 1, HANG_MS));
    hf_listener_free(listener);
    heard_free(heard);
    scene_end(&s);
}

static void killed_while_a_plain_one_is_waited_for(void **state) {
    (void)state;
    killed_while_waited_for(HF_PLAIN);
}

static void killed_while_a_fair_one_is_waited_for(void **state) {
    (void)state;
    killed_while_waited_for(HF_FAIR);
}

/* Nobody is there to take it, and it is taken all the same, by who is there next. */
static void killed_before_a_release(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    hf_lock *lock = scene_lock(s.client, HF_PLAIN, "released");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_replicate(&s);
    struct server *old = watched_primary(s.watched);
    server_kill(old);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    struct server *primary = watched_wait_switch(s.watched, old);
    assert_false(key_exists(primary, "released"));
    assert_int_equal(scene_stats(s.client).switches, 1);
    hf_lock_free(lock);
    scene_end(&s);
}

static void killed_before_an_acquire(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    hf_lock *lock = scene_lock(s.client, HF_PLAIN, "acquired");
    struct server *old = watched_primary(s.watched);
    server_kill(old);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_ptr_not_equal(watched_primary(s.watched), old);
    hf_lock_free(lock);
    scene_end(&s);
}

/* ---- By hand ---- */

struct busy {
    pthread_t thread;
    hf_client *client;
    int number;
    atomic_bool stop;
    atomic_int rounds;
    int wrong; /* an error that nobody who has patience should see; HF_OK: none */
};

/* What was written to the old primary after the new one began may be lost, and then it is told. */
static void *be_busy(void *arg) {
    struct busy *busy = arg;
    char name[16];
    snprintf(name, sizeof name, "busy-%d", busy->number);
    hf_lock *lock;
    if (hf_lock_new(busy->client, name, &lock) != HF_OK)
        return NULL;
    while (!atomic_load(&busy->stop) && busy->wrong == HF_OK) {
        int err = hf_lock_acquire(lock);
        if (err == HF_OK)
            err = hf_lock_release(lock);
        if (err != HF_OK && err != HF_ELOST)
            busy->wrong = err;
        atomic_fetch_add(&busy->rounds, 1);
    }
    hf_lock_free(lock);
    return NULL;
}

static bool goes_on(void *arg) {
    return atomic_load(&((struct busy *)arg)->rounds) > 0;
}

static void U90_by_hand_there_and_back(void **state) {
    (void)state;
    struct scene s;
    struct busy busy[4];
    scene_begin(&s, NULL);
    for (int i = 0; i < 4; i++) {
        busy[i] = (struct busy){.client = i % 2 == 0 ? s.client : s.rival, .number = i};
        assert_int_equal(pthread_create(&busy[i].thread, NULL, be_busy, &busy[i]), 0);
    }
    for (uint64_t round = 1; round <= 2; round++) {
        struct server *old = watched_primary(s.watched);
        watched_fail_over(s.watched);
        watched_wait_switch(s.watched, old);
        assert_true(scene_wait_switches(s.client, round));
        assert_true(scene_wait_switches(s.rival, round));
        watched_heal(s.watched);
    }
    for (int i = 0; i < 4; i++) {
        atomic_store(&busy[i].rounds, 0);
        assert_true(wait_until(goes_on, &busy[i], HANG_MS));
        atomic_store(&busy[i].stop, true);
        pthread_join(busy[i].thread, NULL);
        assert_int_equal(busy[i].wrong, HF_OK);
    }
    scene_end(&s);
}

/* One server after the other, as they are upgraded: those that only follow are ended, and the primary when another has
 * taken over for it. */
static void restarted_one_by_one(void **state) {
    (void)state;
    struct scene s;
    struct busy busy[2];
    scene_begin(&s, NULL);
    hf_lock *lock = scene_lock(s.client, HF_PLAIN, "rolling");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    for (int i = 0; i < 2; i++) {
        busy[i] = (struct busy){.client = i == 0 ? s.client : s.rival, .number = i};
        assert_int_equal(pthread_create(&busy[i].thread, NULL, be_busy, &busy[i]), 0);
    }
    for (int i = 0; i < WATCHED_SERVERS; i++) {
        struct server *server = watched_server(s.watched, i);
        scene_replicate(&s);
        if (watched_primary(s.watched) == server) {
            watched_fail_over(s.watched);
            watched_wait_switch(s.watched, server);
            watched_heal(s.watched);
        }
        server_kill(server);
        watched_heal(s.watched);
    }
    for (int i = 0; i < 2; i++) {
        atomic_store(&busy[i].rounds, 0);
        assert_true(wait_until(goes_on, &busy[i], HANG_MS));
        atomic_store(&busy[i].stop, true);
        pthread_join(busy[i].thread, NULL);
        assert_int_equal(busy[i].wrong, HF_OK);
    }
    assert_int_equal(hf_lock_release(lock), HF_OK);
    hf_lock_free(lock);
    scene_end(&s);
}

/* ---- Frozen ---- */

static bool is_replica(void *arg) {
    redisReply *reply = cmd(arg, "ROLE");
    bool replica = reply != NULL && reply->type == REDIS_REPLY_ARRAY &&
                   strcmp(reply->element[0]->str, "slave") == 0;
    if (reply != NULL)
        freeReplyObject(reply);
    return replica;
}

/* The old primary was only stopped, and goes on as if nothing had been when it wakes. Nothing of ours
 * reaches it then. */
static void frozen_and_woken(void **state) {
    (void)state;
    struct scene s;
    scene_begin(&s, NULL);
    hf_lock *lock = scene_lock(s.client, HF_PLAIN, "frozen");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_replicate(&s);
    struct server *old = watched_primary(s.watched);
    struct monitor *monitor = monitor_start(old);
    server_freeze(old);
    watched_wait_switch(s.watched, old);
    assert_true(scene_wait_switches(s.client, 1));
    server_unfreeze(old);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_until(is_replica, old, HANG_MS));
    assert_int_equal(monitor_count(monitor, "EVALSHA"), 0);
    assert_int_equal(monitor_count(monitor, hf_client_id(s.client)), 0);
    monitor_stop(monitor);
    hf_lock_free(lock);
    scene_end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_while_held),
        cmocka_unit_test(killed_while_listened_to),
        cmocka_unit_test(killed_while_a_plain_one_is_waited_for),
        cmocka_unit_test(killed_while_a_fair_one_is_waited_for),
        cmocka_unit_test(killed_before_a_release),
        cmocka_unit_test(killed_before_an_acquire),
        cmocka_unit_test(U90_by_hand_there_and_back),
        cmocka_unit_test(restarted_one_by_one),
        cmocka_unit_test(frozen_and_woken),
    };
    return cmocka_run_group_tests(tests, scene_start, scene_stop);
}
