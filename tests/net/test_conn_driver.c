/*
 * The rules of the driver on one connection of src/net without anything above it.
 *
 * The server is real, and the proxy before it keeps replies back.
 */
#include "net/caller.h"
#include "support/random.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>

/* ---- The rules ---- */

RAW_CASE(T02_follower_times_out_while_the_driver_sleeps) {
    struct caller driver, follower;
    proxy_blackhole(raw->proxy, false, true);
    start_caller(&driver, raw, 40, HANG_MS);
    wait_driver(raw, &driver, 0);
    start_caller(&follower, raw, 40, 60);
    assert_int_equal(join_caller(&follower), LATE);
    assert_true(follower.took_ms >= 60);
    assert_false(atomic_load(&driver.done));
    assert_ptr_equal(view_driver(raw).driver, &driver.exec);
    proxy_heal(raw->proxy);
    assert_int_equal(join_caller(&driver), ANSWERED);
    assert_raw_works(raw); /* T01: the follower's reply was dropped */
}

RAW_CASE(T02_driver_times_out_and_a_follower_takes_over) {
    struct caller driver, follower;
    proxy_blackhole(raw->proxy, false, true);
    start_caller(&driver, raw, 40, HANG_MS);
    wait_driver(raw, &driver, 0);
    start_caller(&follower, raw, 40, HANG_MS);
    wait_driver(raw, &driver, 1);
    shorten_caller(&driver, 60);
    assert_int_equal(join_caller(&driver), LATE);
    assert_true(driver.took_ms >= 60);
    wait_driver(raw, &follower, 0);
    proxy_heal(raw->proxy);
    assert_int_equal(join_caller(&follower), ANSWERED);
    assert_raw_works(raw);
}

RAW_CASE(T03_driver_cancelled_and_followers_go_on) {
    struct caller driver, followers[3];
    proxy_blackhole(raw->proxy, false, true);
    start_caller(&driver, raw, 40, HANG_MS);
    wait_driver(raw, &driver, 0);
    for (size_t i = 0; i < 3; i++) {
        start_caller(&followers[i], raw, 40, HANG_MS);
        wait_driver(raw, &driver, i + 1);
    }
    cancel_caller(&driver);
    assert_int_equal(join_caller(&driver), CANCELLED);
    wait_driver(raw, &followers[0], 2);
    proxy_heal(raw->proxy);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(join_caller(&followers[i]), ANSWERED);
    assert_raw_works(raw);
}

/* The driver and the one it would name go at once; a third must still be driven for. */
RAW_CASE(T02_successor_leaves_in_the_same_moment) {
    struct caller driver, successor, third;
    for (int round = 0; round < 150; round++) {
        proxy_blackhole(raw->proxy, false, true);
        start_caller(&driver, raw, 40, HANG_MS);
        wait_driver(raw, &driver, 0);
        start_caller(&successor, raw, 40, HANG_MS);
        wait_driver(raw, &driver, 1);
        start_caller(&third, raw, 40, HANG_MS);
        wait_driver(raw, &driver, 2);
        cancel_caller(round % 2 == 0 ? &driver : &successor);
        cancel_caller(round % 2 == 0 ? &successor : &driver);
        assert_int_equal(join_caller(&driver), CANCELLED);
        assert_int_equal(join_caller(&successor), CANCELLED);
        wait_driver(raw, &third, 0);
        proxy_blackhole(raw->proxy, false, false);
        assert_int_equal(join_caller(&third), ANSWERED);
        assert_raw_works(raw);
    }
}

static bool nothing_in_flight(void *arg) {
    struct driver_view view = view_driver(arg);
    return view.in_flight == 0 && view.driver == NULL;
}

RAW_CASE(T01_the_keeper_drops_unawaited_replies) {
    struct caller caller, late;
    proxy_blackhole(raw->proxy, false, true);
    start_caller(&caller, raw, 40, HANG_MS);
    wait_driver(raw, &caller, 0);
    cancel_caller(&caller);
    assert_int_equal(join_caller(&caller), CANCELLED);
    assert_int_equal(view_driver(raw).in_flight, 1);
    /* The keeper drives now: a caller behind it still ends by itself. */
    start_caller(&late, raw, 40, 60);
    assert_int_equal(join_caller(&late), LATE);
    assert_true(late.took_ms >= 60);
    proxy_heal(raw->proxy);
    assert_true(wait_until(nothing_in_flight, raw, HANG_MS));
    assert_raw_works(raw);
}

RAW_CASE(lost_connection_ends_every_wait) {
    struct caller callers[6];
    proxy_blackhole(raw->proxy, false, true);
    start_caller(&callers[0], raw, 40, HANG_MS);
    wait_driver(raw, &callers[0], 0);
    for (size_t i = 1; i < 6; i++)
        start_caller(&callers[i], raw, 40, HANG_MS);
    wait_driver(raw, &callers[0], 5);
    assert_int_equal(proxy_cut_all(raw->proxy), 1);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(join_caller(&callers[i]), LOST);
    proxy_heal(raw->proxy);
    raw_connect(raw);
    assert_raw_works(raw);
}

