/*
 * Many threads of few processes want one lock: each asks the server for it, or they pass it on among
 * themselves (HF_COHORT). And how long a single thread of another process waits.
 *
 * A wait is from the call of an acquire to its return. Each holder releases the lock at once and acquires
 * it again. The rows of a group run in turn, as everywhere.
 */
#include "bench.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAME "bench-cohort"
#define PROCESSES_MAX 9
#define THREADS_MAX 64
#define SAMPLES_MAX 400000
#define RUNS_MAX 25

struct shape {
    const char *title;
    int processes, threads;
    bool outsider; /* and one more thread, in a process of its own, which passes nothing on */
};

static const struct shape shapes[] = {
    {"1 process with 64 threads", 1, 64, false},
    {"8 processes with 8 threads each", 8, 8, false},
    {"1 process with 64 threads, and one thread elsewhere", 1, 64, true},
};

static const struct {
    const char *name;
    hf_kind kind;
    unsigned flags;
} rows[] = {{"plain", HF_PLAIN, 0},
            {"plain cohort", HF_PLAIN, HF_COHORT},
            {"fair", HF_FAIR, 0},
            {"fair cohort", HF_FAIR, HF_COHORT}};
#define ROWS (sizeof rows / sizeof rows[0])

struct arena {
    atomic_int ready, inside;
    atomic_bool measuring, stop;
    atomic_ullong pairs, outsider_pairs;
    _Atomic int64_t outsider_longest_ns;
    _Atomic size_t len;
    double wait_ms[SAMPLES_MAX];
};

struct comer {
    struct arena *arena;
    hf_client *client;
    size_t row;
    bool outsider;
};

static void note_wait(struct comer *comer, int64_t ns) {
    struct arena *arena = comer->arena;
    if (!atomic_load(&arena->measuring))
        return;
    if (comer->outsider) {
        atomic_fetch_add(&arena->outsider_pairs, 1);
        if (ns > atomic_load(&arena->outsider_longest_ns))
            atomic_store(&arena->outsider_longest_ns, ns); /* there is only one of them */
        return;
    }
    size_t at = atomic_fetch_add(&arena->len, 1);
    if (at < SAMPLES_MAX)
        arena->wait_ms[at] = (double)ns / 1e6;
}

static void take_turn(struct comer *comer, hf_lock *lock) {
    int64_t start_ns = now_ns();
    check(hf_lock_acquire(lock), "acquire");
    if (atomic_fetch_add(&comer->arena->inside, 1) != 0)
        die("two are inside");
    note_wait(comer, now_ns() - start_ns);
    atomic_fetch_sub(&comer->arena->inside, 1);
    check(hf_lock_release(lock), "release");
    atomic_fetch_add(&comer->arena->pairs, 1);
}

static void *come_and_go(void *arg) {
    struct comer *comer = arg;
    hf_lock *lock;
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    options.kind = rows[comer->row].kind;
    options.flags = comer->outsider ? 0 : rows[comer->row].flags;
    check(hf_lock_new_with(comer->client, NAME, strlen(NAME), &options, &lock), "new_with");
    atomic_fetch_add(&comer->arena->ready, 1);
    while (!atomic_load(&comer->arena->stop))
        take_turn(comer, lock);
    hf_lock_free(lock);
    return NULL;
}

_Noreturn static void be_process(const struct bench *bench, struct comer comer, int threads) {
    pthread_t ids[THREADS_MAX];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    check(hf_open(bench->url, NULL, &comer.client), "hf_open");
    check(hf_ping(comer.client), "ping");
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, come_and_go, &comer) != 0)
            die("no thread");
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    hf_close(comer.client);
    _exit(0);
}

struct found {
    double rate, p50_ms, p99_ms, longest_ms, outsider_rate, outsider_ms;
};

