/*
 * The fair lock when the network or the server fails: lost replies, late copies, broken
 * subscriptions, messages that no release published. (test_fair_process.c has failing processes.)
 * Whatever happens: no client holds it without knowing, the order stays, and no dead client remains
 * in the queue.
 *
 * Holds are long unless a test is about their end. The horizon after which a silent waiter counts
 * as dead, and the confirm of a grant, follow from the watchdog option.
 */
#include "lock/fair.h"

#include <inttypes.h>

#define FIRST 100
#define LONG_MS 60000

static hf_acquire_options as(hf_owner owner, int64_t wait_ms, int64_t lease_ms) {
    hf_acquire_options options = world_wait_as(owner, wait_ms, lease_ms);
    return options;
}

/* The waiter comes in, holds it once, releases, and nothing is left. */
static void assert_comes_in(struct world *w, struct world_caller *waiter) {
    char owner[64];
    assert_int_equal(world_join(waiter), HF_OK);
    world_owner_text(w->client, waiter->owner, owner);
    assert_int_equal(world_count(w, owner), 1);
    assert_int_equal(hf_lock_release_as(w->lock, waiter->owner), HF_OK);
    assert_true(wait_no_keys(w->server));
    assert_int_equal(world_stats(w->client).holds, 0);
}

/* ---- Replies that are lost ---- */

FAIR_CASE(U14_acquire_reply_lost) {
    proxy_drop_replies_after(w->proxy, FAIR_ACQUIRE);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(proxy_fired(w->proxy), 1);
    assert_int_equal(world_count(w, w->owner), 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

/* The server has put it into the queue, and it does not know. */
FAIR_CASE(U14_queue_entry_reply_lost) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    proxy_drop_replies_after(w->proxy, FAIR_ACQUIRE);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(proxy_fired(w->proxy), 1);
    assert_int_equal(queue_len(w->server), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_comes_in(w, &waiter);
}

/* And its wait ends before it could ask again. */
FAIR_CASE_WITH(U14_queue_entry_reply_lost_and_time_is_up, world_options(),
               options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    proxy_mute_replies_after(w->proxy, FAIR_ACQUIRE);
    assert_int_equal(hf_lock_acquire_for(w->lock, 300), HF_EUNREACH);
    assert_true(wait_queue(w->server, 0));
    assert_int_equal(world_count(w, w->rival_owner), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_true(wait_no_keys(w->server));
}

/* It had been released and handed over: the repeated release finds another's hold, and leaves it. */
FAIR_CASE(U15_release_reply_lost) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    queue_up(&waiter, w->server, w->rival, w->rival_lock, FIRST,
             as(FIRST, HF_FOREVER, HF_WATCHDOG));
    proxy_drop_replies_after(w->proxy, FAIR_RELEASE);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(proxy_fired(w->proxy), 1);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w->rival_lock, FIRST), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

FAIR_CASE(give_up_reply_lost) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    size_t before = proxy_seen(w->proxy, FAIR_GIVE_UP);
    proxy_drop_replies_after(w->proxy, FAIR_GIVE_UP);
    assert_int_equal(hf_lock_acquire_for(w->lock, 50), HF_ETIMEDOUT);
    assert_true(proxy_wait_fired(w->proxy, 1, HANG_MS));
    assert_int_equal(queue_len(w->server), 0);
    assert_true(proxy_wait_seen(w->proxy, FAIR_GIVE_UP, before + 2, HANG_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

/* ---- Copies that come late ---- */

/* Cancelled while the attempt is under way: it wins, or gets into the queue, and both are undone. */
CASE(U22_cancelled_wait_that_wins_anyway) {
    for (int busy = 0; busy < 2; busy++) {
        struct world w;
        struct world_caller waiter;
        hf_cancel *cancel;
        fair_begin(&w, NULL);
        if (busy == 1)
            assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
        assert_int_equal(hf_cancel_new(&cancel), HF_OK);
        hf_acquire_options options = as(FIRST, HF_FOREVER, HF_WATCHDOG);
        options.cancel = cancel;
        proxy_stall_request(w.proxy, FAIR_ACQUIRE);
        world_call_acquire(&waiter, w.lock, options);
        assert_true(proxy_wait_held(w.proxy, HANG_MS));
        hf_cancel_fire(cancel);
        assert_int_equal(world_join(&waiter), HF_ECANCELED);
        assert_true(proxy_release_held(w.proxy) >= 1);
        if (busy == 1) {
            assert_true(wait_queue(w.server, 0));
            assert_int_equal(world_count(&w, w.rival_owner), 1);
            assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
        }
        assert_true(wait_no_keys(w.server));
        hf_cancel_free(cancel);
        world_end(&w);
    }
}

/* An attempt that is delivered when its sender has long held, released and gone. */
FAIR_CASE(late_attempt_leaves_nothing) {
    proxy_hold_request(w->proxy, FAIR_ACQUIRE);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_int_equal(queue_len(w->server), 0);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

/* The server pauses longer than a timed wait lasts (C079), and then runs what it was sent (U21). */
FAIR_CASE_WITH(C079_U21_paused_server, world_options(), options.cmd_timeout_ms = WORLD_BRIEF_MS) {
    struct world_caller patient;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&patient, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, LONG_MS));
    cmd_ok(w->server, "CLIENT PAUSE 10000 WRITE");
    hf_acquire_options timed = as(FIRST + 1, 700, 1000);
    int err = hf_lock_acquire_with(w->lock, &timed, NULL);
    assert_true(err == HF_ETIMEDOUT || err == HF_EUNREACH);
    cmd_ok(w->server, "CLIENT UNPAUSE");
    assert_true(wait_queue(w->server, 1));
    assert_int_equal(world_count(w, w->rival_owner), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_comes_in(w, &patient);
}

/* A wait that has ended, and one attempt of the same owner at once: no entry is forgotten. */
FAIR_CASE(attempt_right_after_a_wait) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(hf_lock_acquire_for(w->lock, 1 + i % 4), HF_ETIMEDOUT);
        assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
        if (i % 2 == 0)
            assert_true(wait_queue(w->server, 0));
    }
    assert_true(wait_queue(w->server, 0));
    assert_int_equal(world_count(w, w->rival_owner), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_true(wait_no_keys(w->server));
}

/* ---- Subscriptions ---- */

FAIR_CASE(U33_reconnect_while_waiting) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, HF_WATCHDOG));
    assert_true(cmd_int(w->server, "CLIENT KILL TYPE pubsub") >= 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK); /* granted to nobody who hears */
    assert_comes_in(w, &waiter);
    assert_true(waiter.took_ms < LONG_MS / 2);
}

