/*
 * Owners: who holds is the number, not the thread or the handle.
 *
 * By default each thread has a number of its own, never used again; a caller may pass numbers
 * instead, and then any thread may act for them through any handle. What a handle's end does (U64)
 * and what a thread's end does (U54, U55) is here too.
 */
#include "support/world.h"

static hf_acquire_options once_as(hf_owner owner) {
    hf_acquire_options options = world_wait_as(owner, 0, HF_WATCHDOG);
    return options;
}

static int try_as(hf_lock *lock, hf_owner owner) {
    hf_acquire_options options = once_as(owner);
    return hf_lock_acquire_with(lock, &options, NULL);
}

static bool held_by(hf_lock *lock, hf_owner owner) {
    bool held = false;
    assert_int_equal(hf_lock_is_mine_as(lock, owner, &held), HF_OK);
    return held;
}

static int64_t count_of(hf_lock *lock, hf_owner owner) {
    int64_t count = -1;
    assert_int_equal(hf_lock_hold_count_as(lock, owner, &count), HF_OK);
    return count;
}

/* Runs a try or release for an owner on a thread of its own. */
struct job {
    hf_lock *lock;
    hf_owner owner;
    bool release;
    int err;
};

static void *run_job(void *arg) {
    struct job *job = arg;
    job->err =
        job->release ? hf_lock_release_as(job->lock, job->owner) : try_as(job->lock, job->owner);
    return NULL;
}

static int elsewhere(hf_lock *lock, hf_owner owner, bool release) {
    struct job job = {.lock = lock, .owner = owner, .release = release, .err = HF_EINVAL};
    pthread_t thread = started(run_job, &job);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return job.err;
}

