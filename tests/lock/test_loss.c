/*
 * Loss is never silent: the callback, the descriptor, the next call, the counter.
 *
 * A hold is lost in each way a server can lose it, and every sign of it must be there, once. The
 * callback runs with nothing of ours locked, so the handle may be freed in it, by it or beside it.
 */
#include "lock/world.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

static void begin(struct world *w, int64_t watchdog_ms) {
    hf_options options = world_options();
    options.watchdog_ms = watchdog_ms;
    world_begin(w, &options);
}

static void acquire_lease(hf_lock *lock, int64_t lease_ms) {
    hf_acquire_options options = world_wait_for(0, lease_ms);
    assert_int_equal(hf_lock_acquire_with(lock, &options, NULL), HF_OK);
}

static bool is_readable(int fd, int64_t limit_ms) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, (int)limit_ms) == 1;
}

/* Every sign of one loss, and then none of a second. */
static void expect_lost_once(struct world *w, struct world_events *events, int fd) {
    assert_true(is_readable(fd, HANG_MS));
    assert_true(world_wait_atomic(&events->losses, 1, HANG_MS));
    uint64_t losses = 0;
    assert_int_equal(read(fd, &losses, sizeof losses), sizeof losses);
    assert_int_equal(losses, 1);
    assert_false(is_readable(fd, 0));
    assert_int_equal(hf_lock_remaining_ms(w->lock, 0), 0);
    assert_int_equal(world_stats(w->client).losses, 1);
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_not_equal(hf_last_error()->text[0], '\0');
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK); /* as if nothing had been */
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(atomic_load(&events->losses), 1);
    assert_int_equal(world_stats(w->client).losses, 1);
    assert_false(is_readable(fd, 0));
}

static void lose_by(int64_t watchdog_ms, int64_t lease_ms, void (*lose)(struct world *w)) {
    struct world w;
    struct world_events events = {0};
    begin(&w, watchdog_ms);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    int fd = hf_lock_lost_fd(w.lock);
    assert_true(fd >= 0);
    assert_int_equal(hf_lock_lost_fd(w.lock), fd);
    acquire_lease(w.lock, lease_ms);
    acquire_lease(w.lock, lease_ms);
    assert_false(is_readable(fd, 0));
    lose(&w);
    expect_lost_once(&w, &events, fd);
    if (lease_ms != HF_WATCHDOG)
        assert_int_equal(atomic_load(&events.warnings), 1);
    assert_int_equal(atomic_load(&events.orphans), 0);
    world_end(&w);
}

static void by_del(struct world *w) {
    cmd_ok(w->server, "DEL %s", WORLD_NAME);
}

static void by_flush(struct world *w) {
    cmd_ok(w->server, "FLUSHALL");
}

