/*
 * How a caller in the seat waits: in recv() if it is alone, and looking for its answer before it
 * sleeps where that pays. Whatever it does, a deadline and a cancel end its wait, and one that does
 * not come back stops nobody.
 */
#include "net/voice.h"
#include "support/trap.h"

#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

#define SOON_MS (HANG_MS / 3) /* the connection is given up after a second */

/* ---- What it asks of the kernel ---- */

enum when { NOT_AT_ALL, BEFORE, BEHIND };

static atomic_int watched_fd = -1;
static atomic_uint looks, waits; /* in recv(), on that descriptor, since they were last cleared */
static atomic_bool waited_first;
static _Atomic enum when catch_next; /* wait, by a signal */

/* In the place of the C library's. */
ssize_t recv(int fd, void *buf, size_t n, int flags) {
    bool ours = fd == atomic_load(&watched_fd), blocks = (flags & MSG_DONTWAIT) == 0;
    enum when when = ours && blocks ? atomic_exchange(&catch_next, NOT_AT_ALL) : NOT_AT_ALL;
    if (ours && blocks && atomic_load(&looks) == 0)
        atomic_store(&waited_first, true);
    if (ours)
        atomic_fetch_add(blocks ? &waits : &looks, 1);
    if (when == BEFORE)
        raise(SIGUSR1);
    ssize_t got = recvfrom(fd, buf, n, flags, NULL, NULL);
    if (when == BEHIND)
        raise(SIGUSR1);
    return got;
}

static void watch(struct line *line) {
    pthread_mutex_lock(&line->conn->mtx);
    atomic_store(&watched_fd, line->conn->receive_fd);
    pthread_mutex_unlock(&line->conn->mtx);
    assert_int_not_equal(atomic_load(&watched_fd), -1);
    atomic_store(&looks, 0);
    atomic_store(&waits, 0);
    atomic_store(&waited_first, false);
}

static enum outcome speak_undisturbed(struct line *line) {
    struct voice voice;
    start_undisturbed_voice(&voice, line, 40, HANG_MS);
    return join_voice(&voice);
}

static void sleep_at_once(struct line *line) {
    line->target.sleeps_at_once = true; /* while nobody speaks */
}

static bool is_polling(void *arg) {
    unsigned polls;
    bool kicked;
    return hfi_exec_is_polling(arg, &polls, &kicked) && !kicked && !hfi_exec_is_receiving(arg);
}

/* ---- Alone ---- */

