/*
 * Memory runs out at each step in turn (U65).
 *
 * A client's allocator fails its n-th call, for n = 1, 2, ... until a whole scene ran without
 * coming to it. Whatever fails, the outcome must be an error or a slower way (polling), and
 * afterwards the server holds exactly what the client says it holds: no silent hold, no hang, no
 * crash, and every byte given back. The n-th call only: what comes after it succeeds, so the scene
 * goes on from there. A second run fails everything from the n-th call on, and lets the client be
 * closed so.
 */
#include "support/memory.h"
#include "support/world.h"

#include <hiredis/hiredis.h>
#include <sys/socket.h>

#define STEPS_MAX 2000

/* What a scene works with. */
struct stage {
    struct server *server;
    struct memory memory;
    hf_client *client;
    hf_lock *lock;
    char owner[64];
    hf_client *rival; /* with memory */
    hf_lock *rival_lock;
};

static void assert_allowed(int err) {
    if (err != HF_OK && err != HF_ENOMEM && err != HF_EUNREACH && err != HF_EINDOUBT &&
        err != HF_ETIMEDOUT && err != HF_EBUSY)
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
}

static bool wait_count(struct stage *stage, long long count) {
    struct world w = {.server = stage->server};
    return world_wait_count(&w, stage->owner, count, HANG_MS);
}

/* Releases what is held. A release that found no memory may not have begun: then it is still ours,
 * and the next call says so. Once we own nothing, neither does the server know of anything. */
static void release_all(struct stage *stage, int held) {
    int err = HF_OK;
    for (int calls = 0; err != HF_ENOTOWNER; calls++) {
        err = hf_lock_release(stage->lock);
        if (err != HF_ENOTOWNER)
            assert_allowed(err);
        assert_true(calls <= held + 1); /* one fails at most */
    }
    assert_true(wait_count(stage, 0));
    assert_int_equal(world_stats(stage->client).holds, 0);
}

/* ---- Scenes: each learns what happened by codes only ---- */

static void scene_uncontended(struct stage *stage) {
    int held = 0;
    for (int i = 0; i < 2; i++) {
        int err = hf_lock_acquire_for(stage->lock, 2000);
        assert_allowed(err);
        held += err == HF_OK;
        assert_true(wait_count(stage, held));
    }
    if (held > 0)
        assert_allowed(hf_lock_extend(stage->lock, 50000));
    bool flag;
    int64_t number;
    assert_allowed(hf_lock_is_locked(stage->lock, &flag));
    assert_allowed(hf_lock_ttl_ms(stage->lock, &number));
    release_all(stage, held);
}

static void scene_contended(struct stage *stage) {
    struct world_caller waiter;
    assert_int_equal(hf_lock_acquire(stage->rival_lock), HF_OK);
    hf_acquire_options options = world_wait_as(7, HF_FOREVER, HF_WATCHDOG);
    world_call_acquire(&waiter, stage->lock, options);
    assert_allowed(hf_lock_acquire_for(stage->lock, 20)); /* one more in the queue */
    /* for it to wait; if it does not yet, that is fine, too */
    (void)HOLDS_FOR(!atomic_load(&waiter.done), 10);
    assert_int_equal(hf_lock_release(stage->rival_lock), HF_OK);
    int err = world_join(&waiter);
    assert_allowed(err);
    int64_t count = -1;
    int64_t expected = err == HF_OK;
    for (int64_t start_ms = now_ms(); count != expected && now_ms() - start_ms < HANG_MS;)
        if (hf_lock_hold_count_as(stage->lock, 7, &count) != HF_OK)
            count = -1;
    assert_int_equal(count, expected);
    if (err == HF_OK)
        assert_allowed(hf_lock_release_as(stage->lock, 7));
}

static void count_up(hf_op *op, const hf_result *result, void *user) {
    (void)op;
    (void)result;
    atomic_fetch_add((atomic_int *)user, 1);
}

static void scene_async(struct stage *stage) {
    atomic_int calls = 0;
    hf_op *op = NULL;
    hf_result result = HF_RESULT_INIT;
    hf_acquire_options options = world_wait_as(hf_owner_self(), 2000, HF_WATCHDOG);
    int err = hf_lock_acquire_start(stage->lock, &options, count_up, &calls, &op);
    if (err != HF_OK) {
        assert_int_equal(err, HF_ENOMEM);
        assert_null(op);
    } else {
        err = hf_op_wait(op, HANG_MS, &result);
        assert_allowed(err);
        hf_op_free(op);
        assert_true(world_wait_atomic(&calls, 1, HANG_MS));
    }
    assert_int_equal(atomic_load(&calls) <= 1, 1);
    assert_true(wait_count(stage, err == HF_OK));
    release_all(stage, err == HF_OK);
}