static void by_another_owner(struct world *w) {
    cmd_ok(w->server, "DEL %s", WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    sleep_ms(300); /* a renewal or two, which must not touch it */
    assert_int_equal(world_count(w, w->rival_owner), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

static void by_another_type(struct world *w) {
    cmd_ok(w->server, "SET %s text", WORLD_NAME);
    sleep_ms(300);
    cmd_ok(w->server, "DEL %s", WORLD_NAME);
}

static void by_break(struct world *w) {
    bool broken = false;
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_true(broken);
}

static void by_waiting(struct world *w) {
    (void)w;
}

static void lost_by_del(void **state) {
    (void)state;
    lose_by(600, HF_WATCHDOG, by_del);
}

static void lost_by_flushall(void **state) {
    (void)state;
    lose_by(600, HF_WATCHDOG, by_flush);
}

static void lost_to_another_owner(void **state) {
    (void)state;
    lose_by(600, HF_WATCHDOG, by_another_owner);
}

static void lost_to_another_type(void **state) {
    (void)state;
    lose_by(600, HF_WATCHDOG, by_another_type);
}

static void lost_by_break_of_another_client(void **state) {
    (void)state;
    lose_by(600, HF_WATCHDOG, by_break);
}

/* A fixed lease ends as was asked: with a warning before, since its work goes on. */
static void lost_by_the_end_of_a_fixed_lease(void **state) {
    (void)state;
    lose_by(60000, 800, by_waiting);
}

/* A break by our own client is known at once, without a renewal; the minute of lease shows it. */
static void lost_by_break_of_its_own_client(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    bool broken = false;
    begin(&w, 60000);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    int fd = hf_lock_lost_fd(w.lock);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_break(w.lock, &broken), HF_OK);
    assert_true(broken);
    expect_lost_once(&w, &events, fd);
    world_end(&w);
}

/* ---- The next call ---- */

static int call_acquire(struct world *w) {
    return hf_lock_acquire(w->lock);
}

static int call_try(struct world *w) {
    return hf_lock_try(w->lock);
}

static int call_extend(struct world *w) {
    return hf_lock_extend(w->lock, 1000);
}

static int call_release(struct world *w) {
    return hf_lock_release(w->lock);
}

static int call_acquire_async(struct world *w) {
    return world_acquire_async(w->lock, 0, 0, NULL);
}

static int call_release_async(struct world *w) {
    return world_release_async(w->lock, 0, NULL);
}

/* Whichever call comes first says it, whether it finds out itself or it was known. */
static void the_next_call_says_so_once(void **state) {
    (void)state;
    int (*const calls[])(struct world *) = {call_acquire, call_try,           call_extend,
                                            call_release, call_acquire_async, call_release_async};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        for (int known = 0; known <= 1; known++) {
            struct world w;
            struct world_events events = {0};
            begin(&w, known ? 300 : 60000);
            assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
            assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
            by_del(&w);
            if (known)
                assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
            assert_int_equal(calls[i](&w), HF_ELOST);
            assert_true(world_free(&w)); /* a nested acquire does not take it anew */
            assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
            assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
            assert_int_equal(hf_lock_extend(w.lock, 1000), HF_ENOTOWNER);
            assert_int_equal(world_stats(w.client).losses, 1);
            assert_int_equal(atomic_load(&events.losses), 1);
            world_end(&w);
        }
    }
}

/* The answer to a nested call comes after the hold's deadline, when its end has been told: too late,
 * whatever it says. Nothing is held afterwards, here or at the server. */
static void answered_after_the_deadline(int (*start)(hf_lock *lock, hf_op **op)) {
    struct world w;
    struct world_events events = {0};
    hf_op *op;
    hf_options options = world_options();
    options.cmd_timeout_ms = 10000;
    world_begin(&w, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    hf_acquire_options brief = world_wait_for(0, 700);
    brief.owner = 9;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_lock_acquire_start(w.lock, &brief, NULL, NULL, &op), HF_OK);
        assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_OK);
        hf_op_free(op);
    }
    proxy_blackhole(w.proxy, false, true);
    struct monitor *monitor = monitor_start(w.server);
    assert_int_equal(start(w.lock, &op), HF_OK);
    assert_true(monitor_wait(monitor, "EVALSHA", 1, HANG_MS)); /* it has run, in time */
    monitor_stop(monitor);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    proxy_heal(w.proxy);
    assert_int_equal(hf_op_wait(op, HANG_MS, NULL), HF_ELOST);
    hf_op_free(op);
    assert_int_equal(hf_lock_remaining_ms(w.lock, 9), 0);
    assert_int_equal(world_stats(w.client).holds, 0);
    assert_int_equal(world_stats(w.client).losses, 1);
    assert_int_equal(hf_lock_release_as(w.lock, 9), HF_ENOTOWNER);
    assert_true(world_wait_free(&w, 60000 / 2)); /* not only when the lease of a minute ends */
    assert_int_equal(hf_lock_try(w.rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(atomic_load(&events.losses), 1);
    world_end(&w);
}

static int start_release(hf_lock *lock, hf_op **op) {
    return hf_lock_release_start(lock, 9, NULL, NULL, op);
}

static int start_acquire(hf_lock *lock, hf_op **op) {
    hf_acquire_options options = world_wait_for(HF_FOREVER, 60000);
    options.owner = 9;
    return hf_lock_acquire_start(lock, &options, NULL, NULL, op);
}

static int start_extend(hf_lock *lock, hf_op **op) {
    return hf_lock_extend_start(lock, 9, 60000, NULL, NULL, op);
}

static void a_nested_release_answered_after_the_deadline(void **state) {
    (void)state;
    answered_after_the_deadline(start_release);
}

static void a_nested_acquire_answered_after_the_deadline(void **state) {
    (void)state;
    answered_after_the_deadline(start_acquire);
}

static void an_extension_answered_after_the_deadline(void **state) {
    (void)state;
    answered_after_the_deadline(start_extend);
}

/* ---- Warnings ---- */

static void a_warning_comes_before_the_loss(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    begin(&w, 900);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    proxy_blackhole(w.proxy, true, true);
    assert_true(world_wait_atomic(&events.warnings, 1, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    int64_t left_ms = atomic_load(&events.warned_with_ms);
    assert_true(left_ms > 0 && left_ms <= 450);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_remaining_ms(w.lock, 0), 0);
    assert_int_equal(atomic_load(&events.warnings), 1);
    assert_true(world_stats(w.client).renew_failures >= 1);
    proxy_heal(w.proxy);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    world_end(&w);
}

static bool renewed(void *client) {
    return world_stats(client).renewals >= 1;
}

/* A warning is only that: the network comes back in time, and nothing is lost. */
static void a_warning_is_not_a_loss(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    begin(&w, 6000);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    proxy_blackhole(w.proxy, true, true);
    assert_true(world_wait_atomic(&events.warnings, 1, HANG_MS));
    proxy_heal(w.proxy);
    assert_true(wait_until(renewed, w.client, HANG_MS));
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_true(hf_lock_remaining_ms(w.lock, 0) > 3000);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    world_end(&w);
}

/* What we believe runs out by itself, with nobody answering, and never promises more than was asked
 * for: the lease counts from before the command was sent. */
static void remaining_counts_down_to_zero(void **state) {
    (void)state;
    struct world w;
    begin(&w, 60000);
    int64_t start_ms = now_ms();
    acquire_lease(w.lock, 500);
    int64_t acquired_ms = now_ms(), before_ms = acquired_ms, left_ms;
    server_freeze(w.server);
    while ((left_ms = hf_lock_remaining_ms(w.lock, 0)) > 0) {
        assert_true(left_ms <= acquired_ms + 500 - before_ms);
        assert_true(before_ms < acquired_ms + HANG_MS);
        sleep_ms(5);
        before_ms = now_ms();
    }
    assert_true(now_ms() >= start_ms + 500);
    server_unfreeze(w.server);
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    world_end(&w);
}

/* ---- Handles ---- */

static void two_handles_are_both_told(void **state) {
    (void)state;
    struct world w;
    struct world_events first = {0}, second = {0}, other = {0};
    hf_lock *twin, *another;
    begin(&w, 600);
    assert_int_equal(hf_lock_new(w.client, WORLD_NAME, &twin), HF_OK);
    assert_int_equal(hf_lock_new(w.client, "another", &another), HF_OK);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &first), HF_OK);
    assert_int_equal(hf_lock_on_lost(twin, world_on_event, &second), HF_OK);
    assert_int_equal(hf_lock_on_lost(another, world_on_event, &other), HF_OK);
    assert_int_equal(hf_lock_on_lost(w.rival_lock, world_on_event, &other), HF_OK);
    int fds[] = {hf_lock_lost_fd(w.lock), hf_lock_lost_fd(twin), hf_lock_lost_fd(another)};
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    by_del(&w);
    assert_true(world_wait_atomic(&first.losses, 1, HANG_MS));
    assert_true(world_wait_atomic(&second.losses, 1, HANG_MS));
    assert_true(is_readable(fds[0], HANG_MS) && is_readable(fds[1], HANG_MS));
    assert_false(is_readable(fds[2], 0));
    assert_int_equal(atomic_load(&first.losses), 1);
    assert_int_equal(atomic_load(&second.losses), 1);
    assert_int_equal(atomic_load(&other.losses), 0);
    assert_int_equal(hf_lock_release(twin), HF_ELOST); /* one loss, told once by a call */
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    hf_lock_free(twin);
    hf_lock_free(another);
    world_end(&w);
}

