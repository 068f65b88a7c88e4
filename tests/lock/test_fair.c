/*
 * The fair lock as its users see it: the order of the waiters, through hand-overs, leases that
 * run out, waits that end and waits that are cancelled; that a hand-over is one message and no more
 * (protocol: two scripts for a lock and its release); and what a hand-over is worth before it is
 * confirmed.
 */
#include "lock/fair.h"

#define FIRST 100 /* owners of waiters */
#define LEASE_MS 60000
#define CONFIRM_MS 1500 /* renewed before it is listened for breaks */
#define WATCHDOG_MS 3000

/* ---- Hand-over ---- */

FAIR_CASE(hands_over_to_the_head_of_the_queue) {
    enum { WAITERS = 5 };
    struct world_caller waiters[WAITERS];
    uint64_t contended = world_stats(w->client).contended;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    for (int i = 0; i < WAITERS; i++)
        queue_up(&waiters[i], w->server, w->client, w->lock, (hf_owner)(FIRST + i),
                 world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(queue_len(w->server), WAITERS);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    for (int i = 0; i < WAITERS; i++) {
        char owner[64];
        world_owner_text(w->client, (hf_owner)(FIRST + i), owner);
        assert_int_equal(world_join(&waiters[i]), HF_OK);
        assert_int_equal(world_count(w, owner), 1);
        assert_int_equal(queue_len(w->server), WAITERS - 1 - i);
        assert_int_equal(hf_lock_release_as(w->lock, (hf_owner)(FIRST + i)), HF_OK);
    }
    assert_int_equal(world_keys(w->server), 0);
    assert_int_equal(world_stats(w->client).contended, contended + WAITERS);
}

FAIR_CASE(asynchronous_waiters_share_the_queue) {
    enum { WAITERS = 6 };
    hf_op *ops[WAITERS];
    struct world_caller callers[WAITERS];
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    for (int i = 0; i < WAITERS; i++) {
        hf_acquire_options options = world_wait_as((hf_owner)(FIRST + i), HF_FOREVER, HF_WATCHDOG);
        if (i % 2 == 0)
            assert_int_equal(hf_lock_acquire_start(w->lock, &options, NULL, NULL, &ops[i]), HF_OK);
        else
            world_call_acquire(&callers[i], w->lock, options);
        assert_true(wait_queue(w->server, i + 1));
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    for (int i = 0; i < WAITERS; i++) {
        if (i % 2 == 0) {
            assert_int_equal(joined(ops[i], NULL), HF_OK);
        } else {
            assert_int_equal(world_join(&callers[i]), HF_OK);
        }
        assert_int_equal(queue_len(w->server), WAITERS - 1 - i);
        assert_int_equal(hf_lock_release_as(w->lock, (hf_owner)(FIRST + i)), HF_OK);
    }
    assert_int_equal(world_keys(w->server), 0);
}

static size_t cycle_scripts(const struct world *w) {
    return proxy_seen_in_time(w->proxy, FAIR_ACQUIRE) + proxy_seen_in_time(w->proxy, FAIR_RELEASE);
}

/* One that waits in the queue, one that hands over: the message is enough to enter. */
FAIR_CASE(two_scripts_per_cycle) {
    enum { ROUNDS = 20 };
    struct world_caller waiter;
    own_client *other; /* through the proxy, as well */
    hf_options other_options = world_options();
    assert_int_equal(hf_open(proxy_url(w->proxy), &other_options, &other), HF_OK);
    hf_lock *locks[2] = {new_handle(other, HF_FAIR), w->lock};
    hf_client *clients[2] = {other, w->client};
    int64_t start_ms = now_ms();
    hf_acquire_options options = world_wait_as(FIRST, HF_FOREVER, HF_WATCHDOG);
    assert_int_equal(hf_lock_acquire_with(locks[0], &options, NULL), HF_OK);
    size_t before = 0, all_before = 0;
    for (int i = 0; i < ROUNDS + 2; i++) {
        if (i == 2) { /* both have subscribed by now */
            before = cycle_scripts(w);
            all_before = proxy_seen_in_time(w->proxy, "EVALSHA");
        }
        int next = (i + 1) % 2;
        queue_up(&waiter, w->server, clients[next], locks[next], (hf_owner)(FIRST + next),
                 world_wait_for(HF_FOREVER, HF_WATCHDOG));
        assert_int_equal(hf_lock_release_as(locks[i % 2], (hf_owner)(FIRST + i % 2)), HF_OK);
        assert_int_equal(world_join(&waiter), HF_OK);
    }
    assert_int_equal(cycle_scripts(w) - before, 2 * ROUNDS);
    if (now_ms() - start_ms < 1000) /* who holds it for longer asks for it once */
        assert_int_equal(proxy_seen_in_time(w->proxy, "EVALSHA") - all_before, 2 * ROUNDS);
    assert_int_equal(hf_lock_release_as(locks[0], FIRST), HF_OK);
    hf_lock_free(locks[0]);
}

struct renewals {
    hf_client *client;
    uint64_t at_least;
};

static bool has_renewed(void *arg) {
    const struct renewals *wanted = arg;
    return world_stats(wanted->client).renewals >= wanted->at_least;
}

static bool wait_renewals(hf_client *client, uint64_t at_least) {
    struct renewals wanted = {client, at_least};
    return wait_until(has_renewed, &wanted, HANG_MS);
}

/* A hold that outlives the confirm is renewed once, and only then has its lease: also a fixed one,
 * which ends when it would have ended if it had been acquired without a wait. */
FAIR_CASE_WITH(a_grant_is_confirmed_once, fair_options(CONFIRM_MS)) {
    struct world_caller waiter;
    hf_acquire_options first = world_wait_for(HF_FOREVER, LEASE_MS);
    assert_int_equal(hf_lock_acquire_with(w->rival_lock, &first, NULL), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, world_wait_for(HF_FOREVER, LEASE_MS));
    size_t attempts = proxy_seen_in_time(w->proxy, FAIR_ACQUIRE);
    size_t before = proxy_seen_in_time(w->proxy, "EVALSHA");
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(hf_lock_remaining_ms_as(w->lock, FIRST) <= LEASE_MS);
    assert_true(wait_renewals(w->client, 1));
    assert_int_equal(proxy_seen_in_time(w->proxy, FAIR_ACQUIRE), attempts);
    size_t sent = proxy_seen_in_time(w->proxy, "EVALSHA") - before;
    if (now_ms() - start_ms < 1000) /* then it is listened for breaks */
        assert_int_equal(sent, 1);
    long long ttl_ms = pttl(w->server, WORLD_NAME);
    int64_t passed_ms = now_ms() - start_ms;
    assert_in_range(ttl_ms, LEASE_MS - passed_ms - passed_ms / 99 - 2,
                    LEASE_MS); /* as much as is trusted */
    int64_t remaining_ms = hf_lock_remaining_ms_as(w->lock, FIRST);
    assert_true(remaining_ms > CONFIRM_MS && remaining_ms <= ttl_ms + 1);
    assert_true(
        HOLDS_FOR(world_stats(w->client).renewals == 1, CONFIRM_MS)); /* it is no watchdog's */
    assert_int_equal(world_stats(w->client).losses, 0);
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

FAIR_CASE_WITH(a_grant_that_is_gone_is_reported, fair_options(ENDURING_MS)) {
    struct world_caller waiter;
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, world_wait_for(HF_FOREVER, LEASE_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    cmd_ok(w->server, "DEL %s", WORLD_NAME);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_ELOST);
    assert_int_equal(world_stats(w->client).holds, 0);
}

/* The server cannot be asked: then it is ours no longer than the confirm. */
FAIR_CASE_WITH(a_grant_that_cannot_be_confirmed_is_lost_in_time, fair_options(ENDURING_MS)) {
    struct world_caller waiter;
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, world_wait_for(HF_FOREVER, LEASE_MS));
    proxy_blackhole(w->proxy, true, false);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(hf_lock_remaining_ms_as(w->lock, FIRST) <= ENDURING_MS);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(atomic_load(&events.warnings), 1);
    assert_true(atomic_load(&events.warned_with_ms) > 0);
    /* and the server lets go of it a little later, by itself */
    assert_true(world_wait_free(w, HANG_MS));
    proxy_heal(w->proxy);
}

/* A nested acquire of one that was just granted asks the server, and confirms by that. */
FAIR_CASE_WITH(nested_acquire_confirms, fair_options(ENDURING_MS)) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, world_wait_for(HF_FOREVER, LEASE_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    hf_acquire_options again = world_wait_as(FIRST, HF_FOREVER, LEASE_MS);
    assert_int_equal(hf_lock_acquire_with(w->lock, &again, NULL), HF_OK);
    assert_true(pttl(w->server, WORLD_NAME) > ENDURING_MS);
    assert_true(hf_lock_remaining_ms_as(w->lock, FIRST) > ENDURING_MS);
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_OK);
    assert_int_equal(world_stats(w->client).renewals, 0);
    assert_int_equal(world_keys(w->server), 0);
}

/* A nested acquire for a shorter time than the first was promised does not cut that short. */
FAIR_CASE_WITH(nested_acquire_leaves_the_promise, fair_options(ENDURING_MS)) {
    enum { NESTED_MS = 1 };
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    queue_up(&waiter, w->server, w->client, w->lock, FIRST, world_wait_for(HF_FOREVER, LEASE_MS));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    hf_acquire_options again = world_wait_as(FIRST, HF_FOREVER, NESTED_MS);
    assert_int_equal(hf_lock_acquire_with(w->lock, &again, NULL), HF_OK);
    assert_true(wait_renewals(w->client, 1));
    assert_true(pttl(w->server, WORLD_NAME) > LEASE_MS / 2);
    assert_true(hf_lock_remaining_ms_as(w->lock, FIRST) > LEASE_MS / 2);
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

/* ---- The line ---- */

FAIR_CASE(one_attempt_never_queues) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
    assert_int_equal(world_keys(w->server), 1);
    /* Free, but the queue is not empty: its head is a Java client that has not come yet. */
    cmd_ok(w->server, "RPUSH " FAIR_QUEUE " java:1");
    cmd_ok(w->server, "ZADD " FAIR_DEADLINES " 99999999999999 java:1");
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
    assert_int_equal(queue_len(w->server), 1);
    /* And one that waits comes in behind it. */
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(wait_queue(w->server, 2));
    cmd_ok(w->server, "LPOP " FAIR_QUEUE);
    cmd_ok(w->server, "ZREM " FAIR_DEADLINES " java:1");
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
    assert_int_equal(world_keys(w->server), 0);
}

/* Some time out, some are cancelled, wherever they stand; the others keep their order, and nothing
 * of clients that left stays behind. */
FAIR_CASE(order_survives_leaving_waiters) {
    enum { COMERS = 12 };
    struct comer comers[COMERS];
    static struct arrivals arrivals;
    own_cancel *cancel;
    atomic_store(&arrivals.next, 0);
    assert_int_equal(hf_cancel_new(&cancel), HF_OK);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    for (int i = 0; i < COMERS; i++) {
        comers[i] =
            (struct comer){.lock = i % 2 == 0 ? w->lock : w->rival_lock,
                           .options = world_wait_for(i % 4 == 1 ? 300 : HF_FOREVER, HF_WATCHDOG),
                           .arrivals = &arrivals,
                           .index = i};
        comers[i].options.owner = (hf_owner)(FIRST + i);
        if (i % 4 == 2)
            comers[i].options.cancel = cancel;
    }
    /* Waiters with a short wait may have left before a query sees them. */
    for (int i = 0; i < COMERS; i++) {
        char owner[64];
        world_owner_text(i % 2 == 0 ? w->client : w->rival, (hf_owner)(FIRST + i), owner);
        comer_start(&comers[i]);
        assert_true(i % 4 == 1 || wait_listening(w->server, owner));
    }
    for (int i = 1; i < COMERS; i += 4)
        assert_int_equal(comer_join(&comers[i]), HF_ETIMEDOUT);
    hf_cancel_fire(cancel);
    for (int i = 2; i < COMERS; i += 4)
        assert_int_equal(comer_join(&comers[i]), HF_ECANCELED);
    assert_true(wait_queue(w->server, COMERS / 2));
    assert_int_equal(cmd_int(w->server, "ZCARD " FAIR_DEADLINES), COMERS / 2);
    assert_int_equal(cmd_int(w->server, "HLEN " FAIR_RECORDS), COMERS / 2);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    for (int i = 0; i < COMERS; i++)
        if (i % 4 == 0 || i % 4 == 3)
            assert_int_equal(comer_join(&comers[i]), HF_OK);
    for (int i = 0; i < COMERS / 2; i++)
        assert_int_equal(atomic_load(&arrivals.order[i]), i / 2 * 4 + (i % 2 == 0 ? 0 : 3));
    assert_true(wait_no_keys(w->server));
}

/* However long the wait, and whatever a Java client would make of the deadlines. */
FAIR_CASE_WITH(live_waiters_keep_their_place, fair_options(WATCHDOG_MS)) {
    enum { HORIZON_MS = 2 * WATCHDOG_MS };
    struct world_caller first, second;
    char owner[64];
    hf_acquire_options hold = world_wait_for(HF_FOREVER, 60000);
    assert_int_equal(hf_lock_acquire_with(w->rival_lock, &hold, NULL), HF_OK);
    queue_up(&first, w->server, w->client, w->lock, FIRST, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    queue_up(&second, w->server, w->rival, w->rival_lock, FIRST + 1,
             world_wait_for(HF_FOREVER, HF_WATCHDOG));
    world_owner_text(w->client, FIRST, owner);
    for (int64_t end_ms = now_ms() + 2 * HORIZON_MS; now_ms() < end_ms; wait_a_moment()) {
        char *head = cmd_str(w->server, "LINDEX " FAIR_QUEUE " 0");
        assert_string_equal(head, owner);
        free(head);
        assert_int_equal(queue_len(w->server), 2);
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(world_join(&first), HF_OK);
    assert_false(atomic_load(&second.done));
    assert_int_equal(hf_lock_release_as(w->lock, FIRST), HF_OK);
    assert_int_equal(world_join(&second), HF_OK);
    assert_int_equal(hf_lock_release_as(w->rival_lock, FIRST + 1), HF_OK);
    assert_true(wait_no_keys(w->server));
}

/* U62: a Java client whose clock is far ahead takes live waiters for dead and sweeps them. Each
 * comes back in front of clients that came later. */
FAIR_CASE_WITH(U62_swept_waiters_return_to_their_place, fair_options(WATCHDOG_MS)) {
    enum { WAITERS = 3 };
    struct world_caller waiters[WAITERS];
    char owners[WAITERS][64];
    hf_acquire_options hold = world_wait_for(HF_FOREVER, 60000);
    assert_int_equal(hf_lock_acquire_with(w->rival_lock, &hold, NULL), HF_OK);
    for (int i = 0; i < WAITERS; i++) {
        queue_up(&waiters[i], w->server, w->client, w->lock, (hf_owner)(FIRST + i),
                 world_wait_for(HF_FOREVER, HF_WATCHDOG));
        world_owner_text(w->client, (hf_owner)(FIRST + i), owners[i]);
    }
    /* As Redisson's sweep: the heads one by one, from both keys. */
    cmd_ok(w->server, "LPOP " FAIR_QUEUE " 2");
    cmd_ok(w->server, "ZREM " FAIR_DEADLINES " %s %s", owners[0], owners[1]);
    assert_true(wait_queue(w->server, WAITERS)); /* they poll */
    for (int i = 0; i < WAITERS; i++) {
        own_text *there = cmd_str(w->server, "LINDEX " FAIR_QUEUE " %d", i);
        assert_string_equal(there, owners[i]);
    }
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(world_join(&waiters[i]), HF_OK);
        assert_int_equal(hf_lock_release_as(w->lock, (hf_owner)(FIRST + i)), HF_OK);
    }
    assert_true(wait_no_keys(w->server));
}

/* Never a tight loop: the lock is free, but a dead Java client is head of the queue. */
FAIR_CASE(behind_a_dead_head_it_polls_gently) {
    cmd_ok(w->server, "RPUSH " FAIR_QUEUE " java:1");
    cmd_ok(w->server, "ZADD " FAIR_DEADLINES " 99999999999999 java:1");
    size_t before = proxy_seen(w->proxy, FAIR_ACQUIRE);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_for(w->lock, 1500), HF_ETIMEDOUT);
    int64_t took_ms = now_ms() - start_ms;
    /* Naps of 50, 100, 200, 400, 800; two attempts before the first, and one at most in place of
     * the confirmation of the subscription. */
    size_t most = 3;
    for (int64_t at_ms = 50, pause_ms = 50; at_ms <= took_ms; pause_ms *= 2, at_ms += pause_ms)
        most++;
    assert_in_range(proxy_seen(w->proxy, FAIR_ACQUIRE) - before, 3, most);
    assert_true(wait_queue(w->server, 1));
}

/* ---- Who is there ---- */

FAIR_CASE(inspect_shows_the_queue) {
    enum { WAITERS = 3 };
    struct world_caller waiters[WAITERS];
    hf_lock_info *info;
    char owner[64];
    own_lock *plain = new_handle(w->client, HF_PLAIN);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_inspect(w->lock, &info), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_FAIR);
    assert_int_equal(info->waiters_len, 0);
    hf_lock_info_free(info);
    for (int i = 0; i < WAITERS; i++)
        queue_up(&waiters[i], w->server, w->client, w->lock, (hf_owner)(FIRST + i),
                 world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(hf_lock_inspect(plain, &info), HF_OK); /* the queue tells that it is fair */
    assert_int_equal(info->kind, HF_FOUND_FAIR);
    assert_int_equal(info->holders_len, 1);
    assert_string_equal(info->holders[0]->owner, w->rival_owner);
    assert_int_equal(info->waiters_len, WAITERS);
    for (int i = 0; i < WAITERS; i++) {
        world_owner_text(w->client, (hf_owner)(FIRST + i), owner);
        assert_string_equal(info->waiters[i]->owner, owner);
        assert_int_equal(info->waiters[i]->count, 0);
        assert_non_null(info->waiters[i]->connection);
    }
    hf_lock_info_free(info);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    for (int i = 0; i < WAITERS; i++) {
        assert_int_equal(world_join(&waiters[i]), HF_OK);
        assert_int_equal(hf_lock_release_as(w->lock, (hf_owner)(FIRST + i)), HF_OK);
    }
    assert_int_equal(hf_lock_inspect(w->lock, &info), HF_OK);
    assert_int_equal(info->kind, HF_FOUND_FREE);
    assert_int_equal(info->waiters_len, 0);
    hf_lock_info_free(info);
}

FAIR_CASE(other_things_of_this_name_are_refused) {
    static const char *const things[] = {
        "SET " WORLD_NAME " 1",   "HSET " WORLD_NAME " mode read java:1 1",
        "SET " FAIR_QUEUE " 1",   "SET " FAIR_DEADLINES " 1",
        "SET " FAIR_RECORDS " 1",
    };
    for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
        cmd_ok(w->server, "FLUSHALL");
        cmd_ok(w->server, things[i]);
        assert_int_equal(hf_lock_try(w->lock), HF_EWRONGTYPE);
        assert_int_equal(hf_lock_acquire_for(w->lock, 100), HF_EWRONGTYPE);
        assert_int_equal(world_keys(w->server), 1);
        if (i < 2)
            continue;
        cmd_ok(w->server, "FLUSHALL"); /* held, and then it becomes something else */
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        cmd_ok(w->server, things[i]);
        assert_int_equal(hf_lock_release(w->lock), HF_EWRONGTYPE);
        assert_int_equal(world_count(w, w->owner), 1);
    }
    cmd_ok(w->server, "FLUSHALL");
}

RUN_CASES(world_start_server, world_stop_server)