FAIR_CASE(U34_release_before_the_subscription) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    proxy_stall_request(w->proxy, WORLD_SUBSCRIBE);
    world_call_acquire(&waiter, w->lock, as(FIRST, HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_int_equal(queue_len(w->server), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK); /* no waiter is notified */
    assert_true(world_free(w) || world_count(w, w->rival_owner) == 0);
    assert_true(proxy_release_held(w->proxy) >= 1);
    assert_comes_in(w, &waiter);
}

/* The grant goes into a hole. Its confirm runs out, and the poll brings the waiter back. */
FAIR_CASE_WITH(U35_half_open_subscription, fair_options(600)) {
    struct world_caller waiter;
    hf_acquire_options hold = world_wait_for(HF_FOREVER, LONG_MS);
    assert_int_equal(hf_lock_acquire_with(w->rival_lock, &hold, NULL), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, LONG_MS));
    assert_true(proxy_freeze_connections(w->proxy, WORLD_SUBSCRIBE) >= 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(queue_len(w->server), 0);
    assert_comes_in(w, &waiter);
    proxy_heal(w->proxy);
}

/* Without the rights to subscribe and publish: it polls, keeps its place, and can release. */
CASE(without_channels_it_polls) {
    OWN(world_end) struct world w;
    struct world_caller mute, second;
    hf_options options = fair_options(1500); /* polls after a second */
    fair_begin(&w, &options);
    cmd_ok(w.server, "ACL SETUSER app on >secret ~* +@all resetchannels");
    options.user = "app";
    options.password = "secret";
    hf_client *client = made(hf_open, server_url(w.server), &options);
    hf_lock *lock = new_handle(client, HF_FAIR);
    hf_acquire_options hold = world_wait_for(HF_FOREVER, LONG_MS);
    assert_int_equal(hf_lock_acquire_with(w.rival_lock, &hold, NULL), HF_OK);
    world_call_acquire(&mute, lock, as(FIRST, HF_FOREVER, LONG_MS));
    assert_true(wait_queue(w.server, 1));
    queue_up(&second, w.server, w.client, w.lock, FIRST + 1, as(0, HF_FOREVER, LONG_MS));
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(world_join(&mute), HF_OK);
    assert_false(atomic_load(&second.done));
    assert_int_equal(hf_lock_release_as(lock, FIRST), HF_OK);
    assert_int_equal(world_stats(client).notify_failures, 1);
    assert_comes_in(&w, &second); /* found by its poll */
    hf_lock_free(lock);
    assert_int_equal(hf_close(client), HF_OK);
    cmd_ok(w.server, "ACL DELUSER app");
}

/* ---- Messages that no release has published ---- */

FAIR_CASE(U81_garbage_on_the_channel) {
    struct world_caller waiter;
    char owner[64], channel[256];
    static const char *const garbage[] = {"",
                                          "abc",
                                          "0",
                                          "-1",
                                          "1",
                                          " 7",
                                          "1e9",
                                          "1700000000000000",
                                          "99999999999999999",
                                          "999999999999999999999999"};
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, HF_WATCHDOG));
    world_owner_text(w->client, FIRST, owner);
    snprintf(channel, sizeof channel, WORLD_CHANNEL ":%s", owner);
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++)
        assert_int_equal(cmd_int(w->server, "PUBLISH %s %s", channel, garbage[i]), 1);
    char *big = calloc(1, 1 << 20);
    cmd_ok(w->server, "PUBLISH %s %b", channel, big, (size_t)1 << 20);
    free(big);
    long long attempts = server_calls(w->server, "evalsha");
    int64_t start_ms = now_ms();
    for (int i = 0; i < 5; i++)
        cmd_ok(w->server, "EVAL %s 0 %s",
               "for i = 1, 1000 do redis.call('publish', ARGV[1], '99999999999999999') end",
               channel);
    sleep_ms(300); /* let it get through them, or some: of what it ignores nothing is seen */
    assert_true(WAIT_FOR(server_calls(w->server, "evalsha") != attempts, HANG_MS));
    attempts = server_calls(w->server, "evalsha") - attempts;
    assert_in_range(attempts, 1, 64 + (now_ms() - start_ms));
    assert_false(atomic_load(&waiter.done));
    assert_int_equal(queue_len(w->server), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_comes_in(w, &waiter);
}

