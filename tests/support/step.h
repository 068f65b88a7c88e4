/* Servers whose time of day can be stepped and slewed, by a library that is preloaded into them (clock/stepped.c).
 *
 *     bool can = step_preload(HF_TEST_STEPPED_CLOCK); // before the first server of the program
 *     struct server *s = server_start(NULL);
 *     step_clock(s, 3600000);
 *
 * Include as "support/step.h". Not every server lets itself be preloaded: then a test has nothing to do. */
#ifndef HF_TEST_STEP_H
#define HF_TEST_STEP_H

#include "support/server.h"

/* Every server that is started from now on has a clock that can be stepped. False: it cannot. */
bool step_preload(const char *library);

/* Its clock is off the real one by so much when this returns. */
void step_clock(struct server *server, int64_t step_ms);

/* From now on its clock runs so many parts in a million faster than the real one, or slower if that is negative; it is
 * not stepped any more. */
void step_slew(struct server *server, int64_t slew_ppm);

/* This process, and those that it forks, were started with the library preloaded: their time of day
 * is off by so much. */
void step_this(int64_t step_ms);

#endif
