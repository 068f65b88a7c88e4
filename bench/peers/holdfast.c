/*
 * holdfast in the rows that its peers are measured in, one JSON line per run, as they print them:
 *     hf_bench_peers URL [SECONDS [RUNS [WARMUP [ROW]]]]     ROW: only those whose names contain it
 *     hf_bench_peers URL takeover NAME     for each line that it reads: acquires that string lock, writes when, on the
 *                                          monotonic clock in nanoseconds, and releases it
 *     hf_bench_peers URL loss KIND NAME    for each line that it reads: acquires that lock (KIND
 *                                          plain or string), writes "tracked" once the server
 *                                          reports its changes, and when it is told that the hold
 *                                          is lost
 *
 * A sample is one lock+unlock pair as its caller sees it; in the drain row, from the start of a round
 * to the caller's own unlock, and there is what the holds alone took: a sleep is longer than it is asked for.
 * Clients that contend are clients of their own, in threads of one process,
 * as Redisson's are.
 */
#include <holdfast/holdfast.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define WORKERS_MAX 64
#define CLIENTS 8
#define SAMPLES_MAX                                                                                \
    400000 /* per worker; what does not fit is counted, but has no share in p50 and p99 */
#define HOLD_NS 1000000

struct worker {
    hf_lock *lock;
    pthread_t thread;
    float *us;
    size_t len, pairs;
    int64_t begun_ns, end_ns;
    int64_t held_ns; /* drain */
    pthread_barrier_t *barrier;
    atomic_bool *over;
    int *in_flight; /* asynchronous: of the dispatching thread */
};

static int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void check(int err, const char *what) {
    if (err == HF_OK)
        return;
    fprintf(stderr, "hf_bench_peers: %s: %s (%s)\n", what, hf_error_name(err),
            hf_last_error()->text);
    exit(1);
}

static void add_sample(struct worker *worker, int64_t ns) {
    if (worker->len < SAMPLES_MAX)
        worker->us[worker->len++] = (float)((double)ns / 1e3);
    worker->pairs++;
}

/* ---- Workloads ---- */

static void *run_pairs(void *arg) {
    struct worker *worker = arg;
    pthread_barrier_wait(worker->barrier);
    for (int64_t start_ns = now_ns(); start_ns < worker->end_ns;) {
        check(hf_lock_acquire(worker->lock), "acquire");
        check(hf_lock_release(worker->lock), "release");
        int64_t done_ns = now_ns();
        add_sample(worker, done_ns - start_ns);
        start_ns = done_ns;
    }
    return NULL;
}

