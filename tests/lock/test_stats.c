/*
 * hf_client_stats: each counter moves when, and only when, it should.
 *
 * A scene is run between two readings, and the difference of all counters is compared with what the
 * scene is expected to change, so a counter that moves for no reason fails every scene. `commands`
 * depends on the connection and is looked at where it is exact.
 */
#include "support/world.h"

#include <locale.h>
#include <sys/wait.h>

/* What has changed since `before`; commands and the times aside. */
static void expect_change(struct world *w, const hf_stats *before, const hf_stats *change) {
    hf_stats after = world_stats(w->client);
    assert_int_equal(after.acquired - before->acquired, change->acquired);
    assert_int_equal(after.contended - before->contended, change->contended);
    assert_int_equal(after.timed_out - before->timed_out, change->timed_out);
    assert_int_equal(after.cancelled - before->cancelled, change->cancelled);
    assert_int_equal(after.released - before->released, change->released);
    assert_int_equal(after.renewals - before->renewals, change->renewals);
    assert_int_equal(after.renew_failures - before->renew_failures, change->renew_failures);
    assert_int_equal(after.losses - before->losses, change->losses);
    assert_int_equal(after.in_doubt - before->in_doubt, change->in_doubt);
    assert_int_equal(after.notify_failures - before->notify_failures, change->notify_failures);
    assert_int_equal(after.reconnects - before->reconnects, change->reconnects);
    assert_int_equal(after.holds, change->holds);
    assert_int_equal(after.wait.count, after.acquired);
}

#define EXPECT_CHANGE(w, before, ...)                                                              \
    expect_change(w, before, &(const hf_stats){.size = sizeof(hf_stats), __VA_ARGS__})

