/*
 * Histories of locks on a primary that changes, checked like the others.
 *
 * Three servers and three sentinels; the primary is killed, or replaced by hand, and now and then
 * its replicas lack its last writes. An asynchronous failover can admit a second holder. The
 * checks: nothing worse happens, the first holder is notified, clients that came after the change
 * are not affected, and tokens grow whatever was lost.
 */
#include "suite.h"

static void primary_changes_and_lies_are_found(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_a_route,
                             .title = "failovers",
                             .faults = FAULT_FAIL_OVER | FAULT_KILL,
                             .java = true},
               must_be_right_and_lies_found);
}

/* A primary that lost what it knew, and the checker does not know that it changed. */
static void a_loss_without_a_change_is_found(void **state) {
    (void)state;
    suite_find((struct plan){.kinds = &kinds_of_a_route,
                             .title = "failovers, unannounced",
                             .faults = FAULT_FAIL_OVER,
                             .unreported = true},
               FIND_ANY_KIND);
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(primary_changes_and_lies_are_found),
        cmocka_unit_test(a_loss_without_a_change_is_found),
    };
    return suite_main("history.route", rows, sizeof rows / sizeof *rows);
}
