/*
 * How a driver waits: in recv() if it is alone, and looking for its answer before it
 * sleeps where that pays. Whatever it does, a deadline and a cancel end its wait, and one that does
 * not come back stops nobody.
 */
#include "net/caller.h"
#include "support/trap.h"

#include <sched.h>
#include <signal.h>
#include <sys/socket.h>

#define SOON_MS (HANG_MS / 3) /* the connection is given up after a second */

/* ---- What it asks of the kernel ---- */

enum when { NOT_AT_ALL, BEFORE, BEHIND };

static atomic_int watched_fd = -1;
static atomic_uint spins, waits; /* in recv(), on that descriptor, since they were last cleared */
static atomic_bool waited_first;
static _Atomic enum when catch_next; /* wait, by a signal */

/* In the place of the C library's. */
ssize_t recv(int fd, void *buf, size_t n, int flags) {
    bool ours = fd == atomic_load(&watched_fd), blocks = (flags & MSG_DONTWAIT) == 0;
    enum when when = ours && blocks ? atomic_exchange(&catch_next, NOT_AT_ALL) : NOT_AT_ALL;
    if (ours && blocks && atomic_load(&spins) == 0)
        atomic_store(&waited_first, true);
    if (ours)
        atomic_fetch_add(blocks ? &waits : &spins, 1);
    if (when == BEFORE)
        raise(SIGUSR1);
    ssize_t got = recvfrom(fd, buf, n, flags, NULL, NULL);
    if (when == BEHIND)
        raise(SIGUSR1);
    return got;
}

static void watch(struct raw *raw) {
    pthread_mutex_lock(&raw->conn->mtx);
    atomic_store(&watched_fd, raw->conn->receive_fd);
    pthread_mutex_unlock(&raw->conn->mtx);
    assert_int_not_equal(atomic_load(&watched_fd), -1);
    atomic_store(&spins, 0);
    atomic_store(&waits, 0);
    atomic_store(&waited_first, false);
}

static enum outcome send_undisturbed(struct raw *raw) {
    struct caller caller;
    start_undisturbed_caller(&caller, raw, 40, HANG_MS);
    return join_caller(&caller);
}

static void no_busy_poll(struct raw *raw) {
    raw->target.sleeps_at_once = true; /* while nobody calls */
}

static bool is_polling(void *arg) {
    unsigned polls;
    bool wake_sent;
    return hfi_exec_is_polling(arg, &polls, &wake_sent) && !wake_sent &&
           !hfi_exec_is_receiving(arg);
}

/* ---- Alone ---- */

RAW_CASE(it_waits_in_recv) {
    no_busy_poll(raw);
    watch(raw);
    assert_int_equal(send_undisturbed(raw), ANSWERED);
    assert_int_equal(atomic_load(&waits), 1);
    assert_int_equal(atomic_load(&spins), 0);
    for (int i = 0; i < 50; i++)
        assert_int_equal(send_undisturbed(raw), ANSWERED);
    assert_raw_works(raw);
}

/* Longer than what it makes room for at first. */
RAW_CASE(a_long_answer_is_read) {
    struct caller caller;
    start_undisturbed_caller(&caller, raw, 300000, HANG_MS);
    assert_int_equal(join_caller(&caller), ANSWERED);
    assert_raw_works(raw);
}

RAW_CASE(one_that_can_be_cancelled_does_not) {
    struct caller caller;
    watch(raw);
    start_caller(&caller, raw, 40, HANG_MS);
    assert_int_equal(join_caller(&caller), ANSWERED);
    assert_int_equal(atomic_load(&waits) + atomic_load(&spins), 0);
}

