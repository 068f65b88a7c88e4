/* The common part of `sem` and `latch`: NAME VERB [NUMBER], one library operation that may wait,
 * and an answer that is a number, a yes or no, or nothing. */
#ifndef CLI_COUNTER_H
#define CLI_COUNTER_H

#include "cli.h"

struct counter;

struct counter_verb {
    const char *name;
    const char *doing;        /* message: "cannot DOING 'NAME'" */
    bool number, number_or_1; /* takes a number; may be omitted: 1 */
    int64_t lowest;           /* the smallest number; the largest is HF_PERMITS_MAX */
    bool waits;               /* takes -n, -w and -E */
    bool ttl;                 /* takes --ttl */
    /* Starts the operation with callback counter_done(). Returns the library's code. */
    int (*start)(struct counter *counter);
    int (*undo)(struct counter *counter); /* if it completed despite a signal; NULL: keep it */
    const char *answer;                   /* JSON key of the result's value; NULL: no answer */
    const char *no;                       /* the answer is yes or no; the word for no */
};

struct counter_kind {
    const struct command *command;
    const char *noun;                 /* the kind of object, for messages */
    const struct counter_verb *verbs; /* ended by a NULL name */
    const char *busy, *timed_out;     /* messages: why waiting failed */
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
    struct either waiting;            /* -n or -w */
    char wait_flag[32], ttl_flag[32]; /* as the user wrote them; empty: not on the command line */
    bool help;

    hf_client *client;
    hf_sem *sem;
    hf_latch *latch;
    hf_op *op;
    int signals, interrupted;
    int ended; /* eventfd: readable when `result` is set */
    hf_result result;
};

extern const struct option_spec counter_options[];

/* Runs the subcommand. */
int counter_run(const struct counter_kind *kind, struct connection *connection, int argc,
                char **argv);
void counter_done(hf_op *op, const hf_result *result, void *user);

#endif