WORLD_CASE(C215_C218_ownership_follows_the_number) {
    char one[64], two[64];
    own_lock *second = made(hf_lock_new, w->client, WORLD_NAME);
    world_owner_text(w->client, 1, one);
    world_owner_text(w->client, 2, two);

    assert_int_equal(try_as(w->lock, 1), HF_OK);
    assert_int_equal(world_count(w, one), 1);
    assert_true(held_by(w->lock, 1) && held_by(second, 1));
    assert_false(held_by(w->lock, 2) || held_by(second, 2) || held_by(w->lock, 0));
    assert_int_equal(try_as(second, 2), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(second, 2), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    assert_int_equal(elsewhere(second, 1, true), HF_OK);
    assert_true(world_free_after_refusal(w));

    assert_int_equal(elsewhere(second, 2, false), HF_OK);
    assert_int_equal(world_count(w, two), 1);
    assert_true(held_by(w->lock, 2));
    assert_false(held_by(w->lock, 1));
    assert_int_equal(hf_lock_release_as(w->lock, 1), HF_ENOTOWNER);
    assert_int_equal(hf_lock_release_as(w->lock, 2), HF_OK);
    assert_true(world_free(w));
}

/* The same number of another client is another owner. */
WORLD_CASE(numbers_belong_to_a_client) {
    assert_int_equal(try_as(w->lock, 7), HF_OK);
    assert_int_equal(try_as(w->rival_lock, 7), HF_EBUSY);
    assert_int_equal(hf_lock_release_as(w->rival_lock, 7), HF_ENOTOWNER);
    assert_false(held_by(w->rival_lock, 7));
    assert_int_equal(hf_lock_release_as(w->lock, 7), HF_OK);
}

/* Explicit owners nest, are extended and asked like threads, from whichever thread. */
WORLD_CASE(every_verb_with_an_explicit_owner) {
    hf_owner owner = hf_owner_new();
    assert_int_equal(try_as(w->lock, owner), HF_OK);
    assert_int_equal(elsewhere(w->lock, owner, false), HF_OK);
    assert_int_equal(count_of(w->lock, owner), 2);
    assert_int_equal(count_of(w->lock, 0), 0);
    assert_int_equal(hf_lock_extend(w->lock, 90000), HF_ENOTOWNER);
    assert_int_equal(hf_lock_extend_as(w->lock, owner, 90000), HF_OK);
    if (!server_is_other(w->server)) {
        assert_true(pttl(w->server, WORLD_NAME) > 60000);
        assert_true(hf_lock_remaining_ms_as(w->lock, owner) > 60000);
    }
    assert_int_equal(hf_lock_remaining_ms(w->lock), 0);
    assert_int_equal(elsewhere(w->lock, owner, true), HF_OK);
    assert_int_equal(count_of(w->lock, owner), 1);
    assert_int_equal(hf_lock_release_as(w->lock, owner), HF_OK);
    assert_int_equal(hf_lock_remaining_ms_as(w->lock, owner), 0);
    assert_true(world_free(w));
}

WORLD_CASE(which_numbers_are_taken) {
    uint64_t commands = world_stats(w->client).commands;
    assert_int_equal(try_as(w->lock, UINT64_MAX), HF_EINVAL);
    assert_int_equal(try_as(w->lock, hf_owner_new() + 1), HF_EINVAL); /* not handed out yet */
    assert_int_equal(hf_lock_release_as(w->lock, UINT64_MAX), HF_EINVAL);
    assert_int_equal(world_stats(w->client).commands, commands);
    assert_int_equal(try_as(w->lock, UINT32_MAX), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, UINT32_MAX), HF_OK);
    /* This thread's own number may be written out. */
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(try_as(w->lock, hf_owner_self()), HF_OK);
    assert_int_equal(world_count(w, w->owner), 2);
    assert_int_equal(elsewhere(w->lock, hf_owner_self(), true), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

WORLD_CASE(R08_async_acquires_get_fresh_owners) {
    hf_op *op;
    hf_owner owners[3];
    for (int i = 0; i < 3; i++) {
        hf_result result = HF_RESULT_INIT;
        char text[64];
        assert_int_equal(hf_lock_acquire_start(w->lock, NULL, NULL, NULL, &op), HF_OK);
        assert_int_equal(joined(op, &result), HF_OK);
        owners[i] = result.owner;
        assert_true(result.owner > UINT32_MAX);
        assert_int_not_equal(result.owner, hf_owner_self());
        for (int j = 0; j < i; j++)
            assert_int_not_equal(owners[j], owners[i]);
        world_owner_text(w->client, result.owner, text);
        assert_int_equal(world_count(w, text), 1);
        assert_int_equal(hf_lock_try(w->lock), HF_EBUSY); /* not this thread's */
        assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
        assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
    }
}

/* ---- Threads ---- */

static void *tell_number(void *arg) {
    *(hf_owner *)arg = hf_owner_self();
    return NULL;
}

/* pthread_t values come back after a handful of threads; numbers never do. */
CASE(U55_numbers_are_never_used_again) {
    hf_owner last = hf_owner_self();
    pthread_t first = 0;
    bool reused = false;
    for (int i = 0; i < 200; i++) {
        hf_owner owner = 0;
        pthread_t thread = started(tell_number, &owner);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(owner > last);
        last = owner;
        reused = reused || (i > 0 && pthread_equal(thread, first));
        first = i == 0 ? thread : first;
    }
    assert_true(reused); /* else this test shows nothing */
    assert_true(hf_owner_new() > last);
}

WORLD_CASE(U55_a_new_thread_inherits_nothing) {
    assert_int_equal(elsewhere(w->lock, 0, false), HF_OK); /* acquired by a thread that is gone */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(elsewhere(w->lock, 0, false), HF_EBUSY);
        assert_int_equal(elsewhere(w->lock, 0, true), HF_ENOTOWNER);
    }
}

WORLD_CASE_WITH(U54_holds_of_an_ended_thread_are_not_renewed, world_options(),
                options.watchdog_ms = ENDURING_MS) {
    /* the thread has ended long before the first renewal */
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    own_monitor *monitor = monitor_start(w->server);
    int64_t start_ms = now_ms();
    assert_int_equal(elsewhere(w->lock, 0, false), HF_OK);
    assert_true(world_wait_atomic(&events.orphans, 1, HANG_MS));
    assert_true(world_wait_free(w, HANG_MS));
    if (!server_is_other(w->server)) {
        assert_true(now_ms() - start_ms >= ENDURING_MS);
        /* That of the acquire. (Whether it is still there may be asked.) */
        assert_int_equal(monitor_count(monitor, "\"pexpire\""), 1);
    }
    assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
    assert_int_equal(atomic_load(&events.orphans), 1);
    assert_int_equal(world_stats(w->client).holds, 0);
}

/* Numbers that the caller chose belong to no thread. */
WORLD_CASE_WITH(U54_explicit_owners_outlive_threads, world_options(),
                options.watchdog_ms = ENDURING_MS) {
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    assert_int_equal(elsewhere(w->lock, 5, false), HF_OK);
    assert_true(HOLDS_FOR(held_by(w->lock, 5), ENDURING_MS + 1000)); /* for longer than a lease */
    assert_int_equal(atomic_load(&events.orphans), 0);
    assert_int_equal(hf_lock_release_as(w->lock, 5), HF_OK);
}

/* ---- Handles ---- */

WORLD_CASE(U64_a_handle_is_not_a_hold) {
    hf_lock *first = made(hf_lock_new, w->client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(first), HF_OK);
    hf_lock_free(first); /* while it is held */
    assert_int_equal(world_count(w, w->owner), 1);
    hf_lock *second = made(hf_lock_new, w->client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire(second), HF_OK);
    assert_int_equal(world_count(w, w->owner), 2);
    assert_int_equal(hf_lock_release(w->lock), HF_OK); /* by any handle of the name */
    assert_int_equal(hf_lock_release(second), HF_OK);
    assert_int_equal(hf_lock_release(second), HF_ENOTOWNER);
    hf_lock_free(second);
    hf_lock_free(NULL);
}

static bool somebody_listens(void *server) {
    return world_channels(server) > 0;
}

/* An asynchronous wait does not need the handle it was started through. */
WORLD_CASE(U64_a_handle_freed_while_its_operation_waits) {
    hf_op *op;
    hf_result result = HF_RESULT_INIT;
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    hf_lock *handle = made(hf_lock_new, w->client, WORLD_NAME);
    assert_int_equal(hf_lock_acquire_start(handle, NULL, NULL, NULL, &op), HF_OK);
    assert_true(wait_until(somebody_listens, w->server, HANG_MS));
    hf_lock_free(handle);
    assert_int_equal(hf_op_wait(op, 0, NULL), HF_EPENDING);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(joined(op, &result), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, result.owner), HF_OK);
}

