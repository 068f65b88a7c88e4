/*
 * R05, R09: a wake-up is a hint, and a waiter that leaves leaves nothing behind.
 *
 * Waiters must get in when no message reaches them (the release fell between attempt and
 * subscription, or the server refuses the subscription). False messages must not mislead them. A
 * cancel at any moment must leave no key, subscription or descriptor behind. Holders use leases of
 * 60 s, so a client that gets in did not wait for the lease.
 */
#include "redis/route/commands.h"
#include "support/crowd.h"
#include "support/random.h"
#include "support/world.h"

#include <dirent.h>

#define LONG_BEFORE_MS 8000 /* before the lease of 60 s, and before the poll of 10 s */

static void assert_comes_in(struct world *w, struct world_caller *waiter) {
    int64_t start_ms = now_ms();
    assert_int_equal(world_join(waiter), HF_OK);
    assert_true(now_ms() - start_ms < LONG_BEFORE_MS);
    assert_int_equal(hf_lock_release_as(w->lock, waiter->owner), HF_OK);
    assert_true(world_free(w));
}

/* ---- How long a wait is ---- */

static int64_t now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* The library's clock has whole milliseconds; a wait may begin at the very end of one. */
WORLD_CASE(U03_a_wait_is_never_too_short) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    for (int i = 0; i < 40; i++) {
        int64_t start_us = now_us();
        assert_int_equal(hf_lock_acquire_for(w->lock, 5), HF_ETIMEDOUT);
        assert_true(now_us() - start_us >= 5000);
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

/* ---- The message that nobody heard ---- */

WORLD_CASE(U34_release_before_the_subscription) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    proxy_stall_request(w->proxy, WORLD_SUBSCRIBE);
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK); /* published to nobody */
    assert_false(atomic_load(&waiter.done));
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_comes_in(w, &waiter);
}

/* The confirmation never comes: it polls instead. */
WORLD_CASE_WITH(U34_subscription_that_is_never_confirmed, world_options(),
                options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    /* so long it waits for the confirmation */
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    proxy_mute_replies_after(w->proxy, WORLD_SUBSCRIBE);
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_fired(w->proxy, 1, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_comes_in(w, &waiter);
}

WORLD_CASE(U36_key_without_lease) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    cmd_ok(w->server, "PERSIST %s", WORLD_NAME);
    assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
    assert_int_equal(hf_lock_acquire_for(w->lock, 200), HF_ETIMEDOUT);
    size_t tries = proxy_seen(w->proxy, WORLD_ACQUIRE);
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, tries + 1, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_comes_in(w, &waiter);

    /* A foreign one that goes without a message: there is still the poll, of 10 s. */
    if (getenv("HF_SOAK") != NULL) {
        cmd_ok(w->server, "HSET %s foreign 1", WORLD_NAME);
        size_t attempts = proxy_seen(w->proxy, WORLD_ACQUIRE);
        world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
        assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, attempts + 2, HANG_MS));
        cmd_ok(w->server, "DEL %s", WORLD_NAME);
        assert_int_equal(world_join(&waiter), HF_OK);
        assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
    }
}

/* The holder's lease ends without a word: the waiter is in by then, without a message. */
WORLD_CASE(R05_lease_that_ends_in_silence) {
    struct world_caller waiter;
    hf_acquire_options fixed = world_wait_for(0, 700);
    int64_t start_ms = now_ms();
    world_acquire_brief(w->rival_lock, &fixed);
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms >= 700);
    assert_true(now_ms() - start_ms < 700 + 6000);
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
}

struct attempts {
    struct server *server;
    long long before;
};

static bool has_attempted(void *arg) {
    struct attempts *attempts = arg;
    return server_calls(attempts->server, "evalsha") > attempts->before;
}

