/* One run of the cluster's benchmark, started by bench/cluster/run: threads of one client that
 * acquire and release, each a lock of its own.
 *
 *     hf_bench_cluster URL THREADS SECONDS      for so long, after half a second of warming up
 *     hf_bench_cluster URL THREADS PAIRS pairs  so many each, for those who count what it does
 *
 * Prints "PAIRS SECONDS CPU": the pairs of all of them, how long they took, and the processor
 * seconds of this process meanwhile. */
#include <holdfast/holdfast.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX 64
#define WARM_UP_S 0.5

struct worker {
    pthread_t thread;
    hf_lock *lock;
    long wanted; /* pairs; 0: until it is over */
    atomic_long pairs;
    const atomic_bool *over;
};

static double seconds_of(clockid_t clock) {
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void sleep_s(double seconds) {
    struct timespec ts = {.tv_sec = (time_t)seconds};
    ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
    nanosleep(&ts, NULL);
}

static void check(int err, const char *what) {
    if (err == HF_OK)
        return;
    fprintf(stderr, "hf_bench_cluster: %s: %s\n", what, hf_last_error()->text);
    exit(1);
}

static bool goes_on(const struct worker *worker) {
    long pairs = atomic_load_explicit(&worker->pairs, memory_order_relaxed);
    return worker->wanted > 0 ? pairs < worker->wanted : !atomic_load(worker->over);
}

static void *work(void *arg) {
    struct worker *worker = arg;
    while (goes_on(worker)) {
        check(hf_lock_acquire(worker->lock), "acquire");
        check(hf_lock_release(worker->lock), "release");
        atomic_fetch_add_explicit(&worker->pairs, 1, memory_order_relaxed);
    }
    return NULL;
}

static long count(struct worker *workers, int n) {
    long pairs = 0;
    for (int i = 0; i < n; i++)
        pairs += atomic_load(&workers[i].pairs);
    return pairs;
}

struct reading {
    double at_s, cpu_s;
    long pairs;
};

static struct reading take(struct worker *workers, int n) {
    return (struct reading){.at_s = seconds_of(CLOCK_MONOTONIC),
                            .cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID),
                            .pairs = count(workers, n)};
}

int main(int argc, char **argv) {
    static struct worker workers[THREADS_MAX];
    atomic_bool over = false;
    hf_client *client;
    if (argc < 4)
        return 2;
    int n = (int)strtol(argv[2], NULL, 10);
    bool counted = argc > 4 && strcmp(argv[4], "pairs") == 0;
    if (n < 1 || n > THREADS_MAX)
        return 2;
    check(hf_open(argv[1], NULL, &client), "hf_open");
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "bench-%d", i);
        check(hf_lock_new(client, name, &workers[i].lock), "hf_lock_new");
        workers[i].wanted = counted ? strtol(argv[3], NULL, 10) : 0;
        workers[i].over = &over;
    }
    struct reading first = take(workers, n);
    for (int i = 0; i < n; i++)
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            return 1;
    if (!counted) {
        sleep_s(WARM_UP_S);
        first = take(workers, n);
        sleep_s(strtod(argv[3], NULL));
    }
    struct reading last = take(workers, n);
    atomic_store(&over, true);
    for (int i = 0; i < n; i++)
        pthread_join(workers[i].thread, NULL);
    if (counted)
        last = take(workers, n);
    printf("%ld %.6f %.6f\n", last.pairs - first.pairs, last.at_s - first.at_s,
           last.cpu_s - first.cpu_s);
    for (int i = 0; i < n; i++)
        hf_lock_free(workers[i].lock);
    hf_close(client);
    return 0;
}
