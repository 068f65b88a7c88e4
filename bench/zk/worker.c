/*
 * One run of ZooKeeper's benchmark, as bench/zk/run starts it:
 *
 *     hf_bench_zk holdfast|raw PORT PATH CLIENTS PAIRS SERVER
 *     hf_bench_zk hold PORT PATH
 *
 * Each of the clients, with a session and a thread of its own, takes and gives back the lock PATH so many times, all of
 * them the same one; raw is for one client. Prints the pairs per second of all, the median of the first client's
 * in microseconds, and the microseconds of processor time that a pair has cost this process and the server, whose pid
 * SERVER is. Bench.java does the same with Curator.
 *
 * The second holds the lock and does nothing else, until its input ends. It prints a line when it has the lock.
 */
#include "bench/zk/worker.h"

#include <holdfast/holdfast.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WARM = 200, MAX_CLIENTS = 64 };

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static void check(int err, const char *what) {
    if (err != HF_OK)
        die("%s: %s", what, hf_last_error()->text);
}

static int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Of all threads of a process so far; the kernel counts in hundredths of a second. */
static int64_t processor_us(const char *pid) {
    char path[64], text[1024];
    long long user, system;
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        die("no such process: %s", pid);
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = '\0';
    const char *behind_name = strrchr(text, ')');
    if (behind_name == NULL ||
        sscanf(behind_name, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld", &user,
               &system) != 2)
        die("%s cannot be read", path);
    return (user + system) * (1000000 / sysconf(_SC_CLK_TCK));
}

struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    hf_client *client;
    hf_lock *lock;
    struct raw *raw; /* instead of both */
    int64_t *ns;     /* of each pair */
    int pairs;
};

static void play(struct worker *worker, int64_t *ns, int pairs) {
    for (int i = 0; i < pairs; i++) {
        int64_t begin = now_ns();
        if (worker->raw != NULL) {
            raw_acquire(worker->raw);
            raw_release(worker->raw);
        } else {
            check(hf_lock_acquire(worker->lock), "acquire");
            check(hf_lock_release(worker->lock), "release");
        }
        if (ns != NULL)
            ns[i] = now_ns() - begin;
    }
}

static void *run(void *arg) {
    struct worker *worker = arg;
    pthread_barrier_wait(worker->start);
    play(worker, worker->ns, worker->pairs);
    return NULL;
}

static void open_worker(struct worker *worker, bool raw, int port, const char *path) {
    char url[64];
    snprintf(url, sizeof url, "zk://127.0.0.1:%d", port);
    if (raw) {
        worker->raw = raw_open(port, path);
    } else {
        hf_options options = HF_OPTIONS_INIT;
        options.watchdog_ms = 10000;
        check(hf_open(url, &options, &worker->client), "hf_open");
        check(hf_lock_new(worker->client, path + 1, &worker->lock),
              "hf_lock_new"); /* without "/" */
    }
    worker->ns = calloc((size_t)worker->pairs, sizeof *worker->ns);
    if (worker->ns == NULL)
        die("out of memory");
    play(worker, NULL, WARM);
}

static void close_worker(struct worker *worker) {
    if (worker->raw != NULL) {
        raw_close(worker->raw);
    } else {
        hf_lock_free(worker->lock);
        hf_close(worker->client);
    }
    free(worker->ns);
}

static int by_size(const void *a, const void *b) {
    const int64_t *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static int hold(int port, const char *path) {
    struct worker worker = {.pairs = 1};
    open_worker(&worker, false, port, path);
    check(hf_lock_acquire(worker.lock), "acquire");
    puts("held");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    check(hf_lock_release(worker.lock), "release");
    close_worker(&worker);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "hold") == 0)
        return hold(atoi(argv[2]), argv[3]);
    if (argc != 7)
        die("usage: hf_bench_zk holdfast|raw PORT PATH CLIENTS PAIRS SERVER, or hold PORT PATH");
    int port = atoi(argv[2]), clients = atoi(argv[4]), pairs = atoi(argv[5]);
    if (clients < 1 || clients > MAX_CLIENTS || pairs < 1)
        die("from 1 to %d clients, and some pairs", MAX_CLIENTS);
    struct worker workers[MAX_CLIENTS] = {0};
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)clients + 1);
    for (int i = 0; i < clients; i++) {
        workers[i].pairs = pairs;
        workers[i].start = &start;
        open_worker(&workers[i], strcmp(argv[1], "raw") == 0, port, argv[3]);
    }
    for (int i = 0; i < clients; i++)
        if (pthread_create(&workers[i].thread, NULL, run, &workers[i]) != 0)
            die("no thread");
    int64_t ours = processor_us("self"), theirs = processor_us(argv[6]);
    pthread_barrier_wait(&start);
    int64_t begin = now_ns();
    for (int i = 0; i < clients; i++)
        pthread_join(workers[i].thread, NULL);
    double seconds = (double)(now_ns() - begin) / 1e9;
    qsort(workers[0].ns, (size_t)pairs, sizeof(int64_t), by_size);
    ours = (processor_us("self") - ours) / (clients * pairs);
    theirs = (processor_us(argv[6]) - theirs) / (clients * pairs);
    printf("%.1f %lld %lld %lld\n", clients * pairs / seconds,
           (long long)(workers[0].ns[pairs / 2] / 1000), (long long)ours, (long long)theirs);
    for (int i = 0; i < clients; i++)
        close_worker(&workers[i]);
    pthread_barrier_destroy(&start);
    return 0;
}
