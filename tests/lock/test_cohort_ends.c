/*
 * HF_COHORT: ends. Clients that close while it is busy, single attempts, limited waits of threads
 * that were skipped, max_hold_ms; and its errors, statistics and surveys.
 */
#include "lock/cohort.h"
#include "support/crowd.h"

/* ---- A client that closes ---- */

#define LOOPERS 6

static void *loop_until_closed(void *arg) {
    hf_lock *lock = arg;
    int err;
    do {
        err = hf_lock_acquire(lock);
        if (err == HF_OK)
            err = hf_lock_release(lock);
    } while (err == HF_OK);
    return (void *)(intptr_t)err;
}

struct closer {
    pthread_t thread;
    hf_client *client;
    atomic_bool done;
};

static void *close_it(void *arg) {
    struct closer *closer = arg;
    hf_close(closer->client);
    atomic_store(&closer->done, true);
    return NULL;
}

static void begin_close(struct closer *closer, hf_client *client) {
    closer->client = client;
    atomic_init(&closer->done, false);
    assert_int_equal(pthread_create(&closer->thread, NULL, close_it, closer), 0);
}

static bool is_true(void *arg) {
    return atomic_load((atomic_bool *)arg);
}

static void end_close(struct closer *closer) {
    assert_true(wait_until(is_true, &closer->done, HANG_MS));
    assert_int_equal(pthread_join(closer->thread, NULL), 0);
}

static void close_busy(hf_kind kind, int64_t passes, unsigned after_ms) {
    OWN(world_end) struct world w;
    struct crowd crowd = {0};
    hf_options options = world_options();
    world_begin(&w, NULL);
    hf_client *client = made(hf_open, server_url(w.server), &options);
    own_lock *lock = cohort_lock(client, kind, 0, passes, 5);
    for (int i = 0; i < LOOPERS; i++)
        crowd_add(&crowd, loop_until_closed, lock);
    linger(after_ms);
    struct closer closer;
    begin_close(&closer, client);
    end_close(&closer);
    crowd_join_with(&crowd, (void *)(intptr_t)HF_ECLOSED);
}

/* Whatever goes on in that moment, nobody waits for what does not come any more. */
CASE(closes_while_busy) {
    for (unsigned i = 0; i < 60; i++)
        close_busy(i % 2 ? HF_FAIR : HF_PLAIN, 2, 3 + i % 13);
}

/* The server does not answer a release: those in the queue do not wait for that, and it is settled
 * before the client ends. */
