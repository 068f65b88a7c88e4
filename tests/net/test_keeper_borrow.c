/*
 * Callers that borrow the keeper's loop: which thread runs a task that was posted to the keeper,
 * and when; borrowers that do not return from a signal handler, or do not take the loop when it is
 * passed to them.
 *
 * A borrower that gets no processor for a while is taken for stalled. So the tests check in each
 * round that the work is done, and only over many rounds which thread did it.
 */
#include "base/clock.h"
#include "net/driver/keeper.h"
#include "support/case.h"
#include "support/crowd.h"
#include "support/trap.h"
#include "support/wait.h"

#define EVENT_ANY 0x1u

/* ---- Work for the keeper ---- */

struct job {
    struct hfi_task task;
    atomic_int runs;
    atomic_bool running; /* never twice at a time */
    atomic_uintptr_t ran_on;
};

static bool is_blocked(int signal) {
    sigset_t blocked;
    return pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0 && sigismember(&blocked, signal) == 1;
}

/* A caller in the middle of the loop cannot be preempted, so signals are blocked there: a handler
 * might not return. */
static void run_job(struct hfi_task *task, unsigned events) {
    struct job *job = HFI_CONTAINER(task, struct job, task);
    (void)events;
    assert_true(is_blocked(SIGUSR1));
    assert_false(atomic_exchange(&job->running, true));
    atomic_store(&job->ran_on, (uintptr_t)pthread_self());
    atomic_store(&job->running, false);
    atomic_fetch_add(&job->runs, 1);
}

static void keep_memory(struct hfi_task *task) {
    (void)task;
}

struct count {
    atomic_int *value;
    int at_least;
};

static bool has_reached(void *arg) {
    const struct count *count = arg;
    return atomic_load(count->value) >= count->at_least;
}

static void wait_for(atomic_int *value, int at_least) {
    struct count count = {value, at_least};
    assert_true(wait_until(has_reached, &count, HANG_MS));
}

/* ---- A keeper, and borrowers ---- */

struct house {
    struct hfi_mem mem;
    struct hfi_keeper *keeper;
    struct job job;
};

static void house_begin(struct house *house) {
    hf_error error;
    memset(house, 0, sizeof *house);
    assert_int_equal(hfi_keeper_new(&house->mem, &house->keeper, &error), HF_OK);
    hfi_task_init(&house->job.task, hfi_keeper_exec(house->keeper), run_job, keep_memory);
    assert_int_equal(hfi_keeper_start(house->keeper, &error), HF_OK);
}

static void house_end(struct house *house) {
    hfi_keeper_stop(house->keeper, NULL, NULL);
    hfi_task_retire(&house->job.task);
    hfi_task_unref(&house->job.task);
    hfi_keeper_free(house->keeper);
}

static uintptr_t do_job(struct house *house) {
    int before = atomic_load(&house->job.runs);
    hfi_task_post(&house->job.task, EVENT_ANY);
    wait_for(&house->job.runs, before + 1);
    return atomic_load(&house->job.ran_on);
}

/* A call that waits until it is asked to end, or its alarm fires. */
struct visitor {
    struct house *house;
    struct hfi_exec exec;
    struct hfi_task task;
    struct hfi_alarm alarm;
    bool over;
    pthread_t thread;
    atomic_int ended;
};

static void end_visit(struct hfi_task *task, unsigned events) {
    (void)events;
    HFI_CONTAINER(task, struct visitor, task)->over = true;
}

static void alarm_fired(struct hfi_alarm *alarm) {
    HFI_CONTAINER(alarm, struct visitor, alarm)->over = true;
}

static void *visit(void *arg) {
    struct visitor *visitor = arg;
    struct hfi_borrower borrower = {.exec = &visitor->exec};
    hfi_keeper_borrow(visitor->house->keeper, &borrower);
    while (!visitor->over)
        if (!hfi_exec_run(&visitor->exec))
            hfi_keeper_run_borrowed(visitor->house->keeper, &borrower);
    hfi_keeper_return(visitor->house->keeper, &borrower);
    assert_false(is_blocked(SIGUSR1));
    atomic_store(&visitor->ended, 1);
    return NULL;
}

static void visitor_start(struct visitor *visitor, struct house *house) {
    memset(visitor, 0, sizeof *visitor);
    visitor->house = house;
    visitor->alarm.fire = alarm_fired;
    hfi_exec_init(&visitor->exec);
    hfi_task_init(&visitor->task, &visitor->exec, end_visit, keep_memory);
    assert_int_equal(pthread_create(&visitor->thread, NULL, visit, visitor), 0);
}