static void it_waits_in_recv(void **state) {
    (void)state;
    struct line line;
    line_begin(&line);
    sleep_at_once(&line);
    watch(&line);
    assert_int_equal(speak_undisturbed(&line), ANSWERED);
    assert_int_equal(atomic_load(&waits), 1);
    assert_int_equal(atomic_load(&looks), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(speak_undisturbed(&line), ANSWERED);
    assert_line_works(&line);
    line_end(&line);
}

/* Longer than what it makes room for at first. */
static void a_long_answer_is_read(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    line_begin(&line);
    start_undisturbed_voice(&voice, &line, 300000, HANG_MS);
    assert_int_equal(join_voice(&voice), ANSWERED);
    assert_line_works(&line);
    line_end(&line);
}

static void one_that_can_be_cancelled_does_not(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    line_begin(&line);
    watch(&line);
    start_voice(&voice, &line, 40, HANG_MS);
    assert_int_equal(join_voice(&voice), ANSWERED);
    assert_int_equal(atomic_load(&waits) + atomic_load(&looks), 0);
    line_end(&line);
}

static void a_deadline_is_kept(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    const int64_t times_ms[] = {1, 10, 30, 100};
    line_begin(&line);
    for (size_t i = 0; i < sizeof times_ms / sizeof times_ms[0]; i++) {
        proxy_blackhole(line.proxy, false, true);
        start_undisturbed_voice(&voice, &line, 40, times_ms[i]);
        assert_int_equal(join_voice(&voice), LATE);
        assert_true(voice.took_ms >= times_ms[i]);
        proxy_heal(line.proxy);
        assert_line_works(&line);
    }
    line_end(&line);
}

/* What nobody is expected to say is heard all the same: that is how a close comes. */
static void the_end_is_heard(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    line_begin(&line);
    for (int i = 0; i < 5; i++) {
        proxy_blackhole(line.proxy, false, true);
        start_undisturbed_voice(&voice, &line, 40, HANG_MS);
        wait_seated(&line, &voice, 0);
        cancel_voice(&voice);
        assert_int_equal(join_voice(&voice), CANCELLED);
        proxy_heal(line.proxy);
        assert_line_works(&line);
    }
    line_end(&line);
}

static void a_loss_is_noticed(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    line_begin(&line);
    proxy_blackhole(line.proxy, false, true);
    start_undisturbed_voice(&voice, &line, 40, HANG_MS);
    wait_seated(&line, &voice, 0);
    assert_int_equal(proxy_cut_all(line.proxy), 1);
    assert_int_equal(join_voice(&voice), LOST);
    proxy_heal(line.proxy);
    connect_line(&line);
    assert_line_works(&line);
    line_end(&line);
}

/* ---- One that does not come back ---- */

/* It may have taken the answer, so the connection is lost, for both; but nothing else is. */
static void is_stuck(enum when when) {
    struct line line;
    struct voice driver, follower;
    line_begin(&line);
    sleep_at_once(&line);
    size_t fds = scene_fds();
    watch(&line);
    atomic_store(&catch_next, when);
    start_undisturbed_voice(&driver, &line, 40, HANG_MS);
    trap_wait();
    start_voice(&follower, &line, 40, SOON_MS);
    assert_int_equal(join_voice(&follower), LOST);
    connect_line(&line);
    assert_line_works(&line);
    assert_false(atomic_load(&driver.done));
    trap_release();
    assert_int_equal(join_voice(&driver), LOST);
    assert_line_works(&line);
    assert_int_equal(scene_fds(), fds);
    line_end(&line);
}

static void one_that_is_stuck_before_its_answer_stops_nobody(void **state) {
    (void)state;
    is_stuck(BEFORE);
}

static void one_that_is_stuck_with_its_answer_stops_nobody(void **state) {
    (void)state;
    is_stuck(BEHIND);
}

/* ---- Looking before sleeping ---- */

static bool has_one_processor(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

static void it_looks_first(void **state) {
    (void)state;
    struct line line;
    line_begin(&line);
    watch(&line);
    assert_int_equal(speak_undisturbed(&line), ANSWERED);
    assert_int_equal(atomic_load(&waited_first), has_one_processor());
    assert_line_works(&line);
    line_end(&line);
}

static void it_does_not_where_there_is_one_processor(void **state) {
    (void)state;
    struct line line;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    line_begin(&line);
    watch(&line);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0); /* a new thread has the same */
    assert_int_equal(speak_undisturbed(&line), ANSWERED);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(atomic_load(&waited_first));
    line_end(&line);
}

static void it_does_not_look_again_where_it_was_in_vain(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    line_begin(&line);
    proxy_blackhole(line.proxy, false, true);
    start_undisturbed_voice(&voice, &line, 40, HANG_MS);
    wait_seated(&line, &voice, 0);
    assert_true(wait_until(is_polling, &voice.exec, HANG_MS));
    proxy_heal(line.proxy);
    assert_int_equal(join_voice(&voice), ANSWERED);
    watch(&line);
    assert_int_equal(speak_undisturbed(&line), ANSWERED);
    assert_true(atomic_load(&waited_first));
    assert_line_works(&line);
    line_end(&line);
}

int main(void) {
    trap_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_waits_in_recv),
        cmocka_unit_test(a_long_answer_is_read),
        cmocka_unit_test(one_that_can_be_cancelled_does_not),
        cmocka_unit_test(a_deadline_is_kept),
        cmocka_unit_test(the_end_is_heard),
        cmocka_unit_test(a_loss_is_noticed),
        cmocka_unit_test(one_that_is_stuck_before_its_answer_stops_nobody),
        cmocka_unit_test(one_that_is_stuck_with_its_answer_stops_nobody),
        cmocka_unit_test(it_looks_first),
        cmocka_unit_test(it_does_not_where_there_is_one_processor),
        cmocka_unit_test(it_does_not_look_again_where_it_was_in_vain),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