/* The waiter is the one without a proxy, which would be the first to drown. */
WORLD_CASE(U81_garbage_on_the_channel) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    world_call_acquire(&waiter, w->rival_lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(WAIT_FOR(world_channels(w->server) != 0, HANG_MS));
    char *big = malloc(1 << 20);
    memset(big, 'x', 1 << 20);
    cmd_ok(w->server, "PUBLISH %s %s", WORLD_CHANNEL, "");
    cmd_ok(w->server, "PUBLISH %s %s", WORLD_CHANNEL, "abc");
    cmd_ok(w->server, "PUBLISH %s %b", WORLD_CHANNEL, big, (size_t)1 << 20);
    cmd_ok(w->server, "PUBLISH %s %b", WORLD_CHANNEL, "\0\r\n", (size_t)3);
    free(big);

    struct attempts seen = {w->server, server_calls(w->server, "evalsha")};
    int64_t start_ms = now_ms();
    for (int i = 0; i < 20; i++)
        cmd_ok(w->server, "EVAL %s 0 %s",
               "for i = 1, 1000 do redis.call('publish', ARGV[1], '0') end", WORLD_CHANNEL);
    assert_int_equal(hf_ping(w->rival), HF_OK);
    assert_true(wait_until(has_attempted, &seen, HANG_MS));
    sleep_ms(300); /* let it get through them: of what it ignores nothing is seen */
    long long attempts = server_calls(w->server, "evalsha") - seen.before;
    assert_true(attempts <= 64 + (now_ms() - start_ms)); /* one a millisecond at most */
    if (atomic_load(&waiter.done))
        fail_msg("the waiter was led astray: %s", hf_error_name(waiter.result));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w->rival_lock, waiter.owner), HF_OK);
    assert_true(world_free(w));
}

WORLD_CASE(R05_subscribing_forbidden) {
    struct world_caller waiter;
    char url[512];
    hf_options options = world_options();
    cmd_ok(w->server, "ACL SETUSER app on >secret ~* +@all resetchannels");
    options.user = "app";
    options.password = "secret";
    snprintf(url, sizeof url, "%s", server_url(w->server));
    hf_client *client = made(hf_open, url, &options);
    hf_lock *lock = made(hf_lock_new, client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_for(lock, 200), HF_ETIMEDOUT);
    world_call_acquire(&waiter, lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(HOLDS_FOR(!atomic_load(&waiter.done), 100));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(waiter.took_ms < LONG_BEFORE_MS);
    assert_int_equal(hf_lock_release_as(lock, waiter.owner), HF_OK); /* released, not notified */
    assert_true(world_free(w));
    assert_int_equal(world_stats(client).notify_failures, 1);
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(w->server, "ACL DELUSER app");
}

/* ---- Leaving ---- */

/* The one that waits at the server leaves; the next in the queue must not sleep on. */
WORLD_CASE(R05_wakeup_of_a_leaving_waiter_is_passed_on) {
    struct world_caller first, second;
    for (int i = 0; i < 20; i++) {
        own_cancel *cancel;
        hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
        assert_int_equal(hf_cancel_new(&cancel), HF_OK);
        options.cancel = cancel;
        assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
        size_t attempts = proxy_seen(w->proxy, WORLD_ACQUIRE);
        world_call_acquire(&first, w->lock, options);
        assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, attempts + 1, HANG_MS));
        world_call_acquire(&second, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
        assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
        hf_cancel_fire(cancel);
        int err = world_join(&first);
        if (err == HF_OK)
            assert_int_equal(hf_lock_release_as(w->lock, first.owner), HF_OK);
        else
            assert_int_equal(err, HF_ECANCELED);
        assert_comes_in(w, &second);
    }
}

static int count_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    closedir(dir);
    return count;
}

struct hammer {
    hf_lock *lock;
    unsigned seed;
    struct crowd *crowd;
    int bad; /* the first code that should not have come */
    unsigned cancelled, acquired;
};

static void *fire_soon(void *arg) {
    hf_cancel_fire(arg);
    return NULL;
}

