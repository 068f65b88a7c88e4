/*
 * Tasks and executors: posting from many threads, waking, alarms, moving, retiring.
 *
 * Each executor here has a thread of its own that runs it as the library's do: run, then sleep, or
 * poll on an eventfd. What counts: no post is lost, a task never runs twice at a time and only on
 * its executor's thread, and nobody sleeps past his alarm. Run under TSan as well.
 */
#include "base/clock.h"
#include "support/case.h"
#include "support/crowd.h"
#include "support/sync.h"
#include "support/wait.h"
#include "task/task.h"

#include <poll.h>
#include <sys/eventfd.h>

/* ---- An executor with a thread ---- */

struct runner {
    struct hfi_exec exec;
    pthread_t thread;
    atomic_bool stop;
    int wake_fd; /* -1: sleeps instead of polling */
};

static void *run_executor(void *arg) {
    struct runner *runner = arg;
    while (!atomic_load(&runner->stop)) {
        if (hfi_exec_run(&runner->exec))
            continue;
        if (runner->wake_fd < 0) {
            hfi_exec_sleep(&runner->exec);
            continue;
        }
        int64_t at_ms;
        if (!hfi_exec_poll_begin(&runner->exec, runner->wake_fd, &at_ms))
            continue;
        struct pollfd fd = {.fd = runner->wake_fd, .events = POLLIN};
        int64_t left_ms = at_ms == HFI_NEVER ? -1 : at_ms - hfi_now_ms();
        poll(&fd, 1, at_ms != HFI_NEVER && left_ms < 0 ? 0 : (int)left_ms);
        hfi_exec_poll_end(&runner->exec);
    }
    hfi_exec_run(&runner->exec);
    return NULL;
}

static void start_runner(struct runner *runner, bool polls) {
    hfi_exec_init(&runner->exec);
    atomic_init(&runner->stop, false);
    runner->wake_fd = polls ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
    pthread_create(&runner->thread, NULL, run_executor, runner);
}

static void stop_runner(struct runner *runner) {
    atomic_store(&runner->stop, true);
    hfi_exec_wake(&runner->exec);
    pthread_join(runner->thread, NULL);
    hfi_exec_destroy(&runner->exec);
    if (runner->wake_fd >= 0)
        close(runner->wake_fd);
}

/* ---- A task that counts ---- */

struct counter {
    struct hfi_task task;
    struct runner *home; /* where it has to run; NULL: anywhere */
    atomic_int running, wrong;
    atomic_uint seen;
    atomic_int runs, destroyed;
    atomic_int posts, taken; /* of bit 1, by callers that have seen the one before taken */
};

static void count(struct hfi_task *task, unsigned events) {
    struct counter *counter = HFI_CONTAINER(task, struct counter, task);
    if (atomic_fetch_add(&counter->running, 1) != 0)
        atomic_fetch_add(&counter->wrong, 1);
    if (counter->home != NULL && !pthread_equal(counter->home->thread, pthread_self()))
        atomic_fetch_add(&counter->wrong, 1);
    if (events == 0)
        atomic_fetch_add(&counter->wrong, 1);
    atomic_fetch_or(&counter->seen, events);
    atomic_fetch_add(&counter->runs, 1);
    atomic_store(&counter->taken, atomic_load(&counter->posts));
    atomic_fetch_sub(&counter->running, 1);
}

static void count_destroyed(struct hfi_task *task) {
    atomic_fetch_add(&HFI_CONTAINER(task, struct counter, task)->destroyed, 1);
}

struct poster {
    struct counter *counter;
    unsigned bit;
    int posts;
};

static void *post_many(void *arg) {
    struct poster *poster = arg;
    for (int i = 0; i < poster->posts; i++)
        hfi_task_post(&poster->counter->task, poster->bit);
    return NULL;
}

/* Each of eight threads has a bit of its own. */
static void post_from_threads(struct counter *counter) {
    struct poster posters[8];
    struct crowd crowd = {0};
    for (unsigned i = 0; i < 8; i++) {
        posters[i] = (struct poster){.counter = counter, .bit = 1u << i, .posts = 2000};
        crowd_add(&crowd, post_many, &posters[i]);
    }
    crowd_join(&crowd);
}

static bool all_bits_seen(void *arg) {
    return atomic_load(&((struct counter *)arg)->seen) == 0xffu;
}

static void post_from_many_threads(bool polls) {
    struct runner runner;
    start_runner(&runner, polls);
    struct counter counter = {.home = &runner};
    hfi_task_init(&counter.task, &runner.exec, count, count_destroyed);
    post_from_threads(&counter);
    assert_true(wait_until(all_bits_seen, &counter, HANG_MS));
    assert_int_equal(atomic_load(&counter.wrong), 0);
    stop_runner(&runner);
    hfi_task_unref(&counter.task);
    assert_int_equal(atomic_load(&counter.destroyed), 1);
}

