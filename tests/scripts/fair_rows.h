/* The rows of the fair lock's scripts: state before, call, expected result.
 *
 * They run at one fixed time, which the scripts get in place of the server's. In commands and
 * arguments "@+n" and "@-n" are that time in ms plus or minus n, "#+n" and "#-n" the same in us,
 * and "_" is a blank inside of a word. The keys are f (lock), q, z, r and u. */
#ifndef HF_TEST_FAIR_ROWS_H
#define HF_TEST_FAIR_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* What the channels of its waiters begin with; then their names. */
#define CHANNELS "redisson_lock__channel:{f}:"

struct fair_row {
    const char *name;
    const char *before;    /* commands with "; " between */
    const char *listeners; /* owners that are subscribed, blanks between; NULL: none */
    const char *script;    /* without "fair_" */
    const char *call;      /* not-after, owner, and from the fifth argument on */
    const char *reply;     /* without the closing time; "~n" a pttl that was n; "!CODE" */
    const char *after;     /* as the player writes it; a TTL is compared with `ttl_ms` */
    int64_t ttl_ms;        /* of the lock; 0: there is none */
    const char *received;  /* "owner:message" of the listeners, blanks between; NULL: nothing */
    const char *resent;    /* what a resend leaves, if not the same */
};

extern const struct fair_row fair_rows[];
extern const size_t fair_row_count;

#endif
