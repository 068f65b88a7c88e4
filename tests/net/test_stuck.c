/*
 * A thread that drives a connection for others and does not come back, because a signal handler of
 * the application does not return: somebody else takes the seat.
 *
 * The limits of these exchanges are far beyond what the tests allow, so nothing here is cured by a
 * timeout.
 */
#include "net/voice.h"
#include "support/trap.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOON_MS (HANG_MS / 5) /* relief takes some 300 ms */

static bool is_polling(void *arg) {
    unsigned polls;
    bool kicked;
    return hfi_exec_is_polling(arg, &polls, &kicked) && !kicked;
}

/* A driver whose answer is kept back, and who is in a handler. */
static void start_stuck_driver(struct line *line, struct voice *driver) {
    proxy_blackhole(line->proxy, false, true);
    start_voice(driver, line, 40, HANG_MS);
    wait_seated(line, driver, 0);
    assert_true(wait_until(is_polling, &driver->exec, HANG_MS));
    trap_catch(driver->thread);
}

static void a_follower_takes_the_seat(void **state) {
    (void)state;
    enum { FOLLOWERS = 3 };
    struct line line;
    struct voice driver, followers[FOLLOWERS];
    line_begin(&line);
    size_t fds = scene_fds();
    for (int round = 0; round < 3; round++) {
        start_stuck_driver(&line, &driver);
        for (size_t i = 0; i < FOLLOWERS; i++)
            start_voice(&followers[i], &line, 40, SOON_MS);
        wait_seated(&line, &driver, FOLLOWERS);
        proxy_heal(line.proxy);
        for (size_t i = 0; i < FOLLOWERS; i++)
            assert_int_equal(join_voice(&followers[i]), ANSWERED);
        assert_line_works(&line);
        assert_false(atomic_load(&driver.done));
        trap_release(); /* its own answer has been read for it */
        assert_int_equal(join_voice(&driver), ANSWERED);
        assert_line_works(&line);
    }
    assert_int_equal(scene_fds(), fds);
    line_end(&line);
}

/* It finds the seat taken, and follows. */
static void the_old_driver_comes_back_to_wait(void **state) {
    (void)state;
    struct line line;
    struct voice driver, follower;
    line_begin(&line);
    start_stuck_driver(&line, &driver);
    start_voice(&follower, &line, 40, HANG_MS);
    wait_seated(&line, &driver, 1);
    cancel_voice(&driver); /* a kick is as good as news: it does not react */
    wait_seated(&line, &follower, 0);
    trap_release();
    assert_int_equal(join_voice(&driver), CANCELLED);
    assert_ptr_equal(look(&line).driver, &follower.exec);
    proxy_heal(line.proxy);
    assert_int_equal(join_voice(&follower), ANSWERED);
    assert_line_works(&line);
    line_end(&line);
}

static void a_loss_is_noticed(void **state) {
    (void)state;
    struct line line;
    struct voice driver, follower;
    line_begin(&line);
    start_stuck_driver(&line, &driver);
    start_voice(&follower, &line, 40, SOON_MS);
    wait_seated(&line, &driver, 1);
    assert_int_equal(proxy_cut_all(line.proxy), 1);
    assert_int_equal(join_voice(&follower), LOST);
    proxy_heal(line.proxy);
    connect_line(&line);
    assert_line_works(&line);
    trap_release();
    assert_int_equal(join_voice(&driver), LOST);
    assert_line_works(&line);
    line_end(&line);
}

static bool is_down(void *arg) {
    return ((struct line *)arg)->conn->state != CONN_READY;
}

/* Nobody follows, but the next command would find no connection. */
static void a_silent_connection_is_given_up(void **state) {
    (void)state;
    struct line line;
    struct voice driver;
    line_begin(&line);
    start_stuck_driver(&line, &driver);
    hfi_conn_suspect(line.conn, HFI_NEVER);
    assert_true(wait_until(is_down, &line, SOON_MS));
    proxy_heal(line.proxy);
    connect_line(&line);
    assert_line_works(&line);
    trap_release();
    assert_int_equal(join_voice(&driver), LOST);
    line_end(&line);
}