WORLD_CASE(acquire_release_and_nesting) {
    hf_stats before = world_stats(w->client);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    EXPECT_CHANGE(w, &before, .acquired = 1, .holds = 1);
    assert_int_equal(hf_lock_try(w->lock), HF_OK);
    EXPECT_CHANGE(w, &before, .acquired = 2, .holds = 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    EXPECT_CHANGE(w, &before, .acquired = 2, .released = 1, .holds = 1);
    assert_int_equal(hf_lock_extend(w->lock, 90000), HF_OK);
    EXPECT_CHANGE(w, &before, .acquired = 2, .released = 1, .holds = 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    EXPECT_CHANGE(w, &before, .acquired = 2, .released = 2);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    EXPECT_CHANGE(w, &before, .acquired = 2, .released = 2);
}

WORLD_CASE(holds_are_counted_per_owner_and_name) {
    hf_stats before = world_stats(w->client);
    hf_lock *locks[10];
    for (int i = 0; i < 10; i++) {
        own_text *name = text_of("n%d", i);
        assert_int_equal(hf_lock_new(w->client, name, &locks[i]), HF_OK);
        assert_int_equal(world_acquire_async(locks[i], (hf_owner)i + 1, 0, NULL), HF_OK);
    }
    EXPECT_CHANGE(w, &before, .acquired = 10, .holds = 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(world_release_async(locks[i], (hf_owner)i + 1, NULL), HF_OK);
        hf_lock_free(locks[i]);
    }
    EXPECT_CHANGE(w, &before, .acquired = 10, .released = 10);
    assert_int_equal(world_stats(w->client).hold.count - before.hold.count, 10);
}

WORLD_CASE(refused_and_timed_out) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_stats before = world_stats(w->client);
    assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
    EXPECT_CHANGE(w, &before, .timed_out = 1);
    assert_int_equal(hf_lock_acquire_for(w->lock, 50), HF_ETIMEDOUT);
    EXPECT_CHANGE(w, &before, .timed_out = 2);
    assert_int_equal(world_acquire_async(w->lock, 5, 50, NULL), HF_ETIMEDOUT);
    EXPECT_CHANGE(w, &before, .timed_out = 3);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

static bool somebody_listens(void *server) {
    return world_channels(server) > 0;
}

WORLD_CASE(contended_is_counted_when_it_had_to_wait) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_stats before = world_stats(w->client);
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_until(somebody_listens, w->server, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    EXPECT_CHANGE(w, &before, .acquired = 1, .contended = 1, .holds = 1);

    /* Waiters in this process, behind another of its owners, had to wait as well. */
    hf_op *ops[2], *ping;
    hf_result results[2] = {HF_RESULT_INIT, HF_RESULT_INIT};
    for (int i = 0; i < 2; i++)
        assert_int_equal(hf_lock_acquire_start(w->lock, NULL, NULL, NULL, &ops[i]), HF_OK);
    assert_int_equal(hf_ping_start(w->client, NULL, NULL, &ping), HF_OK);
    assert_int_equal(hf_op_wait(ping, HANG_MS, NULL), HF_OK); /* begun after them: both wait now */
    hf_op_free(ping);
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(hf_op_wait(ops[i], HANG_MS, &results[i]), HF_OK);
        assert_int_equal(hf_lock_release_as(w->lock, results[i].owner), HF_OK);
        hf_op_free(ops[i]);
    }
    EXPECT_CHANGE(w, &before, .acquired = 3, .contended = 3, .released = 3);
}

/* ---- Cancelled ---- */

/* A wait for a lock that the rival holds, on a thread of its own. */
struct cancelled {
    struct world w;
    hf_cancel *cancel;
    hf_acquire_options options;
    struct world_caller waiter;
    size_t attempts; /* that were made before it */
    hf_stats before;
};

static void cancelled_begin(struct cancelled *scene) {
    struct world *w = &scene->w;
    world_begin(w, NULL);
    assert_int_equal(hf_cancel_new(&scene->cancel), HF_OK);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    scene->options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    scene->options.cancel = scene->cancel;
    scene->attempts = proxy_seen(w->proxy, world_acquires(w));
    scene->before = world_stats(w->client);
}

static void cancelled_start(struct cancelled *scene) {
    world_call_acquire(&scene->waiter, scene->w.lock, scene->options);
}

static void cancelled_fire(struct cancelled *scene) {
    hf_cancel_fire(scene->cancel);
    assert_int_equal(world_join(&scene->waiter), HF_ECANCELED);
}

static void cancelled_end(struct cancelled *scene) {
    struct world *w = &scene->w;
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_true(world_wait_free(w, HANG_MS));
    hf_cancel_free(scene->cancel);
    world_end(w);
}

/* It sleeps when its last request is answered, which is at the server when the proxy has seen it. All callers share one
 * connection here, since no other can be made, so a ping that is answered was answered after it. */
static void wait_until_asleep(struct cancelled *scene) {
    struct world *w = &scene->w;
    assert_true(world_wait_asleep(w, scene->attempts, HANG_MS));
    proxy_refuse(w->proxy, true);
    assert_int_equal(hf_ping(w->client), HF_OK);
    proxy_refuse(w->proxy, false);
}

CASE(cancelled_while_asleep) {
    struct cancelled scene;
    struct world *w = &scene.w;
    cancelled_begin(&scene);
    cancelled_start(&scene);
    wait_until_asleep(&scene);
    size_t attempts = proxy_seen(w->proxy, world_acquires(w));
    cancelled_fire(&scene);
    EXPECT_CHANGE(w, &scene.before, .cancelled = 1);
    assert_int_equal(proxy_seen(w->proxy, world_acquires(w)), attempts);
    /* Fired, it stays fired until it is reset. */
    assert_int_equal(hf_lock_acquire_with(w->lock, &scene.options, NULL), HF_ECANCELED);
    EXPECT_CHANGE(w, &scene.before, .cancelled = 2);
    hf_cancel_reset(scene.cancel);
    scene.options.wait_ms = 20;
    assert_int_equal(hf_lock_acquire_with(w->lock, &scene.options, NULL), HF_ETIMEDOUT);
    EXPECT_CHANGE(w, &scene.before, .cancelled = 2, .timed_out = 1);
    cancelled_end(&scene);
}

/* Its first attempt was answered, or it would not want to be notified. */
CASE_IN(cancelled_while_subscribing, struct cancelled, scene, cancelled_begin, cancelled_end) {
    proxy_stall_request(scene->w.proxy, world_listens(&scene->w));
    cancelled_start(scene);
    assert_true(proxy_wait_held(scene->w.proxy, HANG_MS));
    cancelled_fire(scene);
    EXPECT_CHANGE(&scene->w, &scene->before, .cancelled = 1);
    assert_true(proxy_release_held(scene->w.proxy) >= 1); /* it may have unsubscribed by now */
    EXPECT_CHANGE(&scene->w, &scene->before, .cancelled = 1);
}

/* With Redis it is the second one, after the first was answered; with ZooKeeper there is one. */
static void hold_up_its_attempt(struct cancelled *scene) {
    struct world *w = &scene->w;
    bool second = !server_is_other(w->server);
    proxy_stall_request(w->proxy, second ? world_listens(w) : world_acquires(w));
    cancelled_start(scene);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    if (!second)
        return;
    proxy_stall_request(w->proxy, world_acquires(w));
    assert_int_equal(proxy_release_held(w->proxy), 1);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
}

/* What becomes of the attempt has to be settled. */
CASE(cancelled_with_an_attempt_under_way) {
    struct cancelled scene;
    struct world *w = &scene.w;
    cancelled_begin(&scene);
    hold_up_its_attempt(&scene);
    cancelled_fire(&scene);
    EXPECT_CHANGE(w, &scene.before, .cancelled = 1, .in_doubt = 1);
    assert_true(proxy_release_held(w->proxy) >= 1); /* and what followed it */
    EXPECT_CHANGE(w, &scene.before, .cancelled = 1, .in_doubt = 1);
    cancelled_end(&scene);
}

/* ---- Renewals and losses ---- */

struct wanted {
    hf_client *client;
    size_t counter;
    uint64_t at_least;
};

static bool has_counted(void *arg) {
    struct wanted *wanted = arg;
    hf_stats stats = world_stats(wanted->client);
    return *(const uint64_t *)(const void *)((const char *)&stats + wanted->counter) >=
           wanted->at_least;
}

#define WAIT_COUNTED(the_client, field, value)                                                     \
    assert_true(wait_until(                                                                        \
        has_counted, &(struct wanted){the_client, offsetof(hf_stats, field), value}, HANG_MS))

struct tally {
    struct world *w;
    uint64_t before;
    size_t sent; /* before as well */
};

/* Three or more were sent, and all that were sent are counted: one may be on its way now and
 * then. On ZooKeeper the connection is replaced again and again: a renewal that was on its way is
 * sent a second time, and counted once. */
static bool all_are_counted(void *arg) {
    struct tally *tally = arg;
    uint64_t counted = world_stats(tally->w->client).renewals - tally->before;
    uint64_t sent = proxy_seen(tally->w->proxy, world_renews(tally->w)) - tally->sent;
    return counted >= 3 && (server_is_other(tally->w->server) ? counted <= sent : counted == sent);
}

/* A fixed lease, which nobody renews; but what is held in ZooKeeper is held by the session, and
 * that has to be. Returns how many there are. */
static uint64_t hold_without_renewal(struct world *w) {
    hf_acquire_options fixed = world_wait_for(0, 90000);
    hf_lock *unrenewed;
    if (server_is_other(w->server))
        return 0;
    assert_int_equal(hf_lock_new(w->client, "unrenewed", &unrenewed), HF_OK);
    assert_int_equal(hf_lock_acquire_with(unrenewed, &fixed, NULL), HF_OK);
    hf_lock_free(unrenewed);
    return 1;
}

/* What only looks is not counted, and cannot be distinguished by the script: so nothing is looked at. */
WORLD_CASE_WITH(renewals_are_counted_one_by_one, world_options(), options.watchdog_ms = ENDURING_MS,
                options.flags = HF_NO_TRACKING) {
    hf_stats before = world_stats(w->client);
    struct tally tally = {w, before.renewals, proxy_seen(w->proxy, world_renews(w))};
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    uint64_t fixed = hold_without_renewal(w);
    assert_true(wait_until(all_are_counted, &tally, HANG_MS));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    hf_stats after = world_stats(w->client);
    EXPECT_CHANGE(w, &before, .acquired = 1 + fixed, .released = 1, .holds = fixed,
                  .renewals = after.renewals - before.renewals);
}

WORLD_CASE_WITH(failed_renewals_and_a_loss, world_options(), options.watchdog_ms = ENDURING_MS) {
    /* so that a renewal is tried before it is lost */
    hf_stats before = world_stats(w->client);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    proxy_blackhole(w->proxy, true, true);
    uint64_t passed = proxy_seen(w->proxy, world_renews(w)); /* of a slow start */
    WAIT_COUNTED(w->client, renew_failures, 1);
    WAIT_COUNTED(w->client, losses, 1);
    hf_stats after = world_stats(w->client);
    assert_int_equal(after.losses - before.losses, 1);
    assert_true(after.renewals - before.renewals <= passed);
    assert_int_equal(after.holds, 0);
    assert_int_equal(after.released, before.released);
    proxy_heal(w->proxy);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    assert_int_equal(world_stats(w->client).losses, 1);
}

WORLD_CASE(found_gone_is_a_loss_and_no_release) {
    hf_stats before = world_stats(w->client);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    server_drop(w->server, WORLD_NAME);
    assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
    EXPECT_CHANGE(w, &before, .acquired = 1, .losses = 1);
}

/* ---- The network ---- */

WORLD_CASE(lost_replies_are_in_doubt) {
    hf_stats before = world_stats(w->client);
    proxy_drop_replies_after(w->proxy, world_acquires(w));
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    hf_stats after = world_stats(w->client);
    assert_int_equal(after.in_doubt - before.in_doubt, 1);
    assert_true(after.reconnects - before.reconnects >= 1);
    EXPECT_CHANGE(w, &before, .acquired = 1, .in_doubt = 1, .holds = 1,
                  .reconnects = after.reconnects - before.reconnects);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

WORLD_CASE(reconnects_are_counted) {
    assert_int_equal(world_stats(w->client).reconnects, 0);
    size_t connections = proxy_connections(w->proxy), open = proxy_cut_all(w->proxy);
    assert_true(open > 0);
    assert_int_equal(hf_ping(w->client), HF_OK);
    WAIT_COUNTED(w->client, reconnects, 1);
    assert_true(world_stats(w->client).reconnects <= proxy_connections(w->proxy) - connections);
}

/* A client without the right to publish can release, but waiters are not notified. */
CASE(notify_failures_are_counted) {
    OWN(world_end) struct world w;
    hf_client *mute;
    hf_options options = world_options();
    server_redis_only(world_server(), "it is the server that tells waiters there");
    world_begin(&w, NULL);
    cmd_ok(w.server, "ACL SETUSER mute on >secret ~* +@all resetchannels");
    options.user = "mute";
    options.password = "secret";
    assert_int_equal(hf_open(server_url(w.server), &options, &mute), HF_OK);
    hf_lock *lock = made(hf_lock_new, mute, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_acquire(lock), HF_OK);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_int_equal(world_stats(mute).notify_failures, 0);
    assert_int_equal(hf_lock_release(lock), HF_OK);
    assert_true(world_free(&w));
    hf_stats stats = world_stats(mute);
    assert_int_equal(stats.notify_failures, 1);
    assert_int_equal(stats.released, 2);
    hf_lock_free(lock);
    assert_int_equal(hf_close(mute), HF_OK);
    cmd_ok(w.server, "ACL DELUSER mute");
}

CASE(commands_are_those_the_server_saw) {
    OWN(world_end) struct world w;
    bool answer;
    int64_t number;
    hf_options options = world_options();
    own_lock *other;
    server_redis_only(world_server(), "a call is one command here");
    options.ping_interval_ms = 10 * HANG_MS; /* what is sent is sent by a call */
    world_begin(&w, &options);
    assert_int_equal(hf_lock_new(w.client, "other", &other), HF_OK);
    assert_int_equal(hf_lock_acquire(other), HF_OK);
    assert_true(world_wait_verified(&w, HANG_MS)); /* or it would begin to listen meanwhile */
    uint64_t commands = world_stats(w.client).commands;
    size_t seen = proxy_seen(w.proxy, ""), in_time = proxy_seen_in_time(w.proxy, "");
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    assert_int_equal(hf_lock_extend(w.lock, 90000), HF_OK);
    assert_int_equal(hf_lock_is_locked(w.lock, &answer), HF_OK);
    assert_int_equal(hf_lock_is_mine(w.lock, &answer), HF_OK);
    assert_int_equal(hf_lock_hold_count(w.lock, &number), HF_OK);
    assert_int_equal(hf_lock_ttl_ms(w.lock, &number), HF_OK);
    assert_int_equal(hf_ping(w.client), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    uint64_t all = world_stats(w.client).commands;
    assert_int_equal(proxy_seen_in_time(w.proxy, "") - in_time, 8);
    assert_int_equal(all - commands, proxy_seen(w.proxy, "") - seen);

    assert_int_equal(hf_lock_remaining_ms(w.lock), 0); /* from memory */
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_extend(w.lock, 1000), HF_ENOTOWNER);
    assert_int_equal(hf_lock_token(w.lock, &number), HF_ENOTSUP);
    assert_int_equal(world_stats(w.client).commands, all);
    assert_int_equal(hf_lock_release(other), HF_OK);
}

/* ---- Times ---- */

static void expect_adds_up(const hf_histogram *times) {
    uint64_t counted = 0, at_least_us = 0;
    for (int i = 0; i < 32; i++) {
        counted += times->buckets[i];
        at_least_us += times->buckets[i] * (i > 0 ? (uint64_t)1 << (i - 1) : 0);
    }
    assert_int_equal(counted, times->count);
    assert_true(times->sum_us >= at_least_us);
    assert_true(times->sum_us >= times->max_us);
    assert_true(times->count == 0 || times->sum_us <= times->max_us * times->count);
}

static uint64_t how_many_took_ms(const hf_histogram *times, uint64_t at_least_ms) {
    uint64_t count = 0;
    for (int i = 1; i < 32; i++)
        if (((uint64_t)1 << i) > at_least_ms * 1000)
            count += times->buckets[i];
    return count;
}

WORLD_CASE(wait_and_hold_times_add_up) {
    for (int i = 0; i < 20; i++) {
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
        assert_int_equal(hf_lock_release(w->lock), HF_OK);
    }
    hf_stats quick = world_stats(w->client);
    expect_adds_up(&quick.wait);
    expect_adds_up(&quick.hold);
    assert_int_equal(quick.wait.count, 41);
    assert_int_equal(quick.hold.count, 21);

    /* One long wait and one long hold are in the buckets for them. */
    hf_acquire_options brief = world_wait_for(0, 300);
    int64_t lease_from_ms = now_ms();
    world_acquire_brief(w->rival_lock, &brief);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    int64_t waited_ms = now_ms() - start_ms;
    int64_t must_wait_ms = lease_from_ms + 300 - start_ms - 1;
    start_ms = now_ms();
    assert_true(HOLDS_FOR(hf_lock_remaining_ms(w->lock) > 0, 150));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    int64_t held_ms = now_ms() - start_ms;
    hf_stats slow = world_stats(w->client);
    expect_adds_up(&slow.wait);
    expect_adds_up(&slow.hold);
    uint64_t wait_us = slow.wait.sum_us - quick.wait.sum_us;
    uint64_t hold_us = slow.hold.sum_us - quick.hold.sum_us;
    assert_true((int64_t)wait_us >= must_wait_ms * 1000);
    assert_true((int64_t)wait_us <= (waited_ms + 1) * 1000);
    assert_true(slow.wait.max_us >= wait_us);
    assert_in_range(hold_us, 149000 /* now_ms() rounds down */,
                    (uint64_t)(held_ms + waited_ms + 1) * 1000);
    assert_true(slow.hold.max_us >= hold_us);
    if (must_wait_ms > 150)
        assert_true(how_many_took_ms(&slow.wait, 150) >= 1);
    assert_true(how_many_took_ms(&slow.hold, 150) >= 1);

    /* Failures are no waits. */
    assert_int_equal(hf_lock_release(w->rival_lock), HF_ELOST);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_for(w->lock, 20), HF_ETIMEDOUT);
    assert_int_equal(world_stats(w->client).wait.count, 42);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

static bool somebody_waits(void *arg) {
    return world_stats(arg).waits == 1;
}

/* One that waits learns that the lock is free, and has it a moment later. It may have been about to look
 * when it was released, and then nobody had to tell it; not every time, though. */
WORLD_CASE(hand_overs_and_waits) {
    for (int round = 0; round < 200 && world_stats(w->client).hand_over.count == 0; round++) {
        struct world_caller waiter;
        assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
        world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
        assert_true(wait_until(somebody_waits, w->client, HANG_MS));
        assert_true(wait_until(somebody_listens, w->server, HANG_MS));
        hf_stats waiting;
        assert_true(WAIT_FOR(
            (waiting = world_stats(w->client), (int64_t)waiting.oldest_wait_ms >= 20), HANG_MS));
        assert_int_equal(waiting.holds, 0);
        assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
        assert_int_equal(world_join(&waiter), HF_OK);
        hf_stats held = world_stats(w->client);
        assert_int_equal(held.waits, 0);
        assert_int_equal(held.oldest_wait_ms, 0);
        assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
    }
    hf_stats stats = world_stats(w->client);
    assert_int_equal(stats.hand_over.count, 1);
    expect_adds_up(&stats.hand_over);
    assert_true(stats.hand_over.sum_us < stats.wait.sum_us);
    /* one that did not wait was handed nothing */
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(world_stats(w->client).hand_over.count, 1);
}

/* ---- As a text ---- */

/* The parser that is installed, if one is, finds nothing wrong with the text. */
static void expect_well_formed(const char *text) {
    FILE *parser = popen(
        "/usr/bin/python3 " HF_SOURCE_DIR "/tests/support/openmetrics.py >/dev/null 2>&1", "w");
    assert_non_null(parser);
    fputs(text, parser);
    int status = pclose(parser);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 77 && WEXITSTATUS(status) != 127))
        assert_int_equal(status, 0);
}