static struct found measure(const struct bench *bench, struct arena *arena) {
    sleep_ms(bench->warm_ms);
    unsigned long long before = atomic_load(&arena->pairs);
    atomic_store(&arena->measuring, true);
    sleep_ms(bench->run_ms);
    atomic_store(&arena->measuring, false);
    double seconds = (double)bench->run_ms / 1e3;
    struct found found = {.rate = (double)(atomic_load(&arena->pairs) - before) / seconds};
    size_t len = atomic_load(&arena->len);
    len = len < SAMPLES_MAX ? len : SAMPLES_MAX;
    found.p50_ms = percentile(arena->wait_ms, len, 50);
    found.p99_ms = percentile(arena->wait_ms, len, 99);
    found.longest_ms = percentile(arena->wait_ms, len, 100);
    found.outsider_rate = (double)atomic_load(&arena->outsider_pairs) / seconds;
    found.outsider_ms = (double)atomic_load(&arena->outsider_longest_ns) / 1e6;
    return found;
}

static struct found run_row(const struct bench *bench, const struct shape *shape, size_t row) {
    pid_t children[PROCESSES_MAX];
    int len = shape->processes + shape->outsider;
    struct arena *arena =
        mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED)
        die("mmap: %s", strerror(errno));
    fflush(NULL);
    for (int i = 0; i < len; i++) {
        struct comer comer = {.arena = arena, .row = row, .outsider = i == shape->processes};
        children[i] = fork();
        if (children[i] < 0)
            die("fork: %s", strerror(errno));
        if (children[i] == 0)
            be_process(bench, comer, comer.outsider ? 1 : shape->threads);
    }
    while (atomic_load(&arena->ready) < shape->processes * shape->threads + shape->outsider)
        sleep_ms(1);
    struct found found = measure(bench, arena);
    atomic_store(&arena->stop, true);
    for (int i = 0; i < len; i++) {
        int status;
        if (waitpid(children[i], &status, 0) < 0 || status != 0)
            die("a process failed");
    }
    munmap(arena, sizeof *arena);
    return found;
}

static double median_of(const struct found *found, int runs, size_t field) {
    double values[RUNS_MAX];
    for (int i = 0; i < runs; i++)
        values[i] = *(const double *)(const void *)((const char *)&found[i] + field);
    return median(values, runs);
}

static void print_row(const struct bench *bench, const struct shape *shape, const char *name,
                      const struct found *found, double first_rate) {
    double rate = median_of(found, bench->runs, offsetof(struct found, rate));
    printf("| %-12s | %7.0f | %6.2f | %6.2f | %6.2f | %8.2f |", name, rate, rate / first_rate,
           median_of(found, bench->runs, offsetof(struct found, p50_ms)),
           median_of(found, bench->runs, offsetof(struct found, p99_ms)),
           median_of(found, bench->runs, offsetof(struct found, longest_ms)));
    if (shape->outsider)
        printf(" %9.0f | %8.2f |",
               median_of(found, bench->runs, offsetof(struct found, outsider_rate)),
               median_of(found, bench->runs, offsetof(struct found, outsider_ms)));
    printf("\n");
}

static void report_shape(const struct bench *bench, const struct shape *shape) {
    static struct found found[ROWS][RUNS_MAX];
    for (int run = 0; run < bench->runs; run++)
        for (size_t row = 0; row < ROWS; row++)
            found[row][run] = run_row(bench, shape, row);
    double first = median_of(found[0], bench->runs, offsetof(struct found, rate));
    printf("\n%s want one lock: waits in ms\n\n", shape->title);
    printf("| cohort       | pairs/s |  ratio |    p50 |    p99 |  longest |%s\n",
           shape->outsider ? " elsewhere |  longest |" : "");
    printf("|--------------|--------:|-------:|-------:|-------:|---------:|%s\n",
           shape->outsider ? "----------:|---------:|" : "");
    for (size_t row = 0; row < ROWS; row++)
        print_row(bench, shape, rows[row].name, found[row], first);
}

void report_cohort(const struct bench *bench) {
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        report_shape(bench, &shapes[i]);
}
