/* A group of table tests: each row is a test of its own, played as an ACL user that may do what the
 * row's script needs and nothing else; then it is shown that no right is granted in vain; then come
 * the tests that a row cannot say. */
#ifndef HF_TEST_GROUP_H
#define HF_TEST_GROUP_H

#include "rights.h"

struct row_head {
    const char *name;
    const char *script;
    const char *call;
};

struct table {
    const char *channel; /* what the stage listens to */
    const struct grant *grants;
    size_t grant_count;
    size_t row_count;
    struct row_head (*head)(size_t row);
    bool (*plays)(redisContext *user, size_t row, char why[WHY]);
};

/* Runs the rows, then the cases of the program; returns what main() is to return. */
int group_run(const struct table *table);

/* ---- While the group runs ------------------------------------------------------------------- */

extern struct stage *stage; /* knows all scripts of the table */

const struct grant *grant_of(const char *script);
redisContext *user_of(const char *script); /* who has that grant */

/* Plays a row that is no part of the table. */
void assert_plays(redisContext *user, const struct row *row);

/* Calls a script; `expected` is the first number of its reply, or the first three letters of an
 * error. */
void assert_code(redisContext *user, const char *script, const char *call, const char *expected);

/* From here on the server holds more than it may, and evicts nothing. */
void use_up_memory(void);
void free_up_memory(void);

#endif