CASE_IN(closes_while_releasing, struct world, w, cohort_begin, world_end, NULL, 1000, 1) {
    hf_op *release = NULL, *waiters[3];
    struct closer closer;
    assert_int_equal(cohort_join(cohort_start(w->lock, 11, HF_FOREVER, NULL)), HF_OK);
    for (hf_owner i = 0; i < 3; i++)
        waiters[i] = cohort_start(w->lock, 12 + i, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    cohort_outlast_turn();
    proxy_stall_request(w->proxy, WORLD_RELEASE);
    assert_int_equal(hf_lock_release_start(w->lock, 11, NULL, NULL, &release), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    begin_close(&closer, w->client);
    for (int i = 0; i < 3; i++)
        assert_int_equal(cohort_join(waiters[i]), HF_ECLOSED);
    assert_true(cohort_join(release) != HF_EPENDING);
    assert_true(proxy_release_held(w->proxy) > 0);
    end_close(&closer);
    assert_true(world_wait_free(w, HANG_MS));
    w->client = NULL;
}

/* What was granted to nobody any more is given back. */
WORLD_CASE(closing_gives_back) {
    hf_options options = world_options();
    for (unsigned i = 0; i < 60; i++) {
        hf_client *client = made(hf_open, server_url(w->server), &options);
        own_lock *lock = cohort_lock(client, HF_PLAIN, 0, 1000, 5);
        assert_int_equal(hf_ping(client), HF_OK);
        hf_op *op = cohort_start(lock, 11, HF_FOREVER, NULL);
        sched_yield();
        if (i % 3 == 1)
            hf_op_cancel(op);
        assert_int_equal(hf_close(client), HF_OK);
        if (cohort_join(op) != HF_OK)
            assert_true(world_wait_free(w, HANG_MS));
        cmd_int(w->server, "DEL %s", WORLD_NAME);
    }
}

/* ---- Single attempts ---- */

/* Others are in the queue, and a release is under way: it is busy. */
CASE_IN(tries_once, struct world, w, cohort_begin, world_end, NULL, 1000, 1) {
    hf_op *release = NULL;
    assert_int_equal(cohort_join(cohort_start(w->lock, 11, HF_FOREVER, NULL)), HF_OK);
    hf_op *next = cohort_start(w->lock, 12, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    cohort_outlast_turn();
    proxy_stall_request(w->proxy, WORLD_RELEASE);
    assert_int_equal(hf_lock_release_start(w->lock, 11, NULL, NULL, &release), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_int_equal(cohort_join(cohort_start(w->lock, 13, 0, NULL)), HF_EBUSY);
    assert_true(cohort_is_pending(release));
    assert_true(proxy_release_held(w->proxy) > 0);
    assert_int_equal(cohort_join(release), HF_OK);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, 12), HF_OK);
}

/* The server is silent, and others come behind the single attempt: that it fails is its own affair. */
CASE(tries_once_behind_a_release) {
    OWN(world_end) struct world w;
    hf_op *release = NULL;
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    cohort_begin(&w, &options, 1000, 1);
    world_warm_up(w.lock);
    assert_int_equal(cohort_join(cohort_start(w.lock, 11, HF_FOREVER, NULL)), HF_OK);
    proxy_blackhole(w.proxy, true, true);
    assert_int_equal(hf_lock_release_start(w.lock, 11, NULL, NULL, &release), HF_OK);
    hf_op *once = cohort_start(w.lock, 13, 0, NULL);
    hf_op *next = cohort_start(w.lock, 14, HF_FOREVER, NULL);
    int err = cohort_join(once);
    assert_true(err == HF_EUNREACH || err == HF_EBUSY);
    cohort_join(release); /* whatever it says */
    proxy_heal(w.proxy);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w.lock, 14), HF_OK);
}

/* ---- Limited waits ---- */

struct served {
    hf_client *client;
    hf_op *op;
};

static bool is_over(void *arg) {
    struct served *served = arg;
    hf_dispatch(served->client, 10);
    return !cohort_is_pending(served->op);
}

