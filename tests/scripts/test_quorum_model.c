/* Random schedules of a lock of five servers: nobody ever holds it with another, tokens grow, and the client that
 * was robbed of its hold finds out. The world is in quorum_model.c.
 *
 * The other tests show that the model can fail: for each rule that clients keep to, and each assumption
 * about servers and clocks, it finds what comes of leaving it out. They play the same schedules every
 * time. One thread, five private servers. */
#include "quorum_model.h"
#include "support/case.h"

#include <inttypes.h>

static struct server *servers[QUORUM_SERVERS];
static struct quorum_model *model;

static int open_group(void **state) {
    (void)state;
    for (int i = 0; i < QUORUM_SERVERS; i++)
        servers[i] = server_start(NULL);
    model = quorum_model_open(servers);
    return 0;
}

static int close_group(void **state) {
    (void)state;
    quorum_model_close(model);
    for (int i = 0; i < QUORUM_SERVERS; i++)
        server_free(servers[i]);
    return 0;
}

/* Enough schedules have every kind of thing in them, or the model shows nothing. */
static void assert_eventful(const struct quorum_tally *t) {
    assert_true(t->held > 0 && t->refilled > 0 && t->probed > 0 && t->busy > 0 && t->lost > 0 &&
                t->released > 0);
    assert_true(t->aged > 0 && t->raised > 0 && t->drawn_again > 0 && t->late > 0);
    assert_true(t->settled > 0 && t->crashed > 0 && t->cut > 0 && t->paused > 0 && t->died > 0);
    assert_true(t->deleted > 0 && t->stolen > 0);
}

CASE(careful_clients_never_share_the_lock) {
    uint64_t schedules = play_many(quorum_model_play(model), CAREFUL, 200);
    const struct quorum_tally *t = quorum_model_tally(model);
    printf("%" PRIu64 " schedules, %" PRIu64 " scripts: held %" PRIu64 ", refilled %" PRIu64
           ", probed %" PRIu64 ", busy %" PRIu64 ", lost %" PRIu64 ", released %" PRIu64
           ", aged %" PRIu64 ", raised %" PRIu64 ", drawn again %" PRIu64 ", late %" PRIu64
           ", settled %" PRIu64 ", crashed %" PRIu64 ", cut %" PRIu64 ", paused %" PRIu64
           ", died %" PRIu64 ", deleted %" PRIu64 ", stolen %" PRIu64 "\n",
           schedules, t->scripts, t->held, t->refilled, t->probed, t->busy, t->lost, t->released,
           t->aged, t->raised, t->drawn_again, t->late, t->settled, t->crashed, t->cut, t->paused,
           t->died, t->deleted, t->stolen);
    assert_eventful(t);
}

#define GOES_WRONG(name, discipline)                                                               \
    CASE(name) {                                                                                   \
        play_until_wrong(quorum_model_play(model), discipline);                                    \
    }

GOES_WRONG(without_the_restart_guard, WITHOUT_GUARD)
GOES_WRONG(with_leases_from_the_reply, FROM_THE_REPLY)
GOES_WRONG(without_not_after, WITHOUT_NOT_AFTER)
GOES_WRONG(with_hasty_clients, HASTY)
GOES_WRONG(without_the_drift_allowance, WITHOUT_ALLOWANCE)
GOES_WRONG(with_a_majority_of_those_that_answer, OF_THOSE_THAT_ANSWER)
GOES_WRONG(with_breaks_that_are_made_up_for, MADE_UP)
GOES_WRONG(with_proofs_that_outlast_the_guard, BEYOND_THE_GUARD)
GOES_WRONG(with_clocks_at_different_speeds, CLOCKS_OFF)
GOES_WRONG(with_one_clock_that_is_stepped, STEPPED)
GOES_WRONG(with_the_largest_token_of_the_votes, LARGEST_OF_VOTES)
GOES_WRONG(with_tokens_drawn_one_by_one, BY_ONE)
GOES_WRONG(with_tokens_of_young_servers, DRAWN_YOUNG)
GOES_WRONG(with_server_clocks_far_apart, CLOCKS_APART)

RUN_CASES(open_group, close_group)
