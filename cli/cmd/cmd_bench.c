/* holdfast bench: measures a server's lock performance from this machine.
 *
 * First 1, 8 and 64 threads of one client acquire and release, each its own lock. Then the
 * hand-over time between two clients, which stand for two processes: from a release to the waiter's
 * acquire. Each step runs for the given duration on unique names, with leases that expire if this
 * process is killed.
 *
 * Each thread writes its own counters, which are read after it is joined. */
#include "cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LEASE_MS 30000
#define SAMPLES_MAX 10000
#define ENQUEUE_MS 3 /* by then the waiter is usually queued */
#define DURATION_MAX_MS 60000

enum { ID_DURATION = 1, ID_PREFIX };

static const struct option_spec specs[] = {
    {OPTION_VALUE, ID_DURATION, 'd', "duration", false},
    {OPTION_VALUE, ID_PREFIX, 0, "prefix", false},
    COMMON_OPTIONS,
    {OPTION_END, 0, 0, NULL, false},
};

static const int thread_counts[] = {1, 8, 64};
#define STEPS 3
#define THREADS_MAX 64

struct bench {
    struct connection *connection;
    const char *prefix;
    int64_t duration_ms;
    hf_client *client, *other; /* the other client has the waiter */
    int64_t pairs_per_s[STEPS];
    int64_t half_us, most_us; /* p50 and p99 of hand-overs */
    size_t handovers;
};

static int take(void *user, int id, char *value, const char *shown) {
    struct bench *bench = user;
    if (id == ID_PREFIX) {
        bench->prefix = value;
        return 0;
    }
    if (id != ID_DURATION) {
        common_option(bench->connection, id);
        return 0;
    }
    if (!parse_duration(value, &bench->duration_ms) || bench->duration_ms == 0 ||
        bench->duration_ms > DURATION_MAX_MS)
        return usage_error("bench", "%s: '%s' is not a duration of up to a minute", shown, value);
    return 0;
}

static int64_t now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int new_lock(const struct bench *bench, hf_client *client, const char *what, int number,
                    hf_lock **ret_lock) {
    char name[512];
    snprintf(name, sizeof name, "%sholdfast-bench-%s-%s-%d", bench->prefix,
             hf_client_id(bench->client), what, number);
    return hf_lock_new(client, name, ret_lock);
}

static int acquire(hf_lock *lock) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = LEASE_MS;
    options.wait_ms = LEASE_MS;
    return hf_lock_acquire_with(lock, &options, NULL);
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

struct worker {
    pthread_t thread;
    hf_lock *lock;
    int64_t until_us, pairs;
    int code;
    hf_error error;
};

/* At least one pair, however late the thread starts. */
static void *work(void *arg) {
    struct worker *worker = arg;
    while (worker->code == HF_OK && (worker->pairs == 0 || now_us() < worker->until_us)) {
        worker->code = acquire(worker->lock);
        if (worker->code == HF_OK)
            worker->code = hf_lock_release(worker->lock);
        worker->pairs += worker->code == HF_OK;
    }
    worker->error = *hf_last_error();
    return NULL;
}

/* Returns 0 or an exit status. */
static int end_workers(struct worker *workers, int started, int64_t *ret_pairs) {
    int status = 0;
    *ret_pairs = 0;
    for (int i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        hf_lock_free(workers[i].lock);
        *ret_pairs += workers[i].pairs;
        if (workers[i].code != HF_OK && status == 0)
            status = library_error(workers[i].code, &workers[i].error, "lock", NULL);
    }
    return status;
}

static int measure_pairs(struct bench *bench, int threads, int64_t *ret_per_s) {
    static struct worker workers[THREADS_MAX];
    int64_t start_us = now_us(), pairs;
    int started = 0;
    memset(workers, 0, sizeof workers);
    for (; started < threads; started++) {
        struct worker *worker = &workers[started];
        worker->until_us = start_us + bench->duration_ms * 1000;
        if (new_lock(bench, bench->client, "pairs", started, &worker->lock) != HF_OK)
            break;
        if (pthread_create(&worker->thread, NULL, work, worker) != 0) {
            hf_lock_free(worker->lock);
            break;
        }
    }
    int status = end_workers(workers, started, &pairs);
    int64_t took_us = now_us() - start_us;
    if (status == 0 && started < threads) {
        say(LEVEL_ERROR, "cannot start %d threads", threads);
        status = STATUS_OS;
    }
    *ret_per_s = pairs * 1000000 / (took_us > 0 ? took_us : 1);
    return status;
}

/* ---- Hand-overs ------------------------------------------------------------------------------ */

/* The waiter's thread: waits for `go`, acquires, and records when it got the lock. */
struct waiter {
    pthread_t thread;
    hf_lock *lock;
    sem_t go, done;
    atomic_bool over;
    int64_t got_us;
    int code;
    hf_error error;
};

static void *wait_queued(void *arg) {
    struct waiter *waiter = arg;
    for (;;) {
        sem_wait(&waiter->go);
        if (atomic_load(&waiter->over))
            return NULL;
        waiter->code = acquire(waiter->lock);
        waiter->got_us = now_us();
        if (waiter->code == HF_OK)
            waiter->code = hf_lock_release(waiter->lock);
        waiter->error = *hf_last_error();
        sem_post(&waiter->done);
    }
}

static int hand_over(hf_lock *lock, struct waiter *waiter, int64_t *ret_us) {
    const struct timespec moment = {.tv_nsec = ENQUEUE_MS * 1000000L};
    int code = acquire(lock);
    if (code != HF_OK)
        return code;
    sem_post(&waiter->go);
    nanosleep(&moment, NULL);
    int64_t released_us = now_us();
    code = hf_lock_release(lock);
    sem_wait(&waiter->done);
    *ret_us = waiter->got_us - released_us;
    return code;
}

