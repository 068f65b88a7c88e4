/* One row of a script's table: state before, call, expected result. */
#ifndef HF_TEST_ROW_H
#define HF_TEST_ROW_H

#include "script.h"

/* The key and the channel that plain rows are about; their users may touch nothing else. */
#define LOCK "thelock"
#define CHANNEL "redisson_lock__channel:{thelock}"

#define NO_TTL (-1)
#define WHY 512 /* room for what was different */

/* A key after the call. `value` is "owner=count", sorted by owner with spaces between, for a hash;
 * "string text" for a string; NULL for a key that is not there. `ttl_ms` is what it was set to, in
 * the call or before it: the time that passed since then is allowed for, no more. */
struct state {
    const char *key;
    const char *value;
    int64_t ttl_ms;
};

#define ABSENT                                                                                     \
    { LOCK, NULL, 0 }

#define ROW_KEYS 5

struct row {
    const char *name;
    const char *before; /* commands with "; " between, run as an all-powerful user; may be NULL */
    const char *script;
    const char *call; /* as for script_call() */
    const char
        *reply; /* integers without the closing `now`, "~n" for a pttl that was n; "done" for the
                           time alone, in us, "done n" if its last three digits are to be n; "!CODE" for an
                           error that starts with it */
    struct state after[ROW_KEYS];
    const char *received;          /* as listener_received() tells it; NULL for nothing */
    struct state resent[ROW_KEYS]; /* what a resend leaves, where that is not the same as `after` */
    const char *received_again;    /* what a resend publishes; NULL for nothing */
};

/* Where rows run: a server, which learns a script when it is first called. */
struct stage {
    struct server *server;
    struct listener *listener;
};

struct stage *stage_open(const char *channel);
void stage_close(struct stage *stage);

/* Empties the server and plays the row on `connection`. True when all came as it says, no other key
 * appeared, and the same call sent again changed and published no more than the row says;
 * else `why` tells what was different. */
bool row_plays(struct stage *stage, redisContext *connection, const struct row *row, char why[WHY]);

/* The SHA-1 of a script, which the server knows by now. */
const char *stage_sha(struct stage *stage, const char *script);

/* ---- For players of other rows -------------------------------------------------------------- */

/* The server's clock before the preparations, before the call and at the last look. */
struct span {
    int64_t begin_ms;
    int64_t call_ms;
    int64_t end_ms;
};

/* Writes why; returns false. */
bool differs(char why[WHY], const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A TTL that was set to `set_ms` within the span, or was already running then. */
bool ttl_fits(int64_t ttl_ms, int64_t set_ms, struct span span);

/* `expected` as a row's reply. */
bool reply_fits(const redisReply *reply, const char *expected, struct span span, char why[WHY]);

/* What was published since the last time, as a row's `received`. */
bool received_fits(struct listener *listener, const char *expected, char why[WHY]);

#endif
