/*
 * The rules of the driver's seat, on one connection of src/net without anything above it.
 *
 * The server is real, and the proxy before it keeps replies back.
 */
#include "net/voice.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The rules ---- */

static void rule2_follower_times_out_while_the_driver_sleeps(void **state) {
    (void)state;
    struct line line;
    struct voice driver, follower;
    line_begin(&line);
    proxy_blackhole(line.proxy, false, true);
    start_voice(&driver, &line, 40, HANG_MS);
    wait_seated(&line, &driver, 0);
    start_voice(&follower, &line, 40, 60);
    assert_int_equal(join_voice(&follower), LATE);
    assert_true(follower.took_ms >= 60);
    assert_false(atomic_load(&driver.done));
    assert_ptr_equal(look(&line).driver, &driver.exec);
    proxy_heal(line.proxy);
    assert_int_equal(join_voice(&driver), ANSWERED);
    assert_line_works(&line); /* rule 1: the follower's reply was swallowed */
    line_end(&line);
}

static void rule2_driver_times_out_and_a_follower_takes_over(void **state) {
    (void)state;
    struct line line;
    struct voice driver, follower;
    line_begin(&line);
    proxy_blackhole(line.proxy, false, true);
    start_voice(&driver, &line, 40, HANG_MS);
    wait_seated(&line, &driver, 0);
    start_voice(&follower, &line, 40, HANG_MS);
    wait_seated(&line, &driver, 1);
    shorten_voice(&driver, 60);
    assert_int_equal(join_voice(&driver), LATE);
    assert_true(driver.took_ms >= 60);
    wait_seated(&line, &follower, 0);
    proxy_heal(line.proxy);
    assert_int_equal(join_voice(&follower), ANSWERED);
    assert_line_works(&line);
    line_end(&line);
}

static void rule3_driver_cancelled_and_followers_go_on(void **state) {
    (void)state;
    struct line line;
    struct voice driver, followers[3];
    line_begin(&line);
    proxy_blackhole(line.proxy, false, true);
    start_voice(&driver, &line, 40, HANG_MS);
    wait_seated(&line, &driver, 0);
    for (size_t i = 0; i < 3; i++) {
        start_voice(&followers[i], &line, 40, HANG_MS);
        wait_seated(&line, &driver, i + 1);
    }
    cancel_voice(&driver);
    assert_int_equal(join_voice(&driver), CANCELLED);
    wait_seated(&line, &followers[0], 2);
    proxy_heal(line.proxy);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(join_voice(&followers[i]), ANSWERED);
    assert_line_works(&line);
    line_end(&line);
}

/* The driver and the one it would name go at once; a third must still be driven for. */
static void rule2_successor_leaves_in_the_same_moment(void **state) {
    (void)state;
    struct line line;
    struct voice driver, successor, third;
    line_begin(&line);
    for (int round = 0; round < 150; round++) {
        proxy_blackhole(line.proxy, false, true);
        start_voice(&driver, &line, 40, HANG_MS);
        wait_seated(&line, &driver, 0);
        start_voice(&successor, &line, 40, HANG_MS);
        wait_seated(&line, &driver, 1);
        start_voice(&third, &line, 40, HANG_MS);
        wait_seated(&line, &driver, 2);
        cancel_voice(round % 2 == 0 ? &driver : &successor);
        cancel_voice(round % 2 == 0 ? &successor : &driver);
        assert_int_equal(join_voice(&driver), CANCELLED);
        assert_int_equal(join_voice(&successor), CANCELLED);
        wait_seated(&line, &third, 0);
        proxy_blackhole(line.proxy, false, false);
        assert_int_equal(join_voice(&third), ANSWERED);
        assert_line_works(&line);
    }
    line_end(&line);
}

static bool nothing_in_flight(void *arg) {
    struct seat_view view = look(arg);
    return view.in_flight == 0 && view.driver == NULL;
}

static void rule1_the_keeper_swallows_what_nobody_waits_for(void **state) {
    (void)state;
    struct line line;
    struct voice voice, late;
    line_begin(&line);
    proxy_blackhole(line.proxy, false, true);
    start_voice(&voice, &line, 40, HANG_MS);
    wait_seated(&line, &voice, 0);
    cancel_voice(&voice);
    assert_int_equal(join_voice(&voice), CANCELLED);
    assert_int_equal(look(&line).in_flight, 1);
    /* The keeper drives now: a caller behind it still ends by itself. */
    start_voice(&late, &line, 40, 60);
    assert_int_equal(join_voice(&late), LATE);
    assert_true(late.took_ms >= 60);
    proxy_heal(line.proxy);
    assert_true(wait_until(nothing_in_flight, &line, HANG_MS));
    assert_line_works(&line);
    line_end(&line);
}

static void lost_connection_ends_every_wait(void **state) {
    (void)state;
    struct line line;
    struct voice voices[6];
    line_begin(&line);
    proxy_blackhole(line.proxy, false, true);
    start_voice(&voices[0], &line, 40, HANG_MS);
    wait_seated(&line, &voices[0], 0);
    for (size_t i = 1; i < 6; i++)
        start_voice(&voices[i], &line, 40, HANG_MS);
    wait_seated(&line, &voices[0], 5);
    assert_int_equal(proxy_cut_all(line.proxy), 1);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(join_voice(&voices[i]), LOST);
    proxy_heal(line.proxy);
    connect_line(&line);
    assert_line_works(&line);
    line_end(&line);
}

static bool is_full(void *arg) {
    struct line *line = arg;
    return atomic_load(&line->conn->blocked);
}

