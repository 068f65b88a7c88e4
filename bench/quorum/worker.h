/* What the files of a quorum's worker share. */
#ifndef HF_BENCH_QUORUM_WORKER_H
#define HF_BENCH_QUORUM_WORKER_H

#include "bench/bench.h"

#define SERVERS_MAX 9

struct plan {
    const char *name;
    int64_t warm_ms, hold_ms, think_ms;
    int64_t start_ms, end_ms; /* since 1970 */
    size_t ports_len;
    int ports[SERVERS_MAX];
};

int64_t wall_us(void);

/* raw.c: the floor. */
void raw_open(const struct plan *plan, const char *name);
void raw_acquire(void);
void raw_release(void);
void raw_close(void);

/* far.c: relays what arrives at a port to another, `ms` later in each direction. */
_Noreturn void relay(int from_port, int to_port, int ms);

#endif
