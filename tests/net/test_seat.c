/*
 * The rules of the driver's seat, on one connection of src/net without anything above it.
 *
 * Each `voice` is a thread that sends ECHO with a text of its own and waits for exactly that text,
 * with a deadline and a cancel of its own, as a synchronous call does. So a reply that goes to the
 * wrong caller, a seat that nobody takes and a caller that oversleeps all show. The server is real,
 * and the proxy before it keeps replies back. Who sits in the seat is read under the connection's
 * mutex, only to bring a scene about.
 */
#include "net/scene.h"

#include "base/clock.h"
#include "net/impl.h"
#include "net/keeper.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT_REPLY = 1u, EVENT_READY = 2u, EVENT_CANCEL = 4u, EVENT_LATE = 8u };
enum outcome { ANSWERED, LATE, CANCELLED, LOST, UNSENT, WRONG };

struct line {
    struct hfi_mem mem;
    struct hfi_log log;
    struct proxy *proxy;
    struct hfi_keeper *keeper;
    struct hfi_target target;
    struct hfi_conn *conn;
};

struct voice {
    struct line *line;
    struct hfi_exec exec;
    struct hfi_task task;
    struct hfi_alarm alarm;
    unsigned news;
    /* For those on a thread of their own: */
    pthread_t thread;
    int64_t wait_ms;
    size_t size;
    enum outcome outcome;
    int64_t took_ms;
    atomic_bool done;
};

static void voice_run(struct hfi_task *task, unsigned events) {
    HFI_CONTAINER(task, struct voice, task)->news |= events;
}

static void voice_destroy(struct hfi_task *task) {
    (void)task;
}

static void voice_late(struct hfi_alarm *alarm) {
    HFI_CONTAINER(alarm, struct voice, alarm)->news |= EVENT_LATE;
}

static void voice_begin(struct voice *voice, struct line *line) {
    memset(voice, 0, sizeof *voice);
    voice->line = line;
    hfi_exec_init(&voice->exec);
    hfi_task_init(&voice->task, &voice->exec, voice_run, voice_destroy);
    voice->alarm.fire = voice_late;
}

static void voice_end(struct voice *voice) {
    hfi_task_retire(&voice->task);
    hfi_exec_destroy(&voice->exec);
    hfi_task_unref(&voice->task);
}

/* ---- One connection ---- */

static void connect_line(struct line *line) {
    struct voice voice;
    struct hfi_want want = {.err = HF_OK};
    voice_begin(&voice, line);
    hfi_conn_want(line->conn, &want, &voice.task, EVENT_READY);
    while ((voice.news & EVENT_READY) == 0)
        if (!hfi_exec_run(&voice.exec))
            hfi_exec_sleep(&voice.exec);
    hfi_conn_unwant(line->conn, &want);
    assert_int_equal(want.err, HF_OK);
    voice_end(&voice);
}

static void line_begin_at(struct line *line, const char *socket) {
    hf_error error = {.code = HF_OK};
    assert_int_equal(hfi_keeper_new(&line->mem, &line->keeper, &error), HF_OK);
    line->target = (struct hfi_target){
        .mem = &line->mem,
        .log = &line->log,
        .keeper = line->keeper,
        .node = "the server",
        .client_name = "voices",
        .cmd_timeout_ms = 20000,
        .ping_ms = 60000,
    };
    assert_int_equal(hfi_addr_unix(socket, &line->target.address), HF_OK);
    line->conn = hfi_conn_new(&line->target, HFI_SEAT_CALLERS, NULL, NULL, NULL);
    assert_non_null(line->conn);
    assert_int_equal(hfi_keeper_start(line->keeper, &error), HF_OK);
    connect_line(line);
}

/* Through a proxy. */
static void line_begin(struct line *line) {
    memset(line, 0, sizeof *line);
    line->proxy = proxy_start(server_socket(scene_server()));
    line_begin_at(line, proxy_socket(line->proxy));
}

static void free_conn(void *arg) {
    hfi_conn_free(((struct line *)arg)->conn);
}

static void line_end(struct line *line) {
    hfi_keeper_stop(line->keeper, free_conn, line);
    hfi_keeper_free(line->keeper);
    proxy_free(line->proxy);
}

struct seat_view {
    const struct hfi_exec *driver;
    unsigned in_flight, attendants;
    size_t followers;
};

static struct seat_view look(struct line *line) {
    struct hfi_conn *conn = line->conn;
    pthread_mutex_lock(&conn->mtx);
    struct seat_view view = {conn->driver, conn->in_flight, conn->attendants, 0};
    for (struct hfi_link *link = conn->followers.next; link != &conn->followers; link = link->next)
        view.followers++;
    pthread_mutex_unlock(&conn->mtx);
    return view;
}

