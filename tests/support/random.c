/*
 * Random choices that can be made again; see random.h.
 *
 * Used by stress tests and by those that mangle what arrives.
 */
#include "support/random.h"

#include "support/wait.h"

#include <inttypes.h>
#include <stdio.h>

uint64_t random_seed(void) {
    const char *given = getenv("HF_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)now_ms() * 2654435761u;
    printf("HF_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    return seed | 1;
}

/* xorshift* */
uint64_t random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * 0x2545f4914f6cdd1du >> 16;
}