static bool is_full(void *arg) {
    struct raw *raw = arg;
    return atomic_load(&raw->conn->blocked);
}

/* More than the socket takes, in both directions: a driver has to poll for POLLOUT. */
CASE(T03_a_full_output_buffer_is_written_on) {
    struct raw raw;
    struct caller callers[6];
    memset(&raw, 0, sizeof raw);
    raw_begin_at(&raw, server_socket(scene_server()));
    server_freeze(scene_server()); /* it reads nothing, so the socket's buffer is all there is */
    for (size_t i = 0; i < 6; i++)
        start_caller(&callers[i], &raw, 900000, HANG_MS);
    assert_true(wait_until(is_full, &raw, HANG_MS));
    server_unfreeze(scene_server());
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(join_caller(&callers[i]), ANSWERED);
    assert_raw_works(&raw);
    raw_end(&raw);
}

/* ---- All at once ---- */

struct hammer {
    struct caller caller;
    uint64_t random;
    const atomic_bool *stop;
    bool patient;
    atomic_uint counts[WRONG + 1];
};

/* Callers that leave at once would send faster than the server answers. */
static bool is_calm(void *arg) {
    return view_driver(arg).in_flight < 64;
}

static void *hammer_on(void *arg) {
    struct hammer *hammer = arg;
    while (!atomic_load(hammer->stop)) {
        if (!hammer->patient && !wait_until(is_calm, hammer->caller.raw, HANG_MS))
            break;
        int64_t wait_ms = hammer->patient ? HANG_MS : (int64_t)(random_next(&hammer->random) % 5);
        size_t size = random_next(&hammer->random) % 16 == 0 ? 30000 : 40;
        atomic_fetch_add(&hammer->counts[send_and_wait(&hammer->caller, size, wait_ms)], 1);
    }
    return NULL;
}

static void ignore_signal(int signal_number) {
    (void)signal_number;
}

enum { HAMMERS = 12, PATIENT = 3 };

/* How often those with time were answered, or the others left: whichever was less often. */
static unsigned hammered(struct hammer *hammers) {
    unsigned answered = 0, left = 0;
    for (size_t i = 0; i < HAMMERS; i++) {
        if (i < PATIENT)
            answered += atomic_load(&hammers[i].counts[ANSWERED]);
        left += atomic_load(&hammers[i].counts[LATE]) + atomic_load(&hammers[i].counts[CANCELLED]);
    }
    return answered < left ? answered : left;
}

/* Disturbs them at random. The random numbers make no run repeatable, but tell what was done. */
static void disturb(struct raw *raw, struct hammer *hammers, uint64_t *random) {
    cancel_caller(&hammers[PATIENT + random_next(random) % (HAMMERS - PATIENT)].caller);
    pthread_kill(hammers[random_next(random) % HAMMERS].caller.thread, SIGUSR1);
    if (random_next(random) % 64 == 0)
        proxy_delay(raw->proxy, "ECHO", (int64_t)(random_next(random) % 4));
    struct timespec pause = {0, 100000};
    nanosleep(&pause, NULL); /* the next disturbance comes at any moment */
}

static void join_hammer(struct hammer *hammer) {
    scene_join_thread(hammer->caller.thread);
    caller_end(&hammer->caller);
    const atomic_uint *counts = hammer->counts;
    assert_int_equal(counts[WRONG] + counts[LOST] + counts[UNSENT], 0);
    if (hammer->patient)
        assert_int_equal(counts[LATE] + counts[CANCELLED], 0);
}

/* Delays, cancels and signals without SA_RESTART (U63) while many share a connection: everybody's
 * result is right, and those with time always get theirs. */
CASE(T02_hammer_of_deadlines_cancels_and_signals) {
    unsigned wanted = getenv("HF_SOAK") != NULL ? 100000 : 1000;
    uint64_t random = random_seed();
    struct sigaction action = {.sa_handler = ignore_signal}, before;
    sigaction(SIGUSR1, &action, &before);
    struct raw raw;
    atomic_bool stop = false;
    struct hammer *hammers = calloc(HAMMERS, sizeof *hammers);
    assert_non_null(hammers);
    raw_begin(&raw);
    for (size_t i = 0; i < HAMMERS; i++) {
        caller_begin(&hammers[i].caller, &raw);
        hammers[i].random = random_next(&random) | 1;
        hammers[i].stop = &stop;
        hammers[i].patient = i < PATIENT;
        pthread_create(&hammers[i].caller.thread, NULL, hammer_on, &hammers[i]);
    }
    unsigned last = 0;
    int64_t last_ms = now_ms();
    while (last < wanted) {
        disturb(&raw, hammers, &random);
        if (hammered(hammers) > last) {
            last = hammered(hammers);
            last_ms = now_ms();
        }
        assert_true(now_ms() < last_ms + HANG_MS);
    }
    atomic_store(&stop, true);
    proxy_heal(raw.proxy);
    for (size_t i = 0; i < HAMMERS; i++)
        join_hammer(&hammers[i]);
    assert_raw_works(&raw);
    raw_end(&raw);
    free(hammers);
    sigaction(SIGUSR1, &before, NULL);
}

RUN_CASES(scene_start_server, scene_stop_server)
