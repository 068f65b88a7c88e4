/* What the parts of ZooKeeper's benchmark share. */
#ifndef HF_BENCH_ZK_WORKER_H
#define HF_BENCH_ZK_WORKER_H

#include <stdint.h>

/* The mutex over the bare protocol: create and list in one write, one answer each, delete. `path` is there. */
struct raw;
struct raw *raw_open(int port, const char *path);
void raw_acquire(struct raw *raw);
void raw_release(struct raw *raw);
void raw_close(struct raw *raw);

void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
