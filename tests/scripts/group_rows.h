/* One row of a table of the group scripts: state before, call, expected result.
 *
 * As row.h, but for one hash full of times. The fields of the values are letters here; the
 * scripts accept any. */
#ifndef HF_TEST_GROUP_ROWS_H
#define HF_TEST_GROUP_ROWS_H

#include <stddef.h>

#define GROUP "thegroup"
#define GROUP_CHANNEL "redisson_lock__channel:{thegroup}"

/* What is there: "absent", or each value in any order, and behind a slash what is left of the key.
 * "A=me*2+5000 B=you*1-10 C:they*1-900 /30000": `me` holds A twice until 5 s after the row began;
 * the lease of `you` on B ended 10 ms before it did; `they` have left two fields of C behind; the
 * key lasts for 30 s more. "/-1": it never ends. */
struct group_row {
    const char *name;
    const char *before;
    const char *commands; /* one more to prepare; may be NULL */
    const char *script;
    const char *call;     /* as for script_call() */
    const char *reply;    /* as in row.h */
    const char *after;    /* NULL: the same as before */
    const char *received; /* as listener_received() tells it; NULL for nothing */
    /* What a second copy is answered; NULL: the same. It publishes nothing, and leaves what the
     * first one left, but for `resent`. */
    const char *resent_reply;
    const char *resent;
    const char *other_type; /* the key is no group, but of this type, and stays what it is */
};

extern const struct group_row group_rows[];
extern const size_t group_row_count;

#endif