/* It was let in, did not come for it, and comes when its wait is over. */
CASE(passed_over) {
    OWN(world_end) struct world w;
    struct world_caller caller;
    hf_options options = world_options();
    options.flags |= HF_MANUAL_DISPATCH;
    cohort_begin(&w, &options, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    hf_op *stuck = cohort_start(w.lock, 11, 1000, NULL);
    assert_int_equal(hf_dispatch(w.client, 0), 0);
    world_call_acquire(&caller, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(HOLDS_FOR(!atomic_load(&caller.done), 50));
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_int_equal(world_join(&caller), HF_OK);
    sleep_ms(1000); /* its wait is over then, which nobody notices who does not dispatch */
    struct served served = {w.client, stuck};
    assert_true(wait_until(is_over, &served, HANG_MS));
    assert_int_equal(cohort_join(stuck), HF_ETIMEDOUT);
    assert_int_equal(hf_lock_release_as(w.lock, caller.owner), HF_OK);
    assert_true(world_free(&w));
}

/* In this process others can be in front of the cohort: they wait for the same lock by another handle. */
CASE(waits_behind_a_plain_handle) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    cohort_begin(&w, &options, 1000, 1000);
    own_lock *plain = NULL;
    hf_acquire_options patient = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    hf_op *first = NULL;
    assert_int_equal(hf_lock_new(w.client, WORLD_NAME, &plain), HF_OK);
    assert_int_equal(hf_lock_acquire(w.rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire_start(plain, &patient, NULL, NULL, &first), HF_OK);
    cohort_all_have_come(plain);
    assert_int_equal(hf_lock_acquire_for(w.lock, 100), HF_ETIMEDOUT);
    assert_true(hf_op_wait(first, 0, NULL) != HF_OK);
    assert_int_equal(hf_lock_release(w.rival_lock), HF_OK);
    assert_int_equal(cohort_join(first), HF_OK);
}

/* Until a release is answered the lock is as good as held by the client that had it: that is what a
 * wait says that ends before. */
COHORT_CASE(waits_behind_a_release_that_is_not_answered) {
    hf_op *release = NULL;
    assert_int_equal(cohort_join(cohort_start(w->lock, 5, HF_FOREVER, NULL)), HF_OK);
    proxy_stall_request(w->proxy, WORLD_RELEASE);
    assert_int_equal(hf_lock_release_start(w->lock, 5, NULL, NULL, &release), HF_OK);
    assert_true(proxy_wait_held(w->proxy, HANG_MS));
    assert_int_equal(hf_lock_acquire_for(w->lock, 50), HF_ETIMEDOUT);
    assert_true(cohort_is_pending(release));
    assert_int_equal(proxy_release_held(w->proxy), 1);
    assert_int_equal(cohort_join(release), HF_OK);
    assert_int_equal(hf_lock_acquire_for(w->lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* The oldest a hold may become is a matter of each: the tenure may be older. */
CASE(each_has_its_age) {
    OWN(world_end) struct world w;
    struct world_events events = {0};
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    options.watchdog_ms = ENDURING_MS;
    options.max_hold_ms = 1500;
    cohort_begin(&w, &options, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);
    for (hf_owner i = 11; i < 17; i++) {
        hf_op *next = cohort_start(w.lock, i, HF_FOREVER, NULL);
        if (i > 11) {
            cohort_all_have_come(w.lock);
            assert_true(HOLDS_FOR(hf_lock_remaining_ms_as(w.lock, i - 1) > 0, 1100));
            assert_int_equal(hf_lock_release_as(w.lock, i - 1), HF_OK);
        }
        assert_int_equal(cohort_join(next), HF_OK);
    }
    assert_int_equal(atomic_load(&events.losses), 0);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS)); /* that of the last */
    assert_true(world_wait_free(&w, HANG_MS));
}

/* ---- What is said of it ---- */

COHORT_CASE(counted_once) {
    bool was_held;
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    hf_stats before = world_stats(w->client);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    hf_op *next = cohort_start(w->lock, 11, HF_FOREVER, NULL);
    cohort_all_have_come(w->lock);
    assert_int_equal(hf_lock_try(w->rival_lock), HF_EBUSY);
    assert_int_equal(world_stats(w->client).holds, 1);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(cohort_join(next), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, 11), HF_OK);
    hf_stats stats = world_stats(w->client);
    assert_int_equal(stats.acquired - before.acquired, 2);
    assert_int_equal(stats.released - before.released, 2);
    assert_int_equal(stats.contended - before.contended, 1);
    assert_int_equal(stats.holds, 0);
    assert_int_equal(stats.wait.count - before.wait.count, 2);
    assert_int_equal(stats.hold.count - before.hold.count, 2);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_try(w->lock), HF_EBUSY);
    assert_int_equal(hf_lock_acquire_for(w->lock, 50), HF_ETIMEDOUT);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    stats = world_stats(w->client);
    assert_int_equal(stats.timed_out - before.timed_out, 2);
    assert_int_equal(stats.cancelled - before.cancelled, 0);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_break(w->lock, &was_held), HF_OK);
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    stats = world_stats(w->client);
    assert_int_equal(stats.losses - before.losses, 1);
    assert_int_equal(stats.holds, 0);
}

/* At the end of a limited wait it is said which server it was, and what it did. */
CASE(errors_say_why) {
    OWN(world_end) struct world w;
    hf_options options = world_options();
    options.cmd_timeout_ms = WORLD_BRIEF_MS;
    options.connect_timeout_ms = HANG_MS;
    cohort_begin(&w, &options, 1000, COHORT_LONG_MS);
    assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    cmd_ok(w.server, "CONFIG SET min-replicas-to-write 1");
    assert_int_equal(hf_lock_acquire_for(w.lock, 1000), HF_EUNAVAILABLE);
    assert_non_null(strstr(hf_last_error()->text, "NOREPLICAS"));
    assert_string_not_equal(hf_last_error()->node, "");
    cmd_ok(w.server, "CONFIG SET min-replicas-to-write 0");
    assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_OK);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    proxy_blackhole(w.proxy, true, true);
    assert_int_equal(hf_lock_acquire_for(w.lock, 2 * WORLD_BRIEF_MS), HF_EUNREACH);
    assert_string_not_equal(hf_last_error()->text, hf_strerror(HF_EUNREACH));
    assert_string_not_equal(hf_last_error()->node, "");
    proxy_heal(w.proxy);
}

