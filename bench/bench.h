/* What the files of the benchmark share.
 *
 *   main.c      arguments, the order of the runs, tables and JSON lines
 *   measure.c   time, processor time, medians, percentiles
 *   raw.c       the same scripts over a bare socket: one at a time, and pipelined
 *   hiredis.c   the same scripts with hiredis, one connection per thread
 *   holdfast.c  the library: synchronous with threads, asynchronous with 64 in flight
 *   tls.c       the library over TLS, and OpenSSL with one connection per thread
 *   contend.c   threads and processes that all want one lock
 *   cohort.c    many threads of few processes that all want one lock
 *   queue.c     a fair lock with ten to ten thousand in its queue
 *   watchdog.c  ten thousand holds on one client
 *   memory.c    bytes per handle, hold and waiter
 *   idle.c      processor time while many hold and wait, and nothing happens
 */
#ifndef HF_BENCH_H
#define HF_BENCH_H

#include <holdfast/holdfast.h>

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define BENCH_IN_FLIGHT 64
#define BENCH_TOGETHER 16   /* asynchronous commands that the library writes at once, at most */
#define BENCH_REPLY_LINES 1 /* both scripts answer by the time alone */

struct bench {
    const char *path; /* of the server's Unix socket, or NULL: then 127.0.0.1 and */
    int port;
    int tls_port;       /* of the same server; 0: none, and no rows with TLS */
    const char *tls_ca; /* who signed its certificate */
    char url[160];
    pid_t server_pid;
    int64_t run_ms, warm_ms;
    int runs;
    const char *only;    /* run the groups whose name contains this */
    const char *row;     /* and of these, the rows whose name contains this */
    bool sleeps_at_once; /* clients do not look for answers before they sleep */
    bool replicated;     /* the server has a replica: only the groups that need one */
    FILE *json;
};

/* What one run of one row found. */
struct sample {
    double pairs, seconds;
    double client_cpu_s, server_cpu_s;
    double p50_us, p99_us; /* of a hand-over; 0: not measured */
    double commands;       /* that the server has processed, those inside scripts included */
    double scripts;        /* that it was sent */
};

/* Starts, warms up, runs for run_ms and ends. `n` is the row's number of threads or processes. */
typedef void (*row_fn)(const struct bench *bench, int n, struct sample *ret);

void run_raw(const struct bench *bench, int n, struct sample *ret);
void run_raw_pipelined(const struct bench *bench, int n, struct sample *ret);
void run_raw_often(const struct bench *bench, int n, struct sample *ret); /* writes as often */
void run_hiredis(const struct bench *bench, int n, struct sample *ret);
void run_holdfast(const struct bench *bench, int n, struct sample *ret);
/* A string lock, and what programs write by hand for one: SET NX PX and a script of three lines. */
void run_hiredis_string(const struct bench *bench, int n, struct sample *ret);
void run_holdfast_string(const struct bench *bench, int n, struct sample *ret);
void run_holdfast_confirmed(const struct bench *bench, int n, struct sample *ret); /* acks=1 */
void run_holdfast_manual(const struct bench *bench, int n, struct sample *ret);
void run_holdfast_thread(const struct bench *bench, int n, struct sample *ret);
void run_openssl(const struct bench *bench, int n, struct sample *ret);
void run_holdfast_tls(const struct bench *bench, int n, struct sample *ret);
void run_contending_threads(const struct bench *bench, int n, struct sample *ret);
void run_contending_processes(const struct bench *bench, int n, struct sample *ret);
void run_contending_fair(const struct bench *bench, int n, struct sample *ret); /* processes */

/* These print their own tables. */
void report_watchdog(const struct bench *bench);
void report_memory(const struct bench *bench);
void report_idle(const struct bench *bench);
void report_queue(const struct bench *bench);
void report_cohort(const struct bench *bench);

/* ---- measure.c ---- */

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
void check(int err, const char *what); /* dies unless HF_OK, with the library's words */

int64_t now_ns(void);
void sleep_ms(int64_t ms);
int connect_to(const struct bench *bench); /* a blocking socket */
struct redisContext *connect_hiredis(const struct bench *bench);

/* Around the measured part of a run. */
struct meter {
    int64_t start_ns;
    double client_cpu_s, server_cpu_s, commands, scripts;
};
void meter_start(const struct bench *bench, struct meter *meter);
void meter_stop(const struct bench *bench, const struct meter *meter, uint64_t pairs,
                struct sample *ret);

/* One number of INFO: the one behind a field, or behind a prefix of a line with a colon in it. */
double server_info(const struct bench *bench, const char *section, const char *field);
double script_calls(const struct bench *bench); /* scripts it was sent so far */

/* Runs `n` threads of `body`, which calls worker_ready() when it has warmed up, then counts pairs
 * for as long as worker_goes_on(), and measures the part in which all of them work. */
struct worker {
    const struct bench *bench;
    struct crew *crew;
    int index;
    _Atomic uint64_t pairs;
    void *shared;
};
void run_workers(const struct bench *bench, int n, void (*body)(struct worker *worker),
                 void *shared, struct sample *ret);
void worker_ready(struct worker *worker);
bool worker_goes_on(struct worker *worker);
static inline void worker_count(struct worker *worker) {
    uint64_t pairs = atomic_load_explicit(&worker->pairs, memory_order_relaxed);
    atomic_store_explicit(&worker->pairs, pairs + 1, memory_order_relaxed);
}

double median(double *values, int len);
double percentile(double *values, size_t len, double percent);

/* ---- raw.c: commands as bytes, shared with the pipelined row ---- */

/* The EVALSHA of an acquire (release) of `name` by `owner`, as the library would send it. */
size_t format_acquire(char *to, size_t size, const char *name, const char *owner);
size_t format_release(char *to, size_t size, const char *name, const char *owner);
void load_scripts(const struct bench *bench);

#endif