static void a_callback_is_replaced_and_ended(void **state) {
    (void)state;
    struct world w;
    struct world_events former = {0}, present = {0};
    begin(&w, 300);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &former), HF_OK);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &present), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    by_del(&w);
    assert_true(world_wait_atomic(&present.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(hf_lock_on_lost(w.lock, NULL, NULL), HF_OK);
    int fd = hf_lock_lost_fd(w.lock);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    by_del(&w);
    assert_true(is_readable(fd, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(world_stats(w.client).losses, 2);
    world_end(&w);
    assert_int_equal(atomic_load(&former.losses), 0);
    assert_int_equal(atomic_load(&present.losses), 1);
}

/* What a callback is told of a hold that belongs to nobody's thread. */
struct story {
    atomic_int events;
    hf_event_kind kind;
    hf_owner owner;
    int64_t remaining_ms;
    char reason[128];
};

static void on_story(hf_lock *lock, const hf_event *event, void *user) {
    struct story *story = user;
    (void)lock;
    story->kind = event->kind;
    story->owner = event->owner;
    story->remaining_ms = event->remaining_ms;
    strncpy(story->reason, event->reason, sizeof story->reason - 1);
    atomic_fetch_add(&story->events, 1);
}

static void the_event_says_whose_hold_it_was(void **state) {
    (void)state;
    struct world w;
    struct story story;
    memset(&story, 0, sizeof story);
    begin(&w, 600);
    assert_int_equal(hf_lock_on_lost(w.lock, on_story, &story), HF_OK);
    assert_int_equal(world_acquire_async(w.lock, 77, 0, NULL), HF_OK);
    by_del(&w);
    assert_true(world_wait_atomic(&story.events, 1, HANG_MS));
    assert_int_equal(story.kind, HF_EVENT_LOST);
    assert_int_equal(story.owner, 77);
    assert_int_equal(story.remaining_ms, 0);
    assert_int_not_equal(story.reason[0], '\0');
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER); /* this thread lost nothing */
    assert_int_equal(hf_lock_release_as(w.lock, 77), HF_ELOST);
    world_end(&w);
}

static void free_in_callback(hf_lock *lock, const hf_event *event, void *user) {
    (void)event;
    hf_lock_free(lock);
    atomic_fetch_add((atomic_int *)user, 1);
}

static void a_handle_is_freed_in_its_own_callback(void **state) {
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct world w;
        atomic_int freed = 0;
        struct world_events events = {0};
        hf_lock *doomed, *survivor;
        begin(&w, 300);
        assert_int_equal(hf_lock_new(w.client, WORLD_NAME, &doomed), HF_OK);
        assert_int_equal(hf_lock_new(w.client, WORLD_NAME, &survivor), HF_OK);
        assert_true(hf_lock_lost_fd(doomed) >= 0);
        assert_int_equal(hf_lock_on_lost(doomed, free_in_callback, &freed), HF_OK);
        assert_int_equal(hf_lock_on_lost(survivor, world_on_event, &events), HF_OK);
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        by_del(&w);
        assert_true(world_wait_atomic(&freed, 1, HANG_MS));
        assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
        assert_int_equal(atomic_load(&freed), 1);
        hf_lock_free(survivor);
        world_end(&w);
    }
}

/* A callback that takes its time. */
struct slow {
    atomic_int entered, left;
    atomic_bool freed;
};

static bool is_freed(void *slow) {
    return atomic_load(&((struct slow *)slow)->freed);
}

static void on_lost_slowly(hf_lock *lock, const hf_event *event, void *user) {
    struct slow *slow = user;
    (void)lock;
    (void)event;
    atomic_fetch_add(&slow->entered, 1);
    wait_until(is_freed, slow, 200); /* it must not happen: the free waits for us */
    if (atomic_load(&slow->freed))
        atomic_store(&slow->left, -100);
    atomic_fetch_add(&slow->left, 1);
}

static void free_waits_for_a_running_callback(void **state) {
    (void)state;
    struct world w;
    struct slow slow;
    hf_lock *handle;
    memset(&slow, 0, sizeof slow);
    begin(&w, 300);
    assert_int_equal(hf_lock_new(w.client, WORLD_NAME, &handle), HF_OK);
    assert_int_equal(hf_lock_on_lost(handle, on_lost_slowly, &slow), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    by_del(&w);
    assert_true(world_wait_atomic(&slow.entered, 1, HANG_MS));
    hf_lock_free(handle);
    atomic_store(&slow.freed, true);
    assert_int_equal(atomic_load(&slow.left), 1);
    world_end(&w);
    assert_int_equal(atomic_load(&slow.entered), 1);
}

/* Handles come and go while losses are being told. */
static void handles_freed_and_made_while_losses_are_told(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    begin(&w, 300);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    for (int i = 1; i <= 40; i++) {
        struct world_events passing = {0};
        hf_lock *handles[4];
        bool broken;
        for (int j = 0; j < 4; j++) {
            assert_int_equal(hf_lock_new(w.client, WORLD_NAME, &handles[j]), HF_OK);
            assert_int_equal(hf_lock_on_lost(handles[j], world_on_event, &passing), HF_OK);
        }
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        assert_int_equal(hf_lock_break(w.lock, &broken), HF_OK);
        for (int j = 0; j < 4; j++)
            hf_lock_free(handles[j]);
        /* From here on nothing may touch `passing`. */
        assert_true(atomic_load(&passing.losses) <= 4);
        assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
        assert_true(world_wait_atomic(&events.losses, i, HANG_MS));
    }
    assert_int_equal(atomic_load(&events.losses), 40);
    assert_int_equal(world_stats(w.client).losses, 40);
    world_end(&w);
}

/* ---- What is no loss ---- */

static void *release_it(void *arg) {
    struct world_caller *caller = arg;
    caller->result = hf_lock_release_as(caller->lock, 9);
    return NULL;
}

/* A renewal that is on its way when the lock is released finds it gone: that is the release's doing.
 * The frozen server gets the release first and the delayed renewal second, and answers both at once,
 * so either answer may be the first to be looked at. */
static void a_renewal_overtaken_by_the_release(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    hf_options options = world_options();
    options.watchdog_ms = 900;
    options.cmd_timeout_ms = 10000;
    world_begin(&w, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    hf_acquire_options given = world_wait_for(0, HF_WATCHDOG);
    given.owner = 9;
    for (int i = 0; i < 6; i++) {
        struct world_caller caller = {.lock = w.lock};
        proxy_delay(w.proxy, WORLD_RENEW, 80);
        assert_int_equal(hf_lock_acquire_with(w.lock, &given, NULL), HF_OK);
        sleep_ms(310); /* the renewal is at the proxy */
        server_freeze(w.server);
        assert_int_equal(pthread_create(&caller.thread, NULL, release_it, &caller), 0);
        sleep_ms(100);
        server_unfreeze(w.server);
        assert_int_equal(world_join(&caller), HF_OK);
        proxy_heal(w.proxy);
    }
    assert_int_equal(world_stats(w.client).losses, 0);
    assert_int_equal(hf_lock_acquire_with(w.lock, &given, NULL), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, 9), HF_OK);
    world_end(&w);
    assert_int_equal(atomic_load(&events.losses), 0);
}

static void closing_and_releasing_lose_nothing(void **state) {
    (void)state;
    struct world w;
    struct world_events events = {0};
    begin(&w, 900);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        assert_int_equal(hf_lock_release(w.lock), HF_OK);
    }
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    sleep_ms(1500); /* more than a lease, renewed */
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_stats(w.client).losses, 0);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    world_end(&w);
    assert_int_equal(atomic_load(&events.losses), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_by_del),
        cmocka_unit_test(lost_by_flushall),
        cmocka_unit_test(lost_to_another_owner),
        cmocka_unit_test(lost_to_another_type),
        cmocka_unit_test(lost_by_break_of_another_client),
        cmocka_unit_test(lost_by_the_end_of_a_fixed_lease),
        cmocka_unit_test(lost_by_break_of_its_own_client),
        cmocka_unit_test(the_next_call_says_so_once),
        cmocka_unit_test(a_nested_release_answered_after_the_deadline),
        cmocka_unit_test(a_nested_acquire_answered_after_the_deadline),
        cmocka_unit_test(an_extension_answered_after_the_deadline),
        cmocka_unit_test(a_warning_comes_before_the_loss),
        cmocka_unit_test(a_warning_is_not_a_loss),
        cmocka_unit_test(remaining_counts_down_to_zero),
        cmocka_unit_test(two_handles_are_both_told),
        cmocka_unit_test(a_callback_is_replaced_and_ended),
        cmocka_unit_test(the_event_says_whose_hold_it_was),
        cmocka_unit_test(a_handle_is_freed_in_its_own_callback),
        cmocka_unit_test(free_waits_for_a_running_callback),
        cmocka_unit_test(handles_freed_and_made_while_losses_are_told),
        cmocka_unit_test(a_renewal_overtaken_by_the_release),
        cmocka_unit_test(closing_and_releasing_lose_nothing),
    };
    return cmocka_run_group_tests(tests, world_start_server, world_stop_server);
}
