/* Random schedules of a lock of a ZooKeeper ensemble: nobody ever holds it with another within the time
 * that the session is trusted, and no acquire leaves two nodes. The world is in zk_model.c.
 *
 * The other tests show that the model can fail: for each rule that clients keep to it finds what comes of
 * leaving it out. They play the same schedules every time. One thread, no server. */
#include "support/case.h"
#include "zk_model.h"

#include <inttypes.h>

static struct zk_model *model;

static int open_group(void **state) {
    (void)state;
    model = zk_model_open();
    return 0;
}

static int close_group(void **state) {
    (void)state;
    zk_model_close(model);
    return 0;
}

/* Enough schedules have every kind of thing in them, or the model shows nothing. */
static void assert_eventful(const struct zk_tally *t) {
    assert_true(t->held > 0 && t->by_event > 0 && t->proved_first > 0 && t->released > 0);
    assert_true(t->renewed > 0 && t->ran_out > 0 && t->expired > 0);
    assert_true(t->moved > 0 && t->reconnected > 0 && t->found > 0 && t->created_again > 0);
    assert_true(t->paused > 0 && t->cut > 0 && t->died > 0 && t->held_up > 0);
}

CASE(careful_clients_never_share_the_lock) {
    uint64_t schedules = play_many(zk_model_play(model), ZK_CAREFUL, 1000);
    const struct zk_tally *t = zk_model_tally(model);
    printf("%" PRIu64 " schedules: held %" PRIu64 ", by an event %" PRIu64 ", proved first %" PRIu64
           ", released %" PRIu64 ", lost %" PRIu64 ", ran out %" PRIu64 ", renewed %" PRIu64
           ", expired %" PRIu64 ", moved %" PRIu64 ", reconnected %" PRIu64 ", found %" PRIu64
           ", created again %" PRIu64 ", paused %" PRIu64 ", cut %" PRIu64 ", died %" PRIu64
           ", held up %" PRIu64 "\n",
           schedules, t->held, t->by_event, t->proved_first, t->released, t->lost, t->ran_out,
           t->renewed, t->expired, t->moved, t->reconnected, t->found, t->created_again, t->paused,
           t->cut, t->died, t->held_up);
    assert_eventful(t);
    assert_int_equal(t->lost, 0); /* their own clock is always the first to tell them */
}

#define GOES_WRONG(name, discipline)                                                               \
    CASE(name) {                                                                                   \
        play_until_wrong(zk_model_play(model), discipline);                                        \
    }

GOES_WRONG(with_pings_as_proof, ZK_PINGS_AS_PROOF)
GOES_WRONG(with_three_quarters_from_the_last_heartbeat, ZK_FROM_HEARTBEAT)
GOES_WRONG(with_a_leader_that_is_counted_on, ZK_FROM_PACKETS)
GOES_WRONG(without_sync, ZK_WITHOUT_SYNC)

RUN_CASES(open_group, close_group)
