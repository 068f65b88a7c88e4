/* The C half of the mixed stress test: one process that locks, works and unlocks for a while. */
#ifndef HF_TEST_INTEROP_STRESS_WORKER_H
#define HF_TEST_INTEROP_STRESS_WORKER_H

#include <stddef.h>
#include <stdint.h>

#define STRESS_NAMES 3
#define STRESS_WORKERS 2 /* threads of each client, in C and in Java */
#define STRESS_WAIT_MS 300
#define STRESS_WORK_MS 4

struct stress {
    const char *url;
    const char *socket;
    const char *names[STRESS_NAMES];
    const char *process; /* its name in the books */
    unsigned seed;
    int64_t end_ms; /* on now_ms()'s clock */
    int64_t watchdog_ms;
    int64_t lease_ms;
    char enter[41]; /* SHA-1 of stress_enter.lua, loaded on the server */
    char leave[41];
};

/* Body for run_child(); `arg` is a struct stress. Returns 0, or 1 after telling on stderr what
 * was wrong. */
int stress_worker(void *arg);

#endif
