/*
 * Histories of every kind, from many clients at once, judged by a linearizability checker.
 *
 * Each row plays a run (play.c): processes of C and a JVM with the released Redisson, on one real
 * server, with trouble of one sort. What they were told is recorded with times, and the checker
 * (checker/, with Porcupine) looks for an order of events that explains it. Nothing is asserted
 * about how long anything takes. Other rows make sure that the checker notices: single answers are
 * changed, and things are written to the server behind everybody's back.
 *
 * Where Go is missing, or its module cannot be fetched, the suite is skipped (exit status 77); where
 * Java or Redisson is, only Java's part.
 *
 * Environment: HF_SEED plays the runs of that seed; HF_SOAK makes them long, and many. The logs of a run
 * that failed are kept in the build directory, in history/kept; with HF_KEEP those of all runs.
 */
#include "judge.h"
#include "suite.h"

static void models_judge_what_was_written_by_hand(void **state) {
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

static void calm_and_lies_are_found(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_one_server, .title = "calm", .java = true},
               must_be_right_and_lies_found);
}

static void locks_are_broken(void **state) {
    (void)state;
    suite_play(
        (struct plan){.kinds = &kinds_of_one_server, .title = "breaks", .troubles = TROUBLE_BREAK},
        must_be_right);
}

static void processes_are_killed_and_paused(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_one_server,
                             .title = "processes",
                             .troubles = TROUBLE_KILL | TROUBLE_PAUSE,
                             .java = true},
               must_be_right);
}

static void jvms_are_killed(void **state) {
    (void)state;
    if (suite_jvm() == NULL)
        skip();
    suite_play((struct plan){.kinds = &kinds_of_one_server,
                             .title = "JVMs",
                             .troubles = TROUBLE_KILL_JVM,
                             .java = true},
               must_be_right);
}

static void replies_are_lost(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_one_server,
                             .title = "replies",
                             .troubles = TROUBLE_LOSE | TROUBLE_KILL,
                             .java = true},
               must_be_right);
}

static void server_restarts_with_its_data(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_one_server,
                             .title = "restarts",
                             .troubles = TROUBLE_RESTART},
               must_be_right);
}

static void server_restarts_empty(void **state) {
    (void)state;
    suite_play(
        (struct plan){.kinds = &kinds_of_one_server, .title = "wipes", .troubles = TROUBLE_WIPE},
        must_be_right);
}

static void sabotage_is_found(void **state) {
    (void)state;
    suite_find((struct plan){.kinds = &kinds_of_one_server,
                             .title = "sabotage",
                             .troubles = TROUBLE_SABOTAGE},
               FIND_EVERY_KIND);
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(models_judge_what_was_written_by_hand),
        cmocka_unit_test(redisson_plays_too),
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