static void visitor_tell(struct visitor *visitor) {
    hfi_task_post(&visitor->task, EVENT_ANY);
}

static void visitor_join(struct visitor *visitor) {
    assert_int_equal(pthread_join(visitor->thread, NULL), 0);
    hfi_task_retire(&visitor->task);
    hfi_task_unref(&visitor->task);
    hfi_exec_destroy(&visitor->exec);
}

static bool is_polling(void *arg) {
    unsigned polls;
    bool wake_sent;
    return hfi_exec_is_polling(arg, &polls, &wake_sent) && !wake_sent;
}

/* A loop owner that is a borrower polls for both, its own executor and the keeper's. */
static void wait_running(struct visitor *visitor) {
    assert_true(wait_until(is_polling, &visitor->exec, HANG_MS));
}

static bool is_asleep(void *arg) {
    return atomic_load(&((struct visitor *)arg)->exec.asleep) != 0;
}

/* And with no mutex held. */
static void wait_queued(struct visitor *visitor) {
    assert_true(wait_until(is_asleep, visitor, HANG_MS));
    pthread_mutex_lock(&visitor->exec.mtx);
    pthread_mutex_unlock(&visitor->exec.mtx);
}

/* ---- Tests ---- */

CASE_IN(a_borrower_does_the_keepers_work, struct house, house, house_begin, house_end) {
    struct visitor visitor;
    int by_borrower = 0;
    for (int round = 0; round < 20; round++) {
        visitor_start(&visitor, house);
        wait_running(&visitor);
        by_borrower += do_job(house) == (uintptr_t)visitor.thread;
        visitor_tell(&visitor);
        visitor_join(&visitor);
        assert_true(do_job(house) != (uintptr_t)visitor.thread); /* the keeper is back, or woken */
    }
    assert_true(by_borrower > 0);
}

/* The loop is the keeper's again, and is taken from it while it polls. */
CASE_IN(the_keeper_returns_by_itself, struct house, house, house_begin, house_end) {
    struct visitor visitor;
    for (int round = 0; round < 3; round++) {
        visitor_start(&visitor, house);
        wait_running(&visitor);
        visitor_tell(&visitor);
        visitor_join(&visitor);
        assert_true(wait_until(is_polling, hfi_keeper_exec(house->keeper), HANG_MS));
    }
}

CASE_IN(the_next_in_the_queue_is_named, struct house, house, house_begin, house_end) {
    enum { BORROWERS = 3 };
    struct visitor visitor[BORROWERS];
    visitor_start(&visitor[0], house);
    wait_running(&visitor[0]);
    for (int i = 1; i < BORROWERS; i++) {
        visitor_start(&visitor[i], house);
        wait_queued(&visitor[i]);
    }
    for (int i = 0; i < BORROWERS; i++) {
        wait_running(&visitor[i]);
        do_job(house);
        visitor_tell(&visitor[i]);
        visitor_join(&visitor[i]);
    }
}

/* One in the queue whose call is over goes, and is passed over. */
CASE_IN(a_queued_one_leaves, struct house, house, house_begin, house_end) {
    struct visitor first, second, third;
    visitor_start(&first, house);
    wait_running(&first);
    visitor_start(&second, house);
    wait_queued(&second);
    visitor_start(&third, house);
    wait_queued(&third);
    visitor_tell(&second);
    visitor_join(&second);
    visitor_tell(&first);
    visitor_join(&first);
    wait_running(&third);
    visitor_tell(&third);
    visitor_join(&third);
}

/* Its own alarm, which nobody posts, and one of the keeper's. */
static atomic_int keepers_alarms;

static void keepers_alarm_fired(struct hfi_alarm *alarm) {
    (void)alarm;
    atomic_fetch_add(&keepers_alarms, 1);
}

CASE_IN(alarms_are_kept, struct house, house, house_begin, house_end) {
    struct visitor visitor;
    struct hfi_alarm alarm = {.fire = keepers_alarm_fired};
    visitor_start(&visitor, house);
    wait_running(&visitor);
    atomic_store(&keepers_alarms, 0);
    hfi_alarm_set(hfi_keeper_exec(house->keeper), &alarm, hfi_now_ms() + 20);
    wait_for(&keepers_alarms, 1);
    hfi_alarm_set(&visitor.exec, &visitor.alarm, hfi_now_ms() + 20);
    visitor_join(&visitor);
    hfi_alarm_set(hfi_keeper_exec(house->keeper), &alarm, hfi_now_ms() + 20);
    wait_for(&keepers_alarms, 2);
}