/* ---- Surveys ---- */

struct side {
    hf_client *client;
    hf_lock *has, *wants;
    hf_owner owner;
    hf_op *wait;
};

static hf_lock *named_cohort(hf_client *client, const char *name) {
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.flags = HF_COHORT;
    return made(hf_lock_new_with, client, name, strlen(name), &options);
}

static void begin_side(struct side *side, struct server *server, const char *has, const char *wants,
                       hf_owner owner) {
    hf_options options = world_options();
    options.report_after_ms = 0;
    assert_int_equal(hf_open(server_url(server), &options, &side->client), HF_OK);
    side->has = named_cohort(side->client, has);
    side->wants = named_cohort(side->client, wants);
    side->owner = owner;
    assert_int_equal(cohort_join(cohort_start(side->has, owner, HF_FOREVER, NULL)), HF_OK);
}

static void end_side(struct side *side, int expected) {
    assert_int_equal(cohort_join(side->wait), expected);
    if (expected == HF_OK)
        assert_int_equal(hf_lock_release_as(side->wants, side->owner), HF_OK);
    assert_int_equal(hf_lock_release_as(side->has, side->owner), HF_OK);
}

static void free_side(struct side *side) {
    hf_lock_free(side->has);
    hf_lock_free(side->wants);
    assert_int_equal(hf_close(side->client), HF_OK);
}

struct seen {
    hf_client *client;
    hf_fleet *earlier, *later;
    hf_deadlocks *deadlocks;
};

static bool is_deadlocked(void *arg) {
    struct seen *seen = arg;
    hf_deadlocks_free(seen->deadlocks);
    hf_fleet_free(seen->earlier);
    seen->deadlocks = NULL;
    seen->earlier = seen->later;
    assert_int_equal(hf_survey(seen->client, NULL, &seen->later), HF_OK);
    if (seen->earlier == NULL)
        return false;
    assert_int_equal(hf_fleet_deadlocks(seen->earlier, seen->later, &seen->deadlocks), HF_OK);
    return seen->deadlocks->len > 0;
}

static void expect_reported(const hf_fleet_lock *lock, const char *holder, const char *waiter) {
    assert_false(lock->disputed);
    assert_string_equal(lock->kind, "plain");
    assert_int_equal(lock->waiters_len, 1);
    assert_string_equal(lock->waiters[0]->owner, waiter);
    assert_int_equal(lock->holders_len, 2); /* the cohort, and who is inside */
    assert_int_equal(lock->holders[0]->seen_by, HF_SEEN_BY_SERVER | HF_SEEN_BY_CLIENT);
    assert_string_equal(lock->holders[1]->owner, holder);
    assert_string_equal(lock->holders[1]->kind, "cohort");
    assert_int_equal(lock->holders[1]->presence, HF_PRESENCE_ALIVE);
}

/* A deadlock of two threads is found, by their owners. */
WORLD_CASE(deadlocks_are_seen) {
    struct side left, right;
    char left_owner[64], right_owner[64];
    begin_side(&left, w->server, "left", "right", 21);
    begin_side(&right, w->server, "right", "left", 22);
    left.wait = cohort_start(left.wants, left.owner, HF_FOREVER, NULL);
    right.wait = cohort_start(right.wants, right.owner, HF_FOREVER, NULL);
    struct seen seen = {.client = w->rival};
    assert_true(wait_until(is_deadlocked, &seen, HANG_MS));
    assert_int_equal(seen.deadlocks->len, 1);
    assert_int_equal(seen.deadlocks->all[0].steps_len, 2);
    world_owner_text(left.client, 21, left_owner);
    world_owner_text(right.client, 22, right_owner);
    assert_int_equal(seen.later->locks_len, 2);
    expect_reported(seen.later->locks[0], left_owner, right_owner);
    expect_reported(seen.later->locks[1], right_owner, left_owner);
    hf_deadlocks_free(seen.deadlocks);
    hf_fleet_free(seen.earlier);
    hf_fleet_free(seen.later);
    hf_op_cancel(right.wait);
    end_side(&right, HF_ECANCELED);
    end_side(&left, HF_OK);
    free_side(&left);
    free_side(&right);
}

RUN_CASES(world_start_server, world_stop_server)
