/*
 * Tests of the test support itself: waiting, children, barriers and temporary directories, as
 * wait.h promises them, with real processes; and crowds.
 */
#include "support/case.h"
#include "support/crowd.h"
#include "support/wait.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>

enum { LIMIT_MS = 30000 };

static bool at_third_call(void *arg) {
    return ++*(int *)arg == 3;
}

static bool never(void *arg) {
    (void)arg;
    return false;
}

CASE(wait_until_ends_with_the_condition_or_the_limit) {
    int calls = 0;
    assert_true(wait_until(at_third_call, &calls, LIMIT_MS));
    assert_int_equal(calls, 3);
    int64_t start_ms = now_ms();
    assert_false(wait_until(never, NULL, 50));
    assert_true(now_ms() - start_ms >= 50);
    start_ms = now_ms();
    sleep_ms(30); /* it is what is tested */
    assert_true(now_ms() - start_ms >= 30);
}

static int return_it(void *arg) {
    return *(int *)arg;
}

CASE(children_are_distinguished_by_their_end) {
    int seven = 7;
    assert_int_equal(wait_exit(run_child(return_it, &seven), LIMIT_MS), 7);
    assert_true(expect_exit(run_child(return_it, &seven), 7, LIMIT_MS));
    assert_false(expect_exit(run_child(return_it, &seven), 0, LIMIT_MS));

    pid_t pid = run_child(child_waits_for_ever, NULL);
    stop_process(pid);
    assert_int_equal(process_state(pid), 'T');
    kill(pid, SIGCONT);
    kill(pid, SIGTERM);
    assert_int_equal(wait_exit(pid, LIMIT_MS), 128 + SIGTERM);

    pid = run_child(child_waits_for_ever, NULL);
    assert_int_equal(wait_exit(pid, 20), -1);
    assert_false(process_alive(pid)); /* killed at the limit */
}

static int have_a_child(void *arg) {
    atomic_int *grandchild = arg;
    atomic_store(grandchild, run_child(child_waits_for_ever, NULL));
    return child_waits_for_ever(NULL);
}

static bool is_set(void *arg) {
    return atomic_load((atomic_int *)arg) != 0;
}

static bool is_gone(void *arg) {
    return !process_alive(atomic_load((atomic_int *)arg));
}

CASE(child_dies_with_its_parent) {
    atomic_int *grandchild = shared_new(sizeof *grandchild);
    pid_t child = run_child(have_a_child, grandchild);
    assert_true(wait_until(is_set, grandchild, LIMIT_MS));
    assert_true(process_alive(atomic_load(grandchild)));
    kill_child(child);
    assert_true(wait_until(is_gone, grandchild, LIMIT_MS));
    shared_free(grandchild, sizeof *grandchild);
}

struct meeting {
    struct barrier *barrier;
    atomic_int *arrived;
};

/* In each round everybody must have arrived before anybody leaves. */
static int meet(void *arg) {
    struct meeting *meeting = arg;
    for (int round = 1; round <= 100; round++) {
        atomic_fetch_add(meeting->arrived, 1);
        if (!barrier_wait(meeting->barrier, LIMIT_MS))
            return 1;
        if (atomic_load(meeting->arrived) < 4 * round)
            return 2;
        if (!barrier_wait(meeting->barrier, LIMIT_MS))
            return 3;
    }
    return 0;
}

static void *meet_in_thread(void *arg) {
    return (void *)(intptr_t)meet(arg);
}

CASE(barrier_joins_processes_and_threads) {
    struct meeting meeting = {barrier_new(4), shared_new(sizeof(atomic_int))};
    pid_t one = run_child(meet, &meeting), two = run_child(meet, &meeting);
    pthread_t thread;
    pthread_create(&thread, NULL, meet_in_thread, &meeting);
    assert_int_equal(meet(&meeting), 0);
    void *result;
    pthread_join(thread, &result);
    assert_null(result);
    assert_true(expect_exit(one, 0, LIMIT_MS));
    assert_true(expect_exit(two, 0, LIMIT_MS));
    barrier_free(meeting.barrier);
    shared_free(meeting.arrived, sizeof(atomic_int));

    own_barrier *lonely = barrier_new(2);
    int64_t start_ms = now_ms();
    assert_false(barrier_wait(lonely, 30));
    assert_true(now_ms() - start_ms >= 30);
}

struct visitors {
    struct crowd crowd;
    struct barrier *barrier;
};

static void *meet_inside(void *arg) {
    struct visitors *visitors = arg;
    crowd_enter(&visitors->crowd, 0);
    crowd_expect(&visitors->crowd, barrier_wait(visitors->barrier, LIMIT_MS));
    crowd_leave(&visitors->crowd, 0);
    return visitors;
}

static void *visit_until_over(void *arg) {
    struct crowd *crowd = arg;
    while (!atomic_load(&crowd->over))
        crowd_visit(crowd);
    return NULL;
}

CASE(a_crowd_counts_two_in_one_place) {
    struct visitors visitors = {.barrier = barrier_new(2)};
    struct crowd *crowd = &visitors.crowd;
    for (int i = 0; i < 2; i++)
        crowd_add(crowd, meet_inside, &visitors);
    crowd_join_with(crowd, &visitors);
    assert_int_equal(atomic_load(&crowd->clashes), 1);
    assert_int_equal(atomic_load(&crowd->entered), 2);
    assert_int_equal(atomic_load(&crowd->failures), 0);
    crowd_enter(crowd, 1); /* of another place, and of one that is empty */
    crowd_visit(crowd);
    assert_int_equal(atomic_load(&crowd->clashes), 1);
    assert_false(crowd_expect(crowd, false));
    assert_int_equal(atomic_load(&crowd->failures), 1);
    barrier_free(visitors.barrier);
}

CASE(a_crowd_ends_its_loops) {
    struct crowd crowd = {0};
    crowd_add(&crowd, visit_until_over, &crowd);
    assert_true(WAIT_FOR(atomic_load(&crowd.entered) > 0, LIMIT_MS));
    crowd_end(&crowd);
    crowd_assert_exclusive(&crowd);
}

CASE(temp_dirs_are_private_and_removed) {
    char *a = temp_dir(), *b = temp_dir();
    assert_string_not_equal(a, b);
    struct stat info;
    assert_int_equal(stat(a, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    own_text *path = text_of("%s/sub", a);
    assert_int_equal(mkdir(path, 0700), 0);
    temp_dir_remove(a);
    assert_int_not_equal(access(a, F_OK), 0);
    assert_int_equal(access(b, F_OK), 0);
    free(a);
    free(b); /* the directory goes when the program ends */
}

RUN_CASES(NULL, NULL)
