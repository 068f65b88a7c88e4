/*
 * Whoever reads for others looks for answers before it sleeps, while more is answered that way. Whatever it
 * does, a cancel, a deadline and a loss end its wait at once, and one that does not come back stops nobody.
 */
#include "net/voice.h"
#include "support/trap.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

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
static void fix(struct line *line, bool looks) {
    atomic_store(&line->target.trial.looks, looks);
    atomic_store(&line->target.trial.period, INT64_MAX);
    atomic_store(&yields, 0);
    atomic_store(&holds_next, false);
    atomic_store(&is_held, false);
    atomic_store(&is_free, false);
}

static void begin_looking(struct line *line) {
    line_begin(line);
    fix(line, true);
}

/* ---- While it looks ---- */

/* One that is held in the middle of its look, with no answer under way. On a machine that is busy its time to look may be
 * over before it has yielded once, and then it sleeps: so another one comes, when what the first has left is answered, since
 * until then it is the keeper who reads. */
static void start_held(struct line *line, struct voice *voice) {
    for (;;) {
        proxy_blackhole(line->proxy, false, true);
        atomic_store(&holds_next, true);
        start_voice(voice, line, 40, HANG_MS);
        if (wait_until(was_held, NULL, 1000))
            return;
        atomic_store(&is_free, true);
        cancel_voice(voice);
        assert_int_equal(join_voice(voice), CANCELLED);
        proxy_heal(line->proxy);
        assert_line_works(line);
        atomic_store(&is_held, false);
        atomic_store(&is_free, false);
    }
}

static void answers_find_their_callers(void **state) {
    (void)state;
    struct line line;
    struct voice voices[8];
    begin_looking(&line);
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 8; i++)
            start_voice(&voices[i], &line, 40 + i, HANG_MS);
        for (size_t i = 0; i < 8; i++)
            assert_int_equal(join_voice(&voices[i]), ANSWERED);
    }
    assert_line_works(&line);
    line_end(&line);
}

/* It is in the middle of its look when the cancel comes. */
static void a_cancel_ends_it_at_once(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    begin_looking(&line);
    start_held(&line, &voice);
    cancel_voice(&voice);
    unsigned before = atomic_load(&yields);
    atomic_store(&is_free, true);
    assert_int_equal(join_voice(&voice), CANCELLED);
    assert_int_equal(atomic_load(&yields), before); /* the next look has seen it */
    proxy_heal(line.proxy);
    assert_line_works(&line);
    line_end(&line);
}

/* Nothing comes: it looks for a moment, and sleeps. */
static void a_cancel_and_a_deadline_end_its_sleep(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    begin_looking(&line);
    proxy_blackhole(line.proxy, false, true);
    start_voice(&voice, &line, 40, HANG_MS);
    wait_seated(&line, &voice, 0);
    cancel_voice(&voice);
    assert_int_equal(join_voice(&voice), CANCELLED);
    start_voice(&voice, &line, 40, 30);
    assert_int_equal(join_voice(&voice), LATE);
    assert_true(voice.took_ms >= 30);
    proxy_heal(line.proxy);
    assert_line_works(&line);
    line_end(&line);
}

static void a_loss_is_noticed(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    begin_looking(&line);
    start_held(&line, &voice);
    assert_int_equal(proxy_cut_all(line.proxy), 1);
    atomic_store(&is_free, true);
    assert_int_equal(join_voice(&voice), LOST);
    proxy_heal(line.proxy);
    connect_line(&line);
    assert_line_works(&line);
    line_end(&line);
}