CASE(U64_no_handle_is_an_error) {
    bool answer;
    int64_t number;
    hf_lock_info *info;
    assert_int_equal(hf_lock_acquire(NULL), HF_EINVAL);
    assert_int_equal(hf_lock_try(NULL), HF_EINVAL);
    assert_int_equal(hf_lock_acquire_with(NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_release(NULL), HF_EINVAL);
    assert_int_equal(hf_lock_extend(NULL, 1), HF_EINVAL);
    assert_int_equal(hf_lock_break(NULL, &answer), HF_EINVAL);
    assert_int_equal(hf_lock_is_locked(NULL, &answer), HF_EINVAL);
    assert_int_equal(hf_lock_is_mine(NULL, &answer), HF_EINVAL);
    assert_int_equal(hf_lock_hold_count(NULL, &number), HF_EINVAL);
    assert_int_equal(hf_lock_ttl_ms(NULL, &number), HF_EINVAL);
    assert_int_equal(hf_lock_inspect(NULL, &info), HF_EINVAL);
    assert_int_equal(hf_lock_remaining_ms(NULL), 0);
    assert_int_equal(hf_lock_token(NULL, &number), HF_EINVAL);
    assert_int_equal(hf_lock_on_lost(NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_lost_fd(NULL), HF_EINVAL);
    assert_int_equal(hf_lock_acquire_start(NULL, NULL, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_release_start(NULL, 1, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_extend_start(NULL, 1, 1, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_break_start(NULL, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_is_locked_start(NULL, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_is_mine_start(NULL, 1, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_hold_count_start(NULL, 1, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_lock_ttl_ms_start(NULL, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_ping(NULL), HF_EINVAL);
    assert_int_equal(hf_ping_start(NULL, NULL, NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_op_wait(NULL, 0, NULL), HF_EINVAL);
    hf_op_cancel(NULL);
    hf_op_free(NULL);
    hf_cancel_fire(NULL);
    hf_cancel_reset(NULL);
    hf_cancel_free(NULL);
    assert_int_equal(hf_lock_token(NULL, NULL), HF_EINVAL);
    assert_int_equal(hf_cancel_new(NULL), HF_EINVAL);
    assert_string_equal(hf_last_error()->text, hf_strerror(HF_EINVAL)); /* not what was before it */
    assert_int_equal(hf_close(NULL), HF_OK);
    assert_int_equal(hf_last_error()->code, HF_EINVAL);
}

/* ---- Waits that are numbers ---- */

WORLD_CASE(U03_waits_of_zero_less_and_too_much) {
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    size_t subscribed = proxy_seen(w->proxy, WORLD_SUBSCRIBE);
    size_t attempts = proxy_seen(w->proxy, world_acquires(w));
    size_t one = server_is_other(w->server) ? 0 : 1; /* there it only looks */
    assert_int_equal(hf_lock_acquire_for(w->lock, 0), HF_EBUSY);
    assert_int_equal(proxy_seen(w->proxy, WORLD_SUBSCRIBE), subscribed);
    assert_int_equal(proxy_seen(w->proxy, world_acquires(w)), attempts + one);
    assert_int_equal(hf_lock_acquire_for(w->lock, -2), HF_EINVAL);
    assert_int_equal(hf_lock_acquire_for(w->lock, INT64_MIN), HF_EINVAL);
    assert_int_equal(proxy_seen(w->proxy, world_acquires(w)), attempts + one);

    const int64_t waits_ms[] = {HF_FOREVER, INT64_MAX, INT64_MAX - 1, INT64_MAX / 2};
    for (size_t i = 0; i < sizeof waits_ms / sizeof waits_ms[0]; i++) {
        struct world_caller waiter;
        world_call_acquire(&waiter, w->lock, world_wait_for(waits_ms[i], HF_WATCHDOG));
        assert_true(wait_until(somebody_listens, w->server, HANG_MS));
        assert_false(atomic_load(&waiter.done));
        assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
        assert_int_equal(world_join(&waiter), HF_OK);
        assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
        assert_true(world_wait_no_channels(w->server, HANG_MS));
        assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    }
}

RUN_CASES(world_start_server, world_stop_server)