/* It does not come back from its poll: the keeper goes on, and so do others, before and after it is there
 * again. */
CASE_IN(a_borrower_is_stuck, struct house, house, house_begin, house_end) {
    struct visitor stuck, other;
    for (int round = 0; round < 2; round++) {
        visitor_start(&stuck, house);
        wait_running(&stuck);
        trap_catch(stuck.thread);
        assert_true(do_job(house) != (uintptr_t)stuck.thread);
        visitor_start(&other, house);
        wait_running(&other);
        assert_true(do_job(house) != (uintptr_t)stuck.thread);
        trap_release();
        visitor_tell(&other);
        visitor_join(&other);
        wait_running(&stuck);
        do_job(house);
        visitor_tell(&stuck);
        visitor_join(&stuck);
    }
}

/* (ThreadSanitizer lets a signal wait until it suits it, and here that is with a mutex held.) */
CASE(one_that_was_named_does_not_come) {
    OWN(house_end) struct house house;
#if defined(__SANITIZE_THREAD__)
    skip();
#endif
    struct visitor first, stuck;
    house_begin(&house);
    visitor_start(&first, &house);
    wait_running(&first);
    visitor_start(&stuck, &house);
    wait_queued(&stuck);
    trap_catch(stuck.thread);
    visitor_tell(&first);
    visitor_join(&first);
    assert_true(do_job(&house) != (uintptr_t)stuck.thread);
    trap_release();
    wait_running(&stuck);
    visitor_tell(&stuck);
    visitor_join(&stuck);
}

/* ---- Many at a time ---- */

#define CALLERS 4
#define CALLS 300

/* A call whose work is done on the keeper, which then wakes the caller. */
struct round_trip {
    struct hfi_task work, answer;
    atomic_int tasks;
    bool over;
};

static void do_work(struct hfi_task *task, unsigned events) {
    (void)events;
    hfi_task_post(&HFI_CONTAINER(task, struct round_trip, work)->answer, EVENT_ANY);
}

static void take_answer(struct hfi_task *task, unsigned events) {
    (void)events;
    HFI_CONTAINER(task, struct round_trip, answer)->over = true;
}

static void end_task(struct round_trip *round_trip) {
    if (atomic_fetch_sub(&round_trip->tasks, 1) == 1)
        free(round_trip);
}

static void end_work(struct hfi_task *task) {
    end_task(HFI_CONTAINER(task, struct round_trip, work));
}

static void end_answer(struct hfi_task *task) {
    end_task(HFI_CONTAINER(task, struct round_trip, answer));
}

static void call_once(struct house *house) {
    struct hfi_exec exec;
    struct hfi_borrower borrower = {.exec = &exec};
    struct round_trip *round_trip = calloc(1, sizeof *round_trip);
    hfi_exec_init(&exec);
    atomic_init(&round_trip->tasks, 2);
    hfi_task_init(&round_trip->work, hfi_keeper_exec(house->keeper), do_work, end_work);
    hfi_task_init(&round_trip->answer, &exec, take_answer, end_answer);
    hfi_keeper_borrow(house->keeper, &borrower);
    hfi_task_post(&round_trip->work, EVENT_ANY);
    while (!round_trip->over)
        if (!hfi_exec_run(&exec))
            hfi_keeper_run_borrowed(house->keeper, &borrower);
    hfi_keeper_return(house->keeper, &borrower);
    hfi_task_unref(&round_trip->work);
    hfi_task_retire(&round_trip->answer);
    hfi_task_unref(&round_trip->answer);
    hfi_exec_destroy(&exec);
}

static void *call_often(void *arg) {
    struct house *house = arg;
    for (int i = 0; i < CALLS; i++) {
        call_once(house);
        hfi_task_post(&house->job.task, EVENT_ANY);
        if (i % 50 == 0)
            linger(5); /* the keeper takes its loop back now and then */
    }
    return NULL;
}

CASE_IN(many_borrower_come_and_go, struct house, house, house_begin, house_end) {
    struct crowd crowd = {0};
    for (int i = 0; i < CALLERS; i++)
        crowd_add(&crowd, call_often, house);
    crowd_join(&crowd);
    do_job(house);
}

int main(void) {
    trap_set();
    return test_cases_run(NULL, NULL);
}
