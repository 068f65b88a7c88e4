/*
 * Time, processor time, and a crew of threads that work at the same time.
 *
 * Called by every row. Nothing here is fast or needs to be: the measured part of a run lies between
 * two calls. What the workers share is one struct on the stack of run_workers(), atomics and a
 * barrier; it outlives them because they are joined.
 *
 * Processor time is kept beside wall time because this is often run on a machine that others use
 * too: a run that was interrupted takes longer, but it does not take more processor time.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

void die(const char *format, ...) {
    va_list args;
    va_start(args, format);
    fprintf(stderr, "bench: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

void check(int err, const char *what) {
    if (err != HF_OK)
        die("%s: %s: %s", what, hf_error_name(err), hf_last_error()->text);
}

static double seconds_of(clockid_t clock) {
    struct timespec ts;
    if (clock_gettime(clock, &ts) != 0)
        die("clock: %s", strerror(errno));
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int64_t now_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void sleep_ms(int64_t ms) {
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
    while (nanosleep(&ts, &ts) != 0 && errno == EINTR)
        continue;
}

/* ---- The server ---- */

static int connect_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = strlen(path) + 1;
    if (size > sizeof address.sun_path)
        die("the path of the socket is too long");
    memcpy(address.sun_path, path, size);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to %s: %s", path, strerror(errno));
    return fd;
}

static int connect_tcp(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to port %d: %s", port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

int connect_to(const struct bench *bench) {
    return bench->path != NULL ? connect_unix(bench->path) : connect_tcp(bench->port);
}

double server_info(const struct bench *bench, const char *section, const char *field) {
    char text[16384], wanted[64];
    int fd = connect_to(bench), len = snprintf(text, sizeof text, "INFO %s\r\n", section);
    if (send(fd, text, (size_t)len, MSG_NOSIGNAL) != len)
        die("INFO: %s", strerror(errno));
    size_t have = 0, need = 1;
    while (have < need) {
        ssize_t got = recv(fd, text + have, sizeof text - 1 - have, 0);
        if (got <= 0)
            die("INFO: no answer");
        have += (size_t)got;
        text[have] = '\0';
        char *body = strchr(text, '\n');
        need =
            body == NULL ? have + 1 : (size_t)(body + 1 - text) + strtoul(text + 1, NULL, 10) + 2;
    }
    close(fd);
    snprintf(wanted, sizeof wanted, strchr(field, ':') != NULL ? "\n%s" : "\n%s:", field);
    const char *line = strstr(text, wanted);
    return line != NULL ? strtod(line + strlen(wanted), NULL) : 0;
}

double script_calls(const struct bench *bench) {
    /* "cmdstat_evalsha:calls=123,..." */
    return server_info(bench, "commandstats", "cmdstat_evalsha:calls=");
}

static double server_cpu_s(const struct bench *bench) {
    clockid_t clock;
    if (clock_getcpuclockid(bench->server_pid, &clock) != 0)
        die("no such process: %ld", (long)bench->server_pid);
    return seconds_of(clock);
}

/* ---- Meters ---- */

void meter_start(const struct bench *bench, struct meter *meter) {
    meter->commands = server_info(bench, "stats", "total_commands_processed");
    meter->scripts = script_calls(bench);
    meter->server_cpu_s = server_cpu_s(bench);
    meter->client_cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    meter->start_ns = now_ns();
}

void meter_stop(const struct bench *bench, const struct meter *meter, uint64_t pairs,
                struct sample *ret) {
    ret->seconds = (double)(now_ns() - meter->start_ns) / 1e9;
    ret->client_cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - meter->client_cpu_s;
    ret->server_cpu_s = server_cpu_s(bench) - meter->server_cpu_s;
    ret->commands = server_info(bench, "stats", "total_commands_processed") - meter->commands;
    ret->scripts = script_calls(bench) - meter->scripts;
    ret->pairs = (double)pairs;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double percentile(double *values, size_t len, double percent) {
    if (len == 0)
        return 0;
    qsort(values, len, sizeof *values, compare);
    return values[(size_t)((double)(len - 1) * percent / 100)];
}

double median(double *values, int len) {
    return percentile(values, (size_t)len, 50);
}

/* ---- Crews ---- */

struct crew {
    void (*body)(struct worker *worker);
    pthread_barrier_t ready;
    atomic_bool stop;
};

void worker_ready(struct worker *worker) {
    pthread_barrier_wait(&worker->crew->ready);
}

bool worker_goes_on(struct worker *worker) {
    return !atomic_load_explicit(&worker->crew->stop, memory_order_relaxed);
}

static void *worker_main(void *arg) {
    struct worker *worker = arg;
    worker->crew->body(worker);
    return NULL;
}

static uint64_t count_pairs(struct worker *workers, int n) {
    uint64_t pairs = 0;
    for (int i = 0; i < n; i++)
        pairs += atomic_load_explicit(&workers[i].pairs, memory_order_relaxed);
    return pairs;
}

void run_workers(const struct bench *bench, int n, void (*body)(struct worker *worker),
                 void *shared, struct sample *ret) {
    struct crew crew = {.body = body};
    struct worker *workers = calloc((size_t)n, sizeof *workers);
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    if (workers == NULL || threads == NULL)
        die("out of memory");
    pthread_barrier_init(&crew.ready, NULL, (unsigned)n + 1);
    for (int i = 0; i < n; i++) {
        workers[i].bench = bench;
        workers[i].crew = &crew;
        workers[i].index = i;
        workers[i].shared = shared;
        if (pthread_create(&threads[i], NULL, worker_main, &workers[i]) != 0)
            die("cannot start thread %d", i);
    }
    pthread_barrier_wait(&crew.ready);
    sleep_ms(bench->warm_ms);
    struct meter meter;
    meter_start(bench, &meter);
    uint64_t before = count_pairs(workers, n);
    sleep_ms(bench->run_ms);
    meter_stop(bench, &meter, count_pairs(workers, n) - before, ret);
    atomic_store(&crew.stop, true);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crew.ready);
    free(workers);
    free(threads);
}