CASE(posts_of_many_threads_all_arrive) {
    post_from_many_threads(false);
    post_from_many_threads(true);
}

/* One post at a time, each when the one before was taken: a wake-up that is lost is a hang. */
CASE(no_wakeup_is_lost) {
    for (int polls = 0; polls < 2; polls++) {
        struct runner runner;
        start_runner(&runner, polls != 0);
        struct counter counter = {.home = &runner};
        hfi_task_init(&counter.task, &runner.exec, count, count_destroyed);
        for (int i = 1; i <= 20000; i++) {
            atomic_store(&counter.posts, i);
            hfi_task_post(&counter.task, 1);
            int64_t until_ms = now_ms() + HANG_MS;
            for (unsigned spins = 0; atomic_load(&counter.taken) != i; spins++) {
                if (spins % 256 == 255) {
                    sched_yield();
                    assert_true(now_ms() < until_ms);
                }
            }
        }
        stop_runner(&runner);
        hfi_task_unref(&counter.task);
    }
}

/* ---- Alarms ---- */

struct bell {
    struct hfi_alarm alarm;
    int64_t due_ms;
    _Atomic int64_t rang_ms;
};

static void ring(struct hfi_alarm *alarm) {
    atomic_store(&HFI_CONTAINER(alarm, struct bell, alarm)->rang_ms, hfi_now_ms());
}

static bool has_rung(void *arg) {
    return atomic_load(&((struct bell *)arg)->rang_ms) != 0;
}

static void set_bell(struct runner *runner, struct bell *bell, int64_t in_ms) {
    bell->alarm.fire = ring;
    atomic_store(&bell->rang_ms, 0);
    bell->due_ms = hfi_now_ms() + in_ms;
    hfi_alarm_set(&runner->exec, &bell->alarm, bell->due_ms);
}

/* From another thread, while the executor sleeps without an alarm or with a later one. */
CASE(an_earlier_alarm_wakes_the_sleeper) {
    for (int polls = 0; polls < 2; polls++) {
        struct runner runner;
        struct bell far = {.due_ms = 0}, near = {.due_ms = 0};
        start_runner(&runner, polls != 0);
        for (int i = 0; i < 50; i++) {
            set_bell(&runner, &far, 10 * HANG_MS);
            set_bell(&runner, &near, i % 4);
            assert_true(wait_until(has_rung, &near, HANG_MS));
            assert_true(atomic_load(&near.rang_ms) >= near.due_ms);
            assert_int_equal(atomic_load(&far.rang_ms), 0);
            assert_true(hfi_alarm_clear(&runner.exec, &far.alarm));
            assert_false(hfi_alarm_clear(&runner.exec, &far.alarm));
            assert_false(hfi_alarm_clear(&runner.exec, &near.alarm));
        }
        set_bell(&runner, &near, 10 * HANG_MS);
        hfi_alarm_set(&runner.exec, &near.alarm, HFI_NEVER); /* clears */
        assert_false(hfi_alarm_clear(&runner.exec, &near.alarm));
        assert_int_equal(atomic_load(&near.rang_ms), 0);
        stop_runner(&runner);
    }
}

CASE(alarms_ring_in_order_and_never_early) {
    OWN(stop_runner) struct runner runner;
    enum { BELLS = 60 };
    struct bell bells[BELLS] = {{.due_ms = 0}};
    start_runner(&runner, false);
    for (size_t i = 0; i < BELLS; i++)
        set_bell(&runner, &bells[i], (int64_t)((i * 37) % 50));
    for (size_t i = 0; i < BELLS; i++) {
        assert_true(wait_until(has_rung, &bells[i], HANG_MS));
        assert_true(atomic_load(&bells[i].rang_ms) >= bells[i].due_ms);
    }
}

/* ---- Wake-ups ---- */

CASE_IN(a_wake_up_is_work_until_it_is_forgotten, struct hfi_exec, exec, hfi_exec_init,
        hfi_exec_destroy) {
    assert_false(hfi_exec_has_work(exec));
    hfi_exec_wake(exec);
    assert_true(hfi_exec_has_work(exec));
    hfi_exec_sleep(exec); /* returns at once */
    int64_t at_ms;
    assert_false(hfi_exec_poll_begin(exec, -1, &at_ms));
    assert_false(hfi_exec_take_wake(exec));
    assert_false(hfi_exec_has_work(exec));
    struct counter counter = {.home = NULL};
    hfi_task_init(&counter.task, exec, count, count_destroyed);
    hfi_exec_wake(exec);
    hfi_task_post(&counter.task, 1);
    assert_true(hfi_exec_take_wake(exec)); /* a task is work all the same */
    assert_true(hfi_exec_run(exec));
    assert_false(hfi_exec_run(exec));
    assert_int_equal(atomic_load(&counter.runs), 1);
    hfi_task_unref(&counter.task);
}

