/* Random choices that can be made again: HF_SEED names the seed of a run that failed.
 *
 * Include as "support/random.h". */
#ifndef HF_TEST_RANDOM_H
#define HF_TEST_RANDOM_H

#include <stdint.h>

/* HF_SEED, or a new one. It is printed, and never 0. */
uint64_t random_seed(void);

uint64_t random_next(uint64_t *state); /* `state` begins as the seed */

#endif