struct wanted_seat {
    struct line *line;
    const struct hfi_exec *driver;
    size_t followers;
};

static bool is_seated(void *arg) {
    struct wanted_seat *wanted = arg;
    struct seat_view view = look(wanted->line);
    return view.driver == wanted->driver && view.followers == wanted->followers;
}

/* Waits until this voice drives (NULL: nobody does) and so many follow. */
static void wait_seated(struct line *line, const struct voice *driver, size_t followers) {
    struct wanted_seat wanted = {line, driver != NULL ? &driver->exec : NULL, followers};
    assert_true(wait_until(is_seated, &wanted, HANG_MS));
}

/* ---- Voices ---- */

static bool is_echo(const redisReply *reply, const char *text, size_t size) {
    return reply->type == REDIS_REPLY_STRING && (size_t)reply->len == size &&
           memcmp(reply->str, text, size) == 0;
}

/* A text of `size` bytes that nobody else sends. */
static char *unique_text(size_t size) {
    static atomic_ullong counter;
    char *text = malloc(size + 32);
    if (text == NULL)
        support_die("no memory for a text");
    int len = snprintf(text, 32, "%020llu:", atomic_fetch_add(&counter, 1));
    if ((size_t)len < size)
        memset(text + len, 'x', size - (size_t)len);
    return text;
}

static enum outcome hear(struct voice *voice, struct hfi_req *req, const char *text, size_t size) {
    if ((voice->news & EVENT_REPLY) == 0) {
        hfi_req_abandon(req);
        return (voice->news & EVENT_CANCEL) != 0 ? CANCELLED : LATE;
    }
    enum outcome outcome = LOST;
    if (!req->complete)
        outcome = WRONG;
    else if (req->err == HF_OK)
        outcome = is_echo(req->reply, text, size) ? ANSWERED : WRONG;
    hfi_req_unref(req);
    return outcome;
}

/* Sends, and waits as a synchronous call would. */
static enum outcome speak(struct voice *voice, size_t size, int64_t wait_ms) {
    char *text = unique_text(size), *command = malloc(size + 64);
    if (command == NULL)
        support_die("no memory for a command");
    int head = snprintf(command, 64, "*2\r\n$4\r\nECHO\r\n$%zu\r\n", size);
    memcpy(command + head, text, size);
    memcpy(command + head + size, "\r\n", sizeof "\r\n");

    struct hfi_req *req = NULL;
    voice->news = 0;
    int err = hfi_conn_submit(voice->line->conn, command, (size_t)head + size + 2, &voice->task,
                              EVENT_REPLY, &req);
    free(command);
    enum outcome outcome = UNSENT;
    if (err == HF_OK) {
        hfi_alarm_set(&voice->exec, &voice->alarm, hfi_after_ms(hfi_now_ms(), wait_ms));
        while (voice->news == 0)
            if (!hfi_exec_run(&voice->exec))
                hfi_conn_attend(&voice->exec);
        hfi_alarm_clear(&voice->exec, &voice->alarm);
        outcome = hear(voice, req, text, size);
        voice->exec.lane = NULL;
        hfi_exec_run(&voice->exec); /* what came in the last moment belongs to this call */
    }
    free(text);
    return outcome;
}

static void *speak_once(void *arg) {
    struct voice *voice = arg;
    int64_t start_ms = now_ms();
    voice->outcome = speak(voice, voice->size, voice->wait_ms);
    voice->took_ms = now_ms() - start_ms;
    atomic_store(&voice->done, true);
    return NULL;
}

static void start_voice(struct voice *voice, struct line *line, size_t size, int64_t wait_ms) {
    voice_begin(voice, line);
    voice->size = size;
    voice->wait_ms = wait_ms;
    assert_int_equal(pthread_create(&voice->thread, NULL, speak_once, voice), 0);
}

static enum outcome join_voice(struct voice *voice) {
    scene_join_thread(voice->thread);
    voice_end(voice);
    return voice->outcome;
}

static void cancel_voice(struct voice *voice) {
    hfi_task_post(&voice->task, EVENT_CANCEL);
}

/* Nothing is left over: the next caller gets its own reply, and the seat is empty afterwards. */
static void assert_line_works(struct line *line) {
    struct voice voice;
    voice_begin(&voice, line);
    assert_int_equal(speak(&voice, 40, HANG_MS), ANSWERED);
    voice_end(&voice);
    wait_seated(line, NULL, 0);
    assert_int_equal(look(line).in_flight, 0);
    assert_int_equal(look(line).attendants, 0);
}

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
    start_voice(&driver, &line, 40, 200);
    wait_seated(&line, &driver, 0);
    start_voice(&follower, &line, 40, HANG_MS);
    assert_int_equal(join_voice(&driver), LATE);
    assert_true(driver.took_ms >= 200);
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