static void expect_line(const char *text, const char *line) {
    own_text *wanted = text_of("\n%s\n", line);
    if (strstr(text, wanted) == NULL)
        fail_msg("there is no line '%s' in\n%s", line, text);
}

WORLD_CASE(metrics_are_the_same_as_a_text) {
    char *text = NULL, line[200];
    setlocale(LC_ALL, "de_DE.UTF-8"); /* where there is one, its comma must not be seen */
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    hf_stats stats = world_stats(w->client);
    assert_int_equal(hf_client_metrics(w->client, &text), HF_OK);
    setlocale(LC_ALL, "C");
    expect_line(text, "holdfast_client_holds 1");
    expect_line(text, "holdfast_client_oldest_wait_seconds 0.000000");
    snprintf(line, sizeof line, "holdfast_client_acquired_total %llu",
             (unsigned long long)stats.acquired);
    expect_line(text, line);
    snprintf(line, sizeof line, "holdfast_client_wait_seconds_count %llu",
             (unsigned long long)stats.wait.count);
    expect_line(text, line);
    snprintf(line, sizeof line, "holdfast_client_wait_seconds_sum %llu.%06llu",
             (unsigned long long)(stats.wait.sum_us / 1000000),
             (unsigned long long)(stats.wait.sum_us % 1000000));
    expect_line(text, line);
    assert_string_equal(text + strlen(text) - 7, "\n# EOF\n");
    expect_well_formed(text);
    hf_text_free(text);
    hf_text_free(NULL);
    assert_int_equal(hf_client_metrics(w->client, NULL), HF_EINVAL);
    assert_int_equal(hf_client_metrics(NULL, &text), HF_EINVAL);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

WORLD_CASE(an_older_caller_gets_known_fields) {
    hf_stats stats;
    memset(&stats, 0x5a, sizeof stats);
    stats.size = offsetof(hf_stats, contended);
    assert_int_equal(hf_client_stats(w->client, &stats), HF_OK);
    assert_int_equal(stats.acquired, 1);
    assert_int_equal(stats.contended, 0x5a5a5a5a5a5a5a5a);
    assert_int_equal(stats.size, offsetof(hf_stats, contended));
    assert_int_equal(hf_client_stats(w->client, NULL), HF_EINVAL);
    assert_int_equal(hf_client_stats(NULL, &stats), HF_EINVAL);
}

RUN_CASES(world_start_server, world_stop_server)