/* Three who wait for one name, whose owners are new: one of them sleeps at the server, two behind it.
 * The first is cancelled, the second gets the lock, the third waits in vain. */
static void scene_waiters(struct stage *stage) {
    hf_op *ops[3] = {NULL, NULL, NULL};
    hf_result results[3] = {HF_RESULT_INIT, HF_RESULT_INIT, HF_RESULT_INIT};
    assert_int_equal(hf_lock_acquire(stage->rival_lock), HF_OK);
    for (int i = 0; i < 3; i++) {
        hf_acquire_options options = world_wait_for(i == 2 ? 300 : HF_FOREVER, HF_WATCHDOG);
        int err = hf_lock_acquire_start(stage->lock, &options, NULL, NULL, &ops[i]);
        assert_true(err == HF_OK || err == HF_ENOMEM);
    }
    (void)WAIT_FOR(world_channels(stage->server) > 0,
                   10); /* the first waits, or not yet: that, too, must be fine */
    hf_op_cancel(ops[0]);
    assert_int_equal(hf_lock_release(stage->rival_lock), HF_OK);
    int held = 0;
    for (int i = 0; i < 3; i++) {
        if (ops[i] == NULL)
            continue;
        int err = hf_op_wait(ops[i], HANG_MS, &results[i]);
        if (err != HF_ECANCELED)
            assert_allowed(err);
        assert_int_equal(results[i].code, err);
        if (err != HF_OK)
            assert_true(results[i].error.code == err && results[i].error.text[0] != '\0');
        hf_op_free(ops[i]);
        if (err == HF_OK && ++held > 0) {
            err = hf_lock_release_as(stage->lock, results[i].owner);
            assert_allowed(err);
            if (err != HF_OK) { /* it may not have begun */
                err = hf_lock_release_as(stage->lock, results[i].owner);
                assert_true(err == HF_OK || err == HF_ENOTOWNER);
            }
        }
    }
    struct world w = {.server = stage->server};
    assert_true(world_wait_free(&w, HANG_MS));
}

static void scene_renewed(struct stage *stage) {
    struct world_events events = {0};
    int notified = hf_lock_on_lost(stage->lock, world_on_event, &events);
    assert_true(notified == HF_OK || notified == HF_ENOMEM);
    int err = hf_lock_acquire_for(stage->lock, 2000);
    assert_allowed(err);
    if (err == HF_OK) {
        (void)WAIT_FOR(world_stats(stage->client).renewals >= 1, HANG_MS);
        hf_stats stats = world_stats(stage->client);
        if (stats.renewals == 0)
            fail_msg("never renewed: %d failures, %d losses, allocation %ld of %ld",
                     (int)stats.renew_failures, (int)stats.losses,
                     atomic_load(&stage->memory.fail_at), atomic_load(&stage->memory.calls));
        assert_int_equal(world_stats(stage->client).losses, 0);
        cmd_ok(stage->server, "DEL %s", WORLD_NAME);
        if (notified == HF_OK)
            assert_true(world_wait_atomic(&events.losses, 1, HANG_MS));
        assert_true(WAIT_FOR(world_stats(stage->client).losses != 0, HANG_MS));
        err = hf_lock_release(stage->lock);
        assert_true(err == HF_ELOST || err == HF_ENOMEM);
    }
    assert_int_equal(hf_lock_on_lost(stage->lock, NULL, NULL), HF_OK);
    assert_true(wait_count(stage, 0));
}