/* More than the socket takes, in both directions: somebody has to poll for room to write. */
static void rule3_a_full_output_buffer_is_written_on(void **state) {
    (void)state;
    struct line line;
    struct voice voices[6];
    memset(&line, 0, sizeof line);
    line_begin_at(&line, server_socket(scene_server()));
    server_freeze(scene_server()); /* it reads nothing, so the socket's buffer is all there is */
    for (size_t i = 0; i < 6; i++)
        start_voice(&voices[i], &line, 900000, HANG_MS);
    assert_true(wait_until(is_full, &line, HANG_MS));
    server_unfreeze(scene_server());
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(join_voice(&voices[i]), ANSWERED);
    assert_line_works(&line);
    line_end(&line);
}

/* ---- All at once ---- */

struct hammer {
    struct voice voice;
    uint64_t random;
    const atomic_bool *stop;
    bool patient;
    atomic_uint counts[WRONG + 1];
};

/* Those who leave at once would send faster than anybody answers. */
static bool is_calm(void *arg) {
    return look(arg).in_flight < 64;
}

static void *hammer_on(void *arg) {
    struct hammer *hammer = arg;
    while (!atomic_load(hammer->stop)) {
        if (!hammer->patient && !wait_until(is_calm, hammer->voice.line, HANG_MS))
            break;
        int64_t wait_ms = hammer->patient ? HANG_MS : (int64_t)(scene_random(&hammer->random) % 5);
        size_t size = scene_random(&hammer->random) % 16 == 0 ? 30000 : 40;
        atomic_fetch_add(&hammer->counts[speak(&hammer->voice, size, wait_ms)], 1);
    }
    return NULL;
}

static void ignore_signal(int signal_number) {
    (void)signal_number;
}

enum { HAMMERS = 12, PATIENT = 3 };

/* Whether those with time were answered often enough, and the others left often enough. */
static bool hammered_enough(struct hammer *hammers, unsigned wanted) {
    unsigned answered = 0, left = 0;
    for (size_t i = 0; i < HAMMERS; i++) {
        if (i < PATIENT)
            answered += atomic_load(&hammers[i].counts[ANSWERED]);
        left += atomic_load(&hammers[i].counts[LATE]) + atomic_load(&hammers[i].counts[CANCELLED]);
    }
    return answered >= wanted && left >= wanted;
}

/* Disturbs them at random. The random numbers make no run repeatable, but tell what was done. */
static void disturb(struct line *line, struct hammer *hammers, uint64_t *random) {
    cancel_voice(&hammers[PATIENT + scene_random(random) % (HAMMERS - PATIENT)].voice);
    pthread_kill(hammers[scene_random(random) % HAMMERS].voice.thread, SIGUSR1);
    if (scene_random(random) % 64 == 0)
        proxy_delay(line->proxy, "ECHO", (int64_t)(scene_random(random) % 4));
    struct timespec pause = {0, 100000};
    nanosleep(&pause, NULL);
}

static void join_hammer(struct hammer *hammer) {
    scene_join_thread(hammer->voice.thread);
    voice_end(&hammer->voice);
    const atomic_uint *counts = hammer->counts;
    assert_int_equal(counts[WRONG] + counts[LOST] + counts[UNSENT], 0);
    if (hammer->patient)
        assert_int_equal(counts[LATE] + counts[CANCELLED], 0);
}

/* Delays, cancels and signals without SA_RESTART (U63) while many share a connection: everybody's
 * result is right, and those with time always get theirs. */
static void rule2_hammer_of_deadlines_cancels_and_signals(void **state) {
    (void)state;
    unsigned wanted = getenv("HF_SOAK") != NULL ? 100000 : 1000;
    uint64_t random = scene_seed("rule2_hammer");
    struct sigaction action = {.sa_handler = ignore_signal}, before;
    sigaction(SIGUSR1, &action, &before);
    struct line line;
    atomic_bool stop = false;
    struct hammer *hammers = calloc(HAMMERS, sizeof *hammers);
    assert_non_null(hammers);
    line_begin(&line);
    for (size_t i = 0; i < HAMMERS; i++) {
        voice_begin(&hammers[i].voice, &line);
        hammers[i].random = scene_random(&random) | 1;
        hammers[i].stop = &stop;
        hammers[i].patient = i < PATIENT;
        pthread_create(&hammers[i].voice.thread, NULL, hammer_on, &hammers[i]);
    }
    int64_t until_ms = now_ms() + (int64_t)wanted * 60;
    while (!hammered_enough(hammers, wanted)) {
        assert_true(now_ms() < until_ms);
        disturb(&line, hammers, &random);
    }
    atomic_store(&stop, true);
    proxy_heal(line.proxy);
    for (size_t i = 0; i < HAMMERS; i++)
        join_hammer(&hammers[i]);
    assert_line_works(&line);
    line_end(&line);
    free(hammers);
    sigaction(SIGUSR1, &before, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rule2_follower_times_out_while_the_driver_sleeps),
        cmocka_unit_test(rule2_driver_times_out_and_a_follower_takes_over),
        cmocka_unit_test(rule3_driver_cancelled_and_followers_go_on),
        cmocka_unit_test(rule2_successor_leaves_in_the_same_moment),
        cmocka_unit_test(rule1_the_keeper_swallows_what_nobody_waits_for),
        cmocka_unit_test(lost_connection_ends_every_wait),
        cmocka_unit_test(rule3_a_full_output_buffer_is_written_on),
        cmocka_unit_test(rule2_hammer_of_deadlines_cancels_and_signals),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