static int compare(const void *a, const void *b) {
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return (one > other) - (one < other);
}

static int sample(struct bench *bench, hf_lock *lock, struct waiter *waiter) {
    static int64_t took_us[SAMPLES_MAX];
    int64_t until_us = now_us() + bench->duration_ms * 1000, first_us;
    size_t len = 0;
    int code = hand_over(lock, waiter, &first_us); /* warm-up: opens the connections */
    while (code == HF_OK && waiter->code == HF_OK && len < SAMPLES_MAX &&
           (len == 0 || now_us() < until_us)) {
        code = hand_over(lock, waiter, &took_us[len]);
        len += code == HF_OK;
    }
    if (code != HF_OK)
        return library_error(code, hf_last_error(), "lock", NULL);
    if (waiter->code != HF_OK)
        return library_error(waiter->code, &waiter->error, "wait for a lock", NULL);
    qsort(took_us, len, sizeof took_us[0], compare);
    bench->half_us = took_us[len / 2];
    bench->most_us = took_us[len * 99 / 100];
    bench->handovers = len;
    return 0;
}

static int measure_handover(struct bench *bench) {
    static struct waiter waiter;
    hf_lock *lock = NULL;
    int status = STATUS_OS;
    sem_init(&waiter.go, 0, 0);
    sem_init(&waiter.done, 0, 0);
    if (new_lock(bench, bench->client, "turns", 0, &lock) == HF_OK &&
        new_lock(bench, bench->other, "turns", 0, &waiter.lock) == HF_OK &&
        pthread_create(&waiter.thread, NULL, wait_queued, &waiter) == 0) {
        status = sample(bench, lock, &waiter);
        atomic_store(&waiter.over, true);
        sem_post(&waiter.go);
        pthread_join(waiter.thread, NULL);
    }
    hf_lock_free(waiter.lock);
    hf_lock_free(lock);
    return status;
}

/* ---- Printing -------------------------------------------------------------------------------- */

static int report_json(const struct bench *bench) {
    json_t *pairs = json_array();
    for (int i = 0; i < STEPS; i++)
        json_array_append_new(pairs, json_pack("{s:i, s:I}", "threads", thread_counts[i],
                                               "pairs_per_s", (json_int_t)bench->pairs_per_s[i]));
    return print_json(json_pack("{s:o, s:{s:I, s:I, s:I}}", "pairs", pairs, "hand_over", "p50_us",
                                (json_int_t)bench->half_us, "p99_us", (json_int_t)bench->most_us,
                                "count", (json_int_t)bench->handovers));
}

static int report_plain(const struct bench *bench) {
    int64_t one = bench->pairs_per_s[0] > 0 ? bench->pairs_per_s[0] : 1;
    for (int i = 0; i < STEPS; i++)
        printf("%2d thread%s %10" PRId64 " pairs/s\n", thread_counts[i],
               thread_counts[i] == 1 ? ": " : "s:", bench->pairs_per_s[i]);
    printf("hand-over: %9.3f ms, 99 of 100 within %.3f ms (%zu measured)\n\n",
           (double)bench->half_us / 1000, (double)bench->most_us / 1000, bench->handovers);
    printf(
        "A pair is an acquire and a release of an uncontended lock: two round trips to the server.\n"
        "One thread makes %" PRId64
        " in a second, so a pair takes %.3f ms: what a program pays that\n"
        "locks around each piece of its work. The rows below show the total of programs with more\n"
        "threads; where the number stops growing, the server or this machine is saturated.\n"
        "A hand-over is the time from a release to the acquire of a thread that already waits: a\n"
        "contended lock changes hands at most %" PRId64 " times in a second.\n",
        bench->pairs_per_s[0], 1000.0 / (double)one,
        bench->half_us > 0 ? 1000000 / bench->half_us : 0);
    return finish_output();
}

static int measure(struct bench *bench) {
    hf_options options = HF_OPTIONS_INIT, others = HF_OPTIONS_INIT;
    int status = connection_open(bench->connection, &options, &bench->client);
    if (status == 0)
        status = connection_open(bench->connection, &others, &bench->other);
    for (int i = 0; i < STEPS && status == 0; i++)
        status = measure_pairs(bench, thread_counts[i], &bench->pairs_per_s[i]);
    if (status == 0)
        status = measure_handover(bench);
    if (status == 0)
        status = bench->connection->json ? report_json(bench) : report_plain(bench);
    hf_close(bench->client);
    hf_close(bench->other);
    return status;
}

static int run(struct connection *connection, int argc, char **argv) {
    struct bench bench = {.connection = connection, .prefix = "", .duration_ms = 2000};
    int first = command_options(&command_bench, specs, argc, argv, take, &bench);
    if (first <= 0)
        return -first;
    if (argc != first)
        return usage_error("bench", "unexpected argument: this subcommand takes options only");
    int status = connection_resolve(connection);
    return status != 0 ? status : measure(&bench);
}

const struct command command_bench = {
    .name = "bench",
    .options = specs,
    .summary = "measure the speed of locks on this server",
    .usage =
        "[OPTIONS]\n"
        "Measures how many locks can be acquired and released in a second by 1, 8 and 64 threads,\n"
        "and how soon a waiter gets a lock after its release. It uses 65 names of its own, and keeps\n"
        "the server busy.\n\n"
        "  -d, --duration DUR  of each of the four steps (2s; at most 1m)\n"
        "      --prefix TEXT   prefix of the names, if this user may use no others\n"
        "  -q, --quiet   -v, --verbose   --json\n"
        "\nExit status: 0.\n",
    .run = run,
};