/* Runs a scene with the n-th allocation failing. True: the scene came so far. */
static bool run_step(struct stage *stage, void (*scene)(struct stage *stage), long fail_at,
                     bool fail_all_after, const hf_options *base) {
    hf_options options = *base;
    stage->memory = (struct memory){0};
    atomic_store(fail_all_after ? &stage->memory.fail_from : &stage->memory.fail_at, fail_at);
    options.allocator = memory_allocator(&stage->memory);
    stage->client = NULL;
    stage->lock = NULL;
    int err = hf_open(server_url(stage->server), &options, &stage->client);
    if (err == HF_OK) {
        world_owner_text(stage->client, hf_owner_self(), stage->owner);
        err = hf_lock_new(stage->client, WORLD_NAME, &stage->lock);
        if (err == HF_OK)
            scene(stage);
        hf_lock_free(stage->lock);
        assert_int_equal(hf_close(stage->client), HF_OK);
    } else {
        assert_null(stage->client);
    }
    if (err != HF_OK)
        assert_int_equal(err, HF_ENOMEM);
    assert_int_equal(atomic_load(&stage->memory.live), 0);
    return atomic_load(&stage->memory.calls) >= fail_at;
}

static hf_options options_of(int64_t watchdog_ms) {
    hf_options options = world_options();
    options.cmd_timeout_ms = 800;
    options.watchdog_ms = watchdog_ms;
    return options;
}

static void run_all_steps(void (*scene)(struct stage *stage), int64_t watchdog_ms) {
    struct stage stage = {.server = world_server()};
    hf_options options = options_of(watchdog_ms);
    assert_int_equal(hf_open(server_url(stage.server), NULL, &stage.rival), HF_OK);
    assert_int_equal(hf_lock_new(stage.rival, WORLD_NAME, &stage.rival_lock), HF_OK);
    long step = 1;
    while (step < STEPS_MAX) {
        cmd_ok(stage.server, "FLUSHALL");
        if (!run_step(&stage, scene, step, false, &options))
            break;
        step++;
    }
    assert_in_range(step, 10, STEPS_MAX - 1); /* else the allocator was never asked */
    print_message("%ld steps\n", step - 1);
    hf_lock_free(stage.rival_lock);
    assert_int_equal(hf_close(stage.rival), HF_OK);
}

CASE(U65_uncontended) {
    run_all_steps(scene_uncontended, 60000);
}

CASE(U65_contended) {
    run_all_steps(scene_contended, 60000);
}

CASE(U65_async) {
    run_all_steps(scene_async, 60000);
}

CASE(U65_waiters) {
    run_all_steps(scene_waiters, 60000);
}

CASE(U65_renewals_and_loss) {
    run_all_steps(scene_renewed, 3000);
}

/* From some moment on there is no memory at all: every call comes back, and the client closes. */
static void scene_starved(struct stage *stage) {
    int held = 0;
    for (int i = 0; i < 3; i++) {
        int err = hf_lock_acquire_for(stage->lock, 100);
        assert_allowed(err);
        held += err == HF_OK;
    }
    for (; held > 0; held--)
        assert_allowed(hf_lock_release(stage->lock));
}

CASE(U65_no_memory_from_some_moment_on) {
    struct stage stage = {.server = world_server()};
    hf_options options = options_of(60000);
    long step = 1;
    while (step < STEPS_MAX) {
        cmd_ok(stage.server, "FLUSHALL");
        if (!run_step(&stage, scene_starved, step, true, &options))
            break;
        step++;
    }
    assert_in_range(step, 10, STEPS_MAX - 1);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they have their own */
/* Replies are not made with the client's allocator, but by the thread that waits, with malloc: from
 * the bytes as they came, in one pass and then in two, and if that fails, once more from a copy. */
enum { TRIES = 3 };
static _Thread_local bool got_something;
static _Thread_local int fails;
extern void *__libc_malloc(size_t size);

ssize_t recv(int fd, void *buf, size_t n, int flags) {
    ssize_t got = recvfrom(fd, buf, n, flags, NULL, NULL);
    got_something = got > 0;
    return got;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
__attribute__((visibility("default"))) void *malloc(size_t size) {
    if (fails == 0 || !got_something)
        return __libc_malloc(size);
    fails--;
    return NULL;
}

/* An answer that there was no memory for is no fault of the server; and what it said is undone. */
WORLD_CASE(no_memory_for_a_reply) {
    got_something = false;
    fails = TRIES;
    int err = hf_lock_try(w->lock);
    assert_int_equal(fails, 0);
    if (err != HF_ENOMEM)
        fail_msg("%s: %s", hf_error_name(err), hf_last_error()->text);
    assert_true(world_wait_free(w, HANG_MS));
    assert_int_equal(hf_lock_acquire(w->lock), HF_OK);
    assert_int_equal(hf_lock_release(w->lock), HF_OK);
}
#endif

RUN_CASES(world_start_server, world_stop_server)
