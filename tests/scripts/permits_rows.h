/* One row of a table of the permits' scripts: state before, call, expected result.
 *
 * As row.h, but for two keys whose values are times: a permit is written as a letter, which
 * stands for an id of sixteen such letters, and the end of its lease. */
#ifndef HF_TEST_PERMITS_ROWS_H
#define HF_TEST_PERMITS_ROWS_H

#include <stddef.h>

#define PERMITS "thepermits"
#define TAKEN "{thepermits}:timeout"
#define PERMITS_CHANNEL "redisson_sc:{thepermits}"

#define PERMIT_A "aaaaaaaaaaaaaaaa"
#define PERMIT_B "bbbbbbbbbbbbbbbb"
#define PERMIT_C "cccccccccccccccc"
#define PERMIT_D "dddddddddddddddd"

/* What is there: how many are free, or "absent"; then, if any are taken, " : " and these, in the
 * order of their ends. "2 : b-10 a+5000 c*": two are free; b's lease ended 10 ms before the row
 * began, a's ends 5 s after, c's never. A TTL follows after a slash: "2/40000 : a+5000 /40000". */
struct permits_row {
    const char *name;
    const char *before;
    const char *commands; /* one more to prepare; may be NULL */
    const char *script;
    const char *call;  /* as for script_call() */
    const char *reply; /* as in row.h */
    const char *after;
    const char *received;     /* as listener_received() tells it; NULL for nothing */
    const char *resent_reply; /* what a second copy is answered; NULL: the same */
    const char *resent;       /* what it leaves; NULL: the same, and it publishes nothing */
    const char *other_key;    /* is there as well, and stays what it is */
    const char *other_type;
};

extern const struct permits_row permits_rows[];
extern const size_t permits_row_count;

#endif
