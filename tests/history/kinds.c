/*
 * The kinds of which histories are recorded, one row each, and the random choices of their players.
 *
 * A new kind needs a row here, a visit, and a model in checker/models.go.
 */
#include "kinds.h"

#include "support/wait.h"

/* Ends a hold that goes on for a while yet, so that its owner is wronged for certain. */
#define BREAK_IN                                                                                   \
    "if redis.call('pttl', KEYS[1]) < 100 then return 0 end return redis.call('del', KEYS[1])"
#define BREAK_IN_ON_ANY                                                                            \
    "for _, member in ipairs({'.a', '.b', '.c', '.d'}) do local key = KEYS[1] .. member "          \
    "if redis.call('pttl', key) >= 100 then redis.call('del', key) end end return 0"
/* Adds something to a number that exists. */
#define ADD_SOME                                                                                   \
    "if redis.call('exists', KEYS[1]) == 0 then return 0 end "                                     \
    "return redis.call('incrby', KEYS[1], 5)"

static const struct kind one_server[] = {
    {"plain", HF_PLAIN, 0, visit_lock, BREAK_IN, false},
    {"nonreentrant", HF_PLAIN, HF_NONREENTRANT, visit_lock, BREAK_IN, false},
    {"spin", HF_PLAIN, HF_SPIN, visit_lock, BREAK_IN, false},
    {"fenced", HF_PLAIN, HF_FENCED, visit_lock, BREAK_IN, false},
    {"string", HF_STRING, 0, visit_lock, BREAK_IN, false},
    {"fair", HF_FAIR, 0, visit_lock, BREAK_IN, false},
    {"group", HF_PLAIN, 0, visit_group, BREAK_IN, false},
    {"multi", HF_PLAIN, 0, visit_multi, BREAK_IN_ON_ANY, false},
    {"readwrite", HF_WRITE, 0, visit_readwrite, BREAK_IN, false},
    {"semaphore", HF_PLAIN, 0, visit_semaphore, ADD_SOME, false},
    {"permits", HF_PLAIN, 0, visit_permits, ADD_SOME, false},
    {"latch", HF_PLAIN, 0, visit_latch, ADD_SOME, false},
};

static const struct kind quorum[] = {
    {"quorum", HF_PLAIN, 0, visit_lock, BREAK_IN, true},
    {"quorum_once", HF_PLAIN, HF_NONREENTRANT, visit_lock, BREAK_IN, true},
    {"quorum_fenced", HF_PLAIN, HF_FENCED, visit_lock, BREAK_IN, true},
    {"quorum_string", HF_STRING, 0, visit_lock, BREAK_IN, true},
};

static const struct kind route[] = {
    {"moving", HF_PLAIN, 0, visit_lock, BREAK_IN, true},
    {"moving_once", HF_PLAIN, HF_NONREENTRANT, visit_lock, BREAK_IN, true},
    {"moving_fenced", HF_PLAIN, HF_FENCED, visit_lock, BREAK_IN, true},
    {"moving_fair", HF_FAIR, 0, visit_lock, BREAK_IN, true},
    {"moving_string", HF_STRING, 0, visit_lock, BREAK_IN, true},
    {"moving_readwrite", HF_WRITE, 0, visit_readwrite, BREAK_IN, true},
};

static const struct kind cohorts[] = {
    {"cohort", HF_PLAIN, HF_COHORT, visit_lock, BREAK_IN, false},
    {"cohort_fair", HF_FAIR, HF_COHORT, visit_lock, BREAK_IN, false},
    {"cohort_string", HF_STRING, HF_COHORT, visit_lock, BREAK_IN, false},
};

/* An ensemble has no scripts, so nobody can be wronged by one. */
static const struct kind zk[] = {
    {"session", HF_PLAIN, 0, visit_lock, NULL, true},
    {"session_once", HF_PLAIN, HF_NONREENTRANT, visit_lock, NULL, true},
    {"session_fenced", HF_PLAIN, HF_FENCED, visit_lock, NULL, true},
    {"session_readwrite", HF_WRITE, 0, visit_readwrite, NULL, true},
    {"semaphore", HF_PLAIN, 0, visit_semaphore, NULL, false},
    {"session_permits", HF_PLAIN, 0, visit_permits, NULL, false},
    {"latch", HF_PLAIN, 0, visit_latch, NULL, false},
};

#define ALL(kinds) .all = (kinds), .len = sizeof(kinds) / sizeof *(kinds)

const struct kinds kinds_of_one_server = {ALL(one_server), .players = 1, .visits = 25,
                                          .watchdog_ms = PLAY_WATCHDOG_MS};
const struct kinds kinds_of_a_quorum = {ALL(quorum), .players = 2, .visits = 8, .quorum = true,
                                        .watchdog_ms = QUORUM_WATCHDOG_MS};
const struct kinds kinds_of_a_route = {ALL(route), .players = 1, .visits = 10, .moving = true,
                                       .watchdog_ms = ROUTE_WATCHDOG_MS};
const struct kinds kinds_of_cohorts = {ALL(cohorts), .players = 3, .visits = 12, .cohorts = true,
                                       .watchdog_ms = PLAY_WATCHDOG_MS};

const struct kinds kinds_of_zk = {ALL(zk), .players = 1, .visits = 10, .sessions = true,
                                  .watchdog_ms = ZK_WATCHDOG_MS};

unsigned play_pick(struct player *player, unsigned below) {
    return (unsigned)rand_r(&player->random) % below;
}

bool play_chance(struct player *player, unsigned percent) {
    return play_pick(player, 100) < percent;
}

void play_pause(struct player *player, unsigned below_ms) {
    if (play_chance(player, 60))
        linger(play_pick(player, below_ms) + 1);
}
