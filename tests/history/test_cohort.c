/*
 * Histories of cohorts: locks that threads of one process pass on without the server. Checked like
 * the others, with a model of its own (checker/cohort.go).
 *
 * Three processes with three threads each, and Java's own locks of the same names. The checks: no
 * other thread, in this process or another, is inside before the deadline that the thread inside
 * got; and a release returns HF_OK only if the hold lasted, or if it passed the lock on before the
 * process knew of a break.
 */
#include "suite.h"

static void calm_and_lies_are_found(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_cohorts, .title = "cohorts", .java = true},
               must_be_right_and_lies_found);
}

static void processes_are_killed_and_paused_and_locks_broken(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_cohorts,
                             .title = "cohorts: processes, breaks",
                             .faults = FAULT_KILL | FAULT_PAUSE | FAULT_BREAK},
               must_be_right);
}

static void replies_are_lost(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_cohorts,
                             .title = "cohorts: replies",
                             .faults = FAULT_LOSE | FAULT_KILL,
                             .java = true},
               must_be_right);
}

static void server_restarts_with_its_data(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_cohorts,
                             .title = "cohorts: restarts",
                             .faults = FAULT_RESTART},
               must_be_right);
}

static void server_restarts_empty(void **state) {
    (void)state;
    suite_play(
        (struct plan){.kinds = &kinds_of_cohorts, .title = "cohorts: wipes", .faults = FAULT_WIPE},
        must_be_right);
}

static void sabotage_is_found(void **state) {
    (void)state;
    suite_find((struct plan){.kinds = &kinds_of_cohorts,
                             .title = "cohorts: sabotage",
                             .faults = FAULT_SABOTAGE},
               FIND_EVERY_KIND);
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(calm_and_lies_are_found),
        cmocka_unit_test(processes_are_killed_and_paused_and_locks_broken),
        cmocka_unit_test(replies_are_lost),
        cmocka_unit_test(server_restarts_with_its_data),
        cmocka_unit_test(server_restarts_empty),
        cmocka_unit_test(sabotage_is_found),
    };
    return suite_main("history.cohort", rows, sizeof rows / sizeof *rows);
}
