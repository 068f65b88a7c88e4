/*
 * A loss notifies every handle of that lock, its present callback and no former one, with
 * the owner named.
 *
 * The callback runs with nothing of ours locked, so the handle may be freed in it, by it or beside
 * it. How a hold can be lost is in test_loss.c.
 */
#include "lock/loss.h"

LOSS_CASE(two_handles_are_both_notified, ENDURING_MS) {
    struct world_events first = {0}, second = {0}, other = {0};
    own_lock *another;
    own_lock *twin = made(hf_lock_new, w->client, WORLD_NAME);
    assert_int_equal(hf_lock_new(w->client, "another", &another), HF_OK);
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &first), HF_OK);
    assert_int_equal(hf_lock_on_lost(twin, world_on_event, &second), HF_OK);
    assert_int_equal(hf_lock_on_lost(another, world_on_event, &other), HF_OK);
    assert_int_equal(hf_lock_on_lost(w->rival_lock, world_on_event, &other), HF_OK);
    int fds[] = {hf_lock_lost_fd(w->lock), hf_lock_lost_fd(twin), hf_lock_lost_fd(another)};
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    loss_by_del(w);
    assert_true(world_wait_atomic(&first.losses, 1, HANG_MS));
    assert_true(world_wait_atomic(&second.losses, 1, HANG_MS));
    assert_true(loss_is_readable(fds[0], HANG_MS) && loss_is_readable(fds[1], HANG_MS));
    assert_false(loss_is_readable(fds[2], 0));
    assert_int_equal(atomic_load(&first.losses), 1);
    assert_int_equal(atomic_load(&second.losses), 1);
    assert_int_equal(atomic_load(&other.losses), 0);
    assert_int_equal(hf_lock_release(twin), HF_ELOST); /* one loss, reported once by a call */
    assert_int_equal(hf_lock_release(w->lock), HF_ENOTOWNER);
}

CASE(a_callback_is_replaced_and_ended) {
    struct world w;
    struct world_events former = {0}, present = {0};
    loss_begin(&w, ENDURING_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &former), HF_OK);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &present), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    loss_by_del(&w);
    assert_true(world_wait_atomic(&present.losses, 1, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(hf_lock_on_lost(w.lock, NULL, NULL), HF_OK);
    int fd = hf_lock_lost_fd(w.lock);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    loss_by_del(&w);
    assert_true(loss_is_readable(fd, HANG_MS));
    assert_int_equal(hf_lock_release(w.lock), HF_ELOST);
    assert_int_equal(world_stats(w.client).losses, 2);
    world_end(&w);
    assert_int_equal(atomic_load(&former.losses), 0);
    assert_int_equal(atomic_load(&present.losses), 1);
}

/* What a callback gets of a hold that belongs to nobody's thread. */
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
    if (event->kind == HF_EVENT_WARNING)
        return; /* its renewal was late */
    story->kind = event->kind;
    story->owner = event->owner;
    story->remaining_ms = event->remaining_ms;
    strncpy(story->reason, event->reason, sizeof story->reason - 1);
    atomic_fetch_add(&story->events, 1);
}

CASE(the_event_says_whose_hold_it_was) {
    OWN(world_end) struct world w;
    struct story story;
    memset(&story, 0, sizeof story);
    loss_begin(&w, ENDURING_MS);
    assert_int_equal(hf_lock_on_lost(w.lock, on_story, &story), HF_OK);
    assert_int_equal(world_acquire_async(w.lock, 77, 0, NULL), HF_OK);
    loss_by_del(&w);
    assert_true(world_wait_atomic(&story.events, 1, HANG_MS));
    assert_int_equal(story.kind, HF_EVENT_LOST);
    assert_int_equal(story.owner, 77);
    assert_int_equal(story.remaining_ms, 0);
    assert_int_not_equal(story.reason[0], '\0');
    assert_int_equal(hf_lock_release(w.lock), HF_ENOTOWNER); /* this thread lost nothing */
    assert_int_equal(hf_lock_release_as(w.lock, 77), HF_ELOST);
}

static void free_in_callback(hf_lock *lock, const hf_event *event, void *user) {
    (void)event;
    hf_lock_free(lock);
    atomic_fetch_add((atomic_int *)user, 1);
}

CASE(a_handle_is_freed_in_its_own_callback) {
    for (int i = 0; i < 10; i++) {
        struct world w;
        atomic_int freed = 0;
        struct world_events events = {0};
        loss_begin(&w, ENDURING_MS);
        hf_lock *doomed = made(hf_lock_new, w.client, WORLD_NAME);
        hf_lock *survivor = made(hf_lock_new, w.client, WORLD_NAME);
        assert_true(hf_lock_lost_fd(doomed) >= 0);
        assert_int_equal(hf_lock_on_lost(doomed, free_in_callback, &freed), HF_OK);
        assert_int_equal(hf_lock_on_lost(survivor, world_on_event, &events), HF_OK);
        assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
        if (i % 2 == 0)
            loss_by_del(&w);
        else
            loss_by_own_break(&w);
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

CASE(free_waits_for_a_running_callback) {
    struct world w;
    struct slow slow;
    memset(&slow, 0, sizeof slow);
    loss_begin(&w, ENDURING_MS);
    hf_lock *handle = made(hf_lock_new, w.client, WORLD_NAME);
    assert_int_equal(hf_lock_on_lost(handle, on_lost_slowly, &slow), HF_OK);
    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    loss_by_del(&w);
    assert_true(world_wait_atomic(&slow.entered, 1, HANG_MS));
    hf_lock_free(handle);
    atomic_store(&slow.freed, true);
    assert_int_equal(atomic_load(&slow.left), 1);
    world_end(&w);
    assert_int_equal(atomic_load(&slow.entered), 1);
}

/* Handles come and go while losses are being reported. */
LOSS_CASE(handles_freed_and_made_while_losses_are_reported, ENDURING_MS) {
    struct world_events events = {0};
    assert_int_equal(hf_lock_on_lost(w->lock, world_on_event, &events), HF_OK);
    for (int i = 1; i <= 40; i++) {
        struct world_events passing = {0};
        hf_lock *handles[4];
        bool broken;
        for (int j = 0; j < 4; j++) {
            assert_int_equal(hf_lock_new(w->client, WORLD_NAME, &handles[j]), HF_OK);
            assert_int_equal(hf_lock_on_lost(handles[j], world_on_event, &passing), HF_OK);
        }
        assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
        assert_int_equal(hf_lock_break(w->lock, &broken), HF_OK);
        for (int j = 0; j < 4; j++)
            hf_lock_free(handles[j]);
        /* From here on nothing may touch `passing`. */
        assert_true(atomic_load(&passing.losses) <= 4);
        assert_int_equal(hf_lock_release(w->lock), HF_ELOST);
        assert_true(world_wait_atomic(&events.losses, i, HANG_MS));
    }
    assert_int_equal(atomic_load(&events.losses), 40);
    assert_int_equal(world_stats(w->client).losses, 40);
}

RUN_CASES(world_start_server, world_stop_server)