static void *run_drain(void *arg) {
    struct worker *worker = arg;
    const struct timespec hold = {0, HOLD_NS};
    for (;;) {
        /* NOLINTNEXTLINE(bugprone-posix-return): this one answer is negative, by POSIX */
        if (pthread_barrier_wait(worker->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            atomic_store(worker->over, now_ns() >= worker->end_ns);
        pthread_barrier_wait(worker->barrier);
        if (atomic_load(worker->over))
            return NULL;
        int64_t start_ns = now_ns();
        check(hf_lock_acquire(worker->lock), "acquire");
        int64_t held_ns = now_ns();
        nanosleep(&hold, NULL);
        worker->held_ns += now_ns() - held_ns;
        check(hf_lock_release(worker->lock), "release");
        add_sample(worker, now_ns() - start_ns);
    }
}

static void start_pair(struct worker *worker);

static void on_released(hf_op *op, const hf_result *result, void *user) {
    struct worker *worker = user;
    (void)op;
    check(result->code, "release");
    add_sample(worker, now_ns() - worker->begun_ns);
    if (now_ns() < worker->end_ns)
        start_pair(worker);
    else
        --*worker->in_flight;
}

static void on_acquired(hf_op *op, const hf_result *result, void *user) {
    struct worker *worker = user;
    (void)op;
    check(result->code, "acquire");
    check(hf_lock_release_start(worker->lock, result->owner, on_released, worker, NULL), "start");
}

static void start_pair(struct worker *worker) {
    worker->begun_ns = now_ns();
    check(hf_lock_acquire_start(worker->lock, NULL, on_acquired, worker, NULL), "start");
}

/* ---- Rows ---- */

struct row {
    const char *name;
    int workers, clients;
    bool one_name, async;
    hf_kind kind;
    void *(*body)(void *);
};

static const struct row rows[] = {
    {"1 thread", 1, 1, false, false, HF_PLAIN, run_pairs},
    {"8 threads", 8, 1, false, false, HF_PLAIN, run_pairs},
    {"64 threads", 64, 1, false, false, HF_PLAIN, run_pairs},
    {"64 async", 64, 1, false, true, HF_PLAIN, NULL},
    {"8 clients contend", CLIENTS, CLIENTS, true, false, HF_PLAIN, run_pairs},
    {"8 clients, fair", CLIENTS, CLIENTS, true, false, HF_FAIR, run_pairs},
    {"8 clients drain", CLIENTS, CLIENTS, true, false, HF_PLAIN, run_drain},
};

static void run_row(const struct row *row, hf_client **clients, struct worker *workers,
                    double seconds) {
    pthread_barrier_t barrier;
    atomic_bool over = false;
    int in_flight = row->workers;
    int64_t end_ns = now_ns() + (int64_t)(seconds * 1e9);
    pthread_barrier_init(&barrier, NULL, (unsigned)row->workers);
    for (int i = 0; i < row->workers; i++) {
        struct worker *worker = &workers[i];
        worker->len = worker->pairs = 0;
        worker->held_ns = 0;
        worker->end_ns = end_ns;
        worker->barrier = &barrier;
        worker->over = &over;
        worker->in_flight = &in_flight;
        if (row->async)
            start_pair(worker);
        else
            pthread_create(&worker->thread, NULL, row->body, worker);
    }
    while (row->async && in_flight > 0)
        hf_dispatch(clients[0], 1000);
    for (int i = 0; !row->async && i < row->workers; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
}

static int compare(const void *a, const void *b) {
    float x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double resident_mb(void) {
    long pages = 0, resident = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    if (statm == NULL || fscanf(statm, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (statm != NULL)
        fclose(statm);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1048576;
}

static void report(const struct row *row, const struct worker *workers, int run, double seconds,
                   double cpu) {
    size_t len = 0, pairs = 0;
    int64_t held_ns = 0;
    for (int i = 0; i < row->workers; i++) {
        len += workers[i].len;
        pairs += workers[i].pairs;
        held_ns += workers[i].held_ns;
    }
    double rss = resident_mb(); /* before what follows, which is not the library's */
    float *all = malloc((len + 1) * sizeof *all);
    if (all == NULL)
        exit(1);
    size_t at = 0;
    for (int i = 0; i < row->workers; i++) {
        memcpy(all + at, workers[i].us, workers[i].len * sizeof *all);
        at += workers[i].len;
    }
    qsort(all, len, sizeof *all, compare);
    printf(
        "{\"impl\":\"holdfast\",\"row\":\"%s\",\"pairs_per_s\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
        "\"cpu_s\":%.3f,\"rss_mb\":%.1f,\"pairs\":%zu,\"run\":%d,\"held_s\":%.3f,\"seconds\":%.3f}\n",
        row->name, (double)pairs / seconds, len > 0 ? all[len / 2] : 0,
        len > 0 ? all[len * 99 / 100] : 0, cpu, rss, pairs, run, (double)held_ns / 1e9, seconds);
    fflush(stdout);
    free(all);
}

static void measure(const struct row *row, const char *url, double seconds, int runs,
                    double warm_up) {
    hf_client *clients[CLIENTS] = {NULL};
    static struct worker workers[WORKERS_MAX];
    hf_options options = HF_OPTIONS_INIT;
    hf_lock_options kind = HF_LOCK_OPTIONS_INIT;
    kind.kind = row->kind;
    options.flags = row->async ? HF_MANUAL_DISPATCH : 0;
    for (int i = 0; i < row->clients; i++)
        check(hf_open(url, &options, &clients[i]), "open");
    for (int i = 0; i < row->workers; i++) {
        char name[64];
        snprintf(name, sizeof name, "bench-holdfast-%s-%d", row->name, row->one_name ? 0 : i);
        check(hf_lock_new_with(clients[row->one_name ? i : 0], name, strlen(name), &kind,
                               &workers[i].lock),
              "lock");
        workers[i].us = malloc(SAMPLES_MAX * sizeof(float));
        if (workers[i].us == NULL)
            exit(1);
    }
    run_row(row, clients, workers, warm_up);
    for (int run = 1; run <= runs; run++) {
        double cpu = cpu_seconds();
        int64_t start_ns = now_ns();
        run_row(row, clients, workers, seconds);
        report(row, workers, run, (double)(now_ns() - start_ns) / 1e9, cpu_seconds() - cpu);
    }
    for (int i = 0; i < row->workers; i++) {
        hf_lock_free(workers[i].lock);
        free(workers[i].us);
    }
    for (int i = 0; i < row->clients; i++)
        hf_close(clients[i]);
}

/* ---- A waiter behind a foreign owner ---- */

static int take_over(const char *url, const char *name) {
    hf_lock_options kind = HF_LOCK_OPTIONS_INIT;
    hf_client *client;
    hf_lock *lock;
    char line[16];
    kind.kind = HF_STRING;
    check(hf_open(url, NULL, &client), "open");
    check(hf_lock_new_with(client, name, strlen(name), &kind, &lock), "lock");
    check(hf_ping(client), "ping");
    while (fgets(line, sizeof line, stdin) != NULL) {
        check(hf_lock_acquire(lock), "acquire");
        printf("%lld\n", (long long)now_ns());
        fflush(stdout);
        check(hf_lock_release(lock), "release");
    }
    hf_lock_free(lock);
    hf_close(client);
    return 0;
}

/* ---- A holder whose lock is deleted ---- */

static void on_event(hf_lock *lock, const hf_event *event, void *user) {
    (void)lock;
    if (event->kind == HF_EVENT_LOST)
        atomic_store((_Atomic int64_t *)user, now_ns());
}

static void wait_tracked(hf_client *client) {
    const struct timespec pause = {0, 1000000};
    hf_stats stats = HF_STATS_INIT;
    do {
        nanosleep(&pause, NULL);
        check(hf_client_stats(client, &stats), "stats");
    } while (stats.tracked == 0);
}

static int lose(const char *url, const char *kind, const char *name) {
    const struct timespec pause = {0, 1000000};
    hf_lock_options options = HF_LOCK_OPTIONS_INIT;
    hf_client *client;
    hf_lock *lock;
    _Atomic int64_t lost_ns = 0;
    char line[16];
    options.kind = strcmp(kind, "string") == 0 ? HF_STRING : HF_PLAIN;
    check(hf_open(url, NULL, &client), "open");
    check(hf_lock_new_with(client, name, strlen(name), &options, &lock), "lock");
    check(hf_lock_on_lost(lock, on_event, &lost_ns), "on_lost");
    while (fgets(line, sizeof line, stdin) != NULL) {
        atomic_store(&lost_ns, 0);
        check(hf_lock_acquire(lock), "acquire");
        wait_tracked(client);
        puts("tracked");
        fflush(stdout);
        while (atomic_load(&lost_ns) == 0)
            nanosleep(&pause, NULL);
        printf("%lld\n", (long long)atomic_load(&lost_ns));
        fflush(stdout);
        int err = hf_lock_release(lock);
        check(err == HF_ELOST ? HF_OK : err, "release");
    }
    hf_lock_free(lock);
    hf_close(client);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: hf_bench_peers URL [SECONDS [RUNS [WARMUP [ROW]]]]\n");
        return 64;
    }
    if (argc == 4 && strcmp(argv[2], "takeover") == 0)
        return take_over(argv[1], argv[3]);
    if (argc == 5 && strcmp(argv[2], "loss") == 0)
        return lose(argv[1], argv[3], argv[4]);
    double seconds = argc > 2 ? atof(argv[2]) : 3, warm_up = argc > 4 ? atof(argv[4]) : 0.5;
    int runs = argc > 3 ? atoi(argv[3]) : 5;
    const char *only = argc > 5 ? argv[5] : "";
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strstr(rows[i].name, only) != NULL)
            measure(&rows[i], argv[1], seconds, runs, warm_up);
    return 0;
}