/* ---- Writing ---- */

static atomic_bool catch_next_echo;

/* In the place of the C library's, so that a signal can come at the moment it returns. */
ssize_t send(int fd, const void *buf, size_t n, int flags) {
    /* Decided before it leaves: the proxy's thread sends the same bytes on. */
    bool caught = memmem(buf, n, "ECHO", 4) != NULL && atomic_exchange(&catch_next_echo, false);
    ssize_t sent = sendto(fd, buf, n, flags, NULL, 0);
    if (caught)
        raise(SIGUSR1);
    return sent;
}

/* The other has come, and has read what the writer waits for. */
static bool only_the_other_is_unanswered(void *arg) {
    struct seat_view view = look(arg);
    return view.driver != NULL && view.in_flight == 1;
}

/* What others add is not written, so their answers do not come in time. That costs them the
 * connection, but the next one is not the writer's. */
static void a_writer_does_not_come_back(void **state) {
    (void)state;
    struct line line;
    struct voice writer, other;
    line_begin(&line);
    size_t fds = scene_fds();
    atomic_store(&catch_next_echo, true);
    start_voice(&writer, &line, 40, HANG_MS);
    trap_wait();
    start_voice(&other, &line, 40, HANG_MS);
    assert_true(wait_until(only_the_other_is_unanswered, &line, HANG_MS));
    shorten_voice(&other, 0);
    assert_int_equal(join_voice(&other), LATE);
    hfi_conn_suspect(line.conn, HFI_NEVER);
    assert_true(wait_until(is_down, &line, SOON_MS));
    connect_line(&line);
    assert_line_works(&line);
    trap_release();
    assert_int_equal(join_voice(&writer), ANSWERED); /* the other has read it */
    assert_line_works(&line);
    assert_int_equal(scene_fds(), fds);
    line_end(&line);
}

/* ---- All at once ---- */

static void dawdle(int signal) {
    (void)signal;
    struct timespec pause = {.tv_nsec = 350000000};
    nanosleep(&pause, NULL);
}

struct talker {
    struct voice voice;
    atomic_bool *stop;
    atomic_int answered;
    enum outcome bad;
    pthread_t thread;
};

static void *talk(void *arg) {
    struct talker *talker = arg;
    while (!atomic_load(talker->stop)) {
        enum outcome outcome = speak(&talker->voice, 40, HANG_MS);
        if (outcome == ANSWERED)
            atomic_fetch_add(&talker->answered, 1);
        else
            talker->bad = outcome;
    }
    return NULL;
}

/* Drivers that come back at any moment: relieved, about to be, or never suspected. */
static void drivers_that_are_only_slow(void **state) {
    (void)state;
    enum { TALKERS = 5, SIGNALS = 60 };
    struct sigaction action = {.sa_handler = dawdle};
    assert_int_equal(sigaction(SIGUSR2, &action, NULL), 0);
    uint64_t random = scene_seed("drivers_that_are_only_slow");
    struct line line;
    struct talker talkers[TALKERS];
    atomic_bool stop = false;
    line_begin(&line);
    for (size_t i = 0; i < TALKERS; i++) {
        talkers[i] = (struct talker){.stop = &stop, .bad = ANSWERED};
        voice_begin(&talkers[i].voice, &line);
        assert_int_equal(pthread_create(&talkers[i].thread, NULL, talk, &talkers[i]), 0);
    }
    for (size_t i = 0; i < SIGNALS; i++) {
        sleep_ms((int64_t)(scene_random(&random) % 100));
        pthread_kill(talkers[scene_random(&random) % TALKERS].thread, SIGUSR2);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < TALKERS; i++) {
        scene_join_thread(talkers[i].thread);
        voice_end(&talkers[i].voice);
        assert_int_equal(talkers[i].bad, ANSWERED);
        assert_true(atomic_load(&talkers[i].answered) > 0);
    }
    assert_line_works(&line);
    line_end(&line);
}

