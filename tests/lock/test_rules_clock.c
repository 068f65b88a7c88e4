/*
 * A wall clock that jumps changes nothing.
 *
 * This program has a clock_gettime of its own, which the library inside it uses: CLOCK_REALTIME,
 * time() and gettimeofday() jump by hours back and forth at every reading, every other clock is the
 * kernel's. Leases, waits, renewals and late copies must behave as ever, because deadlines are on a
 * clock that only goes forward and `not-after` is computed from what the server says.
 */
#include "support/world.h"

#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#define PAST_MS (ENDURING_MS + 1000) /* longer than the lease */

static atomic_bool jumping;
static atomic_int readings;

static long jump_s(void) {
    if (!atomic_load(&jumping))
        return 0;
    int reading = atomic_fetch_add(&readings, 1);
    return (reading % 2 == 0 ? 1 : -1) * (7200L + reading % 1000);
}

/* The parameters have the C library's names. */
int clock_gettime(clockid_t clock_id, struct timespec *tp) {
    long err = syscall(SYS_clock_gettime, clock_id, tp);
    if (err == 0 &&
        (clock_id == CLOCK_REALTIME || clock_id == CLOCK_REALTIME_COARSE || clock_id == CLOCK_TAI))
        tp->tv_sec += jump_s();
    return (int)err;
}

time_t time(time_t *timer) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (timer != NULL)
        *timer = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz) {
    struct timespec now;
    (void)tz;
    clock_gettime(CLOCK_REALTIME, &now);
    tv->tv_sec = now.tv_sec;
    tv->tv_usec = now.tv_nsec / 1000;
    return 0;
}

CASE(R11_wall_clock_jumps) {
    struct world w;
    struct world_caller waiter;
    struct world_events events = {0};
    hf_options options = world_options();
    options.watchdog_ms = ENDURING_MS;
    atomic_store(&jumping, true);
    time_t first = time(NULL), second = time(NULL);
    assert_true(first - second > 3600 || second - first > 3600); /* it does jump */
    world_begin(&w, &options);
    assert_int_equal(hf_lock_on_lost(w.lock, world_on_event, &events), HF_OK);

    assert_int_equal(hf_lock_acquire(w.lock), HF_OK);
    int64_t start_ms = now_ms();
    assert_int_equal(hf_lock_acquire_for(w.rival_lock, PAST_MS), HF_ETIMEDOUT);
    assert_true(now_ms() - start_ms >= PAST_MS);
    assert_true(now_ms() - start_ms < 10 * PAST_MS);
    assert_int_equal(world_count(&w, w.owner), 1);
    int64_t left_ms = hf_lock_remaining_ms(w.lock);
    assert_true(left_ms > 0 && left_ms <= ENDURING_MS);
    assert_int_equal(atomic_load(&events.losses), 0);

    assert_int_equal(hf_lock_extend(w.lock, 20000), HF_OK); /* longer than it takes to ask again */
    proxy_drop_replies_after(w.proxy, WORLD_RELEASE);
    assert_int_equal(hf_lock_release(w.lock), HF_OK);
    assert_true(world_free_after_refusal(&w));

    hf_acquire_options fixed = world_wait_for(0, 500);
    start_ms = now_ms();
    world_acquire_brief(w.rival_lock, &fixed);
    world_call_acquire(&waiter, w.lock, world_wait_for(HF_FOREVER, HF_WATCHDOG));
    assert_int_equal(world_join(&waiter), HF_OK);
    assert_true(now_ms() - start_ms >= 500);
    assert_int_equal(hf_lock_release_as(w.lock, waiter.owner), HF_OK);
    world_end(&w);
    atomic_store(&jumping, false);
}

RUN_CASES(world_start_server, world_stop_server)