/* One acquire, cancelled by another thread some microseconds after it began. */
static int acquire_cancelled(struct hammer *hammer, hf_cancel *cancel) {
    pthread_t thread;
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    options.cancel = cancel;
    hf_cancel_reset(cancel);
    hf_op *op;
    if (rand_r(&hammer->seed) % 2 == 0) { /* asynchronous */
        options.cancel = NULL;
        options.owner = hf_owner_self();
        int err = hf_lock_acquire_start(hammer->lock, &options, NULL, NULL, &op);
        if (err != HF_OK)
            return err;
        linger(rand_r(&hammer->seed) % 2);
        hf_op_cancel(op);
        err = joined(op, NULL);
        return err;
    }
    if (pthread_create(&thread, NULL, fire_soon, cancel) != 0)
        return HF_ESYS;
    int err = hf_lock_acquire_with(hammer->lock, &options, NULL);
    pthread_join(thread, NULL);
    return err;
}

static void *hammer_main(void *arg) {
    struct hammer *hammer = arg;
    hf_cancel *cancel;
    if (hf_cancel_new(&cancel) != HF_OK)
        return NULL;
    while (!atomic_load(&hammer->crowd->over) && hammer->bad == HF_OK) {
        int err = acquire_cancelled(hammer, cancel);
        if (err == HF_OK) {
            hammer->acquired++;
            err = hf_lock_release(hammer->lock);
        } else if (err == HF_ECANCELED) {
            hammer->cancelled++;
            err = HF_OK;
        }
        hammer->bad = err;
    }
    hf_cancel_free(cancel);
    return NULL;
}

static bool no_keys(void *server) {
    return world_keys(server) == 0;
}

/* Cancels at random for a while; afterwards nothing may be left, once the last one is settled. */
static void hammer_for(struct world *w, unsigned seed, int64_t duration_ms) {
    struct hammer hammers[6];
    struct crowd crowd = {0};
    for (size_t i = 0; i < 6; i++) {
        hammers[i] = (struct hammer){.lock = w->lock, .seed = seed + (unsigned)i, .crowd = &crowd};
        crowd_add(&crowd, hammer_main, &hammers[i]);
    }
    for (int64_t start_ms = now_ms(); now_ms() - start_ms < duration_ms;) {
        assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK); /* somebody to wait for */
        (void)wait_a_moment();
        assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    }
    crowd_end(&crowd);
    unsigned cancelled = 0;
    for (size_t i = 0; i < 6; i++) {
        if (hammers[i].bad != HF_OK)
            fail_msg("%s", hf_error_name(hammers[i].bad));
        cancelled += hammers[i].cancelled;
    }
    assert_true(cancelled > 0);
    if (!world_wait_free(w, HANG_MS)) {
        redisReply *left = cmd(w->server, "HGETALL %s", WORLD_NAME);
        fail_msg("left behind: %s = %s, we are %s", left->element[0]->str, left->element[1]->str,
                 w->owner);
    }
    assert_true(wait_until(no_keys, w->server, HANG_MS));
    assert_true(world_wait_no_channels(w->server, HANG_MS));
    assert_int_equal(world_stats(w->client).holds, 0);
    assert_int_equal(world_stats(w->client).losses, 0);
}

CASE(R09_cancelled_at_random_leaves_nothing) {
    struct world w;
    unsigned seed = (unsigned)random_seed();
    world_begin(&w, NULL);
    hammer_for(&w, seed, 1500);
    size_t connections = proxy_connections(w.proxy);
    int fds = count_fds();
    hammer_for(&w, seed + 100, 1500);
    /* A connection of the client may only have been needed now. It is a socket, which callers have a second
     * descriptor of, and an eventfd for; and it costs the proxy two more. One that was there may only now have a
     * caller who reads it. */
    assert_true(proxy_connections(w.proxy) <= 2 + HFI_COMMANDS_MAX);
    assert_int_equal(proxy_open(w.proxy), proxy_connections(w.proxy)); /* none was lost */
    int more = (int)(proxy_connections(w.proxy) - connections);
    int first_read = 2 * (int)connections;
    assert_in_range(count_fds(), fds + 3 * more, fds + 5 * more + first_read);
    struct server *server = w.server;
    world_end(&w); /* nothing is under way after that */
    assert_int_equal(world_keys(server), 0);
}

RUN_CASES(world_start_server, world_stop_server)