/* It has taken nothing, so the next one reads on, and nothing is lost. */
static void one_that_is_stuck_is_relieved(void **state) {
    (void)state;
    struct line line;
    struct voice driver, follower;
    begin_looking(&line);
    start_held(&line, &driver);
    trap_catch(driver.thread);
    atomic_store(&is_free, true);
    proxy_heal(line.proxy);
    start_voice(&follower, &line, 40, HANG_MS);
    assert_int_equal(join_voice(&follower), ANSWERED);
    assert_line_works(&line);
    assert_false(atomic_load(&driver.done));
    trap_release();
    assert_int_equal(join_voice(&driver), ANSWERED);
    assert_line_works(&line);
    line_end(&line);
}

static void it_can_be_switched_off(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    begin_looking(&line);
    line.target.sleeps_at_once = true; /* while nobody speaks */
    start_voice(&voice, &line, 40, HANG_MS);
    assert_int_equal(join_voice(&voice), ANSWERED);
    assert_int_equal(atomic_load(&yields), 0);
    line_end(&line);
}

/* ---- Whether it looks ---- */

struct odds {
    struct line *line;
    int64_t rates[2];
    bool looks;
    int64_t phase; /* of the cycle; -1: any in which it is as it was better */
};

/* A period with enough answers has just gone by; the next voice ends it. Again until it came in time: on this thread, since
 * a new one would take a part of the period to begin. */
static bool decides(void *arg) {
    struct odds *odds = arg;
    struct hfi_trial *trial = &odds->line->target.trial;
    struct voice voice;
    int64_t period = hfi_now_us() / PERIOD_US;
    if (odds->phase >= 0 ? period % CYCLE != odds->phase : period % CYCLE < 2)
        return false;
    voice_begin(&voice, odds->line);
    atomic_store(&trial->rates[false], odds->rates[false]);
    atomic_store(&trial->rates[true], odds->rates[true]);
    atomic_store(&trial->answers, 1000);
    atomic_store(&trial->looks, !odds->looks);
    atomic_store(&trial->since_us, hfi_now_us() - PERIOD_US);
    atomic_store(&trial->period, period - 1);
    assert_int_equal(speak(&voice, 40, HANG_MS), ANSWERED);
    voice_end(&voice);
    return atomic_load(&trial->period) == period && atomic_load(&trial->looks) == odds->looks;
}

static bool has_one_processor(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1;
}

/* Rates are such that what this period adds changes nothing. */
static void it_does_what_was_better(void **state) {
    (void)state;
    struct line line;
    line_begin(&line);
    struct odds all[] = {
        {&line, {1, 1000000000}, true, -1}, {&line, {1000000000, 1}, false, -1},
        {&line, {1000000000, 1}, true, 0},  {&line, {1, 1000000000}, false, 1},
        {&line, {1000000000, 0}, true, -1}, /* never tried */
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!all[i].looks || !has_one_processor())
            assert_true(wait_until(decides, &all[i], HANG_MS));
    assert_line_works(&line);
    line_end(&line);
}

/* Few answers come in that time: then nobody looks for them. */
static void one_that_has_little_to_read_sleeps(void **state) {
    (void)state;
    struct line line;
    struct voice voice;
    line_begin(&line);
    for (int i = 0; i < 15; i++) {
        start_voice(&voice, &line, 40, HANG_MS);
        assert_int_equal(join_voice(&voice), ANSWERED);
    }
    assert_int_equal(atomic_load(&yields), 0);
    line_end(&line);
}

static int clear(void **state) {
    (void)state;
    atomic_store(&yields, 0);
    return 0;
}

int main(void) {
    trap_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_find_their_callers),
        cmocka_unit_test(a_cancel_ends_it_at_once),
        cmocka_unit_test(a_cancel_and_a_deadline_end_its_sleep),
        cmocka_unit_test(a_loss_is_noticed),
        cmocka_unit_test(one_that_is_stuck_is_relieved),
        cmocka_unit_test(it_can_be_switched_off),
        cmocka_unit_test(it_does_what_was_better),
        cmocka_unit_test_setup(one_that_has_little_to_read_sleeps, clear),
    };
    return cmocka_run_group_tests(tests, scene_start_server, scene_stop_server);
}
