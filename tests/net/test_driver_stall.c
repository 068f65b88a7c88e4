/*
 * A driver that does not come back, because a signal handler of the application does not return:
 * another thread becomes the driver.
 *
 * The timeouts of these exchanges are far beyond what the tests allow, so no timeout cures anything
 * here.
 */
#include "net/caller.h"
#include "support/random.h"
#include "support/trap.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#define SOON_MS (HANG_MS / 5) /* preemption takes some 300 ms */

static bool is_polling(void *arg) {
    unsigned polls;
    bool wake_sent;
    return hfi_exec_is_polling(arg, &polls, &wake_sent) && !wake_sent;
}

/* A driver whose reply is held back, and which is inside a signal handler. */
static void start_stuck_driver(struct raw *raw, struct caller *driver) {
    proxy_blackhole(raw->proxy, false, true);
    start_caller(driver, raw, 40, HANG_MS);
    wait_driver(raw, driver, 0);
    assert_true(wait_until(is_polling, &driver->exec, HANG_MS));
    trap_catch(driver->thread);
}

RAW_CASE(a_follower_becomes_the_driver) {
    enum { FOLLOWERS = 3 };
    struct caller driver, followers[FOLLOWERS];
    size_t fds = scene_fds();
    for (int round = 0; round < 3; round++) {
        start_stuck_driver(raw, &driver);
        for (size_t i = 0; i < FOLLOWERS; i++)
            start_caller(&followers[i], raw, 40, SOON_MS);
        wait_driver(raw, &driver, FOLLOWERS);
        proxy_heal(raw->proxy);
        for (size_t i = 0; i < FOLLOWERS; i++)
            assert_int_equal(join_caller(&followers[i]), ANSWERED);
        assert_raw_works(raw);
        assert_false(atomic_load(&driver.done));
        trap_release(); /* its own answer has been read for it */
        assert_int_equal(join_caller(&driver), ANSWERED);
        assert_raw_works(raw);
    }
    assert_int_equal(scene_fds(), fds);
}

/* It finds a driver, and follows. */
RAW_CASE(the_old_driver_comes_back_to_wait) {
    struct caller driver, follower;
    start_stuck_driver(raw, &driver);
    start_caller(&follower, raw, 40, HANG_MS);
    wait_driver(raw, &driver, 1);
    cancel_caller(&driver); /* a wake-up changes nothing: it does not react */
    wait_driver(raw, &follower, 0);
    trap_release();
    assert_int_equal(join_caller(&driver), CANCELLED);
    assert_ptr_equal(view_driver(raw).driver, &follower.exec);
    proxy_heal(raw->proxy);
    assert_int_equal(join_caller(&follower), ANSWERED);
    assert_raw_works(raw);
}

RAW_CASE(a_loss_is_noticed) {
    struct caller driver, follower;
    start_stuck_driver(raw, &driver);
    start_caller(&follower, raw, 40, SOON_MS);
    wait_driver(raw, &driver, 1);
    assert_int_equal(proxy_cut_all(raw->proxy), 1);
    assert_int_equal(join_caller(&follower), LOST);
    proxy_heal(raw->proxy);
    raw_connect(raw);
    assert_raw_works(raw);
    trap_release();
    assert_int_equal(join_caller(&driver), LOST);
    assert_raw_works(raw);
}

static bool is_down(void *arg) {
    return ((struct raw *)arg)->conn->state != CONN_READY;
}

/* Nobody follows, but the next command would find no connection. */
RAW_CASE(a_silent_connection_is_given_up) {
    struct caller driver;
    start_stuck_driver(raw, &driver);
    hfi_conn_suspect(raw->conn, HFI_NEVER);
    assert_true(wait_until(is_down, raw, SOON_MS));
    proxy_heal(raw->proxy);
    raw_connect(raw);
    assert_raw_works(raw);
    trap_release();
    assert_int_equal(join_caller(&driver), LOST);
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
    struct driver_view view = view_driver(arg);
    return view.driver != NULL && view.in_flight == 1;
}

