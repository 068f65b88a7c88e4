/*
 * The kinds of which histories are recorded, one row each, and the dice of their players.
 *
 * A new kind needs a row here, a visit, and a model in checker/models.go.
 */
#include "kinds.h"

#include "support/wait.h"

#include <stdlib.h>

/* Ends a hold that goes on for a while yet, so that its owner is wronged for certain. */
#define BREAK_IN                                                                                   \
    "if redis.call('pttl', KEYS[1]) < 100 then return 0 end return redis.call('del', KEYS[1])"
/* Adds something to a number that exists. */
#define ADD_SOME                                                                                   \
    "if redis.call('exists', KEYS[1]) == 0 then return 0 end "                                     \
    "return redis.call('incrby', KEYS[1], 5)"

const struct kind history_kinds[] = {
    {"plain", HF_PLAIN, 0, visit_lock, BREAK_IN},
    {"nonreentrant", HF_PLAIN, HF_NONREENTRANT, visit_lock, BREAK_IN},
    {"spin", HF_PLAIN, HF_SPIN, visit_lock, BREAK_IN},
    {"fenced", HF_PLAIN, HF_FENCED, visit_lock, BREAK_IN},
    {"fair", HF_FAIR, 0, visit_lock, BREAK_IN},
    {"readwrite", HF_WRITE, 0, visit_readwrite, BREAK_IN},
    {"semaphore", HF_PLAIN, 0, visit_semaphore, ADD_SOME},
    {"permits", HF_PLAIN, 0, visit_permits, ADD_SOME},
    {"latch", HF_PLAIN, 0, visit_latch, ADD_SOME},
};

const size_t history_kinds_len = sizeof history_kinds / sizeof *history_kinds;

unsigned play_pick(struct player *player, unsigned below) {
    return (unsigned)rand_r(&player->random) % below;
}

bool play_chance(struct player *player, unsigned percent) {
    return play_pick(player, 100) < percent;
}

void play_pause(struct player *player, unsigned below_ms) {
    if (play_chance(player, 60))
        sleep_ms(play_pick(player, below_ms) + 1);
}
