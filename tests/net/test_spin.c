/*
 * A driver spins for replies before it sleeps, while more is answered that way. Whatever it
 * does, a cancel, a deadline and a loss end its wait at once, and one that does not come back stops nobody.
 */
#include "net/caller.h"
#include "support/trap.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define PERIOD_US 10000 /* as in await.c */
#define CYCLE 16

/* ---- What it asks of the kernel ---- */

static atomic_uint yields;
static atomic_bool holds_next;       /* who yields */
static atomic_bool is_held, is_free; /* until the test says so */

static bool may_go(void *arg) {
    (void)arg;
    return atomic_load(&is_free);
}

/* In the place of the C library's. */
int sched_yield(void) {
    atomic_fetch_add(&yields, 1);
    if (atomic_exchange(&holds_next, false)) {
        atomic_store(&is_held, true);
        wait_until(may_go, NULL, HANG_MS);
    }
    return (int)syscall(SYS_sched_yield);
}

static bool was_held(void *arg) {
    (void)arg;
    return atomic_load(&is_held);
}

/* From now on it looks, or does not, and is not asked again. */
static void fix(struct raw *raw, bool spins) {
    atomic_store(&raw->target.spin_tuner.spins, spins);
    atomic_store(&raw->target.spin_tuner.period, INT64_MAX);
    atomic_store(&yields, 0);
    atomic_store(&holds_next, false);
    atomic_store(&is_held, false);
    atomic_store(&is_free, false);
}

static void begin_spinning(struct raw *raw) {
    raw_begin(raw);
    fix(raw, true);
}

/* ---- While it looks ---- */

/* One that is held in the middle of its look, with no answer under way. On a machine that is busy
 * its time to look may be over before it has yielded once, and then it sleeps: so another one
 * comes, when what the first has left is answered, since until then it is the keeper who reads. */
static void start_held(struct raw *raw, struct caller *caller) {
    for (;;) {
        proxy_blackhole(raw->proxy, false, true);
        atomic_store(&holds_next, true);
        start_caller(caller, raw, 40, HANG_MS);
        if (wait_until(was_held, NULL, 1000))
            return;
        atomic_store(&is_free, true);
        cancel_caller(caller);
        assert_int_equal(join_caller(caller), CANCELLED);
        proxy_heal(raw->proxy);
        assert_raw_works(raw);
        atomic_store(&is_held, false);
        atomic_store(&is_free, false);
    }
}

CASE_IN(answers_find_their_callers, struct raw, raw, begin_spinning, raw_end) {
    struct caller callers[8];
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 8; i++)
            start_caller(&callers[i], raw, 40 + i, HANG_MS);
        for (size_t i = 0; i < 8; i++)
            assert_int_equal(join_caller(&callers[i]), ANSWERED);
    }
    assert_raw_works(raw);
}

/* It is in the middle of its look when the cancel comes. */
CASE_IN(a_cancel_ends_it_at_once, struct raw, raw, begin_spinning, raw_end) {
    struct caller caller;
    start_held(raw, &caller);
    cancel_caller(&caller);
    unsigned before = atomic_load(&yields);
    atomic_store(&is_free, true);
    assert_int_equal(join_caller(&caller), CANCELLED);
    assert_int_equal(atomic_load(&yields), before); /* the next look has seen it */
    proxy_heal(raw->proxy);
    assert_raw_works(raw);
}

/* Nothing comes: it looks for a moment, and sleeps. */
CASE_IN(a_cancel_and_a_deadline_end_its_sleep, struct raw, raw, begin_spinning, raw_end) {
    struct caller caller;
    proxy_blackhole(raw->proxy, false, true);
    start_caller(&caller, raw, 40, HANG_MS);
    wait_driver(raw, &caller, 0);
    cancel_caller(&caller);
    assert_int_equal(join_caller(&caller), CANCELLED);
    start_caller(&caller, raw, 40, 30);
    assert_int_equal(join_caller(&caller), LATE);
    assert_true(caller.took_ms >= 30);
    proxy_heal(raw->proxy);
    assert_raw_works(raw);
}

