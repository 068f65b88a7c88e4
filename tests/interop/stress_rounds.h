/* The C half of the latch's mixed stress test: one process whose threads go through rounds together
 * with all others. */
#ifndef HF_TEST_INTEROP_STRESS_ROUNDS_H
#define HF_TEST_INTEROP_STRESS_ROUNDS_H

struct rounds {
    const char *url;
    const char *socket;
    const char *process; /* its name in the ledger */
    int workers;         /* threads here */
    int parties;         /* workers of all processes */
    int rounds;
};

/* Body for run_child(); `arg` is a struct rounds. Returns 0, or 1 after telling on stderr what was
 * wrong. */
int rounds_worker(void *arg);

#endif
