/* What the programs of this folder have in common: runs that are judged, their seeds, and the JVM. */
#ifndef HF_TEST_HISTORY_SUITE_H
#define HF_TEST_HISTORY_SUITE_H

#include "play.h"
#include "support/case.h"

/* What the checker is to say of a run: options for one call of it after the other. */
extern const char *const must_be_right[];
extern const char *const must_be_right_and_lies_found[];

/* Plays the runs of a plan, and asserts that the checker says what it is to say. The time, and the
 * JVMs, are chosen here. */
void suite_play(struct plan plan, const char *const *options);

/* Plays a plan with one seed after the other until the checker has found something wrong with every kind,
 * or with any, which it must in the end: what is wrong need not show in one run. */
#define FIND_EVERY_KIND "-expect"
#define FIND_ANY_KIND "-any"
void suite_find(struct plan plan, const char *what);

/* Of the whole program; NULL: without Java. */
struct remote *suite_jvm(void);
/* How many of the peers are there; builds and starts them at the first call. */
size_t suite_peers(void);

/* Builds the checker, and runs the tests; the exit status of the program. */
int suite_main(const char *title, const struct CMUnitTest *rows, size_t len);

#endif