/* ---- Through the public calls ---- */

struct pinger {
    pthread_t thread;
    hf_client *client;
    int result;
    int64_t took_ms;
    atomic_int tid;
    atomic_bool polls;
};

static _Thread_local struct pinger *pinging;

/* In the place of the C library's. */
int poll(struct pollfd *fds, nfds_t nfds, int timeout) {
    struct timespec until = {timeout / 1000, timeout % 1000 * 1000000L};
    if (pinging != NULL)
        atomic_store(&pinging->polls, true);
    return ppoll(fds, nfds, timeout >= 0 ? &until : NULL, NULL);
}

static void *ping_once(void *arg) {
    struct pinger *pinger = arg;
    int64_t start_ms = now_ms();
    pinging = pinger;
    atomic_store(&pinger->tid, gettid());
    pinger->result = hf_ping(pinger->client);
    pinger->took_ms = now_ms() - start_ms;
    return NULL;
}

static void start_pinger(struct pinger *pinger, hf_client *client) {
    *pinger = (struct pinger){.client = client};
    assert_int_equal(pthread_create(&pinger->thread, NULL, ping_once, pinger), 0);
}

static bool sleeps(void *arg) {
    int tid = atomic_load((atomic_int *)arg);
    char path[64], state = '\0';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    FILE *stat = tid != 0 ? fopen(path, "re") : NULL;
    bool known = stat != NULL && fscanf(stat, "%*d %*s %c", &state) == 1;
    if (stat != NULL)
        fclose(stat);
    return known && state == 'S';
}

/* Who is alone waits in recv() at first, and is not relieved there without a loss (net.await). */
static bool polls(void *arg) {
    struct pinger *pinger = arg;
    return atomic_load(&pinger->polls) && sleeps(&pinger->tid);
}

static void commands_of_others_go_on(void **state) {
    (void)state;
    enum { OTHERS = 4 };
    struct proxy *proxy = proxy_start(server_socket(scene_server()));
    hf_options options = scene_options();
    options.cmd_timeout_ms = options.connect_timeout_ms = 20000;
    hf_client *client = scene_open(proxy_url(proxy), &options);
    assert_int_equal(hf_ping(client), HF_OK);
    proxy_refuse(proxy, true); /* no second connection to turn to */
    size_t pings = proxy_seen(proxy, "\r\nPING\r\n");
    struct pinger first, others[OTHERS];
    proxy_blackhole(proxy, false, true);
    start_pinger(&first, client);
    assert_true(proxy_wait_seen(proxy, "\r\nPING\r\n", pings + 1, HANG_MS));
    assert_true(wait_until(polls, &first, HANG_MS));
    trap_catch(first.thread);
    for (size_t i = 0; i < OTHERS; i++)
        start_pinger(&others[i], client);
    assert_true(proxy_wait_seen(proxy, "\r\nPING\r\n", pings + 1 + OTHERS, HANG_MS));
    proxy_blackhole(proxy, false, false);
    for (size_t i = 0; i < OTHERS; i++) {
        scene_join_thread(others[i].thread);
        assert_int_equal(others[i].result, HF_OK);
        assert_true(others[i].took_ms < SOON_MS);
    }
    trap_release();
    scene_join_thread(first.thread);
    assert_int_equal(first.result, HF_OK);
    assert_int_equal(hf_close(client), HF_OK);
    proxy_free(proxy);
}

int main(void) {
    trap_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_follower_takes_the_seat),
        cmocka_unit_test(the_old_driver_comes_back_to_wait),
        cmocka_unit_test(a_loss_is_noticed),
        cmocka_unit_test(a_silent_connection_is_given_up),
        cmocka_unit_test(a_writer_does_not_come_back),
        cmocka_unit_test(drivers_that_are_only_slow),
        cmocka_unit_test(commands_of_others_go_on),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
