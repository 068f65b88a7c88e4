/* ACL users that may do exactly what a script needs, and one thing less. */
#ifndef HF_TEST_RIGHTS_H
#define HF_TEST_RIGHTS_H

#include "row.h"

/* What the documentation tells operators to grant for each script, beside EVALSHA. */
struct grant {
    const char *script;
    const char *keys;     /* patterns as ACL SETUSER takes them */
    const char *channels; /* the same */
    const char *commands;
};

/* Makes a user and connects as it; it may not run the command `without`, which may be NULL. */
redisContext *connect_new_user(struct stage *stage, const char *name, const struct grant *grant,
                               const char *without);

#endif