/* What others add is not written, so their answers do not come in time. That costs them the
 * connection, but the next one is not the writer's. */
RAW_CASE(a_writer_does_not_return) {
    struct caller writer, other;
    size_t fds = scene_fds();
    atomic_store(&catch_next_echo, true);
    start_caller(&writer, raw, 40, HANG_MS);
    trap_wait();
    start_caller(&other, raw, 40, HANG_MS);
    assert_true(wait_until(only_the_other_is_unanswered, raw, HANG_MS));
    shorten_caller(&other, 0);
    assert_int_equal(join_caller(&other), LATE);
    hfi_conn_suspect(raw->conn, HFI_NEVER);
    assert_true(wait_until(is_down, raw, SOON_MS));
    raw_connect(raw);
    assert_raw_works(raw);
    trap_release();
    assert_int_equal(join_caller(&writer), ANSWERED); /* the other has read it */
    assert_raw_works(raw);
    assert_int_equal(scene_fds(), fds);
}

/* ---- All at once ---- */

static void dawdle(int signal) {
    (void)signal;
    struct timespec pause = {.tv_nsec = 350000000};
    nanosleep(&pause, NULL); /* the stall itself */
}

struct talker {
    struct caller caller;
    atomic_bool *stop;
    atomic_int answered;
    enum outcome bad;
    pthread_t thread;
};

static void *talk(void *arg) {
    struct talker *talker = arg;
    while (!atomic_load(talker->stop)) {
        enum outcome outcome = send_and_wait(&talker->caller, 40, HANG_MS);
        if (outcome == ANSWERED)
            atomic_fetch_add(&talker->answered, 1);
        else
            talker->bad = outcome;
    }
    return NULL;
}

/* Drivers that come back at any moment: preempted, about to be, or never suspected. */
CASE(drivers_that_are_only_slow) {
    OWN(raw_end) struct raw raw;
    enum { TALKERS = 5, SIGNALS = 60 };
    struct sigaction action = {.sa_handler = dawdle};
    assert_int_equal(sigaction(SIGUSR2, &action, NULL), 0);
    uint64_t random = random_seed();
    struct talker talkers[TALKERS];
    atomic_bool stop = false;
    raw_begin(&raw);
    for (size_t i = 0; i < TALKERS; i++) {
        talkers[i] = (struct talker){.stop = &stop, .bad = ANSWERED};
        caller_begin(&talkers[i].caller, &raw);
        assert_int_equal(pthread_create(&talkers[i].thread, NULL, talk, &talkers[i]), 0);
    }
    for (size_t i = 0; i < SIGNALS; i++) {
        linger((int64_t)(random_next(&random) % 100));
        pthread_kill(talkers[random_next(&random) % TALKERS].thread, SIGUSR2);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < TALKERS; i++) {
        scene_join_thread(talkers[i].thread);
        caller_end(&talkers[i].caller);
        assert_int_equal(talkers[i].bad, ANSWERED);
        assert_true(atomic_load(&talkers[i].answered) > 0);
    }
    assert_raw_works(&raw);
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

/* A lone caller first waits in recv(), where it is not preempted without losing the connection
 * (net.driver_wait). */
static bool polls(void *arg) {
    struct pinger *pinger = arg;
    return atomic_load(&pinger->polls) && sleeps(&pinger->tid);
}

CASE(commands_of_others_go_on) {
    enum { OTHERS = 4 };
    own_proxy *proxy = proxy_start(server_socket(scene_server()));
    hf_options options = scene_options();
    options.cmd_timeout_ms = options.connect_timeout_ms = 20000;
    own_client *client = scene_open(proxy_url(proxy), &options);
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
}

int main(void) {
    trap_set();
    return test_cases_run(scene_start_server, scene_stop_server);
}
