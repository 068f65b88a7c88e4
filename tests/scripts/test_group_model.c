/* Random schedules of the values of a group: no two owners ever hold the same value, a hold has
 * all of its values or is over, and no dead owner keeps a value. The world is in group_model.c.
 *
 * The other tests show that the model can fail: without any one of the client rules it finds a
 * violation. One thread, one private server. */

#include "group_model.h"
#include "support/case.h"

#include <inttypes.h>

static struct server *server;
static struct model model;

static int open_group(void **state) {
    (void)state;
    server = server_start(NULL);
    group_model_open(&model, server);
    return 0;
}

static int close_group(void **state) {
    (void)state;
    group_model_close(&model);
    server_free(server);
    return 0;
}

CASE(careful_clients_never_share_a_value) {
    uint64_t schedules = play_many(&model.play, CAREFUL, 1000);
    printf("%" PRIu64 " schedules: held %" PRIu64 ", nested %" PRIu64 ", busy %" PRIu64
           ", lost %" PRIu64 ", released %" PRIu64 ", resent %" PRIu64 ", late %" PRIu64
           ", settled %" PRIu64 ", forced %" PRIu64 ", held by Java %" PRIu64 "\n",
           schedules, model.tally.held, model.tally.nested, model.tally.busy, model.tally.lost,
           model.tally.released, model.tally.resent, model.tally.late, model.tally.settled,
           model.tally.forced, model.tally.java);
    assert_true(model.tally.held > 0 && model.tally.nested > 0 && model.tally.busy > 0);
    assert_true(model.tally.lost > 0 && model.tally.released > 0 && model.tally.resent > 0);
    assert_true(model.tally.late > 0 && model.tally.settled > 0);
    assert_true(model.tally.forced > 0 && model.tally.java > 0);
}

CASE(without_not_after_it_goes_wrong) {
    play_until_wrong(&model.play, WITHOUT_NOT_AFTER);
}

CASE(hasty_clients_go_wrong) {
    play_until_wrong(&model.play, HASTY);
}

CASE(forgetful_clients_go_wrong) {
    play_until_wrong(&model.play, FORGETFUL);
}

RUN_CASES(open_group, close_group)
