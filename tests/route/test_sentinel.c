/*
 * A primary that dies, or fails over by hand: holds stay held, waiters get the lock, releases
 * succeed. With real servers and sentinels.
 */
#include "route/scene.h"
#include "support/crowd.h"
#include "support/notification_log.h"

/* ---- Killed ---- */

static const any_kind kinds[] = {HF_PLAIN, HF_PLAIN | HF_FENCED, HF_FAIR, HF_READ, HF_WRITE,
                                 HF_STRING};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* Of each kind one with a watchdog and one with a lease. */
SCENE_CASE(killed_while_held) {
    hf_lock *locks[2 * KINDS], *rivals[2 * KINDS];
    for (size_t i = 0; i < 2 * KINDS; i++) {
        own_text *name = text_of("held-%zu", i);
        locks[i] = scene_lock(s->client, kinds[i / 2], name);
        rivals[i] = scene_lock(s->rival, scene_rival_of(kinds[i / 2]), name);
        scene_acquire(locks[i], i % 2 == 0 ? HF_WATCHDOG : LONG_MS, NULL);
    }
    scene_replicate(s);
    scene_kill_primary(s);
    assert_true(scene_wait_switches(s->client, 1));
    for (size_t i = 0; i < 2 * KINDS; i++)
        scene_release_held(locks[i], rivals[i]);
    assert_int_equal(scene_stats(s->client).losses, 0);
    assert_int_equal(scene_stats(s->client).failovers, 1);
}

/* The waiter subscribes at the new primary, and is then notified of the release. */
static bool has_channel(void *arg) {
    redisReply *reply = cmd(arg, "PUBSUB CHANNELS *{waited}*");
    bool any = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
    if (reply != NULL)
        freeReplyObject(reply);
    return any;
}

static void killed_while_waited_for(any_kind kind) {
    OWN(scene_end) struct scene s;
    struct scene_waiter waiter;
    scene_begin(&s, NULL);
    own_lock *lock = scene_lock(s.client, kind, "waited");
    own_lock *rival = scene_lock(s.rival, kind, "waited");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_wait_for(&waiter, rival);
    assert_true(wait_until(has_channel, watched_primary(s.watched), HANG_MS));
    scene_replicate(&s);
    struct server *primary = scene_kill_primary(&s);
    assert_true(wait_until(has_channel, primary, HANG_MS));
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(scene_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(rival, waiter.owner), HF_OK);
}

/* Nobody here sends a command: it is the listening that finds the new primary. */
CASE(killed_while_listened_to) {
    OWN(scene_end) struct scene s;
    hf_listener *listener;
    struct notification_log *notification_log = notification_log_new();
    scene_begin(&s, NULL);
    assert_int_equal(
        hf_listen(s.client, "waited", notification_log_add, notification_log, &listener), HF_OK);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_SUBSCRIBED, 1, HANG_MS));
    struct server *primary = scene_kill_primary(&s);
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_SUBSCRIBED, 2, HANG_MS));
    assert_true(wait_until(has_channel, primary, HANG_MS));
    cmd_ok(primary, "PUBLISH redisson_lock__channel:{waited} 0");
    assert_true(notification_log_wait(notification_log, HF_NOTIFY_RELEASED, 1, HANG_MS));
    hf_listener_free(listener);
    notification_log_free(notification_log);
}

CASE(killed_while_a_plain_one_is_waited_for) {
    killed_while_waited_for(HF_PLAIN);
}

CASE(killed_while_a_fair_one_is_waited_for) {
    killed_while_waited_for(HF_FAIR);
}

/* Nobody is there to take it, and it is taken all the same, by who is there next. */
SCENE_CASE(killed_before_a_release) {
    own_lock *lock = scene_lock(s->client, HF_PLAIN, "released");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_replicate(s);
    struct server *old = watched_primary(s->watched);
    server_kill(old);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    struct server *primary = watched_wait_switch(s->watched, old);
    assert_false(key_exists(primary, "released"));
    assert_int_equal(scene_stats(s->client).failovers, 1);
}