CASE_IN(events_gather_until_the_task_runs, struct hfi_exec, exec, hfi_exec_init, hfi_exec_destroy) {
    struct counter counter = {.home = NULL};
    hfi_task_init(&counter.task, exec, count, count_destroyed);
    for (unsigned i = 0; i < 8; i++)
        hfi_task_post(&counter.task, 1u << i);
    assert_true(hfi_exec_run(exec));
    assert_int_equal(atomic_load(&counter.runs), 1);
    assert_int_equal(atomic_load(&counter.seen), 0xff);
    hfi_task_unref(&counter.task);
}

/* ---- Moving and retiring ---- */

CASE_IN(a_queued_task_moves_with_its_events, struct hfi_exec, from, hfi_exec_init,
        hfi_exec_destroy) {
    struct runner to;
    start_runner(&to, true);
    struct counter counter = {.home = &to};
    hfi_task_init(&counter.task, from, count, count_destroyed);
    hfi_task_post(&counter.task, 0xf0u);
    hfi_task_move(&counter.task, &to.exec);
    assert_false(hfi_exec_run(from)); /* nothing is left behind */
    hfi_task_post(&counter.task, 0x0fu);
    assert_true(wait_until(all_bits_seen, &counter, HANG_MS));
    assert_int_equal(atomic_load(&counter.wrong), 0);
    stop_runner(&to);
    hfi_task_unref(&counter.task);
    assert_int_equal(atomic_load(&counter.destroyed), 1);
}

struct hopper {
    struct counter counter;
    struct runner runners[2];
    unsigned at;
    atomic_int hops;
    int seen_hops;
};

static bool has_hopped(void *arg) {
    struct hopper *hopper = arg;
    return atomic_load(&hopper->hops) > hopper->seen_hops;
}

static void hop(struct hfi_task *task, unsigned events) {
    struct hopper *hopper = HFI_CONTAINER(task, struct hopper, counter.task);
    if (!pthread_equal(hopper->runners[hopper->at].thread, pthread_self()))
        atomic_fetch_add(&hopper->counter.wrong, 1);
    if (atomic_fetch_add(&hopper->counter.running, 1) != 0)
        atomic_fetch_add(&hopper->counter.wrong, 1);
    atomic_fetch_or(&hopper->counter.seen, events);
    hopper->at ^= 1;
    atomic_fetch_add(&hopper->hops, 1);
    atomic_fetch_sub(&hopper->counter.running, 1);
    hfi_task_move(task, &hopper->runners[hopper->at].exec); /* the last thing: it may run there */
}

/* It moves at every run, while others post to it. */
CASE(moving_while_others_post) {
    struct hopper hopper = {.at = 0};
    start_runner(&hopper.runners[0], false);
    start_runner(&hopper.runners[1], true);
    hfi_task_init(&hopper.counter.task, &hopper.runners[0].exec, hop, count_destroyed);
    post_from_threads(&hopper.counter);
    assert_true(wait_until(all_bits_seen, &hopper.counter, HANG_MS));
    assert_int_equal(atomic_load(&hopper.counter.wrong), 0);
    for (int i = 0; i < 200; i++) { /* and one at a time, so that each post makes it hop */
        hopper.seen_hops = atomic_load(&hopper.hops);
        hfi_task_post(&hopper.counter.task, 1);
        assert_true(wait_until(has_hopped, &hopper, HANG_MS));
    }
    assert_int_equal(atomic_load(&hopper.counter.wrong), 0);
    stop_runner(&hopper.runners[0]);
    stop_runner(&hopper.runners[1]);
    hfi_task_unref(&hopper.counter.task);
    assert_int_equal(atomic_load(&hopper.counter.destroyed), 1);
}

CASE(a_retired_task_never_runs_again) {
    struct hfi_exec exec;
    struct counter counter = {.home = NULL};
    hfi_exec_init(&exec);
    hfi_task_init(&counter.task, &exec, count, count_destroyed);
    hfi_task_post(&counter.task, 1);
    hfi_task_retire(&counter.task); /* while it is queued */
    assert_false(hfi_exec_run(&exec));
    hfi_exec_destroy(&exec); /* posts touch it no more */
    hfi_task_post(&counter.task, 1);
    assert_int_equal(atomic_load(&counter.runs), 0);
    hfi_task_unref(&counter.task);
    assert_int_equal(atomic_load(&counter.destroyed), 1);
}

/* A task that is freed while it is queued stays until it has run. */
CASE_IN(the_queue_keeps_a_task_alive, struct hfi_exec, exec, hfi_exec_init, hfi_exec_destroy) {
    struct counter counter = {.home = NULL};
    hfi_task_init(&counter.task, exec, count, count_destroyed);
    hfi_task_post(&counter.task, 1);
    hfi_task_unref(&counter.task);
    assert_int_equal(atomic_load(&counter.destroyed), 0);
    assert_true(hfi_exec_run(exec));
    assert_int_equal(atomic_load(&counter.runs), 1);
    assert_int_equal(atomic_load(&counter.destroyed), 1);
}

RUN_CASES(NULL, NULL)
