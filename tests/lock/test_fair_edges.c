/*
 * The fair lock with a damaged queue: crowds of dead waiters, leases that never end, keys that were
 * edited or deleted. A live client gets in, in order as far as the order is known, and no client
 * retries in a tight loop.
 */
#include "lock/fair.h"

#include <time.h>

#define FIRST 100 /* owners of waiters */
#define LONG_MS 60000
#define LEASE_MS 60000
#define CONFIRM_MS 3000 /* how long a grant waits for its first renewal; never longer */
#define WATCHDOG_MS 1500

/* Waiters of ours whose process has died: believed to be alive, but nobody listens. */
static void queue_dead(struct server *server, int len) {
    long long now = (long long)time(NULL) * 1000, until = now + 600000;
    for (int i = 0; i < len; i++) {
        own_text *record = text_of("3000 %lld %lld", now * 1000 + i, until);
        cmd_ok(server, "RPUSH " FAIR_QUEUE " dead:%d", i);
        cmd_ok(server, "ZADD " FAIR_DEADLINES " %lld dead:%d", until, i);
        cmd_ok(server, "HSET " FAIR_RECORDS " dead:%d %s", i, record);
    }
}

/* More than are swept in one call: the rest is not left to the backoff of the waiters. */
FAIR_CASE(a_crowd_of_dead_is_swept_soon) {
    enum { DEAD = 1000, SOON_MS = 5000 };
    queue_dead(w->server, DEAD);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(now_ms() - start_ms < SOON_MS);
    assert_int_equal(queue_len(w->server), 0);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

static void queue_up_all(struct world *w, struct world_caller *waiters, int len) {
    for (int i = 0; i < len; i++)
        queue_up(&waiters[i], w->server, w->client, w->lock, (hf_owner)(FIRST + i),
                 world_wait_for(HF_FOREVER, LONG_MS));
}

/* A hold that no pause of the machine ends, however short the watchdog is from which the times of the queue follow. */
static void hold_for_long(hf_lock *lock) {
    hf_acquire_options hold = world_wait_for(HF_FOREVER, LONG_MS);
    assert_int_equal(hf_lock_acquire_with(lock, &hold, NULL), HF_OK);
}

/* One after the other, as they came, and nothing is left. */
static void assert_in_order(struct world *w, struct world_caller *waiters, int len) {
    for (int i = 0; i < len; i++) {
        assert_int_equal(world_join(&waiters[i]), HF_OK);
        assert_int_equal(hf_lock_release_as(w->lock, (hf_owner)(FIRST + i)), HF_OK);
    }
    assert_true(wait_no_keys(w->server));
}

/* What is left of a lease, times a place in the queue, need not be a number: a waiter goes on to
 * say that it lives. */
FAIR_CASE_WITH(an_endless_lease_silences_nobody, fair_options(WATCHDOG_MS)) {
    enum { WAITERS = 3 };
    struct world_caller waiters[WAITERS];
    bool broken;
    cmd_ok(w->server, "HSET %s java:1 1", WORLD_NAME);
    cmd_ok(w->server, "PEXPIRE %s 4000000000000000000", WORLD_NAME);
    queue_up_all(w, waiters, WAITERS);
    /* a waiter that says nothing for two of these is dead */
    assert_true(HOLDS_FOR(queue_len(w->server) == WAITERS, 2 * 2 * WATCHDOG_MS));
    assert_int_equal(hf_lock_break(w->rival_lock, &broken), HF_OK);
    assert_in_order(w, waiters, WAITERS);
}

/* Everybody is in all three keys. */
static bool is_mended(void *arg) {
    const struct wanted_len *wanted = arg;
    return queue_len(wanted->server) >= wanted->len &&
           cmd_int(wanted->server, "ZCARD " FAIR_DEADLINES) == wanted->len &&
           cmd_int(wanted->server, "HLEN " FAIR_RECORDS) == wanted->len;
}

static bool wait_mended(struct server *server, long long len) {
    struct wanted_len wanted = {server, len};
    return wait_until(is_mended, &wanted, HANG_MS);
}

/* Each of the three keys of the queue goes while many wait. With a short watchdog all of them say
 * within a moment that they live, and find their places. */
CASE(edited_keys_are_mended) {
    enum { WAITERS = 5 };
    static const char *const edits[] = {"DEL " FAIR_QUEUE, "DEL " FAIR_DEADLINES,
                                        "DEL " FAIR_RECORDS,
                                        "DEL " FAIR_QUEUE " " FAIR_DEADLINES " " FAIR_RECORDS};
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        struct world w;
        struct world_caller waiters[WAITERS];
        hf_options options = fair_options(WATCHDOG_MS);
        fair_begin(&w, &options);
        hold_for_long(w.rival_lock);
        queue_up_all(&w, waiters, WAITERS);
        cmd_ok(w.server, edits[i]);
        assert_true(wait_mended(w.server, WAITERS));
        assert_int_equal(queue_len(w.server), WAITERS); /* nobody twice */
        assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
        assert_in_order(&w, waiters, WAITERS);
        world_end(&w);
    }
}