/* Somebody with the right to publish says what only a release says. The confirm finds out. */
FAIR_CASE_WITH(a_forged_grant_does_not_last, fair_options(900)) {
    struct world_caller waiter;
    struct world_events events = {0};
    char owner[64];
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    hf_acquire_options hold = world_wait_for(HF_FOREVER, LONG_MS);
    assert_int_equal(hf_lock_acquire_with(w->rival_lock, &hold, NULL), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, LONG_MS));
    world_owner_text(w->client, FIRST, owner);
    int64_t until_ms = now_ms() + HANG_MS;
    do { /* one that is read too late is not believed */
        assert_true(now_ms() < until_ms);
        cmd_ok(w->server, "EVAL %s 0 " WORLD_CHANNEL ":%s",
               "local t = redis.call('time') return redis.call('publish', ARGV[1], "
               "string.format('%.0f', t[1] * 1000000 + t[2]))",
               owner);
    } while (!WAIT_FOR(atomic_load(&waiter.done), 10));
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_ELOST);
    assert_int_equal(world_count(w, w->rival_owner), 1);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
}

/* The server's clock was ahead, and was set back: a message cannot be distinguished from an old one until it
 * has caught up. The lock is handed over all the same, and asked for before it is entered. */
FAIR_CASE(after_a_step_of_the_clock_it_asks_first) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    int64_t ahead_ms =
        cmd_int(w->server, "EVAL %s 0", "return redis.call('time')[1] * 1000 + 3600000");
    char reply[256];
    int len = snprintf(reply, sizeof reply,
                       "*7\r\n:0\r\n:20000\r\n:1\r\n:%" PRId64 "000\r\n:%" PRId64
                       "000\r\n:0\r\n:%" PRId64 "\r\n",
                       ahead_ms, ahead_ms, ahead_ms);
    proxy_forge_reply(w->proxy, FAIR_ACQUIRE, reply, (size_t)len);
    assert_int_equal(hf_lock_acquire_for(w->lock, 50), HF_ETIMEDOUT);
    assert_int_equal(proxy_fired(w->proxy), 1);
    assert_true(wait_queue(w->server, 0));
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, HF_WATCHDOG));
    size_t attempts = proxy_seen_in_time(w->proxy, FAIR_ACQUIRE);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_comes_in(w, &waiter);
    assert_int_equal(proxy_seen_in_time(w->proxy, FAIR_ACQUIRE), attempts + 1);
}

/* ---- The end of a client, or of the server ---- */

FAIR_CASE(close_leaves_no_entry) {
    enum { WAITERS = 4 };
    struct world_caller waiters[WAITERS];
    hf_op *op;
    hf_options options = world_options();
    hf_client *client = made(hf_open, server_url(w->server), &options);
    hf_lock *lock = new_handle(client, HF_FAIR);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    for (int i = 0; i < WAITERS; i++)
        queue_up(&waiters[i], w->server, client, lock, (hf_owner)(FIRST + i),
                 as(0, HF_FOREVER, HF_WATCHDOG));
    hf_acquire_options async = as(FIRST + WAITERS, HF_FOREVER, HF_WATCHDOG);
    assert_int_equal(hf_lock_acquire_start(lock, &async, NULL, NULL, &op), HF_OK);
    assert_true(wait_queue(w->server, WAITERS + 1));
    assert_int_equal(hf_close(client), HF_OK);
    assert_int_equal(queue_len(w->server), 0);
    for (int i = 0; i < WAITERS; i++)
        assert_int_equal(world_join(&waiters[i]), HF_ECLOSED);
    hf_op_free(op);
    hf_lock_free(lock);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_true(wait_no_keys(w->server));
}

