/*
 * Histories of locks on a quorum of five servers, checked like those of one server.
 *
 * The difference is what a quorum promises: a minority may be gone, slow, cut off or empty, and
 * still no other client is inside beside a holder that can trust its hold. So holders ask for that
 * all the time, and each answer is checked. A server that restarts empty may cost a hold, which is
 * reported, but never admits a second one: the restart guard prevents that.
 *
 * Redisson's RedLock, redsync and node-redlock take part where no server forgets. They have no
 * deadline; the check is that they are alone for as long as the leases of their members last, counted
 * from their call.
 */
#include "suite.h"

static void calm_and_lies_are_found(void **state) {
    (void)state;
    suite_play(
        (struct plan){
            .kinds = &kinds_of_a_quorum, .title = "quorum calm", .java = true, .peers = true},
        must_be_right_and_lies_found);
}

static void servers_are_cut_off_and_players_killed(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_a_quorum,
                             .title = "quorum cut",
                             .faults = FAULT_LOSE | FAULT_KILL | FAULT_KILL_JVM,
                             .java = true,
                             .peers = true},
               must_be_right);
}

/* They forget nothing, so they need no guard, and no hold is lost. */
static void servers_restart_with_their_data(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_a_quorum,
                             .title = "quorum restarts",
                             .faults = FAULT_RESTART | FAULT_PAUSE,
                             .unguarded = true,
                             .peers = true},
               must_be_right);
}

static void servers_restart_empty(void **state) {
    (void)state;
    suite_play((struct plan){.kinds = &kinds_of_a_quorum,
                             .title = "quorum wipes",
                             .faults = FAULT_WIPE | FAULT_KILL},
               must_be_right);
}

/* A majority forgets, and one that heard nothing of it goes on to trust its hold beside the next. */
static void without_the_guard_two_are_inside(void **state) {
    (void)state;
    suite_find((struct plan){.kinds = &kinds_of_a_quorum,
                             .title = "quorum without guard",
                             .faults = FAULT_WIPE,
                             .unguarded = true},
               FIND_ANY_KIND);
}

static void sabotage_is_found(void **state) {
    (void)state;
    suite_find((struct plan){.kinds = &kinds_of_a_quorum,
                             .title = "quorum sabotage",
                             .faults = FAULT_SABOTAGE},
               FIND_EVERY_KIND);
}

int main(void) {
    const struct CMUnitTest rows[] = {
        cmocka_unit_test(calm_and_lies_are_found),
        cmocka_unit_test(servers_are_cut_off_and_players_killed),
        cmocka_unit_test(servers_restart_with_their_data),
        cmocka_unit_test(servers_restart_empty),
        cmocka_unit_test(without_the_guard_two_are_inside),
        cmocka_unit_test(sabotage_is_found),
    };
    return suite_main("history.quorum", rows, sizeof rows / sizeof *rows);
}
