/* What `sem` and `latch` have in common: NAME VERB [NUMBER], one operation of the library that may
 * wait, and an answer that is a number, a yes or no, or nothing. */
#ifndef CLI_COUNTER_H
#define CLI_COUNTER_H

#include "cli.h"

struct counter;

struct counter_verb {
    const char *name;
    const char *doing;        /* for "cannot ... 'NAME'" */
    bool number, number_or_1; /* takes a number; 1 if it is left out */
    int64_t lowest;           /* that it takes; the highest is HF_PERMITS_MAX */
    bool waits;               /* takes -n, -w and -E */
    bool ttl;                 /* takes --ttl */
    /* The operation. Returns what the library does; the callback is counter_done(). */
    int (*start)(struct counter *counter);
    int (*undo)(struct counter *counter); /* if it was done although a signal came; NULL: stays */
    const char *answer;                   /* what the result's value is, in JSON; NULL: nothing */
    const char *no;                       /* the answer is yes or no, and this is no */
};

struct counter_kind {
    const struct command *command;
    const char *noun;                 /* what it should be */
    const struct counter_verb *verbs; /* the last one has no name */
    const char *busy, *timed_out;     /* why waiting failed */
    int (*open)(struct counter *counter);
    void (*close)(struct counter *counter);
};

struct counter {
    const struct counter_kind *kind;
    struct connection *connection;
    const char *name;
    const struct counter_verb *verb;
    int64_t number, ttl_ms, wait_ms;
    int busy_status;
    char wait_flag[32], ttl_flag[32]; /* how the user wrote them; empty: not on the command line */
    bool help;

    hf_client *client;
    hf_sem *sem;
    hf_latch *latch;
    hf_op *op;
    int signals, interrupted;
    int ended; /* readable when the operation has ended, and `result` is there */
    hf_result result;
};

/* The whole subcommand. */
int counter_run(const struct counter_kind *kind, struct connection *connection, int argc,
                char **argv);
void counter_done(hf_op *op, const hf_result *result, void *user);

#endif