/* It has given up, and leaves the queue as soon as the server is reachable. */
static void assert_leaves_no_entry(struct world *w) {
    proxy_heal(w->proxy);
    assert_true(wait_queue(w->server, 0));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_true(wait_no_keys(w->server));
    world_end(w);
}

static void begin_waiting(struct world *w, struct world_caller *waiter, const hf_options *options,
                          int64_t lease_ms) {
    fair_begin(w, options);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(waiter, w->server, w->client, w->lock, FIRST, as(FIRST, HF_FOREVER, lease_ms));
}

CASE(unreachable_leaves_no_entry) {
    struct world w;
    struct world_caller waiter;
    hf_options options = world_options();
    options.connect_timeout_ms = 2000;
    begin_waiting(&w, &waiter, &options, HF_WATCHDOG);
    proxy_refuse(w.proxy, true);
    assert_true(proxy_cut_all(w.proxy) >= 2);
    assert_int_equal(world_join(&waiter), HF_EUNREACH);
    assert_leaves_no_entry(&w);
}

/* Its place would last much longer than what it wanted to hold: it is not given up with that. */
CASE(unreachable_for_longer_than_the_lease) {
    enum { LEASE_MS = 100 };
    struct world w;
    struct world_caller waiter;
    hf_options options = world_options();
    options.connect_timeout_ms = options.cmd_timeout_ms = WORLD_BRIEF_MS;
    begin_waiting(&w, &waiter, &options, LEASE_MS);
    proxy_refuse(w.proxy, true);
    assert_true(proxy_cut_all(w.proxy) >= 2);
    assert_int_equal(world_join(&waiter), HF_EUNREACH);
    /* nothing is left that could show that the entry has come and gone */
    sleep_ms(2 * (LEASE_MS + WORLD_BRIEF_MS));
    assert_leaves_no_entry(&w);
}

CASE(refusal_leaves_no_entry) {
    static const char refusal[] = "-NOPERM not any more\r\n";
    struct world w;
    struct world_caller waiter;
    begin_waiting(&w, &waiter, NULL, HF_WATCHDOG);
    proxy_answer_instead(w.proxy, FAIR_ACQUIRE, refusal, sizeof refusal - 1);
    assert_int_equal(proxy_cut_connections(w.proxy, WORLD_SUBSCRIBE), 1); /* then it asks again */
    assert_int_equal(world_join(&waiter), HF_EPERM);
    assert_leaves_no_entry(&w);
}

/* The second is about to take over what the first has left in the queue when it is cancelled, too:
 * one of the two sees to that. */
FAIR_CASE(two_are_cancelled) {
    enum { ROUNDS = 3000 };
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    proxy_delay(w->proxy, FAIR_ACQUIRE, 1);
    for (hf_owner owner = FIRST; owner < FIRST + ROUNDS; owner++) {
        assert_int_equal(world_acquire_and_cancel(w->lock, owner), HF_ECANCELED);
        assert_int_equal(world_acquire_and_cancel(w->lock, owner), HF_ECANCELED);
    }
    proxy_heal(w->proxy);
    assert_true(wait_queue(w->server, 0));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_true(wait_no_keys(w->server));
}

/* It comes back with nothing: no lock, no queue. Waiters get in, one after the other. */
CASE(server_restarts_empty) {
    OWN(world_end) struct world w;
    enum { COMERS = 4 };
    struct comer comers[COMERS];
    static struct arrivals arrivals;
    own_server *server = server_start(NULL);
    fair_begin_on(&w, server, NULL);
    atomic_store(&arrivals.next, 0);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    for (int i = 0; i < COMERS; i++) {
        comers[i] = (struct comer){.lock = w.lock,
                                   .options = as((hf_owner)(FIRST + i), HF_FOREVER, HF_WATCHDOG),
                                   .arrivals = &arrivals,
                                   .index = i,
                                   .hold_ms = 1};
        comer_start(&comers[i]);
        assert_true(wait_queue(server, i + 1));
    }
    server_restart(server);
    for (int i = 0; i < COMERS; i++)
        assert_int_equal(comer_join(&comers[i]), HF_OK);
    assert_int_equal(atomic_load(&arrivals.next), COMERS);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_ELOST);
    assert_true(wait_no_keys(server));
}

RUN_CASES(world_start_server, world_stop_server)
