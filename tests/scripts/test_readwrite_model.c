/* Random schedules of the read/write lock: no owner ever writes beside another, and no owner
 * that gave it up keeps it. The world is in readwrite_model.c.
 *
 * The other tests show that the model can fail: without certain client rules it finds a
 * violation. They use the same schedules every time. One thread, one private server. */

#include "readwrite_model.h"
#include "support/case.h"

#include <inttypes.h>

static struct server *server;
static struct rw_model *model;

static int open_group(void **state) {
    (void)state;
    server = server_start(NULL);
    model = rw_model_open(server);
    return 0;
}

static int close_group(void **state) {
    (void)state;
    rw_model_close(model);
    server_free(server);
    return 0;
}

/* Enough schedules have every kind of thing in them, or the model shows nothing. */
static void assert_eventful(const struct rw_tally *t) {
    assert_true(t->read > 0 && t->written > 0 && t->nested > 0 && t->busy > 0 && t->lost > 0);
    assert_true(t->released > 0 && t->resent > 0 && t->late > 0 && t->settled > 0);
    assert_true(t->broken > 0 && t->expired > 0 && t->java_held > 0);
}

CASE(careful_clients_never_write_beside_another) {
    uint64_t schedules = play_many(rw_model_play(model), RW_CAREFUL, 1000);
    const struct rw_tally *t = rw_model_tally(model);
    printf("%" PRIu64 " schedules, %" PRIu64 " scripts: read %" PRIu64 ", written %" PRIu64
           ", nested %" PRIu64 ", busy %" PRIu64 ", lost %" PRIu64 ", released %" PRIu64
           ", resent %" PRIu64 ", late %" PRIu64 ", settled %" PRIu64 ", broken %" PRIu64
           ", expired %" PRIu64 ", held by Java %" PRIu64 "\n",
           schedules, t->scripts, t->read, t->written, t->nested, t->busy, t->lost, t->released,
           t->resent, t->late, t->settled, t->broken, t->expired, t->java_held);
    assert_eventful(t);
}

CASE(without_not_after_it_goes_wrong) {
    play_until_wrong(rw_model_play(model), RW_WITHOUT_NOT_AFTER);
}

CASE(without_keeping_reads_fresh_it_goes_wrong) {
    play_until_wrong(rw_model_play(model), RW_STALE);
}

RUN_CASES(open_group, close_group)
