/*
 * Histories of every kind, from many clients at once, checked for linearizability.
 *
 * Each row is a run (play.c): C processes and a JVM with the released Redisson, on one real server,
 * with one sort of fault. Their answers are recorded with times, and the checker (checker/, with
 * Porcupine) searches an order of events that explains them. Nothing is asserted about how long
 * anything takes. Other rows show that the checker notices: single answers are changed, or keys are
 * edited behind the clients' backs.
 *
 * Without Go, or if its module cannot be fetched, the suite is skipped (exit status 77); without
 * Java or Redisson, only Java's part.
 *
 * Environment: HF_SEED runs that seed; HF_SOAK makes runs long and many. The logs of a failed run
 * are kept in the build directory, in history/kept; with HF_KEEP those of all runs.
 */
#include "judge.h"
#include "suite.h"

static void models_judge_handwritten_histories(void **state) {
    (void)state;
    assert_int_equal(judge("checker.test", NULL, NULL, 0), 0);
}

/* Skipped by its name, where the other rows are played by C alone. */
static void redisson_plays_too(void **state) {
    (void)state;
    if (suite_jvm() == NULL)
        skip();
    assert_string_equal(remote_call(suite_jvm(), "ping"), "ok");
}

static void other_libraries_play_too(void **state) {
    (void)state;
    if (suite_peers() < PLAY_PEERS)
        skip();
}

static void calm_and_lies_are_found(void **state) {
    (void)state;
    suite_play(
        (struct plan){.kinds = &kinds_of_one_server, .title = "calm", .java = true, .peers = true},
        must_be_right_and_lies_found);
}

static void locks_are_broken(void **state) {
    (void)state;
    suite_play(
        (struct plan){.kinds = &kinds_of_one_server, .title = "breaks", .faults = FAULT_BREAK},
        must_be_right);
}

static void processes_are_killed_and_paused(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_one_server,
                             .title = "processes",
                             .faults = FAULT_KILL | FAULT_PAUSE,
                             .java = true,
                             .peers = true},
               must_be_right);
}

static void jvms_are_killed(void **state) {
    (void)state;
    if (suite_jvm() == NULL)
        skip();
    suite_play(
        (struct plan){
            .kinds = &kinds_of_one_server, .title = "JVMs", .faults = FAULT_KILL_JVM, .java = true},
        must_be_right);
}

static void replies_are_lost(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_one_server,
                             .title = "replies",
                             .faults = FAULT_LOSE | FAULT_KILL,
                             .java = true,
                             .peers = true},
               must_be_right);
}

static void server_restarts_with_its_data(void **state) {
    (void)state;
    suite_play(
        (struct plan){.kinds = &kinds_of_one_server, .title = "restarts", .faults = FAULT_RESTART},
        must_be_right);
}

static void server_restarts_empty(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_one_server, .title = "wipes", .faults = FAULT_WIPE},
               must_be_right);
}

static void sabotage_is_found(void **state) {
    (void)state;
    suite_find(
        (struct plan){.kinds = &kinds_of_one_server, .title = "sabotage", .faults = FAULT_SABOTAGE},
        FIND_EVERY_KIND);
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(models_judge_handwritten_histories),
        cmocka_unit_test(redisson_plays_too),
        cmocka_unit_test(other_libraries_play_too),
        cmocka_unit_test(calm_and_lies_are_found),
        cmocka_unit_test(locks_are_broken),
        cmocka_unit_test(processes_are_killed_and_paused),
        cmocka_unit_test(jvms_are_killed),
        cmocka_unit_test(replies_are_lost),
        cmocka_unit_test(server_restarts_with_its_data),
        cmocka_unit_test(server_restarts_empty),
        cmocka_unit_test(sabotage_is_found),
    };
    return suite_main("history", rows, sizeof rows / sizeof *rows);
}
