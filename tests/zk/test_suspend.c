/*
 * A machine that is suspended: everything stands still but CLOCK_BOOTTIME, and the servers elsewhere.
 *
 * This program has a clock_gettime of its own, which the library inside it uses, and a timerfd_settime: after
 * suspend_for() the boot time is that much later, and whatever was due by then is due at once, as when a machine wakes
 * up. Every other clock is the kernel's.
 */
#include "support/case.h"
#include "zk/scene.h"

#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>

enum { TIMERS = 8 };

/* The timers that were set to a boot time. */
struct timer {
    int fd;
    struct itimerspec at;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct timer timers[TIMERS];
static size_t timers_len;
static _Atomic int64_t slept_s;

/* The parameters have the C library's names. */
int clock_gettime(clockid_t clock_id, struct timespec *tp) {
    long err = syscall(SYS_clock_gettime, clock_id, tp);
    if (err == 0 && clock_id == CLOCK_BOOTTIME)
        tp->tv_sec += (time_t)atomic_load(&slept_s);
    return (int)err;
}

/* To the kernel, whose clock has not slept. What was due while it did is due now. */
static int arm(const struct timer *timer) {
    struct itimerspec at = timer->at;
    if (at.it_value.tv_sec != 0 || at.it_value.tv_nsec != 0) {
        at.it_value.tv_sec -= (time_t)atomic_load(&slept_s);
        if (at.it_value.tv_sec < 0)
            at.it_value = (struct timespec){.tv_nsec = 1};
    }
    return (int)syscall(SYS_timerfd_settime, timer->fd, TFD_TIMER_ABSTIME, &at, NULL);
}

int timerfd_settime(int ufd, int flags, const struct itimerspec *utmr, struct itimerspec *otmr) {
    if ((flags & TFD_TIMER_ABSTIME) == 0)
        return (int)syscall(SYS_timerfd_settime, ufd, flags, utmr, otmr);
    pthread_mutex_lock(&mutex);
    size_t i = 0;
    while (i < timers_len && timers[i].fd != ufd)
        i++;
    if (i == TIMERS)
        support_die("more timers than this test knows of");
    timers_len = i == timers_len ? i + 1 : timers_len;
    timers[i] = (struct timer){.fd = ufd, .at = *utmr};
    int err = arm(&timers[i]);
    pthread_mutex_unlock(&mutex);
    return err;
}

static void suspend_for(int64_t seconds) {
    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&slept_s, seconds);
    for (size_t i = 0; i < timers_len; i++)
        arm(&timers[i]);
    pthread_mutex_unlock(&mutex);
}

/* The hold is over when the machine wakes up, before anybody was asked; and so is what the server had of it, soon. */
CASE_AROUND(a_hold_ends_while_the_machine_sleeps, scene_heal, NULL) {
    struct scene_events events = {0};
    own_client *client = scene_proxied(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "sleeps");
    assert_hf(HF_OK, hf_lock_on_lost(lock, scene_on_event, &events));
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_true(hf_lock_remaining_ms(lock) > 0);
    proxy_blackhole(scene.proxy, true, true);
    suspend_for(2 * SURVIVES_MS / 1000);
    assert_int_equal(hf_lock_remaining_ms(lock), 0);
    assert_true(scene_wait_losses(&events, 1)); /* though nobody answers */
    assert_hf(HF_ELOST, hf_lock_release(lock));
    proxy_heal(scene.proxy);
    assert_hf(HF_OK, hf_lock_acquire_for(lock, HANG_MS));
    assert_hf(HF_OK, hf_lock_release(lock));
}

/* A nap that is shorter than what is left changes nothing. */
CASE_AROUND(a_nap_costs_nothing, scene_heal, NULL) {
    own_client *client = scene_direct(SURVIVES_MS);
    own_lock *lock = scene_lock(client, HF_PLAIN, "nap");
    assert_hf(HF_OK, hf_lock_acquire(lock));
    suspend_for(SURVIVES_MS / 1000 / 6);
    assert_true(hf_lock_remaining_ms(lock) <= SURVIVES_MS - SURVIVES_MS / 6);
    assert_hf(HF_OK, hf_lock_acquire(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_hf(HF_OK, hf_lock_release(lock));
    assert_int_equal(scene_stats(client).losses, 0);
}

int main(void) {
    zk_need();
    return test_cases_run(scene_start, scene_stop);
}
