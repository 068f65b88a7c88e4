/* Random schedules of the fair lock: no two owners ever hold it together, no dead owner keeps
 * the lock or a place, and the order of the waiters is kept. The world is in fair_model.c.
 *
 * The other tests show that the model can fail: without any one of the client rules it finds a
 * violation. They use the same schedules every time. One thread, one private server. */

#include "fair_model.h"
#include "support/case.h"

#include <inttypes.h>

static struct server *server;
static struct fair_model *model;

static int open_group(void **state) {
    (void)state;
    server = server_start(NULL);
    model = fair_model_open(server);
    return 0;
}

static int close_group(void **state) {
    (void)state;
    fair_model_close(model);
    server_free(server);
    return 0;
}

CASE(nothing_goes_wrong) {
    uint64_t played = play_many(fair_model_play(model), FAIR_CAREFUL, 500);
    const struct fair_tally *t = fair_model_tally(model);
    printf("%" PRIu64 " schedules, %" PRIu64 " scripts: held %" PRIu64 ", queued %" PRIu64
           ", entered %" PRIu64 ", missed %" PRIu64 ", confirmed %" PRIu64 ", released %" PRIu64
           ", given up %" PRIu64 ", lost %" PRIu64 ", late %" PRIu64 ", resent %" PRIu64
           ", crashed %" PRIu64 ", java %" PRIu64 " (died %" PRIu64 ", hurried %" PRIu64
           ", passed over %" PRIu64 "), expired %" PRIu64 "\n",
           played, t->scripts, t->held, t->queued, t->entered, t->missed, t->confirmed, t->released,
           t->given_up, t->lost, t->late, t->resent, t->crashed, t->java_held, t->java_died,
           t->java_hurried, t->java_passed_over, t->expired);
    assert_true(t->late > 0);
    assert_true(t->held > 0 && t->queued > 0 && t->entered > 0 && t->missed > 0);
    assert_true(t->confirmed > 0 && t->released > 0 && t->given_up > 0 && t->lost > 0);
    assert_true(t->resent > 0 && t->crashed > 0 && t->java_held > 0 && t->expired > 0);
    assert_true(t->java_died > 0 && t->java_hurried > 0 && t->java_passed_over > 0);
}

CASE(finds_scripts_that_run_late) {
    play_until_wrong(fair_model_play(model), FAIR_NO_NOT_AFTER);
}

CASE(finds_old_grants) {
    play_until_wrong(fair_model_play(model), FAIR_OLD_GRANTS);
}

CASE(finds_grants_that_are_trusted_too_long) {
    play_until_wrong(fair_model_play(model), FAIR_GRANT_FROM_NOW);
}

CASE(finds_listening_java_clients_that_are_passed_over) {
    play_until_wrong(fair_model_play(model), FAIR_HEARD_IS_UNHEARD);
}

RUN_CASES(open_group, close_group)
