/* Random schedules of the plain lock: no two owners ever hold it together, and no owner that
 * gave it up keeps it. The world is in plain_model.c.
 *
 * The other tests show that the model can fail: without any one of the client rules it finds a
 * violation. They use the same schedules every time. One thread, one private server. */

#include "plain_model.h"
#include "support/case.h"

#include <inttypes.h>

static struct server *server;
static struct model *model;

static int open_group(void **state) {
    (void)state;
    server = server_start(NULL);
    model = model_open(server);
    return 0;
}

static int close_group(void **state) {
    (void)state;
    model_close(model);
    server_free(server);
    return 0;
}

/* Enough schedules have every kind of thing in them, or the model shows nothing. */
static void assert_eventful(const struct model_tally *t) {
    assert_true(t->held > 0 && t->reentered > 0 && t->busy > 0 && t->lost > 0);
    assert_true(t->released > 0 && t->resent > 0 && t->late > 0 && t->settled > 0);
    assert_true(t->forced > 0 && t->expired > 0 && t->java_held > 0);
}

CASE(careful_clients_never_share_the_lock) {
    uint64_t schedules = play_many(model_play(model), CAREFUL, 3000);
    const struct model_tally *t = model_tally(model);
    printf("%" PRIu64 " schedules, %" PRIu64 " scripts: held %" PRIu64 ", re-entered %" PRIu64
           ", busy %" PRIu64 ", lost %" PRIu64 ", released %" PRIu64 ", resent %" PRIu64
           ", late %" PRIu64 ", settled %" PRIu64 ", forced %" PRIu64 ", expired %" PRIu64
           ", held by Java %" PRIu64 "\n",
           schedules, t->scripts, t->held, t->reentered, t->busy, t->lost, t->released, t->resent,
           t->late, t->settled, t->forced, t->expired, t->java_held);
    assert_eventful(t);
}

CASE(without_not_after_it_goes_wrong) {
    play_until_wrong(model_play(model), WITHOUT_NOT_AFTER);
}

CASE(hasty_clients_go_wrong) {
    play_until_wrong(model_play(model), HASTY);
}

CASE(unsettled_clients_go_wrong) {
    play_until_wrong(model_play(model), UNSETTLED);
}

RUN_CASES(open_group, close_group)
