/*
 * Waiters whose thread is stuck: an application that does not call hf_dispatch(), or a thread that
 * does not return from a signal handler. It may be the one that waits at the server for all of its
 * process, or the one that reads all messages. The others must get in within the poll interval of
 * ten seconds, however many are stuck.
 *
 * Holders use leases of 60 s, so a client that gets in did not wait for the lease.
 */
#include "support/trap.h"
#include "support/world.h"

#define POLL_MS 10000
#define SLACK_MS 8000 /* on top of it, for a busy machine */

/* ---- hf_dispatch() is not called ---- */

struct bench {
    struct world w;
    hf_client *client;
    hf_lock *lock;
};

static void bench_begin(struct bench *b) {
    hf_options options = world_options();
    world_begin(&b->w, &options);
    options.flags = HF_MANUAL_DISPATCH;
    assert_int_equal(hf_open(proxy_url(b->w.proxy), &options, &b->client), HF_OK);
    assert_int_equal(hf_lock_new(b->client, WORLD_NAME, &b->lock), HF_OK);
    assert_int_equal(hf_lock_acquire(b->w.rival_lock), HF_OK);
}

static void bench_end(struct bench *b) {
    hf_lock_free(b->lock);
    assert_int_equal(hf_close(b->client), HF_OK);
    world_end(&b->w);
}

static hf_op *start_as(struct bench *b, hf_owner owner) {
    hf_op *op = NULL;
    hf_acquire_options options = world_wait_as(owner, HF_FOREVER, HF_WATCHDOG);
    assert_int_equal(hf_lock_acquire_start(b->lock, &options, NULL, NULL, &op), HF_OK);
    return op;
}

/* Dispatches until so many attempts have been made, and never again. */
static void dispatch_until_seen(struct bench *b, size_t attempts) {
    int64_t end_ms = now_ms() + HANG_MS;
    while (proxy_seen(b->w.proxy, WORLD_ACQUIRE) < attempts && now_ms() < end_ms)
        hf_dispatch(b->client, 5);
    hf_dispatch(b->client, 20); /* its answer */
    assert_true(proxy_seen(b->w.proxy, WORLD_ACQUIRE) >= attempts);
}

static void dispatch_until_held(struct bench *b, hf_op *op, hf_owner owner) {
    int64_t end_ms = now_ms() + HANG_MS;
    while (hf_op_wait(op, 0, NULL) == HF_EPENDING && now_ms() < end_ms)
        hf_dispatch(b->client, 5);
    assert_int_equal(hf_op_wait(op, 0, NULL), HF_OK);
    assert_int_equal(hf_lock_release_as(b->lock, owner), HF_OK);
    hf_op_free(op);
}

/* Three that nobody dispatches are in front of three threads. */
CASE_IN(not_dispatched_in_front_of_others, struct bench, b, bench_begin, bench_end) {
    enum { STUCK = 3, THREADS = 3 };
    struct world_caller waiter[THREADS];
    hf_op *op[STUCK];
    size_t attempts = proxy_seen(b->w.proxy, WORLD_ACQUIRE);
    for (int i = 0; i < STUCK; i++)
        op[i] = start_as(b, 101 + i);
    dispatch_until_seen(b, attempts + 2);
    for (int i = 0; i < THREADS; i++)
        world_call_acquire(&waiter[i], b->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    /* for them to queue; if they are late they only wait less */
    assert_true(HOLDS_FOR(proxy_seen(b->w.proxy, WORLD_ACQUIRE) == attempts + 2, 50));
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(b->w.rival_lock), HF_OK);
    for (int left = THREADS; left > 0;) {
        for (int i = 0; i < THREADS; i++) {
            if (!atomic_exchange(&waiter[i].done, false))
                continue;
            assert_int_equal(world_join(&waiter[i]), HF_OK);
            assert_int_equal(hf_lock_release_as(b->lock, waiter[i].owner), HF_OK);
            left--;
        }
        assert_true(now_ms() - start_ms < POLL_MS + SLACK_MS);
        (void)wait_a_moment();
    }
    for (int i = 0; i < STUCK; i++) /* nobody has forgotten them */
        dispatch_until_held(b, op[i], 101 + i);
    assert_true(world_free(&b->w));
}

/* While the one in front is well, nobody else says anything, and a poll is one command. */
WORLD_CASE(queued_waiters_are_quiet) {
    enum { THREADS = 8 };
    struct world_caller waiter[THREADS];
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    size_t attempts = proxy_seen(w->proxy, WORLD_ACQUIRE);
    for (int i = 0; i < THREADS; i++)
        world_call_acquire(&waiter[i], w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, attempts + 2, HANG_MS));
    int64_t start_ms = now_ms();
    /* Beyond a poll, and beyond when the others look. */
    assert_true(HOLDS_FOR(proxy_seen(w->proxy, WORLD_ACQUIRE) - attempts - 2 <=
                              1 + (size_t)(now_ms() - start_ms) / POLL_MS,
                          POLL_MS + 1500));
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    for (int i = 0; i < THREADS; i++) {
        while (!atomic_load(&waiter[i].done)) {
            for (int j = 0; j < THREADS; j++)
                if (atomic_load(&waiter[j].done))
                    hf_lock_release_as(w->lock, waiter[j].owner);
            (void)wait_a_moment();
        }
        assert_int_equal(world_join(&waiter[i]), HF_OK);
    }
    for (int i = 0; i < THREADS; i++)
        hf_lock_release_as(w->lock, waiter[i].owner);
    assert_true(world_free(w));
}

/* ---- A thread that is stuck in a signal handler ---- */

/* The thread that waits at the server for `guarded`, and reads the messages of the client, is stuck.
 * One waits behind it; another, for another lock, has its messages read by it. */
WORLD_CASE(stuck_thread_in_front_of_others) {
    struct world_caller stuck, behind, beside;
    own_lock *other;
    assert_int_equal(hf_lock_new(w->client, "other", &other), HF_OK);
    own_lock *rival_other = made(hf_lock_new, w->rival, "other");
    assert_int_equal(hf_lock_acquire(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_acquire(rival_other), HF_OK);
    size_t attempts = proxy_seen(w->proxy, WORLD_ACQUIRE);
    world_call_acquire(&stuck, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, attempts + 2, HANG_MS));
    world_call_acquire(&beside, other, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_true(proxy_wait_seen(w->proxy, WORLD_ACQUIRE, attempts + 4, HANG_MS));
    world_call_acquire(&behind, w->lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    /* All are asleep, and the first is the driver. */
    assert_true(HOLDS_FOR(!atomic_load(&stuck.done) && !atomic_load(&behind.done), 200));

    trap_catch(stuck.thread);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_release(w->rival_lock), HF_OK);
    assert_int_equal(hf_lock_release(rival_other), HF_OK);
    assert_int_equal(world_join(&behind), HF_OK);
    assert_int_equal(world_join(&beside), HF_OK);
    assert_true(now_ms() - start_ms < POLL_MS + SLACK_MS);
    assert_false(atomic_load(&stuck.done));
    assert_int_equal(hf_lock_release_as(w->lock, behind.owner), HF_OK);
    assert_int_equal(hf_lock_release_as(other, beside.owner), HF_OK);
    trap_release();
    assert_int_equal(world_join(&stuck), HF_OK);
    assert_int_equal(hf_lock_release_as(w->lock, stuck.owner), HF_OK);
    assert_true(world_free(w));
}

int main(void) {
    trap_set();
    return test_cases_run(world_start_server, world_stop_server);
}