CASE_IN(a_loss_is_noticed, struct raw, raw, begin_spinning, raw_end) {
    struct caller caller;
    start_held(raw, &caller);
    assert_int_equal(proxy_cut_all(raw->proxy), 1);
    atomic_store(&is_free, true);
    assert_int_equal(join_caller(&caller), LOST);
    proxy_heal(raw->proxy);
    raw_connect(raw);
    assert_raw_works(raw);
}

/* It has taken nothing, so the next one reads on, and nothing is lost. */
CASE_IN(one_that_is_stuck_is_preempted, struct raw, raw, begin_spinning, raw_end) {
    struct caller driver, follower;
    start_held(raw, &driver);
    trap_catch(driver.thread);
    atomic_store(&is_free, true);
    proxy_heal(raw->proxy);
    start_caller(&follower, raw, 40, HANG_MS);
    assert_int_equal(join_caller(&follower), ANSWERED);
    assert_raw_works(raw);
    assert_false(atomic_load(&driver.done));
    trap_release();
    assert_int_equal(join_caller(&driver), ANSWERED);
    assert_raw_works(raw);
}

CASE_IN(it_can_be_switched_off, struct raw, raw, begin_spinning, raw_end) {
    struct caller caller;
    raw->target.sleeps_at_once = true; /* while nobody calls */
    start_caller(&caller, raw, 40, HANG_MS);
    assert_int_equal(join_caller(&caller), ANSWERED);
    assert_int_equal(atomic_load(&yields), 0);
}

/* ---- Whether it looks ---- */

struct odds {
    struct raw *raw;
    int64_t rates[2];
    bool spins;
    int64_t phase; /* of the cycle; -1: any in which it is as it was better */
};

/* A period with enough answers has just gone by; the next caller ends it. Again until it came in
 * time: on this thread, since a new one would take a part of the period to begin. */
static bool decides(void *arg) {
    struct odds *odds = arg;
    struct hfi_spin_tuner *spin_tuner = &odds->raw->target.spin_tuner;
    struct caller caller;
    int64_t period = hfi_now_us() / PERIOD_US;
    if (odds->phase >= 0 ? period % CYCLE != odds->phase : period % CYCLE < 2)
        return false;
    caller_begin(&caller, odds->raw);
    atomic_store(&spin_tuner->rates[false], odds->rates[false]);
    atomic_store(&spin_tuner->rates[true], odds->rates[true]);
    atomic_store(&spin_tuner->answers, 1000);
    atomic_store(&spin_tuner->spins, !odds->spins);
    atomic_store(&spin_tuner->since_us, hfi_now_us() - PERIOD_US);
    atomic_store(&spin_tuner->period, period - 1);
    assert_int_equal(send_and_wait(&caller, 40, HANG_MS), ANSWERED);
    caller_end(&caller);
    return atomic_load(&spin_tuner->period) == period &&
           atomic_load(&spin_tuner->spins) == odds->spins;
}

static bool has_one_processor(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

/* Rates are such that what this period adds changes nothing. */
RAW_CASE(it_uses_the_better_mode) {
    struct odds all[] = {
        {raw, {1, 1000000000}, true, -1}, {raw, {1000000000, 1}, false, -1},
        {raw, {1000000000, 1}, true, 0},  {raw, {1, 1000000000}, false, 1},
        {raw, {1000000000, 0}, true, -1}, /* never tried */
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!all[i].spins || !has_one_processor())
            assert_true(wait_until(decides, &all[i], HANG_MS));
    assert_raw_works(raw);
}

static int clear(void **state) {
    (void)state;
    atomic_store(&yields, 0);
    return 0;
}

/* Few answers come in that time: then nobody looks for them. */
CASE_AROUND(one_that_has_little_to_read_sleeps, clear, NULL) {
    OWN(raw_end) struct raw raw;
    struct caller caller;
    raw_begin(&raw);
    for (int i = 0; i < 15; i++) {
        start_caller(&caller, &raw, 40, HANG_MS);
        assert_int_equal(join_caller(&caller), ANSWERED);
    }
    assert_int_equal(atomic_load(&yields), 0);
}

int main(void) {
    trap_set();
    return test_cases_run(scene_start_server, scene_stop_server);
}