/* Also far behind, where places are not reported. */
FAIR_CASE_WITH(a_long_queue_finds_its_order_again, fair_options(WATCHDOG_MS)) {
    enum { WAITERS = 200 };
    struct world_caller waiters[WAITERS];
    hold_for_long(w->rival_lock);
    queue_up_all(w, waiters, WAITERS);
    cmd_ok(w->server, "DEL " FAIR_QUEUE " " FAIR_DEADLINES " " FAIR_RECORDS);
    assert_true(wait_mended(w->server, WAITERS));
    for (int i = 0; i < WAITERS; i++) {
        char owner[64];
        own_text *there = cmd_str(w->server, "LINDEX " FAIR_QUEUE " %d", i);
        world_owner_text(w->client, (hf_owner)(FIRST + i), owner);
        assert_string_equal(there, owner);
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_in_order(w, waiters, WAITERS);
}

/* Unreadable records: these waiters are notified like Java clients, and acquire. */
FAIR_CASE(nonsense_in_records_is_replaced) {
    enum { WAITERS = 4 };
    static const char *const nonsense[WAITERS] = {"", "x", "3000 1", "99999999999999999999 -1 1e9"};
    struct world_caller waiters[WAITERS];
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up_all(w, waiters, WAITERS);
    for (int i = 0; i < WAITERS; i++) {
        char owner[64];
        world_owner_text(w->client, (hf_owner)(FIRST + i), owner);
        cmd_ok(w->server, "HSET " FAIR_RECORDS " %s %s", owner, nonsense[i]);
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_in_order(w, waiters, WAITERS);
}

/* A grant whose first renewal has run, but its reply is lost. False: a pause of the machine was longer than the grant,
 * which ended before. */
static bool confirmed_unknown(struct world *w) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, world_wait_for(HF_FOREVER, LEASE_MS));
    proxy_mute_replies_after(w->proxy, hfi_script_renew.sha1);
    size_t fired = proxy_fired(w->proxy);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(WAIT_FOR(proxy_fired(w->proxy) > fired || world_free(w), HANG_MS));
    return pttl(w->server, WORLD_NAME) > LEASE_MS / 2;
}

/* The renewal that gives a grant its lease has run, but we do not know; and then the server cannot
 * be reached until after what we know of. The release is repeated all the same: there may be a
 * lease to end. */
FAIR_CASE_WITH(release_after_an_unknown_confirmation, fair_options(CONFIRM_MS),
               options.cmd_timeout_ms = 1200) {
    while (!confirmed_unknown(w)) {
        hf_lock_release_as(w->lock, FIRST);
        assert_true(wait_no_keys(w->server));
    }
    proxy_blackhole(w->proxy, true, true);
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_EINDOUBT);
    assert_true(HOLDS_FOR(pttl(w->server, WORLD_NAME) > LEASE_MS / 2, 2 * CONFIRM_MS));
    proxy_heal(w->proxy);
    assert_true(wait_no_keys(w->server));
}

/* A Java waiter in front adds its own wait to our deadline: as much as the url says. */
FAIR_CASE(the_url_says_how_long_java_waits) {
    enum { JAVA_MS = 5000000 };
    struct world_caller waiter;
    char url[256], owner[64];
    snprintf(url, sizeof url, "%s?fair_wait_ms=%d", server_url(w->server), JAVA_MS);
    own_client *client = made(hf_open, url, NULL);
    own_lock *lock = made(new_lock, client, HF_FAIR, WORLD_NAME, strlen(WORLD_NAME));
    long long now = (long long)time(NULL) * 1000;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    cmd_ok(w->server, "RPUSH " FAIR_QUEUE " java:1");
    cmd_ok(w->server, "ZADD " FAIR_DEADLINES " %lld java:1", now + 600000);
    queue_up(&waiter, w->server, client, lock, FIRST, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    world_owner_text(client, FIRST, owner);
    assert_true(cmd_int(w->server, "ZSCORE " FAIR_DEADLINES " %s", owner) > now + JAVA_MS);
    cmd_ok(w->server, "LPOP " FAIR_QUEUE);
    cmd_ok(w->server, "ZREM " FAIR_DEADLINES " java:1");
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(lock, FIRST), HF_OK);
}

RUN_CASES(world_start_server, world_stop_server)