RAW_CASE(a_deadline_is_kept) {
    struct caller caller;
    const int64_t times_ms[] = {1, 10, 30, 100};
    for (size_t i = 0; i < sizeof times_ms / sizeof times_ms[0]; i++) {
        proxy_blackhole(raw->proxy, false, true);
        start_undisturbed_caller(&caller, raw, 40, times_ms[i]);
        assert_int_equal(join_caller(&caller), LATE);
        assert_true(caller.took_ms >= times_ms[i]);
        proxy_heal(raw->proxy);
        assert_raw_works(raw);
    }
}

/* An unexpected event on an idle connection is noticed, too: the server's close arrives like
 * this. */
RAW_CASE(the_end_is_noticed) {
    struct caller caller;
    for (int i = 0; i < 5; i++) {
        proxy_blackhole(raw->proxy, false, true);
        start_undisturbed_caller(&caller, raw, 40, HANG_MS);
        wait_driver(raw, &caller, 0);
        cancel_caller(&caller);
        assert_int_equal(join_caller(&caller), CANCELLED);
        proxy_heal(raw->proxy);
        assert_raw_works(raw);
    }
}

RAW_CASE(a_loss_is_noticed) {
    struct caller caller;
    proxy_blackhole(raw->proxy, false, true);
    start_undisturbed_caller(&caller, raw, 40, HANG_MS);
    wait_driver(raw, &caller, 0);
    assert_int_equal(proxy_cut_all(raw->proxy), 1);
    assert_int_equal(join_caller(&caller), LOST);
    proxy_heal(raw->proxy);
    raw_connect(raw);
    assert_raw_works(raw);
}

/* ---- One that does not come back ---- */

/* It may have taken the answer, so the connection is lost, for both; but nothing else is. */
static void is_stuck(enum when when) {
    OWN(raw_end) struct raw raw;
    struct caller driver, follower;
    raw_begin(&raw);
    no_busy_poll(&raw);
    size_t fds = scene_fds();
    watch(&raw);
    atomic_store(&catch_next, when);
    start_undisturbed_caller(&driver, &raw, 40, HANG_MS);
    trap_wait();
    start_caller(&follower, &raw, 40, SOON_MS);
    assert_int_equal(join_caller(&follower), LOST);
    raw_connect(&raw);
    assert_raw_works(&raw);
    assert_false(atomic_load(&driver.done));
    trap_release();
    assert_int_equal(join_caller(&driver), LOST);
    assert_raw_works(&raw);
    assert_int_equal(scene_fds(), fds);
}

CASE(a_client_stuck_before_its_answer_stops_nobody) {
    is_stuck(BEFORE);
}

CASE(a_client_stuck_with_its_answer_stops_nobody) {
    is_stuck(BEHIND);
}

/* ---- Looking before sleeping ---- */

static bool has_one_processor(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

RAW_CASE(it_spins_first) {
    watch(raw);
    assert_int_equal(send_undisturbed(raw), ANSWERED);
    assert_int_equal(atomic_load(&waited_first), has_one_processor());
    assert_raw_works(raw);
}

CASE(it_does_not_where_there_is_one_processor) {
    OWN(raw_end) struct raw raw;
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    raw_begin(&raw);
    watch(&raw);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0); /* a new thread has the same */
    assert_int_equal(send_undisturbed(&raw), ANSWERED);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(atomic_load(&waited_first));
}

RAW_CASE(it_does_not_spin_again_where_it_was_in_vain) {
    struct caller caller;
    proxy_blackhole(raw->proxy, false, true);
    start_undisturbed_caller(&caller, raw, 40, HANG_MS);
    wait_driver(raw, &caller, 0);
    assert_true(wait_until(is_polling, &caller.exec, HANG_MS));
    proxy_heal(raw->proxy);
    assert_int_equal(join_caller(&caller), ANSWERED);
    watch(raw);
    assert_int_equal(send_undisturbed(raw), ANSWERED);
    assert_true(atomic_load(&waited_first));
    assert_raw_works(raw);
}

int main(void) {
    trap_set();
    return test_cases_run(scene_start_server, scene_stop_server);
}
