/*
 * Histories of locks on a cluster, checked like the others.
 *
 * Three primaries with a replica each. Primaries are replaced by hand or by their death, and now
 * and then their replicas lack their last writes: then the rules are those of test_route.c. And
 * slots move while clients use them, which must have no effect: no hold is lost, no second client
 * enters, no token is drawn twice.
 */
#include "suite.h"

#include <stdlib.h>

static void primaries_change(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_a_route,
                             .title = "cluster failovers",
                             .faults = FAULT_FAIL_OVER | FAULT_KILL,
                             .cluster = true,
                             .java = true},
               must_be_right);
}

static void slots_move(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_a_route,
                             .title = "cluster moves",
                             .faults = FAULT_MOVE | FAULT_KILL,
                             .cluster = true,
                             .java = true},
               must_be_right);
}

/* A primary that lost what it knew, and the checker does not know that it changed. What is found is the
 * checker's, as in test_route.c, so this is for long runs. */
static void a_loss_without_a_change_is_found(void **state) {
    (void)state;
    if (getenv("HF_SOAK") == NULL)
        skip();
    suite_find((struct plan){.kinds = &kinds_of_a_route,
                             .title = "cluster failovers, unannounced",
                             .faults = FAULT_FAIL_OVER,
                             .cluster = true,
                             .unreported = true},
               FIND_ANY_KIND);
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(primaries_change),
        cmocka_unit_test(slots_move),
        cmocka_unit_test(a_loss_without_a_change_is_found),
    };
    return suite_main("history.cluster", rows, sizeof rows / sizeof *rows);
}
