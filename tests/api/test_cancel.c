/*
 * pthread_cancel() and the library: no function is a cancellation point, so a thread that is
 * cancelled inside ends after it, and leaves no mutex behind.
 *
 * A cancel that is pending before the call acts at the first cancellation point there is. So each
 * function is tried, one after the other, in a thread that has cancelled itself; and then any of
 * them, at any time.
 */
#include "api/walk.h"
#include "support/case.h"
#include "support/new_lock.h"
#include "support/random.h"

#include <stdatomic.h>
#include <time.h>

static struct server *server;

static int start_server(void **state) {
    (void)state;
    server = server_start(NULL);
    return server != NULL ? 0 : 1;
}

static int stop_server(void **state) {
    (void)state;
    server_free(server);
    return 0;
}

/* False: the thread did not end. */
static bool join(pthread_t thread, void **ret) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANG_MS / 1000;
    return pthread_timedjoin_np(thread, ret, &until) == 0;
}

/* ---- Each by itself ---- */

struct attempt {
    struct walk *walk;
    const struct walk_step *step;
    bool returned;
};

static void *try_step(void *arg) {
    struct attempt *attempt = arg;
    pthread_cancel(pthread_self());
    attempt->step->call(attempt->walk);
    attempt->returned = true;
    pthread_testcancel();
    return NULL;
}

CASE(no_function_is_a_cancellation_point) {
    struct walk w;
    walk_assert_complete();
    assert_true(walk_begin(&w, server));
    for (size_t i = 0; i < walk_len; i++) {
        struct attempt attempt = {.walk = &w, .step = &walk_steps[i]};
        void *ended;
        assert_true(walk_prepare(&w));
        pthread_t thread = started(try_step, &attempt);
        assert_true(join(thread, &ended));
        if (!attempt.returned)
            fail_msg("%s is a cancellation point", walk_steps[i].name);
        assert_ptr_equal(ended, PTHREAD_CANCELED);
        walk_tidy(&w);
    }
    walk_end(&w);
}

/* Nor is the end of a thread that holds a lock: it notifies the watchdog while the cancel is
 * pending. */

static void *hold_and_end(void *arg) {
    long err = hf_lock_acquire(arg);
    pthread_cancel(pthread_self());
    return (void *)err;
}

static void on_event(hf_lock *lock, const hf_event *event, void *user) {
    (void)lock;
    if (event->kind == HF_EVENT_ORPHANED)
        atomic_fetch_add((atomic_int *)user, 1);
}

static bool is_reported(void *arg) {
    return atomic_load((atomic_int *)arg) > 0;
}

CASE(a_thread_ends_with_a_cancel_pending) {
    struct walk w;
    void *ended;
    atomic_int notified = 0;
    assert_true(walk_begin(&w, server));
    assert_true(walk_prepare(&w));
    assert_int_equal(hf_lock_on_lost(w.lock, on_event, &notified), HF_OK);
    pthread_t thread = started(hold_and_end, w.lock);
    assert_true(join(thread, &ended));
    assert_ptr_equal(ended, (void *)(long)HF_OK);
    assert_true(wait_until(is_reported, &notified, HANG_MS));
    walk_tidy(&w);
    walk_end(&w);
}

/* ---- Any, at any time ---- */

static void *wander(void *arg) {
    struct walk *w = arg;
    unsigned seed = (unsigned)w->number;
    while (walk_prepare(w)) {
        walk_steps[(size_t)rand_r(&seed) % walk_len].call(w);
        walk_tidy(w);
        pthread_testcancel();
    }
    return NULL;
}

struct steady {
    hf_client *client;
    atomic_bool stop;
    atomic_long done;
    int err;
};

/* What hangs, if a mutex was left behind. */
static void *lock_steadily(void *arg) {
    struct steady *steady = arg;
    own_lock *lock;
    steady->err = hf_lock_new(steady->client, "steady", &lock);
    while (steady->err == HF_OK && !atomic_load(&steady->stop)) {
        steady->err = hf_lock_acquire(lock);
        if (steady->err == HF_OK)
            steady->err = hf_lock_release(lock);
        atomic_fetch_add(&steady->done, 1);
    }
    return NULL;
}

CASE(a_client_survives_cancels_at_any_time) {
    unsigned seed = (unsigned)random_seed();
    int rounds = getenv("HF_SOAK") != NULL ? 2000 : 100;
    struct walk w;
    struct steady steady = {0};

    assert_true(walk_begin(&w, server));
    w.number = seed;
    steady.client = w.client;
    pthread_t thread = started(lock_steadily, &steady);
    for (int i = 0; i < rounds; i++) {
        void *ended;
        pthread_t wanderer = started(wander, &w);
        linger(rand_r(&seed) % 30);
        assert_int_equal(pthread_cancel(wanderer), 0);
        assert_true(join(wanderer, &ended));
        assert_ptr_equal(ended, PTHREAD_CANCELED);
        walk_tidy(&w);
        assert_int_equal(hf_ping(w.client), HF_OK);
    }
    atomic_store(&steady.stop, true);
    assert_true(join(thread, NULL));
    assert_int_equal(steady.err, HF_OK);
    assert_true(atomic_load(&steady.done) > 0);
    walk_end(&w);
}

RUN_CASES(start_server, stop_server)
