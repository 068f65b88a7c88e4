/*
 * The non-reentrant lock: rows C204 and C206, and that a second acquire of its owner is refused at
 * once, whatever its form, without a word to the server and without touching the hold.
 */
#include "lock/kinds.h"

/* Refused, and nothing was sent; the hold is what it was. It was verified before, or the client
 * itself might say something. */
#define assert_refused(w, call)                                                                    \
    do {                                                                                           \
        uint64_t sent_ = world_stats((w)->client).commands;                                        \
        assert_int_equal((call), HF_EDEADLK);                                                      \
        assert_int_equal(world_stats((w)->client).commands, sent_);                                \
        assert_int_equal(world_count((w), (w)->owner), 1);                                         \
    } while (0)

static void assert_refused_in_every_form(struct world *w, hf_lock *lock) {
    hf_acquire_options leased = world_wait_for(HF_FOREVER, 5000);
    hf_result result = HF_RESULT_INIT;
    assert_refused(w, hf_lock_acquire(lock));
    assert_refused(w, hf_lock_try(lock));
    assert_refused(w, hf_lock_acquire_for(lock, HANG_MS));
    assert_refused(w, hf_lock_acquire_with(lock, &leased, &result));
    assert_int_equal(result.code, HF_EDEADLK);
    assert_non_null(strstr(result.error.text, "not reentrant"));
    assert_refused(w, world_acquire_async(lock, 0, HF_FOREVER, NULL));
    assert_refused(w, world_acquire_async(lock, 0, 0, NULL));
}

KIND_CASE(C206_refused_at_once_through_every_handle, HF_NONREENTRANT) {
    bool mine = false;
    own_lock *second = new_handle(w->client, HF_NONREENTRANT);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(world_wait_verified(w, HANG_MS));
    int64_t left_ms = hf_lock_remaining_ms(w->lock);
    assert_refused_in_every_form(w, w->lock);
    assert_refused_in_every_form(w, second);
    assert_true(hf_lock_remaining_ms(w->lock) <= left_ms);
    assert_true(now_ms() - start_ms < HANG_MS);
    assert_int_equal(hf_lock_is_mine(second, &mine), HF_OK);
    assert_true(mine);
    assert_int_equal(world_stats(w->client).holds, 1);

    /* One release frees it, and then it can be had again. */
    assert_int_equal(hf_lock_release(second), HF_OK);
    assert_true(world_free(w));
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
    assert_int_equal(hf_lock_acquire(second), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

KIND_CASE(C204_another_thread_waits_and_enters, HF_NONREENTRANT) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_true(world_wait_verified(w, HANG_MS));
    size_t seen = proxy_seen(w->proxy, world_acquires(w));
    world_call_acquire(&waiter, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(world_wait_asleep(w, seen, HANG_MS));
    assert_refused(w, hf_lock_try(w->lock)); /* also while another waits in the queue */
    assert_true(HOLDS_FOR(!atomic_load(&waiter.done), 300));
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, waiter.owner), HF_OK);
    assert_true(world_free(w));
}

/* One owner, two acquires on their way at once: the second has to wait for the first to be decided,
 * and is then refused. */
KIND_CASE(second_acquire_queued_behind_the_first, HF_NONREENTRANT) {
    hf_op *first, *second;
    hf_acquire_options options = world_wait_for(HF_FOREVER, HF_WATCHDOG);
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    options.owner = 7;
    assert_int_equal(hf_lock_acquire_start(w->lock, &options, NULL, NULL, &first), HF_OK);
    assert_int_equal(hf_lock_acquire_start(w->lock, &options, NULL, NULL, &second), HF_OK);
    assert_int_equal(hf_op_wait(second, 50, NULL), HF_EPENDING);
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(hf_op_wait(first, HANG_MS, NULL), HF_OK);
    assert_int_equal(hf_op_wait(second, HANG_MS, NULL), HF_EDEADLK);
    hf_op_free(first);
    hf_op_free(second);
    assert_int_equal(hf_lock_release_as(w->lock, 7), HF_OK);
    assert_true(world_free(w));
}

/* A hold through a plain handle is a hold; a plain handle may nest in a non-reentrant one, as in
 * Redisson. */
KIND_CASE(mixed_with_a_plain_handle, HF_NONREENTRANT) {
    own_lock *plain = new_handle(w->client, HF_PLAIN);
    assert_int_equal(hf_lock_acquire(plain), HF_OK);
    assert_true(world_wait_verified(w, HANG_MS));
    assert_refused_in_every_form(w, w->lock);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);

    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(plain), HF_OK);
    assert_int_equal(world_count(w, w->owner), 2);
    assert_int_equal(hf_lock_try(w->lock), HF_EDEADLK);
    assert_int_equal(hf_lock_release(plain), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
    assert_true(world_free(w));
}

/* A hold that is over is a loss, not a deadlock. */
KIND_CASE(lost_hold_is_reported_as_lost, HF_NONREENTRANT) {
    hf_acquire_options brief = world_wait_for(0, 1000);
    world_acquire_brief(w->lock, &brief);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(hf_lock_acquire(w->lock), HF_ELOST);
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}

/* The release was not answered: the hold is over for us, so the next acquire is no second one, even
 * if the server still has our field. */
CASE(U16_acquire_after_an_unknown_release) {
    OWN(world_end) struct world w;
    hf_options options = kind_impatient();
    kind_begin(&w, HF_NONREENTRANT, &options);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    proxy_stall_request(w.proxy, world_releases(&w));
    proxy_refuse(w.proxy, true); /* nor does its copy get there yet */
    assert_int_equal(hf_lock_release(w.lock), HF_EINDOUBT);
    assert_int_equal(world_count(&w, w.owner), 1); /* neither got there */
    proxy_refuse(w.proxy, false);
    assert_int_equal(hf_lock_acquire_for(w.lock, HANG_MS), HF_OK);
    assert_int_equal(world_count(&w, w.owner), 1);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free(&w));
}

RUN_CASES(world_start_server, world_stop_server)