SCENE_CASE(killed_before_an_acquire) {
    own_lock *lock = scene_lock(s->client, HF_PLAIN, "acquired");
    struct server *old = watched_primary(s->watched);
    server_kill(old);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_ptr_not_equal(watched_primary(s->watched), old);
}

/* ---- By hand ---- */

struct busy {
    struct crowd *crowd;
    hf_client *client;
    int number;
    atomic_int rounds;
    int wrong; /* an error that no patient call should see; HF_OK: none */
};

/* Writes to the old primary after the new one began may be lost; then the loss is reported. */
static void *be_busy(void *arg) {
    struct busy *busy = arg;
    own_text *name = text_of("busy-%d", busy->number);
    hf_lock *lock;
    if (hf_lock_new(busy->client, name, &lock) != HF_OK)
        return NULL;
    while (!atomic_load(&busy->crowd->over) && busy->wrong == HF_OK) {
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

static void busy_begin(struct busy *busy, int len, struct crowd *crowd, struct scene *s) {
    for (int i = 0; i < len; i++) {
        busy[i] =
            (struct busy){.crowd = crowd, .client = i % 2 == 0 ? s->client : s->rival, .number = i};
        crowd_add(crowd, be_busy, &busy[i]);
    }
}

/* Each gets on from here, and met no such error. */
static void busy_end(struct busy *busy, int len, struct crowd *crowd) {
    for (int i = 0; i < len; i++) {
        atomic_store(&busy[i].rounds, 0);
        assert_true(wait_until(goes_on, &busy[i], HANG_MS));
    }
    crowd_end(crowd);
    for (int i = 0; i < len; i++)
        assert_int_equal(busy[i].wrong, HF_OK);
}

SCENE_CASE(U90_by_hand_there_and_back) {
    struct busy busy[4];
    struct crowd crowd = {0};
    busy_begin(busy, 4, &crowd, s);
    for (uint64_t round = 1; round <= 2; round++) {
        struct server *old = watched_primary(s->watched);
        watched_fail_over(s->watched);
        watched_wait_switch(s->watched, old);
        assert_true(scene_wait_switches(s->client, round));
        assert_true(scene_wait_switches(s->rival, round));
        watched_heal(s->watched);
    }
    busy_end(busy, 4, &crowd);
}

/* One server after the other, as they are upgraded: those that only follow are ended, and the primary when another has
 * taken over for it. */
SCENE_CASE(C327_restarted_one_by_one) {
    struct busy busy[2];
    struct crowd crowd = {0};
    own_lock *lock = scene_lock(s->client, HF_PLAIN, "rolling");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    busy_begin(busy, 2, &crowd, s);
    for (int i = 0; i < WATCHED_SERVERS; i++) {
        struct server *server = watched_server(s->watched, i);
        scene_replicate(s);
        if (watched_primary(s->watched) == server) {
            watched_fail_over(s->watched);
            watched_wait_switch(s->watched, server);
            watched_heal(s->watched);
        }
        server_kill(server);
        watched_heal(s->watched);
    }
    busy_end(busy, 2, &crowd);
    assert_int_equal(hf_lock_release(lock), HF_OK);
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
 * reaches it then, but what was sent before: so nothing is looked at, which might be just then. */
SCENE_CASE_WITH(frozen_and_woken, scene_options(), options.flags = HF_NO_TRACKING) {
    hf_lock *lock = scene_lock(s->client, HF_PLAIN, "frozen");
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    scene_replicate(s);
    struct server *old = watched_primary(s->watched);
    struct monitor *monitor = monitor_start(old);
    server_freeze(old);
    watched_wait_switch(s->watched, old);
    assert_true(scene_wait_switches(s->client, 1));
    server_unfreeze(old);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(hf_lock_acquire(lock), HF_OK);
        assert_int_equal(hf_lock_release(lock), HF_OK);
    }
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(wait_until(is_replica, old, HANG_MS));
    assert_int_equal(monitor_count(monitor, "EVALSHA"), 0);
    assert_int_equal(monitor_count(monitor, hf_client_id(s->client)), 0);
    monitor_stop(monitor);
    hf_lock_free(lock);
}

RUN_CASES(scene_start, scene_stop)
